// out = expression of x0 .. x4 where all lie along one axis. A thread takes UNROLL vectors at a
// time: all are loaded before one is used. Elements in front of the first aligned vector and behind
// the last are taken one by one, by the last block.
#include "gk/map_args.h"
#include "gk/map_operands.cuh"
#include "gk/prefetch.cuh"

namespace gk {

constexpr int LOADS = CACHE > 0 ? CACHE_STREAM : CACHE_DEFAULT;
constexpr int STORES = CACHE > 1 ? CACHE_STREAM : CACHE_DEFAULT;
constexpr int STEP = UNROLL * THREADS;
// Blocks that ask ahead for anything; the others are many, and start faster not to consider it.
constexpr gk_u32 PREFETCH_BLOCKS =
    PREFETCH_MOST /
    (STEP * VECTOR < (int)PREFETCH_BLOCK ? (gk_u32)(STEP * VECTOR) : PREFETCH_BLOCK);

GK_DEVICE constexpr bool loads_vectors(bool has, int layout)
{
    return has && layout == ALONG;
}

GK_DEVICE void load_inputs(const gk_map_args &args, gk_i64 index, map_inputs &in)
{
    if constexpr (loads_vectors(HAS_X0, X0_LAYOUT)) {
        in.x0.template load<LOADS>(args.x[0], index, 1);
    }
    if constexpr (loads_vectors(HAS_X1, X1_LAYOUT)) {
        in.x1.template load<LOADS>(args.x[1], index, 1);
    }
    if constexpr (loads_vectors(HAS_X2, X2_LAYOUT)) {
        in.x2.template load<LOADS>(args.x[2], index, 1);
    }
    if constexpr (loads_vectors(HAS_X3, X3_LAYOUT)) {
        in.x3.template load<LOADS>(args.x[3], index, 1);
    }
    if constexpr (loads_vectors(HAS_X4, X4_LAYOUT)) {
        in.x4.template load<LOADS>(args.x[4], index, 1);
    }
}

// Before grid_begin(): `count` elements of each input from element `index` on.
GK_DEVICE void prefetch_inputs(const gk_map_args &args, gk_i64 index, gk_i64 count)
{
    if constexpr (loads_vectors(HAS_X0, X0_LAYOUT)) {
        prefetch_first<THREADS>((const X0_TYPE *)args.x[0] + index, count * sizeof(X0_TYPE));
    }
    if constexpr (loads_vectors(HAS_X1, X1_LAYOUT)) {
        prefetch_first<THREADS>((const X1_TYPE *)args.x[1] + index, count * sizeof(X1_TYPE));
    }
    if constexpr (loads_vectors(HAS_X2, X2_LAYOUT)) {
        prefetch_first<THREADS>((const X2_TYPE *)args.x[2] + index, count * sizeof(X2_TYPE));
    }
    if constexpr (loads_vectors(HAS_X3, X3_LAYOUT)) {
        prefetch_first<THREADS>((const X3_TYPE *)args.x[3] + index, count * sizeof(X3_TYPE));
    }
    if constexpr (loads_vectors(HAS_X4, X4_LAYOUT)) {
        prefetch_first<THREADS>((const X4_TYPE *)args.x[4] + index, count * sizeof(X4_TYPE));
    }
}

// Registers of a thread for an input: its vectors and their addresses.
GK_DEVICE constexpr int registers_for(bool loads, int size)
{
    return loads ? size * VEC * UNROLL / 4 + 4 : 0;
}

// Registers of a thread that computes little with what it loads.
constexpr int REGISTERS = 28 + (VECTOR > 16 ? 8 : 0) +
                          registers_for(loads_vectors(HAS_X0, X0_LAYOUT), (int)sizeof(X0_TYPE)) +
                          registers_for(loads_vectors(HAS_X1, X1_LAYOUT), (int)sizeof(X1_TYPE)) +
                          registers_for(loads_vectors(HAS_X2, X2_LAYOUT), (int)sizeof(X2_TYPE)) +
                          registers_for(loads_vectors(HAS_X3, X3_LAYOUT), (int)sizeof(X3_TYPE)) +
                          registers_for(loads_vectors(HAS_X4, X4_LAYOUT), (int)sizeof(X4_TYPE));
constexpr int REGISTERS_GIVEN = REGISTERS < 32 ? 32 : (REGISTERS + 7) / 8 * 8;
// Blocks that shall fit a multiprocessor; left to itself the compiler takes registers for more of a
// step at once than memory can use.
constexpr int BLOCKS_AT_ONCE = !LIGHT || REGISTERS_GIVEN * THREADS > 65536
                                   ? 1
                                   : 65536 / (REGISTERS_GIVEN * THREADS);

// Index 0 of the repeated inputs, the index of the others.
template <bool ONLY_REPEATED>
GK_DEVICE void load_single(const gk_map_args &args, gk_i64 index, map_inputs &in)
{
    if constexpr (!ONLY_REPEATED || X0_LAYOUT == REPEATED) {
        in.x0.load_some(args.x[0], X0_LAYOUT == REPEATED ? 0 : index, 1, 1);
    }
    if constexpr (!ONLY_REPEATED || X1_LAYOUT == REPEATED) {
        in.x1.load_some(args.x[1], X1_LAYOUT == REPEATED ? 0 : index, 1, 1);
    }
    if constexpr (!ONLY_REPEATED || X2_LAYOUT == REPEATED) {
        in.x2.load_some(args.x[2], X2_LAYOUT == REPEATED ? 0 : index, 1, 1);
    }
    if constexpr (!ONLY_REPEATED || X3_LAYOUT == REPEATED) {
        in.x3.load_some(args.x[3], X3_LAYOUT == REPEATED ? 0 : index, 1, 1);
    }
    if constexpr (!ONLY_REPEATED || X4_LAYOUT == REPEATED) {
        in.x4.load_some(args.x[4], X4_LAYOUT == REPEATED ? 0 : index, 1, 1);
    }
}

GK_DEVICE void store_values(const gk_map_args &args, gk_i64 index, const map_inputs &in)
{
    elements<OUT_TYPE> out;
    GK_UNROLL
    for (int k = 0; k < VEC; k++) {
        out.at[k] = in.value(k);
    }
    store_vector<VEC *(int)sizeof(OUT_TYPE), OUT_ALIGN, STORES>((OUT_TYPE *)args.out + index,
                                                                out.at);
}

// Vector number `vector` and, a block further each, UNROLL - 1 more, those below `end`.
template <bool WHOLE>
GK_DEVICE void run_step(const gk_map_args &args, gk_i64 vector, gk_i64 end,
                        map_inputs (&in)[UNROLL])
{
    GK_UNROLL
    for (int u = 0; u < UNROLL; u++) {
        if (WHOLE || vector + u * THREADS < end) {
            load_inputs(args, args.head + (vector + u * THREADS) * VEC, in[u]);
        }
    }
    GK_UNROLL
    for (int u = 0; u < UNROLL; u++) {
        if (WHOLE || vector + u * THREADS < end) {
            store_values(args, args.head + (vector + u * THREADS) * VEC, in[u]);
        }
    }
}

} // namespace gk

