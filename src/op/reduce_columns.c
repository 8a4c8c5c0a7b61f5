/* The reduce variant for an axis across which the elements of x adjoin. */
#include <math.h>

#include <gk/base.h>
#include <gk/ops.h>

#include "op/reduce.h"

enum { THREADS, LANES, UNROLL, VECTOR, WAVES, N_PARAMS };

static const int32_t threads_values[] = {128, 256, 512};
static const int32_t lanes_values[] = {8, 32, 128};
static const int32_t unroll_values[] = {2, 4, 8, 16};
static const int32_t vector_values[] = {2, 4, 8, 16};
static const int32_t waves_values[] = {0, 1, 2, 4, 8, 16};

#define VALUES(list) list, sizeof(list) / sizeof((list)[0])

static const gk_param params[N_PARAMS] = {
    [THREADS] = {"THREADS", "x", VALUES(threads_values), 0},
    [LANES] = {"LANES", "_l", VALUES(lanes_values), 0},
    [UNROLL] = {"UNROLL", "_u", VALUES(unroll_values), 0},
    [VECTOR] = {"VECTOR", "_v", VALUES(vector_values), 0},
    [WAVES] = {"WAVES", "_w", VALUES(waves_values), 1},
};

/* What a configuration makes of a problem; the template says the same. */
typedef struct shape {
    int64_t size;
    int64_t vec;   /* columns of a thread */
    int64_t rows;  /* of threads */
    int64_t tile;  /* columns of a block */
    int64_t tiles; /* blocks, but for splits */
    int64_t steps;
    int64_t splits;
} shape;

static shape shape_of(const gk_problem *problem, const gk_device_info *device,
                      const gk_config *config)
{
    const int32_t *v = config->values;
    shape s;
    s.size = (int64_t)gk_dtype_size((gk_dtype)problem->dtype[REDUCE_X]);
    s.vec = v[VECTOR] < s.size ? 1 : v[VECTOR] / s.size;
    s.rows = v[THREADS] / v[LANES];
    s.tile = v[LANES] * s.vec;
    /* One term is at most the number of elements. */
    s.tiles =
        gki_reduce_ceil_div(problem->dims[REDUCE_INNER], s.tile) * problem->dims[REDUCE_OUTER];
    s.steps = gki_reduce_ceil_div(problem->dims[REDUCE_AXIS], s.rows * v[UNROLL]);
    s.splits = gki_reduce_splits(device, s.tiles, s.steps, v[WAVES]);
    return s;
}

static void launch(const gk_problem *problem, const gk_device_info *device, const gk_config *config,
                   gk_launch *out)
{
    const shape s = shape_of(problem, device, config);
    gki_reduce_grid(problem, s.tiles, s.splits, s.tile, out);
    out->threads = config->values[THREADS];
    out->cluster = 0;
    out->overlap = 1;
    out->smem = (s.rows * s.tile + 1) * gki_reduce_state_bytes(problem);
}

static bool check(const gk_problem *problem, const gk_device_info *device, const gk_config *config,
                  gk_reason *reason)
{
    const int32_t *v = config->values;
    if (problem->layout[REDUCE_X] != GK_LAYOUT_COL) {
        return gk_refuse(reason, "the elements of x do not adjoin across the axis");
    }
    const shape s = shape_of(problem, device, config);
    if (v[VECTOR] < s.size) {
        return gk_refuse(reason, "VECTOR is %d bytes, an element %d", (int)v[VECTOR], (int)s.size);
    }
    if (v[VECTOR] > problem->align[REDUCE_X]) {
        return gk_refuse(reason, "VECTOR is %d bytes, x is aligned to %d", (int)v[VECTOR],
                         (int)problem->align[REDUCE_X]);
    }
    if (v[LANES] > 8 && s.tile >= 4 * problem->dims[REDUCE_INNER]) {
        return gk_refuse(reason, "a tile of %d columns for %lld", (int)s.tile,
                         (long long)problem->dims[REDUCE_INNER]);
    }
    /* What a thread has under way, its states, and one column's elements as they are added up. */
    const int64_t registers =
        v[UNROLL] * (v[VECTOR] / 4 + 1) + s.vec * (gki_reduce_state_bytes(problem) / 4) + 48;
    if (registers * v[THREADS] > 65536 || registers > 160) {
        return gk_refuse(reason, "%d threads of at least %d registers", (int)v[THREADS],
                         (int)registers);
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
    const double length = (double)problem->dims[REDUCE_AXIS];
    const double state = (double)gki_reduce_state_bytes(problem) / 4;
    const double deep = fmin(v[UNROLL], fmax(length / (double)(s.rows * s.splits), 0.1));
    const double piece = (double)(v[LANES] * v[VECTOR]);
    const double inner = (double)problem->dims[REDUCE_INNER];
    const double covered = (double)gki_reduce_ceil_div(problem->dims[REDUCE_INNER], s.tile);
    gki_reduce_cost cost = {0};
    cost.blocks = (double)s.tiles * (double)s.splits;
    cost.threads = v[THREADS];
    cost.registers = v[UNROLL] * (v[VECTOR] / 4.0 + 2) + (double)s.vec * (state + 1) + 64;
    cost.in_flight = deep * v[VECTOR] * inner / (covered * (double)s.tile);
    cost.loops = (double)gki_reduce_ceil_div(s.steps, s.splits);
    cost.wasted = 1 + 0.02 * fmax(512 / piece - 1, 0) + (v[VECTOR] < 16 ? 0.02 : 0);
    cost.after = s.rows > 1 || s.splits > 1
                     ? 3e-7 + 3e-9 * (double)(s.rows * s.tile) / v[THREADS] * (double)s.vec
                     : 1e-7;
    cost.split = s.splits > 1;
    /* The last block of a tile reads what the others have, 16 splits of a column a thread at once.
     */
    const double merges =
        (double)gki_reduce_ceil_div(s.tile, v[THREADS]) * (double)gki_reduce_ceil_div(s.splits, 16);
    return gki_reduce_seconds(problem, device, &cost) + (cost.split ? 1e-6 * merges : 0);
}

const gk_variant gki_reduce_columns = {
    .struct_size = sizeof(gk_variant),
    .name = "columns",
    .source = "reduce_columns.cu",
    .params = params,
    .n_params = N_PARAMS,
    .min_cc = 80,
    .check = check,
    .constants = gki_reduce_constants,
    .launch = launch,
    .model = model,
};
