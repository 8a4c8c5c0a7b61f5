/* Files that are damaged, foreign, newer, stale, or not to be trusted. */
#define _GNU_SOURCE
#include "cache_case.h"

#include <glob.h>
#include <stdlib.h>

static const char *const suffixes[] = {"-wal", "-shm", "-journal"};

/* The files that match, and the name of the first one. */
static int matches(const char *pattern, char *first, size_t size)
{
    glob_t found;
    int n = 0;
    first[0] = '\0';
    if (glob(gk_test_path(pattern), 0, NULL, &found) == 0) {
        n = (int)found.gl_pathc;
        (void)snprintf(first, size, "%s", found.gl_pathv[0]);
        globfree(&found);
    }
    return n;
}

static void expect_same_file(const char *path, const char *bytes, size_t size)
{
    size_t now = 0;
    char *text = gk_test_read(path, &now);
    assert_int_equal(now, size);
    assert_memory_equal(text, bytes, size);
    free(text);
}

static void test_memory(void **state)
{
    (void)state;
    static const char *const names[] = {":memory:", ""};
    for (int i = 0; i < 2; i++) {
        test_log log;
        gki_cache *cache = cache_open(names[i], &log);
        assert_false(put_answer(cache, &key_a, "T=1"));
        expect_answer(cache, &key_a, "T=1");
        expect_no_answer(cache, &key_b);
        gki_choice late = make_choice("T=2", 0.1);
        bool saved = true;
        assert_gk_ok(gki_cache_publish(cache, &key_a, &late, NULL, 0, false, &saved));
        assert_string_equal(late.config, "T=1");
        assert_false(saved);
        gki_cache_choice_drop(cache, &key_a);
        expect_no_answer(cache, &key_a);
        test_state s = cache_state(cache);
        assert_string_equal(s.path, "");
        assert_string_equal(s.degraded, "");
        assert_int_equal(s.errors, 0);
        assert_int_equal(log.warnings, 0);
        gki_cache_close(&cache);
    }
    char first[4096];
    assert_int_equal(matches("*", first, sizeof first), 0);
}

/* The same holds for all unusable files: everything works, in memory, and says so once. */
static void expect_degraded(const char *path, const char *why)
{
    test_log log;
    gki_cache *cache = cache_open(path, &log);
    expect_no_answer(cache, &key_a);
    assert_false(put_answer(cache, &key_a, "T=1"));
    expect_answer(cache, &key_a, "T=1");
    assert_true(gki_cache_lease(cache, &key_a, 5));
    test_state s = cache_state(cache);
    assert_string_equal(s.path, "");
    if (strstr(s.degraded, why) == NULL) {
        fail_msg("'%s' is not in '%s'", why, s.degraded);
    }
    assert_true(s.errors > 0);
    assert_int_equal(log.warnings, 1);
    assert_non_null(strstr(log.text, strlen(path) < 300 ? path : "ddd...'"));
    assert_non_null(strstr(log.text, why));
    gki_cache_close(&cache);
}

static void test_unusable_places(void **state)
{
    (void)state;
    gk_test_write(gk_test_path("file"), "x", 1);
    expect_degraded(gk_test_path("file/gk.db"), "Not a directory");
    expect_degraded("/proc/gk/gk.db", "No such file");
    expect_degraded(gk_test_dir(), "not a regular file");
    expect_degraded("/dev/null", "not a regular file");
    expect_degraded(gk_test_path("new/.."), "names a directory");
    assert_int_equal(mkfifo(gk_test_path("fifo"), 0600), 0);
    expect_degraded(gk_test_path("fifo"), "not a regular file");
    static char longest[6000];
    memset(longest, 'd', sizeof longest - 1);
    longest[0] = '/';
    expect_degraded(longest, "longer");
}

