/* The matmul variant on warp-wide tensor-core instructions: f16, bf16, f32 rounded to tf32, and f32
 * as sums of bf16 numbers. */
#include "op/matmul.h"
#include "op/model.h"

#include <math.h>

#include <gk/base.h>
#include <gk/ops.h>

enum {
    BLOCK_M,
    BLOCK_N,
    BLOCK_K,
    WARP_M,
    WARP_N,
    STAGES,
    SLICE_K,
    CACHE_L1,
    SPLIT_K,
    GROUP_M,
    N_PARAMS,
};

static const int32_t block_m_values[] = {16, 32, 64, 128, 256};
static const int32_t block_n_values[] = {16, 32, 48, 64, 128, 256};
static const int32_t block_k_values[] = {16, 32, 64, 128, 256, 512};
static const int32_t warp_m_values[] = {16, 32, 64};
static const int32_t warp_n_values[] = {16, 32, 48, 64};
static const int32_t stages_values[] = {2, 3, 4, 6};
static const int32_t slice_k_values[] = {1, 2, 4, 8};
static const int32_t cache_l1_values[] = {0, 1};
static const int32_t split_k_values[] = {1, 2, 3, 4, 6, 8, 16, 32, 64};
static const int32_t group_m_values[] = {1, 4, 16};

#define VALUES(list) list, sizeof(list) / sizeof((list)[0])

static const gk_param params[N_PARAMS] = {
    [BLOCK_M] = {"BLOCK_M", "", VALUES(block_m_values), 0},
    [BLOCK_N] = {"BLOCK_N", "x", VALUES(block_n_values), 0},
    [BLOCK_K] = {"BLOCK_K", "x", VALUES(block_k_values), 0},
    [WARP_M] = {"WARP_M", "_", VALUES(warp_m_values), 0},
    [WARP_N] = {"WARP_N", "x", VALUES(warp_n_values), 0},
    [STAGES] = {"STAGES", "_s", VALUES(stages_values), 0},
    [SLICE_K] = {"SLICE_K", "_k", VALUES(slice_k_values), 0},
    [CACHE_L1] = {"CACHE_L1", "_l", VALUES(cache_l1_values), 0},
    [SPLIT_K] = {"SPLIT_K", "", VALUES(split_k_values), 1},
    [GROUP_M] = {"GROUP_M", "", VALUES(group_m_values), 1},
};

static const int64_t MAX_PARTIALS = INT64_C(256) << 20;

/* What follows from a configuration alone. */
typedef struct shape {
    int64_t element; /* bytes of an operand's element */
    int64_t warps;
    int64_t stage_bytes; /* shared memory of one tile of A and one of B */
    int64_t smem;
    int64_t registers;  /* of a thread, estimated from above */
    int64_t odd_pieces; /* pairs of 2-byte aligned elements that a thread holds in registers */
} shape;

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* Rows of a warp's tile that pass through its share of shared memory at a time. */
static int64_t round_rows(const int32_t *v, int64_t fitting)
{
    if (fitting >= v[WARP_M]) {
        return v[WARP_M];
    }
    return fitting >= v[WARP_M] / 2 && v[WARP_M] / 2 % 16 == 0 ? v[WARP_M] / 2 : 16;
}

/* f32 at the accuracy of f32: operands are split into parts. */
static bool splits(const gk_problem *problem)
{
    return problem->dtype[MATMUL_A] == GK_F32 && problem->attrs[MATMUL_MATH] == GK_MATH_DEFAULT;
}

static void constants(const gk_problem *problem, gk_constants *out)
{
    gki_matmul_constants(problem, out);
    gki_matmul_constant(out, "SPLITS", GK_CONSTANT_BOOL, splits(problem));
}

