// Matrix product with few rows or few columns. It takes as long as one operand takes to come from
// memory, so that one is read once, many vectors at a time, and all else is small. W is that
// operand and X the other one, both seen as [row][k]: W is B and X is A where C has few rows, and
// the other way round where it has few columns (THIN_N). The warps of a block share K and add up in
// shared memory, in the warps' order; blocks that share K (split_k) do so in device memory.
#include "gk/matmul_args.h"

#include "gk/epilogue.cuh"
#include "gk/hopper.cuh"
#include "gk/prefetch.cuh"

namespace gk {

typedef A_TYPE T;
constexpr int SIZE = (int)sizeof(T);
constexpr bool W_ALONG_K = THIN_N ? A_LAYOUT == 0 : B_LAYOUT == 1; // else rows of W adjoin
constexpr bool X_ALONG_K = THIN_N ? B_LAYOUT == 1 : A_LAYOUT == 0;
constexpr int X_ALIGN = THIN_N ? B_ALIGN : A_ALIGN;

GK_DEVICE constexpr int smaller(int a, int b)
{
    return a < b ? a : b;
}

GK_DEVICE constexpr int larger(int a, int b)
{
    return a > b ? a : b;
}

// 32-bit words that hold `elements` of T.
GK_DEVICE constexpr int words_of(int elements)
{
    return (elements * SIZE + 3) / 4;
}

// A vector lies along the axis on which W is contiguous, LANES lanes side by side on that axis. A
// step of a lane is VECTORS vectors across it, and the UNROLL steps of a warp adjoin along K.
constexpr int VEC = W_VECTOR / SIZE;
constexpr int WORDS = words_of(VEC);
constexpr int LANES_K = W_ALONG_K ? LANES : 32 / LANES;
constexpr int LANES_ROW = 32 / LANES_K;
constexpr int LANE_K = W_ALONG_K ? VEC : VECTORS;
constexpr int LANE_ROWS = W_ALONG_K ? VECTORS : VEC;
constexpr int STEP_K = LANES_K * LANE_K;
constexpr int WARP_K = UNROLL * STEP_K;
constexpr int BLOCK_K = WARPS * WARP_K;
constexpr int BLOCK_ROWS = LANES_ROW * LANE_ROWS;
constexpr int THREADS = WARPS * 32;
constexpr int OUTPUTS = BLOCK_ROWS * TILE;

// With MMA a lane holds its share of 16 x 8 tiles of sums, else LANE_ROWS x TILE sums of its own
// share of K.
constexpr int X_VECTORS = MMA ? TILE / 8 : TILE;
constexpr int X_WORDS = words_of(LANE_K);
constexpr int SUMS = MMA ? LANE_ROWS / 2 * X_VECTORS * 4 : LANE_ROWS * TILE;
static_assert(!MMA || (LANES_K == 4 && LANE_ROWS % 2 == 0 && TILE % 8 == 0 && LANE_K % 4 == 0),
              "the layout of mma.sync fragments");

// Whether it may be that a part of a lane's share of a step exists.
constexpr bool CUT = !W_ALONG_K && K_DIVISOR % VECTORS != 0;

// Elements of X that are loaded one by one are under way in registers of their own; each row of X,
// or each element if they do not adjoin, has an address.
constexpr bool X_BY_VECTORS = X_ALONG_K && !CUT && smaller(X_ALIGN, LANE_K *SIZE) >= 4;
constexpr int X_APART = (X_BY_VECTORS ? 0 : UNROLL * X_VECTORS * (LANE_K - X_WORDS)) +
                        3 * (X_VECTORS - 1) * (X_ALONG_K ? 1 : LANE_K);

// The registers a thread surely makes do with give the number of blocks to fit on a multiprocessor.
constexpr int OTHER_REGISTERS = 40 + (MMA ? 4 : 2) * VECTORS + (SIZE > 1 ? 0 : MMA ? 8 : 32);
// Single elements of W are loaded where they exist, each with what says so and an address.
constexpr int W_APART =
    W_VECTOR >= 4 ? 0 : 3 * UNROLL * VECTORS / 4 + (X_ALONG_K ? 0 : (UNROLL - 1) * X_VECTORS);
constexpr int REGISTERS =
    UNROLL * (VECTORS * WORDS + X_VECTORS * X_WORDS) + X_APART + W_APART + SUMS + OTHER_REGISTERS;
constexpr int MIN_BLOCKS =
    larger(1, smaller(65536 / (THREADS * ((REGISTERS + 7) / 8 * 8)), 1536 / THREADS));

// Reads BYTES that nobody needs again. For 16 the second-level cache fetches FETCH bytes.
template <int BYTES> GK_DEVICE void load_once(gk_u32 (&to)[(BYTES + 3) / 4], const void *from)
{
#ifdef GK_EMULATED
    if constexpr (BYTES == 16) {
        const uint4 x = *(const uint4 *)from;
        to[0] = x.x;
        to[1] = x.y;
        to[2] = x.z;
        to[3] = x.w;
    } else if constexpr (BYTES == 8) {
        const uint2 x = *(const uint2 *)from;
        to[0] = x.x;
        to[1] = x.y;
    } else if constexpr (BYTES == 4) {
        to[0] = *(const gk_u32 *)from;
    } else if constexpr (BYTES == 2) {
        to[0] = *(const gk_u16 *)from;
    } else {
        to[0] = *(const gk_u8 *)from;
    }
#else
#define GK_LOAD_ONCE "ld.global.nc.L1::no_allocate"
    if constexpr (BYTES == 16 && FETCH == 256) {
        asm volatile(GK_LOAD_ONCE ".L2::256B.v4.u32 {%0,%1,%2,%3}, [%4];"
                     : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                     : "l"(from));
    } else if constexpr (BYTES == 16) {
        asm volatile(GK_LOAD_ONCE ".L2::128B.v4.u32 {%0,%1,%2,%3}, [%4];"
                     : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                     : "l"(from));
    } else if constexpr (BYTES == 8) {
        asm volatile(GK_LOAD_ONCE ".v2.u32 {%0,%1}, [%2];" : "=r"(to[0]), "=r"(to[1]) : "l"(from));
    } else if constexpr (BYTES == 4) {
        asm volatile(GK_LOAD_ONCE ".u32 %0, [%1];" : "=r"(to[0]) : "l"(from));
    } else if constexpr (BYTES == 2) {
        gk_u16 x;
        asm volatile(GK_LOAD_ONCE ".u16 %0, [%1];" : "=h"(x) : "l"(from));
        to[0] = x;
    } else {
        asm volatile(GK_LOAD_ONCE ".u8 %0, [%1];" : "=r"(to[0]) : "l"(from));
    }
#endif
}

// The bits of one element.
GK_DEVICE gk_u32 load_bits(const T *from)
{
    if constexpr (SIZE == 4) {
        return *(const gk_u32 *)from;
    } else if constexpr (SIZE == 2) {
        return *(const gk_u16 *)from;
    } else {
        return *(const gk_u8 *)from;
    }
}

// N elements of X along K, of which the first `valid` exist; the others become zero.
template <int N, bool CUT>
GK_DEVICE void load_x(gk_u32 (&to)[words_of(N)], const T *from, gk_i64 stride, int valid)
{
    constexpr int PIECE = smaller(X_ALIGN, N * SIZE);
    if constexpr (X_ALONG_K && PIECE >= 4 && !CUT) {
        GK_UNROLL
        for (int i = 0; i < N * SIZE / 4; i += PIECE / 4) {
            if constexpr (PIECE == 16) {
                const uint4 x = ((const uint4 *)from)[i / 4];
                to[i] = x.x;
                to[i + 1] = x.y;
                to[i + 2] = x.z;
                to[i + 3] = x.w;
            } else if constexpr (PIECE == 8) {
                const uint2 x = ((const uint2 *)from)[i / 2];
                to[i] = x.x;
                to[i + 1] = x.y;
            } else {
                to[i] = ((const gk_u32 *)from)[i];
            }
        }
    } else {
        GK_UNROLL
        for (int i = 0; i < words_of(N); i++) {
            to[i] = 0;
        }
        GK_UNROLL
        for (int i = 0; i < N; i++) {
            if (!CUT || i < valid) {
                const gk_u32 bits = load_bits(from + (X_ALONG_K ? i : i * stride));
                to[i * SIZE / 4] |= bits << (i * SIZE % 4 * 8);
            }
        }
    }
}

template <class A, class B> struct same {
    static constexpr bool value = false;
};
template <class A> struct same<A, A> {
    static constexpr bool value = true;
};

// Two adjoining 8-bit floats as two f16, exactly.
template <class E> GK_DEVICE gk_u32 widen_pair(gk_u16 pair)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
    gk_u32 wide;
    if constexpr (same<E, e4m3>::value) {
        asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(wide) : "h"(pair));
    } else {
        asm("cvt.rn.f16x2.e5m2x2 %0, %1;" : "=r"(wide) : "h"(pair));
    }
    return wide;