static void test_permissions(void **state)
{
    (void)state;
    test_log log;
    const char *path = gk_test_path("gk.db");
    gki_cache *cache = cache_open(path, &log);
    assert_true(put_answer(cache, &key_a, "T=0"));
    gki_cache_close(&cache);
    assert_int_equal(chmod(path, 0620), 0);
    expect_degraded(path, "it can be written by other users (mode 0620)");
    assert_int_equal(chmod(path, 0602), 0);
    expect_degraded(path, "it can be written by other users (mode 0602)");
    assert_int_equal(chmod(path, 0600), 0);
    assert_int_equal(chmod(gk_test_dir(), 0770), 0);
    expect_degraded(path, "its directory can be written by other users (mode 0770)");
    assert_int_equal(chmod(gk_test_dir(), 01777), 0);
    cache = cache_open(path, &log);
    expect_answer(cache, &key_a, "T=0");
    gki_cache_close(&cache);
    gk_test_write(gk_test_path("gk.db-wal"), "", 0);
    assert_int_equal(chmod(gk_test_path("gk.db-wal"), 0666), 0);
    expect_degraded(path, "-wal can be written");
    assert_int_equal(unlink(gk_test_path("gk.db-wal")), 0);
    assert_int_equal(symlink("/etc/passwd", gk_test_path("gk.db-journal")), 0);
    expect_degraded(path, "-journal is not a regular file");
    assert_int_equal(unlink(gk_test_path("gk.db-journal")), 0);
    if (geteuid() == 0) {
        assert_int_equal(chown(path, 12345, 12345), 0);
        expect_degraded(path, "it belongs to user 12345, not to 0");
        assert_int_equal(chown(path, 0, 0), 0);
        assert_int_equal(chmod(gk_test_dir(), 0700), 0);
        assert_int_equal(chown(gk_test_dir(), 12345, 12345), 0);
        expect_degraded(path, "its directory belongs to user 12345");
    }
}

static void test_odd_names(void **state)
{
    (void)state;
    static const char *const names[] = {"p%2Fq x?y#z/gk.db", "file:x?mode=memory", "a'b\"c;.db",
                                        "\xc3\xa4\xff.db"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        test_log log;
        const char *path = gk_test_path(names[i]);
        gki_cache *cache = cache_open(path, &log);
        assert_true(put_answer(cache, &key_a, "T=1"));
        assert_string_equal(cache_state(cache).path, path);
        gki_cache_close(&cache);
        assert_int_equal(log.warnings, 0);
        assert_true(exists(path));
        expect_query(path, "SELECT count(*) FROM choice", "1");
    }
    /* A name without a directory, that only looks like a URI. */
    assert_int_equal(chdir(gk_test_dir()), 0);
    test_log log;
    gki_cache *cache = cache_open("file:relative?mode=memory", &log);
    assert_int_equal(chdir("/"), 0);
    assert_true(put_answer(cache, &key_a, "T=1"));
    gki_cache_close(&cache);
    assert_true(exists(gk_test_path("file:relative?mode=memory")));
}

/* Makes a file with one answer, and returns its bytes. */
static char *make_file(const char *path, const char *config, size_t *size)
{
    test_log log;
    gki_cache *cache = cache_open(path, &log);
    assert_true(put_answer(cache, &key_a, config));
    gki_cache_close(&cache);
    assert_int_equal(log.warnings, 0);
    return gk_test_read(path, size);
}

static void write_beside(const char *path, const char *suffix, const char *text)
{
    char name[4200];
    (void)snprintf(name, sizeof name, "%s%s", path, suffix);
    gk_test_write(name, text, strlen(text));
}

