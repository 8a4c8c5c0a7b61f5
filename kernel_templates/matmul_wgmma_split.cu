// Matrix product of f32 operands on warpgroup products (wgmma) at the accuracy of f32 arithmetic,
// each block splitting what it multiplies (sm_90). For products of few tiles: unlike
// matmul_wgmma_f32.cu, whose account of the six products and of their errors holds here as well, no
// block waits for another, but an element is split by every block that needs it.
//
// A block computes one tile of C, or with CLUSTER_K the blocks of a cluster one of them, each a
// part of K; they send each other what of the sums they do not store. A block's last warp keeps a
// ring of BLOCK_K deep tiles of A and B, f32 as they are, filled by TMA. SLICES teams of BLOCK_M /
// 64 warpgroups take the tiles of K in turn. A team splits B into three planes of bf16 in shared
// memory, and each of its threads splits into registers what wgmma takes from it of A. The products
// of a tile of K are added up in the tensor core, small ones first, tiles of K and then the teams'
// sums in f32.
#include "gk/matmul_tma_args.h"

#include "gk/epilogue.cuh"
#include "gk/f32_parts.cuh"
#include "gk/hopper.cuh"

namespace gk {

constexpr int BLOCK_K = 64;
constexpr int SPAN = 32; // f32 of a swizzled row of 128 bytes
constexpr int STEPS = BLOCK_K / 16;
constexpr int TEAM = BLOCK_M / 64; // warpgroups, 64 rows each
constexpr int TEAM_THREADS = TEAM * 128;
constexpr int CONSUMERS = SLICES * TEAM_THREADS;
constexpr int THREADS = CONSUMERS + 32;
constexpr int SUMS = BLOCK_N / 2;          // of a thread
constexpr int OUT_N = BLOCK_N / CLUSTER_K; // columns that a block stores
constexpr bool A_K_MAJOR = A_LAYOUT == 0;
constexpr bool B_K_MAJOR = B_LAYOUT == 1;
constexpr int CHAINS = BLOCK_N <= 32 && (A_K_MAJOR || SLICES < 3) ? 2 : 1; // sums of a tile of K

constexpr int A_BYTES = BLOCK_M * BLOCK_K * 4;
constexpr int B_BYTES = BLOCK_N * BLOCK_K * 4;
constexpr int STAGE_BYTES = A_BYTES + B_BYTES;
constexpr int PLANE_BYTES = BLOCK_N * BLOCK_K * 2;
// As many tiles as shared memory holds beside the planes, and a multiple of SLICES: a place in the
// ring always is the same team's. Copies may overtake each other, and a team that came to a place
// where another's copy is still under way would take the end of the phase before for that of its
// own. src/op/matmul_wgmma_split.c counts the same way.
constexpr int RECEIVED_BYTES = BLOCK_M * OUT_N * 4 * (CLUSTER_K - 1);
constexpr int ROOM = 227 * 1024 - 256 - SLICES * PARTS * PLANE_BYTES - RECEIVED_BYTES;
constexpr int STAGES = (ROOM / STAGE_BYTES < 8 ? ROOM / STAGE_BYTES : 8) / SLICES * SLICES;
constexpr int PLANES_AT = STAGES * STAGE_BYTES;
constexpr int RECEIVED_AT = PLANES_AT + SLICES * PARTS * PLANE_BYTES;
constexpr int BARRIERS_AT = RECEIVED_AT + RECEIVED_BYTES;
constexpr int PITCH = BLOCK_N + 4; // floats of a row of sums that leave through the ring
static_assert(BLOCK_N % 32 == 0 && BLOCK_N <= 128, "whole slabs, sums and parts in registers");
static_assert(STAGES >= 2, "loads overlap products");
static_assert(SLICES * BLOCK_M * PITCH * 4 <= PLANES_AT, "the ring holds the sums of all teams");

constexpr int TEAM_BARRIER = 1; // the first of one a team

GK_DEVICE int smaller(int a, int b)
{
    return a < b ? a : b;
}

// Which of 16 neighbours in K the tensor core sees at a position. Any order will do if it is that
// of A and B; with this one a thread's share of a row of A is contiguous.
GK_DEVICE constexpr int k_at(int position)
{
    return A_K_MAJOR ? position % 8 / 2 * 4 + position / 8 * 2 + position % 2 : position;
}

// A place in the ring, and the parity of the phase that is current there.
struct cursor {
    int stage;
    gk_u32 parity;

