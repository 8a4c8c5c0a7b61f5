/* Contexts: what they take, what they refuse, memory, statistics, and the arguments of every
 * public function. */
#define _GNU_SOURCE
#include "api_case.h"

#include "in_child.h"

static void test_device_names(void **state)
{
    (void)state;
    static const char *const bad[] = {"",        "gpu",     "CUDA",
                                      "cuda:",   "cuda:-1", "cuda:x",
                                      "cuda:1x", "cuda: 1", "cuda:99999999999",
                                      "cpu:0",   "cuda:0:0"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        gk_context *ctx = (gk_context *)(uintptr_t)1;
        assert_gk_err(gk_context_create(&ctx, bad[i], NULL), GK_ERR_INVALID, "device is \"");
        assert_null(ctx);
        assert_non_null(strstr(gk_error_last()->message, bad[i]));
    }
    assert_gk_err(gk_context_create(NULL, "cpu", NULL), GK_ERR_INVALID, "out is NULL");
    fake_device *fake = matmul_device();
    gk_context *ctx = (gk_context *)(uintptr_t)1;
    assert_gk_err(gki_context_create_on(&ctx, fake_device_driver(fake), 3, NULL), GK_ERR_INVALID,
                  "ordinal 3");
    assert_null(ctx);
    end_device(&fake);
}

static gk_status create(fake_device *fake)
{
    gk_context_options options = GK_CONTEXT_OPTIONS_INIT;
    gk_context *ctx = (gk_context *)(uintptr_t)1;
    options.cache_path = ":memory:";
    const gk_status status = gki_context_create_on(&ctx, fake_device_driver(fake), 0, &options);
    assert_true((status == GK_OK) == (ctx != NULL));
    gk_context_destroy(&ctx);
    return status;
}

static void test_variables(void **state)
{
    (void)state;
    static const char *const modes[] = {"tune", "heuristic", "cached", "pinned"};
    static const char *const bad_modes[] = {"Tune", "tune ", "1", "none"};
    static const char *const bad_budgets[] = {"2s", "-1", "inf", "nan", "1,5", " 1"};
    fake_device *fake = matmul_device();
    for (size_t i = 0; i < 4; i++) {
        gk_context *ctx = NULL;
        assert_int_equal(setenv("GK_MODE", modes[i], 1), 0);
        assert_gk_ok(gki_context_create_on(&ctx, fake_device_driver(fake), 0, NULL));
        assert_int_equal(ctx->mode, GK_MODE_TUNE + (int)i);
        gk_context_destroy(&ctx);
        ctx = context_on(fake, GK_MODE_CACHED, NULL, NULL);
        assert_int_equal(ctx->mode, GK_MODE_CACHED);
        gk_context_destroy(&ctx);
        assert_int_equal(setenv("GK_MODE", bad_modes[i], 1), 0);
        assert_gk_err(create(fake), GK_ERR_INVALID, "GK_MODE is \"");
        assert_non_null(strstr(gk_error_last()->message, bad_modes[i]));
    }
    assert_int_equal(setenv("GK_MODE", "", 1), 0);
    assert_gk_ok(create(fake));
    for (size_t i = 0; i < sizeof(bad_budgets) / sizeof(bad_budgets[0]); i++) {
        assert_int_equal(setenv("GK_TUNE_BUDGET", bad_budgets[i], 1), 0);
        assert_gk_err(create(fake), GK_ERR_INVALID, "GK_TUNE_BUDGET is ");
        assert_non_null(strstr(gk_error_last()->message, bad_budgets[i]));
    }
    assert_int_equal(setenv("GK_TUNE_BUDGET", "0.25", 1), 0);
    gk_context *ctx = context_within(fake, GK_MODE_TUNE, NULL, NULL, 0);
    assert_true(ctx->tune_budget_s == 0.25);
    gk_context_destroy(&ctx);
    assert_int_equal(unsetenv("GK_TUNE_BUDGET"), 0);
    ctx = context_within(fake, GK_MODE_TUNE, NULL, NULL, 0);
    assert_true(ctx->tune_budget_s == 2);
    gk_context_destroy(&ctx);
    end_device(&fake);
}

static void test_destroy_nothing(void **state)
{
    (void)state;
    gk_context *ctx = NULL;
    gk_plan *plan = NULL;
    gk_context_destroy(NULL);
    gk_context_destroy(&ctx);
    gk_plan_destroy(NULL);
    gk_plan_destroy(&plan);
    assert_null(ctx);
    assert_null(plan);
}

