/* The transpose variant whose tiles come and go by the tensor memory accelerator. */
#include <math.h>

#include "op/model.h"
#include "op/transpose.h"

enum { CELLS_R, CELLS_C, STAGES, THREADS, GROUP, N_PARAMS };

static const int32_t cells_values[] = {1, 2, 4};
static const int32_t stages_values[] = {2, 3, 4};
static const int32_t threads_values[] = {128, 256, 512};
static const int32_t group_values[] = {1, 4, 16, 64};

#define VALUES(list) list, sizeof(list) / sizeof((list)[0])

static const gk_param params[N_PARAMS] = {
    [CELLS_R] = {"CELLS_R", "", VALUES(cells_values), 0},
    [CELLS_C] = {"CELLS_C", "x", VALUES(cells_values), 0},
    [STAGES] = {"STAGES", "_s", VALUES(stages_values), 0},
    [THREADS] = {"THREADS", "_t", VALUES(threads_values), 0},
    [GROUP] = {"GROUP", "_g", VALUES(group_values), 1},
};

enum { LINE = 128, CELL_UNITS = 64, OUT_TILES = 2, MAX_LINES = 256, MAX_HELD = 128 };
static const int64_t MAX_AXIS = INT32_MAX - MAX_LINES; /* coordinates have 32 bits */

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* What a configuration makes of a problem; the template says the same. */
typedef struct shape {
    int64_t tile_r, tile_c;
    int64_t bytes; /* of a tile */
    int64_t smem;
    int64_t tiles;
    int64_t held; /* registers that hold elements */
} shape;

static shape shape_of(const gki_transpose_view *v, const gk_config *config)
{
    const int32_t *c = config->values;
    const int64_t units = (int64_t)c[CELLS_R] * c[CELLS_C] * CELL_UNITS;
    shape s;
    s.tile_r = c[CELLS_R] * LINE / v->size;
    s.tile_c = c[CELLS_C] * LINE / v->size;
    s.bytes = s.tile_r * c[CELLS_C] * LINE;
    s.smem = (c[STAGES] + OUT_TILES) * s.bytes + c[STAGES] * 8;
    s.tiles = gki_transpose_tiles(v, s.tile_r, s.tile_c);
    s.held = units / c[THREADS] * (16 / v->size) * 4;
    return s;
}

/* Blocks that a multiprocessor holds at once. */
static int64_t resident(const gk_device_info *device, const shape *s, int64_t threads)
{
    const int64_t by_memory = device->smem_per_sm / (s->smem + 1024);
    const int64_t by_threads = device->max_threads_per_sm / threads;
    const int64_t fit =
        smaller(smaller(by_memory, by_threads), device->regs_per_sm / (128 * threads));
    return fit > 1 ? fit : 1;
}

static bool check_problem(const gk_problem *problem, const gki_transpose_view *v, gk_reason *reason)
{
    if (v->copy) {
        return gk_refuse(reason, "nothing is to be turned: both are contiguous along one axis");
    }
    for (int i = 0; i < TRANSPOSE_N_ARGS; i++) {
        if (problem->align[i] < 16) {
            return gk_refuse(reason, "%s is aligned to %d bytes, tensor maps need 16",
                             i == TRANSPOSE_X ? "x" : "out", (int)problem->align[i]);
        }
    }
    if (v->rows > MAX_AXIS || v->cols > MAX_AXIS || v->batches > MAX_AXIS) {
        return gk_refuse(reason, "%lld x %lld x %lld, at most %lld each", (long long)v->batches,
                         (long long)v->rows, (long long)v->cols, (long long)MAX_AXIS);
    }
    const long long line = v->rows * v->size;
    if (line % 16 != 0) {
        return gk_refuse(reason, "lines of out have %lld bytes, stores are cut at multiples of 16",
                         line);
    }
    return true;
}