static shape shape_of(const gk_problem *problem, const gk_config *config)
{
    const int32_t *v = config->values;
    shape s;
    s.element = problem->dtype[MATMUL_A] == GK_F32 ? 4 : 2;
    s.warps = (int64_t)(v[BLOCK_M] / v[WARP_M]) * (v[BLOCK_N] / v[WARP_N]) * v[SLICE_K];
    s.stage_bytes = (int64_t)(v[BLOCK_M] + v[BLOCK_N]) * v[BLOCK_K] * s.element;
    const int64_t ring = v[STAGES] * s.stage_bytes;
    const int64_t pitch = v[WARP_N] * 4 + 32;
    s.smem = larger(ring, s.warps * round_rows(v, ring / s.warps / pitch) * pitch);
    const int64_t odd_rows = (problem->align[MATMUL_A] < 4 ? v[BLOCK_M] : 0) +
                             (problem->align[MATMUL_B] < 4 ? v[BLOCK_N] : 0);
    s.odd_pieces = odd_rows * v[BLOCK_K] / 2 / (s.warps * 32);
    const int64_t sums = v[WARP_M] * v[WARP_N] / 32;
    const int64_t fragments = v[WARP_M] / 2 + v[WARP_N] / 2;
    s.registers = sums + fragments + 56 + 2 * s.odd_pieces;
    if (splits(problem)) {
        s.registers += 2 * sums + fragments + v[WARP_M] * 3 / 4 + 12;
    }
    return s;
}

static bool check_problem(const gk_problem *problem, gk_reason *reason)
{
    const uint8_t a = problem->dtype[MATMUL_A];
    const uint8_t c = problem->dtype[MATMUL_C];
    const bool f32 = a == GK_F32 && problem->attrs[MATMUL_MATH] != GK_MATH_F32;
    if ((a != GK_F16 && a != GK_BF16 && !f32) || problem->dtype[MATMUL_B] != a) {
        return gk_refuse(reason, "no tensor-core product of %s and %s", gk_dtype_name((gk_dtype)a),
                         gk_dtype_name((gk_dtype)problem->dtype[MATMUL_B]));
    }
    if (c != GK_F32 && c != GK_F16 && c != GK_BF16) {
        return gk_refuse(reason, "c is %s, must be f32, f16 or bf16", gk_dtype_name((gk_dtype)c));
    }
    if (problem->layout[MATMUL_A] == GK_LAYOUT_STRIDED ||
        problem->layout[MATMUL_B] == GK_LAYOUT_STRIDED) {
        return gk_refuse(reason, "%s has no contiguous axis",
                         problem->layout[MATMUL_A] == GK_LAYOUT_STRIDED ? "a" : "b");
    }
    return true;
}

static bool check_tile(const gk_problem *problem, const int32_t *v, gk_reason *reason)
{
    const int64_t step = problem->dtype[MATMUL_A] == GK_F32 && !splits(problem) ? 8 : 16;
    if (v[BLOCK_M] % v[WARP_M] != 0 || v[BLOCK_N] % v[WARP_N] != 0) {
        return gk_refuse(reason, "warp tiles of %dx%d do not fill a block tile of %dx%d",
                         (int)v[WARP_M], (int)v[WARP_N], (int)v[BLOCK_M], (int)v[BLOCK_N]);
    }
    const int warps = v[BLOCK_M] / v[WARP_M] * (v[BLOCK_N] / v[WARP_N]) * v[SLICE_K];
    if (warps != 2 && warps != 4 && warps != 8) {
        return gk_refuse(reason, "takes %d warps, must be 2, 4 or 8", warps);
    }
    const bool few_rows = v[BLOCK_M] == 16;
    if (v[WARP_M] > 2 * v[WARP_N] || (v[WARP_N] > 2 * v[WARP_M] && !few_rows)) {
        return gk_refuse(reason, "a warp tile of %dx%d loads too much for what it computes",
                         (int)v[WARP_M], (int)v[WARP_N]);
    }
    /* With few rows of C memory bounds, and answers long pieces of B's rows fastest. */
    const int64_t most = (few_rows ? 32 : 8) * step;
    if (v[BLOCK_K] < 2 * step || v[BLOCK_K] > most || v[BLOCK_K] > 8 * step * v[SLICE_K]) {
        return gk_refuse(reason, "BLOCK_K is %d, must be %d to %d, %d at most for a slice",
                         (int)v[BLOCK_K], (int)(2 * step), (int)most, (int)(8 * step));
    }
    if (splits(problem) && v[BLOCK_K] > 64 * v[SLICE_K]) {
        return gk_refuse(reason, "sums over %d of K, at most 64 are left to the tensor core",
                         (int)(v[BLOCK_K] / v[SLICE_K]));
    }
    if (v[BLOCK_K] % (2 * step * v[SLICE_K]) != 0) {
        return gk_refuse(reason, "BLOCK_K of %d leaves one of %d slices less than two steps",
                         (int)v[BLOCK_K], (int)v[SLICE_K]);
    }
    return true;
}

