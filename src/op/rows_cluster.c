/* Rows that a cluster of blocks holds, in registers or in shared memory. */
#include "op/rows.h"

enum { CLUSTER, THREADS, VECTORS, VECTOR };

static const int32_t cluster_values[] = {2, 4, 8};
static const int32_t threads_values[] = {128, 256, 512, 1024};
static const int32_t vectors_values[] = {0, 2, 4, 8};
static const int32_t vector_values[] = {16};

#define VALUES(list) list, sizeof(list) / sizeof((list)[0])

const gk_param gki_rows_cluster_params[gki_rows_cluster_count] = {
    [CLUSTER] = {"CLUSTER", "c", VALUES(cluster_values), 0},
    [THREADS] = {"THREADS", "x", VALUES(threads_values), 0},
    [VECTORS] = {"VECTORS", "_v", VALUES(vectors_values), 0},
    [VECTOR] = {"VECTOR", "_b", VALUES(vector_values), 0},
};

enum { MAX_WORDS = 32 };

/* Vectors of a row that a thread holds. */
static int64_t held(const gki_rows_shape *s, const int32_t *v)
{
    return v[VECTORS] > 0 ? v[VECTORS]
                          : gki_rows_ceil(s->vectors, (int64_t)v[CLUSTER] * v[THREADS]);
}

bool gki_rows_cluster_check(const gk_problem *problem, const gk_device_info *device,
                            const gk_config *config, gk_reason *reason)
{
    const int32_t *v = config->values;
    const gki_rows_shape s = gki_rows_shape_of(problem, v[VECTOR]);
    const int64_t rows = problem->dims[ROWS_ROWS];
    const int64_t words = v[VECTORS] * gki_rows_ceil(s.vec * s.size, 4);
    const int64_t room = (int64_t)v[CLUSTER] * v[THREADS] * v[VECTORS];
    if (problem->dtype[ROWS_X] == GK_F64) {
        return gk_refuse(reason, "blocks exchange values of 32 bits, x is f64");
    }
    if (v[VECTORS] > 0 && s.vectors > room) {
        return gk_refuse(reason, "a row has up to %lld vectors, the cluster holds %lld",
                         (long long)s.vectors, (long long)room);
    }
    const int64_t most = gki_rows_most_elements(problem, &s, v[THREADS], false);
    if (words > MAX_WORDS || v[VECTORS] * s.vec > most) {
        return gk_refuse(reason, "a row takes %lld registers of each of %d threads",
                         (long long)words, (int)v[THREADS]);
    }
    if (v[VECTORS] == 0 && held(&s, v) > device->smem_per_block_optin) {
        return gk_refuse(reason, "a row takes %lld vectors of a thread", (long long)held(&s, v));
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
    if (v[VECTORS] == 0) {
        out->smem += held(&s, v) * v[THREADS] * s.vec * s.size;
    }
    out->grid = gki_rows_smaller(problem->dims[ROWS_ROWS], INT32_MAX / v[CLUSTER]) * v[CLUSTER];
}

static const double MEET = 1.45e-6;  /* seconds of a cluster that exchanges its sums, and */
static const double MEMBER = 2.9e-7; /* for each of its blocks */

static const double CLUSTERED = 0.01; /* as against a block a row */

double gki_rows_cluster_model(const gk_problem *problem, const gk_device_info *device,
                              const gk_config *config)
{
    const int32_t *v = config->values;
    const gki_rows_shape s = gki_rows_shape_of(problem, v[VECTOR]);
    gk_launch launch = {0};
    gki_rows_estimate e = {0};
    gki_rows_cluster_launch(problem, device, config, &launch);
    e.blocks = (double)launch.grid;
    e.turns = 1;
    e.threads = v[THREADS];
    e.lanes = v[CLUSTER] * v[THREADS];
    e.resident =
        (double)gki_rows_likely(problem, device, &s, v[THREADS], 1, v[VECTORS], launch.smem);
    e.elements = (double)(held(&s, v) * v[THREADS] * s.vec);
    e.vec = (double)s.vec;
    e.exchange = MEET + MEMBER * v[CLUSTER];
    e.in_shared = v[VECTORS] == 0;
    e.slower = CLUSTERED;
    return gki_rows_seconds(problem, device, &e);
}
