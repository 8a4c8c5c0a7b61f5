// What kernels ask for in the second-level cache before they wait for the kernel in front.
#pragma once
#include "gk/dtypes.cuh"

namespace gk {

constexpr gk_u32 PREFETCH_LINE = 128;
constexpr gk_u32 PREFETCH_SECTOR = 32;
constexpr gk_u32 PREFETCH_MOST = 8 << 20;  // bytes, of all blocks
constexpr gk_u32 PREFETCH_BLOCK = 1 << 15; // bytes, of one block of a larger operand

// One of several pieces of BYTES bytes that lie one after the other, a thread's each: asks for the
// sector that it begins in unless the piece before does, if there is one.
template <int BYTES> GK_DEVICE void prefetch_piece(const void *piece, bool is_first)
{
    if (is_first || (gk_u32)(gk_u64)piece % PREFETCH_SECTOR < BYTES) {
        prefetch_l2(piece);
    }
}

// The caller, one of `threads` threads, asks for its lines of `bytes` bytes.
GK_DEVICE void prefetch_lines(const void *data, gk_u32 bytes, gk_u32 thread, gk_u32 threads)
{
    const gk_u32 before = (gk_u32)(gk_u64)data % PREFETCH_LINE;
    const unsigned char *first = (const unsigned char *)data - before;
    for (gk_u32 at = thread * PREFETCH_LINE; at < before + bytes; at += threads * PREFETCH_LINE) {
        prefetch_l2(first + at);
    }
}

// Before grid_wait(): the grid, of blocks of THREADS threads, asks for the lines of a matrix whose
// rows are apart, if both are small. Of a larger one what is read first would wait behind the rest:
// false.
template <int THREADS>
GK_DEVICE bool prefetch_matrix(const void *data, gk_i64 rows, gk_i64 row_bytes, gk_i64 pitch)
{
    constexpr gk_u32 LINE = PREFETCH_LINE;
    constexpr gk_u32 MOST = PREFETCH_MOST / LINE; // lines, and blocks
    if (rows > MOST || row_bytes > PREFETCH_MOST || pitch < row_bytes || gridDim.x > MOST) {
        return false;
    }
    // a row that begins inside a line touches one more
    const gk_u32 before = (gk_u32)(gk_u64)data % LINE;
    const gk_u32 lines = (before + (gk_u32)row_bytes + LINE - 1) / LINE;
    if ((gk_u64)lines * (gk_u32)rows > MOST || row_bytes == 0) {
        return false;
    }
    const unsigned char *first = (const unsigned char *)data - before;
    for (gk_u32 i = blockIdx.x * THREADS + threadIdx.x; i < lines * (gk_u32)rows;
         i += gridDim.x * THREADS) {
        const gk_u32 row = i / lines;
        prefetch_l2(first + row * pitch + (gk_u64)(i - row * lines) * LINE);
    }
    return true;
}

// Of `bytes` that a block reads, those that it may ask for itself before grid_wait(). None if other
// blocks ask for enough: it begins when the kernel in front has ended.
GK_DEVICE gk_u32 prefetch_share(gk_i64 bytes)
{
    const gk_u32 some = bytes < PREFETCH_BLOCK ? (gk_u32)bytes : PREFETCH_BLOCK;
    return (gk_u64)blockIdx.x * some < PREFETCH_MOST ? some : 0;
}

// Before grid_wait(): a block of THREADS threads asks for the first of its `bytes` bytes.
template <int THREADS> GK_DEVICE void prefetch_first(const void *data, gk_i64 bytes)
{
    prefetch_lines(data, prefetch_share(bytes), threadIdx.x, THREADS);
}

} // namespace gk
