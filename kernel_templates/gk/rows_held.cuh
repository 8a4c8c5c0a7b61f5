// A row to a block, or to a cluster of blocks. It stays on chip between its two uses: VECTORS
// vectors a thread in registers, and with REST any others in shared memory. Persistent blocks go
// from row to row: behind each vector stored, the same one of the next row is loaded.
#pragma once
#include "gk/rows_shared.cuh"

namespace gk {

constexpr int BLOCK_WARPS = THREADS / 32;

// Blocks that shall fit a multiprocessor where shared memory may have a part of the row.
GK_DEVICE constexpr int blocks_holding(int threads, int vectors, bool rest)
{
    const bool lean = MOST_EDGES == 0 && !HAS_BIAS && OUT_UNIT;
    const int room = !lean ? 512 : vectors > 4 ? 640 : 1024; // threads
    return !rest || vectors == 0 ? blocks_with(threads, 1, vectors)
           : threads > room      ? 1
                                 : room / threads;
}

struct block_merger {
    summary_slot *slots; // 2 * BLOCK_WARPS
    unsigned turn;

    GK_DEVICE summary operator()(const summary &warp)
    {
        return merge_block<BLOCK_WARPS>(warp, slots, turn++);
    }
};

// From the block's vector `begin` on it has `count` of each row.
template <bool PERSISTENT, class Row, class Merger>
GK_DEVICE void rows_through(const gk_rows_args &args, Row &held, Merger &merger, gk_i64 begin,
                            gk_i64 count, gk_i64 row, gk_i64 step)
{
    const row_view first = view_of(args, row);
    prefetch_x<THREADS>(args, first, begin, count);
    grid_begin();
    held.load_all(first, begin + threadIdx.x, THREADS);
    if constexpr (PERSISTENT) {
        GK_NO_UNROLL
        while (row < args.rows) {
            row += step;
            held.ready();
            const row_result result = finish(merger(summarise<32>(held)), args);
            held.put_all(args, result, view_of(args, row));
        }
    } else {
        held.ready();
        held.put_last(args, finish(merger(summarise<32>(held)), args));
    }
}

constexpr int THREAD_EDGES = ceil_div(MOST_EDGES, THREADS);

// Part `rank` of PARTS of each row; `space` is shared memory for it.
template <int PARTS, bool PERSISTENT, class Merger>
GK_DEVICE void rows_held(const gk_rows_args &args, Merger &merger, unsigned char *space, int rank)
{
    const gk_i64 row = blockIdx.x / PARTS;
    const gk_i64 step = gridDim.x / PARTS;
    if constexpr (REST) {
        row_in_both<VECTORS, THREAD_EDGES, factors_ahead(THREADS)> held;
        const gk_i64 each = (most_vectors(args.cols) + PARTS * THREADS - 1) / (PARTS * THREADS);
        const gk_i64 count = each * THREADS;
        held.take_room(space, (int)each, (rank + 1) * count, THREADS);
        rows_through<PERSISTENT>(args, held, merger, rank * count, count, row, step);
    } else {
        constexpr int N = VECTORS > 0 ? VECTORS : 1; // 0 is for REST alone
        constexpr int COUNT = THREADS * N;
        row_in_registers<N, THREAD_EDGES> held;
        rows_through<PERSISTENT>(args, held, merger, (gk_i64)rank * COUNT, COUNT, row, step);
    }
}

} // namespace gk
