// What kernels on whole rows share: where rows lie, vectors of a row, and parts of a row merged by
// warps and blocks. An op's own header, which comes first, gives summary, merge(), summarise(),
// finish() and apply().
//
// A row is cut into whole vectors of VEC elements, aligned in x. What lies before the first (the
// head) and behind the last are its edges, which threads take one element at a time.
#pragma once
#include "gk/prefetch.cuh"
#include "gk/vector_memory.cuh"
#include "gk/words.cuh"

namespace gk {

constexpr int SIZE = (int)sizeof(X_TYPE);
constexpr int VEC = X_UNIT && VECTOR > SIZE ? VECTOR / SIZE : 1;
constexpr int WORDS = VEC * SIZE < 4 ? 1 : VEC * SIZE / 4;
constexpr bool PEEL = VEC * SIZE > X_ALIGN;
constexpr int MOST_EDGES = PEEL ? 2 * (VEC - 1) : COLS_DIVISOR % VEC != 0 ? VEC - 1 : 0;

// Loads and stores stay on their side: behind each other they need fewer registers.
GK_DEVICE void keep_order()
{
    asm volatile("" ::: "memory");
}

GK_DEVICE constexpr int smaller(int a, int b)
{
    return a < b ? a : b;
}

GK_DEVICE constexpr int ceil_div(int a, int b)
{
    return (a + b - 1) / b;
}

// Blocks that shall fit a multiprocessor where a thread holds `vectors` vectors of `rows` rows in
// registers. Many vectors take what they need.
GK_DEVICE constexpr int blocks_with(int threads, int rows, int vectors)
{
    const int addresses = X_UNIT && OUT_UNIT ? 1 : 4;
    const int held = rows * (vectors * (VEC * (SIZE == 8 ? 10 : 5) / 4 + addresses) + 24);
    const int factors = HAS_BIAS ? 24 : HAS_WEIGHT ? 16 : 0;
    const int registers = (40 + (SIZE == 8 ? 32 : 0) + factors + held + 7) / 8 * 8;
    const int blocks = smaller(65536 / (threads * registers), 2048 / threads);
    return blocks < 1 || vectors > 8 ? 1 : smaller(blocks, 32);
}

// Vectors whose weights and biases are asked for together, of n in registers,
GK_DEVICE constexpr int factors_of(int n)
{
    return SIZE == 8 || HAS_BIAS ? 1 : smaller(n, 4);
}

// and of those in shared memory.
GK_DEVICE constexpr int factors_ahead(int threads)
{
    return threads > 512 ? (HAS_BIAS ? 1 : 2) : HAS_WEIGHT && !HAS_BIAS ? 4 : 2;
}

// Vectors that a row has at most, but never 0.
GK_DEVICE gk_i64 most_vectors(gk_i64 cols)
{
    return cols < VEC ? 1 : cols / VEC;
}

// One row; without vectors and edges if there is no such row.
struct row_view {
    const X_TYPE *x;
    OUT_TYPE *out;
    gk_i64 x_stride, out_stride;
    gk_i64 vectors;
    int head, edges;
    bool wide; // vectors of the output are aligned, too

    // The first element of a vector.
    GK_DEVICE gk_i64 at(gk_i64 vector) const
    {
        return vector * VEC + (PEEL ? head : 0);
    }

