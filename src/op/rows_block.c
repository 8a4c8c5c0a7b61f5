/* Rows that a block holds, in registers or in shared memory. */
#include "op/rows.h"

enum { THREADS, VECTORS, REST, VECTOR, PERSIST };

static const int32_t threads_values[] = {64, 128, 256, 512, 1024};
static const int32_t vectors_values[] = {0, 1, 2, 4, 8}; /* in registers */
static const int32_t vector_values[] = {8, 16};
static const int32_t flag_values[] = {0, 1};

#define VALUES(list) list, sizeof(list) / sizeof((list)[0])

const gk_param gki_rows_block_params[gki_rows_block_count] = {
    [THREADS] = {"THREADS", "t", VALUES(threads_values), 0},
    [VECTORS] = {"VECTORS", "_v", VALUES(vectors_values), 0},
    [REST] = {"REST", "_s", VALUES(flag_values), 0}, /* in shared memory, if there are others */
    [VECTOR] = {"VECTOR", "_b", VALUES(vector_values), 0},
    [PERSIST] = {"PERSIST", "_p", VALUES(flag_values), 0},
};

static gki_rows_held held(const gki_rows_shape *s, const int32_t *v)
{
    return gki_rows_held_by(s, v[THREADS], v[VECTORS], v[REST] != 0);
}

bool gki_rows_block_check(const gk_problem *problem, const gk_device_info *device,
                          const gk_config *config, gk_reason *reason)
{
    const int32_t *v = config->values;
    const gki_rows_shape s = gki_rows_shape_of(problem, v[VECTOR]);
    const int64_t rows = problem->dims[ROWS_ROWS];
    const gki_rows_held h = held(&s, v);
    if (s.size == 8 && v[THREADS] > 512) {
        return gk_refuse(reason, "%d threads have too few registers for f64", (int)v[THREADS]);
    }
    if (!gki_rows_check_held(problem, device, &s, &h, v[THREADS], v[PERSIST] != 0, reason)) {
        return false;
    }
    if (!v[PERSIST] && rows > INT32_MAX) {
        return gk_refuse(reason, "%lld rows are more than a grid has blocks for", (long long)rows);
    }
    return true;
}

static int64_t resident(const gk_problem *problem, const gk_device_info *device, const int32_t *v,
                        int64_t smem)
{
    const gki_rows_shape s = gki_rows_shape_of(problem, v[VECTOR]);
    const gki_rows_held h = held(&s, v);
    return h.registers > 0 && h.shared > 0
               ? gki_rows_holding(problem, device, &s, &h, v[THREADS], smem)
               : gki_rows_resident(device, &s, v[THREADS], 1, v[VECTORS], smem);
}

void gki_rows_block_launch(const gk_problem *problem, const gk_device_info *device,
                           const gk_config *config, gk_launch *out)
{
    const int32_t *v = config->values;
    const gki_rows_shape s = gki_rows_shape_of(problem, v[VECTOR]);
    out->threads = v[THREADS];
    out->overlap = 1;
    out->smem = 2 * (v[THREADS] / 32) * s.summary;
    out->smem += held(&s, v).shared * v[THREADS] * s.vec * s.size;
    out->grid = gki_rows_smaller(problem->dims[ROWS_ROWS], INT32_MAX);
    if (v[PERSIST]) {
        out->grid =
            gki_rows_smaller(out->grid, device->sm_count * resident(problem, device, v, out->smem));
    }
}

static const double SELDOM = 0.078;
static const double SHARED = 9e-7;     /* seconds that a row takes longer through shared memory */
static const double BARRIER = 9e-10;   /* seconds for each thread */
static const double MANY_HELD = 0.027; /* more than four vectors a thread, in a norm */

double gki_rows_block_model(const gk_problem *problem, const gk_device_info *device,
                            const gk_config *config)
{
    const int32_t *v = config->values;
    const gki_rows_shape s = gki_rows_shape_of(problem, v[VECTOR]);
    gk_launch launch = {0};
    gki_rows_estimate e = {0};
    gki_rows_block_launch(problem, device, config, &launch);
    e.blocks = (double)launch.grid;
    e.turns = (double)gki_rows_ceil(problem->dims[ROWS_ROWS], launch.grid);
    e.threads = v[THREADS];
    e.lanes = v[THREADS];
    e.persistent = v[PERSIST] != 0;
    const gki_rows_held h = held(&s, v);
    e.resident =
        (double)(v[PERSIST] ? resident(problem, device, v, launch.smem)
                            : gki_rows_holding(problem, device, &s, &h, v[THREADS], launch.smem));
    e.elements = (double)((h.registers + h.shared) * v[THREADS] * s.vec);
    e.vec = (double)s.vec;
    /* A barrier costs more with more warps. */
    e.exchange = 2e-7 + BARRIER * v[THREADS] + (v[VECTORS] == 0 ? SHARED : 0);
    e.in_shared = h.shared > 0;
    e.seldom = SELDOM;
    e.slower = gki_rows_is_norm(problem) && v[VECTORS] > 4 ? MANY_HELD : 0;
    return gki_rows_seconds(problem, device, &e);
}
