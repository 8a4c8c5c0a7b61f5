/* The matmul variant on Hopper's warpgroup instructions and tensor memory accelerator: f16, bf16,
 * e4m3, e5m2, and f32 rounded to tf32. Operands that tensor maps cannot describe are copied first.
 */
#include "op/matmul_wgmma.h"

#include <gk/base.h>
#include <gk/matmul_tma_args.h>
#include <gk/ops.h>

#include "op/matmul_parts.h"
#include "op/model.h"

static const int32_t block_m_values[] = {8, 16, 32, 64, 72, 80, 128, 144, 192, 256};
static const int32_t block_n_values[] = {32, 64, 96, 112, 128, 160, 192, 224, 256};
static const int32_t block_k_values[] = {32, 64, 128, 256};
static const int32_t consumers_values[] = {1, 2, 3};
static const int32_t pingpong_values[] = {0, 1};
static const int32_t cluster_values[] = {1, 2, 4};
static const int32_t cluster_k_values[] = {1, 2, 4, 8};
static const int32_t swap_values[] = {0, 1};
static const int32_t overlap_values[] = {0, 1, 2};
static const int32_t split_k_values[] = {1, 2, 3, 4, 6, 8, 12, 16, 32};
static const int32_t group_m_values[] = {1, 8, 16};

#define VALUES(list) list, sizeof(list) / sizeof((list)[0])

static const gk_param params[WGMMA_N_PARAMS] = {
    [WGMMA_BLOCK_M] = {"BLOCK_M", "", VALUES(block_m_values), 0},
    [WGMMA_BLOCK_N] = {"BLOCK_N", "x", VALUES(block_n_values), 0},
    [WGMMA_BLOCK_K] = {"BLOCK_K", "x", VALUES(block_k_values), 0},
    [WGMMA_CONSUMERS] = {"CONSUMERS", "_w", VALUES(consumers_values), 0},
    [WGMMA_PINGPONG] = {"PINGPONG", "_p", VALUES(pingpong_values), 0},
    [WGMMA_CLUSTER_M] = {"CLUSTER_M", "_c", VALUES(cluster_values), 0},
    [WGMMA_CLUSTER_N] = {"CLUSTER_N", "x", VALUES(cluster_values), 0},
    [WGMMA_CLUSTER_K] = {"CLUSTER_K", "x", VALUES(cluster_k_values), 0},
    [WGMMA_SWAP] = {"SWAP", "_t", VALUES(swap_values), 0},
    [WGMMA_OVERLAP] = {"OVERLAP", "_o", VALUES(overlap_values), 0},
    [WGMMA_SPLIT_K] = {"SPLIT_K", "", VALUES(split_k_values), 1},
    [WGMMA_GROUP_M] = {"GROUP_M", "", VALUES(group_m_values), 1},
};

static const int64_t MAX_PARTIALS = INT64_C(256) << 20;
/* As in the template: a block's of every chip of 9.0, and one's of two blocks. */
static const int64_t SHARED_BYTES = 227 << 10;
static const int64_t HALF_SHARED_BYTES = 113 << 10;
static const int64_t MAX_STAGES = 12;
static const int64_t MAX_EXTENT = INT32_MAX - (1 << 17); /* coordinates are ints */

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* --- the problem --- */

/* TMA cuts the rows that it stores at multiples of 16 bytes only. */
static bool c_suits_tma(const gk_problem *problem)
{
    const int64_t size = (int64_t)gk_dtype_size((gk_dtype)problem->dtype[MATMUL_C]);
    const int64_t inner = problem->layout[MATMUL_C] == GK_LAYOUT_ROW ? problem->dims[MATMUL_N]
                                                                     : problem->dims[MATMUL_M];
    return problem->layout[MATMUL_C] != GK_LAYOUT_STRIDED && problem->align[MATMUL_C] == 16 &&
           (size == 2 || size == 4) && inner * size % 16 == 0;
}

static bool stores_by_tma(const gk_problem *problem)
{
    return c_suits_tma(problem) && problem->attrs[MATMUL_ACTIVATION] <= GK_ACT_RELU &&
           problem->attrs[MATMUL_BETA] == 0 && problem->dtype[MATMUL_RESIDUAL] == 0;
}

