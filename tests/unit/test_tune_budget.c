/* Tunings that end early: budgets too short for everything, or for anything, and cancellation. */
#define _GNU_SOURCE
#include "tune_case.h"

#include "base/hash.h"

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Each compile takes 0.2 s: the budget leaves time for a few. */
static void test_budget(void **state)
{
    fixture *f = *state;
    gk_tune_options options = GK_TUNE_OPTIONS_INIT;
    options.budget_s = 0.5;
    f->fake->compile_ms = 200;
    const double began = now();
    assert_gk_ok(tune_with(f, &options));
    assert_true(now() - began < 1.0);
    assert_in_range(f->report.tried, 2, 9);
    assert_true(f->report.measured > 0);
    options.budget_s = 1e-6; /* nothing but the guess */
    options.retune = true;
    f->fake->compile_ms = 0;
    assert_gk_ok(tune_with(f, &options));
    assert_in_range(f->report.measured, 1, 2);
}

/* Compiles that began in time take all of it: what they made is compared all the same. */
static void test_budget_of_compiles(void **state)
{
    fixture *f = *state;
    gk_tune_options options = GK_TUNE_OPTIONS_INIT;
    options.budget_s = 0.9;
    f->fake->compile_ms = 1200;
    open_jit(f, 4);
    const double began = now();
    assert_gk_ok(tune_with(f, &options));
    assert_true(now() - began < 2.4);
    assert_in_range(f->report.measured, 4, 9);
    assert_int_equal(f->winner.config.values[0], 64);
}

/* One compile takes longer than all the rest: what is done is compared meanwhile. Its kernel comes
 * too late for the race, but is known to the next one. */
static void test_straggler(void **state)
{
    fixture *f = *state;
    gk_tune_options options = GK_TUNE_OPTIONS_INIT;
    options.budget_s = 0.4;
    fake_rule *straggler = fake_device_rule(f->fake, "x32");
    straggler->compile_ms = 900;
    open_jit(f, 3);
    const double began = now();
    assert_gk_ok(tune_with(f, &options));
    assert_in_range((now() - began) * 1000, 850, 1300);
    assert_int_equal(f->winner.config.values[0], 64);
    assert_true(f->report.measured >= 4);
    assert_int_equal(atomic_load(&straggler->compiled), 1);
    options.retune = true;
    const uint32_t measured = f->report.measured;
    assert_gk_ok(tune_with(f, &options));
    assert_true(f->report.measured > measured);
    assert_int_equal(atomic_load(&straggler->compiled), 1);
}

/* The favourite's compile takes so long; it is timed all the same. */
static void check_slow_favourite(fixture *f, int milliseconds)
{
    gk_tune_options options = GK_TUNE_OPTIONS_INIT;
    options.budget_s = 0.4;
    fake_device_rule(f->fake, "x16")->compile_ms = milliseconds;
    open_jit(f, 3);
    assert_gk_ok(tune_with(f, &options));
    assert_trial(f, "[plain BLOCK=16 SPAN=1 ok]");
    assert_true(f->report.guess_seconds > 0);
}

/* The model's favourite takes longest: without it the answer might be worse than no tuning. */
static void test_slow_favourite(void **state)
{
    check_slow_favourite(*state, 340);
}

/* The same beyond the budget: its compile is waited for in any case. */
static void test_late_favourite(void **state)
{
    const double began = now();
    check_slow_favourite(*state, 800);
    assert_in_range((now() - began) * 1000, 750, 1500);
}

/* It does not compile: nothing waits for it any longer. */
static void test_slow_useless_favourite(void **state)
{
    fixture *f = *state;
    gk_tune_options options = GK_TUNE_OPTIONS_INIT;
    options.budget_s = 2;
    fake_rule *favourite = fake_device_rule(f->fake, "x16");
    favourite->compile_ms = 300;
    favourite->spill_bytes = 8;
    open_jit(f, 3);
    const double began = now();
    assert_gk_ok(tune_with(f, &options));
    assert_true(now() - began < 1.6);
    assert_trial(f, "[plain BLOCK=16 SPAN=1 spills]");
}

/* The first kernel takes all the time there is, and fails. */
static gk_status late_times(void *user, const fake_module *module,
                            const gki_kernel_launch *launches, uint32_t count, uint32_t repeats,
                            bool graph, double *seconds)
{
    if (strstr(module->kernel, "x16") != NULL) {
        const struct timespec pause = {1, 0};
        nanosleep(&pause, NULL);
        return gk_fail(GK_ERR_DEVICE, "test", "too late");
    }
    return times(user, module, launches, count, repeats, graph, seconds);
}

