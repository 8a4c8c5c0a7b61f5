// Rows of any length, read twice: once for what is to be known of the row, once to write it. The
// caches are asked to keep what was read once, and nothing else.
#pragma once
#include "gk/rows.cuh"

namespace gk {

constexpr int STEP = THREADS * UNROLL; // vectors of a block

// A thread's edge of a row, as a row of its own. Only the first part of a row has edges.
struct edges_only {
    static constexpr int N = MOST_EDGES > 0 ? 1 : 0;
    row_view view;
    row_edges<N> edges;

    GK_DEVICE edges_only(const row_view &of, bool is_first)
    {
        view = of;
        view.edges = is_first ? of.edges : 0;
        edges.load(view, threadIdx.x, THREADS);
    }

    template <class F> GK_DEVICE void each(F &f) const
    {
        edges.each(view, threadIdx.x, THREADS, f);
    }

    GK_DEVICE void put(const gk_rows_args &args, const row_result &result) const
    {
        edges.put(args, result, view, threadIdx.x, THREADS);
    }
};

// Merges vectors [begin, end) of a row into `total`; end - begin is a multiple of STEP, or the row
// ends before.
GK_DEVICE summary stream_summary(summary total, const row_view &view, gk_i64 begin, gk_i64 end)
{
    GK_NO_UNROLL
    for (gk_i64 v = begin; v < end; v += STEP) {
        row_in_registers<UNROLL, 0> held;
        held.load_all<CACHE_KEEP>(view, v + threadIdx.x, THREADS);
        total = merge(total, summarise<1>(held));
    }
    return total;
}

// The same vectors, the last ones first, since the second-level cache may still have them.
GK_DEVICE void stream_put(const gk_rows_args &args, const row_result &result, const row_view &view,
                          gk_i64 begin, gk_i64 end)
{
    GK_NO_UNROLL
    for (gk_i64 first = begin + (end - begin + STEP - 1) / STEP * STEP; first > begin;) {
        first -= STEP;
        row_in_registers<UNROLL, 0> held;
        held.load_all<CACHE_LAST>(view, first + threadIdx.x, THREADS);
        held.put_last<CACHE_STREAM>(args, result);
    }
}

GK_DEVICE void rows_stream(const gk_rows_args &args)
{
    GK_DYNAMIC_SHARED(shared);
    unsigned turn = 0;
    const row_view first = view_of(args, blockIdx.x);
    prefetch_x<THREADS>(args, first, 0, first.vectors);
    grid_begin();
    GK_NO_UNROLL
    for (gk_i64 row = blockIdx.x; row < args.rows; row += gridDim.x) {
        const row_view view = view_of(args, row);
        const edges_only edges(view, true);
        summary total = stream_summary(summarise<1>(edges), view, 0, view.vectors);
        total = merge_block<THREADS / 32>(merge_lanes<32>(total), (summary_slot *)shared, turn++);
        const row_result result = finish(total, args);
        stream_put(args, result, view, 0, view.vectors);
        edges.put(args, result);
    }
}

} // namespace gk