/* name: of the file in the test's directory. asked: the path to open, NULL = the default one. */
static void expect_rebuilt(const char *name, const char *asked, const char *bytes, size_t size)
{
    const char *path = gk_test_path(name);
    char pattern[256];
    char aside[4096];
    test_log log;
    gk_test_write(path, bytes, size);
    write_beside(path, "-wal", "old");
    write_beside(path, "-journal", "old");
    gki_cache *cache = cache_open(asked, &log);
    expect_no_answer(cache, &key_a);
    assert_true(put_answer(cache, &key_a, "T=new"));
    test_state s = cache_state(cache);
    assert_string_equal(s.path, path);
    assert_string_equal(s.degraded, "");
    assert_true(s.errors > 0);
    gki_cache_close(&cache);
    assert_int_equal(log.warnings, 1);
    assert_non_null(strstr(log.text, "moved to"));
    (void)snprintf(pattern, sizeof pattern, "%s.corrupt-*[0-9]", name);
    assert_int_equal(matches(pattern, aside, sizeof aside), 1);
    expect_same_file(aside, bytes, size);
    assert_int_equal(unlink(aside), 0);
    for (int i = 0; i < 3; i++) {
        char sidecar[4200];
        (void)snprintf(sidecar, sizeof sidecar, "%s%s", path, suffixes[i]);
        assert_false(exists(sidecar));
        (void)snprintf(sidecar, sizeof sidecar, "%s%s", aside, suffixes[i]);
        (void)unlink(sidecar);
    }
    cache = cache_open(asked, &log);
    expect_answer(cache, &key_a, "T=new");
    gki_cache_close(&cache);
    assert_int_equal(log.warnings, 0);
    assert_int_equal(unlink(path), 0);
}

/* What does not say that it is gk's stays as it is, and so does what lies beside it. */
static void expect_left_alone(const char *path, const char *bytes, size_t size, const char *why)
{
    char first[4096];
    gk_test_write(path, bytes, size);
    write_beside(path, "-wal", "mine");
    write_beside(path, "-journal", "mine");
    expect_degraded(path, why);
    expect_same_file(path, bytes, size);
    for (int i = 0; i < 3; i++) {
        char sidecar[4200];
        (void)snprintf(sidecar, sizeof sidecar, "%s%s", path, suffixes[i]);
        if (i != 1) {
            expect_same_file(sidecar, "mine", 4);
            assert_int_equal(unlink(sidecar), 0);
        }
    }
    assert_int_equal(unlink(path), 0);
    assert_int_equal(matches("*.corrupt-*", first, sizeof first), 0);
}

static void test_damaged(void **state)
{
    (void)state;
    static const char not_ours[] =
        "it is not a gk cache: it does not begin as one; move it away or name another";
    const char *path = gk_test_path("gk.db");
    size_t size = 0;
    char *good = make_file(path, "T=old", &size);
    char *bytes = malloc(size);
    assert_non_null(bytes);
    assert_true(size > 8192);
    memset(bytes, 0xff, size);
    expect_left_alone(path, bytes, 4096, not_ours);
    expect_left_alone(path, bytes, 10, not_ours);
    expect_left_alone(path, good, 50, not_ours);
    expect_rebuilt("gk.db", path, good, 1000);
    expect_rebuilt("gk.db", path, good, 4096);
    memcpy(bytes, good, 4096); /* a sound header before nothing */
    expect_rebuilt("gk.db", path, bytes, size);
    bytes[71] ^= 1; /* the same, of another program */
    expect_left_alone(path, bytes, size, "another program (application id 1735091299)");
    memset(bytes + 68, 0, 4); /* or of one without an id */
    gk_test_write(path, bytes, 1000);
    expect_degraded(path, "it is damaged and does not say that it is a gk cache");
    expect_same_file(path, bytes, 1000);
    free(bytes);
    free(good);
}

/* The place that gk itself chose holds nothing but its own. */
static void test_damaged_at_default(void **state)
{
    (void)state;
    static const char text[] = "chapter one";
    char bytes[4096];
    char first[4096];
    memset(bytes, 0xff, sizeof bytes);
    assert_int_equal(setenv("XDG_CACHE_HOME", gk_test_path("home"), 1), 0);
    assert_int_equal(mkdir(gk_test_path("home"), 0700), 0);
    assert_int_equal(mkdir(gk_test_path("home/gk"), 0700), 0);
    expect_rebuilt("home/gk/gk.db", NULL, bytes, sizeof bytes);
    expect_rebuilt("home/gk/gk.db", NULL, bytes, 10);
    /* But not where it leads elsewhere. */
    gk_test_write(gk_test_path("thesis.txt"), text, sizeof text);
    assert_int_equal(symlink(gk_test_path("thesis.txt"), gk_test_path("home/gk/gk.db")), 0);
    test_log log;
    gki_cache *cache = cache_open(NULL, &log);
    assert_false(put_answer(cache, &key_a, "T=1"));
    gki_cache_close(&cache);
    assert_int_equal(log.warnings, 1);
    expect_same_file(gk_test_path("thesis.txt"), text, sizeof text);
    assert_int_equal(matches("thesis.txt*", first, sizeof first), 1);
    /* GK_CACHE is somebody's choice. */
    assert_int_equal(setenv("GK_CACHE", gk_test_path("thesis.txt"), 1), 0);
    cache = cache_open(NULL, &log);
    assert_false(put_answer(cache, &key_a, "T=1"));
    assert_non_null(strstr(cache_state(cache).degraded, "not a gk cache"));
    gki_cache_close(&cache);
    assert_int_equal(log.warnings, 1);
    expect_same_file(gk_test_path("thesis.txt"), text, sizeof text);
    assert_int_equal(matches("thesis.txt*", first, sizeof first), 1);
    assert_int_equal(unsetenv("GK_CACHE"), 0);
}