#else
    const E low = {(gk_u8)pair};
    const E high = {(gk_u8)(pair >> 8)};
    return f32_to_f16_bits(load_as<float>(low)) | (gk_u32)f32_to_f16_bits(load_as<float>(high))
                                                      << 16;
#endif
}

// Element `e` of a vector.
template <int N> GK_DEVICE float element(const gk_u32 (&words)[N], int e)
{
    if constexpr (SIZE == 4) {
        return bits_to_f32(words[e]);
    } else if constexpr (same<T, bf16>::value) {
        const gk_u32 word = words[e / 2];
        return bits_to_f32(e % 2 == 0 ? word << 16 : word & 0xffff0000u);
    } else if constexpr (same<T, f16>::value) {
        return f16_bits_to_f32((gk_u16)(words[e / 2] >> (e % 2 * 16)));
    } else {
        const gk_u32 wide = widen_pair<T>((gk_u16)(words[e / 4] >> (e / 2 % 2 * 16)));
        return f16_bits_to_f32((gk_u16)(wide >> (e % 2 * 16)));
    }
}

// sums += W * X on what a lane holds; sums[row * TILE + column of X].
GK_DEVICE void multiply_lane(float (&sums)[SUMS], const gk_u32 (&w)[VECTORS][WORDS],
                             const gk_u32 (&x)[X_VECTORS][X_WORDS])
{
    GK_UNROLL
    for (int k = 0; k < LANE_K; k++) {
        float from_x[TILE];
        GK_UNROLL
        for (int t = 0; t < TILE; t++) {
            from_x[t] = element(x[t], k);
        }
        GK_UNROLL
        for (int row = 0; row < LANE_ROWS; row++) {
            const float from_w =
                W_ALONG_K ? element(w[W_ALONG_K ? row : 0], k) : element(w[W_ALONG_K ? 0 : k], row);
            GK_UNROLL
            for (int t = 0; t < TILE; t++) {
                sums[row * TILE + t] = fmaf(from_w, from_x[t], sums[row * TILE + t]);
            }
        }
    }
}

