/* The matmul variant on the ordinary arithmetic units: serves every dtype, stride and alignment. */
#include "op/matmul.h"
#include "op/model.h"

#include <string.h>

#include <gk/base.h>

enum {
    BLOCK_M,
    BLOCK_N,
    BLOCK_K,
    THREAD_M,
    THREAD_N,
    SLICE_K,
    STAGES,
    SPLIT_K,
    GROUP_M,
    N_PARAMS,
};

static const int32_t block_m_values[] = {16, 32, 64, 96, 128};
static const int32_t block_n_values[] = {16, 32, 64, 96, 128, 256};
static const int32_t block_k_values[] = {8, 16, 32};
static const int32_t thread_m_values[] = {2, 4, 8, 16};
static const int32_t thread_n_values[] = {4, 8, 16};
static const int32_t slice_k_values[] = {1, 2, 4};
static const int32_t stages_values[] = {3, 4};
static const int32_t split_k_values[] = {1, 2, 4, 8, 16, 32, 64};
static const int32_t group_m_values[] = {1, 8};

#define VALUES(list) list, sizeof(list) / sizeof((list)[0])

static const gk_param params[N_PARAMS] = {
    [BLOCK_M] = {"BLOCK_M", "", VALUES(block_m_values), 0},
    [BLOCK_N] = {"BLOCK_N", "x", VALUES(block_n_values), 0},
    [BLOCK_K] = {"BLOCK_K", "x", VALUES(block_k_values), 0},
    [THREAD_M] = {"THREAD_M", "_", VALUES(thread_m_values), 0},
    [THREAD_N] = {"THREAD_N", "x", VALUES(thread_n_values), 0},
    [SLICE_K] = {"SLICE_K", "_k", VALUES(slice_k_values), 0},
    [STAGES] = {"STAGES", "_s", VALUES(stages_values), 0},
    [SPLIT_K] = {"SPLIT_K", "", VALUES(split_k_values), 1},
    [GROUP_M] = {"GROUP_M", "", VALUES(group_m_values), 1},
};

/* Block tiles and the thread tiles that they are worth having with. */
static const struct {
    int16_t block_m, block_n, thread_m, thread_n;
} shapes[] = {
    {16, 16, 2, 4},    {16, 32, 4, 4},    {32, 16, 4, 4},    {16, 64, 4, 4},    {64, 16, 4, 4},
    {32, 32, 4, 4},    {32, 64, 4, 4},    {32, 64, 4, 8},    {64, 32, 4, 4},    {64, 32, 8, 4},
    {64, 64, 4, 4},    {64, 64, 8, 4},    {64, 64, 8, 8},    {64, 96, 8, 8},    {96, 64, 8, 8},
    {128, 32, 8, 4},   {64, 128, 8, 8},   {128, 64, 8, 8},   {64, 256, 8, 16},  {128, 128, 8, 8},
    {128, 128, 8, 16}, {128, 128, 16, 8}, {128, 256, 8, 16}, {128, 256, 16, 8},
};

static const int64_t MAX_PARTIALS = INT64_C(256) << 20;

static int64_t threads_of(const gk_config *config)
{
    const int32_t *v = config->values;
    return (int64_t)(v[BLOCK_M] / v[THREAD_M]) * (v[BLOCK_N] / v[THREAD_N]) * v[SLICE_K];
}

/* Registers of a thread: sums, two fragments of each operand, addresses; in f64 the compiler holds
 * more addresses beside them. */
static int64_t registers_of(const gk_problem *problem, const gk_config *config)
{
    const int64_t m = config->values[THREAD_M];
    const int64_t n = config->values[THREAD_N];
    const int64_t words = gki_matmul_acc_bytes(problem) / 4;
    return (m * n + 2 * (m + n)) * words + (words == 2 ? 72 : 56);
}

static bool is_shape(const int32_t *v)
{
    for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
        if (v[BLOCK_M] == shapes[i].block_m && v[BLOCK_N] == shapes[i].block_n &&
            v[THREAD_M] == shapes[i].thread_m && v[THREAD_N] == shapes[i].thread_n) {
            return true;
        }
    }
    return false;
}

/* The widest aligned copy, in bytes, that tiles operand `arg` of `rows` adjoining rows exactly. */
static int64_t copy_bytes(const gk_problem *problem, int arg, bool rows_adjoin, int64_t rows)
{
    const int64_t size = (int64_t)gk_dtype_size((gk_dtype)problem->dtype[arg]);
    int64_t bytes = problem->align[arg];
    while (rows_adjoin && bytes > size && rows % (bytes / size) != 0) {
        bytes /= 2;
    }
    return bytes;
}

