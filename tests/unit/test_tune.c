/* Whole tunings on the fake device: broken candidates, verdicts, what is stored. */
#define _GNU_SOURCE
#include "tune_case.h"

#include "tune/verify.h"

static void test_fastest_is_found_and_stored(void **state)
{
    fixture *f = *state;
    assert_gk_ok(tune(f));
    assert_ptr_equal(f->winner.variant, &add_plain);
    assert_int_equal(f->winner.config.values[0], 64);
    assert_string_equal(f->report.variant, "plain");
    assert_string_equal(f->report.config, "BLOCK=64 SPAN=1");
    assert_int_equal(f->report.space, 11);
    assert_int_equal(f->report.tried, 11);
    assert_int_equal(f->report.measured, 11);
    assert_int_equal(f->report.refused, 0);
    assert_true(f->report.seconds > 7.9e-6 && f->report.seconds < 8.1e-6);
    assert_true(f->report.guess_seconds > 9.9e-6 && f->report.guess_seconds < 10.1e-6);
    assert_false(f->report.from_cache);
    assert_int_equal(atomic_load(&f->counters.compiles), 6);
    assert_int_equal(atomic_load(&f->counters.tunes), 1);
    assert_int_equal(atomic_load(&f->counters.trials), 11);
    stored s;
    gk_status choice;
    read_stored(f, &s, &choice);
    assert_int_equal(choice, GK_OK);
    assert_int_equal(s.rows, 11);
    assert_int_equal(s.chosen, 1);
    /* The answer is there now. */
    assert_gk_ok(tune(f));
    assert_true(f->report.from_cache);
    assert_false(f->report.saved); /* there is no file */
    assert_int_equal(f->winner.config.values[0], 64);
    assert_int_equal(atomic_load(&f->counters.tunes), 1);
    gk_tune_options again = GK_TUNE_OPTIONS_INIT;
    again.retune = true;
    assert_gk_ok(tune_with(f, &again));
    assert_false(f->report.from_cache);
    assert_int_equal(atomic_load(&f->counters.tunes), 2);
    assert_int_equal(atomic_load(&f->counters.compiles), 6);
}

static double unknown_peak(const gk_problem *problem, const gk_device_info *device)
{
    (void)problem;
    (void)device;
    return 0;
}

static double low_peak(const gk_problem *problem, const gk_device_info *device)
{
    (void)device;
    return (double)problem->dims[0]; /* an addition each: a second */
}

/* Without a peak memory alone bounds the op. */
static void test_roofline(void **state)
{
    fixture *f = *state;
    const gk_device_info *info = &f->fake->info;
    const double bytes_a_second =
        (double)info->memory_clock_khz * 1e3 * 2 * info->memory_bus_bits / 8;
    assert_gk_ok(tune(f));
    assert_true(f->report.roofline_seconds == ADD_N * 12 / bytes_a_second);
    gk_tune_options again = GK_TUNE_OPTIONS_INIT;
    again.retune = true;
    add_op.peak = unknown_peak;
    assert_gk_ok(tune_with(f, &again));
    assert_true(f->report.roofline_seconds == 0);
    add_op.peak = low_peak;
    assert_gk_ok(tune_with(f, &again));
    assert_true(f->report.roofline_seconds == 1);
}

/* Each candidate is checked alone, on a poisoned output, and refused by name. */
static void test_broken_candidates(void **state)
{
    fixture *f = *state;
    static const add_script broken[] = {
        {"x16", ADD_FIRST_HALF}, {"x32", ADD_SECOND_HALF}, {"x64", ADD_NOTHING},
        {"x256", ADD_WRONG},     {"x512", ADD_UNSTABLE},   {NULL, ADD_RIGHT},
    };
    add_scripts = broken;
    assert_gk_ok(tune(f));
    assert_int_equal(f->winner.config.values[0], 128);
    assert_int_equal(f->report.refused, 9);
    assert_trial(f, "[plain BLOCK=16 SPAN=1 wrong]");
    assert_trial(f, "[plain BLOCK=32 SPAN=1 wrong]");
    assert_trial(f, "[plain BLOCK=32 SPAN=2 wrong]");
    assert_trial(f, "[plain BLOCK=64 SPAN=1 wrong]");
    assert_trial(f, "[plain BLOCK=256 SPAN=1 wrong]");
    assert_trial(f, "[wide BLOCK=512 nondeterministic]");
    /* Known to be wrong: not tried again in the same environment. */
    gk_tune_options again = GK_TUNE_OPTIONS_INIT;
    again.retune = true;
    add_scripts = NULL;
    assert_gk_ok(tune_with(f, &again));
    assert_int_equal(f->winner.config.values[0], 128);
    assert_int_equal(f->report.tried, 2);
}

