/* RMS norm and layer norm over the last axis. */
#include <float.h>
#include <math.h>
#include <string.h>

#include <gk/ops.h>

#include "base/numeric.h"
#include "op/rows.h"

static const char WHERE[] = "norm";

static const gk_arg_desc args[] = {
    [ROWS_X] = {"x", 0, 0},
    [ROWS_OUT] = {"out", 1, 0},
    [ROWS_WEIGHT] = {"weight", 0, 1},
    [ROWS_BIAS] = {"bias", 0, 1},
};

static const char *const kinds[] = {"rms", "layer"};

static const gk_attr_desc attrs[NORM_N_ATTRS] = {
    [NORM_KIND] = {"kind", 1, NORM_RMS, kinds, 2},
    [NORM_EPS] = {"eps", 0, 1e-5, NULL, 0},
};

static const char *const dims[ROWS_N_DIMS] = {"ROWS", "COLS"};

static const gk_preset presets[] = {
    {.name = "rms_norm", .fixed = 1u << NORM_KIND, .attrs = {[NORM_KIND] = NORM_RMS}},
    {.name = "layer_norm", .fixed = 1u << NORM_KIND, .attrs = {[NORM_KIND] = NORM_LAYER}},
};

static void constants(const gk_problem *problem, gk_constants *out)
{
    const char *kind = problem->attrs[NORM_KIND] == NORM_LAYER ? "layer_" : "rms_";
    memcpy(out->tag, kind, strlen(kind) + 1);
    gki_rows_constants(problem, "CENTER", out);
}

GKI_ROWS_VARIANT("norm", stream, 80);
GKI_ROWS_VARIANT("norm", warp, 80);
GKI_ROWS_VARIANT("norm", block, 80);
GKI_ROWS_VARIANT("norm", cluster, 90);
GKI_ROWS_VARIANT("norm", split, 80);

/* The variant that serves everything comes first. */
static const gk_variant *const variants[] = {&stream, &warp, &block, &cluster, &split};

#define SMOKE(dtype, layout, rows, cols)                                                           \
    {                                                                                              \
        {rows, cols}, GK_CASE_SMOKE, dtype, layout, 0, 0                                           \
    }
#define EDGE(dtype, layout, rows, cols, pad, offset)                                               \
    {                                                                                              \
        {rows, cols}, GK_CASE_EDGE, dtype, layout, pad, offset                                     \
    }
#define BENCH(dtype, rows, cols)                                                                   \
    {                                                                                              \
        {rows, cols}, GK_CASE_BENCH, dtype, "nn", 0, 0                                             \
    }

static const gk_case cases[] = {
    SMOKE("f32", "nn", 33, 70),
    SMOKE("f16", "nn", 33, 72),
    SMOKE("bf16", "nn", 33, 72),
    SMOKE("bf16:f32", "nn", 33, 64),
    SMOKE("f64", "nn", 17, 33),
    EDGE("f32", "nn", 1, 1, 0, 0),
    EDGE("f32", "nn", 5, 1, 0, 0),
    EDGE("f32", "nn", 1, 1000, 0, 1),
    EDGE("f16", "nn", 17, 65, 0, 1),
    EDGE("bf16", "nn", 33, 67, 1, 3),
    EDGE("f32:bf16", "nn", 9, 131, 3, 0),
    EDGE("f32", "tn", 31, 129, 0, 0),
    EDGE("bf16", "nt", 31, 129, 0, 0),
    EDGE("f32", "nn", 0, 7, 0, 0),
    BENCH("f32", 32768, 1024),
    BENCH("bf16", 32768, 1024),
    BENCH("f32", 8192, 8192),
    BENCH("bf16", 8192, 8192),
    BENCH("f32", 4096, 32768),
    BENCH("bf16", 4096, 32768),
    BENCH("f32", 1024, 131072),
    BENCH("bf16", 1024, 131072),
    BENCH("f32", 16, 1048576),
    BENCH("bf16", 16, 1048576),
    BENCH("f32", 1823, 781),
    BENCH("bf16", 1823, 781),
};

/* Kernels keep eps in the type of the sums. */
static gk_status check_eps(double eps, bool is_f64)
{
    if (!(eps >= 0) || isinf(eps)) {
        return gk_fail(GK_ERR_INVALID, WHERE, "eps is %g, must be a number from 0 on", eps);
    }
    if (!is_f64 && eps != 0 && (eps < (double)FLT_MIN || eps > (double)FLT_MAX)) {
        return gk_fail(GK_ERR_UNSUPPORTED, WHERE,
                       "eps is %g, must be 0 or within %g to %g for sums in f32", eps,
                       (double)FLT_MIN, (double)FLT_MAX);
    }
    return GK_OK;
}

static gk_status infer(const gk_call *call, gk_problem *problem)
{
    const double kind = call->attrs[NORM_KIND];
    if (kind != NORM_RMS && kind != NORM_LAYER) {
        return gk_fail(GK_ERR_INVALID, WHERE, "kind is %g, must be 0 or 1", kind);
    }
    gk_status status = gki_rows_infer(WHERE, ROWS_MAX_ARGS, call, problem);
    if (status == GK_OK) {
        status = check_eps(call->attrs[NORM_EPS], call->args[ROWS_X]->dtype == GK_F64);
    }
    problem->attrs[NORM_KIND] = (uint8_t)kind;
    return status;
}

