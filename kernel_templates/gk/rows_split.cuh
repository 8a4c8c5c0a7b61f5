// A few long rows, each to several blocks, all of which are resident at once. A block keeps the
// first vectors of its part in shared memory and reads the others again.
#pragma once
#include "gk/rows_stream.cuh"

#include "gk/hopper.cuh"

namespace gk {

// What all blocks of a row found, in their order. `counter` is 0 before and after.
GK_DEVICE summary merge_blocks(const summary &block, summary_slot *slots, gk_u32 *counter, int part,
                               int parts)
{
    const int each = (parts + 31) / 32;
    const int lane = threadIdx.x % 32;
    summary mine = empty_summary();
    if (threadIdx.x == 0) {
        slots[part] = summary_slot{block.a, block.b, block.n, 0};
        counter_add_release(counter, 2 * parts - 1);
        counter_wait(counter, parts);
        counter_add(counter, 2 * parts - 1); // the last block to leave makes it 0
    }
    __syncthreads();
    for (int i = lane * each; i < parts && i < (lane + 1) * each; i++) {
        mine = merge(mine, summary{slots[i].a, slots[i].b, slots[i].n});
    }
    return merge_lanes<32>(mine);
}

GK_DEVICE void rows_split(const gk_rows_args &args)
{
    GK_DYNAMIC_SHARED(shared);
    const gk_i64 groups = args.rows < gridDim.x ? args.rows : gridDim.x;
    const int parts = (int)(gridDim.x / groups);
    const int part = (int)(blockIdx.x % parts);
    const gk_i64 steps = (most_vectors(args.cols) + STEP - 1) / STEP;
    const gk_i64 share = (steps + parts - 1) / parts * STEP;
    unsigned turn = 0;
    row_in_shared<0, factors_ahead(THREADS)> held;
    held.most = (int)args.held;
    held.limit = (part + 1) * share;
    held.space = shared + 2 * (THREADS / 32) * sizeof(summary_slot) + threadIdx.x * (VEC * SIZE);
    held.pitch = THREADS * VEC * SIZE;
    prefetch_x<THREADS>(args, view_of(args, blockIdx.x / parts), part * share, share);
    grid_begin();
    GK_NO_UNROLL
    for (gk_i64 row = blockIdx.x / parts; row < args.rows; row += groups) {
        const row_view view = view_of(args, row);
        const gk_i64 first = part * share;
        const gk_i64 rest = first + args.held * THREADS;
        const gk_i64 end = view.vectors < first + share ? view.vectors : first + share;
        held.load_all(view, first + threadIdx.x, THREADS);
        const edges_only edges(view, part == 0);
        summary mine = stream_summary(summarise<1>(edges), view, rest, end);
        held.ready();
        mine = merge_lanes<32>(merge(mine, summarise<1>(held)));
        mine = merge_block<THREADS / 32>(mine, (summary_slot *)shared, turn++);
        if (parts > 1) {
            mine = merge_blocks(mine, (summary_slot *)args.partials + row * parts,
                                (gk_u32 *)args.counters + row, part, parts);
        }
        const row_result result = finish(mine, args);
        row_view none = view;
        none.vectors = 0;
        if (rest < end) {
            stream_put(args, result, view, rest, end);
        }
        held.put_all(args, result, none);
        edges.put(args, result);
    }
}

} // namespace gk
