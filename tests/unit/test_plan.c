/* Plans: forced configurations, what a plan may be run on, empty problems, presets. */
#define _GNU_SOURCE
#include "api_case.h"

static const char SIMT_64[] = "BLOCK_K=8 BLOCK_M=64 BLOCK_N=64 GROUP_M=1 SLICE_K=1 SPLIT_K=1 "
                              "STAGES=3 THREAD_M=8 THREAD_N=8";

static int set_up(void **state)
{
    api_fixture *f = api_set_up(state, matmul_device(), 32);
    f->ctx = context_on(f->fake, GK_MODE_HEURISTIC, f->path, NULL);
    return 0;
}

static gk_status force(api_fixture *f, const char *variant, const char *config)
{
    gk_plan_options options = GK_PLAN_OPTIONS_INIT;
    options.variant = variant;
    options.config = config;
    gk_plan_destroy(&f->plan);
    f->plan = (gk_plan *)(uintptr_t)1;
    const gk_status status = gk_plan_create(&f->plan, f->ctx, "matmul", &f->s->call, &options);
    assert_true((status == GK_OK) == (f->plan != NULL));
    return status;
}

static void test_forced_config(void **state)
{
    api_fixture *f = *state;
    assert_gk_ok(force(f, "simt", SIMT_64));
    const gk_plan_description info = plan_info(f->plan);
    assert_int_equal(info.source, GK_SOURCE_FORCED);
    assert_string_equal(info.op, "matmul");
    assert_string_equal(info.variant, "simt");
    assert_string_equal(info.config, SIMT_64);
    assert_non_null(strstr(info.kernel, "simt"));
    assert_non_null(strstr(info.kernel, "64x64"));
    assert_int_equal(info.grid, 1);
    assert_int_equal(info.threads, 64);
    assert_int_equal(info.registers, 64);
    assert_true(info.smem > 0);
    assert_int_equal(info.workspace, 0);
    assert_true(info.tuned_seconds == 0);
    assert_gk_ok(gk_plan_run(f->plan, &f->s->call, NULL));
    assert_true(square_is_right(f->s, false));
    /* The order of the names is free; the text comes back sorted. */
    assert_gk_ok(force(f, "simt",
                       "THREAD_N=8 THREAD_M=8 STAGES=3 SPLIT_K=1 SLICE_K=1 GROUP_M=1 BLOCK_N=64 "
                       "BLOCK_M=64 BLOCK_K=8"));
    assert_string_equal(plan_info(f->plan).config, SIMT_64);
    assert_int_equal(stats_of(f->ctx).compiles, 1);
    /* What is forced is no answer for others. */
    expect_query(f->path, "SELECT count(*) FROM choice", "0");
}

static unsigned char launched[GK_MAX_KERNEL_ARGS];
static size_t launched_size;

static gk_status note_args(void *user, const fake_module *module, const gki_kernel_launch *launch)
{
    launched_size = launch->args_size;
    memcpy(launched, launch->args, launch->args_size);
    return matmul_on_host(user, module, launch);
}

