/* A few long rows, each to several blocks that wait for each other. */
#include "op/rows.h"

enum { THREADS, UNROLL, VECTOR, BLOCKS, HOLD };

static const int32_t threads_values[] = {128, 256, 512};
static const int32_t unroll_values[] = {2, 4};
static const int32_t vector_values[] = {16};
static const int32_t blocks_values[] = {1, 2, 4};
/* Vectors of a thread that stay in shared memory, a multiple of each UNROLL. */
static const int32_t hold_values[] = {0, 4, 8, 16, 24, 48};

#define VALUES(list) list, sizeof(list) / sizeof((list)[0])

const gk_param gki_rows_split_params[gki_rows_split_count] = {
    [THREADS] = {"THREADS", "t", VALUES(threads_values), 0},
    [UNROLL] = {"UNROLL", "_u", VALUES(unroll_values), 0},
    [VECTOR] = {"VECTOR", "_b", VALUES(vector_values), 0},
    [BLOCKS] = {"BLOCKS", "_m", VALUES(blocks_values), 0},
    [HOLD] = {"HOLD", "", VALUES(hold_values), 1},
};

/* The grid that the CPU device can have resident. */
enum { EMULATED_RESIDENT = 64 };

typedef struct split {
    int64_t groups, parts; /* rows at a time, blocks of a row */
    int64_t steps;         /* of a block */
    int64_t smem;
} split;

static split split_of(const gk_problem *problem, const gk_device_info *device, const int32_t *v,
                      const gki_rows_shape *s)
{
    const int64_t most = device->is_emulated
                             ? gki_rows_smaller(EMULATED_RESIDENT, device->sm_count * v[BLOCKS])
                             : device->sm_count * v[BLOCKS];
    const int64_t steps = gki_rows_ceil(s->vectors, (int64_t)v[THREADS] * v[UNROLL]);
    split p;
    p.groups = gki_rows_smaller(problem->dims[ROWS_ROWS], most);
    p.parts = most / p.groups;
    p.parts = gki_rows_smaller(p.parts, steps);
    p.steps = gki_rows_ceil(steps, p.parts);
    p.smem = 2 * (v[THREADS] / 32) * s->summary + v[HOLD] * v[THREADS] * s->vec * s->size;
    return p;
}

bool gki_rows_split_check(const gk_problem *problem, const gk_device_info *device,
                          const gk_config *config, gk_reason *reason)
{
    const int32_t *v = config->values;
    const gki_rows_shape s = gki_rows_shape_of(problem, v[VECTOR]);
    const split p = split_of(problem, device, v, &s);
    if (problem->dims[ROWS_ROWS] > 65536) {
        return gk_refuse(reason, "%lld rows need no splitting",
                         (long long)problem->dims[ROWS_ROWS]);
    }
    if (v[THREADS] * v[BLOCKS] > 512) {
        return gk_refuse(reason, "%d blocks of %d threads leave too few registers", (int)v[BLOCKS],
                         (int)v[THREADS]);
    }
    if (v[THREADS] * v[BLOCKS] > device->max_threads_per_sm ||
        (p.smem + 1024) * v[BLOCKS] > device->smem_per_sm) {
        return gk_refuse(reason, "%d blocks of %d threads and %lld bytes do not fit together",
                         (int)v[BLOCKS], (int)v[THREADS], (long long)p.smem);
    }
    return true;
}

void gki_rows_split_launch(const gk_problem *problem, const gk_device_info *device,
                           const gk_config *config, gk_launch *out)
{
    const gki_rows_shape s = gki_rows_shape_of(problem, config->values[VECTOR]);
    const split p = split_of(problem, device, config->values, &s);
    out->grid = p.groups * p.parts;
    out->threads = config->values[THREADS];
    out->overlap = 1;
    out->smem = p.smem;
    if (p.parts > 1) {
        out->cooperative = 1;
        out->workspace = problem->dims[ROWS_ROWS] * p.parts * s.summary;
        out->zeroed = (problem->dims[ROWS_ROWS] * 4 + 7) / 8 * 8;
    }
}

static const double MEET = 9e-6;   /* seconds of a row's blocks that exchange their sums */
static const double STEP = 4.5e-7; /* seconds of a step along the row */
static const double TWICE = 1.95;  /* elements gone through, as against those of a held row */
static const double L2_PART = 0.9; /* of a read from memory that one from the second level costs */

double gki_rows_split_model(const gk_problem *problem, const gk_device_info *device,
                            const gk_config *config)
{
    const int32_t *v = config->values;
    const gki_rows_shape s = gki_rows_shape_of(problem, v[VECTOR]);
    const split p = split_of(problem, device, v, &s);
    const double bytes =
        (double)problem->dims[ROWS_ROWS] * (double)problem->dims[ROWS_COLS] * (double)s.size;
    const double steps = (double)p.steps * v[UNROLL];
    gki_rows_estimate e = {0};
    e.blocks = (double)(p.groups * p.parts);
    e.turns = (double)gki_rows_ceil(problem->dims[ROWS_ROWS], p.groups);
    e.threads = v[THREADS];
    e.resident = v[BLOCKS];
    e.lanes = v[THREADS];
    e.elements = TWICE * (double)p.steps * (double)(v[THREADS] * v[UNROLL] * s.vec);
    e.vec = (double)s.vec;
    e.exchange = (p.parts > 1 ? MEET : 0) + (double)p.steps * STEP;
    /* Of what is read again the second-level cache has a part. */
    const double again = bytes * (v[HOLD] < steps ? 1 - v[HOLD] / steps : 0);
    const double cached = 0.5 * (double)device->l2_bytes;
    e.extra = L2_PART * (again < cached ? again : cached) + (again > cached ? again - cached : 0);
    return gki_rows_seconds(problem, device, &e);
}
