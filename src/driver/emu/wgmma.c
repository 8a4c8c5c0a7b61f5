/* The arithmetic of warpgroup instructions: operands by their descriptors, products in f32. */
#include <string.h>

#include "driver/emu/state.h"

enum {
    ROWS = 64,
    MAX_COLUMNS = 256,
    MAX_DEPTH = 32,
    STEP_BYTES = 32, /* of K */
    CHUNK = 16,
};

/* Where an operand lies. Distances and the start in bytes. */
typedef struct layout {
    uint32_t start;
    uint32_t leading;
    uint32_t stride;
    uint32_t span; /* of the swizzle: 128, 64, 32; 16: none */
} layout;

static uint32_t depth_of(uint32_t type)
{
    return type == GK_EMU_TF32 ? 8 : type == GK_EMU_F16 || type == GK_EMU_BF16 ? 16 : 32;
}

static layout decode(uint64_t descriptor)
{
    static const uint32_t SPANS[] = {16, 128, 64, 32};
    return (layout){
        .start = (uint32_t)(descriptor & 0x3fff) * CHUNK,
        .leading = (uint32_t)(descriptor >> 16 & 0x3fff) * CHUNK,
        .stride = (uint32_t)(descriptor >> 32 & 0x3fff) * CHUNK,
        .span = SPANS[descriptor >> 62],
    };
}

/* The swizzle exchanges 16-byte chunks by address bits 7 and up. */
static uint32_t swizzled(const layout *at, uint32_t offset)
{
    return offset ^ (offset >> 7 & (at->span / CHUNK - 1)) * CHUNK;
}

/* Chunk 0 or 1 along K of a row, before the swizzle. Rows come in groups of eight. */
static uint32_t k_major(const layout *at, uint32_t row, uint32_t chunk)
{
    const uint32_t next = at->span == CHUNK ? at->leading : CHUNK;
    return at->start + row % 8 * at->span + row / 8 * at->stride + chunk * next;
}

/* Eight rows, from 8 * chunk on, of one k. */
static uint32_t mn_major(const layout *at, uint32_t chunk, uint32_t k)
{
    if (at->span == CHUNK) {
        return at->start + k % 8 * CHUNK + k / 8 * at->leading + chunk * at->stride;
    }
    const uint32_t chunks = at->span / CHUNK;
    return at->start + chunk % chunks * CHUNK + chunk / chunks * at->leading + k % 8 * at->span +
           k / 8 * at->stride;
}

const char *gki_emu_descriptor_fault(uint64_t descriptor, bool is_mn_major, uint32_t rows,
                                     uint32_t type, uint32_t shared_bytes)
{
    const uint32_t depth = depth_of(type);
    const layout at = decode(descriptor);
    const uint64_t known = UINT64_C(0xc00e3fff3fff3fff);
    if ((descriptor & ~known) != 0) {
        return "bits are set that have no meaning";
    }
    if ((descriptor >> 49 & 7) != 0) {
        return "the CPU device knows base offset 0 only";
    }
    if (at.span > CHUNK && at.start % (8 * at.span) >= at.span) {
        return "the start is not in the first row of the swizzle's pattern";
    }
    const uint32_t last =
        is_mn_major ? mn_major(&at, rows / 8 - 1, depth - 1) : k_major(&at, rows - 1, 1);
    const uint32_t line = at.span > CHUNK ? last | (at.span - CHUNK) : last;
    if (line + CHUNK > shared_bytes) {
        return "it reaches past the end of the block's shared memory";
    }
    return NULL;
}

/* Eight elements at a time; the compiler splits what the processor cannot do at once. */
typedef float floats __attribute__((vector_size(32), aligned(4), may_alias));
typedef uint32_t words __attribute__((vector_size(32), aligned(4), may_alias));
typedef int32_t flags __attribute__((vector_size(32), aligned(4), may_alias));
typedef uint16_t halves __attribute__((vector_size(16), aligned(1), may_alias));
typedef uint8_t bytes8 __attribute__((vector_size(8), aligned(1), may_alias));
#define INLINE static inline __attribute__((always_inline))

/* Exact; 2^112 turns the halves' subnormals into normal floats. */
INLINE void widen_f16(const words *bits, floats *to)
{
    const words magnitude = (*bits & 0x7fff) << 13;
    const flags finite = magnitude < 0x7c00u << 13;
    const floats scaled = (floats)magnitude * 0x1p112f;
    const words other = magnitude | 0x7f800000u;
    *to = (floats)(((words)scaled & (words)finite) | (other & ~(words)finite) |
                   (*bits & 0x8000) << 16);
}

