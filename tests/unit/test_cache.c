/* What is stored comes back: answers, trials, compiled code, leases, misses. */
#define _GNU_SOURCE
#include "cache_case.h"

#include <math.h>
#include <stdlib.h>

#include "base/alloc.h"

static void test_round_trip(void **state)
{
    (void)state;
    test_log log;
    const char *path = gk_test_path("new/dir/gk.db");
    gki_cache *cache = cache_open(path, &log);
    expect_no_answer(cache, &key_a);
    gki_choice choice = make_choice("BLOCK_K=16 BLOCK_M=64", 0.000125);
    bool saved = false;
    assert_gk_ok(gki_cache_publish(cache, &key_a, &choice, NULL, 0, false, &saved));
    assert_true(saved);
    expect_no_answer(cache, &key_b);
    test_state s = cache_state(cache);
    assert_string_equal(s.path, path);
    assert_string_equal(s.degraded, "");
    assert_int_equal(s.errors, 0);
    gki_cache_close(&cache);
    assert_null(cache);
    gki_cache_close(&cache);
    gki_cache_close(NULL);

    cache = cache_open(path, &log);
    gki_choice back;
    memset(&back, 0x5a, sizeof back);
    assert_int_equal(gki_cache_choice_get(cache, &key_a, &back), GK_OK);
    assert_string_equal(back.variant, "simt");
    assert_string_equal(back.config, "BLOCK_K=16 BLOCK_M=64");
    assert_true(back.seconds == 0.000125);
    assert_true(back.spread == 0.01);
    assert_int_equal(back.created, 1700000000);
    gki_cache_close(&cache);
    assert_int_equal(log.warnings, 0);
    /* A clean close leaves one file, which nobody else can read. */
    assert_false(exists(gk_test_path("new/dir/gk.db-wal")));
    struct stat info;
    assert_int_equal(stat(path, &info), 0);
    assert_int_equal(info.st_mode & 07777u, 0600);
    assert_int_equal(stat(gk_test_path("new/dir"), &info), 0);
    assert_int_equal(info.st_mode & 07777u, 0700);
    expect_query(path, "PRAGMA journal_mode", "wal");
    expect_query(path, "PRAGMA integrity_check", "ok");
}

/* A look-up that finds nothing is no failure. */
static void test_error_record(void **state)
{
    (void)state;
    test_log log;
    gk_error before = *gk_error_last();
    gki_cache *cache = cache_open("/proc/nowhere/gk.db", &log);
    expect_no_answer(cache, &key_a);
    gki_cache_close(&cache);
    assert_memory_equal(&before, gk_error_last(), sizeof before);
}

static void test_conflicts(void **state)
{
    (void)state;
    test_log log;
    test_log log2;
    const char *path = gk_test_path("gk.db");
    gki_cache *one = cache_open(path, &log);
    gki_cache *two = cache_open(path, &log2);
    assert_true(put_answer(one, &key_a, "T=1"));
    /* The late one adopts the first answer. */
    gki_choice late = make_choice("T=2", 0.5);
    bool saved = false;
    assert_gk_ok(gki_cache_publish(two, &key_a, &late, NULL, 0, false, &saved));
    assert_string_equal(late.config, "T=1");
    assert_true(late.seconds == 0.001);
    assert_true(saved);
    expect_answer(two, &key_a, "T=1");
    gki_choice better = make_choice("T=3", 0.25);
    assert_gk_ok(gki_cache_publish(two, &key_a, &better, NULL, 0, true, &saved));
    assert_true(saved);
    expect_answer(one, &key_a, "T=3");
    gki_cache_choice_drop(one, &key_a);
    expect_no_answer(two, &key_a);
    gki_cache_close(&one);
    gki_cache_close(&two);
    assert_int_equal(log.warnings + log2.warnings, 0);
}

