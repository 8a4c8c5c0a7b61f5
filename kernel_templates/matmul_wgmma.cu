// matmul on Hopper's warpgroup instructions (wgmma) and tensor memory accelerator (TMA).
//
// The kernel computes D[x, y] = sum_k X[x, k] Y[y, k]: x runs along M and y along N, or, with SWAP,
// x along N and y along M (C transposed), so that a small M meets the fine-grained side of wgmma.
//
// Blocks are persistent: each walks over units (a tile of C, or one split of a tile's K). A warp of
// warpgroup 0 keeps a ring of tiles of X and Y filled by TMA; CONSUMERS warpgroups multiply. They
// share a tile's rows, or, with PINGPONG, take tiles in turn, the stores of one under the products
// of the other. Blocks of a cluster take neighbouring tiles and each loads its share of the operand
// that they have in common into the shared memory of all. CLUSTER_K blocks of a cluster share the K
// of one tile and add their sums through each other's shared memory.
//
// An operand that TMA or wgmma cannot take as it is, is first copied into workspace by all blocks:
// to aligned rows, or with its axes exchanged. Then the grid is resident at once and meets at a
// barrier.
#include "gk/matmul_tma_args.h"

#include "gk/epilogue.cuh"
#include "gk/hopper.cuh"
#include "gk/matmul_prepare.cuh"

