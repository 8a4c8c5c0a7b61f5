/* Kernels: compiled once whoever asks, stored with their verdicts, loaded once, failures kept or
 * not kept as they deserve. */
#define _GNU_SOURCE
#include "support/gk_test.h"

#include <pthread.h>
#include <string.h>

#include "base/alloc.h"
#include "base/str.h"
#include "jit/jit.h"
#include "support/fake_driver.h"
#include "support/toy_op.h"

enum { THREADS = 8 };

typedef struct fixture {
    fake_device *fake;
    gki_cache *cache;
    gki_counters counters;
    gki_jit *jit;
} fixture;

static void open_jit(fixture *f)
{
    const gki_jit_options options = {
        .device = &f->fake->base, .cache = f->cache, .counters = &f->counters};
    assert_gk_ok(gki_jit_create(&f->jit, &options));
}

static int set_up(void **state)
{
    fixture *f = gki_calloc(1, sizeof *f);
    assert_non_null(f);
    *state = f;
    toy_templates();
    f->fake = fake_device_create();
    assert_gk_ok(gki_cache_open(&f->cache, ":memory:", 1 << 20, NULL));
    open_jit(f);
    return 0;
}

static int tear_down(void **state)
{
    fixture *f = *state;
    gki_jit_destroy(&f->jit);
    assert_int_equal(atomic_load(&f->fake->live_modules), 0);
    gki_cache_close(&f->cache);
    fake_device_destroy(&f->fake);
    gki_free(f);
    return 0;
}

static gk_status get(fixture *f, gk_config config, gki_kernel **out)
{
    const gk_problem problem = toy_problem();
    return gki_kernel_get(f->jit, &toy_op, &toy_plain, &problem, &config, out);
}

static gk_status load(fixture *f, gk_config config, gk_launch launch, gki_kernel **out)
{
    const gk_problem problem = toy_problem();
    return gki_kernel_load(f->jit, &toy_op, &toy_plain, &problem, &config, &launch, out);
}

static int compiles(const fixture *f)
{
    return atomic_load(&f->fake->compile.calls);
}

static void test_compiled_once(void **state)
{
    fixture *f = *state;
    gki_kernel *a = NULL;
    gki_kernel *b = NULL;
    f->fake->fallback.registers = 91;
    f->fake->fallback.spill_bytes = 8;
    f->fake->fallback.stack_bytes = 16;
    f->fake->fallback.serialized = true;
    assert_gk_ok(get(f, toy_config(64, 16, 4), &a));
    assert_string_equal(a->name, "gk_toy_relu_f32_plain_64x16");
    assert_int_equal(a->registers, 91);
    assert_int_equal(a->spill_bytes, 8);
    assert_int_equal(a->stack_bytes, 16);
    assert_true(a->serialized);
    assert_false(a->from_cache);
    assert_true(a->compile_s > 0);
    assert_null(atomic_load(&a->module));
    assert_gk_ok(get(f, toy_config(64, 16, 2), &b));
    assert_ptr_equal(a, b);
    assert_int_equal(compiles(f), 1);
    assert_gk_ok(get(f, toy_config(32, 16, 2), &b));
    assert_ptr_not_equal(a, b);
    assert_int_equal(compiles(f), 2);
    assert_int_equal(atomic_load(&f->counters.compiles), 2);
    assert_int_equal(atomic_load(&f->counters.compile_failures), 0);
    assert_int_equal(atomic_load(&f->counters.kernels_loaded), 0);
}

