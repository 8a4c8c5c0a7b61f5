// Every instruction the templates use that C++ cannot say. emu/ptx.cuh gives the same functions
// their meaning on the host. Names and operand layouts follow the PTX ISA manual.
#pragma once

namespace gk {

GK_DEVICE gk_u32 f32_to_bits(float x)
{
    return __float_as_uint(x);
}

GK_DEVICE float bits_to_f32(gk_u32 x)
{
    return __uint_as_float(x);
}

GK_DEVICE float f16_bits_to_f32(gk_u16 x)
{
    float r;
    asm("cvt.f32.f16 %0, %1;" : "=f"(r) : "h"(x));
    return r;
}

GK_DEVICE gk_u16 f32_to_f16_bits(float x)
{
    gk_u16 r;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(r) : "f"(x));
    return r;
}

GK_DEVICE gk_u16 f32_to_bf16_bits(float x)
{
    gk_u16 r;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(r) : "f"(x));
    return r;
}

// Two numbers, the first in the low half.
GK_DEVICE gk_u32 f32_to_f16x2_bits(float low, float high)
{
    gk_u32 r;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
    return r;
}

GK_DEVICE gk_u32 f32_to_bf16x2_bits(float low, float high)
{
    gk_u32 r;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
    return r;
}

// 2^x to some 22 bits. Below the normal range the result is 0, which spares instructions.
GK_DEVICE float exp2_approximate(float x)
{
    float r;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
    return r;
}

// 1 / x to some 22 bits; 0 where that is below the normal range.
GK_DEVICE float reciprocal_approximate(float x)
{
    float r;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
    return r;
}

// Rounds to tf32 (10 mantissa bits), ties away from zero; the low 13 bits of the result are zero.
// The addition makes the canonical NaN of any other: of one with low bits only the instruction
// makes infinity.
GK_DEVICE gk_u32 f32_to_tf32_bits(float x)
{
    gk_u32 r;
    asm("{.reg .f32 quiet; add.f32 quiet, %1, 0f80000000; cvt.rna.tf32.f32 %0, quiet;}"
        : "=r"(r)
        : "f"(x));
    return r;
}

// Four of the eight bytes of a (0 to 3) and b (4 to 7): byte i by the i-th hexadecimal digit of
// `selector`, the lowest digit first.
GK_DEVICE gk_u32 byte_permute(gk_u32 a, gk_u32 b, gk_u32 selector)
{
    gk_u32 r;
    asm("prmt.b32 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(b), "r"(selector));
    return r;
}

// IEEE 754-2019 maximum and minimum: NaN if either is, and +0 is above -0.
GK_DEVICE float max_nan(float a, float b)
{
    float r;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b));
    return r;
}

GK_DEVICE float min_nan(float a, float b)
{
    float r;
    asm("min.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b));
    return r;
}

// x as a value that the compiler knows nothing about: what is made from it is not computed ahead,
// and what is added to it becomes the immediate offset of an instruction that has one.
GK_DEVICE gk_u32 opaque(gk_u32 x)
{
    gk_u32 r;
    asm volatile("mov.u32 %0, %1;" : "=r"(r) : "r"(x));
    return r;
}

GK_DEVICE gk_u32 shared_address(const void *p)
{
    return (gk_u32)__cvta_generic_to_shared(p);
}

// Copies BYTES (4, 8 or 16) to shared memory asynchronously; only the first `valid` bytes are read
// and the rest is filled with zeros. Both addresses are aligned to BYTES. Copies of 16 bytes go
// past L1 unless CACHE_L1; narrower ones cannot.
template <int BYTES, bool CACHE_L1 = false>
GK_DEVICE void cp_async(gk_u32 shared, const void *global, int valid)
{
    static_assert(BYTES == 4 || BYTES == 8 || BYTES == 16, "cp.async copies 4, 8 or 16 bytes");
    if constexpr (BYTES == 16 && !CACHE_L1) {
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared), "l"(global),
                     "r"(valid)
                     : "memory");
    } else {
        asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(shared), "l"(global),
                     "n"(BYTES), "r"(valid)
                     : "memory");
    }
}

template <int BYTES, bool CACHE_L1 = false>
GK_DEVICE void cp_async(void *shared, const void *global, int valid)
{
    cp_async<BYTES, CACHE_L1>(shared_address(shared), global, valid);
}

