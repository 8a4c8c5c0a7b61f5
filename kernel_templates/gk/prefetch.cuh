// What kernels ask for in the second-level cache before they wait for the kernel in front.
#pragma once
#include "gk/dtypes.cuh"

namespace gk {

// Before grid_wait(): the grid, of blocks of THREADS threads, asks for the lines of a matrix whose
// rows are apart, if both are small. Of a larger one what is read first would wait behind the rest.
template <int THREADS>
GK_DEVICE void prefetch_matrix(const void *data, gk_i64 rows, gk_i64 row_bytes, gk_i64 pitch)
{
    constexpr gk_u32 LINE = 128;
    constexpr gk_u32 MOST = (8 << 20) / LINE; // lines, and blocks
    if (rows > MOST || row_bytes > MOST * LINE || pitch < row_bytes || gridDim.x > MOST) {
        return;
    }
    // a row that begins inside a line touches one more
    const gk_u32 before = (gk_u32)(gk_u64)data % LINE;
    const gk_u32 lines = (before + (gk_u32)row_bytes + LINE - 1) / LINE;
    if ((gk_u64)lines * (gk_u32)rows > MOST || row_bytes == 0) {
        return;
    }
    const unsigned char *first = (const unsigned char *)data - before;
    for (gk_u32 i = blockIdx.x * THREADS + threadIdx.x; i < lines * (gk_u32)rows;
         i += gridDim.x * THREADS) {
        const gk_u32 row = i / lines;
        prefetch_l2(first + row * pitch + (gk_u64)(i - row * lines) * LINE);
    }
}

} // namespace gk
