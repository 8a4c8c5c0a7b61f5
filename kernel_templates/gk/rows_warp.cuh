// A row to LANES lanes of a warp, each of which holds VECTORS vectors of ROWS rows in registers.
// With PERSIST warps go on to the next rows.
#pragma once
#include "gk/rows.cuh"

namespace gk {

template <class Row>
GK_DEVICE void finish_rows(row_result (&result)[ROWS], const Row (&held)[ROWS],
                           const gk_rows_args &args)
{
    GK_UNROLL
    for (int r = 0; r < ROWS; r++) {
        result[r] = finish(summarise<LANES>(held[r]), args);
    }
}

GK_DEVICE void rows_warp(const gk_rows_args &args)
{
    constexpr int GROUPS = WARPS * 32 / LANES;
    const int lane = threadIdx.x % LANES;
    const gk_i64 step = (gk_i64)gridDim.x * (GROUPS * ROWS);
    gk_i64 row = (gk_i64)blockIdx.x * (GROUPS * ROWS) + threadIdx.x / LANES;
    gk_i64 left = args.rows - (gk_i64)blockIdx.x * (GROUPS * ROWS);
    row_in_registers<VECTORS, ceil_div(MOST_EDGES, LANES)> held[ROWS];
    if (!prefetch_x<WARPS * 32>(args) && X_UNIT) {
        const gk_u32 bytes = prefetch_share(GROUPS * ROWS * args.cols * SIZE);
        GK_UNROLL
        for (int r = 0; r < ROWS; r++) {
            if (row + r * GROUPS < args.rows) {
                prefetch_lines(view_of(args, row + r * GROUPS).x, bytes / (GROUPS * ROWS), lane,
                               LANES);
            }
        }
    }
    grid_begin();
    GK_UNROLL
    for (int r = 0; r < ROWS; r++) {
        held[r].load_all(view_of(args, row + r * GROUPS), lane, LANES);
    }
    row_result result[ROWS];
    if constexpr (PERSIST) {
        GK_NO_UNROLL
        while (left > 0) {
            left -= step;
            row += step;
            finish_rows(result, held, args);
            GK_UNROLL
            for (int r = 0; r < ROWS; r++) {
                held[r].put_all(args, result[r], view_of(args, row + r * GROUPS));
            }
        }
    } else {
        finish_rows(result, held, args);
        GK_UNROLL
        for (int r = 0; r < ROWS; r++) {
            held[r].put_last(args, result[r]);
        }
    }
}

} // namespace gk