// d += 16 rows of W times 8 of X over 16 of K.
GK_DEVICE void multiply_16(float (&d)[4], const gk_u32 (&a)[4], const gk_u32 (&b)[2])
{
    if constexpr (same<T, bf16>::value) {
        mma_m16n8k16_bf16(d, a, b);
    } else {
        mma_m16n8k16_f16(d, a, b);
    }
}

// Two words of 16-bit elements: words 2 pair and 2 pair + 1, or the halves of an 8-bit word.
template <int N> GK_DEVICE void take_pair(gk_u32 (&to)[2], const gk_u32 (&words)[N], int pair)
{
    if constexpr (SIZE == 1) {
        to[0] = widen_pair<T>((gk_u16)words[pair]);
        to[1] = widen_pair<T>((gk_u16)(words[pair] >> 16));
    } else {
        to[0] = words[2 * pair];
        to[1] = words[2 * pair + 1];
    }
}

// Elements `e` of two vectors, one after the other along K, as two 16-bit floats.
GK_DEVICE gk_u32 pair_across(const gk_u32 (&first)[WORDS], const gk_u32 (&second)[WORDS], int e)
{
    if constexpr (SIZE == 1) {
        const int shift = e % 4 * 8;
        return widen_pair<T>(
            (gk_u16)((first[e / 4] >> shift & 0xff) | (second[e / 4] >> shift & 0xff) << 8));
    } else {
        const gk_u32 a = first[e / 2];
        const gk_u32 b = second[e / 2];
        return e % 2 == 0 ? (a & 0xffff) | b << 16 : a >> 16 | (b & 0xffff0000u);
    }
}

