/* Export and import, and the default place of the file. */
#define _GNU_SOURCE
#include "cache_case.h"

#include <stdlib.h>

static const char sample[] = "gk-cache 1\n"
                             "matmul\tp\te1\tmma\tA=1 B=2\t0.00012207031\t0.0\t1700000000\n"
                             "matmul\tp\te2 \\x09'\\x5c\tsimt\tA=1\t1.5e-07\t0.25\t5\n"
                             "softmax\t7x4\te1\tsimt\tA=9\t2.0\t0.01\t0\n";

static char *export_text(gki_cache *cache, uint32_t expected)
{
    uint32_t count = 99;
    const char *path = gk_test_path("out.txt");
    assert_gk_ok(gki_cache_export(cache, path, &count));
    assert_int_equal(count, expected);
    return gk_test_read(path, NULL);
}

static void expect_import(gki_cache *cache, const char *text, bool replace, uint32_t imported,
                          uint32_t skipped)
{
    uint32_t i = 99;
    uint32_t s = 99;
    gk_test_write(gk_test_path("in.txt"), text, strlen(text));
    assert_gk_ok(gki_cache_import(cache, gk_test_path("in.txt"), replace, &i, &s));
    assert_int_equal(i, imported);
    assert_int_equal(s, skipped);
}

static void expect_export(gki_cache *cache, uint32_t count, const char *expected)
{
    char *text = export_text(cache, count);
    assert_string_equal(text, expected);
    free(text);
}

static void test_round_trip(void **state)
{
    (void)state;
    test_log log;
    gki_cache *cache = cache_open(gk_test_path("a.db"), &log);
    expect_export(cache, 0, "gk-cache 1\n");
    expect_import(cache, sample, false, 3, 0);
    expect_export(cache, 3, sample);
    gki_choice choice;
    gki_key key = {"matmul", "p", "e2 \t'\\"};
    assert_int_equal(gki_cache_choice_get(cache, &key, &choice), GK_OK);
    assert_string_equal(choice.config, "A=1");
    assert_true(choice.seconds == 1.5e-7);
    assert_int_equal(choice.created, 5);
    gki_cache_close(&cache);
    /* In memory, and in another order of arrival. */
    cache = cache_open(":memory:", &log);
    expect_import(cache, "gk-cache 1\nsoftmax\t7x4\te1\tsimt\tA=9\t2\t0.01\t0\n", false, 1, 0);
    expect_import(cache, sample, false, 2, 0);
    expect_export(cache, 3, sample);
    gki_cache_close(&cache);
    assert_int_equal(log.warnings, 0);
}

static void test_merge(void **state)
{
    (void)state;
    test_log log;
    gki_cache *cache = cache_open(gk_test_path("a.db"), &log);
    gki_key key = {"matmul", "p", "e"};
    static const char other[] = "gk-cache 1\nmatmul\tp\te\tsimt\tT=2\t0.5\t0.1\t7\n";
    assert_true(put_answer(cache, &key, "T=1"));
    expect_import(cache, other, false, 0, 0);
    expect_answer(cache, &key, "T=1");
    expect_import(cache, other, true, 1, 0);
    expect_answer(cache, &key, "T=2");
    expect_export(cache, 1, other);
    gki_cache_close(&cache);
}

static void append(char *text, size_t size, const char *more)
{
    size_t length = strlen(text);
    assert_true(length + strlen(more) < size);
    (void)snprintf(text + length, size - length, "%s", more);
}

