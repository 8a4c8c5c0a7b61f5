// Stands first in every rendered CUDA source: fixed-width names and the kernel declaration.
#pragma once

typedef unsigned char gk_u8;
typedef unsigned short gk_u16;
typedef unsigned int gk_u32;
typedef unsigned long long gk_u64;
typedef long long gk_i64;

#define GK_DEVICE __device__ __forceinline__

// Declares the module's one kernel. GK_KERNEL_NAME comes from the renderer.
#define GK_KERNEL(threads, min_blocks, Args, args)                                                 \
    extern "C" __global__ void __launch_bounds__(threads, min_blocks)                              \
        GK_KERNEL_NAME(const __grid_constant__ Args args)

// Names the block's dynamic shared memory, aligned for every access a template makes.
#define GK_DYNAMIC_SHARED(name) extern __shared__ __align__(1024) unsigned char name[]

#define GK_UNROLL    _Pragma("unroll")
#define GK_NO_UNROLL _Pragma("unroll 1")