static void test_out_of_bounds(void **state)
{
    fixture *f = *state;
    static const add_script broken[] = {
        {"x16", ADD_BEFORE}, {"x32", ADD_BEHIND}, {"x64", ADD_TO_INPUT}, {NULL, ADD_RIGHT}};
    add_scripts = broken;
    assert_gk_ok(tune(f));
    assert_int_equal(f->winner.config.values[0], 128);
    assert_trial(f, "[plain BLOCK=16 SPAN=1 oob]");
    assert_trial(f, "[plain BLOCK=32 SPAN=1 oob]");
    assert_trial(f, "[plain BLOCK=64 SPAN=1 oob]");
    assert_trial(f, "[plain BLOCK=128 SPAN=1 ok]");
}

static void test_scratch(void **state)
{
    fixture *f = *state;
    static const add_script broken[] = {
        {"x16", ADD_DIRTY}, {"x32", ADD_SCRATCH}, {"x64", ADD_NEEDS_CLEAN}, {NULL, ADD_RIGHT}};
    add_scripts = broken;
    add_workspace = 1000;
    add_zeroed = 64;
    assert_gk_ok(tune(f));
    assert_int_equal(f->winner.config.values[0], 128);
    assert_trial(f, "[plain BLOCK=16 SPAN=1 wrong]");
    assert_trial(f, "[plain BLOCK=32 SPAN=1 oob]");
    assert_trial(f, "[plain BLOCK=64 SPAN=1 wrong]");
}

/* Accumulating into what was there is wrong where the output is write-only .. */
static void test_accumulating(void **state)
{
    fixture *f = *state;
    add_reads_output = true;
    assert_gk_ok(tune(f));
    assert_int_equal(f->winner.config.values[0], 64);
    assert_int_equal(f->report.refused, 0);
}

static void test_compile_and_launch_failures(void **state)
{
    fixture *f = *state;
    fake_device_rule(f->fake, "x16")->compile = GK_ERR_COMPILE;
    fake_device_rule(f->fake, "x32")->launch = GK_ERR_DEVICE;
    fake_device_rule(f->fake, "x64")->load = GK_ERR_DEVICE;
    fake_device_rule(f->fake, "x128")->spill_bytes = 24;
    fake_device_rule(f->fake, "x512")->registers = 255;
    f->fake->info.regs_per_block = 16000; /* 64 threads at 255 registers need 16384 */
    open_jit(f, 2);
    assert_gk_ok(tune(f));
    assert_int_equal(f->winner.config.values[0], 256);
    assert_int_equal(f->report.refused, 9);
    assert_trial(f, "[plain BLOCK=16 SPAN=1 compile_error]");
    assert_trial(f, "[plain BLOCK=32 SPAN=1 launch_error]");
    assert_trial(f, "[plain BLOCK=64 SPAN=1 launch_error]");
    assert_trial(f, "[plain BLOCK=128 SPAN=1 spills]");
    assert_trial(f, "[wide BLOCK=512 no_resource]");
    assert_trial(f, "[plain BLOCK=256 SPAN=1 ok]");
}

static void test_serialized(void **state)
{
    fixture *f = *state;
    fake_device_rule(f->fake, "x64")->serialized = true;
    assert_gk_ok(tune(f));
    assert_int_not_equal(f->winner.config.values[0], 64);
    assert_trial(f, "[plain BLOCK=64 SPAN=1 serialized]");
}

static void test_none_usable(void **state)
{
    fixture *f = *state;
    f->fake->fallback.compile = GK_ERR_COMPILE;
    assert_gk_err(tune(f), GK_ERR_NO_CONFIG, "compile_error");
    assert_nothing_stored(f);
    f->fake->fallback.compile = GK_OK;
}

