// A row to a block, or to a cluster of blocks. It stays on chip between its two uses: VECTORS
// vectors a thread in registers, or with VECTORS = 0 all of it in shared memory. Persistent blocks
// go from row to row: behind each vector stored, the same one of the next row is loaded.
#pragma once
#include "gk/rows.cuh"

namespace gk {

constexpr int BLOCK_WARPS = THREADS / 32;

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

// Part `rank` of PARTS of each row, N vectors a thread; `space` is shared memory for it.
template <int PARTS, int N, bool PERSISTENT, class Merger>
GK_DEVICE void rows_held(const gk_rows_args &args, Merger &merger, unsigned char *space, int rank)
{
    const gk_i64 row = blockIdx.x / PARTS;
    const gk_i64 step = gridDim.x / PARTS;
    if constexpr (N > 0) {
        row_in_registers<N, THREAD_EDGES> held;
        rows_through<PERSISTENT>(args, held, merger, (gk_i64)rank * (THREADS * N), THREADS * N, row,
                                 step);
    } else {
        row_in_shared<THREAD_EDGES, factors_ahead(THREADS)> held;
        const gk_i64 most = (most_vectors(args.cols) + PARTS * THREADS - 1) / (PARTS * THREADS);
        held.most = (int)most;
        held.limit = (rank + 1) * most * THREADS;
        held.space = space + threadIdx.x * (VEC * SIZE);
        held.pitch = THREADS * VEC * SIZE;
        rows_through<PERSISTENT>(args, held, merger, rank * most * THREADS, most * THREADS, row,
                                 step);
    }
}

} // namespace gk
