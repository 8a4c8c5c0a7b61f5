// Vectors between device memory and registers, with hints for the caches. emu/vector_memory.cuh
// gives the same functions their meaning on the host.
#pragma once

#include "gk/prelude.cuh"

namespace gk {

// CACHE_STREAM loads stay out of the first-level cache, stores leave the second-level cache first.
// What CACHE_KEEP loads stays in both for longest, what CACHE_LAST loads leaves them first; they
// are for whole pieces of 16 bytes.
enum { CACHE_DEFAULT = 0, CACHE_STREAM = 1, CACHE_KEEP = 2, CACHE_LAST = 3 };

template <int CACHE> GK_DEVICE void load_by_policy(gk_u32 *r, const void *memory)
{
    gk_u64 policy;
    if constexpr (CACHE == CACHE_KEEP) {
        asm("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(policy));
        asm volatile("ld.global.L1::evict_last.L2::cache_hint.v4.u32 {%0,%1,%2,%3}, [%4], %5;"
                     : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                     : "l"(memory), "l"(policy)
                     : "memory");
    } else {
        asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
        asm volatile("ld.global.L1::evict_first.L2::cache_hint.v4.u32 {%0,%1,%2,%3}, [%4], %5;"
                     : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                     : "l"(memory), "l"(policy)
                     : "memory");
    }
}

GK_DEVICE constexpr int vector_piece(int bytes, int align)
{
    return bytes < align ? (bytes < 16 ? bytes : 16) : (align < 16 ? align : 16);
}

// One piece of 1, 2, 4, 8 or 16 bytes. Not through the read-only path: an input may be the output.
template <int PIECE, int CACHE> GK_DEVICE void load_piece(void *registers, const void *memory)
{
    static_assert(PIECE == 1 || PIECE == 2 || PIECE == 4 || PIECE == 8 || PIECE == 16,
                  "loads have 1, 2, 4, 8 or 16 bytes");
    if constexpr (PIECE == 16) {
        gk_u32 *r = (gk_u32 *)registers;
        if constexpr (CACHE == CACHE_KEEP || CACHE == CACHE_LAST) {
            load_by_policy<CACHE>(r, memory);
        } else if constexpr (CACHE == CACHE_STREAM) {
            asm("ld.global.L1::no_allocate.v4.u32 {%0,%1,%2,%3}, [%4];"
                : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                : "l"(memory)
                : "memory");
        } else {
            asm("ld.global.v4.u32 {%0,%1,%2,%3}, [%4];"
                : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                : "l"(memory)
                : "memory");
        }
    } else if constexpr (PIECE == 8) {
        gk_u32 *r = (gk_u32 *)registers;
        if constexpr (CACHE == CACHE_STREAM) {
            asm("ld.global.L1::no_allocate.v2.u32 {%0,%1}, [%2];"
                : "=r"(r[0]), "=r"(r[1])
                : "l"(memory)
                : "memory");
        } else {
            asm("ld.global.v2.u32 {%0,%1}, [%2];"
                : "=r"(r[0]), "=r"(r[1])
                : "l"(memory)
                : "memory");
        }
    } else if constexpr (PIECE == 4) {
        *(gk_u32 *)registers = *(const gk_u32 *)memory;
    } else if constexpr (PIECE == 2) {
        *(gk_u16 *)registers = *(const gk_u16 *)memory;
    } else {
        *(gk_u8 *)registers = *(const gk_u8 *)memory;
    }
}

template <int PIECE, int CACHE> GK_DEVICE void store_piece(void *memory, const void *registers)
{
    static_assert(PIECE == 1 || PIECE == 2 || PIECE == 4 || PIECE == 8 || PIECE == 16,
                  "stores have 1, 2, 4, 8 or 16 bytes");
    if constexpr (PIECE == 16) {
        const gk_u32 *r = (const gk_u32 *)registers;
        if constexpr (CACHE == CACHE_STREAM) {
            asm volatile("st.global.cs.v4.u32 [%0], {%1,%2,%3,%4};" ::"l"(memory), "r"(r[0]),
                         "r"(r[1]), "r"(r[2]), "r"(r[3])
                         : "memory");
        } else {
            asm volatile("st.global.v4.u32 [%0], {%1,%2,%3,%4};" ::"l"(memory), "r"(r[0]),
                         "r"(r[1]), "r"(r[2]), "r"(r[3])
                         : "memory");
        }
    } else if constexpr (PIECE == 8) {
        const gk_u32 *r = (const gk_u32 *)registers;
        if constexpr (CACHE == CACHE_STREAM) {
            asm volatile("st.global.cs.v2.u32 [%0], {%1,%2};" ::"l"(memory), "r"(r[0]), "r"(r[1])
                         : "memory");
        } else {
            asm volatile("st.global.v2.u32 [%0], {%1,%2};" ::"l"(memory), "r"(r[0]), "r"(r[1])
                         : "memory");
        }
    } else if constexpr (PIECE == 4) {
        *(gk_u32 *)memory = *(const gk_u32 *)registers;
    } else if constexpr (PIECE == 2) {
        *(gk_u16 *)memory = *(const gk_u16 *)registers;
    } else {
        *(gk_u8 *)memory = *(const gk_u8 *)registers;
    }
}

// BYTES (a power of two) in as few pieces as an address that is a multiple of ALIGN allows.
// `registers` is aligned to the piece.
template <int BYTES, int ALIGN, int CACHE>
GK_DEVICE void load_vector(void *registers, const void *memory)
{
    constexpr int PIECE = vector_piece(BYTES, ALIGN);
    GK_UNROLL
    for (int at = 0; at < BYTES; at += PIECE) {
        load_piece<PIECE, CACHE>((gk_u8 *)registers + at, (const gk_u8 *)memory + at);
    }
}

template <int BYTES, int ALIGN, int CACHE>
GK_DEVICE void store_vector(void *memory, const void *registers)
{
    constexpr int PIECE = vector_piece(BYTES, ALIGN);
    GK_UNROLL
    for (int at = 0; at < BYTES; at += PIECE) {
        store_piece<PIECE, CACHE>((gk_u8 *)memory + at, (const gk_u8 *)registers + at);
    }
}

} // namespace gk
