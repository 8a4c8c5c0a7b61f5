/* What the cache's tests share: a log that counts, keys and answers, and a second connection. */
#ifndef CACHE_CASE_H
#define CACHE_CASE_H

#include "support/gk_test.h"

#include <sqlite3.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cache/cache.h"

typedef struct test_log {
    int warnings;
    char text[1100]; /* the last one */
} test_log;

static inline void test_log_line(void *user, gk_log_level level, const char *line)
{
    test_log *log = user;
    if (level <= GK_LOG_WARNING) {
        log->warnings++;
        (void)snprintf(log->text, sizeof log->text, "%s", line);
    }
}

static inline gki_cache *cache_open(const char *path, test_log *log)
{
    memset(log, 0, sizeof *log);
    gki_log sink = {.fn = test_log_line, .user = log, .level = GK_LOG_DEBUG};
    gki_cache *cache = NULL;
    assert_gk_ok(gki_cache_open(&cache, path, 0, &sink));
    assert_non_null(cache);
    return cache;
}

static const gki_key key_a = {"matmul", "r1 64x64x64 f32", "cc90 sm132 nvrtc13.0"};
static const gki_key key_b = {"matmul", "r1 64x64x64 f32", "cc90 sm16 nvrtc13.0"};

static inline gki_choice make_choice(const char *config, double seconds)
{
    gki_choice choice;
    memset(&choice, 0, sizeof choice);
    (void)snprintf(choice.variant, sizeof choice.variant, "simt");
    (void)snprintf(choice.config, sizeof choice.config, "%s", config);
    choice.seconds = seconds;
    choice.spread = 0.01;
    choice.created = 1700000000;
    return choice;
}

/* Publishes an answer of its own; returns whether it is in the file. */
static inline bool put_answer(gki_cache *cache, const gki_key *key, const char *config)
{
    gki_choice choice = make_choice(config, 0.001);
    bool saved = false;
    assert_gk_ok(gki_cache_publish(cache, key, &choice, NULL, 0, false, &saved));
    assert_string_equal(choice.config, config);
    return saved;
}

static inline void expect_answer(gki_cache *cache, const gki_key *key, const char *config)
{
    gki_choice choice;
    memset(&choice, 0x5a, sizeof choice);
    assert_int_equal(gki_cache_choice_get(cache, key, &choice), GK_OK);
    assert_string_equal(choice.variant, "simt");
    assert_string_equal(choice.config, config);
}

static inline void expect_no_answer(gki_cache *cache, const gki_key *key)
{
    gki_choice choice;
    assert_int_equal(gki_cache_choice_get(cache, key, &choice), GK_ERR_NOT_FOUND);
    assert_string_equal(choice.config, "");
}

typedef struct test_state {
    char path[4096];
    char degraded[256];
    uint64_t errors;
} test_state;

static inline test_state cache_state(gki_cache *cache)
{
    test_state s;
    memset(&s, 0x5a, sizeof s);
    gki_cache_state(cache, s.path, sizeof s.path, s.degraded, sizeof s.degraded, &s.errors);
    return s;
}

/* Runs statements on the file through a connection of its own. */
static inline void run_sql(const char *path, const char *sql)
{
    sqlite3 *db = NULL;
    char *message = NULL;
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    (void)sqlite3_busy_timeout(db, 5000);
    if (sqlite3_exec(db, sql, NULL, NULL, &message) != SQLITE_OK) {
        fail_msg("%s: %s", sql, message);
    }
    assert_int_equal(sqlite3_close(db), SQLITE_OK);
}

/* The first value of a query, as text. */
static inline void query(const char *path, const char *sql, char *out, size_t size)
{
    sqlite3 *db = NULL;
    sqlite3_stmt *statement = NULL;
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    (void)sqlite3_busy_timeout(db, 5000);
    assert_int_equal(sqlite3_prepare_v2(db, sql, -1, &statement, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_step(statement), SQLITE_ROW);
    const unsigned char *text = sqlite3_column_text(statement, 0);
    (void)snprintf(out, size, "%s", text != NULL ? (const char *)text : "NULL");
    assert_int_equal(sqlite3_finalize(statement), SQLITE_OK);
    assert_int_equal(sqlite3_close(db), SQLITE_OK);
}

static inline void expect_query(const char *path, const char *sql, const char *expected)
{
    char text[256];
    query(path, sql, text, sizeof text);
    assert_string_equal(text, expected);
}

static inline bool exists(const char *path)
{
    struct stat info;
    return lstat(path, &info) == 0;
}

#endif
