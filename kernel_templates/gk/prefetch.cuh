// What kernels ask for in the second-level cache before they wait for the kernel in front.
#pragma once
#include "gk/dtypes.cuh"

namespace gk {

// Before grid_wait(): the grid, of blocks of THREADS threads, asks for the lines of a matrix whose
// rows are apart, if it is a small one. Of a larger one what is read first would wait behind the
// rest.
template <int THREADS>
GK_DEVICE void prefetch_matrix(const void *data, gk_i64 rows, gk_i64 row_bytes, gk_i64 pitch)
{
    constexpr gk_i64 LINE = 128;
    constexpr gk_i64 MOST = (8 << 20) / LINE;
    if (pitch == row_bytes && rows > 1 && row_bytes <= MOST * LINE / rows) {
        row_bytes *= rows;
        rows = 1;
    }
    // a row that begins inside a line touches one more
    const gk_i64 before = (gk_i64)((gk_u64)data % LINE);
    if (rows > MOST || row_bytes > MOST * LINE || (rows > 1 && pitch < row_bytes)) {
        return;
    }
    const gk_u32 lines = (gk_u32)((before + row_bytes + LINE - 1) / LINE);
    const gk_u64 all = (gk_u64)rows * lines;
    const gk_u64 thread = (gk_u64)blockIdx.x * THREADS + threadIdx.x;
    if (all > (gk_u64)MOST || row_bytes <= 0) {
        return;
    }
    for (gk_u64 i = thread; i < all; i += (gk_u64)gridDim.x * THREADS) {
        const gk_u32 row = (gk_u32)i / lines;
        const gk_i64 at = ((gk_i64)i - (gk_i64)row * lines) * LINE - before;
        prefetch_l2((const unsigned char *)data + row * pitch + (at < 0 ? 0 : at));
    }
}

} // namespace gk