/* With a weight of x's dtype, and for a layer norm a bias. */
static gk_status example(const gk_case *item, gk_tensor *tensors, gk_call *call)
{
    const gk_status status = gki_rows_example(WHERE, item, tensors, call);
    const int last = call->attrs[NORM_KIND] == NORM_LAYER ? ROWS_BIAS : ROWS_WEIGHT;
    for (int i = ROWS_WEIGHT; i <= last && status == GK_OK; i++) {
        tensors[i] = gk_vector(NULL, (gk_dtype)tensors[ROWS_X].dtype, item->dims[ROWS_COLS]);
        call->args[i] = &tensors[i];
    }
    return status;
}

/* Unit roundoff of the sums. */
static double unit_of(const gk_problem *problem)
{
    return gki_numeric_unit(problem->dtype[ROWS_X] == GK_F64 ? GK_F64 : GK_F32);
}

/*
 * |out - ref| <= u scale + absolute, u the unit roundoff of the sums. The reference reports as
 * scale 10 + sqrt(COLS) / 8 times what the weight multiplies, for the sums (see softmax.c), the
 * root and the products; for a layer norm that is |x - mean| plus the mean of |x|, whose rounding
 * the mean carries; then the bias, and the rounding to out's dtype.
 */
static gk_tolerance tolerance(const gk_problem *problem)
{
    const gk_tolerance t = {unit_of(problem),
                            4 * gki_numeric_tiny((gk_dtype)problem->dtype[ROWS_OUT])};
    return t;
}

/* Mean, mean of magnitudes, and mean of squares (of differences from the mean for a layer norm). */
typedef struct moments {
    double mean, magnitude, square;
} moments;

static moments moments_of(const double *row, int64_t n, bool center)
{
    moments m = {0, 0, 0};
    long double sum = 0; /* see softmax.c */
    long double squares = 0;
    for (int64_t j = 0; j < n; j++) {
        sum += row[j];
        m.magnitude += fabs(row[j]);
    }
    m.mean = center ? (double)(sum / n) : 0;
    m.magnitude = center ? m.magnitude / (double)n : 0;
    for (int64_t j = 0; j < n; j++) {
        squares += (row[j] - m.mean) * (row[j] - m.mean);
    }
    m.square = (double)(squares / n);
    return m;
}

static double factor(const gk_tensor *t, int64_t j, double absent)
{
    return t != NULL ? gki_numeric_get((gk_dtype)t->dtype, t->data, j * t->stride[0]) : absent;
}

static void refer_row(const gk_call *call, const gk_problem *problem, double *row, double *scale)
{
    const int64_t n = problem->dims[ROWS_COLS];
    const gk_dtype out = (gk_dtype)problem->dtype[ROWS_OUT];
    const double rounding = gki_numeric_unit(out) / unit_of(problem);
    const double length = 10 + sqrt((double)n) / 8;
    const moments m = moments_of(row, n, problem->attrs[NORM_KIND] == NORM_LAYER);
    const double inverse = 1 / sqrt(m.square + call->attrs[NORM_EPS]);
    for (int64_t j = 0; j < n; j++) {
        const double difference = row[j] - m.mean;
        const double weight = factor(call->args[ROWS_WEIGHT], j, 1);
        const double bias = factor(call->args[ROWS_BIAS], j, 0);
        row[j] = gki_numeric_limit(out, difference * inverse * weight + bias);
        if (scale != NULL) {
            scale[j] = length * (fabs(difference) + m.magnitude) * inverse * fabs(weight) +
                       2 * fabs(bias) + rounding * fabs(row[j]);
        }
    }
}

static void reference(const gk_call *call, const gk_problem *problem, double *out, double *scale)
{
    const int64_t n = problem->dims[ROWS_COLS];
    for (int64_t i = 0; i < problem->dims[ROWS_ROWS]; i++) {
        gki_rows_load(call->args[ROWS_X], i, out + i * n);
        refer_row(call, problem, out + i * n, scale != NULL ? scale + i * n : NULL);
    }
}

const gk_op_desc gki_op_norm = {
    .struct_size = sizeof(gk_op_desc),
    .name = "norm",
    .revision = 1,
    .args = args,
    .n_args = ROWS_MAX_ARGS,
    .attrs = attrs,
    .n_attrs = NORM_N_ATTRS,
    .dim_names = dims,
    .n_dims = ROWS_N_DIMS,
    .presets = presets,
    .n_presets = sizeof(presets) / sizeof(presets[0]),
    .variants = variants,
    .n_variants = sizeof(variants) / sizeof(variants[0]),
    .cases = cases,
    .n_cases = sizeof(cases) / sizeof(cases[0]),
    .infer = infer,
    .is_empty = gki_rows_is_empty,
    .pack = gki_rows_pack,
    .example = example,
    .reference = reference,
    .tolerance = tolerance,
    .work = gki_rows_work,
    .reduce = gki_rows_reduce,
    .part = gki_rows_part,
};
