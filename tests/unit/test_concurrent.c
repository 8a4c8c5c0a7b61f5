/* Several threads, several processes, captures: who does the work, and what the others do. */
#define _GNU_SOURCE
#include "api_case.h"

#include <pthread.h>
#include <time.h>

#include "base/clock.h"
#include "in_child.h"

enum { THREADS = 8 };

static pthread_barrier_t barrier;

/* The kernel that the calling thread launched last. */
static _Thread_local char last_kernel[FAKE_NAME];

static gk_status note_and_run(void *user, const fake_module *module,
                              const gki_kernel_launch *launch)
{
    (void)snprintf(last_kernel, sizeof(last_kernel), "%s", module->kernel);
    return matmul_on_host(user, module, launch);
}

static int set_up(void **state)
{
    api_fixture *f = api_set_up(state, small_device(), 16);
    f->fake->run = note_and_run;
    f->ctx = context_on(f->fake, GK_MODE_TUNE, f->path, NULL);
    return 0;
}

/* --- threads --- */

typedef struct worker {
    api_fixture *f;
    square *s;
    pthread_t thread;
    gk_status status;
    bool right;
    char kernels[2][FAKE_NAME];
} worker;

static void *call_once(void *user)
{
    worker *w = user;
    (void)pthread_barrier_wait(&barrier);
    w->status = gk_matmul(w->f->ctx, &w->s->ta, &w->s->tb, &w->s->tc, NULL, NULL);
    w->right = square_is_right(w->s, false);
    return NULL;
}

static void run_workers(api_fixture *f, worker *workers, void *(*body)(void *))
{
    for (int i = 0; i < THREADS; i++) {
        workers[i].f = f;
        workers[i].status = GK_ERR_INTERNAL;
        assert_int_equal(pthread_create(&workers[i].thread, NULL, body, &workers[i]), 0);
    }
}

static void join_workers(worker *workers)
{
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_join(workers[i].thread, NULL), 0);
        assert_int_equal(workers[i].status, GK_OK);
        assert_true(workers[i].right);
        gki_free(workers[i].s);
    }
}

static void test_one_cold_key(void **state)
{
    api_fixture *f = *state;
    worker workers[THREADS] = {{0}};
    f->fake->compile_ms = 2;
    assert_int_equal(pthread_barrier_init(&barrier, NULL, THREADS), 0);
    for (int i = 0; i < THREADS; i++) {
        workers[i].s = square_new(16);
    }
    run_workers(f, workers, call_once);
    join_workers(workers);
    gk_statistics stats = stats_of(f->ctx);
    assert_int_equal(stats.tunes, 1);
    assert_int_equal(stats.misses, 1);
    assert_int_equal(stats.calls, THREADS);
    expect_rows(f, "choice", 1);
    /* Each code was compiled once: as many compiles as keys. */
    expect_rows(f, "kernel", stats.compiles);
    assert_int_equal(atomic_load(&f->fake->compile.calls), stats.compiles);
    assert_int_equal(atomic_load(&f->fake->load.calls), stats.kernels_loaded);
    for (int i = 0; i < THREADS; i++) {
        workers[i].s = square_new(17 + i);
    }
    run_workers(f, workers, call_once);
    join_workers(workers);
    stats = stats_of(f->ctx);
    assert_int_equal(stats.tunes, 1 + THREADS);
    assert_int_equal(stats.misses, 1 + THREADS);
    expect_rows(f, "choice", 1 + THREADS);
    expect_rows(f, "lease", 0);
    expect_rows(f, "kernel", stats.compiles);
    assert_int_equal(atomic_load(&f->fake->compile.calls), stats.compiles);
    assert_int_equal(pthread_barrier_destroy(&barrier), 0);
}

