/* Tuning in advance, and looking after the cache: what gk-tune is made of. */
#ifndef GK_TUNE_H
#define GK_TUNE_H

#include <gk/plan.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum gk_effort {
    GK_EFFORT_DEFAULT = 0, /* GK_EFFORT_FULL */
    GK_EFFORT_QUICK = 1,   /* the 12 configurations the model likes best */
    GK_EFFORT_FULL = 2,    /* the 64 it likes best, every variant among them */
    GK_EFFORT_EXHAUSTIVE = 3,
} gk_effort;

/* Where a tuning stands; passed to the progress callback. Strings live during the call only. */
typedef struct gk_tune_progress {
    const char *stage; /* "compile", "verify", "measure", "final" */
    uint32_t done;     /* of `total` in this stage */
    uint32_t total;
    double elapsed_s;
    double best_seconds; /* 0 while there is none */
} gk_tune_progress;

/*
 * Returns false to stop: what was measured so far is kept and the best verified candidate wins. It
 * is called in gk_tune()'s thread and may use the same context: there a problem that would have to
 * be tuned runs the analytic guess for this once, gk_prepare() settles on that, and gk_tune()
 * returns GK_ERR_INVALID.
 */
typedef bool (*gk_tune_progress_fn)(void *user, const gk_tune_progress *progress);

typedef struct gk_tune_options {
    size_t struct_size;
    gk_effort effort;
    double budget_s;     /* 0 = no limit. A third of it is left for comparing what was compiled,
                            and begun compiles are waited for, if need be by exceeding it */
    bool retune;         /* measure again though there is an answer */
    const char *variant; /* only this one is measured; NULL = all. An answer that is stored already
                            is returned whatever its variant, unless `retune` */
    gk_tune_progress_fn progress;
    void *progress_user;
} gk_tune_options;

#define GK_TUNE_OPTIONS_INIT                                                                       \
    {                                                                                              \
        sizeof(gk_tune_options), GK_EFFORT_DEFAULT, 0, false, NULL, NULL, NULL                     \
    }

typedef struct gk_tune_report {
    size_t struct_size; /* set by the caller */
    bool from_cache;    /* there was an answer and nothing was measured */
    bool saved;         /* the answer is in the cache file, not in memory alone */
    uint32_t space;     /* configurations of all variants */
    uint32_t tried;     /* candidates compiled */
    uint32_t refused;   /* of them: failed to compile, spilled, failed to launch, or wrong */
    uint32_t measured;
    char variant[32];
    char config[256];
    double seconds;       /* the winner's median */
    double spread;        /* relative median absolute deviation */
    double guess_seconds; /* the untuned choice, measured in the same race; 0 if it never ran */
    double wall_s;
    double compile_s; /* sum over compiles */
    double flops;
    double bytes;
    double roofline_seconds; /* max(flops / peak, bytes / bandwidth); 0 if unknown */
} gk_tune_report;

/*
 * Tunes the call's problem and stores the answer. The call's data pointers are not touched.
 * Errors: as gk_plan_create(); GK_ERR_NO_CONFIG if no candidate compiled, launched and gave right
 * results; GK_ERR_CANCELLED if progress stopped it before there was any. Thread-safe.
 */
GK_API GK_NODISCARD gk_status gk_tune(gk_context *ctx, const char *op, const gk_call *call,
                                      const gk_tune_options *options, gk_tune_report *report);

/* One stored answer. Strings live during the callback only. */
typedef struct gk_cache_entry {
    const char *op;
    const char *problem; /* canonical text */
    const char *environment;
    bool current; /* made for this device, compiler and template */
    const char *variant;
    const char *config;
    double seconds;
    uint32_t trials;
    int64_t created; /* seconds since 1970 */
} gk_cache_entry;

/* Returns false to stop the listing. */
typedef bool (*gk_cache_entry_fn)(void *user, const gk_cache_entry *entry);

/* Lists the stored answers, sorted by op and problem. op NULL = all. */
GK_API gk_status gk_cache_list(gk_context *ctx, const char *op, gk_cache_entry_fn fn, void *user);

/* One trial of one problem. */
typedef struct gk_trial {
    const char *variant;
    const char *config;
    const char *status; /* "ok", "dropped", "wrong", "compile_error", "no_resource", .. */
    double seconds;     /* 0 if it was never timed */
    double spread;
    double max_error; /* of the tolerance; above 1 is wrong */
    bool chosen;
} gk_trial;

typedef bool (*gk_trial_fn)(void *user, const gk_trial *trial);

/* Lists what was tried for the call's problem on this device, fastest first. */
GK_API gk_status gk_cache_trials(gk_context *ctx, const char *op, const gk_call *call,
                                 gk_trial_fn fn, void *user);

/*
 * The answers as sorted text, one a line, the same bytes for the same answers (no compiled code).
 * gk_cache_import merges: an answer that is there already is kept unless `replace`. Lines it cannot
 * use are skipped and counted. Errors: GK_ERR_IO (path), GK_ERR_CACHE.
 */
GK_API gk_status gk_cache_export(gk_context *ctx, const char *path, uint32_t *count);
GK_API gk_status gk_cache_import(gk_context *ctx, const char *path, bool replace,
                                 uint32_t *imported, uint32_t *skipped);

/* Problems that ran untuned, most called first. */
typedef bool (*gk_miss_fn)(void *user, const char *op, const char *problem, uint64_t calls);
GK_API gk_status gk_cache_misses(gk_context *ctx, gk_miss_fn fn, void *user);

/* What the context's device is. Errors: GK_ERR_INVALID. */
GK_API gk_status gk_device_info_get(gk_context *ctx, gk_device_info *out);

/*
 * Times the plan: each of `rounds` values in `seconds` is the time of one run, averaged over a
 * batch that goes through calls[0] to calls[n_calls - 1] in turn, so that copies of the operands
 * which together exceed the L2 cache give cold times. Runs below 50 us are replayed from a graph,
 * so that the host's launch rate is not what is measured, and what L2 holds is evicted before each
 * batch of them. The calls' outputs are written. Errors: GK_ERR_INVALID, GK_ERR_NOMEM,
 * GK_ERR_DEVICE. Thread-safe, but other work on the device disturbs.
 */
GK_API gk_status gk_measure(const gk_plan *plan, const gk_call *calls, uint32_t n_calls,
                            uint32_t rounds, double *seconds);

#ifdef __cplusplus
}
#endif

#endif