/* The template's STORE_SHIFTED. */
static bool stores_shifted(const gk_problem *problem)
{
    const uint64_t size = gk_dtype_size((gk_dtype)problem->dtype[MATMUL_C]);
    return !stores_by_tma(problem) && problem->layout[MATMUL_C] != GK_LAYOUT_STRIDED &&
           (size == 2 || size == 4) && problem->attrs[MATMUL_ACTIVATION] <= GK_ACT_RELU &&
           problem->attrs[MATMUL_BETA] == 0 && problem->dtype[MATMUL_RESIDUAL] == 0;
}

static void constants(const gk_problem *problem, gk_constants *out)
{
    gki_matmul_constants(problem, out);
    gki_matmul_constant(out, "PROMOTES", GK_CONSTANT_BOOL, gki_matmul_promotes(problem));
    gki_matmul_constant(out, "C_BY_TMA", GK_CONSTANT_BOOL, c_suits_tma(problem));
}

static bool has_wgmma(const gk_problem *problem)
{
    switch ((gk_dtype)problem->dtype[MATMUL_A]) {
    case GK_F16:
    case GK_BF16:
    case GK_E4M3:
    case GK_E5M2:
        return true;
    case GK_F32:
        return problem->attrs[MATMUL_MATH] == GK_MATH_TF32;
    default:
        return false;
    }
}

static bool check_operand(const gk_problem *problem, int arg, gk_reason *reason)
{
    const char *name = arg == MATMUL_A ? "a" : "b";
    if (problem->layout[arg] == GK_LAYOUT_STRIDED) {
        return gk_refuse(reason, "%s has no contiguous axis", name);
    }
    return true;
}

static bool check_problem(const gk_problem *problem, gk_reason *reason)
{
    const uint8_t a = problem->dtype[MATMUL_A];
    if (!has_wgmma(problem) || problem->dtype[MATMUL_B] != a) {
        return gk_refuse(reason, "no warpgroup product of %s and %s", gk_dtype_name((gk_dtype)a),
                         gk_dtype_name((gk_dtype)problem->dtype[MATMUL_B]));
    }
    if (problem->dtype[MATMUL_C] == GK_F64) {
        return gk_refuse(reason, "c is f64, sums are kept in f32");
    }
    for (int i = 0; i < MATMUL_N_DIMS; i++) {
        if (problem->dims[i] > MAX_EXTENT) {
            return gk_refuse(reason, "a size of %lld is above %lld", (long long)problem->dims[i],
                             (long long)MAX_EXTENT);
        }
    }
    return check_operand(problem, MATMUL_A, reason) && check_operand(problem, MATMUL_B, reason);
}

/* --- the configuration --- */

static void set_operand(bool k_major, int64_t extent, int64_t share, const gki_wgmma_shape *s,
                        int64_t block_k, int64_t *bytes, int64_t *box_rows)
{
    const int64_t rows = k_major ? extent : block_k;
    const int64_t slabs = k_major ? block_k / s->span : gki_ceil_div(extent, s->span);
    *bytes = slabs * rows * 128;
    *box_rows = rows < 8 * share ? 0 : rows % (8 * share) == 0 ? rows / share : 8;
}

/* The way out of one warpgroup's sums, as the template lays it out. */
static void set_way_out(const gk_problem *problem, gki_wgmma_shape *s)
{
    const int64_t size = (int64_t)gk_dtype_size((gk_dtype)problem->dtype[MATMUL_C]);
    s->slab_y = smaller(s->out_y & -s->out_y, s->by_tma ? 128 / size : 32);
    if (s->shifted || (s->by_tma && !s->y_contiguous)) {
        s->slab_y = larger(smaller(s->out_y, (s->shifted ? 256 : 128) / size) / 8 * 8, 8);
        while (s->slab_y > 8 && s->out_y % s->slab_y != 0) {
            s->slab_y -= 8;
        }
    }
    if (s->by_tma) {
        const int64_t slab_bytes = 64 * s->slab_y * size;
        const int64_t buffers =
            smaller(s->pieces * (s->out_y / s->slab_y), (16 << 10) / slab_bytes);
        s->out_bytes = larger(buffers, 2) * slab_bytes;
    } else {
        const int64_t staged = s->y_contiguous ? s->slab_y * 4 + 32 : 64 * 4 + 16;
        const int64_t pitch = s->shifted ? (s->y_contiguous ? s->slab_y : 64) * size + 16 : staged;
        s->out_bytes = gki_ceil_div((s->y_contiguous ? 64 : s->slab_y) * pitch, 1024) * 1024;
    }
}