static void test_all_wrong(void **state)
{
    fixture *f = *state;
    static const add_script broken[] = {{"x", ADD_WRONG}, {NULL, ADD_RIGHT}};
    add_scripts = broken;
    assert_gk_err(tune(f), GK_ERR_NO_CONFIG, "c(999) is ");
    assert_nothing_stored(f);
    /* The next op works. */
    add_scripts = NULL;
    assert_gk_ok(tune(f));
    assert_int_equal(f->winner.config.values[0], 64);
}

static void test_empty_space(void **state)
{
    fixture *f = *state;
    add_op.n_variants = 0;
    assert_gk_err(tune(f), GK_ERR_NO_CONFIG, "add has no configurations");
    assert_nothing_stored(f);
}

static void test_no_compiler(void **state)
{
    fixture *f = *state;
    f->fake->compile.fail_at = 2;
    f->fake->compile.fail_count = -1;
    f->fake->compile.status = GK_ERR_NO_COMPILER;
    assert_gk_err(tune(f), GK_ERR_NO_COMPILER, NULL);
    assert_nothing_stored(f);
}

static void test_context_lost(void **state)
{
    fixture *f = *state;
    fake_device_rule(f->fake, "x32")->launch = GK_ERR_LOST;
    assert_gk_err(tune(f), GK_ERR_LOST, NULL);
    assert_nothing_stored(f);
    atomic_store(&f->fake->lost, false); /* so that the memory can be given back and counted */
}

static gk_status lose(void *user, const fake_module *module, const gki_kernel_launch *launches,
                      uint32_t count, uint32_t repeats, bool graph, double *seconds)
{
    (void)times(user, module, launches, count, repeats, graph, seconds);
    if (strstr(module->kernel, "x128") != NULL) {
        return gk_fail(GK_ERR_LOST, "test", "an illegal address");
    }
    return GK_OK;
}

static void test_context_lost_while_timing(void **state)
{
    fixture *f = *state;
    f->fake->timer = lose;
    assert_gk_err(tune(f), GK_ERR_LOST, "an illegal address");
    assert_nothing_stored(f);
}

/* Too large for the reference: checked on the reduced problem, and on parts of the real one. */
static void test_large_problem(void **state)
{
    fixture *f = *state;
    static const add_script broken[] = {{"x16", ADD_WRONG}, {"x64", ADD_BEHIND}, {NULL, ADD_RIGHT}};
    add_has_reduce = true;
    assert_gk_ok(tune(f));
    assert_int_equal(f->winner.config.values[0], 64);
    add_scripts = broken;
    gk_tune_options again = GK_TUNE_OPTIONS_INIT;
    again.retune = true;
    assert_gk_ok(tune_with(f, &again));
    assert_int_not_equal(f->winner.config.values[0], 64);
    assert_trial(f, "[plain BLOCK=16 SPAN=1 wrong]");
    assert_trial(f, "[plain BLOCK=64 SPAN=1 oob]");
}

/* Wrong only on the large problem: found at the last look, before it can win. */
static gk_status wrong_when_large(void *user, const fake_module *module,
                                  const gki_kernel_launch *launch)
{
    struct {
        float *a, *b, *c;
        void *workspace, *zeroed;
        int64_t n;
    } args;
    memcpy(&args, launch->args, sizeof(args));
    const float before = args.n == ADD_N ? args.c[500] : 0;
    const gk_status status = add_run(user, module, launch);
    if (args.n == ADD_N && strstr(module->kernel, "x64") != NULL) {
        args.c[ADD_N - 3] = 0;
    }
    if (args.n == ADD_N && strstr(module->kernel, "x128") != NULL) {
        args.c[500] = before; /* between the parts: left unwritten */
    }
    return status;
}

static void test_wrong_only_when_large(void **state)
{
    fixture *f = *state;
    add_has_reduce = true;
    f->fake->run = wrong_when_large;
    assert_gk_ok(tune(f));
    assert_int_not_equal(f->winner.config.values[0], 64);
    assert_int_not_equal(f->winner.config.values[0], 128);
    assert_trial(f, "[plain BLOCK=64 SPAN=1 wrong]");
    assert_trial(f, "[plain BLOCK=128 SPAN=1 wrong]");
}