/* Columns in rows along N: what is loaded and read together is the largest power of two. */
static bool check_columns(const gk_problem *problem, const int32_t *v, gk_reason *reason)
{
    const bool along_n = problem->layout[MATMUL_B] == GK_LAYOUT_ROW;
    if (along_n && (v[BLOCK_N] & (v[BLOCK_N] - 1)) != 0) {
        return gk_refuse(reason, "rows of %d columns fall into short pieces", (int)v[BLOCK_N]);
    }
    return true;
}

static bool check_split(const gk_problem *problem, const gk_device_info *device,
                        const gk_config *config, gk_reason *reason)
{
    const int32_t *v = config->values;
    const int64_t k_tiles = gki_ceil_div(problem->dims[MATMUL_K], v[BLOCK_K]);
    const int64_t rows = gki_ceil_div(problem->dims[MATMUL_M], v[BLOCK_M]);
    gk_launch whole = {0};
    gk_launch parts = {0};
    gki_matmul_grid(problem, v[BLOCK_M], v[BLOCK_N], 1, &whole);
    gki_matmul_grid(problem, v[BLOCK_M], v[BLOCK_N], v[SPLIT_K], &parts);
    if (k_tiles > INT32_MAX) {
        return gk_refuse(reason, "K has %lld tiles, the kernel counts up to %d", (long long)k_tiles,
                         INT32_MAX);
    }
    if (v[SPLIT_K] > 1) {
        if (v[SPLIT_K] > k_tiles) {
            return gk_refuse(reason, "SPLIT_K is %d, K has only %lld tiles", (int)v[SPLIT_K],
                             (long long)k_tiles);
        }
        if (whole.grid > 2 * (int64_t)device->sm_count) {
            return gk_refuse(reason, "SPLIT_K is %d although there are %lld tiles for %d SMs",
                             (int)v[SPLIT_K], (long long)whole.grid, (int)device->sm_count);
        }
        if (parts.workspace > MAX_PARTIALS) {
            return gk_refuse(reason, "partial sums take %lld bytes, at most %lld are spent on them",
                             (long long)parts.workspace, (long long)MAX_PARTIALS);
        }
    }
    if (v[GROUP_M] > 1 && (v[GROUP_M] >= 2 * rows || whole.grid <= device->sm_count)) {
        return gk_refuse(reason, "GROUP_M is %d, which changes nothing for %lld rows of tiles",
                         (int)v[GROUP_M], (long long)rows);
    }
    return true;
}

/* Whether the threads copy an operand's tile in whole rows each; see the template's operand. */
static bool divides(int64_t extent, int64_t depth, bool k_contiguous, const shape *s, int64_t align)
{
    const int64_t rows = k_contiguous ? extent : depth;
    const int64_t row_bytes = (k_contiguous ? depth : extent) * s->element;
    const int64_t power = row_bytes & -row_bytes;
    const int64_t pitch = power < 128 ? power : 128;
    const int64_t step = s->warps * 32 / (pitch / larger(align, 4));
    if (step < rows) {
        return rows % step == 0;
    }
    /* More threads than one slab takes: whole groups of slabs. */
    return step % rows == 0 && row_bytes / pitch % (step / rows) == 0;
}

