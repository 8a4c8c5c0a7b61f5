/* The matmul variant for products with few rows or few columns, which take as long as the other
 * operand takes to come from memory. */
#include "op/matmul.h"
#include "op/model.h"

#include <math.h>

#include <gk/base.h>
#include <gk/ops.h>

enum {
    TILE,
    VECTORS,
    LANES,
    UNROLL,
    WARPS,
    MMA,
    FETCH,
    SPLIT_K,
    N_PARAMS,
};

static const int32_t tile_values[] = {1, 2, 4, 8, 16};
static const int32_t vectors_values[] = {1, 2, 4, 8};
static const int32_t lanes_values[] = {4, 8, 16, 32};
static const int32_t unroll_values[] = {1, 2, 4};
static const int32_t warps_values[] = {4, 8, 16};
static const int32_t flag_values[] = {0, 1};
static const int32_t fetch_values[] = {128, 256}; /* bytes */
static const int32_t split_k_values[] = {1, 2, 4, 8, 16, 32};

#define VALUES(list) list, sizeof(list) / sizeof((list)[0])

static const gk_param params[N_PARAMS] = {
    [TILE] = {"TILE", "", VALUES(tile_values), 0},
    [VECTORS] = {"VECTORS", "_v", VALUES(vectors_values), 0},
    [LANES] = {"LANES", "x", VALUES(lanes_values), 0},
    [UNROLL] = {"UNROLL", "_u", VALUES(unroll_values), 0},
    [WARPS] = {"WARPS", "_w", VALUES(warps_values), 0},
    [MMA] = {"MMA", "_m", VALUES(flag_values), 0},
    [FETCH] = {"FETCH", "_f", VALUES(fetch_values), 0},
    [SPLIT_K] = {"SPLIT_K", "", VALUES(split_k_values), 1},
};

enum { MAX_FEW = 16, MAX_LONG = 1 << 30 };
static const int64_t MAX_PARTIALS = INT64_C(64) << 20;

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* W is the operand with many rows, X the one with few; the template says the same. */
typedef struct roles {
    int w, x;
    int64_t w_rows, x_rows, k;
    bool thin_n;
    bool w_along_k;
    int64_t size;   /* of an element */
    int64_t vector; /* bytes: the widest vector that tiles W's contiguous axis */
} roles;

static roles roles_of(const gk_problem *problem)
{
    const int64_t *dims = problem->dims;
    roles r;
    r.thin_n = dims[MATMUL_N] < dims[MATMUL_M];
    r.w = r.thin_n ? MATMUL_A : MATMUL_B;
    r.x = r.thin_n ? MATMUL_B : MATMUL_A;
    r.w_rows = dims[r.thin_n ? MATMUL_M : MATMUL_N];
    r.x_rows = dims[r.thin_n ? MATMUL_N : MATMUL_M];
    r.k = dims[MATMUL_K];
    r.w_along_k = problem->layout[r.w] == (r.thin_n ? GK_LAYOUT_ROW : GK_LAYOUT_COL);
    r.size = (int64_t)gk_dtype_size((gk_dtype)problem->dtype[r.w]);
    r.vector = problem->align[r.w];
    const int64_t length = r.w_along_k ? r.k : r.w_rows;
    while (r.vector > r.size && length % (r.vector / r.size) != 0) {
        r.vector /= 2;
    }
    return r;
}

static int64_t power_of_two_in(int64_t x, int64_t limit)
{
    const int64_t bits = x | limit;
    return bits & -bits;
}

static void constants(const gk_problem *problem, gk_constants *out)
{
    const roles r = roles_of(problem);
    gki_matmul_constants(problem, out);
    gki_matmul_constant(out, "THIN_N", GK_CONSTANT_BOOL, r.thin_n);
    gki_matmul_constant(out, "W_VECTOR", GK_CONSTANT_INT, r.vector);
    gki_matmul_constant(out, "K_DIVISOR", GK_CONSTANT_INT, power_of_two_in(r.k, 16));
}

