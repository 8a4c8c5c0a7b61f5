/* The context behind the public handle, and the path from a call to a launch. */
#ifndef GKI_CONTEXT_H
#define GKI_CONTEXT_H

#include <pthread.h>

#include <gk/tune.h>

#include "jit/jit.h"
#include "tune/tune.h"

/*
 * A problem's answer with its kernel loaded. Immutable once it is published, but for `replaced`.
 * What a call reads comes first, in the order in which it does: with many problems each line is
 * fetched from afar.
 */
typedef struct gki_entry {
    _Alignas(64) gk_problem problem;
    const gk_op_desc *op;

    _Alignas(64) const gk_variant *variant; /* NULL: nothing to compute */
    gki_module *module;
    gk_launch launch;

    gk_config config;
    uint64_t id;          /* no other entry in the process has it */
    atomic_bool replaced; /* by a later answer to the problem */

    gki_kernel *kernel;
    struct gki_entry *older; /* answers that it replaced in the table, which frees them */
    double seconds;
    gk_source source;
} gki_entry;

enum { GKI_ENTRY_ALIGN = 64, GKI_ENTRY_HOT_BYTES = offsetof(gki_entry, kernel) };

static inline gki_recipe gki_entry_recipe(const gki_entry *entry)
{
    const gki_recipe recipe = {entry->op,      entry->variant, &entry->problem,
                               &entry->config, entry->kernel,  &entry->launch};
    return recipe;
}

/* Problem -> entry. Readers take no lock; entries live until the table is freed. */
typedef struct gki_table_slots gki_table_slots;
typedef struct gki_table {
    _Atomic(gki_table_slots *) slots;
    atomic_uint_fast64_t replacements; /* of entries by later ones for the same problems */
    pthread_mutex_t mutex;
    size_t count;
} gki_table;

gk_status gki_table_init(gki_table *table);
void gki_table_free(gki_table *table);
gki_entry *gki_table_find(gki_table *table, const gk_problem *problem, uint64_t hash);
/* Takes the entry over. If the problem is there already the new entry replaces it for later
 * look-ups, and the old one stays valid but is marked as replaced. */
gk_status gki_table_insert(gki_table *table, gki_entry *entry, uint64_t hash);

/* Scratch memory of one stream, shared by every launch in it. Only grows. */
typedef struct gki_workspace {
    struct gki_workspace *next;
    void *stream;
    uint64_t thread; /* that the stream belongs to; 0 = all threads' */
    void *scratch;
    void *zeroed;
    int64_t scratch_bytes;
    int64_t zeroed_bytes;
} gki_workspace;

/* A problem that some thread is working on; the others wait for it. */
typedef struct gki_waiter gki_waiter;
typedef struct gki_flight {
    struct gki_flight *next;
    const gk_problem *problem;
    gk_mode mode;
    gki_waiter *waiters;
} gki_flight;

typedef struct gki_makeshift gki_makeshift;

/* Calls are counted by threads in pairs of lines of their own, as processors fetch them: the launch
 * path shares no cache line. */
enum { GKI_CALL_STRIPES = 16 };
typedef struct gki_calls {
    _Alignas(128) atomic_uint_fast64_t count;
} gki_calls;

struct gk_context {
    uint32_t serial;     /* tells it from all other contexts, also past ones; never 0 */
    uint64_t generation; /* of forks, when it was created */
    gki_calls calls[GKI_CALL_STRIPES];
    gki_log log;
    gk_mode mode;
    double tune_budget_s;
    gki_device *device;
    gk_device_info info;
    gki_cache *cache;
    gki_jit *jit;
    gki_counters counters;
    gki_table table;
    _Atomic(gki_workspace *) workspaces;
    pthread_mutex_t mutex; /* guards flights, makeshifts and the growth of workspaces */
    pthread_cond_t landed;
    gki_flight *flights;
    gki_makeshift *makeshifts;
    pthread_mutex_t tune_mutex;  /* one measurement at a time */
    _Atomic(const void *) tuner; /* tells the thread that holds tune_mutex; NULL = none */
};

struct gk_plan {
    gk_context *ctx;
    const gk_preset *preset; /* its attributes hold for every run; NULL = none */
    gki_entry *entry;
    bool owned; /* the entry is the plan's, not the table's */
};

/* gk_context_create on a given driver: the seam for fakes. */
gk_status gki_context_create_on(gk_context **out, const gki_driver *driver, int32_t ordinal,
                                const gk_context_options *options);

/* NULL, or created before a fork: a status with its message. */
gk_status gki_context_usable(const gk_context *ctx, const char *where);

/* Where a struct has a text, which its size may not cut: a list of them ends in {0, 0}. */
typedef struct gki_span {
    size_t begin;
    size_t end;
} gki_span;
#define GKI_TEXT(type, field)                                                                      \
    {                                                                                              \
        offsetof(type, field), offsetof(type, field) + sizeof(((type *)NULL)->field)               \
    }