/* A shortened half but for the exponent's bias; all ones is its only NaN. */
INLINE void widen_e4m3(const words *bits, floats *to)
{
    const words half = (*bits & 0x80) << 8 | (*bits & 0x7f) << 7;
    const flags nan = (*bits & 0x7f) == 0x7f;
    widen_f16(&half, to);
    *to *= 0x1p8f;
    *to = (floats)((words)*to | ((words)nan & 0x7fc00000u));
}

INLINE void widen8(uint32_t type, const unsigned char *from, float *out)
{
    floats to;
    words bits;
    if (type == GK_EMU_TF32) { /* the low bits of an operand are ignored */
        to = (floats)(*(const words *)(const void *)from & 0xffffe000u);
    } else if (type == GK_EMU_F16 || type == GK_EMU_BF16) {
        bits = __builtin_convertvector(*(const halves *)(const void *)from, words);
        if (type == GK_EMU_F16) {
            widen_f16(&bits, &to);
        } else {
            to = (floats)(bits << 16);
        }
    } else {
        bits = __builtin_convertvector(*(const bytes8 *)(const void *)from, words);
        if (type == GK_EMU_E4M3) {
            widen_e4m3(&bits, &to);
        } else {
            bits <<= 8;
            widen_f16(&bits, &to);
        }
    }
    *(floats *)(void *)out = to;
}

/* `n` elements side by side, a multiple of 8. */
INLINE void widen(uint32_t type, const unsigned char *from, uint32_t n, float *to)
{
    const uint32_t size = STEP_BYTES / depth_of(type);
    for (uint32_t i = 0; i < n; i += 8) {
        widen8(type, from + (size_t)i * size, to + i);
    }
}

/* One of the two operands, K apart: element (row, k) goes to to[row * row_step + k * k_step]. */
typedef struct target {
    float *to;
    uint32_t row_step;
    uint32_t k_step;
} target;

INLINE void read_k_major(uint32_t type, const layout *at, const unsigned char *shared,
                         uint32_t rows, uint32_t depth, target out)
{
    for (uint32_t row = 0; row < rows; row++) {
        unsigned char bytes[STEP_BYTES];
        float values[MAX_DEPTH];
        memcpy(bytes, shared + swizzled(at, k_major(at, row, 0)), CHUNK);
        memcpy(bytes + CHUNK, shared + swizzled(at, k_major(at, row, 1)), CHUNK);
        widen(type, bytes, depth, values);
        for (uint32_t k = 0; k < depth; k++) {
            out.to[row * out.row_step + k * out.k_step] = values[k];
        }
    }
}

INLINE void read_mn_major(uint32_t type, const layout *at, const unsigned char *shared,
                          uint32_t rows, uint32_t depth, target out)
{
    for (uint32_t k = 0; k < depth; k++) {
        unsigned char bytes[MAX_COLUMNS * 2];
        float values[MAX_COLUMNS];
        for (uint32_t chunk = 0; chunk < rows / 8; chunk++) {
            memcpy(bytes + (size_t)chunk * CHUNK, shared + swizzled(at, mn_major(at, chunk, k)),
                   CHUNK);
        }
        widen(type, bytes, rows, values);
        for (uint32_t row = 0; row < rows; row++) {
            out.to[row * out.row_step + k * out.k_step] = values[row];
        }
    }
}

/* Register i of a lane holds row lane / 4 + 8 (i % 2) of its warp's 16, four bytes of K from
 * 4 (lane % 4) + 16 (i / 2) on. */
INLINE void read_registers(uint32_t type, const uint32_t (*registers)[4], uint32_t depth,
                           target out)
{
    unsigned char bytes[ROWS][STEP_BYTES];
    for (uint32_t i = 0; i < GK_EMU_WARPGROUP; i++) {
        const uint32_t lane = i % GK_EMU_WARP;
        for (uint32_t j = 0; j < 4; j++) {
            const uint32_t row = i / GK_EMU_WARP * 16 + lane / 4 + j % 2 * 8;
            memcpy(&bytes[row][lane % 4 * 4 + j / 2 * 16], &registers[i][j], 4);
        }
    }
    for (uint32_t row = 0; row < ROWS; row++) {
        widen(type, bytes[row], depth, out.to + (size_t)row * out.row_step);
    }
}

