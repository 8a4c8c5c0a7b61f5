/* The map variant for operands that lie along one axis. */
#include <math.h>

#include "op/map.h"

enum { VECTOR, UNROLL, THREADS, CACHE, BLOCKS, N_PARAMS };

static const int32_t vector_values[] = {1, 2, 4, 8, 16, 32};
static const int32_t unroll_values[] = {1, 2, 4, 8};
static const int32_t threads_values[] = {128, 256, 512};
static const int32_t cache_values[] = {0, 1, 2};
static const int32_t blocks_values[] = {0, 2, 4, 8, 16};

#define VALUES(list) list, sizeof(list) / sizeof((list)[0])

/* VECTOR: bytes of the widest operand that go together. CACHE: 0 as the hardware likes, 1 loads
 * stay out of L1, 2 stores are evicted first, too. BLOCKS: a multiprocessor's; 0 = as many as it
 * takes for each to make one step. */
static const gk_param params[N_PARAMS] = {
    [VECTOR] = {"VECTOR", "v", VALUES(vector_values), 0},
    [UNROLL] = {"UNROLL", "_u", VALUES(unroll_values), 0},
    [THREADS] = {"THREADS", "x", VALUES(threads_values), 0},
    [CACHE] = {"CACHE", "_c", VALUES(cache_values), 0},
    [BLOCKS] = {"BLOCKS", "_b", VALUES(blocks_values), 1},
};

static int64_t step_of(const gk_problem *problem, const int32_t *v)
{
    return (int64_t)v[VECTOR] / gki_map_sizes(problem).widest * v[UNROLL] * v[THREADS];
}

static int64_t ceil_div(int64_t a, int64_t b)
{
    return a / b + (a % b != 0);
}

static bool check(const gk_problem *problem, const gk_device_info *device, const gk_config *config,
                  gk_reason *reason)
{
    const int32_t *v = config->values;
    const map_sizes s = gki_map_sizes(problem);
    (void)device;
    if (problem->dims[MAP_M] != 1 || problem->layout[MAP_OUT] != GK_LAYOUT_ROW) {
        return gk_refuse(reason, "out has %lld rows of %lld, must be one of unit stride",
                         (long long)problem->dims[MAP_M], (long long)problem->dims[MAP_N]);
    }
    for (int i = 0; i < MAP_MAX_INPUTS; i++) {
        if (problem->layout[i] == GK_LAYOUT_STRIDED) {
            return gk_refuse(reason, "x%d has a stride above 1", i);
        }
    }
    if (v[VECTOR] < s.widest) {
        return gk_refuse(reason, "VECTOR is %d, an element has %d bytes", (int)v[VECTOR],
                         (int)s.widest);
    }
    const int64_t held = (s.inputs + s.out) * v[VECTOR] / s.widest * v[UNROLL];
    if (held > 512) {
        return gk_refuse(reason, "holds %lld bytes of vectors, at most 512", (long long)held);
    }
    if (v[VECTOR] / s.widest * v[UNROLL] > 64) {
        return gk_refuse(reason, "unrolls %d elements, at most 64",
                         (int)(v[VECTOR] / s.widest * v[UNROLL]));
    }
    if (v[UNROLL] > 1 && 2 * problem->dims[MAP_N] <= step_of(problem, v)) {
        return gk_refuse(reason, "half of a step of %lld elements stays empty",
                         (long long)step_of(problem, v));
    }
    return true;
}

static void constants(const gk_problem *problem, gk_constants *out)
{
    gki_map_constants(problem, true, out);
}

static void launch(const gk_problem *problem, const gk_device_info *device, const gk_config *config,
                   gk_launch *out)
{
    const int32_t *v = config->values;
    const int64_t steps = ceil_div(problem->dims[MAP_N], step_of(problem, v));
    const int64_t most = v[BLOCKS] > 0 ? (int64_t)v[BLOCKS] * device->sm_count : INT32_MAX;
    out->grid = steps < most ? steps : most > 0 ? most : 1;
    out->threads = v[THREADS];
    out->overlap = 1;
}

/* The narrowest piece in which an operand's vector comes decides how many instructions it takes. */
static double pieces(const gk_problem *problem, const int32_t *v)
{
    const double elements = (double)v[VECTOR] / (double)gki_map_sizes(problem).widest;
    double sum = 0;
    for (int i = 0; i < MAP_N_ARGS; i++) {
        if (problem->dtype[i] != 0 && problem->layout[i] == GK_LAYOUT_ROW) {
            const double bytes = elements * (double)gk_dtype_size((gk_dtype)problem->dtype[i]);
            const double most = fmin(problem->align[i], 16);
            /* Pieces of one vector lie apart in a warp: each touches all of its lines. */
            sum += bytes > most ? (bytes / most) * (bytes / most) : 1;
        }
    }
    return sum;
}

/*
 * Seconds. Bandwidth is reached with some 40 KB under way in a multiprocessor; below that, time
 * grows. What stays in the second-level cache should be left there.
 */
static double model(const gk_problem *problem, const gk_device_info *device,
                    const gk_config *config)
{
    const int32_t *v = config->values;
    const map_sizes s = gki_map_sizes(problem);
    const double n = (double)problem->dims[MAP_N];
    const double elements = (double)v[VECTOR] / (double)s.widest;
    const double moved = n * (double)(s.inputs + s.out);
    const double steps = ceil(n / (double)step_of(problem, v));
    const double sms = fmax(device->sm_count, 1);
    const double held = fmin(floor(2048.0 / v[THREADS]), v[BLOCKS] > 0 ? v[BLOCKS] : 32);
    const double blocks = fmin(steps / sms, held);
    const double flight =
        fmax(blocks, 1e-3) * v[THREADS] * v[UNROLL] * elements * (double)(s.inputs + s.out) * 0.7;
    const double bytes_flight = fmin(flight, 40e3);
    const double clock = fmax(device->clock_khz, 1e6) * 1e3;
    const double issue = n / elements * pieces(problem, v) / 32 / sms / clock * 2.5;
    const double large = moved > 0.8 * (double)device->l2_bytes ? 1 : 0;
    /* The weights of the hints are small: they order what is otherwise alike. */
    const double hints = large > 0 ? 0.01 * (2 - v[CACHE]) : 0.01 * v[CACHE];
    const double shape =
        0.002 * fabs(v[THREADS] / 256.0 - 1) + 0.003 * fabs(elements * (double)s.widest / 16 - 1) +
        (v[BLOCKS] > 0 ? 0.004 + 0.0001 * v[BLOCKS] : 0) +
        0.001 *
            fabs(v[UNROLL] * (double)(s.inputs + s.out) / (double)s.widest * v[VECTOR] / 128 - 1);
    /* Multiprocessors with a block more than others are waited for. */
    const double uneven = fmin(ceil(steps / sms) * sms / steps, 3);
    const double memory = gki_map_seconds(problem, device) * (40e3 / fmax(bytes_flight, 1)) *
                          (1 + 0.2 * (uneven - 1));
    return 2e-6 + fmax(memory, issue) * (1 + hints + shape) + steps / sms * 5e-9;
}

const gk_variant gki_map_vector = {
    .struct_size = sizeof(gk_variant),
    .name = "vector",
    .source = "map.cu",
    .params = params,
    .n_params = N_PARAMS,
    .min_cc = 80,
    .check = check,
    .constants = constants,
    .launch = launch,
    .model = model,
};