static void test_bad_lines(void **state)
{
    (void)state;
    static const char *const lines[] = {
        "matmul\tp\te\tsimt\tT=1\t0.5\t0.1",
        "\tp\te\tsimt\tT=1\t0.5\t0.1\t7",
        "matmul\t\te\tsimt\tT=1\t0.5\t0.1\t7",
        "matmul\tp\t\tsimt\tT=1\t0.5\t0.1\t7",
        "matmul\tp\te\t\tT=1\t0.5\t0.1\t7",
        "matmul\tp\te\tsimt\t\t0.5\t0.1\t7",
        "matmul\tp\te\tsimt\tT=1\t0,5\t0.1\t7",
        "matmul\tp\te\tsimt\tT=1\t-0.5\t0.1\t7",
        "matmul\tp\te\tsimt\tT=1\tnan\t0.1\t7",
        "matmul\tp\te\tsimt\tT=1\t0.5\tinf\t7",
        "matmul\tp\te\tsimt\tT=1\t0.5\t0.1\t7.5",
        "matmul\tp\te\tsimt\tT=1\t0.5\t0.1\t-7",
        "matmul\tp\te\tsimt\tT=1\t0.5\t0.1\t99999999999999999999",
        "matmul\tp\\x0\te\tsimt\tT=1\t0.5\t0.1\t7",
        "matmul\tp\\x00\te\tsimt\tT=1\t0.5\t0.1\t7",
        "matmul\tp\\q\te\tsimt\tT=1\t0.5\t0.1\t7",
        "matmul\tp\\",
        "matmul\tp\te\tsimt\tT=1\\x0a#define\t0.5\t0.1\t7",
        "matmul\tp\te\tsimtsimtsimtsimtsimtsimtsimtsimt\tT=1\t0.5\t0.1\t7",
        "garbage",
    };
    enum { COUNT = sizeof lines / sizeof lines[0] };
    test_log log;
    gki_cache *cache = cache_open(gk_test_path("a.db"), &log);
    char text[8192] = "gk-cache 2 newer\r\n# comment\n\n";
    for (size_t i = 0; i < COUNT; i++) {
        char one[256];
        (void)snprintf(one, sizeof one, "gk-cache 1\n%s\n", lines[i]);
        expect_import(cache, one, false, 0, 1);
        append(text, sizeof text, lines[i]);
        append(text, sizeof text, "\n");
    }
    expect_export(cache, 0, "gk-cache 1\n");
    /* The good ones among them are taken, with fields of a later version, and without an end. */
    append(text, sizeof text, "matmul\tp\te\tsimt\tT=1\t0.5\t0.1\t7\tfuture\tmore\r\n");
    append(text, sizeof text, "matmul\tp\tf\tsimt\tT=1\t1\t1\t7");
    expect_import(cache, text, false, 2, COUNT);
    expect_export(cache, 2,
                  "gk-cache 1\nmatmul\tp\te\tsimt\tT=1\t0.5\t0.1\t7\n"
                  "matmul\tp\tf\tsimt\tT=1\t1.0\t1.0\t7\n");
    gki_cache_close(&cache);
    assert_int_equal(log.warnings, 0);
}

static void test_failures(void **state)
{
    (void)state;
    test_log log;
    uint32_t i = 9;
    uint32_t s = 9;
    gki_cache *cache = cache_open(gk_test_path("a.db"), &log);
    assert_gk_err(gki_cache_import(cache, gk_test_path("none"), false, &i, &s), GK_ERR_IO, "none");
    assert_int_equal(i + s, 0);
    gk_test_write(gk_test_path("x"), "SQLite format 3", 15);
    assert_gk_err(gki_cache_import(cache, gk_test_path("x"), false, &i, &s), GK_ERR_IO, "gk-cache");
    gk_test_write(gk_test_path("x"), "gk-cache 1\na\0b", 14);
    assert_gk_err(gki_cache_import(cache, gk_test_path("x"), false, &i, &s), GK_ERR_IO, "gk-cache");
    assert_gk_err(gki_cache_export(cache, gk_test_path("no/dir"), &i), GK_ERR_IO, "no/dir");
    assert_int_equal(i, 0);
    gki_cache_close(&cache);
    /* A file was wanted and cannot be had. */
    cache = cache_open("/proc/none/gk.db", &log);
    gk_test_write(gk_test_path("in"), sample, sizeof sample - 1);
    assert_gk_err(gki_cache_import(cache, gk_test_path("in"), false, &i, &s), GK_ERR_CACHE,
                  "/proc/none/gk.db");
    expect_export(cache, 3, sample);
    gki_cache_close(&cache);
}

/* As test_busy of the file's tests, with an import in place of a tuning. */
static void test_replace_in_memory(void **state)
{
    (void)state;
    test_log log;
    const char *path = gk_test_path("a.db");
    static const char other[] = "gk-cache 1\nmatmul\tp\te\tsimt\tT=2\t0.5\t0.1\t7\n";
    gki_key key = {"matmul", "p", "e"};
    gki_cache *cache = cache_open(path, &log);
    sqlite3 *db = NULL;
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    assert_int_equal(sqlite3_exec(db, "BEGIN IMMEDIATE", NULL, NULL, NULL), SQLITE_OK);
    assert_false(put_answer(cache, &key, "T=1"));
    assert_int_equal(sqlite3_close(db), SQLITE_OK);
    expect_import(cache, other, true, 1, 0);
    expect_answer(cache, &key, "T=2");
    expect_export(cache, 1, other);
    gki_cache_close(&cache);
}