/* In a mode that does not tune the guess is compiled once as well. */
static void test_one_cold_key_untuned(void **state)
{
    api_fixture *f = *state;
    worker workers[THREADS] = {{0}};
    gk_context_destroy(&f->ctx);
    f->ctx = context_on(f->fake, GK_MODE_HEURISTIC, f->path, NULL);
    f->fake->compile_ms = 20;
    assert_int_equal(pthread_barrier_init(&barrier, NULL, THREADS), 0);
    for (int i = 0; i < THREADS; i++) {
        workers[i].s = square_new(16);
    }
    run_workers(f, workers, call_once);
    join_workers(workers);
    const gk_statistics stats = stats_of(f->ctx);
    assert_int_equal(stats.compiles, 1);
    assert_int_equal(stats.guesses, 1);
    assert_int_equal(stats.misses, 1);
    assert_int_equal(pthread_barrier_destroy(&barrier), 0);
}

static void *call_in_vain(void *user)
{
    worker *w = user;
    (void)pthread_barrier_wait(&barrier);
    w->status = gk_matmul(w->f->ctx, &w->s->ta, &w->s->tb, &w->s->tc, NULL, NULL);
    memcpy(w->kernels[0], gk_error_last()->message, FAKE_NAME);
    w->right = gk_error_last()->status == w->status && square_is_untouched(w->s);
    return NULL;
}

/* The threads that waited share the failure: none of them tries it all over again. */
static void test_one_failure(void **state)
{
    api_fixture *f = *state;
    worker workers[THREADS] = {{0}};
    f->fake->compile_ms = 20;
    f->fake->fallback.compile = GK_ERR_COMPILE;
    assert_int_equal(pthread_barrier_init(&barrier, NULL, THREADS), 0);
    for (int i = 0; i < THREADS; i++) {
        workers[i].s = square_new(16);
    }
    run_workers(f, workers, call_in_vain);
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_join(workers[i].thread, NULL), 0);
        assert_int_not_equal(workers[i].status, GK_OK);
        assert_int_equal(workers[i].status, workers[0].status);
        assert_memory_equal(workers[i].kernels[0], workers[0].kernels[0], FAKE_NAME);
        assert_true(workers[i].right);
        gki_free(workers[i].s);
    }
    assert_int_equal(stats_of(f->ctx).misses, 1);
    /* Later calls do try again. */
    assert_gk_err(gk_matmul(f->ctx, &f->s->ta, &f->s->tb, &f->s->tc, NULL, NULL), workers[0].status,
                  NULL);
    assert_int_equal(stats_of(f->ctx).misses, 2);
    assert_int_equal(pthread_barrier_destroy(&barrier), 0);
}

static void *call_before_and_after(void *user)
{
    worker *w = user;
    for (int i = 0; i < 2; i++) {
        (void)pthread_barrier_wait(&barrier);
        square_poison(w->s);
        w->status = gk_matmul(w->f->ctx, &w->s->ta, &w->s->tb, &w->s->tc, NULL, NULL);
        w->right = square_is_right(w->s, false) && (i == 0 || w->right);
        memcpy(w->kernels[i], last_kernel, FAKE_NAME);
        (void)pthread_barrier_wait(&barrier);
    }
    return NULL;
}

/* The kernel of that name takes ten times as long as the others. */
static gk_status slow_one(void *user, const fake_module *module, const gki_kernel_launch *launches,
                          uint32_t count, uint32_t repeats, bool graph, double *seconds)
{
    (void)launches;
    (void)count;
    (void)repeats;
    (void)graph;
    *seconds = strcmp(module->kernel, user) == 0 ? 1e-3 : 1e-4;
    return GK_OK;
}

