// Norms of a row: x / sqrt(mean of x^2 + eps), or with CENTER (x - mean) / sqrt(variance + eps);
// times a weight, plus a bias. The variance is a sum of squares of differences from the mean of the
// elements at hand, and such parts are merged by their means and counts (Chan, Golub, LeVeque):
// nothing cancels.
#pragma once
#include "gk/dtypes.cuh"

namespace gk {

typedef accumulator<X_TYPE>::type ACC;

// What is known of some elements. CENTER: mean, sum of squared differences from it, count; else the
// sum of squares.
struct summary {
    ACC a, b, n;
};

GK_DEVICE summary empty_summary()
{
    return summary{0, 0, 0};
}

// What elements outside the row count as.
template <class U> GK_DEVICE U outside()
{
    return U{0};
}

// y follows x.
GK_DEVICE summary merge(const summary &x, const summary &y)
{
    if constexpr (CENTER) {
        const ACC n = x.n + y.n;
        const ACC share = n > 0 ? y.n / n : 0;
        const ACC step = y.a - x.a;
        return summary{x.a + step * share, x.b + y.b + step * step * x.n * share, n};
    } else {
        return summary{x.a + y.a, 0, 0};
    }
}

template <int LANES> GK_DEVICE ACC lanes_sum(ACC x)
{
    GK_UNROLL
    for (int lane = LANES / 2; lane > 0; lane /= 2) {
        x += __shfl_xor_sync(0xffffffffu, x, lane);
    }
    return x;
}

struct add_elements {
    ACC sum;
    unsigned count;

    template <int N> GK_DEVICE void operator()(const ACC (&x)[N], bool inside)
    {
        ACC part = 0;
        GK_UNROLL
        for (int e = 0; e < N; e++) {
            part += CENTER ? x[e] : x[e] * x[e];
        }
        sum += part;
        count += inside ? N : 0;
    }
};

struct add_squares {
    ACC mean, sum;

    template <int N> GK_DEVICE void operator()(const ACC (&x)[N], bool inside)
    {
        ACC part = 0;
        GK_UNROLL
        for (int e = 0; e < N; e++) {
            part += (x[e] - mean) * (x[e] - mean);
        }
        sum += inside ? part : 0;
    }
};

// Of the elements that LANES lanes hold; all of them get it.
template <int LANES, class Row> GK_DEVICE summary summarise(const Row &row)
{
    add_elements elements = {0, 0};
    row.each(elements);
    const ACC sum = lanes_sum<LANES>(elements.sum);
    if constexpr (CENTER) {
        const ACC n = lanes_sum<LANES>((ACC)elements.count);
        add_squares squares = {n > 0 ? sum / n : 0, 0};
        row.each(squares);
        return summary{squares.mean, lanes_sum<LANES>(squares.sum), n};
    } else {
        return summary{sum, 0, 0};
    }
}

// What every element of the row needs.
struct row_result {
    ACC mean, factor;
};

GK_DEVICE row_result finish(const summary &s, const gk_rows_args &args)
{
    const ACC n = (ACC)args.cols;
    const ACC eps = (ACC)args.eps;
    if constexpr (CENTER) {
        return row_result{s.a, (ACC)1 / sqrt(s.b / n + eps)};
    } else {
        return row_result{0, (ACC)1 / sqrt(s.a / n + eps)};
    }
}

GK_DEVICE ACC apply(const row_result &r, ACC x, ACC weight, ACC bias)
{
    ACC value = (CENTER ? x - r.mean : x) * r.factor;
    if constexpr (HAS_WEIGHT) {
        value *= weight;
    }
    if constexpr (HAS_BIAS) {
        value += bias;
    }
    return value;
}

} // namespace gk