/* Copies a versioned options struct, which has no texts: a shorter one is extended by zeros, a
 * longer one must end in zeros. NULL source = all zeros. See gk/base.h for the sizes. */
gk_status gki_options_read(void *dst, size_t dst_size, const void *src, const char *what);
/* A mode and a number of seconds as options may hold them. */
gk_status gki_options_mode(gk_mode mode, const char *where);
gk_status gki_options_seconds(double seconds, const char *where, const char *what);
/* NULL, or a size that cannot be: a status with its message. */
gk_status gki_result_check(const void *dst, size_t src_size, const gki_span *texts,
                           const char *where, const char *what);
/* Checks, and copies as much of a result struct as the caller has room for. */
gk_status gki_result_write(void *dst, const void *src, size_t src_size, const gki_span *texts,
                           const char *where, const char *what);

/* The call as the plan runs it, with the preset applied: GK_ERR_INVALID unless it is of the plan's
 * problem. */
gk_status gki_plan_call(const gk_plan *plan, const gk_call *call, gk_call *applied);
/* The op of that name with its preset's attributes applied to a copy of the call, and the problem
 * inferred. preset may be NULL. */
gk_status gki_call_resolve(const char *op_name, const gk_call *call, const gk_op_desc **op,
                           const gk_preset **preset, gk_call *resolved, gk_problem *problem);

/* Finds, tunes or builds the problem's entry, by the mode. *owned: the entry is not in the table
 * (a makeshift answer, or not what the context's mode would come to) and the caller frees it with
 * gki_free after use. */
gk_status gki_resolve(gk_context *ctx, const gk_op_desc *op, const gk_call *call,
                      const gk_problem *problem, gk_mode mode, double budget_s, void *stream,
                      gki_entry **out, bool *owned);
/* The model's favourite that compiles without spilling, of one variant or (NULL) of all. */
gk_status gki_entry_guess(gk_context *ctx, const gk_op_desc *op, const gk_problem *problem,
                          const char *only, gki_entry **out);
/* A new entry for one given configuration; freed with gki_free. */
gk_status gki_entry_build(gk_context *ctx, const gk_op_desc *op, const gk_problem *problem,
                          const gk_variant *variant, const gk_config *config, gk_source source,
                          gki_entry **out);
/* One of its own, for the caller; NULL if memory is out. */
gki_entry *gki_entry_copy(const gki_entry *entry);
/* The entry in the table that the mode may use; NULL if there is none. */
gki_entry *gki_entry_known(gk_context *ctx, const gk_problem *problem, gk_mode mode);
/* Puts the entry in the table; frees it on failure. */
gk_status gki_entry_publish(gk_context *ctx, gki_entry *entry);
/* Tunes under the context's lock and puts the answer in the table, unless *owned as above. */
gk_status gki_entry_tune(gk_context *ctx, const gk_op_desc *op, const gk_call *call,
                         const gk_problem *problem, const gk_tune_options *options, gki_entry **out,
                         bool *owned, gk_tune_report *report);

/* Whether the calling thread is in a tuning of the context: it calls from a progress callback, and
 * may neither tune nor wait for threads that do. */
bool gki_is_tuning(const gk_context *ctx);

typedef enum gki_turn {
    GKI_TURN_FLY,    /* the caller does the work, then lands */
    GKI_TURN_FOUND,  /* another did, or an answer of the moment serves (*owned) */
    GKI_TURN_FAILED, /* another did and failed as the error record says */
} gki_turn;

/* Waits while another thread works on the problem. */
gki_turn gki_flight_join(gk_context *ctx, const gk_problem *problem, gk_mode mode,
                         gki_flight *flight, gki_entry **out, bool *owned);
/* Ends the flight with the status that the error record belongs to. */
void gki_flight_land(gk_context *ctx, gki_flight *flight, gk_status status);
/* Serves the problem with a copy of the entry for a moment. */
void gki_makeshift_keep(gk_context *ctx, const gki_entry *entry);
void gki_makeshift_free(gk_context *ctx);

/* Scratch for the entry in the stream; *out NULL if it needs none. */
gk_status gki_workspace_find(gk_context *ctx, const gk_launch *launch, void *stream,
                             const gki_workspace **out);
/* Whether it is still the stream's, asked by the calling thread. */
bool gki_workspace_serves(const gki_workspace *space, const void *stream);
void gki_workspace_free(gk_context *ctx);

/* A plan's run: checks that the call is of its problem, packs, launches. */
gk_status gki_plan_launch(const gk_plan *plan, const gk_call *call, void *stream);
/* The whole of an op's call: infer, look up, resolve if need be, run. */
gk_status gki_call_run(gk_context *ctx, const gk_op_desc *op, const gk_call *call, void *stream);

#endif