gki_wgmma_shape gki_wgmma_shape_of(const gk_problem *problem, const gk_config *config)
{
    const int32_t *v = config->values;
    const bool swap = v[WGMMA_SWAP] != 0;
    gki_wgmma_shape s = {0};
    s.a_form = gki_wgmma_form_of(problem, MATMUL_A, swap);
    s.b_form = gki_wgmma_form_of(problem, MATMUL_B, swap);
    const bool a_k_major =
        (problem->layout[MATMUL_A] == GK_LAYOUT_ROW) != (s.a_form == WGMMA_TRANSPOSED);
    const bool b_k_major =
        (problem->layout[MATMUL_B] == GK_LAYOUT_COL) != (s.b_form == WGMMA_TRANSPOSED);
    s.element = (int64_t)gk_dtype_size((gk_dtype)problem->dtype[MATMUL_A]);
    s.span = 128 / s.element;
    s.tile_x = v[swap ? WGMMA_BLOCK_N : WGMMA_BLOCK_M];
    s.tile_y = v[swap ? WGMMA_BLOCK_M : WGMMA_BLOCK_N];
    s.cluster_x = v[swap ? WGMMA_CLUSTER_N : WGMMA_CLUSTER_M];
    s.cluster_y = v[swap ? WGMMA_CLUSTER_M : WGMMA_CLUSTER_N];
    s.team = s.cluster_x * s.cluster_y;
    s.cluster = s.team * v[WGMMA_CLUSTER_K];
    s.out_y = s.tile_y / v[WGMMA_CLUSTER_K];
    s.sharers = v[WGMMA_PINGPONG] ? 1 : v[WGMMA_CONSUMERS];
    s.pieces = s.tile_x / 64 / s.sharers;
    s.x_k_major = swap ? b_k_major : a_k_major;
    s.y_k_major = swap ? a_k_major : b_k_major;
    set_operand(s.x_k_major, s.tile_x, s.cluster_y, &s, v[WGMMA_BLOCK_K], &s.x_bytes,
                &s.x_box_rows);
    set_operand(s.y_k_major, s.tile_y, s.cluster_x, &s, v[WGMMA_BLOCK_K], &s.y_bytes,
                &s.y_box_rows);
    s.by_tma = stores_by_tma(problem);
    s.shifted = stores_shifted(problem);
    s.y_contiguous = (problem->layout[MATMUL_C] == GK_LAYOUT_ROW) != swap;
    set_way_out(problem, &s);
    const int64_t fixed = v[WGMMA_CONSUMERS] * s.out_bytes + 64;
    const int64_t stage = s.x_bytes + s.y_bytes + 16;
    const int64_t shared = v[WGMMA_OVERLAP] == 2 ? HALF_SHARED_BYTES : SHARED_BYTES;
    s.stages = smaller((shared - fixed) / stage, MAX_STAGES);
    s.smem = s.stages * stage + fixed;
    s.rows = gki_ceil_div(problem->dims[MATMUL_M], (int64_t)v[WGMMA_BLOCK_M] * v[WGMMA_CLUSTER_M]);
    s.cols = gki_ceil_div(problem->dims[MATMUL_N], (int64_t)v[WGMMA_BLOCK_N] * v[WGMMA_CLUSTER_N]);
    return s;
}

