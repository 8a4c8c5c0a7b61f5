/* gk_context: one device, its compiler, its cache, and everything compiled and tuned so far. */
#ifndef GK_CONTEXT_H
#define GK_CONTEXT_H

#include <gk/base.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Thread-safety: every function takes the same context from any number of threads, except that
 * gk_context_destroy() must be the last use. A context on a GPU does not survive fork(): in the
 * child every call with it or with a plan of it returns GK_ERR_FORKED, but for those that destroy.
 */
typedef struct gk_context gk_context;

/* What a call does with a problem that has no tuned answer. */
typedef enum gk_mode {
    GK_MODE_DEFAULT = 0,   /* the environment variable GK_MODE, else GK_MODE_TUNE */
    GK_MODE_TUNE = 1,      /* tune now, within the budget, on buffers of gk's own; then run */
    GK_MODE_HEURISTIC = 2, /* run the analytic guess now and count the miss */
    GK_MODE_CACHED = 3,    /* return GK_ERR_UNTUNED */
    GK_MODE_PINNED = 4,    /* always the analytic guess, whatever is cached: bit-equal runs */
} gk_mode;

typedef struct gk_context_options {
    size_t struct_size;     /* sizeof(gk_context_options) */
    const char *cache_path; /* the cache file; NULL = $GK_CACHE, $XDG_CACHE_HOME/gk/gk.db,
                               $HOME/.cache/gk/gk.db, else memory; ":memory:" = memory only. Where
                               HOME is not set or relative, the passwd entry's home stands for it */
    gk_mode mode;
    double tune_budget_s;    /* seconds one problem may be tuned for; 0 = 2, or $GK_TUNE_BUDGET */
    int32_t compile_threads; /* threads that compile at once; 0 = the processors there are */
    gk_log_level log_level;  /* 0 = GK_LOG_WARNING */
    gk_log_fn log;           /* NULL = no logging */
    void *log_user;          /* passed to log */
    uint64_t kernel_cache_bytes; /* compiled code kept in the cache file; 0 = 256 MiB */
} gk_context_options;

/* Zeroed options with the size set: gk_context_options o = GK_CONTEXT_OPTIONS_INIT; */
#define GK_CONTEXT_OPTIONS_INIT                                                                    \
    {                                                                                              \
        sizeof(gk_context_options), NULL, GK_MODE_DEFAULT, 0, 0, (gk_log_level)0, NULL, NULL, 0    \
    }

/*
 * Opens a device: "cuda" (the first GPU), "cuda:1", "cpu" (the kernels compiled by the host C++
 * compiler and run on the CPU: for development and tests, never fast); NULL = "cuda". A device is
 * never replaced by another one silently. options may be NULL. Trouble with the cache file does
 * not fail the call: gk works in memory then, warns once and says so in gk_stats. A damaged cache
 * is renamed to "<path>.corrupt-<time>-<pid>" and begun anew if it is known to be gk's: it begins
 * as a gk cache, a context of the process has it open, or it lies at the place that neither
 * cache_path nor GK_CACHE named (a link there counts as somebody's choice). Any other file that is
 * no gk cache is left as it is.
 * *out is owned by the caller, destroyed with gk_context_destroy(); NULL on failure.
 * Errors: GK_ERR_INVALID (name, options), GK_ERR_NO_DRIVER (no GPU, no libcuda, only the
 * toolkit's stub), GK_ERR_NO_COMPILER, GK_ERR_VERSION, GK_ERR_NOMEM.
 */
GK_API GK_NODISCARD gk_status gk_context_create(gk_context **out, const char *device,
                                                const gk_context_options *options);

/* Frees everything; *ctx becomes NULL. NULL and a pointer to NULL are fine. Work that was launched
 * on streams must be finished, and plans of the context destroyed before. */
GK_API void gk_context_destroy(gk_context **ctx);

/*
 * Device memory. Pointers from elsewhere (cuMemAlloc, cudaMalloc, a framework) serve as well; on
 * "cpu" any host pointer does. gk_mem_alloc aligns to 256 bytes; *out is NULL on failure and for 0
 * bytes. gk_mem_free nulls *ptr; NULL is fine. Copies are ordered in `stream` (a CUstream or
 * cudaStream_t; NULL = the default stream) and have finished with host memory when they return.
 * Errors: GK_ERR_INVALID, GK_ERR_NOMEM, GK_ERR_DEVICE.
 */
GK_API GK_NODISCARD gk_status gk_mem_alloc(gk_context *ctx, size_t bytes, void **out);
GK_API gk_status gk_mem_free(gk_context *ctx, void **ptr);
GK_API GK_NODISCARD gk_status gk_mem_upload(gk_context *ctx, void *dst, const void *src,
                                            size_t bytes, void *stream);
GK_API GK_NODISCARD gk_status gk_mem_download(gk_context *ctx, void *dst, const void *src,
                                              size_t bytes, void *stream);

/* Waits until all work in `stream` is done, and reports what failed in it. */
GK_API GK_NODISCARD gk_status gk_synchronize(gk_context *ctx, void *stream);

/* Counts since the context was created. */
typedef struct gk_statistics {
    size_t struct_size; /* set by the caller to sizeof(gk_statistics) */
    uint64_t calls;     /* calls that reached a launch, in this process */
    uint64_t launches;  /* kernels launched for calls (trial runs are not counted) */
    uint64_t compiles;  /* kernels compiled */
    uint64_t compile_failures;
    uint64_t tunes;       /* problems tuned */
    uint64_t trials;      /* configurations measured */
    uint64_t hits_memory; /* problems answered from this process' table (first use only) */
    uint64_t hits_cache;  /* problems answered from the cache file */
    uint64_t misses;      /* problems neither knew */
    uint64_t guesses;     /* problems answered by the analytic guess */
    uint64_t kernels_loaded;
    uint64_t cache_errors; /* failures of the cache file; each left the call unharmed */
    uint64_t workspace_bytes;
    char cache_path[256];     /* "" if in memory only; a longer path ends in "..." */
    char cache_degraded[128]; /* why the cache file is not in use; "" if it is */
} gk_statistics;

/* Fills *out. Errors: GK_ERR_INVALID, GK_ERR_VERSION (struct_size). */
GK_API gk_status gk_stats(gk_context *ctx, gk_statistics *out);

#ifdef __cplusplus
}
#endif

#endif
