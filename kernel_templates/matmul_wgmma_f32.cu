// Matrix product of f32 operands on tensor cores at the accuracy of f32 arithmetic (sm_90).
//
// Every x is the sum of three bf16 numbers, h + m + l = x, each the rest rounded to nearest, and of
// the nine products of the parts six are summed: h h, h m, m h, h l, l h, m m. What is left out is
// at most 2^-23 of a product, 2^-26 in the mean, and has either sign. A tensor core cuts off bits
// when it adds, so that a long sum in it drifts towards zero: it adds up BLOCK_K terms only, small
// products first, and the sum of these sums is kept in f32 on the ordinary units. An error is below
// about (14 + K / BLOCK_K) 2^-24 times the sum of magnitudes; docs/performance.md has measured
// ones. Products of 24 bits or less are exact.
//
// The parts lie in workspace, as the shared-memory images of BLOCK_K deep tiles that the copy
// engine then brings in as they are. All warps of all blocks split the first CHUNK tiles of K of
// the rows and columns that the blocks' first tiles of C need. Warps that do not multiply split the
// rest meanwhile: those rows and columns chunk by chunk, then the others in the order in which the
// tiles need them. Blocks wait for each other's parts, so all must be resident.
//
// Operands are scaled by 2^SCALE, so that even the parts of the smallest subnormal are normal bf16
// numbers, and the sums are scaled back when they leave the tensor core. Infinities, NaN and what
// the tensor core might overflow with (|x| >= 2^(127 - SCALE), products that might exceed
// 2^(LARGEST + 2)) are noticed with the split by blocks of rows of A and of columns of B; the tiles
// of C concerned are computed by ordinary f32 multiply-adds in the order of K from the operands
// themselves.
#include "gk/matmul_args.h"

#include "gk/epilogue.cuh"
#include "gk/hopper.cuh"

