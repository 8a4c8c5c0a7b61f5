#include "op/matmul_parts.h"

#include <math.h>
#include <string.h>

#include <gk/ops.h>

#include "base/numeric.h"

/* A block of BLOCK x BLOCK of B is widened once and used by every row of A. */
enum { BLOCK = 64 };

static const unsigned char *element(const gk_tensor *t, int64_t i, int64_t j)
{
    const int64_t size = (int64_t)gk_dtype_size((gk_dtype)t->dtype);
    return (const unsigned char *)t->data + (i * t->stride[0] + j * t->stride[1]) * size;
}

/* sum[j] += sum over k of a[k] * b[k][j], likewise of the magnitudes. */
static void multiply_row(const double *restrict a, const double (*restrict b)[BLOCK], int64_t depth,
                         double *restrict sum, double *restrict magnitude)
{
    int64_t k = 0;
    for (; k + 4 <= depth; k += 4) {
        const double a0 = a[k], a1 = a[k + 1], a2 = a[k + 2], a3 = a[k + 3];
        const double m0 = fabs(a0), m1 = fabs(a1), m2 = fabs(a2), m3 = fabs(a3);
        for (int j = 0; j < BLOCK; j++) {
            sum[j] += a0 * b[k][j] + a1 * b[k + 1][j] + (a2 * b[k + 2][j] + a3 * b[k + 3][j]);
            magnitude[j] += m0 * fabs(b[k][j]) + m1 * fabs(b[k + 1][j]) +
                            (m2 * fabs(b[k + 2][j]) + m3 * fabs(b[k + 3][j]));
        }
    }
    for (; k < depth; k++) {
        const double a0 = a[k];
        const double m0 = fabs(a0);
        for (int j = 0; j < BLOCK; j++) {
            sum[j] += a0 * b[k][j];
            magnitude[j] += m0 * fabs(b[k][j]);
        }
    }
}

/* One block of B's rows [k, k + depth) and columns [j, j + width), zero beyond the width. */
static void load_block(const gk_tensor *b, int64_t k, int64_t depth, int64_t j, int64_t width,
                       double (*out)[BLOCK])
{
    memset(out, 0, sizeof(double) * BLOCK * BLOCK);
    for (int64_t i = 0; i < depth; i++) {
        gki_numeric_load((gk_dtype)b->dtype, element(b, k + i, j), b->stride[1], width, out[i]);
    }
}

/* out = A B and, where scale is not NULL, scale = |A| |B|. */
static void multiply(const gk_tensor *a, const gk_tensor *b, const int64_t *dims, double *out,
                     double *scale)
{
    double panel[BLOCK][BLOCK], row[BLOCK], sum[BLOCK], magnitude[BLOCK];
    for (int64_t j = 0; j < dims[MATMUL_N]; j += BLOCK) {
        const int64_t left = dims[MATMUL_N] - j;
        const size_t width = left < BLOCK ? (size_t)left : BLOCK;
        for (int64_t k = 0; k < dims[MATMUL_K]; k += BLOCK) {
            const int64_t rest = dims[MATMUL_K] - k;
            const int64_t depth = rest < BLOCK ? rest : BLOCK;
            load_block(b, k, depth, j, (int64_t)width, panel);
            memset(sum, 0, sizeof(sum));
            memset(magnitude, 0, sizeof(magnitude));
            for (int64_t i = 0; i < dims[MATMUL_M]; i++) {
                const int64_t at = i * dims[MATMUL_N] + j;
                gki_numeric_load((gk_dtype)a->dtype, element(a, i, k), a->stride[1], depth, row);
                memcpy(sum, out + at, width * sizeof(double));
                if (scale != NULL) {
                    memcpy(magnitude, scale + at, width * sizeof(double));
                }
                multiply_row(row, (const double(*)[BLOCK])panel, depth, sum, magnitude);
                memcpy(out + at, sum, width * sizeof(double));
                if (scale != NULL) {
                    memcpy(scale + at, magnitude, width * sizeof(double));
                }
            }
        }
    }
}

static double activate(int activation, double x)
{
    switch (activation) {
    case GK_ACT_RELU:
        return x < 0 ? 0 : x;
    case GK_ACT_GELU_TANH: /* Hendrycks and Gimpel, arXiv:1606.08415 */
        return 0.5 * x * (1 + tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)));
    case GK_ACT_GELU_ERF:
        return 0.5 * x * (1 + erf(x * 0.7071067811865476));
    case GK_ACT_SILU:
        return x < -1e30 ? 0 : x / (1 + exp(-x));
    default:
        return x;
    }
}

/* The accumulator's rounding, relative to the sum of magnitudes; see gki_matmul_tolerance(). */
static double accumulator_error(const gk_problem *problem)
{
    const double depth = (double)problem->dims[MATMUL_K];
    const gk_dtype dtype = (gk_dtype)problem->dtype[MATMUL_A];
    if (gki_numeric_is_integer(dtype)) {
        return 0;
    }
    const double unit = gki_numeric_unit(dtype == GK_F64 ? GK_F64 : GK_F32);
    double error = unit * (8 + 4 * sqrt(depth));
    if (problem->attrs[MATMUL_MATH] == GK_MATH_TF32) {
        error += 0x1p-10 * (depth > 36 ? 6 / sqrt(depth) : 1);
    }
    if (dtype == GK_E4M3 || dtype == GK_E5M2) {
        const double cut = gki_matmul_promotes(problem) && depth > 128 ? 128 : depth;
        error += 0x1p-13 * (2 + sqrt(cut) / 8);
    }
    return error;
}

