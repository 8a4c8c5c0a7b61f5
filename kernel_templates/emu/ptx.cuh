// Host meaning of gk/ptx.cuh: the same functions with the PTX ISA manual's semantics.
#pragma once

namespace gk {

inline gk_u32 f32_to_bits(float x)
{
    return __float_as_uint(x);
}

inline float bits_to_f32(gk_u32 x)
{
    return __uint_as_float(x);
}

// Exact. Adding the magic exponent turns the half's subnormals into normal floats.
inline float f16_bits_to_f32(gk_u16 x)
{
    const gk_u32 sign = (gk_u32)(x & 0x8000u) << 16;
    const gk_u32 magnitude = x & 0x7fffu;
    if (magnitude >= 0x7c00u) {
        const gk_u32 quiet = magnitude > 0x7c00u ? 0x400000u : 0;
        return bits_to_f32(sign | 0x7f800000u | quiet | (magnitude & 0x3ffu) << 13);
    }
    const float value = bits_to_f32(magnitude << 13) * 0x1p112f;
    return bits_to_f32(sign | f32_to_bits(value));
}

// Round to nearest even; NaN becomes the canonical NaN 0x7fff as cvt does.
inline gk_u16 f32_to_f16_bits(float x)
{
    const gk_u32 bits = f32_to_bits(x);
    const gk_u16 sign = (gk_u16)(bits >> 16 & 0x8000u);
    const gk_u32 magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u) {
        return 0x7fff;
    }
    if (magnitude >= 0x477ff000u) { // 65520, the midpoint above the largest half
        return sign | 0x7c00;
    }
    if (magnitude < 0x38800000u) { // below 2^-14: one addition rounds to multiples of 2^-24
        const float rounded = bits_to_f32(magnitude) + 0.5f;
        return sign | (gk_u16)(f32_to_bits(rounded) - 0x3f000000u);
    }
    const gk_u32 rebased = magnitude - 0x38000000u;
    return sign | (gk_u16)((rebased + 0xfffu + (rebased >> 13 & 1u)) >> 13);
}

