// What transposes share: vectors of bytes in registers, squares of elements turned by 90 degrees,
// and the order in which tiles are visited.
#pragma once
#include "gk/ptx.cuh"
#include "gk/vector_memory.cuh"

namespace gk {

GK_DEVICE constexpr int smaller(int a, int b)
{
    return a < b ? a : b;
}

GK_DEVICE constexpr int larger(int a, int b)
{
    return a > b ? a : b;
}

// 32-bit words that hold as many bytes.
GK_DEVICE constexpr int words_of(int bytes)
{
    return larger(bytes / 4, 1);
}

template <int BYTES> struct word_of;
template <> struct word_of<1> {
    typedef gk_u8 type;
};
template <> struct word_of<2> {
    typedef gk_u16 type;
};
template <> struct word_of<4> {
    typedef gk_u32 type;
};
template <> struct word_of<8> {
    typedef uint2 type;
};
template <> struct word_of<16> {
    typedef uint4 type;
};

// BYTES at an address aligned to them. Fewer than 4 lie in the low end of a word.
template <int BYTES> struct vector {
    typedef typename word_of<BYTES>::type word;

    static GK_DEVICE void load(gk_u32 (&to)[words_of(BYTES)], const void *from)
    {
        const word value = *static_cast<const word *>(from);
        if constexpr (BYTES == 16) {
            to[0] = value.x;
            to[1] = value.y;
            to[2] = value.z;
            to[3] = value.w;
        } else if constexpr (BYTES == 8) {
            to[0] = value.x;
            to[1] = value.y;
        } else {
            to[0] = value;
        }
    }

    static GK_DEVICE void store(void *to, const gk_u32 (&from)[words_of(BYTES)])
    {
        if constexpr (BYTES == 16) {
            *static_cast<word *>(to) = make_uint4(from[0], from[1], from[2], from[3]);
        } else if constexpr (BYTES == 8) {
            *static_cast<word *>(to) = make_uint2(from[0], from[1]);
        } else {
            *static_cast<word *>(to) = (word)from[0];
        }
    }
};

// The same for device memory, where a compiler may take a wide access apart. Registers are aligned
// to 16 bytes.
template <int BYTES> GK_DEVICE void load_global(gk_u32 (&to)[words_of(BYTES)], const void *from)
{
    if constexpr (BYTES >= 8) {
        load_vector<BYTES, BYTES, CACHE_DEFAULT>(to, from);
    } else {
        vector<BYTES>::load(to, from);
    }
}

template <int BYTES> GK_DEVICE void store_global(void *to, const gk_u32 (&from)[words_of(BYTES)])
{
    if constexpr (BYTES >= 8) {
        store_vector<BYTES, BYTES, CACHE_DEFAULT>(to, from);
    } else {
        vector<BYTES>::store(to, from);
    }
}

// 4 bytes of 4 rows: byte j of row i to byte i of row j.
GK_DEVICE void turn_bytes(gk_u32 a, gk_u32 b, gk_u32 c, gk_u32 d, gk_u32 (&to)[4])
{
    const gk_u32 ab = byte_permute(a, b, 0x5140);
    const gk_u32 cd = byte_permute(c, d, 0x5140);
    const gk_u32 ab_high = byte_permute(a, b, 0x7362);
    const gk_u32 cd_high = byte_permute(c, d, 0x7362);
    to[0] = byte_permute(ab, cd, 0x5410);
    to[1] = byte_permute(ab, cd, 0x7632);
    to[2] = byte_permute(ab_high, cd_high, 0x5410);
    to[3] = byte_permute(ab_high, cd_high, 0x7632);
}

// R vectors of C elements of SIZE bytes become C vectors of R elements.
template <int SIZE, int R, int C>
GK_DEVICE void turn(const gk_u32 (&from)[R][words_of(C * SIZE)],
                    gk_u32 (&to)[C][words_of(R * SIZE)])
{
    if constexpr (SIZE >= 4) {
        constexpr int WORDS = SIZE / 4;
        GK_UNROLL
        for (int i = 0; i < R * C * WORDS; i++) {
            const int r = i / (C * WORDS);
            const int c = i / WORDS % C;
            to[c][r * WORDS + i % WORDS] = from[r][c * WORDS + i % WORDS];
        }
    } else if constexpr (SIZE == 2 && R > 1 && C > 1) {
        GK_UNROLL
        for (int i = 0; i < C * R / 2; i++) {
            const int c = i % C;
            const int r = i / C * 2;
            to[c][r / 2] =
                byte_permute(from[r][c / 2], from[r + 1][c / 2], c % 2 ? 0x7632 : 0x5410);
        }
    } else if constexpr (SIZE == 1 && R > 2 && C > 2) {
        GK_UNROLL
        for (int i = 0; i < C * R / 16; i++) {
            const int c = i % (C / 4) * 4;
            const int r = i / (C / 4) * 4;
            gk_u32 square[4];
            turn_bytes(from[r][c / 4], from[r + 1][c / 4], from[r + 2][c / 4], from[r + 3][c / 4],
                       square);
            GK_UNROLL
            for (int j = 0; j < 4; j++) {
                to[c + j][r / 4] = square[j];
            }
        }
    } else {
        constexpr gk_u32 MASK = 0xffffffffu >> (32 - 8 * SIZE);
        GK_UNROLL
        for (int c = 0; c < C; c++) {
            GK_UNROLL
            for (int w = 0; w < words_of(R * SIZE); w++) {
                to[c][w] = 0;
            }
            GK_UNROLL
            for (int r = 0; r < R; r++) {
                const gk_u32 x = from[r][c * SIZE / 4] >> (c * SIZE % 4 * 8) & MASK;
                to[c][r * SIZE / 4] |= x << (r * SIZE % 4 * 8);
            }
        }
    }
}

struct tile_place {
    gk_u32 r, c;
};

// The index-th of tiles_r x tiles_c tiles: `group` rows together, column by column.
GK_DEVICE tile_place place_of_tile(gk_u32 index, gk_u32 tiles_r, gk_u32 tiles_c, gk_u32 group)
{
    const gk_u32 first = index / (group * tiles_c) * group;
    const gk_u32 in_group = index - first * tiles_c;
    const gk_u32 height = tiles_r - first < group ? tiles_r - first : group;
    tile_place place;
    place.r = first + in_group % height;
    place.c = in_group / height;
    return place;
}

} // namespace gk
