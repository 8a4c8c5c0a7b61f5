/* The matmul variant for f32 products of few tiles on Hopper's tensor cores at f32's accuracy: each
 * block splits what it multiplies into three bf16 parts a number, six products of parts. */
#include "op/matmul_wgmma.h"
#include "op/model.h"

#include <gk/base.h>
#include <gk/matmul_tma_args.h>
#include <gk/ops.h>

enum {
    BLOCK_M,
    BLOCK_N,
    SLICES,
    CLUSTER_K,
    N_PARAMS,
};

static const int32_t block_m_values[] = {64, 128};
static const int32_t block_n_values[] = {32, 64, 96, 128};
static const int32_t slices_values[] = {1, 2, 3};
static const int32_t cluster_k_values[] = {1, 2, 4};

#define VALUES(list) list, sizeof(list) / sizeof((list)[0])

static const gk_param params[N_PARAMS] = {
    [BLOCK_M] = {"BLOCK_M", "", VALUES(block_m_values), 0},
    [BLOCK_N] = {"BLOCK_N", "x", VALUES(block_n_values), 0},
    [SLICES] = {"SLICES", "_s", VALUES(slices_values), 0},
    [CLUSTER_K] = {"CLUSTER_K", "_k", VALUES(cluster_k_values), 0},
};

enum { BLOCK_K = 64, SPAN = 32, PARTS = 3, MAX_STAGES = 8 };
static const int64_t SHARED_BYTES = 227 << 10; /* as in the template */
static const int64_t BARRIER_BYTES = 256;
static const int64_t MAX_EXTENT = INT32_MAX - (1 << 17); /* coordinates are ints */

/* What follows from a configuration and the problem. */
typedef struct shape {
    int64_t tiles, tiles_k;
    int64_t threads;
    int64_t planes;   /* bytes */
    int64_t received; /* bytes of other blocks' sums */
    int64_t stage;    /* bytes */
    int64_t stages;
} shape;

static shape shape_of(const gk_problem *problem, const int32_t *v)
{
    shape s;
    s.tiles = gki_ceil_div(problem->dims[MATMUL_M], v[BLOCK_M]) *
              gki_ceil_div(problem->dims[MATMUL_N], v[BLOCK_N]);
    s.tiles_k = gki_ceil_div(problem->dims[MATMUL_K], BLOCK_K);
    s.threads = v[BLOCK_M] * 2 * v[SLICES] + 32;
    s.planes = (int64_t)v[SLICES] * PARTS * v[BLOCK_N] * BLOCK_K * 2;
    s.stage = (int64_t)(v[BLOCK_M] + v[BLOCK_N]) * BLOCK_K * 4;
    s.received = (int64_t)v[BLOCK_M] * v[BLOCK_N] * 4 / v[CLUSTER_K] * (v[CLUSTER_K] - 1);
    s.stages = (SHARED_BYTES - BARRIER_BYTES - s.planes - s.received) / s.stage;
    s.stages = (s.stages < MAX_STAGES ? s.stages : MAX_STAGES) / v[SLICES] * v[SLICES];
    return s;
}

static bool check_problem(const gk_problem *problem, const gk_device_info *device,
                          gk_reason *reason)
{
    if (!gki_wgmma_check_f32(problem, device, reason)) {
        return false;
    }
    for (int arg = MATMUL_A; arg <= MATMUL_B; arg++) {
        if (problem->layout[arg] == GK_LAYOUT_STRIDED || problem->align[arg] < 16) {
            return gk_refuse(reason, "%s has no rows at multiples of 16 bytes",
                             arg == MATMUL_A ? "a" : "b");
        }
    }
    for (int i = 0; i < MATMUL_N_DIMS; i++) {
        if (problem->dims[i] > MAX_EXTENT) {
            return gk_refuse(reason, "a size of %lld is above %lld", (long long)problem->dims[i],
                             (long long)MAX_EXTENT);
        }
    }
    return true;
}

static bool check(const gk_problem *problem, const gk_device_info *device, const gk_config *config,
                  gk_reason *reason)
{
    const int32_t *v = config->values;
    if (!check_problem(problem, device, reason)) {
        return false;
    }
    const shape s = shape_of(problem, v);
    if (v[BLOCK_M] > 64 && v[SLICES] > 1) {
        return gk_refuse(reason, "%d warpgroups a block, at most 4 of 64 rows",
                         (int)(v[BLOCK_M] / 64 * v[SLICES]));
    }
    /* Columns of A are read element by element, which takes registers. */
    const bool by_elements = problem->layout[MATMUL_A] != GK_LAYOUT_ROW;
    const int32_t wide = by_elements ? 64 : 96;
    const int32_t most = v[BLOCK_M] > 64 ? wide : v[SLICES] > 2 ? 32 : v[SLICES] > 1 ? wide : 128;
    if (v[BLOCK_N] > most) {
        return gk_refuse(reason, "no registers for the sums of %d columns, %d at most",
                         (int)v[BLOCK_N], (int)most);
    }
    if (s.stages < 2) {
        return gk_refuse(reason, "shared memory holds %d stages, 2 are needed", (int)s.stages);
    }
    if (v[SLICES] * v[CLUSTER_K] > 1 && v[SLICES] * v[CLUSTER_K] > s.tiles_k) {
        return gk_refuse(reason, "K is shared by %d, it has %lld tiles",
                         (int)(v[SLICES] * v[CLUSTER_K]), (long long)s.tiles_k);
    }
    if (s.tiles > INT32_MAX / 64) {
        return gk_refuse(reason, "%lld tiles are too many to count", (long long)s.tiles);
    }
    return true;
}