    GK_DEVICE void skip(int count)
    {
        stage += count;
        while (stage >= STAGES) {
            stage -= STAGES;
            parity ^= 1;
        }
    }
};

// Rows of 128 swizzled bytes: slabs along K of all EXTENT rows, or slabs along the rows of all of
// K.
template <bool K_MAJOR, int EXTENT>
GK_DEVICE void load(unsigned char *to, const gk_tensor_map &map, gk_u64 *bar, int origin, int k)
{
    constexpr int SLABS = (K_MAJOR ? BLOCK_K : EXTENT) / SPAN;
    constexpr int SLAB_BYTES = (K_MAJOR ? EXTENT : BLOCK_K) * 128;
    GK_UNROLL
    for (int slab = 0; slab < SLABS; ++slab) {
        tma_load(to + slab * SLAB_BYTES, map, bar, slab * SPAN + (K_MAJOR ? k : origin),
                 K_MAJOR ? origin : k);
    }
}

// The index-th box of an operand into the second-level cache.
template <bool K_MAJOR, int EXTENT>
GK_DEVICE void prefetch(const gk_tensor_map &map, int origin, int k, int index)
{
    constexpr int SLABS = (K_MAJOR ? BLOCK_K : EXTENT) / SPAN;
    const int slab = index % SLABS * SPAN;
    k += index / SLABS * BLOCK_K;
    tma_prefetch(map, K_MAJOR ? k + slab : origin + slab, K_MAJOR ? origin : k);
}

constexpr int AHEAD_BYTES = 2 << 20; // of all blocks: later tiles delay the first

// Asks for this block's share of what it and the others in its row and column load first.
GK_DEVICE void prefetch_tiles(const gk_matmul_tma_args &args, int row, int col, int tile, int count)
{
    constexpr int A_BOXES = (A_K_MAJOR ? BLOCK_K : BLOCK_M) / SPAN; // of a tile of K
    constexpr int B_BOXES = (B_K_MAJOR ? BLOCK_K : BLOCK_N) / SPAN;
    const int rows = (int)((args.call.m + BLOCK_M - 1) / BLOCK_M);
    const int cols = (int)((args.call.n + BLOCK_N - 1) / BLOCK_N);
    const gk_u64 step =
        ((gk_u64)rows * BLOCK_M + (gk_u64)cols * BLOCK_N) * (BLOCK_K * 4 * CLUSTER_K);
    const int tiles = smaller(count, step < AHEAD_BYTES ? AHEAD_BYTES / (int)step : 1);
    if (elect_one()) {
        GK_NO_UNROLL
        for (int i = col / BLOCK_N; i < tiles * A_BOXES; i += cols) {
            prefetch<A_K_MAJOR, BLOCK_M>(args.a, row, tile * BLOCK_K, i);
        }
        GK_NO_UNROLL
        for (int i = row / BLOCK_M; i < tiles * B_BOXES; i += rows) {
            prefetch<B_K_MAJOR, BLOCK_N>(args.b, col, tile * BLOCK_K, i);
        }
    }
    __syncwarp();
}

// By all lanes of a warp; one of them issues.
GK_DEVICE void load_tiles(const gk_matmul_tma_args &args, unsigned char *shared, gk_u64 *full,
                          gk_u64 *empty, int row, int col, int tile, int end)
{
    cursor at = {0, 0};
    GK_NO_UNROLL
    for (; tile < end; ++tile) {
        unsigned char *to = shared + at.stage * STAGE_BYTES;
        gk_u64 *bar = full + at.stage;
        mbarrier_wait(empty + at.stage, at.parity ^ 1);
        if (elect_one()) {
            mbarrier_arrive_expect(bar, STAGE_BYTES);
            load<A_K_MAJOR, BLOCK_M>(to, args.a, bar, row, tile * BLOCK_K);
            load<B_K_MAJOR, BLOCK_N>(to + A_BYTES, args.b, bar, col, tile * BLOCK_K);
        }
        __syncwarp();
        at.skip(1);
    }
}

// One consumer warpgroup.
struct consumer {
    unsigned char *shared;
    unsigned char *planes; // its team's
    int slice;
    int team_thread;
    int first_row; // of the tile's, of this warp

