// What the reduction kernels share: how elements are put together, and how threads and blocks put
// together what they have. Nothing depends on the order in which blocks run.
//
// Sums of elements of up to 32 bits are added in f32 by trees over what a thread reads at once, at
// most 64 elements, and in f64 from there on: however long, they keep growing. Maxima and minima
// are IEEE 754-2019 maximum and minimum: NaN wins, +0 is above -0. The place of the maximum is that
// of the first NaN, else of the first of the largest.
#pragma once
#include "gk/dtypes.cuh"
#include "gk/prefetch.cuh"
#include "gk/reduce_args.h"
#include "gk/vector_memory.cuh"

namespace gk {

// REDUCTION, in the order of gk_reduce_op.
constexpr int SUM = 0;
constexpr int MEAN = 1;
constexpr int MAX = 2;
constexpr int MIN = 3;
constexpr int ARGMAX = 4;
constexpr bool SUMS = REDUCTION == SUM || REDUCTION == MEAN;

typedef X_TYPE T;
constexpr int SIZE = (int)sizeof(T);

template <bool YES, class A, class B> struct select {
    typedef A type;
};
template <class A, class B> struct select<false, A, B> {
    typedef B type;
};
template <class A, class B> constexpr bool SAME = false;
template <class A> constexpr bool SAME<A, A> = true;

// An element as a thread holds it, and what becomes of many. Sums of integers wrap around.
constexpr bool INTEGERS = SAME<T, i32>;
typedef typename select<INTEGERS && SUMS, gk_u64, typename accumulator<T>::type>::type value;

struct place {
    value best;
    int index; // NOWHERE: nothing above the least value was seen
};
constexpr int NOWHERE = 0x7fffffff;

typedef typename select<SUMS, typename select<INTEGERS, gk_u64, double>::type,
                        typename select<REDUCTION == ARGMAX, place, value>::type>::type state;

GK_DEVICE value least()
{
    if constexpr (INTEGERS) {
        return (value)(REDUCTION == MIN ? 0x7fffffff : -0x7fffffff - 1);
    } else {
        const float infinity = bits_to_f32(0x7f800000u);
        return (value)(REDUCTION == MIN ? infinity : -infinity);
    }
}

// What an element that does not exist counts as.
GK_DEVICE value nothing()
{
    if constexpr (SUMS) {
        return 0;
    } else {
        return least();
    }
}

template <class S = state> GK_DEVICE S identity()
{
    if constexpr (SAME<S, place>) {
        return place{least(), NOWHERE};
    } else {
        return (S)nothing();
    }
}

GK_DEVICE value widen(T x)
{
    return load_as<value>(x);
}

GK_DEVICE float greater_of(float a, float b)
{
    return max_nan(a, b);
}
GK_DEVICE float lesser_of(float a, float b)
{
    return min_nan(a, b);
}
GK_DEVICE double greater_of(double a, double b)
{
    const bool first = a > b || a != a || (a == b && __double_as_longlong(b) < 0);
    return first ? a : b;
}
GK_DEVICE double lesser_of(double a, double b)
{
    const bool first = a < b || a != a || (a == b && __double_as_longlong(a) < 0);
    return first ? a : b;
}
GK_DEVICE int greater_of(int a, int b)
{
    return a > b ? a : b;
}
GK_DEVICE int lesser_of(int a, int b)
{
    return a < b ? a : b;
}

// Two elements, or two maxima.
template <class V> GK_DEVICE V join(V a, V b)
{
    if constexpr (SUMS) {
        return a + b;
    } else if constexpr (REDUCTION == MIN) {
        return lesser_of(a, b);
    } else {
        return greater_of(a, b);
    }
}

template <class S> GK_DEVICE S merge(S a, S b)
{
    return join(a, b);
}

GK_DEVICE place merge(place a, place b)
{
    const bool a_nan = a.best != a.best;
    const bool b_nan = b.best != b.best;
    const bool equal = a_nan ? b_nan : a.best == b.best;
    const bool above = b_nan ? !a_nan : b.best > a.best;
    return above || (equal && b.index < a.index) ? b : a;
}

template <int N, int WIDTH = N> GK_DEVICE value tree(value (&v)[N])
{
    if constexpr (WIDTH == 1) {
        return v[0];
    } else {
        GK_UNROLL
        for (int i = 0; i < WIDTH / 2; i++) {
            v[i] = join(v[i], v[i + WIDTH / 2]);
        }
        return tree<N, WIDTH / 2>(v);
    }
}

// Takes N further elements whose indices are `step` apart. A thread meets its elements in the order
// of their indices.
template <int N> GK_DEVICE void take(place &s, value (&x)[N], gk_i64 index, int step)
{
    GK_UNROLL
    for (int i = 0; i < N; i++) {
        const bool better = s.best == s.best && !(x[i] <= s.best);
        s.index = better ? (int)(index + i * step) : s.index;
        s.best = better ? x[i] : s.best;
    }
}

template <int N, class S> GK_DEVICE void take(S &s, value (&x)[N], gk_i64, int)
{
    s = merge(s, (S)tree(x));
}

// The state of the lane whose number differs in these bits.
template <class S> GK_DEVICE S from_lane(S s, int bits)
{
    return __shfl_xor_sync(0xffffffffu, s, bits);
}

GK_DEVICE place from_lane(place s, int bits)
{
    return place{__shfl_xor_sync(0xffffffffu, s.best, bits),
                 __shfl_xor_sync(0xffffffffu, s.index, bits)};
}

// What LANES lanes side by side have, in each of them.
template <int LANES> GK_DEVICE state merge_lanes(state s)
{
    GK_UNROLL
    for (int bits = LANES / 2; bits > 0; bits /= 2) {
        const state other = from_lane(s, bits);
        // The lower lane first, so that both come to the same.
        s = (threadIdx.x & (gk_u32)bits) == 0 ? merge(s, other) : merge(other, s);
    }
    return s;
}

// What the block has, in thread 0. `shared` holds a state for each warp and is free afterwards.
template <int THREADS> GK_DEVICE state merge_block(state s, state *shared)
{
    constexpr int WARPS = THREADS / 32;
    s = merge_lanes<32>(s);
    if constexpr (WARPS > 1) {
        if (threadIdx.x % 32 == 0) {
            shared[threadIdx.x / 32] = s;
        }
        __syncthreads();
        if (threadIdx.x < 32) {
            s = merge_lanes<WARPS>(shared[threadIdx.x % WARPS]);
        }
        __syncthreads();
    }
    return s;
}

GK_DEVICE void store(const gk_reduce_args &args, gk_i64 to, place s)
{
    // All are the least value, the first included, where nothing was above it.
    ((OUT_TYPE *)args.out)[to] = store_as<OUT_TYPE>(s.index == NOWHERE ? 0 : s.index);
}

template <class S> GK_DEVICE void store(const gk_reduce_args &args, gk_i64 to, S s)
{
    OUT_TYPE *out = (OUT_TYPE *)args.out + to;
    if constexpr (SAME<S, double>) {
        const double x = REDUCTION == MEAN ? s / (double)args.length : s;
        *out = store_as<OUT_TYPE>((typename accumulator<OUT_TYPE>::type)x);
    } else {
        *out = store_as<OUT_TYPE>(s);
    }
}

// The index of an element of the axes taken apart: what its steps along them add up to in x, and
// in out.
struct offsets {
    gk_i64 x;
    gk_i64 out;
};

GK_DEVICE gk_i64 divide(gk_i64 a, gk_i64 b)
{
    const bool narrow = ((gk_u64)a | (gk_u64)b) >> 32 == 0;
    return narrow ? (gk_i64)((gk_u32)a / (gk_u32)b) : a / b;
}

GK_DEVICE offsets locate_kept(const gk_reduce_args &args, gk_i64 index, int axes)
{
    offsets at = {0, 0};
    GK_NO_UNROLL
    for (int axis = axes - 1; axis >= 0; axis--) {
        const gk_i64 rest = axis > 0 ? divide(index, args.kept_size[axis]) : 0;
        const gk_i64 here = index - rest * args.kept_size[axis];
        at.x += here * args.kept_x[axis];
        at.out += here * args.kept_out[axis];
        index = rest;
    }
    return at;
}

GK_DEVICE gk_i64 locate_reduced(const gk_reduce_args &args, gk_i64 index)
{
    gk_i64 at = 0;
    GK_NO_UNROLL
    for (int axis = (int)args.n_reduced - 1; axis >= 0; axis--) {
        const gk_i64 rest = axis > 0 ? divide(index, args.reduced_size[axis]) : 0;
        at += (index - rest * args.reduced_size[axis]) * args.reduced_x[axis];
        index = rest;
    }
    return at;
}

// The part of `steps` that a split has, all in proportion.
GK_DEVICE gk_i64 share_of(gk_i64 steps, gk_u32 split, gk_u32 splits)
{
    if (steps >> 31 == 0) {
        return (gk_i64)((gk_u64)steps * split / splits);
    }
    return steps / splits * split + steps % splits * split / splits;
}

// True in the block that is the last of a tile's splits to arrive; what the others wrote before
// they came is then visible. `flag` is in shared memory.
GK_DEVICE bool is_last(gk_u64 *ticket, gk_u32 splits, gk_u32 *flag)
{
    thread_fence();
    __syncthreads();
    if (threadIdx.x == 0) {
        const bool last = atomic_add(ticket, 1) == splits - 1;
        if (last) {
            *ticket = 0;
        }
        *flag = last ? 1 : 0;
    }
    __syncthreads();
    const bool last = *flag != 0;
    thread_fence();
    return last;
}

// What a block has goes to its output, where several blocks share one (splits > 1) by way of the
// partials, which the last of them adds up. `shared` holds a state for each warp and one more.
template <int THREADS>
GK_DEVICE void finish_block(const gk_reduce_args &args, state s, gk_u32 tile, gk_u32 split,
                            gk_u32 splits, gk_i64 to, state *shared)
{
    s = merge_block<THREADS>(s, shared);
    if (splits > 1) {
        state *partials = (state *)args.partials + (gk_i64)tile * splits;
        if (threadIdx.x == 0) {
            partials[split] = s;
        }
        if (!is_last(args.tickets + tile, splits, (gk_u32 *)(shared + THREADS / 32))) {
            return;
        }
        s = identity();
        GK_NO_UNROLL
        for (gk_u32 i = threadIdx.x; i < splits; i += THREADS) {
            s = merge(s, partials[i]);
        }
        s = merge_block<THREADS>(s, shared);
    }
    if (threadIdx.x == 0) {
        store(args, to, s);
    }
}

// BYTES of elements.
template <int BYTES> struct alignas(BYTES) vector {
    T items[BYTES / SIZE];
};

// From a multiple of BYTES. Nobody needs them again.
template <int BYTES> GK_DEVICE vector<BYTES> read_vector(const T *from)
{
    vector<BYTES> v;
    load_vector<BYTES, BYTES, CACHE_STREAM>(v.items, from);
    return v;
}

template <int BYTES> GK_DEVICE vector<BYTES> no_elements()
{
    vector<BYTES> v;
    GK_UNROLL
    for (int i = 0; i < BYTES / SIZE; i++) {
        v.items[i] = store_as<T>(nothing());
    }
    return v;
}

template <int BYTES> GK_DEVICE void widen(value (&to)[BYTES / SIZE], const vector<BYTES> &v)
{
    GK_UNROLL
    for (int i = 0; i < BYTES / SIZE; i++) {
        to[i] = widen(v.items[i]);
    }
}

} // namespace gk