// The fragment of rows 2 pair and 2 pair + 1 of a lane's own at part `part` of its share of K.
GK_DEVICE void take_rows(gk_u32 (&to)[4], const gk_u32 (&w)[VECTORS][WORDS], int pair, int part)
{
    if constexpr (W_ALONG_K) {
        gk_u32 low[2];
        gk_u32 high[2];
        take_pair(low, w[2 * pair], part);
        take_pair(high, w[2 * pair + 1], part);
        to[0] = low[0];
        to[1] = high[0];
        to[2] = low[1];
        to[3] = high[1];
    } else {
        GK_UNROLL
        for (int i = 0; i < 4; i++) {
            const int k = 4 * part + i / 2 * 2;
            to[i] = pair_across(w[k], w[k + 1], 2 * pair + i % 2);
        }
    }
}

// sums += W * X of a whole warp on tensor cores. Lanes 4 g to 4 g + 3 share rows of W and row g of
// X. Which of K meet in a fragment does not matter as long as both sides agree, nor which rows of W
// make a tile: so the fragments are what the lanes hold anyway.
GK_DEVICE void multiply_warp(float (&sums)[SUMS], const gk_u32 (&w)[VECTORS][WORDS],
                             const gk_u32 (&x)[X_VECTORS][X_WORDS])
{
    GK_UNROLL
    for (int part = 0; part < LANE_K / 4; part++) {
        gk_u32 b[X_VECTORS][2];
        GK_UNROLL
        for (int n = 0; n < X_VECTORS; n++) {
            take_pair(b[n], x[n], part);
        }
        GK_UNROLL
        for (int m = 0; m < LANE_ROWS / 2; m++) {
            gk_u32 a[4];
            take_rows(a, w, m, part);
            GK_UNROLL
            for (int n = 0; n < X_VECTORS; n++) {
                multiply_16(*(float(*)[4])(sums + (m * X_VECTORS + n) * 4), a, b[n]);
            }
        }
    }
}

GK_DEVICE void multiply(float (&sums)[SUMS], const gk_u32 (&w)[VECTORS][WORDS],
                        const gk_u32 (&x)[X_VECTORS][X_WORDS])
{
    if constexpr (MMA) {
        multiply_warp(sums, w, x);
    } else {
        multiply_lane(sums, w, x);
    }
}

// Adds up what the lanes that share K have. At each step a lane gives half of its sums away and
// keeps the other half, whose first is `first`; a last sum is added up in both lanes.
template <int COUNT, int OFFSET, int LAST>
GK_DEVICE void fold(float (&sums)[SUMS], int lane, int &first)
{
    if constexpr (OFFSET >= LAST) {
        if constexpr (COUNT > 1) {
            constexpr int HALF = COUNT / 2;
            const bool upper = (lane & OFFSET) != 0;
            GK_UNROLL
            for (int i = 0; i < HALF; i++) {
                const float kept = upper ? sums[i + HALF] : sums[i];
                const float given = upper ? sums[i] : sums[i + HALF];
                sums[i] = kept + __shfl_xor_sync(0xffffffffu, given, OFFSET);
            }
            first += upper ? HALF : 0;
            fold<HALF, OFFSET / 2, LAST>(sums, lane, first);
        } else {
            sums[0] += __shfl_xor_sync(0xffffffffu, sums[0], OFFSET);
            fold<1, OFFSET / 2, LAST>(sums, lane, first);
        }
    }
}

// A block's sums in shared memory: the axis along which C is contiguous is the inner one. Its lines
// are one longer than they need be, which spreads a warp's writes over the banks.
constexpr bool ROWS_ADJOIN = THIN_N ? C_LAYOUT == 1 : C_LAYOUT == 0;
constexpr int LINE = ROWS_ADJOIN ? BLOCK_ROWS : TILE;
constexpr int LINES = ROWS_ADJOIN ? TILE : BLOCK_ROWS;
constexpr int PLACES = (LINE + 1) * LINES;

GK_DEVICE int place_of(int row, int t)
{
    return ROWS_ADJOIN ? t * (LINE + 1) + row : row * (LINE + 1) + t;
}