static void test_unsound_answers(void **state)
{
    (void)state;
    test_log log;
    gki_cache *cache = cache_open(":memory:", &log);
    static const double bad[] = {NAN, INFINITY, -1.0};
    for (size_t i = 0; i < 3; i++) {
        gki_choice choice = make_choice("T=1", bad[i]);
        bool saved = true;
        assert_gk_err(gki_cache_publish(cache, &key_a, &choice, NULL, 0, false, &saved),
                      GK_ERR_INVALID, "simt");
        assert_false(saved);
    }
    expect_no_answer(cache, &key_a);
    gki_cache_close(&cache);
}

/* Every part of the key counts, whole. */
static void test_identity(void **state)
{
    (void)state;
    test_log log;
    gki_cache *cache = cache_open(gk_test_path("gk.db"), &log);
    char name[300];
    memset(name, 'N', 255);
    name[255] = '\0';
    gki_key keys[] = {
        {"matmul", "p", "e"},         {"matmul ", "p", "e"},
        {"matmul", "p ", "e"},        {"matmul", "p", "e "},
        {"matmul", "p'; --", "e"},    {"matmul", "p", "NVIDIA 'H100' \"x\" % \\"},
        {"matmul", "p", name},        {"Matmul", "p", "e"},
        {"matmul", "p\tq", "e\n"},    {"matmul", "", "e"},
        {"matmul", "p\xc3\xa4", "e"},
    };
    enum { COUNT = sizeof keys / sizeof keys[0] };
    char config[32];
    for (int i = 0; i < COUNT; i++) {
        expect_no_answer(cache, &keys[i]);
        (void)snprintf(config, sizeof config, "T=%d", i);
        assert_true(put_answer(cache, &keys[i], config));
    }
    char other[300];
    memcpy(other, name, sizeof other);
    other[254] = 'M';
    expect_no_answer(cache, &(gki_key){"matmul", "p", other});
    for (int i = 0; i < COUNT; i++) {
        (void)snprintf(config, sizeof config, "T=%d", i);
        expect_answer(cache, &keys[i], config);
    }
    gki_cache_close(&cache);
    assert_int_equal(log.warnings, 0);
}

static void test_seed(void **state)
{
    (void)state;
    test_log log;
    const char *path = gk_test_path("gk.db");
    gki_cache *cache = cache_open(path, &log);
    gki_choice out;
    assert_int_equal(gki_cache_choice_seed(cache, &key_a, &out), GK_ERR_NOT_FOUND);
    bool saved = false;
    gki_choice old = make_choice("T=old", 0.1);
    gki_choice new = make_choice("T=new", 0.2);
    new.created = old.created + 10;
    assert_gk_ok(gki_cache_publish(cache, &key_a, &new, NULL, 0, false, &saved));
    assert_gk_ok(gki_cache_publish(cache, &key_b, &old, NULL, 0, false, &saved));
    gki_key third = {key_a.op, key_a.problem, "another"};
    assert_int_equal(gki_cache_choice_seed(cache, &third, &out), GK_OK);
    assert_string_equal(out.config, "T=new");
    expect_no_answer(cache, &third);
    run_sql(path, "UPDATE choice SET created = 'text' WHERE config = 'T=new'");
    assert_int_equal(gki_cache_choice_seed(cache, &third, &out), GK_OK);
    assert_string_equal(out.config, "T=old");
    gki_cache_close(&cache);
}

typedef struct seen_trials {
    int count;
    int limit;
    char text[512];
} seen_trials;

static bool see_trial(void *user, const gk_trial *t)
{
    seen_trials *s = user;
    char line[128];
    (void)snprintf(line, sizeof line, "%s %s %s %d %d%s;", t->variant, t->config, t->status,
                   (int)(t->seconds * 1000), (int)(t->max_error > 1e200 ? -1 : t->max_error * 10),
                   t->chosen ? " chosen" : "");
    (void)strncat(s->text, line, sizeof s->text - strlen(s->text) - 1);
    s->count++;
    return s->count < s->limit;
}