namespace gk {

constexpr int ELEMENT = (int)sizeof(A_TYPE);
constexpr int SPAN = 128 / ELEMENT;  // elements of a swizzled row
constexpr int STEP_K = 32 / ELEMENT; // K of one wgmma
constexpr int STEPS = BLOCK_K / STEP_K;

// What an operand needs before TMA and wgmma can take it. wgmma reads 16-bit elements along either
// axis, others along K; but of f32 the kernel itself can bring X into registers.
enum { AS_IT_IS = 0, REPACKED = 1, TRANSPOSED = 2 };

GK_DEVICE constexpr int form_of(bool k_major, int align, bool is_x)
{
    const bool along_k = ELEMENT == 1 || (ELEMENT == 4 && (!is_x || align < 16));
    return !k_major && along_k ? TRANSPOSED : align < 16 ? REPACKED : AS_IT_IS;
}

constexpr int A_FORM = form_of(A_LAYOUT == 0, A_ALIGN, SWAP == 0);
constexpr int B_FORM = form_of(B_LAYOUT == 1, B_ALIGN, SWAP != 0);
constexpr bool PREPARES = A_FORM != AS_IT_IS || B_FORM != AS_IT_IS;

constexpr bool A_K_MAJOR = (A_LAYOUT == 0) != (A_FORM == TRANSPOSED);
constexpr bool B_K_MAJOR = (B_LAYOUT == 1) != (B_FORM == TRANSPOSED);
constexpr bool X_K_MAJOR = SWAP ? B_K_MAJOR : A_K_MAJOR;
constexpr bool Y_K_MAJOR = SWAP ? A_K_MAJOR : B_K_MAJOR;
constexpr int TILE_X = SWAP ? BLOCK_N : BLOCK_M;
constexpr int TILE_Y = SWAP ? BLOCK_M : BLOCK_N;
constexpr int CLUSTER_X = SWAP ? CLUSTER_N : CLUSTER_M;
constexpr int CLUSTER_Y = SWAP ? CLUSTER_M : CLUSTER_N;
constexpr int TEAM = CLUSTER_M * CLUSTER_N; // blocks of a cluster that work on the same K
constexpr int CLUSTER = TEAM * CLUSTER_K;
// Blocks that bring a block what it needs: those in its row and in its column of the team.
constexpr int PARTNERS = CLUSTER_X + CLUSTER_Y - 1;

constexpr int SHARERS = PINGPONG ? 1 : CONSUMERS; // warpgroups that work on one tile
constexpr int PIECES = TILE_X / 64 / SHARERS;     // 64 x TILE_Y products of a warpgroup
constexpr int SUMS = TILE_Y / 2;                  // a thread's, in one of them
constexpr int OUT_Y = TILE_Y / CLUSTER_K;         // columns that a block hands on
constexpr int OUT_SUMS = OUT_Y / 2;
constexpr int THREADS = 128 * (CONSUMERS + 1);
// What of the next kernel may happen beside this one's end: with OVERLAP its blocks ask for their
// first tiles in the second-level cache before they wait; with 2 they find room beside this one's.
constexpr int BLOCKS = OVERLAP == 2 ? 2 : 1; // on a multiprocessor
constexpr int AHEAD = OVERLAP == 0 ? 0 : OVERLAP == 1 && BLOCK_K > SPAN ? 2 : 4; // tiles of K
constexpr int AHEAD_BYTES = 1 << 20; // of all blocks, if that is more: later tiles delay the first
constexpr int LOADER_REGISTERS = CONSUMERS == 3 ? 32 : PIECES * SUMS >= 208 ? 24 : 40;
constexpr int MATH_REGISTERS = CONSUMERS == 3 ? 160 : PIECES * SUMS >= 208 ? 240 : 232;

// The tensor core takes f32 from shared memory along K only; X may come from registers instead.
constexpr bool X_FROM_REGISTERS = ELEMENT == 4 && !X_K_MAJOR;
// A warpgroup's arrivals at a stage that it has used: its warps' if they read it themselves.
constexpr int RELEASES = X_FROM_REGISTERS ? 4 : 1;

static_assert(TILE_X % (64 * SHARERS) == 0, "warpgroups share the tile's rows");
static_assert(TILE_Y % 8 == 0 && TILE_Y <= 256, "columns of one wgmma");
static_assert(BLOCK_K % SPAN == 0, "tiles of K are whole swizzled rows");
static_assert(!X_FROM_REGISTERS || BLOCK_K == SPAN, "registers hold two tiles of K");
static_assert(!PROMOTES || (ELEMENT == 1 && BLOCK_K == 128), "a stage is what is promoted");
static_assert(!PINGPONG || CONSUMERS == 2, "two warpgroups take turns");
static_assert(CLUSTER_K == 1 || !PINGPONG, "a block that shares K has one tile");
static_assert(OUT_Y % 8 == 0, "blocks hand on whole columns of products");

template <class T> struct factor {
    typedef T type;
};
template <> struct factor<f32> {
    typedef tf32 type;
};
typedef factor<A_TYPE>::type FACTOR;

GK_DEVICE constexpr int smaller(int a, int b)
{
    return a < b ? a : b;
}

GK_DEVICE constexpr int larger(int a, int b)
{
    return a > b ? a : b;
}

GK_DEVICE int thread_index()
{
    return (int)(threadIdx.x & 1023u); // the mask tells the compiler that it is not negative
}

// The same for all lanes, which the shuffle tells the compiler: operands of TMA that differ between
// lanes for all it knows would be issued in a loop over them.
GK_DEVICE int warp_index()
{
    return __shfl_sync(0xffffffffu, thread_index() / 32, 0);
}

// One operand's tile, in slabs whose rows are 128 swizzled bytes: along K if K_MAJOR, then a slab
// holds all EXTENT rows, else along X or Y, then it holds BLOCK_K rows. Each of the SHARE blocks
// that need the tile loads some rows of every slab into all of them: equal parts in one go, or
// else, eight rows at a time, what is nearly as much.
template <bool K_MAJOR, int EXTENT, int SHARE> struct operand {
    static constexpr int ROWS = K_MAJOR ? EXTENT : BLOCK_K;
    static constexpr int SLABS = K_MAJOR ? BLOCK_K / SPAN : (EXTENT + SPAN - 1) / SPAN;
    static constexpr int SLAB_BYTES = ROWS * 128;
    static constexpr int BYTES = SLABS * SLAB_BYTES;
    static constexpr bool EQUAL = ROWS % (8 * SHARE) == 0;
    static constexpr int BOX_ROWS = EQUAL ? ROWS / SHARE : 8;
    static_assert(ROWS % 8 == 0 && ROWS >= 8 * SHARE, "shares are whole swizzle patterns");

    static GK_DEVICE void load(unsigned char *to, const gk_tensor_map &map, gk_u64 *bar, int origin,
                               int k, int part, gk_u16 blocks)
    {
        if constexpr (EQUAL) {
            load_box(to, map, bar, origin, k, part, blocks);
        } else {
            constexpr int BOXES = ROWS / 8;
            const int end = (part + 1) * BOXES / SHARE;
            GK_NO_UNROLL
            for (int box = part * BOXES / SHARE; box < end; ++box) {
                load_box(to, map, bar, origin, k, box, blocks);
            }
        }
    }

    // The same into the second-level cache only.
    static GK_DEVICE void prefetch(const gk_tensor_map &map, int origin, int k, int part)
    {
        constexpr int BOXES = ROWS / BOX_ROWS;
        const int end = (part + 1) * BOXES / SHARE;
        GK_NO_UNROLL
        for (int box = part * BOXES / SHARE; box < end; ++box) {
            GK_NO_UNROLL
            for (int slab = 0; slab < SLABS; ++slab) {
                tma_prefetch(map, along(slab, origin, k), across(box, origin, k));
            }
        }
    }

    static GK_DEVICE int along(int slab, int origin, int k)
    {
        return slab * SPAN + (K_MAJOR ? k : origin);
    }

    static GK_DEVICE int across(int box, int origin, int k)
    {
        return box * BOX_ROWS + (K_MAJOR ? origin : k);
    }

    static GK_DEVICE void load_box(unsigned char *to, const gk_tensor_map &map, gk_u64 *bar,
                                   int origin, int k, int box, gk_u16 blocks)
    {
        GK_UNROLL
        for (int slab = 0; slab < SLABS; ++slab) {
            const int along = operand::along(slab, origin, k);
            const int across = operand::across(box, origin, k);
            unsigned char *at = to + slab * SLAB_BYTES + box * BOX_ROWS * 128;
            if constexpr (SHARE > 1) {
                tma_load_multicast(at, map, bar, blocks, along, across);
            } else {
                tma_load(at, map, bar, along, across);
            }
        }
    }

    static GK_DEVICE gk_u64 descriptor(const unsigned char *tile)
    {
        return matrix_descriptor<128>(tile, K_MAJOR ? 16 : SLAB_BYTES, 1024);
    }

    // What to add to the descriptor for K step `step` and, of X, rows from 64 * piece on.
    static GK_DEVICE constexpr int offset(int step, int piece)
    {
        const int bytes = K_MAJOR
                              ? step * 32 / 128 * SLAB_BYTES + step * 32 % 128 + piece * 64 * 128
                              : step * STEP_K * 128 + piece * 64 / SPAN * SLAB_BYTES;
        return bytes / 16;
    }
};

typedef operand<X_K_MAJOR, TILE_X, CLUSTER_Y> x_operand;
typedef operand<Y_K_MAJOR, TILE_Y, CLUSTER_X> y_operand;
constexpr int STAGE_BYTES = x_operand::BYTES + y_operand::BYTES;

// ---------------------------------------------------------------------------------------------
// Ways out. Sums leave through a slab of shared memory, 64 of X by SLAB_Y of Y at a time: rounded
// and stored by TMA, or, where C is not fit for that or the epilogue reads more, as sums that the
// threads then finish in the order of C's memory.

constexpr int C_ELEMENT = (int)sizeof(C_TYPE);
constexpr bool Y_CONTIGUOUS = (C_LAYOUT == 0) != (bool)SWAP; // C's memory runs along Y
constexpr bool STORE_BY_TMA =
    C_BY_TMA && !HAS_BETA && !HAS_RESIDUAL && (int)ACTIVATION <= (int)ACT_RELU;

// The largest power of two that divides OUT_Y, limited.
GK_DEVICE constexpr int slab_power(int limit)
{
    return smaller(OUT_Y & -OUT_Y, limit);
}

// Where rows of C may begin at any address: slabs of rounded elements, each row as far behind a
// multiple of 16 bytes as it is in C.
constexpr bool STORE_SHIFTED = !STORE_BY_TMA && C_LAYOUT < 2 &&
                               (C_ELEMENT == 2 || C_ELEMENT == 4) && !HAS_BETA && !HAS_RESIDUAL &&
                               (int)ACTIVATION <= (int)ACT_RELU;

// The largest number of columns, limited, that OUT_Y is a multiple of.
GK_DEVICE constexpr int slab_part(int limit)
{
    int part = limit / 8 * 8;
    while (OUT_Y % part != 0) {
        part -= 8;
    }
    return part;
}

GK_DEVICE constexpr int slab_columns()
{
    if (STORE_SHIFTED) {
        return slab_part(smaller(OUT_Y, 256 / C_ELEMENT));
    }
    // what lies along C's memory is a power of two for the sake of the swizzle
    return !STORE_BY_TMA  ? slab_power(32)
           : Y_CONTIGUOUS ? slab_power(128 / C_ELEMENT)
                          : slab_part(smaller(OUT_Y, 128 / C_ELEMENT));
}

constexpr int SLAB_Y = slab_columns();
constexpr int SLABS = OUT_Y / SLAB_Y;
constexpr int C_ROW_BYTES = Y_CONTIGUOUS ? SLAB_Y * C_ELEMENT : 128; // swizzled, one box's rows
constexpr int C_SLAB_BYTES = 64 * SLAB_Y * C_ELEMENT;
constexpr int STAGED_PITCH = Y_CONTIGUOUS ? SLAB_Y * 4 + 32 : 64 * 4 + 16;
constexpr int SHIFTED_PITCH = (Y_CONTIGUOUS ? SLAB_Y : 64) * C_ELEMENT + 16;
constexpr int STAGED_BYTES =
    ((Y_CONTIGUOUS ? 64 : SLAB_Y) * (STORE_SHIFTED ? SHIFTED_PITCH : STAGED_PITCH) + 1023) / 1024 *
    1024;
constexpr int OUT_BUFFERS =
    STORE_BY_TMA ? larger(2, smaller(PIECES *SLABS, 16384 / C_SLAB_BYTES)) : 1;
constexpr int OUT_BYTES = STORE_BY_TMA ? OUT_BUFFERS * C_SLAB_BYTES : STAGED_BYTES;

// As many tiles of X and Y as shared memory holds beside the ways out and the barriers.
constexpr int SHARED_BYTES = (BLOCKS == 2 ? 113 : 227) * 1024;
constexpr int STAGES =
    smaller((SHARED_BYTES - 64 - CONSUMERS * OUT_BYTES) / (STAGE_BYTES + 16), 12);
static_assert(STAGES >= 2, "loads overlap products");

constexpr int OUT_AT = STAGES * STAGE_BYTES;
// full and empty, a word a warpgroup, two where blocks meet
constexpr int BARRIERS_AT = OUT_AT + CONSUMERS * OUT_BYTES;
static_assert((A_FORM != TRANSPOSED && B_FORM != TRANSPOSED) || THREADS * 128 <= BARRIERS_AT,
              "a warp turns tiles in the ring");

static_assert(CLUSTER_K == 1 || TILE_X * TILE_Y * 4 <= OUT_AT, "the ring holds a block's sums");

// Named barriers: one a consumer warpgroup, one a turn, one of all consumers.
enum { WARPGROUP_BARRIER = 1, TURN_BARRIER = 5, CONSUMERS_BARRIER = 7 };

GK_DEVICE void store_matrices(void *row, const gk_u32 (&r)[4])
{
    if constexpr (Y_CONTIGUOUS) {
        stmatrix_x4(row, r);
    } else {
        stmatrix_x4_trans(row, r);
    }
}

GK_DEVICE void store_matrices(void *row, const gk_u32 (&r)[2])
{
    if constexpr (Y_CONTIGUOUS) {
        stmatrix_x2(row, r);
    } else {
        stmatrix_x2_trans(row, r);
    }
}

constexpr int OUTSIDE = 0x7fff0000; // a coordinate that no operand has

struct place {
    gk_u32 tile; // number among the tiles of C, those outside it counted
    gk_u32 split;
    int row; // of C
    int col;
    int k_tile;
    int k_tiles;
};

// Which part of the work is which unit. Tiles are walked in groups of group_m rows.
struct plan {
    gk_u32 rows; // of clusters of tiles
    gk_u32 cols;
    gk_u32 tiles;
    gk_u32 units;
    gk_u32 group;
    gk_u32 k_tiles;
    gk_u32 splits;
    gk_u32 parts; // of K, those within a cluster counted

