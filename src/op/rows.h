/* What the ops on whole rows, softmax and norm, share. A row lies along the tensors' last axis. */
#ifndef GKI_ROWS_H
#define GKI_ROWS_H

#include <gk/extend.h>

enum { ROWS_X, ROWS_OUT, ROWS_WEIGHT, ROWS_BIAS, ROWS_MAX_ARGS };
enum { ROWS_ROWS, ROWS_COLS, ROWS_N_DIMS };
enum { SOFTMAX_LOG, SOFTMAX_N_ATTRS };
enum { NORM_KIND, NORM_EPS, NORM_N_ATTRS };
enum { NORM_RMS, NORM_LAYER };

/* rows_infer.c */
extern const char *const gki_rows_names[ROWS_MAX_ARGS];
gk_status gki_rows_infer(const char *where, uint32_t n_args, const gk_call *call,
                         gk_problem *problem);
bool gki_rows_is_empty(const gk_problem *problem);

/* Where an axis outside the rows could not be made one with the next: a layout of x beside
 * GK_LAYOUT_ROW, whose rows lie at one distance, and GK_LAYOUT_STRIDED. */
enum { ROWS_LAYOUT_AXES = 3 };

/* rows_shared.c */

/* The axes outside the rows, those that both tensors step through alike made one: shape,
 * x_row_stride and out_row_stride of gk_rows_args, the innermost first. Returns how many, at least
 * 1. */
int gki_rows_collapse(const gk_tensor *x, const gk_tensor *out, long long *shape,
                      long long *x_stride, long long *out_stride);

/* X_TYPE, OUT_TYPE, X_UNIT, .. and, from the first attribute, the constant of this name. */
void gki_rows_constants(const gk_problem *problem, const char *attribute, gk_constants *out);
size_t gki_rows_pack(const gk_call *call, const gk_problem *problem, const gk_variant *variant,
                     const gk_config *config, void *workspace, void *zeroed, void *out);
/* x and out of the case; the op adds what else it has. */
gk_status gki_rows_example(const char *where, const gk_case *item, gk_tensor *tensors,
                           gk_call *call);
bool gki_rows_reduce(const gk_call *call, int64_t max_flops, gk_tensor *tensors, gk_call *out);
bool gki_rows_part(const gk_call *call, uint32_t index, int64_t max_flops, gk_tensor *tensors,
                   gk_call *out);
/* Operations counted for an element. */
enum { ROWS_FLOPS = 5 };
void gki_rows_work(const gk_problem *problem, double *flops, double *bytes);
/* Row `row` of t, counted over all axes but the last, as doubles. */
void gki_rows_load(const gk_tensor *t, int64_t row, double *out);

/* What a vector of at most `bytes` bytes makes of a row; gk/rows.cuh says the same. */
typedef struct gki_rows_shape {
    int64_t size;    /* of an element of x */
    int64_t vec;     /* elements of a vector */
    int64_t vectors; /* that a row has at most */
    int64_t summary; /* bytes of a summary_slot */
} gki_rows_shape;

gki_rows_shape gki_rows_shape_of(const gk_problem *problem, int64_t bytes);
/* Threads need few registers beside what they hold: rows are whole vectors, and an element has one
 * factor at most. */
bool gki_rows_is_lean(const gk_problem *problem, const gki_rows_shape *s);

/* rows_held.c */

/* Vectors of a row that each thread holds; with `rest` shared memory has those for which there are
 * no registers. */
typedef struct gki_rows_held {
    int64_t registers, shared;
    int64_t missing; /* vectors of the row that nobody holds */
    bool rest;
} gki_rows_held;

/* Of a row on so many threads, `vectors` in registers of each. */
gki_rows_held gki_rows_held_by(const gki_rows_shape *s, int64_t threads, int64_t vectors,
                               bool rest);
/* Can blocks of so many threads hold them, and is it worthwhile? */
bool gki_rows_check_held(const gk_problem *problem, const gk_device_info *device,
                         const gki_rows_shape *s, const gki_rows_held *held, int64_t threads,
                         bool persistent, gk_reason *reason);

