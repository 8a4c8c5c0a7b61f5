#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "gk_test.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char start_tmp[2048];
static char directory[4096];
static const struct CMUnitTest *current;
static size_t n_skipped;
static char *compiler; /* $GK_CXX as the program was started with it */

static _Noreturn void fatal(const char *what, const char *name)
{
    (void)fprintf(stderr, "gk_test: %s %s: %s\n", what, name, strerror(errno));
    exit(1);
}

static int remove_entry(const char *path, const struct stat *info, int type, struct FTW *ftw)
{
    (void)info;
    (void)type;
    (void)ftw;
    return remove(path);
}

/* A test may leave directories that cannot be written. */
static int open_entry(const char *path, const struct stat *info, int type, struct FTW *ftw)
{
    (void)info;
    (void)ftw;
    if (type == FTW_D || type == FTW_DNR) {
        (void)chmod(path, 0700);
    }
    return 0;
}

static void clear_variables(void)
{
    for (size_t i = 0; environ[i] != NULL;) {
        const char *equals = strchr(environ[i], '=');
        if (strncmp(environ[i], "GK_", 3) == 0 && strncmp(environ[i], "GK_TEST_", 8) != 0 &&
            equals != NULL) {
            char *name = strndup(environ[i], (size_t)(equals - environ[i]));
            if (name == NULL || unsetenv(name) != 0) {
                fatal("cannot unset", environ[i]);
            }
            free(name);
            i = 0;
        } else {
            i++;
        }
    }
}

/* Kept until the test is over. */
typedef struct path_node {
    struct path_node *next;
    char path[];
} path_node;

static path_node *paths;

static void free_paths(void)
{
    while (paths != NULL) {
        path_node *next = paths->next;
        free(paths);
        paths = next;
    }
}

const char *gk_test_path(const char *name)
{
    size_t bytes = strlen(directory) + 1 + strlen(name) + 1;
    path_node *node = malloc(sizeof *node + bytes);
    if (node == NULL) {
        fatal("cannot allocate for", name);
    }
    (void)snprintf(node->path, bytes, "%s/%s", directory, name);
    node->next = paths;
    paths = node;
    return node->path;
}

static int enter(void **state)
{
    current = *state;
    int n = snprintf(directory, sizeof directory, "%s/gk-test-XXXXXX", start_tmp);
    if (n < 0 || (size_t)n >= sizeof directory || mkdtemp(directory) == NULL) {
        fatal("cannot create a directory under", start_tmp);
    }
    clear_variables();
    if (setenv("HOME", directory, 1) != 0 || setenv("TMPDIR", directory, 1) != 0 ||
        setenv("XDG_CACHE_HOME", gk_test_path("xdg"), 1) != 0) {
        fatal("cannot set HOME to", directory);
    }
    if (compiler != NULL && setenv("GK_CXX", compiler, 1) != 0) {
        fatal("cannot set GK_CXX to", compiler);
    }
    *state = current->initial_state;
    return current->setup_func != NULL ? current->setup_func(state) : 0;
}

static int leave(void **state)
{
    int rc = current->teardown_func != NULL ? current->teardown_func(state) : 0;
    (void)nftw(directory, open_entry, 16, FTW_PHYS);
    if (nftw(directory, remove_entry, 16, FTW_PHYS | FTW_DEPTH) != 0) {
        fatal("cannot remove", directory);
    }
    free_paths();
    return rc;
}

int gk_test_main(const struct CMUnitTest *tests, size_t count)
{
    const char *tmp = getenv("TMPDIR");
    (void)snprintf(start_tmp, sizeof start_tmp, "%s", tmp != NULL && *tmp == '/' ? tmp : "/tmp");
    /* The tests themselves, each handed to enter() as the initial state of its wrapper. */
    struct CMUnitTest *wrapped = calloc(2 * count + 1, sizeof *wrapped);
    if (wrapped == NULL) {
        fatal("cannot allocate", "the test list");
    }
    struct CMUnitTest *copies = wrapped + count;
    const char *filter = getenv("GK_TEST_FILTER");
    const char *cxx = getenv("GK_CXX");
    compiler = cxx != NULL ? strdup(cxx) : NULL;
    size_t n = 0;
    for (size_t i = 0; i < count; i++) {
        if (filter == NULL || strstr(tests[i].name, filter) != NULL) {
            wrapped[n].name = tests[i].name;
            wrapped[n].test_func = tests[i].test_func;
            wrapped[n].setup_func = enter;
            wrapped[n].teardown_func = leave;
            copies[n] = tests[i];
            wrapped[n].initial_state = &copies[n];
            n++;
        }
    }
    n_skipped = 0;
    int failures = _cmocka_run_group_tests("gk", wrapped, n, NULL, NULL);
    free(wrapped);
    free(compiler);
    if (failures != 0 || n == 0) {
        return 1;
    }
    return n_skipped == n ? 77 : 0;
}

void gk_test_skip(const char *reason)
{
    n_skipped++;
    (void)fprintf(stderr, "skipped: %s\n", reason);
    skip();
}

const char *gk_test_dir(void)
{
    return directory;
}

void gk_test_write(const char *path, const void *data, size_t size)
{
    (void)unlink(path);
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    const char *p = data;
    bool ok = fd >= 0;
    while (ok && size > 0) {
        ssize_t n = write(fd, p, size);
        ok = n > 0;
        if (ok) {
            p += n;
            size -= (size_t)n;
        }
    }
    if (fd < 0 || close(fd) != 0 || !ok) {
        fail_msg("cannot write %s: %s", path, strerror(errno));
    }
}

char *gk_test_read(const char *path, size_t *size)
{
    FILE *file = fopen(path, "rbe");
    if (file == NULL) {
        fail_msg("cannot read %s: %s", path, strerror(errno));
        return NULL;
    }
    char *text = NULL;
    size_t length = 0;
    size_t n = 0;
    do {
        char *more = realloc(text, length + 65537);
        if (more == NULL) {
            fatal("cannot allocate for", path);
        }
        text = more;
        n = fread(text + length, 1, 65536, file);
        length += n;
    } while (n > 0);
    (void)fclose(file);
    text[length] = '\0';
    if (size != NULL) {
        *size = length;
    }
    return text;
}

void gk_test_assert_ok(gk_status status, const char *what, const char *file, int line)
{
    if (status != GK_OK) {
        const gk_error *error = gk_error_last();
        print_error("%s: %s (%s, %d): %s\n", what, gk_status_name(status), error->where,
                    (int)error->driver_code, error->message);
        _fail(file, line);
    }
}

void gk_test_assert_err(gk_status status, gk_status expected, const char *text, const char *what,
                        const char *file, int line)
{
    const gk_error *error = gk_error_last();
    if (status != expected) {
        print_error("%s: %s instead of %s: %s\n", what, gk_status_name(status),
                    gk_status_name(expected), status != GK_OK ? error->message : "");
        _fail(file, line);
    }
    if (error->status != expected) {
        print_error("%s: the error record says %s instead of %s\n", what,
                    gk_status_name(error->status), gk_status_name(expected));
        _fail(file, line);
    }
    if (text != NULL && strstr(error->message, text) == NULL) {
        print_error("%s: '%s' is not in the message '%s'\n", what, text, error->message);
        _fail(file, line);
    }
}