    GK_DEVICE explicit plan(const gk_matmul_args &args)
    {
        rows = ((gk_u32)args.m + BLOCK_M * CLUSTER_M - 1) / (BLOCK_M * CLUSTER_M);
        cols = ((gk_u32)args.n + BLOCK_N * CLUSTER_N - 1) / (BLOCK_N * CLUSTER_N);
        tiles = rows * cols;
        splits = (gk_u32)args.split_k;
        parts = splits * CLUSTER_K;
        units = tiles * splits;
        group = ((gk_u32)args.group_m + CLUSTER_M - 1) / CLUSTER_M;
        // no part is empty: see load_units()
        k_tiles = args.k == 0 ? parts : ((gk_u32)args.k + BLOCK_K - 1) / BLOCK_K;
    }

    GK_DEVICE int count(gk_u32 part) const
    {
        return (int)(k_tiles / parts + (part < k_tiles % parts ? 1 : 0));
    }

    // For one part a cluster.
    GK_DEVICE int count_of_unit(gk_u32 unit) const
    {
        return splits == 1 ? (int)k_tiles : count(unit / tiles);
    }

    GK_DEVICE place locate(gk_u32 unit, gk_u32 rank) const
    {
        place p;
        p.split = 0;
        p.k_tile = 0;
        p.k_tiles = (int)k_tiles;
        gk_u32 tile = unit;
        if (splits > 1) {
            p.split = unit / tiles;
            tile = unit % tiles;
        }
        if (parts > 1) {
            const gk_u32 part = p.split * CLUSTER_K + rank / TEAM;
            const gk_u32 extra = k_tiles % parts; // the first parts have one tile more
            p.k_tile = (int)(k_tiles / parts * part + (part < extra ? part : extra));
            p.k_tiles = count(part);
        }
        gk_u32 row = tile / cols;
        gk_u32 col = tile % cols;
        if (group > 1) {
            const gk_u32 first = row / group * group;
            const gk_u32 height = rows - first < group ? rows - first : group;
            const gk_u32 in_group = tile - first * cols;
            row = first + in_group % height;
            col = in_group / height;
        }
        p.tile = tile * TEAM + rank % TEAM;
        p.row = (int)(row * CLUSTER_M + rank % CLUSTER_M) * BLOCK_M;
        p.col = (int)(col * CLUSTER_N + rank % TEAM / CLUSTER_M) * BLOCK_N;
        return p;
    }
};

// A place in the ring, and the parity of the phase that is current there.
struct cursor {
    int stage;
    gk_u32 parity;

    GK_DEVICE void next()
    {
        if (++stage == STAGES) {
            stage = 0;
            parity ^= 1;
        }
    }

    GK_DEVICE void skip(int count)
    {
        const gk_u32 at = (gk_u32)(stage + count);
        parity ^= at / STAGES & 1;
        stage = (int)(at % STAGES);
    }
};

GK_DEVICE gk_u32 block_rank()
{
    if constexpr (CLUSTER > 1) {
        return cluster_rank();
    } else {
        return 0;
    }
}

// ---------------------------------------------------------------------------------------------
// Prepared operands. Workspace holds them behind the partial sums; the zeroed area holds the
// barrier's counter in front of the tickets.

constexpr int FIRST_TICKET = PREPARES ? 16 : 0;

// An operand as it lies in memory.
GK_DEVICE byte_rows a_rows(const gk_matmul_args &args)
{
    constexpr bool ROWS = A_LAYOUT == 0;
    return make_byte_rows(args.a, ROWS ? args.m : args.k, (ROWS ? args.k : args.m) * ELEMENT,
                          (ROWS ? args.a_row_stride : args.a_col_stride) * ELEMENT);
}

GK_DEVICE byte_rows b_rows(const gk_matmul_args &args)
{
    constexpr bool ROWS = B_LAYOUT == 0;
    return make_byte_rows(args.b, ROWS ? args.k : args.n, (ROWS ? args.n : args.k) * ELEMENT,
                          (ROWS ? args.b_row_stride : args.b_col_stride) * ELEMENT);
}

template <int FORM, int ALIGN>
GK_DEVICE void prepare_operand(const byte_rows &from, unsigned char *to, gk_u32 block,
                               unsigned char *shared)
{
    if constexpr (FORM == REPACKED) {
        repack<ELEMENT, ALIGN, ELEMENT == 4, THREADS> work;
        work.begin(from, to, prepared_pitch(from.row_bytes), block);
        while (work.more()) {
            work.load();
            work.store();
        }
    } else if constexpr (FORM == TRANSPOSED) {
        transpose<ELEMENT, ALIGN, ELEMENT == 4, THREADS> work;
        work.all(from, to, prepared_pitch((gk_i64)from.rows * ELEMENT), shared);
        fence_async_shared(); // TMA writes there next
    }
}

GK_DEVICE void prefetch_operand(const byte_rows &rows)
{
    prefetch_matrix<THREADS>(rows.first, rows.rows, rows.row_bytes, rows.pitch);
}

GK_DEVICE void prepare(const gk_matmul_args &args, unsigned char *shared)
{
    if (args.k == 0) {
        return; // neither is read
    }
    const byte_rows from_a = a_rows(args);
    const byte_rows from_b = b_rows(args);
    unsigned char *to_a = (unsigned char *)args.partials;
    if (args.split_k > 1) {
        const plan work(args);
        to_a += (gk_i64)work.units * CLUSTER * (TILE_X * OUT_Y * (int)sizeof(float));
    }
    unsigned char *to_b = to_a;
    if constexpr (A_FORM == REPACKED) {
        to_b += from_a.rows * prepared_pitch(from_a.row_bytes);
    } else if constexpr (A_FORM == TRANSPOSED) {
        to_b += from_a.row_bytes / ELEMENT * prepared_pitch((gk_i64)from_a.rows * ELEMENT);
    }
    const gk_u32 from_end = gridDim.x - 1 - blockIdx.x; // who gets more of A gets less of B
    if constexpr (A_FORM == REPACKED && B_FORM == REPACKED) {
        repack<ELEMENT, A_ALIGN, ELEMENT == 4, THREADS, 2> a;
        repack<ELEMENT, B_ALIGN, ELEMENT == 4, THREADS, 2> b;
        a.begin(from_a, to_a, prepared_pitch(from_a.row_bytes), blockIdx.x);
        b.begin(from_b, to_b, prepared_pitch(from_b.row_bytes), from_end);
        while (a.more() || b.more()) {
            a.load();
            b.load();
            a.store();
            b.store();
        }
    } else {
        prepare_operand<A_FORM, A_ALIGN>(from_a, to_a, blockIdx.x, shared);
        prepare_operand<B_FORM, B_ALIGN>(from_b, to_b, from_end, shared);
    }
}

// ---------------------------------------------------------------------------------------------

// The blocks of the cluster, a bit each, that share the tile of X, and of Y, of the one of that
// rank.
struct sharing {
    int in_x; // its place along X in the team
    int in_y;
    gk_u32 x_blocks;
    gk_u32 y_blocks;

    GK_DEVICE explicit sharing(gk_u32 rank)
    {
        const int member = (int)(rank % TEAM);
        in_x = along_x(member);
        in_y = along_y(member);
        x_blocks = 0;
        y_blocks = 0;
        for (int i = 0; i < TEAM; ++i) {
            x_blocks |= (along_x(i) == in_x ? 1u : 0u) << i;
            y_blocks |= (along_y(i) == in_y ? 1u : 0u) << i;
        }
        x_blocks <<= rank / TEAM * TEAM;
        y_blocks <<= rank / TEAM * TEAM;
    }

    static GK_DEVICE int along_x(int member)
    {
        return SWAP ? member / CLUSTER_M : member % CLUSTER_M;
    }