static bool any_entry(void *user, const gk_cache_entry *entry)
{
    (void)user;
    (void)entry;
    return true;
}

static bool any_trial(void *user, const gk_trial *trial)
{
    (void)user;
    (void)trial;
    return true;
}

static bool any_miss(void *user, const char *op, const char *problem, uint64_t calls)
{
    (void)user;
    (void)op;
    (void)problem;
    (void)calls;
    return true;
}

#define refused(expr, name) assert_gk_err((expr), GK_ERR_INVALID, name " is NULL")

/* No function crashes without a context, and all say what is missing. */
static void test_no_context(void **state)
{
    (void)state;
    square *s = square_new(8);
    void *memory = s->a;
    gk_statistics stats = {.struct_size = sizeof(stats)};
    gk_device_info info;
    gk_plan *plan = (gk_plan *)(uintptr_t)1;
    refused(gk_mem_alloc(NULL, 16, &memory), "ctx");
    assert_null(memory);
    memory = s->a;
    refused(gk_mem_free(NULL, &memory), "ctx");
    assert_ptr_equal(memory, s->a);
    refused(gk_mem_upload(NULL, s->a, s->b, 4, NULL), "ctx");
    refused(gk_mem_download(NULL, s->a, s->b, 4, NULL), "ctx");
    refused(gk_synchronize(NULL, NULL), "ctx");
    refused(gk_stats(NULL, &stats), "ctx");
    refused(gk_device_info_get(NULL, &info), "ctx");
    refused(gk_matmul(NULL, &s->ta, &s->tb, &s->tc, NULL, NULL), "ctx");
    refused(gk_matmul_relu(NULL, &s->ta, &s->tb, &s->tc, NULL), "ctx");
    refused(gk_plan_create(&plan, NULL, "matmul", &s->call, NULL), "ctx");
    assert_null(plan);
    refused(gk_prepare(NULL, "matmul", &s->call, NULL), "ctx");
    refused(gk_tune(NULL, "matmul", &s->call, NULL, NULL), "ctx");
    refused(gk_cache_list(NULL, NULL, any_entry, NULL), "ctx");
    refused(gk_cache_trials(NULL, "matmul", &s->call, any_trial, NULL), "ctx");
    refused(gk_cache_misses(NULL, any_miss, NULL), "ctx");
    refused(gk_cache_export(NULL, "x", NULL), "ctx");
    refused(gk_cache_import(NULL, "x", false, NULL, NULL), "ctx");
    assert_true(square_is_untouched(s));
    gki_free(s);
}

static void check_null_operands(gk_context *ctx, square *s)
{
    const gk_call none = {.args = {NULL}};
    gk_plan *plan = NULL;
    refused(gk_matmul(ctx, NULL, &s->tb, &s->tc, NULL, NULL), "a");
    refused(gk_matmul(ctx, &s->ta, NULL, &s->tc, NULL, NULL), "b");
    refused(gk_matmul(ctx, &s->ta, &s->tb, NULL, NULL, NULL), "c");
    refused(gk_matmul_relu(ctx, NULL, &s->tb, &s->tc, NULL), "a");
    refused(gk_matmul_relu(ctx, &s->ta, &s->tb, NULL, NULL), "c");
    refused(gk_matmul_call(NULL, &s->ta, &s->tb, &s->tc, NULL), "call");
    refused(gk_plan_create(NULL, ctx, "matmul", &s->call, NULL), "out");
    refused(gk_plan_create(&plan, ctx, NULL, &s->call, NULL), "op");
    refused(gk_plan_create(&plan, ctx, "matmul", NULL, NULL), "call");
    refused(gk_plan_create(&plan, ctx, "matmul", &none, NULL), "a");
    assert_gk_err(gk_plan_create(&plan, ctx, "nonsense", &s->call, NULL), GK_ERR_NOT_FOUND,
                  "\"nonsense\"");
    assert_null(plan);
    refused(gk_prepare(ctx, NULL, &s->call, NULL), "op");
    refused(gk_prepare(ctx, "matmul", NULL, NULL), "call");
    refused(gk_tune(ctx, NULL, &s->call, NULL, NULL), "op");
    refused(gk_tune(ctx, "matmul", NULL, NULL, NULL), "call");
}

