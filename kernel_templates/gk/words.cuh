// Elements in 32-bit words of registers.
#pragma once
#include "gk/dtypes.cuh"

namespace gk {

template <class U> struct packed {
    static GK_DEVICE U get(const gk_u32 *words, int i)
    {
        return U{(gk_u16)(words[i / 2] >> (16 * (i % 2)))};
    }
    static GK_DEVICE void put(gk_u32 *words, int i, U x)
    {
        words[i / 2] = i % 2 == 0 ? x.bits : words[i / 2] | (gk_u32)x.bits << 16;
    }
};
template <> struct packed<f32> {
    static GK_DEVICE f32 get(const gk_u32 *words, int i)
    {
        return bits_to_f32(words[i]);
    }
    static GK_DEVICE void put(gk_u32 *words, int i, f32 x)
    {
        words[i] = f32_to_bits(x);
    }
};
template <> struct packed<f64> {
    static GK_DEVICE f64 get(const gk_u32 *words, int i)
    {
        return __longlong_as_double((long long)((gk_u64)words[2 * i + 1] << 32 | words[2 * i]));
    }
    static GK_DEVICE void put(gk_u32 *words, int i, f64 x)
    {
        const gk_u64 bits = (gk_u64)__double_as_longlong(x);
        words[2 * i] = (gk_u32)bits;
        words[2 * i + 1] = (gk_u32)(bits >> 32);
    }
};

template <int BYTES> GK_DEVICE void load_words(gk_u32 *words, const void *from)
{
    if constexpr (BYTES == 2) {
        words[0] = *(const gk_u16 *)from;
    } else if constexpr (BYTES == 4) {
        words[0] = *(const gk_u32 *)from;
    } else if constexpr (BYTES == 8) {
        const uint2 v = *(const uint2 *)from;
        words[0] = v.x;
        words[1] = v.y;
    } else {
        GK_UNROLL
        for (int i = 0; i < BYTES / 16; i++) {
            const uint4 v = ((const uint4 *)from)[i];
            words[4 * i] = v.x;
            words[4 * i + 1] = v.y;
            words[4 * i + 2] = v.z;
            words[4 * i + 3] = v.w;
        }
    }
}

template <int BYTES> GK_DEVICE void store_words(void *to, const gk_u32 *words)
{
    if constexpr (BYTES == 2) {
        *(gk_u16 *)to = (gk_u16)words[0];
    } else if constexpr (BYTES == 4) {
        *(gk_u32 *)to = words[0];
    } else if constexpr (BYTES == 8) {
        *(uint2 *)to = make_uint2(words[0], words[1]);
    } else {
        GK_UNROLL
        for (int i = 0; i < BYTES / 16; i++) {
            ((uint4 *)to)[i] =
                make_uint4(words[4 * i], words[4 * i + 1], words[4 * i + 2], words[4 * i + 3]);
        }
    }
}

} // namespace gk
