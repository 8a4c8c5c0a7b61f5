// Host meaning of gk/prelude.cuh: one CUDA thread is a fiber, and every name below works on the
// state of the fiber that runs.
#pragma once
#include "emu/abi.h"

typedef unsigned char gk_u8;
typedef unsigned short gk_u16;
typedef unsigned int gk_u32;
typedef unsigned long long gk_u64;
typedef long long gk_i64;
typedef decltype(sizeof 0) size_t; // NVRTC knows it without a header

#define GK_EMULATED 1
#define GK_DEVICE   inline

#define __device__
#define __host__
#define __global__
#define __constant__
#define __forceinline__ inline
#define __noinline__    __attribute__((noinline))
#define __align__(n)    __attribute__((aligned(n)))
#define __grid_constant__
#define __launch_bounds__(...)
#define __restrict__ __restrict

// Fibers do not move between host threads, but several host threads may run the same module.
static thread_local gk_emu_thread *gk_emu_self;

#define threadIdx (gk_emu_self->thread_idx)
#define blockIdx  (gk_emu_self->block_idx)
#define blockDim  (gk_emu_self->block_dim)
#define gridDim   (gk_emu_self->grid_dim)
#define warpSize  32

// Where the caller stands, as default arguments.
#define GK_EMU_SITE const char *file = __builtin_FILE(), int line = __builtin_LINE()

#define GK_EMU_EXPORT extern "C" __attribute__((visibility("default")))

#define GK_KERNEL(threads, min_blocks, Args, args)                                                 \
    static void gk_emu_body(const Args &args);                                                     \
    static void gk_emu_run(gk_emu_thread *self, const void *raw)                                   \
    {                                                                                              \
        gk_emu_self = self;                                                                        \
        gk_emu_body(*static_cast<const Args *>(raw));                                              \
    }                                                                                              \
    GK_EMU_EXPORT const gk_emu_kernel GK_KERNEL_NAME = {GK_EMU_ABI_VERSION, sizeof(Args),          \
                                                        (threads), (min_blocks), gk_emu_run};      \
    static void gk_emu_body(const Args &args)

#define GK_DYNAMIC_SHARED(name) unsigned char *const name = gk_emu_self->shared

#define GK_UNROLL
#define GK_NO_UNROLL

// A host call may run other threads of the block; afterwards this thread is current again.
inline void gk_emu_barrier(const char *file, int line)
{
    gk_emu_thread *const self = gk_emu_self;
    self->host->barrier(self, file, line);
    gk_emu_self = self;
}

inline void gk_emu_collective(gk_emu_operation *operation, const char *name, unsigned mask,
                              bool full_warp, void *operand, const char *file, int line)
{
    gk_emu_thread *const self = gk_emu_self;
    self->host->collective(self, operation, name, mask, full_warp, operand, file, line);
    gk_emu_self = self;
}

// In a loop that waits for other threads to change memory.
inline void gk_emu_poll(GK_EMU_SITE)
{
    gk_emu_thread *const self = gk_emu_self;
    self->host->poll(self, gk_emu_site{file, line});
    gk_emu_self = self;
}

#define __syncthreads() gk_emu_barrier(__FILE__, __LINE__)

#include "emu/cuda_atomics.cuh"
#include "emu/cuda_checks.cuh"
#include "emu/cuda_math.cuh"
#include "emu/cuda_vectors.cuh"
#include "emu/cuda_warp.cuh"