static void test_empty(void **state)
{
    (void)state;
    test_log log;
    const char *path = gk_test_path("gk.db");
    gk_test_write(path, "", 0);
    gki_cache *cache = cache_open(path, &log);
    assert_true(put_answer(cache, &key_a, "T=1"));
    gki_cache_close(&cache);
    assert_int_equal(log.warnings, 0);
    expect_query(path, "PRAGMA application_id", "1735091298");
    expect_query(path, "PRAGMA user_version", "1");
}

static void test_missing_table(void **state)
{
    (void)state;
    test_log log;
    char aside[4096];
    const char *path = gk_test_path("gk.db");
    size_t size = 0;
    free(make_file(path, "T=old", &size));
    run_sql(path, "DROP TABLE lease");
    gki_cache *cache = cache_open(path, &log);
    assert_true(put_answer(cache, &key_a, "T=1"));
    gki_cache_close(&cache);
    assert_int_equal(log.warnings, 1);
    assert_int_equal(matches("gk.db.corrupt-*", aside, sizeof aside), 1);
}

static void test_foreign(void **state)
{
    (void)state;
    static const char *const makers[] = {
        "CREATE TABLE notes(text); INSERT INTO notes VALUES('mine')",
        "PRAGMA journal_mode = WAL; CREATE TABLE notes(text)",
        "PRAGMA application_id = 42",
        "PRAGMA user_version = 3",
    };
    for (size_t i = 0; i < sizeof makers / sizeof makers[0]; i++) {
        const char *path = gk_test_path("other.db");
        (void)unlink(path);
        run_sql(path, makers[i]);
        assert_int_equal(chmod(path, 0600), 0);
        size_t size = 0;
        char *before = gk_test_read(path, &size);
        expect_degraded(path, "another program");
        expect_same_file(path, before, size);
        free(before);
        char first[4096];
        assert_int_equal(matches("*", first, sizeof first), 1);
    }
}

static void test_newer(void **state)
{
    (void)state;
    test_log log;
    const char *path = gk_test_path("gk.db");
    size_t size = 0;
    free(make_file(path, "T=old", &size));
    run_sql(path, "PRAGMA user_version = 99; ALTER TABLE choice ADD COLUMN future");
    char *before = gk_test_read(path, &size);
    gki_cache *cache = cache_open(path, &log);
    expect_answer(cache, &key_a, "T=old");
    assert_false(put_answer(cache, &key_b, "T=1"));
    expect_answer(cache, &key_b, "T=1");
    gki_choice late = make_choice("T=2", 0.1);
    bool saved = false;
    assert_gk_ok(gki_cache_publish(cache, &key_a, &late, NULL, 0, false, &saved));
    assert_string_equal(late.config, "T=old");
    assert_true(saved);
    assert_non_null(strstr(cache_state(cache).degraded, "99 is newer than 1"));
    assert_string_equal(cache_state(cache).path, path);
    gki_cache_close(&cache);
    assert_int_equal(log.warnings, 1);
    expect_same_file(path, before, size);
    free(before);
}

