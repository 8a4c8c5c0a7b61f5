/* NVRTC: which target is chosen, what its log says, and what a broken one is reported as. */
#define _GNU_SOURCE
#include "in_child.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/alloc.h"
#include "driver/cuda/nvrtc.h"

/* --- the log --- */

static void test_log(void **state)
{
    (void)state;
    gki_compiled c;
    gki_nvrtc_read_log("ptxas info    : 0 bytes gmem\n"
                       "ptxas info    : Compiling entry function 'k' for 'sm_90a'\n"
                       "ptxas         .     256 bytes stack frame, 12 bytes spill stores, 20 bytes "
                       "spill loads\n"
                       "ptxas info    : Used 132 registers, used 1 barriers, 400 bytes cmem[0]\n",
                       &c);
    assert_int_equal(c.registers, 132);
    assert_int_equal(c.spill_bytes, 32);
    assert_int_equal(c.stack_bytes, 256);
    assert_false(c.serialized);

    gki_nvrtc_read_log("    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\n"
                       "ptxas info    : Used 4 registers\n"
                       "    8 bytes stack frame, 4 bytes spill stores, 0 bytes spill loads\n"
                       "ptxas info    : Used 3 registers",
                       &c);
    assert_int_equal(c.registers, 4);
    assert_int_equal(c.spill_bytes, 4);
    assert_int_equal(c.stack_bytes, 8);

    gki_nvrtc_read_log("ptxas info : (C7511) Potential Performance Loss: wgmma.mma_async "
                       "instructions are serialized due to insufficient register resources\n",
                       &c);
    assert_true(c.serialized);
    assert_int_equal(c.registers, -1);
    assert_int_equal(c.spill_bytes, -1);

    gki_nvrtc_read_log("", &c);
    assert_int_equal(c.registers, -1);
    assert_int_equal(c.spill_bytes, -1);
    assert_int_equal(c.stack_bytes, 0);
}

static void test_first_error(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"kernel.cu(1): warning #177-D: variable \"error\" was declared\n  int error;\n\n"
         "kernel.cu(2): error: identifier \"y\" is undefined\nkernel.cu(3): error: more\n",
         "kernel.cu(2): error: identifier \"y\" is undefined"},
        {"ptxas application ptx input, line 21; error   : Instruction 'wgmma.fence' not supported\n"
         "ptxas fatal   : Ptx assembly aborted due to errors\n",
         "ptxas application ptx input, line 21; error   : Instruction 'wgmma.fence' not supported"},
        {"note\nptxas fatal   : Ptx assembly aborted\n", "ptxas fatal   : Ptx assembly aborted"},
        {"no error here\nnor there\n", "no error here"},
        {"", ""},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char line[200];
        memset(line, 'x', sizeof(line));
        gki_nvrtc_first_error(cases[i][0], line, sizeof(line));
        assert_string_equal(line, cases[i][1]);
    }
}

/* --- scripted NVRTCs, one process each --- */

typedef struct outcome {
    char script[256]; /* FAKE_NVRTC */
    int32_t cc;
    gk_status target_status;
    gk_status compile_status;
    int32_t driver_code;
    char arch[16];
    char code[256];
    char log[256];
    char message[972];
    int32_t registers;
} outcome;

static outcome *running; /* scripts are handed over by fork */

static void run_fake(void *data)
{
    outcome *o = data;
    *o = *running;
    if (o->script[0] != '\0') {
        setenv("GK_NVRTC", GK_TEST_FAKE_NVRTC, 1);
        setenv("FAKE_NVRTC", o->script, 1);
    }
    o->target_status = gki_nvrtc_target(o->cc, o->arch, sizeof(o->arch));
    if (o->target_status == GK_OK) {
        gki_compiled c;
        o->compile_status = gki_nvrtc_compile(o->arch, "source", &c);
        o->registers = c.registers;
        if (c.code != NULL && c.size <= sizeof(o->code)) {
            memcpy(o->code, c.code, c.size);
        }
        if (c.log != NULL) {
            (void)snprintf(o->log, sizeof(o->log), "%s", c.log);
        }
        if (o->compile_status != GK_OK && c.code != NULL) {
            abort();
        }
    }
    o->driver_code = gk_error_last()->driver_code;
    memcpy(o->message, gk_error_last()->message, sizeof(o->message));
}

static outcome fake(int32_t cc, const char *script)
{
    outcome o = {.cc = cc};
    (void)snprintf(o.script, sizeof(o.script), "%s", script);
    running = &o;
    outcome result;
    in_child(run_fake, &result, sizeof(result));
    running = NULL;
    return result;
}