/* Threads that have the old answer at hand run the new one after a tuning. */
static void test_retune_reaches_all_threads(void **state)
{
    api_fixture *f = *state;
    worker workers[THREADS] = {{0}};
    gk_tune_options options = GK_TUNE_OPTIONS_INIT;
    gk_tune_report report = {.struct_size = sizeof(report)};
    square_run(f->ctx, f->s);
    const gk_plan_description old = planned(f->ctx, &f->s->call);
    assert_int_equal(pthread_barrier_init(&barrier, NULL, THREADS + 1), 0);
    for (int i = 0; i < THREADS; i++) {
        workers[i].s = square_new(16);
    }
    run_workers(f, workers, call_before_and_after);
    (void)pthread_barrier_wait(&barrier);
    (void)pthread_barrier_wait(&barrier);
    /* The winner has become slow. */
    f->fake->timer = slow_one;
    f->fake->timer_user = (void *)(uintptr_t)old.kernel;
    options.retune = true;
    gk_plan *plan = NULL; /* holds the old answer beyond the tuning */
    assert_gk_ok(gk_plan_create(&plan, f->ctx, "matmul", &f->s->call, NULL));
    assert_gk_ok(gk_tune(f->ctx, "matmul", &f->s->call, &options, &report));
    const gk_plan_description now = planned(f->ctx, &f->s->call);
    assert_string_not_equal(now.kernel, old.kernel);
    (void)pthread_barrier_wait(&barrier);
    (void)pthread_barrier_wait(&barrier);
    for (int i = 0; i < THREADS; i++) {
        assert_string_equal(workers[i].kernels[0], old.kernel);
        assert_string_equal(workers[i].kernels[1], now.kernel);
    }
    join_workers(workers);
    square_poison(f->s);
    assert_gk_ok(gk_plan_run(plan, &f->s->call, NULL));
    assert_true(square_is_right(f->s, false));
    assert_string_equal(last_kernel, old.kernel);
    gk_plan_destroy(&plan);
    char config[512];
    query(f->path, "SELECT config FROM choice", config, sizeof(config));
    assert_string_equal(config, now.config);
    assert_int_equal(pthread_barrier_destroy(&barrier), 0);
}

/* --- captures --- */

static void test_capture(void **state)
{
    api_fixture *f = *state;
    square *other = square_new(24);
    f->fake->capturing = true;
    assert_gk_err(gk_matmul(f->ctx, &f->s->ta, &f->s->tb, &f->s->tc, NULL, NULL),
                  GK_ERR_NOT_PREPARED, "captured");
    assert_gk_err(gk_prepare(f->ctx, "matmul", &f->s->call, NULL), GK_ERR_NOT_PREPARED, NULL);
    assert_true(square_is_untouched(f->s));
    assert_int_equal(atomic_load(&f->fake->compile.calls), 0);
    assert_int_equal(atomic_load(&f->fake->alloc.calls), 0);
    assert_int_equal(stats_of(f->ctx).misses, 0);
    f->fake->capturing = false;
    square_run(f->ctx, f->s);
    assert_gk_ok(gk_prepare(f->ctx, "matmul", &other->call, NULL));
    assert_true(square_is_untouched(other));
    const gk_statistics before = stats_of(f->ctx);
    const int allocations = atomic_load(&f->fake->alloc.calls);
    f->fake->capturing = true;
    square_run(f->ctx, f->s);
    square_run(f->ctx, other);
    /* What is there already may be asked for in a capture, too. */
    assert_gk_ok(gk_prepare(f->ctx, "matmul", &other->call, NULL));
    assert_int_equal(planned(f->ctx, &other->call).source, GK_SOURCE_TUNED);
    const gk_statistics after = stats_of(f->ctx);
    assert_int_equal(after.calls, before.calls + 2);
    assert_int_equal(after.compiles, before.compiles);
    assert_int_equal(after.kernels_loaded, before.kernels_loaded);
    assert_int_equal(atomic_load(&f->fake->alloc.calls), allocations);
    f->fake->capturing = false;
    gki_free(other);
}

/* --- another process --- */

typedef struct key_texts {
    char path[4096];
    char problem[512];
    char environment[512];
} key_texts;

static key_texts wanted; /* by the child */

/* Takes the lease and dies. */
static void hold_lease(void *data)
{
    bool *held = data;
    gki_cache *cache = NULL;
    const gki_key key = {"matmul", wanted.problem, wanted.environment};
    if (gki_cache_open(&cache, wanted.path, 0, NULL) == GK_OK) {
        *held = gki_cache_lease(cache, &key, 60);
    }
}