static bool check(const gk_problem *problem, const gk_device_info *device, const gk_config *config,
                  gk_reason *reason)
{
    (void)device;
    const int32_t *c = config->values;
    const gki_transpose_view v = gki_transpose_view_of(problem);
    const shape s = shape_of(&v, config);
    if (!check_problem(problem, &v, reason)) {
        return false;
    }
    if (s.tile_r > MAX_LINES || s.tile_c > MAX_LINES) {
        return gk_refuse(reason, "a box of %d lines, at most %d",
                         (int)(s.tile_r > s.tile_c ? s.tile_r : s.tile_c), MAX_LINES);
    }
    if ((c[CELLS_R] > 1 && s.tile_r / 2 >= v.rows) || (c[CELLS_C] > 1 && s.tile_c / 2 >= v.cols)) {
        return gk_refuse(reason, "half of a tile of %lld x %lld stays empty", (long long)s.tile_r,
                         (long long)s.tile_c);
    }
    if (c[CELLS_R] * c[CELLS_C] * CELL_UNITS % c[THREADS] != 0 && c[THREADS] > threads_values[0]) {
        return gk_refuse(reason, "%d units for %d threads",
                         (int)(c[CELLS_R] * c[CELLS_C] * CELL_UNITS), (int)c[THREADS]);
    }
    if (c[CELLS_R] * c[CELLS_C] * CELL_UNITS < c[THREADS]) {
        return gk_refuse(reason, "%d units for %d threads",
                         (int)(c[CELLS_R] * c[CELLS_C] * CELL_UNITS), (int)c[THREADS]);
    }
    if (s.held > MAX_HELD) {
        return gk_refuse(reason, "%lld registers hold elements, at most %d", (long long)s.held,
                         MAX_HELD);
    }
    if (s.tiles > INT32_MAX) {
        return gk_refuse(reason, "%lld tiles, at most 2^31 - 1", (long long)s.tiles);
    }
    if (c[GROUP] > 1 && c[GROUP] >= 2 * gki_transpose_ceil_div(v.rows, s.tile_r)) {
        return gk_refuse(reason, "GROUP is %d, which changes nothing for %lld rows", (int)c[GROUP],
                         (long long)v.rows);
    }
    return true;
}

static void launch(const gk_problem *problem, const gk_device_info *device, const gk_config *config,
                   gk_launch *out)
{
    const gki_transpose_view v = gki_transpose_view_of(problem);
    const shape s = shape_of(&v, config);
    const int64_t threads = config->values[THREADS];
    out->grid = smaller(s.tiles, device->sm_count * resident(device, &s, threads));
    out->threads = (int32_t)threads;
    out->overlap = 1;
    out->smem = s.smem;
}

static void constants(const gk_problem *problem, gk_constants *out)
{
    const gki_transpose_view v = gki_transpose_view_of(problem);
    const gk_constant size = {"SIZE", GK_CONSTANT_INT, v.size};
    const gk_constant batched = {"BATCHED", GK_CONSTANT_BOOL, v.batches > 1};
    out->items[out->n_items++] = size;
    out->items[out->n_items++] = batched;
    gki_transpose_tag(&v, out);
}

/* A batch of `height` lines of `width` elements. */
static void describe(const gk_tensor *t, int64_t width, int64_t height, int fast, int64_t box,
                     gk_map_desc *out)
{
    const int64_t size = (int64_t)gk_dtype_size((gk_dtype)t->dtype);
    const int slow = fast == t->rank - 1 ? t->rank - 2 : t->rank - 1;
    out->data = t->data;
    out->dtype = t->dtype;
    out->rank = 3;
    out->dims[0] = width;
    out->dims[1] = height;
    out->dims[2] = t->rank == 3 ? t->shape[0] : 1;
    /* The stride of an axis of one element may be anything. */
    out->strides[1] =
        height > 1 ? t->stride[slow] * size : gki_transpose_ceil_div(width * size, 16) * 16;
    out->strides[2] = out->dims[2] > 1 ? t->stride[0] * size : out->strides[1];
    out->box[0] = (int32_t)(LINE / size);
    out->box[1] = (int32_t)box;
    out->box[2] = 1;
    out->swizzle = LINE;
    out->l2_promotion = out->strides[1] % 256 == 0 ? 256 : 128;
}

