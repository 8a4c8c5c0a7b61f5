// A row to a cluster of blocks, which send each other what they found.
#pragma once
#include "gk/rows_held.cuh"

#include "gk/hopper.cuh"

namespace gk {

// Two levels: fewer messages between blocks than if each warp sent its own.
struct cluster_merger {
    block_merger block;
    float4 *slots; // CLUSTER
    gk_u64 *bar;
    gk_u32 rank;

    GK_DEVICE summary operator()(const summary &warp)
    {
        const summary mine = block(warp);
        cluster_wait(); // all barriers are there; the row came meanwhile
        if (threadIdx.x == 0) {
            mbarrier_arrive_expect(bar, CLUSTER * 16);
        }
        if (threadIdx.x < CLUSTER) {
            cluster_store(slots + rank, make_float4(mine.a, mine.b, mine.n, 0), bar, threadIdx.x);
        }
        mbarrier_wait(bar, 0);
        return merge_slots<CLUSTER>((const summary_slot *)slots);
    }
};

GK_DEVICE void rows_cluster(const gk_rows_args &args)
{
    GK_DYNAMIC_SHARED(shared);
    constexpr int BLOCK_BYTES = 2 * BLOCK_WARPS * 16;
    constexpr int SLOT_BYTES = BLOCK_BYTES + CLUSTER * 16;
    gk_u64 *const bar = (gk_u64 *)(shared + SLOT_BYTES);
    cluster_merger merger = {
        {(summary_slot *)shared, 0}, (float4 *)(shared + BLOCK_BYTES), bar, cluster_rank()};
    if (threadIdx.x == 0) {
        mbarrier_init(bar, 1);
        mbarrier_init_fence();
    }
    cluster_arrive();
    rows_held<CLUSTER, false>(args, merger, shared + SLOT_BYTES + 16, (int)merger.rank);
}

} // namespace gk