static void test_the_next_process_finds_code_and_verdicts(void **state)
{
    fixture *f = *state;
    gki_kernel *kernel = NULL;
    f->fake->fallback.registers = 91;
    f->fake->fallback.spill_bytes = 8;
    f->fake->fallback.stack_bytes = 16;
    f->fake->fallback.serialized = true;
    assert_gk_ok(get(f, toy_config(64, 16, 4), &kernel));
    gki_jit_destroy(&f->jit);
    open_jit(f);
    (void)gk_fail(GK_ERR_UNTUNED, "test", "before");
    assert_gk_ok(load(f, toy_config(64, 16, 4), toy_launch, &kernel));
    assert_string_equal(gk_error_last()->message, "before");
    assert_int_equal(compiles(f), 1);
    assert_true(kernel->from_cache);
    assert_true(kernel->compile_s == 0);
    assert_int_equal(kernel->registers, 91);
    assert_int_equal(kernel->spill_bytes, 8);
    assert_int_equal(kernel->stack_bytes, 16);
    assert_true(kernel->serialized);
    assert_non_null(atomic_load(&kernel->module));
}

static void test_a_miss_in_the_cache_leaves_the_error_record(void **state)
{
    fixture *f = *state;
    gki_kernel *kernel = NULL;
    (void)gk_fail(GK_ERR_UNTUNED, "test", "before");
    assert_gk_ok(load(f, toy_config(64, 16, 4), toy_launch, &kernel));
    assert_string_equal(gk_error_last()->message, "before");
}

static void test_works_without_a_cache(void **state)
{
    fixture *f = *state;
    gki_kernel *kernel = NULL;
    gki_jit_destroy(&f->jit);
    gki_cache_close(&f->cache);
    open_jit(f);
    assert_gk_ok(load(f, toy_config(64, 16, 4), toy_launch, &kernel));
    assert_non_null(atomic_load(&kernel->module));
    assert_gk_ok(gki_cache_open(&f->cache, ":memory:", 1 << 20, NULL));
}

static void test_another_compiler_is_another_kernel(void **state)
{
    fixture *f = *state;
    gki_kernel *kernel = NULL;
    assert_gk_ok(get(f, toy_config(64, 16, 4), &kernel));
    gki_jit_destroy(&f->jit);
    gki_copy_text(f->fake->info.compiler, sizeof f->fake->info.compiler, "nvrtc 12.9");
    open_jit(f);
    assert_gk_ok(get(f, toy_config(64, 16, 4), &kernel));
    assert_int_equal(compiles(f), 2);
    gki_jit_destroy(&f->jit);
    gki_copy_text(f->fake->info.compiler, sizeof f->fake->info.compiler, "nvrtc 13.0");
    open_jit(f);
    assert_gk_ok(get(f, toy_config(64, 16, 4), &kernel));
    assert_int_equal(compiles(f), 2);
    assert_true(kernel->from_cache);
}

static void test_bad_source_is_remembered(void **state)
{
    fixture *f = *state;
    gki_kernel *kernel = NULL;
    char message[sizeof gk_error_last()->message];
    fake_device_rule(f->fake, "_64x")->compile = GK_ERR_COMPILE;
    assert_gk_err(get(f, toy_config(64, 16, 4), &kernel), GK_ERR_COMPILE, "injected failure");
    assert_null(kernel);
    gki_copy_text(message, sizeof message, gk_error_last()->message);
    (void)gk_fail(GK_ERR_UNTUNED, "test", "between");
    assert_gk_err(load(f, toy_config(64, 16, 1), toy_launch, &kernel), GK_ERR_COMPILE, message);
    assert_null(kernel);
    assert_int_equal(compiles(f), 1);
    assert_int_equal(atomic_load(&f->counters.compile_failures), 1);
    assert_int_equal(atomic_load(&f->counters.compiles), 0);
    assert_gk_ok(get(f, toy_config(32, 16, 4), &kernel));
}

static void test_compiler_trouble_is_not_remembered(void **state)
{
    static const gk_status troubles[] = {GK_ERR_NO_COMPILER, GK_ERR_NOMEM, GK_ERR_TIMEOUT};
    fixture *f = *state;
    gki_kernel *kernel = NULL;
    f->fake->compile.fail_at = 1;
    f->fake->compile.fail_count = 3;
    for (size_t i = 0; i < 3; i++) {
        f->fake->compile.status = troubles[i];
        assert_gk_err(get(f, toy_config(64, 16, 4), &kernel), troubles[i], "injected");
        assert_null(kernel);
    }
    assert_gk_ok(get(f, toy_config(64, 16, 4), &kernel));
    assert_int_equal(compiles(f), 4);
}

