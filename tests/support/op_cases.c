#include "op_cases.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "op_configs.h"

const char *op_test_device(void)
{
    const char *name = getenv("GK_TEST_DEVICE");
    return name != NULL && name[0] != '\0' ? name : "cpu";
}

bool op_test_is_cpu(void)
{
    return strcmp(op_test_device(), "cpu") == 0;
}

uint32_t op_case_limit(void)
{
    const char *text = getenv("GK_TEST_CONFIGS");
    return text != NULL ? (uint32_t)strtoul(text, NULL, 10) : op_test_is_cpu() ? 2 : 0;
}

gk_context *op_test_context(gk_mode mode, const char *cache_path)
{
    const gk_context_options options = {.struct_size = sizeof(options),
                                        .cache_path = cache_path != NULL ? cache_path : ":memory:",
                                        .mode = mode,
                                        /* Not for the clock to end, but by the number tried. */
                                        .tune_budget_s = op_test_is_cpu() ? 120 : 10};
    gk_context *ctx;
    assert_gk_ok(gk_context_create(&ctx, op_test_device(), &options));
    return ctx;
}

gk_context *op_case_ctx;

int op_case_open(void **state)
{
    (void)state;
    op_case_ctx = op_test_context(GK_MODE_HEURISTIC, NULL);
    return 0;
}

int op_case_close(void **state)
{
    (void)state;
    gk_context_destroy(&op_case_ctx);
    return 0;
}

int op_test_missing(void)
{
    const gk_context_options options = {.struct_size = sizeof(options), .cache_path = ":memory:"};
    gk_context *ctx;
    const gk_status status = gk_context_create(&ctx, op_test_device(), &options);
    if (status != GK_OK) {
        fprintf(stderr, "%s: %s\n", gk_status_name(status), gk_error_last()->message);
        return status == GK_ERR_NO_DRIVER && getenv("GK_TEST_REQUIRE_GPU") == NULL ? 77 : 1;
    }
    gk_context_destroy(&ctx);
    return 0;
}

static gk_tensor matrix(gk_dtype dtype, int64_t rows, int64_t cols, bool wide)
{
    return gk_matrix_strided(NULL, dtype, rows, cols, wide ? (cols + 15) / 16 * 16 : cols, 1);
}

void op_operands_create_as(op_operands *o, gk_context *ctx, const gk_tensor *a, const gk_tensor *b,
                           const gk_tensor *c, int64_t offset)
{
    const gk_matmul_params params = GK_MATMUL_PARAMS_INIT;
    memset(o, 0, sizeof(*o));
    o->params = params;
    assert_gk_ok(op_buffer_create(&o->a, ctx, op_test_is_cpu(), a, offset, false));
    assert_gk_ok(op_buffer_create(&o->b, ctx, op_test_is_cpu(), b, offset, false));
    assert_gk_ok(op_buffer_create(&o->c, ctx, op_test_is_cpu(), c, offset, true));
    o->result = malloc(o->c.bytes);
    assert_non_null(o->result);
}

void op_operands_create(op_operands *o, gk_context *ctx, gk_dtype in, gk_dtype out, int64_t m,
                        int64_t n, int64_t k, bool wide)
{
    const gk_tensor a = matrix(in, m, k, wide);
    const gk_tensor b = matrix(in, k, n, wide);
    const gk_tensor c = matrix(out, m, n, wide);
    op_operands_create_as(o, ctx, &a, &b, &c, 0);
}

void op_operands_bias(op_operands *o, gk_dtype dtype)
{
    const gk_tensor bias = gk_vector(NULL, dtype, o->c.host.shape[1]);
    assert_gk_ok(op_buffer_create(&o->bias, o->c.ctx, op_test_is_cpu(), &bias, 0, false));
    o->params.bias = &o->bias.device;
}

void op_operands_destroy(op_operands *o)
{
    op_buffer *const all[] = {&o->a, &o->b, &o->c, &o->bias, &o->residual};
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        op_buffer_destroy(all[i]);
    }
    free(o->result);
}

gk_call op_operands_call(const op_operands *o)
{
    gk_call call;
    assert_gk_ok(gk_matmul_call(&call, &o->a.device, &o->b.device, &o->c.device, &o->params));
    return call;
}

void op_operands_upload(op_operands *o)
{
    op_buffer *const all[] = {&o->a, &o->b, &o->c, &o->bias, &o->residual};
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        if (all[i]->memory != NULL) {
            assert_gk_ok(op_buffer_upload(all[i]));
        }
    }
}

void op_operands_fetch(op_operands *o)
{
    op_buffer *const inputs[] = {&o->a, &o->b, &o->bias, &o->residual};
    int64_t damage;
    assert_gk_ok(gk_synchronize(o->c.ctx, NULL));
    assert_gk_ok(op_buffer_download(&o->c, o->result, &damage));
    if (damage != INT64_MIN) {
        fail_msg("written outside c, byte %lld from its beginning", (long long)damage);
    }
    for (size_t i = 0; i < sizeof(inputs) / sizeof(inputs[0]); i++) {
        if (inputs[i]->memory == NULL) {
            continue;
        }
        unsigned char *data = malloc(inputs[i]->bytes);
        assert_non_null(data);
        assert_gk_ok(op_buffer_download(inputs[i], data, &damage));
        free(data);
        assert_true(damage == INT64_MIN);
    }
}