/* What needs no knowledge of the tile. */
static bool check_values(const gk_problem *problem, const int32_t *v, gk_reason *reason)
{
    const int32_t element = (int32_t)gk_dtype_size((gk_dtype)problem->dtype[MATMUL_A]);
    const int32_t team = v[WGMMA_CLUSTER_M] * v[WGMMA_CLUSTER_N];
    const int32_t x = v[v[WGMMA_SWAP] ? WGMMA_BLOCK_N : WGMMA_BLOCK_M];
    const int32_t y = v[v[WGMMA_SWAP] ? WGMMA_BLOCK_M : WGMMA_BLOCK_N];
    if (v[WGMMA_BLOCK_K] * element != 128 && v[WGMMA_BLOCK_K] * element != 256) {
        return gk_refuse(reason, "BLOCK_K must be 128 or 256 bytes");
    }
    if (v[WGMMA_OVERLAP] == 2 && (v[WGMMA_CONSUMERS] > 1 || team > 2)) {
        return gk_refuse(reason, "half a multiprocessor is for one warpgroup");
    }
    if (gki_matmul_promotes(problem) && v[WGMMA_BLOCK_K] != 128) {
        return gk_refuse(reason, "sums are promoted every 128 of K");
    }
    if (v[WGMMA_PINGPONG] && (v[WGMMA_CONSUMERS] != 2 || v[WGMMA_CLUSTER_K] > 1)) {
        return gk_refuse(reason, "PINGPONG takes two warpgroups, which have several tiles");
    }
    if (team > 8 || (team > 1 && v[WGMMA_CLUSTER_K] > 1)) {
        return gk_refuse(reason, "8 blocks of a cluster share operands, or they share K");
    }
    if (team > 2 && (v[WGMMA_PINGPONG] || v[WGMMA_SPLIT_K] > 1)) {
        return gk_refuse(reason, "blocks of larger clusters have one whole tile");
    }
    if (problem->dims[MATMUL_M] <= (v[WGMMA_CLUSTER_M] - 1) * v[WGMMA_BLOCK_M] ||
        problem->dims[MATMUL_N] <= (v[WGMMA_CLUSTER_N] - 1) * v[WGMMA_BLOCK_N]) {
        return gk_refuse(reason, "a cluster would compute beside C");
    }
    if (x % (v[WGMMA_PINGPONG] ? 64 : 64 * v[WGMMA_CONSUMERS]) != 0) {
        return gk_refuse(reason, "the tile's rows are not shared by the warpgroups, 64 a piece");
    }
    if (v[WGMMA_SWAP] && element != 4 && team <= 2 && (problem->dims[MATMUL_M] > 256 || y > 128)) {
        return gk_refuse(reason, "SWAP is for few rows, or in large clusters");
    }
    return true;
}

/* Tensor cores take f32 from shared memory along K only. */
static bool from_registers(const gki_wgmma_shape *s)
{
    return s->element == 4 && !s->x_k_major;
}

/* Sums that a thread can hold beside what its way out needs, without a spill. */
static int64_t room_for_sums(const gk_problem *problem, const int32_t *v, const gki_wgmma_shape *s)
{
    const bool shares_k = v[WGMMA_CLUSTER_K] > 1;
    const bool registers = from_registers(s);
    if (v[WGMMA_OVERLAP] == 2) {
        return registers ? (s->cluster > 1 ? 0 : 48) : shares_k ? 48 : 64;
    }
    if (v[WGMMA_CONSUMERS] == 3) {
        return registers                   ? (shares_k ? 0 : 32)
               : shares_k                  ? 64
               : s->shifted && s->team > 1 ? 72
                                           : 112;
    }
    if (registers && shares_k) {
        return 96;
    }
    if (problem->dtype[MATMUL_BIAS] != 0 || (!s->by_tma && !s->shifted) || shares_k) {
        return 128;
    }
    return s->by_tma && gk_dtype_size((gk_dtype)problem->dtype[MATMUL_C]) == 2 ? 192 : 160;
}