static void test_null_arguments(void **state)
{
    (void)state;
    fake_device *fake = matmul_device();
    gk_context *ctx = context_on(fake, GK_MODE_HEURISTIC, NULL, NULL);
    square *s = square_new(8);
    double seconds = 0;
    gk_plan *plan = NULL;
    void *memory = s->a;
    check_null_operands(ctx, s);
    refused(gk_mem_alloc(ctx, 16, NULL), "out");
    refused(gk_mem_upload(ctx, NULL, s->a, 4, NULL), "dst");
    refused(gk_mem_upload(ctx, s->a, NULL, 4, NULL), "src");
    refused(gk_mem_download(ctx, NULL, s->a, 4, NULL), "dst");
    refused(gk_mem_download(ctx, s->a, NULL, 4, NULL), "src");
    refused(gk_stats(ctx, NULL), "out");
    refused(gk_device_info_get(ctx, NULL), "out");
    refused(gk_plan_info(NULL, NULL), "plan");
    refused(gk_plan_run(NULL, &s->call, NULL), "plan");
    refused(gk_measure(NULL, &s->call, 1, 1, &seconds), "plan");
    assert_gk_ok(gk_plan_create(&plan, ctx, "matmul", &s->call, NULL));
    refused(gk_plan_info(plan, NULL), "out");
    refused(gk_plan_run(plan, NULL, NULL), "call");
    refused(gk_measure(plan, NULL, 1, 1, &seconds), "calls");
    refused(gk_measure(plan, &s->call, 1, 1, NULL), "seconds");
    assert_gk_err(gk_measure(plan, &s->call, 0, 1, &seconds), GK_ERR_INVALID, "n_calls is 0");
    gk_plan_destroy(&plan);
    refused(gk_cache_list(ctx, NULL, NULL, NULL), "fn");
    refused(gk_cache_trials(ctx, "matmul", &s->call, NULL, NULL), "fn");
    refused(gk_cache_trials(ctx, NULL, &s->call, any_trial, &memory), "op");
    refused(gk_cache_misses(ctx, NULL, NULL), "fn");
    refused(gk_cache_export(ctx, NULL, NULL), "path");
    refused(gk_cache_import(ctx, NULL, false, NULL, NULL), "path");
    assert_true(square_is_untouched(s));
    assert_int_equal(atomic_load(&fake->launch.calls), 0);
    gki_free(s);
    gk_context_destroy(&ctx);
    end_device(&fake);
}

static void test_memory(void **state)
{
    (void)state;
    fake_device *fake = matmul_device();
    gk_context *ctx = context_on(fake, GK_MODE_TUNE, NULL, NULL);
    static const char text[] = "sixteen bytes..";
    char back[sizeof(text)] = "";
    void *memory = (void *)(uintptr_t)1;
    assert_gk_ok(gk_mem_alloc(ctx, 0, &memory));
    assert_null(memory);
    assert_int_equal(atomic_load(&fake->alloc.calls), 0);
    assert_gk_ok(gk_mem_free(ctx, &memory));
    assert_gk_ok(gk_mem_free(ctx, NULL));
    assert_gk_ok(gk_mem_alloc(ctx, sizeof(text), &memory));
    assert_int_equal((uintptr_t)memory % 256, 0);
    assert_gk_ok(gk_mem_upload(ctx, memory, text, sizeof(text), NULL));
    assert_gk_ok(gk_mem_download(ctx, back, memory, sizeof(text), NULL));
    assert_string_equal(back, text);
    /* Nothing to copy: no pointer is needed. */
    const int copies = atomic_load(&fake->copy.calls);
    assert_gk_ok(gk_mem_upload(ctx, NULL, NULL, 0, NULL));
    assert_gk_ok(gk_mem_download(ctx, NULL, NULL, 0, NULL));
    assert_int_equal(atomic_load(&fake->copy.calls), copies);
    assert_gk_ok(gk_synchronize(ctx, NULL));
    assert_gk_ok(gk_mem_free(ctx, &memory));
    assert_null(memory);
    assert_int_equal(atomic_load(&fake->live_allocations), 0);
    fake->alloc.fail_at = atomic_load(&fake->alloc.calls) + 1;
    fake->alloc.status = GK_ERR_NOMEM;
    memory = (void *)(uintptr_t)1;
    assert_gk_err(gk_mem_alloc(ctx, 64, &memory), GK_ERR_NOMEM, "mem_alloc");
    assert_null(memory);
    assert_gk_ok(gk_mem_alloc(ctx, 64, &memory));
    fake->copy.fail_at = atomic_load(&fake->copy.calls) + 1;
    assert_gk_err(gk_mem_upload(ctx, memory, text, 4, NULL), GK_ERR_DEVICE, "copy");
    assert_gk_ok(gk_mem_free(ctx, &memory));
    gk_context_destroy(&ctx);
    end_device(&fake);
}

