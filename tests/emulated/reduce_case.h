/* What reduce's case tests share: one guarded x and out, forced configurations, and what is
 * expected: made by a loop over all elements, in double precision. */
#ifndef REDUCE_CASE_H
#define REDUCE_CASE_H

#include "op_cases.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "op_configs.h"

enum { MAX_OUTPUTS = 20000 };

typedef struct fixture {
    op_buffer x, out;
    gk_reduce_params params;
    unsigned char *result;
    double want[MAX_OUTPUTS];
} fixture;

static fixture f;

static gk_dtype out_dtype(gk_dtype x, gk_reduce_op op)
{
    return op == GK_REDUCE_ARGMAX ? GK_I32 : x;
}

/* out's shape and packed strides for x's. */
static gk_tensor out_like(const gk_tensor *x, const gk_reduce_params *p)
{
    gk_tensor out = {.dtype = out_dtype((gk_dtype)x->dtype, p->op)};
    for (int axis = 0; axis < x->rank; axis++) {
        const bool goes = p->axis == GK_REDUCE_ALL || axis == p->axis;
        if (!goes || p->keepdim) {
            out.shape[out.rank++] = goes ? 1 : x->shape[axis];
        }
    }
    if (out.rank == 0) {
        out.shape[out.rank++] = 1;
    }
    for (int axis = out.rank, stride = 1; axis-- > 0;) {
        out.stride[axis] = stride;
        stride *= (int)(out.shape[axis] > 0 ? out.shape[axis] : 1);
    }
    return out;
}

static void create_as(const gk_tensor *x, const gk_tensor *out, int64_t offset,
                      const gk_reduce_params *params)
{
    memset(&f, 0, sizeof(f));
    f.params = *params;
    assert_gk_ok(op_buffer_create(&f.x, op_case_ctx, op_test_is_cpu(), x, offset, false));
    assert_gk_ok(op_buffer_create(&f.out, op_case_ctx, op_test_is_cpu(), out, offset, true));
    f.result = malloc(f.out.bytes);
    assert_non_null(f.result);
    assert_true(op_tensor_count(out) <= MAX_OUTPUTS);
}

static void create(const gk_tensor *x, int64_t offset, gk_reduce_op op, int32_t axis,
                   int32_t keepdim)
{
    const gk_reduce_params params = {sizeof(params), op, axis, keepdim};
    const gk_tensor out = out_like(x, &params);
    create_as(x, &out, offset, &params);
}

static void destroy(void)
{
    op_buffer_destroy(&f.x);
    op_buffer_destroy(&f.out);
    free(f.result);
}

/* --- what is expected --- */

static bool above(double a, double b, bool largest)
{
    return largest ? a > b : a < b;
}

/* Every element of x, in row-major order, into the place that its index without the axis names. */
static void expect(void)
{
    const gk_tensor *x = &f.x.host;
    const int64_t outputs = op_tensor_count(&f.out.host);
    const bool largest = f.params.op != GK_REDUCE_MIN;
    int64_t *seen = calloc((size_t)outputs + 1, sizeof(*seen));
    double *best = calloc((size_t)outputs + 1, sizeof(*best));
    if (seen == NULL || best == NULL) {
        abort();
    }
    memset(f.want, 0, sizeof(f.want));
    const int64_t count = op_tensor_count(x);
    for (int64_t i = 0; i < count; i++) {
        int64_t rest = i, to = 0, scale = 1;
        for (int axis = x->rank; axis-- > 0; rest /= x->shape[axis]) {
            if (f.params.axis != GK_REDUCE_ALL && axis != f.params.axis) {
                to += rest % x->shape[axis] * scale;
                scale *= x->shape[axis];
            }
        }
        const double value = op_tensor_at(x, i);
        const int64_t index = seen[to]++;
        if (f.params.op == GK_REDUCE_SUM || f.params.op == GK_REDUCE_MEAN) {
            f.want[to] += value;
        } else if (index == 0 ||
                   (!isnan(best[to]) && (isnan(value) || above(value, best[to], largest)))) {
            best[to] = value;
            f.want[to] = f.params.op == GK_REDUCE_ARGMAX ? (double)index : value;
        }
    }
    for (int64_t i = 0; i < outputs && f.params.op == GK_REDUCE_MEAN; i++) {
        f.want[i] /= (double)seen[i];
    }
    free(seen);
    free(best);
}

