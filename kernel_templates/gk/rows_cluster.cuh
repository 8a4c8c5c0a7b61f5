// A row to a cluster of blocks, which send each other what their warps found.
#pragma once
#include "gk/rows_block.cuh"

#include "gk/hopper.cuh"

namespace gk {

constexpr int CLUSTER_WARPS = CLUSTER * BLOCK_WARPS;

struct cluster_merger {
    float4 *slots; // 2 * CLUSTER_WARPS
    gk_u64 *bars;  // 2
    gk_u32 rank;
    unsigned turn;

    // Slots are used by halves: who sends for a row has heard of the row before it from every warp,
    // which by then had read what the same half held.
    GK_DEVICE summary operator()(const summary &warp)
    {
        if (turn == 0) {
            cluster_wait(); // all barriers are there; the row is on its way meanwhile
        }
        const int lane = threadIdx.x % 32;
        const unsigned half = turn % 2;
        float4 *const here = slots + half * CLUSTER_WARPS;
        if (threadIdx.x == 0) {
            mbarrier_arrive_expect(&bars[half], CLUSTER_WARPS * 16);
        }
        if (lane < CLUSTER) {
            cluster_store(here + rank * BLOCK_WARPS + threadIdx.x / 32,
                          make_float4(warp.a, warp.b, warp.n, 0), &bars[half], lane);
        }
        mbarrier_wait(&bars[half], turn / 2 % 2);
        turn++;
        return merge_slots<CLUSTER_WARPS>((const summary_slot *)here);
    }
};

GK_DEVICE void rows_cluster(const gk_rows_args &args)
{
    GK_DYNAMIC_SHARED(shared);
    constexpr int SLOT_BYTES = 2 * CLUSTER_WARPS * 16;
    gk_u64 *const bars = (gk_u64 *)(shared + SLOT_BYTES);
    cluster_merger merger = {(float4 *)shared, bars, cluster_rank(), 0};
    if (threadIdx.x == 0) {
        mbarrier_init(&bars[0], 1);
        mbarrier_init(&bars[1], 1);
        mbarrier_init_fence();
    }
    cluster_arrive();
    rows_held<CLUSTER, VECTORS>(args, merger, shared + SLOT_BYTES + 16, (int)merger.rank);
}

} // namespace gk
