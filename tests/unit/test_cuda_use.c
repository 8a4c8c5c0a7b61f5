/* An open CUDA device: contexts, captures, modules and failures. */
#define _GNU_SOURCE
#include "cuda_case.h"

#include <pthread.h>

#include "driver/cuda/cuda_abi.h"

/* --- contexts --- */

static gki_cu_context current_context(void)
{
    void *handle = dlopen(GK_TEST_FAKE_CUDA, RTLD_NOW);
    gki_cu_result (*get)(gki_cu_context *);
    void *symbol = dlsym(handle, "cuCtxGetCurrent");
    memcpy(&get, &symbol, sizeof(get));
    gki_cu_context context = NULL;
    get(&context);
    return context;
}

static void push_context(gki_cu_context context)
{
    void *handle = dlopen(GK_TEST_FAKE_CUDA, RTLD_NOW);
    gki_cu_result (*push)(gki_cu_context);
    void *symbol = dlsym(handle, "cuCtxPushCurrent_v2");
    memcpy(&push, &symbol, sizeof(push));
    push(context);
}

/* Uses every slot once; counts failures in statuses[0..] by line order. */
static int use_all(gki_device *device)
{
    const gki_driver *driver = device->driver;
    int failed = 0;
    void *a = NULL;
    void *stream = NULL;
    bool capturing = true;
    gki_module *module = NULL;
    gki_compiled code;
    char in[64] = "in";
    char out[64] = "";
    int32_t arg = 42;
    double seconds = 0;
    failed += driver->mem_alloc(device, 256, &a) != GK_OK;
    failed += driver->stream_create(device, &stream) != GK_OK;
    failed += driver->fill(device, a, 7, 256, stream) != GK_OK;
    failed += driver->copy_in(device, a, in, sizeof(in), stream) != GK_OK;
    failed += driver->copy_in_2d(device, a, in, 8, 2, 3, stream) != GK_OK;
    failed +=
        driver->copy_out(device, out, a, 6, stream) != GK_OK || memcmp(out, "in\0\0\0\0", 6) != 0;
    failed += driver->copy_dev(device, (char *)a + 128, a, 64, stream) != GK_OK;
    failed += driver->copy_out(device, out, (char *)a + 128, sizeof(out), stream) != GK_OK;
    failed += strcmp(out, "in") != 0;
    failed += driver->copy_out(device, out, (char *)a + 64, sizeof(out), stream) != GK_OK;
    failed += out[0] != 7 || out[63] != 7;
    failed += driver->is_capturing(device, stream, &capturing) != GK_OK || capturing;
    failed += driver->compile(device, "source", &code) != GK_OK;
    failed += driver->module_load(device, code.code, code.size, "k", &module) != GK_OK;
    failed += driver->module_reserve(device, module, 65536, 1) != GK_OK;
    gki_kernel_launch launch = {module, 5, 128, 1, 0, 0, 65536, &arg, sizeof(arg)};
    failed += driver->launch(device, &launch, stream) != GK_OK;
    failed += driver->time(device, &launch, 1, 2, false, &seconds) != GK_OK;
    failed += driver->time(device, &launch, 1, 2, true, &seconds) != GK_OK;
    driver->time_done(device);
    failed += driver->synchronize(device, stream) != GK_OK;
    driver->module_unload(device, module);
    driver->stream_destroy(device, stream);
    failed += driver->mem_free(device, a) != GK_OK;
    return failed;
}

typedef struct worker {
    gki_device *device;
    gki_cu_context context; /* current before; NULL = none */
    int failed;
    bool kept;
} worker;

static void *work(void *user)
{
    worker *w = user;
    if (w->context != NULL) {
        push_context(w->context);
    }
    w->failed = use_all(w->device);
    w->kept = current_context() == w->context;
    return NULL;
}

