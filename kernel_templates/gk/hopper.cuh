// What compute capability 9.0 adds: mbarriers, the tensor memory accelerator (TMA), clusters,
// register budgets by role, and matrix products of a whole warpgroup (wgmma). emu/hopper.cuh gives
// the same functions their meaning on the host. Names and operands follow the PTX ISA manual.
//
// Rules that no signature shows:
// - A warpgroup is four consecutive warps, the first a multiple of four; its functions are called
// by
//   all 128 threads.
// - What wgmma and TMA stores read from shared memory after ordinary stores to it needs
//   fence_async_shared() by each writer, then a barrier.
// - Between wgmma() and the wgmma_wait() that covers its group, the sums and a register operand are
//   the hardware's; the operands in shared memory may not change.
#pragma once
#include "gk/dtypes.cuh"
#include "gk/tensor_map.h"
#include "gk/wgmma.cuh"

namespace gk {

// ---------------------------------------------------------------------------------------------
// mbarriers: 64-bit objects in shared memory

GK_DEVICE void mbarrier_init(gk_u64 *bar, gk_u32 arrivals)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(bar)), "r"(arrivals)
                 : "memory");
}

// Makes initialised barriers visible to TMA and to the cluster; a barrier among the threads
// follows.
GK_DEVICE void mbarrier_init_fence()
{
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

GK_DEVICE void mbarrier_arrive(gk_u64 *bar)
{
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(bar)) : "memory");
}

// Arrives, and lets the phase wait for `bytes` of asynchronous copies as well.
GK_DEVICE void mbarrier_arrive_expect(gk_u64 *bar, gk_u32 bytes)
{
    asm volatile(
        "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(bar)),
        "r"(bytes)
        : "memory");
}

// Arrives at the barrier that has bar's place in block `cta` of the cluster. Orders no access of
// this thread to memory: a release at cluster scope would be a fence of the whole device.
GK_DEVICE void mbarrier_arrive_at(gk_u64 *bar, gk_u32 cta)
{
    asm volatile("{\n"
                 ".reg .b32 there;\n"
                 "mapa.shared::cluster.u32 there, %0, %1;\n"
                 "mbarrier.arrive.shared::cluster.b64 _, [there];\n"
                 "}" ::"r"(shared_address(bar)),
                 "r"(cta)
                 : "memory");
}

// Waits until the phase of that parity (0 for the first) has completed. On a fresh barrier parity 1
// counts as completed.
GK_DEVICE void mbarrier_wait(gk_u64 *bar, gk_u32 parity)
{
    asm volatile("{\n"
                 ".reg .pred done;\n"
                 "again:\n"
                 "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
                 "@!done bra again;\n"
                 "}" ::"r"(shared_address(bar)),
                 "r"(parity)
                 : "memory");
}

// ---------------------------------------------------------------------------------------------
// Tensor memory accelerator. Maps lie in the kernel's parameters. Coordinates count elements, the
// contiguous axis first; what lies outside the array is loaded as zero and not stored. A load
// counts the bytes of its whole box at `bar`.
//
// One lane issues: elect_one() in a branch that whole warps take. Operands that for all the
// compiler knows differ between lanes (derived from threadIdx other than through a shuffle) cost
// some 90 clocks a copy, as it is then issued in a loop over the lanes.

constexpr gk_u64 EVICT_NORMAL = 0x1000000000000000ull;
constexpr gk_u64 EVICT_FIRST = 0x12f0000000000000ull;
constexpr gk_u64 EVICT_LAST = 0x14f0000000000000ull;

GK_DEVICE void tma_prefetch(const gk_tensor_map &map)
{
    asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}

// Asks for a box in the second-level cache. What is written there later is seen all the same.
GK_DEVICE void tma_prefetch(const gk_tensor_map &map, int x, int y)
{
    asm volatile("cp.async.bulk.prefetch.tensor.2d.L2.global.tile [%0, {%1, %2}];" ::"l"(&map),
                 "r"(x), "r"(y)
                 : "memory");
}

GK_DEVICE void tma_load(void *shared, const gk_tensor_map &map, gk_u64 *bar, int x, int y,
                        gk_u64 policy = EVICT_NORMAL)
{
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
                 ".L2::cache_hint [%0], [%1, {%3, %4}], [%2], %5;" ::"r"(shared_address(shared)),
                 "l"(&map), "r"(shared_address(bar)), "r"(x), "r"(y), "l"(policy)
                 : "memory");
}

GK_DEVICE void tma_load(void *shared, const gk_tensor_map &map, gk_u64 *bar, int x, int y, int z,
                        gk_u64 policy = EVICT_NORMAL)
{
    asm volatile(
        "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
        ".L2::cache_hint [%0], [%1, {%3, %4, %5}], [%2], %6;" ::"r"(shared_address(shared)),
        "l"(&map), "r"(shared_address(bar)), "r"(x), "r"(y), "r"(z), "l"(policy)
        : "memory");
}