/* Blocks that a multiprocessor holds, if a thread has so many registers. */
static int64_t residents(const gk_device_info *device, const shape *s, double registers)
{
    const int64_t threads = s->warps * 32;
    int64_t fit =
        (int64_t)((double)larger(device->regs_per_sm, 65536) / (registers * (double)threads));
    const int64_t by_smem = larger(device->smem_per_sm, 65536) / (s->smem + 1024);
    const int64_t by_threads = larger(device->max_threads_per_sm, 1024) / threads;
    fit = fit < by_smem ? fit : by_smem;
    fit = fit < by_threads ? fit : by_threads;
    return larger(fit, 1);
}

/* Bytes from row to row of an operand. Densely packed rows are assumed: the problem does not say
 * how far apart they are. */
static uint64_t row_bytes(const gk_problem *problem, int operand)
{
    const bool row_major = problem->layout[operand] == GK_LAYOUT_ROW;
    const int axis =
        operand == MATMUL_A ? (row_major ? MATMUL_K : MATMUL_M) : (row_major ? MATMUL_N : MATMUL_K);
    return (uint64_t)problem->dims[axis] * gk_dtype_size((gk_dtype)problem->dtype[operand]);
}

/* Do rows that are copied 16 bytes at a time begin inside the 32-byte sectors of the caches? Two
 * copies then ask for the same sector, which L1 can answer. */
static bool shares_sectors(const gk_problem *problem, int operand)
{
    return problem->align[operand] == 16 && row_bytes(problem, operand) % 32 != 0;
}

/* With less the copies under way push each other out. */
static const int64_t LEAST_L1 = INT64_C(48) << 10;
/* The part of L1 that is never shared memory. */
static const int64_t FIXED_L1 = INT64_C(28) << 10;

static bool check_cache(const gk_problem *problem, const gk_device_info *device,
                        const gk_config *config, const shape *s, gk_reason *reason)
{
    if (config->values[CACHE_L1] == 0) {
        return true;
    }
    if (!shares_sectors(problem, MATMUL_A) && !shares_sectors(problem, MATMUL_B)) {
        return gk_refuse(reason, "CACHE_L1 is 1 although no rows copied by 16 bytes share sectors");
    }
    const int64_t l1 = device->smem_per_sm + FIXED_L1 -
                       residents(device, s, (double)s->registers) * (s->smem + 1024);
    if (l1 < LEAST_L1) {
        return gk_refuse(reason, "CACHE_L1 is 1, but shared memory leaves %lld bytes of L1",
                         (long long)l1);
    }
    return true;
}

static bool check(const gk_problem *problem, const gk_device_info *device, const gk_config *config,
                  gk_reason *reason)
{
    const int32_t *v = config->values;
    if (!check_problem(problem, reason) || !check_tile(problem, v, reason) ||
        !check_columns(problem, v, reason)) {
        return false;
    }
    const shape s = shape_of(problem, config);
    if (s.odd_pieces > 32 || s.registers > (s.odd_pieces > 0 ? 240 : 255)) {
        return gk_refuse(reason, "needs about %d registers a thread, %d of them for odd addresses",
                         (int)s.registers, (int)(2 * s.odd_pieces));
    }
    if (s.smem > device->smem_per_block_optin) {
        return gk_refuse(reason, "takes %lld bytes of shared memory, the device has %lld a block",
                         (long long)s.smem, (long long)device->smem_per_block_optin);
    }
    if (!divides(v[BLOCK_M], v[BLOCK_K], problem->layout[MATMUL_A] == GK_LAYOUT_ROW, &s,
                 problem->align[MATMUL_A]) ||
        !divides(v[BLOCK_N], v[BLOCK_K], problem->layout[MATMUL_B] == GK_LAYOUT_COL, &s,
                 problem->align[MATMUL_B])) {
        return gk_refuse(reason, "%d threads cannot share the copying of a %dx%dx%d tile evenly",
                         (int)s.warps * 32, (int)v[BLOCK_M], (int)v[BLOCK_N], (int)v[BLOCK_K]);
    }
    return check_cache(problem, device, config, &s, reason) &&
           check_split(problem, device, config, reason);
}