static void run_contexts(void *data)
{
    outcome *o = data;
    prepare(o);
    gki_device *device = open_device(o);
    fake_cuda *fake = fake_state();
    static int elsewhere;
    worker workers[3] = {{device, NULL, -1, false},
                         {device, (gki_cu_context)(void *)&elsewhere, -1, false},
                         {device, NULL, -1, false}};
    for (int i = 0; i < 2; i++) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, work, &workers[i]) != 0) {
            abort();
        }
        (void)pthread_join(thread, NULL);
        o->values[i * 2] = workers[i].failed;
        o->values[i * 2 + 1] = workers[i].kept;
    }
    o->values[4] = fake->pushes - fake->pops;
    o->values[5] = fake->live_allocs + fake->live_graphs + fake->live_execs;
    o->values[11] = fake->live_modules;
    /* With the device's own context current nothing is pushed. */
    void *p = NULL;
    (void)device->driver->mem_alloc(device, 1, &p);
    void *handle = dlopen(GK_TEST_FAKE_CUDA, RTLD_NOW);
    gki_cu_result (*retain)(gki_cu_context *, gki_cu_device);
    void *symbol = dlsym(handle, "cuDevicePrimaryCtxRetain");
    memcpy(&retain, &symbol, sizeof(retain));
    gki_cu_context own = NULL;
    retain(&own, 0);
    push_context(own);
    int pushes = fake->pushes;
    o->values[6] = use_all(device);
    o->values[7] = fake->pushes - pushes;
    o->values[8] = current_context() == own;
    (void)device->driver->mem_free(device, p);
    device->driver->close(device);
    o->values[9] = fake->live_streams + fake->live_events + fake->live_allocs + fake->live_modules;
    o->values[10] = fake->retained;
}

static void test_contexts(void **state)
{
    (void)state;
    outcome o = run(run_contexts, "");
    assert_int_equal(o.status, GK_OK);
    assert_int_equal(o.values[0], 0); /* no context before */
    assert_int_equal(o.values[1], 1);
    assert_int_equal(o.values[2], 0); /* another's */
    assert_int_equal(o.values[3], 1);
    assert_int_equal(o.values[4], 1); /* the worker's own push */
    assert_int_equal(o.values[5], 0);
    assert_int_equal(o.values[6], 0);
    assert_int_equal(o.values[7], 0);
    assert_int_equal(o.values[8], 1);
    assert_int_equal(o.values[9], 0);
    assert_int_equal(o.values[10], 1); /* the test's own retain */
    assert_int_equal(o.values[11], 1); /* the kernel that evicts L2 */
}

/* --- captures --- */

static void run_capture(void *data)
{
    outcome *o = data;
    prepare(o);
    gki_device *device = open_device(o);
    fake_cuda *fake = fake_state();
    void *stream = NULL;
    bool capturing = false;
    o->statuses[0] = device->driver->stream_create(device, &stream);
    fake->capturing = stream;
    o->statuses[1] = device->driver->is_capturing(device, stream, &capturing);
    o->values[0] = capturing;
    o->statuses[2] = device->driver->is_capturing(device, NULL, &capturing);
    o->values[1] = capturing;
    /* Another thread may do everything meanwhile. */
    o->values[2] = use_all(device);
    o->values[3] = fake->forbidden;
    fake->capture_blocks_default = 1;
    o->statuses[3] = device->driver->is_capturing(device, NULL, &capturing);
    o->values[4] = capturing;
    o->values[5] = use_all(device);
    o->values[6] = fake->forbidden;
    fake->capturing = NULL;
    o->statuses[4] = device->driver->is_capturing(device, stream, &capturing);
    o->values[7] = capturing;
    device->driver->close(device);
}

static void test_capture(void **state)
{
    (void)state;
    outcome o = run(run_capture, "");
    static const int64_t right[] = {1, 0, 0, 0, 1, 0, 0, 0};
    for (size_t i = 0; i < sizeof(right) / sizeof(right[0]); i++) {
        assert_int_equal(o.values[i], right[i]);
    }
    for (int i = 0; i < 5; i++) {
        assert_int_equal(o.statuses[i], GK_OK);
    }
}

/* --- modules and launches --- */

