/* The reduce variant that takes any x, an element at a time. */
#include <math.h>

#include <gk/base.h>
#include <gk/ops.h>

#include "op/reduce.h"

enum { GROUP, UNROLL, WAVES, N_PARAMS };
enum { THREADS = 256 };

static const int32_t group_values[] = {1, 32, 256};
static const int32_t unroll_values[] = {1, 4, 8};
static const int32_t waves_values[] = {0, 1, 4, 8};

#define VALUES(list) list, sizeof(list) / sizeof((list)[0])

static const gk_param params[N_PARAMS] = {
    [GROUP] = {"GROUP", "x", VALUES(group_values), 0},
    [UNROLL] = {"UNROLL", "_u", VALUES(unroll_values), 0},
    [WAVES] = {"WAVES", "_w", VALUES(waves_values), 1},
};

typedef struct shape {
    int64_t rows;
    int64_t tiles;
    int64_t steps;
    int64_t splits;
} shape;

static shape shape_of(const gk_problem *problem, const gk_device_info *device,
                      const gk_config *config)
{
    const int32_t *v = config->values;
    shape s;
    s.rows = THREADS / v[GROUP];
    s.tiles = gki_reduce_ceil_div(gki_reduce_outputs(problem), s.rows);
    s.steps = gki_reduce_ceil_div(problem->dims[REDUCE_AXIS], (int64_t)v[GROUP] * v[UNROLL]);
    s.splits = s.rows == 1 ? gki_reduce_splits(device, s.tiles, s.steps, v[WAVES]) : 1;
    return s;
}

static void launch(const gk_problem *problem, const gk_device_info *device, const gk_config *config,
                   gk_launch *out)
{
    const shape s = shape_of(problem, device, config);
    gki_reduce_grid(problem, s.tiles, s.splits, 1, out);
    out->threads = THREADS;
    out->cluster = 0;
    out->overlap = 1;
    out->smem = s.rows == 1 ? (THREADS / 32 + 1) * gki_reduce_state_bytes(problem) : 0;
}

static bool check(const gk_problem *problem, const gk_device_info *device, const gk_config *config,
                  gk_reason *reason)
{
    const int32_t *v = config->values;
    const shape s = shape_of(problem, device, config);
    if (v[WAVES] > 0 && s.rows > 1) {
        return gk_refuse(reason, "WAVES is %d with a GROUP of %d threads, below a block",
                         (int)v[WAVES], (int)v[GROUP]);
    }
    gk_launch parts = {0};
    launch(problem, device, config, &parts);
    return gki_reduce_check_splits(s.splits, v[WAVES], &parts, reason);
}

static double model(const gk_problem *problem, const gk_device_info *device,
                    const gk_config *config)
{
    const int32_t *v = config->values;
    const shape s = shape_of(problem, device, config);
    const double size = (double)gk_dtype_size((gk_dtype)problem->dtype[REDUCE_X]);
    const double length = (double)problem->dims[REDUCE_AXIS];
    gki_reduce_cost cost = {0};
    cost.blocks = (double)s.tiles * (double)s.splits;
    cost.threads = THREADS;
    cost.registers = 48 + 2 * v[UNROLL];
    cost.in_flight = fmin(v[UNROLL], fmax(length / v[GROUP] / (double)s.splits, 0.1)) * size;
    /* Division by axes for each element. */
    cost.loops = 1.5 * (double)gki_reduce_ceil_div(s.steps, s.splits);
    /* Each element may cost a sector of 32 bytes, unless lanes find neighbours. */
    cost.wasted = problem->layout[REDUCE_X] == GK_LAYOUT_STRIDED                   ? 3
                  : (problem->layout[REDUCE_X] == GK_LAYOUT_ROW) == (v[GROUP] > 1) ? 1.3
                                                                                   : 32 / size;
    cost.after = v[GROUP] > 32 ? 2e-7 : 5e-8;
    cost.split = s.splits > 1;
    return gki_reduce_seconds(problem, device, &cost);
}

const gk_variant gki_reduce_strided = {
    .struct_size = sizeof(gk_variant),
    .name = "strided",
    .source = "reduce_strided.cu",
    .params = params,
    .n_params = N_PARAMS,
    .min_cc = 80,
    .check = check,
    .constants = gki_reduce_constants,
    .launch = launch,
    .model = model,
};
