// The operations of map's expressions on float and double, each rounded by itself: nothing is
// contracted into a fused multiply-add but what is written as one. Functions are the accurate ones.
#pragma once

#include "gk/dtypes.cuh"

namespace gk {

GK_DEVICE float m_add(float a, float b)
{
    return __fadd_rn(a, b);
}

GK_DEVICE double m_add(double a, double b)
{
    return __dadd_rn(a, b);
}

GK_DEVICE float m_sub(float a, float b)
{
    return __fadd_rn(a, -b);
}

GK_DEVICE double m_sub(double a, double b)
{
    return __dadd_rn(a, -b);
}

GK_DEVICE float m_mul(float a, float b)
{
    return __fmul_rn(a, b);
}

GK_DEVICE double m_mul(double a, double b)
{
    return __dmul_rn(a, b);
}

template <class T> GK_DEVICE T m_div(T a, T b)
{
    return a / b;
}

template <class T> GK_DEVICE T m_fma(T a, T b, T c)
{
    return fma(a, b, c);
}

template <class T> GK_DEVICE T m_neg(T x)
{
    return -x;
}

template <class T> GK_DEVICE T m_not(T x)
{
    return x != (T)0 ? (T)0 : (T)1;
}

template <class T> GK_DEVICE T m_or(T a, T b)
{
    return a != (T)0 || b != (T)0 ? (T)1 : (T)0;
}

template <class T> GK_DEVICE T m_and(T a, T b)
{
    return a != (T)0 && b != (T)0 ? (T)1 : (T)0;
}

template <class T> GK_DEVICE T m_eq(T a, T b)
{
    return a == b ? (T)1 : (T)0;
}

template <class T> GK_DEVICE T m_ne(T a, T b)
{
    return a != b ? (T)1 : (T)0;
}

template <class T> GK_DEVICE T m_lt(T a, T b)
{
    return a < b ? (T)1 : (T)0;
}

template <class T> GK_DEVICE T m_le(T a, T b)
{
    return a <= b ? (T)1 : (T)0;
}

template <class T> GK_DEVICE T m_gt(T a, T b)
{
    return a > b ? (T)1 : (T)0;
}

template <class T> GK_DEVICE T m_ge(T a, T b)
{
    return a >= b ? (T)1 : (T)0;
}

template <class T> GK_DEVICE T m_where(T condition, T yes, T no)
{
    return condition != (T)0 ? yes : no;
}

template <class T> GK_DEVICE T m_isnan(T x)
{
    return x != x ? (T)1 : (T)0;
}

// A NaN operand makes the result NaN.
template <class T> GK_DEVICE T m_max(T a, T b)
{
    return a > b ? a : b >= a ? b : a + b;
}

template <class T> GK_DEVICE T m_min(T a, T b)
{
    return a < b ? a : b <= a ? b : a + b;
}

// The constants, of the type of a value that is at hand.
template <class T> GK_DEVICE T m_inf(T)
{
    return (T)bits_to_f32(0x7f800000u);
}

template <class T> GK_DEVICE T m_nan(T)
{
    return (T)bits_to_f32(0x7fc00000u);
}

GK_DEVICE float m_abs(float x)
{
    return fabsf(x);
}

GK_DEVICE double m_abs(double x)
{
    return fabs(x);
}

#define GK_ELEMENTWISE(name)                                                                       \
    GK_DEVICE float m_##name(float x)                                                              \
    {                                                                                              \
        return name##f(x);                                                                         \
    }                                                                                              \
    GK_DEVICE double m_##name(double x)                                                            \
    {                                                                                              \
        return name(x);                                                                            \
    }
GK_ELEMENTWISE(ceil)
GK_ELEMENTWISE(cos)
GK_ELEMENTWISE(erf)
GK_ELEMENTWISE(erfc)
GK_ELEMENTWISE(exp)
GK_ELEMENTWISE(exp2)
GK_ELEMENTWISE(expm1)
GK_ELEMENTWISE(floor)
GK_ELEMENTWISE(log)
GK_ELEMENTWISE(log1p)
GK_ELEMENTWISE(log2)
GK_ELEMENTWISE(rint)
GK_ELEMENTWISE(rsqrt)
GK_ELEMENTWISE(sin)
GK_ELEMENTWISE(sqrt)
GK_ELEMENTWISE(tan)
GK_ELEMENTWISE(tanh)
GK_ELEMENTWISE(trunc)
#undef GK_ELEMENTWISE

GK_DEVICE float m_pow(float x, float y)
{
    return powf(x, y);
}

GK_DEVICE double m_pow(double x, double y)
{
    return pow(x, y);
}

template <class T> GK_DEVICE T m_relu(T x)
{
    return x < (T)0 ? (T)0 : x;
}

// x times the logistic function of a, without the loss of 1 / (1 + exp(-a)) where exp(-a) is past
// the range. Its limit at minus infinity is 0.
template <class T> GK_DEVICE T m_times_logistic(T x, T a)
{
    const T t = m_exp(-m_abs(a));
    const T whole = a < (T)0 ? m_mul(x, t) : x;
    return x < (T)-1e30 ? (T)0 : whole / m_add((T)1, t);
}

template <class T> GK_DEVICE T m_sigmoid(T x)
{
    const T t = m_exp(-m_abs(x));
    return (x < (T)0 ? t : (T)1) / m_add((T)1, t);
}

template <class T> GK_DEVICE T m_silu(T x)
{
    return m_times_logistic(x, x);
}

// 0.5 x (1 + erf(x / sqrt(2))), where erfc keeps the digits that the sum would lose.
template <class T> GK_DEVICE T m_gelu(T x)
{
    const T tail = m_erfc(m_mul(-x, (T)0.7071067811865476));
    return x < (T)-1e30 ? (T)0 : m_mul(m_mul((T)0.5, x), tail);
}

// 0.5 x (1 + tanh(u)) with u = sqrt(2/pi) (x + 0.044715 x^3), arXiv:1606.08415: x times the
// logistic function of 2 u.
template <class T> GK_DEVICE T m_gelu_tanh(T x)
{
    const T cube = m_mul(m_mul(m_mul((T)0.044715, x), x), x);
    return m_times_logistic(x, m_mul((T)1.5957691216057308, m_add(x, cube)));
}

// For results of 16 bits, with a relative error of some 2^-17. Exponentials are computed 2^24 times
// as large, which keeps what f32's subnormals can hold.
constexpr float LARGE = 0x1p24f;

// exp(-x * scale), x not negative.
GK_DEVICE float brief_decay(float x, float scale)
{
    return exp2_approximate(fmaf(-x, scale * 1.44269504f, 24));
}

// x times the logistic function of a, which has x's sign: with t = exp(-|a|), x / (1 + t) or
// x t / (1 + t), which is max(x, 0) - |x| t / (1 + t).
GK_DEVICE float brief_times_logistic(float x, float a)
{
    const float t = brief_decay(fabsf(a), 1);
    const float size = fminf(fabsf(x), 1e30f);
    return fmaf(-size * t, reciprocal_approximate(LARGE + t), m_relu(x));
}

GK_DEVICE float m_brief_sigmoid(float x)
{
    const float t = brief_decay(fabsf(x), 1);
    return (x < 0 ? t : LARGE) * reciprocal_approximate(LARGE + t);
}

GK_DEVICE float m_brief_silu(float x)
{
    return brief_times_logistic(x, x);
}

GK_DEVICE float m_brief_gelu_tanh(float x)
{
    return brief_times_logistic(x, 1.59576912f * (x + 0.044715f * x * x * x));
}

// max(x, 0) - 0.5 |x| erfc(|x| / sqrt(2)). Half of erfc beside exp(-x^2 / 2) is a polynomial in
// u = 1 / (1 + 0.4525 |x|), fitted to least relative error (2^-17) over |x| up to 13.9.
GK_DEVICE float m_brief_gelu(float x)
{
    const float size = fminf(fabsf(x), 100);
    const float u = reciprocal_approximate(fmaf(0.4525483f, size, 1));
    float p = 0.0691454336f / LARGE;
    p = fmaf(p, u, -0.235694379f / LARGE);
    p = fmaf(p, u, 0.191420332f / LARGE);
    p = fmaf(p, u, 0.109687716f / LARGE);
    p = fmaf(p, u, 0.185139135f / LARGE);
    p = fmaf(p, u, 0.180300802f / LARGE);
    return fmaf(-size * brief_decay(size * size, 0.5f), p * u, m_relu(x));
}

} // namespace gk