static void run_reserve(void *data)
{
    outcome *o = data;
    prepare(o);
    gki_device *device = open_device(o);
    const gki_driver *driver = device->driver;
    fake_cuda *fake = fake_state();
    fake->static_smem = 512;
    gki_module *module = NULL;
    o->statuses[0] = driver->module_load(device, "code", 5, "k", &module);
    o->values[0] = module->registers * 1000000 + module->local_bytes * 1000 + module->max_threads;
    o->values[1] = module->static_smem;
    o->statuses[1] = driver->module_reserve(device, module, 1024, 1);
    o->values[2] = fake->max_dynamic;
    /* Exactly 48 KiB is above this function's own limit. */
    o->statuses[2] = driver->module_reserve(device, module, 49152, 1);
    o->values[3] = fake->max_dynamic;
    int32_t arg = 42;
    gki_kernel_launch launch = {module, 7, 128, 1, 0, 0, 49152, &arg, sizeof(arg)};
    o->statuses[3] = driver->launch(device, &launch, NULL);
    o->statuses[4] = driver->module_reserve(device, module, 100864, 1);
    o->values[4] = fake->max_dynamic;
    o->statuses[5] = driver->module_reserve(device, module, 49156, 1);
    o->values[5] = fake->max_dynamic; /* not lowered */
    o->statuses[6] = driver->module_reserve(device, module, 100868, 1);
    keep_message(o, 0);
    o->statuses[7] = driver->module_reserve(device, module, 0, 8);
    o->values[6] = fake->non_portable;
    o->statuses[8] = driver->module_reserve(device, module, 0, 16);
    o->values[7] = fake->non_portable;
    launch.cluster = 16;
    launch.grid = 32;
    launch.smem = 0;
    arg = 43;
    o->statuses[9] = driver->launch(device, &launch, &arg);
    o->values[8] = fake->n_launches;
    o->values[9] = fake->launches[0].grid * 1000 + fake->launches[0].threads;
    o->values[10] = fake->launches[0].smem * 1000L + fake->launches[0].arg;
    o->values[11] = fake->launches[1].cluster * 1000 + fake->launches[1].grid;
    o->values[12] = fake->launches[1].arg;
    o->values[13] = fake->launches[1].stream == &arg;
    driver->module_unload(device, module);
    device->driver->close(device);
}

static void test_reserve(void **state)
{
    (void)state;
    outcome o = run(run_reserve, "optin=101376");
    for (int i = 0; i < 10; i++) {
        assert_int_equal(o.statuses[i], i == 6 ? GK_ERR_DEVICE : GK_OK);
    }
    assert_int_equal(o.values[0], 40016256);
    assert_int_equal(o.values[1], 512);
    assert_int_equal(o.values[2], 48640);
    assert_int_equal(o.values[3], 49152);
    assert_int_equal(o.values[4], 100864);
    assert_int_equal(o.values[5], 100864);
    assert_non_null(strstr(o.messages[0], "101380"));
    assert_non_null(strstr(o.messages[0], "101376"));
    assert_int_equal(o.values[6], 0);
    assert_int_equal(o.values[7], 1);
    assert_int_equal(o.values[8], 2);
    assert_int_equal(o.values[9], 7128);
    assert_int_equal(o.values[10], 49152042);
    assert_int_equal(o.values[11], 16032);
    assert_int_equal(o.values[12], 43);
    assert_int_equal(o.values[13], 1);
}

static void run_failures(void *data)
{
    outcome *o = data;
    prepare(o);
    gki_device *device = open_device(o);
    const gki_driver *driver = device->driver;
    fake_cuda *fake = fake_state();
    gki_module *module = NULL;
    void *p = &p;
    fake->fail_alloc = 2;
    o->statuses[0] = driver->mem_alloc(device, 123456, &p);
    o->values[0] = p == NULL;
    keep_message(o, 0);
    fake->fail_load = 209;
    o->statuses[1] = driver->module_load(device, "code", 5, "my_kernel", &module);
    o->values[1] = module == NULL;
    keep_message(o, 1);
    fake->fail_load = 0;
    o->statuses[2] = driver->module_load(device, "code", 5, "absent", &module);
    o->values[2] = fake->live_modules;
    o->statuses[3] = driver->module_load(device, "", 0, "k", &module);
    if (driver->module_load(device, "code", 5, "k", &module) != GK_OK) {
        abort();
    }
    int32_t arg = 0;
    gki_kernel_launch launch = {module, 7, 512, 1, 0, 0, 0, &arg, sizeof(arg)};
    fake->fail_launch = 701;
    o->statuses[4] = driver->launch(device, &launch, NULL);
    keep_message(o, 2);
    double seconds = 1;
    o->statuses[5] = driver->time(device, &launch, 1, 10, false, &seconds);
    o->statuses[6] = driver->time(device, &launch, 1, 10, true, &seconds);
    o->values[3] = fake->live_graphs + fake->live_execs;
    fake->fail_launch = 700;
    o->statuses[7] = driver->launch(device, &launch, NULL);
    fake->fail_launch = 0;
    fake->fail_sync = 700;
    o->statuses[8] = driver->synchronize(device, NULL);
    keep_message(o, 3);
    o->values[4] = gk_error_last()->driver_code;
    o->statuses[9] = driver->time(device, &launch, 1, 10, true, &seconds);
    fake->fail_sync = 719;
    o->statuses[10] = driver->copy_out(device, &arg, &arg, 4, NULL);
    fake->fail_sync = 0;
    o->statuses[11] = driver->module_reserve(device, module, 0, 2);
    o->values[5] = fake->pushes - fake->pops;
    driver->module_unload(device, module);
    device->driver->close(device);
}