    static GK_DEVICE int along_y(int member)
    {
        return SWAP ? member % CLUSTER_M : member / CLUSTER_M;
    }
};

// Asks for a unit's first tiles of each operand; units with the same rows of A, or columns of B,
// for different ones. By all lanes of a warp.
GK_DEVICE void prefetch_unit(const gk_matmul_tma_args &args, const plan &work, const place &p)
{
    const sharing team(block_rank());
    const int row = p.row / (BLOCK_M * CLUSTER_M);
    const int col = p.col / (BLOCK_N * CLUSTER_N);
    const gk_u64 lines =
        (gk_u64)work.rows * (BLOCK_M * CLUSTER_M) + (gk_u64)work.cols * (BLOCK_N * CLUSTER_N);
    const gk_u64 step = lines * work.parts * (BLOCK_K * ELEMENT); // bytes of a tile of K of all
    const int window = step < AHEAD_BYTES ? AHEAD_BYTES / (int)step : 0;
    const int tiles = args.call.k == 0 ? 0 : smaller(larger(AHEAD, window), p.k_tiles);
    if (elect_one()) {
        GK_NO_UNROLL
        for (int i = SWAP ? row : col; i < tiles; i += (int)(SWAP ? work.rows : work.cols)) {
            x_operand::prefetch(SWAP ? args.b : args.a, SWAP ? p.col : p.row,
                                (p.k_tile + i) * BLOCK_K, team.in_y);
        }
        GK_NO_UNROLL
        for (int i = SWAP ? col : row; i < tiles; i += (int)(SWAP ? work.cols : work.rows)) {
            y_operand::prefetch(SWAP ? args.a : args.b, SWAP ? p.row : p.col,
                                (p.k_tile + i) * BLOCK_K, team.in_x);
        }
    }
    __syncwarp();
}

// By all lanes of a warp; one of them issues. The next kernel may start when two tiles are left.
GK_DEVICE void load_units(const gk_matmul_tma_args &args, place p, unsigned char *shared,
                          gk_u64 *full, gk_u64 *empty)
{
    const plan work(args.call);
    const gk_u32 rank = block_rank();
    const sharing team(rank);
    cursor at = {0, 0};
    if constexpr (PREPARES) {
        if (elect_one()) {
            grid_barrier_wait((gk_u32 *)args.call.tickets);
        }
        __syncwarp();
        if (blockIdx.x / CLUSTER >= work.units) {
            return; // a block that only helped to prepare
        }
    }
    GK_NO_UNROLL
    for (gk_u32 unit = blockIdx.x / CLUSTER;;) {
        const int x = SWAP ? p.col : p.row;
        const int y = SWAP ? p.row : p.col;
        // An empty sum is one tile from outside the operands, which TMA fills with zeros.
        int k = args.call.k == 0 ? OUTSIDE : p.k_tile * BLOCK_K;
        GK_NO_UNROLL
        for (int left = p.k_tiles; left > 0; --left) {
            unsigned char *tile = shared + at.stage * STAGE_BYTES;
            mbarrier_wait(&empty[at.stage], at.parity ^ 1);
            if (elect_one()) {
                mbarrier_arrive_expect(&full[at.stage], STAGE_BYTES);
                x_operand::load(tile, SWAP ? args.b : args.a, &full[at.stage], x, k, team.in_y,
                                (gk_u16)team.x_blocks);
                y_operand::load(tile + x_operand::BYTES, SWAP ? args.a : args.b, &full[at.stage], y,
                                k, team.in_x, (gk_u16)team.y_blocks);
            }
            __syncwarp();
            if (AHEAD > 0 && left == 2 && unit + gridDim.x / CLUSTER >= work.units) {
                grid_launch_next();
            }
            k += BLOCK_K;
            at.next();
        }
        unit += gridDim.x / CLUSTER;
        if (unit >= work.units) {
            break;
        }
        p = work.locate(unit, rank);
    }
}

// ---------------------------------------------------------------------------------------------

// One consumer warpgroup.
struct consumer {
    const gk_matmul_tma_args &args;
    unsigned char *shared;
    unsigned char *out; // this warpgroup's way out
    gk_u64 *full;
    gk_u64 *empty;
    gk_u64 *word;       // for what one thread tells the others
    gk_u64 *meeting;    // two barriers of the blocks that share K
    int number;         // of the warpgroup, from 0
    int warp;           // in it, the same for all lanes
    int thread;         // in it
    int first_row;      // of the tile's X, computed by this warpgroup
    int buffer;         // of the way out
    gk_u32 first_block; // of the cluster's blocks that work on the same K
    gk_u32 partners;    // a bit each

    GK_DEVICE void sync() const
    {
        named_barrier_sync<128>(WARPGROUP_BARRIER + number);
    }

    GK_DEVICE void release(int stage) const
    {
        int member = thread;
        if constexpr (X_FROM_REGISTERS) {
            member = thread % 32;
            __syncwarp();
        }
        if constexpr (TEAM > 1) {
            if (member < TEAM && (PARTNERS == TEAM || (partners >> member & 1) != 0)) {
                mbarrier_arrive_at(&empty[stage], first_block + (gk_u32)member);
            }
        } else if (member == 0) {
            mbarrier_arrive(&empty[stage]);
        }
    }

    // Where the tensor core, which cuts sums of 8-bit floats to some 14 bits, may add up one stage
    // only; the sums of stages are added in f32. Leaves nothing under way.
    template <class T>
    GK_DEVICE void multiply_promoted(float (&sum)[PIECES][SUMS], cursor &at, int k_tiles) const
    {
        GK_UNROLL
        for (int i = 0; i < PIECES * SUMS; ++i) {
            sum[i / SUMS][i % SUMS] = 0.0f;
        }
        GK_NO_UNROLL
        for (int i = 0; i < k_tiles; ++i) {
            const unsigned char *stage = shared + at.stage * STAGE_BYTES;
            const gk_u64 x = x_operand::descriptor(stage) + x_operand::offset(0, first_row / 64);
            const gk_u64 y = y_operand::descriptor(stage + x_operand::BYTES);
            float part[PIECES][SUMS];
            mbarrier_wait(&full[at.stage], at.parity);
            wgmma_fence();
            multiply_stage<T>(part, x, y, false);
            wgmma_wait<0>();
            release(at.stage);
            GK_UNROLL
            for (int piece = 0; piece < PIECES; ++piece) {
                keep_registers(part[piece]);
                GK_UNROLL
                for (int j = 0; j < SUMS; ++j) {
                    sum[piece][j] += part[piece][j];
                }
            }
            at.next();
        }
    }

    // The products of one unit. Leaves the last under way, unless they are promoted: their stage is
    // the caller's to release.
    GK_DEVICE void multiply(float (&sum)[PIECES][SUMS], cursor &at, int k_tiles) const
    {
        if constexpr (PROMOTES) {
            multiply_promoted<FACTOR>(sum, at, k_tiles);
        } else if constexpr (X_FROM_REGISTERS) {
            fragments held[2]; // in turn, so that one loads while the other is multiplied
            int i = 0;
            GK_NO_UNROLL
            for (; i + 1 < k_tiles; i += 2) {
                multiply_held(sum, at, i, held[0]);
                multiply_held(sum, at, i + 1, held[1]);
            }
            if (i < k_tiles) {
                multiply_held(sum, at, i, held[0]);
            }
        } else {
            const gk_u64 x_base =
                x_operand::descriptor(shared) + x_operand::offset(0, first_row / 64);
            const gk_u64 y_base = y_operand::descriptor(shared + x_operand::BYTES);
            int last = 0;
            GK_NO_UNROLL
            for (int i = 0; i < k_tiles; ++i) {
                const gk_u64 x = x_base + (gk_u64)(at.stage * (STAGE_BYTES / 16));
                const gk_u64 y = y_base + (gk_u64)(at.stage * (STAGE_BYTES / 16));
                mbarrier_wait(&full[at.stage], at.parity);
                wgmma_fence();
                multiply_stage<FACTOR>(sum, x, y, i > 0);
                wgmma_wait<1>();
                if (i > 0) {
                    release(last);
                }
                last = at.stage;
                at.next();
            }
        }
    }

