// CUDA's mathematical functions. Compiler builtins instead of <cmath>, which would be most of a
// kernel's compile time.
#pragma once

#define GK_EMU_MATH1(name)                                                                         \
    inline float name##f(float x)                                                                  \
    {                                                                                              \
        return __builtin_##name##f(x);                                                             \
    }                                                                                              \
    inline float name(float x)                                                                     \
    {                                                                                              \
        return __builtin_##name##f(x);                                                             \
    }                                                                                              \
    inline double name(double x)                                                                   \
    {                                                                                              \
        return __builtin_##name(x);                                                                \
    }
#define GK_EMU_MATH2(name)                                                                         \
    inline float name##f(float x, float y)                                                         \
    {                                                                                              \
        return __builtin_##name##f(x, y);                                                          \
    }                                                                                              \
    inline float name(float x, float y)                                                            \
    {                                                                                              \
        return __builtin_##name##f(x, y);                                                          \
    }                                                                                              \
    inline double name(double x, double y)                                                         \
    {                                                                                              \
        return __builtin_##name(x, y);                                                             \
    }

GK_EMU_MATH1(exp)
GK_EMU_MATH1(exp2)
GK_EMU_MATH1(expm1)
GK_EMU_MATH1(log)
GK_EMU_MATH1(log2)
GK_EMU_MATH1(log10)
GK_EMU_MATH1(log1p)
GK_EMU_MATH1(sqrt)
GK_EMU_MATH1(cbrt)
GK_EMU_MATH1(sin)
GK_EMU_MATH1(cos)
GK_EMU_MATH1(tan)
GK_EMU_MATH1(tanh)
GK_EMU_MATH1(sinh)
GK_EMU_MATH1(cosh)
GK_EMU_MATH1(erf)
GK_EMU_MATH1(erfc)
GK_EMU_MATH1(floor)
GK_EMU_MATH1(ceil)
GK_EMU_MATH1(trunc)
GK_EMU_MATH1(round)
GK_EMU_MATH1(rint)
GK_EMU_MATH1(fabs)
GK_EMU_MATH2(pow)
GK_EMU_MATH2(fmod)
GK_EMU_MATH2(atan2)
GK_EMU_MATH2(hypot)
GK_EMU_MATH2(copysign)
GK_EMU_MATH2(fmin)
GK_EMU_MATH2(fmax)

inline float fmaf(float x, float y, float z)
{
    return __builtin_fmaf(x, y, z);
}
inline float fma(float x, float y, float z)
{
    return __builtin_fmaf(x, y, z);
}
inline double fma(double x, double y, double z)
{
    return __builtin_fma(x, y, z);
}
inline float ldexpf(float x, int exponent)
{
    return __builtin_ldexpf(x, exponent);
}
inline double ldexp(double x, int exponent)
{
    return __builtin_ldexp(x, exponent);
}
inline float rsqrtf(float x)
{
    return 1.0f / __builtin_sqrtf(x);
}
inline float rsqrt(float x)
{
    return rsqrtf(x);
}
inline double rsqrt(double x)
{
    return 1.0 / __builtin_sqrt(x);
}
template <class T> inline bool isnan(T x)
{
    return __builtin_isnan(x);
}
template <class T> inline bool isinf(T x)
{
    return __builtin_isinf(x);
}
template <class T> inline bool isfinite(T x)
{
    return __builtin_isfinite(x);
}
inline int abs(int x)
{
    return x < 0 ? -x : x;
}
inline long long abs(long long x)
{
    return x < 0 ? -x : x;
}
inline float abs(float x)
{
    return __builtin_fabsf(x);
}
inline double abs(double x)
{
    return __builtin_fabs(x);
}

// Integers mix as in CUDA; floats drop a NaN operand.
template <class A, class B> constexpr auto min(A a, B b) -> decltype(a + b)
{
    return (decltype(a + b))b < (decltype(a + b))a ? (decltype(a + b))b : (decltype(a + b))a;
}
template <class A, class B> constexpr auto max(A a, B b) -> decltype(a + b)
{
    return (decltype(a + b))a < (decltype(a + b))b ? (decltype(a + b))b : (decltype(a + b))a;
}
inline float min(float a, float b)
{
    return __builtin_fminf(a, b);
}
inline float max(float a, float b)
{
    return __builtin_fmaxf(a, b);
}
inline double min(double a, double b)
{
    return __builtin_fmin(a, b);
}
inline double max(double a, double b)
{
    return __builtin_fmax(a, b);
}

// The approximate functions, exact to the host's precision.
inline float __expf(float x)
{
    return __builtin_expf(x);
}
inline float __logf(float x)
{
    return __builtin_logf(x);
}
inline float __log2f(float x)
{
    return __builtin_log2f(x);
}
inline float __powf(float x, float y)
{
    return __builtin_powf(x, y);
}
inline float __fdividef(float x, float y)
{
    return x / y;
}
inline float __fmaf_rn(float x, float y, float z)
{
    return __builtin_fmaf(x, y, z);
}
inline float __fadd_rn(float x, float y)
{
    return x + y;
}
inline float __fmul_rn(float x, float y)
{
    return x * y;
}
inline double __dadd_rn(double x, double y)
{
    return x + y;
}
inline double __dmul_rn(double x, double y)
{
    return x * y;
}
inline float __frcp_rn(float x)
{
    return 1.0f / x;
}
inline float __fsqrt_rn(float x)
{
    return __builtin_sqrtf(x);
}

template <class To, class From> inline To gk_emu_bits(From x)
{
    static_assert(sizeof(To) == sizeof(From), "the same bits need the same size");
    To r;
    __builtin_memcpy(&r, &x, sizeof r);
    return r;
}
inline unsigned __float_as_uint(float x)
{
    return gk_emu_bits<unsigned>(x);
}
inline int __float_as_int(float x)
{
    return gk_emu_bits<int>(x);
}
inline float __uint_as_float(unsigned x)
{
    return gk_emu_bits<float>(x);
}
inline float __int_as_float(int x)
{
    return gk_emu_bits<float>(x);
}
inline long long __double_as_longlong(double x)
{
    return gk_emu_bits<long long>(x);
}
inline double __longlong_as_double(long long x)
{
    return gk_emu_bits<double>(x);
}

inline int __popc(unsigned x)
{
    return __builtin_popcount(x);
}
inline int __popcll(unsigned long long x)
{
    return __builtin_popcountll(x);
}
inline int __clz(int x)
{
    return x == 0 ? 32 : __builtin_clz((unsigned)x);
}
inline int __clzll(long long x)
{
    return x == 0 ? 64 : __builtin_clzll((unsigned long long)x);
}
inline int __ffs(int x)
{
    return __builtin_ffs(x);
}
inline int __ffsll(long long x)
{
    return __builtin_ffsll(x);
}
inline unsigned __brev(unsigned x)
{
    unsigned r = 0;
    for (int i = 0; i < 32; i++) {
        r |= ((x >> i) & 1u) << (31 - i);
    }
    return r;
}
inline int __mul24(int x, int y)
{
    return (int)((unsigned)(x << 8 >> 8) * (unsigned)(y << 8 >> 8));
}
inline unsigned __umulhi(unsigned x, unsigned y)
{
    return (unsigned)(((unsigned long long)x * y) >> 32);
}
template <class T> inline T __ldg(const T *p)
{
    return *p;
}