namespace gk {

constexpr int BLOCK_K = 64;
constexpr int ROW = BLOCK_K * 2;        // bytes of a plane's row, the span of the swizzle
constexpr int ROW_PIECES = ROW / 16;    // of 8 neighbours in K
constexpr int CONSUMERS = BLOCK_M / 64; // warpgroups that multiply, 64 rows each
constexpr int CONSUMER_THREADS = CONSUMERS * 128;
constexpr int THREADS = CONSUMER_THREADS + 128;
constexpr int WARPS = THREADS / 32;
constexpr int SPLITTERS = 3; // warps that split in the background
constexpr int PLANES = 3;    // l, m, h, in the order in which their last use comes
constexpr int A_PLANE = BLOCK_M * ROW;
constexpr int B_PLANE = BLOCK_N * ROW;
constexpr int SLOT = A_PLANE + B_PLANE; // the ring's unit: a plane of both operands
constexpr int SUMS = BLOCK_N / 2;       // of a thread
// As many as fit; src/op/matmul_wgmma_f32.c counts the same way.
constexpr int SLOTS = 230400 / SLOT < 16 ? 230400 / SLOT : 16;
static_assert(CONSUMERS == 1 || CONSUMERS == 2, "one or two warpgroups multiply");
static_assert(BLOCK_N % 32 == 0 && BLOCK_N <= 160, "whole groups of columns, sums in registers");
static_assert(SLOTS >= 4, "a slot is filled while a tile's three are read");

// Registers of a thread that multiplies, and of one that splits; together 504 with two of the
// first.
constexpr int MANY = BLOCK_N <= 128 ? 176 : 200;
constexpr int FEW = 504 - 2 * MANY;

constexpr int SCALE = 23;
constexpr int LARGEST = 73; // sum of both operands' exponents: BLOCK_K products stay below 2^127
constexpr gk_u32 SPECIAL = 0xffffffffu;
constexpr gk_u32 HUGE_BITS = (gk_u32)(127 + 127 - SCALE) << 23;

// The zeroed area, 32-bit words: the number of blocks that are done; how many tasks of the split
// are done by chunks of K, of what is needed first; the bits of max |x| (or SPECIAL) by blocks of
// rows of A, then of columns of B; how many tasks are done by these blocks, but for what is needed
// first; and with split K one arrival counter a tile.
constexpr int MAX_CHUNKS = 32;
constexpr int CHUNK = 4; // tiles of K, more where there would be too many chunks
enum { LEFT = 0, DONE = 1, FOUND = DONE + MAX_CHUNKS };

GK_DEVICE gk_u32 larger(gk_u32 a, gk_u32 b)
{
    return a > b ? a : b;
}

GK_DEVICE gk_u32 smaller(gk_u32 a, gk_u32 b)
{
    return a < b ? a : b;
}

// ---------------------------------------------------------------------------------------------
// The split

// Two numbers' parts, scaled, as pairs of bf16.
GK_DEVICE void split_pair(float x, float y, gk_u32 (&part)[PLANES])
{
    constexpr float FACTOR = (float)(1 << SCALE);
    x *= FACTOR;
    y *= FACTOR;
    GK_UNROLL
    for (int p = PLANES - 1; p >= 0; p--) {
        part[p] = store_pair_as<bf16>(x, y);
        if (p > 0) {
            x -= bits_to_f32(part[p] << 16);
            y -= bits_to_f32(part[p] & 0xffff0000u);
        }
    }
}

enum { ALONG_K = 0, ALONG_ROWS = 1, NOWHERE = 2 };

// Where piece c of a row lies in a tile of rows, as the tensor core expects it.
GK_DEVICE int place_of(int row, int c)
{
    return row * ROW + (c ^ (row % ROW_PIECES)) * 16;
}

// Splits an operand. A warp's task is a GROUP of rows by BLOCK_K; it writes whole sectors of the
// images.
template <int CONTIGUOUS, int ALIGN, int ROWS> struct splitter {
    static constexpr int GROUP = 32;
    static constexpr int GROUPS = ROWS / GROUP;
    static constexpr int LINES = 32 / ROW_PIECES; // rows of a warp with a lane a piece
    static constexpr int PLANE = ROWS * ROW;

    const float *source;
    gk_i64 rows;
    gk_i64 depth;
    gk_i64 row_stride;
    gk_i64 k_stride;
    gk_u8 *images; // [block of rows][tile of K][plane][row][ROW bytes]
    gk_u32 *found;

    // Eight neighbours in K, all of which exist.
    static GK_DEVICE void read(float (&x)[8], const float *from)
    {
        if constexpr (ALIGN >= 16) {
            GK_UNROLL
            for (int e = 0; e < 8; e += 4) {
                const float4 v = *(const float4 *)(from + e);
                x[e] = v.x;
                x[e + 1] = v.y;
                x[e + 2] = v.z;
                x[e + 3] = v.w;
            }
        } else if constexpr (ALIGN >= 8) {
            GK_UNROLL
            for (int e = 0; e < 8; e += 2) {
                const float2 v = *(const float2 *)(from + e);
                x[e] = v.x;
                x[e + 1] = v.y;
            }
        } else {
            GK_UNROLL
            for (int e = 0; e < 8; e++) {
                x[e] = from[e];
            }
        }
    }

    static GK_DEVICE void split(const float *x, uint4 (&part)[PLANES], gk_u32 &largest)
    {
        gk_u32 words[4][PLANES];
        GK_UNROLL
        for (int e = 0; e < 8; e += 2) {
            split_pair(x[e], x[e + 1], words[e / 2]);
            largest = larger(largest, f32_to_bits(x[e]) & 0x7fffffffu);
            largest = larger(largest, f32_to_bits(x[e + 1]) & 0x7fffffffu);
        }
        GK_UNROLL
        for (int p = 0; p < PLANES; p++) {
            part[p] = make_uint4(words[0][p], words[1][p], words[2][p], words[3][p]);
        }
    }

    // A lane a piece, 32 / ROW_PIECES rows at once, AHEAD times over.
    GK_DEVICE void along_k(gk_u8 *to, gk_i64 first_row, gk_i64 first_k, gk_u32 &largest) const
    {
        constexpr int AHEAD = BLOCK_N <= 128 ? 8 : 4;
        const int line = (int)(threadIdx.x % 32 / ROW_PIECES);
        const int piece = (int)(threadIdx.x % ROW_PIECES);
        const float *from = source + (first_row + line) * row_stride + first_k + piece * 8;
        GK_NO_UNROLL
        for (int begin = line; begin < GROUP; begin += LINES * AHEAD) {
            float x[AHEAD][8];
            GK_UNROLL
            for (int i = 0; i < AHEAD; i++) {
                read(x[i], from);
                from += LINES * row_stride;
            }
            GK_UNROLL
            for (int i = 0; i < AHEAD; i++) {
                uint4 part[PLANES];
                split(x[i], part, largest);
                GK_UNROLL
                for (int p = 0; p < PLANES; p++) {
                    *(uint4 *)(to + p * PLANE + place_of(begin + LINES * i, piece)) = part[p];
                }
            }
        }
    }

    // A lane a row, two pieces at a time; neighbours exchange one, so that both write to one
    // sector.
    GK_DEVICE void along_rows(gk_u8 *to, gk_i64 first_row, gk_i64 first_k, gk_u32 &largest) const
    {
        constexpr int AHEAD = BLOCK_N <= 128 ? 4 : 2;
        const int lane = (int)(threadIdx.x % 32);
        const bool odd = lane % 2 != 0;
        const float *from = source + first_row + lane + first_k * k_stride;
        GK_NO_UNROLL
        for (int begin = 0; begin < ROW_PIECES; begin += 2 * AHEAD) {
            float x[AHEAD][16];
            GK_UNROLL
            for (int i = 0; i < AHEAD; i++) {
                GK_UNROLL
                for (int e = 0; e < 16; e++) {
                    x[i][e] = *from;
                    from += k_stride;
                }
            }
            GK_UNROLL
            for (int i = 0; i < AHEAD; i++) {
                uint4 mine[2][PLANES];
                split(x[i], mine[0], largest);
                split(x[i] + 8, mine[1], largest);
                const int piece = begin + 2 * i + (odd ? 1 : 0);
                const int row = lane - (odd ? 1 : 0);
                GK_UNROLL
                for (int p = 0; p < PLANES; p++) {
                    const uint4 give = odd ? mine[0][p] : mine[1][p];
                    const uint4 got = make_uint4(__shfl_xor_sync(0xffffffffu, give.x, 1),
                                                 __shfl_xor_sync(0xffffffffu, give.y, 1),
                                                 __shfl_xor_sync(0xffffffffu, give.z, 1),
                                                 __shfl_xor_sync(0xffffffffu, give.w, 1));
                    *(uint4 *)(to + p * PLANE + place_of(row, piece)) = odd ? got : mine[0][p];
                    *(uint4 *)(to + p * PLANE + place_of(row + 1, piece)) = odd ? mine[1][p] : got;
                }
            }
        }
    }

    // Where rows or K end, and for operands that are contiguous nowhere.
    GK_DEVICE void anywhere(gk_u8 *to, gk_i64 first_row, gk_i64 first_k, gk_u32 &largest) const
    {
        const int piece = (int)(threadIdx.x % ROW_PIECES);
        const gk_i64 k = first_k + piece * 8;
        GK_NO_UNROLL
        for (int row = (int)(threadIdx.x % 32 / ROW_PIECES); row < GROUP; row += LINES) {
            const float *from = source + (first_row + row) * row_stride + k * k_stride;
            float x[8];
            GK_UNROLL
            for (int e = 0; e < 8; e++) {
                x[e] = first_row + row < rows && k + e < depth ? from[e * k_stride] : 0.0f;
            }
            uint4 part[PLANES];
            split(x, part, largest);
            GK_UNROLL
            for (int p = 0; p < PLANES; p++) {
                *(uint4 *)(to + p * PLANE + place_of(row, piece)) = part[p];
            }
        }
    }

    // The index-th of the tasks in `count` tiles of K from `first` on, in `some` groups of rows
    // from `group` on.
    GK_DEVICE void run(gk_u32 index, gk_u32 group, gk_u32 some, gk_i64 first, gk_u32 count,
                       gk_i64 tiles_k) const
    {
        // What adjoins in memory comes first.
        group += CONTIGUOUS == ALONG_ROWS ? index % some : index / count;
        const gk_i64 tile = first + (CONTIGUOUS == ALONG_ROWS ? index / some : index % count);
        const gk_i64 first_row = (gk_i64)group * GROUP;
        const gk_i64 first_k = tile * BLOCK_K;
        const gk_u32 block = group / GROUPS;
        gk_u8 *to =
            images + (block * tiles_k + tile) * (PLANES * PLANE) + group % GROUPS * (GROUP * ROW);
        gk_u32 largest = 0; // bits of |x|
        if (CONTIGUOUS == NOWHERE || first_row + GROUP > rows || first_k + BLOCK_K > depth) {
            anywhere(to, first_row, first_k, largest);
        } else if constexpr (CONTIGUOUS == ALONG_ROWS) {
            along_rows(to, first_row, first_k, largest);
        } else {
            along_k(to, first_row, first_k, largest);
        }
        GK_UNROLL
        for (int distance = 16; distance > 0; distance /= 2) {
            largest = larger(largest, __shfl_xor_sync(0xffffffffu, largest, distance));
        }
        if (threadIdx.x % 32 == 0 && largest != 0) {
            atomicMax(found + block, largest >= HUGE_BITS ? SPECIAL : largest);
        }
    }
};

typedef splitter<A_LAYOUT == 0   ? ALONG_K
                 : A_LAYOUT == 1 ? ALONG_ROWS
                                 : NOWHERE,
                 A_ALIGN, BLOCK_M>
    a_splitter;
typedef splitter<B_LAYOUT == 0   ? ALONG_ROWS
                 : B_LAYOUT == 1 ? ALONG_K
                                 : NOWHERE,
                 B_ALIGN, BLOCK_N>
    b_splitter;

// The split in steps: chunks of K of the blocks of rows and columns that are needed first, then the
// other blocks one by one.
struct preparation {
    a_splitter a;
    b_splitter b;
    gk_i64 tiles_k;
    gk_u32 chunk;   // tiles of K, but in the last one
    gk_u32 tiles_m; // blocks of rows, and how many of them are needed first
    gk_u32 first_m;
    gk_u32 tiles_n;
    gk_u32 first_n;
    gk_u32 *done; // by chunks
    gk_u32 *done_blocks;

