// matmul on warp-wide tensor-core instructions (mma.sync), compute capability 8.0 and later.
//
// A block computes a BLOCK_M x BLOCK_N tile of C, a warp a WARP_M x WARP_N part of it, and of each
// BLOCK_K only the SLICE_K-th part: the slices' sums are added at the end. Tiles of A and B pass
// through a ring of STAGES shared-memory buffers filled by cp.async; fragments are read one step of
// K ahead of the arithmetic. f32 operands are rounded to tf32, or, with SPLITS, computed at the
// accuracy of f32: each x is the sum of three bf16 numbers h + m + l, and six of the nine products
// of such sums are added up, as in matmul_wgmma_f32.cu.
//
// Only the last K tile of a block can be ragged. The prologue fetches it, before its turn, so that
// the main loop masks no K.
#include "gk/matmul_args.h"

#include "gk/epilogue.cuh"
#include "gk/f32_parts.cuh"
#include "gk/prefetch.cuh"

namespace gk {

constexpr int ELEMENT = (int)sizeof(A_TYPE);
constexpr int STEP_K = 32 / ELEMENT;                         // K of 32 bytes of either operand
constexpr int PIECES = SPLITS ? 2 : 1;                       // of 32 bytes that a step of K takes
constexpr int STEPS = BLOCK_K / (STEP_K * PIECES) / SLICE_K; // of one warp, in a tile of K
constexpr int WARPS_N = BLOCK_N / WARP_N;
constexpr int SLICE_WARPS = BLOCK_M / WARP_M * WARPS_N;
constexpr int WARPS = SLICE_WARPS * SLICE_K;
constexpr int THREADS = WARPS * 32;
constexpr int MMA_M = WARP_M / 16;
constexpr int MMA_N = WARP_N / 8;
constexpr bool A_K_CONTIGUOUS = A_LAYOUT == 0;
constexpr bool B_K_CONTIGUOUS = B_LAYOUT == 1;

static_assert(sizeof(B_TYPE) == sizeof(A_TYPE) && (ELEMENT == 2 || ELEMENT == 4), "operand types");
static_assert(!SPLITS || ELEMENT == 4, "f32 is what is split");
static_assert(A_LAYOUT < 2 && B_LAYOUT < 2, "each operand has one contiguous axis");
static_assert(WARP_M % 16 == 0 && WARP_N % 16 == 0, "warp tiles are made of 16 x 16 pieces");
static_assert(BLOCK_M % WARP_M == 0 && BLOCK_N % WARP_N == 0, "warps tile the block");
static_assert(STEPS >= 2 && STEPS % 2 == 0, "fragments are double-buffered over an even number");
static_assert(STAGES >= 2, "the pipeline overlaps copies and arithmetic");

GK_DEVICE constexpr int smaller(int a, int b)
{
    return a < b ? a : b;
}

GK_DEVICE int thread_index()
{
    return (int)(threadIdx.x & 1023u); // the mask tells the compiler that it is not negative
}

GK_DEVICE int clamp_to_int(gk_i64 value, int low, int high)
{
    return value < low ? low : value > high ? high : (int)value;
}

// One operand's tile. Its rows lie along the strided axis (M or N if K is contiguous, else K). In
// shared memory it is cut into slabs of ROWS x PITCH bytes, PITCH <= 128, and inside a slab the
// 16-byte chunks of a row are permuted by the row number, so that both a row written by cp.async
// and the 8 rows x 16 bytes read by ldmatrix cover all banks once. 32-bit loads of 4 rows x 32
// bytes (f32, K strided) want the permutation in steps of two chunks.
template <bool K_CONTIGUOUS, int EXTENT, int ALIGN> struct operand {
    static constexpr int ROWS = K_CONTIGUOUS ? EXTENT : BLOCK_K;
    static constexpr int ROW_BYTES = (K_CONTIGUOUS ? BLOCK_K : EXTENT) * ELEMENT;
    static constexpr int PITCH = smaller(ROW_BYTES & -ROW_BYTES, 128);
    static constexpr int SLABS = ROW_BYTES / PITCH;
    static constexpr int SLAB_BYTES = ROWS * PITCH;
    static constexpr int BYTES = SLABS * SLAB_BYTES;
    static constexpr int CHUNKS = PITCH / 16;
    static constexpr int UNITS = PITCH / 32; // distinct 32-byte columns under the permutation
    static constexpr bool WORDS = ELEMENT == 4 && !K_CONTIGUOUS;

    // 16-bit elements at odd addresses go through registers, two elements at a time.
    static constexpr bool THROUGH_REGISTERS = ALIGN < 4;
    static constexpr bool ODD_ROWS_OF_K = THROUGH_REGISTERS && !K_CONTIGUOUS;
    static constexpr int PIECE = ALIGN < 4 ? 4 : smaller(ALIGN, 16);
    static constexpr int PER_ROW = PITCH / PIECE;
    static constexpr int TOTAL = SLABS * ROWS * PER_ROW;
    static constexpr int COUNT = (TOTAL + THREADS - 1) / THREADS;
    static constexpr int ROW_STEP = THREADS / PER_ROW;
    // a rough count beyond that of 16-byte pieces
    static constexpr int REGISTERS = THROUGH_REGISTERS ? 4 + COUNT * 2
                                     : PIECE < 16      ? 12 + COUNT * 2
                                                       : 0;
    static_assert(THREADS % PER_ROW == 0, "pieces of a row are dealt to whole groups of threads");
    static_assert(ROW_STEP >= ROWS ? ROW_STEP % ROWS == 0 : ROWS % ROW_STEP == 0, "row step");
    static_assert(!THROUGH_REGISTERS || ROW_STEP % 2 == 0, "a thread's rows share one alignment");
    static constexpr int PER_SLAB = ROW_STEP >= ROWS ? 1 : ROWS / ROW_STEP;
    static constexpr int GROUP = PER_SLAB > 8 ? smaller(PER_SLAB & -PER_SLAB, 8) : PER_SLAB;
    static constexpr int SLAB_COUNT = COUNT / PER_SLAB;
    static constexpr int SLAB_STEP = ROW_STEP >= ROWS ? ROW_STEP / ROWS : 1;
    static_assert(SLABS % SLAB_STEP == 0, "no thread copies to a slab that is not there");

    // The permutation repeats after 8 rows, so a thread's pieces have few distinct columns.
    static constexpr int PATTERNS = ROW_STEP % 8 == 0 || PER_SLAB == 1 ? 1
                                    : ROW_STEP % 4 == 0                ? 2
                                    : ROW_STEP % 2 == 0                ? 4
                                                                       : 8;
    static_assert(GROUP % PATTERNS == 0, "a group of a thread's pieces begins with the pattern");

    const unsigned char *source; // this thread's first piece in the tile fetched next
    gk_i64 stride;               // bytes from row to row
    int row;                     // this thread's first row
    int first_byte;              // its first piece's place along the contiguous axis of the tile
    int inside;                  // rows (K contiguous) or bytes left from there to the edge
    bool words;                  // odd addresses: 4-byte loads can read all of its pieces
    int store[PATTERNS];
    int fragment[K_CONTIGUOUS ? 1 : UNITS];
    gk_u32 low[THROUGH_REGISTERS ? COUNT : 1];
    gk_u32 high[THROUGH_REGISTERS ? COUNT : 1];

    static GK_DEVICE int permuted(int at_row)
    {
        const int line = at_row / (128 / PITCH);
        return (WORDS ? line * 2 : line) % CHUNKS;
    }

    static GK_DEVICE int offset(int at_row, int byte)
    {
        return byte / PITCH * SLAB_BYTES + at_row * PITCH +
               ((byte % PITCH / 16) ^ permuted(at_row)) * 16 + byte % 16;
    }

    // For the tile at `origin` of the M or N axis and `k` of the K axis.
    GK_DEVICE void begin(const void *base, gk_i64 stride_elements, gk_i64 origin, gk_i64 extent,
                         gk_i64 k)
    {
        const int place = thread_index() / PER_ROW;
        row = place;
        first_byte = thread_index() % PER_ROW * PIECE;
        if constexpr (ROW_STEP >= ROWS) {
            row = place % ROWS;
            first_byte += place / ROWS * PITCH;
        }
        stride = stride_elements * ELEMENT;
        GK_UNROLL
        for (int i = 0; i < PATTERNS; ++i) {
            store[i] = offset(row + i * ROW_STEP, first_byte);
        }
        const gk_i64 start = ((K_CONTIGUOUS ? origin : k) + row) * stride +
                             (K_CONTIGUOUS ? k : origin) * ELEMENT + first_byte;
        source = (const unsigned char *)base + start;
        if constexpr (K_CONTIGUOUS) {
            inside = clamp_to_int(extent - origin - row, -1, 1 << 20);
        } else {
            inside = clamp_to_int((extent - origin) * ELEMENT - first_byte, -1, 1 << 20);
        }
        // Tiles lie an even number of elements apart, and so do a thread's rows.
        words = (((gk_u64)base + start) & 2) == 0 && (K_CONTIGUOUS || (inside & 2) == 0);
    }

    GK_DEVICE void move(gk_i64 k)
    {
        source += K_CONTIGUOUS ? k * ELEMENT : k * stride;
    }

    // Bytes of the row from piece (slab, at) on that exist, if K ends k_left elements into the
    // tile; none if not positive.
    GK_DEVICE int left(int slab, int at, int k_left) const
    {
        if constexpr (K_CONTIGUOUS) {
            const int bytes = k_left * ELEMENT - first_byte - slab * SLAB_STEP * PITCH;
            return at * ROW_STEP < inside ? bytes : 0;
        } else {
            const int bytes = inside - slab * SLAB_STEP * PITCH;
            return row + at * ROW_STEP < k_left ? bytes : 0;
        }
    }

    // Is piece (slab, at) to be copied where all K exists, with `edge` = inside? A piece that the
    // edge along M or N cuts is copied whole, although it ends in the padding between two rows:
    // what it brings only meets columns that are not stored. Behind the last row (of K) there is no
    // padding; fill() has it.
    static GK_DEVICE bool exists(int slab, int at, int edge)
    {
        return (K_CONTIGUOUS ? at * ROW_STEP : slab * SLAB_STEP * PITCH) < edge;
    }

    GK_DEVICE int store_offset(int slab, int at) const
    {
        return store[at % PATTERNS] + slab * SLAB_STEP * SLAB_BYTES +
               (at - at % PATTERNS) * ROW_STEP * PITCH;
    }

    // Starts the copies of a tile all of whose K exists. Outside the matrix are zeros. The opaque
    // values spare registers: destinations differ in immediate offsets only, and what exists() says
    // is not kept from tile to tile where it is more than a few predicates.
    GK_DEVICE void copy(unsigned char *stage) const
    {
        // narrow pieces: enough work for a loop, and unrolled they need many registers
        constexpr bool LOOP = COUNT > 16;
        constexpr int INNER = LOOP ? GROUP : PER_SLAB;
        constexpr int OUTER = LOOP ? 1 : SLAB_COUNT;
        constexpr bool MANY = (K_CONTIGUOUS ? PER_SLAB : SLAB_COUNT) > 3;
        const int edge = MANY ? (int)opaque((gk_u32)inside) : inside;
        GK_NO_UNROLL
        for (int first = 0; first < SLAB_COUNT; first += OUTER) {
            GK_UNROLL
            for (int slab = first; slab < first + OUTER; ++slab) {
                const unsigned char *from = source + slab * SLAB_STEP * PITCH;
                gk_u32 to[PATTERNS];
                GK_UNROLL
                for (int i = 0; i < PATTERNS; ++i) {
                    to[i] =
                        opaque(shared_address(stage) + store[i] + slab * SLAB_STEP * SLAB_BYTES);
                }
                GK_NO_UNROLL
                for (int at = 0; at < PER_SLAB; at += INNER) {
                    GK_UNROLL
                    for (int i = 0; i < INNER; ++i) {
                        const int pattern = i % PATTERNS;
                        cp_async<PIECE, CACHE_L1 != 0>(
                            to[pattern] + (i - pattern) * ROW_STEP * PITCH, from,
                            exists(slab, at + i, edge) ? PIECE : 0);
                        from += ROW_STEP * stride;
                    }
                    GK_UNROLL
                    for (int i = 0; i < PATTERNS; ++i) {
                        to[i] += INNER * ROW_STEP * PITCH;
                    }
                }
            }
        }
    }

    // The same for the tile in which K ends. Of a piece that the edge of the matrix cuts only what
    // lies before the edge is read.
    GK_DEVICE void copy_masked(unsigned char *stage, int k_left) const
    {
        GK_NO_UNROLL
        for (int slab = 0; slab < SLAB_COUNT; ++slab) {
            const unsigned char *from = source + slab * SLAB_STEP * PITCH;
            GK_NO_UNROLL
            for (int at = 0; at < PER_SLAB; ++at) {
                unsigned char *to =
                    stage + slab * SLAB_STEP * SLAB_BYTES + offset(row + at * ROW_STEP, first_byte);
                cp_async<PIECE, CACHE_L1 != 0>(to, from,
                                               clamp_to_int(left(slab, at, k_left), 0, PIECE));
                from += ROW_STEP * stride;
            }
        }
    }

    // Asks for the tile, of which k_left elements along K exist.
    GK_DEVICE void prefetch(int k_left) const
    {
        if (TOTAL < THREADS && thread_index() >= TOTAL) {
            return;
        }
        GK_UNROLL
        for (int slab = 0; slab < SLAB_COUNT; ++slab) {
            const unsigned char *from = source + slab * SLAB_STEP * PITCH;
            GK_UNROLL
            for (int at = 0; at < PER_SLAB; ++at) {
                if (left(slab, at, k_left) > 0) {
                    prefetch_piece<PIECE>(from, PIECE < 16 && first_byte == 0);
                }
                from += ROW_STEP * stride;
            }
        }
    }

    // Is a piece cut by the edge along M or N, so that the last tile of K must be masked?
    static GK_DEVICE bool cut(gk_i64 extent)
    {
        return !K_CONTIGUOUS && extent * ELEMENT % PIECE != 0;
    }

    // Starts the copies of a tile of the prologue. K may end in a masked one. Odd addresses: into
    // registers, from where keep() moves them on.
    GK_DEVICE void fill(unsigned char *stage, bool masked, int k_left)
    {
        if (TOTAL < THREADS && thread_index() >= TOTAL) {
            return;
        }
        if constexpr (THROUGH_REGISTERS) {
            fill_pairs(k_left);
        } else if (masked) {
            copy_masked(stage, k_left);
        } else {
            copy(stage);
        }
    }

    GK_DEVICE void fill_pairs(int k_left)
    {
        GK_UNROLL
        for (int slab = 0; slab < SLAB_COUNT; ++slab) {
            const unsigned char *from = source + slab * SLAB_STEP * PITCH;
            GK_UNROLL
            for (int at = 0; at < PER_SLAB; ++at) {
                const int i = slab * PER_SLAB + at;
                const int bytes = left(slab, at, k_left);
                low[i] = bytes >= 2 ? *(const gk_u16 *)from : 0;
                high[i] = bytes >= 4 ? ((const gk_u16 *)from)[1] : 0;
                from += ROW_STEP * stride;
            }
        }
    }

    // Starts the copies of the next tile, all of whose K exists, and moves on. Odd addresses: into
    // registers, from where keep() moves them on.
    GK_DEVICE void fetch(unsigned char *stage)
    {
        if (TOTAL >= THREADS || thread_index() < TOTAL) {
            if constexpr (!THROUGH_REGISTERS) {
                copy(stage);
            } else if (words) {
                fetch_pairs<true>();
            } else {
                fetch_pairs<false>();
            }
        }
        move(BLOCK_K);
    }

    template <bool ALIGNED> GK_DEVICE void fetch_pairs()
    {
        GK_UNROLL
        for (int slab = 0; slab < SLAB_COUNT; ++slab) {
            const unsigned char *from = source + slab * SLAB_STEP * PITCH;
            GK_UNROLL
            for (int at = 0; at < PER_SLAB; ++at) {
                const int i = slab * PER_SLAB + at;
                const bool one = exists(slab, at, inside);
                const bool both = K_CONTIGUOUS ? one : slab * SLAB_STEP * PITCH + 2 < inside;
                low[i] = 0;
                high[i] = 0;
                if constexpr (ALIGNED) {
                    if (one) {
                        low[i] = *(const gk_u32 *)from;
                    }
                } else {
                    if (one) {
                        low[i] = *(const gk_u16 *)from;
                    }
                    if (both) {
                        high[i] = ((const gk_u16 *)from)[1];
                    }
                }
                from += ROW_STEP * stride;
            }
        }
    }

    GK_DEVICE void keep(unsigned char *stage) const
    {
        if constexpr (THROUGH_REGISTERS) {
            if (TOTAL < THREADS && thread_index() >= TOTAL) {
                return;
            }
            GK_UNROLL
            for (int i = 0; i < COUNT; ++i) {
                *(gk_u32 *)(stage + store_offset(i / PER_SLAB, i % PER_SLAB)) = low[i] | high[i]
                                                                                             << 16;
            }
        }
    }

    // Where this lane's fragments of 32-byte column u start, for the warp's part at `warp_origin`
    // of the M or N axis and its first step of K. LEFT operand: four 8 x 16-byte matrices in the
    // order (low rows, high rows) x (low K, high K); right operand: (low K, high K) x (low columns,
    // high columns).
    template <bool LEFT> GK_DEVICE void place_fragments(int warp_origin, int first_step)
    {
        const int lane = thread_index() % 32;
        const int fast = lane / 8 % 2;
        const int slow = lane / 16;
        const int outer = LEFT ? fast : slow; // which half along M or N
        const int inner = LEFT ? slow : fast; // which half along K
        GK_UNROLL
        for (int u = 0; u < (K_CONTIGUOUS ? 1 : UNITS); ++u) {
            if constexpr (K_CONTIGUOUS) {
                fragment[0] =
                    offset(warp_origin + outer * 8 + lane % 8, inner * 16 + first_step * 32);
            } else if constexpr (WORDS) {
                fragment[u] =
                    offset(first_step * STEP_K + lane % 4, (warp_origin + lane / 4) * 4 + u * 32);
            } else {
                fragment[u] = offset(first_step * STEP_K + inner * 8 + lane % 8,
                                     warp_origin * 2 + u * 32 + outer * 16);
            }
        }
    }

    // The four registers of the 16 rows (LEFT) or columns number `piece` at K step `step`.
    template <bool LEFT>
    GK_DEVICE void read(gk_u32 (&r)[4], const unsigned char *shared, int tile, int piece,
                        int step) const
    {
        if constexpr (K_CONTIGUOUS) {
            // tiles and rows start at multiples of PITCH, so the column can be flipped in last
            ldmatrix_x4(r, shared + ((tile + fragment[0]) ^ (step % UNITS * 32)) +
                               step / UNITS * SLAB_BYTES + piece * 16 * PITCH);
        } else if constexpr (WORDS) {
            GK_UNROLL
            for (int half = 0; half < 2; ++half) {
                const int u = piece * 2 + half;
                const unsigned char *from = shared + tile + fragment[u % UNITS] +
                                            u / UNITS * SLAB_BYTES + step * STEP_K * PITCH;
                r[LEFT ? half : half * 2] = *(const gk_u32 *)from;
                r[LEFT ? half + 2 : half * 2 + 1] = *(const gk_u32 *)(from + 4 * PITCH);
            }
        } else {
            ldmatrix_x4_trans(r, shared + tile + fragment[piece % UNITS] +
                                     piece / UNITS * SLAB_BYTES + step * STEP_K * PITCH);
        }
    }
};

typedef operand<A_K_CONTIGUOUS, BLOCK_M, A_ALIGN> a_operand;
typedef operand<B_K_CONTIGUOUS, BLOCK_N, B_ALIGN> b_operand;
constexpr int STAGE_BYTES = a_operand::BYTES + b_operand::BYTES;

// Rounds to tf32, ties away from zero, for a tensor core, which ignores the low 13 bits: adds half
// a unit in the last of the other places. As fast as cvt.rna, which would make infinity of a NaN
// with low bits only. Subnormals are truncated.
GK_DEVICE void round_fragment(gk_u32 (&r)[4])
{
    GK_UNROLL
    for (int i = 0; i < 4; ++i) {
        const float power = bits_to_f32(r[i] & 0xff800000u); // of two, with x's sign
        r[i] = f32_to_bits(power * 0x1p-11f + bits_to_f32(r[i]));
    }
}

template <class T> struct tensor_core;
template <> struct tensor_core<f16> {
    static GK_DEVICE void multiply(float (&d)[4], const gk_u32 (&a)[4], const gk_u32 (&b)[2])
    {
        mma_m16n8k16_f16(d, a, b);
    }
};
template <> struct tensor_core<bf16> {
    static GK_DEVICE void multiply(float (&d)[4], const gk_u32 (&a)[4], const gk_u32 (&b)[2])
    {
        mma_m16n8k16_bf16(d, a, b);
    }
};
template <> struct tensor_core<f32> {
    static GK_DEVICE void multiply(float (&d)[4], const gk_u32 (&a)[4], const gk_u32 (&b)[2])
    {
        mma_m16n8k8_tf32(d, a, b);
    }
};

// --- f32 in three parts ---

// Two 32-byte pieces' registers, as operand::read() gives them, are one of m16n8k16's operand if
// K is counted in another order, the same for A and B: registers NEXT apart hold a pair of K.
template <int NEXT>
GK_DEVICE void split_fragment(gk_u32 (&part)[PARTS][4], const gk_u32 (&raw)[PIECES][4])
{
    GK_UNROLL
    for (int i = 0; i < 4; ++i) {
        const int piece = NEXT == 2 ? i / 2 : i % 2;
        const int at = NEXT == 2 ? i % 2 : i / 2 * 2;
        split_pair pair;
        pair.split(bits_to_f32(raw[piece % PIECES][at]),
                   bits_to_f32(raw[piece % PIECES][at + NEXT]));
        GK_UNROLL
        for (int p = 0; p < PARTS; ++p) {
            part[p][i] = pair.part[p];
        }
    }
}

// One K step's operands of a warp.
struct fragments {
    gk_u32 a[MMA_M][PIECES][4];
    gk_u32 b[MMA_N / 2][PIECES][4];

