/* The transpose variant that serves everything: a tile a block, through shared memory where the
 * tensors are contiguous along different axes. */
#include <math.h>

#include "op/model.h"
#include "op/transpose.h"

enum { TILE_R, TILE_C, VECTOR, THREADS, GROUP, N_PARAMS };

static const int32_t tile_values[] = {1,   2,   4,   8,    16,   32,   64,
                                      128, 256, 512, 1024, 2048, 4096, 8192};
static const int32_t vector_values[] = {4, 8, 16};
static const int32_t threads_values[] = {128, 256, 512};
static const int32_t group_values[] = {1, 4, 16, 64};

#define VALUES(list) list, sizeof(list) / sizeof((list)[0])

static const gk_param params[N_PARAMS] = {
    [TILE_R] = {"TILE_R", "", VALUES(tile_values), 0},
    [TILE_C] = {"TILE_C", "x", VALUES(tile_values), 0},
    [VECTOR] = {"VECTOR", "_v", VALUES(vector_values), 0},
    [THREADS] = {"THREADS", "_t", VALUES(threads_values), 0},
    [GROUP] = {"GROUP", "_g", VALUES(group_values), 1},
};

enum {
    MIN_SEGMENT = 64,    /* bytes of a tile's line, where the tensor's is not shorter */
    MAX_SEGMENT = 512,   /* the same, where the tile has several lines */
    MAX_TILE = 64 << 10, /* bytes */
    MAX_HELD = 64,       /* registers of a thread that hold elements */
    MAX_UNITS = 16,      /* of a thread, which knows the address of each */
};

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* What a configuration makes of a problem; the template says the same. */
typedef struct shape {
    int64_t unit_r, unit_c; /* elements that a thread turns at once */
    int64_t units;          /* in a tile */
    int64_t held;           /* registers */
    int64_t bytes;          /* of a tile */
} shape;

static shape shape_of(const gk_problem *problem, const gki_transpose_view *v,
                      const gk_config *config)
{
    const int32_t *c = config->values;
    const int64_t x_align = problem->align[TRANSPOSE_X];
    const int64_t out_align = problem->align[TRANSPOSE_OUT];
    const int64_t cap = larger(c[VECTOR], v->size);
    const int64_t x_bytes = smaller(smaller(x_align, cap), v->copy ? out_align : 16);
    const int64_t out_bytes = v->copy ? v->size : smaller(out_align, cap);
    shape s;
    s.unit_r = out_bytes / v->size;
    s.unit_c = x_bytes / v->size;
    s.units = (c[TILE_R] / s.unit_r) * (c[TILE_C] / s.unit_c);
    s.held = gki_transpose_ceil_div(s.units, c[THREADS]) * s.unit_r * larger(x_bytes / 4, 1);
    s.bytes = (int64_t)c[TILE_R] * c[TILE_C] * v->size;
    return s;
}

static bool check_vector(const gk_problem *problem, const gki_transpose_view *v, int64_t vector,
                         gk_reason *reason)
{
    const int64_t x = problem->align[TRANSPOSE_X];
    const int64_t out = problem->align[TRANSPOSE_OUT];
    const int64_t widest = v->copy ? smaller(x, out) : larger(x, out);
    if (vector > larger(larger(widest, v->size), vector_values[0])) {
        return gk_refuse(reason, "vectors of %d bytes for alignments of %d and %d", (int)vector,
                         (int)x, (int)out);
    }
    if (vector < v->size) {
        return gk_refuse(reason, "vectors of %d bytes for elements of %d", (int)vector,
                         (int)v->size);
    }
    return true;
}

/* length: of the tensor's axis. */
static bool check_side(const char *name, int64_t tile, int64_t unit, int64_t length, int64_t size,
                       bool other_covered, gk_reason *reason)
{
    if (tile < unit) {
        return gk_refuse(reason, "%s is %d, a vector has %d elements", name, (int)tile, (int)unit);
    }
    if (tile > unit && tile / 2 >= length) {
        return gk_refuse(reason, "%s is %d, half of it is enough for %lld", name, (int)tile,
                         (long long)length);
    }
    if (tile < length && tile * size < MIN_SEGMENT) {
        return gk_refuse(reason, "%s is %d, a line of %d bytes", name, (int)tile,
                         (int)(tile * size));
    }
    if (!other_covered && tile * size > MAX_SEGMENT) {
        return gk_refuse(reason, "%s is %d, a line of %d bytes", name, (int)tile,
                         (int)(tile * size));
    }
    return true;
}