static void test_trials(void **state)
{
    (void)state;
    test_log log;
    gki_cache *cache = cache_open(gk_test_path("gk.db"), &log);
    gk_trial first[] = {
        {.variant = "simt", .config = "T=3", .status = "wrong", .max_error = NAN},
        {.variant = "simt", .config = "T=1", .status = "dropped", .seconds = 0.005},
        {.variant = "mma", .config = "T=1", .status = "compile_error"},
    };
    gki_cache_trials_put(cache, &key_a, first, 3);
    gk_trial second[] = {
        {.variant = "simt", .config = "T=2", .status = "ok", .seconds = 0.002, .max_error = 0.5},
        {.variant = "simt", .config = "T=1", .status = "ok", .seconds = 0.004},
    };
    gki_choice choice = make_choice("T=2", 0.002);
    bool saved = false;
    assert_gk_ok(gki_cache_publish(cache, &key_a, &choice, second, 2, false, &saved));
    seen_trials seen = {.limit = 100};
    assert_gk_ok(gki_cache_trials(cache, &key_a, see_trial, &seen));
    assert_string_equal(seen.text, "simt T=2 ok 2 5 chosen;simt T=1 ok 4 0;"
                                   "mma T=1 compile_error 0 0;simt T=3 wrong 0 -1;");
    memset(&seen, 0, sizeof seen);
    seen.limit = 1;
    assert_gk_ok(gki_cache_trials(cache, &key_a, see_trial, &seen));
    assert_int_equal(seen.count, 1);
    memset(&seen, 0, sizeof seen);
    assert_gk_ok(gki_cache_trials(cache, &key_b, see_trial, &seen));
    assert_int_equal(seen.count, 0);
    gki_cache_close(&cache);
    assert_int_equal(log.warnings, 0);
}

typedef struct seen_entries {
    char text[512];
    gki_cache *cache;
} seen_entries;

static bool see_entry(void *user, const gk_cache_entry *e)
{
    seen_entries *s = user;
    char line[128];
    (void)snprintf(line, sizeof line, "%s|%s|%s|%s|%u|%lld;", e->op, e->problem, e->environment,
                   e->config, (unsigned)e->trials, (long long)e->created);
    (void)strncat(s->text, line, sizeof s->text - strlen(s->text) - 1);
    assert_false(e->current);
    /* The cache is free during the listing. */
    gki_cache_miss(s->cache, &key_a);
    return true;
}

static void test_listing(void **state)
{
    (void)state;
    test_log log;
    gki_cache *cache = cache_open(gk_test_path("gk.db"), &log);
    gki_key keys[] = {
        {"softmax", "b", "e"}, {"matmul", "b", "e"}, {"matmul", "a", "f"}, {"matmul", "a", "e"}};
    gk_trial trial = {.variant = "simt", .config = "T=9", .status = "ok", .seconds = 1};
    for (int i = 0; i < 4; i++) {
        char config[32];
        (void)snprintf(config, sizeof config, "T=%d", i);
        assert_true(put_answer(cache, &keys[i], config));
    }
    gki_cache_trials_put(cache, &keys[1], &trial, 1);
    seen_entries seen = {.cache = cache};
    assert_gk_ok(gki_cache_choices(cache, NULL, see_entry, &seen));
    assert_string_equal(seen.text, "matmul|a|e|T=3|0|1700000000;matmul|a|f|T=2|0|1700000000;"
                                   "matmul|b|e|T=1|1|1700000000;softmax|b|e|T=0|0|1700000000;");
    seen.text[0] = '\0';
    assert_gk_ok(gki_cache_choices(cache, "softmax", see_entry, &seen));
    assert_string_equal(seen.text, "softmax|b|e|T=0|0|1700000000;");
    gki_alloc_fail_at(2);
    gk_status status = gki_cache_choices(cache, NULL, see_entry, &seen);
    gki_alloc_fail_at(0);
    assert_gk_err(status, GK_ERR_NOMEM, NULL);
    gki_cache_close(&cache);
}