    GK_DEVICE void read(const a_operand &left, const b_operand &right, const unsigned char *shared,
                        int stage, int step)
    {
        GK_UNROLL
        for (int i = 0; i < PIECES; ++i) {
            GK_UNROLL
            for (int n = 0; n < MMA_N / 2; ++n) {
                right.template read<false>(b[n][i], shared, stage + a_operand::BYTES, n,
                                           step * PIECES + i);
            }
            GK_UNROLL
            for (int m = 0; m < MMA_M; ++m) {
                left.template read<true>(a[m][i], shared, stage, m, step * PIECES + i);
            }
        }
    }

    GK_DEVICE void multiply(float (&sum)[MMA_M][MMA_N][4])
    {
        if constexpr (ELEMENT == 4) {
            GK_UNROLL
            for (int n = 0; n < MMA_N / 2; ++n) {
                round_fragment(b[n][0]);
            }
            GK_UNROLL
            for (int m = 0; m < MMA_M; ++m) {
                round_fragment(a[m][0]);
            }
        }
        GK_UNROLL
        for (int m = 0; m < MMA_M; ++m) {
            GK_UNROLL
            for (int i = 0; i < MMA_N; ++i) {
                // back and forth, so that neighbouring instructions share a B operand
                const int n = m % 2 == 0 ? i : MMA_N - 1 - i;
                const gk_u32 pair[2] = {b[n / 2][0][n % 2 * 2], b[n / 2][0][n % 2 * 2 + 1]};
                tensor_core<A_TYPE>::multiply(sum[m][n], a[m][0], pair);
            }
        }
    }