static void expect_code(int32_t cc, const char *script, const char *arch, const char *code)
{
    outcome o = fake(cc, script);
    if (o.target_status != GK_OK || o.compile_status != GK_OK) {
        fail_msg("cc %d, '%s': %s", (int)cc, script, o.message);
    }
    assert_string_equal(o.arch, arch);
    assert_string_equal(o.code, code);
}

static void test_targets(void **state)
{
    (void)state;
    const char *all = "version=13.0|archs=75,80,86,87,88,89,90,100,103,110,120,121";
    expect_code(90, all, "sm_90a",
                "--gpu-architecture=sm_90a --std=c++17 --ptxas-options=-v --no-cache");
    expect_code(80, all, "sm_80",
                "--gpu-architecture=sm_80 --std=c++17 --ptxas-options=-v --no-cache");
    assert_string_equal(fake(86, all).arch, "sm_86");
    assert_string_equal(fake(89, all).arch, "sm_89");
    assert_string_equal(fake(100, all).arch, "sm_100a");
    assert_string_equal(fake(103, all).arch, "sm_103a");
    assert_string_equal(fake(120, all).arch, "sm_120a");
    assert_string_equal(fake(121, all).arch, "sm_121");
    /* --no-cache came with 12.9. */
    expect_code(90, "version=12.8|archs=90", "sm_90a",
                "--gpu-architecture=sm_90a --std=c++17 --ptxas-options=-v");
    expect_code(90, "version=12.9|archs=90", "sm_90a",
                "--gpu-architecture=sm_90a --std=c++17 --ptxas-options=-v --no-cache");
}

static void test_unknown_device(void **state)
{
    (void)state;
    /* The newest architecture below the device's, in whatever order they are listed. */
    expect_code(100, "version=12.4|archs=90,50,89,80", "compute_90",
                "--gpu-architecture=compute_90 --std=c++17");
    outcome o = fake(70, "version=13.0|archs=80,75,90");
    assert_int_equal(o.target_status, GK_ERR_NO_COMPILER);
    assert_non_null(strstr(o.message, "NVRTC 13.0"));
    assert_non_null(strstr(o.message, "compute capability 7.5 and later, the device has 7.0"));
}

static void test_too_old(void **state)
{
    (void)state;
    outcome o = fake(89, "version=11.2|archs=35,80,86");
    assert_int_equal(o.target_status, GK_ERR_NO_COMPILER);
    assert_non_null(strstr(o.message, "NVRTC 11.2"));
    assert_non_null(strstr(o.message, "12.0 or later"));
    o = fake(89, "version=13.0|archs=");
    assert_int_equal(o.target_status, GK_ERR_NO_COMPILER);
    assert_non_null(strstr(o.message, "does not list its architectures"));
}

static void test_broken_compiler(void **state)
{
    (void)state;
    outcome o = fake(90, "version=12.4|archs=90|result=7|log=nvrtc: error: failed to open "
                         "libnvrtc-builtins.so.12.4");
    assert_int_equal(o.compile_status, GK_ERR_NO_COMPILER);
    assert_int_equal(o.driver_code, 7);
    assert_non_null(strstr(o.message, "NVRTC 12.4"));
    assert_non_null(strstr(o.message, "failed to open libnvrtc-builtins.so.12.4"));
    assert_non_null(strstr(o.log, "libnvrtc-builtins"));
    /* The same trouble under the code for bad sources. */
    o = fake(90, "version=12.4|archs=90|result=6|log=nvrtc: error: failed to load builtins for "
                 "compute_90. libnvrtc-builtins.so.12.4 is missing");
    assert_int_equal(o.compile_status, GK_ERR_NO_COMPILER);
    o = fake(90, "version=12.4|archs=90|result=5|log=nvrtc: error: invalid value for "
                 "--gpu-architecture (-arch)");
    assert_int_equal(o.compile_status, GK_ERR_NO_COMPILER);
    assert_non_null(strstr(o.message, "sm_90a"));
    assert_non_null(strstr(o.message, "invalid value for --gpu-architecture"));
    o = fake(90, "version=12.4|archs=90|result=1|log=");
    assert_int_equal(o.compile_status, GK_ERR_NOMEM);
}

static void test_broken_source(void **state)
{
    (void)state;
    outcome o = fake(90, "version=12.4|archs=90|result=6|log=remark\nkernel.cu(3): error: no such "
                         "name\nmore");
    assert_int_equal(o.compile_status, GK_ERR_COMPILE);
    assert_int_equal(o.driver_code, 6);
    assert_non_null(strstr(o.message, "kernel.cu(3): error: no such name"));
    assert_string_equal(o.log, "remark\nkernel.cu(3): error: no such name\nmore");
    assert_string_equal(o.code, "");
}

