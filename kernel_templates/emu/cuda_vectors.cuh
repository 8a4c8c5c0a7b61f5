// CUDA's vector types with CUDA's alignments.
#pragma once

#define GK_EMU_VECTOR(T, name, align1, align2, align4)                                             \
    struct alignas(align1) name##1                                                                 \
    {                                                                                              \
        T x;                                                                                       \
    };                                                                                             \
    struct alignas(align2) name##2                                                                 \
    {                                                                                              \
        T x, y;                                                                                    \
    };                                                                                             \
    struct alignas(align1) name##3                                                                 \
    {                                                                                              \
        T x, y, z;                                                                                 \
    };                                                                                             \
    struct alignas(align4) name##4                                                                 \
    {                                                                                              \
        T x, y, z, w;                                                                              \
    };                                                                                             \
    inline name##1 make_##name##1(T x)                                                             \
    {                                                                                              \
        return name##1 {x};                                                                        \
    }                                                                                              \
    inline name##2 make_##name##2(T x, T y)                                                        \
    {                                                                                              \
        return name##2 {x, y};                                                                     \
    }                                                                                              \
    inline name##3 make_##name##3(T x, T y, T z)                                                   \
    {                                                                                              \
        return name##3 {x, y, z};                                                                  \
    }                                                                                              \
    inline name##4 make_##name##4(T x, T y, T z, T w)                                              \
    {                                                                                              \
        return name##4 {x, y, z, w};                                                               \
    }

GK_EMU_VECTOR(signed char, char, 1, 2, 4)
GK_EMU_VECTOR(unsigned char, uchar, 1, 2, 4)
GK_EMU_VECTOR(short, short, 2, 4, 8)
GK_EMU_VECTOR(unsigned short, ushort, 2, 4, 8)
GK_EMU_VECTOR(int, int, 4, 8, 16)
GK_EMU_VECTOR(unsigned int, uint, 4, 8, 16)
GK_EMU_VECTOR(long long, longlong, 8, 16, 16)
GK_EMU_VECTOR(unsigned long long, ulonglong, 8, 16, 16)
GK_EMU_VECTOR(float, float, 4, 8, 16)
GK_EMU_VECTOR(double, double, 8, 16, 16)

typedef gk_emu_dim3 dim3;