    // The products of one stage, both operands from shared memory, as a group of their own.
    template <class T>
    static GK_DEVICE void multiply_stage(float (&sum)[PIECES][SUMS], gk_u64 x, gk_u64 y,
                                         bool accumulate)
    {
        GK_UNROLL
        for (int step = 0; step < STEPS; ++step) {
            GK_UNROLL
            for (int piece = 0; piece < PIECES; ++piece) {
                wgmma<T, TILE_Y, !X_K_MAJOR, !Y_K_MAJOR>(
                    sum[piece], x + x_operand::offset(step, piece), y + y_operand::offset(step, 0),
                    step > 0 || accumulate);
            }
        }
        wgmma_commit();
    }

    // X of one tile of K, as wgmma takes it from registers.
    struct fragments {
        gk_u32 x[STEPS][PIECES][4];
    };

    GK_DEVICE void multiply_held(float (&sum)[PIECES][SUMS], cursor &at, int i,
                                 fragments &held) const
    {
        // rows of shared memory are K; this thread's first element is (k, row)
        const int k = thread % 4;
        const int row = first_row + thread / 32 * 16 + thread % 32 / 4;
        const int place =
            row / 32 * x_operand::SLAB_BYTES + k * 128 + ((row % 32 / 4) ^ k) * 16 + row % 4 * 4;
        const unsigned char *tile = shared + at.stage * STAGE_BYTES;
        const gk_u64 y = y_operand::descriptor(tile + x_operand::BYTES);
        mbarrier_wait(&full[at.stage], at.parity);
        GK_UNROLL
        for (int step = 0; step < STEPS; ++step) {
            GK_UNROLL
            for (int piece = 0; piece < PIECES; ++piece) {
                GK_UNROLL
                for (int e = 0; e < 4; ++e) {
                    // 8 rows on: two chunks; 4 of K on: 4 chunks in the permutation
                    const int at_e = (place ^ (e % 2 * 32) ^ (e / 2 * 64)) + e / 2 * 512;
                    held.x[step][piece][e] = *(const gk_u32 *)(tile + at_e + step * 1024 +
                                                               piece * 2 * x_operand::SLAB_BYTES);
                }
            }
        }
        wgmma_fence();
        GK_UNROLL
        for (int step = 0; step < STEPS; ++step) {
            GK_UNROLL
            for (int piece = 0; piece < PIECES; ++piece) {
                multiply_registers<FACTOR>(sum[piece], held.x[step][piece],
                                           y + y_operand::offset(step, 0), step > 0 || i > 0);
            }
        }
        wgmma_commit();
        wgmma_wait<1>();
        if (i > 0) {
            release(at.stage == 0 ? STAGES - 1 : at.stage - 1);
        }
        at.next();
    }

    template <class T>
    static GK_DEVICE void multiply_registers(float (&sum)[SUMS], const gk_u32 (&x)[4], gk_u64 y,
                                             bool accumulate)
    {
        wgmma<T, TILE_Y, !Y_K_MAJOR>(sum, x, y, accumulate);
    }

    GK_DEVICE void finish(float (&sum)[PIECES][SUMS], const cursor &at) const
    {
        wgmma_wait<0>();
        GK_UNROLL
        for (int piece = 0; piece < PIECES; ++piece) {
            keep_registers(sum[piece]);
        }
        release(at.stage == 0 ? STAGES - 1 : at.stage - 1);
    }

    // What the activation gets at (x, y) of the tile, if that lies inside C; some value if not.
    GK_DEVICE float linear_value(const place &p, float sum, int x, int y) const
    {
        const int row = p.row + (SWAP ? y : x);
        int col = p.col + (SWAP ? x : y);
        if constexpr (HAS_BIAS) {
            col = smaller(col, (int)args.call.n - 1);
        }
        return matmul_linear(args.call, sum, row, col);
    }

    // What C gets there.
    GK_DEVICE float final_value(const place &p, float sum, int x, int y) const
    {
        return activate<ACTIVATION>(linear_value(p, sum, x, y));
    }

    // Rounds columns [first, first + SLAB_Y) of a piece and puts them into a buffer as the map of C
    // wants them.
    template <class T>
    GK_DEVICE void write_rounded(unsigned char *to, const place &p, const float (&sum)[OUT_SUMS],
                                 int piece_row, int first) const
    {
        const int lane = thread % 32;
        const int warp = thread / 32;
        const int x = piece_row + warp * 16 + lane / 4; // of this thread's first sum
        const int y = first + lane % 4 * 2;
        if constexpr (sizeof(T) == 2) {
            // stmatrix: lane i gives a row's address of matrix i / 8; matrices 0 and 1 hold 8
            // columns of Y, 8 rows of X each, 2 and 3 the next 8 columns
            constexpr int WIDE = SLAB_Y % 16 == 0 ? 16 : 8;
            const int matrix = WIDE == 16 ? lane / 8 : lane / 8 % 2;
            const int x_chunk = warp * 2 + matrix % 2;
            const int y_chunk = matrix / 2;
            const int row = Y_CONTIGUOUS ? x_chunk * 8 + lane % 8 : y_chunk * 8 + lane % 8;
            const int chunk = Y_CONTIGUOUS ? y_chunk : x_chunk;
            const int twist = row * C_ROW_BYTES / 128 % (C_ROW_BYTES / 16);
            const int at = row * C_ROW_BYTES + (chunk ^ twist) * 16;
            GK_UNROLL
            for (int j = 0; j < SLAB_Y; j += WIDE) {
                gk_u32 packed[WIDE / 4];
                GK_UNROLL
                for (int half = 0; half < WIDE / 8; ++half) {
                    GK_UNROLL
                    for (int upper = 0; upper < 2; ++upper) {
                        const int column = j + half * 8;
                        const int i = (first + column) / 2 + upper * 2;
                        const float low = linear_value(p, sum[i], x + upper * 8, y + column);
                        const float high =
                            linear_value(p, sum[i + 1], x + upper * 8, y + column + 1);
                        packed[half * 2 + upper] = (int)ACTIVATION == (int)ACT_RELU
                                                       ? pair_of<T>::pack_relu(low, high)
                                                       : store_pair_as<T>(low, high);
                    }
                }
                store_matrices(to + (Y_CONTIGUOUS ? at ^ (j * 2) : at + j * 128), packed);
            }
        } else {
            GK_UNROLL
            for (int j = 0; j < SLAB_Y; j += 8) {
                GK_UNROLL
                for (int upper = 0; upper < 2; ++upper) {
                    const int i = (first + j) / 2 + upper * 2;
                    const float low = final_value(p, sum[i], x + upper * 8, y + j);
                    const float high = final_value(p, sum[i + 1], x + upper * 8, y + j + 1);
                    const int x_at = warp * 16 + lane / 4 + upper * 8;
                    const int y_at = j + lane % 4 * 2;
                    if constexpr (Y_CONTIGUOUS) {
                        const int twist = x_at * C_ROW_BYTES / 128 % (C_ROW_BYTES / 16);
                        *(float2 *)(to + x_at * C_ROW_BYTES + ((y_at / 4) ^ twist) * 16 +
                                    y_at % 4 * 4) = float2{low, high};
                    } else {
                        unsigned char *row = to + x_at / 32 * (SLAB_Y * 128) + y_at * 128;
                        const int chunk = x_at % 32 / 4;
                        *(float *)(row + (chunk ^ (y_at % 8)) * 16 + x_at % 4 * 4) = low;
                        *(float *)(row + 128 + (chunk ^ ((y_at + 1) % 8)) * 16 + x_at % 4 * 4) =
                            high;
                    }
                }
            }
        }
    }

    // One thread of the warpgroup, always the same: who waits for stores is who issued them.
    GK_DEVICE bool issues() const
    {
        return warp == 0 && elect_one();
    }