static void run_missing(void *data)
{
    outcome *o = data;
    setenv("GK_NVRTC", "/nonexistent/libnvrtc.so", 1);
    gki_compiled c;
    o->compile_status = gki_nvrtc_compile("sm_90a", "source", &c);
    memcpy(o->message, gk_error_last()->message, sizeof(o->message));
    /* The answer is the same the second time. */
    o->target_status = gki_nvrtc_target(90, o->arch, sizeof(o->arch));
}

static void test_missing(void **state)
{
    (void)state;
    outcome o;
    in_child(run_missing, &o, sizeof(o));
    assert_int_equal(o.compile_status, GK_ERR_NO_COMPILER);
    assert_int_equal(o.target_status, GK_ERR_NO_COMPILER);
    assert_non_null(strstr(o.message, "/nonexistent/libnvrtc.so"));
    assert_non_null(strstr(o.message, "GK_NVRTC"));
}

static void run_directory(void *data)
{
    outcome *o = data;
    setenv("GK_NVRTC", gk_test_path("lib"), 1);
    setenv("FAKE_NVRTC", "version=12.3|archs=90", 1);
    const gki_nvrtc_api *api;
    o->target_status = gki_nvrtc_api_get(&api);
    if (o->target_status == GK_OK) {
        o->cc = api->major * 10 + api->minor;
        (void)snprintf(o->log, sizeof(o->log), "%s", api->path);
    }
    memcpy(o->message, gk_error_last()->message, sizeof(o->message));
}

static void test_directory(void **state)
{
    (void)state;
    outcome o;
    assert_int_equal(mkdir(gk_test_path("lib"), 0700), 0);
    in_child(run_directory, &o, sizeof(o));
    assert_int_equal(o.target_status, GK_ERR_NO_COMPILER);
    assert_non_null(strstr(o.message, "no libnvrtc.so.13 or libnvrtc.so.12"));
    assert_int_equal(symlink(GK_TEST_FAKE_NVRTC, gk_test_path("lib/libnvrtc.so.12")), 0);
    in_child(run_directory, &o, sizeof(o));
    assert_int_equal(o.target_status, GK_OK);
    assert_int_equal(o.cc, 123);
    assert_string_equal(o.log, gk_test_path("lib/libnvrtc.so.12"));
}

/* --- the NVRTC that is installed --- */

static void run_real(void *data)
{
    outcome *o = data;
    const gki_nvrtc_api *api;
    o->target_status = gki_nvrtc_api_get(&api);
    if (o->target_status != GK_OK) {
        return;
    }
    gki_compiled c;
    o->compile_status = gki_nvrtc_compile(
        "sm_80", "extern \"C\" __global__ void k(float *a) { a[threadIdx.x] += 1.f; }", &c);
    o->registers = c.registers;
    if (o->compile_status == GK_OK) {
        (void)snprintf(o->code, sizeof(o->code), "%.3s", (const char *)c.code + 1);
        o->cc = c.spill_bytes * 1000 + c.stack_bytes;
        o->driver_code = c.seconds > 0 && c.seconds < 60;
    }
    gki_free(c.code);
    gki_free(c.log);
    if (gki_nvrtc_compile("sm_80", "#include <cuda_fp16.h>\n", &c) != GK_ERR_COMPILE) {
        abort();
    }
    gki_free(c.log);
    if (gki_nvrtc_compile("sm_11", "", &c) != GK_ERR_NO_COMPILER) {
        abort();
    }
    gki_free(c.log);
    memcpy(o->message, gk_error_last()->message, sizeof(o->message));
}

static void test_real(void **state)
{
    (void)state;
    outcome o;
    in_child(run_real, &o, sizeof(o));
    if (o.target_status != GK_OK) {
        gk_test_skip("no NVRTC");
        return;
    }
    assert_int_equal(o.compile_status, GK_OK);
    assert_string_equal(o.code, "ELF");
    assert_in_range(o.registers, 1, 32);
    assert_int_equal(o.cc, 0);
    assert_int_equal(o.driver_code, 1);
    assert_non_null(strstr(o.message, "sm_11"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_log),           cmocka_unit_test(test_first_error),
        cmocka_unit_test(test_targets),       cmocka_unit_test(test_unknown_device),
        cmocka_unit_test(test_too_old),       cmocka_unit_test(test_broken_compiler),
        cmocka_unit_test(test_broken_source), cmocka_unit_test(test_missing),
        cmocka_unit_test(test_directory),     cmocka_unit_test(test_real),
    };
    return GK_TEST_MAIN(tests);
}
