// Element types and their conversions to and from the type that sums are kept in.
#pragma once
#include "gk/ptx.cuh"

namespace gk {

struct f16 {
    gk_u16 bits;
};
struct bf16 {
    gk_u16 bits;
};
struct e4m3 {
    gk_u8 bits;
};
struct e5m2 {
    gk_u8 bits;
};
typedef float f32;
typedef double f64;
typedef int i32;
typedef signed char i8;
typedef unsigned char u8;

// The accumulator of a product of two T.
template <class T> struct accumulator {
    typedef float type;
};
template <> struct accumulator<f64> {
    typedef double type;
};
template <> struct accumulator<i32> {
    typedef int type;
};
template <> struct accumulator<i8> {
    typedef int type;
};
template <> struct accumulator<u8> {
    typedef int type;
};

// An 8-bit float with EXP exponent bits, widened exactly. e4m3 has no infinities and its NaN is
// all ones (OCP 8-bit Floating Point Specification 1.0).
template <int EXP, bool HAS_INF> GK_DEVICE float widen_fp8(gk_u8 bits)
{
    constexpr int MAN = 7 - EXP;
    constexpr int BIAS = (1 << (EXP - 1)) - 1;
    const gk_u32 sign = (gk_u32)(bits & 0x80) << 24;
    const gk_u32 exponent = (bits & 0x7f) >> MAN;
    const gk_u32 mantissa = bits & ((1u << MAN) - 1);
    constexpr gk_u32 TOP = (1u << EXP) - 1;
    if (HAS_INF && exponent == TOP) {
        return bits_to_f32(sign | 0x7f800000u | (mantissa << (23 - MAN)));
    }
    if (!HAS_INF && exponent == TOP && mantissa == (1u << MAN) - 1) {
        return bits_to_f32(sign | 0x7fc00000u);
    }
    if (exponent == 0) {
        // mantissa * 2^(1 - BIAS - MAN), exact in f32
        const float scale = bits_to_f32((gk_u32)(127 + 1 - BIAS - MAN) << 23);
        return bits_to_f32(sign | f32_to_bits((float)mantissa * scale));
    }
    return bits_to_f32(sign | ((exponent + 127 - BIAS) << 23) | (mantissa << (23 - MAN)));
}

// Rounds to nearest even and saturates finite values; infinities saturate too where the type has
// none, NaN stays NaN.
template <int EXP, bool HAS_INF> GK_DEVICE gk_u8 narrow_fp8(float value)
{
    constexpr int MAN = 7 - EXP;
    constexpr int BIAS = (1 << (EXP - 1)) - 1;
    const gk_u32 bits = f32_to_bits(value);
    const gk_u8 sign = (gk_u8)((bits >> 24) & 0x80);
    const gk_u32 magnitude = bits & 0x7fffffffu;
    constexpr gk_u8 LARGEST = HAS_INF ? 0x7b : 0x7e;
    if (magnitude > 0x7f800000u) {
        return sign | 0x7f;
    }
    if (HAS_INF && magnitude == 0x7f800000u) {
        return sign | 0x7c;
    }
    const int exponent = (int)(magnitude >> 23) - 127 + BIAS;
    if (exponent >= (1 << EXP)) {
        return sign | LARGEST;
    }
    gk_u32 rounded;
    if (exponent >= 1) {
        const gk_u32 kept = ((gk_u32)exponent << 23) | (magnitude & 0x7fffffu);
        const gk_u32 half = (1u << (22 - MAN)) - 1 + ((kept >> (23 - MAN)) & 1);
        rounded = (kept + half) >> (23 - MAN);
    } else {
        const int shift = 23 - MAN + 1 - exponent;
        if (shift > 24) {
            return sign;
        }
        const gk_u32 kept = (magnitude & 0x7fffffu) | 0x800000u;
        const gk_u32 half = (1u << (shift - 1)) - 1 + ((kept >> shift) & 1);
        rounded = (kept + half) >> shift;
    }
    return sign | (gk_u8)(rounded > LARGEST ? LARGEST : rounded);
}

// load_as<Acc>(x): x widened exactly. store_as<T>(x): x rounded to nearest even.
template <class Acc> GK_DEVICE Acc load_as(f64 x)
{
    return (Acc)x;
}
template <class Acc> GK_DEVICE Acc load_as(f32 x)
{
    return (Acc)x;
}
template <class Acc> GK_DEVICE Acc load_as(f16 x)
{
    return (Acc)f16_bits_to_f32(x.bits);
}
template <class Acc> GK_DEVICE Acc load_as(bf16 x)
{
    return (Acc)bits_to_f32((gk_u32)x.bits << 16);
}
template <class Acc> GK_DEVICE Acc load_as(e4m3 x)
{
    return (Acc)widen_fp8<4, false>(x.bits);
}
template <class Acc> GK_DEVICE Acc load_as(e5m2 x)
{
    return (Acc)widen_fp8<5, true>(x.bits);
}
template <class Acc> GK_DEVICE Acc load_as(i32 x)
{
    return (Acc)x;
}
template <class Acc> GK_DEVICE Acc load_as(i8 x)
{
    return (Acc)x;
}
template <class Acc> GK_DEVICE Acc load_as(u8 x)
{
    return (Acc)x;
}

// An f32 that rounds to a narrower float as x does: f64 is cut, and a last bit of 1 stands for what
// is lost (rounding to odd), so that the second rounding is as good as one.
template <class Acc> GK_DEVICE float before_narrowing(Acc x)
{
    return (float)x;
}
GK_DEVICE float before_narrowing(double x)
{
    const float nearest = (float)x;
    const double back = (double)nearest;
    if (!(back < x || back > x)) {
        return nearest; // exact, or NaN
    }
    const bool beyond = x < 0 ? back < x : back > x; // also an infinity that is none
    return bits_to_f32((f32_to_bits(nearest) - (beyond ? 1 : 0)) | 1);
}

template <class T> struct converter {
    template <class Acc> static GK_DEVICE T from(Acc x)
    {
        return (T)x;
    }
};
template <> struct converter<f16> {
    template <class Acc> static GK_DEVICE f16 from(Acc x)
    {
        return f16{f32_to_f16_bits(before_narrowing(x))};
    }
};
template <> struct converter<bf16> {
    template <class Acc> static GK_DEVICE bf16 from(Acc x)
    {
        return bf16{f32_to_bf16_bits(before_narrowing(x))};
    }
};
template <> struct converter<e4m3> {
    template <class Acc> static GK_DEVICE e4m3 from(Acc x)
    {
        return e4m3{narrow_fp8<4, false>(before_narrowing(x))};
    }
};
template <> struct converter<e5m2> {
    template <class Acc> static GK_DEVICE e5m2 from(Acc x)
    {
        return e5m2{narrow_fp8<5, true>(before_narrowing(x))};
    }
};
template <class T, class Acc> GK_DEVICE T store_as(Acc x)
{
    return converter<T>::from(x);
}

// Two numbers as 16-bit floats, the first in the low half.
template <class T> GK_DEVICE gk_u32 store_pair_as(float low, float high);
template <> GK_DEVICE gk_u32 store_pair_as<f16>(float low, float high)
{
    return f32_to_f16x2_bits(low, high);
}
template <> GK_DEVICE gk_u32 store_pair_as<bf16>(float low, float high)
{
    return f32_to_bf16x2_bits(low, high);
}

} // namespace gk
