// f32 in three bf16 parts, each the rest rounded to nearest: h + m + l = x. Of the nine products of
// two numbers' parts, six make up for f32's: h h, h m, m h, h l, l h, m m.
//
// Operands are scaled by 2^SCALE, so that even the parts of the smallest subnormal are normal bf16
// numbers. What overflows so, or is not finite, makes a sum that is not finite either, and that
// element of C is computed by ordinary multiply-adds instead.
#pragma once
#include "gk/dtypes.cuh"
#include "gk/matmul_args.h"

namespace gk {

constexpr int SCALE = 23;
constexpr int PARTS = 3; // h, m, l
constexpr float SCALED_BACK = 1.0f / (float)(1ll << 2 * SCALE);

struct split_pair {
    gk_u32 part[PARTS]; // two numbers' parts

    GK_DEVICE void split(float x, float y)
    {
        constexpr float FACTOR = (float)(1 << SCALE);
        x *= FACTOR;
        y *= FACTOR;
        GK_UNROLL
        for (int p = 0; p < PARTS; ++p) {
            part[p] = f32_to_bf16x2_bits(x, y);
            if (p < PARTS - 1) {
                x -= bits_to_f32(part[p] << 16);
                y -= bits_to_f32(part[p] & 0xffff0000u);
            }
        }
    }
};

GK_DEVICE bool is_finite(float x)
{
    return f32_to_bits(x) << 1 < 0xff000000u;
}

// An element of A B by multiply-adds in the order of K.
GK_DEVICE float ordinary_sum(const gk_matmul_args &args, gk_i64 row, gk_i64 col)
{
    const f32 *a = (const f32 *)args.a + row * args.a_row_stride;
    const f32 *b = (const f32 *)args.b + col * args.b_col_stride;
    float sum = 0.0f;
    GK_NO_UNROLL
    for (gk_i64 k = 0; k < args.k; ++k) {
        sum = fmaf(*a, *b, sum);
        a += args.a_col_stride;
        b += args.b_row_stride;
    }
    return sum;
}

} // namespace gk