    GK_DEVICE gk_u32 chunks() const
    {
        return (gk_u32)((tiles_k + chunk - 1) / chunk);
    }

    GK_DEVICE gk_u32 steps() const
    {
        return chunks() + tiles_n - first_n + tiles_m - first_m;
    }

    GK_DEVICE gk_u32 tiles(gk_u32 c) const
    {
        const gk_i64 left = tiles_k - (gk_i64)c * chunk;
        return left < chunk ? (gk_u32)left : chunk;
    }

    GK_DEVICE gk_u32 tasks(gk_u32 c) const
    {
        return (first_m * a_splitter::GROUPS + first_n * b_splitter::GROUPS) * tiles(c);
    }

    // Worker `worker` of `workers` warps does its share of a step. Returns the worker to go on
    // with, so that all do equally much in the end.
    GK_DEVICE gk_u32 work(gk_u32 step, gk_u32 worker, gk_u32 workers) const
    {
        gk_u32 *counter = done + step;
        gk_i64 first = (gk_i64)step * chunk;
        gk_u32 count = (gk_u32)tiles_k;
        gk_u32 m = 0, some_m = 0, n = 0, some_n = 0; // blocks
        if (step < chunks()) {
            count = tiles(step);
            some_m = first_m;
            some_n = first_n;
        } else {
            first = 0;
            n = first_n + step - chunks();
            some_n = n < tiles_n ? 1 : 0;
            m = first_m + n - tiles_n; // meant where n is past the last
            some_m = 1 - some_n;
            counter = done_blocks + (some_m != 0 ? m : tiles_m + n);
        }
        const gk_u32 a_tasks = some_m * a_splitter::GROUPS * count;
        const gk_u32 all = a_tasks + some_n * b_splitter::GROUPS * count;
        gk_u32 index = worker;
        GK_NO_UNROLL
        for (; index < all; index += workers) {
            if (index < a_tasks) {
                a.run(index, m * a_splitter::GROUPS, some_m * a_splitter::GROUPS, first, count,
                      tiles_k);
            } else {
                b.run(index - a_tasks, n * b_splitter::GROUPS, some_n * b_splitter::GROUPS, first,
                      count, tiles_k);
            }
            // The copy engine of any block reads what this warp wrote.
            fence_async_global();
            __syncwarp();
            if (threadIdx.x % 32 == 0) {
                thread_fence();
                atomicAdd(counter, 1u);
            }
        }
        return index - all;
    }

