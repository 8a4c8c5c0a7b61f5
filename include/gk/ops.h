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
    /* f32 operands: at least the accuracy of f32 sums, tensor cores allowed. e4m3 and e5m2: sums as
     * tensor cores keep them, which on Hopper is some 14 bits. */
    GK_MATH_DEFAULT = 0,
    /* f32 operands: f32 fused multiply-adds only. e4m3 and e5m2: sums of at most 128 products as
     * tensor cores keep them, added up in f32. */
    GK_MATH_F32 = 1,
    /* f32 operands rounded to tf32 (10 mantissa bits) on tensor cores; others as by default. */
    GK_MATH_TF32 = 2,
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
 * a [M,K], b [K,N], c [M,N]; any non-negative strides and any alignment of whole elements; a
 * transposed operand is a view (gk_transposed). a and b have one dtype: f64, f32, f16, bf16, e4m3
 * or e5m2 with c of any of these, or i8, u8, i32 with c of i32 (alpha 1, beta 0 or 1, activation
 * none or ReLU). Sums are kept in f32 (f64 for f64, 32-bit wrap-around integers for integers; see
 * gk_math for e4m3, e5m2), rounded once to c's dtype, to nearest even; e4m3 and e5m2 results
 * saturate.
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
 * GK_ERR_UNSUPPORTED (dtypes, factors that their sums cannot hold), GK_ERR_NO_CONFIG,
 * GK_ERR_UNTUNED, GK_ERR_NOT_PREPARED, GK_ERR_NOMEM, GK_ERR_DEVICE. Thread-safe.
 */
GK_API GK_NODISCARD gk_status gk_matmul(gk_context *ctx, const gk_tensor *a, const gk_tensor *b,
                                        const gk_tensor *c, const gk_matmul_params *params,
                                        void *stream);

/* C = relu(A B): gk_matmul with activation GK_ACT_RELU and nothing else. */
GK_API GK_NODISCARD gk_status gk_matmul_relu(gk_context *ctx, const gk_tensor *a,
                                             const gk_tensor *b, const gk_tensor *c, void *stream);

/*
 * Reductions. SUM and MEAN of f32, f16 and bf16 are added in f32 by trees of at most 64 elements
 * and in f64 beyond, then rounded once, so that long sums keep growing: off by at most 8 units of
 * 2^-24 of the sum of magnitudes, and the rounding. MAX and MIN are exact; NaN wins, and +0 is
 * above -0. ARGMAX is the index of the first NaN, else of the first of the largest (+0 and -0 are
 * alike); over all axes it counts elements in row-major order.
 */
typedef enum gk_reduce_op {
    GK_REDUCE_SUM = 0,
    GK_REDUCE_MEAN = 1,
    GK_REDUCE_MAX = 2,
    GK_REDUCE_MIN = 3,
    GK_REDUCE_ARGMAX = 4,
} gk_reduce_op;

enum { GK_REDUCE_ALL = INT32_MIN }; /* as an axis: all of them */

/* Start from GK_REDUCE_PARAMS_INIT: the sum of all elements. */
typedef struct gk_reduce_params {
    size_t struct_size;
    gk_reduce_op op;
    int32_t axis;    /* 0 to x.rank - 1, or GK_REDUCE_ALL */
    int32_t keepdim; /* 1: out keeps the axes that go, with size 1 */
} gk_reduce_params;

#define GK_REDUCE_PARAMS_INIT                                                                      \
    {                                                                                              \
        sizeof(gk_reduce_params), GK_REDUCE_SUM, GK_REDUCE_ALL, 0                                  \
    }

/*
 * out = x reduced along one axis, or along all.
 *
 * x of rank 1 to GK_MAX_RANK: f64, f32, f16, bf16, or i32 (not MEAN; sums wrap around in 32 bits),
 * any non-negative strides (0 repeats elements), any alignment. out has x's axes without the one
 * that goes, or with it as 1 (keepdim); where none is left, it is [1]. Its dtype is x's, f32 too
 * for f16 and bf16, i32 for ARGMAX. out must not overlap x nor itself; axes that interleave, where
 * none steps over all that the others reach, count as an overlap.
 *
 * The sum of no elements is 0, their mean NaN; MAX, MIN and ARGMAX of none are GK_ERR_INVALID. An
 * out without elements succeeds without a launch. ARGMAX counts below 2^31 elements. Results of one
 * configuration are bit-equal from run to run. params NULL = GK_REDUCE_PARAMS_INIT. The rest is as
 * for gk_matmul. Thread-safe.
 */