/* What the budget leaves time for may be of no use: then it is exceeded, until something is. */
static void test_budget_without_usable(void **state)
{
    fixture *f = *state;
    gk_tune_options options = GK_TUNE_OPTIONS_INIT;
    options.budget_s = 0.01;
    f->fake->compile_ms = 20;
    fake_device_rule(f->fake, "x16")->spill_bytes = 8;
    fake_device_rule(f->fake, "x32")->spill_bytes = 8;
    open_jit(f, 1);
    assert_gk_ok(tune_with(f, &options));
    assert_int_equal(f->winner.config.values[0], 64);
    assert_trial(f, "[plain BLOCK=16 SPAN=1 spills]");
    assert_trial(f, "[plain BLOCK=64 SPAN=1 ok]");
}

/* The favourite cannot be launched, and no time is left: the next one is timed all the same. */
static void test_budget_without_timing(void **state)
{
    fixture *f = *state;
    gk_tune_options options = GK_TUNE_OPTIONS_INIT;
    options.budget_s = 1;
    f->fake->timer = late_times;
    assert_gk_ok(tune_with(f, &options));
    assert_int_not_equal(f->winner.config.values[0], 16);
}

static gk_status slow_times(void *user, const fake_module *module,
                            const gki_kernel_launch *launches, uint32_t count, uint32_t repeats,
                            bool graph, double *seconds)
{
    const struct timespec pause = {0, 30000000};
    nanosleep(&pause, NULL);
    return times(user, module, launches, count, repeats, graph, seconds);
}

/* Timings count as well: all of them would take seconds. */
static void test_budget_of_timing(void **state)
{
    fixture *f = *state;
    gk_tune_options options = GK_TUNE_OPTIONS_INIT;
    options.budget_s = 1;
    f->fake->timer = slow_times;
    const double began = now();
    assert_gk_ok(tune_with(f, &options));
    assert_true(now() - began < 2);
    assert_int_equal(f->winner.config.values[0], 64);
}

/* What is launched for timings of the kernel x64. */
typedef struct seen_launches {
    uint32_t timings;
    uint32_t kinds;
    uint64_t hashes[100];
} seen_launches;

static gk_status wavering_times(void *user, const fake_module *module,
                                const gki_kernel_launch *launches, uint32_t count, uint32_t repeats,
                                bool graph, double *seconds)
{
    seen_launches *seen = user;
    gk_status status = times(NULL, module, launches, count, repeats, graph, seconds);
    if (strstr(module->kernel, "x64") != NULL) {
        assert_true(graph);
        const uint64_t hash = count + gki_hash64(launches[0].args, launches[0].args_size);
        uint32_t i = 0;
        while (i < seen->kinds && seen->hashes[i] != hash) {
            i++;
        }
        assert_in_range(i, 0, 99);
        seen->hashes[i] = hash;
        seen->kinds += i == seen->kinds ? 1 : 0;
        *seconds *= 0.98 + 0.01 * (seen->timings++ % 5);
    }
    return status;
}

/* The driver keeps graphs of launches: a racer's are the same from timing to timing, though its
 * estimate wavers. Two racers have the kernel, and the model's estimate gave another number. */
static void test_launches_stay_the_same(void **state)
{
    fixture *f = *state;
    static seen_launches seen;
    f->fake->timer = wavering_times;
    f->fake->timer_user = &seen;
    assert_gk_ok(tune(f));
    assert_true(seen.timings > 40);
    assert_in_range(seen.kinds, 1, 4);
}

static bool stop_at(void *user, const gk_tune_progress *progress)
{
    return strcmp(progress->stage, user) != 0;
}

static void test_cancel(void **state)
{
    static const add_script wrong[] = {{"x16", ADD_WRONG}, {NULL, ADD_RIGHT}};
    static char stages[][8] = {"compile", "verify", "verify", "measure"};
    fixture *f = *state;
    gk_tune_options options = GK_TUNE_OPTIONS_INIT;
    options.progress = stop_at;
    for (int i = 0; i < 4; i++) {
        f->fake->info.sm_count++; /* an environment of its own */
        open_jit(f, 1);           /* so that this thread compiles and is told */
        add_scripts = i == 1 ? wrong : NULL;
        options.progress_user = stages[i];
        if (i < 2) {
            /* Nothing was found right. */
            assert_gk_err(tune_with(f, &options), GK_ERR_CANCELLED, "stopped");
            continue;
        }
        /* One was: it is the answer, */
        assert_gk_ok(tune_with(f, &options));
        assert_int_equal(f->report.measured, 1);
        assert_int_equal(f->winner.config.values[0], 16);
        /* .. but nothing it was compared with: the next tuning goes on. */
        assert_false(f->report.saved);
        assert_gk_ok(tune(f));
        assert_int_equal(f->winner.config.values[0], 64);
    }
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(test_budget),
        TEST(test_budget_of_compiles),
        TEST(test_straggler),
        TEST(test_slow_favourite),
        TEST(test_late_favourite),
        TEST(test_slow_useless_favourite),
        TEST(test_budget_without_usable),
        TEST(test_budget_without_timing),
        TEST(test_budget_of_timing),
        TEST(test_launches_stay_the_same),
        TEST(test_cancel),
    };
    return GK_TEST_MAIN(tests);
}