    // The tensor core cuts off bits of what it adds to a larger sum, so the products of leading
    // parts have sums of their own.
    GK_DEVICE void multiply_parts(float (&lead)[MMA_M][MMA_N][4], float (&rest)[MMA_M][MMA_N][4])
    {
        constexpr int OF_A[6] = {0, 2, 0, 1, 1, 0};
        constexpr int OF_B[6] = {0, 0, 2, 1, 0, 1};
        gk_u32 left[MMA_M][PARTS][4];
        GK_UNROLL
        for (int m = 0; m < MMA_M; ++m) {
            split_fragment<2>(left[m], a[m]);
        }
        GK_UNROLL
        for (int n = 0; n < MMA_N / 2; ++n) {
            gk_u32 right[PARTS][4];
            split_fragment<1>(right, b[n]);
            GK_UNROLL
            for (int i = 0; i < 6; ++i) {
                GK_UNROLL
                for (int j = 0; j < MMA_M * 2; ++j) {
                    const gk_u32(&from)[4] = right[OF_B[i]];
                    const gk_u32 pair[2] = {from[j % 2 * 2], from[j % 2 * 2 + 1]};
                    float(&sum)[4] = (i == 0 ? lead : rest)[j / 2][n * 2 + j % 2];
                    tensor_core<bf16>::multiply(sum, left[j / 2][OF_A[i]], pair);
                }
            }
        }
    }
};

// Takes a tile's sums over from the tensor core, in which a long sum would drift towards zero.
GK_DEVICE void promote(float (&sum)[MMA_M][MMA_N][4], float (&part)[MMA_M][MMA_N][4])
{
    GK_UNROLL
    for (int m = 0; m < MMA_M; ++m) {
        GK_UNROLL
        for (int n = 0; n < MMA_N; ++n) {
            GK_UNROLL
            for (int i = 0; i < 4; ++i) {
                sum[m][n][i] += part[m][n][i];
                part[m][n][i] = 0.0f;
            }
        }
    }
}

// What C's epilogue is to see of a finished sum.
GK_DEVICE float settled(const gk_matmul_args &args, float sum, gk_i64 row, gk_i64 col)
{
    if constexpr (!SPLITS) {
        return sum;
    }
    return is_finite(sum) ? sum * SCALED_BACK : ordinary_sum(args, row, col);
}

constexpr int C_ELEMENT = (int)sizeof(C_TYPE);
constexpr int C_VECTOR = smaller(C_ALIGN < C_ELEMENT ? C_ELEMENT : C_ALIGN, 16);
constexpr int LANES = C_LAYOUT == 0 ? C_VECTOR / C_ELEMENT : 1; // elements of one store
constexpr int AREA = BLOCK_M * BLOCK_N;

// A warp's sums pass through its corner of shared memory, as many rows at a time as fit there, so
// that the rest of the work is done in the order of memory. 32 bytes more in a row: the 4 rows
// that half a warp writes start 8 banks apart.
constexpr int CORNER_PITCH = WARP_N * 4 + 32;
constexpr int CORNER_ROWS = STAGES * STAGE_BYTES / WARPS / CORNER_PITCH;
constexpr int ROUND_ROWS = CORNER_ROWS >= WARP_M                               ? WARP_M
                           : CORNER_ROWS >= WARP_M / 2 && WARP_M / 2 % 16 == 0 ? WARP_M / 2
                                                                               : 16;

constexpr int CORNER_BYTES = ROUND_ROWS * CORNER_PITCH;

GK_DEVICE gk_u32 raw(float x)
{
    return f32_to_bits(x);
}
GK_DEVICE gk_u32 raw(f16 x)
{
    return x.bits;
}
GK_DEVICE gk_u32 raw(bf16 x)
{
    return x.bits;
}

// One store of all lanes.
GK_DEVICE void store_lanes(C_TYPE *to, const C_TYPE (&value)[LANES])
{
    if constexpr (LANES == 1) {
        *to = value[0];
    } else {
        constexpr int WORDS = LANES * C_ELEMENT < 4 ? 1 : LANES * C_ELEMENT / 4;
        gk_u32 word[WORDS];
        GK_UNROLL
        for (int i = 0; i < WORDS; ++i) {
            if constexpr (C_ELEMENT == 2 && LANES > 1) {
                word[i] = raw(value[2 * i]) | raw(value[2 * i + 1]) << 16;
            } else {
                word[i] = raw(value[i]);
            }
        }
        if constexpr (WORDS == 4) {
            *(uint4 *)to = uint4{word[0], word[1], word[2], word[3]};
        } else if constexpr (WORDS == 2) {
            *(uint2 *)to = uint2{word[0], word[1]};
        } else {
            *(gk_u32 *)to = word[0];
        }
    }
}

GK_DEVICE void load_floats(const float *from, float (&value)[LANES])
{
    if constexpr (LANES % 4 == 0) {
        GK_UNROLL
        for (int i = 0; i < LANES; i += 4) {
            const float4 quad = *(const float4 *)(from + i);
            value[i] = quad.x;
            value[i + 1] = quad.y;
            value[i + 2] = quad.z;
            value[i + 3] = quad.w;
        }
    } else {
        GK_UNROLL
        for (int i = 0; i < LANES; ++i) {
            value[i] = from[i];
        }
    }
}

// Where the block's part of C starts, and how much of it exists.
struct region {
    gk_i64 row;
    gk_i64 col;
    int rows;
    int cols;
};

// Makes what the warps of all slices wrote to their corners visible to each other.
GK_DEVICE void sync_slices()
{
    if constexpr (SLICE_K > 1) {
        __syncthreads();
    } else {
        __syncwarp();
    }
}

// Adds up what the slices have at the same place of their corners.
GK_DEVICE void load_slices(const unsigned char *from, int slices, float (&sum)[LANES])
{
    load_floats((const float *)from, sum);
    GK_UNROLL
    for (int slice = 1; slice < SLICE_K; ++slice) {
        if (slice < slices) {
            float more[LANES];
            load_floats((const float *)(from + slice * SLICE_WARPS * CORNER_BYTES), more);
            GK_UNROLL
            for (int i = 0; i < LANES; ++i) {
                sum[i] += more[i];
            }
        }
    }
}

constexpr int TEAM = 32 * SLICE_K; // threads that share a warp tile
constexpr int ROUNDS = WARP_M / ROUND_ROWS;

// A warp's part in handing the sums on. The warps of a tile's slices take turns.
struct outlet {
    int row; // of the warp tile in the block
    int col;
    int member;            // this thread's number in the team
    unsigned char *own;    // the warp's corner
    unsigned char *corner; // the corner of the tile's first slice
    float *partial;        // the warp tile's partial sums of the first split, row after row
    gk_i64 distance;       // from split to split
};

// Registers to the corner: ROUND_ROWS rows from `first` on.
GK_DEVICE void put_sums(const outlet &out, const float (&sum)[MMA_M][MMA_N][4], int first)
{
    constexpr int TILES = ROUND_ROWS / 16;
    const int lane = thread_index() % 32;
    unsigned char *place = out.own + lane / 4 * CORNER_PITCH + lane % 4 * 8;
    GK_UNROLL
    for (int m = 0; m < MMA_M; ++m) {
        if (ROUNDS == 1 || m / TILES * ROUND_ROWS == first) {
            GK_UNROLL
            for (int n = 0; n < MMA_N; ++n) {
                const float(&from)[4] = sum[m][n];
                unsigned char *to = place + (m % TILES * 16 * CORNER_PITCH + n * 32);
                *(float2 *)to = float2{from[0], from[1]};
                *(float2 *)(to + 8 * CORNER_PITCH) = float2{from[2], from[3]};
            }
            __syncwarp(); // halves the compiler's work: its passes over stores end here
        }
    }
}

// Corners to one split's partial sums.
GK_DEVICE void put_partial(const outlet &out, float *to)
{
    to += out.member * 4;
    GK_NO_UNROLL
    for (int i = out.member * 4; i < ROUND_ROWS * WARP_N; i += TEAM * 4) {
        const unsigned char *from = out.corner + i / WARP_N * CORNER_PITCH + i % WARP_N * 4;
        float4 total = *(const float4 *)from;
        GK_UNROLL
        for (int slice = 1; slice < SLICE_K; ++slice) {
            const float4 more = *(const float4 *)(from + slice * SLICE_WARPS * CORNER_BYTES);
            total = float4{total.x + more.x, total.y + more.y, total.z + more.z, total.w + more.w};
        }
        *(float4 *)to = total;
        to += TEAM * 4;
    }
}

// The partial sums of all splits to the first slice's corner, added up in the order of the splits
// whoever came last.
GK_DEVICE void add_partials(const outlet &out, const float *partial, int splits)
{
    // Neighbours summed by one thread, fewer where that employs more threads, and splits whose
    // loads are under way together.
    constexpr int WIDE = ROUND_ROWS * WARP_N / 8 >= TEAM ? 8 : 4;
    constexpr int BATCH = 32 / WIDE;
    constexpr int QUADS = WIDE / 4;
    GK_NO_UNROLL
    for (int i = out.member * WIDE; i < ROUND_ROWS * WARP_N; i += TEAM * WIDE) {
        const float *from = partial + i;
        float4 sum[QUADS];
        GK_UNROLL
        for (int j = 0; j < QUADS; ++j) {
            sum[j] = float4{0.0f, 0.0f, 0.0f, 0.0f};
        }
        GK_NO_UNROLL
        for (int split = 0; split < splits; split += BATCH) {
            float4 part[BATCH][QUADS];
            GK_UNROLL
            for (int s = 0; s < BATCH; ++s) {
                GK_UNROLL
                for (int j = 0; j < QUADS; ++j) {
                    part[s][j] = float4{0.0f, 0.0f, 0.0f, 0.0f};
                    if (split + s < splits) {
                        part[s][j] = *(const float4 *)(from + j * 4);
                    }
                }
                from += out.distance;
            }
            GK_UNROLL
            for (int s = 0; s < BATCH; ++s) {
                GK_UNROLL
                for (int j = 0; j < QUADS; ++j) {
                    sum[j] = float4{sum[j].x + part[s][j].x, sum[j].y + part[s][j].y,
                                    sum[j].z + part[s][j].z, sum[j].w + part[s][j].w};
                }
            }
        }
        unsigned char *to = out.corner + i / WARP_N * CORNER_PITCH + i % WARP_N * 4;
        GK_UNROLL
        for (int j = 0; j < QUADS; ++j) {
            *(float4 *)(to + j * 16) = sum[j];
        }
    }
}

// Neighbours in the order of C's memory are dealt to the team: vectors along a row, or rows.
constexpr bool DOWN = C_LAYOUT == 1;
constexpr int ALONG = DOWN ? ROUND_ROWS : WARP_N / LANES;
constexpr int WIDTH = smaller(ALONG, TEAM);
constexpr int LINE_STEP = TEAM / WIDTH; // lines that the team covers together
constexpr int FROM_LINE = LINE_STEP * (DOWN ? 4 : CORNER_PITCH);

// A thread's lines at one place along them.
struct line_walk {
    const unsigned char *from; // the next line's sums in the corner
    C_TYPE *to;
    gk_i64 step; // of `to` from line to line
    gk_i64 row;  // in C
    gk_i64 col;
    int left;   // lines
    int slices; // that each sum has a part in