/* A log that outlived its file must not bring old rows back. */
static void test_stale_log(void **state)
{
    (void)state;
    test_log log;
    const char *path = gk_test_path("gk.db");
    const char *wal = gk_test_path("gk.db-wal");
    gki_cache *cache = cache_open(path, &log);
    assert_true(put_answer(cache, &key_a, "T=old"));
    assert_true(put_answer(cache, &key_b, "T=old"));
    size_t wal_size = 0;
    size_t old_size = 0;
    char *old_wal = gk_test_read(wal, &wal_size);
    gki_cache_close(&cache);
    char *old = gk_test_read(path, &old_size);
    assert_true(wal_size > 4096);

    /* Without its file. */
    assert_int_equal(unlink(path), 0);
    gk_test_write(wal, old_wal, wal_size);
    size_t size = 0;
    char *fresh = make_file(path, "T=new", &size);
    assert_false(exists(wal));
    /* Beside another one. */
    gk_test_write(wal, old_wal, wal_size);
    cache = cache_open(path, &log);
    expect_answer(cache, &key_a, "T=new");
    expect_no_answer(cache, &key_b);
    assert_int_equal(log.warnings, 1);
    assert_non_null(strstr(log.text, "another database"));
    gki_cache_close(&cache);
    expect_query(path, "PRAGMA integrity_check", "ok");
    free(fresh);
    free(old_wal);
    free(old);
}

/* But one that a killed process left is whole rows of ours. */
static void test_own_log(void **state)
{
    (void)state;
    test_log log;
    const char *path = gk_test_path("gk.db");
    gki_cache *cache = cache_open(path, &log);
    assert_true(put_answer(cache, &key_a, "T=kept"));
    size_t size = 0;
    size_t wal_size = 0;
    char *file = gk_test_read(path, &size);
    char *wal = gk_test_read(gk_test_path("gk.db-wal"), &wal_size);
    gki_cache_close(&cache);
    /* As it was while the process lived, and with a commit that was cut short. */
    for (size_t cut = 0; cut < 2; cut++) {
        gk_test_write(path, file, size);
        gk_test_write(gk_test_path("gk.db-wal"), wal, wal_size - cut * 100);
        cache = cache_open(path, &log);
        if (cut == 0) {
            expect_answer(cache, &key_a, "T=kept");
        } else {
            expect_no_answer(cache, &key_a);
        }
        assert_true(put_answer(cache, &key_b, "T=1"));
        gki_cache_close(&cache);
        assert_int_equal(log.warnings, 0);
        expect_query(path, "PRAGMA integrity_check", "ok");
    }
    free(file);
    free(wal);
}

static void test_damage_while_open(void **state)
{
    (void)state;
    test_log log;
    char aside[4096];
    const char *path = gk_test_path("gk.db");
    size_t size = 0;
    free(make_file(path, "T=old", &size));
    gki_cache *cache = cache_open(path, &log);
    FILE *file = fopen(path, "r+be");
    assert_non_null(file);
    for (size_t i = 0; i < size; i++) {
        assert_int_equal(fputc(0xff, file), 0xff);
    }
    assert_int_equal(fclose(file), 0);
    expect_no_answer(cache, &key_a);
    assert_true(put_answer(cache, &key_a, "T=new"));
    assert_int_equal(log.warnings, 1);
    assert_int_equal(matches("gk.db.corrupt-*[0-9]", aside, sizeof aside), 1);
    gki_cache_close(&cache);
    expect_query(path, "PRAGMA integrity_check", "ok");
}

static void test_deleted_while_open(void **state)
{
    (void)state;
    test_log log;
    const char *path = gk_test_path("gk.db");
    gki_cache *cache = cache_open(path, &log);
    assert_true(put_answer(cache, &key_a, "T=1"));
    assert_int_equal(unlink(path), 0);
    assert_true(put_answer(cache, &key_b, "T=2"));
    expect_query(path, "SELECT config FROM choice", "T=2");
    gki_cache_close(&cache);
    expect_query(path, "PRAGMA integrity_check", "ok");
    expect_query(path, "SELECT config FROM choice", "T=2");
    assert_int_equal(log.warnings, 0);
}