static void launch(const gk_problem *problem, const gk_device_info *device, const gk_config *config,
                   gk_launch *out)
{
    (void)device;
    const int32_t *v = config->values;
    const shape s = shape_of(problem, config);
    gki_matmul_grid(problem, v[BLOCK_M], v[BLOCK_N], v[SPLIT_K], out);
    out->threads = (int32_t)(s.warps * 32);
    out->cluster = 0;
    out->overlap = 1;
    out->smem = s.smem;
}

/* Six of them; the rate is that of others, whose bounds are not the tensor core's alone. */
static const double SPLIT_PRODUCTS = 5.2;

/* Multiply-adds per multiprocessor and clock of mma.sync. */
static double rate(const gk_problem *problem, const gk_device_info *device)
{
    const double half = device->cc == 80 || device->cc == 90 || device->cc == 100 ? 1024 : 512;
    if (problem->dtype[MATMUL_A] != GK_F32) {
        return half;
    }
    return splits(problem) ? half / SPLIT_PRODUCTS : half / 2;
}

/*
 * The model. Its weights are fitted to 4900 measurements of bf16 on an H200, most of them of odd
 * shapes, those of memory to 600 with few rows, those of shared K to both, those of f32 to some
 * 5000 of bf16 and tf32 on an H100; they are clocks unless they say otherwise.
 */
static const double REGISTERS = 0.9;       /* of a thread, of the estimate from above */
static const double SHARED_BYTES = 166;    /* shared memory, bytes a clock */
static const double L2_BYTES = 89.3;       /* from L2 into shared memory, bytes a clock */
static const double CUT_SECTORS = 3.42;    /* how much slower if rows begin inside sectors */
static const double CUT_SECTORS_L1 = 2.56; /* or there, through L1 */
static const double CUT_ODD = 1;           /* or at odd addresses */
static const double COPY = 0.451;          /* a thread's copy, of a warp */
static const double FEW_WARPS = 0.0243;    /* what one warp a scheduler leaves uncovered */
static const double SPLIT_PAIR = 22;       /* of a warp, for two f32 numbers a lane */
static const double BARRIER = 198;         /* of a tile of K, shared by the resident blocks */
static const double COPY_LATENCY = 803;    /* from the start of a tile's copies to their end */
static const double STEP_LATENCY = 32.9;   /* of a step of K, one after the other in a warp */
static const double OWN_LATENCY = 1.11;    /* of a block's tile of K, if it is alone */
static const double ODD_PIECE = 7.2;       /* a warp's 32 pairs through registers */
static const double ODD_LATENCY = 281;     /* from reading them to their use */
static const double ODD_PAIR = 20;         /* more for each of a thread's */
static const double ODD_FILL = 259;        /* a first tile: all pairs read, then stored */
static const double RAGGED_COPY = 55;      /* copies of the tile in which K ends, one by one */
static const double BLOCK_START = 702;     /* indices and first tiles */
static const double LATER_START = 538;     /* first tiles of a later round of blocks */
static const double LAUNCH_BLOCK = 306;    /* a multiprocessor starts one */
static const double MANY_WARPS = 11.4;     /* if it does not have more */
static const double ROUND = 206;           /* of storing a warp's tile */
static const double STORE_VECTOR = 1.07;   /* of C, by one warp */
static const double STORE_ELEMENT = 0.415; /* or of single elements, eight loaded together */
static const double STORE_BYTES = 12;      /* of C, bytes a clock */
static const double SPLIT_START = 2900;
static const double SPLIT_APART = 0.35;    /* of reading memory, where blocks share K, */
static const double SPLIT_MOST = 4100;     /* at most */
static const double SPLIT_BYTES = 19.6;    /* of partial sums, a clock */
static const double SPLIT_READ = 0.973;    /* read back, by what a thread's loads allow */
static const double BANDWIDTH = 0.95;      /* of the memory's */
static const double UNCOVERED = 0.21;      /* of computing and memory, of the shorter */
static const double MEMORY_LATENCY = 9e-7; /* seconds */
static const double KERNEL_START = 8e-7;   /* seconds, overlapping the kernel before */
static const double EMPTY_STAGES = 5.5e-8; /* seconds, if K has fewer tiles than can be ahead, */
static const double EMPTY_STAGE = 2.5e-8;  /* and of each that is not there */
static const double EARLY = 4e-8;          /* seconds, where the next one starts early */

