// Reduction of an axis across which the elements of x adjoin. A thread takes VEC columns down every
// ROWS-th element of the axis; a block covers TILE columns, and several blocks may share the axis
// (the grid has a multiple of the tiles then). The threads' results of a column are put together by
// a tree, the blocks' in the order of the axis.
#include "gk/reduce.cuh"

namespace gk {

constexpr int VEC = VECTOR / SIZE;
constexpr int ROWS = THREADS / LANES;
constexpr int TILE = LANES * VEC;
static_assert((ROWS & (ROWS - 1)) == 0, "halves of halves");

// The registers a thread surely makes do with give the number of blocks to fit on a multiprocessor.
constexpr int REGISTERS =
    UNROLL * (VECTOR / 4 + 1) + VEC * ((int)sizeof(state) + 4) / 4 + UNROLL + 64;
constexpr int FITTING = 65536 / (THREADS * ((REGISTERS + 7) / 8 * 8));
constexpr int WANTED = 1536 / THREADS;
constexpr int MIN_BLOCKS = FITTING < 1 ? 1 : FITTING < WANTED ? FITTING : WANTED;

struct columns {
    const T *x;  // the thread's first column
    int width;   // of the thread's columns, those that exist
    gk_i64 step; // from row to row
    gk_i64 end;  // of the block's rows
};

GK_DEVICE void read(vector<VECTOR> (&v)[UNROLL], const columns &c, gk_i64 first, bool inside)
{
    const T *from = c.x + first * c.step;
    if (inside && c.width == VEC) {
        GK_UNROLL
        for (int u = 0; u < UNROLL; u++) {
            v[u] = read_vector<VECTOR>(from + u * ROWS * c.step);
        }
        return;
    }
    GK_UNROLL
    for (int u = 0; u < UNROLL; u++) {
        v[u] = no_elements<VECTOR>();
        if (first + u * ROWS < c.end) {
            if (c.width == VEC) {
                v[u] = read_vector<VECTOR>(from + u * ROWS * c.step);
            } else {
                GK_UNROLL
                for (int i = 0; i < VEC; i++) {
                    if (i < c.width) {
                        v[u].items[i] = from[u * ROWS * c.step + i];
                    }
                }
            }
        }
    }
}

GK_DEVICE void take_rows(state (&s)[VEC], const vector<VECTOR> (&v)[UNROLL], gk_i64 first)
{
    GK_UNROLL
    for (int i = 0; i < VEC; i++) {
        value wide[UNROLL];
        GK_UNROLL
        for (int u = 0; u < UNROLL; u++) {
            wide[u] = widen(v[u].items[i]);
        }
        take(s[i], wide, first, ROWS);
    }
}

// What all splits have of one place of the tile, in their order.
GK_DEVICE state merge_splits(const state *from, gk_u32 splits)
{
    constexpr int AHEAD = 16; // under way together
    state s = identity();
    GK_NO_UNROLL
    for (gk_u32 first = 0; first < splits; first += AHEAD) {
        state parts[AHEAD];
        GK_UNROLL
        for (int i = 0; i < AHEAD; i++) {
            parts[i] = identity();
            if (first + i < splits) {
                parts[i] = from[(gk_i64)(first + i) * TILE];
            }
        }
        GK_UNROLL
        for (int i = 0; i < AHEAD; i++) {
            s = merge(s, parts[i]);
        }
    }
    return s;
}

} // namespace gk