static void test_statistics(void **state)
{
    (void)state;
    fake_device *fake = matmul_device();
    const char *path = gk_test_path("stats.db");
    gk_context *ctx = context_on(fake, GK_MODE_HEURISTIC, path, NULL);
    square *s = square_new(8);
    gk_statistics stats = stats_of(ctx);
    assert_string_equal(stats.cache_path, path);
    assert_string_equal(stats.cache_degraded, "");
    assert_int_equal(stats.calls + stats.compiles + stats.misses + stats.guesses, 0);
    square_run(ctx, s);
    square_run(ctx, s);
    stats = stats_of(ctx);
    assert_int_equal(stats.calls, 2);
    assert_int_equal(stats.launches, 2);
    assert_int_equal(stats.compiles, 1);
    assert_int_equal(stats.compile_failures, 0);
    assert_int_equal(stats.kernels_loaded, 1);
    assert_int_equal(stats.misses, 1);
    assert_int_equal(stats.guesses, 1);
    assert_int_equal(stats.tunes, 0);
    assert_int_equal(stats.hits_cache, 0);
    assert_int_equal(stats.cache_errors, 0);
    gk_context_destroy(&ctx);
    ctx = context_on(fake, GK_MODE_CACHED, gk_test_path("no/such/\x01/dir\x02"), NULL);
    gk_device_info info;
    memset(&info, 0x5a, sizeof(info));
    assert_gk_ok(gk_device_info_get(ctx, &info));
    assert_string_equal(info.name, "fake H100");
    assert_int_equal(info.sm_count, 132);
    gk_context_destroy(&ctx);
    ctx = context_on(fake, GK_MODE_CACHED, NULL, NULL);
    assert_string_equal(stats_of(ctx).cache_path, "");
    gk_context_destroy(&ctx);
    gki_free(s);
    end_device(&fake);
}

enum { FORKED_CALLS = 13 };
typedef struct forked {
    gk_context *ctx;
    const gk_plan *plan;
    square *s;
    gk_status statuses[FORKED_CALLS];
    bool untouched;
    gk_status again;
} forked;

static gk_context *parent_ctx;
static gk_plan *parent_plan;
static square *parent_square;
static fake_device *parent_fake;

static void use_in_child(void *data)
{
    forked *f = data;
    square *s = parent_square;
    void *memory = NULL;
    square_poison(s);
    f->statuses[0] = gk_matmul(parent_ctx, &s->ta, &s->tb, &s->tc, NULL, NULL);
    f->statuses[1] = gk_plan_run(parent_plan, &s->call, NULL);
    f->statuses[2] = gk_mem_alloc(parent_ctx, 16, &memory);
    f->statuses[3] = gk_synchronize(parent_ctx, NULL);
    f->statuses[4] = gk_tune(parent_ctx, "matmul", &s->call, NULL, NULL);
    f->statuses[5] = gk_prepare(parent_ctx, "matmul", &s->call, NULL);
    f->statuses[6] = gk_cache_list(parent_ctx, NULL, any_entry, NULL);
    f->statuses[7] = gk_mem_free(parent_ctx, &memory);
    gk_statistics stats = {.struct_size = sizeof(stats)};
    gk_plan_description description = {.struct_size = sizeof(description)};
    gk_device_info info;
    double seconds = 0;
    unsigned char args[GK_MAX_KERNEL_ARGS];
    size_t size = sizeof(args);
    f->statuses[8] = gk_stats(parent_ctx, &stats);
    f->statuses[9] = gk_device_info_get(parent_ctx, &info);
    f->statuses[10] = gk_plan_info(parent_plan, &description);
    f->statuses[11] = gk_measure(parent_plan, &s->call, 1, 1, &seconds);
    f->statuses[12] = gk_plan_args(parent_plan, &s->call, NULL, args, &size);
    f->untouched = square_is_untouched(s);
    /* A context of the child's own works. */
    gk_context_options options = GK_CONTEXT_OPTIONS_INIT;
    gk_context *ctx = NULL;
    options.cache_path = ":memory:";
    options.mode = GK_MODE_HEURISTIC;
    f->again = gki_context_create_on(&ctx, fake_device_driver(parent_fake), 0, &options);
    if (f->again == GK_OK) {
        f->again = gk_matmul(ctx, &s->ta, &s->tb, &s->tc, NULL, NULL);
        f->untouched = f->untouched && square_is_right(s, false);
    }
    gk_context_destroy(&ctx);
}

