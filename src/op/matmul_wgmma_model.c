/* How long the wgmma variant takes. The weights are fitted to 1900 measurements of bf16 on an H100
 * with overlapping launches, those of clusters and of tiles asked for ahead to 1100 of bf16, tf32
 * and e4m3, SM_BYTES and NEAR to 3071 of bf16 on an H200, SM_READS to 36, few_readers() to 440 with
 * few rows there. Clocks unless they say otherwise. */
#include "op/matmul_wgmma.h"
#include "op/model.h"

#include <math.h>

static const double CLOCK = 0.885;           /* under load, of the highest */
static const double SM_BYTES = 64;           /* from L2 into one SM's shared memory, a clock */
static const double NEAR = 0.1;              /* of what a neighbour asks for, too, saved */
static const double L2_BYTES = 7000;         /* from L2 into all */
static const double CUT_IN_L2 = 1.85;        /* times as many if rows begin inside cache lines */
static const double K_TILE = 4.59;           /* barriers of a tile of K */
static const double LONE_STEP = 4.7;         /* of K, that a lone warpgroup leaves uncovered */
static const double UNCOVERED = 0.371;       /* of the shorter of two things that overlap */
static const double CLUSTER_START = 504;     /* until all blocks of one are there */
static const double CLUSTER_TILE = 1.86;     /* of K, walked in step */
static const double TILE_START = 373;        /* of every tile that a block computes */
static const double STORE_BYTES = 30.2;      /* of C, a clock */
static const double SHIFTED_BYTES = 15.3;    /* of rows off 16-byte boundaries */
static const double SLAB = 134;              /* of 64 rows of columns that leave together, */
static const double SHIFTED_SLAB = 737;      /* and off such boundaries */
static const double TURNS = 1;               /* of stores that two warpgroups take turns with */
static const double SPLIT_START = 2540;      /* partial sums and tickets */
static const double SPLIT_BYTES = 15.1;      /* of partial sums, a clock */
static const double MEETING = 1310;          /* of the blocks that share K */
static const double EXCHANGE_BYTES = 13.5;   /* of sums, a clock */
static const double KERNEL_START = 1110;     /* first loads and last stores included */
static const double ODD_START = 780;         /* where tensor maps cannot take all operands or C */
static const double FIRST_LOAD = 0.542;      /* of the first tile of K, which nothing hides */
static const double NO_ROOM = 1190;          /* for the next kernel's blocks beside this one's */
static const double BANDWIDTH = 0.9;         /* of the memory's */
static const double UNCOVERED_READS = 0.139; /* of computing and reading device memory */
static const double L2_SHARE = 0.541;        /* of L2 that operands find free */
static const double LATENCY = 1.81e-6;       /* seconds of a read of busy device memory */
static const double SM_READS = 5.2e10;       /* bytes a second, of one SM from device memory */
static const double AHEAD_START = 1.74e-7;   /* seconds that tiles asked for ahead save, */
static const double AHEAD_READS = 0.384;     /* and of their time in device memory, */
static const double AHEAD_MOST = 1.73e-6;    /* of at most so much */
static const double AHEAD_BYTES = 1 << 20;   /* as in the template */

/* Do rows of the operand begin inside cache lines? Densely packed rows are assumed: the problem
 * does not say how far apart they are. */
static bool is_cut(const gk_problem *problem, int arg, gki_wgmma_form form)
{
    const bool along_k = problem->layout[arg] == (arg == MATMUL_A ? GK_LAYOUT_ROW : GK_LAYOUT_COL);
    const int64_t row = problem->dims[along_k ? MATMUL_K : arg == MATMUL_A ? MATMUL_M : MATMUL_N];
    const int64_t bytes = row * (int64_t)gk_dtype_size((gk_dtype)problem->dtype[arg]);
    return form == WGMMA_AS_IT_IS && bytes % 128 != 0;
}

/* Bytes that a block asks L2 for, of a tile of K, those of cut rows at what they cost. */
static double asked_bytes(const gk_problem *problem, const gki_wgmma_shape *s, bool swap)
{
    const double a = is_cut(problem, MATMUL_A, s->a_form) ? CUT_IN_L2 : 1;
    const double b = is_cut(problem, MATMUL_B, s->b_form) ? CUT_IN_L2 : 1;
    return (double)s->x_bytes / (double)s->cluster_y * (swap ? b : a) +
           (double)s->y_bytes / (double)s->cluster_x * (swap ? a : b);
}

