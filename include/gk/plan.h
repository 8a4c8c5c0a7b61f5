/* gk_plan: one problem with its chosen kernel, ready to run. */
#ifndef GK_PLAN_H
#define GK_PLAN_H

#include <gk/context.h>
#include <gk/extend.h>
#include <gk/ops.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Thread-safety: a plan is immutable; any number of threads may run it at the same time.
 */
typedef struct gk_plan gk_plan;

typedef struct gk_plan_options {
    size_t struct_size;
    gk_mode mode;         /* what to do with an untuned problem; 0 = the context's mode */
    double tune_budget_s; /* 0 = the context's budget */
    const char *variant;  /* force one variant ("simt"), NULL = any */
    const char *config;   /* force one configuration ("BLOCK_K=16 BLOCK_M=64 .."), needs variant */
} gk_plan_options;

#define GK_PLAN_OPTIONS_INIT                                                                       \
    {                                                                                              \
        sizeof(gk_plan_options), GK_MODE_DEFAULT, 0, NULL, NULL                                    \
    }

typedef enum gk_source {
    GK_SOURCE_FORCED = 1, /* the options named it */
    GK_SOURCE_TUNED = 2,  /* measured in this process */
    GK_SOURCE_CACHE = 3,  /* measured earlier, read from the cache file */
    GK_SOURCE_GUESS = 4,  /* the analytic model's choice */
    GK_SOURCE_EMPTY = 5,  /* nothing to compute */
} gk_source;

typedef struct gk_plan_description {
    size_t struct_size; /* set by the caller */
    gk_source source;
    char op[32];
    char variant[32];
    char config[256]; /* sorted NAME=value pairs, blank-separated */
    char kernel[128]; /* the name a profiler shows */
    int64_t grid;
    int32_t threads;
    int32_t registers; /* a thread; 0 if unknown */
    int64_t smem;
    int64_t workspace;
    double tuned_seconds; /* median measured when it was tuned; 0 if it was not */
    void *function;       /* the driver's handle of the kernel: a CUfunction; NULL on "cpu" */
    int32_t cluster;      /* blocks a cluster; 0 or 1 = none */
    int32_t cooperative;  /* 1: launched so that all blocks are on the device at once */
    int32_t overlap;      /* 1: launched as a programmatic dependent of what is before it */
} gk_plan_description;

/*
 * Finds, tunes or builds what `call` needs (gk_mode says which), with its kernel loaded. `op` is
 * an op's or a preset's name; attributes of a preset override the call's. The call's tensors
 * stand for every call of the same problem: shapes, dtypes, layouts and alignment classes count,
 * data pointers do not matter beyond their alignment. options may be NULL. The plan is owned by
 * the caller, destroyed before its context. *out is NULL on failure.
 * Errors: as gk_matmul(), and GK_ERR_NOT_FOUND for an unknown op or variant, GK_ERR_VERSION
 * (options.struct_size). Thread-safe.
 */
GK_API GK_NODISCARD gk_status gk_plan_create(gk_plan **out, gk_context *ctx, const char *op,
                                             const gk_call *call, const gk_plan_options *options);

/*
 * Runs the plan on the call's tensors in `stream`. The call must be of the plan's problem:
 * GK_ERR_INVALID otherwise. Thread-safe.
 */
GK_API GK_NODISCARD gk_status gk_plan_run(const gk_plan *plan, const gk_call *call, void *stream);

/* Fills *out. Errors: GK_ERR_INVALID, GK_ERR_VERSION (struct_size). Thread-safe. */
GK_API gk_status gk_plan_info(const gk_plan *plan, gk_plan_description *out);

/*
 * Writes the parameter struct with which gk_plan_run() would launch gk_plan_description.function
 * for this call in `stream`, the kernel's only parameter, for callers that launch it themselves.
 * *size comes in as the bytes at `out` (GK_MAX_KERNEL_ARGS always do) and becomes the struct's. It
 * names the stream's scratch memory: in other streams, or beside other calls in this one, launch it
 * only if gk_plan_description.workspace is 0.
 * Errors: as gk_plan_run(); GK_ERR_INVALID if it does not fit or the plan computes nothing.
 * Thread-safe.
 */
GK_API GK_NODISCARD gk_status gk_plan_args(const gk_plan *plan, const gk_call *call, void *stream,
                                           void *out, size_t *size);

/* Frees the plan; *plan becomes NULL. NULL and a pointer to NULL are fine. */
GK_API void gk_plan_destroy(gk_plan **plan);

/*
 * Makes the later calls of the same problem in `stream` free of compiling, tuning, loading and
 * allocating, so that they may stand in a stream capture or a latency-bound loop. A graph captured
 * from the stream uses the stream's scratch memory: do not replay it in another stream while calls
 * run in this one.
 * Errors: as gk_plan_create(). Thread-safe.
 */
GK_API GK_NODISCARD gk_status gk_prepare(gk_context *ctx, const char *op, const gk_call *call,
                                         void *stream);

/* Fills *call for gk_matmul's arguments; the tensors are borrowed. Thread-safe. */
GK_API gk_status gk_matmul_call(gk_call *call, const gk_tensor *a, const gk_tensor *b,
                                const gk_tensor *c, const gk_matmul_params *params);

/* Fills *call for gk_map's arguments; tensors and expression are borrowed. Thread-safe. */
GK_API gk_status gk_map_call(gk_call *call, const char *expression, const gk_tensor *inputs,
                             uint32_t n_inputs, const gk_tensor *out);

/* The same for gk_reduce(). */
GK_API gk_status gk_reduce_call(gk_call *call, const gk_tensor *x, const gk_tensor *out,
                                const gk_reduce_params *params);

#ifdef __cplusplus
}
#endif

#endif
