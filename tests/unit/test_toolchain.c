/*
 * Compilers and drivers that do not match the device, through the public functions: what the user
 * is told, and that none of it is held against a configuration. A child process a case, for the
 * scripted libcuda and NVRTC are loaded once.
 */
#define _GNU_SOURCE
#include "in_child.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <gk/gk.h>

#include "cache_case.h"

enum { LOG_SIZE = 2048, N = 16 };

/* A run's script and what came of it. */
typedef struct outcome {
    gk_status created;
    gk_status called;
    char message[972]; /* of the first failure */
    char log[LOG_SIZE];
    char arch[16];
    char compiler[64];
    uint64_t launches;
    uint64_t compiles;
    uint64_t compile_failures;
} outcome;

static struct {
    const char *cuda;
    const char *nvrtc;
    const char *cache;
    gk_dtype dtype;
    gk_mode mode;
} script;

static void take_line(void *user, gk_log_level level, const char *line)
{
    char *log = user;
    if (level <= GK_LOG_WARNING) {
        const size_t used = strlen(log);
        (void)snprintf(log + used, LOG_SIZE - used, "%s\n", line);
    }
}

static void call(gk_context *ctx, outcome *o)
{
    const size_t bytes = (size_t)N * N * gk_dtype_size(script.dtype);
    void *memory[3] = {NULL, NULL, NULL};
    gk_device_info info;
    gk_statistics stats = {.struct_size = sizeof(stats)};
    for (int i = 0; i < 3; i++) {
        if (gk_mem_alloc(ctx, bytes, &memory[i]) != GK_OK) {
            abort();
        }
    }
    const gk_tensor a = gk_matrix(memory[0], script.dtype, N, N);
    const gk_tensor b = gk_matrix(memory[1], script.dtype, N, N);
    const gk_tensor c = gk_matrix(memory[2], script.dtype, N, N);
    o->called = gk_matmul(ctx, &a, &b, &c, NULL, NULL);
    if (o->called != GK_OK) {
        memcpy(o->message, gk_error_last()->message, sizeof(o->message));
    }
    if (gk_device_info_get(ctx, &info) != GK_OK || gk_stats(ctx, &stats) != GK_OK) {
        abort();
    }
    memcpy(o->arch, info.arch, sizeof(o->arch));
    memcpy(o->compiler, info.compiler, sizeof(o->compiler));
    o->launches = stats.launches;
    o->compiles = stats.compiles;
    o->compile_failures = stats.compile_failures;
    for (int i = 0; i < 3; i++) {
        (void)gk_mem_free(ctx, &memory[i]);
    }
}

static void run(void *data)
{
    outcome *o = data;
    gk_context_options options = GK_CONTEXT_OPTIONS_INIT;
    gk_context *ctx = NULL;
    (void)setenv("GK_CUDA_DRIVER", GK_TEST_FAKE_CUDA, 1);
    (void)setenv("GK_NVRTC", GK_TEST_FAKE_NVRTC, 1);
    (void)setenv("FAKE_CUDA", script.cuda, 1);
    (void)setenv("FAKE_NVRTC", script.nvrtc, 1);
    (void)unsetenv("CUDA_HOME");
    (void)unsetenv("CUDA_PATH");
    options.cache_path = script.cache != NULL ? script.cache : ":memory:";
    options.mode = script.mode != 0 ? script.mode : GK_MODE_HEURISTIC;
    options.log = take_line;
    options.log_user = o->log;
    o->created = gk_context_create(&ctx, "cuda", &options);
    if (o->created != GK_OK) {
        memcpy(o->message, gk_error_last()->message, sizeof(o->message));
        return;
    }
    call(ctx, o);
    gk_context_destroy(&ctx);
}

static outcome run_with(const char *cuda, const char *nvrtc, gk_dtype dtype)
{
    outcome o;
    script.cuda = cuda;
    script.nvrtc = nvrtc;
    script.dtype = dtype;
    in_child(run, &o, sizeof(o));
    return o;
}

static void says(const char *text, const char *word)
{
    if (strstr(text, word) == NULL) {
        fail_msg("\"%s\" is not in \"%s\"", word, text);
    }
}

static void test_matching(void **state)
{
    (void)state;
    const outcome o = run_with("cc=90", "version=13.0|archs=80,90", GK_F32);
    assert_int_equal(o.created, GK_OK);
    assert_int_equal(o.called, GK_OK);
    assert_string_equal(o.arch, "sm_90a"); /* a native binary */
    assert_string_equal(o.log, "");
    assert_int_equal(o.launches, 1);
}