static void test_fork(void **state)
{
    (void)state;
    forked f;
    parent_fake = matmul_device();
    parent_ctx = context_on(parent_fake, GK_MODE_TUNE, gk_test_path("fork.db"), NULL);
    parent_square = square_new(8);
    square_run(parent_ctx, parent_square);
    assert_gk_ok(gk_plan_create(&parent_plan, parent_ctx, "matmul", &parent_square->call, NULL));
    memset(&f, 0x5a, sizeof(f));
    in_child(use_in_child, &f, sizeof(f));
    for (size_t i = 0; i < FORKED_CALLS; i++) {
        assert_int_equal(f.statuses[i], GK_ERR_FORKED);
    }
    assert_true(f.untouched);
    assert_int_equal(f.again, GK_OK);
    /* The parent goes on, with its cache file. */
    square_run(parent_ctx, parent_square);
    square *other = square_new(16);
    square_run(parent_ctx, other);
    assert_int_equal(stats_of(parent_ctx).tunes, 2);
    assert_string_equal(stats_of(parent_ctx).cache_degraded, "");
    gk_plan_destroy(&parent_plan);
    gk_context_destroy(&parent_ctx);
    expect_query(gk_test_path("fork.db"), "SELECT count(*) FROM choice", "2");
    gki_free(other);
    gki_free(parent_square);
    end_device(&parent_fake);
}

/* One life of a context; *reached: how far it came. */
static gk_status whole_life(fake_device *fake, square *s, gk_mode mode, int *reached)
{
    gk_context_options options = GK_CONTEXT_OPTIONS_INIT;
    gk_context *ctx = (gk_context *)(uintptr_t)1;
    *reached = 0;
    options.cache_path = ":memory:";
    options.mode = mode;
    options.compile_threads = 1;
    options.tune_budget_s = 0.05;
    gk_status status = gki_context_create_on(&ctx, fake_device_driver(fake), 0, &options);
    if (status != GK_OK) {
        assert_null(ctx);
        return status;
    }
    *reached = 1;
    status = gk_matmul_relu(ctx, &s->ta, &s->tb, &s->tc, NULL);
    if (status != GK_OK) {
        assert_true(square_is_untouched(s));
        /* Only that one allocation failed: the next call works. */
        gki_alloc_fail_at(0);
        assert_gk_ok(gk_matmul_relu(ctx, &s->ta, &s->tb, &s->tc, NULL));
    }
    assert_true(square_is_right(s, true));
    *reached = 2;
    gk_context_destroy(&ctx);
    assert_null(ctx);
    return status;
}

/* Every one of the first `dense` allocations fails in turn, then one in ever larger steps. */
static void sweep(gk_mode mode, int64_t dense)
{
    fake_device *fake = small_device();
    square *s = square_new(8);
    int failures[3] = {0, 0, 0};
    bool over = false;
    for (int64_t n = 1; !over; n += n < dense ? 1 : 1 + n / 8) {
        int reached = -1;
        assert_true(n < 200000);
        square_poison(s);
        const int64_t before = gki_alloc_count();
        gki_alloc_fail_at(n);
        const gk_status status = whole_life(fake, s, mode, &reached);
        over = gki_alloc_count() - before < n && status == GK_OK;
        gki_alloc_fail_at(0);
        if (status != GK_OK) {
            /* The cache and the tuner may also live with a failure, or find no candidate left. */
            assert_true(status == GK_ERR_NOMEM || status == GK_ERR_NO_CONFIG);
            assert_int_equal(gk_error_last()->status, status);
            assert_true(gk_error_last()->message[0] != '\0');
            failures[reached]++;
        }
        assert_int_equal(atomic_load(&fake->live_allocations), 0);
        assert_int_equal(atomic_load(&fake->live_modules), 0);
    }
    /* Creation failed for some, the call for others. */
    assert_true(failures[0] >= 3);
    assert_true(failures[2] >= 3);
    gki_free(s);
    end_device(&fake);
}

static void test_allocation_failures_untuned(void **state)
{
    (void)state;
    sweep(GK_MODE_HEURISTIC, 60);
}

static void test_allocation_failures_tuned(void **state)
{
    (void)state;
    sweep(GK_MODE_TUNE, 30);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_device_names),
        cmocka_unit_test(test_variables),
        cmocka_unit_test(test_destroy_nothing),
        cmocka_unit_test(test_no_context),
        cmocka_unit_test(test_null_arguments),
        cmocka_unit_test(test_memory),
        cmocka_unit_test(test_statistics),
        cmocka_unit_test(test_fork),
        cmocka_unit_test(test_allocation_failures_untuned),
        cmocka_unit_test(test_allocation_failures_tuned),
    };
    return GK_TEST_MAIN(tests);
}