    // Until all blocks' work that this counter counts is done.
    static GK_DEVICE void wait(const gk_u32 *counter, gk_u32 all)
    {
        while (*(const volatile gk_u32 *)counter < all) {
        }
        thread_fence();
        fence_async_global();
    }

    GK_DEVICE void wait_chunk(gk_u32 c) const
    {
        wait(done + c, tasks(c));
    }

    // For a tile of C, unless it is needed first.
    GK_DEVICE void wait_blocks(gk_u32 tile_m, gk_u32 tile_n) const
    {
        const gk_u32 count = (gk_u32)tiles_k;
        if (tile_m >= first_m) {
            wait(done_blocks + tile_m, a_splitter::GROUPS * count);
        }
        if (tile_n >= first_n) {
            wait(done_blocks + tiles_m + tile_n, b_splitter::GROUPS * count);
        }
    }
};

// ---------------------------------------------------------------------------------------------
// The product

// A place in the ring and the parity of its current phase.
struct cursor {
    int slot;
    gk_u32 parity;

    GK_DEVICE void advance()
    {
        slot++;
        if (slot == SLOTS) {
            slot = 0;
            parity ^= 1;
        }
    }
};

// One tile, or with split K a part of its K steps.
struct job {
    gk_u32 tile;
    gk_u32 tile_m;
    gk_u32 tile_n;
    gk_u32 split;
    gk_i64 first; // of the tiles of K
    gk_i64 steps;
};

// Blocks take the jobs in turn.
struct schedule {
    gk_u32 tiles_m;
    gk_u32 tiles_n;
    gk_u32 group;
    gk_u32 splits;
    gk_i64 tiles_k;
    const gk_u32 *found;

    GK_DEVICE void init(const gk_matmul_args &args)
    {
        tiles_m = (gk_u32)((args.m + BLOCK_M - 1) / BLOCK_M);
        tiles_n = (gk_u32)((args.n + BLOCK_N - 1) / BLOCK_N);
        tiles_k = (args.k + BLOCK_K - 1) / BLOCK_K;
        group = args.group_m < tiles_m ? (gk_u32)args.group_m : tiles_m;
        splits = (gk_u32)args.split_k;
        found = (const gk_u32 *)args.tickets + FOUND;
    }

    // Tiles of K that are split at a time. With split K, parts of K are multiplied at the same
    // time, so all of it is split first; and on the CPU device, whose warps cannot wait for work
    // under way.
    GK_DEVICE bool splits_first() const
    {
#ifdef GK_EMULATED
        return true;
#else
        return splits > 1;
#endif
    }

