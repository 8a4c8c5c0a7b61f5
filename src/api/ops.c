#include "api/context.h"
#include "op/map.h"
#include "op/matmul.h"
#include "op/op.h"
#include "op/reduce.h"
#include "op/rows.h"

extern const gk_op_desc gki_op_matmul;
extern const gk_op_desc gki_op_norm;
extern const gk_op_desc gki_op_softmax;
extern const gk_op_desc gki_op_transpose;

gk_status gk_matmul_call(gk_call *call, const gk_tensor *a, const gk_tensor *b, const gk_tensor *c,
                         const gk_matmul_params *params)
{
    if (call == NULL) {
        return gk_fail(GK_ERR_INVALID, "matmul", "call is NULL");
    }
    *call = (gk_call){.args = {a, b, c}, .attrs = {[MATMUL_ALPHA] = 1.0}};
    if (params == NULL) {
        return GK_OK;
    }
    gk_matmul_params known;
    gk_status status = gki_options_read(&known, sizeof(known), params, "params");
    if (status != GK_OK) {
        return status;
    }
    /* Of alpha and beta zero is a value like any other. */
    if (known.struct_size < offsetof(gk_matmul_params, bias)) {
        return gk_fail(GK_ERR_INVALID, "matmul", "params.struct_size is %zu, expected %zu",
                       known.struct_size, sizeof(known));
    }
    call->args[MATMUL_BIAS] = known.bias;
    call->args[MATMUL_RESIDUAL] = known.residual;
    call->attrs[MATMUL_ACTIVATION] = (double)known.activation;
    call->attrs[MATMUL_MATH] = (double)known.math;
    call->attrs[MATMUL_ALPHA] = known.alpha;
    call->attrs[MATMUL_BETA] = known.beta;
    return GK_OK;
}

gk_status gk_matmul(gk_context *ctx, const gk_tensor *a, const gk_tensor *b, const gk_tensor *c,
                    const gk_matmul_params *params, void *stream)
{
    gk_call call;
    gk_status status = gk_matmul_call(&call, a, b, c, params);
    return status == GK_OK ? gki_call_run(ctx, &gki_op_matmul, &call, stream) : status;
}

gk_status gk_matmul_relu(gk_context *ctx, const gk_tensor *a, const gk_tensor *b,
                         const gk_tensor *c, void *stream)
{
    const gk_call call = {.args = {a, b, c},
                          .attrs = {[MATMUL_ACTIVATION] = GK_ACT_RELU, [MATMUL_ALPHA] = 1.0}};
    return gki_call_run(ctx, &gki_op_matmul, &call, stream);
}

gk_status gk_reduce_call(gk_call *call, const gk_tensor *x, const gk_tensor *out,
                         const gk_reduce_params *params)
{
    static const gk_reduce_params defaults = GK_REDUCE_PARAMS_INIT;
    if (call == NULL) {
        return gk_fail(GK_ERR_INVALID, "reduce", "call is NULL");
    }
    gk_reduce_params known;
    gk_status status =
        gki_options_read(&known, sizeof(known), params != NULL ? params : &defaults, "params");
    if (status != GK_OK) {
        return status;
    }
    /* As an axis zero is a value like any other. */
    if (known.struct_size < offsetof(gk_reduce_params, keepdim)) {
        return gk_fail(GK_ERR_INVALID, "reduce", "params.struct_size is %zu, expected %zu",
                       known.struct_size, sizeof(known));
    }
    *call = (gk_call){.args = {x, out},
                      .attrs = {[REDUCE_ATTR_OP] = (double)known.op,
                                [REDUCE_ATTR_AXIS] = (double)known.axis,
                                [REDUCE_ATTR_KEEPDIM] = (double)known.keepdim}};
    return GK_OK;
}

gk_status gk_reduce(gk_context *ctx, const gk_tensor *x, const gk_tensor *out,
                    const gk_reduce_params *params, void *stream)
{
    gk_call call;
    gk_status status = gk_reduce_call(&call, x, out, params);
    return status == GK_OK ? gki_call_run(ctx, &gki_op_reduce, &call, stream) : status;
}

/* --- map --- */

gk_status gk_map_call(gk_call *call, const char *expression, const gk_tensor *inputs,
                      uint32_t n_inputs, const gk_tensor *out)
{
    if (call == NULL || expression == NULL) {
        return gk_fail(GK_ERR_INVALID, "map", "%s is NULL", call == NULL ? "call" : "expression");
    }
    if (n_inputs < 1 || n_inputs > MAP_MAX_INPUTS) {
        return gk_fail(GK_ERR_INVALID, "map", "n_inputs is %u, must be 1 to %d", (unsigned)n_inputs,
                       MAP_MAX_INPUTS);
    }
    if (inputs == NULL) {
        return gk_fail(GK_ERR_INVALID, "map", "inputs is NULL but n_inputs is %u",
                       (unsigned)n_inputs);
    }
    *call = (gk_call){.args = {[MAP_OUT] = out}, .text = expression};
    for (uint32_t i = 0; i < n_inputs; i++) {
        call->args[MAP_X0 + i] = &inputs[i];
    }
    return GK_OK;
}