static bool check(const gk_problem *problem, const gk_device_info *device, const gk_config *config,
                  gk_reason *reason)
{
    (void)device;
    const int32_t *c = config->values;
    const gki_transpose_view v = gki_transpose_view_of(problem);
    const shape s = shape_of(problem, &v, config);
    const bool rows_covered = c[TILE_R] >= v.rows;
    const bool cols_covered = c[TILE_C] >= v.cols;
    /* Of a copy's tile only the rows are lines in memory. */
    if (!check_vector(problem, &v, c[VECTOR], reason) ||
        !check_side("TILE_R", c[TILE_R], s.unit_r, v.rows, v.copy ? MIN_SEGMENT : v.size,
                    cols_covered || v.copy, reason) ||
        !check_side("TILE_C", c[TILE_C], s.unit_c, v.cols, v.size, rows_covered || v.copy,
                    reason)) {
        return false;
    }
    if (s.units < c[THREADS] &&
        !(rows_covered && cols_covered && c[THREADS] == threads_values[0])) {
        return gk_refuse(reason, "%lld units for %d threads", (long long)s.units, (int)c[THREADS]);
    }
    if (gki_transpose_ceil_div(s.units, c[THREADS]) > MAX_UNITS) {
        return gk_refuse(reason, "%lld units for %d threads, at most %d each", (long long)s.units,
                         (int)c[THREADS], MAX_UNITS);
    }
    if (s.held > MAX_HELD || s.bytes > MAX_TILE) {
        return gk_refuse(reason, "a tile of %lld bytes, %lld registers a thread",
                         (long long)s.bytes, (long long)s.held);
    }
    if (c[GROUP] > 1 && (v.copy || c[GROUP] >= 2 * gki_transpose_ceil_div(v.rows, c[TILE_R]))) {
        return gk_refuse(reason, "GROUP is %d, which changes nothing for %lld rows", (int)c[GROUP],
                         (long long)v.rows);
    }
    return true;
}

static void launch(const gk_problem *problem, const gk_device_info *device, const gk_config *config,
                   gk_launch *out)
{
    (void)device;
    const int32_t *c = config->values;
    const gki_transpose_view v = gki_transpose_view_of(problem);
    out->grid = gki_transpose_tiles(&v, c[TILE_R], c[TILE_C]);
    out->threads = c[THREADS];
    out->overlap = 1;
    out->smem = v.copy ? 0 : (int64_t)c[TILE_R] * c[TILE_C] * v.size;
}

/* The model's weights, seconds unless they say otherwise. Estimates from the H100's data sheet and
 * published measurements of transposes. */
static const double KERNEL_START = 1.8e-6;
static const double LATENCY = 3e-7;        /* of a block: load, turn, store */
static const double BANDWIDTH = 0.865;     /* of what the memory's pins could do */
static const double SHORT_SEGMENT = 0.005; /* what lines below 256 bytes cost, a half each */
static const double FAR_LINES = 0.0025;    /* what lines add that blocks at work do not continue */
static const double ACCESS = 128;          /* bytes a clock between a multiprocessor and its L1 */
static const double INSTRUCTIONS = 0.1;    /* that an access takes */
static const double SHARPNESS = 2.5;       /* of the longest of what goes on at once */
static const double UNIT = 1e-7;           /* of a thread, while nothing else hides it */