static inline int64_t gki_rows_ceil(int64_t a, int64_t b)
{
    return a / b + (a % b != 0);
}

static inline int64_t gki_rows_smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* rows_model.c */

typedef struct gki_rows_estimate {
    double blocks; /* launched, each for `turns` rows or groups of rows */
    double turns;
    double resident; /* blocks on a multiprocessor */
    double seats;    /* multiprocessors that may have blocks, where clusters do not fit on all */
    double threads;
    double lanes;    /* that exchange sums by shuffles, first in a warp, then for warps */
    double elements; /* slots for elements that a block goes through in a turn */
    double vec;      /* elements of a vector */
    double extra;    /* bytes read again */
    double exchange; /* seconds in a turn that blocks wait for each other */
    bool persistent; /* a block's next row is asked for behind its stores */
    bool in_shared;  /* rows are held there, or parts of them */
    double seldom;   /* of the time of memory, where one block alone is on a multiprocessor */
    double slower;   /* what H100 timings show beyond the model, of all of it */
} gki_rows_estimate;

/* A norm's kernel multiplies by a weight, softmax computes exponentials. */
bool gki_rows_is_norm(const gk_problem *problem);

/* Blocks for which there is room for certain if a thread holds so many vectors of so many rows in
 * registers; the templates are compiled for as many (gk/rows.cuh). */
int64_t gki_rows_resident(const gk_device_info *device, const gki_rows_shape *s, int64_t threads,
                          int64_t rows, int64_t vectors, int64_t smem);
/* Blocks for which there is room by what the compiler usually takes: at least as many. */
int64_t gki_rows_likely(const gk_problem *problem, const gk_device_info *device,
                        const gki_rows_shape *s, int64_t threads, int64_t rows, int64_t vectors,
                        int64_t smem);
/* The same where shared memory may hold a part. */
int64_t gki_rows_holding(const gk_problem *problem, const gk_device_info *device,
                         const gki_rows_shape *s, const gki_rows_held *held, int64_t threads,
                         int64_t smem);
double gki_rows_seconds(const gk_problem *problem, const gk_device_info *device,
                        const gki_rows_estimate *e);

/* The variants but for their templates, one file each. */
#define GKI_ROWS_DECLARE(name, count)                                                              \
    enum { gki_rows_##name##_count = (count) };                                                    \
    extern const gk_param gki_rows_##name##_params[count];                                         \
    bool gki_rows_##name##_check(const gk_problem *problem, const gk_device_info *device,          \
                                 const gk_config *config, gk_reason *reason);                      \
    void gki_rows_##name##_launch(const gk_problem *problem, const gk_device_info *device,         \
                                  const gk_config *config, gk_launch *out);                        \
    double gki_rows_##name##_model(const gk_problem *problem, const gk_device_info *device,        \
                                   const gk_config *config);

GKI_ROWS_DECLARE(stream, 3)
GKI_ROWS_DECLARE(warp, 6)
GKI_ROWS_DECLARE(block, 5)
GKI_ROWS_DECLARE(cluster, 5)
GKI_ROWS_DECLARE(split, 6)

/* Variant `which` of an op, whose file has a function constants(). */
#define GKI_ROWS_VARIANT(op, which, cc)                                                            \
    static const gk_variant which = {                                                              \
        .struct_size = sizeof(gk_variant),                                                         \
        .name = #which,                                                                            \
        .source = op "_" #which ".cu",                                                             \
        .params = gki_rows_##which##_params,                                                       \
        .n_params = gki_rows_##which##_count,                                                      \
        .min_cc = (cc),                                                                            \
        .check = gki_rows_##which##_check,                                                         \
        .constants = constants,                                                                    \
        .launch = gki_rows_##which##_launch,                                                       \
        .model = gki_rows_##which##_model,                                                         \
    }

#endif