/*
 * sums[row][i] += a[row][k] * b[k][i] for two rows and the columns of W vectors, which stay in
 * registers. The order of the sums is that of k, whatever the vectors' width.
 */
#define MULTIPLY_ROWS(W, first)                                                                    \
    do {                                                                                           \
        floats s[2][W];                                                                            \
        memcpy(s[0], sums + (first), sizeof s[0]);                                                 \
        memcpy(s[1], sums + columns + (first), sizeof s[1]);                                       \
        for (uint32_t k = 0; k < depth; k++) {                                                     \
            const float *const y = b + (size_t)k * columns + (first);                              \
            for (int i = 0; i < (W); i++) {                                                        \
                const floats v = *(const floats *)(const void *)(y + 8 * i);                       \
                s[0][i] += a[k] * v;                                                               \
                s[1][i] += a[depth + k] * v;                                                       \
            }                                                                                      \
        }                                                                                          \
        memcpy(sums + (first), s[0], sizeof s[0]);                                                 \
        memcpy(sums + columns + (first), s[1], sizeof s[1]);                                       \
    } while (0)

INLINE void multiply_rows(const float *a, const float *b, uint32_t depth, uint32_t columns,
                          float *sums)
{
    for (uint32_t row = 0; row < ROWS; row += 2) {
        uint32_t first = 0;
        for (; first + 32 <= columns; first += 32) {
            MULTIPLY_ROWS(4, first);
        }
        for (; first < columns; first += 8) {
            MULTIPLY_ROWS(1, first);
        }
        a += (size_t)2 * depth;
        sums += (size_t)2 * columns;
    }
}

/* Of 8-bit floats the tensor core of compute capability 9.0 keeps 14 bits of a sum. */
INLINE void cut_sums(float *sums, uint32_t columns)
{
    for (uint32_t i = 0; i < ROWS * columns; i++) {
        uint32_t bits;
        memcpy(&bits, &sums[i], sizeof bits);
        bits &= (bits & 0x7f800000u) == 0x7f800000u ? ~0u : ~0x3ffu;
        memcpy(&sums[i], &bits, sizeof bits);
    }
}

INLINE void multiply(const gk_emu_wgmma *what, const unsigned char *shared,
                     const uint32_t (*registers)[4],
                     float *scratch, /* NOLINT(readability-non-const-parameter): by targets */
                     float *sums)
{
    const uint32_t columns = what->columns;
    const uint32_t depth = depth_of(what->type);
    const layout a_layout = decode(what->a_descriptor);
    const layout b_layout = decode(what->b_descriptor);
    const target a = {scratch, depth, 1};
    const target b = {scratch + ROWS * MAX_DEPTH, 1, columns};
    if (registers != NULL) {
        read_registers(what->type, registers, depth, a);
    } else if (what->a_mn_major) {
        read_mn_major(what->type, &a_layout, shared, ROWS, depth, a);
    } else {
        read_k_major(what->type, &a_layout, shared, ROWS, depth, a);
    }
    if (what->b_mn_major) {
        read_mn_major(what->type, &b_layout, shared, columns, depth, b);
    } else {
        read_k_major(what->type, &b_layout, shared, columns, depth, b);
    }
    if (!what->accumulate) {
        memset(sums, 0, sizeof *sums * ROWS * columns);
    }
    multiply_rows(a.to, b.to, depth, columns, sums);
    if (depth == MAX_DEPTH) {
        cut_sums(sums, columns);
    }
}

static void multiply_plain(const gk_emu_wgmma *what, const unsigned char *shared,
                           const uint32_t (*registers)[4], float *scratch, float *sums)
{
    multiply(what, shared, registers, scratch, sums);
}

#if defined(__x86_64__)
__attribute__((target("avx2"))) static void multiply_avx2(const gk_emu_wgmma *what,
                                                          const unsigned char *shared,
                                                          const uint32_t (*registers)[4],
                                                          float *scratch, float *sums)
{
    multiply(what, shared, registers, scratch, sums);
}
#endif

void gki_emu_wgmma_multiply(const gk_emu_wgmma *what, const unsigned char *shared,
                            const uint32_t (*registers)[4], float *scratch, float *sums)
{
    _Static_assert(GKI_EMU_WGMMA_SCRATCH == MAX_DEPTH * (ROWS + MAX_COLUMNS), "room for A and B");
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2")) {
        multiply_avx2(what, shared, registers, scratch, sums);
        return;
    }
#endif
    multiply_plain(what, shared, registers, scratch, sums);
}
