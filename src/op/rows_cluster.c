/* Rows that a cluster of blocks holds, in registers or in shared memory. */
#include "op/model.h"
#include "op/rows.h"

enum { CLUSTER, THREADS, VECTORS, REST, VECTOR };

static const int32_t cluster_values[] = {2, 4, 8};
static const int32_t threads_values[] = {128, 256, 512, 1024};
static const int32_t vectors_values[] = {0, 2, 4, 6, 8}; /* in registers */
static const int32_t rest_values[] = {0, 1};             /* others are in shared memory */
static const int32_t vector_values[] = {16};

#define VALUES(list) list, sizeof(list) / sizeof((list)[0])

const gk_param gki_rows_cluster_params[gki_rows_cluster_count] = {
    [CLUSTER] = {"CLUSTER", "c", VALUES(cluster_values), 0},
    [THREADS] = {"THREADS", "x", VALUES(threads_values), 0},
    [VECTORS] = {"VECTORS", "_v", VALUES(vectors_values), 0},
    [REST] = {"REST", "_s", VALUES(rest_values), 0},
    [VECTOR] = {"VECTOR", "_b", VALUES(vector_values), 0},
};

static gki_rows_held held(const gki_rows_shape *s, const int32_t *v)
{
    return gki_rows_held_by(s, (int64_t)v[CLUSTER] * v[THREADS], v[VECTORS], v[REST] != 0);
}

bool gki_rows_cluster_check(const gk_problem *problem, const gk_device_info *device,
                            const gk_config *config, gk_reason *reason)
{
    const int32_t *v = config->values;
    const gki_rows_shape s = gki_rows_shape_of(problem, v[VECTOR]);
    const int64_t rows = problem->dims[ROWS_ROWS];
    const gki_rows_held h = held(&s, v);
    if (problem->dtype[ROWS_X] == GK_F64) {
        return gk_refuse(reason, "blocks exchange values of 32 bits, x is f64");
    }
    if (!gki_rows_check_held(problem, device, &s, &h, v[THREADS], false, reason)) {
        return false;
    }
    if (rows > INT32_MAX / v[CLUSTER]) {
        return gk_refuse(reason, "%lld rows are more than a grid has blocks for", (long long)rows);
    }
    return true;
}

void gki_rows_cluster_launch(const gk_problem *problem, const gk_device_info *device,
                             const gk_config *config, gk_launch *out)
{
    const int32_t *v = config->values;
    const gki_rows_shape s = gki_rows_shape_of(problem, v[VECTOR]);
    (void)device;
    out->threads = v[THREADS];
    out->cluster = v[CLUSTER];
    out->overlap = 1;
    /* Two halves of slots for warps, slots for blocks, and a barrier. */
    out->smem = (2 * (v[THREADS] / 32) + (int64_t)v[CLUSTER]) * s.summary + 16;
    out->smem += held(&s, v).shared * v[THREADS] * s.vec * s.size;
    out->grid = gki_rows_smaller(problem->dims[ROWS_ROWS], INT32_MAX / v[CLUSTER]) * v[CLUSTER];
}

static const double MEET = 3e-7;       /* seconds of a cluster that exchanges its sums, */
static const double NORM_MEET = 7e-7;  /* of which a norm has less to do before */
static const double SELDOM = 0.25;     /* clusters wait for the last of their blocks' reads */
static const double CLUSTERED = 0.027; /* as against a block a row */

double gki_rows_cluster_model(const gk_problem *problem, const gk_device_info *device,
                              const gk_config *config)
{
    const int32_t *v = config->values;
    const gki_rows_shape s = gki_rows_shape_of(problem, v[VECTOR]);
    gk_launch launch = {0};
    gki_rows_estimate e = {0};
    gki_rows_cluster_launch(problem, device, config, &launch);
    e.blocks = (double)launch.grid;
    e.threads = v[THREADS];
    e.lanes = v[CLUSTER] * v[THREADS];
    const gki_rows_held h = held(&s, v);
    e.resident = (double)gki_rows_holding(problem, device, &s, &h, v[THREADS], launch.smem);
    e.seats = (double)(gki_model_seats(device, v[CLUSTER]) * v[CLUSTER]);
    e.turns = 1;
    e.elements = (double)((h.registers + h.shared) * v[THREADS] * s.vec);
    e.vec = (double)s.vec;
    e.exchange = gki_rows_is_norm(problem) ? NORM_MEET : MEET;
    e.in_shared = h.shared > 0;
    e.seldom = SELDOM;
    e.slower = CLUSTERED;
    return gki_rows_seconds(problem, device, &e);
}