/* How much longer the copies of an operand take than those of whole sectors. */
static double cut_rows(const gk_problem *problem, const gk_config *config, int operand)
{
    if (row_bytes(problem, operand) % 32 == 0) {
        return 1;
    }
    if (problem->align[operand] < 4) {
        return CUT_ODD;
    }
    const bool shared = config->values[CACHE_L1] != 0 && shares_sectors(problem, operand);
    return shared ? CUT_SECTORS_L1 : CUT_SECTORS;
}

/* Copies that a thread makes of an operand's tile, `extent` by BLOCK_K. */
static double copies(const gk_problem *problem, const int32_t *v, const shape *s, int operand)
{
    const int32_t extent = operand == MATMUL_A ? v[BLOCK_M] : v[BLOCK_N];
    const int64_t align = problem->align[operand];
    const int64_t piece = larger(align < 16 ? align : 16, 4);
    return (double)extent * v[BLOCK_K] * (double)s->element / (double)(piece * s->warps * 32);
}

/* Each warp splits what it multiplies; four schedulers share the warps. */
static double part_clocks(const gk_problem *problem, const int32_t *v, const shape *s)
{
    const double elements = (double)s->warps / v[SLICE_K] * (v[WARP_M] + v[WARP_N]) * v[BLOCK_K];
    return splits(problem) ? SPLIT_PAIR * elements / 2 / 32 / 4 : 0;
}

/* What tiles have of the matrices. */
typedef struct extents {
    double area;   /* elements of a tile of C that exist, on average */
    double copies; /* of a thread, of a tile of K, by cp.async */
} extents;

static extents extents_of(const gk_problem *problem, const int32_t *v, const shape *s)
{
    const int64_t *dims = problem->dims;
    extents e;
    const int64_t rows = larger(gki_ceil_div(dims[MATMUL_M], v[BLOCK_M]), 1);
    const int64_t cols = larger(gki_ceil_div(dims[MATMUL_N], v[BLOCK_N]), 1);
    e.area = (double)dims[MATMUL_M] * (double)dims[MATMUL_N] / (double)(rows * cols);
    e.copies = (problem->align[MATMUL_A] < 4 ? 0 : copies(problem, v, s, MATMUL_A)) +
               (problem->align[MATMUL_B] < 4 ? 0 : copies(problem, v, s, MATMUL_B));
    return e;
}

