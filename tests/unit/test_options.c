/* Versioned structs: shorter, longer, and wrong ones, through every function that takes them. */
#define _GNU_SOURCE
#include "api_case.h"

#include <sys/mman.h>

typedef struct longer_options {
    gk_context_options known;
    unsigned char more[24];
} longer_options;

static gk_status create(fake_device *fake, const void *options)
{
    gk_context *ctx = (gk_context *)(uintptr_t)1;
    const gk_status status = gki_context_create_on(&ctx, fake_device_driver(fake), 0, options);
    assert_true((status == GK_OK) == (ctx != NULL));
    gk_context_destroy(&ctx);
    assert_null(ctx);
    return status;
}

static void test_read_copies_and_extends(void **state)
{
    (void)state;
    struct {
        size_t struct_size;
        uint64_t a, b;
    } out, in = {sizeof(in), 7, 9};
    memset(&out, 0x5a, sizeof(out));
    assert_gk_ok(gki_options_read(&out, sizeof(out), &in, "options"));
    assert_int_equal(out.a, 7);
    assert_int_equal(out.b, 9);
    in.struct_size = offsetof(__typeof__(in), b);
    memset(&out, 0x5a, sizeof(out));
    assert_gk_ok(gki_options_read(&out, sizeof(out), &in, "options"));
    assert_int_equal(out.a, 7);
    assert_int_equal(out.b, 0);
    memset(&out, 0x5a, sizeof(out));
    assert_gk_ok(gki_options_read(&out, sizeof(out), NULL, "options"));
    assert_int_equal(out.struct_size, 0);
    assert_int_equal(out.a, 0);
    assert_int_equal(out.b, 0);
}

static void test_context_options(void **state)
{
    (void)state;
    fake_device *fake = matmul_device();
    longer_options options = {.known = GK_CONTEXT_OPTIONS_INIT};
    options.known.cache_path = ":memory:";
    assert_gk_ok(create(fake, &options));
    assert_gk_ok(create(fake, NULL));
    /* One that ends behind cache_path; what follows is not read. */
    options.known.mode = (gk_mode)99;
    options.known.struct_size = offsetof(gk_context_options, mode);
    assert_gk_ok(create(fake, &options));
    options.known.struct_size = sizeof(gk_context_options);
    assert_gk_err(create(fake, &options), GK_ERR_INVALID, "options.mode is 99");
    options.known.mode = GK_MODE_DEFAULT;
    options.known.struct_size = sizeof(options);
    assert_gk_ok(create(fake, &options));
    options.more[sizeof(options.more) - 1] = 1;
    assert_gk_err(create(fake, &options), GK_ERR_VERSION, "options.struct_size is");
    options.known.struct_size = 0;
    assert_gk_err(create(fake, &options), GK_ERR_INVALID, "options.struct_size is 0");
    options.known.struct_size = sizeof(size_t) - 1;
    assert_gk_err(create(fake, &options), GK_ERR_INVALID, "options.struct_size is 7");
    options.known.struct_size = sizeof(size_t) + 4; /* half of cache_path */
    assert_gk_err(create(fake, &options), GK_ERR_INVALID, "options.struct_size is 12");
    options.known.struct_size = sizeof(options) - 3;
    assert_gk_err(create(fake, &options), GK_ERR_INVALID, "options.struct_size is 85");
    end_device(&fake);
}

static void test_context_option_values(void **state)
{
    (void)state;
    static const double bad_budgets[] = {-1, -0.001, (double)NAN};
    fake_device *fake = matmul_device();
    gk_context_options options = GK_CONTEXT_OPTIONS_INIT;
    options.cache_path = ":memory:";
    options.mode = (gk_mode)-1;
    assert_gk_err(create(fake, &options), GK_ERR_INVALID, "options.mode is -1");
    options.mode = GK_MODE_CACHED;
    options.compile_threads = -3;
    assert_gk_err(create(fake, &options), GK_ERR_INVALID, "options.compile_threads is -3");
    options.compile_threads = INT32_MAX;
    assert_gk_ok(create(fake, &options));
    options.log_level = (gk_log_level)77;
    assert_gk_err(create(fake, &options), GK_ERR_INVALID, "options.log_level is 77");
    options.log_level = (gk_log_level)-3;
    assert_gk_err(create(fake, &options), GK_ERR_INVALID, "options.log_level is -3");
    options.log_level = GK_LOG_DEBUG;
    assert_gk_ok(create(fake, &options));
    for (size_t i = 0; i < sizeof(bad_budgets) / sizeof(bad_budgets[0]); i++) {
        options.tune_budget_s = bad_budgets[i];
        assert_gk_err(create(fake, &options), GK_ERR_INVALID, "budget");
    }
    end_device(&fake);
}