/*
 * |out - ref| <= relative * scale + absolute, from four sources:
 *  - sums: u (8 + 4 sqrt(K)) times the sum of magnitudes, u the unit roundoff of f32 (of f64 for
 *    f64). The rounding errors of a sum of K terms grow like sqrt(K) u unless they conspire
 *    (Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed., 2.8 and 4.2); tensor cores,
 *    which cut bits off, stay within it too. The 8 covers the epilogue.
 *  - operands: tf32 keeps 11 significant bits, so a product is off by up to 2^-10 of it; K such
 *    errors of random signs add up to 6/sqrt(K) of their sum at most, in practice.
 *  - 8-bit operands: tensor cores add 32 products at a time to a sum that they cut to some 14 bits.
 *    With signs at random the sum grows like sqrt(K), so the cuts add up to K sqrt(K) / 32 of a bit
 *    of its last place: 2^-13 (2 + sqrt(K) / 8) of the magnitudes is 2.5 times the largest error
 *    seen among 8192^2 elements on an H100, K 8192. Sums of one sign may lose more. Promoted sums
 *    (math f32) are cut over 128 of K at most.
 *  - the result's rounding: u of c's dtype times |ref|, folded into the scale that
 *    gki_matmul_reference() reports, and its smallest subnormal as the absolute part.
 * Integers are exact.
 */
gk_tolerance gki_matmul_tolerance(const gk_problem *problem)
{
    const gk_tolerance tolerance = {accumulator_error(problem),
                                    gki_numeric_tiny((gk_dtype)problem->dtype[MATMUL_C])};
    return tolerance;
}

static double optional(const gk_tensor *t, int64_t i, int64_t j)
{
    if (t == NULL) {
        return 0;
    }
    const int64_t index = t->rank == 1 ? j * t->stride[0] : i * t->stride[0] + j * t->stride[1];
    return gki_numeric_get((gk_dtype)t->dtype, t->data, index);
}

static void finish(const gk_call *call, const gk_problem *problem, double *out, double *scale)
{
    const gk_tensor *c = call->args[MATMUL_C];
    const gk_tensor *old = problem->attrs[MATMUL_BETA] ? c : NULL;
    const double alpha = call->attrs[MATMUL_ALPHA];
    const double error = accumulator_error(problem);
    const double unit = gki_numeric_unit((gk_dtype)c->dtype);
    for (int64_t i = 0; i < problem->dims[MATMUL_M]; i++) {
        for (int64_t j = 0; j < problem->dims[MATMUL_N]; j++) {
            const int64_t at = i * problem->dims[MATMUL_N] + j;
            const double previous =
                old != NULL ? call->attrs[MATMUL_BETA] * optional(old, i, j) : 0;
            const double bias = optional(call->args[MATMUL_BIAS], i, j);
            const double residual = optional(call->args[MATMUL_RESIDUAL], i, j);
            const double exact = activate(problem->attrs[MATMUL_ACTIVATION],
                                          alpha * out[at] + previous + bias + residual);
            out[at] = gki_numeric_limit((gk_dtype)c->dtype, exact);
            if (scale != NULL) {
                const double magnitude =
                    fabs(alpha) * scale[at] + fabs(previous) + fabs(bias) + fabs(residual);
                /* The slope of an activation is at most 1.13. */
                scale[at] = 1.13 * (1 + unit) * magnitude + unit / error * fabs(out[at]);
            }
        }
    }
}

/* Integers wrap around in 32 bits at every step, as the kernels' do. */
static void multiply_integers(const gk_call *call, const gk_problem *problem, double *out)
{
    const gk_tensor *a = call->args[MATMUL_A];
    const gk_tensor *b = call->args[MATMUL_B];
    const int64_t n = problem->dims[MATMUL_N];
    const int64_t depth = problem->dims[MATMUL_K];
    const bool beta = problem->attrs[MATMUL_BETA] != 0;
    uint32_t row[BLOCK], sum[BLOCK], factor;
    for (int64_t i = 0; i < problem->dims[MATMUL_M]; i++) {
        for (int64_t j = 0; j < n; j += BLOCK) {
            const int64_t width = n - j < BLOCK ? n - j : BLOCK;
            for (int64_t x = 0; x < width; x++) {
                const double extra = (beta ? optional(call->args[MATMUL_C], i, j + x) : 0) +
                                     optional(call->args[MATMUL_BIAS], i, j + x) +
                                     optional(call->args[MATMUL_RESIDUAL], i, j + x);
                sum[x] = (uint32_t)(int64_t)extra;
            }
            for (int64_t k = 0; k < depth; k++) {
                gki_numeric_load_integers((gk_dtype)a->dtype, element(a, i, k), 0, 1, &factor);
                gki_numeric_load_integers((gk_dtype)b->dtype, element(b, k, j), b->stride[1], width,
                                          row);
                for (int64_t x = 0; x < width; x++) {
                    sum[x] += factor * row[x];
                }
            }
            for (int64_t x = 0; x < width; x++) {
                out[i * n + j + x] = activate(problem->attrs[MATMUL_ACTIVATION], (int32_t)sum[x]);
            }
        }
    }
}

void gki_matmul_reference(const gk_call *call, const gk_problem *problem, double *out,
                          double *scale)
{
    const size_t count = (size_t)problem->dims[MATMUL_M] * (size_t)problem->dims[MATMUL_N];
    if (count == 0) {
        return;
    }
    memset(out, 0, count * sizeof(double));
    if (scale != NULL) {
        memset(scale, 0, count * sizeof(double));
    }
    if (gki_numeric_is_integer((gk_dtype)problem->dtype[MATMUL_A])) {
        multiply_integers(call, problem, out);
        return;
    }
    if (call->attrs[MATMUL_ALPHA] != 0) {
        multiply(call->args[MATMUL_A], call->args[MATMUL_B], problem->dims, out, scale);
    }
    finish(call, problem, out, scale);
}