/* Clocks of one tile of K in one of `resident` blocks that share a multiprocessor. */
static double tile_clocks(const gk_problem *problem, const gk_device_info *device,
                          const gk_config *config, const shape *s, const extents *e,
                          double resident)
{
    const int32_t *v = config->values;
    const double k = v[BLOCK_K];
    const double warps = (double)s->warps;
    const double multiply = (double)v[BLOCK_M] * v[BLOCK_N] * k / rate(problem, device);
    const double fragments = warps / v[SLICE_K] * (v[WARP_M] + v[WARP_N]) * k * (double)s->element;
    const double shared = (fragments + (double)s->stage_bytes) / SHARED_BYTES;
    const double from_l2 = (v[BLOCK_M] * cut_rows(problem, config, MATMUL_A) +
                            v[BLOCK_N] * cut_rows(problem, config, MATMUL_B)) *
                           k * (double)s->element / L2_BYTES;
    const double busy = gki_at_least(gki_at_least(multiply, shared), from_l2) + 0.2 * from_l2 +
                        ODD_PIECE * (double)s->odd_pieces * warps + COPY * e->copies * warps +
                        part_clocks(problem, v, s);
    const double covered = v[STAGES] == 2 ? 1.04 : 1; /* two stages leave no slack */
    const double all =
        covered * busy * (1 + FEW_WARPS / (resident * warps / 4)) + BARRIER / resident;
    double chain = STEP_LATENCY * k * (double)s->element / 32 / v[SLICE_K] + OWN_LATENCY * busy;
    if (s->odd_pieces > 0) {
        chain += ODD_LATENCY + ODD_PAIR * (double)s->odd_pieces;
    }
    const double latency = gki_at_least(COPY_LATENCY / (v[STAGES] - 1), chain) / resident;
    return gki_at_least(all, latency);
}

/* Does the operand's edge along M or N cut pieces that are copied at once? */
static bool edge_is_cut(const gk_problem *problem, int operand)
{
    const int across = operand == MATMUL_A ? GK_LAYOUT_COL : GK_LAYOUT_ROW;
    const int64_t piece = problem->align[operand] < 16 ? problem->align[operand] : 16;
    return problem->layout[operand] == across &&
           row_bytes(problem, operand) % (uint64_t)larger(piece, 4) != 0;
}

/* Clocks of a block before and after its tiles of K. */
static double end_clocks(const gk_problem *problem, const int32_t *v, const shape *s,
                         const extents *e, double k_tiles)
{
    const double first = k_tiles < v[STAGES] - 1 ? k_tiles : v[STAGES] - 1;
    double clocks = BLOCK_START;
    clocks += s->odd_pieces > 0 ? ODD_FILL * first : 0;
    const bool ragged = problem->dims[MATMUL_K] % v[BLOCK_K] != 0 ||
                        edge_is_cut(problem, MATMUL_A) || edge_is_cut(problem, MATMUL_B);
    clocks += ragged ? RAGGED_COPY * e->copies : 0;
    const int64_t size = (int64_t)gk_dtype_size((gk_dtype)problem->dtype[MATMUL_C]);
    const int64_t c_align =
        larger(problem->align[MATMUL_C] < 16 ? problem->align[MATMUL_C] : 16, size);
    const double vectors = e->area * (double)size / (double)c_align;
    const int64_t pitch = v[WARP_N] * 4 + 32;
    const int64_t fitting = v[STAGES] * s->stage_bytes / s->warps / pitch;
    const double rounds = v[WARP_M] / (double)round_rows(v, fitting);
    const double store = c_align > size ? STORE_VECTOR : STORE_ELEMENT;
    return clocks + store * vectors / (double)s->warps + ROUND * rounds;
}

/* `memory`: the clocks in which the operands could be read. */
static double split_clocks(const gk_config *config, const shape *s, double share, double memory)
{
    const int32_t *v = config->values;
    const double bytes = (double)v[BLOCK_M] * v[BLOCK_N] * 4;
    if (v[SPLIT_K] == 1) {
        return 0;
    }
    /* Every block writes its sums; the last of a tile reads everybody's, 128 bytes a thread at a
     * time. */
    const double reading = gki_at_least((double)s->warps * 32 * 128 / 800, 16);
    const double apart = SPLIT_APART * memory;
    return SPLIT_START + (apart < SPLIT_MOST ? apart : SPLIT_MOST) + share * bytes / SPLIT_BYTES +
           SPLIT_READ * v[SPLIT_K] * bytes / reading;
}