static void test_busy(void **state)
{
    (void)state;
    test_log log;
    const char *path = gk_test_path("gk.db");
    gki_cache *cache = cache_open(path, &log);
    sqlite3 *db = NULL;
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    assert_int_equal(sqlite3_exec(db, "BEGIN IMMEDIATE", NULL, NULL, NULL), SQLITE_OK);
    assert_false(put_answer(cache, &key_a, "T=1"));
    expect_answer(cache, &key_a, "T=1");
    assert_int_equal(log.warnings, 1);
    assert_int_equal(sqlite3_close(db), SQLITE_OK);
    assert_true(put_answer(cache, &key_b, "T=2"));
    assert_string_equal(cache_state(cache).degraded, "");
    /* What reaches the file later stands above what was kept in memory meanwhile. */
    gki_choice choice = make_choice("T=3", 0.001);
    bool saved = false;
    assert_gk_ok(gki_cache_publish(cache, &key_a, &choice, NULL, 0, true, &saved));
    assert_true(saved);
    expect_answer(cache, &key_a, "T=3");
    gki_cache_close(&cache);
    assert_int_equal(log.warnings, 1);
}

/* What stands in the file is data. */
static void test_untrusted_rows(void **state)
{
    (void)state;
    static const char *const damage[] = {
        "UPDATE choice SET config = NULL",
        "UPDATE choice SET config = ''",
        "UPDATE choice SET config = x'541d'",
        "UPDATE choice SET config = 'T=1' || char(10) || '#define X'",
        "UPDATE choice SET config = 'T=1' || char(0) || 'x'",
        "UPDATE choice SET config = printf('%.*c', 256, 'x')",
        "UPDATE choice SET variant = NULL",
        "UPDATE choice SET variant = 7.5, config = 12",
        "UPDATE choice SET variant = printf('%.*c', 32, 'x')",
        "UPDATE choice SET seconds = '64 -DX=1'",
        "UPDATE choice SET seconds = -1",
        "UPDATE choice SET seconds = 9e999",
        "UPDATE choice SET spread = NULL",
        "UPDATE choice SET created = 'now'",
    };
    for (size_t i = 0; i < sizeof damage / sizeof damage[0]; i++) {
        test_log log;
        const char *path = gk_test_path("gk.db");
        gki_cache *cache = cache_open(path, &log);
        assert_true(put_answer(cache, &key_a, "T=1"));
        /* Columns with text affinity would make text of a number. */
        run_sql(path, damage[i]);
        gki_choice choice;
        gk_status status = gki_cache_choice_get(cache, &key_a, &choice);
        if (i == 7) {
            assert_int_equal(status, GK_OK);
            assert_string_equal(choice.config, "12");
            gki_cache_choice_drop(cache, &key_a);
        } else {
            assert_int_equal(status, GK_ERR_NOT_FOUND);
            assert_int_equal(log.warnings, 1);
            expect_query(path, "SELECT count(*) FROM choice", "0");
        }
        assert_true(put_answer(cache, &key_a, "T=2"));
        run_sql(path, damage[0]);
        /* Publishing replaces what cannot be read. */
        assert_true(put_answer(cache, &key_a, "T=3"));
        expect_answer(cache, &key_a, "T=3");
        gki_cache_choice_drop(cache, &key_a);
        gki_cache_close(&cache);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_memory),
        cmocka_unit_test(test_unusable_places),
        cmocka_unit_test(test_permissions),
        cmocka_unit_test(test_odd_names),
        cmocka_unit_test(test_damaged),
        cmocka_unit_test(test_damaged_at_default),
        cmocka_unit_test(test_empty),
        cmocka_unit_test(test_missing_table),
        cmocka_unit_test(test_foreign),
        cmocka_unit_test(test_newer),
        cmocka_unit_test(test_stale_log),
        cmocka_unit_test(test_own_log),
        cmocka_unit_test(test_damage_while_open),
        cmocka_unit_test(test_deleted_while_open),
        cmocka_unit_test(test_busy),
        cmocka_unit_test(test_untrusted_rows),
    };
    return GK_TEST_MAIN(tests);
}