    GK_DEVICE gk_u32 chunk() const
    {
        const gk_i64 least = (tiles_k + MAX_CHUNKS - 1) / MAX_CHUNKS;
        return (gk_u32)(splits_first() && tiles_k > 0 ? tiles_k : least > CHUNK ? least : CHUNK);
    }

    // Rows and columns of tiles that the blocks' first tiles lie in.
    GK_DEVICE void first(gk_u32 &first_m, gk_u32 &first_n) const
    {
        const gk_u32 in_group = group * tiles_n;
        first_m = tiles_m;
        first_n = tiles_n;
        if (!splits_first() && gridDim.x < tiles_m * tiles_n) {
            if (gridDim.x <= in_group) {
                first_m = group;
                first_n = (gridDim.x + group - 1) / group;
            } else {
                first_m = smaller((gridDim.x + in_group - 1) / in_group * group, tiles_m);
            }
        }
    }

    GK_DEVICE gk_u32 jobs() const
    {
        return tiles_m * tiles_n * splits;
    }

    GK_DEVICE job take(gk_u32 index) const
    {
        job j;
        j.tile = index / splits;
        j.split = index % splits;
        const gk_u32 first = j.tile / (group * tiles_n) * group;
        const gk_u32 rows = tiles_m - first < group ? tiles_m - first : group;
        const gk_u32 in_group = j.tile % (group * tiles_n);
        j.tile_m = first + in_group % rows;
        j.tile_n = in_group / rows;
        const gk_i64 share = (tiles_k + splits - 1) / splits;
        const gk_i64 left = tiles_k - j.split * share;
        j.first = j.split * share;
        j.steps = left < 0 ? 0 : left < share ? left : share;
        return j;
    }

    // Whether the tile is left to the ordinary units.
    GK_DEVICE bool is_special(const job &j) const
    {
        const gk_u32 a = *(const volatile gk_u32 *)(found + j.tile_m);
        const gk_u32 b = *(const volatile gk_u32 *)(found + tiles_m + j.tile_n);
        return a == SPECIAL || b == SPECIAL || (int)(a >> 23) + (int)(b >> 23) > 254 + LARGEST;
    }
};

// Stores one element if it lies inside C.
GK_DEVICE void store_element(const gk_matmul_args &args, float x, gk_i64 row, gk_i64 col)
{
    if (row < args.m && col < args.n) {
        ((C_TYPE *)args.c)[row * args.c_row_stride + col * args.c_col_stride] =
            store_as<C_TYPE>(matmul_epilogue<float>(args, x, row, col));
    }
}

// Two neighbours of a row. What is outside C has the epilogue of C's last row or column, which
// leaves one epilogue in the code for each.
GK_DEVICE void store_pair(const gk_matmul_args &args, float x, float y, gk_i64 row, gk_i64 col)
{
    constexpr int SIZE = (int)sizeof(C_TYPE);
    struct alignas(2 * SIZE) pair {
        C_TYPE first;
        C_TYPE second;
    };
    const gk_i64 row_inside = row < args.m ? row : args.m - 1;
    const gk_i64 last = args.n - 1;
    const pair v = {
        store_as<C_TYPE>(matmul_epilogue<float>(args, x, row_inside, col < last ? col : last)),
        store_as<C_TYPE>(
            matmul_epilogue<float>(args, y, row_inside, col + 1 < last ? col + 1 : last))};
    C_TYPE *to = (C_TYPE *)args.c + row * args.c_row_stride + col * args.c_col_stride;
    if (row >= args.m || col > last) {
        return;
    }
    if (C_LAYOUT == 0 && C_ALIGN >= 2 * SIZE && col < last) {
        *(pair *)to = v;
        return;
    }
    to[0] = v.first;
    if (col < last) {
        to[args.c_col_stride] = v.second;
    }
}

// One product of planes, BLOCK_K deep.
template <bool FIRST> GK_DEVICE void multiply(float (&acc)[SUMS], gk_u64 a, gk_u64 b)
{
    GK_UNROLL
    for (int k = 0; k < BLOCK_K / 16; k++) {
        wgmma<bf16, BLOCK_N, false, false>(acc, a + 2 * k, b + 2 * k, !FIRST || k > 0);
    }
}

// Descriptors of a warpgroup's rows of A and of B in one slot.
struct operands {
    gk_u64 a;
    gk_u64 b;