static void test_reserved_once_for_each_larger_need(void **state)
{
    fixture *f = *state;
    gki_kernel *kernel = NULL;
    const gk_config config = toy_config(64, 16, 4);
    const struct {
        int64_t smem;
        int32_t cluster;
        int calls;
        int64_t reserved_smem;
        int reserved_cluster;
    } steps[] = {
        {0, 0, 1, 0, 0},         {0, 0, 1, 0, 0},         {70000, 1, 2, 70000, 1},
        {50000, 1, 2, 70000, 1}, {70000, 2, 3, 70000, 2}, {90000, 1, 4, 90000, 2},
        {90000, 2, 4, 90000, 2},
    };
    for (size_t i = 0; i < sizeof steps / sizeof steps[0]; i++) {
        const gk_launch launch = {
            .grid = 16, .threads = 32, .smem = steps[i].smem, .cluster = steps[i].cluster};
        assert_gk_ok(load(f, config, launch, &kernel));
        assert_int_equal(atomic_load(&f->fake->reserve.calls), steps[i].calls);
        assert_int_equal(atomic_load(&f->fake->reserved_smem), steps[i].reserved_smem);
        assert_int_equal(atomic_load(&f->fake->reserved_cluster), steps[i].reserved_cluster);
    }
    assert_int_equal(atomic_load(&f->fake->load.calls), 1);
    assert_int_equal(atomic_load(&f->counters.kernels_loaded), 1);
}

static void test_a_reservation_that_fails_is_tried_again(void **state)
{
    fixture *f = *state;
    gki_kernel *kernel = NULL;
    f->fake->reserve.fail_at = 1;
    assert_gk_err(load(f, toy_config(64, 16, 4), toy_launch, &kernel), GK_ERR_DEVICE, "reserve");
    assert_null(kernel);
    assert_gk_ok(load(f, toy_config(64, 16, 4), toy_launch, &kernel));
    assert_int_equal(atomic_load(&f->fake->load.calls), 1);
    assert_int_equal(atomic_load(&f->fake->reserve.calls), 2);
}

static void test_a_fresh_kernel_that_does_not_load_fails(void **state)
{
    fixture *f = *state;
    gki_kernel *kernel = NULL;
    f->fake->load.fail_at = 1;
    assert_gk_err(load(f, toy_config(64, 16, 4), toy_launch, &kernel), GK_ERR_DEVICE, "load");
    assert_null(kernel);
    assert_int_equal(compiles(f), 1);
    assert_gk_ok(load(f, toy_config(64, 16, 4), toy_launch, &kernel));
    assert_int_equal(compiles(f), 1);
}

/* Stores bytes that no driver loads under the kernel's key. */
static void spoil(fixture *f, const gki_kernel *kernel)
{
    unsigned char bytes[] = "not code";
    const gki_kernel_record record = {.code = bytes, .size = sizeof bytes, .registers = 64};
    gki_cache_kernel_put(f->cache, &kernel->key, kernel->name, &record);
}

static void test_stored_code_that_does_not_load_is_replaced(void **state)
{
    fixture *f = *state;
    gki_kernel *kernel = NULL;
    gki_kernel_record record;
    assert_gk_ok(get(f, toy_config(64, 16, 4), &kernel));
    spoil(f, kernel);
    gki_jit_destroy(&f->jit);
    open_jit(f);
    (void)gk_fail(GK_ERR_UNTUNED, "test", "before");
    assert_gk_ok(load(f, toy_config(64, 16, 4), toy_launch, &kernel));
    assert_string_equal(gk_error_last()->message, "before");
    assert_non_null(atomic_load(&kernel->module));
    assert_int_equal(compiles(f), 2);
    assert_int_equal(atomic_load(&f->fake->load.calls), 2);
    assert_int_equal(atomic_load(&f->counters.kernels_loaded), 1);
    assert_gk_ok(gki_cache_kernel_get(f->cache, &kernel->key, &record));
    assert_memory_equal(record.code, "FAKE1", 5);
    gki_free(record.code);
}

