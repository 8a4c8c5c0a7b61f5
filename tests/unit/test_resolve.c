/* From a problem to a kernel: the modes, stored answers, bad candidates, captures, leases. */
#define _GNU_SOURCE
#include "api_case.h"

static int set_up(void **state)
{
    (void)api_set_up(state, matmul_device(), 16);
    return 0;
}

/* Another context, as if in another process. */
static void reopen(api_fixture *f, gk_mode mode)
{
    gk_context_destroy(&f->ctx);
    f->ctx = context_on(f->fake, mode, f->path, &f->log);
}

/* What an untuned context on the device chooses. */
static gk_plan_description guess_of(api_fixture *f, const gk_call *call)
{
    gk_context *ctx = context_on(f->fake, GK_MODE_HEURISTIC, NULL, NULL);
    const gk_plan_description info = planned(ctx, call);
    gk_context_destroy(&ctx);
    return info;
}

/* --- modes --- */

static void test_tune(void **state)
{
    api_fixture *f = *state;
    reopen(f, GK_MODE_TUNE);
    square_run(f->ctx, f->s);
    gk_statistics stats = stats_of(f->ctx);
    assert_int_equal(stats.tunes, 1);
    assert_int_equal(stats.misses, 1);
    assert_int_equal(stats.guesses, 0);
    assert_true(stats.compiles > 1);
    assert_true(stats.trials > 1);
    const uint64_t compiles = stats.compiles;
    square_run(f->ctx, f->s);
    assert_int_equal(stats_of(f->ctx).tunes, 1);
    assert_int_equal(stats_of(f->ctx).compiles, compiles);
    const gk_plan_description tuned = planned(f->ctx, &f->s->call);
    assert_int_equal(tuned.source, GK_SOURCE_TUNED);
    assert_true(tuned.tuned_seconds > 0);
    expect_rows(f, "choice", 1);
    expect_rows(f, "lease", 0);
    reopen(f, GK_MODE_TUNE);
    square_run(f->ctx, f->s);
    stats = stats_of(f->ctx);
    assert_int_equal(stats.tunes, 0);
    assert_int_equal(stats.compiles, 0);
    assert_int_equal(stats.misses, 0);
    assert_int_equal(stats.hits_cache, 1);
    assert_int_equal(stats.calls, 1);
    const gk_plan_description again = planned(f->ctx, &f->s->call);
    assert_int_equal(again.source, GK_SOURCE_CACHE);
    assert_string_equal(again.config, tuned.config);
    assert_true(again.tuned_seconds == tuned.tuned_seconds);
    assert_int_equal(f->log.warnings, 0);
}

static void test_heuristic(void **state)
{
    api_fixture *f = *state;
    reopen(f, GK_MODE_HEURISTIC);
    square_run(f->ctx, f->s);
    square_run(f->ctx, f->s);
    gk_statistics stats = stats_of(f->ctx);
    assert_int_equal(stats.tunes, 0);
    assert_int_equal(stats.compiles, 1);
    assert_int_equal(stats.misses, 1);
    assert_int_equal(stats.guesses, 1);
    expect_rows(f, "choice", 0);
    expect_rows(f, "miss", 1);
    /* What is tuned later is found, here and elsewhere. */
    assert_gk_ok(gk_tune(f->ctx, "matmul", &f->s->call, NULL, NULL));
    assert_int_equal(planned(f->ctx, &f->s->call).source, GK_SOURCE_TUNED);
    expect_rows(f, "miss", 0);
    reopen(f, GK_MODE_HEURISTIC);
    assert_int_equal(planned(f->ctx, &f->s->call).source, GK_SOURCE_CACHE);
    assert_int_equal(stats_of(f->ctx).guesses, 0);
}