typedef struct longer_plan_options {
    gk_plan_options known;
    unsigned char more[16];
} longer_plan_options;

static gk_status plan_with(gk_context *ctx, const gk_call *call, const void *options)
{
    gk_plan *plan = (gk_plan *)(uintptr_t)1;
    const gk_status status = gk_plan_create(&plan, ctx, "matmul", call, options);
    assert_true((status == GK_OK) == (plan != NULL));
    gk_plan_destroy(&plan);
    assert_null(plan);
    return status;
}

/* A size that nobody has set; behind the page there is nothing to read or write. */
static void test_sizes_not_set(void **state)
{
    (void)state;
    static const size_t sizes[] = {4097, 4104, 8192, UINT64_C(1) << 40, SIZE_MAX, SIZE_MAX - 7};
    fake_device *fake = matmul_device();
    gk_context *ctx = context_on(fake, GK_MODE_HEURISTIC, NULL, NULL);
    square *s = square_new(8);
    gk_plan *plan = NULL;
    assert_gk_ok(gk_plan_create(&plan, ctx, "matmul", &s->call, NULL));
    unsigned char *pages =
        mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(pages != MAP_FAILED);
    assert_int_equal(mprotect(pages + 4096, 4096, PROT_NONE), 0);
    void *place = pages + 4096 - 1024;
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        memset(place, 0, 1024);
        memcpy(place, &sizes[i], sizeof(sizes[i]));
        assert_gk_err(create(fake, place), GK_ERR_VERSION, "options.struct_size is ");
        assert_gk_err(plan_with(ctx, &s->call, place), GK_ERR_VERSION, "options.struct_size is ");
        assert_gk_err(gk_tune(ctx, "matmul", &s->call, place, NULL), GK_ERR_VERSION,
                      "options.struct_size is ");
        memset((unsigned char *)place + sizeof(size_t), 0x5a, 1024 - sizeof(size_t));
        assert_gk_err(gk_stats(ctx, place), GK_ERR_VERSION, "out.struct_size is ");
        assert_gk_err(gk_plan_info(plan, place), GK_ERR_VERSION, "out.struct_size is ");
        assert_gk_err(gk_tune(ctx, "matmul", &s->call, NULL, place), GK_ERR_VERSION,
                      "report.struct_size is ");
        for (size_t k = sizeof(size_t); k < 1024; k++) {
            assert_int_equal(((unsigned char *)place)[k], 0x5a);
        }
    }
    assert_int_equal(stats_of(ctx).tunes, 0);
    assert_int_equal(munmap(pages, 8192), 0);
    gk_plan_destroy(&plan);
    gki_free(s);
    gk_context_destroy(&ctx);
    end_device(&fake);
}

static void test_plan_options(void **state)
{
    (void)state;
    fake_device *fake = matmul_device();
    gk_context *ctx = context_on(fake, GK_MODE_HEURISTIC, NULL, NULL);
    square *s = square_new(16);
    longer_plan_options options = {.known = GK_PLAN_OPTIONS_INIT};
    assert_gk_ok(plan_with(ctx, &s->call, &options));
    options.known.variant = "nonsense";
    options.known.struct_size = offsetof(gk_plan_options, variant);
    assert_gk_ok(plan_with(ctx, &s->call, &options));
    options.known.variant = NULL;
    options.known.struct_size = sizeof(options);
    assert_gk_ok(plan_with(ctx, &s->call, &options));
    options.more[0] = 1;
    assert_gk_err(plan_with(ctx, &s->call, &options), GK_ERR_VERSION, "options.struct_size is");
    options.known.struct_size = 3;
    assert_gk_err(plan_with(ctx, &s->call, &options), GK_ERR_INVALID, "options.struct_size is 3");
    options.known = (gk_plan_options)GK_PLAN_OPTIONS_INIT;
    options.known.mode = (gk_mode)5;
    assert_gk_err(plan_with(ctx, &s->call, &options), GK_ERR_INVALID, "options.mode is 5");
    options.known.mode = GK_MODE_DEFAULT;
    options.known.tune_budget_s = -2;
    assert_gk_err(plan_with(ctx, &s->call, &options), GK_ERR_INVALID,
                  "options.tune_budget_s is -2");
    options.known.tune_budget_s = (double)NAN;
    assert_gk_err(plan_with(ctx, &s->call, &options), GK_ERR_INVALID, "options.tune_budget_s is");
    gki_free(s);
    gk_context_destroy(&ctx);
    end_device(&fake);
}

