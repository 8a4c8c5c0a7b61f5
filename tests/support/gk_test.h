/*
 * Preamble of every C test: cmocka in the right include order, assertions on gk_status, and a
 * private environment. Each test runs with a fresh empty directory as $HOME, $XDG_CACHE_HOME and
 * $TMPDIR, and with every GK_* variable but GK_TEST_* unset.
 */
#ifndef GK_TEST_H
#define GK_TEST_H

/* cmocka.h needs these four before it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <gk/base.h>

/*
 * Runs the tests. 0 if none failed, 1 if any did, 77 if every one was skipped by gk_test_skip().
 * The tests' own setup, teardown and initial state are kept. With GK_TEST_FILTER only those whose
 * names contain it; 1 if there is none.
 */
int gk_test_main(const struct CMUnitTest *tests, size_t count);

#define GK_TEST_MAIN(tests) gk_test_main((tests), sizeof(tests) / sizeof((tests)[0]))

/* Ends the running test as skipped, with the reason on stderr. */
void gk_test_skip(const char *reason);

/* The running test's directory, absolute. */
const char *gk_test_dir(void);

/* "<dir>/<name>"; valid until the test ends. Not for threads. */
const char *gk_test_path(const char *name);

/* Writes a file with mode 0600, replacing one that is there. Fails the test if it cannot. */
void gk_test_write(const char *path, const void *data, size_t size);

/* The file's text, NUL-terminated; freed with free(). Fails the test if it cannot be read. */
char *gk_test_read(const char *path, size_t *size);

#define assert_gk_ok(expr) gk_test_assert_ok((expr), #expr, __FILE__, __LINE__)

/* The call fails with this code, and gk_error_last()->message holds `text` (NULL = any). */
#define assert_gk_err(expr, code, text)                                                            \
    gk_test_assert_err((expr), (code), (text), #expr, __FILE__, __LINE__)

void gk_test_assert_ok(gk_status status, const char *what, const char *file, int line);
void gk_test_assert_err(gk_status status, gk_status expected, const char *text, const char *what,
                        const char *file, int line);

#endif
