#define _GNU_SOURCE
#include "support/gk_test.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/dl.h"
#include "base/proc.h"

static gki_proc_result run_ok(const char *const *argv)
{
    gki_proc_result result;
    memset(&result, 0x5a, sizeof result);
    assert_gk_ok(gki_proc_run(argv, 30, &result));
    assert_non_null(result.output);
    return result;
}

static void test_output_and_exit(void **state)
{
    (void)state;
    const char *const argv[] = {"sh", "-c", "echo out; echo err >&2; exit 3", NULL};
    gki_proc_result r = run_ok(argv);
    assert_int_equal(r.exit_code, 3);
    assert_int_equal(r.signal, 0);
    assert_string_equal(r.output, "out\nerr\n");
    gki_free(r.output);
    const char *const quiet[] = {"true", NULL};
    r = run_ok(quiet);
    assert_int_equal(r.exit_code, 0);
    assert_string_equal(r.output, "");
    gki_free(r.output);
}

static void test_arguments_are_not_interpreted(void **state)
{
    (void)state;
    const char *const argv[] = {"printf", "%s|", "a b", "$HOME", "; echo x", "*", "", NULL};
    gki_proc_result r = run_ok(argv);
    assert_string_equal(r.output, "a b|$HOME|; echo x|*||");
    gki_free(r.output);
}

static void test_signal(void **state)
{
    (void)state;
    const char *const argv[] = {"sh", "-c", "kill -SEGV $$", NULL};
    gki_proc_result r = run_ok(argv);
    assert_int_equal(r.exit_code, -1);
    assert_int_equal(r.signal, SIGSEGV);
    gki_free(r.output);
}

static void test_no_input_and_default_signals(void **state)
{
    (void)state;
    (void)signal(SIGPIPE, SIG_IGN);
    /* cat ends at once; yes is ended by the pipe, which an inherited SIG_IGN would prevent. */
    const char *const argv[] = {"sh", "-c", "cat; yes | head -n 1", NULL};
    gki_proc_result r = run_ok(argv);
    (void)signal(SIGPIPE, SIG_DFL);
    assert_int_equal(r.exit_code, 0);
    assert_string_equal(r.output, "y\n");
    gki_free(r.output);
}

static void test_output_is_bounded(void **state)
{
    (void)state;
    const char *const argv[] = {"head", "-c", "3000000", "/dev/zero", NULL};
    gki_proc_result r = run_ok(argv);
    assert_int_equal(r.exit_code, 0);
    static const char zeros[4096];
    for (size_t i = 0; i < (1u << 20); i += sizeof zeros) {
        assert_memory_equal(r.output + i, zeros, sizeof zeros);
    }
    gki_free(r.output);
}

static void test_cannot_start(void **state)
{
    (void)state;
    gki_proc_result r;
    const char *const missing[] = {"/gk-no-such-program", NULL};
    assert_gk_err(gki_proc_run(missing, 5, &r), GK_ERR_IO, "gk-no-such-program");
    assert_int_equal(gk_error_last()->driver_code, ENOENT);
    assert_null(r.output);
}

static void test_timeout_ends_the_group(void **state)
{
    (void)state;
    const char *marker = gk_test_path("marker");
    char script[4400];
    (void)snprintf(script, sizeof script, "(sleep 1; echo alive > '%s') & sleep 20", marker);
    const char *const argv[] = {"sh", "-c", script, NULL};
    gki_proc_result r;
    uint64_t start = gki_clock_ns();
    assert_gk_err(gki_proc_run(argv, 0.2, &r), GK_ERR_TIMEOUT, "200 ms");
    double seconds = (double)(gki_clock_ns() - start) * 1e-9;
    assert_null(r.output);
    assert_true(seconds >= 0.2);
    assert_true(seconds < 10);
    (void)sleep(2);
    assert_int_equal(access(marker, F_OK), -1);
}

static void test_grandchild_holds_the_pipe(void **state)
{
    (void)state;
    const char *const argv[] = {"sh", "-c", "sleep 20 & echo done", NULL};
    uint64_t start = gki_clock_ns();
    gki_proc_result r = run_ok(argv);
    assert_string_equal(r.output, "done\n");
    assert_true((double)(gki_clock_ns() - start) * 1e-9 < 10);
    gki_free(r.output);
}

static void test_lost_status(void **state)
{
    (void)state;
    (void)signal(SIGCHLD, SIG_IGN);
    const char *const argv[] = {"true", NULL};
    gki_proc_result r;
    gk_status status = gki_proc_run(argv, 5, &r);
    (void)signal(SIGCHLD, SIG_DFL);
    assert_gk_err(status, GK_ERR_IO, "'true' is lost");
    assert_null(r.output);
}

static void test_dl(void **state)
{
    (void)state;
    char text[512];
    assert_null(gki_dl_open("libgk-no-such.so.1", text, sizeof text));
    assert_non_null(strstr(text, "libgk-no-such.so.1"));
    assert_null(gki_dl_open("libgk-no-such.so.1", text, 8));
    assert_int_equal(strlen(text), 7);
    void *handle = gki_dl_open("libsqlite3.so.0", text, sizeof text);
    assert_non_null(handle);
    assert_string_equal(text, "");
    void *symbol = gki_dl_symbol(handle, "sqlite3_libversion");
    assert_non_null(symbol);
    assert_null(gki_dl_symbol(handle, "gk_no_such_symbol"));
    gki_dl_path_of(symbol, text, sizeof text);
    assert_non_null(strstr(text, "libsqlite3.so"));
    int local = 0;
    gki_dl_path_of(&local, text, sizeof text);
    assert_string_equal(text, "");
    gki_dl_close(handle);
    gki_dl_close(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_output_and_exit),
        cmocka_unit_test(test_arguments_are_not_interpreted),
        cmocka_unit_test(test_signal),
        cmocka_unit_test(test_no_input_and_default_signals),
        cmocka_unit_test(test_output_is_bounded),
        cmocka_unit_test(test_cannot_start),
        cmocka_unit_test(test_timeout_ends_the_group),
        cmocka_unit_test(test_grandchild_holds_the_pipe),
        cmocka_unit_test(test_lost_status),
        cmocka_unit_test(test_dl),
    };
    return GK_TEST_MAIN(tests);
}