    GK_DEVICE operands at(const cursor &c) const
    {
        const gk_u32 offset = (gk_u32)(c.slot * (SLOT / 16));
        return operands{a + offset, b + offset};
    }
};

// This warp will not read the slot again.
GK_DEVICE void release(gk_u64 *empty, const cursor &at)
{
    if (threadIdx.x % 32 == 0) {
        mbarrier_arrive(empty + at.slot);
    }
}

// sums += one tile of K. Small products come first, and each plane is released after its last use.
GK_DEVICE void multiply_tile(float (&sums)[SUMS], const operands &base, gk_u64 *full, gk_u64 *empty,
                             cursor &at)
{
    float acc[SUMS];
    const cursor low = at;
    at.advance();
    const cursor middle = at;
    at.advance();
    const cursor high = at;
    at.advance();
    const operands l = base.at(low);
    const operands m = base.at(middle);
    const operands h = base.at(high);
    mbarrier_wait(full + low.slot, low.parity);
    mbarrier_wait(full + middle.slot, middle.parity);
    mbarrier_wait(full + high.slot, high.parity);
    wgmma_fence();
    multiply<true>(acc, h.a, l.b);
    multiply<false>(acc, l.a, h.b);
    wgmma_commit();
    multiply<false>(acc, m.a, m.b);
    multiply<false>(acc, h.a, m.b);
    multiply<false>(acc, m.a, h.b);
    wgmma_commit();
    multiply<false>(acc, h.a, h.b);
    wgmma_commit();
    wgmma_wait<2>();
    release(empty, low);
    wgmma_wait<1>();
    release(empty, middle);
    wgmma_wait<0>();
    release(empty, high);
    keep_registers(acc);
    constexpr float BACK = 1.0f / ((float)(1 << SCALE) * (float)(1 << SCALE));
    GK_UNROLL
    for (int i = 0; i < SUMS; i++) {
        sums[i] = fmaf(acc[i], BACK, sums[i]);
    }
}

// Leaves this job's sums in workspace. True in the last block that comes to the tile: `sums` is
// then the whole sum, its parts added in their order. `shared`: a word that all consumers may use.
GK_DEVICE bool combine(float (&sums)[SUMS], float4 *partials, const job &j, const schedule &plan,
                       gk_u32 *arrived, gk_u32 *shared)
{
    constexpr int VECTORS = SUMS / 4;
    constexpr int BATCH = 4; // vectors of a split read at once
    const gk_i64 tile_vectors = VECTORS * CONSUMER_THREADS;
    const gk_i64 split_vectors = (gk_i64)plan.tiles_m * plan.tiles_n * tile_vectors;
    float4 *own = partials + j.tile * tile_vectors + threadIdx.x;
    GK_UNROLL
    for (int v = 0; v < VECTORS; v++) {
        own[j.split * split_vectors + v * CONSUMER_THREADS] =
            make_float4(sums[4 * v], sums[4 * v + 1], sums[4 * v + 2], sums[4 * v + 3]);
    }
    thread_fence();
    named_barrier_sync<CONSUMER_THREADS>(1);
    if (threadIdx.x == 0) {
        *shared = atomicAdd(arrived + j.tile, 1u);
    }
    named_barrier_sync<CONSUMER_THREADS>(1);
    if (*shared != plan.splits - 1) {
        return false;
    }
    thread_fence();
    if (threadIdx.x == 0) {
        arrived[j.tile] = 0;
    }
    GK_UNROLL
    for (int v = 0; v < VECTORS; v += BATCH) {
        float total[BATCH * 4] = {};
        const float4 *from = own + v * CONSUMER_THREADS;
        GK_NO_UNROLL
        for (gk_u32 s = 0; s < plan.splits; s++) {
            GK_UNROLL
            for (int b = 0; b < BATCH && v + b < VECTORS; b++) {
                const float4 x = from[b * CONSUMER_THREADS];
                total[4 * b] += x.x;
                total[4 * b + 1] += x.y;
                total[4 * b + 2] += x.z;
                total[4 * b + 3] += x.w;
            }
            from += split_vectors;
        }
        GK_UNROLL
        for (int i = 0; i < BATCH * 4 && 4 * v + i < SUMS; i++) {
            sums[4 * v + i] = total[i];
        }
    }
    return true;
}

// ---------------------------------------------------------------------------------------------
// Tiles for the ordinary units: BLOCK_M x 64 of C at a time by all threads that multiply.

struct plain_tile {
    static constexpr int COLS = 64;
    static constexpr int DEPTH = 16;
    static constexpr int A_PITCH = BLOCK_M + 4;
    static constexpr int B_PITCH = COLS + 4;
    static constexpr int BYTES = DEPTH * (A_PITCH + B_PITCH) * 4;

    // Copies EXTENT rows by DEPTH of an operand to `to`, [k][row]; zeros beyond it.
    template <bool K_FIRST, int EXTENT, int PITCH>
    static GK_DEVICE void fetch(float *to, const float *from, gk_i64 rows, gk_i64 depth,
                                gk_i64 row_stride, gk_i64 k_stride)
    {
        GK_UNROLL
        for (int i = (int)threadIdx.x; i < EXTENT * DEPTH; i += CONSUMER_THREADS) {
            const int row = K_FIRST ? i / DEPTH : i % EXTENT;
            const int k = K_FIRST ? i % DEPTH : i / EXTENT;
            to[k * PITCH + row] =
                row < rows && k < depth ? from[row * row_stride + k * k_stride] : 0.0f;
        }
    }

