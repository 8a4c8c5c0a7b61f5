// Matrix product on the ordinary arithmetic units: every dtype, every stride, every alignment.
// f32, f64 and i32 go from global to shared memory by cp.async, STAGES tiles deep; narrower types
// pass through registers and are widened on the way. Each thread keeps THREAD_M x THREAD_N sums.
// SLICE_K groups of warps share the depth of every tile and add up in shared memory at the end.
#include "gk/matmul_args.h"

#include "gk/epilogue.cuh"
#include "gk/prefetch.cuh"

namespace gk {

typedef typename accumulator<A_TYPE>::type Acc;

template <class T, int N> struct alignas(sizeof(T) * N) pack {
    T v[N];
};

// Stores a vector in one access; `to` is aligned to its size.
template <class T, int N> GK_DEVICE void store_pack(void *to, const pack<T, N> &x)
{
    if constexpr (sizeof(x) == 16) {
        *(uint4 *)to = *(const uint4 *)&x;
    } else if constexpr (sizeof(x) == 8) {
        *(uint2 *)to = *(const uint2 *)&x;
    } else {
        *(pack<T, N> *)to = x;
    }
}

GK_DEVICE constexpr int smaller(int a, int b)
{
    return a < b ? a : b;
}

GK_DEVICE constexpr int larger(int a, int b)
{
    return a > b ? a : b;
}

GK_DEVICE constexpr int ceil_div(int a, int b)
{
    return (a + b - 1) / b;
}

// The largest power of two that is at most `limit` and divides `length`.
GK_DEVICE constexpr int vector_width(int limit, int length)
{
    int width = 1;
    while (2 * width <= limit && length % (2 * width) == 0) {
        width *= 2;
    }
    return width;
}

constexpr int SLICE_THREADS = (BLOCK_M / THREAD_M) * (BLOCK_N / THREAD_N);
constexpr int THREADS = SLICE_THREADS * SLICE_K;
constexpr int SLICE_DEPTH = BLOCK_K / SLICE_K;
// Whether a small grid lets the next kernel start from the main loop, too. Kernels of several waves
// run slower with that instruction in it, and have fewer slices.
constexpr bool EARLY_IN_LOOP = SLICE_K >= 4;
// Whether the first tiles are asked for. Where a thread has more sums, products take the time, and
// their loop is compiled to a slower one.
constexpr bool ASKS = THREAD_M * THREAD_N <= 32;

// Lanes of a warp along M: of the shapes that tile the block, the one nearest to a square warp
// tile, which reads the fewest distinct words of shared memory.
GK_DEVICE constexpr int lanes_along_m()
{
    int best = 0;
    for (int lanes = 1; lanes <= 32; lanes *= 2) {
        const int warp_m = lanes * THREAD_M;
        const int warp_n = 32 / lanes * THREAD_N;
        if (BLOCK_M % warp_m != 0 || BLOCK_N % warp_n != 0) {
            continue;
        }
        if (best == 0 || warp_m + warp_n < best * THREAD_M + 32 / best * THREAD_N) {
            best = lanes;
        }
    }
    return best;
}

constexpr int LANES_M = lanes_along_m();
static_assert(LANES_M != 0, "no arrangement of lanes tiles the block");
constexpr int LANES_N = 32 / LANES_M;
constexpr int WARPS_M = BLOCK_M / (LANES_M * THREAD_M);
static_assert(BLOCK_M % THREAD_M == 0 && BLOCK_N % THREAD_N == 0, "thread tile divides block tile");
static_assert(SLICE_THREADS % 32 == 0 && THREADS <= 1024, "whole warps, at most 1024 threads");
static_assert(BLOCK_K % SLICE_K == 0 && SLICE_DEPTH % 2 == 0 && SLICE_DEPTH >= 4,
              "a slice's depth is even, and its steps have room for the copies");
static_assert(STAGES >= 2, "a tile is filled while another is read");

// Widest fragment loads along M and N, in elements: 16 bytes of accumulators.
constexpr int FRAGMENT_M = vector_width(16 / (int)sizeof(Acc), THREAD_M);
constexpr int FRAGMENT_N = vector_width(16 / (int)sizeof(Acc), THREAD_N);

GK_DEVICE float multiply_add(float a, float b, float c)
{
    return fmaf(a, b, c);
}

GK_DEVICE double multiply_add(double a, double b, double c)
{
    return fma(a, b, c);
}

GK_DEVICE int multiply_add(int a, int b, int c)
{
    return (int)((gk_u32)a * (gk_u32)b + (gk_u32)c);
}

enum { ALONG_ROWS = 0, ALONG_K = 1, NOWHERE = 2 };

// Brings tiles of one operand, ROWS of M or N times BLOCK_K of K, into shared memory as
// [k][row] accumulator values. CONTIGUOUS says along which axis the operand's elements adjoin.
// Rows beyond the operand are left out where rows adjoin, else read from its last: what they add up
// to is never stored. Beyond K everything is zero. The tile that K may cut is the first to be read,
// so that the loop over the others has nothing to check.
template <int CONTIGUOUS, int ALIGN, int ROWS> struct tile_loader {
    typedef A_TYPE T;
    static constexpr int SIZE = (int)sizeof(T);
    static constexpr bool ASYNC = SIZE >= 4;
    static constexpr int SHARE = larger(1, ROWS *BLOCK_K / THREADS);
    static constexpr int LIMIT = smaller(larger(ALIGN, SIZE), 16) / SIZE;
    static constexpr int VEC_R =
        CONTIGUOUS == ALONG_ROWS ? vector_width(ASYNC ? LIMIT : smaller(LIMIT, SHARE), ROWS) : 1;
    static constexpr int VEC_K =
        CONTIGUOUS == ALONG_K && !ASYNC ? vector_width(smaller(LIMIT, SHARE), BLOCK_K) : 1;
    static constexpr int VEC = VEC_R * VEC_K;
    static constexpr int UNITS_R = ROWS / VEC_R;
    static constexpr int UNITS_K = BLOCK_K / VEC_K;
    // Eight lanes along K read 32 bytes of a row at least, and with rows 16 bytes longer than a
    // multiple of 128 they write to different banks.
    static constexpr int LINE_K = vector_width(8, UNITS_K);
    static constexpr int LINES_R =
        CONTIGUOUS == ALONG_ROWS ? smaller(UNITS_R, THREADS) : smaller(UNITS_R, THREADS / LINE_K);
    static constexpr int LINES_K =
        CONTIGUOUS == ALONG_ROWS ? smaller(UNITS_K, THREADS / LINES_R) : LINE_K;
    static constexpr bool IDLE = LINES_R * LINES_K < THREADS;
    static constexpr int STEPS_R = ceil_div(UNITS_R, LINES_R);
    static constexpr int STEPS_K = ceil_div(UNITS_K, LINES_K);
    static constexpr int POINTERS = CONTIGUOUS == ALONG_ROWS ? 1 : STEPS_R;
    static constexpr int PITCH = ROWS + (CONTIGUOUS == ALONG_ROWS ? 0 : 16 / (int)sizeof(Acc));
    static constexpr int TILE = BLOCK_K * PITCH;
    // Of many copies the addresses of some are known ahead.
    static constexpr int REGISTERS =
        2 * POINTERS + (ASYNC ? 2 * larger(STEPS_R * STEPS_K - 16, 0) : STEPS_R * STEPS_K * VEC);

    const T *source[POINTERS];
    gk_i64 k_stride;
    int row;       // first row, of the tile, that this thread copies
    int k;         // first k likewise
    int rows_left; // rows of the tile that exist
    bool active;
    pack<T, VEC> staged[ASYNC ? 1 : STEPS_R * STEPS_K];

    GK_DEVICE void init(const void *base, gk_i64 rows, gk_i64 row_stride, gk_i64 stride_k,
                        gk_i64 first_row, gk_i64 first_k)
    {
        const gk_u32 thread = threadIdx.x;
        const int line_r = (int)(CONTIGUOUS == ALONG_ROWS ? thread % LINES_R : thread / LINES_K);
        const int line_k = (int)(CONTIGUOUS == ALONG_ROWS ? thread / LINES_R : thread % LINES_K);
        active = !IDLE || (line_r < LINES_R && line_k < LINES_K);
        row = line_r * VEC_R;
        k = line_k * VEC_K;
        rows_left = (int)(rows - first_row < ROWS ? rows - first_row : ROWS);
        k_stride = CONTIGUOUS == ALONG_K ? 1 : stride_k;
        GK_UNROLL
        for (int i = 0; i < POINTERS; i++) {
            int r = row + i * LINES_R * VEC_R;
            if (CONTIGUOUS != ALONG_ROWS) {
                r = r < rows_left ? r : rows_left - 1;
            }
            const gk_i64 stride = CONTIGUOUS == ALONG_ROWS ? 1 : row_stride;
            source[i] = (const T *)base + (first_row + r) * stride + (first_k + k) * k_stride;
        }
    }

    GK_DEVICE bool has(int step_r, int step_k) const
    {
        const int r = row + step_r * LINES_R * VEC_R;
        const bool row_exists =
            CONTIGUOUS == ALONG_ROWS ? r < rows_left : UNITS_R % LINES_R == 0 || r < ROWS;
        return active && row_exists &&
               (UNITS_K % LINES_K == 0 || k + step_k * LINES_K * VEC_K < BLOCK_K);
    }

    GK_DEVICE const T *address(int step_r, int step_k) const
    {
        if constexpr (CONTIGUOUS == ALONG_ROWS) {
            return source[0] + step_r * (LINES_R * VEC_R) + step_k * LINES_K * k_stride;
        } else {
            return source[step_r] + step_k * (LINES_K * VEC_K) * k_stride;
        }
    }

    GK_DEVICE Acc *place(Acc *tile, int step_r, int step_k) const
    {
        return tile + (k + step_k * LINES_K * VEC_K) * PITCH + row + step_r * LINES_R * VEC_R;
    }

    // Goes on by so many tiles.
    GK_DEVICE void move(gk_i64 tiles)
    {
        GK_UNROLL
        for (int i = 0; i < POINTERS; i++) {
            source[i] += tiles * BLOCK_K * k_stride;
        }
    }

    // Asks for a tile of which the first k_exists of K exist.
    GK_DEVICE void prefetch(int k_exists) const
    {
        const bool is_first = CONTIGUOUS == NOWHERE || (CONTIGUOUS == ALONG_ROWS ? row : k) == 0;
        GK_UNROLL
        for (int r = 0; r < STEPS_R; r++) {
            GK_UNROLL
            for (int s = 0; s < STEPS_K; s++) {
                if (has(r, s) && k + s * LINES_K * VEC_K < k_exists) {
                    prefetch_piece<VEC * SIZE>(address(r, s), is_first);
                }
            }
        }
    }

    // Starts reading a tile of which the first k_exists of K exist.
    GK_DEVICE void read_cut(Acc *tile, int k_exists)
    {
        GK_UNROLL
        for (int r = 0; r < STEPS_R; r++) {
            GK_UNROLL
            for (int s = 0; s < STEPS_K; s++) {
                if (!has(r, s)) {
                    continue;
                }
                const int left = k_exists - (k + s * LINES_K * VEC_K);
                if constexpr (ASYNC) {
                    cp_async<VEC * SIZE>(place(tile, r, s), address(r, s),
                                         left > 0 ? VEC * SIZE : 0);
                } else {
                    pack<T, VEC> &into = staged[r * STEPS_K + s];
                    const T *from = address(r, s);
                    if (left >= VEC_K) {
                        into = *(const pack<T, VEC> *)from;
                    } else {
                        GK_UNROLL
                        for (int e = 0; e < VEC; e++) {
                            into.v[e] = VEC_K > 1 && e < left ? from[e] : T{};
                        }
                    }
                }
            }
        }
    }

    // Starts reading a tile that exists in full, if `exists`, and goes on to the next.
    GK_DEVICE void read(Acc *tile, bool exists)
    {
        GK_UNROLL
        for (int r = 0; r < STEPS_R; r++) {
            GK_UNROLL
            for (int s = 0; s < STEPS_K; s++) {
                const bool go = exists && has(r, s);
                if constexpr (ASYNC) {
                    cp_async_if<VEC * SIZE>(place(tile, r, s), address(r, s), go);
                } else if (go) {
                    staged[r * STEPS_K + s] = *(const pack<T, VEC> *)address(r, s);
                }
            }
        }
        move(1);
    }

    // Finishes what read() began, for types that pass through registers.
    GK_DEVICE void write(Acc *tile) const
    {
        if constexpr (!ASYNC) {
            GK_UNROLL
            for (int i = 0; i < STEPS_R * STEPS_K; i++) {
                const int r = i / STEPS_K;
                const int s = i % STEPS_K;
                if (!has(r, s)) {
                    continue;
                }
                Acc *to = place(tile, r, s);
                constexpr int WIDTH = smaller(VEC_R, 16 / (int)sizeof(Acc));
                GK_UNROLL
                for (int e = 0; e < VEC; e += WIDTH) {
                    pack<Acc, WIDTH> wide;
                    GK_UNROLL
                    for (int w = 0; w < WIDTH; w++) {
                        wide.v[w] = load_as<Acc>(staged[i].v[e + w]);
                    }
                    *(pack<Acc, WIDTH> *)(to + (VEC_K > 1 ? e * PITCH : e)) = wide;
                }
            }
        }
    }
};

typedef tile_loader<A_LAYOUT == 0   ? ALONG_K
                    : A_LAYOUT == 1 ? ALONG_ROWS
                                    : NOWHERE,
                    A_ALIGN, BLOCK_M>
    a_loader;
typedef tile_loader<B_LAYOUT == 0   ? ALONG_ROWS
                    : B_LAYOUT == 1 ? ALONG_K
                                    : NOWHERE,
                    B_ALIGN, BLOCK_N>
    b_loader;
constexpr int STAGE = a_loader::TILE + b_loader::TILE;

// The registers a thread is expected to need.
constexpr int REGISTERS =
    smaller(255, (THREAD_M * THREAD_N + 2 * (THREAD_M + THREAD_N)) * (int)sizeof(Acc) / 4 +
                     a_loader::REGISTERS + b_loader::REGISTERS + 48);

// The blocks that fit on a multiprocessor: its warps are dealt to four partitions, each of which
// has a quarter of the 65536 registers.
GK_DEVICE constexpr int blocks_that_fit()
{
    int blocks = smaller(1024 / THREADS, 4);
    while (blocks > 1 &&
           ceil_div(blocks * THREADS, 128) * 128 * (ceil_div(REGISTERS, 8) * 8) > 65536) {
        blocks--;
    }
    return blocks;
}
constexpr int MIN_BLOCKS = blocks_that_fit();

// Where a thread's sums lie in the block's tile: fragments of FRAGMENT_M rows and FRAGMENT_N
// columns, the fragments of neighbouring lanes side by side.
struct thread_place {
    int row;
    int col;

