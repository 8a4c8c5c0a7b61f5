/* A few long rows, each to several blocks that wait for each other. */
#include <math.h>

#include "op/model.h"
#include "op/rows.h"

enum { THREADS, UNROLL, VECTOR, BLOCKS, HOLD, TURNS };

static const int32_t threads_values[] = {128, 256, 512};
static const int32_t unroll_values[] = {2, 4};
static const int32_t vector_values[] = {16};
static const int32_t blocks_values[] = {1, 2, 4};
/* Vectors of a thread that stay in shared memory. */
static const int32_t hold_values[] = {0, 4, 8, 12, 14, 16, 24, 28, 48, 56};
/* Rows that a block has one after the other, the next one on its way while one is stored. */
static const int32_t turns_values[] = {1, 2, 4};

#define VALUES(list) list, sizeof(list) / sizeof((list)[0])

const gk_param gki_rows_split_params[gki_rows_split_count] = {
    [THREADS] = {"THREADS", "t", VALUES(threads_values), 0},
    [UNROLL] = {"UNROLL", "_u", VALUES(unroll_values), 0},
    [VECTOR] = {"VECTOR", "_b", VALUES(vector_values), 0},
    [BLOCKS] = {"BLOCKS", "_m", VALUES(blocks_values), 0},
    [HOLD] = {"HOLD", "", VALUES(hold_values), 1},
    [TURNS] = {"TURNS", "", VALUES(turns_values), 1},
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
    p.groups = gki_rows_smaller(gki_rows_ceil(problem->dims[ROWS_ROWS], v[TURNS]), most);
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
    if (v[TURNS] > 1 && v[TURNS] > problem->dims[ROWS_ROWS]) {
        return gk_refuse(reason, "%d rows one after the other, there are %lld", (int)v[TURNS],
                         (long long)problem->dims[ROWS_ROWS]);
    }
    if (v[HOLD] % v[UNROLL] != 0) {
        return gk_refuse(reason, "%d vectors are no multiple of UNROLL, %d", (int)v[HOLD],
                         (int)v[UNROLL]);
    }
    const int64_t vectors = p.steps * v[UNROLL];
    for (size_t i = 0; i < sizeof(hold_values) / sizeof(hold_values[0]); i++) {
        if (hold_values[i] < v[HOLD] && hold_values[i] >= vectors) {
            return gk_refuse(reason, "%d vectors of a thread are held, it has %lld", (int)v[HOLD],
                             (long long)vectors);
        }
    }
    /* 64 registers do for two vectors at a time from sm_90 on, 128 for four, but for norms. */
    const int32_t wide = gki_rows_is_norm(problem) ? 256 : 512;
    const int32_t most = s.size == 8 || (device->cc < 90 && !device->is_emulated) ? 512 : 1024;
    if (v[THREADS] * v[BLOCKS] > (v[UNROLL] > 2 ? wide : most)) {
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

/* The model: 200 timings of two shapes of rows on an H100, fitted, and 600 of 60 on an H200. */
static const double START = 2.5e-6;      /* seconds; launches at once do not overlap */
static const double BANDWIDTH = 0.83;    /* of what the memory's pins could do */
static const double STEP = 7.2e-7;       /* of a thread's vectors that are under way together */
static const double CHUNKS = 1.3e-6;     /* longer than a block that holds its row needs */
static const double MEET = 3.1e-6;       /* and if blocks meet */
static const double TURN = 7e-8;         /* seconds of each block that meets others once more */
static const double AGAIN = 5.5e-13;     /* seconds of a byte that is read again */
static const double EXPONENTIAL = 4e-11; /* seconds of an element and multiprocessor, */
static const double ALL_HELD = 2e-11;    /* more if nothing is read while held ones are looked at */
static const double THREADS_FULL = 512;  /* of a multiprocessor: fewer take longer */

double gki_rows_split_model(const gk_problem *problem, const gk_device_info *device,
                            const gk_config *config)
{
    const int32_t *v = config->values;
    const gki_rows_shape s = gki_rows_shape_of(problem, v[VECTOR]);
    const split p = split_of(problem, device, v, &s);
    const double rows = (double)problem->dims[ROWS_ROWS];
    const double elements = rows * (double)problem->dims[ROWS_COLS];
    const double sms = device->sm_count > 1 ? device->sm_count : 1;
    const double pins = gki_model_pins(device);
    const double blocks = (double)(p.groups * p.parts);
    const double active = blocks < sms ? blocks / sms : 1;
    const double turns = (double)gki_rows_ceil(problem->dims[ROWS_ROWS], p.groups);
    const double vectors = (double)(p.steps * v[UNROLL]);
    const double held = v[HOLD] < vectors ? v[HOLD] / vectors : 1;
    const double fewer = THREADS_FULL / (v[THREADS] * v[BLOCKS]);
    double flops, bytes;
    gki_rows_work(problem, &flops, &bytes);
    const double steps = elements / ((double)s.vec * blocks * v[THREADS] * v[UNROLL]);
    double seconds = START + hypot(bytes / (BANDWIDTH * pins * active), STEP * steps);
    seconds += CHUNKS + (p.parts > 1 ? MEET + TURN * (turns - 1) * (double)p.parts : 0);
    seconds += AGAIN * elements * (double)s.size * (1 - held) * 2 / v[UNROLL] * fewer / active;
    if (!gki_rows_is_norm(problem)) {
        const double late = ALL_HELD * held * held * held / turns;
        seconds += (EXPONENTIAL + late) * elements / (sms * active);
    }
    return seconds;
}
