/* The map op: what stands in its descriptor. Each callback has a file of its own. */
#include "op/map.h"

static const gk_arg_desc args[MAP_N_ARGS] = {
    {"x0", 0, 1}, {"x1", 0, 1}, {"x2", 0, 1}, {"x3", 0, 1}, {"x4", 0, 1}, {"out", 1, 0},
};

static const char *const dims[MAP_N_DIMS] = {"M", "N"};

static const gk_preset presets[] = {
    {.name = "add", .text = "x0 + x1"},   {.name = "fma", .text = "fma(x0, x1, x2)"},
    {.name = "relu", .text = "relu(x0)"}, {.name = "silu", .text = "silu(x0)"},
    {.name = "gelu", .text = "gelu(x0)"}, {.name = "gelu_tanh", .text = "gelu_tanh(x0)"},
};

/* The variant that serves everything comes first. */
static const gk_variant *const variants[] = {&gki_map_strided, &gki_map_vector};

static bool is_empty(const gk_problem *problem)
{
    return problem->dims[MAP_N] == 0;
}

const gk_op_desc gki_op_map = {
    .struct_size = sizeof(gk_op_desc),
    .name = "map",
    .revision = 1,
    .args = args,
    .n_args = MAP_N_ARGS,
    .text_name = "expression",
    .dim_names = dims,
    .n_dims = MAP_N_DIMS,
    .presets = presets,
    .n_presets = sizeof(presets) / sizeof(presets[0]),
    .variants = variants,
    .n_variants = sizeof(variants) / sizeof(variants[0]),
    .cases = gki_map_cases,
    .n_cases = GKI_MAP_CASES,
    .infer = gki_map_infer,
    .is_empty = is_empty,
    .pack = gki_map_pack,
    .example = gki_map_example,
    .reference = gki_map_reference,
    .tolerance = gki_map_tolerance,
    .work = gki_map_work,
    .reduce = gki_map_reduce,
    .part = gki_map_part,
};
