/* Compiling for the CPU device, its modules and its table. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "support/emu_kernel.h"
#include "support/gk_test.h"

typedef struct args {
    uint32_t *out;
    int64_t what;
} args;

#define ARGS_TEXT "struct args { unsigned *out; long long what; };\n"

static void test_info(void **state)
{
    (void)state;
    gk_device_info info;
    memset(&info, 0xff, sizeof info);
    emu_device->driver->info(emu_device, &info);
    assert_string_equal(info.name, "gk CPU device");
    assert_int_equal(info.cc, 90);
    assert_int_equal(info.is_emulated, 1);
    assert_int_equal(info.smem_per_block, 49152);
    assert_int_equal(info.smem_per_block_optin, 232448);
    assert_int_equal(info.max_threads_per_block, 1024);
    assert_true(info.memory_bytes > 0);
    assert_true(strlen(info.compiler) > 4);
    gki_device *second = NULL;
    assert_int_equal(gki_driver_cpu.open(&gki_driver_cpu, 1, NULL, &second), GK_ERR_INVALID);
    assert_null(second);
}

static void test_memory(void **state)
{
    (void)state;
    const gki_driver *driver = emu_device->driver;
    void *p = NULL;
    void *stream = NULL;
    unsigned char back[100];
    assert_gk_ok(driver->mem_alloc(emu_device, 100, &p));
    assert_int_equal((uintptr_t)p % 256, 0);
    assert_gk_ok(driver->stream_create(emu_device, &stream));
    assert_non_null(stream);
    assert_gk_ok(driver->fill(emu_device, p, 7, 100, stream));
    assert_gk_ok(driver->copy_in(emu_device, p, "abc", 3, stream));
    assert_gk_ok(driver->copy_dev(emu_device, (char *)p + 1, p, 3, stream));
    assert_gk_ok(driver->copy_out(emu_device, back, p, 100, stream));
    assert_memory_equal(back, "aabc\7\7", 6);
    assert_int_equal(back[99], 7);
    bool capturing = true;
    assert_gk_ok(driver->is_capturing(emu_device, stream, &capturing));
    assert_false(capturing);
    assert_gk_ok(driver->synchronize(emu_device, stream));
    driver->stream_destroy(emu_device, stream);
    assert_gk_ok(driver->mem_free(emu_device, p));
}

static void test_compile_error(void **state)
{
    (void)state;
    gki_compiled compiled;
    const gk_status status = emu_compile(
        emu_device, ARGS_TEXT "GK_KERNEL(32, 1, args, a)\n{\n    a.out[0] = undeclared_name;\n}\n",
        &compiled);
    assert_int_equal(status, GK_ERR_COMPILE);
    assert_non_null(strstr(gk_error_last()->message, "test.cu:4:"));
    assert_non_null(strstr(gk_error_last()->message, "undeclared_name"));
    assert_null(strchr(gk_error_last()->message, '\n'));
    assert_null(compiled.code);
    assert_non_null(strstr(compiled.log, "undeclared_name"));
    gki_free(compiled.log);
    /* A static_assert in a template is an error of the source too. */
    assert_int_equal(
        emu_compile(emu_device, "static_assert(sizeof(float) == 5, \"no\");\n", &compiled),
        GK_ERR_COMPILE);
    gki_free(compiled.log);
}

static void expect_no_compiler(const char *path, const char *part)
{
    gki_device *other = NULL;
    assert_int_equal(setenv("GK_CXX", path, 1), 0);
    const gk_status status = gki_driver_cpu.open(&gki_driver_cpu, 0, NULL, &other);
    assert_int_equal(unsetenv("GK_CXX"), 0);
    assert_int_equal(status, GK_ERR_NO_COMPILER);
    assert_null(other);
    assert_non_null(strstr(gk_error_last()->message, path));
    assert_non_null(strstr(gk_error_last()->message, part));
}

static void test_missing_compiler(void **state)
{
    (void)state;
    const char *old = getenv("GK_CXX");
    char *kept = old != NULL ? strdup(old) : NULL;
    expect_no_compiler("/nonexistent/c++", "GK_CXX");
    expect_no_compiler("true", "does not answer");
    if (kept != NULL) {
        assert_int_equal(setenv("GK_CXX", kept, 1), 0);
        free(kept);
    }
}

/* A compiler that fails without an error in the source says nothing about the source. */
static void test_broken_compiler(void **state)
{
    (void)state;
    const char *old = getenv("GK_CXXFLAGS");
    char *kept = old != NULL ? strdup(old) : NULL;
    gki_device *other = NULL;
    gki_compiled compiled;
    assert_int_equal(setenv("GK_CXXFLAGS", "-B/nonexistent  --no-such-option", 1), 0);
    const gk_status opened = gki_driver_cpu.open(&gki_driver_cpu, 0, NULL, &other);
    if (kept != NULL) {
        assert_int_equal(setenv("GK_CXXFLAGS", kept, 1), 0);
        free(kept);
    } else {
        assert_int_equal(unsetenv("GK_CXXFLAGS"), 0);
    }
    assert_int_equal(opened, GK_OK);
    gk_device_info plain;
    gk_device_info flagged;
    emu_device->driver->info(emu_device, &plain);
    other->driver->info(other, &flagged);
    assert_string_not_equal(plain.compiler, flagged.compiler); /* other flags, other code */
    assert_int_equal(other->driver->compile(other, "int x;\n", &compiled), GK_ERR_NO_COMPILER);
    gki_free(compiled.log);
    other->driver->close(other);
}

