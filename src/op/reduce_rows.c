/* The reduce variant for an axis along which the elements of x adjoin. */
#include <math.h>

#include <gk/base.h>
#include <gk/ops.h>

#include "op/reduce.h"

enum { GROUP, UNROLL, VECTOR, WAVES, N_PARAMS };

static const int32_t group_values[] = {1, 8, 32, 128, 256, 512, 1024};
static const int32_t unroll_values[] = {1, 2, 4, 8};
static const int32_t vector_values[] = {4, 8, 16};
static const int32_t waves_values[] = {0, 1, 2, 4, 8, 16};

#define VALUES(list) list, sizeof(list) / sizeof((list)[0])

static const gk_param params[N_PARAMS] = {
    [GROUP] = {"GROUP", "x", VALUES(group_values), 0},
    [UNROLL] = {"UNROLL", "_u", VALUES(unroll_values), 0},
    [VECTOR] = {"VECTOR", "_v", VALUES(vector_values), 0},
    [WAVES] = {"WAVES", "_w", VALUES(waves_values), 1},
};

/* What a configuration makes of a problem; the template says the same. */
typedef struct shape {
    int64_t size;
    int64_t threads;
    int64_t rows;  /* of a block */
    int64_t tiles; /* blocks, but for splits */
    int64_t steps; /* that a group takes along a row */
    int64_t splits;
} shape;

static shape shape_of(const gk_problem *problem, const gk_device_info *device,
                      const gk_config *config)
{
    const int32_t *v = config->values;
    shape s;
    s.size = (int64_t)gk_dtype_size((gk_dtype)problem->dtype[REDUCE_X]);
    s.threads = v[GROUP] < 128 ? 256 : v[GROUP];
    s.rows = s.threads / v[GROUP];
    s.tiles = gki_reduce_ceil_div(gki_reduce_outputs(problem), s.rows);
    const int64_t step = (int64_t)v[GROUP] * v[UNROLL] * (v[VECTOR] / s.size);
    s.steps = step > 0 ? gki_reduce_ceil_div(problem->dims[REDUCE_AXIS], step) : 0;
    s.splits = s.rows == 1 ? gki_reduce_splits(device, s.tiles, s.steps, v[WAVES]) : 1;
    return s;
}

static void launch(const gk_problem *problem, const gk_device_info *device, const gk_config *config,
                   gk_launch *out)
{
    const shape s = shape_of(problem, device, config);
    gki_reduce_grid(problem, s.tiles, s.splits, 1, out);
    out->threads = (int32_t)s.threads;
    out->cluster = 0;
    out->overlap = 1;
    out->smem = s.rows == 1 ? (s.threads / 32 + 1) * gki_reduce_state_bytes(problem) : 0;
}

static bool check(const gk_problem *problem, const gk_device_info *device, const gk_config *config,
                  gk_reason *reason)
{
    const int32_t *v = config->values;
    if (problem->layout[REDUCE_X] != GK_LAYOUT_ROW) {
        return gk_refuse(reason, "the elements of x do not adjoin along the axis");
    }
    const shape s = shape_of(problem, device, config);
    if (v[VECTOR] < s.size) {
        return gk_refuse(reason, "VECTOR is %d bytes, an element %d", (int)v[VECTOR], (int)s.size);
    }
    const int64_t registers = v[UNROLL] * (v[VECTOR] / 4 + 1) + 2 * (v[VECTOR] / s.size) + 24;
    if (registers * s.threads > 65536) {
        return gk_refuse(reason, "%d threads of at least %d registers", (int)s.threads,
                         (int)registers);
    }
    if (v[WAVES] > 0 && s.rows > 1) {
        return gk_refuse(reason, "WAVES is %d with a GROUP of %d threads, below a block",
                         (int)v[WAVES], (int)v[GROUP]);
    }
    const int64_t vectors = gki_reduce_ceil_div(problem->dims[REDUCE_AXIS], v[VECTOR] / s.size);
    if (v[GROUP] > 8 && vectors + 1 < v[GROUP] / 8) {
        return gk_refuse(reason, "a GROUP of %d for rows of %lld vectors", (int)v[GROUP],
                         (long long)vectors);
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
    const double vec = (double)v[VECTOR] / (double)s.size;
    const double length = (double)problem->dims[REDUCE_AXIS];
    const double deep = fmin(v[UNROLL], fmax(length / vec / v[GROUP] / (double)s.splits, 0.1));
    gki_reduce_cost cost = {0};
    cost.blocks = (double)s.tiles * (double)s.splits;
    cost.threads = (double)s.threads;
    cost.registers = v[UNROLL] * (v[VECTOR] / 4.0 + 1) + 2 * vec + 48;
    cost.in_flight = deep * v[VECTOR];
    cost.loops = (double)gki_reduce_ceil_div(s.steps, s.splits);
    /* Lanes that are not side by side read sectors of 32 bytes piece by piece. */
    cost.wasted = v[GROUP] == 1 && length * (double)s.size > 32 ? 32.0 / v[VECTOR] : 1;
    cost.wasted += v[VECTOR] < 16 ? 0.02 : 0;
    cost.after = v[GROUP] >= 128 ? 1.5e-7 + 2e-10 * v[GROUP] : 2e-8 * (v[GROUP] > 1);
    cost.split = s.splits > 1;
    return gki_reduce_seconds(problem, device, &cost);
}

const gk_variant gki_reduce_rows = {
    .struct_size = sizeof(gk_variant),
    .name = "rows",
    .source = "reduce_rows.cu",
    .params = params,
    .n_params = N_PARAMS,
    .min_cc = 80,
    .check = check,
    .constants = gki_reduce_constants,
    .launch = launch,
    .model = model,
};
