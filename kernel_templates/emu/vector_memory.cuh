// Host meaning of gk/vector_memory.cuh. A piece is read and written as one access of its alignment,
// which the CPU device checks.
#pragma once

namespace gk {

enum { CACHE_DEFAULT = 0, CACHE_STREAM = 1, CACHE_KEEP = 2, CACHE_LAST = 3 };

GK_DEVICE constexpr int vector_piece(int bytes, int align)
{
    return bytes < align ? (bytes < 16 ? bytes : 16) : (align < 16 ? align : 16);
}

template <int PIECE> struct alignas(PIECE) emu_piece {
    gk_u8 bytes[PIECE];
};

template <int BYTES, int ALIGN, int CACHE>
inline void load_vector(void *registers, const void *memory)
{
    constexpr int PIECE = vector_piece(BYTES, ALIGN);
    for (int at = 0; at < BYTES; at += PIECE) {
        *(emu_piece<PIECE> *)((gk_u8 *)registers + at) =
            *(const emu_piece<PIECE> *)((const gk_u8 *)memory + at);
    }
}

template <int BYTES, int ALIGN, int CACHE>
inline void store_vector(void *memory, const void *registers)
{
    constexpr int PIECE = vector_piece(BYTES, ALIGN);
    for (int at = 0; at < BYTES; at += PIECE) {
        *(emu_piece<PIECE> *)((gk_u8 *)memory + at) =
            *(const emu_piece<PIECE> *)((const gk_u8 *)registers + at);
    }
}

} // namespace gk