    // Stores by TMA. Buffers take turns over all tiles: when a barrier has passed, the next one has
    // been read.
    GK_DEVICE void store_rounded(const place &p, const float (&sum)[PIECES][OUT_SUMS])
    {
        GK_UNROLL
        for (int piece = 0; piece < PIECES; ++piece) {
            const int piece_row = first_row + piece * 64;
            GK_UNROLL
            for (int slab = 0; slab < SLABS; ++slab) {
                unsigned char *to = out + buffer * C_SLAB_BYTES;
                write_rounded<C_TYPE>(to, p, sum[piece], piece_row, slab * SLAB_Y);
                fence_async_shared();
                if (issues()) {
                    tma_store_wait_read<larger(OUT_BUFFERS, 2) - 2>();
                }
                sync();
                if (issues()) {
                    const int x = (SWAP ? p.col : p.row) + piece_row;
                    const int y = (SWAP ? p.row : p.col) + slab * SLAB_Y;
                    if constexpr (Y_CONTIGUOUS) {
                        tma_store(args.c, to, y, x);
                    } else {
                        GK_UNROLL
                        for (int i = 0; i < 64 * C_ELEMENT / 128; ++i) {
                            tma_store(args.c, to + i * SLAB_Y * 128, x + i * (128 / C_ELEMENT), y);
                        }
                    }
                    tma_store_commit();
                }
                buffer = buffer == OUT_BUFFERS - 1 ? 0 : buffer + 1;
            }
        }
    }

    // A slab of C that lies at any address: where its first row starts, what exists of it.
    struct shifted_slab {
        static constexpr int OUTER = Y_CONTIGUOUS ? 64 : SLAB_Y; // rows in the sense of C's memory
        static constexpr int INNER = (Y_CONTIGUOUS ? SLAB_Y : 64) * C_ELEMENT; // bytes of one
        static constexpr int CHUNKS = INNER / 16 + 1;
        unsigned char *first;
        gk_i64 stride; // bytes from row to row
        int outers;
        int bytes;

        GK_DEVICE int shift(int outer) const
        {
            return ((int)(gk_u64)first + outer * (int)stride) & 15;
        }
    };

    GK_DEVICE shifted_slab locate_slab(const place &p, int first_x, int first_y) const
    {
        constexpr bool ROWS = C_LAYOUT == 0;
        const int row = p.row + (SWAP ? first_y : first_x);
        const int col = p.col + (SWAP ? first_x : first_y);
        const gk_i64 row_stride = ROWS ? args.call.c_row_stride : 1;
        const gk_i64 col_stride = ROWS ? 1 : args.call.c_col_stride;
        const int rows = larger(0, (int)args.call.m - row);
        const int cols = larger(0, (int)args.call.n - col);
        shifted_slab slab;
        slab.first =
            (unsigned char *)args.call.c + (row * row_stride + col * col_stride) * C_ELEMENT;
        slab.stride = (ROWS ? row_stride : col_stride) * C_ELEMENT;
        slab.outers = smaller(ROWS ? rows : cols, shifted_slab::OUTER);
        slab.bytes = smaller(ROWS ? cols : rows, shifted_slab::INNER / C_ELEMENT) * C_ELEMENT;
        return slab;
    }

    template <class T>
    GK_DEVICE void write_shifted(const shifted_slab &slab, const place &p,
                                 const float (&sum)[OUT_SUMS], int piece_row, int first) const
    {
        const int x = thread / 32 * 16 + thread % 32 / 4;
        const int y = thread % 4 * 2;
        GK_UNROLL
        for (int upper = 0; upper < 2; ++upper) {
            const int x_at = x + upper * 8;
            unsigned char *row = out + x_at * SHIFTED_PITCH + slab.shift(x_at);
            GK_UNROLL
            for (int j = 0; j < SLAB_Y; j += 8) {
                const int i = (first + j) / 2 + upper * 2;
                const int y_at = y + j;
                const float low = final_value(p, sum[i], piece_row + x_at, first + y_at);
                const float high = final_value(p, sum[i + 1], piece_row + x_at, first + y_at + 1);
                unsigned char *to = row + y_at * C_ELEMENT;
                unsigned char *next = to + C_ELEMENT;
                if constexpr (!Y_CONTIGUOUS) {
                    to = out + y_at * SHIFTED_PITCH + slab.shift(y_at) + x_at * C_ELEMENT;
                    next =
                        out + (y_at + 1) * SHIFTED_PITCH + slab.shift(y_at + 1) + x_at * C_ELEMENT;
                }
                if constexpr (sizeof(T) == 2) {
                    const gk_u32 both = store_pair_as<T>(low, high);
                    *(gk_u16 *)to = (gk_u16)both;
                    *(gk_u16 *)next = (gk_u16)(both >> 16);
                } else {
                    *(float *)to = low;
                    *(float *)next = high;
                }
            }
        }
    }

    // Copies what write_shifted() left, 16 aligned bytes at a time, the ends of rows in powers of
    // two.
    GK_DEVICE void copy_shifted(const shifted_slab &slab) const
    {
        constexpr int TOTAL = shifted_slab::OUTER * shifted_slab::CHUNKS;
        constexpr int AT_ONCE = 3;
        GK_NO_UNROLL
        for (int begin = thread; begin < TOTAL; begin += 128 * AT_ONCE) {
            uint4 value[AT_ONCE];
            GK_UNROLL
            for (int i = 0; i < AT_ONCE; ++i) {
                const int at = smaller(begin + i * 128, TOTAL - 1);
                value[i] = *(const uint4 *)(out + at / shifted_slab::CHUNKS * SHIFTED_PITCH +
                                            at % shifted_slab::CHUNKS * 16);
            }
            GK_UNROLL
            for (int i = 0; i < AT_ONCE; ++i) {
                const int at = begin + i * 128;
                const int outer = at / shifted_slab::CHUNKS;
                const int before = slab.shift(outer);
                const int byte = at % shifted_slab::CHUNKS * 16 - before;
                if (at < TOTAL && outer < slab.outers && byte >= 0 && byte + 16 <= slab.bytes) {
                    *(uint4 *)(slab.first + outer * slab.stride + byte) = value[i];
                }
            }
        }
        GK_NO_UNROLL
        for (int at = thread; at < shifted_slab::OUTER * 2; at += 128) {
            const int outer = at / 2;
            const int before = slab.shift(outer);
            const int head = smaller((16 - before) & 15, slab.bytes);
            // the bytes up to the first multiple of 16, or those after the last
            int from = at % 2 == 0 ? 0 : larger(head, slab.bytes - ((before + slab.bytes) & 15));
            const int to = outer >= slab.outers ? 0 : at % 2 == 0 ? head : slab.bytes;
            const unsigned char *value = out + outer * SHIFTED_PITCH + before;
            unsigned char *c = slab.first + outer * slab.stride;
            GK_NO_UNROLL
            while (from < to) {
                const int place = before + from;
                if (place % 8 == 0 && from + 8 <= to) {
                    *(uint2 *)(c + from) = *(const uint2 *)(value + from);
                    from += 8;
                } else if (place % 4 == 0 && from + 4 <= to) {
                    *(gk_u32 *)(c + from) = *(const gk_u32 *)(value + from);
                    from += 4;
                } else {
                    *(gk_u16 *)(c + from) = *(const gk_u16 *)(value + from);
                    from += 2;
                }
            }
        }
    }

    GK_DEVICE void store_shifted(const place &p, const float (&sum)[PIECES][OUT_SUMS]) const
    {
        GK_UNROLL
        for (int piece = 0; piece < PIECES; ++piece) {
            const int piece_row = first_row + piece * 64;
            GK_UNROLL
            for (int slab = 0; slab < SLABS; ++slab) {
                const shifted_slab where = locate_slab(p, piece_row, slab * SLAB_Y);
                sync();
                write_shifted<C_TYPE>(where, p, sum[piece], piece_row, slab * SLAB_Y);
                sync();
                copy_shifted(where);
            }
        }
    }