/* Clocks of one tile of K in one block. */
static double k_tile_clocks(const gk_config *config, const gki_wgmma_shape *s)
{
    const int32_t *v = config->values;
    const double steps = (double)v[WGMMA_BLOCK_K] * (double)s->element / 32;
    const double y = (double)s->tile_y;
    /* A product of 64 rows, or its reads of shared memory. */
    const double product = gki_at_least(y / 2, (2048 + 32 * y) / 128);
    double multiply = (double)s->tile_x / 64 * steps * product;
    /* Neighbours have the same rows of A, or, one below the other, the same columns of B. */
    const bool below = v[WGMMA_GROUP_M] > 1 || s->cols == 1;
    const bool near_x = below == (v[WGMMA_SWAP] != 0);
    const bool alone = s->cluster > 1 || s->rows * s->cols == 1;
    const double near = alone ? 0 : (double)(near_x ? s->x_bytes : s->y_bytes);
    const double load = ((double)(s->x_bytes + s->y_bytes) - NEAR * near) / SM_BYTES;
    if (v[WGMMA_CONSUMERS] == 1) {
        multiply += LONE_STEP * steps;
    }
    const double longer = gki_at_least(multiply, load);
    return longer + UNCOVERED * (multiply + load - longer) + K_TILE +
           (s->team > 1 ? CLUSTER_TILE : 0);
}

/* Bytes from device memory: each operand once if both stay in L2, else what each wave of blocks
 * touches. */
static double memory_bytes(const gk_problem *problem, const gk_device_info *device,
                           const gk_config *config, const gki_wgmma_shape *s, double units,
                           double seats)
{
    const int32_t *v = config->values;
    const double m = (double)problem->dims[MATMUL_M];
    const double n = (double)problem->dims[MATMUL_N];
    const double row = (double)problem->dims[MATMUL_K] * (double)s->element;
    const double c = m * n * (double)gk_dtype_size((gk_dtype)problem->dtype[MATMUL_C]);
    const double once = (m + n) * row;
    if (once < L2_SHARE * (double)device->l2_bytes) {
        return once + c;
    }
    const int32_t clusters = v[WGMMA_GROUP_M] / v[WGMMA_CLUSTER_M];
    const double group = clusters;
    const double rows = group < 1 ? 1 : group < (double)s->rows ? group : (double)s->rows;
    const double width = gki_at_least((units < seats ? units : seats) / rows, 1);
    const double cols = width < (double)s->cols ? width : (double)s->cols;
    const double wave = (rows * v[WGMMA_BLOCK_M] * v[WGMMA_CLUSTER_M] +
                         cols * v[WGMMA_BLOCK_N] * v[WGMMA_CLUSTER_N]) *
                        row;
    return gki_at_least(once, gki_at_least(units / seats, 1) * wave) + c;
}

/* Seconds that OVERLAP saves, or costs where rows begin inside cache lines, of a kernel whose units
 * read `step` bytes a tile of K and in all `all` bytes. */
static double overlap_seconds(const gk_config *config, const gki_wgmma_shape *s, bool cut,
                              double step, double all, double bandwidth)
{
    const int32_t *v = config->values;
    if (v[WGMMA_OVERLAP] == 0) {
        return 0;
    }
    if (cut) {
        return -AHEAD_START;
    }
    const int ahead = v[WGMMA_OVERLAP] == 1 && v[WGMMA_BLOCK_K] > s->span ? 2 : 4;
    const double bytes = gki_at_least(ahead * step, AHEAD_BYTES);
    const double seconds = (bytes < all ? bytes : all) / bandwidth;
    return AHEAD_START + AHEAD_READS * (seconds < AHEAD_MOST ? seconds : AHEAD_MOST);
}

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* Pieces in which a tile of C leaves, 64 rows and some columns each. */
static double slabs_of(const gki_wgmma_shape *s)
{
    const int64_t across = s->out_y / larger(s->slab_y, 1);
    return (double)across * (double)s->tile_x / 64;
}

/* Clocks in which a block stores its `share` of tiles of C, `blocks` being busy. */
static double store_clocks(const gk_problem *problem, const gk_config *config,
                           const gki_wgmma_shape *s, double share, double blocks)
{
    const int32_t *v = config->values;
    const double c_size = (double)gk_dtype_size((gk_dtype)problem->dtype[MATMUL_C]);
    const double area = (double)v[WGMMA_BLOCK_M] * v[WGMMA_BLOCK_N] / v[WGMMA_CLUSTER_K];
    if (!s->shifted) {
        return share * (area * c_size / STORE_BYTES + SLAB * slabs_of(s) + TILE_START);
    }
    /* Stored by element: what the matrix does not have takes no time. */
    const double all = (double)problem->dims[MATMUL_M] * (double)problem->dims[MATMUL_N];
    const double team = (double)s->team;
    const double tiles = gki_at_least((double)(s->rows * s->cols), 1) * team;
    const double even = all / (blocks * team * v[WGMMA_SPLIT_K]);
    const double most = share * all / tiles / v[WGMMA_CLUSTER_K];
    return (even < most ? even : most) * c_size / SHIFTED_BYTES + share * TILE_START;
}

