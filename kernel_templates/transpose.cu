// Moves elements from where x has them to where out wants them, SIZE bytes each, as bits.
//
// The two tensors are contiguous along different axes: a block takes a tile of x in vectors along
// the one, each thread turns what it holds by 90 degrees, and the tile leaves shared memory in
// vectors along the other. A unit is what a thread turns at once: UNIT_R vectors of UNIT_C elements
// become UNIT_C chunks of UNIT_R elements.
//
// COPY: contiguous along the same axis, and rows of vectors go straight across.
#include "gk/transpose_args.h"

#include "gk/prefetch.cuh"
#include "gk/turn.cuh"

namespace gk {

typedef word_of<SIZE>::type element;

constexpr int CAP = larger(VECTOR, SIZE);
constexpr int X_BYTES = smaller(smaller(X_ALIGN, CAP), COPY ? OUT_ALIGN : 16);
constexpr int OUT_BYTES = COPY ? SIZE : smaller(OUT_ALIGN, CAP);
constexpr int UNIT_R = OUT_BYTES / SIZE;
constexpr int UNIT_C = X_BYTES / SIZE;
constexpr int UNITS_C = TILE_C / UNIT_C; // side by side in a tile
constexpr int CHUNKS_R = TILE_R / UNIT_R;
constexpr int UNITS = UNITS_C * CHUNKS_R;
constexpr int CHUNKS = TILE_C * CHUNKS_R;
constexpr int UNITS_THREAD = (UNITS + THREADS - 1) / THREADS;
constexpr int CHUNKS_THREAD = (CHUNKS + THREADS - 1) / THREADS;
constexpr int X_WORDS = words_of(X_BYTES);
constexpr int OUT_WORDS = words_of(OUT_BYTES);
static_assert(TILE_R % UNIT_R == 0 && TILE_C % UNIT_C == 0, "a tile is whole units");

// Where a chunk lies in shared memory. Chunks of one column of x adjoin, but for a permutation
// within 128 bytes that gives lanes that write chunks of adjoining units different banks. Lanes
// that read do so along a column, where it is a permutation of what they read together.
GK_DEVICE int place_of(int c, int chunk_r)
{
    constexpr int LANES = smaller(32, 128 / OUT_BYTES); // whose accesses meet the banks at once
    constexpr int SHIFT = OUT_BYTES < 2 ? 4 : OUT_BYTES < 4 ? 2 : 1;
    const int chunk = c * CHUNKS_R + chunk_r;
    if constexpr (UNIT_C * CHUNKS_R < SHIFT * 2 || CHUNKS * OUT_BYTES < 128) {
        return chunk * OUT_BYTES;
    } else {
        return (chunk ^ (c / UNIT_C % LANES * SHIFT)) * OUT_BYTES;
    }
}

struct tile {
    const element *x; // its first element
    element *out;
    int rows; // that there are
    int cols;
};

GK_DEVICE tile tile_of(const gk_transpose_args &args)
{
    const gk_u32 tiles_c = (gk_u32)((args.cols + TILE_C - 1) / TILE_C);
    const gk_u32 tiles_r = (gk_u32)((args.rows + TILE_R - 1) / TILE_R);
    gk_u32 index = blockIdx.x;
    gk_i64 batch = 0;
    if (BATCHED) {
        batch = index / (tiles_r * tiles_c);
        index -= (gk_u32)batch * (tiles_r * tiles_c);
    }
    const tile_place place = place_of_tile(index, tiles_r, tiles_c, (gk_u32)args.group);
    const gk_i64 r = (gk_i64)place.r * TILE_R;
    const gk_i64 c = (gk_i64)place.c * TILE_C;
    tile t;
    t.x = static_cast<const element *>(args.x) + batch * args.x_batch_stride +
          r * args.x_row_stride + c * args.x_col_stride;
    t.out = static_cast<element *>(args.out) + batch * args.out_batch_stride +
            r * args.out_row_stride + c * args.out_col_stride;
    t.rows = args.rows - r < TILE_R ? (int)(args.rows - r) : TILE_R;
    t.cols = args.cols - c < TILE_C ? (int)(args.cols - c) : TILE_C;
    return t;
}

// Items of a block's `n` columns that threads take in turn: where a thread's first one lies, and
// how far from it the u-th does. Powers of two, so that the one or the other divides.
GK_DEVICE int first_row(int n)
{
    return (int)(threadIdx.x / (gk_u32)n);
}
GK_DEVICE int first_col(int n)
{
    return (int)(threadIdx.x % (gk_u32)n);
}
GK_DEVICE constexpr int rows_on(int n, int u)
{
    return u * THREADS / n;
}
GK_DEVICE constexpr int cols_on(int n, int u)
{
    return u * THREADS % n;
}
static_assert(THREADS % UNITS_C == 0 || UNITS_C % THREADS == 0, "powers of two");
static_assert(THREADS % CHUNKS_R == 0 || CHUNKS_R % THREADS == 0, "powers of two");

// The u-th unit of the thread.
struct unit {
    int r, c; // of its first element in the tile
    bool whole;
    bool some;
};

GK_DEVICE unit unit_of(const tile &t, int u)
{
    unit i;
    i.r = (first_row(UNITS_C) + rows_on(UNITS_C, u)) * UNIT_R;
    i.c = (first_col(UNITS_C) + cols_on(UNITS_C, u)) * UNIT_C;
    i.whole = i.r + UNIT_R <= t.rows && i.c + UNIT_C <= t.cols;
    i.some = i.r < t.rows && i.c < t.cols && !i.whole;
    return i;
}

// A vector's elements adjoin.
template <int ELEMENTS> GK_DEVICE gk_i64 step_of(gk_i64 stride)
{
    return ELEMENTS > 1 ? 1 : stride;
}

// The first element of the thread's first unit.
GK_DEVICE const element *units_of(const gk_transpose_args &args, const tile &t)
{
    return t.x + first_row(UNITS_C) * UNIT_R * args.x_row_stride +
           first_col(UNITS_C) * UNIT_C * step_of<UNIT_C>(args.x_col_stride);
}

// The u-th unit of those.
GK_DEVICE void load(const gk_transpose_args &args, const element *units, int u,
                    gk_u32 (&to)[UNIT_R][X_WORDS])
{
    const element *from = units + rows_on(UNITS_C, u) * UNIT_R * args.x_row_stride +
                          cols_on(UNITS_C, u) * UNIT_C * step_of<UNIT_C>(args.x_col_stride);
    GK_UNROLL
    for (int r = 0; r < UNIT_R; r++) {
        load_global<X_BYTES>(to[r], from + r * args.x_row_stride);
    }
}

// FULL: all units are whole. Loads without conditions are under way together.
template <bool FULL> GK_DEVICE void copy(const gk_transpose_args &args, const tile &t)
{
    alignas(16) gk_u32 held[UNITS_THREAD][UNIT_R][X_WORDS];
    const element *const units = units_of(args, t);
    GK_UNROLL
    for (int u = 0; u < UNITS_THREAD; u++) {
        const unit i = unit_of(t, u);
        if (FULL || i.whole) {
            load(args, units, u, held[u]);
        }
    }
    GK_UNROLL
    for (int u = 0; u < UNITS_THREAD; u++) {
        const unit i = unit_of(t, u);
        const gk_i64 step = step_of<UNIT_C>(args.out_col_stride);
        element *const to = t.out + i.r * args.out_row_stride + i.c * step;
        if (FULL || i.whole) {
            store_global<X_BYTES>(to, held[u][0]);
        } else if (i.some) {
            const element *const from =
                t.x + i.r * args.x_row_stride + i.c * step_of<UNIT_C>(args.x_col_stride);
            GK_NO_UNROLL
            for (int c = 0; i.c + c < t.cols; c++) {
                to[c] = from[c];
            }
        }
    }
}

// The elements there are of a unit at the edge.
GK_DEVICE void take_edge(const gk_transpose_args &args, const tile &t, const unit &i,
                         unsigned char *shared)
{
    GK_NO_UNROLL
    for (int r = i.r; r < i.r + UNIT_R && r < t.rows; r++) {
        const element *const from = t.x + r * args.x_row_stride;
        GK_NO_UNROLL
        for (int c = i.c; c < i.c + UNIT_C && c < t.cols; c++) {
            unsigned char *const chunk = shared + place_of(c, r / UNIT_R);
            reinterpret_cast<element *>(chunk)[r % UNIT_R] =
                from[c * step_of<UNIT_C>(args.x_col_stride)];
        }
    }
}

// What may be asked for before the kernel in front has ended.
GK_DEVICE void prefetch_tile(const gk_transpose_args &args, const tile &t)
{
    if (args.x_col_stride != 1 ||
        (!BATCHED &&
         prefetch_matrix<THREADS>(args.x, args.rows, args.cols * SIZE, args.x_row_stride * SIZE))) {
        return;
    }
    constexpr int LINES = (TILE_C * SIZE + PREFETCH_LINE - 1) / PREFETCH_LINE; // of a row
    constexpr int LANES = smaller(LINES, THREADS);                             // to a row
    if (prefetch_share(TILE_R * TILE_C * SIZE) > 0) {
        for (int r = (int)threadIdx.x / LANES; r < t.rows; r += THREADS / LANES) {
            prefetch_lines(t.x + r * args.x_row_stride, t.cols * SIZE, threadIdx.x % LANES, LANES);
        }
    }
}

template <bool FULL>
GK_DEVICE void take(const gk_transpose_args &args, const tile &t, unsigned char *shared)
{
    alignas(16) gk_u32 held[UNITS_THREAD][UNIT_R][X_WORDS];
    const element *const units = units_of(args, t);
    GK_UNROLL
    for (int u = 0; u < UNITS_THREAD; u++) {
        const unit i = unit_of(t, u);
        if (FULL || i.whole) {
            load(args, units, u, held[u]);
        }
    }
    GK_UNROLL
    for (int u = 0; u < UNITS_THREAD; u++) {
        const unit i = unit_of(t, u);
        if (FULL || i.whole) {
            gk_u32 chunks[UNIT_C][OUT_WORDS];
            turn<SIZE, UNIT_R, UNIT_C>(held[u], chunks);
            GK_UNROLL
            for (int c = 0; c < UNIT_C; c++) {
                vector<OUT_BYTES>::store(shared + place_of(i.c + c, i.r / UNIT_R), chunks[c]);
            }
        } else if (i.some) {
            take_edge(args, t, i, shared);
        }
    }
}

template <bool FULL>
GK_DEVICE void give(const gk_transpose_args &args, const tile &t, const unsigned char *shared)
{
    const gk_i64 r_stride = step_of<UNIT_R>(args.out_row_stride);
    element *const chunks =
        t.out + first_row(CHUNKS_R) * args.out_col_stride + first_col(CHUNKS_R) * UNIT_R * r_stride;
    GK_UNROLL
    for (int u = 0; u < CHUNKS_THREAD; u++) {
        const int c = first_row(CHUNKS_R) + rows_on(CHUNKS_R, u);
        const int chunk_r = first_col(CHUNKS_R) + cols_on(CHUNKS_R, u);
        const int r = chunk_r * UNIT_R;
        if (!FULL && (c >= t.cols || r >= t.rows)) {
            continue;
        }
        const unsigned char *const chunk = shared + place_of(c, chunk_r);
        element *const to = chunks + rows_on(CHUNKS_R, u) * args.out_col_stride +
                            cols_on(CHUNKS_R, u) * UNIT_R * r_stride;
        if (FULL || r + UNIT_R <= t.rows) {
            alignas(16) gk_u32 words[OUT_WORDS];
            vector<OUT_BYTES>::load(words, chunk);
            store_global<OUT_BYTES>(to, words);
        } else {
            GK_NO_UNROLL
            for (int i = 0; r + i < t.rows; i++) {
                to[i] = reinterpret_cast<const element *>(chunk)[i];
            }
        }
    }
}

} // namespace gk

GK_KERNEL(THREADS, 1, gk_transpose_args, args)
{
    const gk::tile t = gk::tile_of(args);
    const bool full = gk::UNITS % THREADS == 0 && gk::CHUNKS % THREADS == 0 && t.rows == TILE_R &&
                      t.cols == TILE_C;
    gk::prefetch_tile(args, t);
    gk::grid_begin();
    if constexpr (COPY) {
        if (full) {
            gk::copy<true>(args, t);
        } else {
            gk::copy<false>(args, t);
        }
    } else {
        GK_DYNAMIC_SHARED(shared);
        if (full) {
            gk::take<true>(args, t, shared);
            __syncthreads();
            gk::give<true>(args, t, shared);
        } else {
            gk::take<false>(args, t, shared);
            __syncthreads();
            gk::give<false>(args, t, shared);
        }
    }
}
