#include "rows_cases.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "op_configs.h"

void rows_create(rows *r, const char *op, double first, double eps, const gk_tensor *x,
                 const gk_tensor *out, int64_t offset)
{
    memset(r, 0, sizeof(*r));
    r->op = op;
    r->attrs[0] = first;
    r->attrs[1] = eps;
    assert_gk_ok(op_buffer_create(&r->args[X], op_case_ctx, op_test_is_cpu(), x, offset, false));
    assert_gk_ok(op_buffer_create(&r->args[OUT], op_case_ctx, op_test_is_cpu(), out, offset, true));
    r->result = malloc(r->args[OUT].bytes);
    assert_non_null(r->result);
}

void rows_factor(rows *r, int which, gk_dtype dtype, int64_t stride)
{
    const gk_tensor *x = &r->args[X].host;
    gk_tensor t = gk_vector(NULL, dtype, x->shape[x->rank - 1]);
    t.stride[0] = stride;
    assert_gk_ok(op_buffer_create(&r->args[which], op_case_ctx, op_test_is_cpu(), &t, 0, false));
}

void rows_destroy(rows *r)
{
    for (int i = 0; i < N_ARGS; i++) {
        op_buffer_destroy(&r->args[i]);
    }
    free(r->result);
}

gk_call rows_call(const rows *r, bool host)
{
    gk_call call = {.attrs = {r->attrs[0], r->attrs[1]}};
    for (int i = 0; i < N_ARGS; i++) {
        if (r->args[i].memory != NULL) {
            call.args[i] = host ? &r->args[i].host : &r->args[i].device;
        }
    }
    if (r->in_place) {
        call.args[X] = host ? &r->args[X].host : &r->args[OUT].device;
    }
    return call;
}

void rows_upload(rows *r)
{
    if (r->in_place) {
        const int64_t count = op_tensor_count(&r->args[X].host);
        for (int64_t i = 0; i < count; i++) {
            op_buffer_set_at(&r->args[OUT], i, op_tensor_at(&r->args[X].host, i));
        }
    }
    for (int i = 0; i < N_ARGS; i++) {
        if (r->args[i].memory != NULL) {
            assert_gk_ok(op_buffer_upload(&r->args[i]));
        }
    }
}

void rows_fetch(rows *r)
{
    assert_gk_ok(gk_synchronize(op_case_ctx, NULL));
    for (int i = 0; i < N_ARGS; i++) {
        op_buffer *b = &r->args[i];
        int64_t damage = 0;
        if (b->memory == NULL) {
            continue;
        }
        unsigned char *data = i == OUT ? r->result : malloc(b->bytes);
        assert_non_null(data);
        assert_gk_ok(op_buffer_download(b, data, &damage));
        if (i != OUT) {
            free(data);
        }
        assert_true(damage == INT64_MIN);
    }
}

double rows_at(const rows *r, int64_t index)
{
    const gk_tensor view = op_buffer_view(&r->args[OUT], r->result);
    return op_tensor_at(&view, index);
}

void rows_check_reference(rows *r, const char *what)
{
    const gk_op_desc *op = gk_op_find(r->op, NULL);
    const gk_call call = rows_call(r, true);
    const int64_t count = op_tensor_count(&r->args[OUT].host);
    double *want = calloc((size_t)count + 1, sizeof(double));
    double *scale = calloc((size_t)count + 1, sizeof(double));
    gk_problem problem;
    memset(&problem, 0, sizeof(problem));
    if (want == NULL || scale == NULL) {
        abort();
    }
    assert_gk_ok(op->infer(&call, &problem));
    op->reference(&call, &problem, want, scale);
    const gk_tolerance t = op->tolerance(&problem);
    for (int64_t i = 0; i < count; i++) {
        const double got = rows_at(r, i);
        const bool same = isnan(want[i]) ? isnan(got)
                                         : got == want[i] || fabs(got - want[i]) <=
                                                                 t.absolute + t.relative * scale[i];
        if (!same) {
            fail_msg("%s: element %lld is %.9g, not %.9g", what, (long long)i, got, want[i]);
        }
    }
    free(want);
    free(scale);
}

bool rows_run_forced(rows *r, const gk_variant *variant, const char *config, rows_check *f)
{
    const gk_plan_options options = {
        .struct_size = sizeof(options), .variant = variant->name, .config = config};
    const gk_call call = rows_call(r, false);
    char what[320];
    gk_plan *plan;
    const gk_status status = gk_plan_create(&plan, op_case_ctx, r->op, &call, &options);
    if (status == GK_ERR_NO_CONFIG) {
        return false;
    }
    assert_gk_ok(status);
    (void)snprintf(what, sizeof(what), "%s %s", variant->name, config);
    /* Twice: what is left in scratch memory must not matter. */
    for (int i = 0; i < 2; i++) {
        rows_upload(r);
        assert_gk_ok(gk_plan_run(plan, &call, NULL));
        rows_fetch(r);
        f(r, what);
    }
    gk_plan_destroy(&plan);
    return true;
}

uint32_t rows_every_config(rows *r, uint32_t limit, rows_check *f)
{
    const gk_op_desc *op = gk_op_find(r->op, NULL);
    const gk_call call = rows_call(r, false);
    uint32_t ran = 0;
    gk_device_info device;
    gk_problem problem;
    memset(&problem, 0, sizeof(problem));
    assert_gk_ok(op->infer(&call, &problem));
    assert_gk_ok(gk_device_info_get(op_case_ctx, &device));
    for (uint32_t v = 0; v < op->n_variants; v++) {
        const gk_variant *variant = op->variants[v];
        uint32_t count;
        char text[256];
        gk_config *configs = op_configs_spread(variant, &problem, &device, limit, 0, &count);
        for (uint32_t i = 0; i < count; i++) {
            gk_config config = configs[i];
            for (uint32_t l = 0; op_config_launch(variant, &config, l); l++) {
                gk_reason reason = {""};
                if (variant->check(&problem, &device, &config, &reason)) {
                    op_config_text(variant, &config, text, sizeof(text));
                    ran |= (uint32_t)rows_run_forced(r, variant, text, f) << v;
                }
                if (i + 1 < count) {
                    break;
                }
            }
        }
        free(configs);
    }
    return ran;
}

void rows_near(const rows *r, const char *what, int64_t index, double want, double allowed)
{
    const double got = rows_at(r, index);
    if (isnan(want) ? !isnan(got) : !(fabs(got - want) <= allowed)) {
        fail_msg("%s: element %lld is %.9g, not %.9g", what, (long long)index, got, want);
    }
}
