#define _GNU_SOURCE
#include "support/gk_test.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/env.h"
#include "base/fs.h"

static unsigned mode_of(const char *path)
{
    struct stat info;
    assert_int_equal(stat(path, &info), 0);
    return (unsigned)info.st_mode & 07777u;
}

static int entries(const char *path)
{
    int n = 0;
    DIR *directory = opendir(path);
    assert_non_null(directory);
    while (readdir(directory) != NULL) {
        n++;
    }
    (void)closedir(directory);
    return n - 2;
}

static void test_write_and_read(void **state)
{
    (void)state;
    const char *path = gk_test_path("file");
    char *text = NULL;
    size_t size = 99;
    assert_gk_ok(gki_fs_write(path, "ab\0cd", 5, 0640));
    assert_int_equal(mode_of(path), 0640);
    assert_gk_ok(gki_fs_read(path, 5, &text, &size));
    assert_int_equal(size, 5);
    assert_memory_equal(text, "ab\0cd", 6);
    gki_free(text);
    assert_gk_ok(gki_fs_write(path, "", 0, 0600));
    assert_gk_ok(gki_fs_read(path, 0, &text, &size));
    assert_int_equal(size, 0);
    assert_string_equal(text, "");
    gki_free(text);
    assert_int_equal(mode_of(path), 0600);
    /* No temporary file stays behind. */
    assert_int_equal(entries(gk_test_dir()), 1);
}

static void test_large_file(void **state)
{
    (void)state;
    const char *path = gk_test_path("large");
    size_t size = 300001;
    char *data = malloc(size);
    assert_non_null(data);
    for (size_t i = 0; i < size; i++) {
        data[i] = (char)(i * 31 % 251);
    }
    assert_gk_ok(gki_fs_write(path, data, size, 0600));
    char *back = NULL;
    size_t got = 0;
    assert_gk_ok(gki_fs_read(path, size, &back, &got));
    assert_int_equal(got, size);
    assert_memory_equal(back, data, size);
    gki_free(back);
    assert_gk_err(gki_fs_read(path, size - 1, &back, &got), GK_ERR_IO, "larger than 300000");
    assert_null(back);
    assert_int_equal(got, 0);
    /* A file whose size the kernel gives as 0. */
    assert_gk_ok(gki_fs_read("/proc/self/status", 1 << 20, &back, &got));
    assert_non_null(strstr(back, "Pid:"));
    gki_free(back);
    free(data);
}

static void test_failures(void **state)
{
    (void)state;
    char *text = NULL;
    size_t size = 0;
    assert_gk_err(gki_fs_read(gk_test_path("none"), 10, &text, &size), GK_ERR_IO, "none");
    assert_int_equal(gk_error_last()->driver_code, ENOENT);
    assert_gk_err(gki_fs_read(gk_test_dir(), 10, &text, &size), GK_ERR_IO, "directory");
    assert_gk_err(gki_fs_write(gk_test_path("no/such"), "x", 1, 0600), GK_ERR_IO, "no/such");
    assert_gk_err(gki_fs_write("/dev/full", "x", 1, 0600), GK_ERR_IO, "/dev/full");
    assert_int_equal(gk_error_last()->driver_code, ENOSPC);
    gk_test_write(gk_test_path("file"), "x", 1);
    assert_gk_err(gki_fs_mkdirs(gk_test_path("file/sub")), GK_ERR_IO, "file");
    assert_gk_err(gki_fs_mkdirs(""), GK_ERR_IO, NULL);
    gki_alloc_fail_at(1);
    gk_status status = gki_fs_read(gk_test_path("file"), 10, &text, &size);
    gki_alloc_fail_at(0);
    assert_gk_err(status, GK_ERR_NOMEM, NULL);
}

static void test_write_to_device(void **state)
{
    (void)state;
    assert_gk_ok(gki_fs_write("/dev/null", "x", 1, 0600));
    struct stat info;
    assert_int_equal(stat("/dev/null", &info), 0);
    assert_true(S_ISCHR(info.st_mode));
}

static void test_mkdirs(void **state)
{
    (void)state;
    const char *path = gk_test_path("a//b/c d/");
    assert_gk_ok(gki_fs_mkdirs(path));
    assert_gk_ok(gki_fs_mkdirs(path));
    assert_int_equal(mode_of(gk_test_path("a")), 0700);
    assert_int_equal(mode_of(gk_test_path("a/b/c d")), 0700);
    assert_gk_ok(gki_fs_mkdirs("/"));
}

static void test_temp_dir(void **state)
{
    (void)state;
    char one[4096];
    char two[4096];
    assert_gk_ok(gki_fs_temp_dir(one, sizeof one));
    assert_gk_ok(gki_fs_temp_dir(two, sizeof two));
    assert_string_not_equal(one, two);
    assert_int_equal(strncmp(one, gk_test_dir(), strlen(gk_test_dir())), 0);
    assert_int_equal(mode_of(one), 0700);
    for (int i = 0; i < 40; i++) {
        char name[4200];
        (void)snprintf(name, sizeof name, "%s/f%d", one, i);
        gk_test_write(name, "x", 1);
    }
    gki_fs_remove_dir(one);
    assert_int_equal(access(one, F_OK), -1);
    assert_int_equal(access(two, F_OK), 0);
    assert_gk_err(gki_fs_temp_dir(one, 8), GK_ERR_IO, NULL);
    assert_int_equal(setenv("TMPDIR", gk_test_path("missing"), 1), 0);
    assert_gk_err(gki_fs_temp_dir(one, sizeof one), GK_ERR_IO, "missing");
}

static void test_is_network(void **state)
{
    (void)state;
    assert_false(gki_fs_is_network("/proc"));
    assert_false(gki_fs_is_network(gk_test_path("none")));
}

static void test_env(void **state)
{
    (void)state;
    assert_null(gki_env("GK_CACHE"));
    assert_int_equal(setenv("GK_CACHE", "", 1), 0);
    assert_null(gki_env("GK_CACHE"));
    assert_int_equal(setenv("GK_CACHE", "/x", 1), 0);
    assert_string_equal(gki_env("GK_CACHE"), "/x");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_write_and_read), cmocka_unit_test(test_large_file),
        cmocka_unit_test(test_failures),       cmocka_unit_test(test_write_to_device),
        cmocka_unit_test(test_mkdirs),         cmocka_unit_test(test_temp_dir),
        cmocka_unit_test(test_is_network),     cmocka_unit_test(test_env),
    };
    return GK_TEST_MAIN(tests);
}