static bool check_roles(const gk_problem *problem, const int32_t *v, const gki_wgmma_shape *s,
                        gk_reason *reason)
{
    const int64_t sums = s->pieces * s->tile_y / 2 * (gki_matmul_promotes(problem) ? 2 : 1);
    const int64_t room = room_for_sums(problem, v, s);
    if (sums > room) {
        return gk_refuse(reason, "%d sums a thread, there is room for %d", (int)sums, (int)room);
    }
    if (v[WGMMA_CLUSTER_K] > 1 &&
        (s->out_y * v[WGMMA_CLUSTER_K] != s->tile_y || s->out_y % 8 != 0 ||
         s->tile_x * s->tile_y * (int64_t)sizeof(float) > s->stages * (s->x_bytes + s->y_bytes))) {
        return gk_refuse(reason, "%d blocks cannot share %d columns, 8 at least",
                         (int)v[WGMMA_CLUSTER_K], (int)s->tile_y);
    }
    return true;
}

static bool check_tile(const int32_t *v, const gki_wgmma_shape *s, gk_reason *reason)
{
    if (from_registers(s) && (v[WGMMA_BLOCK_K] != s->span || s->pieces != 1)) {
        return gk_refuse(reason, "registers hold 64 rows by %d of K for a warpgroup", (int)s->span);
    }
    if (v[WGMMA_SWAP] && s->element == 4 && !from_registers(s) && s->tile_y > 128) {
        return gk_refuse(reason, "SWAP is for few rows");
    }
    if (s->x_box_rows == 0 || s->y_box_rows == 0) {
        return gk_refuse(reason, "a block's share of a tile is below 8 rows");
    }
    return true;
}

/* With fewer bytes under way the products wait. */
static bool check_stages(const int32_t *v, const gki_wgmma_shape *s, gk_reason *reason)
{
    const int64_t wanted = v[WGMMA_BLOCK_K] > s->span ? 3 : 4;
    if (s->stages < wanted) {
        return gk_refuse(reason, "shared memory holds %d stages, %d are needed", (int)s->stages,
                         (int)wanted);
    }
    return true;
}

/* Prepared operands follow: the template's prepare() computes the same. */
static int64_t partial_bytes(const gki_wgmma_shape *s, const int32_t *v)
{
    const int64_t tile = (int64_t)v[WGMMA_BLOCK_M] * v[WGMMA_BLOCK_N] * (int64_t)sizeof(float);
    return v[WGMMA_SPLIT_K] > 1 ? v[WGMMA_SPLIT_K] * s->rows * s->cols * s->team * tile : 0;
}

static bool check_launch(const gk_problem *problem, const gk_device_info *device, const int32_t *v,
                         const gki_wgmma_shape *s, gk_reason *reason)
{
    const int64_t k_tiles = gki_ceil_div(problem->dims[MATMUL_K], v[WGMMA_BLOCK_K]);
    const int64_t tiles = s->rows * s->cols * s->cluster;
    if (tiles > INT32_MAX / 64) {
        return gk_refuse(reason, "%lld tiles are too many to count", (long long)tiles);
    }
    const int64_t parts = (int64_t)v[WGMMA_SPLIT_K] * v[WGMMA_CLUSTER_K];
    if (parts > 1 && parts > k_tiles) {
        return gk_refuse(reason, "K is shared by %lld, it has only %lld tiles", (long long)parts,
                         (long long)k_tiles);
    }
    const int64_t seats = gki_model_seats(device, s->cluster);
    const int64_t clusters = s->rows * s->cols * v[WGMMA_SPLIT_K];
    if (v[WGMMA_CLUSTER_K] > 1 && clusters > seats &&
        (!device->is_emulated || gki_wgmma_prepares(s))) {
        return gk_refuse(reason, "%lld clusters share K, %lld run at once", (long long)clusters,
                         (long long)seats);
    }
    if (s->team > 2 && ((clusters > seats && !device->is_emulated) || gki_wgmma_prepares(s))) {
        return gk_refuse(reason, "%lld clusters of %d, %lld run at once", (long long)clusters,
                         (int)s->cluster, (long long)seats);
    }
    if (v[WGMMA_OVERLAP] > 0 && gki_wgmma_prepares(s)) {
        return gk_refuse(reason, "OVERLAP is for operands as they are");
    }
    /* Where a block has several tiles it shows for 8-bit operands, which then need no choice. */
    const int32_t several = s->element == 1 && !gki_wgmma_prepares(s) ? 1 : 0;
    if (clusters > seats && v[WGMMA_OVERLAP] != several && !device->is_emulated) {
        return gk_refuse(reason, "OVERLAP has one value where a block has several tiles");
    }
    if (v[WGMMA_PINGPONG] && s->rows * s->cols <= seats) {
        return gk_refuse(reason, "PINGPONG is for several tiles a block");
    }
    if (v[WGMMA_SPLIT_K] > 1) {
        if (tiles > device->sm_count) {
            return gk_refuse(reason, "SPLIT_K is %d although there are %lld tiles for %d SMs",
                             (int)v[WGMMA_SPLIT_K], (long long)tiles, (int)device->sm_count);
        }
        const int64_t bytes = partial_bytes(s, v);
        if (bytes > MAX_PARTIALS) {
            return gk_refuse(reason, "partial sums take %lld bytes, at most %lld are spent on them",
                             (long long)bytes, (long long)MAX_PARTIALS);
        }
    }
    const int64_t rows = s->rows * v[WGMMA_CLUSTER_M];
    if (v[WGMMA_GROUP_M] > 1 && (v[WGMMA_GROUP_M] >= 2 * rows || tiles <= device->sm_count)) {
        return gk_refuse(reason, "GROUP_M is %d, which changes nothing for %lld rows of tiles",
                         (int)v[WGMMA_GROUP_M], (long long)rows);
    }
    return true;
}

