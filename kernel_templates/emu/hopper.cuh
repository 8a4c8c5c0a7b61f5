// Host meaning of gk/hopper.cuh: the same functions with the PTX ISA manual's semantics, as late as
// the hardware might do its part and with poison meanwhile, so that what is missing shows:
//
// - A bulk load or a cluster_store lands when a thread waits for its mbarrier and nothing else can
// run. Until then its
//   destination holds 0xFF bytes.
// - A bulk store reads shared memory in the wait that covers it, and writes in tma_store_wait() or
//   when the block has ended.
// - wgmma reads shared memory and gives its sums in the wait that covers it; meanwhile the
//   accumulators hold 0xFF bytes.
//
// Mistakes that can be told from a delay are reported with block, thread and line: deadlocks,
// arrivals too many, missing fences of mbarriers and accumulators, operands out of place, threads
// that return with something in flight. Not seen: a missing fence_async_shared() or
// fence_async_global(), which would take a record of every ordinary store.
#pragma once
#include "gk/dtypes.cuh"
#include "gk/tensor_map.h"

namespace gk {

struct tf32 {
    gk_u32 bits;
};

// A host call may run other threads; afterwards this thread is current again.
template <class F, class... Args> inline void emu_call(F *service, Args... args)
{
    gk_emu_thread *const self = gk_emu_self;
    service(self, args...);
    gk_emu_self = self;
}

// ---------------------------------------------------------------------------------------------

inline void mbarrier_init(gk_u64 *bar, gk_u32 arrivals, GK_EMU_SITE)
{
    emu_call(gk_emu_self->host->mbarrier_init, bar, arrivals, gk_emu_site{file, line});
}

inline void mbarrier_init_fence()
{
    emu_call(gk_emu_self->host->mbarrier_fence);
}

inline void mbarrier_arrive(gk_u64 *bar, GK_EMU_SITE)
{
    emu_call(gk_emu_self->host->mbarrier_arrive, bar, -1, 0u, gk_emu_site{file, line});
}

inline void mbarrier_arrive_expect(gk_u64 *bar, gk_u32 bytes, GK_EMU_SITE)
{
    emu_call(gk_emu_self->host->mbarrier_arrive, bar, -1, bytes, gk_emu_site{file, line});
}

inline void mbarrier_arrive_at(gk_u64 *bar, gk_u32 cta, GK_EMU_SITE)
{
    emu_call(gk_emu_self->host->mbarrier_arrive, bar, (int)(cta & 0x7fffffffu), 0u,
             gk_emu_site{file, line});
}

inline void mbarrier_wait(gk_u64 *bar, gk_u32 parity, GK_EMU_SITE)
{
    emu_call(gk_emu_self->host->mbarrier_wait, bar, parity, gk_emu_site{file, line});
}

// ---------------------------------------------------------------------------------------------

constexpr gk_u64 EVICT_NORMAL = 0x1000000000000000ull;
constexpr gk_u64 EVICT_FIRST = 0x12f0000000000000ull;
constexpr gk_u64 EVICT_LAST = 0x14f0000000000000ull;

inline void tma_prefetch(const gk_tensor_map &map, GK_EMU_SITE)
{
    emu_call(gk_emu_self->host->map_check, &map, gk_emu_site{file, line});
}

inline void tma_prefetch(const gk_tensor_map &map, int, int, GK_EMU_SITE)
{
    emu_call(gk_emu_self->host->map_check, &map, gk_emu_site{file, line});
}

inline void emu_tma_load(gk_emu_load load, void *shared, const gk_tensor_map &map, gk_u64 *bar,
                         gk_u64 policy, const char *file, int line)
{
    load.shared = shared;
    load.map = &map;
    load.barrier = bar;
    load.policy = policy;
    emu_call(gk_emu_self->host->bulk_load, &load, gk_emu_site{file, line});
}

inline gk_emu_load emu_box(unsigned ctas, int rank, int x, int y, int z, int w)
{
    gk_emu_load load = {};
    load.ctas = ctas;
    load.rank = rank;
    load.at[0] = x;
    load.at[1] = y;
    load.at[2] = z;
    load.at[3] = w;
    return load;
}

inline void tma_load(void *shared, const gk_tensor_map &map, gk_u64 *bar, int x, int y,
                     gk_u64 policy = EVICT_NORMAL, GK_EMU_SITE)
{
    emu_tma_load(emu_box(0, 2, x, y, 0, 0), shared, map, bar, policy, file, line);
}

inline void tma_load(void *shared, const gk_tensor_map &map, gk_u64 *bar, int x, int y, int z,
                     gk_u64 policy = EVICT_NORMAL, GK_EMU_SITE)
{
    emu_tma_load(emu_box(0, 3, x, y, z, 0), shared, map, bar, policy, file, line);
}

inline void tma_load(void *shared, const gk_tensor_map &map, gk_u64 *bar, int x, int y, int z,
                     int w, gk_u64 policy = EVICT_NORMAL, GK_EMU_SITE)
{
    emu_tma_load(emu_box(0, 4, x, y, z, w), shared, map, bar, policy, file, line);
}

inline void emu_check_blocks(gk_u16 ctas, const char *file, int line)
{
    if (ctas == 0) {
        gk_emu_self->host->fail(gk_emu_self, file, line, "tma_load_multicast: to no block");
    }
}

inline void tma_load_multicast(void *shared, const gk_tensor_map &map, gk_u64 *bar, gk_u16 ctas,
                               int x, int y, gk_u64 policy = EVICT_NORMAL, GK_EMU_SITE)
{
    emu_check_blocks(ctas, file, line);
    emu_tma_load(emu_box(ctas, 2, x, y, 0, 0), shared, map, bar, policy, file, line);
}

inline void tma_load_multicast(void *shared, const gk_tensor_map &map, gk_u64 *bar, gk_u16 ctas,
                               int x, int y, int z, gk_u64 policy = EVICT_NORMAL, GK_EMU_SITE)
{
    emu_check_blocks(ctas, file, line);
    emu_tma_load(emu_box(ctas, 3, x, y, z, 0), shared, map, bar, policy, file, line);
}

inline void tma_load_multicast(void *shared, const gk_tensor_map &map, gk_u64 *bar, gk_u16 ctas,
                               int x, int y, int z, int w, gk_u64 policy = EVICT_NORMAL,
                               GK_EMU_SITE)
{
    emu_check_blocks(ctas, file, line);
    emu_tma_load(emu_box(ctas, 4, x, y, z, w), shared, map, bar, policy, file, line);
}

inline void tma_store(const gk_tensor_map &map, const void *shared, int x, int y, GK_EMU_SITE)
{
    const gk_emu_store store = {&map, shared, 2, {x, y}};
    emu_call(gk_emu_self->host->bulk_store, &store, gk_emu_site{file, line});
}

inline void tma_store(const gk_tensor_map &map, const void *shared, int x, int y, int z,
                      GK_EMU_SITE)
{
    const gk_emu_store store = {&map, shared, 3, {x, y, z}};
    emu_call(gk_emu_self->host->bulk_store, &store, gk_emu_site{file, line});
}

inline void tma_store_commit()
{
    emu_call(gk_emu_self->host->bulk_commit);
}

template <int N> inline void tma_store_wait_read()
{
    static_assert(N >= 0, "the number of groups that may stay unfinished");
    emu_call(gk_emu_self->host->bulk_wait, (unsigned)N, 1);
}

template <int N> inline void tma_store_wait()
{
    static_assert(N >= 0, "the number of groups that may stay unfinished");
    emu_call(gk_emu_self->host->bulk_wait, (unsigned)N, 0);
}

// Also what makes a new mbarrier visible to the block's own bulk copies.
inline void fence_async_shared()
{
    emu_call(gk_emu_self->host->mbarrier_fence);
}

inline void fence_async_global()
{
}

inline void bulk_load(void *shared, const void *global, gk_u64 *bar, gk_u32 bytes, GK_EMU_SITE)
{
    gk_emu_load load = {};
    load.shared = shared;
    load.global = global;
    load.bytes = bytes;
    load.barrier = bar;
    emu_call(gk_emu_self->host->bulk_load, &load, gk_emu_site{file, line});
}

// ---------------------------------------------------------------------------------------------

template <int N> inline void registers_raise(GK_EMU_SITE)
{
    emu_call(gk_emu_self->host->registers, (unsigned)N, 1, gk_emu_site{file, line});
}

template <int N> inline void registers_lower(GK_EMU_SITE)
{
    emu_call(gk_emu_self->host->registers, (unsigned)N, 0, gk_emu_site{file, line});
}

template <int THREADS> inline void named_barrier_sync(int id, GK_EMU_SITE)
{
    emu_call(gk_emu_self->host->named_barrier, id, (unsigned)THREADS, 1, gk_emu_site{file, line});
}

template <int THREADS> inline void named_barrier_arrive(int id, GK_EMU_SITE)
{
    emu_call(gk_emu_self->host->named_barrier, id, (unsigned)THREADS, 0, gk_emu_site{file, line});
}

inline gk_u32 cluster_rank()
{
    return gk_emu_self->cluster_rank;
}

inline void cluster_arrive(GK_EMU_SITE)
{
    emu_call(gk_emu_self->host->cluster_arrive, gk_emu_site{file, line});
}

inline void cluster_wait(GK_EMU_SITE)
{
    emu_call(gk_emu_self->host->cluster_wait, gk_emu_site{file, line});
}

inline void cluster_store(float4 *shared, const float4 &value, gk_u64 *bar, gk_u32 cta, GK_EMU_SITE)
{
    if (cta >= gk_emu_self->cluster_size) {
        gk_emu_self->host->fail(gk_emu_self, file, line,
                                "cluster_store: block %u, the cluster has %u", cta,
                                gk_emu_self->cluster_size);
    }
    gk_emu_load load = {};
    load.shared = shared;
    load.global = &value;
    load.bytes = 16;
    load.barrier = bar;
    load.ctas = 1u << cta;
    load.is_store = 1;
    emu_call(gk_emu_self->host->bulk_load, &load, gk_emu_site{file, line});
}

inline bool elect_one(GK_EMU_SITE)
{
    gk_emu_collective(gk_emu_no_operation, "elect_one", GK_EMU_FULL_MASK, true, nullptr, file,
                      line);
    return gk_emu_self->lane == 0;
}

// ---------------------------------------------------------------------------------------------

template <int SWIZZLE>
inline gk_u64 matrix_descriptor(const void *shared, gk_u32 leading, gk_u32 stride, GK_EMU_SITE)
{
    static_assert(SWIZZLE == 0 || SWIZZLE == 32 || SWIZZLE == 64 || SWIZZLE == 128, "bytes");
    constexpr gk_u64 MODE = SWIZZLE == 128 ? 1 : SWIZZLE == 64 ? 2 : SWIZZLE == 32 ? 3 : 0;
    const gk_u32 start = shared_address(shared);
    if ((start | leading | stride) % 16 != 0 || (leading | stride) >= 0x40000) {
        gk_emu_self->host->fail(gk_emu_self, file, line,
                                "matrix_descriptor: start %u, leading %u, stride %u must be "
                                "multiples of 16 below 2^18",
                                start, leading, stride);
    }
    return (gk_u64)((start & 0x3ffff) >> 4) | (gk_u64)(leading >> 4) << 16 |
           (gk_u64)(stride >> 4) << 32 | MODE << 62;
}

inline void wgmma_fence()
{
    emu_call(gk_emu_self->host->wgmma_fence);
}

inline void wgmma_commit()
{
    emu_call(gk_emu_self->host->wgmma_commit);
}

template <int PENDING> inline void wgmma_wait(GK_EMU_SITE)
{
    static_assert(PENDING >= 0, "the number of groups that may stay unfinished");
    emu_call(gk_emu_self->host->wgmma_wait, (unsigned)PENDING, gk_emu_site{file, line});
}

template <int N> inline void keep_registers(float (&)[N])
{
}

template <class T> struct emu_wgmma_type;
template <> struct emu_wgmma_type<f16> {
    static constexpr unsigned TYPE = GK_EMU_F16;
    static constexpr bool TRANSPOSES = true;
};
template <> struct emu_wgmma_type<bf16> {
    static constexpr unsigned TYPE = GK_EMU_BF16;
    static constexpr bool TRANSPOSES = true;
};
template <> struct emu_wgmma_type<tf32> {
    static constexpr unsigned TYPE = GK_EMU_TF32;
    static constexpr bool TRANSPOSES = false;
};
template <> struct emu_wgmma_type<e4m3> {
    static constexpr unsigned TYPE = GK_EMU_E4M3;
    static constexpr bool TRANSPOSES = false;
};
template <> struct emu_wgmma_type<e5m2> {
    static constexpr unsigned TYPE = GK_EMU_E5M2;
    static constexpr bool TRANSPOSES = false;
};

template <class T, int N, bool A_MN_MAJOR, bool B_MN_MAJOR>
inline void emu_wgmma(float *d, const gk_u32 *a, gk_u64 a_descriptor, gk_u64 b_descriptor,
                      bool accumulate, const char *file, int line)
{
    static_assert(N % 8 == 0 && N >= 8 && N <= 256, "columns");
    static_assert(emu_wgmma_type<T>::TRANSPOSES || (!A_MN_MAJOR && !B_MN_MAJOR),
                  "operands of this type are K-major");
    const gk_emu_wgmma what = {d, a,          a_descriptor, b_descriptor, emu_wgmma_type<T>::TYPE,
                               N, A_MN_MAJOR, B_MN_MAJOR,   accumulate};
    emu_call(gk_emu_self->host->wgmma, &what, gk_emu_site{file, line});
}

template <class T, int N, bool A_MN_MAJOR, bool B_MN_MAJOR>
inline void wgmma(float (&d)[N / 2], gk_u64 a_descriptor, gk_u64 b_descriptor, bool accumulate,
                  GK_EMU_SITE)
{
    emu_wgmma<T, N, A_MN_MAJOR, B_MN_MAJOR>(d, nullptr, a_descriptor, b_descriptor, accumulate,
                                            file, line);
}

template <class T, int N, bool B_MN_MAJOR>
inline void wgmma(float (&d)[N / 2], const gk_u32 (&a)[4], gk_u64 b_descriptor, bool accumulate,
                  GK_EMU_SITE)
{
    emu_wgmma<T, N, false, B_MN_MAJOR>(d, a, 0, b_descriptor, accumulate, file, line);
}

// ---------------------------------------------------------------------------------------------

struct emu_stmatrix {
    gk_u16 *row;
    const gk_u32 *registers;
};

// Register i of lane l: row l / 4, columns 2 (l % 4) and the next, of matrix i; of its transpose if
// TRANS.
template <int COUNT, bool TRANS> inline void emu_stmatrix_lanes(void *const *operands, unsigned)
{
    for (int lane = 0; lane < GK_EMU_WARP; lane++) {
        for (int i = 0; i < 2 * COUNT; i++) {
            const int row = lane / 4;
            const int col = 2 * (lane % 4) + i % 2;
            const gk_u32 pair = static_cast<emu_stmatrix *>(operands[lane])->registers[i / 2];
            auto *const target =
                static_cast<emu_stmatrix *>(operands[8 * (i / 2) + (TRANS ? col : row)]);
            target->row[TRANS ? row : col] = (gk_u16)(pair >> 16 * (i % 2));
        }
    }
}

template <int COUNT, bool TRANS>
inline void emu_stmatrix_store(void *row, const gk_u32 *registers, const char *file, int line)
{
    const gk_u64 address = (gk_u64)row;
    const gk_u64 first = (gk_u64)gk_emu_self->shared;
    // Only the addresses of the first 8 * COUNT lanes are used.
    if ((int)gk_emu_self->lane < 8 * COUNT && (address % 16 != 0 || address < first ||
                                               address + 16 > first + gk_emu_self->shared_bytes)) {
        gk_emu_self->host->fail(gk_emu_self, file, line,
                                "stmatrix: row at shared memory offset %lld, must be a multiple of "
                                "16 inside the block's %u bytes",
                                (gk_i64)(address - first), gk_emu_self->shared_bytes);
    }
    emu_stmatrix operand = {static_cast<gk_u16 *>(row), registers};
    gk_emu_collective(emu_stmatrix_lanes<COUNT, TRANS>, "stmatrix", GK_EMU_FULL_MASK, true,
                      &operand, file, line);
}

inline void stmatrix_x2(void *row, const gk_u32 (&r)[2], GK_EMU_SITE)
{
    emu_stmatrix_store<2, false>(row, r, file, line);
}

inline void stmatrix_x2_trans(void *row, const gk_u32 (&r)[2], GK_EMU_SITE)
{
    emu_stmatrix_store<2, true>(row, r, file, line);
}

inline void stmatrix_x4(void *row, const gk_u32 (&r)[4], GK_EMU_SITE)
{
    emu_stmatrix_store<4, false>(row, r, file, line);
}

inline void stmatrix_x4_trans(void *row, const gk_u32 (&r)[4], GK_EMU_SITE)
{
    emu_stmatrix_store<4, true>(row, r, file, line);
}

// Not-a-number stays.
inline float emu_relu(float x)
{
    return x > 0 || x != x ? x : 0.0f;
}

template <class T> struct pair_of;
template <> struct pair_of<f16> {
    static gk_u32 pack_relu(float low, float high)
    {
        return f32_to_f16x2_bits(emu_relu(low), emu_relu(high));
    }
};
template <> struct pair_of<bf16> {
    static gk_u32 pack_relu(float low, float high)
    {
        return f32_to_bf16x2_bits(emu_relu(low), emu_relu(high));
    }
};

inline void counter_add(gk_u32 *counter, gk_u32 wrap)
{
    gk_emu_atomic_update(counter, [wrap](gk_u32 old) { return old < wrap ? old + 1 : 0; });
}

inline void counter_add_release(gk_u32 *counter, gk_u32 wrap)
{
    counter_add(counter, wrap);
}

inline void counter_wait(const gk_u32 *counter, gk_u32 least, GK_EMU_SITE)
{
    gk_emu_thread *const self = gk_emu_self;
    while (__atomic_load_n(counter, __ATOMIC_ACQUIRE) < least) {
        self->host->poll(self, gk_emu_site{file, line});
        gk_emu_self = self;
    }
}

} // namespace gk
