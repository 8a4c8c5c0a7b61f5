/* The matmul op: what stands in its descriptor. Each callback has a file of its own. */
#include <gk/ops.h>

#include "op/matmul_parts.h"

static const gk_arg_desc args[MATMUL_N_ARGS] = {
    [MATMUL_A] = {"a", 0, 0},
    [MATMUL_B] = {"b", 0, 0},
    [MATMUL_C] = {"c", 1, 0},
    [MATMUL_BIAS] = {"bias", 0, 1},
    [MATMUL_RESIDUAL] = {"residual", 0, 1},
};

static const char *const activations[] = {"none", "relu", "gelu_tanh", "gelu_erf", "silu"};
static const char *const maths[] = {"default", "f32", "tf32"};

static const gk_attr_desc attrs[MATMUL_N_ATTRS] = {
    [MATMUL_ACTIVATION] = {"activation", 1, GK_ACT_NONE, activations, 5},
    [MATMUL_MATH] = {"math", 1, GK_MATH_DEFAULT, maths, 3},
    [MATMUL_ALPHA] = {"alpha", 0, 1.0, NULL, 0},
    [MATMUL_BETA] = {"beta", 1, 0.0, NULL, 0},
};

static const char *const dims[MATMUL_N_DIMS] = {"M", "N", "K"};

static const gk_preset presets[] = {
    {.name = "matmul_relu",
     .fixed = 1u << MATMUL_ACTIVATION | 1u << MATMUL_ALPHA | 1u << MATMUL_BETA,
     .attrs = {[MATMUL_ACTIVATION] = GK_ACT_RELU, [MATMUL_ALPHA] = 1.0, [MATMUL_BETA] = 0.0}},
};

/* The variant that serves everything comes first. */
static const gk_variant *const variants[] = {
    &gki_matmul_simt,      &gki_matmul_mma,         &gki_matmul_wgmma,
    &gki_matmul_wgmma_f32, &gki_matmul_wgmma_split, &gki_matmul_gemv,
};

static bool is_empty(const gk_problem *problem)
{
    return problem->dims[MATMUL_M] == 0 || problem->dims[MATMUL_N] == 0;
}

static bool reads_output(const gk_problem *problem)
{
    return problem->attrs[MATMUL_BETA] != 0;
}

const gk_op_desc gki_op_matmul = {
    .struct_size = sizeof(gk_op_desc),
    .name = "matmul",
    .revision = 1,
    .args = args,
    .n_args = MATMUL_N_ARGS,
    .attrs = attrs,
    .n_attrs = MATMUL_N_ATTRS,
    .dim_names = dims,
    .n_dims = MATMUL_N_DIMS,
    .presets = presets,
    .n_presets = 1,
    .variants = variants,
    .n_variants = sizeof(variants) / sizeof(variants[0]),
    .cases = gki_matmul_cases,
    .n_cases = GKI_MATMUL_CASES,
    .infer = gki_matmul_infer,
    .is_empty = is_empty,
    .reads_output = reads_output,
    .pack = gki_matmul_pack,
    .example = gki_matmul_example,
    .reference = gki_matmul_reference,
    .tolerance = gki_matmul_tolerance,
    .work = gki_matmul_work,
    .peak = gki_matmul_peak,
    .reduce = gki_matmul_reduce,
    .part = gki_matmul_part,
};
