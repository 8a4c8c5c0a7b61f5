/* Opening a CUDA device: drivers that are missing, stubs or too old, and what a device is. */
#define _GNU_SOURCE
#include "cuda_case.h"

#include <sys/stat.h>

static void run_open(void *data)
{
    outcome *o = data;
    prepare(o);
    gki_device *device = open_device(o);
    if (device != NULL) {
        device->driver->info(device, &o->info);
        o->values[0] = fake_state()->retained;
        device->driver->close(device);
        o->values[1] = fake_state()->retained;
    } else if (strstr(o->message, "no driver") == NULL) {
        o->values[0] = fake_state()->retained;
    }
}

static void test_info(void **state)
{
    (void)state;
    outcome o = run(run_open, "name=NVIDIA H100 80GB HBM3|cc=90|sms=132|version=13010");
    assert_int_equal(o.status, GK_OK);
    assert_string_equal(o.info.name, "NVIDIA H100 80GB HBM3");
    assert_int_equal(o.info.cc, 90);
    assert_int_equal(o.info.sm_count, 132);
    assert_int_equal(o.info.max_threads_per_block, 1024);
    assert_int_equal(o.info.max_threads_per_sm, 2048);
    assert_int_equal(o.info.regs_per_sm, 65536);
    assert_int_equal(o.info.memory_bus_bits, 5120);
    assert_int_equal(o.info.clock_khz, 0); /* not reported */
    assert_int_equal(o.info.driver_version, 13010);
    assert_int_equal(o.info.smem_per_block, 49152);
    assert_int_equal(o.info.smem_per_block_optin, 232448);
    assert_int_equal(o.info.smem_per_sm, 233472);
    assert_int_equal(o.info.l2_bytes, 52428800);
    assert_int_equal(o.info.memory_bytes, 85899345920);
    assert_int_equal(o.info.is_emulated, 0);
    assert_string_equal(o.info.arch, "sm_90a");
    assert_string_equal(o.info.compiler, "nvrtc 13.0");
    assert_string_equal(o.log, "");
    assert_int_equal(o.values[0], 1);
    assert_int_equal(o.values[1], 0);
}

static void test_device_table(void **state)
{
    (void)state;
    outcome o = run(run_open, "name=NVIDIA H100 80GB HBM3|sms=16|optin=101376");
    assert_int_equal(o.info.sm_count, 16);
    assert_int_equal(o.info.smem_per_block_optin, 101376);
    o = run(run_open, "name=NVIDIA H100 80GB HBM3|cc=80");
    assert_string_equal(o.info.arch, "sm_80");
    o = run(run_open, "name=odd 'name' |cc=86|optin=0");
    assert_string_equal(o.info.name, "odd 'name' ");
    assert_int_equal(o.info.smem_per_block_optin, 49152);
    char script[300] = "name=";
    memset(script + 5, 'x', 255);
    o = run(run_open, script);
    assert_int_equal(strlen(o.info.name), 255);
    given.ordinal = 1;
    o = run(run_open, "count=2");
    assert_int_equal(o.status, GK_OK);
    assert_int_equal(o.info.ordinal, 1);
}

static void test_ordinal(void **state)
{
    (void)state;
    given.ordinal = 3;
    outcome o = run(run_open, "count=2");
    assert_int_equal(o.status, GK_ERR_INVALID);
    assert_non_null(strstr(o.message, "cuda:3"));
    assert_non_null(strstr(o.message, "there are 2 CUDA devices"));
    given.ordinal = -1;
    o = run(run_open, "");
    assert_int_equal(o.status, GK_ERR_INVALID);
    assert_non_null(strstr(o.message, "there is 1 CUDA device"));
}

static void test_no_device(void **state)
{
    (void)state;
    outcome o = run(run_open, "init=100");
    assert_int_equal(o.status, GK_ERR_NO_DRIVER);
    assert_int_equal(o.driver_code, 100);
    assert_non_null(strstr(o.message, "CUDA_ERROR_NO_DEVICE"));
    o = run(run_open, "count=0");
    assert_int_equal(o.status, GK_ERR_NO_DRIVER);
    assert_non_null(strstr(o.message, "0 devices"));
    o = run(run_open, "cc=50");
    assert_int_equal(o.status, GK_ERR_NO_COMPILER);
    assert_non_null(strstr(o.message, "5.0"));
    assert_non_null(strstr(o.message, "NVRTC 13.0"));
    assert_int_equal(o.values[0], 0);
}