static bool a_rows_adjoin(const gk_problem *problem)
{
    return problem->layout[MATMUL_A] == GK_LAYOUT_COL;
}

static bool b_rows_adjoin(const gk_problem *problem)
{
    return problem->layout[MATMUL_B] == GK_LAYOUT_ROW;
}

static int64_t a_copy_bytes(const gk_problem *problem)
{
    return copy_bytes(problem, MATMUL_A, a_rows_adjoin(problem), problem->dims[MATMUL_M]);
}

static int64_t b_copy_bytes(const gk_problem *problem)
{
    return copy_bytes(problem, MATMUL_B, b_rows_adjoin(problem), problem->dims[MATMUL_N]);
}

/* The kernel copies vectors as wide as *_ALIGN allows. Narrowed to what divides the rows, none
 * reaches past an operand's end. */
static void constants(const gk_problem *problem, gk_constants *out)
{
    gki_matmul_constants(problem, out);
    for (uint32_t i = 0; i < out->n_items; i++) {
        if (strcmp(out->items[i].name, "A_ALIGN") == 0) {
            out->items[i].value = a_copy_bytes(problem);
        } else if (strcmp(out->items[i].name, "B_ALIGN") == 0) {
            out->items[i].value = b_copy_bytes(problem);
        }
    }
}

static bool check(const gk_problem *problem, const gk_device_info *device, const gk_config *config,
                  gk_reason *reason)
{
    const int32_t *v = config->values;
    const int32_t depth = v[BLOCK_K] / v[SLICE_K];
    const int64_t k = problem->dims[MATMUL_K];
    if (!is_shape(v)) {
        return gk_refuse(reason, "the block tile does not go with the thread tile");
    }
    if (depth < 8) {
        return gk_refuse(reason, "a slice is %d of K deep, at least 8 are needed", (int)depth);
    }
    if (v[THREAD_M] * v[THREAD_N] * depth > 1024) {
        return gk_refuse(reason, "unrolls %d multiply-adds, at most 1024 compile in good time",
                         (int)(v[THREAD_M] * v[THREAD_N] * depth));
    }
    if (v[SLICE_K] > 1 && v[BLOCK_M] * v[BLOCK_N] > 64 * 96) {
        return gk_refuse(reason, "SLICE_K is for tiles of at most 64x96");
    }
    if (threads_of(config) > 512) {
        return gk_refuse(reason, "takes %d threads, at most 512 are worth having",
                         (int)threads_of(config));
    }
    const int64_t registers = registers_of(problem, config);
    const int64_t file = device->regs_per_block > 0 ? device->regs_per_block : 65536;
    if (registers > 255 || registers * threads_of(config) > file) {
        return gk_refuse(reason, "%d threads of %d registers, at most 255 and in all %d",
                         (int)threads_of(config), (int)registers, (int)file);
    }
    if (v[SPLIT_K] > 1 && (int64_t)(v[SPLIT_K] - 1) * v[BLOCK_K] >= k) {
        return gk_refuse(reason, "SPLIT_K is %d, K has only %lld tiles", (int)v[SPLIT_K],
                         (long long)gki_ceil_div(k, v[BLOCK_K]));
    }
    if (v[SPLIT_K] > 1) {
        gk_launch launch = {0};
        gki_matmul_grid(problem, v[BLOCK_M], v[BLOCK_N], v[SPLIT_K], &launch);
        if (launch.workspace > MAX_PARTIALS) {
            return gk_refuse(reason, "partial sums take %lld bytes, at most %lld are spent on them",
                             (long long)launch.workspace, (long long)MAX_PARTIALS);
        }
    }
    if (v[GROUP_M] > 1 && problem->dims[MATMUL_M] <= v[BLOCK_M]) {
        return gk_refuse(reason, "GROUP_M has no meaning for a single row of tiles");
    }
    return true;
}

/* Bytes of a stage: rows along which an operand is not contiguous are 16 bytes longer. */
static int64_t stages_bytes(const gk_problem *problem, const gk_config *config)
{
    const int32_t *v = config->values;
    const int64_t acc = gki_matmul_acc_bytes(problem);
    const int64_t a = v[BLOCK_M] * acc + (a_rows_adjoin(problem) ? 0 : 16);
    const int64_t b = v[BLOCK_N] * acc + (b_rows_adjoin(problem) ? 0 : 16);
    return v[STAGES] * v[BLOCK_K] * (a + b);
}