    // So many lines at a time while there are so many. All are loaded before one is stored: each
    // waits for shared memory.
    template <int LINES> GK_DEVICE void store(const gk_matmul_args &args)
    {
        GK_NO_UNROLL
        for (; left >= LINES; left -= LINES) {
            float sum[LINES][LANES];
            GK_UNROLL
            for (int line = 0; line < LINES; ++line) {
                load_slices(from, slices, sum[line]);
                from += FROM_LINE;
            }
            GK_UNROLL
            for (int line = 0; line < LINES; ++line) {
                C_TYPE value[LANES];
                GK_UNROLL
                for (int i = 0; i < LANES; ++i) {
                    const float total = settled(args, sum[line][i], row, col + i);
                    value[i] = store_as<C_TYPE>(matmul_epilogue(args, total, row, col + i));
                }
                store_lanes(to, value);
                to += step;
                row += DOWN ? 0 : LINE_STEP;
                col += DOWN ? LINE_STEP : 0;
            }
        }
    }
};

// Corners to C: the rows from `first` on, each the sum over so many slices.
GK_DEVICE void store_round(const gk_matmul_args &args, const outlet &out, const region &block,
                           int first, int slices)
{
    const gk_i64 row = block.row + out.row + first;
    const gk_i64 col = block.col + out.col;
    const int rows = smaller(block.rows - out.row - first, ROUND_ROWS);
    const int cols = smaller(block.cols - out.col, WARP_N);
    const gk_i64 row_stride = C_LAYOUT == 1 ? 1 : args.c_row_stride;
    const gk_i64 col_stride = C_LAYOUT == 0 ? 1 : args.c_col_stride;
    C_TYPE *c = (C_TYPE *)args.c + row * row_stride + col * col_stride;
    GK_UNROLL
    for (int part = 0; part < ALONG; part += WIDTH) {
        const int along = (part + out.member % WIDTH) * LANES;
        const int line = out.member / WIDTH;
        const int at_row = DOWN ? along : line;
        const int at_col = DOWN ? line : along;
        line_walk walk;
        walk.from = out.corner + at_row * CORNER_PITCH + at_col * 4;
        walk.to = c + at_row * row_stride + at_col * col_stride;
        walk.step = LINE_STEP * (DOWN ? col_stride : row_stride);
        walk.row = row + at_row;
        walk.col = col + at_col;
        walk.slices = slices;
        const bool whole = DOWN ? along < rows : along + LANES <= cols;
        const bool idle = TEAM % WIDTH != 0 && line >= LINE_STEP;
        walk.left = whole && !idle ? ((DOWN ? cols : rows) - line + LINE_STEP - 1) / LINE_STEP : 0;
        if constexpr (LANES == 1) {
            walk.store<8>(args);
        }
        walk.store<1>(args);
    }
    if constexpr (LANES > 1) {
        // What the edge leaves of a vector.
        const int at = cols / LANES * LANES + out.member % LANES;
        if (at < cols) {
            GK_NO_UNROLL
            for (int line = out.member / LANES; line < rows; line += TEAM / LANES) {
                const unsigned char *from = out.corner + line * CORNER_PITCH + at * 4;
                float sum = *(const float *)from;
                GK_UNROLL
                for (int slice = 1; slice < SLICE_K; ++slice) {
                    if (slice < slices) {
                        sum += *(const float *)(from + slice * SLICE_WARPS * CORNER_BYTES);
                    }
                }
                sum = settled(args, sum, row + line, col + at);
                c[line * args.c_row_stride + at] =
                    store_as<C_TYPE>(matmul_epilogue(args, sum, row + line, col + at));
            }
        }
    }
}

// True in the block that is the last of its tile to arrive.
GK_DEVICE bool arrive_last(const gk_matmul_args &args, unsigned char *shared, gk_u32 tile)
{
    gk_u64 *before = (gk_u64 *)(shared + WARP_N * 4); // behind a corner's row: nobody writes there
    thread_fence();
    __syncthreads();
    if (thread_index() == 0) {
        *before = atomic_add(&args.tickets[tile], 1);
    }
    __syncthreads();
    if (*before != (gk_u64)args.split_k - 1) {
        return false;
    }
    thread_fence();
    if (thread_index() == 0) {
        args.tickets[tile] = 0;
    }
    return true;
}

// Hands all sums of the block on: to C, or, if K is split, to the tile's partial sums, which the
// last block of the tile then hands on to C.
GK_DEVICE void finish(const gk_matmul_args &args, const float (&sum)[MMA_M][MMA_N][4],
                      const region &block, unsigned char *shared, gk_u32 tile, gk_u32 split,
                      gk_i64 distance)
{
    const int warp = thread_index() / 32;
    const int place = warp % SLICE_WARPS;
    outlet out;
    out.row = place / WARPS_N * WARP_M;
    out.col = place % WARPS_N * WARP_N;
    out.member = warp / SLICE_WARPS * 32 + thread_index() % 32;
    out.own = shared + warp * CORNER_BYTES;
    out.corner = shared + place * CORNER_BYTES;
    out.partial = args.partials + (gk_i64)tile * AREA + place * (WARP_M * WARP_N);
    out.distance = distance;
    bool again = false; // the second time, for the sums of all splits
    int first = 0;
    if constexpr (ROUNDS == 1) {
        put_sums(out, sum, 0); // here, so that the sums end before the loop
    }
    GK_NO_UNROLL
    while (true) {
        if (again) {
            add_partials(out, out.partial + first * WARP_N, (int)args.split_k);
        } else if constexpr (ROUNDS > 1) {
            put_sums(out, sum, first);
        }
        sync_slices();
        if (args.split_k > 1 && !again) {
            put_partial(out, out.partial + split * distance + first * WARP_N);
        } else {
            store_round(args, out, block, first, again ? 1 : SLICE_K);
        }
        sync_slices();
        first += ROUND_ROWS;
        if (first == WARP_M) {
            if (args.split_k == 1 || again || !arrive_last(args, shared, tile)) {
                return;
            }
            again = true;
            first = 0;
        }
    }
}

// Blocks an SM is asked to hold: as many as registers and shared memory surely allow, so never a
// spill. Code for sm_120 keeps more addresses in registers.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 1200
constexpr int OTHER_REGISTERS = 72;
#else
constexpr int OTHER_REGISTERS = 56;
#endif
// Two more sums of each kind, and the parts of A and of two pieces of B.
constexpr int SPLIT_REGISTERS = SPLITS ? MMA_M * MMA_N * 8 + MMA_M * 4 * PARTS + 4 * PARTS : 0;
// Addresses, where the first tiles' pairs of both lie in rows, one for each K.
constexpr int PAIR_REGISTERS = a_operand::ODD_ROWS_OF_K && b_operand::ODD_ROWS_OF_K ? 24 : 0;
constexpr int NEEDED_REGISTERS = MMA_M * MMA_N * 4 + (MMA_M * 8 + MMA_N * 4) * PIECES +
                                 SPLIT_REGISTERS + OTHER_REGISTERS + PAIR_REGISTERS +
                                 a_operand::REGISTERS + b_operand::REGISTERS;
constexpr int REGISTERS = (NEEDED_REGISTERS + 7) / 8 * 8;     // as they are handed out
constexpr int SM_SHARED_BYTES = 228 * 1024;                   // of the largest of today's chips
constexpr int PARTITION_WARPS = 65536 / 4 / (32 * REGISTERS); // of one of the four schedulers
constexpr int RESIDENT =
    smaller(PARTITION_WARPS * 4 / WARPS, SM_SHARED_BYTES / (STAGES * STAGE_BYTES + 1024));
constexpr int MIN_BLOCKS = RESIDENT < 1 ? 1 : smaller(RESIDENT, 8);

// Does a multiprocessor have room for one block only, and do blocks beside each other read rows of
// their own? Short pieces of the same rows are read faster in step.
constexpr bool ALONE = SM_SHARED_BYTES / (STAGES * STAGE_BYTES + 1024) < 2 && B_K_CONTIGUOUS;

} // namespace gk