GK_DEVICE void tma_load(void *shared, const gk_tensor_map &map, gk_u64 *bar, int x, int y, int z,
                        int w, gk_u64 policy = EVICT_NORMAL)
{
    asm volatile(
        "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
        ".L2::cache_hint [%0], [%1, {%3, %4, %5, %6}], [%2], %7;" ::"r"(shared_address(shared)),
        "l"(&map), "r"(shared_address(bar)), "r"(x), "r"(y), "r"(z), "r"(w), "l"(policy)
        : "memory");
}

// To the same place in each block of the cluster whose bit is set, counted at each one's barrier.
GK_DEVICE void tma_load_multicast(void *shared, const gk_tensor_map &map, gk_u64 *bar, gk_u16 ctas,
                                  int x, int y, gk_u64 policy = EVICT_NORMAL)
{
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
                 ".multicast::cluster.L2::cache_hint [%0], [%1, {%3, %4}], [%2], %5, %6;" ::"r"(
                     shared_address(shared)),
                 "l"(&map), "r"(shared_address(bar)), "r"(x), "r"(y), "h"(ctas), "l"(policy)
                 : "memory");
}

GK_DEVICE void tma_load_multicast(void *shared, const gk_tensor_map &map, gk_u64 *bar, gk_u16 ctas,
                                  int x, int y, int z, gk_u64 policy = EVICT_NORMAL)
{
    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
                 ".multicast::cluster.L2::cache_hint [%0], [%1, {%3, %4, %5}], [%2], %6, %7;" ::"r"(
                     shared_address(shared)),
                 "l"(&map), "r"(shared_address(bar)), "r"(x), "r"(y), "r"(z), "h"(ctas), "l"(policy)
                 : "memory");
}

GK_DEVICE void tma_load_multicast(void *shared, const gk_tensor_map &map, gk_u64 *bar, gk_u16 ctas,
                                  int x, int y, int z, int w, gk_u64 policy = EVICT_NORMAL)
{
    asm volatile(
        "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
        ".multicast::cluster.L2::cache_hint [%0], [%1, {%3, %4, %5, %6}], [%2], %7, %8;" ::"r"(
            shared_address(shared)),
        "l"(&map), "r"(shared_address(bar)), "r"(x), "r"(y), "r"(z), "r"(w), "h"(ctas), "l"(policy)
        : "memory");
}

GK_DEVICE void tma_store(const gk_tensor_map &map, const void *shared, int x, int y)
{
    asm volatile(
        "cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%0, {%2, %3}], [%1];" ::"l"(
            &map),
        "r"(shared_address(shared)), "r"(x), "r"(y)
        : "memory");
}

GK_DEVICE void tma_store(const gk_tensor_map &map, const void *shared, int x, int y, int z)
{
    asm volatile(
        "cp.async.bulk.tensor.3d.global.shared::cta.tile.bulk_group [%0, {%2, %3, %4}], [%1];" ::
            "l"(&map),
        "r"(shared_address(shared)), "r"(x), "r"(y), "r"(z)
        : "memory");
}

GK_DEVICE void tma_store_commit()
{
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

// Waits until at most N of this thread's latest groups of stores have not read shared memory yet.
template <int N> GK_DEVICE void tma_store_wait_read()
{
    asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(N) : "memory");
}

// The same until their stores are complete.
template <int N> GK_DEVICE void tma_store_wait()
{
    asm volatile("cp.async.bulk.wait_group %0;" ::"n"(N) : "memory");
}

// Orders this thread's accesses to shared memory before later ones by TMA and wgmma.
GK_DEVICE void fence_async_shared()
{
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// The same for device memory: ordinary stores before loads by TMA.
GK_DEVICE void fence_async_global()
{
    asm volatile("fence.proxy.async.global;" ::: "memory");
}

// Copies a multiple of 16 bytes; both addresses are 16-byte aligned.
GK_DEVICE void bulk_load(void *shared, const void *global, gk_u64 *bar, gk_u32 bytes)
{
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %3, "
        "[%2];" ::"r"(shared_address(shared)),
        "l"(global), "r"(shared_address(bar)), "r"(bytes)
        : "memory");
}

// ---------------------------------------------------------------------------------------------
// Roles

// Changes the registers of each thread of a warpgroup to N, a multiple of 8 from 24 to 256.
template <int N> GK_DEVICE void registers_raise()
{
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(N));
}

template <int N> GK_DEVICE void registers_lower()
{
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(N));
}

// Barrier `id` (1 to 15; 0 is __syncthreads) of THREADS threads, whole warps.
template <int THREADS> GK_DEVICE void named_barrier_sync(int id)
{
    asm volatile("barrier.cta.sync.aligned %0, %1;" ::"r"(id), "n"(THREADS) : "memory");
}