    // Stores sums in the order of C's memory, LANES neighbours at a time.
    GK_DEVICE void store_staged(const place &p, const float (&sum)[PIECES][OUT_SUMS]) const
    {
        GK_UNROLL
        for (int piece = 0; piece < PIECES; ++piece) {
            GK_UNROLL
            for (int slab = 0; slab < SLABS; ++slab) {
                const int x = thread / 32 * 16 + thread % 32 / 4;
                const int y = thread % 4 * 2;
                sync();
                GK_UNROLL
                for (int j = 0; j < SLAB_Y; j += 8) {
                    GK_UNROLL
                    for (int upper = 0; upper < 2; ++upper) {
                        const int i = (slab * SLAB_Y + j) / 2 + upper * 2;
                        const float low = sum[piece][i];
                        const float high = sum[piece][i + 1];
                        if constexpr (Y_CONTIGUOUS) {
                            *(float2 *)(out + (x + upper * 8) * STAGED_PITCH + (y + j) * 4) =
                                float2{low, high};
                        } else {
                            unsigned char *at = out + (y + j) * STAGED_PITCH + (x + upper * 8) * 4;
                            *(float *)at = low;
                            *(float *)(at + STAGED_PITCH) = high;
                        }
                    }
                }
                sync();
                finish_slab(p, first_row + piece * 64, slab * SLAB_Y);
            }
        }
    }

    static constexpr int INNER = Y_CONTIGUOUS ? SLAB_Y : 64; // of a staged slab, as C's memory runs
    static constexpr int VECTOR = smaller(larger(C_ALIGN, C_ELEMENT), 16) / C_ELEMENT;
    static constexpr int LANES = C_LAYOUT == 2 ? 1 : smaller(VECTOR, SLAB_Y % 8 == 0 ? 8 : 4);

    GK_DEVICE void finish_slab(const place &p, int first_x, int first_y) const
    {
        GK_NO_UNROLL
        for (int i = thread; i < 64 * SLAB_Y / LANES; i += 128) {
            const int outer = i / (INNER / LANES);
            const int inner = i % (INNER / LANES) * LANES;
            const float *from = (const float *)(out + outer * STAGED_PITCH + inner * 4);
            const int x = first_x + (Y_CONTIGUOUS ? outer : inner);
            const int y = first_y + (Y_CONTIGUOUS ? inner : outer);
            const gk_i64 row = p.row + (SWAP ? y : x);
            const gk_i64 col = p.col + (SWAP ? x : y);
            constexpr bool DOWN = Y_CONTIGUOUS == (bool)SWAP; // neighbours lie in one column of C
            const gk_i64 left = DOWN ? args.call.m - row : args.call.n - col;
            if (DOWN ? col >= args.call.n : row >= args.call.m) {
                continue;
            }
            C_TYPE *to =
                (C_TYPE *)args.call.c + row * args.call.c_row_stride + col * args.call.c_col_stride;
            if (left >= LANES) {
                store_lanes(to, from, row, col, DOWN);
            } else {
                GK_NO_UNROLL
                for (int e = 0; e < left; ++e) {
                    to[e] = store_as<C_TYPE>(matmul_epilogue(
                        args.call, from[e], DOWN ? row + e : row, DOWN ? col : col + e));
                }
            }
        }
    }

    GK_DEVICE void store_lanes(C_TYPE *to, const float *from, gk_i64 row, gk_i64 col,
                               bool down) const
    {
        struct alignas(LANES * C_ELEMENT) lanes {
            C_TYPE value[LANES];
        };
        lanes result;
        GK_UNROLL
        for (int e = 0; e < LANES; ++e) {
            result.value[e] = store_as<C_TYPE>(
                matmul_epilogue(args.call, from[e], down ? row + e : row, down ? col : col + e));
        }
        *(lanes *)to = result;
    }

    static GK_DEVICE void add_quad(float (&sum)[PIECES][OUT_SUMS], int i, const float4 &more)
    {
        float(&total)[OUT_SUMS] = sum[i * 4 / OUT_SUMS];
        const int at = i * 4 % OUT_SUMS;
        total[at] += more.x;
        total[at + 1] += more.y;
        total[at + 2] += more.z;
        total[at + 3] += more.w;
    }

    // Adds up all splits' sums where a thread has few of them: several splits are under way at
    // once.
    static GK_DEVICE void add_few(const float4 *from, gk_i64 distance, gk_u32 splits,
                                  float (&sum)[PIECES][OUT_SUMS])
    {
        constexpr int QUADS = PIECES * OUT_SUMS / 4;
        constexpr int AHEAD = larger(16 / QUADS, 1);
        GK_NO_UNROLL
        for (gk_u32 first = 0; first < splits; first += AHEAD) {
            float4 more[AHEAD][QUADS];
            GK_UNROLL
            for (int j = 0; j < AHEAD; ++j) {
                const float4 *at = from + (first + j < splits ? j * distance : 0);
                GK_UNROLL
                for (int i = 0; i < QUADS; ++i) {
                    more[j][i] = at[i * 128];
                }
            }
            GK_UNROLL
            for (int j = 0; j < AHEAD; ++j) {
                if (first + j < splits) {
                    GK_UNROLL
                    for (int i = 0; i < QUADS; ++i) {
                        add_quad(sum, i, more[j][i]);
                    }
                }
            }
            from += AHEAD * distance;
        }
    }

    // Split K: leaves the sums in the tile's partial sums. True for the last split to arrive, which
    // then has everybody's, added in the order of the splits.
    GK_DEVICE bool add_splits(const plan &work, const place &p,
                              float (&sum)[PIECES][OUT_SUMS]) const
    {
        constexpr int QUADS = PIECES * OUT_SUMS / 4;
        constexpr int AT_ONCE = QUADS <= 32 ? 8 : 4;
        const gk_u32 tiles = work.tiles * CLUSTER;
        const gk_u32 part =
            (p.tile * CLUSTER_K + first_block / TEAM) * SHARERS + (PINGPONG ? 0 : number);
        float4 *own = (float4 *)args.call.partials + (gk_i64)part * (QUADS * 128) + thread;
        const gk_i64 distance = (gk_i64)tiles * SHARERS * (QUADS * 128);
        float4 *to = own + p.split * distance;
        GK_UNROLL
        for (int i = 0; i < QUADS; ++i) {
            const float(&from)[OUT_SUMS] = sum[i * 4 / OUT_SUMS];
            const int at = i * 4 % OUT_SUMS;
            to[i * 128] = float4{from[at], from[at + 1], from[at + 2], from[at + 3]};
        }
        sync();
        if (thread == 0) {
            thread_fence(); // for all that the barrier has seen
            const gk_u64 before = atomic_add(&args.call.tickets[FIRST_TICKET + part], 1);
            thread_fence();
            *word = before;
            if (before == work.splits - 1) {
                args.call.tickets[FIRST_TICKET + part] = 0;
            }
        }
        sync();
        const bool last = *word == work.splits - 1;
        sync();
        if (!last) {
            return false;
        }
        GK_UNROLL
        for (int i = 0; i < PIECES * OUT_SUMS; ++i) {
            sum[i / OUT_SUMS][i % OUT_SUMS] = 0.0f;
        }
        if constexpr (QUADS <= 8) {
            add_few(own, distance, work.splits, sum);
        } else {
            GK_NO_UNROLL
            for (gk_u32 split = 0; split < work.splits; ++split) {
                GK_UNROLL
                for (int i = 0; i < QUADS; ++i) {
                    add_quad(sum, i, own[i * 128]);
                    if (i % AT_ONCE == AT_ONCE - 1) {
                        __syncwarp(); // no more loads in flight than there are registers
                    }
                }
                own += distance;
            }
        }
        return true;
    }

