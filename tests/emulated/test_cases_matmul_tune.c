/* matmul through tuning and the cache: side effects, identities, threads, locales. */
#define _GNU_SOURCE
#include "op_cases.h"

#include <dirent.h>
#include <locale.h>
#include <pthread.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "op_configs.h"

static gk_statistics stats_of(gk_context *ctx)
{
    gk_statistics stats = {.struct_size = sizeof(stats)};
    assert_gk_ok(gk_stats(ctx, &stats));
    return stats;
}

static bool count_entry(void *user, const gk_cache_entry *entry)
{
    *(uint32_t *)user += strcmp(entry->op, "matmul") == 0;
    return true;
}

static uint32_t stored_answers(gk_context *ctx)
{
    uint32_t count = 0;
    assert_gk_ok(gk_cache_list(ctx, NULL, count_entry, &count));
    return count;
}

/* --- tuned on aligned data, called on unaligned data --- */

static void run_pr(gk_context *ctx, int64_t lda, int64_t offset)
{
    const gk_tensor a = gk_matrix_strided(NULL, GK_F32, 64, 64, lda, 1);
    const gk_tensor b = gk_matrix(NULL, GK_F32, 64, 64);
    op_operands o;
    op_operands_create_as(&o, ctx, &a, &b, &b, 0);
    if (offset != 0) {
        op_buffer_destroy(&o.a);
        assert_gk_ok(op_buffer_create(&o.a, ctx, op_test_is_cpu(), &a, offset, false));
    }
    op_operands_pr(&o);
    op_operands_run(ctx, &o);
    op_operands_check_pr(&o);
    op_operands_destroy(&o);
}

static void unaligned_after_aligned(void **state)
{
    (void)state;
    gk_context *ctx = op_test_context(GK_MODE_TUNE, gk_test_path("cache.db"));
    run_pr(ctx, 64, 0);
    assert_int_equal(stats_of(ctx).tunes, 1);
    run_pr(ctx, 64, 0);
    assert_int_equal(stats_of(ctx).tunes, 1);
    run_pr(ctx, 64, 1);
    run_pr(ctx, 65, 0);
    gk_context_destroy(&ctx);
    /* The same again from the file. */
    ctx = op_test_context(GK_MODE_CACHED, gk_test_path("cache.db"));
    run_pr(ctx, 64, 0);
    run_pr(ctx, 64, 1);
    run_pr(ctx, 65, 0);
    assert_int_equal(stats_of(ctx).tunes, 0);
    assert_int_equal(stats_of(ctx).misses, 0);
    gk_context_destroy(&ctx);
}

/* --- stored answers that cannot be used --- */