static void test_lease(void **state)
{
    (void)state;
    test_log log;
    const char *path = gk_test_path("gk.db");
    gki_cache *one = cache_open(path, &log);
    gki_cache *two = cache_open(path, &log);
    assert_true(gki_cache_lease(one, &key_a, 60));
    assert_true(gki_cache_lease(one, &key_a, 60));
    assert_false(gki_cache_lease(two, &key_a, 60));
    assert_true(gki_cache_lease(two, &key_b, 60));
    gki_cache_lease_end(two, &key_a); /* not its own */
    assert_false(gki_cache_lease(two, &key_a, 60));
    gki_cache_lease_end(one, &key_a);
    assert_true(gki_cache_lease(two, &key_a, 60));
    /* Expired, of an unbelievable time, or damaged: free for all. */
    static const char *const freed[] = {"1", "99999999999999", "'soon'", "NULL"};
    for (size_t i = 0; i < 4; i++) {
        char sql[64];
        (void)snprintf(sql, sizeof sql, "UPDATE lease SET expires = %s", freed[i]);
        run_sql(path, sql);
        gki_cache *taker = i % 2 == 0 ? one : two;
        assert_true(gki_cache_lease(taker, &key_a, 60));
        assert_false(gki_cache_lease(i % 2 == 0 ? two : one, &key_a, 60));
    }
    gki_cache_close(&one);
    gki_cache_close(&two);
    one = cache_open(":memory:", &log);
    assert_true(gki_cache_lease(one, &key_a, 60));
    gki_cache_close(&one);
}

static bool see_miss(void *user, const char *op, const char *problem, uint64_t calls)
{
    char *text = user;
    char line[128];
    (void)snprintf(line, sizeof line, "%s|%s|%d;", op, problem, (int)calls);
    (void)strncat(text, line, 400);
    return true;
}

static void test_misses(void **state)
{
    (void)state;
    test_log log;
    gki_cache *cache = cache_open(gk_test_path("gk.db"), &log);
    gki_key other = {"softmax", "7x4", "e"};
    gki_cache_miss(cache, &other);
    for (int i = 0; i < 3; i++) {
        gki_cache_miss(cache, &key_a);
        gki_cache_miss(cache, &key_b);
    }
    char text[512] = "";
    assert_gk_ok(gki_cache_misses(cache, see_miss, text));
    assert_string_equal(text, "matmul|r1 64x64x64 f32|6;softmax|7x4|1;");
    /* What was answered is not missed any more. */
    assert_true(put_answer(cache, &key_a, "T=1"));
    text[0] = '\0';
    assert_gk_ok(gki_cache_misses(cache, see_miss, text));
    assert_string_equal(text, "matmul|r1 64x64x64 f32|3;softmax|7x4|1;");
    gki_cache_close(&cache);
}

static gki_digest digest_of(int i)
{
    return gki_sha256(&i, sizeof i);
}

static void put_kernel(gki_cache *cache, int i, size_t size)
{
    unsigned char *code = malloc(size);
    assert_non_null(code);
    memset(code, i, size);
    gki_digest key = digest_of(i);
    gki_kernel_record record = {.code = code,
                                .size = size,
                                .registers = 168,
                                .spill_bytes = -1,
                                .stack_bytes = 8,
                                .serialized = i == 1};
    gki_cache_kernel_put(cache, &key, "gk_matmul 'x'", &record);
    free(code);
}

static bool has_kernel(gki_cache *cache, int i, size_t size)
{
    gki_digest key = digest_of(i);
    gki_kernel_record record;
    memset(&record, 0x5a, sizeof record);
    gk_status status = gki_cache_kernel_get(cache, &key, &record);
    if (status != GK_OK) {
        assert_int_equal(status, GK_ERR_NOT_FOUND);
        assert_null(record.code);
        assert_int_equal(record.size, 0);
        return false;
    }
    assert_int_equal(record.size, size);
    for (size_t b = 0; b < size; b++) {
        assert_int_equal(record.code[b], i);
    }
    assert_int_equal(record.registers, 168);
    assert_int_equal(record.spill_bytes, -1);
    assert_int_equal(record.stack_bytes, 8);
    assert_int_equal(record.serialized, i == 1);
    gki_free(record.code);
    return true;
}