static void launch(const gk_problem *problem, const gk_device_info *device, const gk_config *config,
                   gk_launch *out)
{
    (void)device;
    const shape s = shape_of(problem, config->values);
    out->grid = s.tiles * config->values[CLUSTER_K];
    out->threads = (int32_t)s.threads;
    out->cluster = config->values[CLUSTER_K] > 1 ? config->values[CLUSTER_K] : 0;
    out->overlap = 1;
    out->smem = s.stages * s.stage + s.planes + s.received + BARRIER_BYTES;
}

static bool maps(const gk_call *call, const gk_problem *problem, const gk_device_info *device,
                 const gk_config *config, void *workspace, gk_map_desc *out)
{
    (void)device;
    (void)workspace;
    const int32_t *v = config->values;
    const bool along_k[2] = {problem->layout[MATMUL_A] == GK_LAYOUT_ROW,
                             problem->layout[MATMUL_B] == GK_LAYOUT_COL};
    for (int arg = MATMUL_A; arg <= MATMUL_B; arg++) {
        gki_wgmma_describe(call->args[arg], call->args[MATMUL_C], problem->layout[arg], &out[arg]);
        out[arg].box[0] = SPAN;
        out[arg].box[1] = along_k[arg] ? v[arg == MATMUL_A ? BLOCK_M : BLOCK_N] : BLOCK_K;
        out[arg].l2_promotion = gki_wgmma_promotion(&out[arg], true);
        out[arg].tf32 = false;
    }
    out[2] = out[0]; /* C is stored without a map */
    return true;
}

/* The model, fitted to 35 measurements on an H100 to within 7 % (rms); clocks unless they say
 * otherwise. Splitting and multiplying do not overlap, whatever teams there are; a team alone
 * leaves its barriers and waits uncovered as well. */
static const double LONE = 1.4;     /* times as long for one warpgroup */
static const double PAIR = 30;      /* of a warp that splits a pair of numbers a lane */
static const double STEP = 410;     /* barriers and waits of a tile of K */
static const double ENDS = 2230;    /* of a block: first loads, last sums */
static const double STORED = 8.3;   /* bytes of sums, a clock */
static const double MEETING = 430;  /* of the blocks that share K */
static const double EXCHANGE = 6.1; /* bytes of sums, a clock */
static const double CLOCK = 0.93;   /* of the nominal one */
static const double BANDWIDTH = 0.87;

static double model(const gk_problem *problem, const gk_device_info *device,
                    const gk_config *config)
{
    const int32_t *v = config->values;
    const shape s = shape_of(problem, v);
    const int64_t sms = device->sm_count > 1 ? device->sm_count : 1;
    const double rounds = (double)gki_ceil_div(s.tiles * v[CLUSTER_K], sms);
    const double steps = (double)gki_ceil_div(s.tiles_k, v[CLUSTER_K]);
    const double area = (double)v[BLOCK_M] * v[BLOCK_N];
    const double split = PAIR * (v[BLOCK_M] + v[BLOCK_N]) * BLOCK_K / 2 / 32 / 4;
    const double products = v[BLOCK_M] / 64.0 * 6 * BLOCK_K / 16 * v[BLOCK_N] / 2;
    const bool lone = v[BLOCK_M] == 64 && v[SLICES] == 1;
    const double step = (split + products) * (lone ? LONE : 1) + (v[SLICES] > 1 ? 0 : STEP);
    const double exchange = v[CLUSTER_K] > 1 ? MEETING + (double)s.received / EXCHANGE : 0;
    const double clocks =
        rounds * (steps * step + ENDS + STEP + exchange + area / v[CLUSTER_K] * 4 / STORED);
    const double clock = CLOCK * gki_at_least(device->clock_khz, 1e6) * 1e3;
    const double bandwidth = BANDWIDTH * gki_model_pins(device);
    const double m = (double)problem->dims[MATMUL_M];
    const double n = (double)problem->dims[MATMUL_N];
    const double read = ((m + n) * (double)problem->dims[MATMUL_K] + m * n) * 4;
    return gki_at_least(clocks / clock, read / bandwidth);
}

const gk_variant gki_matmul_wgmma_split = {
    .struct_size = sizeof(gk_variant),
    .name = "wgmma_split",
    .source = "matmul_wgmma_split.cu",
    .params = params,
    .n_params = N_PARAMS,
    .min_cc = 90,
    .check = check,
    .constants = gki_matmul_constants,
    .launch = launch,
    .model = model,
    .n_maps = 3,
    .maps = maps,
};