typedef struct longer_params {
    gk_matmul_params known;
    unsigned char more[8];
} longer_params;

static void test_matmul_params(void **state)
{
    (void)state;
    fake_device *fake = matmul_device();
    gk_context *ctx = context_on(fake, GK_MODE_HEURISTIC, NULL, NULL);
    square *s = square_new(8);
    longer_params params = {.known = GK_MATMUL_PARAMS_INIT};
    params.known.struct_size = sizeof(params);
    assert_gk_ok(gk_matmul(ctx, &s->ta, &s->tb, &s->tc, &params.known, NULL));
    assert_true(square_is_right(s, false));
    square_poison(s);
    params.more[7] = 1;
    assert_gk_err(gk_matmul(ctx, &s->ta, &s->tb, &s->tc, &params.known, NULL), GK_ERR_VERSION,
                  "params.struct_size is");
    params.known.struct_size = 0;
    assert_gk_err(gk_matmul(ctx, &s->ta, &s->tb, &s->tc, &params.known, NULL), GK_ERR_INVALID,
                  "params.struct_size is 0");
    /* Too short for alpha, which has no default but in the initialiser. */
    params.known.struct_size = sizeof(size_t);
    assert_gk_err(gk_matmul(ctx, &s->ta, &s->tb, &s->tc, &params.known, NULL), GK_ERR_INVALID,
                  "params.struct_size is 8");
    assert_true(square_is_untouched(s));
    /* A header's that ends with the residual; what follows is not read. */
    params.known = (gk_matmul_params)GK_MATMUL_PARAMS_INIT;
    params.known.activation = (gk_activation)77;
    params.known.math = (gk_math)77;
    params.known.struct_size = offsetof(gk_matmul_params, math);
    assert_gk_err(gk_matmul(ctx, &s->ta, &s->tb, &s->tc, &params.known, NULL), GK_ERR_INVALID,
                  "params.struct_size is 44");
    params.known.struct_size = offsetof(gk_matmul_params, activation);
    assert_gk_ok(gk_matmul(ctx, &s->ta, &s->tb, &s->tc, &params.known, NULL));
    assert_true(square_is_right(s, false));
    gki_free(s);
    gk_context_destroy(&ctx);
    end_device(&fake);
}

typedef struct longer_statistics {
    gk_statistics known;
    unsigned char more[16];
} longer_statistics;

static void test_results(void **state)
{
    (void)state;
    fake_device *fake = matmul_device();
    gk_context *ctx = context_on(fake, GK_MODE_HEURISTIC, NULL, NULL);
    square *s = square_new(8);
    square_run(ctx, s);
    longer_statistics stats;
    memset(&stats, 0x5a, sizeof(stats));
    stats.known.struct_size = sizeof(stats);
    assert_gk_ok(gk_stats(ctx, &stats.known));
    assert_int_equal(stats.known.struct_size, sizeof(stats));
    assert_int_equal(stats.known.calls, 1);
    for (size_t i = 0; i < sizeof(stats.more); i++) {
        assert_int_equal(stats.more[i], 0);
    }
    /* An older caller's struct ends behind `launches`; nothing is written past it. */
    memset(&stats, 0x5a, sizeof(stats));
    stats.known.struct_size = offsetof(gk_statistics, compiles);
    assert_gk_ok(gk_stats(ctx, &stats.known));
    assert_int_equal(stats.known.struct_size, offsetof(gk_statistics, compiles));
    assert_int_equal(stats.known.launches, 1);
    assert_true(stats.known.compiles == UINT64_C(0x5a5a5a5a5a5a5a5a));
    static const size_t cut[] = {4, 20, offsetof(gk_statistics, cache_path) + 8,
                                 sizeof(gk_statistics) - 8, sizeof(gk_statistics) + 4};
    for (size_t i = 0; i < sizeof(cut) / sizeof(cut[0]); i++) {
        memset(&stats, 0x5a, sizeof(stats));
        stats.known.struct_size = cut[i];
        assert_gk_err(gk_stats(ctx, &stats.known), GK_ERR_INVALID, "out.struct_size is ");
        assert_true(stats.known.calls == UINT64_C(0x5a5a5a5a5a5a5a5a));
        assert_int_equal(stats.more[0], 0x5a);
    }
    gk_plan *plan = NULL;
    assert_gk_ok(gk_plan_create(&plan, ctx, "matmul", &s->call, NULL));
    gk_plan_description info;
    memset(&info, 0x5a, sizeof(info));
    info.struct_size = offsetof(gk_plan_description, grid);
    assert_gk_ok(gk_plan_info(plan, &info));
    assert_int_equal(info.source, GK_SOURCE_GUESS);
    assert_string_equal(info.op, "matmul");
    assert_true(info.grid == INT64_C(0x5a5a5a5a5a5a5a5a));
    info.struct_size = offsetof(gk_plan_description, op) + 4;
    assert_gk_err(gk_plan_info(plan, &info), GK_ERR_INVALID, "struct_size is 16");
    info.struct_size = 0;
    assert_gk_err(gk_plan_info(plan, &info), GK_ERR_INVALID, "struct_size is 0");
    gk_plan_destroy(&plan);
    gki_free(s);
    gk_context_destroy(&ctx);
    end_device(&fake);
}