GK_KERNEL(gk::THREADS, gk::MIN_BLOCKS, gk_matmul_args, args)
{
    using namespace gk;
    GK_DYNAMIC_SHARED(shared);

    // Which tile, in groups of group_m rows of tiles, and which share of K.
    const gk_u32 tiles_m = (gk_u32)((args.m + BLOCK_M - 1) / BLOCK_M);
    const gk_u32 tiles_n = (gk_u32)((args.n + BLOCK_N - 1) / BLOCK_N);
    const gk_u32 tiles = tiles_m * tiles_n;
    const gk_u32 splits = (gk_u32)args.split_k;
    gk_u32 split = 0;
    gk_u32 tile = blockIdx.x;
    if (splits > 1) {
        split = tile / tiles;
        tile -= split * tiles;
    }
    const gk_u32 group_rows = (gk_u32)args.group_m;
    const gk_u32 group = tile / (tiles_n * group_rows);
    gk_u32 tile_row = group * group_rows;
    gk_u32 tile_col = tile - tile_row * tiles_n;
    if (group_rows > 1) {
        const gk_u32 rows = tiles_m - tile_row < group_rows ? tiles_m - tile_row : group_rows;
        const gk_u32 in_group = tile_col;
        tile_col = in_group / rows;
        tile_row += in_group - tile_col * rows;
    }
    const gk_u32 k_tiles = (gk_u32)((args.k + BLOCK_K - 1) / BLOCK_K);
    gk_u32 k_first = 0;
    int count = (int)k_tiles;
    if (splits > 1) {
        const gk_u32 extra = k_tiles % splits; // the first splits have one tile more
        k_first = k_tiles / splits * split + (split < extra ? split : extra);
        count = (int)(k_tiles / splits + (split < extra ? 1 : 0));
    }

    const int warp = thread_index() / 32;
    const int place = warp % SLICE_WARPS;
    const int first_step = warp / SLICE_WARPS * (STEPS * PIECES);

    float sum[MMA_M][MMA_N][4];
    GK_UNROLL
    for (int m = 0; m < MMA_M; ++m) {
        GK_UNROLL
        for (int n = 0; n < MMA_N; ++n) {
            GK_UNROLL
            for (int i = 0; i < 4; ++i) {
                sum[m][n][i] = 0.0f;
            }
        }
    }

    const bool early = grid_is_small() && count < STAGES;
    const bool before_end = ALONE && grid_fills_once();
    if (count > 0) {
        a_operand a;
        b_operand b;
        const gk_i64 k_begin = (gk_i64)k_first * BLOCK_K;
        const gk_i64 k_last = k_begin + (gk_i64)(count - 1) * BLOCK_K;
        a.begin(args.a, A_K_CONTIGUOUS ? args.a_row_stride : args.a_col_stride,
                (gk_i64)tile_row * BLOCK_M, args.m, k_begin);
        b.begin(args.b, B_K_CONTIGUOUS ? args.b_col_stride : args.b_row_stride,
                (gk_i64)tile_col * BLOCK_N, args.n, k_begin);
        // Each tile is asked for by one of the blocks that read it.
        const int k_exists = clamp_to_int(args.k - k_begin, 0, BLOCK_K);
        if (tile_col == 0) {
            a.prefetch(k_exists);
        }
        if (tile_row == 0) {
            b.prefetch(k_exists);
        }
        grid_wait(); // nothing is read before
        // The last tile is fetched last in the prologue, if it must be masked.
        const bool masked =
            args.k - k_last < BLOCK_K || a_operand::cut(args.m) || b_operand::cut(args.n);
        const int masked_stage = masked ? smaller(count, STAGES - 1) - 1 : STAGES;
        GK_NO_UNROLL
        for (int stage = 0; stage < STAGES - 1; ++stage) {
            if (stage < count) {
                const bool last = stage == masked_stage;
                const gk_i64 ahead = last ? (gk_i64)(count - 1 - stage) * BLOCK_K : 0;
                const int k_left = last ? clamp_to_int(args.k - k_last, 0, BLOCK_K) : BLOCK_K;
                unsigned char *to = shared + stage * STAGE_BYTES;
                a.move(ahead);
                b.move(ahead);
                a.fill(to, last, k_left);
                b.fill(to + a_operand::BYTES, last, k_left);
                a.keep(to);
                b.keep(to + a_operand::BYTES);
                a.move(last ? -ahead : BLOCK_K);
                b.move(last ? -ahead : BLOCK_K);
            }
            cp_async_commit();
        }
        if (early) {
            grid_launch_next();
        }
        a.template place_fragments<true>(place / WARPS_N * WARP_M, first_step);
        b.template place_fragments<false>(place % WARPS_N * WARP_N, first_step);

        cp_async_wait<STAGES - 2>();
        __syncthreads();
        float lead[MMA_M][MMA_N][4] = {}; // of a tile of K
        float rest[MMA_M][MMA_N][4] = {};
        fragments held[2];
        held[0].read(a, b, shared, 0, 0);
        int reading = 0;
        int writing = (STAGES - 1) * STAGE_BYTES;
        GK_NO_UNROLL
        for (; count > 0; --count) {
            if constexpr (ALONE) {
                grid_launch_next_if(before_end && count == 2);
            }
            GK_UNROLL
            for (int k = 0; k < STEPS; ++k) {
                if (k == STEPS - 1) {
                    if (count >= STAGES) {
                        a.keep(shared + writing);
                        b.keep(shared + writing + a_operand::BYTES);
                    }
                    cp_async_wait<STAGES - 2>();
                    __syncthreads();
                    writing = reading;
                    reading = reading == (STAGES - 1) * STAGE_BYTES ? 0 : reading + STAGE_BYTES;
                }
                // after the last tile this reads a stale stage, which is not used
                held[(k + 1) % 2].read(a, b, shared, reading, (k + 1) % STEPS);
                if (k == 0) {
                    if (count >= STAGES) {
                        a.fetch(shared + writing);
                        b.fetch(shared + writing + a_operand::BYTES);
                    }
                    cp_async_commit();
                }
                if constexpr (SPLITS) {
                    held[k % 2].multiply_parts(lead, rest);
                } else {
                    held[k % 2].multiply(sum);
                }
            }
            if constexpr (SPLITS) {
                promote(sum, lead);
            }
        }
        if constexpr (SPLITS) {
            promote(sum, rest);
        }
        cp_async_wait<0>();
        __syncthreads();
    } else {
        grid_wait();
    }
    grid_launch_next();
    region block;
    block.row = (gk_i64)tile_row * BLOCK_M;
    block.col = (gk_i64)tile_col * BLOCK_N;
    block.rows = clamp_to_int(args.m - block.row, 0, BLOCK_M);
    block.cols = clamp_to_int(args.n - block.col, 0, BLOCK_N);
    finish(args, sum, block, shared, tile_row * tiles_n + tile_col, split, (gk_i64)tiles * AREA);
}