static void test_cached(void **state)
{
    api_fixture *f = *state;
    gk_plan *plan = NULL;
    reopen(f, GK_MODE_CACHED);
    for (int i = 0; i < 2; i++) {
        assert_gk_err(gk_matmul(f->ctx, &f->s->ta, &f->s->tb, &f->s->tc, NULL, NULL),
                      GK_ERR_UNTUNED, "M=16 N=16 K=16");
    }
    assert_gk_err(gk_plan_create(&plan, f->ctx, "matmul", &f->s->call, NULL), GK_ERR_UNTUNED,
                  "not tuned");
    assert_gk_err(gk_prepare(f->ctx, "matmul", &f->s->call, NULL), GK_ERR_UNTUNED, "not tuned");
    assert_true(square_is_untouched(f->s));
    assert_int_equal(stats_of(f->ctx).compiles, 0);
    assert_int_equal(stats_of(f->ctx).misses, 4);
    expect_query(f->path, "SELECT calls FROM miss", "4");
    assert_gk_ok(gk_tune(f->ctx, "matmul", &f->s->call, NULL, NULL));
    square_run(f->ctx, f->s);
    assert_int_equal(stats_of(f->ctx).misses, 4);
    /* A guess that is in use in the process is no answer either. */
    reopen(f, GK_MODE_HEURISTIC);
    square *other = square_new(24);
    square_run(f->ctx, other);
    gk_plan_options options = GK_PLAN_OPTIONS_INIT;
    options.mode = GK_MODE_CACHED;
    assert_gk_err(gk_plan_create(&plan, f->ctx, "matmul", &other->call, &options), GK_ERR_UNTUNED,
                  "M=24");
    gki_free(other);
}

static void test_pinned(void **state)
{
    api_fixture *f = *state;
    const gk_plan_description guess = guess_of(f, &f->s->call);
    fake_rule *rule = fake_device_rule(f->fake, guess.kernel);
    rule->seconds = 1;
    reopen(f, GK_MODE_TUNE);
    square_run(f->ctx, f->s);
    const gk_plan_description tuned = planned(f->ctx, &f->s->call);
    assert_string_not_equal(tuned.config, guess.config);
    reopen(f, GK_MODE_PINNED);
    square_run(f->ctx, f->s);
    assert_string_equal(planned(f->ctx, &f->s->call).config, guess.config);
    assert_int_equal(stats_of(f->ctx).hits_cache, 0);
    /* Nor do plans and tunings of the same process change what calls run. */
    gk_plan_options options = GK_PLAN_OPTIONS_INIT;
    options.mode = GK_MODE_TUNE;
    gk_plan *plan = NULL;
    assert_gk_ok(gk_plan_create(&plan, f->ctx, "matmul", &f->s->call, &options));
    assert_string_equal(plan_info(plan).config, tuned.config);
    assert_gk_ok(gk_plan_run(plan, &f->s->call, NULL));
    gk_tune_options retune = GK_TUNE_OPTIONS_INIT;
    retune.retune = true;
    assert_gk_ok(gk_tune(f->ctx, "matmul", &f->s->call, &retune, NULL));
    const unsigned launched = atomic_load(&rule->launched);
    square_run(f->ctx, f->s);
    assert_int_equal(atomic_load(&rule->launched), launched + 1);
    assert_string_equal(planned(f->ctx, &f->s->call).config, guess.config);
    gk_plan_destroy(&plan);
    /* The other way round: a pinned plan in a context that tunes. */
    reopen(f, GK_MODE_TUNE);
    square_run(f->ctx, f->s);
    options.mode = GK_MODE_PINNED;
    assert_gk_ok(gk_plan_create(&plan, f->ctx, "matmul", &f->s->call, &options));
    assert_string_equal(plan_info(plan).config, guess.config);
    assert_string_equal(planned(f->ctx, &f->s->call).config, tuned.config);
    gk_plan_destroy(&plan);
}

/* --- candidates that do not work --- */

static void test_bad_candidates(void **state)
{
    api_fixture *f = *state;
    /* The model's favourite does not compile, the next one does not launch, and both are fast. */
    const gk_plan_description first = guess_of(f, &f->s->call);
    fake_rule *rule = fake_device_rule(f->fake, first.kernel);
    rule->compile = GK_ERR_COMPILE;
    rule->seconds = 1e-9;
    const gk_plan_description second = guess_of(f, &f->s->call);
    assert_string_not_equal(second.kernel, first.kernel);
    rule = fake_device_rule(f->fake, second.kernel);
    rule->launch = GK_ERR_DEVICE;
    rule->seconds = 1e-9;
    reopen(f, GK_MODE_TUNE);
    square_run(f->ctx, f->s);
    const gk_plan_description winner = planned(f->ctx, &f->s->call);
    assert_string_not_equal(winner.kernel, first.kernel);
    assert_string_not_equal(winner.kernel, second.kernel);
    assert_true(stats_of(f->ctx).compile_failures >= 1);
    char text[512];
    query(f->path, "SELECT config FROM choice", text, sizeof(text));
    assert_string_equal(text, winner.config);
    query(f->path, "SELECT count(*) > 0 FROM trial WHERE status = 'compile_error'", text,
          sizeof(text));
    assert_string_equal(text, "1");
    query(f->path, "SELECT count(*) > 0 FROM trial WHERE status = 'launch_error'", text,
          sizeof(text));
    assert_string_equal(text, "1");
}