// Round to nearest even; NaN becomes the canonical NaN 0x7fff as cvt does.
inline gk_u16 f32_to_bf16_bits(float x)
{
    const gk_u32 bits = f32_to_bits(x);
    if ((bits & 0x7fffffffu) > 0x7f800000u) {
        return 0x7fff;
    }
    return (gk_u16)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

inline gk_u32 f32_to_f16x2_bits(float low, float high)
{
    return (gk_u32)f32_to_f16_bits(high) << 16 | f32_to_f16_bits(low);
}

inline gk_u32 f32_to_bf16x2_bits(float low, float high)
{
    return (gk_u32)f32_to_bf16_bits(high) << 16 | f32_to_bf16_bits(low);
}

inline float exp2_approximate(float x)
{
    const float y = exp2f(x);
    return y < 1.17549435e-38f ? 0.0f : y;
}

inline float reciprocal_approximate(float x)
{
    const float y = 1 / x;
    return fabsf(y) < 1.17549435e-38f ? copysignf(0, y) : y;
}

// cvt.rna.tf32 as it is carried out: what is not finite only loses its low bits, so that infinity
// comes of a NaN without others.
inline gk_u32 emu_cvt_rna_tf32(float x)
{
    const gk_u32 bits = f32_to_bits(x);
    const bool finite = (bits & 0x7fffffffu) < 0x7f800000u;
    return (bits + (finite ? 0x1000u : 0)) & 0xffffe000u;
}

inline gk_u32 f32_to_tf32_bits(float x)
{
    return emu_cvt_rna_tf32(x != x ? bits_to_f32(0x7fffffffu) : x);
}

inline gk_u32 byte_permute(gk_u32 a, gk_u32 b, gk_u32 selector)
{
    const gk_u64 bytes = (gk_u64)b << 32 | a;
    gk_u32 r = 0;
    for (int i = 0; i < 4; i++) {
        r |= (gk_u32)(bytes >> (selector >> (4 * i) & 7u) * 8 & 0xffu) << (8 * i);
    }
    return r;
}

// NaN becomes the canonical NaN 0x7fffffff.
inline float max_nan(float a, float b)
{
    if (a != a || b != b) {
        return bits_to_f32(0x7fffffffu);
    }
    return a > b || (a == b && f32_to_bits(b) >> 31 != 0) ? a : b;
}

inline float min_nan(float a, float b)
{
    if (a != a || b != b) {
        return bits_to_f32(0x7fffffffu);
    }
    return a < b || (a == b && f32_to_bits(a) >> 31 != 0) ? a : b;
}

inline gk_u32 opaque(gk_u32 x)
{
    return x;
}

// The byte offset into the block's shared memory.
inline gk_u32 shared_address(const void *p)
{
    return (gk_u32)((const unsigned char *)p - gk_emu_self->shared);
}

template <int BYTES, bool CACHE_L1 = false>
inline void cp_async(void *shared, const void *global, int valid, GK_EMU_SITE)
{
    static_assert(BYTES == 4 || BYTES == 8 || BYTES == 16, "cp.async copies 4, 8 or 16 bytes");
    gk_emu_self->host->copy_async(gk_emu_self, shared, global, BYTES, valid, file, line);
}

template <int BYTES, bool CACHE_L1 = false>
inline void cp_async(gk_u32 shared, const void *global, int valid, GK_EMU_SITE)
{
    cp_async<BYTES, CACHE_L1>(gk_emu_self->shared + shared, global, valid, file, line);
}

template <int BYTES> inline void cp_async_if(void *shared, const void *global, bool go, GK_EMU_SITE)
{
    if (go) {
        cp_async<BYTES>(shared, global, BYTES, file, line);
    }
}

inline void cp_async_once(void *shared, const void *global, GK_EMU_SITE)
{
    cp_async<16>(shared, global, 16, file, line);
}

inline void cp_async_commit()
{
    gk_emu_self->host->copy_commit(gk_emu_self);
}

template <int PENDING> inline void cp_async_wait()
{
    static_assert(PENDING >= 0, "the number of groups that may stay unfinished");
    gk_emu_self->host->copy_wait(gk_emu_self, PENDING);
}

struct emu_ldmatrix {
    const gk_u16 *row;
    gk_u32 *result;
};

// Result i of lane l: row l / 4, columns 2 (l % 4) and the next, of matrix i; of its transpose if
// TRANS.
template <int COUNT, bool TRANS> inline void emu_ldmatrix_lanes(void *const *operands, unsigned)
{
    for (int lane = 0; lane < GK_EMU_WARP; lane++) {
        for (int i = 0; i < COUNT; i++) {
            gk_u32 pair = 0;
            for (int half = 0; half < 2; half++) {
                const int row = lane / 4;
                const int col = 2 * (lane % 4) + half;
                const auto *const source =
                    static_cast<emu_ldmatrix *>(operands[8 * i + (TRANS ? col : row)]);
                pair |= (gk_u32)source->row[TRANS ? row : col] << (16 * half);
            }
            static_cast<emu_ldmatrix *>(operands[lane])->result[i] = pair;
        }
    }
}

template <int COUNT, bool TRANS>
inline void emu_ldmatrix_load(gk_u32 *result, const void *row, const char *file, int line)
{
    // Only the addresses of the first 8 * COUNT lanes are used.
    if ((int)gk_emu_self->lane < 8 * COUNT) {
        const gk_u32 offset = shared_address(row);
        const gk_u64 address = (gk_u64)row;
        const gk_u64 first = (gk_u64)gk_emu_self->shared;
        if (address % 16 != 0) {
            gk_emu_self->host->fail(gk_emu_self, file, line,
                                    "ldmatrix: row at shared memory offset %u is misaligned, must "
                                    "be a multiple of 16",
                                    offset);
        }
        if (address < first || address + 16 > first + gk_emu_self->shared_bytes) {
            gk_emu_self->host->fail(gk_emu_self, file, line,
                                    "ldmatrix: row at %p is outside the block's %u bytes of shared "
                                    "memory",
                                    row, gk_emu_self->shared_bytes);
        }
    }
    emu_ldmatrix operand = {static_cast<const gk_u16 *>(row), result};
    gk_emu_collective(emu_ldmatrix_lanes<COUNT, TRANS>, "ldmatrix", GK_EMU_FULL_MASK, true,
                      &operand, file, line);
}

inline void ldmatrix_x4(gk_u32 (&r)[4], const void *row, GK_EMU_SITE)
{
    emu_ldmatrix_load<4, false>(r, row, file, line);
}

inline void ldmatrix_x4_trans(gk_u32 (&r)[4], const void *row, GK_EMU_SITE)
{
    emu_ldmatrix_load<4, true>(r, row, file, line);
}

inline void ldmatrix_x2(gk_u32 (&r)[2], const void *row, GK_EMU_SITE)
{
    emu_ldmatrix_load<2, false>(r, row, file, line);
}

inline void ldmatrix_x2_trans(gk_u32 (&r)[2], const void *row, GK_EMU_SITE)
{
    emu_ldmatrix_load<2, true>(r, row, file, line);
}

struct emu_mma {
    float *d;
    const gk_u32 *a;
    const gk_u32 *b;
};

typedef float emu_row __attribute__((vector_size(32))); // 8 columns

// d += a * b, columns of a row side by side; a is 16 x K, b is K x 8.
template <int K>
inline void emu_mma_multiply(void *const *operands, const float (&a)[16][K], const emu_row (&b)[K])
{
    for (int row = 0; row < 16; row++) {
        emu_row sum;
        for (int col = 0; col < 8; col++) {
            const int lane = (row % 8) * 4 + col / 2;
            sum[col] = static_cast<emu_mma *>(operands[lane])->d[row / 8 * 2 + col % 2];
        }
        for (int k = 0; k < K; k++) {
            sum += a[row][k] * b[k];
        }
        for (int col = 0; col < 8; col++) {
            const int lane = (row % 8) * 4 + col / 2;
            static_cast<emu_mma *>(operands[lane])->d[row / 8 * 2 + col % 2] = sum[col];
        }
    }
}

struct emu_f16 {
    static float widen(gk_u32 bits)
    {
        return f16_bits_to_f32((gk_u16)bits);
    }
};
struct emu_bf16 {
    static float widen(gk_u32 bits)
    {
        return bits_to_f32(bits << 16);
    }
};

// Fragments of m16n8k16, two elements a register, low half first: with g = lane / 4 and
// t = lane % 4, a[i] holds row g + 8 (i % 2), columns 2t + 8 (i / 2) and the next; b[i] holds
// column g, rows 2t + 8 i and the next; d[i] is row g + 8 (i / 2), column 2t + i % 2.
template <class T> inline void emu_mma_k16(void *const *operands, unsigned)
{
    float a[16][16];
    emu_row b[16];
    for (int lane = 0; lane < GK_EMU_WARP; lane++) {
        const auto *const own = static_cast<emu_mma *>(operands[lane]);
        const int g = lane / 4;
        const int t = lane % 4;
        for (int i = 0; i < 4; i++) {
            float *const pair = &a[g + 8 * (i % 2)][2 * t + 8 * (i / 2)];
            pair[0] = T::widen(own->a[i] & 0xffffu);
            pair[1] = T::widen(own->a[i] >> 16);
        }
        for (int i = 0; i < 2; i++) {
            b[2 * t + 8 * i][g] = T::widen(own->b[i] & 0xffffu);
            b[2 * t + 8 * i + 1][g] = T::widen(own->b[i] >> 16);
        }
    }
    emu_mma_multiply<16>(operands, a, b);
}

// Fragments of m16n8k8 on tf32, one element a register: a[i] is row g + 8 (i % 2), column
// t + 4 (i / 2); b[i] is row t + 4 i, column g. The low 13 bits of an operand are ignored.
inline void emu_mma_k8(void *const *operands, unsigned)
{
    float a[16][8];
    emu_row b[8];
    for (int lane = 0; lane < GK_EMU_WARP; lane++) {
        const auto *const own = static_cast<emu_mma *>(operands[lane]);
        const int g = lane / 4;
        const int t = lane % 4;
        for (int i = 0; i < 4; i++) {
            a[g + 8 * (i % 2)][t + 4 * (i / 2)] = bits_to_f32(own->a[i] & 0xffffe000u);
        }
        for (int i = 0; i < 2; i++) {
            b[t + 4 * i][g] = bits_to_f32(own->b[i] & 0xffffe000u);
        }
    }
    emu_mma_multiply<8>(operands, a, b);
}

inline void emu_mma_issue(gk_emu_operation *operation, float *d, const gk_u32 *a, const gk_u32 *b,
                          const char *file, int line)
{
    emu_mma operand = {d, a, b};
    gk_emu_collective(operation, "mma.sync", GK_EMU_FULL_MASK, true, &operand, file, line);
}

inline void mma_m16n8k16_f16(float (&d)[4], const gk_u32 (&a)[4], const gk_u32 (&b)[2], GK_EMU_SITE)
{
    emu_mma_issue(emu_mma_k16<emu_f16>, d, a, b, file, line);
}

inline void mma_m16n8k16_bf16(float (&d)[4], const gk_u32 (&a)[4], const gk_u32 (&b)[2],
                              GK_EMU_SITE)
{
    emu_mma_issue(emu_mma_k16<emu_bf16>, d, a, b, file, line);
}

inline void mma_m16n8k8_tf32(float (&d)[4], const gk_u32 (&a)[4], const gk_u32 (&b)[2], GK_EMU_SITE)
{
    emu_mma_issue(emu_mma_k8, d, a, b, file, line);
}

inline gk_u64 atomic_add(gk_u64 *counter, gk_u64 value)
{
    return atomicAdd(counter, value);
}

inline void thread_fence()
{
    __threadfence();
}

// Launches in a stream do not overlap.
inline void grid_wait()
{
}

inline void grid_launch_next()
{
}

inline void grid_launch_next_if(bool)
{
}

inline bool grid_is_small()
{
    return true;
}

inline bool grid_fills_once()
{
    return true;
}

inline void grid_begin()
{
}

// Reads the byte: where there is no memory, that shows.
inline void prefetch_l2(const void *address)
{
    (void)*static_cast<const volatile unsigned char *>(address);
}

} // namespace gk