// Brings a warp's sums to shared memory.
GK_DEVICE void hand_over(float *to, float (&sums)[SUMS], int lane)
{
    if constexpr (MMA) {
        GK_UNROLL
        for (int i = 0; i < SUMS; i++) {
            const int m = i / (4 * X_VECTORS);
            const int n = i / 4 % X_VECTORS;
            const int own = 2 * m + i / 2 % 2;
            const int row = W_ALONG_K ? lane / 4 + 8 * own : lane / 4 * VEC + own;
            to[place_of(row, n * 8 + lane % 4 * 2 + i % 2)] = sums[i];
        }
    } else {
        constexpr int OFFSET = W_ALONG_K ? LANES / 2 : 16;
        constexpr int LAST = W_ALONG_K ? 1 : LANES;
        constexpr int KEPT = larger(1, SUMS / LANES_K);
        // Lanes that differ in these bits have the same last sum.
        constexpr int EQUAL = SUMS < LANES_K ? LANES_K / SUMS - 1 : 0;
        int first = 0;
        fold<SUMS, OFFSET, LAST>(sums, lane, first);
        const int lane_k = W_ALONG_K ? lane % LANES : lane / LANES;
        const int lane_row = W_ALONG_K ? lane / LANES : lane % LANES;
        if ((lane_k & EQUAL) == 0) {
            GK_UNROLL
            for (int i = 0; i < KEPT; i++) {
                const int row = (first + i) / TILE;
                to[place_of(W_ALONG_K ? lane_row + LANES_ROW * row : lane_row * VEC + row,
                            (first + i) % TILE)] = sums[i];
            }
        }
    }
}

// One lane's walk through its share of K.
struct walk {
    const T *w;    // the lane's next vector
    gk_i64 w_next; // elements from a vector of a step to the next
    gk_i64 w_step; // elements along K from a step to the next
    const T *x;
    gk_i64 x_next;   // elements from a row of X to the next
    gk_i64 x_stride; // along K
    int rows_left;   // of W, from the lane's first
    int x_left;      // rows of X, from the tile's first
    int k;           // the lane's next
    int warp_k;      // the warp's next
    int end;
    bool inside; // all rows of the block exist
};

GK_DEVICE void init(walk &at, const gk_matmul_args &args, gk_u32 tile_row, gk_u32 tile_x,
                    int first_k, int end)
{
    const int lane = (int)(threadIdx.x % 32);
    const int lane_k = W_ALONG_K ? lane % LANES : MMA ? lane % 4 : lane / LANES;
    const int lane_row = W_ALONG_K ? lane / LANES : MMA ? lane / 4 : lane % LANES;
    const gk_i64 row_stride = THIN_N ? args.a_row_stride : args.b_col_stride;
    const gk_i64 k_stride = THIN_N ? args.a_col_stride : args.b_row_stride;
    const int rows = (int)(THIN_N ? args.m : args.n);
    const int first_row = (int)(tile_row * BLOCK_ROWS);
    int row = first_row + lane_row * (W_ALONG_K ? 1 : VEC);
    at.end = end;
    at.warp_k = first_k + (int)(threadIdx.x / 32) * WARP_K;
    at.k = at.warp_k + lane_k * LANE_K;
    // Rows that do not exist are read from the last one: what they add up to is never stored.
    at.inside = first_row + BLOCK_ROWS <= rows;
    const T *w = (const T *)(THIN_N ? args.a : args.b);
    if constexpr (W_ALONG_K) {
        row = row < rows ? row : rows - 1;
        at.rows_left = rows - row;
        at.w = w + row * row_stride + at.k;
        at.w_next = LANES_ROW * row_stride;
        at.w_step = STEP_K;
    } else {
        at.w = w + (row < rows ? row : rows - VEC) + at.k * k_stride;
        at.w_next = k_stride;
        at.w_step = STEP_K * k_stride;
    }
    const int x_rows = (int)(THIN_N ? args.n : args.m);
    int x_row = (int)(tile_x * TILE);
    if (MMA) {
        x_row = smaller(x_row + lane / 4, x_rows - 1);
    }
    at.x_left = x_rows - x_row;
    at.x_next = THIN_N ? args.b_col_stride : args.a_row_stride;
    at.x_stride = X_ALONG_K ? 1 : THIN_N ? args.b_row_stride : args.a_col_stride;
    at.x = (const T *)(THIN_N ? args.b : args.a) + x_row * at.x_next + at.k * at.x_stride;
}