gk_status gk_map(gk_context *ctx, const char *expression, const gk_tensor *inputs,
                 uint32_t n_inputs, const gk_tensor *out, void *stream)
{
    gk_call call;
    gk_status status = gk_map_call(&call, expression, inputs, n_inputs, out);
    return status == GK_OK ? gki_call_run(ctx, &gki_op_map, &call, stream) : status;
}

/* One of map's presets. */
static gk_status run_map(gk_context *ctx, const char *expression, const gk_tensor *x,
                         const gk_tensor *y, const gk_tensor *z, const gk_tensor *out, void *stream)
{
    const gk_call call = {.args = {x, y, z, [MAP_OUT] = out}, .text = expression};
    return gki_call_run(ctx, &gki_op_map, &call, stream);
}

gk_status gk_add(gk_context *ctx, const gk_tensor *x, const gk_tensor *y, const gk_tensor *out,
                 void *stream)
{
    return run_map(ctx, "x0 + x1", x, y, NULL, out, stream);
}

gk_status gk_fma(gk_context *ctx, const gk_tensor *x, const gk_tensor *y, const gk_tensor *z,
                 const gk_tensor *out, void *stream)
{
    return run_map(ctx, "fma(x0, x1, x2)", x, y, z, out, stream);
}

gk_status gk_relu(gk_context *ctx, const gk_tensor *x, const gk_tensor *out, void *stream)
{
    return run_map(ctx, "relu(x0)", x, NULL, NULL, out, stream);
}

gk_status gk_silu(gk_context *ctx, const gk_tensor *x, const gk_tensor *out, void *stream)
{
    return run_map(ctx, "silu(x0)", x, NULL, NULL, out, stream);
}

gk_status gk_gelu(gk_context *ctx, const gk_tensor *x, const gk_tensor *out, void *stream)
{
    return run_map(ctx, "gelu(x0)", x, NULL, NULL, out, stream);
}

gk_status gk_gelu_tanh(gk_context *ctx, const gk_tensor *x, const gk_tensor *out, void *stream)
{
    return run_map(ctx, "gelu_tanh(x0)", x, NULL, NULL, out, stream);
}

gk_status gk_transpose(gk_context *ctx, const gk_tensor *x, const gk_tensor *out, void *stream)
{
    const gk_call call = {.args = {x, out}};
    return gki_call_run(ctx, &gki_op_transpose, &call, stream);
}

/* --- softmax, norm --- */

gk_status gk_softmax(gk_context *ctx, const gk_tensor *x, const gk_tensor *out, void *stream)
{
    const gk_call call = {.args = {[ROWS_X] = x, [ROWS_OUT] = out}};
    return gki_call_run(ctx, &gki_op_softmax, &call, stream);
}

gk_status gk_log_softmax(gk_context *ctx, const gk_tensor *x, const gk_tensor *out, void *stream)
{
    const gk_call call = {.args = {[ROWS_X] = x, [ROWS_OUT] = out}, .attrs = {[SOFTMAX_LOG] = 1}};
    return gki_call_run(ctx, &gki_op_softmax, &call, stream);
}

gk_status gk_rms_norm(gk_context *ctx, const gk_tensor *x, const gk_tensor *weight,
                      const gk_tensor *out, double eps, void *stream)
{
    const gk_call call = {.args = {[ROWS_X] = x, [ROWS_OUT] = out, [ROWS_WEIGHT] = weight},
                          .attrs = {[NORM_KIND] = NORM_RMS, [NORM_EPS] = eps}};
    return gki_call_run(ctx, &gki_op_norm, &call, stream);
}

gk_status gk_layer_norm(gk_context *ctx, const gk_tensor *x, const gk_tensor *weight,
                        const gk_tensor *bias, const gk_tensor *out, double eps, void *stream)
{
    const gk_call call = {
        .args = {[ROWS_X] = x, [ROWS_OUT] = out, [ROWS_WEIGHT] = weight, [ROWS_BIAS] = bias},
        .attrs = {[NORM_KIND] = NORM_LAYER, [NORM_EPS] = eps}};
    return gki_call_run(ctx, &gki_op_norm, &call, stream);
}
