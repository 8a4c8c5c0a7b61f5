// What happens to a finished sum on its way to memory:
// act(alpha * sum + beta * c + bias + residual). One definition for every matmul variant.
#pragma once
#include "gk/dtypes.cuh"

namespace gk {

enum { ACT_NONE = 0, ACT_RELU = 1, ACT_GELU_TANH = 2, ACT_GELU_ERF = 3, ACT_SILU = 4 };

// ReLU keeps NaN: the comparison is false for NaN, so x itself comes back.
template <int ACT, class T> GK_DEVICE T activate(T x)
{
    if constexpr (ACT == ACT_RELU) {
        return x < (T)0 ? (T)0 : x;
    } else if constexpr (ACT == ACT_GELU_TANH) {
        // Hendrycks and Gimpel, arXiv:1606.08415: 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))
        const T inner = (T)0.7978845608028654 * (x + (T)0.044715 * x * x * x);
        return (T)0.5 * x * ((T)1 + tanh(inner));
    } else if constexpr (ACT == ACT_GELU_ERF) {
        return (T)0.5 * x * ((T)1 + erf(x * (T)0.7071067811865476));
    } else if constexpr (ACT == ACT_SILU) {
        // exp(-x) overflows to infinity for very negative x and the quotient is then -0;
        // -infinity itself would give NaN, its limit is 0.
        return x < (T)-1e30 ? (T)0 : x / ((T)1 + exp(-x));
    } else {
        return x;
    }
}

// What the activation of element (row, col) gets. Constants ACTIVATION, HAS_BIAS, HAS_RESIDUAL,
// HAS_BETA and types C_TYPE, BIAS_TYPE come from the renderer.
template <class Acc>
GK_DEVICE Acc matmul_linear(const gk_matmul_args &args, Acc sum, gk_i64 row, gk_i64 col)
{
    Acc value = sum * (Acc)args.alpha;
    if constexpr (HAS_BETA) {
        const C_TYPE *c = (const C_TYPE *)args.c;
        value +=
            (Acc)args.beta * load_as<Acc>(c[row * args.c_row_stride + col * args.c_col_stride]);
    }
    if constexpr (HAS_BIAS) {
        value += load_as<Acc>(((const BIAS_TYPE *)args.bias)[col * args.bias_stride]);
    }
    if constexpr (HAS_RESIDUAL) {
        const C_TYPE *residual = (const C_TYPE *)args.residual;
        value +=
            load_as<Acc>(residual[row * args.residual_row_stride + col * args.residual_col_stride]);
    }
    return value;
}

// The value to store for element (row, col).
template <class Acc>
GK_DEVICE Acc matmul_epilogue(const gk_matmul_args &args, Acc sum, gk_i64 row, gk_i64 col)
{
    return activate<ACTIVATION>(matmul_linear(args, sum, row, col));
}

} // namespace gk
