/* The transpose op: out[b,j,i] = x[b,i,j], elements moved as bits. */
#include "op/transpose.h"

#include <stdio.h>
#include <string.h>

static const gk_arg_desc args[TRANSPOSE_N_ARGS] = {
    [TRANSPOSE_X] = {"x", 0, 0},
    [TRANSPOSE_OUT] = {"out", 1, 0},
};

static const char *const dims[TRANSPOSE_N_DIMS] = {"M", "N", "B"};

/* The variant that serves everything comes first. */
static const gk_variant *const variants[] = {&gki_transpose_tile, &gki_transpose_tma};

#define SMOKE(dtype, layout, m, n, b)                                                              \
    {                                                                                              \
        {m, n, b}, GK_CASE_SMOKE, dtype, layout, 0, 0                                              \
    }
#define EDGE(dtype, layout, m, n, b, pad, offset)                                                  \
    {                                                                                              \
        {m, n, b}, GK_CASE_EDGE, dtype, layout, pad, offset                                        \
    }
#define BENCH(dtype, m, n)                                                                         \
    {                                                                                              \
        {m, n, 1}, GK_CASE_BENCH, dtype, "nn", 0, 0                                                \
    }

static const gk_case cases[] = {
    SMOKE("f32", "nn", 64, 64, 1),
    SMOKE("bf16", "nn", 64, 64, 1),
    SMOKE("f64", "nn", 64, 64, 1),
    SMOKE("i8", "nn", 64, 64, 1),
    SMOKE("f16", "nn", 64, 128, 3),
    SMOKE("f32", "nt", 64, 64, 1),
    SMOKE("f32", "tt", 64, 64, 1),
    SMOKE("bf16", "tn", 64, 64, 1),
    EDGE("f32", "nn", 1, 1, 1, 0, 0),
    EDGE("f32", "nn", 1, 127, 1, 0, 0),
    EDGE("bf16", "nn", 127, 1, 1, 0, 1),
    EDGE("f32", "nn", 65, 129, 1, 1, 0),
    EDGE("f64", "nn", 33, 17, 1, 1, 1),
    EDGE("f64", "nn", 34, 17, 1, 0, 0),
    EDGE("f16", "nn", 65, 129, 2, 1, 1),
    EDGE("f16", "nn", 130, 66, 1, 0, 0),
    EDGE("bf16", "nn", 100, 60, 1, 0, 0),
    EDGE("u8", "nn", 65, 129, 1, 1, 1),
    EDGE("u8", "nn", 36, 68, 1, 0, 0),
    EDGE("i8", "nn", 65, 128, 1, 0, 0),
    EDGE("f32", "nt", 65, 129, 1, 3, 1),
    EDGE("bf16", "nt", 65, 129, 1, 8, 0),
    EDGE("u8", "tn", 65, 129, 1, 1, 1),
    EDGE("f32", "nn", 3, 5, 0, 0, 0),
    EDGE("f32", "nn", 100003, 2, 1, 0, 0),
    EDGE("bf16", "nn", 2, 50001, 1, 0, 0),
    BENCH("f32", 8192, 8192),
    BENCH("f32", 4096, 32768),
    BENCH("bf16", 8192, 8192),
    BENCH("bf16", 4096, 32768),
    BENCH("f32", 4096, 4096),
    BENCH("bf16", 4096, 4096),
    BENCH("f32", 1823, 781),
    BENCH("bf16", 1823, 781),
    BENCH("f32", 8388609, 2),
};

gki_transpose_view gki_transpose_view_of(const gk_problem *problem)
{
    const int64_t *d = problem->dims;
    const uint8_t x = problem->layout[TRANSPOSE_X];
    gki_transpose_view v = {d[TRANSPOSE_M], d[TRANSPOSE_N], d[TRANSPOSE_B], 0, false};
    v.size = (int64_t)gk_dtype_size((gk_dtype)problem->dtype[TRANSPOSE_X]);
    if (x == TRANSPOSE_FLAT) {
        v.cols *= v.rows * v.batches; /* no more than memory holds */
        v.rows = v.batches = 1;
        v.copy = true;
        return v;
    }
    if (x == TRANSPOSE_COL) {
        v.rows = d[TRANSPOSE_N];
        v.cols = d[TRANSPOSE_M];
    }
    /* The same row index of x is out's column: equal words are different axes. */
    v.copy = x != problem->layout[TRANSPOSE_OUT];
    return v;
}

int64_t gki_transpose_tiles(const gki_transpose_view *view, int64_t rows, int64_t cols)
{
    int64_t tiles;
    if (__builtin_mul_overflow(gki_transpose_ceil_div(view->rows, rows),
                               gki_transpose_ceil_div(view->cols, cols), &tiles) ||
        __builtin_mul_overflow(tiles, view->batches, &tiles)) {
        return INT64_MAX;
    }
    return tiles;
}

static void add(gk_constants *out, const char *name, gk_constant_kind kind, int64_t value)
{
    const gk_constant item = {name, kind, value};
    out->items[out->n_items++] = item;
}