    static GK_DEVICE void run(const gk_matmul_args &args, float *shared, gk_i64 first_row,
                              gk_i64 first_col)
    {
        float *a_tile = shared;
        float *b_tile = shared + DEPTH * A_PITCH;
        const int row = (int)threadIdx.x / 16 * 8;
        const int col = (int)threadIdx.x % 16 * 4;
        const float *a = (const float *)args.a + first_row * args.a_row_stride;
        const float *b = (const float *)args.b + first_col * args.b_col_stride;
        float sums[8][4];
        GK_UNROLL
        for (int i = 0; i < 32; i++) {
            sums[i / 4][i % 4] = 0;
        }
        GK_NO_UNROLL
        for (gk_i64 k = 0; k < args.k; k += DEPTH) {
            named_barrier_sync<CONSUMER_THREADS>(1);
            fetch<A_LAYOUT != 1, BLOCK_M, A_PITCH>(a_tile, a + k * args.a_col_stride,
                                                   args.m - first_row, args.k - k,
                                                   args.a_row_stride, args.a_col_stride);
            fetch<B_LAYOUT == 1, COLS, B_PITCH>(b_tile, b + k * args.b_row_stride,
                                                args.n - first_col, args.k - k, args.b_col_stride,
                                                args.b_row_stride);
            named_barrier_sync<CONSUMER_THREADS>(1);
            GK_UNROLL
            for (int d = 0; d < DEPTH; d++) {
                const float4 x = *(const float4 *)(a_tile + d * A_PITCH + row);
                const float4 y = *(const float4 *)(a_tile + d * A_PITCH + row + 4);
                const float4 z = *(const float4 *)(b_tile + d * B_PITCH + col);
                const float left[8] = {x.x, x.y, x.z, x.w, y.x, y.y, y.z, y.w};
                const float right[4] = {z.x, z.y, z.z, z.w};
                GK_UNROLL
                for (int i = 0; i < 32; i++) {
                    sums[i / 4][i % 4] = fmaf(left[i / 4], right[i % 4], sums[i / 4][i % 4]);
                }
            }
        }
        // Through shared memory, so that one epilogue in a loop serves all.
        named_barrier_sync<CONSUMER_THREADS>(1);
        float *own = shared + threadIdx.x;
        GK_UNROLL
        for (int i = 0; i < 32; i++) {
            own[i * CONSUMER_THREADS] = sums[i / 4][i % 4];
        }
        GK_NO_UNROLL
        for (int i = 0; i < 32; i++) {
            store_element(args, own[i * CONSUMER_THREADS], first_row + row + i / 4,
                          first_col + col + i % 4);
        }
    }
};
static_assert(32 * CONSUMER_THREADS * 4 <= SLOTS * SLOT && plain_tile::BYTES <= SLOTS * SLOT,
              "the ring is large enough for a tile of the ordinary units");

} // namespace gk