/* Seconds of the operands' and C's way from and to device memory, which answers as fast as it can,
 * but what the blocks do not ask for at their beginning no faster than copies are under way. */
static double memory_seconds(const gk_problem *problem, const gk_device_info *device,
                             const int32_t *v, const shape *s, double blocks, double k_tiles)
{
    const double m = (double)problem->dims[MATMUL_M];
    const double n = (double)problem->dims[MATMUL_N];
    const double k = (double)problem->dims[MATMUL_K];
    const double c_bytes = (double)gk_dtype_size((gk_dtype)problem->dtype[MATMUL_C]);
    const double bandwidth = BANDWIDTH * gki_model_pins(device);
    const double traffic = (m * k + k * n) * (double)s->element + m * n * c_bytes;
    const double ahead = v[STAGES] - 1;
    const double later = gki_at_least(1 - ahead / gki_at_least(k_tiles, 1), 0);
    const double under_way = gki_at_least((double)s->stage_bytes * ahead * blocks, 1);
    return hypot(traffic / bandwidth, later * traffic * MEMORY_LATENCY / under_way);
}

static double model(const gk_problem *problem, const gk_device_info *device,
                    const gk_config *config)
{
    const int32_t *v = config->values;
    const shape s = shape_of(problem, config);
    const extents e = extents_of(problem, v, &s);
    gk_launch grid = {0};
    gki_matmul_grid(problem, v[BLOCK_M], v[BLOCK_N], v[SPLIT_K], &grid);
    const double c_bytes = (double)gk_dtype_size((gk_dtype)problem->dtype[MATMUL_C]);
    const double sms = gki_at_least(device->sm_count, 1);
    const double fit = (double)residents(device, &s, REGISTERS * (double)s.registers);
    const double share = (double)gki_ceil_div(grid.grid, (int64_t)sms); /* blocks of an SM */
    const double resident = share < fit ? share : fit;
    const double k_tiles =
        (double)gki_ceil_div(gki_ceil_div(problem->dims[MATMUL_K], v[BLOCK_K]), v[SPLIT_K]);

    double clocks = share * k_tiles * tile_clocks(problem, device, config, &s, &e, resident);
    const double rounds = ceil(share / resident);
    clocks += rounds * end_clocks(problem, v, &s, &e, k_tiles) + LATER_START * (rounds - 1);
    clocks += share * e.area * c_bytes / STORE_BYTES;

    const double memory = memory_seconds(problem, device, v, &s,
                                         share < fit ? (double)grid.grid : fit * sms, k_tiles);
    const double clock = gki_at_least(device->clock_khz, 1e6) * 1e3;
    clocks += split_clocks(config, &s, share, memory * clock);
    const double order = v[GROUP_M] > 1 || share <= fit ? 1 : 1.01; /* grouped tiles reread less */
    const double computing = clocks / clock;
    const double longer = gki_at_least(computing, memory);
    const double launch = LAUNCH_BLOCK / clock * (double)grid.grid / sms *
                          gki_at_least((double)s.warps / MANY_WARPS, 1);
    /* The two overlap, but not perfectly. */
    const double early = k_tiles < v[STAGES] ? gki_model_early(device, grid.grid, EARLY) : 0;
    const double empty = gki_at_least(v[STAGES] - 1 - k_tiles, 0);
    const double stages = empty > 0 ? EMPTY_STAGES + EMPTY_STAGE * empty : 0;
    return (longer + UNCOVERED * (computing + memory - longer)) * order + KERNEL_START + stages -
           early + launch;
}

const gk_variant gki_matmul_mma = {
    .struct_size = sizeof(gk_variant),
    .name = "mma",
    .source = "matmul_mma.cu",
    .params = params,
    .n_params = N_PARAMS,
    .min_cc = 80,
    .check = check,
    .constants = constants,
    .launch = launch,
    .model = model,
};
