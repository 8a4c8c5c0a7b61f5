// Reduction of any axes of any x, one element at a time. GROUP threads share an output: one thread,
// lanes of a warp, or a block, or several blocks (the grid has a multiple of `outputs` blocks
// then).
#include "gk/reduce.cuh"

namespace gk {

constexpr int THREADS = 256;
constexpr int ROWS = THREADS / GROUP;

} // namespace gk

GK_KERNEL(gk::THREADS, 2, gk_reduce_args, args)
{
    using namespace gk;
    GK_DYNAMIC_SHARED(shared);

    gk_u32 tile = blockIdx.x;
    gk_u32 split = 0;
    gk_u32 splits = 1;
    if (ROWS == 1 && (gk_i64)gridDim.x != args.outputs) {
        splits = gridDim.x / (gk_u32)args.outputs;
        tile = blockIdx.x / splits;
        split = blockIdx.x % splits;
    }
    const gk_i64 output = (gk_i64)tile * ROWS + threadIdx.x / GROUP;
    const bool exists = output < args.outputs;
    const offsets at = locate_kept(args, exists ? output : 0, (int)args.n_kept);
    const T *x = (const T *)args.x + at.x;

    constexpr int STEP = GROUP * UNROLL;
    gk_i64 end = exists ? args.length : 0;
    gk_i64 group_first = 0;
    if (splits > 1) {
        const gk_i64 steps = (end + STEP - 1) / STEP;
        const gk_i64 behind = share_of(steps, split + 1, splits) * STEP;
        group_first = share_of(steps, split, splits) * STEP;
        end = behind < end ? behind : end;
    }

    state s = identity();
    const int lane = (int)(threadIdx.x % GROUP);
    grid_begin();
    GK_NO_UNROLL
    for (; group_first < end; group_first += STEP) {
        T v[UNROLL];
        GK_UNROLL
        for (int u = 0; u < UNROLL; u++) {
            const gk_i64 index = group_first + lane + u * GROUP;
            v[u] = store_as<T>(nothing());
            if (index < end) {
                v[u] = x[locate_reduced(args, index)];
            }
        }
        value wide[UNROLL];
        GK_UNROLL
        for (int u = 0; u < UNROLL; u++) {
            wide[u] = widen(v[u]);
        }
        take(s, wide, group_first + lane, GROUP);
    }

    if constexpr (ROWS == 1) {
        finish_block<THREADS>(args, s, tile, split, splits, at.out, (state *)shared);
    } else {
        s = merge_lanes<GROUP>(s);
        if (lane == 0 && exists) {
            store(args, at.out, s);
        }
    }
}