GK_KERNEL(gk::THREADS, 1, gk_matmul_args, args)
{
    using namespace gk;
    GK_DYNAMIC_SHARED(shared);
    gk_u64 *full = (gk_u64 *)(shared + SLOTS * SLOT);
    gk_u64 *empty = full + SLOTS;
    gk_u32 *word = (gk_u32 *)(empty + SLOTS);
    gk_u32 *common = (gk_u32 *)args.tickets;
    const int warp = (int)(threadIdx.x / 32);

    schedule plan;
    plan.init(args);
    const gk_u32 found = plan.tiles_m + plan.tiles_n;
    gk_u8 *a_images = (gk_u8 *)args.partials;
    gk_u8 *b_images = a_images + plan.tiles_m * plan.tiles_k * (PLANES * A_PLANE);
    float4 *partials = (float4 *)(b_images + plan.tiles_n * plan.tiles_k * (PLANES * B_PLANE));
    preparation parts;
    parts.a = a_splitter{(const float *)args.a, args.m,   args.k,        args.a_row_stride,
                         args.a_col_stride,     a_images, common + FOUND};
    parts.b = b_splitter{(const float *)args.b,
                         args.n,
                         args.k,
                         args.b_col_stride,
                         args.b_row_stride,
                         b_images,
                         common + FOUND + plan.tiles_m};
    parts.tiles_k = plan.tiles_k;
    parts.chunk = plan.chunk();
    parts.tiles_m = plan.tiles_m;
    parts.tiles_n = plan.tiles_n;
    plan.first(parts.first_m, parts.first_n);
    parts.done = common + DONE;
    parts.done_blocks = common + FOUND + found;

    if (threadIdx.x == 0) {
        GK_UNROLL
        for (int s = 0; s < SLOTS; s++) {
            mbarrier_init(full + s, 1);
            mbarrier_init(empty + s, CONSUMERS * 4);
        }
        mbarrier_init_fence();
    }
    if (plan.tiles_k > 0) {
        parts.work(0, warp * gridDim.x + blockIdx.x, gridDim.x * WARPS);
    }
    __syncthreads();

    if (warp >= CONSUMERS * 4) {
        if constexpr (CONSUMERS > 1) {
            registers_lower<FEW>();
        }
        if (warp > CONSUMERS * 4) {
            gk_u32 worker = (warp - CONSUMERS * 4 - 1) * gridDim.x + blockIdx.x;
            GK_NO_UNROLL
            for (gk_u32 step = 1; step < parts.steps(); step++) {
                worker = parts.work(step, worker, gridDim.x * SPLITTERS);
            }
        } else if (elect_one()) {
            // A thread chosen by its index would issue each copy in a loop over lanes.
            cursor at = {0, 1}; // the slots begin empty
            gk_u32 ready = 0;   // chunks
            GK_NO_UNROLL
            for (gk_u32 index = blockIdx.x; index < plan.jobs(); index += gridDim.x) {
                const job j = plan.take(index);
                const gk_u8 *a =
                    a_images + (j.tile_m * plan.tiles_k + j.first) * (PLANES * A_PLANE);
                const gk_u8 *b =
                    b_images + (j.tile_n * plan.tiles_k + j.first) * (PLANES * B_PLANE);
                parts.wait_blocks(j.tile_m, j.tile_n);
                GK_NO_UNROLL
                for (gk_i64 k = j.first; k < j.first + j.steps; k++) {
                    while (k >= (gk_i64)ready * parts.chunk) {
                        parts.wait_chunk(ready);
                        ready++;
                    }
                    GK_NO_UNROLL
                    for (int p = 0; p < PLANES; p++) {
                        gk_u8 *to = shared + at.slot * SLOT;
                        mbarrier_wait(empty + at.slot, at.parity);
                        mbarrier_arrive_expect(full + at.slot, SLOT);
                        bulk_load(to, a, full + at.slot, A_PLANE);
                        bulk_load(to + A_PLANE, b, full + at.slot, B_PLANE);
                        a += A_PLANE;
                        b += B_PLANE;
                        at.advance();
                    }
                }
            }
        }
    } else {
        if constexpr (CONSUMERS > 1) {
            registers_raise<MANY>();
        }
        const int group = warp / 4;
        const int thread = (int)(threadIdx.x % 128);
        const operands base = {matrix_descriptor<ROW>(shared + group * 64 * ROW, 0, 8 * ROW),
                               matrix_descriptor<ROW>(shared + A_PLANE, 0, 8 * ROW)};
        bool left_over = false;
        cursor at = {0, 0};
        GK_NO_UNROLL
        for (gk_u32 index = blockIdx.x; index < plan.jobs(); index += gridDim.x) {
            const job j = plan.take(index);
            float sums[SUMS];
            GK_UNROLL
            for (int i = 0; i < SUMS; i++) {
                sums[i] = 0;
            }
            GK_NO_UNROLL
            for (gk_i64 step = 0; step < j.steps; step++) {
                multiply_tile(sums, base, full, empty, at);
            }
            // The whole of K has been split: the copies were begun with that knowledge.
            if (j.steps == 0 && plan.tiles_k > 0) {
                parts.wait_chunk(0);
            }
            if (plan.is_special(j)) {
                left_over = true;
                continue;
            }
            if (plan.splits > 1 &&
                !combine(sums, partials, j, plan, common + FOUND + 2 * found, word)) {
                continue;
            }
            const gk_i64 row =
                (gk_i64)j.tile_m * BLOCK_M + group * 64 + thread / 32 * 16 + thread % 32 / 4;
            const gk_i64 col = (gk_i64)j.tile_n * BLOCK_N + thread % 4 * 2;
            GK_UNROLL
            for (int i = 0; i < SUMS; i += 2) {
                store_pair(args, sums[i], sums[i + 1], row + i / 2 % 2 * 8, col + i / 4 * 8);
            }
        }
        if (left_over) {
            // Nothing is on its way into the ring: every load was waited for above.
            named_barrier_sync<CONSUMER_THREADS>(1);
            GK_NO_UNROLL
            for (gk_u32 index = blockIdx.x; index < plan.jobs(); index += gridDim.x) {
                const job j = plan.take(index);
                if (j.split > 0 || !plan.is_special(j)) {
                    continue;
                }
                GK_NO_UNROLL
                for (int col = 0; col < BLOCK_N; col += plain_tile::COLS) {
                    plain_tile::run(args, (float *)shared, (gk_i64)j.tile_m * BLOCK_M,
                                    (gk_i64)j.tile_n * BLOCK_N + col);
                }
            }
        }
    }

    // The last block to leave clears what all have read.
    __syncthreads();
    if (threadIdx.x == 0) {
        *word = atomicAdd(common + LEFT, 1u);
    }
    __syncthreads();
    if (*word == gridDim.x - 1) {
        for (gk_u32 i = threadIdx.x; i < FOUND + 2 * found; i += THREADS) {
            common[i] = 0;
        }
    }
}