/* Whatever failed on the way to a call that succeeds, the error record is as it was. */
static void test_success_leaves_the_error_record(void **state)
{
    static const gk_mode modes[] = {GK_MODE_TUNE, GK_MODE_HEURISTIC, GK_MODE_PINNED};
    api_fixture *f = *state;
    const gk_plan_description guess = guess_of(f, &f->s->call);
    fake_device_rule(f->fake, guess.kernel)->compile = GK_ERR_COMPILE;
    for (size_t i = 0; i < sizeof(modes) / sizeof(modes[0]); i++) {
        reopen(f, modes[i]);
        (void)gk_fail(GK_ERR_IO, "test", "before");
        square_run(f->ctx, f->s);
        assert_string_equal(gk_error_last()->message, "before");
        assert_true(stats_of(f->ctx).compile_failures >= (modes[i] == GK_MODE_HEURISTIC ? 0 : 1));
        run_sql(f->path, "DELETE FROM choice");
    }
    reopen(f, GK_MODE_HEURISTIC);
    (void)gk_fail(GK_ERR_IO, "test", "before");
    assert_gk_ok(gk_tune(f->ctx, "matmul", &f->s->call, NULL, NULL));
    assert_string_equal(gk_error_last()->message, "before");
    gk_plan_options options = GK_PLAN_OPTIONS_INIT;
    options.variant = "simt";
    assert_gk_ok(gk_plan_create(&f->plan, f->ctx, "matmul", &f->s->call, &options));
    assert_string_equal(gk_error_last()->message, "before");
    gk_plan_destroy(&f->plan);
    /* No room to tune: the guess serves. */
    run_sql(f->path, "DELETE FROM choice");
    reopen(f, GK_MODE_TUNE);
    f->fake->alloc.fail_at = atomic_load(&f->fake->alloc.calls) + 1;
    f->fake->alloc.fail_count = -1;
    f->fake->alloc.status = GK_ERR_NOMEM;
    (void)gk_fail(GK_ERR_IO, "test", "before");
    square_run(f->ctx, f->s);
    assert_string_equal(gk_error_last()->message, "before");
    f->fake->alloc.fail_at = 0;
}

static void test_no_candidate(void **state)
{
    api_fixture *f = *state;
    f->fake->fallback.compile = GK_ERR_COMPILE;
    reopen(f, GK_MODE_TUNE);
    assert_gk_err(gk_matmul(f->ctx, &f->s->ta, &f->s->tb, &f->s->tc, NULL, NULL), GK_ERR_NO_CONFIG,
                  "candidates");
    assert_true(square_is_untouched(f->s));
    expect_rows(f, "choice", 0);
    expect_rows(f, "lease", 0);
    f->fake->fallback.compile = GK_OK;
    f->fake->fallback.launch = GK_ERR_DEVICE;
    assert_gk_err(gk_matmul_relu(f->ctx, &f->s->ta, &f->s->tb, &f->s->tc, NULL), GK_ERR_NO_CONFIG,
                  "candidates");
    assert_true(square_is_untouched(f->s));
    expect_rows(f, "choice", 0);
    f->fake->fallback.launch = GK_OK;
    assert_gk_ok(gk_matmul_relu(f->ctx, &f->s->ta, &f->s->tb, &f->s->tc, NULL));
    assert_true(square_is_right(f->s, true));
    expect_rows(f, "choice", 1);
}