/* An export of a part must not take the place of one of all. */
static void test_export_of_damaged_file(void **state)
{
    (void)state;
    enum { COUNT = 2000, BYTES = COUNT * 64 };
    test_log log;
    const char *path = gk_test_path("a.db");
    gki_cache *cache = cache_open(path, &log);
    char *text = calloc(1, BYTES);
    assert_non_null(text);
    int length = snprintf(text, BYTES, "gk-cache 1\n");
    for (int i = 0; i < COUNT; i++) {
        length += snprintf(text + length, (size_t)(BYTES - length),
                           "matmul\tp%d\te\tsimt\tT=1\t0.5\t0.1\t7\n", i);
    }
    expect_import(cache, text, false, COUNT, 0);
    free(text);
    gki_cache_close(&cache);
    char before[16] = "kept";
    gk_test_write(gk_test_path("out.txt"), before, 4);
    cache = cache_open(path, &log);
    FILE *file = fopen(path, "r+be");
    assert_non_null(file);
    assert_int_equal(fseek(file, 0, SEEK_END), 0);
    long size = ftell(file);
    assert_int_equal(fseek(file, size / 2, SEEK_SET), 0);
    for (long i = size / 2; i < size; i++) {
        assert_int_equal(fputc(0xff, file), 0xff);
    }
    assert_int_equal(fclose(file), 0);
    uint32_t count = 99;
    assert_gk_err(gki_cache_export(cache, gk_test_path("out.txt"), &count), GK_ERR_CACHE, path);
    assert_int_equal(count, 0);
    size_t kept = 0;
    text = gk_test_read(gk_test_path("out.txt"), &kept);
    assert_int_equal(kept, 4);
    assert_memory_equal(text, before, 4);
    free(text);
    gki_cache_close(&cache);
}

static void expect_default(const char *expected)
{
    char path[4096];
    memset(path, '#', sizeof path);
    gki_cache_default_path(path, sizeof path);
    assert_string_equal(path, expected);
}

static void test_default_path(void **state)
{
    (void)state;
    assert_int_equal(setenv("HOME", "/h", 1), 0);
    assert_int_equal(setenv("XDG_CACHE_HOME", "/x y", 1), 0);
    assert_int_equal(setenv("GK_CACHE", "rel/file.db", 1), 0);
    expect_default("rel/file.db");
    assert_int_equal(setenv("GK_CACHE", "", 1), 0);
    expect_default("/x y/gk/gk.db");
    char small[13];
    gki_cache_default_path(small, sizeof small);
    assert_string_equal(small, "");
    assert_int_equal(setenv("XDG_CACHE_HOME", "relative", 1), 0);
    expect_default("/h/.cache/gk/gk.db");
    assert_int_equal(setenv("XDG_CACHE_HOME", "", 1), 0);
    expect_default("/h/.cache/gk/gk.db");
    assert_int_equal(unsetenv("HOME"), 0);
    char path[4096];
    gki_cache_default_path(path, sizeof path);
    /* The passwd entry's home, or nothing. */
    assert_true(path[0] == '\0' || (path[0] == '/' && strstr(path, "/.cache/gk/gk.db") != NULL));
    assert_int_equal(setenv("HOME", "relative", 1), 0);
    char again[4096];
    gki_cache_default_path(again, sizeof again);
    assert_string_equal(again, path);
}

static void test_default_is_used(void **state)
{
    (void)state;
    test_log log;
    gki_cache *cache = cache_open(NULL, &log);
    assert_true(put_answer(cache, &key_a, "T=1"));
    gki_cache_close(&cache);
    assert_true(exists(gk_test_path("xdg/gk/gk.db")));
    assert_int_equal(setenv("GK_CACHE", ":memory:", 1), 0);
    cache = cache_open(NULL, &log);
    assert_false(put_answer(cache, &key_a, "T=1"));
    assert_string_equal(cache_state(cache).degraded, "");
    gki_cache_close(&cache);
    assert_int_equal(log.warnings, 0);
    char name[6000];
    memset(name, 'x', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    assert_int_equal(setenv("GK_CACHE", name, 1), 0);
    cache = cache_open(NULL, &log);
    assert_non_null(strstr(cache_state(cache).degraded, "GK_CACHE is longer than"));
    assert_int_equal(log.warnings, 1);
    gki_cache_close(&cache);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip),        cmocka_unit_test(test_merge),
        cmocka_unit_test(test_bad_lines),         cmocka_unit_test(test_failures),
        cmocka_unit_test(test_replace_in_memory), cmocka_unit_test(test_export_of_damaged_file),
        cmocka_unit_test(test_default_path),      cmocka_unit_test(test_default_is_used),
    };
    return GK_TEST_MAIN(tests);
}
