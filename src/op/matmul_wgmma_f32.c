/* The matmul variant for f32 on Hopper's tensor cores at f32's accuracy: three bf16 parts a number,
 * six products of parts. */
#include "op/matmul_wgmma.h"
#include "op/model.h"

#include <gk/base.h>
#include <gk/ops.h>

enum {
    BLOCK_M,
    BLOCK_N,
    SPLIT_K,
    GROUP_M,
    N_PARAMS,
};

static const int32_t block_m_values[] = {64, 128};
static const int32_t block_n_values[] = {64, 96, 128, 160};
static const int32_t split_k_values[] = {1, 2, 3, 4, 6, 8, 16, 32, 64};
static const int32_t group_m_values[] = {1, 8, 16};

#define VALUES(list) list, sizeof(list) / sizeof((list)[0])

static const gk_param params[N_PARAMS] = {
    [BLOCK_M] = {"BLOCK_M", "", VALUES(block_m_values), 0},
    [BLOCK_N] = {"BLOCK_N", "x", VALUES(block_n_values), 0},
    [SPLIT_K] = {"SPLIT_K", "", VALUES(split_k_values), 1},
    [GROUP_M] = {"GROUP_M", "", VALUES(group_m_values), 1},
};

enum { BLOCK_K = 64, PLANES = 3, MAX_SLOTS = 16, MAX_CHUNKS = 32 };
static const int64_t RING_BYTES = 230400; /* as in the template */
static const int64_t MAX_PARTIALS = INT64_C(256) << 20;

/* What follows from a configuration and the problem. */
typedef struct shape {
    int64_t tiles_m, tiles_n, tiles_k;
    int64_t slot; /* bytes of a plane of both operands' tiles */
    int64_t slots;
    int64_t smem;
    double images;   /* bytes of the split operands in workspace */
    double partials; /* bytes of split K's sums */
} shape;

static shape shape_of(const gk_problem *problem, const gk_config *config)
{
    const int32_t *v = config->values;
    shape s;
    s.tiles_m = gki_ceil_div(problem->dims[MATMUL_M], v[BLOCK_M]);
    s.tiles_n = gki_ceil_div(problem->dims[MATMUL_N], v[BLOCK_N]);
    s.tiles_k = gki_ceil_div(problem->dims[MATMUL_K], BLOCK_K);
    s.slot = (int64_t)(v[BLOCK_M] + v[BLOCK_N]) * BLOCK_K * 2;
    s.slots = RING_BYTES / s.slot < MAX_SLOTS ? RING_BYTES / s.slot : MAX_SLOTS;
    s.smem = s.slots * s.slot + s.slots * 16 + 16;
    s.images = ((double)s.tiles_m * v[BLOCK_M] + (double)s.tiles_n * v[BLOCK_N]) *
               (double)s.tiles_k * BLOCK_K * PLANES * 2;
    s.partials = v[SPLIT_K] == 1 ? 0
                                 : (double)v[SPLIT_K] * (double)s.tiles_m * (double)s.tiles_n *
                                       v[BLOCK_M] * v[BLOCK_N] * 4;
    return s;
}

bool gki_wgmma_check_f32(const gk_problem *problem, const gk_device_info *device, gk_reason *reason)
{
    const uint8_t c = problem->dtype[MATMUL_C];
    if (problem->dtype[MATMUL_A] != GK_F32 || problem->dtype[MATMUL_B] != GK_F32) {
        return gk_refuse(reason, "splits f32 operands, a is %s",
                         gk_dtype_name((gk_dtype)problem->dtype[MATMUL_A]));
    }
    if (c != GK_F32 && c != GK_F16 && c != GK_BF16) {
        return gk_refuse(reason, "c is %s, must be f32, f16 or bf16", gk_dtype_name((gk_dtype)c));
    }
    if (problem->attrs[MATMUL_MATH] != GK_MATH_DEFAULT) {
        return gk_refuse(reason, "math is %s, tensor cores give f32's accuracy by default only",
                         problem->attrs[MATMUL_MATH] == GK_MATH_F32 ? "f32" : "tf32");
    }
    if (device->cc != 90) {
        return gk_refuse(reason, "made for compute capability 9.0, the device has %d.%d",
                         (int)device->cc / 10, (int)device->cc % 10);
    }
    return true;
}

