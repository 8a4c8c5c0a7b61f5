// Softmax of a row: exp(x - m) / sum of exp(x - m), m the row's maximum; with LOG its logarithm,
// (x - m) - log(sum of exp(x - m)).
//
// A maximum may drop a NaN, the sum cannot: a row that holds NaN, an infinity or nothing but minus
// infinities is NaN throughout. A part of a row may be all minus infinity while the rest is not, so
// parts take 0 for such a maximum, against which these elements add nothing.
#pragma once
#include "gk/dtypes.cuh"

namespace gk {

typedef accumulator<X_TYPE>::type ACC;

GK_DEVICE float minus_infinity(float)
{
    return bits_to_f32(0xff800000u);
}

GK_DEVICE double minus_infinity(double)
{
    return __longlong_as_double((long long)0xfff0000000000000ull);
}

// What is known of some elements: their maximum, and the sum of exp(x - maximum).
struct summary {
    ACC a, b, n;
};

GK_DEVICE summary empty_summary()
{
    return summary{minus_infinity(ACC()), 0, 0};
}

// What elements outside the row count as.
template <class U> GK_DEVICE U outside();
template <> GK_DEVICE f64 outside<f64>()
{
    return minus_infinity(f64());
}
template <> GK_DEVICE f32 outside<f32>()
{
    return minus_infinity(f32());
}
template <> GK_DEVICE f16 outside<f16>()
{
    return f16{0xfc00};
}
template <> GK_DEVICE bf16 outside<bf16>()
{
    return bf16{0xff80};
}

constexpr float LOG2_E = 1.44269504f;

// exp(x) as a term of a sum whose largest is 1. Rounding the product costs |x| units in the last
// place: of small terms, as of what is below the normal range, a sum does not see it.
GK_DEVICE float term(float x)
{
    return exp2_approximate(x * LOG2_E);
}

GK_DEVICE double term(double x)
{
    return exp(x);
}

// A result of 16 bits needs few of exp's. What is below the normal range is computed 2^SHIFT times
// as large.
constexpr bool FEW_BITS = sizeof(OUT_TYPE) == 2;
constexpr int SHIFT = 24;

// Where the two are equal the difference may be NaN.
GK_DEVICE ACC rescale(ACC from, ACC to)
{
    return from == to ? (ACC)1 : exp(from - to);
}

// y follows x.
GK_DEVICE summary merge(const summary &x, const summary &y)
{
    const ACC maximum = fmax(x.a, y.a);
    return summary{maximum, x.b * rescale(x.a, maximum) + y.b * rescale(y.a, maximum), 0};
}

struct take_maximum {
    ACC value;

    template <int N> GK_DEVICE void operator()(const ACC (&x)[N], bool)
    {
        GK_UNROLL
        for (int e = 0; e < N; e++) {
            value = fmax(value, x[e]);
        }
    }
};

struct add_exponentials {
    ACC base, sum;

    template <int N> GK_DEVICE void operator()(const ACC (&x)[N], bool)
    {
        ACC part = 0;
        GK_UNROLL
        for (int e = 0; e < N; e++) {
            part += term(x[e] - base);
        }
        sum += part;
    }
};

// Of the elements that LANES lanes hold; all of them get it.
template <int LANES, class Row> GK_DEVICE summary summarise(const Row &row)
{
    take_maximum maximum = {minus_infinity(ACC())};
    row.each(maximum);
    GK_UNROLL
    for (int lane = LANES / 2; lane > 0; lane /= 2) {
        maximum.value = fmax(maximum.value, __shfl_xor_sync(0xffffffffu, maximum.value, lane));
    }
    const bool none = maximum.value == minus_infinity(ACC());
    add_exponentials sum = {none ? (ACC)0 : maximum.value, 0};
    row.each(sum);
    GK_UNROLL
    for (int lane = LANES / 2; lane > 0; lane /= 2) {
        sum.sum += __shfl_xor_sync(0xffffffffu, sum.sum, lane);
    }
    return summary{maximum.value, sum.sum, 0};
}

// What every element of the row needs; with FEW_BITS factor is 2^-SHIFT of what it is else.
struct row_result {
    ACC maximum, factor;
};

GK_DEVICE row_result finish(const summary &s, const gk_rows_args &)
{
    if constexpr (LOG) {
        return row_result{s.a, log(s.b)};
    } else {
        return row_result{s.a, (ACC)1 / (FEW_BITS ? 1 << SHIFT : 1) / s.b};
    }
}

GK_DEVICE ACC apply(const row_result &r, ACC x, ACC, ACC)
{
    if constexpr (LOG) {
        return (x - r.maximum) - r.factor;
    } else if constexpr (FEW_BITS) {
        return exp2_approximate(fmaf((float)(x - r.maximum), LOG2_E, SHIFT)) * r.factor;
    } else {
        return exp(x - r.maximum) * r.factor;
    }
}

} // namespace gk