/* What a configuration makes of a problem. */
typedef struct shape {
    int64_t vec;        /* elements of a vector */
    int64_t lane_k;     /* of K in a step of a lane */
    int64_t lane_rows;  /* of W */
    int64_t lanes_k;    /* that share K */
    int64_t x_vectors;  /* of X that a lane has in a step */
    int64_t sums;       /* of a lane */
    int64_t block_k;    /* of K in a step of the block */
    int64_t block_rows; /* of W */
    int64_t threads;
    int64_t in_flight;  /* bytes of W that a thread asks for before it waits */
    int64_t multiplies; /* that a lane unrolls */
    int64_t registers;
    int64_t smem;
} shape;

/* The template's CUT: may a part of a lane's share of a step exist? */
static bool is_cut(const roles *r, const int32_t *v)
{
    return !r->w_along_k && power_of_two_in(r->k, 16) % v[VECTORS] != 0;
}

static bool x_along_k(const gk_problem *problem, const roles *r)
{
    return problem->layout[r->x] == (r->thin_n ? GK_LAYOUT_COL : GK_LAYOUT_ROW);
}

/* Can elements of X, `lane_k` of them in a lane, be loaded by words? */
static bool x_by_words(const gk_problem *problem, const roles *r, int64_t lane_k)
{
    return x_along_k(problem, r) && smaller(problem->align[r->x], lane_k * r->size) >= 4;
}

/* As in the template, X_APART. */
static int64_t x_apart(const gk_problem *problem, const roles *r, const int32_t *v, const shape *s)
{
    const int64_t places = x_along_k(problem, r) ? 1 : s->lane_k;
    const int64_t loose = s->lane_k - gki_ceil_div(s->lane_k * r->size, 4);
    const bool words = x_by_words(problem, r, s->lane_k) && !is_cut(r, v);
    return (words ? 0 : v[UNROLL] * s->x_vectors * loose) + 3 * (s->x_vectors - 1) * places;
}

/* As in the template, W_APART. */
static int64_t w_apart(const gk_problem *problem, const roles *r, const int32_t *v, const shape *s)
{
    if (r->vector >= 4) {
        return 0;
    }
    return 3 * v[UNROLL] * v[VECTORS] / 4 +
           (x_along_k(problem, r) ? 0 : (v[UNROLL] - 1) * s->x_vectors);
}

static shape shape_of(const gk_problem *problem, const roles *r, const gk_config *config)
{
    const int32_t *v = config->values;
    shape s;
    s.vec = r->vector / r->size;
    s.lanes_k = r->w_along_k ? v[LANES] : 32 / v[LANES];
    s.lane_k = r->w_along_k ? s.vec : v[VECTORS];
    s.lane_rows = r->w_along_k ? v[VECTORS] : s.vec;
    s.x_vectors = v[MMA] ? v[TILE] / 8 : v[TILE];
    s.sums = v[MMA] ? s.lane_rows / 2 * s.x_vectors * 4 : s.lane_rows * v[TILE];
    s.threads = v[WARPS] * 32;
    s.block_k = v[WARPS] * v[UNROLL] * s.lanes_k * s.lane_k;
    s.block_rows = 32 / s.lanes_k * s.lane_rows;
    s.in_flight = v[VECTORS] * v[UNROLL] * r->vector;
    s.multiplies = v[UNROLL] * s.lane_k * s.lane_rows * v[TILE];
    s.registers = v[UNROLL] * (v[VECTORS] * gki_ceil_div(r->vector, 4) +
                               s.x_vectors * gki_ceil_div(s.lane_k * r->size, 4)) +
                  x_apart(problem, r, v, &s) + w_apart(problem, r, v, &s) + s.sums + 40 +
                  2 * v[VECTORS] +
                  (r->size > 1 ? 0
                   : v[MMA]    ? 8
                               : 32);
    /* Lines of sums are one longer than they need be, along either axis. */
    s.smem = v[WARPS] * (s.block_rows + 1) * (v[TILE] + 1) * 4;
    return s;
}

