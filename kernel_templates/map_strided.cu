// out = expression of x0 .. x4 for any strides. Vectors lie along the innermost axis; the place of
// each is found by division. A thread takes UNROLL vectors at a time.
#include "gk/map_args.h"
#include "gk/map_operands.cuh"

namespace gk {

constexpr int LOADS = CACHE > 0 ? CACHE_STREAM : CACHE_DEFAULT;
constexpr int STORES = CACHE > 1 ? CACHE_STREAM : CACHE_DEFAULT;
constexpr int STEP = UNROLL * THREADS;
constexpr int OUT = 5;

// Where a vector of each operand begins, in elements.
struct place {
    gk_i64 at[6];
    int count; // elements of the vector, 0 past the end
};

struct quotient {
    gk_i64 whole;
    gk_i64 rest;
};

// Divisions of 32 bits take a fraction of the instructions.
GK_DEVICE quotient divide(gk_i64 a, gk_i64 b, bool is_small)
{
    quotient q;
    if (is_small) {
        q.whole = (gk_u32)a / (gk_u32)b;
        q.rest = (gk_u32)a % (gk_u32)b;
    } else {
        q.whole = a / b;
        q.rest = a % b;
    }
    return q;
}

template <bool HAS>
GK_DEVICE void advance(const gk_map_strided_args &args, place &p, int operand, int axis,
                       gk_i64 index)
{
    if constexpr (HAS) {
        p.at[operand] += index * args.stride[operand][axis];
    }
}

GK_DEVICE void advance_all(const gk_map_strided_args &args, place &p, int axis, gk_i64 index)
{
    advance<HAS_X0>(args, p, 0, axis, index);
    advance<HAS_X1>(args, p, 1, axis, index);
    advance<HAS_X2>(args, p, 2, axis, index);
    advance<HAS_X3>(args, p, 3, axis, index);
    advance<HAS_X4>(args, p, 4, axis, index);
    advance<true>(args, p, OUT, axis, index);
}

GK_DEVICE place find(const gk_map_strided_args &args, gk_i64 vector, gk_i64 per_row, bool is_small)
{
    place p;
    const quotient row = divide(vector, per_row, is_small);
    const gk_i64 column = row.rest * VEC;
    GK_UNROLL
    for (int i = 0; i < 6; i++) {
        p.at[i] = column * args.inner_stride[i];
    }
    const gk_i64 left = args.n - column;
    p.count = left < VEC ? (int)left : VEC;
    gk_i64 rest = row.whole;
    GK_NO_UNROLL
    for (int axis = (int)args.outer - 1; axis > 0; axis--) {
        const quotient q = divide(rest, args.shape[axis], is_small);
        advance_all(args, p, axis, q.rest);
        rest = q.whole;
    }
    if (args.outer > 0) {
        advance_all(args, p, 0, rest);
    }
    return p;
}

GK_DEVICE void load_inputs(const gk_map_strided_args &args, const place &p, map_inputs &in)
{
    if (p.count == VEC) {
        in.x0.template load<LOADS>(args.x[0], p.at[0], args.inner_stride[0]);
        in.x1.template load<LOADS>(args.x[1], p.at[1], args.inner_stride[1]);
        in.x2.template load<LOADS>(args.x[2], p.at[2], args.inner_stride[2]);
        in.x3.template load<LOADS>(args.x[3], p.at[3], args.inner_stride[3]);
        in.x4.template load<LOADS>(args.x[4], p.at[4], args.inner_stride[4]);
    } else {
        in.x0.load_some(args.x[0], p.at[0], args.inner_stride[0], p.count);
        in.x1.load_some(args.x[1], p.at[1], args.inner_stride[1], p.count);
        in.x2.load_some(args.x[2], p.at[2], args.inner_stride[2], p.count);
        in.x3.load_some(args.x[3], p.at[3], args.inner_stride[3], p.count);
        in.x4.load_some(args.x[4], p.at[4], args.inner_stride[4], p.count);
    }
}

GK_DEVICE void store_values(const gk_map_strided_args &args, const place &p, const map_inputs &in)
{
    OUT_TYPE *to = (OUT_TYPE *)args.out + p.at[OUT];
    elements<OUT_TYPE> out;
    GK_UNROLL
    for (int k = 0; k < VEC; k++) {
        if (k < p.count) {
            out.at[k] = in.value(k);
        }
    }
    if (OUT_LAYOUT == ALONG && p.count == VEC) {
        store_vector<VEC *(int)sizeof(OUT_TYPE), OUT_ALIGN, STORES>(to, out.at);
        return;
    }
    GK_UNROLL
    for (int k = 0; k < VEC; k++) {
        if (k < p.count) {
            to[k * (OUT_LAYOUT == ALONG ? 1 : args.inner_stride[OUT])] = out.at[k];
        }
    }
}

} // namespace gk

GK_KERNEL(THREADS, 1, gk_map_strided_args, args)
{
    using namespace gk;
    const gk_i64 per_row = (args.n + VEC - 1) / VEC;
    const gk_i64 vectors = per_row * args.rows;
    const gk_i64 stride = (gk_i64)gridDim.x * STEP;
    const bool is_small = vectors <= 0x7fffffff;
    grid_begin();
    for (gk_i64 first = (gk_i64)blockIdx.x * STEP; first < vectors; first += stride) {
        map_inputs in[UNROLL];
        place places[UNROLL];
        GK_UNROLL
        for (int u = 0; u < UNROLL; u++) {
            const gk_i64 vector = first + u * THREADS + threadIdx.x;
            places[u].count = 0;
            if (vector < vectors) {
                places[u] = find(args, vector, per_row, is_small);
                load_inputs(args, places[u], in[u]);
            }
        }
        GK_UNROLL
        for (int u = 0; u < UNROLL; u++) {
            if (places[u].count > 0) {
                store_values(args, places[u], in[u]);
            }
        }
    }
}