    GK_DEVICE int lane() const
    {
        return team_thread % 32;
    }

    // This thread's row among each 8 neighbours. Neighbouring lanes' rows of A are 4 apart if they
    // read 16 bytes, so that these lie in different banks.
    GK_DEVICE int row_in_8() const
    {
        const int row = lane() / 4;
        return A_K_MAJOR ? row % 2 * 4 + row / 2 : row;
    }

    // What wgmma takes from this thread of a tile of A.
    GK_DEVICE void split_a(gk_u32 (&part)[PARTS][STEPS][4], const unsigned char *tile) const
    {
        const int row = first_row + row_in_8();
        GK_UNROLL
        for (int step = 0; step < STEPS; ++step) {
            float x[4][2]; // rows 0 and 8, then the same 8 positions on
            if constexpr (A_K_MAJOR) {
                const int chunk = (step % 2 * 4 + lane() % 4) ^ row_in_8();
                const unsigned char *from =
                    tile + step / 2 * (BLOCK_M * 128) + row * 128 + chunk * 16;
                GK_UNROLL
                for (int upper = 0; upper < 2; ++upper) {
                    const float4 v = *(const float4 *)(from + upper * 8 * 128);
                    x[upper][0] = v.x;
                    x[upper][1] = v.y;
                    x[2 + upper][0] = v.z;
                    x[2 + upper][1] = v.w;
                }
            } else {
                GK_UNROLL
                for (int i = 0; i < 8; ++i) {
                    const int k = step * 16 + lane() % 4 * 2 + i / 4 * 8 + i % 2;
                    const int m = row + i / 2 % 2 * 8;
                    const int chunk = m % SPAN / 4 ^ k % 8;
                    x[i / 2][i % 2] = *(const float *)(tile + m / SPAN * (BLOCK_K * 128) + k * 128 +
                                                       chunk * 16 + m % 4 * 4);
                }
            }
            GK_UNROLL
            for (int i = 0; i < 4; ++i) {
                split_pair pair;
                pair.split(x[i][0], x[i][1]);
                GK_UNROLL
                for (int p = 0; p < PARTS; ++p) {
                    part[p][step][i] = pair.part[p];
                }
            }
        }
    }

    // Splits four pairs and leaves them at one place of each plane.
    GK_DEVICE void leave(const float (&x)[8], int place) const
    {
        split_pair pair[4];
        GK_UNROLL
        for (int i = 0; i < 4; ++i) {
            pair[i].split(x[2 * i], x[2 * i + 1]);
        }
        GK_UNROLL
        for (int p = 0; p < PARTS; ++p) {
            *(uint4 *)(planes + p * PLANE_BYTES + place) =
                make_uint4(pair[0].part[p], pair[1].part[p], pair[2].part[p], pair[3].part[p]);
        }
    }

    // The team's share of a tile of B. Along the rows of B 8 neighbours at a time, into slabs of
    // rows of 64 swizzled bytes; along K 16, into rows of 128.
    GK_DEVICE void split_b(const unsigned char *tile) const
    {
        constexpr int ITEMS = BLOCK_N * BLOCK_K / (B_K_MAJOR ? 16 : 8);
        constexpr int AT_ONCE = B_K_MAJOR || ITEMS % (2 * TEAM_THREADS) != 0 ? 1 : 2;
        GK_NO_UNROLL
        for (int item = team_thread; item < ITEMS; item += AT_ONCE * TEAM_THREADS) {
            GK_UNROLL
            for (int i = 0; i < AT_ONCE; ++i) {
                split_item(tile, item + i * TEAM_THREADS);
            }
        }
    }

