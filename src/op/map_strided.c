/* The map variant for operands of any strides. */
#include <math.h>

#include "op/map.h"
#include "op/model.h"

enum { VECTOR, UNROLL, THREADS, CACHE, BLOCKS, N_PARAMS };

static const int32_t vector_values[] = {1, 2, 4, 8, 16};
static const int32_t unroll_values[] = {1, 2, 4};
static const int32_t threads_values[] = {128, 256, 512};
static const int32_t cache_values[] = {0, 2};
static const int32_t blocks_values[] = {0, 8};

#define VALUES(list) list, sizeof(list) / sizeof((list)[0])

/* As in map_vector.c; vectors lie along the innermost axis. */
static const gk_param params[N_PARAMS] = {
    [VECTOR] = {"VECTOR", "v", VALUES(vector_values), 0},
    [UNROLL] = {"UNROLL", "_u", VALUES(unroll_values), 0},
    [THREADS] = {"THREADS", "x", VALUES(threads_values), 0},
    [CACHE] = {"CACHE", "_c", VALUES(cache_values), 0},
    [BLOCKS] = {"BLOCKS", "_b", VALUES(blocks_values), 1},
};

/* Vectors of the whole output; INT64_MAX if there are more. */
static int64_t vectors_of(const gk_problem *problem, const int32_t *v)
{
    const int64_t length = v[VECTOR] / gki_map_sizes(problem).widest;
    const int64_t n = problem->dims[MAP_N];
    int64_t all;
    return __builtin_mul_overflow(n / length + (n % length != 0), problem->dims[MAP_M], &all)
               ? INT64_MAX
               : all;
}

static bool check(const gk_problem *problem, const gk_device_info *device, const gk_config *config,
                  gk_reason *reason)
{
    const int32_t *v = config->values;
    const map_sizes s = gki_map_sizes(problem);
    (void)device;
    if (v[VECTOR] < s.widest) {
        return gk_refuse(reason, "VECTOR is %d, an element has %d bytes", (int)v[VECTOR],
                         (int)s.widest);
    }
    if (v[VECTOR] / s.widest > 8) {
        return gk_refuse(reason, "%d elements a vector, at most 8", (int)(v[VECTOR] / s.widest));
    }
    if (v[VECTOR] > s.widest && v[VECTOR] / s.widest >= 2 * problem->dims[MAP_N]) {
        return gk_refuse(reason, "half of a vector of %d bytes stays empty", (int)v[VECTOR]);
    }
    const int64_t held = (s.inputs + s.out) * v[VECTOR] / s.widest * v[UNROLL];
    const int64_t most = v[THREADS] > 256 ? 192 : 256; /* of 128 registers, addresses take some */
    if (held > most) {
        return gk_refuse(reason, "holds %lld bytes of vectors, at most %d", (long long)held,
                         (int)most);
    }
    return true;
}

static void constants(const gk_problem *problem, gk_constants *out)
{
    gki_map_constants(problem, false, out);
}

static void launch(const gk_problem *problem, const gk_device_info *device, const gk_config *config,
                   gk_launch *out)
{
    const int32_t *v = config->values;
    const int64_t step = (int64_t)v[UNROLL] * v[THREADS];
    const int64_t vectors = vectors_of(problem, v);
    const int64_t steps = vectors / step + (vectors % step != 0);
    const int64_t most = v[BLOCKS] > 0 ? (int64_t)v[BLOCKS] * device->sm_count : INT32_MAX;
    out->grid = steps < most ? steps : most > 0 ? most : 1;
    out->threads = v[THREADS];
    out->overlap = 1;
}

/* Sectors that an element of a strided operand takes instead of its bytes. */
static double excess(const gk_problem *problem)
{
    double sum = 0;
    for (int i = 0; i < MAP_N_ARGS; i++) {
        const double size = (double)gk_dtype_size((gk_dtype)problem->dtype[i]);
        sum += problem->layout[i] == GK_LAYOUT_STRIDED ? fmin(32 / fmax(size, 1), 8) * size : size;
    }
    return sum;
}

static double model(const gk_problem *problem, const gk_device_info *device,
                    const gk_config *config)
{
    const int32_t *v = config->values;
    const map_sizes s = gki_map_sizes(problem);
    const double vectors = (double)vectors_of(problem, v);
    const double length = (double)v[VECTOR] / (double)s.widest;
    const double sms = fmax(device->sm_count, 1);
    const double clock = fmax(device->clock_khz, 1e6) * 1e3;
    double instructions = 40 + 6 * length;
    for (int i = 0; i < MAP_N_ARGS; i++) {
        const double size = (double)gk_dtype_size((gk_dtype)problem->dtype[i]);
        const bool is_row = problem->layout[i] == GK_LAYOUT_ROW;
        const double most = is_row ? (double)gki_map_align(problem, i, false) : size;
        instructions += size > 0 ? 4 * ceil(length * size / fmax(most, 1)) : 0;
    }
    const double steps = vectors / (double)(v[UNROLL] * v[THREADS]);
    const double blocks = fmin(fmax(steps / sms, 1e-3), floor(2048.0 / v[THREADS]));
    const double flight =
        blocks * v[THREADS] * v[UNROLL] * length * (double)(s.inputs + s.out) * 0.7;
    const double memory = gki_map_seconds(problem, device) * excess(problem) /
                          fmax((double)(s.inputs + s.out), 1) * (40e3 / fmin(flight, 40e3));
    const double issue = vectors * instructions / 32 / 4 / sms / clock;
    const double shape = 0.002 * fabs(v[THREADS] / 256.0 - 1) + (v[BLOCKS] > 0 ? 0.004 : 0) +
                         0.002 * fabs(v[UNROLL] / 2.0 - 1) + 0.001 * v[CACHE];
    return 2.6e-6 +
           fmax(fmax(memory, issue) * (1.03 + shape), gki_model_starts(device, steps, v[THREADS]));
}

const gk_variant gki_map_strided = {
    .struct_size = sizeof(gk_variant),
    .name = "strided",
    .source = "map_strided.cu",
    .params = params,
    .n_params = N_PARAMS,
    .min_cc = 80,
    .check = check,
    .constants = constants,
    .launch = launch,
    .model = model,
};