/* What a caller needs to launch the kernel itself. */
static void test_args(void **state)
{
    api_fixture *f = *state;
    unsigned char args[GK_MAX_KERNEL_ARGS];
    size_t size = sizeof(args);
    f->fake->run = note_args;
    assert_gk_ok(force(f, "simt", SIMT_64));
    assert_gk_ok(gk_plan_run(f->plan, &f->s->call, NULL));
    assert_gk_ok(gk_plan_args(f->plan, &f->s->call, NULL, args, &size));
    assert_int_equal(size, launched_size);
    assert_memory_equal(args, launched, size);
    assert_int_equal(size, sizeof(gk_matmul_args));
    const gk_plan_description info = plan_info(f->plan);
    assert_true(info.cluster <= 1 && info.cooperative == 0 && info.overlap == 1);
    memset(args, 7, sizeof(args));
    size--;
    assert_gk_err(gk_plan_args(f->plan, &f->s->call, NULL, args, &size), GK_ERR_INVALID, "bytes");
    assert_int_equal(args[0], 7);
    size = sizeof(args);
    assert_gk_err(gk_plan_args(NULL, &f->s->call, NULL, args, &size), GK_ERR_INVALID, "plan is");
    assert_gk_err(gk_plan_args(f->plan, NULL, NULL, args, &size), GK_ERR_INVALID, "call is");
    assert_gk_err(gk_plan_args(f->plan, &f->s->call, NULL, NULL, &size), GK_ERR_INVALID, "out is");
    assert_gk_err(gk_plan_args(f->plan, &f->s->call, NULL, args, NULL), GK_ERR_INVALID, "size is");
    square *other = square_new(24);
    assert_gk_err(gk_plan_args(f->plan, &other->call, NULL, args, &size), GK_ERR_INVALID, "M=24");
    gki_free(other);
    gk_tensor none = f->s->tc;
    gk_tensor left = f->s->ta;
    none.shape[0] = 0;
    left.shape[0] = 0;
    gk_call call;
    assert_gk_ok(gk_matmul_call(&call, &left, &f->s->tb, &none, NULL));
    gk_plan_destroy(&f->plan);
    assert_gk_ok(gk_plan_create(&f->plan, f->ctx, "matmul", &call, NULL));
    assert_gk_err(gk_plan_args(f->plan, &call, NULL, args, &size), GK_ERR_INVALID, "nothing");
}

static void test_forced_variant(void **state)
{
    api_fixture *f = *state;
    assert_gk_ok(force(f, "simt", NULL));
    const gk_plan_description info = plan_info(f->plan);
    assert_int_equal(info.source, GK_SOURCE_FORCED);
    assert_string_equal(info.variant, "simt");
    assert_true(info.config[0] != '\0');
    assert_gk_ok(gk_plan_run(f->plan, &f->s->call, NULL));
    assert_true(square_is_right(f->s, false));
    assert_gk_err(force(f, "nonsense", NULL), GK_ERR_NOT_FOUND, "no variant \"nonsense\"");
    assert_gk_err(force(f, "", NULL), GK_ERR_NOT_FOUND, "no variant \"\"");
    assert_gk_err(force(f, NULL, SIMT_64), GK_ERR_INVALID, "options.variant is NULL");
}

static void test_bad_config_text(void **state)
{
    static const char *const bad[] = {
        "",
        "BLOCK_M=64 -DX=1",
        "BLOCK_K=8 BLOCK_M=64 BLOCK_N=64 GROUP_M=1 SLICE_K=1 SPLIT_K=1 STAGES=3 THREAD_M=8",
        "BLOCK_K=8 BLOCK_M=64 BLOCK_N=64 GROUP_M=1 SLICE_K=1 SPLIT_K=1 STAGES=3 THREAD_M=8 "
        "THREAD_N=7",
        "BLOCK_K=8 BLOCK_M=-64 BLOCK_N=64 GROUP_M=1 SLICE_K=1 SPLIT_K=1 STAGES=3 THREAD_M=8 "
        "THREAD_N=8",
        "BLOCK_K=8 BLOCK_M=64 BLOCK_N=64 GROUP_M=1 SLICE_K=1 SPLIT_K=1 STAGES=3 THREAD_M=8 "
        "THREAD_N=8 THREAD_N=8",
        "BLOCK_K=8 BLOCK_M=64 BLOCK_N=64 GROUP_M=1 SLICE_K=1 SPLIT_K=1 STAGES=3 THREAD_M=8 "
        "THREAD_N=8 X=1",
        "BLOCK_K=8 BLOCK_M=64;int_x=1 BLOCK_N=64 GROUP_M=1 SLICE_K=1 SPLIT_K=1 STAGES=3 "
        "THREAD_M=8 THREAD_N=8",
        "BLOCK_K=8 BLOCK_M=4294967360 BLOCK_N=64 GROUP_M=1 SLICE_K=1 SPLIT_K=1 STAGES=3 "
        "THREAD_M=8 THREAD_N=8",
    };
    api_fixture *f = *state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        assert_gk_err(force(f, "simt", bad[i]), GK_ERR_INVALID, "options.config is \"");
        assert_non_null(strstr(gk_error_last()->message, bad[i]));
    }
    /* Listed values that do not go together: the variant's own reason. */
    assert_gk_err(force(f, "simt",
                        "BLOCK_K=8 BLOCK_M=64 BLOCK_N=64 GROUP_M=1 SLICE_K=1 SPLIT_K=64 STAGES=3 "
                        "THREAD_M=8 THREAD_N=8"),
                  GK_ERR_NO_CONFIG, "SPLIT_K is 64");
    assert_int_equal(atomic_load(&f->fake->compile.calls), 0);
    assert_true(square_is_untouched(f->s));
}

