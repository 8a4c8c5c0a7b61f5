// A row to a cluster of blocks, which send each other what they found.
#pragma once
#include "gk/rows_block.cuh"

#include "gk/hopper.cuh"

namespace gk {

// Two levels: fewer messages between blocks than if each warp sent its own.
struct cluster_merger {
    block_merger block;
    float4 *slots; // 2 * CLUSTER
    gk_u64 *bars;  // 2
    gk_u32 rank;

    // Slots are used by halves: a block sends for a row when its warps have merged theirs of that
    // row, and by then read what the same half held.
    GK_DEVICE summary operator()(const summary &warp)
    {
        const unsigned turn = block.turn;
        const unsigned half = turn % 2;
        const summary mine = block(warp);
        float4 *const here = slots + half * CLUSTER;
        if (turn == 0) {
            cluster_wait(); // all barriers are there; the row is on its way meanwhile
        }
        if (threadIdx.x == 0) {
            mbarrier_arrive_expect(&bars[half], CLUSTER * 16);
        }
        if (threadIdx.x < CLUSTER) {
            cluster_store(here + rank, make_float4(mine.a, mine.b, mine.n, 0), &bars[half],
                          threadIdx.x);
        }
        mbarrier_wait(&bars[half], turn / 2 % 2);
        return merge_slots<CLUSTER>((const summary_slot *)here);
    }
};

GK_DEVICE void rows_cluster(const gk_rows_args &args)
{
    GK_DYNAMIC_SHARED(shared);
    constexpr int BLOCK_BYTES = 2 * BLOCK_WARPS * 16;
    constexpr int SLOT_BYTES = BLOCK_BYTES + 2 * CLUSTER * 16;
    gk_u64 *const bars = (gk_u64 *)(shared + SLOT_BYTES);
    cluster_merger merger = {
        {(summary_slot *)shared, 0}, (float4 *)(shared + BLOCK_BYTES), bars, cluster_rank()};
    if (threadIdx.x == 0) {
        mbarrier_init(&bars[0], 1);
        mbarrier_init(&bars[1], 1);
        mbarrier_init_fence();
    }
    cluster_arrive();
    rows_held<CLUSTER, VECTORS>(args, merger, shared + SLOT_BYTES + 16, (int)merger.rank);
}

} // namespace gk