static void test_tune_structs(void **state)
{
    (void)state;
    fake_device *fake = matmul_device();
    gk_context *ctx = context_on(fake, GK_MODE_CACHED, NULL, NULL);
    square *s = square_new(8);
    gk_tune_options options = GK_TUNE_OPTIONS_INIT;
    gk_tune_report report;
    memset(&report, 0x5a, sizeof(report));
    options.struct_size = 1;
    report.struct_size = sizeof(report);
    assert_gk_err(gk_tune(ctx, "matmul", &s->call, &options, &report), GK_ERR_INVALID,
                  "options.struct_size is 1");
    options = (gk_tune_options)GK_TUNE_OPTIONS_INIT;
    /* Said before minutes are spent on measuring. */
    report.struct_size = 2;
    assert_gk_err(gk_tune(ctx, "matmul", &s->call, &options, &report), GK_ERR_INVALID,
                  "report.struct_size is 2");
    report.struct_size = sizeof(report);
    options.effort = (gk_effort)9;
    assert_gk_err(gk_tune(ctx, "matmul", &s->call, &options, &report), GK_ERR_INVALID,
                  "options.effort is 9");
    options.effort = GK_EFFORT_QUICK;
    options.budget_s = -1;
    assert_gk_err(gk_tune(ctx, "matmul", &s->call, &options, &report), GK_ERR_INVALID,
                  "options.budget_s is -1");
    options.budget_s = 0;
    options.variant = "nonsense";
    assert_gk_err(gk_tune(ctx, "matmul", &s->call, &options, &report), GK_ERR_NOT_FOUND,
                  "no variant \"nonsense\"");
    assert_int_equal(stats_of(ctx).tunes, 0);
    assert_int_equal(stats_of(ctx).compiles, 0);
    options.variant = NULL;
    report.struct_size = offsetof(gk_tune_report, config);
    assert_int_equal(report.struct_size % 8, 4);
    assert_gk_err(gk_tune(ctx, "matmul", &s->call, &options, &report), GK_ERR_INVALID,
                  "report.struct_size is");
    report.struct_size = offsetof(gk_tune_report, tried);
    report.tried = 12345;
    assert_gk_ok(gk_tune(ctx, "matmul", &s->call, &options, &report));
    assert_false(report.from_cache);
    assert_int_equal(report.tried, 12345);
    assert_int_equal(stats_of(ctx).tunes, 1);
    gki_free(s);
    gk_context_destroy(&ctx);
    end_device(&fake);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_read_copies_and_extends),
        cmocka_unit_test(test_context_options),
        cmocka_unit_test(test_context_option_values),
        cmocka_unit_test(test_sizes_not_set),
        cmocka_unit_test(test_plan_options),
        cmocka_unit_test(test_matmul_params),
        cmocka_unit_test(test_results),
        cmocka_unit_test(test_tune_structs),
    };
    return GK_TEST_MAIN(tests);
}