static bool check_problem(const gk_problem *problem, const gk_device_info *device, const roles *r,
                          gk_reason *reason)
{
    const gk_dtype type = (gk_dtype)problem->dtype[r->w];
    if (type != GK_F32 && type != GK_F16 && type != GK_BF16 && type != GK_E4M3 && type != GK_E5M2) {
        return gk_refuse(reason, "no product of %s", gk_dtype_name(type));
    }
    if (r->size == 1 && device->cc < 89 && !device->is_emulated) {
        return gk_refuse(reason, "8-bit floats are widened by instructions of sm_89 and later");
    }
    if (problem->layout[r->w] == GK_LAYOUT_STRIDED) {
        return gk_refuse(reason, "%s has no contiguous axis", r->w == MATMUL_A ? "a" : "b");
    }
    if (r->x_rows > MAX_FEW) {
        return gk_refuse(reason, "c is %lld x %lld, at most %d rows or columns are few",
                         (long long)problem->dims[MATMUL_M], (long long)problem->dims[MATMUL_N],
                         MAX_FEW);
    }
    if (r->k > MAX_LONG || r->w_rows > MAX_LONG) {
        return gk_refuse(reason, "c has %lld rows or columns and K is %lld, at most 2^30 each",
                         (long long)r->w_rows, (long long)r->k);
    }
    return true;
}

/* Elements of K that a block has. */
static int64_t block_share(const roles *r, const shape *s, const int32_t *v)
{
    const int64_t steps = gki_ceil_div(gki_ceil_div(r->k, s->block_k), v[SPLIT_K]);
    return v[SPLIT_K] > 1 ? smaller(steps * s->block_k, r->k) : r->k;
}

static bool check_tile(const roles *r, const shape *s, const int32_t *v, gk_reason *reason)
{
    if (v[MMA]) {
        const int64_t lane_k = r->w_along_k ? s->vec : v[VECTORS];
        const int64_t lane_rows = r->w_along_k ? v[VECTORS] : s->vec;
        if (r->size == 4) {
            return gk_refuse(reason, "MMA is for types below 32 bits");
        }
        if (v[TILE] < 8 || v[LANES] != (r->w_along_k ? 4 : 8) || lane_k < 4 || lane_rows < 2) {
            return gk_refuse(reason, "no fragment of mma.sync has this shape");
        }
    } else if (v[TILE] > 8) {
        return gk_refuse(reason, "TILE of %d without MMA", (int)v[TILE]);
    }
    if (v[TILE] / 2 >= r->x_rows && v[TILE] > (v[MMA] ? 8 : 1)) {
        return gk_refuse(reason, "half of a TILE of %d stays empty", (int)v[TILE]);
    }
    if (4 * v[TILE] <= r->x_rows) {
        return gk_refuse(reason, "a TILE of %d reads everything %lld times", (int)v[TILE],
                         (long long)gki_ceil_div(r->x_rows, v[TILE]));
    }
    if (!v[MMA] && s->multiplies > 1024) {
        return gk_refuse(reason, "unrolls %d multiply-adds, at most 1024", (int)s->multiplies);
    }
    if (s->in_flight > 512 || s->registers > smaller(224, 65536 / s->threads)) {
        return gk_refuse(reason, "holds %d bytes of vectors in %d registers", (int)s->in_flight,
                         (int)s->registers);
    }
    return true;
}

static void launch(const gk_problem *problem, const gk_device_info *device, const gk_config *config,
                   gk_launch *out)
{
    (void)device;
    const roles r = roles_of(problem);
    const shape s = shape_of(problem, &r, config);
    const int32_t *v = config->values;
    gki_matmul_grid(problem, r.thin_n ? s.block_rows : v[TILE], r.thin_n ? v[TILE] : s.block_rows,
                    v[SPLIT_K], out);
    out->threads = (int32_t)s.threads;
    out->cluster = 0;
    out->overlap = 1;
    out->smem = s.smem;
}

