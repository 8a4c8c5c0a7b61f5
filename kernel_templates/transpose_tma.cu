// Transposes of tensors whose lines begin at multiples of 16 bytes. The tensor memory accelerator
// brings tiles of x and takes tiles of out; in between each thread reads squares of elements from
// shared memory, turns them in registers and writes them to the tile that leaves. Blocks stay and
// go from tile to tile, STAGES of which are on their way to them.
//
// A cell is SIDE x SIDE elements, SIDE the elements of 128 bytes; a tile is CELLS_R x CELLS_C of
// them. Both tiles lie in lines of 128 bytes whose 16-byte chunks are permuted by the line's number
// (the 128-byte swizzle).
#include "gk/transpose_tma_args.h"

#include "gk/hopper.cuh"
#include "gk/turn.cuh"

namespace gk {

constexpr int LINE = 128;
constexpr int SIDE = LINE / SIZE;
constexpr int UNIT = 16 / SIZE; // a thread turns UNIT x UNIT elements at once
constexpr int TILE_R = CELLS_R * SIDE;
constexpr int TILE_C = CELLS_C * SIDE;
constexpr int TILE_BYTES = TILE_R * CELLS_C * LINE;
constexpr int UNITS = CELLS_R * CELLS_C * 64;
constexpr int OUT_TILES = 2;
static_assert(UNITS % THREADS == 0, "a thread has whole units");
static_assert(TILE_R <= 256 && TILE_C <= 256, "lines of a box");

struct tiles {
    gk_u32 rows, cols; // of tiles
    gk_u32 group;
};

struct position {
    int r, c, batch;
};

GK_DEVICE position position_of(const tiles &all, gk_u32 index)
{
    const gk_u32 batch = BATCHED ? index / (all.rows * all.cols) : 0;
    const tile_place place =
        place_of_tile(index - batch * (all.rows * all.cols), all.rows, all.cols, all.group);
    position p;
    p.r = (int)(place.r * TILE_R);
    p.c = (int)(place.c * TILE_C);
    p.batch = (int)batch;
    return p;
}

GK_DEVICE gk_u32 chunk_place(int line, int chunk)
{
    return (gk_u32)(line * LINE + ((chunk ^ (line & 7)) << 4));
}

GK_DEVICE void bring(const gk_transpose_tma_args &args, const tiles &all, gk_u32 index,
                     unsigned char *stage, gk_u64 *full)
{
    const position p = position_of(all, index);
    mbarrier_arrive_expect(full, TILE_BYTES);
    GK_UNROLL
    for (int i = 0; i < CELLS_C; i++) {
        tma_load(stage + i * TILE_R * LINE, args.x, full, p.c + i * SIDE, p.r, p.batch,
                 EVICT_FIRST);
    }
}

GK_DEVICE void send(const gk_transpose_tma_args &args, const tiles &all, gk_u32 index,
                    const unsigned char *tile)
{
    const position p = position_of(all, index);
    GK_UNROLL
    for (int i = 0; i < CELLS_R; i++) {
        if (p.r + i * SIDE < args.call.rows) {
            tma_store(args.out, tile + i * TILE_C * LINE, p.r + i * SIDE, p.c, p.batch);
        }
    }
    tma_store_commit();
}

// Eight lanes that meet the banks together read chunks 0 to 7 of lines UNIT apart or the same, and
// write chunks and lines likewise: row group and column group run through a Latin square, so that
// the permuted chunks are eight different ones on both sides.
GK_DEVICE void turn_tile(const unsigned char *from, unsigned char *to)
{
    GK_UNROLL
    for (int u = 0; u < UNITS / THREADS; u++) {
        const int index = u * THREADS + (int)threadIdx.x;
        const int cell = index / 64;
        const int chunk_c = index % 8;
        const int chunk_r = index / 8 % 8 ^ chunk_c;
        const unsigned char *const source = from + cell % CELLS_C * (TILE_R * LINE);
        unsigned char *const target = to + cell / CELLS_C * (TILE_C * LINE);
        const int r = cell / CELLS_C * SIDE + chunk_r * UNIT;
        const int c = cell % CELLS_C * SIDE + chunk_c * UNIT;
        gk_u32 held[UNIT][4];
        gk_u32 turned[UNIT][4];
        GK_UNROLL
        for (int i = 0; i < UNIT; i++) {
            vector<16>::load(held[i], source + chunk_place(r + i, chunk_c));
        }
        turn<SIZE, UNIT, UNIT>(held, turned);
        GK_UNROLL
        for (int i = 0; i < UNIT; i++) {
            vector<16>::store(target + chunk_place(c + i, chunk_r), turned[i]);
        }
    }
}

} // namespace gk

GK_KERNEL(THREADS, 1, gk_transpose_tma_args, args)
{
    using namespace gk;
    GK_DYNAMIC_SHARED(shared);
    unsigned char *const leaving = shared + STAGES * TILE_BYTES;
    gk_u64 *const full = reinterpret_cast<gk_u64 *>(leaving + OUT_TILES * TILE_BYTES);
    // The same for all lanes, which the shuffle tells the compiler. One lane of the first warp
    // issues all copies and waits for its stores; elect_one() in a branch of its own, for behind a
    // && the compiler would issue each load in a loop over lanes.
    const bool first_warp = __shfl_sync(0xffffffffu, (int)(threadIdx.x / 32), 0) == 0;
    const tiles all = {(gk_u32)((args.call.rows + TILE_R - 1) / TILE_R),
                       (gk_u32)((args.call.cols + TILE_C - 1) / TILE_C), (gk_u32)args.call.group};
    const gk_u32 count = all.rows * all.cols * (gk_u32)args.call.batches;
    if (first_warp) {
        if (elect_one()) {
            for (int i = 0; i < STAGES; i++) {
                mbarrier_init(&full[i], 1);
            }
            mbarrier_init_fence();
            grid_begin();
            for (int i = 0; i < STAGES; i++) {
                const gk_i64 index = (gk_i64)i * gridDim.x + blockIdx.x;
                if (index < count) {
                    bring(args, all, (gk_u32)index, shared + i * TILE_BYTES, &full[i]);
                }
            }
        }
    }
    __syncthreads();
    int stage = 0;
    int out_tile = 0;
    gk_u32 parity = 0;
    for (gk_i64 index = blockIdx.x; index < count; index += gridDim.x) {
        mbarrier_wait(&full[stage], parity);
        if (first_warp) {
            if (elect_one()) {
                tma_store_wait_read<OUT_TILES - 1>();
            }
        }
        __syncthreads();
        turn_tile(shared + stage * TILE_BYTES, leaving + out_tile * TILE_BYTES);
        fence_async_shared();
        __syncthreads();
        if (first_warp) {
            if (elect_one()) {
                send(args, all, (gk_u32)index, leaving + out_tile * TILE_BYTES);
                const gk_i64 next = index + (gk_i64)STAGES * gridDim.x;
                if (next < count) {
                    bring(args, all, (gk_u32)next, shared + stage * TILE_BYTES, &full[stage]);
                }
            }
        }
        out_tile = (out_tile + 1) % OUT_TILES;
        stage = stage + 1 == STAGES ? 0 : stage + 1;
        parity ^= stage == 0;
    }
    if (first_warp) {
        if (elect_one()) {
            tma_store_wait<0>();
        }
    }
}
