/* Rows that some lanes of a warp hold in registers. */
#include "op/rows.h"

enum { LANES, VECTORS, ROWS, WARPS, VECTOR, PERSIST };

static const int32_t lanes_values[] = {4, 8, 16, 32};
static const int32_t vectors_values[] = {1, 2, 4, 8, 16};
static const int32_t rows_values[] = {1, 2, 4};
static const int32_t warps_values[] = {1, 2, 4, 8};
static const int32_t vector_values[] = {8, 16};
static const int32_t flag_values[] = {0, 1};

#define VALUES(list) list, sizeof(list) / sizeof((list)[0])

const gk_param gki_rows_warp_params[gki_rows_warp_count] = {
    [LANES] = {"LANES", "x", VALUES(lanes_values), 0},
    [VECTORS] = {"VECTORS", "_v", VALUES(vectors_values), 0},
    [ROWS] = {"ROWS", "_r", VALUES(rows_values), 0},
    [WARPS] = {"WARPS", "_w", VALUES(warps_values), 0},
    [VECTOR] = {"VECTOR", "_b", VALUES(vector_values), 0},
    [PERSIST] = {"PERSIST", "_p", VALUES(flag_values), 0},
};

enum { MAX_WORDS = 64, MAX_ELEMENTS = 64 };

/* 32-bit registers of a thread that hold rows. */
static int64_t words_of(const gki_rows_shape *s, const int32_t *v)
{
    return (int64_t)v[VECTORS] * v[ROWS] * gki_rows_ceil(s->vec * s->size, 4);
}

bool gki_rows_warp_check(const gk_problem *problem, const gk_device_info *device,
                         const gk_config *config, gk_reason *reason)
{
    const int32_t *v = config->values;
    const gki_rows_shape s = gki_rows_shape_of(problem, v[VECTOR]);
    (void)device;
    if (s.vectors > (int64_t)v[LANES] * v[VECTORS]) {
        return gk_refuse(reason, "a row has up to %lld vectors, %d lanes hold %d",
                         (long long)s.vectors, (int)v[LANES], (int)(v[LANES] * v[VECTORS]));
    }
    if ((int64_t)v[VECTORS] * v[ROWS] * s.vec > (v[ROWS] > 1 ? MAX_ELEMENTS / 2 : MAX_ELEMENTS)) {
        return gk_refuse(reason, "unrolls %lld elements of %d rows",
                         (long long)v[VECTORS] * v[ROWS] * s.vec, (int)v[ROWS]);
    }
    if (words_of(&s, v) > MAX_WORDS) {
        return gk_refuse(reason, "rows take %lld registers of a thread, at most %d",
                         (long long)words_of(&s, v), MAX_WORDS);
    }
    if (!v[PERSIST] && problem->dims[ROWS_ROWS] > INT32_MAX) {
        return gk_refuse(reason, "%lld rows are more than a grid has blocks for",
                         (long long)problem->dims[ROWS_ROWS]);
    }
    return true;
}

static int64_t resident(const gk_problem *problem, const gk_device_info *device, const int32_t *v)
{
    const gki_rows_shape s = gki_rows_shape_of(problem, v[VECTOR]);
    return gki_rows_resident(device, &s, v[WARPS] * 32, v[ROWS], v[VECTORS], 0);
}

void gki_rows_warp_launch(const gk_problem *problem, const gk_device_info *device,
                          const gk_config *config, gk_launch *out)
{
    const int32_t *v = config->values;
    const int64_t at_once = (int64_t)v[WARPS] * 32 / v[LANES] * v[ROWS];
    out->grid = gki_rows_smaller(gki_rows_ceil(problem->dims[ROWS_ROWS], at_once), INT32_MAX);
    if (v[PERSIST]) {
        out->grid = gki_rows_smaller(out->grid, device->sm_count * resident(problem, device, v));
    }
    out->threads = v[WARPS] * 32;
    out->overlap = 1;
}

static const double NORM_BY_WARP = 0.053; /* as against a block a row */
static const double SEVERAL_ROWS = 0.006; /* of one warp */

double gki_rows_warp_model(const gk_problem *problem, const gk_device_info *device,
                           const gk_config *config)
{
    const int32_t *v = config->values;
    const gki_rows_shape s = gki_rows_shape_of(problem, v[VECTOR]);
    const int64_t at_once = (int64_t)v[WARPS] * 32 / v[LANES] * v[ROWS];
    gk_launch launch = {0};
    gki_rows_estimate e = {0};
    gki_rows_warp_launch(problem, device, config, &launch);
    e.blocks = (double)launch.grid;
    e.turns = (double)gki_rows_ceil(problem->dims[ROWS_ROWS], at_once * launch.grid);
    e.threads = v[WARPS] * 32;
    e.lanes = v[LANES];
    e.persistent = v[PERSIST] != 0;
    e.resident = (double)(v[PERSIST] ? resident(problem, device, v)
                                     : gki_rows_likely(problem, device, &s, launch.threads, v[ROWS],
                                                       v[VECTORS], 0));
    e.elements = (double)(at_once * v[LANES] * v[VECTORS] * s.vec);
    e.vec = (double)s.vec;
    e.slower = (gki_rows_is_norm(problem) ? NORM_BY_WARP : 0) + (v[LANES] < 32 ? SEVERAL_ROWS : 0);
    return gki_rows_seconds(problem, device, &e);
}