static void launch(const gk_problem *problem, const gk_device_info *device, const gk_config *config,
                   gk_launch *out)
{
    (void)device;
    const int32_t *v = config->values;
    gki_matmul_grid(problem, v[BLOCK_M], v[BLOCK_N], v[SPLIT_K], out);
    const int64_t stages = stages_bytes(problem, config);
    const int64_t exchange = v[SLICE_K] > 1 ? (int64_t)v[SLICE_K] * v[BLOCK_M] * v[BLOCK_N] *
                                                  gki_matmul_acc_bytes(problem)
                                            : 0;
    out->threads = (int32_t)threads_of(config);
    out->cluster = 0;
    out->overlap = 1;
    out->smem = stages > exchange ? stages : exchange;
}

/* Multiply-adds per multiprocessor and clock (CUDA C++ Programming Guide, arithmetic instructions).
 */
static double rate(const gk_problem *problem, const gk_device_info *device)
{
    switch ((gk_dtype)problem->dtype[MATMUL_A]) {
    case GK_F64:
        return device->cc == 80 ? 32 : device->cc == 90 || device->cc == 100 ? 64 : 2;
    case GK_I8:
    case GK_U8:
    case GK_I32:
        return 64;
    default:
        return device->cc == 80 ? 64 : 128;
    }
}

/* Copies that a thread block issues for one tile of an operand, `rows` by `depth`. */
static double copies(const gk_problem *problem, int64_t bytes, bool rows_adjoin, bool k_adjoins,
                     double rows, double depth)
{
    const double size = (double)gk_dtype_size((gk_dtype)problem->dtype[MATMUL_A]);
    const bool by_vector = rows_adjoin || (k_adjoins && size < 4);
    return rows * depth / (by_vector ? gki_at_least((double)bytes / size, 1) : 1);
}

static const double KERNEL_START = 1.06e-6; /* seconds, overlapping the kernel before */
static const double EARLY = 8e-8;           /* seconds, where the next one starts early */
/* Clocks: */
static const double EDGE_ELEMENT = 171;  /* tiles at C's edges store one by one */
static const double COPY = 2;            /* of a warp's copies of a tile of K */
static const double HELD_COPY = 14.6;    /* the same through registers */
static const double BARRIER = 60;        /* of a tile of K, shared by the resident blocks */
static const double HELD_TILE = 479;     /* the same where it passes through registers */
static const double READ_LATENCY = 1010; /* from a tile's reads to its use */
static const double STORE_BYTES = 7.6;   /* of C, a clock: many rows at once, a little of each */
static const double SPLIT_START = 1480;  /* partial sums and tickets */
static const double SPLIT_READ = 491;    /* partial sums of a split read back, several at a time */
static const double SPLIT_BYTES = 75.5;  /* of partial sums, a clock */

/* Clocks of one multiprocessor for one block, if other blocks share it evenly. */
static double block_clocks(const gk_problem *problem, const gk_device_info *device,
                           const gk_config *config, double resident)
{
    const int32_t *v = config->values;
    const double warps = (double)threads_of(config) / 32;
    const double words = (double)gki_matmul_acc_bytes(problem) / 4;
    const double tile = v[THREAD_M] * v[THREAD_N];
    /* One step of K of one warp: 32 lanes' multiply-adds, and fragments at 128 bytes a clock.
     * The weights are fitted to f32 on an H100. */
    const double multiply = tile * 32 / rate(problem, device);
    const double load = (v[THREAD_M] + v[THREAD_N]) * words;
    const double step = gki_at_least(1.1 * multiply + 0.12 * load, load);
    /* Few warps leave latencies open. */
    const double per_scheduler = gki_at_least(resident * warps / 4, 0.25);
    const double latency = 1 + 0.2 / (per_scheduler * per_scheduler);
    const double copy =
        (copies(problem, a_copy_bytes(problem), a_rows_adjoin(problem),
                problem->layout[MATMUL_A] == GK_LAYOUT_ROW, v[BLOCK_M], v[BLOCK_K]) +
         copies(problem, b_copy_bytes(problem), b_rows_adjoin(problem),
                problem->layout[MATMUL_B] == GK_LAYOUT_COL, v[BLOCK_N], v[BLOCK_K])) /
        32;
    const int32_t steps = v[BLOCK_K] / v[SLICE_K];
    /* Types below 4 bytes pass through registers: nothing but other blocks hides their reads. */
    const bool held = gk_dtype_size((gk_dtype)problem->dtype[MATMUL_A]) < 4;
    const double busy = steps * warps * step * latency + copy * (held ? HELD_COPY : COPY);
    const double tile_start = (held ? HELD_TILE : BARRIER) / gki_at_least(resident, 1);
    const double per_tile =
        gki_at_least(busy + tile_start, held ? READ_LATENCY / gki_at_least(resident, 1) : 0);
    const int64_t k_tiles = gki_ceil_div(problem->dims[MATMUL_K], v[BLOCK_K]);
    const double area = (double)v[BLOCK_M] * v[BLOCK_N];
    const double bytes = area * words * 4;
    const double c_bytes = area * (double)gk_dtype_size((gk_dtype)problem->dtype[MATMUL_C]);
    double epilogue = c_bytes / STORE_BYTES + (v[SLICE_K] > 1 ? bytes * v[SLICE_K] / 64 : 0);
    if (v[SPLIT_K] > 1) {
        /* Each block writes its sums; the last of a tile reads all of them. */
        epilogue += SPLIT_START / gki_at_least(resident, 1) + bytes / 32 + bytes / 32;
    }
    return (double)gki_ceil_div(k_tiles, v[SPLIT_K]) * per_tile + epilogue;
}