    GK_DEVICE void split_item(const unsigned char *tile, int item) const
    {
        if constexpr (B_K_MAJOR) {
            const int row = item % BLOCK_N;
            const int group = item / BLOCK_N;
            const unsigned char *from = tile + group / 2 * (BLOCK_N * 128) + row * 128;
            float x[16];
            GK_UNROLL
            for (int i = 0; i < 4; ++i) {
                const int chunk = (group % 2 * 4 + i) ^ row % 8;
                const float4 v = *(const float4 *)(from + chunk * 16);
                x[4 * i] = v.x;
                x[4 * i + 1] = v.y;
                x[4 * i + 2] = v.z;
                x[4 * i + 3] = v.w;
            }
            GK_UNROLL
            for (int half = 0; half < 2; ++half) {
                float y[8];
                GK_UNROLL
                for (int i = 0; i < 8; ++i) {
                    y[i] = x[k_at(half * 8 + i)];
                }
                leave(y, row * 128 + ((group * 2 + half) ^ row % 8) * 16);
            }
        } else {
            const int chunk = item % 4;
            const int position = item / 4 % BLOCK_K;
            const int slab = item / (4 * BLOCK_K);
            const int k = position / 16 * 16 + k_at(position % 16);
            const unsigned char *from = tile + slab * (BLOCK_K * 128) + k * 128;
            float x[8];
            GK_UNROLL
            for (int i = 0; i < 2; ++i) {
                const float4 v = *(const float4 *)(from + ((2 * chunk + i) ^ k % 8) * 16);
                x[4 * i] = v.x;
                x[4 * i + 1] = v.y;
                x[4 * i + 2] = v.z;
                x[4 * i + 3] = v.w;
            }
            leave(x, slab * (BLOCK_K * 64) + position * 64 + (chunk ^ position / 2 % 4) * 16);
        }
    }

    GK_DEVICE gk_u64 plane(int part) const
    {
        const unsigned char *at = planes + part * PLANE_BYTES;
        return B_K_MAJOR ? matrix_descriptor<128>(at, 16, 1024)
                         : matrix_descriptor<64>(at, BLOCK_K * 64, 8 * 64);
    }

    template <int PART_A, int PART_B, int FIRST, int END>
    GK_DEVICE void multiply(float (&sum)[SUMS], const gk_u32 (&a)[PARTS][STEPS][4],
                            bool accumulate) const
    {
        constexpr gk_u64 STEP = (B_K_MAJOR ? 32 : 16 * 64) / 16;
        GK_UNROLL
        for (int step = FIRST; step < END; ++step) {
            wgmma<bf16, BLOCK_N, !B_K_MAJOR>(sum, a[PART_A][step], plane(PART_B) + step * STEP,
                                             accumulate || step > FIRST);
        }
    }

    static GK_DEVICE void promote(float (&sums)[SUMS], float (&sum)[SUMS])
    {
        keep_registers(sum);
        GK_UNROLL
        for (int i = 0; i < SUMS; ++i) {
            sums[i] = fmaf(sum[i], SCALED_BACK, sums[i]);
        }
    }

    // sums += the six products of a tile of K. The tensor core cuts off bits of what it adds to a
    // larger sum: small products come first, and leading ones two at a time.
    GK_DEVICE void multiply_tile(float (&sums)[SUMS], const gk_u32 (&a)[PARTS][STEPS][4]) const
    {
        enum { H, M, L };
        float sum[CHAINS][SUMS];
        wgmma_fence();
        multiply<L, H, 0, STEPS>(sum[0], a, false);
        multiply<H, L, 0, STEPS>(sum[0], a, true);
        multiply<M, M, 0, STEPS>(sum[0], a, true);
        multiply<M, H, 0, STEPS>(sum[0], a, true);
        multiply<H, M, 0, STEPS>(sum[0], a, true);
        multiply<H, H, 0, STEPS / 2>(sum[0], a, true);
        if constexpr (CHAINS == 1) {
            wgmma_commit();
            wgmma_wait<0>();
            promote(sums, sum[0]);
            wgmma_fence();
        }
        multiply<H, H, STEPS / 2, STEPS>(sum[CHAINS - 1], a, false);
        wgmma_commit();
        wgmma_wait<0>();
        GK_UNROLL
        for (int i = 0; i < CHAINS; ++i) {
            promote(sums, sum[i]);
        }
    }