/* The guess walks past codes that spill, however many launch-time values each of them has. */
static void test_guess_goes_on(void **state)
{
    api_fixture *f = *state;
    square_fill(f->s, 64); /* where each code has several */
    for (int i = 0; i < 6; i++) {
        const gk_plan_description info = guess_of(f, &f->s->call);
        for (uint32_t j = 0; j < f->fake->n_rules; j++) {
            assert_string_not_equal(info.kernel, f->fake->rules[j].match);
        }
        fake_device_rule(f->fake, info.kernel)->spill_bytes = 64;
    }
    reopen(f, GK_MODE_HEURISTIC);
    square_run(f->ctx, f->s);
    gk_context_destroy(&f->ctx);
    f->fake->n_rules = 0;
    f->fake->fallback.spill_bytes = 8;
    f->path = gk_test_path("other.db");
    reopen(f, GK_MODE_HEURISTIC);
    square_poison(f->s);
    assert_gk_err(gk_matmul(f->ctx, &f->s->ta, &f->s->tb, &f->s->tc, NULL, NULL), GK_ERR_NO_CONFIG,
                  "spill");
    assert_true(square_is_untouched(f->s));
}

/* .. and at last to the variant that serves everything, however slow the model thinks it is. */
static void test_guess_comes_to_the_first_variant(void **state)
{
    api_fixture *f = *state;
    /* Planned, never run. */
    const gk_tensor a = gk_matrix((void *)0x100000000, GK_F16, 4096, 4096);
    const gk_tensor b = gk_matrix((void *)0x200000000, GK_F16, 4096, 4096);
    const gk_tensor c = gk_matrix((void *)0x300000000, GK_F16, 4096, 4096);
    gk_call call;
    assert_gk_ok(gk_matmul_call(&call, &a, &b, &c, NULL));
    assert_string_equal(guess_of(f, &call).variant, "wgmma");
    fake_device_rule(f->fake, "wgmma")->spill_bytes = 64;
    fake_device_rule(f->fake, "mma")->spill_bytes = 64;
    assert_string_equal(guess_of(f, &call).variant, "simt");
}

static void test_no_compiler(void **state)
{
    api_fixture *f = *state;
    f->fake->fallback.compile = GK_ERR_NO_COMPILER;
    reopen(f, GK_MODE_TUNE);
    assert_gk_err(gk_matmul(f->ctx, &f->s->ta, &f->s->tb, &f->s->tc, NULL, NULL),
                  GK_ERR_NO_COMPILER, NULL);
    expect_rows(f, "choice", 0);
    expect_rows(f, "trial", 0);
    expect_rows(f, "lease", 0);
    /* It is not held against the configurations. */
    f->fake->fallback.compile = GK_OK;
    square_run(f->ctx, f->s);
    expect_rows(f, "choice", 1);
}

static void test_lost_device(void **state)
{
    api_fixture *f = *state;
    reopen(f, GK_MODE_TUNE);
    square_run(f->ctx, f->s);
    expect_rows(f, "choice", 1);
    square *other = square_new(24);
    f->fake->fallback.launch = GK_ERR_LOST;
    char trials[64];
    query(f->path, "SELECT count(*) FROM trial", trials, sizeof(trials));
    assert_gk_err(gk_matmul(f->ctx, &other->ta, &other->tb, &other->tc, NULL, NULL), GK_ERR_LOST,
                  NULL);
    assert_true(square_is_untouched(other));
    /* Later calls fail fast: known problems at their launch, new ones before they compile. */
    square_poison(f->s);
    assert_gk_err(gk_matmul(f->ctx, &f->s->ta, &f->s->tb, &f->s->tc, NULL, NULL), GK_ERR_LOST,
                  NULL);
    assert_true(square_is_untouched(f->s));
    const uint64_t compiles = stats_of(f->ctx).compiles;
    assert_gk_err(gk_matmul_relu(f->ctx, &other->ta, &other->tb, &other->tc, NULL), GK_ERR_LOST,
                  NULL);
    assert_int_equal(stats_of(f->ctx).compiles, compiles);
    expect_rows(f, "choice", 1);
    expect_query(f->path, "SELECT count(*) FROM trial", trials);
    expect_rows(f, "lease", 0);
    gki_free(other);
}

/* --- stored answers that cannot be used --- */