static double model(const gk_problem *problem, const gk_device_info *device,
                    const gk_config *config)
{
    const int32_t *v = config->values;
    gk_launch shape = {0};
    launch(problem, device, config, &shape);
    const double clock = gki_at_least(device->clock_khz, 1e6) * 1e3;
    const double sms = gki_at_least(device->sm_count, 1);
    const double registers = (double)registers_of(problem, config) * shape.threads;
    double fit = gki_at_least(device->regs_per_sm, 65536) / registers;
    const double by_smem =
        gki_at_least((double)device->smem_per_sm, 65536) / (double)(shape.smem + 1024);
    fit = fit < by_smem ? fit : by_smem;
    const double by_threads = gki_at_least(device->max_threads_per_sm, 1024) / shape.threads;
    fit = fit < by_threads ? fit : by_threads;
    fit = fit < 1 ? 1 : (double)(int64_t)fit;
    const double share =
        (double)gki_ceil_div(shape.grid, (int64_t)sms); /* blocks a multiprocessor */
    const double resident = share < fit ? share : fit;

    double clocks = share * block_clocks(problem, device, config, resident);
    /* Operands come from the L2 cache at about 32 bytes a clock and multiprocessor. */
    const double size = (double)gk_dtype_size((gk_dtype)problem->dtype[MATMUL_A]);
    const double k = (double)problem->dims[MATMUL_K];
    clocks = gki_at_least(clocks, share * (v[BLOCK_M] + v[BLOCK_N]) * (k / v[SPLIT_K]) * size / 32);
    if (v[SPLIT_K] > 1) {
        /* The last block of a tile reads everybody's sums, some splits at a time. */
        const double tile = (double)v[BLOCK_M] * v[BLOCK_N];
        const double own = gki_at_least(tile / shape.threads / 4, 1);
        clocks += v[SPLIT_K] * (SPLIT_READ / gki_at_least(16 / own, 1) +
                                tile * (double)gki_matmul_acc_bytes(problem) / SPLIT_BYTES);
    }
    if (problem->dims[MATMUL_M] % v[BLOCK_M] != 0 || problem->dims[MATMUL_N] % v[BLOCK_N] != 0) {
        clocks += EDGE_ELEMENT * v[THREAD_M] * v[THREAD_N];
    }
    const double bandwidth = gki_model_pins(device);
    const double m = (double)problem->dims[MATMUL_M];
    const double n = (double)problem->dims[MATMUL_N];
    const double bytes =
        (m * k + k * n) * size + m * n * (double)gk_dtype_size((gk_dtype)problem->dtype[MATMUL_C]);
    const double order = v[GROUP_M] > 1 ? 1 : 1.01; /* grouped tiles reread less */
    const bool early = v[SLICE_K] >= 4 || k <= (double)v[SPLIT_K] * v[BLOCK_K] * (v[STAGES] - 1);
    return gki_at_least(clocks / clock, bytes / bandwidth) * order + KERNEL_START -
           (early ? gki_model_early(device, shape.grid, EARLY) : 0);
}

const gk_variant gki_matmul_simt = {
    .struct_size = sizeof(gk_variant),
    .name = "simt",
    .source = "matmul_simt.cu",
    .params = params,
    .n_params = N_PARAMS,
    .min_cc = 80,
    .check = check,
    .constants = constants,
    .launch = launch,
    .model = model,
};
