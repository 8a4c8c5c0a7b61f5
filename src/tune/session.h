/* One tuning: what its stages share. */
#ifndef GKI_SESSION_H
#define GKI_SESSION_H

#include "tune/race.h"
#include "tune/select.h"
#include "tune/verify.h"

/* A candidate on its way through the stages. */
typedef struct gki_entrant {
    gki_candidate candidate;
    char config[256];
    uint32_t group; /* shared with the entrants that have the same code */
    bool is_guess;
    bool is_incumbent;
    bool tried;         /* compiled, or refused by the compiler */
    bool taken;         /* by gki_build_next() */
    bool verified;      /* it passed the first check */
    bool fully_checked; /* on the problem itself */
    gki_kernel *kernel;
    gk_launch launch;   /* on the problem itself */
    const char *status; /* GKI_TRIAL_*; NULL while nothing is known */
    char why[256];
    double max_error;
    double seconds;
    double spread;
} gki_entrant;

/* A problem's operands, with what their output must be. */
typedef struct gki_bench {
    gk_problem problem;
    gki_operands *operands;
    gki_verifier *verifier;
} gki_bench;

/* A device buffer with a guard behind what is lent of it. */
typedef struct gki_scratch {
    unsigned char *memory;
    int64_t bytes;
} gki_scratch;

typedef struct gki_session {
    gki_jit *jit;
    gki_device *device;
    const gki_log *log;
    gk_device_info info;
    const gk_op_desc *op;
    const gk_call *call;
    gk_problem problem;
    gk_tune_options options;
    gki_key key;
    char problem_text[GKI_PROBLEM_TEXT]; /* as large as where else the key is made */
    char environment_text[GKI_ENVIRONMENT_TEXT];
    uint64_t started_ns;
    double end_s; /* seconds from the start until which candidates are timed; 0 = no limit */
    void *stream;

    gki_candidate *space;
    uint32_t n_space;
    bool *picked;
    bool *excluded;
    uint32_t *groups;
    gki_entrant *entrants; /* most promising first */
    uint32_t n_entrants;
    struct gki_build *build;
    bool bad_incumbent; /* there was a stored answer that cannot be used */

    gki_bench real;    /* the problem itself; operands NULL on a device where it would take ages */
    gki_bench reduced; /* a smaller one, where the reference of the problem itself is too slow */
    gki_scratch workspace;
    gki_scratch zeroed;
    gki_kernel_launch *launches;
    unsigned char *args;
    uint32_t next_set;

    bool no_reduced; /* no candidate can run there */
    bool cancelled;
    gki_racer *racers; /* and the entrants they are */
    uint32_t *racing;
    uint32_t n_racers;
    uint32_t n_timings;
} gki_session;

double gki_session_elapsed(const gki_session *s);
/* Tells the caller; false once it has asked to stop. */
bool gki_session_progress(gki_session *s, const char *stage, uint32_t done, uint32_t total,
                          double best);
/* Records why an entrant is out. */
void gki_session_refuse(gki_session *s, gki_entrant *entrant, const char *status, const char *why);
/* True for failures that are nobody's fault but end the tuning. */
bool gki_session_fatal(gk_status status);

/* --- bench.c --- */

/* The reduced problem, if the op has one; false if not, or if the problem itself is small enough.
 */
bool gki_bench_reduced_problem(const gki_session *s, gk_problem *out);
/* Makes `real` and `reduced`. */
gk_status gki_bench_prepare(gki_session *s);
void gki_bench_free(gki_bench *bench);

/* --- build.c --- */

/* Begins to compile the entrants' codes, in threads of its own. An entrant belongs to them until
 * gki_build_next() hands it out or gki_build_close() returned. */
gk_status gki_build_start(gki_session *s);
/* The most promising entrant that is compiled and was not handed out before. Waits for one, and
 * tells the caller how far compiling is. *out is NULL if none will come any more, once `until`
 * seconds of the tuning have passed (`guess_until` if the guess is still to come; 0 = no limit),
 * or if it was cancelled. */
gk_status gki_build_next(gki_session *s, double until, double guess_until, gki_entrant **out);
/* No compile begins any more; what those that run make only enters the cache. */
void gki_build_close(gki_session *s);
/* Waits for the compiles that run, and frees what gki_build_start() made. */
void gki_build_end(gki_session *s);

/* --- check.c --- */

/* Checks the entrants as they are compiled until the caller asks to stop, or one is right and this
 * stage's share of the budget is spent. */
gk_status gki_check_all(gki_session *s);

/* --- trial.c --- */

/* Loads the entrant's kernel for its launch on the problem itself. */
gk_status gki_trial_load(gki_session *s, gki_entrant *entrant);
/* Runs the entrant twice on the bench and looks at what it wrote, see gki_verifier_check(). Its
 * faults become its status. */
gk_status gki_trial_check(gki_session *s, gki_entrant *entrant, gki_bench *bench, bool deep);
/* Times `runs` launches on the bench's rotating sets. GK_ERR_NO_CONFIG and a status of the
 * entrant's if the device has no memory for its scratch. */
gk_status gki_trial_time(gki_session *s, gki_entrant *entrant, const gki_bench *bench,
                         uint32_t runs, bool warm, double *seconds);
void gki_trial_free(gki_session *s);

/* --- publish.c --- */

/* Stores winner and trials; only the trials if nothing was compared. Where another process was
 * first, its answer is adopted: *adopted. */
gk_status gki_publish(gki_session *s, int32_t winner, gki_candidate *out, gki_choice *choice,
                      bool *adopted, bool *saved);
/* Stores trials without an answer. */
void gki_keep_trials(gki_session *s);
/* A stored answer that can be used here; false if there is none. *bad: there is one that cannot. */
bool gki_stored_answer(gki_session *s, gki_candidate *out, gki_choice *choice, bool *bad);
void gki_report(const gki_session *s, const gki_choice *choice, gk_tune_report *report);

#endif