static void test_stored_answers_are_untrusted(void **state)
{
    static const char *const changes[] = {
        ("config = 'BLOCK_K=7 BLOCK_M=7 BLOCK_N=7 GROUP_M=1 SLICE_K=1 SPLIT_K=1 STAGES=3 "
         "THREAD_M=8 "
         "THREAD_N=8'"),
        /* 4096 threads */
        ("config = 'BLOCK_K=8 BLOCK_M=128 BLOCK_N=256 GROUP_M=1 SLICE_K=1 SPLIT_K=1 STAGES=3 "
         "THREAD_M=2 THREAD_N=4'"),
        ("config = 'BLOCK_K=8 BLOCK_M=-64 BLOCK_N=64 GROUP_M=1 SLICE_K=1 SPLIT_K=1 STAGES=3 "
         "THREAD_M=8 THREAD_N=8'"),
        "config = 'BLOCK_M=64 -DX=1'",
        "config = ''",
        "config = NULL",
        "config = x'00ff00ff'",
        "config = 64",
        "variant = NULL",
        "variant = 'no such variant'",
        "variant = 'a name far longer than any variant may have, so that it does not fit'",
        "seconds = '64 -DX=1'",
        "seconds = NULL",
        "seconds = 9e999",
        "seconds = -1",
        "created = 'yesterday'",
    };
    api_fixture *f = *state;
    char good[512];
    f->fake->info.smem_per_block_optin = 8192; /* a short tuning */
    reopen(f, GK_MODE_TUNE);
    square_run(f->ctx, f->s);
    expect_rows(f, "choice", 1);
    for (size_t i = 0; i < sizeof(changes) / sizeof(changes[0]); i++) {
        char sql[400];
        (void)snprintf(sql, sizeof(sql), "UPDATE choice SET %s", changes[i]);
        gk_context_destroy(&f->ctx);
        run_sql(f->path, sql);
        reopen(f, GK_MODE_TUNE);
        square_run(f->ctx, f->s);
        square_run(f->ctx, f->s);
        if (f->log.warnings != 1 || stats_of(f->ctx).tunes != 1) {
            fail_msg("%s: %d warnings, %d tunings: %s", changes[i], f->log.warnings,
                     (int)stats_of(f->ctx).tunes, f->log.text);
        }
        gk_plan_description now = planned(f->ctx, &f->s->call);
        query(f->path, "SELECT variant || ' ' || config FROM choice", good, sizeof(good));
        assert_string_equal(strchr(good, ' ') + 1, now.config);
        expect_rows(f, "choice", 1);
    }
    reopen(f, GK_MODE_CACHED);
    square_run(f->ctx, f->s);
    assert_int_equal(f->log.warnings, 0);
}

/* Without the right to tune, an unusable answer counts as none. */
static void test_unusable_answer_when_cached(void **state)
{
    api_fixture *f = *state;
    reopen(f, GK_MODE_TUNE);
    square_run(f->ctx, f->s);
    gk_context_destroy(&f->ctx);
    run_sql(f->path, "UPDATE choice SET config = 'BLOCK_M=7'");
    reopen(f, GK_MODE_CACHED);
    square_poison(f->s);
    assert_gk_err(gk_matmul(f->ctx, &f->s->ta, &f->s->tb, &f->s->tc, NULL, NULL), GK_ERR_UNTUNED,
                  NULL);
    assert_true(square_is_untouched(f->s));
    assert_int_equal(f->log.warnings, 1);
}

/* A device too full for gk's copies of the operands still runs the call, on the guess. */
static void test_no_room_to_tune(void **state)
{
    api_fixture *f = *state;
    reopen(f, GK_MODE_TUNE);
    f->fake->alloc.fail_at = atomic_load(&f->fake->alloc.calls) + 1;
    f->fake->alloc.fail_count = -1;
    f->fake->alloc.status = GK_ERR_NOMEM;
    square_run(f->ctx, f->s);
    square_run(f->ctx, f->s);
    assert_int_equal(stats_of(f->ctx).guesses, 1);
    assert_int_equal(f->log.warnings, 1);
    expect_rows(f, "choice", 0);
    f->fake->alloc.fail_at = 0;
}

/* Trouble of the moment costs a call, not the answer that every process shares. */
static void test_passing_trouble_keeps_the_answer(void **state)
{
    static const gk_status passing[] = {GK_ERR_IO, GK_ERR_TIMEOUT, GK_ERR_NOMEM};
    api_fixture *f = *state;
    reopen(f, GK_MODE_TUNE);
    square_run(f->ctx, f->s);
    for (size_t i = 0; i < sizeof(passing) / sizeof(passing[0]); i++) {
        reopen(f, GK_MODE_CACHED);
        square_poison(f->s);
        f->fake->load.fail_at = atomic_load(&f->fake->load.calls) + 1;
        f->fake->load.status = passing[i];
        assert_gk_err(gk_matmul(f->ctx, &f->s->ta, &f->s->tb, &f->s->tc, NULL, NULL), passing[i],
                      "module_load");
        f->fake->load.fail_at = 0;
        assert_true(square_is_untouched(f->s));
        expect_rows(f, "choice", 1);
        square_run(f->ctx, f->s);
        assert_int_equal(f->log.warnings, 0);
    }
}