void gki_transpose_tag(const gki_transpose_view *view, gk_constants *out)
{
    (void)snprintf(out->tag, sizeof(out->tag), "%sb%d", view->copy ? "copy_" : "",
                   (int)view->size * 8);
}

void gki_transpose_constants(const gk_problem *problem, gk_constants *out)
{
    const gki_transpose_view v = gki_transpose_view_of(problem);
    add(out, "SIZE", GK_CONSTANT_INT, v.size);
    add(out, "X_ALIGN", GK_CONSTANT_INT, problem->align[TRANSPOSE_X]);
    add(out, "OUT_ALIGN", GK_CONSTANT_INT, problem->align[TRANSPOSE_OUT]);
    add(out, "COPY", GK_CONSTANT_BOOL, v.copy);
    add(out, "BATCHED", GK_CONSTANT_BOOL, v.batches > 1);
    gki_transpose_tag(&v, out);
}

/* The stride of an axis of one element may be anything and is not used. */
static int64_t stride_of(const gk_tensor *t, int axis)
{
    return axis >= 0 && t->shape[axis] > 1 ? t->stride[axis] : 0;
}

static int64_t value_of(const gk_variant *variant, const gk_config *config, const char *name)
{
    for (uint32_t i = variant->n_params; i-- > 0;) {
        if (strcmp(variant->params[i].name, name) == 0) {
            return config->values[i];
        }
    }
    return 0;
}

size_t gki_transpose_pack(const gk_call *call, const gk_problem *problem, const gk_variant *variant,
                          const gk_config *config, void *workspace, void *zeroed, void *out)
{
    (void)workspace;
    (void)zeroed;
    const gk_tensor *x = call->args[TRANSPOSE_X];
    const gk_tensor *y = call->args[TRANSPOSE_OUT];
    const gki_transpose_view v = gki_transpose_view_of(problem);
    const bool swapped = problem->layout[TRANSPOSE_X] == TRANSPOSE_COL;
    const int row = swapped ? x->rank - 1 : x->rank - 2;
    const int col = swapped ? x->rank - 2 : x->rank - 1;
    const int batch = x->rank == 3 ? 0 : -1;
    gk_transpose_args packed = {.x = x->data, .out = y->data};
    packed.rows = v.rows;
    packed.cols = v.cols;
    packed.batches = v.batches;
    if (problem->layout[TRANSPOSE_X] == TRANSPOSE_FLAT) {
        packed.x_col_stride = packed.out_col_stride = 1;
    } else {
        packed.x_row_stride = stride_of(x, row);
        packed.x_col_stride = stride_of(x, col);
        packed.x_batch_stride = stride_of(x, batch);
        /* out's axes are x's, the other way round. */
        packed.out_row_stride = stride_of(y, col);
        packed.out_col_stride = stride_of(y, row);
        packed.out_batch_stride = stride_of(y, batch);
    }
    const int64_t group = value_of(variant, config, "GROUP");
    const int64_t cells = value_of(variant, config, "CELLS_R"); /* of 128 bytes */
    const int64_t tile_r = cells > 0 ? cells * 128 / v.size : value_of(variant, config, "TILE_R");
    const int64_t high = tile_r > 0 ? gki_transpose_ceil_div(v.rows, tile_r) : 1;
    packed.group = group < high ? group : high;
    memcpy(out, &packed, sizeof(packed));
    return sizeof(packed);
}

static bool is_empty(const gk_problem *problem)
{
    return problem->dims[TRANSPOSE_M] == 0 || problem->dims[TRANSPOSE_N] == 0 ||
           problem->dims[TRANSPOSE_B] == 0;
}

/* Bits are moved, not rounded. */
static gk_tolerance tolerance(const gk_problem *problem)
{
    (void)problem;
    const gk_tolerance exact = {0, 0};
    return exact;
}

static void work(const gk_problem *problem, double *flops, double *bytes)
{
    const int64_t *d = problem->dims;
    *flops = 0;
    *bytes = 2 * (double)d[TRANSPOSE_M] * (double)d[TRANSPOSE_N] * (double)d[TRANSPOSE_B] *
             (double)gk_dtype_size((gk_dtype)problem->dtype[TRANSPOSE_X]);
}

const gk_op_desc gki_op_transpose = {
    .struct_size = sizeof(gk_op_desc),
    .name = "transpose",
    .revision = 1,
    .args = args,
    .n_args = TRANSPOSE_N_ARGS,
    .dim_names = dims,
    .n_dims = TRANSPOSE_N_DIMS,
    .variants = variants,
    .n_variants = sizeof(variants) / sizeof(variants[0]),
    .cases = cases,
    .n_cases = sizeof(cases) / sizeof(cases[0]),
    .infer = gki_transpose_infer,
    .is_empty = is_empty,
    .pack = gki_transpose_pack,
    .example = gki_transpose_example,
    .reference = gki_transpose_reference,
    .tolerance = tolerance,
    .work = work,
    .reduce = gki_transpose_reduce,
    .part = gki_transpose_part,
};