double op_operands_c(const op_operands *o, int64_t i, int64_t j)
{
    const gk_tensor view = op_buffer_view(&o->c, o->result);
    return op_tensor_get(&view, i, j);
}

void op_operands_run(gk_context *ctx, op_operands *o)
{
    op_operands_upload(o);
    assert_gk_ok(gk_matmul(ctx, &o->a.device, &o->b.device, &o->c.device, &o->params, NULL));
    op_operands_fetch(o);
}

void op_operands_sums(const op_operands *o, double *sum, double *weighted)
{
    *sum = *weighted = 0;
    for (int64_t i = 0; i < o->c.host.shape[0]; i++) {
        for (int64_t j = 0; j < o->c.host.shape[1]; j++) {
            const double value = op_operands_c(o, i, j);
            *sum += value;
            *weighted += (double)((i + 1) * (j + 1)) * value;
        }
    }
}

void op_operands_pr(op_operands *o)
{
    for (int64_t k = 0; k < o->a.host.shape[1]; k++) {
        for (int64_t i = 0; i < o->a.host.shape[0]; i++) {
            op_buffer_set(&o->a, i, k, (double)((i + k) % 3 - 1));
        }
        for (int64_t j = 0; j < o->b.host.shape[1]; j++) {
            op_buffer_set(&o->b, k, j, (double)((k + 2 * j) % 3 - 1));
        }
    }
}

double op_operands_pr_sum(int64_t row, int64_t col, int64_t depth)
{
    double sum = 0;
    for (int64_t k = 0; k < depth; k++) {
        sum += (double)(((row + k) % 3 - 1) * ((k + 2 * col) % 3 - 1));
    }
    return sum;
}

void op_operands_check_pr(const op_operands *o)
{
    double sum, weighted;
    op_operands_sums(o, &sum, &weighted);
    assert_true(sum == 43);
    assert_true(weighted == 31417);
}

int32_t op_forced_value(const op_forced *forced, const char *name)
{
    for (uint32_t i = 0; i < forced->variant->n_params; i++) {
        if (strcmp(forced->variant->params[i].name, name) == 0) {
            return forced->config.values[i];
        }
    }
    return 0;
}

/* False if the engine refuses the configuration. */
static bool run_forced(gk_context *ctx, op_operands *o, const op_forced *forced)
{
    const gk_plan_options options = {
        .struct_size = sizeof(options), .variant = forced->variant->name, .config = forced->text};
    const gk_call call = op_operands_call(o);
    gk_plan *plan;
    const gk_status status = gk_plan_create(&plan, ctx, "matmul", &call, &options);
    if (status == GK_ERR_NO_CONFIG) {
        return false;
    }
    assert_gk_ok(status);
    op_operands_upload(o);
    assert_gk_ok(gk_plan_run(plan, &call, NULL));
    op_operands_fetch(o);
    gk_plan_destroy(&plan);
    return true;
}

static uint32_t run_variant(gk_context *ctx, op_operands *o, const gk_problem *problem,
                            const gk_device_info *device, bool launch, op_forced *forced,
                            void (*check)(op_operands *o, const op_forced *forced, void *user),
                            void *user)
{
    uint32_t count, ran = 0;
    gk_config *configs =
        op_configs_spread(forced->variant, problem, device, op_case_limit(), 0, &count);
    for (uint32_t i = 0; i < count; i++) {
        forced->config = configs[i];
        for (uint32_t l = 0; l == 0 || launch; l++) {
            if (launch && !op_config_launch(forced->variant, &forced->config, l)) {
                break;
            }
            op_config_text(forced->variant, &forced->config, forced->text, sizeof(forced->text));
            if (run_forced(ctx, o, forced)) {
                check(o, forced, user);
                ran++;
            }
        }
    }
    free(configs);
    return ran;
}

uint32_t op_every_config(gk_context *ctx, op_operands *o, bool launch,
                         void (*check)(op_operands *o, const op_forced *forced, void *user),
                         void *user)
{
    const gk_op_desc *op = gk_op_find("matmul", NULL);
    const gk_call call = op_operands_call(o);
    gk_device_info device;
    gk_problem problem;
    uint32_t ran = 0;
    memset(&problem, 0, sizeof(problem));
    assert_gk_ok(op->infer(&call, &problem));
    assert_gk_ok(gk_device_info_get(ctx, &device));
    for (uint32_t v = 0; v < op->n_variants; v++) {
        op_forced forced = {op->variants[v], {{0}}, ""};
        ran += run_variant(ctx, o, &problem, &device, launch, &forced, check, user);
    }
    return ran;
}