static void test_kernels(void **state)
{
    (void)state;
    test_log log;
    const char *path = gk_test_path("gk.db");
    gki_cache *cache = cache_open(path, &log);
    assert_false(has_kernel(cache, 1, 70000));
    put_kernel(cache, 1, 70000);
    put_kernel(cache, 2, 1);
    assert_true(has_kernel(cache, 1, 70000));
    assert_true(has_kernel(cache, 2, 1));
    gki_alloc_fail_at(1);
    gki_digest key = digest_of(1);
    gki_kernel_record record;
    gk_status status = gki_cache_kernel_get(cache, &key, &record);
    gki_alloc_fail_at(0);
    assert_gk_err(status, GK_ERR_NOMEM, NULL);
    /* A use is written down once a day. */
    run_sql(path, "UPDATE kernel SET used = 5");
    assert_true(has_kernel(cache, 1, 70000));
    expect_query(path, "SELECT count(*) FROM kernel WHERE used > 1700000000", "1");
    gki_cache_close(&cache);
    assert_int_equal(log.warnings, 0);
}

/* Damaged code is never handed out. */
static void test_damaged_kernels(void **state)
{
    (void)state;
    static const char *const damage[] = {
        "UPDATE kernel SET code = x''",
        "UPDATE kernel SET code = substr(code, 1, 500)",
        "UPDATE kernel SET code = CAST(x'01' || substr(code, 2) AS BLOB)",
        "UPDATE kernel SET code = 'text'",
        "UPDATE kernel SET code = NULL",
        "UPDATE kernel SET sha256 = NULL",
        "UPDATE kernel SET sha256 = substr(sha256, 1, 31)",
        "UPDATE kernel SET registers = '64 -DX=1'",
        "UPDATE kernel SET stack_bytes = -2",
        "UPDATE kernel SET spill_bytes = 4294967296",
    };
    for (size_t i = 0; i < sizeof damage / sizeof damage[0]; i++) {
        test_log log;
        const char *path = gk_test_path("gk.db");
        gki_cache *cache = cache_open(path, &log);
        put_kernel(cache, 7, 1000);
        assert_true(has_kernel(cache, 7, 1000));
        run_sql(path, damage[i]);
        assert_false(has_kernel(cache, 7, 1000));
        assert_int_equal(log.warnings, 1);
        assert_int_equal(cache_state(cache).errors, 1);
        expect_query(path, "SELECT count(*) FROM kernel", "0");
        put_kernel(cache, 7, 1000);
        assert_true(has_kernel(cache, 7, 1000));
        gki_cache_close(&cache);
    }
}

static void test_kernel_limit(void **state)
{
    (void)state;
    const char *path = gk_test_path("gk.db");
    gki_cache *cache = NULL;
    assert_gk_ok(gki_cache_open(&cache, path, 10000, NULL));
    put_kernel(cache, 100, 10001);
    assert_false(has_kernel(cache, 100, 10001));
    for (int i = 1; i <= 10; i++) {
        put_kernel(cache, i, 1000);
    }
    for (int i = 1; i <= 10; i++) {
        assert_true(has_kernel(cache, i, 1000));
    }
    run_sql(path, "UPDATE kernel SET used = used + 10 WHERE id = 1");
    put_kernel(cache, 11, 1000);
    /* Down to 7500 bytes: the latest six and the one that was used last. */
    for (int i = 1; i <= 11; i++) {
        assert_int_equal(has_kernel(cache, i, 1000), i == 1 || i >= 6);
    }
    put_kernel(cache, 12, 9999);
    assert_true(has_kernel(cache, 12, 9999));
    expect_query(path, "SELECT sum(size) FROM kernel", "9999");
    gki_cache_close(&cache);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip),   cmocka_unit_test(test_error_record),
        cmocka_unit_test(test_conflicts),    cmocka_unit_test(test_unsound_answers),
        cmocka_unit_test(test_identity),     cmocka_unit_test(test_seed),
        cmocka_unit_test(test_trials),       cmocka_unit_test(test_listing),
        cmocka_unit_test(test_lease),        cmocka_unit_test(test_misses),
        cmocka_unit_test(test_kernels),      cmocka_unit_test(test_damaged_kernels),
        cmocka_unit_test(test_kernel_limit),
    };
    return GK_TEST_MAIN(tests);
}
