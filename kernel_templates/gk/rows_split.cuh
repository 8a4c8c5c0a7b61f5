// A few long rows, each to several blocks, all of which are resident at once. A block keeps the
// first vectors of its part in shared memory and reads the others again, for which the second-level
// cache keeps these only.
#pragma once
#include "gk/rows_shared.cuh"
#include "gk/rows_stream.cuh"

#include "gk/hopper.cuh"

namespace gk {

// What all blocks of a row found, in their order. `counter` is 0 before and after.
GK_DEVICE summary merge_blocks(const summary &block, summary_slot *slots, gk_u32 *counter, int part,
                               int parts)
{
    const int each = (parts + 31) / 32;
    const int lane = threadIdx.x % 32;
    summary mine = empty_summary();
    if (threadIdx.x == 0) {
        slots[part] = summary_slot{block.a, block.b, block.n, 0};
        counter_add_release(counter, 2 * parts - 1);
        counter_wait(counter, parts);
        counter_add(counter, 2 * parts - 1); // the last block to leave makes it 0
    }
    __syncthreads();
    for (int i = lane * each; i < parts && i < (lane + 1) * each; i++) {
        mine = merge(mine, summary{slots[i].a, slots[i].b, slots[i].n});
    }
    return merge_lanes<32>(mine);
}

constexpr int CHUNKS = 4; // of what a thread has in shared memory, looked at as they arrive

typedef row_in_registers<UNROLL, 0> row_group;
// Of many threads each has registers for the factors of one vector.
constexpr int HELD_AHEAD = THREADS * BLOCKS > 512 ? 1 : smaller(factors_ahead(THREADS), UNROLL);
typedef row_in_shared<0, HELD_AHEAD, true> row_held;

// Vectors [from, to) of a thread's in shared memory, as a row of their own.
struct held_range {
    const row_held &row;
    int from, to;

    template <class F> GK_DEVICE void each(F &f) const
    {
        row.each(f, from, to);
    }
};

// One thread's vectors of its block's part of a row: first those in shared memory, then those that
// pass.
struct row_part {
    row_held held;
    int chunk;   // vectors
    gk_i64 rest; // the first of those that pass

    // Part `part` of rows cut into shares; at most `most` vectors of a thread fit `space`.
    GK_DEVICE row_part(unsigned char *space, int most, gk_i64 share, int part)
    {
        const gk_i64 begin = part * share;
        const gk_i64 each = share / THREADS;
        rest = begin + (gk_i64)most * THREADS;
        chunk = ceil_div(each < most ? (int)each : most, CHUNKS);
        held.take_room(space, most, begin + share, THREADS);
        held.begin = begin + threadIdx.x;
        held.step = THREADS;
    }

    GK_DEVICE gk_i64 end() const
    {
        return held.view.vectors < held.limit ? held.view.vectors : held.limit;
    }

    GK_DEVICE void load(const row_view &view)
    {
        held.place(view);
        GK_NO_UNROLL
        for (int c = 0; c < CHUNKS; c++) {
            held.load(c * chunk, smaller((c + 1) * chunk, held.count));
            cp_async_commit();
        }
    }

    GK_DEVICE void merge_chunk(summary &total, int c) const
    {
        const int to = smaller((c + 1) * chunk, held.count);
        if (c * chunk < to) {
            total = merge(total, summarise<1>(held_range{held, c * chunk, to}));
        }
    }

    // Chunks from `done` on, each when it has arrived: LEFT and fewer are still under way.
    template <int LEFT> GK_DEVICE void merge_chunks(summary &total, int done) const
    {
        cp_async_wait<LEFT>();
        if (CHUNKS - 1 - LEFT >= done) {
            merge_chunk(total, CHUNKS - 1 - LEFT);
        }
        if constexpr (LEFT > 0) {
            merge_chunks<LEFT - 1>(total, done);
        }
    }

    // While vectors that pass are under way, a chunk is looked at.
    GK_DEVICE summary summarise_all(summary total) const
    {
        int done = 0;
        GK_NO_UNROLL
        for (gk_i64 v = rest; v < end(); v += STEP) {
            row_group passing;
            passing.load_all(held.view, v + threadIdx.x, THREADS);
            if (done < CHUNKS) {
                cp_async_wait<0>();
                merge_chunk(total, done++);
            }
            total = merge(total, summarise<1>(passing));
        }
        merge_chunks<CHUNKS - 1>(total, done);
        return total;
    }

    // Of the row that is held there were `had` vectors.
    GK_DEVICE void put_chunk(const gk_rows_args &args, const row_result &result,
                             const row_view &view, int had, int c)
    {
        const int from = c * chunk;
        const int to = smaller(from + chunk, had);
        held.put(args, result, view, from, to);
        held.load(to < from ? from : to, smaller(from + chunk, held.count));
        cp_async_commit();
    }

    // Stores the part and loads that of `next` behind it. Those that pass come from the
    // second-level cache, the last ones first; meanwhile a chunk is stored.
    GK_DEVICE void put_all(const gk_rows_args &args, const row_result &result, const row_view &next)
    {
        const row_view view = held.view;
        const int had = held.count;
        const gk_i64 passing_end = end();
        held.place(next);
        int done = 0;
        GK_NO_UNROLL
        for (gk_i64 v = rest + (passing_end - rest + STEP - 1) / STEP * STEP; v > rest;) {
            v -= STEP;
            row_group passing;
            passing.load_all(view, v + threadIdx.x, THREADS);
            if (done < CHUNKS) {
                put_chunk(args, result, view, had, done++);
            }
            passing.put_last<CACHE_STREAM>(args, result);
        }
        GK_NO_UNROLL
        for (; done < CHUNKS; done++) {
            put_chunk(args, result, view, had, done);
        }
    }
};

GK_DEVICE void rows_split(const gk_rows_args &args)
{
    GK_DYNAMIC_SHARED(shared);
    const gk_u32 turns = (gk_u32)args.turns;
    const gk_u32 at_once = ((gk_u32)args.rows + turns - 1) / turns;
    const gk_u32 groups = at_once < gridDim.x ? at_once : gridDim.x;
    const gk_u32 parts = gridDim.x / groups;
    gk_u32 row = blockIdx.x / parts;
    const int part = (int)(blockIdx.x - row * parts);
    const gk_i64 steps = (most_vectors(args.cols) + STEP - 1) / STEP;
    const gk_i64 share = (steps + parts - 1) / parts * STEP;
    unsigned turn = 0;
    row_view view = view_of(args, row);
    row_part mine(shared + 2 * (THREADS / 32) * sizeof(summary_slot), (int)args.held, share, part);
    prefetch_x<THREADS>(args, view, part * share, share);
    grid_begin();
    mine.load(view);
    GK_NO_UNROLL
    while (row < args.rows) {
        const edges_only edges(view, part == 0);
        summary all = merge_lanes<32>(mine.summarise_all(summarise<1>(edges)));
        all = merge_block<THREADS / 32>(all, (summary_slot *)shared, turn++);
        if (parts > 1) {
            all = merge_blocks(all, (summary_slot *)args.partials + (gk_u64)row * parts,
                               (gk_u32 *)args.counters + row, part, (int)parts);
        }
        const row_result result = finish(all, args);
        row += groups;
        view = view_of(args, row);
        mine.put_all(args, result, view);
        edges.put(args, result);
    }
}

} // namespace gk
