#include "support/gk_test.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include <gk/extend.h>

#include "base/error.h"
#include "base/log.h"

static void test_record(void **state)
{
    (void)state;
    errno = 7;
    assert_gk_err(gki_fail_code(GK_ERR_DEVICE, "cuda", 700, "launch %s failed", "simt"),
                  GK_ERR_DEVICE, "launch simt failed");
    assert_int_equal(errno, 7);
    assert_int_equal(gk_error_last()->driver_code, 700);
    assert_string_equal(gk_error_last()->where, "cuda");
    assert_gk_err(gk_fail(GK_ERR_INVALID, "matmul", "a has %d rows, b %d", 3, 4), GK_ERR_INVALID,
                  "a has 3 rows, b 4");
    assert_int_equal(gk_error_last()->driver_code, 0);
    assert_gk_err(gki_fail_nomem("op", 12), GK_ERR_NOMEM, "12 bytes");
    /* A failure never reads as a success. */
    assert_int_equal(gk_fail(GK_OK, "x", "y"), GK_ERR_INTERNAL);
}

static void test_truncation(void **state)
{
    (void)state;
    char text[2000];
    memset(text, 'm', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    (void)gk_fail(GK_ERR_IO, text, "%s", text);
    const gk_error *error = gk_error_last();
    assert_int_equal(strlen(error->message), sizeof error->message - 1);
    assert_string_equal(error->message + sizeof error->message - 4, "...");
    assert_int_equal(strlen(error->where), sizeof error->where - 1);
    assert_string_equal(error->where + sizeof error->where - 4, "...");

    gk_reason reason;
    memset(&reason, 'x', sizeof reason);
    assert_false(gk_refuse(&reason, "%s", text));
    assert_int_equal(strlen(reason.text), sizeof reason.text - 1);
    assert_string_equal(reason.text + sizeof reason.text - 4, "...");
    assert_false(gk_refuse(&reason, "needs %d threads", 2048));
    assert_string_equal(reason.text, "needs 2048 threads");
    assert_false(gk_refuse(NULL, "nobody asks"));
}

static void test_message_from_itself(void **state)
{
    (void)state;
    (void)gk_fail(GK_ERR_IO, "fs", "inner");
    (void)gk_fail(GK_ERR_CACHE, "cache", "outer: %s", gk_error_last()->message);
    assert_string_equal(gk_error_last()->message, "outer: inner");
}

static void *fail_in_thread(void *out)
{
    if (gk_error_last()->status != GK_OK) {
        return out;
    }
    (void)gk_fail(GK_ERR_COMPILE, "thread", "of the thread");
    gki_error_save(out);
    return NULL;
}

static void test_threads(void **state)
{
    (void)state;
    (void)gk_fail(GK_ERR_IO, "main", "of main");
    pthread_t id;
    void *result = NULL;
    gk_error carried;
    assert_int_equal(pthread_create(&id, NULL, fail_in_thread, &carried), 0);
    assert_int_equal(pthread_join(id, &result), 0);
    assert_null(result);
    assert_string_equal(gk_error_last()->message, "of main");
    assert_gk_err(gki_error_restore(&carried), GK_ERR_COMPILE, "of the thread");
}

static void test_names(void **state)
{
    (void)state;
    assert_string_equal(gk_status_name(GK_OK), "GK_OK");
    assert_string_equal(gk_status_text(GK_OK), "success");
    assert_string_equal(gk_status_name(GK_ERR_INTERNAL), "GK_ERR_INTERNAL");
    assert_string_equal(gk_status_text(GK_ERR_NOT_FOUND), "not found");
    assert_string_equal(gk_status_name((gk_status)77), "GK_ERR_?");
    assert_string_equal(gk_status_text((gk_status)-99), "unknown status");
    assert_int_equal(GK_ERR_INVALID, -1);
    assert_int_equal(GK_ERR_INTERNAL, -20);
}

static void test_dtypes(void **state)
{
    (void)state;
    assert_int_equal(gk_dtype_size(GK_F64), 8);
    assert_int_equal(gk_dtype_size(GK_BF16), 2);
    assert_int_equal(gk_dtype_size(GK_E4M3), 1);
    assert_int_equal(gk_dtype_size(GK_DTYPE_NONE), 0);
    assert_int_equal(gk_dtype_size((gk_dtype)200), 0);
    assert_string_equal(gk_dtype_name(GK_E5M2), "e5m2");
    assert_string_equal(gk_dtype_name((gk_dtype)-1), "?");
    for (int i = 1; i < GK_DTYPE_COUNT; i++) {
        assert_int_equal(gk_dtype_parse(gk_dtype_name((gk_dtype)i)), i);
    }
    assert_int_equal(gk_dtype_parse("F32"), GK_DTYPE_NONE);
    assert_int_equal(gk_dtype_parse("?"), GK_DTYPE_NONE);
    assert_int_equal(gk_dtype_parse(""), GK_DTYPE_NONE);
    assert_int_equal(gk_dtype_parse(NULL), GK_DTYPE_NONE);
}

static void test_version(void **state)
{
    (void)state;
    char text[32];
    (void)snprintf(text, sizeof text, "%d.%d.%d", GK_VERSION_MAJOR, GK_VERSION_MINOR,
                   GK_VERSION_PATCH);
    assert_string_equal(gk_version_string(), text);
    assert_int_equal(gk_version(), GK_VERSION);
}

typedef struct lines {
    int count;
    gk_log_level level;
    char text[4096];
} lines;

static void keep_line(void *user, gk_log_level level, const char *line)
{
    lines *l = user;
    l->count++;
    l->level = level;
    (void)snprintf(l->text, sizeof l->text, "%s", line);
}

static void test_log(void **state)
{
    (void)state;
    lines l = {0};
    gki_log log = {.fn = keep_line, .user = &l, .level = GK_LOG_WARNING};
    gki_logf(NULL, GK_LOG_ERROR, "nowhere");
    gki_logf(&(gki_log){0}, GK_LOG_ERROR, "nowhere");
    gki_logf(&log, GK_LOG_INFO, "too quiet");
    assert_int_equal(l.count, 0);
    gki_logf(&log, GK_LOG_WARNING, "two\nlines \x1b[31m%d", 5);
    assert_int_equal(l.count, 1);
    assert_int_equal(l.level, GK_LOG_WARNING);
    assert_string_equal(l.text, "two lines  [31m5");
    char text[3000];
    memset(text, 'z', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    gki_logf(&log, GK_LOG_ERROR, "%s", text);
    assert_int_equal(strlen(l.text), 1023);
    assert_string_equal(l.text + 1020, "...");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_record),
        cmocka_unit_test(test_truncation),
        cmocka_unit_test(test_message_from_itself),
        cmocka_unit_test(test_threads),
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_dtypes),
        cmocka_unit_test(test_version),
        cmocka_unit_test(test_log),
    };
    return GK_TEST_MAIN(tests);
}
