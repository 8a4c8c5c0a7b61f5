/* What the variants of matmul have in common. */
#include <string.h>

#include <gk/ops.h>

#include "op/matmul_parts.h"

static const char *const activation_tags[] = {"", "relu_", "gelu_tanh_", "gelu_erf_", "silu_"};

void gki_matmul_constant(gk_constants *out, const char *name, gk_constant_kind kind, int64_t value)
{
    if (out->n_items < GK_MAX_CONSTANTS) {
        const gk_constant item = {name, kind, value};
        out->items[out->n_items++] = item;
    }
}

static void append(char *out, size_t size, const char *text)
{
    const size_t length = strlen(out);
    const size_t more = strlen(text);
    if (length + more < size) {
        memcpy(out + length, text, more + 1);
    }
}

bool gki_matmul_promotes(const gk_problem *problem)
{
    const uint8_t a = problem->dtype[MATMUL_A];
    return (a == GK_E4M3 || a == GK_E5M2) && problem->attrs[MATMUL_MATH] == GK_MATH_F32;
}

void gki_matmul_constants(const gk_problem *problem, gk_constants *out)
{
    const int64_t bias = problem->dtype[MATMUL_BIAS];
    const bool tf32 = problem->attrs[MATMUL_MATH] == GK_MATH_TF32;
    gki_matmul_constant(out, "A_TYPE", GK_CONSTANT_TYPE, problem->dtype[MATMUL_A]);
    gki_matmul_constant(out, "B_TYPE", GK_CONSTANT_TYPE, problem->dtype[MATMUL_B]);
    gki_matmul_constant(out, "C_TYPE", GK_CONSTANT_TYPE, problem->dtype[MATMUL_C]);
    gki_matmul_constant(out, "BIAS_TYPE", GK_CONSTANT_TYPE,
                        bias != 0 ? bias : problem->dtype[MATMUL_C]);
    gki_matmul_constant(out, "A_LAYOUT", GK_CONSTANT_INT, problem->layout[MATMUL_A]);
    gki_matmul_constant(out, "B_LAYOUT", GK_CONSTANT_INT, problem->layout[MATMUL_B]);
    gki_matmul_constant(out, "C_LAYOUT", GK_CONSTANT_INT, problem->layout[MATMUL_C]);
    gki_matmul_constant(out, "A_ALIGN", GK_CONSTANT_INT, problem->align[MATMUL_A]);
    gki_matmul_constant(out, "B_ALIGN", GK_CONSTANT_INT, problem->align[MATMUL_B]);
    gki_matmul_constant(out, "C_ALIGN", GK_CONSTANT_INT, problem->align[MATMUL_C]);
    gki_matmul_constant(out, "ACTIVATION", GK_CONSTANT_INT, problem->attrs[MATMUL_ACTIVATION]);
    gki_matmul_constant(out, "HAS_BIAS", GK_CONSTANT_BOOL, bias != 0);
    gki_matmul_constant(out, "HAS_RESIDUAL", GK_CONSTANT_BOOL,
                        problem->dtype[MATMUL_RESIDUAL] != 0);
    gki_matmul_constant(out, "HAS_BETA", GK_CONSTANT_BOOL, problem->attrs[MATMUL_BETA] != 0);
    out->tag[0] = '\0';
    append(out->tag, sizeof(out->tag), activation_tags[problem->attrs[MATMUL_ACTIVATION]]);
    append(out->tag, sizeof(out->tag),
           tf32 ? "tf32" : gk_dtype_name((gk_dtype)problem->dtype[MATMUL_A]));
    if (gki_matmul_promotes(problem)) {
        append(out->tag, sizeof(out->tag), "p");
    }
    if (problem->dtype[MATMUL_C] != problem->dtype[MATMUL_A]) {
        append(out->tag, sizeof(out->tag), "_");
        append(out->tag, sizeof(out->tag), gk_dtype_name((gk_dtype)problem->dtype[MATMUL_C]));
    }
}

int64_t gki_matmul_acc_bytes(const gk_problem *problem)
{
    return problem->dtype[MATMUL_A] == GK_F64 ? 8 : 4;
}

/* Products of sizes stop at INT64_MAX, which no device can serve. */
static int64_t times(int64_t a, int64_t b)
{
    int64_t product;
    return __builtin_mul_overflow(a, b, &product) ? INT64_MAX : product;
}

void gki_matmul_grid(const gk_problem *problem, int64_t block_m, int64_t block_n, int64_t split_k,
                     gk_launch *out)
{
    const int64_t tiles = times(gki_ceil_div(problem->dims[MATMUL_M], block_m),
                                gki_ceil_div(problem->dims[MATMUL_N], block_n));
    out->grid = times(tiles, split_k);
    out->workspace = 0;
    out->zeroed = 0;
    if (split_k > 1) {
        out->workspace = times(times(out->grid, block_m * block_n), gki_matmul_acc_bytes(problem));
        out->zeroed = times(tiles, (int64_t)sizeof(unsigned long long));
    }
}

int64_t gki_config_value(const gk_variant *variant, const gk_config *config, const char *name)
{
    /* From the end: at-launch params come last, and each call asks for those. */
    for (uint32_t i = variant->n_params; i-- > 0;) {
        if (strcmp(variant->params[i].name, name) == 0) {
            return config->values[i];
        }
    }
    return 0;
}

static void pack_optional(const gk_call *call, gk_matmul_args *args)
{
    const gk_tensor *bias = call->args[MATMUL_BIAS];
    const gk_tensor *residual = call->args[MATMUL_RESIDUAL];
    if (bias != NULL) {
        args->bias = bias->data;
        args->bias_stride = bias->stride[0];
    }
    if (residual != NULL) {
        args->residual = residual->data;
        args->residual_row_stride = residual->stride[0];
        args->residual_col_stride = residual->stride[1];
    }
}

size_t gki_matmul_pack(const gk_call *call, const gk_problem *problem, const gk_variant *variant,
                       const gk_config *config, void *workspace, void *zeroed, void *out)
{
    const gk_tensor *a = call->args[MATMUL_A];
    const gk_tensor *b = call->args[MATMUL_B];
    const gk_tensor *c = call->args[MATMUL_C];
    gk_matmul_args args = {0};
    const int64_t split_k = gki_config_value(variant, config, "SPLIT_K");
    const int64_t group_m = gki_config_value(variant, config, "GROUP_M");
    args.a = a->data;
    args.b = b->data;
    args.c = c->data;
    args.m = problem->dims[MATMUL_M];
    args.n = problem->dims[MATMUL_N];
    args.k = call->attrs[MATMUL_ALPHA] == 0 ? 0 : problem->dims[MATMUL_K];
    gki_matmul_strides(a, problem->layout[MATMUL_A], &args.a_row_stride, &args.a_col_stride);
    gki_matmul_strides(b, problem->layout[MATMUL_B], &args.b_row_stride, &args.b_col_stride);
    gki_matmul_strides(c, problem->layout[MATMUL_C], &args.c_row_stride, &args.c_col_stride);
    pack_optional(call, &args);
    args.split_k = split_k > 1 ? split_k : 1;
    args.group_m = group_m > 1 ? group_m : 1;
    args.alpha = call->attrs[MATMUL_ALPHA];
    args.beta = call->attrs[MATMUL_BETA];
    args.partials = workspace;
    args.tickets = zeroed;
    memcpy(out, &args, sizeof(args));
    return sizeof(args);
}