    GK_DEVICE void run(float (&sums)[SUMS], gk_u64 *full, gk_u64 *empty, int k_tiles) const
    {
        cursor at = {0, 0};
        at.skip(slice);
        GK_UNROLL
        for (int i = 0; i < SUMS; ++i) {
            sums[i] = 0.0f;
        }
        GK_NO_UNROLL
        for (int tile = slice; tile < k_tiles; tile += SLICES) {
            const unsigned char *stage = shared + at.stage * STAGE_BYTES;
            gk_u32 a[PARTS][STEPS][4];
            mbarrier_wait(full + at.stage, at.parity);
            split_a(a, stage);
            named_barrier_sync<TEAM_THREADS>(TEAM_BARRIER + slice); // the planes are read
            split_b(stage + A_BYTES);
            fence_async_shared();
            named_barrier_sync<TEAM_THREADS>(TEAM_BARRIER + slice);
            if (team_thread == 0) {
                mbarrier_arrive(empty + at.stage);
            }
            multiply_tile(sums, a);
            at.skip(SLICES);
        }
    }

    // Into the team's room in the ring.
    GK_DEVICE void hand_over(const float (&sums)[SUMS]) const
    {
        float *to =
            (float *)shared + (slice * BLOCK_M + first_row + row_in_8()) * PITCH + lane() % 4 * 2;
        GK_UNROLL
        for (int i = 0; i < SUMS; i += 2) {
            *(float2 *)(to + i / 2 % 2 * 8 * PITCH + i / 4 * 8) = float2{sums[i], sums[i + 1]};
        }
    }
};

constexpr int C_ELEMENT = (int)sizeof(C_TYPE);
constexpr int C_VECTOR = C_ALIGN < C_ELEMENT ? C_ELEMENT : C_ALIGN < 16 ? C_ALIGN : 16;
constexpr int LANES = C_LAYOUT == 0 ? C_VECTOR / C_ELEMENT : 1; // elements of one store

// The sum of all teams of this block, in their order.
GK_DEVICE float team_sum(const unsigned char *shared, int line, int col)
{
    const float *from = (const float *)shared + line * PITCH + col;
    float sum = *from;
    GK_UNROLL
    for (int slice = 1; slice < SLICES; ++slice) {
        sum += from[slice * BLOCK_M * PITCH];
    }
    return sum;
}

// Where the block of that rank leaves its sums of the columns that another one stores.
GK_DEVICE float *place_of(unsigned char *shared, gk_u32 from, gk_u32 to)
{
    return (float *)(shared + RECEIVED_AT) + (from - (from > to ? 1 : 0)) * (BLOCK_M * OUT_N);
}

// Sends the other blocks of the cluster their columns' sums.
GK_DEVICE void send(unsigned char *shared, gk_u64 *received, gk_u32 rank)
{
    constexpr int QUADS = BLOCK_M * OUT_N / 4;
    GK_UNROLL
    for (gk_u32 hop = 1; hop < CLUSTER_K; ++hop) {
        const gk_u32 to = (rank + hop) % CLUSTER_K;
        float *place = place_of(shared, rank, to);
        GK_NO_UNROLL
        for (int i = (int)threadIdx.x; i < QUADS; i += CONSUMERS) {
            const int line = i / (OUT_N / 4);
            const int col = (int)to * OUT_N + i % (OUT_N / 4) * 4;
            cluster_store((float4 *)place + i,
                          float4{team_sum(shared, line, col), team_sum(shared, line, col + 1),
                                 team_sum(shared, line, col + 2), team_sum(shared, line, col + 3)},
                          received, to);
        }
    }
}

// The sum of all blocks, in their order.
GK_DEVICE float whole_sum(unsigned char *shared, gk_u32 rank, int line, int col)
{
    const float own = team_sum(shared, line, (int)rank * OUT_N + col);
    float sum = 0.0f;
    GK_UNROLL
    for (gk_u32 from = 0; from < CLUSTER_K; ++from) {
        const float part = from == rank ? own : place_of(shared, from, rank)[line * OUT_N + col];
        sum = from == 0 ? part : sum + part;
    }
    return sum;
}

// All consumers store the block's columns, in the order of C's memory.
GK_DEVICE void store_tile(const gk_matmul_args &args, unsigned char *shared, gk_u32 rank,
                          gk_i64 first_row, gk_i64 first_col)
{
    struct alignas(LANES * C_ELEMENT) lanes {
        C_TYPE value[LANES];
    };
    GK_NO_UNROLL
    for (int i = (int)threadIdx.x; i < BLOCK_M * OUT_N / LANES; i += CONSUMERS) {
        const int line = C_LAYOUT == 1 ? i % BLOCK_M : i / (OUT_N / LANES);
        const int at = C_LAYOUT == 1 ? i / BLOCK_M : i % (OUT_N / LANES) * LANES;
        const gk_i64 row = first_row + line;
        const gk_i64 col = first_col + at;
        if (row >= args.m || col >= args.n) {
            continue;
        }
        const gk_i64 left = args.n - col;
        lanes out;
        GK_UNROLL
        for (int e = 0; e < LANES; ++e) {
            float sum = whole_sum(shared, rank, line, at + e);
            const gk_i64 inside = e < left ? col + e : col;
            if (!is_finite(sum)) {
                sum = ordinary_sum(args, row, inside);
            }
            out.value[e] = store_as<C_TYPE>(matmul_epilogue(args, sum, row, inside));
        }
        C_TYPE *to = (C_TYPE *)args.c + row * args.c_row_stride + col * args.c_col_stride;
        if (left >= LANES) {
            *(lanes *)to = out;
            continue;
        }
        GK_UNROLL
        for (int e = 0; e < LANES - 1; ++e) {
            if (e < left) {
                to[e] = out.value[e];
            }
        }
    }
}

} // namespace gk