/* An answer that passes every check but does not load is tuned anew, on request as by a call. */
static void test_tune_replaces_what_does_not_load(void **state)
{
    api_fixture *f = *state;
    gk_tune_report report = {.struct_size = sizeof(report)};
    reopen(f, GK_MODE_TUNE);
    square_run(f->ctx, f->s);
    const gk_plan_description old = planned(f->ctx, &f->s->call);
    gk_context_destroy(&f->ctx);
    fake_device_rule(f->fake, old.kernel)->load = GK_ERR_DEVICE;
    reopen(f, GK_MODE_TUNE);
    assert_gk_ok(gk_tune(f->ctx, "matmul", &f->s->call, NULL, &report));
    assert_false(report.from_cache);
    assert_true(report.saved);
    assert_true(f->log.warnings >= 1);
    const gk_plan_description now = planned(f->ctx, &f->s->call);
    assert_string_not_equal(now.kernel, old.kernel);
    assert_string_equal(now.config, report.config);
    char text[512];
    query(f->path, "SELECT config FROM choice", text, sizeof(text));
    assert_string_equal(text, now.config);
    square_run(f->ctx, f->s);
}

/* An answer that only memory holds is not saved, however often it is asked for. */
static void test_saved(void **state)
{
    api_fixture *f = *state;
    gk_tune_options retune = GK_TUNE_OPTIONS_INIT;
    gk_tune_report report = {.struct_size = sizeof(report)};
    retune.retune = true;
    f->fake->info.smem_per_block_optin = 8192; /* short tunings */
    reopen(f, GK_MODE_CACHED);
    for (int i = 0; i < 2; i++) {
        assert_gk_ok(gk_tune(f->ctx, "matmul", &f->s->call, NULL, &report));
        assert_true(report.saved);
        assert_int_equal(report.from_cache, i);
    }
    gk_context_destroy(&f->ctx);
    run_sql(f->path, "PRAGMA user_version = 99"); /* from now on it is only read */
    reopen(f, GK_MODE_CACHED);
    assert_gk_ok(gk_tune(f->ctx, "matmul", &f->s->call, NULL, &report));
    assert_true(report.from_cache);
    assert_true(report.saved);
    square *other = square_new(24);
    for (int i = 0; i < 2; i++) {
        assert_gk_ok(gk_tune(f->ctx, "matmul", &other->call, NULL, &report));
        assert_int_equal(report.from_cache, i);
        assert_false(report.saved);
    }
    gki_free(other);
    /* Another answer than the file's. */
    fake_device_rule(f->fake, planned(f->ctx, &f->s->call).kernel)->seconds = 1;
    reopen(f, GK_MODE_CACHED);
    for (int i = 0; i < 2; i++) {
        assert_gk_ok(gk_tune(f->ctx, "matmul", &f->s->call, i == 0 ? &retune : NULL, &report));
        assert_int_equal(report.from_cache, i);
        assert_false(report.saved);
    }
    expect_rows(f, "choice", 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        API_TEST(test_tune),
        API_TEST(test_heuristic),
        API_TEST(test_cached),
        API_TEST(test_pinned),
        API_TEST(test_bad_candidates),
        API_TEST(test_success_leaves_the_error_record),
        API_TEST(test_no_candidate),
        API_TEST(test_guess_goes_on),
        API_TEST(test_guess_comes_to_the_first_variant),
        API_TEST(test_no_compiler),
        API_TEST(test_lost_device),
        API_TEST(test_stored_answers_are_untrusted),
        API_TEST(test_unusable_answer_when_cached),
        API_TEST(test_no_room_to_tune),
        API_TEST(test_passing_trouble_keeps_the_answer),
        API_TEST(test_tune_replaces_what_does_not_load),
        API_TEST(test_saved),
    };
    return GK_TEST_MAIN(tests);
}