/* A device with less shared memory than the configuration takes. */
static void test_config_beyond_the_device(void **state)
{
    api_fixture *f = *state;
    assert_gk_ok(force(f, "simt", SIMT_64));
    const int64_t smem = plan_info(f->plan).smem;
    gk_plan_destroy(&f->plan);
    gk_context_destroy(&f->ctx);
    f->fake->info.smem_per_block_optin = smem - 4;
    f->ctx = context_on(f->fake, GK_MODE_TUNE, NULL, NULL);
    assert_gk_err(force(f, "simt", SIMT_64), GK_ERR_NO_CONFIG, "shared memory");
    /* The others still serve the problem, and it is not among them. */
    square_run(f->ctx, f->s);
    assert_string_not_equal(planned(f->ctx, &f->s->call).config, SIMT_64);
    assert_true(planned(f->ctx, &f->s->call).smem <= smem - 4);
    gk_context_destroy(&f->ctx);
    f->fake->info.smem_per_block_optin = smem;
    f->ctx = context_on(f->fake, GK_MODE_TUNE, NULL, NULL);
    assert_gk_ok(force(f, "simt", SIMT_64));
    assert_int_equal(atomic_load(&f->fake->reserved_smem), smem);
}

static void test_another_problem(void **state)
{
    api_fixture *f = *state;
    double seconds = 0;
    assert_gk_ok(force(f, "simt", SIMT_64));
    square *other = square_new(16);
    assert_gk_err(gk_plan_run(f->plan, &other->call, NULL), GK_ERR_INVALID, "M=16");
    assert_non_null(strstr(gk_error_last()->message, "M=32"));
    assert_gk_err(gk_measure(f->plan, &other->call, 1, 1, &seconds), GK_ERR_INVALID, "M=16");
    const gk_call none = {.args = {NULL}};
    assert_gk_err(gk_plan_run(f->plan, &none, NULL), GK_ERR_INVALID, "a is NULL");
    assert_gk_err(gk_measure(f->plan, &none, 1, 1, &seconds), GK_ERR_INVALID, "a is NULL");
    /* The same shape with an activation is another problem, too. */
    gk_call relu = f->s->call;
    relu.attrs[0] = GK_ACT_RELU;
    assert_gk_err(gk_plan_run(f->plan, &relu, NULL), GK_ERR_INVALID, "activation=relu");
    assert_non_null(strstr(gk_error_last()->message, "activation=none"));
    assert_true(square_is_untouched(f->s));
    assert_true(square_is_untouched(other));
    assert_int_equal(atomic_load(&f->fake->launch.calls), 0);
    /* alpha is no part of the identity. */
    gk_call twice = f->s->call;
    twice.attrs[2] = 2;
    assert_gk_ok(gk_plan_run(f->plan, &twice, NULL));
    const float first = f->s->c[0];
    assert_gk_ok(gk_plan_run(f->plan, &f->s->call, NULL));
    assert_true(square_is_right(f->s, false));
    assert_true(first != 0 && first == 2 * f->s->c[0]);
    gki_free(other);
}

static void test_alignment(void **state)
{
    api_fixture *f = *state;
    square *s = f->s;
    const gk_tensor aligned = s->ta;
    /* A plan for pointers that are multiples of 4 serves multiples of 16, not the reverse. */
    s->ta = gk_matrix(s->a + 1, GK_F32, s->n, s->n);
    assert_gk_ok(force(f, "simt", SIMT_64));
    s->ta = aligned;
    assert_gk_ok(gk_plan_run(f->plan, &s->call, NULL));
    assert_true(square_is_right(s, false));
    assert_gk_ok(force(f, "simt", SIMT_64));
    s->ta = gk_matrix(s->a + 1, GK_F32, s->n, s->n);
    square_poison(s);
    assert_gk_err(gk_plan_run(f->plan, &s->call, NULL), GK_ERR_INVALID, "a=f32.row.4");
    assert_non_null(strstr(gk_error_last()->message, "a=f32.row.16"));
    assert_true(square_is_untouched(s));
    s->ta = aligned;
}