/* With time for the tuning afterwards, however busy the machine is, if the budget is long. */
static void let_another_tune(api_fixture *f, double budget_s)
{
    gk_problem problem;
    bool held = false;
    memset(&problem, 0, sizeof(problem));
    const gk_op_desc *op = gk_op_find("matmul", NULL);
    assert_gk_ok(op->infer(&f->s->call, &problem));
    (void)snprintf(wanted.path, sizeof(wanted.path), "%s", f->path);
    gki_problem_text(op, &problem, wanted.problem, sizeof(wanted.problem));
    assert_gk_ok(
        gki_environment_text(f->ctx->jit, op, wanted.environment, sizeof(wanted.environment)));
    in_child(hold_lease, &held, sizeof(held));
    assert_true(held);
    expect_rows(f, "lease", 1);
    /* The fork was no use of this context's own. */
    gk_context_destroy(&f->ctx);
    f->ctx = context_within(f->fake, GK_MODE_TUNE, f->path, NULL, budget_s);
}

static void test_lease_of_another_process(void **state)
{
    api_fixture *f = *state;
    let_another_tune(f, 60);
    for (uint64_t i = 1; i <= 3; i++) {
        /* The cache is asked once in a while, not at each call. */
        square_run(f->ctx, f->s);
        const uint64_t misses = stats_of(f->ctx).misses;
        for (int call = 0; call < 20; call++) {
            square_run(f->ctx, f->s);
        }
        assert_in_range(stats_of(f->ctx).misses, misses, misses + 1);
        assert_in_range(misses, i, 2 * i);
        assert_int_equal(stats_of(f->ctx).tunes, 0);
        gki_clock_sleep_ms(120);
    }
    assert_int_equal(stats_of(f->ctx).calls, 63);
    assert_int_equal(stats_of(f->ctx).compiles, 1);
    expect_rows(f, "choice", 0);
    expect_rows(f, "lease", 1);
    /* It has given up. */
    run_sql(f->path, "UPDATE lease SET expires = 1");
    gki_clock_sleep_ms(120);
    square_run(f->ctx, f->s);
    assert_int_equal(stats_of(f->ctx).tunes, 1);
    assert_int_equal(planned(f->ctx, &f->s->call).source, GK_SOURCE_TUNED);
    expect_rows(f, "choice", 1);
    expect_rows(f, "lease", 0);
}

static void *end_lease_soon(void *user)
{
    const struct timespec pause = {0, 200 * 1000000};
    nanosleep(&pause, NULL);
    run_sql(((api_fixture *)user)->path, "DELETE FROM lease");
    return NULL;
}

/* Preparing waits for the other's answer: later calls must not depend on when it comes. */
static void test_prepare_beside_another_process(void **state)
{
    api_fixture *f = *state;
    pthread_t thread;
    let_another_tune(f, 60);
    assert_int_equal(pthread_create(&thread, NULL, end_lease_soon, f), 0);
    assert_gk_ok(gk_prepare(f->ctx, "matmul", &f->s->call, NULL));
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(planned(f->ctx, &f->s->call).source, GK_SOURCE_TUNED);
    f->fake->capturing = true;
    square_run(f->ctx, f->s);
    f->fake->capturing = false;
}

/* If it does not come, the guess has to do, for captures as well. */
static void test_prepare_beside_a_dead_process(void **state)
{
    api_fixture *f = *state;
    let_another_tune(f, 0.1);
    assert_gk_ok(gk_prepare(f->ctx, "matmul", &f->s->call, NULL));
    assert_int_equal(stats_of(f->ctx).tunes, 0);
    f->fake->capturing = true;
    square_run(f->ctx, f->s);
    f->fake->capturing = false;
    expect_rows(f, "lease", 1);
}

typedef struct lease_watch {
    const char *path;
    char leases[16]; /* while candidates are checked */
} lease_watch;

static bool look_at_leases(void *user, const gk_tune_progress *progress)
{
    lease_watch *watch = user;
    if (strcmp(progress->stage, "verify") == 0) {
        query(watch->path, "SELECT count(*) FROM lease", watch->leases, sizeof(watch->leases));
    }
    return true;
}

/* A tuning on request keeps others from measuring at the same time. */
static void test_tune_takes_the_lease(void **state)
{
    api_fixture *f = *state;
    gk_tune_options options = GK_TUNE_OPTIONS_INIT;
    lease_watch watch = {.path = f->path};
    options.progress = look_at_leases;
    options.progress_user = &watch;
    assert_gk_ok(gk_tune(f->ctx, "matmul", &f->s->call, &options, NULL));
    assert_string_equal(watch.leases, "1");
    expect_rows(f, "lease", 0);
    expect_rows(f, "choice", 1);
}