// The same of BYTES if `go`. There is no branch, so that the compiler can place it anywhere.
template <int BYTES> GK_DEVICE void cp_async_if(void *shared, const void *global, bool go)
{
    static_assert(BYTES == 4 || BYTES == 8 || BYTES == 16, "cp.async copies 4, 8 or 16 bytes");
    if constexpr (BYTES == 16) {
        asm volatile("{\n"
                     ".reg .pred go;\n"
                     "setp.ne.s32 go, %2, 0;\n"
                     "@go cp.async.cg.shared.global [%0], [%1], 16;\n"
                     "}" ::"r"(shared_address(shared)),
                     "l"(global), "r"((int)go)
                     : "memory");
    } else {
        asm volatile("{\n"
                     ".reg .pred go;\n"
                     "setp.ne.s32 go, %3, 0;\n"
                     "@go cp.async.ca.shared.global [%0], [%1], %2;\n"
                     "}" ::"r"(shared_address(shared)),
                     "l"(global), "n"(BYTES), "r"((int)go)
                     : "memory");
    }
}

// A copy of 16 bytes that the second-level cache is to drop first.
GK_DEVICE void cp_async_once(void *shared, const void *global)
{
    gk_u64 policy;
    asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
    asm volatile("cp.async.cg.shared.global.L2::cache_hint [%0], [%1], 16, %2;" ::"r"(
                     shared_address(shared)),
                 "l"(global), "l"(policy)
                 : "memory");
}

GK_DEVICE void cp_async_commit()
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}

// Waits until at most PENDING of this thread's latest groups are unfinished.
template <int PENDING> GK_DEVICE void cp_async_wait()
{
    asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory");
}

// Four 8x8 matrices of 16-bit elements; lane i gives the address of row i % 8 of matrix i / 8.
GK_DEVICE void ldmatrix_x4(gk_u32 (&r)[4], const void *row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(shared_address(row))
                 : "memory");
}

GK_DEVICE void ldmatrix_x4_trans(gk_u32 (&r)[4], const void *row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(shared_address(row))
                 : "memory");
}

GK_DEVICE void ldmatrix_x2(gk_u32 (&r)[2], const void *row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0,%1}, [%2];"
                 : "=r"(r[0]), "=r"(r[1])
                 : "r"(shared_address(row))
                 : "memory");
}

GK_DEVICE void ldmatrix_x2_trans(gk_u32 (&r)[2], const void *row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0,%1}, [%2];"
                 : "=r"(r[0]), "=r"(r[1])
                 : "r"(shared_address(row))
                 : "memory");
}

// d += a * b on one warp, f32 accumulation: A is 16xK row-major, B is Kx8 column-major.
GK_DEVICE void mma_m16n8k16_f16(float (&d)[4], const gk_u32 (&a)[4], const gk_u32 (&b)[2])
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
                 "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

GK_DEVICE void mma_m16n8k16_bf16(float (&d)[4], const gk_u32 (&a)[4], const gk_u32 (&b)[2])
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
                 "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

GK_DEVICE void mma_m16n8k8_tf32(float (&d)[4], const gk_u32 (&a)[4], const gk_u32 (&b)[2])
{
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 "
                 "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// Adds `value` to a counter in global memory, ordered after the block's earlier writes that were
// made visible by thread_fence; returns the old value.
GK_DEVICE gk_u64 atomic_add(gk_u64 *counter, gk_u64 value)
{
    return atomicAdd(counter, value);
}

GK_DEVICE void thread_fence()
{
    __threadfence();
}

// A kernel launched to overlap the one before it in the stream: returns when that one's results are
// visible. Elsewhere it returns at once. Both do nothing below compute capability 9.0, where no
// kernel is launched so.
GK_DEVICE void grid_wait()
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// Lets the next kernel of the stream start, which then waits in grid_wait().
GK_DEVICE void grid_launch_next()
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// The same on a condition, in one instruction: a branch would cut a loop's body in two.
GK_DEVICE void grid_launch_next_if(bool condition)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("{\n"
                 ".reg .pred p;\n"
                 "setp.ne.u32 p, %0, 0;\n"
                 "@p griddepcontrol.launch_dependents;\n"
                 "}" ::"r"((gk_u32)condition));
#endif
}

// Whether each block of the grid finds one of an H100's 132 multiprocessors for itself. Then the
// next kernel may start when this one's last loads are under way. Of larger grids it would crowd
// its first blocks on the multiprocessors that are free first.
GK_DEVICE bool grid_is_small()
{
    return gridDim.x <= 132;
}

// And whether few multiprocessors are left without one: where there is room for one block only, the
// next kernel's blocks then come in as this one's leave.
GK_DEVICE bool grid_fills_once()
{
    return grid_is_small() && gridDim.x >= 120;
}

// Both, where a kernel does nothing worth mentioning before it reads: the next kernel's blocks come
// in as this one's leave, or while it waits itself if all of it is there.
GK_DEVICE void grid_begin()
{
    grid_launch_next();
    grid_wait();
}

// Before grid_wait(): asks for the line of device memory at that address in the second-level cache.
// What is written there later is seen all the same. Nothing below compute capability 9.0, where the
// kernel would read it at once.
GK_DEVICE void prefetch_l2(const void *address)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("prefetch.global.L2 [%0];" ::"l"(address));
#endif
}

} // namespace gk