GK_KERNEL(THREADS, gk::BLOCKS_AT_ONCE, gk_map_args, args)
{
    using namespace gk;
    const gk_i64 vectors = (gk_i64)((gk_u64)(args.n - args.head) / VEC);
    const gk_i64 stride = (gk_i64)gridDim.x * STEP;
    const gk_i64 own = (gk_i64)blockIdx.x * STEP;
    map_inputs in[UNROLL];
    if (blockIdx.x < PREFETCH_BLOCKS && own < vectors) {
        prefetch_inputs(args, args.head + own * VEC,
                        (own + STEP < vectors ? STEP : vectors - own) * VEC);
    }
    grid_begin();
    GK_UNROLL
    for (int u = 0; u < UNROLL; u++) {
        load_single<true>(args, 0, in[u]);
    }
    for (gk_i64 first = own; first < vectors; first += stride) {
        if (first + STEP <= vectors) {
            run_step<true>(args, first + threadIdx.x, vectors, in);
        } else {
            run_step<false>(args, first + threadIdx.x, vectors, in);
        }
    }
    if (blockIdx.x == gridDim.x - 1) {
        const gk_i64 singles = args.n - vectors * VEC;
        for (gk_i64 i = threadIdx.x; i < singles; i += THREADS) {
            const gk_i64 index = i < args.head ? i : i + vectors * VEC;
            load_single<false>(args, index, in[0]);
            ((OUT_TYPE *)args.out)[index] = in[0].value(0);
        }
    }
}