static bool check(const gk_problem *problem, const gk_device_info *device, const gk_config *config,
                  gk_reason *reason)
{
    const int32_t *v = config->values;
    if (!gki_wgmma_check_f32(problem, device, reason)) {
        return false;
    }
    const shape s = shape_of(problem, config);
    if (s.smem > device->smem_per_block_optin) {
        return gk_refuse(reason, "takes %lld bytes of shared memory, the device has %lld a block",
                         (long long)s.smem, (long long)device->smem_per_block_optin);
    }
    if (v[BLOCK_M] > 64 && v[BLOCK_N] > 128 && problem->attrs[MATMUL_ACTIVATION] == GK_ACT_SILU) {
        return gk_refuse(reason, "no registers for silu beside %dx%d sums", (int)v[BLOCK_M],
                         (int)v[BLOCK_N]);
    }
    if (s.images > (double)device->memory_bytes / 8) {
        return gk_refuse(reason, "the split operands take %.0f bytes, an eighth of memory is %.0f",
                         s.images, (double)device->memory_bytes / 8);
    }
    if ((double)s.tiles_m * (double)s.tiles_n * v[SPLIT_K] > INT32_MAX) {
        return gk_refuse(reason, "%lld x %lld tiles are more than the kernel counts",
                         (long long)s.tiles_m, (long long)s.tiles_n);
    }
    if (v[SPLIT_K] > 1) {
        if (v[SPLIT_K] > s.tiles_k) {
            return gk_refuse(reason, "SPLIT_K is %d, K has only %lld tiles", (int)v[SPLIT_K],
                             (long long)s.tiles_k);
        }
        const int64_t tiles = s.tiles_m * s.tiles_n;
        if (tiles > 2 * (int64_t)device->sm_count) {
            return gk_refuse(reason, "SPLIT_K is %d although there are %lld tiles for %d SMs",
                             (int)v[SPLIT_K], (long long)tiles, (int)device->sm_count);
        }
        if (s.partials > (double)MAX_PARTIALS) {
            return gk_refuse(reason, "partial sums take %.0f bytes, at most %lld are spent on them",
                             s.partials, (long long)MAX_PARTIALS);
        }
    }
    if (v[GROUP_M] > 1 &&
        (v[GROUP_M] >= 2 * s.tiles_m || s.tiles_m * s.tiles_n <= device->sm_count)) {
        return gk_refuse(reason, "GROUP_M is %d, which changes nothing for %lld rows of tiles",
                         (int)v[GROUP_M], (long long)s.tiles_m);
    }
    return true;
}

/* Blocks wait for the parts that others split, so all must be resident: one to an SM, and one alone
 * on the CPU device, which runs them one after the other. */
static void launch(const gk_problem *problem, const gk_device_info *device, const gk_config *config,
                   gk_launch *out)
{
    const int32_t *v = config->values;
    const shape s = shape_of(problem, config);
    const int64_t tiles = s.tiles_m * s.tiles_n;
    const int64_t words =
        1 + MAX_CHUNKS + 2 * (s.tiles_m + s.tiles_n) + (v[SPLIT_K] > 1 ? tiles : 0);
    out->grid = device->is_emulated ? 1 : device->sm_count;
    out->threads = v[BLOCK_M] * 2 + 128;
    out->cluster = 0;
    out->cooperative = 1;
    out->smem = s.smem;
    out->workspace = (int64_t)(s.images + s.partials);
    out->zeroed = (words * 4 + 15) / 16 * 16;
}

/*
 * The model, fitted by hand to measurements on an H100 to within 12 %. A tile's step of K takes a
 * multiple of what the tensor cores or shared memory need for it: a warpgroup that multiplies alone
 * waits longer for its own products than two that do so in turn.
 */
static const double ALONE = 1.45;
static const double PAIRED = 1.18;
static const double PAIRED_SHARED = 1.05;
static const double JOB = 1500;           /* clocks of the epilogue */
static const double CLOCK = 0.91;         /* of the nominal one, under this load */
static const double START = 4e-6;         /* seconds, of the kernel and the first loads */
static const double SPLIT_START = 1e-6;   /* seconds */
static const double SPLIT_SHARE = 0.78;   /* of memory's bandwidth */
static const double COMBINE_START = 3e-6; /* seconds, of split K */

static double step_clocks(const gk_config *config, const shape *s)
{
    const double n = config->values[BLOCK_N];
    const double groups = config->values[BLOCK_M] / 64.0;
    const double products = groups * 6 * BLOCK_K / 16; /* of a warpgroup, 64 x n x 16 */
    const double multiply = products * n / 2;
    const double shared = (products * (2048 + 32 * n) + PLANES * (double)s->slot) / 128;
    if (groups < 2) {
        return ALONE * gki_at_least(multiply, shared);
    }
    return gki_at_least(PAIRED * multiply, PAIRED_SHARED * shared);
}

static double model(const gk_problem *problem, const gk_device_info *device,
                    const gk_config *config)
{
    const int32_t *v = config->values;
    const shape s = shape_of(problem, config);
    const int64_t sms = device->sm_count > 1 ? device->sm_count : 1;
    const int64_t rounds = gki_ceil_div(s.tiles_m * s.tiles_n * v[SPLIT_K], sms);
    const double steps = (double)gki_ceil_div(s.tiles_k, v[SPLIT_K]);
    const double clock = CLOCK * gki_at_least(device->clock_khz, 1e6) * 1e3;
    const double bandwidth = SPLIT_SHARE * gki_model_pins(device);
    /* Six bytes written for four read. How much of the split the products do not hide: */
    const double split = SPLIT_START + s.images / 6 * 10 / bandwidth;
    const double seen = v[SPLIT_K] > 1 ? 1 : rounds == 1 ? 0.75 : 0.4;
    const double order = v[GROUP_M] > 1 || rounds == 1 ? 1 : 1.02;
    const double combine = v[SPLIT_K] > 1 ? COMBINE_START + 2 * s.partials / bandwidth : 0;
    const double products = (double)rounds * (steps * step_clocks(config, &s) + JOB) / clock;
    return START + seen * split + order * products + combine;
}

const gk_variant gki_matmul_wgmma_f32 = {
    .struct_size = sizeof(gk_variant),
    .name = "wgmma_f32",
    .source = "matmul_wgmma_f32.cu",
    .params = params,
    .n_params = N_PARAMS,
    .min_cc = 90,
    .check = check,
    .constants = gki_matmul_constants,
    .launch = launch,
    .model = model,
};