/* The newest architecture that the compiler knows and the device has, as PTX. */
static void test_device_is_newer(void **state)
{
    (void)state;
    const outcome o = run_with("cc=100|version=13000", "version=12.4|archs=50,80,90", GK_F32);
    assert_int_equal(o.created, GK_OK);
    assert_int_equal(o.called, GK_OK);
    assert_string_equal(o.arch, "compute_90");
    assert_int_equal(o.launches, 1);
    says(o.log, "NVRTC 12.4");
    says(o.log, "10.0");
}

static void test_compiler_is_too_old(void **state)
{
    (void)state;
    const outcome o = run_with("cc=89", "version=11.2|archs=35,80,86", GK_F32);
    assert_int_equal(o.created, GK_ERR_NO_COMPILER);
    says(o.message, "11.2");
    says(o.message, "12.0");
}

static void test_no_builtins(void **state)
{
    (void)state;
    script.cache = gk_test_path("builtins.db");
    outcome o = run_with("cc=90",
                         "version=12.4|archs=90|result=7|log=nvrtc: error: failed to open "
                         "libnvrtc-builtins.so.12.4",
                         GK_F32);
    assert_int_equal(o.created, GK_OK);
    assert_int_equal(o.called, GK_ERR_NO_COMPILER);
    says(o.message, "NVRTC 12.4");
    says(o.message, "libnvrtc-builtins.so.12.4");
    assert_int_equal(o.compile_failures, 1); /* no other candidate was tried in vain */
    assert_int_equal(o.launches, 0);
    expect_query(script.cache, "SELECT count(*) FROM trial", "0");
    expect_query(script.cache, "SELECT count(*) FROM choice", "0");
    expect_query(script.cache, "SELECT count(*) FROM kernel", "0");
    /* Once the library is there everything is as if nothing had been. */
    o = run_with("cc=90", "version=12.4|archs=90", GK_F32);
    assert_int_equal(o.called, GK_OK);
    assert_int_equal(o.compiles, 1);
    script.cache = NULL;
}

/* The fake refuses a program with headers and keeps the options: no directory is named in any. */
static void test_no_headers(void **state)
{
    static const gk_dtype dtypes[] = {GK_F16, GK_BF16};
    (void)state;
    script.cache = gk_test_path("headers.db");
    for (size_t i = 0; i < 2; i++) {
        const outcome o = run_with("cc=90", "version=13.0|archs=90", dtypes[i]);
        assert_int_equal(o.called, GK_OK);
        assert_int_equal(o.compiles, 1);
        assert_int_equal(o.launches, 1);
    }
    expect_query(script.cache, "SELECT count(*) FROM kernel", "2");
    expect_query(script.cache,
                 "SELECT count(*) FROM kernel WHERE instr(CAST(code AS TEXT), '-I') > 0 OR "
                 "instr(CAST(code AS TEXT), 'include') > 0",
                 "0");
    script.cache = NULL;
}

static void test_driver_is_older(void **state)
{
    (void)state;
    const outcome o = run_with("cc=90|version=12040", "version=13.0|archs=90", GK_F32);
    assert_int_equal(o.created, GK_OK);
    says(o.log, "NVRTC 13.0");
    says(o.log, "CUDA 12.4");
    assert_string_equal(o.arch, "sm_90a"); /* native code that an old driver may take, no PTX */
    assert_int_equal(o.called, GK_OK);
}

/* PTX that the driver does not know: said with both versions, and nothing is kept. */
static void test_driver_refuses_the_code(void **state)
{
    static const gk_mode modes[] = {GK_MODE_HEURISTIC, GK_MODE_TUNE};
    (void)state;
    script.cache = gk_test_path("refused.db");
    for (size_t i = 0; i < 2; i++) {
        script.mode = modes[i];
        const outcome o =
            run_with("cc=100|version=12040|load=222", "version=13.0|archs=90", GK_F32);
        assert_int_equal(o.created, GK_OK);
        assert_string_equal(o.arch, "compute_90");
        assert_int_not_equal(o.called, GK_OK);
        assert_int_equal(o.launches, 0);
        says(o.message, "13.0");
        says(o.message, "12.4");
        expect_query(script.cache, "SELECT count(*) FROM choice", "0");
        expect_query(script.cache, "SELECT count(*) FROM trial", "0");
    }
    script.cache = NULL;
    script.mode = GK_MODE_DEFAULT;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_matching),
        cmocka_unit_test(test_device_is_newer),
        cmocka_unit_test(test_compiler_is_too_old),
        cmocka_unit_test(test_no_builtins),
        cmocka_unit_test(test_no_headers),
        cmocka_unit_test(test_driver_is_older),
        cmocka_unit_test(test_driver_refuses_the_code),
    };
    return GK_TEST_MAIN(tests);
}