static void change_answer(const char *set)
{
    sqlite3 *db = NULL;
    char sql[400];
    (void)snprintf(sql, sizeof(sql), "UPDATE choice SET %s", set);
    assert_int_equal(sqlite3_open(gk_test_path("cache.db"), &db), SQLITE_OK);
    assert_int_equal(sqlite3_exec(db, sql, NULL, NULL, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_changes(db), 1);
    assert_int_equal(sqlite3_close(db), SQLITE_OK);
}

static void count_warning(void *user, gk_log_level level, const char *line)
{
    (void)line;
    *(int *)user += level <= GK_LOG_WARNING ? 1 : 0;
}

/* Runs with what is stored and says how often was warned and tuned. */
static void run_stored(gk_mode mode, int *warnings, uint64_t *tunes)
{
    const gk_context_options options = {.struct_size = sizeof(options),
                                        .cache_path = gk_test_path("cache.db"),
                                        .mode = mode,
                                        .tune_budget_s = op_test_is_cpu() ? 120 : 2,
                                        .log = count_warning,
                                        .log_user = warnings};
    gk_context *ctx;
    *warnings = 0;
    assert_gk_ok(gk_context_create(&ctx, op_test_device(), &options));
    run_pr(ctx, 64, 0);
    run_pr(ctx, 64, 0);
    *tunes = stats_of(ctx).tunes;
    assert_int_equal(stored_answers(ctx), 1);
    gk_context_destroy(&ctx);
}

static void unusable_answers(void **state)
{
    static const char *const changes[] = {
        "config = 'BLOCK_K=7 BLOCK_M=7 BLOCK_N=7 GROUP_M=1 SLICE_K=1 SPLIT_K=1 STAGES=3 THREAD_M=8 "
        "THREAD_N=8'",
        /* 4096 threads */
        "config = 'BLOCK_K=8 BLOCK_M=128 BLOCK_N=256 GROUP_M=1 SLICE_K=1 SPLIT_K=1 STAGES=3 "
        "THREAD_M=2 THREAD_N=4'",
        "config = 'BLOCK_K=8 BLOCK_M=-64 BLOCK_N=64 GROUP_M=1 SLICE_K=1 SPLIT_K=1 STAGES=3 "
        "THREAD_M=8 THREAD_N=8'",
        "config = NULL",
        "seconds = '64 -DX=1'",
    };
    int warnings;
    uint64_t tunes;
    (void)state;
    run_stored(GK_MODE_TUNE, &warnings, &tunes);
    assert_int_equal(tunes, 1);
    assert_int_equal(warnings, 0);
    for (size_t i = 0; i < sizeof(changes) / sizeof(changes[0]); i++) {
        change_answer(changes[i]);
        run_stored(GK_MODE_TUNE, &warnings, &tunes);
        if (warnings != 1 || tunes != 1) {
            fail_msg("%s: %d warnings, %d tunings", changes[i], warnings, (int)tunes);
        }
        run_stored(GK_MODE_CACHED, &warnings, &tunes);
        assert_int_equal(warnings, 0);
        assert_int_equal(tunes, 0);
    }
}

/* --- in-place calls on a cold cache --- */

static void tuning_leaves_operands_alone(void **state)
{
    (void)state;
    enum { M = 40, N = 25, K = 4 };
    gk_context *ctx = op_test_context(GK_MODE_TUNE, NULL);
    for (int with_beta = 0; with_beta < 2; with_beta++) {
        op_operands o;
        op_operands_create(&o, ctx, GK_F32, GK_F32, M, N, K, false);
        for (int64_t k = 0; k < K; k++) {
            for (int64_t i = 0; i < M; i++) {
                op_buffer_set(&o.a, i, k, 0.25);
            }
            for (int64_t j = 0; j < N; j++) {
                op_buffer_set(&o.b, k, j, 1);
            }
        }
        for (int64_t i = 0; i < M * N; i++) {
            op_buffer_set(&o.c, i / N, i % N, (double)i);
        }
        /* c = a b + c, with a b = 1: as the residual in place, then by beta. */
        if (with_beta) {
            o.params.beta = 1;
        } else {
            o.params.residual = &o.c.device;
        }
        op_operands_upload(&o);
        for (int call = 1; call <= 2; call++) {
            assert_gk_ok(gk_matmul(ctx, &o.a.device, &o.b.device, &o.c.device, &o.params, NULL));
            op_operands_fetch(&o);
            for (int64_t i = 0; i < M * N; i++) {
                assert_true(op_operands_c(&o, i / N, i % N) == (double)(i + call));
            }
        }
        op_operands_destroy(&o);
    }
    assert_int_equal(stats_of(ctx).tunes, 2);
    gk_context_destroy(&ctx);
}

/* --- many threads --- */

enum { THREADS = 8 };

typedef struct thread_work {
    gk_context *ctx;
    pthread_barrier_t *barrier;
    op_operands o;
    gk_status status;
    char message[256];
} thread_work;

static void *call_matmul(void *user)
{
    thread_work *w = user;
    pthread_barrier_wait(w->barrier);
    w->status =
        gk_matmul(w->ctx, &w->o.a.device, &w->o.b.device, &w->o.c.device, &w->o.params, NULL);
    if (w->status != GK_OK) {
        snprintf(w->message, sizeof(w->message), "%.250s", gk_error_last()->message);
    }
    return NULL;
}

static void call_together(gk_context *ctx, const int64_t (*dims)[3])
{
    static thread_work work[THREADS];
    pthread_t threads[THREADS];
    pthread_barrier_t barrier;
    assert_int_equal(pthread_barrier_init(&barrier, NULL, THREADS), 0);
    for (int i = 0; i < THREADS; i++) {
        work[i].ctx = ctx;
        work[i].barrier = &barrier;
        op_operands_create(&work[i].o, ctx, GK_F32, GK_F32, dims[i][0], dims[i][1], dims[i][2],
                           false);
        op_operands_pr(&work[i].o);
        op_operands_upload(&work[i].o);
        assert_int_equal(pthread_create(&threads[i], NULL, call_matmul, &work[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    }
    for (int t = 0; t < THREADS; t++) {
        op_operands *o = &work[t].o;
        if (work[t].status != GK_OK) {
            fail_msg("thread %d: %s: %s", t, gk_status_name(work[t].status), work[t].message);
        }
        op_operands_fetch(o);
        for (int64_t i = 0; i < dims[t][0]; i++) {
            for (int64_t j = 0; j < dims[t][1]; j++) {
                assert_true(op_operands_c(o, i, j) == op_operands_pr_sum(i, j, dims[t][2]));
            }
        }
        if (dims[t][0] == 64 && dims[t][1] == 64 && dims[t][2] == 64) {
            op_operands_check_pr(o);
        }
        op_operands_destroy(o);
    }
    pthread_barrier_destroy(&barrier);
}

static void many_threads_one_cold_key(void **state)
{
    (void)state;
    static const int64_t one[THREADS][3] = {{64, 64, 64}, {64, 64, 64}, {64, 64, 64}, {64, 64, 64},
                                            {64, 64, 64}, {64, 64, 64}, {64, 64, 64}, {64, 64, 64}};
    static const int64_t many[THREADS][3] = {{64, 64, 32}, {32, 64, 64}, {64, 32, 64},
                                             {32, 32, 64}, {16, 64, 64}, {64, 16, 64},
                                             {64, 64, 16}, {16, 16, 64}};
    /* What a single thread compiles for the key. */
    gk_context *ctx = op_test_context(GK_MODE_TUNE, NULL);
    run_pr(ctx, 64, 0);
    const uint64_t compiles = stats_of(ctx).compiles;
    gk_context_destroy(&ctx);

    ctx = op_test_context(GK_MODE_TUNE, gk_test_path("cache.db"));
    call_together(ctx, one);
    assert_int_equal(stats_of(ctx).tunes, 1);
    assert_int_equal(stored_answers(ctx), 1);
    if (op_test_is_cpu()) { /* a GPU's budget ends where the clock says */
        assert_int_equal(stats_of(ctx).compiles, compiles);
    }
    call_together(ctx, many);
    assert_int_equal(stored_answers(ctx), 1 + THREADS);
    gk_context_destroy(&ctx);
}

/* --- threads that share a stream, and so the stream's workspace --- */

typedef struct plan_work {
    thread_work call;
    const gk_plan *plan;
    gk_call arguments;
} plan_work;

static void *run_split(void *user)
{
    plan_work *w = user;
    pthread_barrier_wait(w->call.barrier);
    for (int run = 0; run < 10 && w->call.status == GK_OK; run++) {
        w->call.status = gk_plan_run(w->plan, &w->arguments, NULL);
    }
    return NULL;
}

/* The first listed configuration of the first variant with the largest split that fits. */
static void split_config(gk_context *ctx, const gk_call *call, char *text, size_t size)
{
    const gk_op_desc *op = gk_op_find("matmul", NULL);
    gk_device_info device;
    gk_problem problem;
    uint32_t count;
    int32_t best = 1;
    memset(&problem, 0, sizeof(problem));
    assert_gk_ok(op->infer(call, &problem));
    assert_gk_ok(gk_device_info_get(ctx, &device));
    gk_config *configs = op_configs(op->variants[0], &problem, &device, false, &count);
    for (uint32_t i = 0; i < count; i++) {
        for (uint32_t p = 0; p < op->variants[0]->n_params; p++) {
            if (strcmp(op->variants[0]->params[p].name, "SPLIT_K") == 0 &&
                configs[i].values[p] > best) {
                best = configs[i].values[p];
                op_config_text(op->variants[0], &configs[i], text, size);
            }
        }
    }
    free(configs);
    assert_true(best > 1);
}

static void threads_share_a_stream(void **state)
{
    (void)state;
    static plan_work work[THREADS];
    pthread_t threads[THREADS];
    pthread_barrier_t barrier;
    char config[256];
    gk_plan *plan;
    gk_context *ctx = op_test_context(GK_MODE_HEURISTIC, NULL);
    assert_int_equal(pthread_barrier_init(&barrier, NULL, THREADS), 0);
    for (int i = 0; i < THREADS; i++) {
        op_operands *o = &work[i].call.o;
        op_operands_create(o, ctx, GK_F32, GK_F32, 64, 64, 64, false);
        op_operands_pr(o);
        for (int64_t e = 0; e < 64 * 64; e++) {
            op_buffer_set(&o->b, e / 64, e % 64, (i + 1) * op_buffer_get(&o->b, e / 64, e % 64));
        }
        op_operands_upload(o);
        work[i].arguments = op_operands_call(o);
        work[i].call.barrier = &barrier;
        work[i].call.status = GK_OK;
    }
    split_config(ctx, &work[0].arguments, config, sizeof(config));
    const gk_plan_options options = {.struct_size = sizeof(options),
                                     .variant = gk_op_find("matmul", NULL)->variants[0]->name,
                                     .config = config};
    assert_gk_ok(gk_plan_create(&plan, ctx, "matmul", &work[0].arguments, &options));
    for (int i = 0; i < THREADS; i++) {
        work[i].plan = plan;
        assert_int_equal(pthread_create(&threads[i], NULL, run_split, &work[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        double sum, weighted;
        assert_int_equal(work[i].call.status, GK_OK);
        op_operands_fetch(&work[i].call.o);
        op_operands_sums(&work[i].call.o, &sum, &weighted);
        assert_true(sum == 43 * (i + 1) && weighted == 31417.0 * (i + 1));
        op_operands_destroy(&work[i].call.o);
    }
    gk_plan_destroy(&plan);
    pthread_barrier_destroy(&barrier);
    gk_context_destroy(&ctx);
}

/* --- a decimal comma --- */

/* Built for the test, so that this cannot pass for want of the locale. */
static void build_locale(void)
{
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        execlp("localedef", "localedef", "--no-archive", "-i", "de_DE", "-f", "UTF-8",
               gk_test_path("de_DE.UTF-8"), (char *)NULL);
        _exit(127);
    }
    int how;
    assert_int_equal(waitpid(child, &how, 0), child);
    /* 1 stands for warnings about the locale's sources. */
    assert_true(WIFEXITED(how) && WEXITSTATUS(how) <= 1);
}

static void with_scales(const char *dump, const char *cache, gk_mode mode)
{
    assert_int_equal(mkdir(dump, 0700), 0);
    assert_int_equal(setenv("GK_DUMP_DIR", dump, 1), 0);
    gk_context *ctx = op_test_context(mode, cache);
    op_operands o;
    op_operands_create(&o, ctx, GK_F32, GK_F32, 3, 2, 1, false);
    for (int64_t i = 0; i < 3; i++) {
        op_buffer_set(&o.a, i, 0, (double)i + 0.5);
    }
    op_buffer_set(&o.b, 0, 0, 2);
    op_buffer_set(&o.b, 0, 1, 4);
    for (int64_t i = 0; i < 6; i++) {
        op_buffer_set(&o.c, i / 2, i % 2, 8);
    }
    o.params.alpha = 0.5;
    o.params.beta = 0.125;
    op_operands_run(ctx, &o);
    for (int64_t i = 0; i < 3; i++) {
        assert_true(op_operands_c(&o, i, 0) == (double)i + 1.5);
        assert_true(op_operands_c(&o, i, 1) == 2 * (double)i + 2);
    }
    const gk_call call = op_operands_call(&o);
    const gk_plan_options options = {.struct_size = sizeof(options), .mode = GK_MODE_CACHED};
    gk_plan *plan;
    gk_plan_description info = {.struct_size = sizeof(info)};
    assert_gk_ok(gk_plan_create(&plan, ctx, "matmul", &call, &options));
    assert_gk_ok(gk_plan_info(plan, &info));
    assert_true(info.tuned_seconds > 0 && info.tuned_seconds < 60);
    gk_plan_destroy(&plan);
    op_operands_destroy(&o);
    gk_context_destroy(&ctx);
    assert_int_equal(unsetenv("GK_DUMP_DIR"), 0);
}

/* Every source in `one` stands in `other` with the same bytes. Returns how many. */
static int same_sources(const char *one, const char *other)
{
    DIR *dir = opendir(one);
    assert_non_null(dir);
    int count = 0;
    for (struct dirent *e = readdir(dir); e != NULL; e = readdir(dir)) {
        char path[4096];
        size_t size[2];
        if (e->d_name[0] == '.') {
            continue;
        }
        (void)snprintf(path, sizeof(path), "%s/%s", one, e->d_name);
        char *a = gk_test_read(path, &size[0]);
        (void)snprintf(path, sizeof(path), "%s/%s", other, e->d_name);
        char *b = gk_test_read(path, &size[1]);
        assert_int_equal(size[0], size[1]);
        assert_memory_equal(a, b, size[0]);
        free(a);
        free(b);
        count++;
    }
    closedir(dir);
    return count;
}

static void decimal_comma(void **state)
{
    (void)state;
    char number[16];
    with_scales(gk_test_path("dump-c"), gk_test_path("c.db"), GK_MODE_TUNE);
    build_locale();
    assert_int_equal(setenv("LOCPATH", gk_test_dir(), 1), 0);
    assert_int_equal(setenv("LC_ALL", "de_DE.UTF-8", 1), 0);
    assert_non_null(setlocale(LC_ALL, ""));
    (void)snprintf(number, sizeof(number), "%.1f", 0.5);
    assert_string_equal(number, "0,5");
    with_scales(gk_test_path("dump-de"), gk_test_path("de.db"), GK_MODE_TUNE);
    with_scales(gk_test_path("dump-warm"), gk_test_path("de.db"), GK_MODE_CACHED);
    /* An answer stored under one locale serves the other. */
    with_scales(gk_test_path("dump-other"), gk_test_path("c.db"), GK_MODE_CACHED);
    assert_non_null(setlocale(LC_ALL, "C"));
    assert_int_equal(unsetenv("LC_ALL"), 0);
    assert_int_equal(unsetenv("LOCPATH"), 0);
    if (op_test_is_cpu()) {
        assert_true(same_sources(gk_test_path("dump-c"), gk_test_path("dump-de")) > 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(unaligned_after_aligned),      cmocka_unit_test(unusable_answers),
        cmocka_unit_test(tuning_leaves_operands_alone), cmocka_unit_test(many_threads_one_cold_key),
        cmocka_unit_test(threads_share_a_stream),       cmocka_unit_test(decimal_comma),
    };
    const int missing = op_test_missing();
    return missing != 0 ? missing : GK_TEST_MAIN(tests);
}