GK_API GK_NODISCARD gk_status gk_reduce(gk_context *ctx, const gk_tensor *x, const gk_tensor *out,
                                        const gk_reduce_params *params, void *stream);

/*
 * out = an expression of x0 to x4, element by element: one kernel, compiled for the expression,
 * tuned and cached like any other.
 *
 * The expression is C's over x0 .. x4, numbers, pi, inf, nan, + - * / (unary - + !), comparisons,
 * && || ?: and parentheses, with the functions abs ceil cos erf erfc exp exp2 expm1 floor fma gelu
 * gelu_tanh isnan log log1p log2 max min pow relu rint rsqrt sigmoid silu sin sqrt tan tanh trunc
 * where(condition, yes, no). Everything is a floating number: a comparison gives 1 or 0, what is
 * not 0 (NaN, too) is true, 1 / 2 is 0.5. At most 512 characters (440 with all numbers and
 * parentheses written out), 128 operations and values, and 60 parentheses or functions in one
 * another; blanks and spelling do not matter: "x0+2*x1" and "x0 + 2.0 * x1" are one problem.
 *
 * All is computed in f32, in f64 if an operand is f64, and rounded once to out's dtype, to nearest
 * even. + - * / sqrt and fma are each rounded by
 * themselves, on every device the same: x0 * x1 + x2 has two roundings, fma(x0, x1, x2) one.
 * Functions are the compiler's accurate ones: in f32 within 2 units in the last place (erfc,
 * sigmoid, tan 4; silu 5 where sigmoid is a normal number; gelu, gelu_tanh 6 and what rounding
 * their argument does; pow 8). Results in 16 bits are within one unit in the last place of the
 * rounded exact result unless the expression cancels; where they come of silu, gelu, gelu_tanh or
 * sigmoid by products, quotients and choices alone, these are computed to some 2^-16 of their
 * value. Subnormals are kept. max, min, and relu keep NaN; the sign of a zero that is max's or
 * min's of two zeros is any. silu and gelu are 0 at minus infinity.
 *
 * inputs[i] is xi: n_inputs tensors (1 to 5), exactly those that the expression uses, each of out's
 * shape (rank 1 to 8); a stride of 0 repeats an element. dtypes f64, f32, f16, bf16, e4m3, e5m2 in
 * any mixture. out may be one of the inputs exactly (data, dtype, strides); any other overlap of
 * out with an input, or of out's axes with each other, is an error; axes that interleave, where
 * none steps over all that the others reach, count as an overlap. No elements: success without a
 * launch.
 *
 * Errors: GK_ERR_INVALID (a message says where the expression is wrong and what was expected, or
 * names the argument and the values), GK_ERR_UNSUPPORTED (dtypes), else as gk_matmul().
 * Thread-safe.
 */
GK_API GK_NODISCARD gk_status gk_map(gk_context *ctx, const char *expression,
                                     const gk_tensor *inputs, uint32_t n_inputs,
                                     const gk_tensor *out, void *stream);

/* gk_map with these expressions: x + y; fma(x, y, z), rounded once; x < 0 ? 0 : x, so NaN stays
 * NaN; x / (1 + exp(-x)); 0.5 x (1 + erf(x / sqrt(2))); and gelu's approximation through tanh.
 * Messages call x, y, z x0, x1, x2. */
GK_API GK_NODISCARD gk_status gk_add(gk_context *ctx, const gk_tensor *x, const gk_tensor *y,
                                     const gk_tensor *out, void *stream);
GK_API GK_NODISCARD gk_status gk_fma(gk_context *ctx, const gk_tensor *x, const gk_tensor *y,
                                     const gk_tensor *z, const gk_tensor *out, void *stream);
GK_API GK_NODISCARD gk_status gk_relu(gk_context *ctx, const gk_tensor *x, const gk_tensor *out,
                                      void *stream);
GK_API GK_NODISCARD gk_status gk_silu(gk_context *ctx, const gk_tensor *x, const gk_tensor *out,
                                      void *stream);
GK_API GK_NODISCARD gk_status gk_gelu(gk_context *ctx, const gk_tensor *x, const gk_tensor *out,
                                      void *stream);
GK_API GK_NODISCARD gk_status gk_gelu_tanh(gk_context *ctx, const gk_tensor *x,
                                           const gk_tensor *out, void *stream);