/* Blocks that a multiprocessor holds at once. */
static double resident(const gk_device_info *device, const shape *s, int64_t threads, bool copy)
{
    /* Read off the compiler's results: a unit's addresses take about two. */
    const int64_t units = gki_transpose_ceil_div(s->units, threads);
    const int64_t registers = (20 + s->held * 3 / 2 + units * 9 / 4 + 7) / 8 * 8;
    const int64_t by_threads = larger(device->max_threads_per_sm, 1024) / threads;
    const int64_t by_registers = larger(device->regs_per_sm, 65536) / (registers * threads);
    const int64_t by_memory = copy ? 32 : larger(device->smem_per_sm, 65536) / (s->bytes + 1024);
    return (double)larger(smaller(smaller(by_threads, by_registers), smaller(by_memory, 32)), 1);
}

/* Halvings of a line below 256 bytes; 0 where the tensor has no longer ones. */
static double halvings(double line, double length)
{
    return line >= 256 || line >= length ? 0 : log2(256 / line);
}

static double model(const gk_problem *problem, const gk_device_info *device,
                    const gk_config *config)
{
    const int32_t *c = config->values;
    const gki_transpose_view v = gki_transpose_view_of(problem);
    const shape s = shape_of(problem, &v, config);
    const double sms = fmax(device->sm_count, 1);
    const double clock = fmax(device->clock_khz, 1e6) * 1e3;
    const double pins = gki_model_pins(device);
    const double size = (double)v.size;
    const double bytes = 2 * size * (double)v.rows * (double)v.cols * (double)v.batches;
    const double blocks = (double)gki_transpose_tiles(&v, c[TILE_R], c[TILE_C]);
    const double live = fmin(resident(device, &s, c[THREADS], v.copy), fmax(blocks / sms, 1));
    const double lines = halvings(c[TILE_C] * size, (double)v.cols * size) +
                         (v.copy ? 0 : halvings(c[TILE_R] * size, (double)v.rows * size));
    /* What is at work at once covers group rows of tiles; best if neither side is short. */
    const double high = fmin((double)c[GROUP], ceil((double)v.rows / c[TILE_R])) * c[TILE_R];
    const double wide = fmin(live * sms * c[TILE_R] * c[TILE_C] / high, (double)v.cols);
    const double far_lines = v.copy ? 0
                                    : log2(fmax(fmin(4096 / size, (double)v.rows) / high, 1)) +
                                          log2(fmax(fmin(4096 / size, (double)v.cols) / wide, 1));
    const double memory =
        bytes / (BANDWIDTH * pins) * (1 + SHORT_SEGMENT * lines + FAR_LINES * far_lines);
    /* Each pass through L1 or shared memory moves 32 vectors of a warp at a time. */
    const double wide_x = fmin(ACCESS, 32 * (double)s.unit_c * size);
    const double wide_out = fmin(ACCESS, 32 * (double)s.unit_r * size);
    const double area = blocks * (double)s.bytes;
    const double passes = v.copy ? 2 / wide_x : 1 / wide_x + 3 / wide_out;
    const double issue = area * passes / sms / clock;
    /* Instructions, four a clock: an access with its address and its turn. */
    const double accesses =
        v.copy ? 2 / (double)s.unit_c : 1 / (double)s.unit_c + 3 / (double)s.unit_r;
    const double instructions = area / size / 32 * (INSTRUCTIONS * accesses + 1) / 4 / sms / clock;
    const double waves = fmax(blocks / (sms * live), 1);
    const double units = (double)gki_transpose_ceil_div(s.units, c[THREADS]);
    const double busy = waves * (LATENCY + UNIT * units + live * (double)s.bytes * passes / clock);
    const double all = pow(pow(memory, SHARPNESS) + pow(busy, SHARPNESS) + pow(issue, SHARPNESS) +
                               pow(instructions, SHARPNESS),
                           1 / SHARPNESS);
    return KERNEL_START + fmax(all, gki_model_starts(device, blocks, c[THREADS]));
}

const gk_variant gki_transpose_tile = {
    .struct_size = sizeof(gk_variant),
    .name = "tile",
    .source = "transpose.cu",
    .params = params,
    .n_params = N_PARAMS,
    .min_cc = 80,
    .check = check,
    .constants = gki_transpose_constants,
    .launch = launch,
    .model = model,
};