    // The blocks that share a tile's K add up their sums, each OUT_Y columns of them, in the order
    // of the blocks. They send each other what they do not keep, into the ring, which nobody uses
    // any more once all blocks have said so: each has one tile.
    GK_DEVICE void add_blocks(const float (&sum)[PIECES][SUMS],
                              float (&total)[PIECES][OUT_SUMS]) const
    {
        constexpr int OUT_QUADS = OUT_SUMS / 4;
        constexpr int SENT = PIECES * OUT_QUADS * 128; // quads from a warpgroup to each block
        gk_u64 *room = meeting;                        // all other blocks are ready to receive
        gk_u64 *received = meeting + 1;
        const gk_u32 own = first_block / TEAM;
        const gk_u32 member = block_rank() % TEAM;
        float4 *place_of_own = (float4 *)shared + (own * CONSUMERS + number) * SENT + thread;
        named_barrier_sync<128 * CONSUMERS>(CONSUMERS_BARRIER);
        if (number == 0 && thread < CLUSTER_K && thread != (int)own) {
            mbarrier_arrive_at(room, (gk_u32)thread * TEAM + member);
        }
        mbarrier_wait(room, 0);
        GK_UNROLL
        for (int block = 0; block < CLUSTER_K; ++block) {
            if ((gk_u32)block != own) {
                GK_UNROLL
                for (int i = 0; i < PIECES * OUT_QUADS; ++i) {
                    const float(&from)[SUMS] = sum[i / OUT_QUADS];
                    const int at = (block * OUT_QUADS + i % OUT_QUADS) * 4;
                    cluster_store(place_of_own + i * 128,
                                  float4{from[at], from[at + 1], from[at + 2], from[at + 3]},
                                  received, (gk_u32)block * TEAM + member);
                }
            } else {
                GK_UNROLL
                for (int i = 0; i < PIECES * OUT_QUADS; ++i) {
                    const float(&from)[SUMS] = sum[i / OUT_QUADS];
                    const int at = (block * OUT_QUADS + i % OUT_QUADS) * 4;
                    place_of_own[i * 128] =
                        float4{from[at], from[at + 1], from[at + 2], from[at + 3]};
                }
            }
        }
        mbarrier_wait(received, 0);
        const float4 *from = (const float4 *)shared + number * SENT + thread;
        GK_UNROLL
        for (int block = 0; block < CLUSTER_K; ++block) {
            GK_UNROLL
            for (int i = 0; i < PIECES * OUT_QUADS; ++i) {
                const float4 more = from[block * CONSUMERS * SENT + i * 128];
                float(&to)[OUT_SUMS] = total[i / OUT_QUADS];
                const int at = i % OUT_QUADS * 4;
                to[at] = block == 0 ? more.x : to[at] + more.x;
                to[at + 1] = block == 0 ? more.y : to[at + 1] + more.y;
                to[at + 2] = block == 0 ? more.z : to[at + 2] + more.z;
                to[at + 3] = block == 0 ? more.w : to[at + 3] + more.w;
            }
        }
    }

    // All sums of a block, or the columns of them that are left to it.
    template <int COUNT>
    GK_DEVICE void leave(const plan &work, const place &p, float (&sum)[PIECES][COUNT])
    {
        if constexpr (COUNT == OUT_SUMS) {
            hand_on(work, p, sum);
        } else {
            float total[PIECES][OUT_SUMS];
            add_blocks(sum, total);
            place part = p;
            const int first_y = (int)(first_block / TEAM) * OUT_Y;
            part.row += SWAP ? first_y : 0;
            part.col += SWAP ? 0 : first_y;
            hand_on(work, part, total);
        }
    }

    GK_DEVICE void hand_on(const plan &work, const place &p, float (&sum)[PIECES][OUT_SUMS])
    {
        if (work.splits == 1 || add_splits(work, p, sum)) {
            if constexpr (STORE_BY_TMA) {
                store_rounded(p, sum);
            } else if constexpr (STORE_SHIFTED) {
                store_shifted(p, sum);
            } else {
                store_staged(p, sum);
            }
        }
    }

    GK_DEVICE void run()
    {
        const plan work(args.call);
        const gk_u32 rank = block_rank();
        const gk_u32 stride = gridDim.x / CLUSTER;
        gk_u32 unit = blockIdx.x / CLUSTER;
        cursor at = {0, 0};
        if (PREPARES && unit >= work.units) {
            return;
        }
        if (PINGPONG && number == 1) {
            // the first turn is the other's
            named_barrier_arrive<256>(TURN_BARRIER);
            at.skip(work.count_of_unit(unit));
            unit += stride;
        }
        GK_NO_UNROLL
        for (; unit < work.units; unit += stride) {
            const place p = work.locate(unit, rank);
            float sum[PIECES][SUMS];
            if constexpr (PINGPONG) {
                named_barrier_sync<256>(TURN_BARRIER + number);
            }
            multiply(sum, at, p.k_tiles);
            if constexpr (PINGPONG) {
                if (unit + stride < work.units) {
                    named_barrier_arrive<256>(TURN_BARRIER + 1 - number);
                }
            }
            if constexpr (!PROMOTES) {
                finish(sum, at);
            }
            leave(work, p, sum);
            if constexpr (PINGPONG) {
                unit += stride;
                if (unit < work.units) {
                    at.skip(work.count_of_unit(unit));
                }
            }
        }
        if (STORE_BY_TMA && issues()) {
            tma_store_wait_read<0>(); // shared memory stays until then
        }
    }
};

} // namespace gk

GK_KERNEL(gk::THREADS, gk::BLOCKS, gk_matmul_tma_args, args)
{
    using namespace gk;
    GK_DYNAMIC_SHARED(shared);
    gk_u64 *full = (gk_u64 *)(shared + BARRIERS_AT);
    gk_u64 *empty = full + STAGES;
    gk_u64 *words = empty + STAGES;

    if (thread_index() == 0) {
        tma_prefetch(args.a);
        tma_prefetch(args.b);
        if constexpr (STORE_BY_TMA) {
            tma_prefetch(args.c);
        }
    } else if (thread_index() == 32) {
        for (int i = 0; i < STAGES; ++i) {
            mbarrier_init(&full[i], 1);
            mbarrier_init(&empty[i], SHARERS * RELEASES * PARTNERS);
        }
        if constexpr (CLUSTER_K > 1) {
            mbarrier_init(&words[CONSUMERS], CLUSTER_K - 1);
            mbarrier_init(&words[CONSUMERS + 1], 1);
            mbarrier_arrive_expect(&words[CONSUMERS + 1],
                                   (TILE_X * TILE_Y - TILE_X * OUT_Y) * (int)sizeof(float));
        }
        mbarrier_init_fence();
    }
    // Meanwhile the loader finds its first tile.
    const int warp = warp_index();
    const int group = warp / 4;
    place first;
    if (group == 0) {
        const plan work(args.call);
        first = work.locate(blockIdx.x / CLUSTER, block_rank());
        if (AHEAD > 0 && warp == 0) {
            prefetch_unit(args, work, first);
        }
    }
    if constexpr (CLUSTER > 1) {
        cluster_arrive();
        cluster_wait();
    } else {
        __syncthreads();
    }

    if constexpr (PREPARES) {
        prefetch_operand(a_rows(args.call));
        prefetch_operand(b_rows(args.call));
    }
    grid_wait();

    if constexpr (PREPARES) {
        prepare(args.call, shared);
        grid_barrier_arrive((gk_u32 *)args.call.tickets);
    }

    if (group == 0) {
        if constexpr (CONSUMERS > 1) {
            registers_lower<LOADER_REGISTERS>();
        }
        if (warp == 0) {
            load_units(args, first, shared, full, empty);
            grid_launch_next(); // its blocks find room soon
        }
    } else {
        if constexpr (CONSUMERS > 1) {
            registers_raise<MATH_REGISTERS>();
        }
        const int number = group - 1;
        gk_u32 partners = 0;
        if constexpr (PARTNERS < TEAM) { // then the team is the cluster
            const sharing team(block_rank());
            partners = team.x_blocks | team.y_blocks;
        }
        consumer self = {args,
                         shared,
                         shared + OUT_AT + number * OUT_BYTES,
                         full,
                         empty,
                         words + number,
                         words + CONSUMERS,
                         number,
                         warp % 4,
                         thread_index() % 128,
                         PINGPONG ? 0 : number * (TILE_X / SHARERS),
                         0,
                         block_rank() / TEAM * TEAM,
                         partners};
        self.run();
    }
    if constexpr (TEAM > 1) {
        // no block leaves while another may still signal it
        cluster_arrive();
        cluster_wait();
    }
}