/*
 * out[j,i] = x[i,j]; with rank 3 out[b,j,i] = x[b,i,j]. Elements are moved as bits.
 *
 * x [M,N] or [B,M,N], out [N,M] or [B,N,M], of one dtype, any; any non-negative strides and any
 * alignment. out must not overlap x (nothing is transposed in place) nor itself. Where out is
 * contiguous along the same axis as x (a transposed view of x's shape, gk_transposed) the call is
 * a plain copy. An axis of length 0 succeeds without a launch.
 *
 * stream, first call, capture, thread-safety: as gk_matmul. Errors: GK_ERR_INVALID (the message
 * names the argument and the values, out is untouched), GK_ERR_UNSUPPORTED (dtypes differ), and
 * gk_matmul's.
 */
GK_API GK_NODISCARD gk_status gk_transpose(gk_context *ctx, const gk_tensor *x,
                                           const gk_tensor *out, void *stream);

/*
 * Column `column` of a packed row-major matrix of rows x cols in the host's memory, to `rows`
 * elements one after the other in device memory: one strided copy. Ordered in `stream` like
 * gk_mem_upload, finished with host memory when it returns. rows = 0 copies nothing.
 *
 * Errors: GK_ERR_INVALID (the message names the argument and the values), GK_ERR_DEVICE, also
 * where the driver does not step over rows of 2 GiB or more. Thread-safe.
 */
GK_API GK_NODISCARD gk_status gk_copy_column(gk_context *ctx, void *dst, const void *src,
                                             int64_t rows, int64_t cols, int64_t column,
                                             gk_dtype dtype, void *stream);

/*
 * Softmax over the last axis: out = exp(x - m) / sum of exp(x - m), m the row's maximum, and its
 * logarithm out = (x - m) - log(sum of exp(x - m)). A vector is one row.
 *
 * x and out have one shape of rank 1 to 8 and any non-negative strides and alignment; f32, f16 and
 * bf16 in any pair, computed in f32, or both f64; out is rounded once, to nearest even. out may be
 * x itself (data, dtype, strides); any other overlap is an error, and axes that interleave count as
 * one, also those of x with out's, which may be blocks of rows or of columns of one tensor. A row
 * that holds NaN or +infinity, or nothing but -infinity, becomes NaN throughout; no row affects
 * another.
 *
 * Results of 16 bits are within one unit in the last place of the rounded exact result; f32 ones
 * within 10 + 2 |x - m| + sqrt(length) / 8 units of 2^-24 of it (log_softmax: of 1, plus twice the
 * log of the sum). Results of one configuration are bit-equal from run to run. No elements: success
 * without a launch. The rest is as for gk_matmul. Thread-safe.
 */
GK_API GK_NODISCARD gk_status gk_softmax(gk_context *ctx, const gk_tensor *x, const gk_tensor *out,
                                         void *stream);
GK_API GK_NODISCARD gk_status gk_log_softmax(gk_context *ctx, const gk_tensor *x,
                                             const gk_tensor *out, void *stream);

/*
 * Norms over the last axis: out = x / sqrt(mean of x^2 + eps) * weight, and
 * out = (x - mean) / sqrt(variance + eps) * weight + bias, the variance being the mean of
 * (x - mean)^2. A vector is one row.
 *
 * x and out as for gk_softmax; weight and bias are vectors of a value a column, of x's dtype or f32
 * (f64 with f64), any stride; NULL = ones, zeros. They must not overlap out. eps from 0 on; for
 * sums in f32 it is 0 or a normal number of f32, and squares whose sum passes f32's range make a
 * row 0. With eps 0 a row of zeros (for the layer norm, of one value) is NaN, and squares below
 * f32's range of normal numbers (of values below 1e-19) lose digits or all they have.
 *
 * Before its rounding to out's dtype a result is off by at most 10 + sqrt(length) / 8 units of
 * 2^-24 of |x| / sqrt(..) |weight| (for the layer norm, of |x - mean| plus the mean of |x| in its
 * place), plus 2 of |bias|. The rest is as for gk_softmax. Thread-safe.
 */
GK_API GK_NODISCARD gk_status gk_rms_norm(gk_context *ctx, const gk_tensor *x,
                                          const gk_tensor *weight, const gk_tensor *out, double eps,
                                          void *stream);
GK_API GK_NODISCARD gk_status gk_layer_norm(gk_context *ctx, const gk_tensor *x,
                                            const gk_tensor *weight, const gk_tensor *bias,
                                            const gk_tensor *out, double eps, void *stream);

#ifdef __cplusplus
}
#endif

#endif