static bool check(const gk_problem *problem, const gk_device_info *device, const gk_config *config,
                  gk_reason *reason)
{
    const int32_t *v = config->values;
    if (device->cc != 90) {
        return gk_refuse(reason, "wgmma is an instruction of compute capability 9.0 alone");
    }
    if (!check_problem(problem, reason) || !check_values(problem, v, reason)) {
        return false;
    }
    const gki_wgmma_shape s = gki_wgmma_shape_of(problem, config);
    return gki_wgmma_check_prepared(problem, v[WGMMA_SWAP] != 0, reason) &&
           check_roles(problem, v, &s, reason) && check_tile(v, &s, reason) &&
           check_stages(v, &s, reason) && check_launch(problem, device, v, &s, reason);
}

/* --- the launch --- */

static const int64_t FIRST_TICKET = 128; /* bytes before the tickets, as in the template */

static void launch(const gk_problem *problem, const gk_device_info *device, const gk_config *config,
                   gk_launch *out)
{
    const int32_t *v = config->values;
    const gki_wgmma_shape s = gki_wgmma_shape_of(problem, config);
    const int64_t units = s.rows * s.cols * v[WGMMA_SPLIT_K];
    const int64_t tiles = s.rows * s.cols * s.cluster;
    const int64_t seats = gki_model_seats(device, s.cluster);
    out->grid = (gki_wgmma_prepares(&s) ? seats : smaller(units, seats)) * s.cluster;
    if (v[WGMMA_CLUSTER_K] > 1) {
        out->grid = units * s.cluster; /* blocks that share K have one tile each */
    }
    out->threads = 128 * (v[WGMMA_CONSUMERS] + 1);
    out->cluster = (int32_t)s.cluster;
    out->overlap = 1;
    out->smem = s.smem;
    out->workspace = partial_bytes(&s, v);
    out->zeroed = 0;
    if (v[WGMMA_SPLIT_K] > 1) {
        out->zeroed = tiles * s.sharers * (int64_t)sizeof(unsigned long long);
    }
    if (gki_wgmma_prepares(&s)) {
        const bool swap = v[WGMMA_SWAP] != 0;
        out->cooperative = 1;
        out->workspace += gki_wgmma_prepared_bytes(problem, MATMUL_A, swap) +
                          gki_wgmma_prepared_bytes(problem, MATMUL_B, swap);
        out->zeroed += FIRST_TICKET;
    }
}