// `all_k`: all that the warp reads in this group exists along K. Then there is no branch between
// loads, so that none waits for the one before to be used.
GK_DEVICE void read_w(const walk &at, bool all_k, gk_u32 (&w)[UNROLL][VECTORS][WORDS])
{
    if (all_k && (!W_ALONG_K || at.inside)) {
        GK_UNROLL
        for (int u = 0; u < UNROLL; u++) {
            GK_UNROLL
            for (int i = 0; i < VECTORS; i++) {
                load_once<W_VECTOR>(w[u][i], at.w + i * at.w_next + u * at.w_step);
            }
        }
        return;
    }
    GK_UNROLL
    for (int u = 0; u < UNROLL; u++) {
        GK_UNROLL
        for (int i = 0; i < VECTORS; i++) {
            GK_UNROLL
            for (int word = 0; word < WORDS; word++) {
                w[u][i][word] = 0;
            }
            if (at.k + u * STEP_K + (W_ALONG_K ? 0 : i) < at.end) {
                const bool exists = !W_ALONG_K || LANES_ROW * i < at.rows_left;
                load_once<W_VECTOR>(w[u][i], at.w + (exists ? i * at.w_next : 0) + u * at.w_step);
            }
        }
    }
}

// The lane's elements of row `t` of X at step `u`.
GK_DEVICE const T *place_in_x(const walk &at, int u, int t)
{
    const int row = t == 0 ? 0 : smaller(MMA ? 8 * t : t, at.x_left - 1);
    return at.x + row * at.x_next + u * STEP_K * at.x_stride;
}

GK_DEVICE void read_x(const walk &at, bool all_k, gk_u32 (&x)[UNROLL][X_VECTORS][X_WORDS])
{
    if (all_k) {
        GK_UNROLL
        for (int u = 0; u < UNROLL; u++) {
            GK_UNROLL
            for (int t = 0; t < X_VECTORS; t++) {
                load_x<LANE_K, false>(x[u][t], place_in_x(at, u, t), at.x_stride, 0);
            }
        }
        return;
    }
    GK_UNROLL
    for (int u = 0; u < UNROLL; u++) {
        const int left = at.end - (at.k + u * STEP_K);
        GK_UNROLL
        for (int t = 0; t < X_VECTORS; t++) {
            if (!CUT && left > 0) {
                load_x<LANE_K, false>(x[u][t], place_in_x(at, u, t), at.x_stride, 0);
            } else {
                load_x<LANE_K, true>(x[u][t], place_in_x(at, u, t), at.x_stride, CUT ? left : 0);
            }
        }
    }
}

// Asks for the first group of vectors of W, whose contents are not looked at yet.
GK_DEVICE void prefetch_w(const walk &at)
{
    const bool all_k = at.warp_k + WARP_K <= at.end;
    const bool is_first = threadIdx.x % LANES == 0;
    GK_UNROLL
    for (int u = 0; u < UNROLL; u++) {
        GK_UNROLL
        for (int i = 0; i < VECTORS; i++) {
            if (all_k || at.k + u * STEP_K + (W_ALONG_K ? 0 : i) < at.end) {
                const bool exists = !W_ALONG_K || LANES_ROW * i < at.rows_left;
                prefetch_piece<W_VECTOR>(at.w + (exists ? i * at.w_next : 0) + u * at.w_step,
                                         is_first);
            }
        }
    }
}

// All vectors of UNROLL steps are under way before the first is used. The next kernel may start
// when the last are left.
GK_DEVICE void stream(walk &at, float (&sums)[SUMS])
{
    GK_NO_UNROLL
    while (at.warp_k < at.end) {
        const bool all_k = at.warp_k + WARP_K <= at.end;
        if (at.warp_k + BLOCK_K >= at.end) {
            grid_launch_next();
        }
        gk_u32 w[UNROLL][VECTORS][WORDS];
        gk_u32 x[UNROLL][X_VECTORS][X_WORDS];
        read_w(at, all_k, w);
        read_x(at, all_k, x);
        GK_UNROLL
        for (int u = 0; u < UNROLL; u++) {
            multiply(sums, w[u], x[u]);
        }
        at.w += WARPS * UNROLL * at.w_step;
        at.x += BLOCK_K * at.x_stride;
        at.k += BLOCK_K;
        at.warp_k += BLOCK_K;
    }
}

// Stores the tile's output number `index`, if C has it.
GK_DEVICE void store(const gk_matmul_args &args, float sum, gk_u32 tile_row, gk_u32 tile_x,
                     int index)
{
    const int inner = index % LINE;
    const int outer = index / LINE;
    const gk_i64 w_row = (gk_i64)tile_row * BLOCK_ROWS + (ROWS_ADJOIN ? inner : outer);
    const gk_i64 x_row = (gk_i64)tile_x * TILE + (ROWS_ADJOIN ? outer : inner);
    const gk_i64 row = THIN_N ? w_row : x_row;
    const gk_i64 col = THIN_N ? x_row : w_row;
    if (row < args.m && col < args.n) {
        ((C_TYPE *)args.c)[row * args.c_row_stride + col * args.c_col_stride] =
            store_as<C_TYPE>(matmul_epilogue<float>(args, sum, row, col));
    }
}