/* Nothing to compute, but what the options name must be there all the same. */
static void check_empty_options(api_fixture *f, const gk_call *call)
{
    gk_plan_options options = GK_PLAN_OPTIONS_INIT;
    gk_plan *plan = NULL;
    options.config = SIMT_64;
    assert_gk_err(gk_plan_create(&plan, f->ctx, "matmul", call, &options), GK_ERR_INVALID,
                  "options.variant is NULL");
    options.variant = "nonsense";
    assert_gk_err(gk_plan_create(&plan, f->ctx, "matmul", call, &options), GK_ERR_NOT_FOUND,
                  "no variant \"nonsense\"");
    options.variant = "simt";
    options.config = "BLOCK_K=8";
    assert_gk_err(gk_plan_create(&plan, f->ctx, "matmul", call, &options), GK_ERR_INVALID,
                  "options.config is \"BLOCK_K=8\"");
    assert_null(plan);
    options.config = SIMT_64;
    assert_gk_ok(gk_plan_create(&plan, f->ctx, "matmul", call, &options));
    assert_int_equal(plan_info(plan).source, GK_SOURCE_EMPTY);
    gk_plan_destroy(&plan);
}

static void test_empty(void **state)
{
    api_fixture *f = *state;
    gk_context_destroy(&f->ctx);
    f->ctx = context_on(f->fake, GK_MODE_TUNE, gk_test_path("empty.db"), NULL);
    gk_tensor a = gk_matrix(NULL, GK_F32, 0, 3);
    gk_tensor b = gk_matrix(NULL, GK_F32, 3, 4);
    gk_tensor c = gk_matrix(NULL, GK_F32, 0, 4);
    gk_call call;
    gk_tune_report report = {.struct_size = sizeof(report)};
    assert_gk_ok(gk_matmul(f->ctx, &a, &b, &c, NULL, NULL));
    assert_gk_ok(gk_matmul_relu(f->ctx, &a, &b, &c, NULL));
    assert_gk_ok(gk_matmul_call(&call, &a, &b, &c, NULL));
    assert_gk_ok(gk_prepare(f->ctx, "matmul", &call, NULL));
    assert_gk_ok(gk_tune(f->ctx, "matmul", &call, NULL, &report));
    assert_int_equal(report.tried, 0);
    assert_gk_ok(gk_plan_create(&f->plan, f->ctx, "matmul", &call, NULL));
    const gk_plan_description info = plan_info(f->plan);
    assert_int_equal(info.source, GK_SOURCE_EMPTY);
    assert_string_equal(info.variant, "");
    assert_string_equal(info.config, "");
    assert_int_equal(info.grid, 0);
    assert_null(info.function);
    assert_gk_ok(gk_plan_run(f->plan, &call, NULL));
    double seconds = 0;
    assert_gk_err(gk_measure(f->plan, &call, 1, 1, &seconds), GK_ERR_INVALID, "computes nothing");
    check_empty_options(f, &call);
    const gk_statistics stats = stats_of(f->ctx);
    assert_int_equal(stats.calls, 0);
    assert_int_equal(stats.tunes, 0);
    assert_int_equal(stats.compiles, 0);
    assert_int_equal(atomic_load(&f->fake->launch.calls), 0);
    expect_query(gk_test_path("empty.db"), "SELECT count(*) FROM problem", "0");
    /* The next, innocent call. */
    square_run(f->ctx, f->s);
}

