/* Many threads on one cache and on two caches of one file, with forks in between. */
#define _GNU_SOURCE
#include "cache_case.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/wait.h>

#include "base/alloc.h"

enum { THREADS = 8, KEYS = 10 };

/* The sanitizers' allocators do not survive a fork of a process with threads. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { FORKS = 0 };
#else
enum { FORKS = 5 };
#endif

typedef struct job {
    gki_cache *cache;
    int number;
    _Atomic int *failures;
    pthread_barrier_t *barrier;
} job;

static bool work(const job *j)
{
    /* All ask for one key first: one answer wins everywhere. */
    gki_choice choice = make_choice("T=0", 1);
    (void)snprintf(choice.config, sizeof choice.config, "T=%d", j->number);
    bool saved = false;
    gki_choice back;
    bool ok = gki_cache_publish(j->cache, &key_a, &choice, NULL, 0, false, &saved) == GK_OK &&
              saved && gki_cache_choice_get(j->cache, &key_a, &back) == GK_OK &&
              strcmp(back.config, choice.config) == 0;
    for (int i = 0; i < KEYS && ok; i++) {
        char problem[32];
        (void)snprintf(problem, sizeof problem, "%d %d", j->number, i);
        gki_key key = {"matmul", problem, "e"};
        gki_choice own = make_choice(problem, 1);
        gki_digest digest = gki_sha256(problem, sizeof problem);
        gki_kernel_record record = {.code = (unsigned char *)problem, .size = sizeof problem};
        gki_kernel_record got;
        ok = gki_cache_publish(j->cache, &key, &own, NULL, 0, false, &saved) == GK_OK && saved &&
             gki_cache_choice_get(j->cache, &key, &back) == GK_OK &&
             strcmp(back.config, problem) == 0;
        gki_cache_kernel_put(j->cache, &digest, "k", &record);
        ok = ok && gki_cache_kernel_get(j->cache, &digest, &got) == GK_OK &&
             got.size == sizeof problem && memcmp(got.code, problem, sizeof problem) == 0;
        gki_free(ok ? got.code : NULL);
        gki_cache_miss(j->cache, &key);
    }
    return ok;
}

static void *run(void *data)
{
    job *j = data;
    (void)pthread_barrier_wait(j->barrier);
    if (!work(j)) {
        atomic_fetch_add(j->failures, 1);
    }
    return NULL;
}

static void test_threads(void **state)
{
    (void)state;
    test_log log;
    const char *path = gk_test_path("gk.db");
    gki_cache *caches[2];
    gki_log sink = {.fn = test_log_line, .user = &log, .level = GK_LOG_WARNING};
    memset(&log, 0, sizeof log);
    for (int i = 0; i < 2; i++) {
        assert_gk_ok(gki_cache_open(&caches[i], path, 0, i == 0 ? &sink : NULL));
    }
    _Atomic int failures = 0;
    pthread_barrier_t barrier;
    pthread_t ids[THREADS];
    job jobs[THREADS];
    assert_int_equal(pthread_barrier_init(&barrier, NULL, THREADS), 0);
    for (int i = 0; i < THREADS; i++) {
        jobs[i] = (job){caches[i % 2], i, &failures, &barrier};
        assert_int_equal(pthread_create(&ids[i], NULL, run, &jobs[i]), 0);
    }
    /* Forks meet the threads anywhere; a child must find no lock held. */
    int children = 0;
    for (int i = 0; i < FORKS; i++) {
        pid_t pid = fork();
        assert_true(pid >= 0);
        if (pid == 0) {
            gki_choice choice;
            gk_status status = gki_cache_choice_get(caches[0], &key_a, &choice);
            _exit(status == GK_OK || status == GK_ERR_NOT_FOUND ? 0 : 1);
        }
        int status = 1;
        assert_int_equal(waitpid(pid, &status, 0), pid);
        children += status != 0 ? 1 : 0;
    }
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_join(ids[i], NULL), 0);
    }
    assert_int_equal(pthread_barrier_destroy(&barrier), 0);
    assert_int_equal(atomic_load(&failures), 0);
    assert_int_equal(children, 0);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(cache_state(caches[i]).errors, 0);
        gki_cache_close(&caches[i]);
    }
    assert_int_equal(log.warnings, 0);
    expect_query(path, "PRAGMA integrity_check", "ok");
    expect_query(path, "SELECT count(*) FROM choice", "81");
    expect_query(path, "SELECT count(*) FROM kernel", "80");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_threads),
    };
    return GK_TEST_MAIN(tests);
}