static void test_failures(void **state)
{
    (void)state;
    outcome o = run(run_failures, "cc=80");
    static const gk_status right[] = {GK_ERR_NOMEM,  GK_ERR_DEVICE, GK_ERR_DEVICE, GK_ERR_DEVICE,
                                      GK_ERR_DEVICE, GK_ERR_DEVICE, GK_ERR_DEVICE, GK_ERR_LOST,
                                      GK_ERR_LOST,   GK_ERR_LOST,   GK_ERR_LOST,   GK_ERR_DEVICE};
    for (size_t i = 0; i < sizeof(right) / sizeof(right[0]); i++) {
        assert_int_equal(o.statuses[i], right[i]);
    }
    assert_int_equal(o.values[0], 1);
    assert_non_null(strstr(o.messages[0], "123456 bytes"));
    assert_non_null(strstr(o.messages[0], "1000 of 2000 are free"));
    assert_int_equal(o.values[1], 1);
    assert_non_null(strstr(o.messages[1], "my_kernel"));
    assert_non_null(strstr(o.messages[1], "sm_80"));
    assert_non_null(strstr(o.messages[1], "nvrtc 13.0"));
    assert_non_null(strstr(o.messages[1], "compute capability 8.0"));
    assert_non_null(strstr(o.messages[1], "CUDA_ERROR_NO_BINARY_FOR_GPU"));
    assert_int_equal(o.values[2], 0);
    assert_non_null(strstr(o.messages[2], "512 threads"));
    assert_non_null(strstr(o.messages[2], "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES"));
    assert_int_equal(o.values[3], 0);
    assert_non_null(strstr(o.messages[3], "CUDA_ERROR_ILLEGAL_ADDRESS"));
    assert_int_equal(o.values[4], 700);
    assert_int_equal(o.values[5], 0);
}

/* --- tensor maps, clusters and cooperative launches --- */

static void run_maps(void *data)
{
    outcome *o = data;
    prepare(o);
    gki_device *device = open_device(o);
    const gki_driver *driver = device->driver;
    fake_cuda *fake = fake_state();
    static const int32_t dtypes[] = {GK_F64, GK_F32, GK_F16, GK_BF16, GK_E4M3, GK_I32, GK_BOOL};
    static const uint32_t spans[] = {0, 32, 64, 128};
    gk_tensor_map map;
    void *memory = &map; /* stands for device memory */
    gk_map_desc desc = {.data = memory,
                        .dtype = GK_BF16,
                        .rank = 3,
                        .dims = {100, 200, INT64_C(1) << 32},
                        .strides = {-1, 208, 41600},
                        .box = {64, 256, 1},
                        .swizzle = 128,
                        .l2_promotion = 256};
    o->statuses[0] = driver->map_encode(device, &desc, &map);
    uint64_t words[16];
    memcpy(words, &map, sizeof(words));
    o->values[0] = words[0] == (uintptr_t)memory && words[15] == 1;
    const fake_map *last = &fake->map;
    o->values[1] = last->data == memory && last->type == 9 && last->rank == 3 &&
                   last->interleave == 0 && last->swizzle == 3 && last->l2_promotion == 3 &&
                   last->fill == 0;
    o->values[2] = last->dims[0] == 100 && last->dims[1] == 200 &&
                   last->dims[2] == UINT64_C(1) << 32 && last->strides[0] == 208 &&
                   last->strides[1] == 41600 && last->box[0] == 64 && last->box[1] == 256 &&
                   last->box[2] == 1 && last->element_strides[2] == 1;
    for (int i = 0; i < 7; i++) {
        desc.dtype = dtypes[i];
        desc.swizzle = spans[i % 4];
        desc.l2_promotion = spans[i % 4] * 2;
        o->statuses[1] |= driver->map_encode(device, &desc, &map);
        o->values[3] = o->values[3] * 10 + last->type;
        o->values[4] = o->values[4] * 10 + last->swizzle;
        o->values[5] = o->values[5] * 10 + last->l2_promotion;
    }
    fake->fail_map = 1;
    memset(&map, 7, sizeof(map));
    o->statuses[2] = driver->map_encode(device, &desc, &map);
    o->values[6] = map.bytes[0] == 7 && map.bytes[127] == 7;
    keep_message(o, 0);
    driver->close(device);
}