void gki_wgmma_describe(const gk_tensor *t, const gk_tensor *c, uint8_t layout, gk_map_desc *out)
{
    const int inner = layout == GK_LAYOUT_COL ? 0 : 1;
    const int64_t size = (int64_t)gk_dtype_size((gk_dtype)t->dtype);
    const bool empty = t->shape[0] == 0 || t->shape[1] == 0 || t->data == NULL;
    out->data = empty ? (unsigned char *)c->data - (uintptr_t)c->data % 16 : t->data;
    out->dtype = t->dtype;
    out->rank = 2;
    out->dims[0] = larger(t->shape[inner], 1);
    out->dims[1] = larger(t->shape[1 - inner], 1);
    /* The stride of an axis of one element may be anything. */
    out->strides[1] = t->shape[1 - inner] > 1 && !empty
                          ? t->stride[1 - inner] * size
                          : gki_ceil_div(out->dims[0] * size, 16) * 16;
    out->swizzle = 128;
}

uint32_t gki_wgmma_promotion(const gk_map_desc *desc, bool wide)
{
    return wide && desc->strides[1] % 128 == 0 ? 256 : 128;
}

/* Whatever the device: what lies beside a tile is the next one's, which helps if few are under
 * way. */
static const int64_t FEW_STAGES = 4;

/* An operand as the kernel loads it: as it is, or as prepared in workspace. */
static void describe_operand(const gk_call *call, const gk_problem *problem, int arg, bool swap,
                             unsigned char *prepared, gk_map_desc *out)
{
    const gki_wgmma_form form = gki_wgmma_form_of(problem, arg, swap);
    gki_wgmma_describe(call->args[arg], call->args[MATMUL_C], problem->layout[arg], out);
    if (gki_wgmma_prepared_bytes(problem, arg, swap) > 0) {
        gki_wgmma_describe_prepared(problem, arg, form, prepared, out);
    }
}

static bool maps(const gk_call *call, const gk_problem *problem, const gk_device_info *device,
                 const gk_config *config, void *workspace, gk_map_desc *out)
{
    const gki_wgmma_shape s = gki_wgmma_shape_of(problem, config);
    const bool swap = config->values[WGMMA_SWAP] != 0;
    const bool tf32 = problem->dtype[MATMUL_A] == GK_F32;
    const bool wide = s.stages <= FEW_STAGES || gki_model_wide_fetches(device);
    unsigned char *prepared = (unsigned char *)workspace + partial_bytes(&s, config->values);
    out[0].box[0] = (int32_t)s.span;
    out[0].box[1] = (int32_t)(swap ? s.y_box_rows : s.x_box_rows);
    out[1].box[0] = (int32_t)s.span;
    out[1].box[1] = (int32_t)(swap ? s.x_box_rows : s.y_box_rows);
    describe_operand(call, problem, MATMUL_A, swap, prepared, &out[0]);
    prepared += gki_wgmma_prepared_bytes(problem, MATMUL_A, swap);
    describe_operand(call, problem, MATMUL_B, swap, prepared, &out[1]);
    for (int i = 0; i < 2; i++) {
        out[i].l2_promotion = gki_wgmma_promotion(&out[i], wide);
        out[i].tf32 = tf32;
    }
    if (!s.by_tma) {
        out[2] = out[0];
        return true;
    }
    const gk_tensor *c = call->args[MATMUL_C];
    const int64_t size = (int64_t)gk_dtype_size((gk_dtype)c->dtype);
    gki_wgmma_describe(c, c, problem->layout[MATMUL_C], &out[2]);
    out[2].box[0] = (int32_t)(s.y_contiguous ? s.slab_y : 128 / size);
    out[2].box[1] = (int32_t)(s.y_contiguous ? 64 : s.slab_y);
    const int64_t row = s.y_contiguous ? s.slab_y * size : 128;
    out[2].swizzle = row == 16 ? 0 : (uint32_t)row;
    return true;
}

const gk_variant gki_matmul_wgmma = {
    .struct_size = sizeof(gk_variant),
    .name = "wgmma",
    .source = "matmul_wgmma.cu",
    .params = params,
    .n_params = WGMMA_N_PARAMS,
    .min_cc = 90,
    .check = check,
    .constants = constants,
    .launch = launch,
    .model = gki_wgmma_model,
    .n_maps = 3,
    .maps = maps,
};
