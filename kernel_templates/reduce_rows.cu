// Reduction of an axis along which the elements of x adjoin. GROUP threads share an output: lanes
// of a warp, or a block, or several blocks (the grid has a multiple of `outputs` blocks then).
// Vectors lie on multiples of VECTOR bytes wherever a row begins; its first and last one may be
// cut.
#include "gk/reduce.cuh"

namespace gk {

constexpr int VEC = VECTOR / SIZE;
constexpr int THREADS = GROUP < 128 ? 256 : GROUP;
constexpr int ROWS = THREADS / GROUP;
constexpr bool PEELED = X_ALIGN < VECTOR;

// The registers a thread surely makes do with give the number of blocks to fit on a multiprocessor.
// Code for sm_120 keeps more addresses in registers.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 1200
constexpr int OTHER_REGISTERS = 72;
#else
constexpr int OTHER_REGISTERS = 48;
#endif
constexpr int REGISTERS = UNROLL * (VECTOR / 4 + 1) + 2 * VEC + OTHER_REGISTERS;
constexpr int FITTING = 65536 / (THREADS * ((REGISTERS + 7) / 8 * 8));
constexpr int WANTED = 1536 / THREADS;
constexpr int MIN_BLOCKS = FITTING < 1 ? 1 : FITTING < WANTED ? FITTING : WANTED > 0 ? WANTED : 1;

// A row in elements from a multiple of VECTOR bytes on.
struct row {
    const T *x;
    gk_i64 begin; // below VEC
    gk_i64 end;
};

GK_DEVICE void read(vector<VECTOR> (&v)[UNROLL], const row &r, gk_i64 first, gk_i64 group_first)
{
    const T *from = r.x + first * VEC;
    const bool inside = (!PEELED || group_first > 0 || r.begin == 0) &&
                        (group_first + GROUP * UNROLL) * VEC <= r.end;
    if (inside) {
        GK_UNROLL
        for (int u = 0; u < UNROLL; u++) {
            v[u] = read_vector<VECTOR>(from + u * GROUP * VEC);
        }
        return;
    }
    GK_UNROLL
    for (int u = 0; u < UNROLL; u++) {
        const gk_i64 element = (first + u * GROUP) * VEC;
        v[u] = no_elements<VECTOR>();
        if ((!PEELED || element >= r.begin) && element + VEC <= r.end) {
            v[u] = read_vector<VECTOR>(from + u * GROUP * VEC);
        }
    }
    if constexpr (VEC > 1) {
        GK_UNROLL
        for (int u = 0; u < UNROLL; u++) {
            const gk_i64 element = (first + u * GROUP) * VEC;
            const bool cut_head = PEELED && element < r.begin;
            const bool cut_tail = element < r.end && element + VEC > r.end;
            if (cut_head || cut_tail) {
                GK_UNROLL
                for (int i = 0; i < VEC; i++) {
                    if ((!PEELED || element + i >= r.begin) && element + i < r.end) {
                        v[u].items[i] = from[u * GROUP * VEC + i];
                    }
                }
            }
        }
    }
}

GK_DEVICE void take_vectors(place &s, const vector<VECTOR> (&v)[UNROLL], gk_i64 first_index)
{
    GK_UNROLL
    for (int u = 0; u < UNROLL; u++) {
        value wide[VEC];
        widen(wide, v[u]);
        take(s, wide, first_index + u * GROUP * VEC, 1);
    }
}

template <class S>
GK_DEVICE void take_vectors(S &s, const vector<VECTOR> (&v)[UNROLL], gk_i64 first_index)
{
    value parts[UNROLL];
    GK_UNROLL
    for (int u = 0; u < UNROLL; u++) {
        value wide[VEC];
        widen(wide, v[u]);
        parts[u] = tree(wide);
    }
    take(s, parts, first_index, 1);
}

} // namespace gk

GK_KERNEL(gk::THREADS, gk::MIN_BLOCKS, gk_reduce_args, args)
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

    row r = {(const T *)args.x + at.x, 0, exists ? args.length : 0};
    if (PEELED) {
        r.begin = (gk_i64)((gk_u64)r.x % VECTOR / SIZE);
        r.x -= r.begin;
        r.end += exists ? r.begin : 0;
        r.begin = exists ? r.begin : 0;
    }
    constexpr int STEP = GROUP * UNROLL;
    gk_i64 vectors = (r.end + VEC - 1) / VEC;
    gk_i64 group_first = 0;
    if (splits > 1) {
        const gk_i64 steps = (vectors + STEP - 1) / STEP;
        const gk_i64 behind = share_of(steps, split + 1, splits) * STEP;
        group_first = share_of(steps, split, splits) * STEP;
        vectors = behind < vectors ? behind : vectors;
    }

    state s = identity();
    const int lane = (int)(threadIdx.x % GROUP);
    prefetch_lines(r.x + group_first * VEC,
                   prefetch_share((vectors - group_first) * (ROWS * VECTOR)) / ROWS, lane, GROUP);
    grid_begin();
    GK_NO_UNROLL
    for (; group_first < vectors; group_first += STEP) {
        vector<VECTOR> v[UNROLL];
        const gk_i64 first = group_first + lane;
        read(v, r, first, group_first);
        take_vectors(s, v, first * VEC - r.begin);
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