static void test_maps(void **state)
{
    (void)state;
    outcome o = run(run_maps, "");
    assert_int_equal(o.statuses[0], GK_OK);
    assert_int_equal(o.values[0], 1);
    assert_int_equal(o.values[1], 1);
    assert_int_equal(o.values[2], 1);
    assert_int_equal(o.statuses[1], GK_OK);
    assert_int_equal(o.values[3], 8769030);
    assert_int_equal(o.values[4], 123012);
    assert_int_equal(o.values[5], 123012);
    assert_int_equal(o.statuses[2], GK_ERR_DEVICE);
    assert_int_equal(o.values[6], 1);
    assert_non_null(strstr(o.messages[0], "bool"));
    assert_non_null(strstr(o.messages[0], "64 x 256"));
}

static void run_attributes(void *data)
{
    outcome *o = data;
    prepare(o);
    gki_device *device = open_device(o);
    const gki_driver *driver = device->driver;
    fake_cuda *fake = fake_state();
    gki_module *module = load_module(device);
    int32_t arg = 0;
    gki_kernel_launch launches[3] = {{module, 8, 128, 1, 1, 0, 0, &arg, sizeof(arg)},
                                     {module, 8, 128, 4, 1, 0, 0, &arg, sizeof(arg)},
                                     {module, 8, 128, 0, 0, 1, 0, &arg, sizeof(arg)}};
    double seconds = 0;
    for (int i = 0; i < 3; i++) {
        o->statuses[0] |= driver->launch(device, &launches[i], NULL);
        o->values[0] =
            o->values[0] * 100 + fake->launches[i].cluster * 10 + fake->launches[i].cooperative;
        o->values[7] = o->values[7] * 10 + fake->launches[i].overlap;
    }
    o->statuses[0] |= driver->time(device, launches, 3, 2, true, &seconds);
    for (int i = 0; i < 6; i++) {
        o->values[8] = o->values[8] * 10 + fake->nodes[i].overlap;
    }
    for (int i = 0; i < 3; i++) {
        o->values[1] =
            o->values[1] * 100 + fake->nodes[i].cluster * 10 + fake->nodes[i].cooperative;
    }
    int64_t blocks = -1;
    fake->resident = 3;
    launches[1].smem = 1000;
    o->statuses[1] = driver->resident(device, &launches[1], &blocks);
    o->values[2] = blocks;
    o->values[3] = fake->occupancy.cluster * 10 + fake->occupancy.cooperative;
    o->values[4] = fake->occupancy.threads * 10000 + fake->occupancy.smem;
    o->statuses[2] = driver->resident(device, &launches[0], &blocks);
    o->values[5] = blocks;
    fake->fail_occupancy = 1;
    o->statuses[3] = driver->resident(device, &launches[1], &blocks);
    o->values[6] = blocks;
    keep_message(o, 0);
    fake->fail_launch = 720;
    o->statuses[4] = driver->launch(device, &launches[0], NULL);
    keep_message(o, 1);
    driver->module_unload(device, module);
    driver->close(device);
}

static void test_attributes(void **state)
{
    (void)state;
    outcome o = run(run_attributes, "sms=10");
    assert_int_equal(o.statuses[0], GK_OK);
    assert_int_equal(o.values[0], 114110);
    assert_int_equal(o.values[1], 114110);
    assert_int_equal(o.values[7], 1);
    assert_int_equal(o.values[8], 1001);
    assert_int_equal(o.statuses[1], GK_OK);
    assert_int_equal(o.values[2], 12);
    assert_int_equal(o.values[3], 41);
    assert_int_equal(o.values[4], 1281000);
    assert_int_equal(o.statuses[2], GK_OK);
    assert_int_equal(o.values[5], 30);
    assert_int_equal(o.statuses[3], GK_ERR_DEVICE);
    assert_int_equal(o.values[6], 0);
    assert_non_null(strstr(o.messages[0], "clusters of 4"));
    assert_int_equal(o.statuses[4], GK_ERR_DEVICE);
    assert_non_null(strstr(o.messages[1], "128 threads at once"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_contexts), cmocka_unit_test(test_capture),
        cmocka_unit_test(test_reserve),  cmocka_unit_test(test_failures),
        cmocka_unit_test(test_maps),     cmocka_unit_test(test_attributes),
    };
    return GK_TEST_MAIN(tests);
}
