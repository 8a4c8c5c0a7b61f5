/* Several processes on one file, forks, killed writers, and users without rights. Children report
 * through their exit status: an assertion would jump back into the parent's tests. */
#define _GNU_SOURCE
#include "cache_case.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>

#include "base/rng.h"

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            (void)fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);                  \
            return 1;                                                                              \
        }                                                                                          \
    } while (0)

static int wait_for(pid_t pid)
{
    int status = 0;
    while (waitpid(pid, &status, 0) < 0) {
        if (errno != EINTR) {
            return -1;
        }
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

static void expect_child(int (*fn)(void *arg), void *arg)
{
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        _exit(fn(arg));
    }
    assert_int_equal(wait_for(pid), 0);
}

static gki_cache *open_quietly(const char *path)
{
    gki_cache *cache = NULL;
    return gki_cache_open(&cache, path, 0, NULL) == GK_OK ? cache : NULL;
}

/* 1 = in the file, 0 = in memory, -1 = another one's answer, -2 = failed. */
static int publish(gki_cache *cache, const gki_key *key, const char *config)
{
    gki_choice choice = make_choice(config, 0.001);
    bool saved = false;
    if (gki_cache_publish(cache, key, &choice, NULL, 0, false, &saved) != GK_OK) {
        return -2;
    }
    return strcmp(choice.config, config) != 0 ? -1 : saved ? 1 : 0;
}

static bool has_answer(gki_cache *cache, const gki_key *key, const char *config)
{
    gki_choice choice;
    return gki_cache_choice_get(cache, key, &choice) == GK_OK && strcmp(choice.config, config) == 0;
}

static uint64_t errors_of(gki_cache *cache, char why[256])
{
    char path[4096];
    uint64_t errors = 0;
    gki_cache_state(cache, path, sizeof path, why, 256, &errors);
    return errors;
}

enum { PROCESSES = 16, OWN_KEYS = 20, ROUNDS = 4 };

static int cold_start(const char *path, int number, int barrier)
{
    char byte;
    CHECK(read(barrier, &byte, 1) == 0); /* until the parent closes its end */
    gki_cache *cache = open_quietly(path);
    CHECK(cache != NULL);
    CHECK(publish(cache, &key_a, "T=common") == 1);
    for (int i = 0; i < OWN_KEYS; i++) {
        char problem[32];
        char config[32];
        (void)snprintf(problem, sizeof problem, "%d of %d", i, number);
        (void)snprintf(config, sizeof config, "T=%d", i * 100 + number);
        gki_key key = {"matmul", problem, "e"};
        CHECK(publish(cache, &key, config) == 1);
        CHECK(has_answer(cache, &key, config));
    }
    char why[256];
    CHECK(errors_of(cache, why) == 0);
    CHECK(why[0] == '\0');
    gki_cache_close(&cache);
    return 0;
}

static void test_cold_start(void **state)
{
    (void)state;
    for (int round = 0; round < ROUNDS; round++) {
        char name[32];
        (void)snprintf(name, sizeof name, "round%d/gk.db", round);
        const char *path = gk_test_path(name);
        int barrier[2];
        pid_t pids[PROCESSES];
        assert_int_equal(pipe(barrier), 0);
        for (int i = 0; i < PROCESSES; i++) {
            pids[i] = fork();
            assert_true(pids[i] >= 0);
            if (pids[i] == 0) {
                (void)close(barrier[1]);
                _exit(cold_start(path, i, barrier[0]));
            }
        }
        (void)close(barrier[1]);
        (void)close(barrier[0]);
        int failed = 0;
        for (int i = 0; i < PROCESSES; i++) {
            failed += wait_for(pids[i]) != 0 ? 1 : 0;
        }
        assert_int_equal(failed, 0);
        expect_query(path, "PRAGMA integrity_check", "ok");
        expect_query(path, "PRAGMA journal_mode", "wal");
        expect_query(path, "SELECT count(*) FROM choice", "321");
    }
}

static int one_lease(void *arg)
{
    gki_cache *cache = open_quietly(arg);
    CHECK(cache != NULL);
    bool held = gki_cache_lease(cache, &key_a, 600);
    gki_cache_close(&cache);
    return held ? 10 : 0;
}

static void test_one_tuner(void **state)
{
    (void)state;
    char path[4200];
    (void)snprintf(path, sizeof path, "%s", gk_test_path("gk.db"));
    pid_t pids[PROCESSES];
    for (int i = 0; i < PROCESSES; i++) {
        pids[i] = fork();
        assert_true(pids[i] >= 0);
        if (pids[i] == 0) {
            _exit(one_lease(path));
        }
    }
    int sum = 0;
    for (int i = 0; i < PROCESSES; i++) {
        sum += wait_for(pids[i]);
    }
    assert_int_equal(sum, 10);
}

/* The child of a process that has the file open. */
static int forked(gki_cache *cache)
{
    gki_key child_key = {"matmul", "child", "e"};
    CHECK(has_answer(cache, &key_a, "T=parent"));
    CHECK(publish(cache, &child_key, "T=child") == 1);
    CHECK(!gki_cache_lease(cache, &key_a, 60)); /* the parent's */
    char path[4096];
    char why[256];
    uint64_t errors = 0;
    gki_cache_state(cache, path, sizeof path, why, sizeof why, &errors);
    CHECK(why[0] == '\0' && errors == 0);
    /* A cache of its own beside the inherited one. */
    gki_cache *own = open_quietly(path);
    CHECK(own != NULL);
    CHECK(has_answer(own, &child_key, "T=child"));
    gki_cache_close(&own);
    CHECK(has_answer(cache, &child_key, "T=child"));
    return 0;
}

static void test_fork(void **state)
{
    (void)state;
    for (int way = 0; way < 3; way++) {
        test_log log;
        char name[32];
        (void)snprintf(name, sizeof name, "way%d.db", way);
        const char *path = gk_test_path(name);
        gki_cache *cache = cache_open(path, &log);
        assert_true(put_answer(cache, &key_a, "T=parent"));
        assert_true(gki_cache_lease(cache, &key_a, 60));
        pid_t pid = fork();
        assert_true(pid >= 0);
        if (pid == 0) {
            int rc = forked(cache);
            if (way == 0) {
                _exit(rc);
            }
            gki_cache_close(&cache);
            if (way == 2) {
                exit(rc);
            }
            _exit(rc);
        }
        assert_int_equal(wait_for(pid), 0);
        assert_true(put_answer(cache, &key_b, "T=later"));
        expect_answer(cache, &(gki_key){"matmul", "child", "e"}, "T=child");
        gki_cache_close(&cache);
        assert_int_equal(log.warnings, 0);
        expect_query(path, "PRAGMA integrity_check", "ok");
        expect_query(path, "SELECT count(*) FROM choice", "3");
    }
}

/* The parent's close must not take the log away from a child that is at work. */
static void test_parent_closes_first(void **state)
{
    (void)state;
    test_log log;
    const char *path = gk_test_path("gk.db");
    gki_cache *cache = cache_open(path, &log);
    assert_true(put_answer(cache, &key_a, "T=parent"));
    int gate[2];
    int ready[2];
    assert_int_equal(pipe(gate), 0);
    assert_int_equal(pipe(ready), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        char byte = 0;
        (void)close(gate[1]);
        int rc = publish(cache, &(gki_key){"matmul", "1", "e"}, "T=1") == 1 ? 0 : 1;
        rc |= write(ready[1], &byte, 1) == 1 ? 0 : 2;
        rc |= read(gate[0], &byte, 1) == 0 ? 0 : 4;
        rc |= publish(cache, &(gki_key){"matmul", "2", "e"}, "T=2") == 1 ? 0 : 8;
        _exit(rc);
    }
    char byte = 1;
    assert_int_equal(read(ready[0], &byte, 1), 1);
    assert_true(put_answer(cache, &key_b, "T=p"));
    gki_cache_close(&cache);
    for (int i = 0; i < 2; i++) {
        (void)close(gate[i]);
        (void)close(ready[i]);
    }
    assert_int_equal(wait_for(pid), 0);
    expect_query(path, "PRAGMA integrity_check", "ok");
    expect_query(path, "SELECT count(*) FROM choice", "4");
}

static int write_for_ever(const char *path)
{
    gki_cache *cache = open_quietly(path);
    CHECK(cache != NULL);
    for (int i = 0;; i++) {
        char problem[32];
        (void)snprintf(problem, sizeof problem, "%ld %d", (long)getpid(), i);
        gki_key key = {"matmul", problem, "e"};
        gk_trial trials[3] = {
            {.variant = "simt", .config = "T=1", .status = "ok", .seconds = 1},
            {.variant = "simt", .config = "T=2", .status = "ok", .seconds = 2},
            {.variant = "simt", .config = "T=3", .status = "ok", .seconds = 3},
        };
        gki_choice choice = make_choice("T=1", 1);
        bool saved = false;
        CHECK(gki_cache_publish(cache, &key, &choice, trials, 3, false, &saved) == GK_OK && saved);
        gki_digest digest = gki_sha256(problem, sizeof problem);
        unsigned char code[5000] = {(unsigned char)i};
        gki_kernel_record record = {.code = code, .size = sizeof code};
        gki_cache_kernel_put(cache, &digest, "k", &record);
    }
}

static void test_killed_writers(void **state)
{
    (void)state;
    const char *path = gk_test_path("gk.db");
    gki_rng rng;
    gki_rng_seed(&rng, 11);
    for (int i = 0; i < 30; i++) {
        pid_t pid = fork();
        assert_true(pid >= 0);
        if (pid == 0) {
            _exit(write_for_ever(path));
        }
        struct timespec pause = {.tv_nsec = (long)gki_rng_below(&rng, 40000000)};
        (void)nanosleep(&pause, NULL);
        assert_int_equal(kill(pid, SIGKILL), 0);
        assert_int_equal(wait_for(pid), 1000 + SIGKILL);
    }
    test_log log;
    gki_cache *cache = cache_open(path, &log);
    assert_true(put_answer(cache, &key_a, "T=after"));
    gki_cache_close(&cache);
    assert_int_equal(log.warnings, 0);
    expect_query(path, "PRAGMA integrity_check", "ok");
    /* Whole publications only. */
    expect_query(path,
                 "SELECT count(*) FROM choice c WHERE (SELECT count(*) FROM trial t"
                 " WHERE t.problem = c.problem) NOT IN (0, 3)",
                 "0");
    char rows[32];
    query(path, "SELECT count(*) FROM choice", rows, sizeof rows);
    assert_true(strtol(rows, NULL, 10) > 30);
}

static bool become_nobody(void)
{
    return geteuid() != 0 || (setgid(12345) == 0 && setuid(12345) == 0);
}

/* On a mount that cannot be written, with the file as a clean close left it. */
static int use_read_only(void *arg)
{
    CHECK(become_nobody());
    test_log log = {0};
    gki_log sink = {.fn = test_log_line, .user = &log, .level = GK_LOG_DEBUG};
    gki_cache *cache = NULL;
    CHECK(gki_cache_open(&cache, arg, 0, &sink) == GK_OK);
    CHECK(has_answer(cache, &key_a, "T=warm"));
    CHECK(publish(cache, &key_b, "T=new") == 0);
    CHECK(has_answer(cache, &key_b, "T=new"));
    CHECK(publish(cache, &key_a, "T=other") == -1);
    CHECK(gki_cache_lease(cache, &key_b, 60));
    gki_cache_miss(cache, &key_b);
    char why[256];
    CHECK(errors_of(cache, why) == 0);
    CHECK(strcmp(why, "it is read-only") == 0);
    gki_cache_close(&cache);
    CHECK(log.warnings == 1);
    return 0;
}

static void test_read_only(void **state)
{
    (void)state;
    test_log log;
    char path[4200];
    const char *directory = gk_test_path("p%2F q?#");
    (void)snprintf(path, sizeof path, "%s/gk.db", directory);
    gki_cache *cache = cache_open(path, &log);
    assert_true(put_answer(cache, &key_a, "T=warm"));
    gki_cache_close(&cache);
    assert_int_equal(chmod(path, 0444), 0);
    assert_int_equal(chmod(directory, 0555), 0);
    assert_int_equal(chmod(gk_test_dir(), 0755), 0);
    size_t size = 0;
    char *before = gk_test_read(path, &size);
    expect_child(use_read_only, path);
    size_t after_size = 0;
    char *after = gk_test_read(path, &after_size);
    assert_int_equal(after_size, size);
    assert_memory_equal(after, before, size);
    free(before);
    free(after);
    char wal[4300];
    (void)snprintf(wal, sizeof wal, "%s-wal", path);
    assert_false(exists(wal));
    assert_int_equal(chmod(directory, 0700), 0);
}

/* No environment, no passwd entry. */
static int use_without_home(void *arg)
{
    (void)arg;
    CHECK(clearenv() == 0);
    CHECK(become_nobody());
    char path[4096] = "#";
    gki_cache_default_path(path, sizeof path);
    CHECK(path[0] == '\0');
    test_log log = {0};
    gki_log sink = {.fn = test_log_line, .user = &log, .level = GK_LOG_DEBUG};
    gki_cache *cache = NULL;
    CHECK(gki_cache_open(&cache, NULL, 0, &sink) == GK_OK);
    CHECK(publish(cache, &key_a, "T=1") == 0);
    CHECK(has_answer(cache, &key_a, "T=1"));
    char why[256];
    (void)errors_of(cache, why);
    CHECK(strstr(why, "GK_CACHE") != NULL);
    CHECK(log.warnings == 1);
    gki_cache_close(&cache);
    return 0;
}

static void test_without_home(void **state)
{
    (void)state;
    if (geteuid() != 0) {
        gk_test_skip("a user without passwd entry needs root to become one");
    }
    expect_child(use_without_home, NULL);
}

/* A full disk, as far as a process can have one of its own. */
static int fill_disk(void *arg)
{
    (void)signal(SIGXFSZ, SIG_IGN);
    gki_cache *cache = open_quietly(arg);
    CHECK(cache != NULL);
    CHECK(publish(cache, &key_a, "T=1") == 1);
    struct rlimit limit = {.rlim_cur = 60000, .rlim_max = 60000};
    CHECK(setrlimit(RLIMIT_FSIZE, &limit) == 0);
    int in_memory = 0;
    for (int i = 0; i < 200; i++) {
        char problem[16];
        (void)snprintf(problem, sizeof problem, "%d", i);
        gki_key key = {"matmul", problem, "e"};
        int where = publish(cache, &key, "T=2");
        CHECK(where == 0 || where == 1);
        in_memory += where == 0 ? 1 : 0;
        CHECK(has_answer(cache, &key, "T=2"));
    }
    CHECK(in_memory > 0);
    CHECK(has_answer(cache, &key_a, "T=1"));
    char why[256];
    CHECK(errors_of(cache, why) > 0);
    CHECK(why[0] != '\0');
    gki_cache_close(&cache);
    return 0;
}

/* The answers of a file whose sidecars have no room. */
static int open_on_full_disk(void *arg)
{
    (void)signal(SIGXFSZ, SIG_IGN);
    struct rlimit limit = {.rlim_cur = 1000, .rlim_max = 1000};
    CHECK(setrlimit(RLIMIT_FSIZE, &limit) == 0);
    gki_cache *cache = open_quietly(arg);
    CHECK(cache != NULL);
    CHECK(has_answer(cache, &key_a, "T=1"));
    CHECK(publish(cache, &key_b, "T=2") == 0);
    CHECK(has_answer(cache, &key_b, "T=2"));
    char why[256];
    CHECK(errors_of(cache, why) == 1);
    CHECK(why[0] != '\0');
    gki_cache_close(&cache);
    return 0;
}

static void test_full_disk(void **state)
{
    (void)state;
    char path[4200];
    (void)snprintf(path, sizeof path, "%s", gk_test_path("gk.db"));
    expect_child(fill_disk, path);
    expect_query(path, "PRAGMA integrity_check", "ok");
    expect_query(path, "SELECT config FROM choice LIMIT 1", "T=1");
    expect_child(open_on_full_disk, path);
    expect_query(path, "PRAGMA integrity_check", "ok");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cold_start),     cmocka_unit_test(test_one_tuner),
        cmocka_unit_test(test_fork),           cmocka_unit_test(test_parent_closes_first),
        cmocka_unit_test(test_killed_writers), cmocka_unit_test(test_read_only),
        cmocka_unit_test(test_without_home),   cmocka_unit_test(test_full_disk),
    };
    return GK_TEST_MAIN(tests);
}
