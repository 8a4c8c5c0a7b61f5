/* The map variant for operands that lie along one axis. */
#include <math.h>

#include "op/map.h"
#include "op/model.h"

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

static const double KERNEL_START = 2e-6;
static const double LATENCY = 9e-7;     /* of a step: loads, then stores */
static const double INSTRUCTIONS = 4.5; /* of a piece */
static const double BEST_STEP = 4.5e3;  /* bytes of the widest operand in a step of a block, and */
static const double OTHER_STEP = 0.005; /* what a half or a double of it costs */
static const double PERSISTENT = 0.06;  /* what blocks lose that wait for loads behind stores */
static const double TORN = 0.01;        /* what vectors of more than one access cost */
static const double WIDE = 0.002;       /* what vectors beyond 8 bytes cost several large inputs */
static const double NO_NEED = 0.001;    /* of a limit, lest it come first where it is none */
static const double HIDDEN = 0.02;      /* of instructions, what time they take behind the memory */
static const double KEEP_OUT_OF_L1 = 0.03; /* what that costs beside plain stores */
/* What stores cost that leave L2 first: on the H200 they gain 1 %, on the H100 they lose nothing in
 * some processes and 4 % in others, wherever the operands lie. */
static const double EVICTED_FIRST = 0.01;

/* Seconds. */
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
    const double clock = fmax(device->clock_khz, 1e6) * 1e3;
    const double blocks = v[BLOCKS] > 0 ? fmin(steps, v[BLOCKS] * sms) : steps;
    /* Words of the operands, and addresses. */
    const double registers = 20 + v[UNROLL] * elements * (double)(s.inputs + s.out) / 4 + v[UNROLL];
    const double resident =
        fmax(fmin(fmin(floor(2048.0 / v[THREADS]), floor(65536 / registers / v[THREADS])), 32), 1);
    const double live = fmin(fmax(blocks / sms, 1), resident);
    const double step = (double)v[VECTOR] * v[UNROLL] * v[THREADS];
    const double large = moved > 0.8 * (double)device->l2_bytes ? 1 : 0;
    const double hints = v[CACHE] == 1 ? KEEP_OUT_OF_L1 : v[CACHE] == 2 ? EVICTED_FIRST : 0;
    const double shape = OTHER_STEP * fabs(log2(step / BEST_STEP)) +
                         (blocks < steps ? PERSISTENT : 0) + (v[BLOCKS] > 0 ? NO_NEED : 0) +
                         (v[VECTOR] > 16 ? TORN : 0) +
                         (v[VECTOR] > 8 && s.inputs > s.out ? WIDE * large : 0);
    const double memory =
        gki_map_seconds(problem, device) / fmin(blocks / sms, 1) * (1 + hints + shape);
    const double issue = n / elements * pieces(problem, v) / 32 / sms / clock * INSTRUCTIONS;
    const double starts = gki_model_starts(device, blocks, v[THREADS]);
    const double chain = fmax(steps / sms / live, 1) * LATENCY;
    return KERNEL_START + fmax(fmax(memory, issue), fmax(starts, chain)) + HIDDEN * issue;
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