/* --- calls from the progress callback of a tuning --- */

typedef struct nesting {
    api_fixture *f;
    square *other;  /* a problem of its own */
    square *theirs; /* that another thread works on */
    square *prepared;
    pthread_t thread; /* that other thread */
    gk_status status; /* its */
    gk_source source;
    bool right;
    int progressed;
} nesting;

static void *call_theirs(void *user)
{
    nesting *n = user;
    square *s = n->theirs;
    n->status = gk_matmul(n->f->ctx, &s->ta, &s->tb, &s->tc, NULL, NULL);
    return NULL;
}

/* Until the other thread has taken its problem on, and waits for the tuning to end. */
static void start_theirs(nesting *n)
{
    bool on_its_way = false;
    assert_int_equal(pthread_create(&n->thread, NULL, call_theirs, n), 0);
    while (!on_its_way) {
        gki_clock_sleep_ms(1);
        (void)pthread_mutex_lock(&n->f->ctx->mutex);
        on_its_way = n->f->ctx->flights != NULL;
        (void)pthread_mutex_unlock(&n->f->ctx->mutex);
    }
}

static bool call_nested(void *user, const gk_tune_progress *progress)
{
    nesting *n = user;
    gk_context *ctx = n->f->ctx;
    (void)progress;
    if (n->progressed++ > 0) {
        return true;
    }
    start_theirs(n);
    square_run(ctx, n->other);
    square_run(ctx, n->f->s);
    square *copy = square_new(n->theirs->n);
    square_run(ctx, copy);
    gki_free(copy);
    n->source = planned(ctx, &n->other->call).source;
    assert_gk_ok(gk_prepare(ctx, "matmul", &n->prepared->call, NULL));
    assert_gk_err(gk_tune(ctx, "matmul", &n->other->call, NULL, NULL), GK_ERR_INVALID,
                  "progress callback");
    assert_int_equal(stats_of(ctx).tunes, 0);
    return true;
}

static void test_calls_while_tuning(void **state)
{
    api_fixture *f = *state;
    nesting n = {.f = f, .status = GK_ERR_INTERNAL};
    n.other = square_new(24);
    n.theirs = square_new(20);
    n.prepared = square_new(28);
    gk_tune_options options = GK_TUNE_OPTIONS_INIT;
    options.progress = call_nested;
    options.progress_user = &n;
    (void)alarm(60); /* a deadlock ends here */
    assert_gk_ok(gk_tune(f->ctx, "matmul", &f->s->call, &options, NULL));
    assert_int_equal(pthread_join(n.thread, NULL), 0);
    (void)alarm(0);
    assert_true(n.progressed > 1);
    assert_int_equal(n.source, GK_SOURCE_GUESS);
    assert_int_equal(n.status, GK_OK);
    assert_true(square_is_right(n.theirs, false));
    assert_int_equal(stats_of(f->ctx).tunes, 2);
    expect_rows(f, "lease", 0);
    /* What ran untuned is tuned by the next call, but for what was settled on. */
    assert_int_equal(planned(f->ctx, &f->s->call).source, GK_SOURCE_TUNED);
    square_run(f->ctx, n.prepared);
    assert_int_equal(stats_of(f->ctx).tunes, 2);
    square_run(f->ctx, n.other);
    assert_int_equal(stats_of(f->ctx).tunes, 3);
    gki_free(n.other);
    gki_free(n.theirs);
    gki_free(n.prepared);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        API_TEST(test_one_cold_key),
        API_TEST(test_one_cold_key_untuned),
        API_TEST(test_one_failure),
        API_TEST(test_retune_reaches_all_threads),
        API_TEST(test_capture),
        API_TEST(test_lease_of_another_process),
        API_TEST(test_prepare_beside_another_process),
        API_TEST(test_prepare_beside_a_dead_process),
        API_TEST(test_tune_takes_the_lease),
        API_TEST(test_calls_while_tuning),
    };
    return GK_TEST_MAIN(tests);
}