static bool maps(const gk_call *call, const gk_problem *problem, const gk_device_info *device,
                 const gk_config *config, void *workspace, gk_map_desc *out)
{
    (void)device;
    (void)workspace;
    const gki_transpose_view v = gki_transpose_view_of(problem);
    const shape s = shape_of(&v, config);
    const gk_tensor *x = call->args[TRANSPOSE_X];
    const gk_tensor *y = call->args[TRANSPOSE_OUT];
    /* Both are contiguous along the same one of their own axes. */
    const int fast = problem->layout[TRANSPOSE_X] == TRANSPOSE_COL ? x->rank - 2 : x->rank - 1;
    describe(x, v.cols, v.rows, fast, s.tile_r, &out[0]);
    describe(y, v.rows, v.cols, fast, s.tile_c, &out[1]);
    return true;
}

/* The model's weights, seconds unless they say otherwise: estimates, as transpose_tile.c says. */
static const double KERNEL_START = 1.5e-6; /* with barriers and the first tiles */
static const double LATENCY = 3e-6;        /* from asking for a tile to its end */
static const double BANDWIDTH = 0.81;      /* of what the memory's pins could do */
static const double SHORT_LINE = 0.06;     /* what lines below 256 bytes cost, a half each */
static const double ACCESS = 64;           /* bytes a clock of shared memory */
static const double TURN = 1e-7;           /* barriers and waits of a tile */

static double model(const gk_problem *problem, const gk_device_info *device,
                    const gk_config *config)
{
    const int32_t *c = config->values;
    const gki_transpose_view v = gki_transpose_view_of(problem);
    const shape s = shape_of(&v, config);
    const double sms = fmax(device->sm_count, 1);
    const double clock = fmax(device->clock_khz, 1e6) * 1e3;
    const double pins = gki_model_pins(device);
    const double bytes = 2 * (double)v.size * (double)v.rows * (double)v.cols * (double)v.batches;
    const double area = (double)s.tiles * (double)s.bytes;
    const double short_lines = (c[CELLS_R] == 1) + (c[CELLS_C] == 1);
    const double live = fmin((double)resident(device, &s, c[THREADS]), ceil((double)s.tiles / sms));
    const double groups = fmin(c[GROUP], ceil((double)v.rows / (double)s.tile_r));
    /* What is at work at once is best as high as it is wide. */
    const double far_lines = fabs(log2(groups * groups / (live * sms))) / 2;
    const double memory =
        bytes / (BANDWIDTH * pins) * (1 + SHORT_LINE * short_lines + 0.01 * far_lines);
    /* In the turn a tile passes through shared memory four times, copies of TMA included. */
    const double turn = (double)s.bytes * 4 / ACCESS / clock;
    const double rounds = ceil((double)s.tiles / (sms * live));
    const double in_flight = fmin(rounds, c[STAGES]);
    const double waiting = rounds / in_flight * LATENCY;
    const double busy = fmax(waiting, rounds * (live * turn + TURN)) + LATENCY;
    const double shallow = in_flight < rounds ? 0.02 / in_flight : 0;
    return KERNEL_START + fmax(memory * (1 + shallow), busy) +
           0.1 * area / sms * 4 / ACCESS / clock;
}

const gk_variant gki_transpose_tma = {
    .struct_size = sizeof(gk_variant),
    .name = "tma",
    .source = "transpose_tma.cu",
    .params = params,
    .n_params = N_PARAMS,
    .min_cc = 90,
    .check = check,
    .constants = constants,
    .launch = launch,
    .model = model,
    .n_maps = 2,
    .maps = maps,
};