/* Bytes that the L2 cache fetches where a warp reads so much of a row at once. */
static int32_t fetch_of(const gk_device_info *device, const roles *r, const int32_t *v)
{
    return v[LANES] * r->vector <= 128 && gki_model_wide_fetches(device) ? 256 : 128;
}

static bool check(const gk_problem *problem, const gk_device_info *device, const gk_config *config,
                  gk_reason *reason)
{
    const int32_t *v = config->values;
    const roles r = roles_of(problem);
    if (!check_problem(problem, device, &r, reason)) {
        return false;
    }
    if (v[FETCH] != fetch_of(device, &r, v)) {
        return gk_refuse(reason, "FETCH must be %d for pieces of %d bytes on this device",
                         (int)fetch_of(device, &r, v), (int)(v[LANES] * r.vector));
    }
    const shape s = shape_of(problem, &r, config);
    if (!check_tile(&r, &s, v, reason)) {
        return false;
    }
    if (v[SPLIT_K] > 1) {
        gk_launch parts = {0};
        launch(problem, device, config, &parts);
        if ((v[SPLIT_K] - 1) * s.block_k >= r.k) {
            return gk_refuse(reason, "SPLIT_K is %d, K has only %lld steps", (int)v[SPLIT_K],
                             (long long)gki_ceil_div(r.k, s.block_k));
        }
        if (parts.workspace > MAX_PARTIALS) {
            return gk_refuse(reason, "partial sums take %lld bytes, at most %lld are spent on them",
                             (long long)parts.workspace, (long long)MAX_PARTIALS);
        }
    }
    return true;
}

/* The model. Its weights are fitted to 3400 measurements of bf16 on an H200, most of them of short
 * and odd products; seconds unless they say otherwise. */
static const double KERNEL_START = 5.3e-7;  /* overlapping the kernel before */
static const double WARP_START = 1.01e-9;   /* each warp of a block */
static const double GROUP_LATENCY = 3.7e-7; /* from the first read to the last use */
static const double BANDWIDTH = 0.93;       /* of what the memory's pins could do */
static const double ACROSS = 1.17;          /* how much longer that takes where rows of W adjoin */
static const double UNCOVERED = 0.3;        /* of reading and of the rest, the shorter, */
static const double LONE_GROUP = 1.19;      /* more if it is done in one turn */
static const double LINE = 0.503;           /* clocks of a line that a warp's load of W touches */
static const double X_LOAD = 1.91;          /* clocks of a load of X */
static const double PRODUCT = 0.0411;       /* clocks */
static const double X_READ = 3.99e-9;       /* a lane's load of X before its products */
static const double X_PACK = 3.78e-8;       /* loads of single elements that wait to be packed */
static const double CUT_READ = 1.31e-8;     /* a load of W that may not exist */
static const double CUT_X = 3.99e-8;        /* loads of X that may not exist, one by one */
static const double WARP_OUTPUT = 4.62e-9;  /* a sum that a thread takes over from a warp */
static const double FOLD = 1.83e-8;         /* a sum of a lane that the warp adds up */
static const double FOLD_STEP = 1.62e-8;    /* of the lanes that share K, halved at each */
static const double FOLD_EQUAL = 6.27e-8;   /* where lanes end with the same sum */
static const double FRAGMENTS = 3.59e-7;    /* the same of mma.sync */
static const double BLOCK_START = 8.03e-8;  /* a multiprocessor starts a block of few warps */
static const double MANY_WARPS = 9.55;      /* that take no longer */
static const double FULLEST = 0.997;        /* how much the fullest multiprocessor counts */
static const double SPLIT_SUM = 1.3e-6;     /* adding up in device memory */
static const double SPLIT_PART = 3.67e-8;   /* each part of a sum */
static const double SHORT_PIECE = 0.18;     /* what pieces below 128 bytes cost, a half each */
static const double GATHERED = 0.63;        /* how much longer that reads, as a power of the room */
static const double LEAST_GATHERED = 0.9;   /* blocks for each multiprocessor */
static const double DEEP = 0.00613; /* what 64 bytes more under way in a thread cost, of all */

