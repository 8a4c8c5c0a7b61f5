/* Softmax and its logarithm over the last axis. */
#include <math.h>

#include <gk/ops.h>

#include "base/numeric.h"
#include "op/rows.h"

static const char WHERE[] = "softmax";

static const gk_arg_desc args[] = {
    [ROWS_X] = {"x", 0, 0},
    [ROWS_OUT] = {"out", 1, 0},
};

static const char *const log_names[] = {"no", "yes"};

static const gk_attr_desc attrs[SOFTMAX_N_ATTRS] = {
    [SOFTMAX_LOG] = {"log", 1, 0, log_names, 2},
};

static const char *const dims[ROWS_N_DIMS] = {"ROWS", "COLS"};

static const gk_preset presets[] = {
    {.name = "log_softmax", .fixed = 1u << SOFTMAX_LOG, .attrs = {[SOFTMAX_LOG] = 1}},
};

static void constants(const gk_problem *problem, gk_constants *out)
{
    out->tag[0] = '\0';
    if (problem->attrs[SOFTMAX_LOG]) {
        const char tag[] = "log_";
        for (size_t i = 0; i < sizeof(tag); i++) {
            out->tag[i] = tag[i];
        }
    }
    gki_rows_constants(problem, "LOG", out);
}

GKI_ROWS_VARIANT("softmax", stream, 80);
GKI_ROWS_VARIANT("softmax", warp, 80);
GKI_ROWS_VARIANT("softmax", block, 80);
GKI_ROWS_VARIANT("softmax", cluster, 90);
GKI_ROWS_VARIANT("softmax", split, 80);

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

static gk_status infer(const gk_call *call, gk_problem *problem)
{
    const double log_value = call->attrs[SOFTMAX_LOG];
    if (log_value != 0 && log_value != 1) {
        return gk_fail(GK_ERR_INVALID, WHERE, "log is %g, must be 0 or 1", log_value);
    }
    const gk_status status = gki_rows_infer(WHERE, ROWS_WEIGHT, call, problem);
    problem->attrs[SOFTMAX_LOG] = log_value != 0;
    return status;
}

static gk_status example(const gk_case *item, gk_tensor *tensors, gk_call *call)
{
    return gki_rows_example(WHERE, item, tensors, call);
}

/* Unit roundoff of the sums. */
static double unit_of(const gk_problem *problem)
{
    return gki_numeric_unit(problem->dtype[ROWS_X] == GK_F64 ? GK_F64 : GK_F32);
}

/*
 * |out - ref| <= u scale + absolute, u the unit roundoff of the sums. The reference reports as
 * scale
 *  - |ref| times 10 for the functions, the quotient and the exchange of parts, |x - m| twice, for
 *    its rounding becomes a relative error of exp (five times for 16-bit results, which take a
 *    cheaper exp), and sqrt(COLS) / 8 for the sum, whose rounding errors grow like the square root
 *    of the terms that one thread adds (Higham, Accuracy and Stability of Numerical Algorithms, 2nd
 *    ed., 4.2);
 *  - for the logarithm |x - m| + 2 |log sum| + 10 + sqrt(COLS) / 8, absolutely;
 *  - the rounding to out's dtype.
 * Subnormal results may be off by their last places.
 */
static gk_tolerance tolerance(const gk_problem *problem)
{
    const gk_tolerance t = {unit_of(problem),
                            4 * gki_numeric_tiny((gk_dtype)problem->dtype[ROWS_OUT])};
    return t;
}

static void refer_row(const gk_problem *problem, double *row, double *scale)
{
    const int64_t n = problem->dims[ROWS_COLS];
    const gk_dtype out = (gk_dtype)problem->dtype[ROWS_OUT];
    const double slope = out == GK_F16 || out == GK_BF16 ? 5 : 2;
    const double rounding = gki_numeric_unit(out) / unit_of(problem);
    const double length = 10 + sqrt((double)n) / 8;
    double maximum = -(double)INFINITY;
    long double terms = 0; /* added in f64 they are off by more than an f64 kernel */
    for (int64_t j = 0; j < n; j++) {
        maximum = isnan(row[j]) || row[j] > maximum ? row[j] : maximum;
        if (isnan(maximum)) {
            break;
        }
    }
    for (int64_t j = 0; j < n; j++) {
        terms += exp(row[j] - maximum);
    }
    const double sum = (double)terms;
    for (int64_t j = 0; j < n; j++) {
        const double difference = row[j] - maximum;
        const double d = isfinite(difference) ? fabs(difference) : 0;
        double error;
        if (problem->attrs[SOFTMAX_LOG]) {
            row[j] = difference - log(sum);
            error = d + 2 * fabs(log(sum)) + length;
        } else {
            row[j] = exp(difference) / sum;
            error = row[j] * (length + slope * d);
        }
        row[j] = gki_numeric_limit(out, row[j]);
        if (scale != NULL) {
            scale[j] = error + rounding * fabs(row[j]);
        }
    }
}

static void reference(const gk_call *call, const gk_problem *problem, double *out, double *scale)
{
    const int64_t n = problem->dims[ROWS_COLS];
    for (int64_t i = 0; i < problem->dims[ROWS_ROWS]; i++) {
        gki_rows_load(call->args[ROWS_X], i, out + i * n);
        refer_row(problem, out + i * n, scale != NULL ? scale + i * n : NULL);
    }
}

const gk_op_desc gki_op_softmax = {
    .struct_size = sizeof(gk_op_desc),
    .name = "softmax",
    .revision = 1,
    .args = args,
    .n_args = ROWS_WEIGHT,
    .attrs = attrs,
    .n_attrs = SOFTMAX_N_ATTRS,
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