static void test_stored_code_is_compiled_anew_only_once(void **state)
{
    fixture *f = *state;
    gki_kernel *kernel = NULL;
    assert_gk_ok(get(f, toy_config(64, 16, 4), &kernel));
    gki_jit_destroy(&f->jit);
    open_jit(f);
    f->fake->load.fail_at = 1;
    f->fake->load.fail_count = 3;
    assert_gk_err(load(f, toy_config(64, 16, 4), toy_launch, &kernel), GK_ERR_DEVICE, "load");
    assert_int_equal(compiles(f), 2);
    assert_gk_err(load(f, toy_config(64, 16, 4), toy_launch, &kernel), GK_ERR_DEVICE, "load");
    assert_int_equal(compiles(f), 2);
    assert_gk_ok(load(f, toy_config(64, 16, 4), toy_launch, &kernel));
    assert_int_equal(compiles(f), 2);
}

static void test_a_lost_device_does_not_condemn_stored_code(void **state)
{
    fixture *f = *state;
    gki_kernel *kernel = NULL;
    assert_gk_ok(get(f, toy_config(64, 16, 4), &kernel));
    gki_jit_destroy(&f->jit);
    open_jit(f);
    f->fake->load.fail_at = 1;
    f->fake->load.status = GK_ERR_LOST;
    assert_gk_err(load(f, toy_config(64, 16, 4), toy_launch, &kernel), GK_ERR_LOST, NULL);
    assert_int_equal(compiles(f), 1);
}

typedef struct worker {
    fixture *f;
    pthread_barrier_t *barrier;
    bool different; /* each thread a kernel of its own */
    int index;
    gk_status status;
    gk_error error;
    gki_kernel *kernel;
} worker;

static void *work(void *user)
{
    static const int32_t ms[] = {16, 32, 64, 16};
    static const int32_t ks[] = {8, 8, 8, 16};
    worker *w = user;
    const int i = w->different ? w->index % 4 : 2;
    pthread_barrier_wait(w->barrier);
    w->status = load(w->f, toy_config(ms[i], ks[i], 1), toy_launch, &w->kernel);
    w->error = *gk_error_last();
    return NULL;
}

static void run_threads(fixture *f, bool different, worker workers[THREADS])
{
    pthread_t threads[THREADS];
    pthread_barrier_t barrier;
    assert_int_equal(pthread_barrier_init(&barrier, NULL, THREADS), 0);
    for (int i = 0; i < THREADS; i++) {
        workers[i] = (worker){.f = f, .barrier = &barrier, .different = different, .index = i};
        assert_int_equal(pthread_create(&threads[i], NULL, work, &workers[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    }
    pthread_barrier_destroy(&barrier);
}

static void test_many_threads_one_kernel(void **state)
{
    fixture *f = *state;
    worker workers[THREADS];
    f->fake->compile_ms = 50;
    run_threads(f, false, workers);
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(workers[i].status, GK_OK);
        assert_ptr_equal(workers[i].kernel, workers[0].kernel);
    }
    assert_int_equal(compiles(f), 1);
    assert_int_equal(atomic_load(&f->fake->load.calls), 1);
    assert_int_equal(atomic_load(&f->fake->reserve.calls), 1);
    assert_int_equal(atomic_load(&f->counters.compiles), 1);
    assert_int_equal(atomic_load(&f->counters.kernels_loaded), 1);
}

static void test_many_threads_several_kernels(void **state)
{
    fixture *f = *state;
    worker workers[THREADS];
    f->fake->compile_ms = 20;
    run_threads(f, true, workers);
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(workers[i].status, GK_OK);
        assert_ptr_equal(workers[i].kernel, workers[i % 4].kernel);
    }
    assert_int_equal(compiles(f), 4);
    assert_int_equal(atomic_load(&f->fake->load.calls), 4);
}

static void test_many_threads_share_a_failure(void **state)
{
    fixture *f = *state;
    worker workers[THREADS];
    f->fake->compile_ms = 300;
    f->fake->compile.fail_at = 1;
    f->fake->compile.status = GK_ERR_NO_COMPILER;
    run_threads(f, false, workers);
    /* A thread that comes after the first attempt has ended makes a second one, which succeeds. */
    int failed = 0;
    for (int i = 0; i < THREADS; i++) {
        if (workers[i].status != GK_OK) {
            assert_int_equal(workers[i].status, GK_ERR_NO_COMPILER);
            assert_string_equal(workers[i].error.message, "injected failure of compile");
            assert_null(workers[i].kernel);
            failed++;
        }
    }
    assert_true(failed >= 1);
    assert_int_equal(compiles(f), failed == THREADS ? 1 : 2);
    gki_kernel *kernel = NULL;
    assert_gk_ok(load(f, toy_config(64, 8, 1), toy_launch, &kernel));
}

static void test_many_threads_replace_stored_code_once(void **state)
{
    fixture *f = *state;
    worker workers[THREADS];
    gki_kernel *kernel = NULL;
    assert_gk_ok(get(f, toy_config(64, 8, 1), &kernel));
    spoil(f, kernel);
    gki_jit_destroy(&f->jit);
    open_jit(f);
    f->fake->compile_ms = 30;
    run_threads(f, false, workers);
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(workers[i].status, GK_OK);
    }
    assert_int_equal(compiles(f), 2);
    assert_int_equal(atomic_load(&f->fake->load.calls), 2);
}