static void test_no_driver(void **state)
{
    (void)state;
    (void)snprintf(given.driver, sizeof(given.driver), "/nonexistent/libcuda.so.1");
    outcome o = run(run_open, "");
    assert_int_equal(o.status, GK_ERR_NO_DRIVER);
    assert_non_null(strstr(o.message, "no driver: /nonexistent/libcuda.so.1"));
    /* A library, but not libcuda. */
    (void)snprintf(given.driver, sizeof(given.driver), "%s", GK_TEST_FAKE_NVRTC);
    o = run(run_open, "");
    assert_int_equal(o.status, GK_ERR_NO_DRIVER);
    assert_non_null(strstr(o.message, "has no function cuInit"));
    o = run(run_open, "version=11040");
    assert_int_equal(o.status, GK_ERR_NO_DRIVER);
    assert_non_null(strstr(o.message, "no driver"));
    assert_non_null(strstr(o.message, "supports CUDA 11.4, but 12.0 or later is needed"));
}

static void run_default(void *data)
{
    outcome *o = data;
    *o = given;
    setenv("GK_NVRTC", GK_TEST_FAKE_NVRTC, 1);
    (void)open_device(o);
}

static void test_default_name(void **state)
{
    (void)state;
    void *handle = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (handle != NULL) {
        (void)dlclose(handle);
        gk_test_skip("there is a libcuda.so.1");
        return;
    }
    outcome o = run(run_default, "");
    assert_int_equal(o.status, GK_ERR_NO_DRIVER);
    assert_non_null(strstr(o.message, "no driver: libcuda.so.1: "));
}

static void test_stub(void **state)
{
    (void)state;
    outcome o = run(run_open, "init=34");
    assert_int_equal(o.status, GK_ERR_NO_DRIVER);
    assert_int_equal(o.driver_code, 34);
    assert_non_null(strstr(o.message, "stub"));
    /* A stub known by its directory alone. */
    assert_int_equal(mkdir(gk_test_path("stubs"), 0700), 0);
    assert_int_equal(symlink(GK_TEST_FAKE_CUDA, gk_test_path("stubs/libcuda.so")), 0);
    (void)snprintf(given.driver, sizeof(given.driver), "%s", gk_test_path("stubs/libcuda.so"));
    o = run(run_open, "");
    assert_int_equal(o.status, GK_ERR_NO_DRIVER);
    assert_non_null(strstr(o.message, "stub"));
    assert_non_null(strstr(o.message, "/stubs/libcuda.so"));
}

static void test_real_stub(void **state)
{
    (void)state;
    const char *file = "/usr/local/cuda/lib64/stubs/libcuda.so";
    if (access(file, R_OK) != 0) {
        gk_test_skip("no toolkit stub");
        return;
    }
    size_t size = 0;
    char *bytes = gk_test_read(file, &size);
    /* Outside its directory only what it answers gives it away. */
    gk_test_write(gk_test_path("libcuda.so.1"), bytes, size);
    free(bytes);
    (void)snprintf(given.driver, sizeof(given.driver), "%s", gk_test_path("libcuda.so.1"));
    outcome o = run(run_open, "");
    assert_int_equal(o.status, GK_ERR_NO_DRIVER);
    assert_int_equal(o.driver_code, 34);
    assert_non_null(strstr(o.message, "stub"));
}

static void test_versions_apart(void **state)
{
    (void)state;
    outcome o = run(run_open, "version=12040");
    assert_int_equal(o.status, GK_OK);
    assert_non_null(strstr(o.log, "NVRTC 13.0"));
    assert_non_null(strstr(o.log, "CUDA 12.4"));
    o = run(run_open, "cc=95");
    assert_int_equal(o.status, GK_OK);
    assert_string_equal(o.info.arch, "compute_90");
    assert_non_null(strstr(o.log, "does not know compute capability 9.5"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_info),           cmocka_unit_test(test_device_table),
        cmocka_unit_test(test_ordinal),        cmocka_unit_test(test_no_device),
        cmocka_unit_test(test_no_driver),      cmocka_unit_test(test_default_name),
        cmocka_unit_test(test_stub),           cmocka_unit_test(test_real_stub),
        cmocka_unit_test(test_versions_apart),
    };
    return GK_TEST_MAIN(tests);
}