/* What a lane does, and how often. */
typedef struct work {
    double groups;   /* of vectors, under way together, that it walks over */
    double active;   /* warps of a block that have one, on average */
    double w_loads;  /* in a group, */
    double x_loads;  /* and of X, */
    double packs;    /* whose elements are packed one after the other */
    double partial;  /* groups in which not all of a warp's vectors exist */
    double cut_x;    /* loads of X in them that are done by element */
    double lines;    /* that a warp's load of W touches */
    double products; /* of a group */
    double piece;    /* bytes of W that adjoin and are read together */
} work;

/* Lines of W that one load of a warp touches: pieces of rows, which may lie in the same. */
static double lines_of(const roles *r, const shape *s, const int32_t *v)
{
    const double stride = (double)((r->w_along_k ? r->k : r->w_rows) * r->size);
    const double pieces = 32.0 / v[LANES];
    const double span = (pieces - 1) * stride * (r->w_along_k ? 1 : v[VECTORS]) / 128;
    const double across = (double)(v[LANES] * s->vec);
    const double exist = r->w_along_k || across < (double)r->w_rows ? across : (double)r->w_rows;
    return (pieces < 1 + span ? pieces : 1 + span) * gki_at_least(exist * (double)r->size / 128, 1);
}

static work work_of(const gk_problem *problem, const roles *r, const shape *s, const int32_t *v)
{
    const int64_t warp_k = s->block_k / v[WARPS];
    const int64_t k = block_share(r, s, v);
    const int64_t x_piece = smaller(problem->align[r->x], s->lane_k * r->size);
    const bool x_words = x_by_words(problem, r, s->lane_k);
    const int64_t x_places = v[UNROLL] * s->x_vectors;
    const bool ragged = k % warp_k != 0;
    const bool edge = r->w_along_k && r->w_rows % s->block_rows != 0;
    work w;
    w.groups = (double)gki_ceil_div(k, s->block_k);
    w.active = (double)gki_ceil_div(k, warp_k) / gki_at_least(w.groups, 1);
    w.w_loads = v[UNROLL] * v[VECTORS];
    w.x_loads = (double)(x_places * (x_words ? s->lane_k * r->size / x_piece : s->lane_k));
    w.packs = !x_words && s->lane_k > 1 ? (double)x_places : 0;
    w.partial = edge ? w.groups : ragged;
    w.cut_x = is_cut(r, v) && ragged && s->lane_k > 1 && x_words ? (double)x_places : 0;
    w.lines = lines_of(r, s, v);
    w.products = v[MMA] ? w.w_loads * (double)(s->vec * r->size) / 4 * (double)s->x_vectors
                        : (double)s->multiplies + w.w_loads * (double)s->vec;
    w.piece = (double)(v[LANES] * r->vector * (r->w_along_k ? v[UNROLL] : 1));
    return w;
}

/* Blocks that a multiprocessor has room for. */
static double residents(const shape *s, const gk_device_info *device)
{
    const int64_t registers = (smaller(s->registers, 255) + 7) / 8 * 8;
    const int64_t by_registers = larger(device->regs_per_sm, 65536) / (registers * s->threads);
    const int64_t by_threads = larger(device->max_threads_per_sm, 1024) / s->threads;
    return (double)larger(smaller(smaller(by_registers, by_threads), 32), 1);
}

/* The time of the fullest multiprocessor but for reading what comes from memory, and how often
 * that reads. */