    GK_DEVICE void init(int thread)
    {
        const int lane = (int)((gk_u32)thread % 32);
        const int warp = (int)((gk_u32)thread / 32);
        // Pairs of lanes along M first: each quarter of a warp then reads few distinct words.
        const int lane_m = LANES_M == 1 ? 0 : (lane & 1) + 2 * (int)((gk_u32)lane / (2 * LANES_N));
        const int lane_n = LANES_M == 1 ? lane : (int)((gk_u32)lane / 2 % LANES_N);
        row = (int)((gk_u32)warp % WARPS_M) * (LANES_M * THREAD_M) + lane_m * FRAGMENT_M;
        col = (int)((gk_u32)warp / WARPS_M) * (LANES_N * THREAD_N) + lane_n * FRAGMENT_N;
    }

    static GK_DEVICE int row_offset(int i)
    {
        return i / FRAGMENT_M * (LANES_M * FRAGMENT_M) + i % FRAGMENT_M;
    }

    static GK_DEVICE int col_offset(int j)
    {
        return j / FRAGMENT_N * (LANES_N * FRAGMENT_N) + j % FRAGMENT_N;
    }
};

GK_DEVICE void load_fragments(Acc (&a)[THREAD_M], Acc (&b)[THREAD_N], const Acc *a_row,
                              const Acc *b_row)
{
    GK_UNROLL
    for (int i = 0; i < THREAD_M; i += FRAGMENT_M) {
        const pack<Acc, FRAGMENT_M> x =
            *(const pack<Acc, FRAGMENT_M> *)(a_row + thread_place::row_offset(i));
        GK_UNROLL
        for (int e = 0; e < FRAGMENT_M; e++) {
            a[i + e] = x.v[e];
        }
    }
    GK_UNROLL
    for (int j = 0; j < THREAD_N; j += FRAGMENT_N) {
        const pack<Acc, FRAGMENT_N> x =
            *(const pack<Acc, FRAGMENT_N> *)(b_row + thread_place::col_offset(j));
        GK_UNROLL
        for (int e = 0; e < FRAGMENT_N; e++) {
            b[j + e] = x.v[e];
        }
    }
}

// sums += a * b, back and forth along the shorter side, so that neighbouring operations share a
// factor: the register file feeds a multiply-add at full rate only if one operand is still at hand.
GK_DEVICE void multiply_fragments(const Acc (&a)[THREAD_M], const Acc (&b)[THREAD_N],
                                  Acc (&sums)[THREAD_M][THREAD_N])
{
    constexpr bool ALONG_M = THREAD_M < THREAD_N;
    constexpr int SHORT = ALONG_M ? THREAD_M : THREAD_N;
    constexpr int LONG = ALONG_M ? THREAD_N : THREAD_M;
    GK_UNROLL
    for (int l = 0; l < LONG; l++) {
        GK_UNROLL
        for (int step = 0; step < SHORT; step++) {
            const int s = l % 2 == 0 ? step : SHORT - 1 - step;
            const int i = ALONG_M ? s : l;
            const int j = ALONG_M ? l : s;
            sums[i][j] = multiply_add(a[i], b[j], sums[i][j]);
        }
    }
}

// The finished sums are handed on as vectors along the axis on which C is contiguous.
constexpr bool OUT_ALONG_M = C_LAYOUT == 1;
constexpr int OUT = OUT_ALONG_M ? FRAGMENT_M : FRAGMENT_N;
constexpr int VECTORS = THREAD_M * THREAD_N / OUT;
constexpr int OWN_VECTORS = ceil_div(VECTORS, SLICE_K);
constexpr int STORE =
    C_LAYOUT == 2 ? 1 : smaller(OUT, larger(1, smaller(C_ALIGN, 16) / (int)sizeof(C_TYPE)));

// Thread-relative place of the first element of vector v.
GK_DEVICE int vector_row(int v)
{
    return thread_place::row_offset(OUT_ALONG_M ? v % (THREAD_M / OUT) * OUT
                                                : v / (THREAD_N / OUT));
}

GK_DEVICE int vector_col(int v)
{
    return thread_place::col_offset(OUT_ALONG_M ? v / (THREAD_M / OUT)
                                                : v % (THREAD_N / OUT) * OUT);
}

GK_DEVICE pack<Acc, OUT> take_vector(const Acc (&sums)[THREAD_M][THREAD_N], int v)
{
    pack<Acc, OUT> x;
    GK_UNROLL
    for (int e = 0; e < OUT; e++) {
        x.v[e] = OUT_ALONG_M ? sums[v % (THREAD_M / OUT) * OUT + e][v / (THREAD_M / OUT)]
                             : sums[v / (THREAD_N / OUT)][v % (THREAD_N / OUT) * OUT + e];
    }
    return x;
}

// Applies the epilogue to one vector that lies inside C and stores it.
GK_DEVICE void store_vector(const gk_matmul_args &args, const pack<Acc, OUT> &x, gk_i64 row,
                            gk_i64 col)
{
    C_TYPE *c = (C_TYPE *)args.c + row * (C_LAYOUT == 1 ? 1 : args.c_row_stride) +
                col * (C_LAYOUT == 0 ? 1 : args.c_col_stride);
    GK_UNROLL
    for (int first = 0; first < OUT; first += STORE) {
        pack<C_TYPE, STORE> y;
        GK_UNROLL
        for (int e = 0; e < STORE; e++) {
            const int i = first + e;
            y.v[e] = store_as<C_TYPE>(matmul_epilogue<Acc>(
                args, x.v[i], row + (OUT_ALONG_M ? i : 0), col + (OUT_ALONG_M ? 0 : i)));
        }
        store_pack(c + first * (C_LAYOUT == 2 ? args.c_col_stride : 1), y);
    }
}

// Stores one element if it lies inside C.
GK_DEVICE void store_element(const gk_matmul_args &args, Acc x, gk_i64 row, gk_i64 col)
{
    if (row < args.m && col < args.n) {
        ((C_TYPE *)args.c)[row * args.c_row_stride + col * args.c_col_stride] =
            store_as<C_TYPE>(matmul_epilogue<Acc>(args, x, row, col));
    }
}

// Partials of this many splits are read at once, so that a long chain of splits does not wait for
// memory split by split.
constexpr int READ_AHEAD = larger(1, 16 / OWN_VECTORS);

// own = the sum over all splits, in their order. `from`: the thread's first vector in split 0.
GK_DEVICE void sum_partials(pack<Acc, OUT> (&own)[OWN_VECTORS], const pack<Acc, OUT> *from,
                            gk_i64 split_vectors, gk_u32 splits, int slice)
{
    GK_UNROLL
    for (int o = 0; o < OWN_VECTORS; o++) {
        own[o] = pack<Acc, OUT>{};
    }
    GK_NO_UNROLL
    for (gk_u32 first = 0; first < splits; first += READ_AHEAD) {
        pack<Acc, OUT> ahead[READ_AHEAD][OWN_VECTORS];
        GK_UNROLL
        for (int s = 0; s < READ_AHEAD; s++) {
            GK_UNROLL
            for (int o = 0; o < OWN_VECTORS; o++) {
                const int v = o * SLICE_K + slice;
                const bool exists = first + s < splits && (VECTORS % SLICE_K == 0 || v < VECTORS);
                if (exists) {
                    ahead[s][o] = from[s * split_vectors + v * SLICE_THREADS];
                } else {
                    ahead[s][o] = pack<Acc, OUT>{};
                }
            }
        }
        GK_UNROLL
        for (int s = 0; s < READ_AHEAD; s++) {
            GK_UNROLL
            for (int o = 0; o < OWN_VECTORS; o++) {
                GK_UNROLL
                for (int e = 0; e < OUT; e++) {
                    own[o].v[e] += ahead[s][o].v[e];
                }
            }
        }
        from += READ_AHEAD * split_vectors;
    }
}

// Where an epilogue is short, tiles inside C are stored straight from registers. All else goes
// through shared memory, EDGE_VECTORS of each thread at a time, because a loop over it costs a
// fraction of the code that registers, unrolled, would.
constexpr bool SHORT_EPILOGUE = ACTIVATION <= ACT_RELU && C_LAYOUT != 2 && sizeof(C_TYPE) > 1;
constexpr bool LOOP_STORES_VECTORS = !SHORT_EPILOGUE && C_LAYOUT != 2 && sizeof(C_TYPE) > 1;
constexpr int EDGE_VECTORS =
    smaller(OWN_VECTORS, STAGES *STAGE *(int)sizeof(Acc) / (THREADS * (int)sizeof(pack<Acc, OUT>)));
static_assert(EDGE_VECTORS > 0, "the stages hold a vector of every thread");

} // namespace gk

