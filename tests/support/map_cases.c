#include "map_cases.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "op_configs.h"

enum { OUT = MAP_INPUTS };

static const gk_tensor *input_of(const map_case *f, uint32_t i, bool exact, bool host)
{
    if ((int)i == f->in_place) {
        return host ? &f->out.host : &f->out.device;
    }
    return host ? &f->x[i].host : exact ? &f->x[i].exact : &f->x[i].device;
}

static gk_call call_of(const map_case *f, bool exact, bool host)
{
    gk_call call = {.text = f->text};
    for (uint32_t i = 0; i < f->n_inputs; i++) {
        call.args[i] = input_of(f, i, exact, host);
    }
    call.args[OUT] = host ? &f->out.host : &f->out.device;
    return call;
}

void map_case_create(map_case *f, const char *text, uint32_t n_inputs, const gk_tensor *inputs,
                     const gk_tensor *out, const int64_t *offsets, int in_place)
{
    memset(f, 0, sizeof(*f));
    f->text = text;
    f->n_inputs = n_inputs;
    f->in_place = in_place;
    for (uint32_t i = 0; i < n_inputs; i++) {
        if ((int)i != in_place) {
            assert_gk_ok(op_buffer_create(&f->x[i], op_case_ctx, op_test_is_cpu(), &inputs[i],
                                          offsets != NULL ? offsets[i] : 0, false));
        }
    }
    assert_gk_ok(op_buffer_create(&f->out, op_case_ctx, op_test_is_cpu(), out,
                                  offsets != NULL ? offsets[n_inputs] : 0, true));
    f->result = malloc(f->out.bytes);
    assert_non_null(f->result);
}

void map_case_destroy(map_case *f)
{
    for (uint32_t i = 0; i < f->n_inputs; i++) {
        if ((int)i != f->in_place) {
            op_buffer_destroy(&f->x[i]);
        }
    }
    op_buffer_destroy(&f->out);
    free(f->result);
}

gk_call map_case_call(const map_case *f)
{
    return call_of(f, false, false);
}

void map_case_upload(map_case *f)
{
    for (uint32_t i = 0; i < f->n_inputs; i++) {
        if ((int)i != f->in_place) {
            assert_gk_ok(op_buffer_upload(&f->x[i]));
        }
    }
    assert_gk_ok(op_buffer_upload(&f->out));
}

double map_case_result(const map_case *f, int64_t index)
{
    const gk_tensor view = op_buffer_view(&f->out, f->result);
    return op_tensor_at(&view, index);
}

void map_case_fetch(map_case *f)
{
    int64_t damage;
    assert_gk_ok(gk_synchronize(op_case_ctx, NULL));
    assert_gk_ok(op_buffer_download(&f->out, f->result, &damage));
    if (damage != INT64_MIN) {
        fail_msg("%s: written outside out, byte %lld from its beginning", f->text,
                 (long long)damage);
    }
}

void map_case_check(map_case *f, const char *config)
{
    const gk_op_desc *op = gk_op_find("map", NULL);
    const gk_call call = call_of(f, false, true);
    const int64_t count = op_tensor_count(&f->out.host);
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
        const double got = map_case_result(f, i);
        const double allowed = t.absolute + t.relative * scale[i];
        const bool same =
            isnan(want[i]) ? isnan(got) : got == want[i] || fabs(got - want[i]) <= allowed;
        if (!same) {
            fail_msg("%s, %s: element %lld is %.9g, not %.9g +- %.3g", f->text, config,
                     (long long)i, got, want[i], allowed);
        }
    }
    free(want);
    free(scale);
}

void map_case_check_values(map_case *f, const char *config, const double *want, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        const double got = map_case_result(f, i);
        if (got != want[i] && !(isnan(got) && isnan(want[i]))) {
            fail_msg("%s, %s: element %lld is %.9g, not %.9g", f->text, config, (long long)i, got,
                     want[i]);
        }
    }
}

uint32_t map_case_every_config(map_case *f, const double *want, uint32_t seed)
{
    const gk_op_desc *op = gk_op_find("map", NULL);
    const gk_call call = call_of(f, false, false);
    gk_device_info device;
    gk_problem problem;
    uint32_t ran = 0;
    memset(&problem, 0, sizeof(problem));
    assert_gk_ok(op->infer(&call, &problem));
    assert_gk_ok(gk_device_info_get(op_case_ctx, &device));
    for (uint32_t v = 0; v < op->n_variants; v++) {
        const gk_variant *variant = op->variants[v];
        uint32_t count;
        gk_config *configs =
            op_configs_spread(variant, &problem, &device, op_case_limit(), seed, &count);
        for (uint32_t i = 0; i < count; i++) {
            char text[256];
            gk_config config = configs[i];
            (void)op_config_launch(variant, &config, (seed + i) % 2);
            op_config_text(variant, &config, text, sizeof(text));
            const gk_plan_options options = {
                .struct_size = sizeof(options), .variant = variant->name, .config = text};
            gk_plan *plan;
            assert_gk_ok(gk_plan_create(&plan, op_case_ctx, "map", &call, &options));
            for (int exact = 0; exact < 2; exact++) {
                const gk_call again = call_of(f, exact != 0, false);
                map_case_upload(f);
                assert_gk_ok(gk_plan_run(plan, &again, NULL));
                map_case_fetch(f);
                if (want != NULL) {
                    map_case_check_values(f, text, want, op_tensor_count(&f->out.host));
                } else {
                    map_case_check(f, text);
                }
            }
            gk_plan_destroy(&plan);
            ran++;
        }
        free(configs);
    }
    return ran;
}
