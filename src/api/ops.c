#include "api/context.h"
#include "op/matmul.h"
#include "op/op.h"

extern const gk_op_desc gki_op_matmul;

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