static void test_stored_answer_unusable(void **state)
{
    fixture *f = *state;
    static const char *const bad[] = {"BLOCK=7 SPAN=1", "BLOCK=64 -DX=1", "BLOCK=-64 SPAN=1",
                                      "BLOCK=4096 SPAN=1", ""};
    char problem[512];
    char environment[512];
    gki_problem_text(&add_op, &f->problem, problem, sizeof(problem));
    assert_gk_ok(gki_environment_text(f->jit, &add_op, environment, sizeof(environment)));
    const gki_key key = {add_op.name, problem, environment};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        gki_choice choice = {"plain", "", 1e-6, 0, 1};
        bool saved = false;
        snprintf(choice.config, sizeof(choice.config), "%s", bad[i]);
        (void)gki_cache_publish(f->cache, &key, &choice, NULL, 0, true, &saved);
        assert_gk_ok(tune(f));
        assert_int_equal(f->winner.config.values[0], 64);
        assert_false(f->report.from_cache);
        stored s;
        gk_status found;
        read_stored(f, &s, &found); /* compares the stored text with the report's */
        assert_int_equal(found, GK_OK);
    }
}

/* On an emulated device the model decides, among those that are right. */
static void test_emulated(void **state)
{
    fixture *f = *state;
    static const add_script broken[] = {{"x16", ADD_WRONG}, {NULL, ADD_RIGHT}};
    f->fake->info.is_emulated = 1;
    open_jit(f, 2);
    add_scripts = broken;
    assert_gk_ok(tune(f));
    assert_int_equal(f->winner.config.values[0], 32);
    assert_in_range(f->report.tried, 2, 6);
}

/* Another process answers while this one measures, with values that fit either variant. */
static bool publish_twin(void *user, const gk_tune_progress *progress)
{
    fixture *f = user;
    char problem[GKI_PROBLEM_TEXT];
    char environment[GKI_ENVIRONMENT_TEXT];
    gki_choice choice = {"twin", "BLOCK=64 SPAN=1", 1e-6, 0, 1};
    bool saved = false;
    if (strcmp(progress->stage, "measure") == 0 && progress->done == 1) {
        gki_problem_text(&add_op, &f->problem, problem, sizeof(problem));
        assert_gk_ok(gki_environment_text(f->jit, &add_op, environment, sizeof(environment)));
        const gki_key key = {add_op.name, problem, environment};
        assert_gk_ok(gki_cache_publish(f->cache, &key, &choice, NULL, 0, true, &saved));
    }
    return true;
}

static void test_answer_of_another_is_adopted(void **state)
{
    fixture *f = *state;
    static gk_variant twin;
    static const gk_variant *const variants[] = {&add_plain, &twin};
    gk_tune_options options = GK_TUNE_OPTIONS_INIT;
    twin = add_plain;
    twin.name = "twin";
    add_op.variants = variants;
    add_op.n_variants = 2;
    options.progress = publish_twin;
    options.progress_user = f;
    assert_gk_ok(tune_with(f, &options));
    assert_true(f->report.from_cache);
    assert_string_equal(f->report.variant, "twin");
    assert_string_equal(f->report.config, "BLOCK=64 SPAN=1");
    assert_ptr_equal(f->winner.variant, &twin);
}

static void test_device_memory_short(void **state)
{
    fixture *f = *state;
    f->fake->alloc.fail_at = 1;
    f->fake->alloc.fail_count = -1;
    f->fake->alloc.status = GK_ERR_NOMEM;
    assert_gk_err(tune(f), GK_ERR_NOMEM, NULL);
    assert_nothing_stored(f);
    f->fake->alloc.fail_count = 3; /* fewer rotating copies do */
    atomic_store(&f->fake->alloc.calls, 0);
    assert_gk_ok(tune(f));
    assert_int_equal(f->winner.config.values[0], 64);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(test_fastest_is_found_and_stored),
        TEST(test_roofline),
        TEST(test_broken_candidates),
        TEST(test_out_of_bounds),
        TEST(test_scratch),
        TEST(test_accumulating),
        TEST(test_compile_and_launch_failures),
        TEST(test_serialized),
        TEST(test_none_usable),
        TEST(test_all_wrong),
        TEST(test_empty_space),
        TEST(test_no_compiler),
        TEST(test_context_lost),
        TEST(test_context_lost_while_timing),
        TEST(test_large_problem),
        TEST(test_wrong_only_when_large),
        TEST(test_stored_answer_unusable),
        TEST(test_emulated),
        TEST(test_answer_of_another_is_adopted),
        TEST(test_device_memory_short),
    };
    return GK_TEST_MAIN(tests);
}