GK_KERNEL(gk::THREADS, gk::MIN_BLOCKS, gk_matmul_args, args)
{
    using namespace gk;
    GK_DYNAMIC_SHARED(shared);
    Acc *tiles = (Acc *)shared;

    const gk_u32 tiles_m = (gk_u32)((args.m + BLOCK_M - 1) / BLOCK_M);
    const gk_u32 tiles_n = (gk_u32)((args.n + BLOCK_N - 1) / BLOCK_N);
    const gk_u32 splits = (gk_u32)args.split_k;
    const gk_u32 tile = blockIdx.x / splits;
    const gk_u32 split = blockIdx.x % splits;
    const gk_u32 group = args.group_m < tiles_m ? (gk_u32)args.group_m : tiles_m;
    const gk_u32 first_tile_m = tile / (group * tiles_n) * group;
    const gk_u32 group_rows = tiles_m - first_tile_m < group ? tiles_m - first_tile_m : group;
    const gk_u32 in_group = tile % (group * tiles_n);
    const gk_i64 block_row = (gk_i64)(first_tile_m + in_group % group_rows) * BLOCK_M;
    const gk_i64 block_col = (gk_i64)(in_group / group_rows) * BLOCK_N;

    const gk_i64 all_steps = (args.k + BLOCK_K - 1) / BLOCK_K;
    const gk_i64 split_steps = (all_steps + splits - 1) / splits;
    const gk_i64 first_step = split * split_steps;
    const gk_i64 steps =
        all_steps - first_step < split_steps ? all_steps - first_step : split_steps;

    const int slice = SLICE_K == 1 ? 0 : (int)(threadIdx.x / SLICE_THREADS);
    const int slice_thread = SLICE_K == 1 ? (int)threadIdx.x : (int)(threadIdx.x % SLICE_THREADS);
    thread_place place;
    place.init(slice_thread);

    Acc sums[THREAD_M][THREAD_N];
    GK_UNROLL
    for (int i = 0; i < THREAD_M; i++) {
        GK_UNROLL
        for (int j = 0; j < THREAD_N; j++) {
            sums[i][j] = (Acc)0;
        }
    }

    if (steps > 0) {
        a_loader a;
        b_loader b;
        const gk_i64 last_k = (first_step + steps - 1) * BLOCK_K;
        const int k_exists = (int)(args.k - last_k < BLOCK_K ? args.k - last_k : BLOCK_K);
        a.init(args.a, args.m, args.a_row_stride, args.a_col_stride, block_row, last_k);
        b.init(args.b, args.n, args.b_col_stride, args.b_row_stride, block_col, last_k);

        // Each tile is asked for by one of the blocks that read it.
        if (ASKS && block_col == 0) {
            a.prefetch(k_exists);
        }
        if (ASKS && block_row == 0) {
            b.prefetch(k_exists);
        }
        grid_wait(); // nothing is read before
        a.read_cut(tiles, k_exists);
        b.read_cut(tiles + a_loader::TILE, k_exists);
        a.write(tiles);
        b.write(tiles + a_loader::TILE);
        cp_async_commit();
        a.move(1 - steps);
        b.move(1 - steps);
        gk_i64 left = steps - 1; // tiles that are still to be read
        GK_NO_UNROLL
        for (int s = 1; s < STAGES - 1; s++) {
            if (left > 0) {
                a.read(tiles + s * STAGE, true);
                b.read(tiles + s * STAGE + a_loader::TILE, true);
                a.write(tiles + s * STAGE);
                b.write(tiles + s * STAGE + a_loader::TILE);
            }
            cp_async_commit();
            left--;
        }
        const bool early = grid_is_small();
        if (early && left <= 0) {
            grid_launch_next();
        }
        cp_async_wait<STAGES - 2>();
        __syncthreads();

        const int a_offset = slice * SLICE_DEPTH * a_loader::PITCH + place.row;
        const int b_offset = a_loader::TILE + slice * SLICE_DEPTH * b_loader::PITCH + place.col;
        int reading = 0;
        int filling = (STAGES - 1) * STAGE;
        Acc a_fragment[2][THREAD_M];
        Acc b_fragment[2][THREAD_N];
        const Acc *a_from = tiles + a_offset;
        const Acc *b_from = tiles + b_offset;
        load_fragments(a_fragment[0], b_fragment[0], a_from, b_from);

        GK_NO_UNROLL
        for (gk_i64 step = 0; step < steps; step++) {
            GK_UNROLL
            for (int k = 0; k < SLICE_DEPTH; k++) {
                // All threads have read tile `step` but its last fragment is already in registers,
                // so its place may be filled after the barrier.
                if (k == SLICE_DEPTH - 1) {
                    if (left > 0) {
                        a.write(tiles + filling);
                        b.write(tiles + filling + a_loader::TILE);
                    }
                    left--;
                    if constexpr (EARLY_IN_LOOP) {
                        grid_launch_next_if(early && left <= 0);
                    }
                    cp_async_wait<STAGES - 2>();
                    __syncthreads();
                    filling = reading;
                    reading = reading == (STAGES - 1) * STAGE ? 0 : reading + STAGE;
                    a_from = tiles + reading + a_offset;
                    b_from = tiles + reading + b_offset;
                }
                const int next = (k + 1) % SLICE_DEPTH;
                load_fragments(a_fragment[(k + 1) % 2], b_fragment[(k + 1) % 2],
                               a_from + next * a_loader::PITCH, b_from + next * b_loader::PITCH);
                // Each operand is copied at a step of its own: products go on in between.
                if (k == 0) {
                    a.read(tiles + filling, left > 0);
                } else if (k == 2) {
                    b.read(tiles + filling + a_loader::TILE, left > 0);
                    cp_async_commit();
                }
                multiply_fragments(a_fragment[k % 2], b_fragment[k % 2], sums);
            }
        }
        cp_async_wait<0>();
        __syncthreads();
    } else {
        grid_wait();
    }
    grid_launch_next();

    // Vector v of a thread belongs to slice v % SLICE_K, which adds the slices in order.
    pack<Acc, OUT> own[OWN_VECTORS];
    if constexpr (SLICE_K == 1) {
        GK_UNROLL
        for (int v = 0; v < VECTORS; v++) {
            own[v] = take_vector(sums, v);
        }
    } else {
        pack<Acc, OUT> *exchange = (pack<Acc, OUT> *)shared;
        GK_UNROLL
        for (int v = 0; v < VECTORS; v++) {
            exchange[(slice * VECTORS + v) * SLICE_THREADS + slice_thread] = take_vector(sums, v);
        }
        __syncthreads();
        GK_UNROLL
        for (int o = 0; o < OWN_VECTORS; o++) {
            const int v = o * SLICE_K + slice;
            if (VECTORS % SLICE_K != 0 && v >= VECTORS) {
                continue;
            }
            own[o] = exchange[v * SLICE_THREADS + slice_thread];
            GK_UNROLL
            for (int s = 1; s < SLICE_K; s++) {
                const pack<Acc, OUT> x = exchange[(s * VECTORS + v) * SLICE_THREADS + slice_thread];
                GK_UNROLL
                for (int e = 0; e < OUT; e++) {
                    own[o].v[e] += x.v[e];
                }
            }
        }
    }

    if (splits > 1) {
        const gk_i64 tile_vectors = VECTORS * SLICE_THREADS;
        const gk_i64 split_vectors = (gk_i64)tiles_m * tiles_n * tile_vectors;
        pack<Acc, OUT> *partials =
            (pack<Acc, OUT> *)args.partials + tile * tile_vectors + slice_thread;
        GK_UNROLL
        for (int o = 0; o < OWN_VECTORS; o++) {
            const int v = o * SLICE_K + slice;
            if (VECTORS % SLICE_K == 0 || v < VECTORS) {
                partials[split * split_vectors + v * SLICE_THREADS] = own[o];
            }
        }
        thread_fence();
        __syncthreads(); // also ends the reads of the exchange, whose first word serves below
        gk_u64 *arrived = (gk_u64 *)shared;
        if (threadIdx.x == 0) {
            *arrived = atomic_add(args.tickets + tile, 1);
        }
        __syncthreads();
        if (*arrived != splits - 1) {
            return;
        }
        thread_fence();
        sum_partials(own, partials, split_vectors, splits, slice);
        if (threadIdx.x == 0) {
            args.tickets[tile] = 0;
        }
    }

    const gk_i64 row = block_row + place.row;
    const gk_i64 col = block_col + place.col;
    const bool inside = block_row + BLOCK_M <= args.m && block_col + BLOCK_N <= args.n;
    if (SHORT_EPILOGUE && inside) {
        GK_UNROLL
        for (int o = 0; o < OWN_VECTORS; o++) {
            const int v = o * SLICE_K + slice;
            if (VECTORS % SLICE_K == 0 || v < VECTORS) {
                store_vector(args, own[o], row + vector_row(v), col + vector_col(v));
            }
        }
        return;
    }
    __syncthreads();
    pack<Acc, OUT> *edge = (pack<Acc, OUT> *)shared + threadIdx.x;
    GK_UNROLL
    for (int first = 0; first < OWN_VECTORS; first += EDGE_VECTORS) {
        GK_UNROLL
        for (int o = first; o < smaller(first + EDGE_VECTORS, OWN_VECTORS); o++) {
            edge[(o - first) * THREADS] = own[o];
        }
        GK_NO_UNROLL
        for (int o = first; o < smaller(first + EDGE_VECTORS, OWN_VECTORS); o++) {
            const int v = o * SLICE_K + slice;
            if (VECTORS % SLICE_K != 0 && v >= VECTORS) {
                break;
            }
            if (LOOP_STORES_VECTORS && inside) {
                store_vector(args, edge[(o - first) * THREADS], row + vector_row(v),
                             col + vector_col(v));
                continue;
            }
            GK_NO_UNROLL
            for (int e = 0; e < OUT; e++) {
                store_element(args, ((const Acc *)(edge + (o - first) * THREADS))[e],
                              row + vector_row(v) + (OUT_ALONG_M ? e : 0),
                              col + vector_col(v) + (OUT_ALONG_M ? 0 : e));
            }
        }
    }
}