template <int THREADS> GK_DEVICE void named_barrier_arrive(int id)
{
    asm volatile("barrier.cta.arrive.aligned %0, %1;" ::"r"(id), "n"(THREADS) : "memory");
}

GK_DEVICE gk_u32 cluster_rank()
{
    gk_u32 rank;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}

// A barrier of the cluster's threads. It orders barriers initialised before it
// (mbarrier_init_fence) and nothing else.
GK_DEVICE void cluster_arrive()
{
    asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
}

GK_DEVICE void cluster_wait()
{
    asm volatile("barrier.cluster.wait.aligned;" ::: "memory");
}

// Stores at the place of `shared` in block `cta` of the cluster, asynchronously: 16 bytes counted
// at the barrier that has bar's place there, behind whose phase they are visible.
GK_DEVICE void cluster_store(float4 *shared, const float4 &value, gk_u64 *bar, gk_u32 cta)
{
    asm volatile("{\n"
                 ".reg .b32 to;\n"
                 ".reg .b32 there;\n"
                 "mapa.shared::cluster.u32 to, %0, %2;\n"
                 "mapa.shared::cluster.u32 there, %1, %2;\n"
                 "st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [to], "
                 "{%3, %4, %5, %6}, [there];\n"
                 "}" ::"r"(shared_address(shared)),
                 "r"(shared_address(bar)), "r"(cta), "f"(value.x), "f"(value.y), "f"(value.z),
                 "f"(value.w)
                 : "memory");
}

// True in one lane of a converged warp.
GK_DEVICE bool elect_one()
{
    gk_u32 elected;
    asm volatile("{\n"
                 ".reg .pred p;\n"
                 "elect.sync _|p, 0xffffffff;\n"
                 "selp.u32 %0, 1, 0, p;\n"
                 "}"
                 : "=r"(elected));
    return elected != 0;
}

// Counters in device memory. Both additions bring a counter back to 0 that was `wrap`; the first
// one makes this thread's earlier writes visible to who sees it through counter_wait().
GK_DEVICE void counter_add_release(gk_u32 *counter, gk_u32 wrap)
{
    asm volatile("red.release.gpu.global.inc.u32 [%0], %1;" ::"l"(counter), "r"(wrap) : "memory");
}

GK_DEVICE void counter_add(gk_u32 *counter, gk_u32 wrap)
{
    asm volatile("red.relaxed.gpu.global.inc.u32 [%0], %1;" ::"l"(counter), "r"(wrap) : "memory");
}

// Waits until the counter is `least` or more.
GK_DEVICE void counter_wait(const gk_u32 *counter, gk_u32 least)
{
    gk_u32 now;
    do {
        asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(now) : "l"(counter) : "memory");
    } while (now < least);
}

// ---------------------------------------------------------------------------------------------
// Sums on their way out

// Stores 8x8 matrices of 16-bit elements held as mma.sync holds its sums; lane i gives the address
// of row i % 8 of matrix i / 8. _trans: of column i % 8.
GK_DEVICE void stmatrix_x2(void *row, const gk_u32 (&r)[2])
{
    asm volatile(
        "stmatrix.sync.aligned.m8n8.x2.shared.b16 [%0], {%1,%2};" ::"r"(shared_address(row)),
        "r"(r[0]), "r"(r[1])
        : "memory");
}

GK_DEVICE void stmatrix_x2_trans(void *row, const gk_u32 (&r)[2])
{
    asm volatile(
        "stmatrix.sync.aligned.m8n8.x2.trans.shared.b16 [%0], {%1,%2};" ::"r"(shared_address(row)),
        "r"(r[0]), "r"(r[1])
        : "memory");
}

GK_DEVICE void stmatrix_x4(void *row, const gk_u32 (&r)[4])
{
    asm volatile(
        "stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1,%2,%3,%4};" ::"r"(shared_address(row)),
        "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3])
        : "memory");
}

GK_DEVICE void stmatrix_x4_trans(void *row, const gk_u32 (&r)[4])
{
    asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1,%2,%3,%4};" ::"r"(
                     shared_address(row)),
                 "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3])
                 : "memory");
}

// As store_pair_as(), negative ones as 0.
template <class T> struct pair_of;
template <> struct pair_of<f16> {
    static GK_DEVICE gk_u32 pack_relu(float low, float high)
    {
        gk_u32 r;
        asm("cvt.rn.relu.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
        return r;
    }
};
template <> struct pair_of<bf16> {
    static GK_DEVICE gk_u32 pack_relu(float low, float high)
    {
        gk_u32 r;
        asm("cvt.rn.relu.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
        return r;
    }
};

} // namespace gk