// The sum over all splits of what one place has, in the splits' order.
GK_DEVICE float sum_splits(const float *from, gk_i64 distance, int splits)
{
    constexpr int AHEAD = 8; // under way together
    float sum = 0;
    GK_NO_UNROLL
    for (int first = 0; first < splits; first += AHEAD) {
        float part[AHEAD];
        GK_UNROLL
        for (int s = 0; s < AHEAD; s++) {
            part[s] = first + s < splits ? from[s * distance] : 0.0f;
        }
        GK_UNROLL
        for (int s = 0; s < AHEAD; s++) {
            sum += part[s];
        }
        from += AHEAD * distance;
    }
    return sum;
}

} // namespace gk

GK_KERNEL(gk::THREADS, gk::MIN_BLOCKS, gk_matmul_args, args)
{
    using namespace gk;
    GK_DYNAMIC_SHARED(shared);

    // No division where it can be done without: nothing is read before it is done.
    const gk_u32 w_rows = (gk_u32)(THIN_N ? args.m : args.n);
    const gk_u32 x_rows = (gk_u32)(THIN_N ? args.n : args.m);
    const gk_u32 w_tiles = (w_rows + BLOCK_ROWS - 1) / BLOCK_ROWS;
    const gk_u32 x_tiles = (x_rows + TILE - 1) / TILE;
    const gk_u32 tiles = w_tiles * x_tiles;
    const gk_u32 splits = (gk_u32)args.split_k;
    gk_u32 tile = blockIdx.x;
    gk_u32 split = 0;
    int first_k = 0;
    int end = (int)args.k;
    if (splits > 1) {
        split = tile / tiles;
        tile = tile % tiles;
        const gk_u32 steps = ((gk_u32)end + BLOCK_K - 1) / BLOCK_K;
        const int share = (int)((steps + splits - 1) / splits * BLOCK_K);
        first_k = smaller((int)split * share, end);
        end = smaller(end, first_k + share);
    }
    gk_u32 tile_row = tile;
    gk_u32 tile_x = 0;
    if (x_tiles > 1) {
        tile_row = tile / x_tiles;
        tile_x = tile % x_tiles;
    }

    float sums[SUMS];
    GK_UNROLL
    for (int i = 0; i < SUMS; i++) {
        sums[i] = 0;
    }
    walk at;
    if (first_k < end) {
        init(at, args, tile_row, tile_x, first_k, end);
        prefetch_w(at);
    }
    grid_wait(); // nothing is read before
    if (first_k < end) {
        stream(at, sums);
    }
    grid_launch_next();

    float *totals = (float *)shared;
    hand_over(totals + threadIdx.x / 32 * PLACES, sums, (int)(threadIdx.x % 32));
    __syncthreads();
    float *partials = args.partials + (gk_i64)tile * OUTPUTS;
    const gk_i64 distance = (gk_i64)tiles * OUTPUTS;
    GK_NO_UNROLL
    for (int i = (int)threadIdx.x; i < OUTPUTS; i += THREADS) {
        const int place = i / LINE * (LINE + 1) + i % LINE;
        float sum = totals[place];
        GK_UNROLL
        for (int warp = 1; warp < WARPS; warp++) {
            sum += totals[warp * PLACES + place];
        }
        if (splits > 1) {
            partials[split * distance + i] = sum;
        } else {
            store(args, sum, tile_row, tile_x, i);
        }
    }
    if (splits <= 1) {
        return;
    }
    thread_fence();
    __syncthreads();
    gk_u64 *arrived = (gk_u64 *)shared;
    if (threadIdx.x == 0) {
        *arrived = atomic_add(args.tickets + tile, 1);
    }
    __syncthreads();
    if (*arrived != splits - 1) {
        return;
    }
    thread_fence();
    GK_NO_UNROLL
    for (int i = (int)threadIdx.x; i < OUTPUTS; i += THREADS) {
        store(args, sum_splits(partials + i, distance, (int)splits), tile_row, tile_x, i);
    }
    if (threadIdx.x == 0) {
        args.tickets[tile] = 0;
    }
}