static void test_empty_sum(void **state)
{
    api_fixture *f = *state;
    gk_context_destroy(&f->ctx);
    f->ctx = context_on(f->fake, GK_MODE_TUNE, NULL, NULL);
    float out[15];
    static const float bias[5] = {-2, -1, 0, 1, 2};
    gk_tensor a = gk_matrix(NULL, GK_F32, 3, 0);
    gk_tensor b = gk_matrix(NULL, GK_F32, 0, 5);
    gk_tensor c = gk_matrix(out, GK_F32, 3, 5);
    gk_tensor tbias = gk_vector((void *)(uintptr_t)bias, GK_F32, 5);
    for (int form = 0; form < 3; form++) {
        gk_matmul_params params = GK_MATMUL_PARAMS_INIT;
        params.bias = form > 0 ? &tbias : NULL;
        params.activation = form > 1 ? GK_ACT_RELU : GK_ACT_NONE;
        for (int i = 0; i < 15; i++) {
            out[i] = NAN;
        }
        assert_gk_ok(gk_matmul(f->ctx, &a, &b, &c, &params, NULL));
        for (int i = 0; i < 15; i++) {
            const float right = form == 0 ? 0 : form == 2 && bias[i % 5] < 0 ? 0 : bias[i % 5];
            assert_true(out[i] == right);
        }
    }
}

static void test_preset(void **state)
{
    api_fixture *f = *state;
    square *s = f->s;
    /* What the preset fixes holds, whatever the calls say; the rest is the calls'. */
    gk_call call = s->call;
    call.attrs[1] = GK_MATH_TF32;
    assert_gk_ok(gk_plan_create(&f->plan, f->ctx, "matmul_relu", &call, NULL));
    assert_non_null(strstr(plan_info(f->plan).kernel, "tf32"));
    gk_plan_destroy(&f->plan);
    call.attrs[1] = GK_MATH_DEFAULT;
    call.attrs[0] = GK_ACT_NONE;
    call.attrs[2] = 5;
    assert_gk_ok(gk_plan_create(&f->plan, f->ctx, "matmul_relu", &call, NULL));
    assert_string_equal(plan_info(f->plan).op, "matmul");
    assert_non_null(strstr(plan_info(f->plan).kernel, "relu"));
    call.attrs[2] = 7;
    assert_gk_ok(gk_plan_run(f->plan, &call, NULL));
    assert_true(square_is_right(s, true));
    double seconds = 0;
    square_poison(s);
    assert_gk_ok(gk_measure(f->plan, &call, 1, 1, &seconds));
    assert_true(square_is_right(s, true));
    assert_true(seconds == 1e-3);
    /* The same problem as gk_matmul_relu's. */
    const uint64_t compiles = stats_of(f->ctx).compiles;
    square_poison(s);
    assert_gk_ok(gk_matmul_relu(f->ctx, &s->ta, &s->tb, &s->tc, NULL));
    assert_true(square_is_right(s, true));
    assert_int_equal(stats_of(f->ctx).compiles, compiles);
    assert_int_equal(stats_of(f->ctx).misses, 2);
}

static void test_out_of_memory(void **state)
{
    api_fixture *f = *state;
    int failures = 0;
    for (int64_t n = 1; n < 60; n++) {
        square_fill(f->s, n); /* a problem that is not known yet */
        f->plan = (gk_plan *)(uintptr_t)1;
        gki_alloc_fail_at(n);
        const gk_status status = gk_plan_create(&f->plan, f->ctx, "matmul", &f->s->call, NULL);
        gki_alloc_fail_at(0);
        /* Some failures the cache copes with. */
        assert_true(status == GK_OK || status == GK_ERR_NOMEM);
        assert_true((status == GK_OK) == (f->plan != NULL));
        failures += status == GK_ERR_NOMEM ? 1 : 0;
        gk_plan_destroy(&f->plan);
    }
    assert_true(failures >= 3);
    assert_gk_ok(gk_plan_create(&f->plan, f->ctx, "matmul", &f->s->call, NULL));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        API_TEST(test_forced_config),
        API_TEST(test_args),
        API_TEST(test_forced_variant),
        API_TEST(test_bad_config_text),
        API_TEST(test_config_beyond_the_device),
        API_TEST(test_another_problem),
        API_TEST(test_alignment),
        API_TEST(test_empty),
        API_TEST(test_empty_sum),
        API_TEST(test_preset),
        API_TEST(test_out_of_memory),
    };
    return GK_TEST_MAIN(tests);
}