GK_KERNEL(THREADS, gk::MIN_BLOCKS, gk_reduce_args, args)
{
    using namespace gk;
    GK_DYNAMIC_SHARED(shared);

    const gk_u32 tiles_across = (gk_u32)((args.inner + TILE - 1) / TILE);
    const gk_u32 tiles = (gk_u32)divide(args.outputs, args.inner) * tiles_across;
    gk_u32 tile = blockIdx.x;
    gk_u32 split = 0;
    gk_u32 splits = 1;
    if (gridDim.x != tiles) {
        splits = gridDim.x / tiles;
        tile = blockIdx.x / splits;
        split = blockIdx.x % splits;
    }
    const gk_u32 outer = tile / tiles_across;
    const gk_i64 first_column = (gk_i64)(tile - outer * tiles_across) * TILE;
    const int inner_axis = (int)args.n_kept - 1;
    const offsets at = locate_kept(args, outer, inner_axis);
    const gk_i64 out_step = args.kept_out[inner_axis];

    const int lane = (int)(threadIdx.x % LANES);
    const int row = (int)(threadIdx.x / LANES);
    constexpr int STEP = ROWS * UNROLL;
    const gk_i64 column = first_column + lane * VEC;
    const gk_i64 left = args.inner - column;
    columns c = {(const T *)args.x + at.x + column, left < VEC ? (int)left : VEC, args.step,
                 args.length};
    gk_i64 step_first = 0;
    if (splits > 1) {
        const gk_i64 steps = (args.length + STEP - 1) / STEP;
        const gk_i64 behind = share_of(steps, split + 1, splits) * STEP;
        step_first = share_of(steps, split, splits) * STEP;
        c.end = behind < c.end ? behind : c.end;
    }

    state s[VEC];
    GK_UNROLL
    for (int i = 0; i < VEC; i++) {
        s[i] = identity();
    }
    if (c.width > 0 && lane % (PREFETCH_LINE / VECTOR) == 0 &&
        prefetch_share(STEP * TILE * SIZE) > 0) {
        for (gk_i64 r = step_first + row; r < step_first + STEP && r < c.end; r += ROWS) {
            prefetch_l2(c.x + r * c.step);
        }
    }
    grid_begin();
    if (c.width > 0) {
        GK_NO_UNROLL
        for (; step_first < c.end; step_first += STEP) {
            vector<VECTOR> v[UNROLL];
            read(v, c, step_first + row, step_first + STEP <= c.end);
            take_rows(s, v, step_first + row);
        }
    }

    if (ROWS == 1 && splits == 1) {
        GK_UNROLL
        for (int i = 0; i < VEC; i++) {
            if (i < c.width) {
                store(args, at.out + (column + i) * out_step, s[i]);
            }
        }
        return;
    }
    // Place i of the tile is column i % LANES * VEC + i / LANES: no two lanes meet in a bank.
    state *const places = (state *)shared;
    GK_UNROLL
    for (int i = 0; i < VEC; i++) {
        places[(row * VEC + i) * LANES + lane] = s[i];
    }
    __syncthreads();
    GK_NO_UNROLL
    for (int rows = ROWS / 2; rows > 0; rows /= 2) {
        GK_NO_UNROLL
        for (int i = (int)threadIdx.x; i < rows * TILE; i += THREADS) {
            places[i] = merge(places[i], places[rows * TILE + i]);
        }
        __syncthreads();
    }
    state *const partials = (state *)args.partials + (gk_i64)tile * splits * TILE;
    GK_NO_UNROLL
    for (int i = (int)threadIdx.x; i < TILE; i += THREADS) {
        const state all = places[i];
        const gk_i64 to = first_column + i % LANES * VEC + i / LANES;
        if (splits > 1) {
            partials[(gk_i64)split * TILE + i] = all;
        } else if (to < args.inner) {
            store(args, at.out + to * out_step, all);
        }
    }
    if (splits == 1 || !is_last(args.tickets + tile, splits, (gk_u32 *)(places + ROWS * TILE))) {
        return;
    }
    GK_NO_UNROLL
    for (int i = (int)threadIdx.x; i < TILE; i += THREADS) {
        const gk_i64 to = first_column + i % LANES * VEC + i / LANES;
        if (to < args.inner) {
            store(args, at.out + to * out_step, merge_splits(partials + i, splits));
        }
    }
}