static void test_memory_runs_out_anywhere(void **state)
{
    fixture *f = *state;
    gki_kernel *kernel = NULL;
    bool done = false;
    int failures = 0;
    for (int64_t n = 1; !done; n++) {
        gki_jit_destroy(&f->jit);
        gki_cache_close(&f->cache);
        assert_gk_ok(gki_cache_open(&f->cache, ":memory:", 1 << 20, NULL));
        open_jit(f);
        gki_alloc_fail_at(n);
        const gk_status status = load(f, toy_config(64, 16, 4), toy_launch, &kernel);
        gki_alloc_fail_at(0);
        if (status != GK_OK) {
            assert_int_equal(status, GK_ERR_NOMEM);
            assert_null(kernel);
            failures++;
            assert_gk_ok(load(f, toy_config(64, 16, 4), toy_launch, &kernel));
        }
        assert_non_null(atomic_load(&kernel->module));
        done = status == GK_OK && n > 40;
        assert_true(n < 1000);
    }
    assert_true(failures >= 5);
}

#define WITH_FIXTURE(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_FIXTURE(test_compiled_once),
        WITH_FIXTURE(test_the_next_process_finds_code_and_verdicts),
        WITH_FIXTURE(test_a_miss_in_the_cache_leaves_the_error_record),
        WITH_FIXTURE(test_works_without_a_cache),
        WITH_FIXTURE(test_another_compiler_is_another_kernel),
        WITH_FIXTURE(test_bad_source_is_remembered),
        WITH_FIXTURE(test_compiler_trouble_is_not_remembered),
        WITH_FIXTURE(test_reserved_once_for_each_larger_need),
        WITH_FIXTURE(test_a_reservation_that_fails_is_tried_again),
        WITH_FIXTURE(test_a_fresh_kernel_that_does_not_load_fails),
        WITH_FIXTURE(test_stored_code_that_does_not_load_is_replaced),
        WITH_FIXTURE(test_stored_code_is_compiled_anew_only_once),
        WITH_FIXTURE(test_a_lost_device_does_not_condemn_stored_code),
        WITH_FIXTURE(test_many_threads_one_kernel),
        WITH_FIXTURE(test_many_threads_several_kernels),
        WITH_FIXTURE(test_many_threads_share_a_failure),
        WITH_FIXTURE(test_many_threads_replace_stored_code_once),
        WITH_FIXTURE(test_memory_runs_out_anywhere),
    };
    return GK_TEST_MAIN(tests);
}