GK_KERNEL(gk::THREADS, 1, gk_matmul_tma_args, args)
{
    using namespace gk;
    GK_DYNAMIC_SHARED(shared);
    gk_u64 *full = (gk_u64 *)(shared + BARRIERS_AT);
    gk_u64 *empty = full + STAGES;
    gk_u64 *received = empty + STAGES;
    const int thread = (int)(threadIdx.x & 1023u); // the mask tells that it is not negative
    // The same for all lanes, which the shuffle tells the compiler.
    const int warp = __shfl_sync(0xffffffffu, thread / 32, 0);

    if (thread == 0) {
        GK_UNROLL
        for (int i = 0; i < STAGES; ++i) {
            mbarrier_init(full + i, 1);
            mbarrier_init(empty + i, 1);
        }
        if constexpr (CLUSTER_K > 1) {
            mbarrier_init(received, 1);
            mbarrier_arrive_expect(received, RECEIVED_BYTES);
        }
        mbarrier_init_fence();
    } else if (thread == CONSUMERS) {
        tma_prefetch(args.a);
        tma_prefetch(args.b);
    }
    const gk_u32 rows = (gk_u32)((args.call.m + BLOCK_M - 1) / BLOCK_M);
    const gk_u32 tile = blockIdx.x / CLUSTER_K;
    const gk_u32 rank = blockIdx.x % CLUSTER_K;
    const int row = (int)(tile % rows) * BLOCK_M;
    const int col = (int)(tile / rows) * BLOCK_N;
    const int k_tiles = (int)((args.call.k + BLOCK_K - 1) / BLOCK_K);
    const int first = k_tiles / CLUSTER_K * (int)rank + smaller(k_tiles % CLUSTER_K, (int)rank);
    const int count = k_tiles / CLUSTER_K + ((int)rank < k_tiles % CLUSTER_K ? 1 : 0);
    if (warp == CONSUMERS / 32) {
        prefetch_tiles(args, row, col, first, count);
    }
    if constexpr (CLUSTER_K > 1) {
        cluster_arrive();
        cluster_wait();
    } else {
        __syncthreads();
    }
    grid_wait(); // nothing is read before

    const bool loads = warp == CONSUMERS / 32;
    const int slice = warp / (TEAM * 4);
    const int in_team = warp % (TEAM * 4);
    const consumer self = {shared, shared + PLANES_AT + slice * (PARTS * PLANE_BYTES), slice,
                           in_team * 32 + thread % 32, in_team * 16};
    float sums[SUMS];
    if (loads) {
        load_tiles(args, shared, full, empty, row, col, first, first + count);
        grid_launch_next();
    } else {
        self.run(sums, full, empty, count);
    }
    __syncthreads(); // nobody reads the ring any more
    if (!loads) {
        self.hand_over(sums);
    }
    __syncthreads();
    if (loads) {
        return;
    }
    if constexpr (CLUSTER_K > 1) {
        send(shared, received, rank);
        mbarrier_wait(received, 0);
    }
    store_tile(args.call, shared, rank, row, col + (int)rank * OUT_N);
}
