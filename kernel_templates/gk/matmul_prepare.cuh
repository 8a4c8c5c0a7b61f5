// Operands copied into aligned workspace before the main loop, by all blocks of a grid that is
// resident at once: rows at any alignment, axes exchanged. The grid meets at a barrier before the
// tensor memory accelerator reads what was written.
//
// A matrix is seen as rows of bytes: a row is a stretch along the contiguous axis. Nothing outside
// of first .. last is read; the gaps between rows may be.
#pragma once
#include "gk/hopper.cuh"
#include "gk/prefetch.cuh"

namespace gk {

struct byte_rows {
    const unsigned char *first;
    gk_i64 span;  // from there to the end of the last row
    gk_i64 pitch; // from row to row
    gk_i64 row_bytes;
    gk_u32 rows;
};

GK_DEVICE byte_rows make_byte_rows(const void *data, gk_i64 rows, gk_i64 row_bytes, gk_i64 pitch)
{
    return byte_rows{(const unsigned char *)data, (rows - 1) * pitch + row_bytes, pitch, row_bytes,
                     (gk_u32)rows};
}

// Where the rows of a prepared operand start: on cache lines.
GK_DEVICE constexpr gk_i64 prepared_pitch(gk_i64 row_bytes)
{
    return (row_bytes + 127) / 128 * 128;
}

// 16 bytes at an address that is a multiple of ALIGN, read as the aligned pieces that hold them:
// two unless ALIGN is 16. ELEMENT is the size of what must not be torn apart, a divisor of all
// addresses.
template <int ELEMENT, int ALIGN> struct window {
    static constexpr bool SHIFTED = ALIGN < 16;
    uint4 low;
    uint4 high;
    int before; // bytes of `low` before the address
    bool there;

    // Loads from `offset` on if it `exists` and the pieces are within the matrix; `there` says so.
    GK_DEVICE void load(const byte_rows &from, gk_i64 offset, bool exists)
    {
        before = SHIFTED ? (int)((gk_u64)(from.first + offset) & (16 - ALIGN)) : 0;
        offset -= before;
        there = exists && offset >= 0 && offset <= from.span - (SHIFTED ? 32 : 16);
        const uint4 *at = (const uint4 *)(from.first + offset);
        // one short condition for both: predicated, so that many windows' loads are under way
        if (there) {
            low = at[0];
            if constexpr (SHIFTED) {
                high = at[1];
            }
        }
    }

    GK_DEVICE uint4 value() const
    {
        if constexpr (!SHIFTED) {
            return low;
        } else {
            gk_u32 w[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
            GK_UNROLL
            for (int i = 0; i < 6; ++i) {
                w[i] = (before & 8) != 0 ? w[i + 2] : w[i];
            }
            if constexpr (ALIGN < 8) {
                GK_UNROLL
                for (int i = 0; i < 5; ++i) {
                    w[i] = (before & 4) != 0 ? w[i + 1] : w[i];
                }
            }
            if constexpr (ALIGN < 4) {
                const int bits = (before & 3) * 8;
                GK_UNROLL
                for (int i = 0; i < 4; ++i) {
                    w[i] = (gk_u32)(((gk_u64)w[i + 1] << 32 | w[i]) >> bits);
                }
            }
            return uint4{w[0], w[1], w[2], w[3]};
        }
    }

    // The first `bytes` of the 16, element by element; zeros behind them.
    static GK_DEVICE uint4 gather(const unsigned char *at, gk_i64 bytes)
    {
        gk_u32 w[4];
        GK_UNROLL
        for (int i = 0; i < 4; ++i) {
            w[i] = 0;
            GK_UNROLL
            for (int j = 0; j < 4; j += ELEMENT) {
                if (i * 4 + j < bytes) {
                    const unsigned char *from = at + i * 4 + j;
                    const gk_u32 element = ELEMENT == 4   ? *(const gk_u32 *)from
                                           : ELEMENT == 2 ? *(const gk_u16 *)from
                                                          : *from;
                    w[i] |= element << (j * 8);
                }
            }
        }
        return uint4{w[0], w[1], w[2], w[3]};
    }
};

// f32 -> tf32 if ROUND.
template <bool ROUND> GK_DEVICE gk_u32 finished(gk_u32 bits)
{
    if constexpr (ROUND) {
        return f32_to_tf32_bits(bits_to_f32(bits));
    } else {
        return bits;
    }
}

template <bool ROUND> GK_DEVICE uint4 finished(uint4 v)
{
    return uint4{finished<ROUND>(v.x), finished<ROUND>(v.y), finished<ROUND>(v.z),
                 finished<ROUND>(v.w)};
}

// Copies rows to rows that start at multiples of 16 bytes. The grid's threads take 16-byte pieces
// in turn; load() has AT_ONCE of them under way, store() writes what they brought. ROUND: f32 ->
// tf32.
template <int ELEMENT, int ALIGN, bool ROUND, int THREADS, int AT_ONCE = 4> struct repack {
    typedef window<ELEMENT, ALIGN> piece;

    byte_rows from;
    unsigned char *to;
    gk_i64 to_pitch;
    gk_u32 chunks; // of a row
    gk_u32 total;
    gk_u32 index; // this thread's next piece, and its place
    gk_u32 row;
    gk_u32 chunk;
    gk_u32 step; // from a thread's piece to its next
    gk_u32 step_rows;
    gk_u32 step_chunks;
    piece held[AT_ONCE];

    // Blocks come in turn from `block` of the grid on.
    GK_DEVICE void begin(const byte_rows &source, unsigned char *target, gk_i64 target_pitch,
                         gk_u32 block)
    {
        from = source;
        to = target;
        to_pitch = target_pitch;
        chunks = (gk_u32)((source.row_bytes + 15) / 16);
        total = chunks * source.rows;
        chunks = chunks == 0 ? 1 : chunks; // divided by
        index = block * THREADS + threadIdx.x;
        row = index / chunks;
        chunk = index - row * chunks;
        step = gridDim.x * THREADS;
        step_rows = step / chunks;
        step_chunks = step - step_rows * chunks;
    }

    GK_DEVICE bool more() const
    {
        return index < total;
    }

    GK_DEVICE void advance(gk_u32 &r, gk_u32 &c) const
    {
        r += step_rows;
        c += step_chunks;
        if (c >= chunks) {
            c -= chunks;
            ++r;
        }
    }

    GK_DEVICE gk_i64 source(gk_u32 r, gk_u32 c) const
    {
        return r * from.pitch + (gk_i64)c * 16;
    }

    GK_DEVICE uint4 *target(gk_u32 r, gk_u32 c) const
    {
        return (uint4 *)(to + r * to_pitch + (gk_i64)c * 16);
    }

    GK_DEVICE void load()
    {
        gk_u32 r = row;
        gk_u32 c = chunk;
        bool edge = false;
        GK_UNROLL
        for (int i = 0; i < AT_ONCE; ++i) {
            held[i].load(from, source(r, c), r < from.rows);
            edge |= r < from.rows && !held[i].there;
            advance(r, c);
        }
        if (edge) {
            copy_edge();
        }
    }

    // Of the next AT_ONCE pieces those at the ends of the matrix, and some more.
    GK_DEVICE void copy_edge() const
    {
        gk_u32 r = row;
        gk_u32 c = chunk;
        GK_NO_UNROLL
        for (int i = 0; i < AT_ONCE; ++i) {
            if (r < from.rows) {
                *target(r, c) = finished<ROUND>(
                    piece::gather(from.first + source(r, c), from.row_bytes - (gk_i64)c * 16));
            }
            advance(r, c);
        }
    }

    GK_DEVICE void store()
    {
        GK_UNROLL
        for (int i = 0; i < AT_ONCE; ++i) {
            if (held[i].there) {
                *target(row, chunk) = finished<ROUND>(held[i].value());
            }
            advance(row, chunk);
        }
        index += step * AT_ONCE;
    }
};

// Writes the transpose: byte row j of `to` holds element j of all rows. `to` is 16-byte aligned, so
// is its pitch. A warp turns a tile of 4 KiB in its own part of shared memory, 4096 bytes a warp,
// 16-byte aligned. ROUND: f32 -> tf32.
template <int ELEMENT, int ALIGN, bool ROUND, int THREADS> struct transpose {
    static_assert(ELEMENT == 4 || ELEMENT == 1, "elements of 4 or 1 bytes are turned");
    typedef window<ELEMENT, ALIGN> piece;
    static constexpr int SIDE = ELEMENT == 4 ? 32 : 64; // elements of a tile, either way
    static constexpr int ROW = SIDE * ELEMENT;          // bytes of a tile's row
    static constexpr int LANES = ROW / 16;              // that read a row
    static constexpr int STEP = 32 / LANES;             // rows read together
    static constexpr int COUNT = SIDE / STEP;
    static constexpr int BYTES = 4096;

    byte_rows from;
    unsigned char *to;
    gk_i64 to_pitch;
    unsigned char *tile;
    gk_u32 across; // tiles side by side along the source's rows
    gk_u32 total;
    int lane;
    piece held[COUNT];
    bool edge; // whether some piece of the tile is at an end of the matrix

    // The place of 16-byte chunk c of row r in the tile. The permutation spreads what a warp reads
    // at a time, words of rows that are 4 or 16 apart, over all banks.
    static GK_DEVICE int place(int r, int c)
    {
        if constexpr (ELEMENT == 4) {
            return r * 128 + ((c ^ r / 4) & 7) * 16;
        } else {
            return (r % 16 * 4 + r / 16) * 64 + ((c ^ r / 32 * 2) & 3) * 16;
        }
    }

    // This lane's first piece of a tile.
    GK_DEVICE void locate(gk_u32 index, gk_i64 &row, gk_i64 &byte) const
    {
        const gk_u32 down = index / across;
        row = (gk_i64)down * SIDE + lane / LANES;
        byte = (gk_i64)(index - down * across) * ROW + lane % LANES * 16;
    }

    GK_DEVICE void load(gk_u32 index)
    {
        gk_i64 row;
        gk_i64 byte;
        locate(index, row, byte);
        gk_i64 offset = row * from.pitch + byte;
        edge = false;
        GK_UNROLL
        for (int i = 0; i < COUNT; ++i) {
            const bool exists = byte < from.row_bytes && row + i * STEP < from.rows;
            held[i].load(from, offset, exists);
            edge |= exists && !held[i].there;
            offset += STEP * from.pitch;
        }
    }

    GK_DEVICE void keep(gk_u32 index)
    {
        GK_UNROLL
        for (int i = 0; i < COUNT; ++i) {
            // what is not there may be anything: it is not stored, or is replaced below
            *(uint4 *)(tile + place(i * STEP + lane / LANES, lane % LANES)) =
                finished<ROUND>(held[i].value());
        }
        if (edge) {
            gk_i64 row;
            gk_i64 byte;
            locate(index, row, byte);
            GK_NO_UNROLL
            for (int i = 0; i < COUNT && row + i * STEP < from.rows; ++i) {
                *(uint4 *)(tile + place(i * STEP + lane / LANES, lane % LANES)) =
                    finished<ROUND>(piece::gather(from.first + (row + i * STEP) * from.pitch + byte,
                                                  from.row_bytes - byte));
            }
        }
    }

    GK_DEVICE void write(gk_i64 row, gk_i64 byte, const uint4 &v) const
    {
        // rows behind the last element and chunks behind the last row do not exist
        if (row * ELEMENT < from.row_bytes && byte < (gk_i64)from.rows * ELEMENT) {
            *(uint4 *)(to + row * to_pitch + byte) = v;
        }
    }

    GK_DEVICE gk_u32 word(int r, int w) const
    {
        return *(const gk_u32 *)(tile + place(r, w / 4) + w % 4 * 4);
    }

    // Words of four neighbouring columns and four rows -> of four rows and a column each.
    static GK_DEVICE void turn_bytes(gk_u32 (&w)[4])
    {
        const gk_u32 a = (w[0] & 0x00ff00ffu) | (w[1] & 0x00ff00ffu) << 8;
        const gk_u32 b = (w[2] & 0x00ff00ffu) | (w[3] & 0x00ff00ffu) << 8;
        const gk_u32 c = (w[0] >> 8 & 0x00ff00ffu) | (w[1] & 0xff00ff00u);
        const gk_u32 d = (w[2] >> 8 & 0x00ff00ffu) | (w[3] & 0xff00ff00u);
        w[0] = (a & 0xffffu) | b << 16;
        w[1] = (c & 0xffffu) | d << 16;
        w[2] = a >> 16 | (b & 0xffff0000u);
        w[3] = c >> 16 | (d & 0xffff0000u);
    }

    GK_DEVICE void store(gk_u32 index) const
    {
        const gk_u32 down = index / across;
        const gk_i64 first_row = (gk_i64)(index - down * across) * SIDE;
        const gk_i64 first_byte = (gk_i64)down * ROW;
        if constexpr (ELEMENT == 4) {
            const int r = lane % 8 * 4;
            GK_UNROLL
            for (int i = 0; i < 8; ++i) {
                const int c = i * 4 + lane / 8;
                write(first_row + c, first_byte + r * 4,
                      uint4{word(r, c), word(r + 1, c), word(r + 2, c), word(r + 3, c)});
            }
        } else {
            const int r = lane % 4 * 16;
            GK_UNROLL
            for (int i = 0; i < 2; ++i) {
                const int w = i * 8 + lane / 4;
                gk_u32 turned[4][4];
                GK_UNROLL
                for (int j = 0; j < 4; ++j) {
                    GK_UNROLL
                    for (int k = 0; k < 4; ++k) {
                        turned[j][k] = word(r + j * 4 + k, w);
                    }
                    turn_bytes(turned[j]);
                }
                GK_UNROLL
                for (int k = 0; k < 4; ++k) {
                    write(first_row + w * 4 + k, first_byte + r,
                          uint4{turned[0][k], turned[1][k], turned[2][k], turned[3][k]});
                }
            }
        }
    }

    GK_DEVICE void all(const byte_rows &source_rows, unsigned char *target, gk_i64 target_pitch,
                       unsigned char *shared)
    {
        from = source_rows;
        to = target;
        to_pitch = target_pitch;
        lane = (int)(threadIdx.x & 31u);
        const gk_u32 warp = (threadIdx.x & 1023u) / 32;
        tile = shared + warp * BYTES;
        across = (gk_u32)((from.row_bytes + ROW - 1) / ROW);
        total = across * ((from.rows + SIDE - 1) / SIDE);
        // neighbouring tiles to different blocks: they share the source's cache lines' pages
        const gk_u32 step = gridDim.x * (THREADS / 32);
        gk_u32 index = warp * gridDim.x + blockIdx.x;
        if (index < total) {
            load(index);
        }
        GK_NO_UNROLL
        for (; index < total; index += step) {
            keep(index);
            __syncwarp();
            if (index + step < total) {
                load(index + step);
            }
            store(index);
            __syncwarp();
        }
    }
};

// A barrier of all blocks of a grid that is resident at once, in two halves. *counter is 0 before
// the launch and after it. All threads of every block arrive; then one thread a block waits, which
// may start copies by the tensor memory accelerator of what any block wrote before it arrived.
GK_DEVICE void grid_barrier_arrive(gk_u32 *counter)
{
    fence_async_global();
    __syncthreads();
    if (threadIdx.x == 0) {
        counter_add_release(counter, 2 * gridDim.x - 1);
    }
}

GK_DEVICE void grid_barrier_wait(gk_u32 *counter)
{
    counter_wait(counter, gridDim.x);
    // the last block to leave makes it 0
    counter_add(counter, 2 * gridDim.x - 1);
    fence_async_global();
}

} // namespace gk
