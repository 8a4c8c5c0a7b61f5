/* The reduce op: what stands in its descriptor. */
#include <gk/ops.h>

#include "op/reduce.h"

static const gk_arg_desc args[REDUCE_N_ARGS] = {
    [REDUCE_X] = {"x", 0, 0},
    [REDUCE_OUT] = {"out", 1, 0},
};

static const char *const reductions[] = {"sum", "mean", "max", "min", "argmax"};

static const gk_attr_desc attrs[REDUCE_N_ATTRS] = {
    [REDUCE_ATTR_OP] = {"op", 1, GK_REDUCE_SUM, reductions, 5},
    [REDUCE_ATTR_AXIS] = {"axis", 0, GK_REDUCE_ALL, NULL, 0},
    [REDUCE_ATTR_KEEPDIM] = {"keepdim", 0, 0, NULL, 0},
};

static const char *const dims[REDUCE_N_DIMS] = {"OUTER", "AXIS", "INNER"};

#define PRESET(word, reduction)                                                                    \
    {                                                                                              \
        .name = (word), .fixed = 1u << REDUCE_ATTR_OP, .attrs = { [REDUCE_ATTR_OP] = (reduction) } \
    }

static const gk_preset presets[] = {
    PRESET("reduce_mean", GK_REDUCE_MEAN),
    PRESET("reduce_max", GK_REDUCE_MAX),
    PRESET("reduce_min", GK_REDUCE_MIN),
    PRESET("reduce_argmax", GK_REDUCE_ARGMAX),
};

/* The variant that serves everything comes first. */
static const gk_variant *const variants[] = {
    &gki_reduce_strided,
    &gki_reduce_rows,
    &gki_reduce_columns,
};

static bool is_empty(const gk_problem *problem)
{
    return problem->dims[REDUCE_OUTER] == 0 || problem->dims[REDUCE_INNER] == 0;
}

static void work(const gk_problem *problem, double *flops, double *bytes)
{
    const double outputs =
        (double)problem->dims[REDUCE_OUTER] * (double)problem->dims[REDUCE_INNER];
    const double elements = outputs * (double)problem->dims[REDUCE_AXIS];
    *flops = elements;
    *bytes = elements * (double)gk_dtype_size((gk_dtype)problem->dtype[REDUCE_X]) +
             outputs * (double)gk_dtype_size((gk_dtype)problem->dtype[REDUCE_OUT]);
}

const gk_op_desc gki_op_reduce = {
    .struct_size = sizeof(gk_op_desc),
    .name = "reduce",
    .revision = 1,
    .args = args,
    .n_args = REDUCE_N_ARGS,
    .attrs = attrs,
    .n_attrs = REDUCE_N_ATTRS,
    .dim_names = dims,
    .n_dims = REDUCE_N_DIMS,
    .presets = presets,
    .n_presets = sizeof(presets) / sizeof(presets[0]),
    .variants = variants,
    .n_variants = sizeof(variants) / sizeof(variants[0]),
    .cases = gki_reduce_cases,
    .n_cases = GKI_REDUCE_CASES,
    .infer = gki_reduce_infer,
    .is_empty = is_empty,
    .pack = gki_reduce_pack,
    .example = gki_reduce_example,
    .reference = gki_reduce_reference,
    .tolerance = gki_reduce_tolerance,
    .work = work,
    .reduce = gki_reduce_reduce,
    .part = gki_reduce_part,
};
