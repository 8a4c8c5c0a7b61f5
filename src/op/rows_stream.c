/* Rows of any length and layout, a block each, read twice. */
#include "op/rows.h"

enum { THREADS, UNROLL, VECTOR };

static const int32_t threads_values[] = {64, 128, 256, 512, 1024};
static const int32_t unroll_values[] = {1, 2, 4, 8};
static const int32_t vector_values[] = {8, 16};

#define VALUES(list) list, sizeof(list) / sizeof((list)[0])

const gk_param gki_rows_stream_params[gki_rows_stream_count] = {
    [THREADS] = {"THREADS", "t", VALUES(threads_values), 0},
    [UNROLL] = {"UNROLL", "_u", VALUES(unroll_values), 0},
    [VECTOR] = {"VECTOR", "_b", VALUES(vector_values), 0},
};

bool gki_rows_stream_check(const gk_problem *problem, const gk_device_info *device,
                           const gk_config *config, gk_reason *reason)
{
    const int32_t *v = config->values;
    const gki_rows_shape s = gki_rows_shape_of(problem, v[VECTOR]);
    (void)device;
    /* Of so many threads each has 64 registers. */
    if (v[THREADS] > 512) {
        const int64_t room = s.size == 8 ? s.vec == 1 : s.size == 4 ? 4 : 2;
        const int64_t most = s.size < 8 && gki_rows_is_lean(problem, &s) ? 2 * room : room;
        if (v[UNROLL] > most) {
            return gk_refuse(reason, "%d threads have registers for %lld vectors each, not for %d",
                             (int)v[THREADS], (long long)most, (int)v[UNROLL]);
        }
    }
    return true;
}

void gki_rows_stream_launch(const gk_problem *problem, const gk_device_info *device,
                            const gk_config *config, gk_launch *out)
{
    (void)device;
    const gki_rows_shape s = gki_rows_shape_of(problem, config->values[VECTOR]);
    out->grid = gki_rows_smaller(problem->dims[ROWS_ROWS], INT32_MAX);
    out->threads = config->values[THREADS];
    out->overlap = 1;
    out->smem = 2 * (config->values[THREADS] / 32) * s.summary;
}

static const double STEP = 1.3e-6;    /* seconds of a step along the row */
static const double BARRIER = 2.3e-9; /* of each thread */
static const double TWICE = 1.67;     /* elements gone through, as against those of a held row */
static const double CACHED = 342e3;   /* bytes of a multiprocessor's rows that are still near */
static const double L2_PART = 0.15; /* of a read from memory that one from the second level costs */

double gki_rows_stream_model(const gk_problem *problem, const gk_device_info *device,
                             const gk_config *config)
{
    const int32_t *v = config->values;
    const gki_rows_shape s = gki_rows_shape_of(problem, v[VECTOR]);
    const double row = (double)problem->dims[ROWS_COLS] * (double)s.size;
    const int64_t steps = gki_rows_ceil(s.vectors, (int64_t)v[THREADS] * v[UNROLL]);
    const int64_t slots = steps * v[THREADS] * v[UNROLL] * s.vec;
    gki_rows_estimate e = {0};
    e.blocks = (double)problem->dims[ROWS_ROWS];
    e.turns = 1;
    e.threads = v[THREADS];
    e.resident = (double)gki_rows_likely(problem, device, &s, v[THREADS], 1, v[UNROLL], 0);
    e.lanes = v[THREADS];
    e.elements = TWICE * (double)slots;
    e.vec = (double)s.vec;
    /* The second time, rows come from the nearest cache that held all that were read at once. */
    const double all = row * (double)problem->dims[ROWS_ROWS];
    const double at_once = row * e.resident;
    e.extra = at_once < CACHED                                              ? 0
              : at_once * device->sm_count < 0.5 * (double)device->l2_bytes ? L2_PART * all
                                                                            : all;
    e.exchange = (double)steps * STEP + BARRIER * v[THREADS];
    return gki_rows_seconds(problem, device, &e);
}