static double busy_seconds(const shape *s, const work *w, const gk_device_info *device,
                           const int32_t *v, int64_t blocks, double *turns)
{
    const double clock = gki_at_least(device->clock_khz, 1e6) * 1e3;
    const int64_t sms = larger(device->sm_count, 1);
    const double fit = residents(s, device);
    const double mean = (double)blocks / (double)sms;
    const double share = mean + FULLEST * ((double)gki_ceil_div(blocks, sms) - mean);
    const double live = share < fit ? share : fit;
    const double issue =
        w->active *
        (LINE * w->lines * w->w_loads + X_LOAD * w->x_loads + PRODUCT * (w->products + 40)) / clock;
    const double group =
        GROUP_LATENCY + X_READ * w->x_loads + X_PACK * w->packs + issue * gki_at_least(live, 1);
    const double outputs = (double)gki_ceil_div(s->block_rows * v[TILE], s->threads);
    double block = w->groups * group + w->partial * CUT_READ * w->w_loads + CUT_X * w->cut_x;
    block += outputs * v[WARPS] * WARP_OUTPUT + FOLD * (double)s->sums;
    if (v[MMA]) {
        block += FRAGMENTS;
    } else {
        block += FOLD_STEP * log2((double)s->lanes_k) + (s->sums < s->lanes_k ? FOLD_EQUAL : 0);
    }
    *turns = sqrt(gki_at_least(share, 1)) * w->groups;
    return gki_at_least(share / fit, 1) * block;
}

static double model(const gk_problem *problem, const gk_device_info *device,
                    const gk_config *config)
{
    const int32_t *v = config->values;
    const roles r = roles_of(problem);
    const shape s = shape_of(problem, &r, config);
    const work w = work_of(problem, &r, &s, v);
    const double pins = gki_model_pins(device);
    const int64_t x_tiles = gki_ceil_div(r.x_rows, v[TILE]);
    const int64_t blocks = larger(gki_ceil_div(r.w_rows, s.block_rows) * x_tiles * v[SPLIT_K], 1);
    const double bytes = (double)r.w_rows * (double)r.k * (double)r.size;
    const double pieces = 1 + SHORT_PIECE * gki_at_least(128 / w.piece - 1, 0);
    /* Read again, it comes from the second-level cache. */
    double memory = bytes * pieces * (1 + 0.5 * (double)(x_tiles - 1)) / (BANDWIDTH * pins);
    /* Started early, blocks gather on the multiprocessors that have room first. Where rows of W
     * adjoin, they read beside each other all the same. */
    const double mean = (double)blocks / gki_at_least(device->sm_count, 1);
    const double room = residents(&s, device) / mean;
    if (!r.w_along_k) {
        memory *= ACROSS;
    } else if (device->cc >= 90 && mean > LEAST_GATHERED && room > 1) {
        memory *= pow(room, GATHERED);
    }
    double turns = 1;
    double busy = busy_seconds(&s, &w, device, v, blocks, &turns);
    busy += BLOCK_START * (double)blocks / gki_at_least(device->sm_count, 1) *
            gki_at_least(v[WARPS] / MANY_WARPS, 1);
    /* Groups are read while others are used, but for the first. */
    const double lone = UNCOVERED + LONE_GROUP / gki_at_least(turns, 1);
    double ends = KERNEL_START + WARP_START * v[WARPS];
    if (v[SPLIT_K] > 1) {
        const int64_t outputs = gki_ceil_div(s.block_rows * v[TILE], s.threads);
        ends += SPLIT_SUM + SPLIT_PART * (double)(v[SPLIT_K] * outputs);
    }
    const double longer = gki_at_least(memory, busy);
    const double deep = 1 + DEEP * gki_at_least((double)s.in_flight / 64 - 1, 0);
    return (ends + longer + (lone < 1 ? lone : 1) * (memory + busy - longer)) * deep;
}

const gk_variant gki_matmul_gemv = {
    .struct_size = sizeof(gk_variant),
    .name = "gemv",
    .source = "matmul_gemv.cu",
    .params = params,
    .n_params = N_PARAMS,
    .min_cc = 80,
    .check = check,
    .constants = constants,
    .launch = launch,
    .model = model,
};