/* Exact, but for sums: one unit in the last place of out. */
static void compare(const char *variant, const char *config)
{
    const gk_tensor got = op_buffer_view(&f.out, f.result);
    const double unit = f.params.op <= GK_REDUCE_MEAN ? 2 * op_value_unit((gk_dtype)got.dtype) : 0;
    const int64_t count = op_tensor_count(&got);
    for (int64_t i = 0; i < count; i++) {
        const double value = op_tensor_at(&got, i);
        const double want = f.want[i];
        const bool good =
            isnan(want) ? isnan(value) : value == want || fabs(value - want) <= unit * fabs(want);
        if (!good) {
            fail_msg("%s %s: element %lld is %.9g, not %.9g (op %d, axis %d)", variant, config,
                     (long long)i, value, want, (int)f.params.op, (int)f.params.axis);
        }
    }
}

/* --- runs --- */

static void upload(void)
{
    assert_gk_ok(op_buffer_upload(&f.x));
    assert_gk_ok(op_buffer_upload(&f.out));
}

static void fetch(void)
{
    int64_t damage;
    assert_gk_ok(gk_synchronize(op_case_ctx, NULL));
    assert_gk_ok(op_buffer_download(&f.out, f.result, &damage));
    if (damage != INT64_MIN) {
        fail_msg("written outside out, byte %lld from its beginning", (long long)damage);
    }
    unsigned char *data = malloc(f.x.bytes);
    assert_non_null(data);
    assert_gk_ok(op_buffer_download(&f.x, data, &damage));
    free(data);
    assert_true(damage == INT64_MIN);
}

static void run_untuned(void)
{
    upload();
    assert_gk_ok(gk_reduce(op_case_ctx, &f.x.device, &f.out.device, &f.params, NULL));
    fetch();
    compare("untuned", "");
}

/* False if the engine refuses the configuration. */
static bool run_forced(const gk_variant *variant, const gk_config *config)
{
    char text[256];
    op_config_text(variant, config, text, sizeof(text));
    const gk_plan_options options = {
        .struct_size = sizeof(options), .variant = variant->name, .config = text};
    gk_call call;
    gk_plan *plan;
    assert_gk_ok(gk_reduce_call(&call, &f.x.device, &f.out.device, &f.params));
    const gk_status status = gk_plan_create(&plan, op_case_ctx, "reduce", &call, &options);
    if (status == GK_ERR_NO_CONFIG) {
        return false;
    }
    assert_gk_ok(status);
    upload();
    assert_gk_ok(gk_plan_run(plan, &call, NULL));
    fetch();
    compare(variant->name, text);
    gk_plan_destroy(&plan);
    return true;
}

/* The untuned call, then a spread of each variant's kernels with all launch-time values. */
static void run_every(void)
{
    const gk_op_desc *op = gk_op_find("reduce", NULL);
    gk_device_info device;
    gk_problem problem;
    gk_call call;
    uint32_t ran = 0;
    memset(&problem, 0, sizeof(problem));
    run_untuned();
    assert_gk_ok(gk_reduce_call(&call, &f.x.device, &f.out.device, &f.params));
    assert_gk_ok(op->infer(&call, &problem));
    assert_gk_ok(gk_device_info_get(op_case_ctx, &device));
    for (uint32_t v = 0; v < op->n_variants; v++) {
        uint32_t count;
        gk_config *configs =
            op_configs_spread(op->variants[v], &problem, &device, op_case_limit(), 0, &count);
        for (uint32_t i = 0; i < count; i++) {
            gk_config config = configs[i];
            for (uint32_t l = 0; op_config_launch(op->variants[v], &config, l); l++) {
                ran += run_forced(op->variants[v], &config) ? 1 : 0;
            }
        }
        free(configs);
    }
    assert_true(ran > 0);
}

/* Small whole numbers, so that every sum is exact. */
static void fill_whole(uint64_t seed)
{
    op_random r = {seed};
    const int64_t count = op_tensor_count(&f.x.host);
    for (int64_t i = 0; i < count; i++) {
        op_buffer_set_at(&f.x, i, (double)op_random_below(&r, 9) - 4);
    }
}

#endif
