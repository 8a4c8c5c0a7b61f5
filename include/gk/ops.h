/* The built-in operations: one call each. */
#ifndef GK_OPS_H
#define GK_OPS_H

#include <gk/context.h>
#include <gk/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum gk_activation {
    GK_ACT_NONE = 0,
    GK_ACT_RELU = 1,      /* x < 0 ? 0 : x, so NaN stays NaN */
    GK_ACT_GELU_TANH = 2, /* 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))), arXiv:1606.08415 */
    GK_ACT_GELU_ERF = 3,  /* 0.5 x (1 + erf(x / sqrt(2))) */
    GK_ACT_SILU = 4,      /* x / (1 + exp(-x)); 0 at minus infinity */
} gk_activation;

typedef enum gk_math {
    GK_MATH_DEFAULT = 0, /* f32 operands: at least the accuracy of f32 sums, tensor cores allowed */
    GK_MATH_F32 = 1,     /* f32 products of f32 operands, f32 fused multiply-adds only */
    GK_MATH_TF32 = 2,    /* f32 operands rounded to tf32 (10 mantissa bits) on tensor cores */
} gk_math;

/*
 * C = act(alpha * A B + beta * C + bias + residual), bias added along rows (one value a column).
 * Zero means default everywhere but in alpha and beta; start from GK_MATMUL_PARAMS_INIT. Where sums
 * are kept in f32, alpha and beta must be 0 or in f32's range of normal numbers (NaN and infinity
 * pass).
 */
typedef struct gk_matmul_params {
    size_t struct_size;
    double alpha;              /* A and B are not read if it is 0 */
    double beta;               /* C is read only if it is not 0 */
    const gk_tensor *bias;     /* [N], dtype of C or f32; NULL = none */
    const gk_tensor *residual; /* [M,N], dtype of C; NULL = none */
    gk_activation activation;
    gk_math math;
} gk_matmul_params;

#define GK_MATMUL_PARAMS_INIT                                                                      \
    {                                                                                              \
        sizeof(gk_matmul_params), 1.0, 0.0, NULL, NULL, GK_ACT_NONE, GK_MATH_DEFAULT               \
    }

/*
 * Matrix product with a fused epilogue.
 *
 * a [M,K], b [K,N], c [M,N]; any non-negative strides and any alignment; a transposed operand is a
 * view (gk_transposed). a and b have one dtype: f64, f32, f16, bf16, e4m3 or e5m2 with c of any of
 * these, or i8, u8, i32 with c of i32 (alpha 1, beta 0 or 1, activation none or ReLU). Sums are
 * kept in f32 (f64 for f64, 32-bit wrap-around integers for integers), rounded once to c's dtype,
 * to nearest even; e4m3 and e5m2 results saturate.
 *
 * c must not overlap a, b, bias, or residual, nor itself; residual may be c exactly. K = 0 is an
 * empty sum and the epilogue still runs. M = 0 or N = 0 succeeds without a launch. Results of one
 * configuration are bit-equal from run to run.
 *
 * params NULL = the defaults. stream: a CUstream or cudaStream_t, NULL = the default stream;
 * the call returns once the work is queued. The first call of a problem may tune (gk_mode). While
 * the stream is captured nothing is compiled, tuned, loaded or allocated: GK_ERR_NOT_PREPARED
 * where that would be needed, see gk_prepare().
 *
 * Errors: GK_ERR_INVALID (the message names the argument and the values, c is untouched),
 * GK_ERR_UNSUPPORTED (dtypes), GK_ERR_NO_CONFIG, GK_ERR_UNTUNED, GK_ERR_NOT_PREPARED,
 * GK_ERR_NOMEM, GK_ERR_DEVICE. Thread-safe.
 */
GK_API GK_NODISCARD gk_status gk_matmul(gk_context *ctx, const gk_tensor *a, const gk_tensor *b,
                                        const gk_tensor *c, const gk_matmul_params *params,
                                        void *stream);

/* C = relu(A B): gk_matmul with activation GK_ACT_RELU and nothing else. */
GK_API GK_NODISCARD gk_status gk_matmul_relu(gk_context *ctx, const gk_tensor *a,
                                             const gk_tensor *b, const gk_tensor *c, void *stream);

#ifdef __cplusplus
}
#endif

#endif