/* Nor does a full or missing directory for its files. */
static void test_no_temporary_files(void **state)
{
    (void)state;
    const char *old = getenv("TMPDIR");
    char *kept = old != NULL ? strdup(old) : NULL;
    gki_compiled compiled;
    assert_int_equal(setenv("TMPDIR", "/nonexistent", 1), 0);
    const gk_status status = emu_compile(emu_device, "int x;\n", &compiled);
    if (kept != NULL) {
        assert_int_equal(setenv("TMPDIR", kept, 1), 0);
        free(kept);
    } else {
        assert_int_equal(unsetenv("TMPDIR"), 0);
    }
    assert_gk_err(status, GK_ERR_NO_COMPILER, "/nonexistent/gk-");
    assert_null(compiled.code);
    gki_free(compiled.log);
}

static void test_load(void **state)
{
    (void)state;
    gki_compiled compiled;
    gki_module *module = NULL;
    const char *body = ARGS_TEXT "GK_KERNEL(32, 1, args, a)\n{\n    a.out[0] = 1;\n}\n";
    assert_int_equal(emu_compile(emu_device, body, &compiled), GK_OK);
    assert_true(compiled.size > 1000);
    assert_true(compiled.seconds > 0);
    assert_int_equal(
        emu_device->driver->module_load(emu_device, compiled.code, compiled.size, "other", &module),
        GK_ERR_DEVICE);
    assert_null(module);
    assert_non_null(strstr(gk_error_last()->message, "\"other\""));
    compiled.code[0] ^= 1;
    assert_int_equal(emu_device->driver->module_load(emu_device, compiled.code, compiled.size,
                                                     "test_kernel", &module),
                     GK_ERR_DEVICE);
    assert_null(module);
    gki_free(compiled.code);
    gki_free(compiled.log);
}

enum { COMPILERS = 3 };

typedef struct compiler {
    pthread_t thread;
    char body[200];
    gki_module *module;
    gk_status status;
} compiler;

static void *compile_one(void *arg)
{
    compiler *self = arg;
    gki_compiled compiled;
    self->status = emu_compile(emu_device, self->body, &compiled);
    if (self->status == GK_OK) {
        self->status = emu_device->driver->module_load(emu_device, compiled.code, compiled.size,
                                                       "test_kernel", &self->module);
    }
    gki_free(compiled.code);
    gki_free(compiled.log);
    return NULL;
}

/* Modules of the same name are loaded at once, and each has its own code. */
static void test_parallel_compiles(void **state)
{
    (void)state;
    compiler compilers[COMPILERS] = {0};
    for (int i = 0; i < COMPILERS; i++) {
        snprintf(compilers[i].body, sizeof compilers[i].body,
                 ARGS_TEXT "GK_KERNEL(32, 1, args, a)\n{\n    a.out[blockIdx.x] = %d;\n}\n",
                 i + 100);
        assert_int_equal(pthread_create(&compilers[i].thread, NULL, compile_one, &compilers[i]), 0);
    }
    for (int i = 0; i < COMPILERS; i++) {
        assert_int_equal(pthread_join(compilers[i].thread, NULL), 0);
        assert_int_equal(compilers[i].status, GK_OK);
    }
    for (int i = 0; i < COMPILERS; i++) {
        uint32_t out[3] = {7, 7, 7};
        const args a = {out, 0};
        assert_gk_ok(emu_launch(emu_device, compilers[i].module, 2, 1, 0, &a, sizeof a));
        assert_int_equal(out[0], 100 + i);
        assert_int_equal(out[1], 100 + i);
        assert_int_equal(out[2], 7);
    }
    for (int i = 0; i < COMPILERS; i++) {
        emu_device->driver->module_unload(emu_device, compilers[i].module);
    }
}

/* `time` runs every launch `repeats` times. */
static void test_time(void **state)
{
    (void)state;
    gki_module *module = emu_load(
        emu_device, ARGS_TEXT "GK_KERNEL(32, 1, args, a)\n{\n    atomicAdd(a.out, a.what);\n}\n");
    uint32_t out[2] = {0, 0};
    const args first = {&out[0], 1};
    const args second = {&out[1], 2};
    const gki_kernel_launch launches[2] = {
        {.module = module, .grid = 3, .threads = 4, .args = &first, .args_size = sizeof first},
        {.module = module, .grid = 1, .threads = 1, .args = &second, .args_size = sizeof second},
    };
    double seconds = -1;
    assert_gk_ok(emu_device->driver->time(emu_device, launches, 2, 5, true, &seconds));
    assert_true(seconds > 0 && seconds < 1);
    assert_int_equal(out[0], 60);
    assert_int_equal(out[1], 10);
    emu_device->driver->module_unload(emu_device, module);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        EMU_TEST(test_info),
        EMU_TEST(test_memory),
        EMU_TEST(test_compile_error),
        EMU_TEST(test_missing_compiler),
        EMU_TEST(test_broken_compiler),
        EMU_TEST(test_no_temporary_files),
        EMU_TEST(test_load),
        EMU_TEST(test_parallel_compiles),
        EMU_TEST(test_time),
    };
    return GK_TEST_MAIN(tests);
}