/* How much longer few blocks read: of what multiprocessors without one do not ask for, the others
 * ask for a part, blocks of clusters for nearly all. */
static double few_readers(const gk_device_info *device, const gki_wgmma_shape *s, int64_t units)
{
    if (s->cluster > 1 || units >= device->sm_count) {
        return 1;
    }
    return sqrt((double)device->sm_count / (double)larger(units, 1));
}

double gki_wgmma_model(const gk_problem *problem, const gk_device_info *device,
                       const gk_config *config)
{
    const int32_t *v = config->values;
    const gki_wgmma_shape s = gki_wgmma_shape_of(problem, config);
    const double area = (double)v[WGMMA_BLOCK_M] * v[WGMMA_BLOCK_N];
    const int64_t units = s.rows * s.cols * v[WGMMA_SPLIT_K];
    const int64_t seats = gki_model_seats(device, s.cluster);
    const double share = (double)larger(gki_ceil_div(units, seats), 1); /* units of a block */
    const double parts = v[WGMMA_CLUSTER_K];
    const int64_t k_tiles = gki_ceil_div(gki_ceil_div(problem->dims[MATMUL_K], v[WGMMA_BLOCK_K]),
                                         (int64_t)v[WGMMA_SPLIT_K] * v[WGMMA_CLUSTER_K]);

    double clocks = share * (double)k_tiles * k_tile_clocks(config, &s);
    const double store =
        store_clocks(problem, config, &s, share, (double)larger(units < seats ? units : seats, 1));
    if (v[WGMMA_PINGPONG]) {
        /* The longer of the two, and the first tile's products or the last one's stores. */
        clocks =
            gki_at_least(clocks + store / share, (s.shifted ? 1 : TURNS) * store + clocks / share);
    } else {
        clocks += store;
    }
    /* Before the first load, or after the last. */
    double ends = KERNEL_START + FIRST_LOAD * (double)(s.x_bytes + s.y_bytes) / SM_BYTES;
    ends += s.team > 1 ? CLUSTER_START : 0;
    ends += s.shifted ? SHIFTED_SLAB * slabs_of(&s) * share : 0;
    ends += s.shifted || gki_wgmma_prepares(&s) ? ODD_START : 0;
    ends += 2 * units > seats && v[WGMMA_OVERLAP] < 2 ? NO_ROOM : 0;
    if (v[WGMMA_SPLIT_K] > 1) {
        ends += SPLIT_START + v[WGMMA_SPLIT_K] * area / parts * 4 / SPLIT_BYTES;
    }
    if (parts > 1) {
        ends += MEETING + area * 4 / EXCHANGE_BYTES * (parts - 1) / parts;
    }
    const double asked =
        (double)units * (double)s.cluster * asked_bytes(problem, &s, v[WGMMA_SWAP] != 0);
    const double from_l2 = asked * (double)k_tiles;
    clocks = gki_at_least(clocks, from_l2 / L2_BYTES);

    const double clock = CLOCK * gki_at_least(device->clock_khz, 1e6) * 1e3;
    const double bandwidth = BANDWIDTH * gki_model_pins(device);
    const double computing = clocks / clock;
    const double read = memory_bytes(problem, device, config, &s, (double)units, (double)seats);
    double memory = read / bandwidth * few_readers(device, &s, units);
    const bool cut = is_cut(problem, MATMUL_A, s.a_form) || is_cut(problem, MATMUL_B, s.b_form);
    const double times = gki_at_least(from_l2 / read, 1);
    if (v[WGMMA_OVERLAP] == 2) {
        /* Little is under way, half of shared memory's worth, and where two blocks of a kernel come
         * to one multiprocessor, others have none. */
        const double under_way = asked * (double)s.stages / times;
        const double half = gki_at_least(device->sm_count, 2) / 2 * SM_READS;
        memory = gki_at_least(memory, gki_at_least(LATENCY * read / under_way, read / half));
    }
    const double longer = gki_at_least(computing, memory);
    return longer + UNCOVERED_READS * (computing + memory - longer) + ends / clock -
           overlap_seconds(config, &s, cut, asked / times, read, bandwidth) +
           gki_wgmma_prepare_seconds(problem, bandwidth, v[WGMMA_SWAP] != 0);
}