    GK_DEVICE gk_i64 edge_at(gk_i64 edge) const
    {
        return PEEL && edge < head ? edge : edge + vectors * VEC;
    }
};

constexpr int OUT_WIDE = smaller(VEC * (int)sizeof(OUT_TYPE), 16);

GK_DEVICE row_view view_of(const gk_rows_args &args, gk_i64 row)
{
    row_view view;
    gk_i64 cols = args.cols;
    view.x = (const X_TYPE *)args.x;
    view.out = (OUT_TYPE *)args.out;
    view.x_stride = X_UNIT ? 1 : args.x_stride;
    view.out_stride = OUT_UNIT ? 1 : args.out_stride;
    if (row >= args.rows) {
        cols = 0;
    } else if constexpr (ONE_AXIS) {
        view.x += row * args.x_row_stride[0];
        view.out += row * args.out_row_stride[0];
    } else {
        GK_NO_UNROLL
        for (int axis = 0; axis < args.n_axes; axis++) {
            const gk_i64 rest = row / args.shape[axis];
            const gk_i64 i = row - rest * args.shape[axis];
            view.x += i * args.x_row_stride[axis];
            view.out += i * args.out_row_stride[axis];
            row = rest;
        }
    }
    view.head = PEEL ? (int)(-((gk_u64)view.x / SIZE) % VEC) : 0;
    if (PEEL && view.head > cols) {
        view.head = (int)cols;
    }
    view.vectors = (cols - view.head) / VEC;
    view.edges = (int)(cols - view.vectors * VEC);
    view.wide = OUT_UNIT && (gk_u64)(view.out + view.head) % OUT_WIDE == 0;
    return view;
}

// Before grid_begin(): if x is small, all blocks ask for all of it.
template <int THREADS> GK_DEVICE bool prefetch_x(const gk_rows_args &args)
{
    if constexpr (X_UNIT && ONE_AXIS) {
        return prefetch_matrix<THREADS>(args.x, args.rows, args.cols * SIZE,
                                        args.x_row_stride[0] * SIZE);
    }
    return false;
}

// Or else a block asks for `count` vectors of the row that it reads first, from vector `v` on.
template <int THREADS>
GK_DEVICE void prefetch_x(const gk_rows_args &args, const row_view &view, gk_i64 v, gk_i64 count)
{
    if (!prefetch_x<THREADS>(args) && X_UNIT && v < view.vectors) {
        const gk_i64 left = view.vectors - v;
        prefetch_first<THREADS>(view.x + v * VEC, (count < left ? count : left) * (VEC * SIZE));
    }
}

// Vector `v`, or what lies outside the row.
template <int CACHE = CACHE_DEFAULT>
GK_DEVICE void load_vector(gk_u32 (&words)[WORDS], const row_view &view, gk_i64 v)
{
    if (v < view.vectors) {
        const X_TYPE *const from = view.x + view.at(v) * (VEC > 1 ? 1 : view.x_stride);
        if constexpr (CACHE != CACHE_DEFAULT && VEC * SIZE == 16) {
            load_vector<16, 16, CACHE>(words, from);
        } else {
            load_words<VEC * SIZE>(words, from);
        }
    } else {
        GK_UNROLL
        for (int e = 0; e < VEC; e++) {
            packed<X_TYPE>::put(words, e, outside<X_TYPE>());
        }
    }
}

GK_DEVICE void unpack(ACC (&x)[VEC], const gk_u32 (&words)[WORDS])
{
    GK_UNROLL
    for (int e = 0; e < VEC; e++) {
        x[e] = load_as<ACC>(packed<X_TYPE>::get(words, e));
    }
}

// N elements of a weight or bias, as they are in memory.
template <class U, int N> struct factors {
    static constexpr int BYTES = N * (int)sizeof(U);
    gk_u32 words[BYTES < 4 ? 1 : BYTES / 4];

    // From element `at` on.
    template <int ALIGN> GK_DEVICE void load(const void *from, gk_i64 stride, gk_i64 at)
    {
        const U *const u = (const U *)from;
        if constexpr (N > 1 && !PEEL && ALIGN >= smaller(BYTES, 16)) {
            load_words<BYTES>(words, u + at);
        } else {
            GK_UNROLL
            for (int e = 0; e < N; e++) {
                packed<U>::put(words, e, u[(at + e) * stride]);
            }
        }
    }

    GK_DEVICE ACC get(int e) const
    {
        return load_as<ACC>(packed<U>::get(words, e));
    }
};

// What N elements of a row are multiplied with and what is added. Stores keep later loads from
// being moved before them, so that those of several vectors are asked for together.
template <int N> struct row_factors {
    factors<WEIGHT_TYPE, HAS_WEIGHT ? N : 1> weight;
    factors<BIAS_TYPE, HAS_BIAS ? N : 1> bias;

    GK_DEVICE void load(const gk_rows_args &args, gk_i64 at)
    {
        if constexpr (HAS_WEIGHT) {
            weight.template load<WEIGHT_ALIGN>(args.weight, args.weight_stride, at);
        }
        if constexpr (HAS_BIAS) {
            bias.template load<BIAS_ALIGN>(args.bias, args.bias_stride, at);
        }
    }
};

template <int N> GK_DEVICE void pack_elements(gk_u32 *words, const ACC (&y)[N])
{
    if constexpr (sizeof(OUT_TYPE) == 2 && sizeof(ACC) == 4 && N % 2 == 0) {
        GK_UNROLL
        for (int e = 0; e < N; e += 2) {
            words[e / 2] = store_pair_as<OUT_TYPE>(y[e], y[e + 1]);
        }
    } else {
        GK_UNROLL
        for (int e = 0; e < N; e++) {
            packed<OUT_TYPE>::put(words, e, store_as<OUT_TYPE>(y[e]));
        }
    }
}

// Computes and stores N elements from element `at` of the row on.
template <int N, int CACHE = CACHE_DEFAULT>
GK_DEVICE void put_elements(const row_factors<N> &factors, const row_result &result,
                            const row_view &view, gk_i64 at, const ACC (&x)[N])
{
    constexpr int BYTES = N * (int)sizeof(OUT_TYPE);
    alignas(16) gk_u32 words[BYTES < 4 ? 1 : BYTES / 4];
    ACC y[N];
    GK_UNROLL
    for (int e = 0; e < N; e++) {
        const ACC weight = HAS_WEIGHT ? factors.weight.get(HAS_WEIGHT ? e : 0) : 0;
        const ACC bias = HAS_BIAS ? factors.bias.get(HAS_BIAS ? e : 0) : 0;
        y[e] = apply(result, x[e], weight, bias);
    }
    pack_elements(words, y);
    if constexpr (N > 1 && OUT_UNIT) {
        if (view.wide) {
            if constexpr (CACHE != CACHE_DEFAULT && BYTES == 16) {
                store_vector<16, 16, CACHE>(view.out + at, words);
            } else {
                store_words<BYTES>(view.out + at, words);
            }
            return;
        }
    }
    GK_UNROLL
    for (int e = 0; e < N; e++) {
        view.out[(at + e) * view.out_stride] = packed<OUT_TYPE>::get(words, e);
    }
}

template <int N>
GK_DEVICE void put_elements(const gk_rows_args &args, const row_result &result,
                            const row_view &view, gk_i64 at, const ACC (&x)[N])
{
    row_factors<N> factors;
    factors.load(args, at);
    put_elements(factors, result, view, at, x);
}

// Edges `begin`, begin + step, .. of a row, as many of them as there may be.
template <int N> struct row_edges {
    X_TYPE x[N > 0 ? N : 1];

    GK_DEVICE void load(const row_view &view, gk_i64 begin, gk_i64 step)
    {
        GK_UNROLL
        for (int i = 0; i < N; i++) {
            const gk_i64 edge = begin + i * step;
            x[i] = edge < view.edges ? view.x[view.edge_at(edge)] : outside<X_TYPE>();
        }
    }

    template <class F>
    GK_DEVICE void each(const row_view &view, gk_i64 begin, gk_i64 step, F &f) const
    {
        GK_UNROLL
        for (int i = 0; i < N; i++) {
            const ACC value[1] = {load_as<ACC>(x[i])};
            f(value, begin + i * step < view.edges);
        }
    }

    GK_DEVICE void put(const gk_rows_args &args, const row_result &result, const row_view &view,
                       gk_i64 begin, gk_i64 step) const
    {
        GK_UNROLL
        for (int i = 0; i < N; i++) {
            const gk_i64 edge = begin + i * step;
            if (edge < view.edges) {
                const ACC value[1] = {load_as<ACC>(x[i])};
                put_elements(args, result, view, view.edge_at(edge), value);
            }
        }
    }
};

// Vectors and edges `begin`, begin + step, .. of a row, N and EDGES of them, in the thread's
// registers.
template <int N, int EDGES> struct row_in_registers {
    row_view view;
    gk_i64 begin, step;
    alignas(16) gk_u32 words[N][WORDS];
    row_edges<EDGES> edges;

    template <int CACHE = CACHE_DEFAULT>
    GK_DEVICE void load_all(const row_view &of, gk_i64 from, gk_i64 stride)
    {
        view = of;
        begin = from;
        step = stride;
        GK_UNROLL
        for (int i = 0; i < N; i++) {
            load_vector<CACHE>(words[i], view, begin + i * step);
        }
        edges.load(view, begin, step);
    }

    GK_DEVICE void ready() const
    {
    }

    // f(elements, whether they are of the row)
    template <class F> GK_DEVICE void each(F &f) const
    {
        GK_UNROLL
        for (int i = 0; i < N; i++) {
            ACC x[VEC];
            unpack(x, words[i]);
            f(x, begin + i * step < view.vectors);
        }
        edges.each(view, begin, step, f);
    }

    // Stores the row.
    template <int CACHE = CACHE_DEFAULT>
    GK_DEVICE void put_last(const gk_rows_args &args, const row_result &result) const
    {
        constexpr int FACTORS = factors_of(N);
        row_factors<VEC> factors[FACTORS];
        GK_UNROLL
        for (int i = 0; i < N; i++) {
            const gk_i64 v = begin + i * step;
            if (i % FACTORS == 0) {
                GK_UNROLL
                for (int k = 0; k < FACTORS && i + k < N; k++) {
                    if (v + k * step < view.vectors) {
                        factors[k].load(args, view.at(v + k * step));
                    }
                }
            }
            if (v < view.vectors) {
                ACC x[VEC];
                unpack(x, words[i]);
                put_elements<VEC, CACHE>(factors[i % FACTORS], result, view, view.at(v), x);
            }
        }
        edges.put(args, result, view, begin, step);
    }

    // The same, and loads the same vectors of `next` behind it.
    GK_DEVICE void put_all(const gk_rows_args &args, const row_result &result, const row_view &next)
    {
        edges.put(args, result, view, begin, step);
        edges.load(next, begin, step);
        GK_UNROLL
        for (int i = 0; i < N; i++) {
            const gk_i64 v = begin + i * step;
            if (v < view.vectors) {
                ACC x[VEC];
                unpack(x, words[i]);
                put_elements(args, result, view, view.at(v), x);
            }
            keep_order();
            load_vector(words[i], next, v);
        }
        view = next;
    }
};

// Merges the summaries of LANES lanes, in their order; all of them get it.
template <int LANES> GK_DEVICE summary merge_lanes(summary mine)
{
    GK_UNROLL
    for (int lane = 1; lane < LANES; lane *= 2) {
        summary other;
        other.a = __shfl_xor_sync(0xffffffffu, mine.a, lane);
        other.b = __shfl_xor_sync(0xffffffffu, mine.b, lane);
        other.n = __shfl_xor_sync(0xffffffffu, mine.n, lane);
        mine = (threadIdx.x & lane) != 0 ? merge(other, mine) : merge(mine, other);
    }
    return mine;
}

struct alignas(16) summary_slot {
    ACC a, b, n, unused;
};

// Merges COUNT slots, a power of two, in their order; every lane gets it.
template <int COUNT> GK_DEVICE summary merge_slots(const summary_slot *slots)
{
    constexpr int LANES = smaller(COUNT, 32);
    constexpr int EACH = COUNT / LANES;
    const int lane = threadIdx.x % LANES;
    summary mine = {slots[lane * EACH].a, slots[lane * EACH].b, slots[lane * EACH].n};
    GK_UNROLL
    for (int i = 1; i < EACH; i++) {
        const summary_slot &slot = slots[lane * EACH + i];
        mine = merge(mine, summary{slot.a, slot.b, slot.n});
    }
    return merge_lanes<LANES>(mine);
}

// Merges the warps' summaries. `slots` has 2 * WARPS places and is used by halves, so that one
// barrier a row is enough.
template <int WARPS>
GK_DEVICE summary merge_block(const summary &warp, summary_slot *slots, unsigned turn)
{
    if constexpr (WARPS == 1) {
        return warp;
    }
    summary_slot *const half = slots + (turn % 2) * WARPS;
    if (threadIdx.x % 32 == 0) {
        half[threadIdx.x / 32] = summary_slot{warp.a, warp.b, warp.n, 0};
    }
    __syncthreads();
    return merge_slots<WARPS>(half);
}

} // namespace gk
