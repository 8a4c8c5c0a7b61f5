/* The CUDA driver on a real GPU; skips where there is none. */
#define _GNU_SOURCE
#include "in_child.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "driver/cuda/cuda_syms.h"
#include "driver/cuda/nvrtc.h"
#include "driver/driver.h"

static const char add_source[] =
    "struct args { const float *a; const float *b; float *c; int n; };\n"
    "extern \"C\" __global__ void add(const __grid_constant__ args p)\n"
    "{\n"
    "    int i = blockIdx.x * blockDim.x + threadIdx.x;\n"
    "    if (i < p.n) { p.c[i] = p.a[i] + p.b[i]; }\n"
    "}\n";

/* Writes the last word of its dynamic shared memory and reads it back; and the cluster's size. */
static const char shared_source[] =
    "struct args { int *out; int words; };\n"
    "extern \"C\" __global__ void shared_words(const __grid_constant__ args p)\n"
    "{\n"
    "    extern __shared__ int words[];\n"
    "    unsigned cluster = 1;\n"
    "#if __CUDA_ARCH__ >= 900\n"
    "    asm(\"mov.u32 %0, %%cluster_nctaid.x;\" : \"=r\"(cluster));\n"
    "#endif\n"
    "    if (threadIdx.x == 0) {\n"
    "        if (p.words > 0) { words[p.words - 1] = 40 + blockIdx.x; }\n"
    "        __syncwarp();\n"
    "        p.out[2 * blockIdx.x] = p.words > 0 ? words[p.words - 1] : 40 + blockIdx.x;\n"
    "        p.out[2 * blockIdx.x + 1] = cluster;\n"
    "    }\n"
    "}\n";

static const char wild_source[] = "struct args { int *out; };\n"
                                  "extern \"C\" __global__ void wild(const __grid_constant__ args "
                                  "p) { *p.out = 1; }\n";

typedef struct add_args {
    void *a, *b, *c;
    int32_t n;
} add_args;

typedef struct shared_args {
    void *out;
    int32_t words;
} shared_args;

static const gki_cuda_api *api;
static gki_device *device;

static const gki_driver *driver(void)
{
    return &gki_driver_cuda;
}

static void *vendor(const char *name)
{
    void *handle = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    void *symbol = handle != NULL ? dlsym(handle, name) : NULL;
    assert_non_null(symbol);
    return symbol;
}

static gki_cu_context current(void)
{
    gki_cu_context context = NULL;
    assert_int_equal(api->cuCtxGetCurrent(&context), 0);
    return context;
}

static int open_or_skip(void **state)
{
    (void)state;
    device = NULL;
    gk_status status = gki_cuda_api_get(&api);
    if (status == GK_OK) {
        status = driver()->open(driver(), 0, NULL, &device);
    }
    if (status != GK_OK && status != GK_ERR_NO_DRIVER) {
        print_error("open: %s\n", gk_error_last()->message);
    }
    return status == GK_OK || status == GK_ERR_NO_DRIVER ? 0 : -1;
}

static int close_device(void **state)
{
    (void)state;
    if (device != NULL) {
        driver()->close(device);
        device = NULL;
    }
    return 0;
}

static bool absent(void)
{
    if (device == NULL) {
        gk_test_skip("no GPU");
    }
    return device == NULL;
}

static gki_module *load(const char *source, const char *kernel)
{
    gki_compiled code;
    gki_module *module = NULL;
    assert_gk_ok(driver()->compile(device, source, &code));
    assert_gk_ok(driver()->module_load(device, code.code, code.size, kernel, &module));
    assert_int_equal(code.registers, module->registers);
    gki_free(code.code);
    gki_free(code.log);
    return module;
}

/* --- vector_add, from any thread --- */

static gk_status add_four(float *out)
{
    static const float a[4] = {1, 2, 3, 4};
    static const float b[4] = {10, 20, 30, 40};
    void *buffers[3] = {NULL, NULL, NULL};
    gki_compiled code = {0};
    gki_module *module = NULL;
    gk_status status = driver()->compile(device, add_source, &code);
    if (status == GK_OK) {
        status = driver()->module_load(device, code.code, code.size, "add", &module);
    }
    for (int i = 0; i < 3 && status == GK_OK; i++) {
        status = driver()->mem_alloc(device, sizeof(a), &buffers[i]);
    }
    if (status == GK_OK) {
        status = driver()->copy_in(device, buffers[0], a, sizeof(a), NULL);
    }
    if (status == GK_OK) {
        status = driver()->copy_in(device, buffers[1], b, sizeof(b), NULL);
    }
    if (status == GK_OK) {
        add_args args = {buffers[0], buffers[1], buffers[2], 4};
        gki_kernel_launch launch = {module, 1, 128, 1, 0, 0, 0, &args, sizeof(args)};
        status = driver()->launch(device, &launch, NULL);
    }
    if (status == GK_OK) {
        status = driver()->copy_out(device, out, buffers[2], sizeof(a), NULL);
    }
    for (int i = 0; i < 3; i++) {
        (void)driver()->mem_free(device, buffers[i]);
    }
    driver()->module_unload(device, module);
    gki_free(code.code);
    gki_free(code.log);
    return status;
}

typedef struct worker {
    gki_cu_context context; /* current before; NULL = none */
    gki_cu_context after;
    gk_status status;
    float out[4];
} worker;

static void *work(void *user)
{
    worker *w = user;
    if (w->context != NULL) {
        api->cuCtxPushCurrent_v2(w->context);
    }
    w->status = add_four(w->out);
    api->cuCtxGetCurrent(&w->after);
    return NULL;
}

static void check_worker(gki_cu_context context)
{
    worker w = {.context = context, .status = GK_ERR_INTERNAL};
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, work, &w), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(w.status, GK_OK);
    assert_true(w.after == context);
    for (int i = 0; i < 4; i++) {
        assert_true(w.out[i] == (float)(11 * (i + 1)));
    }
}

static void test_threads(void **state)
{
    (void)state;
    if (absent()) {
        return;
    }
    assert_null(current());
    check_worker(NULL);
    gki_cu_result (*create)(gki_cu_context *, unsigned int, gki_cu_device);
    gki_cu_result (*destroy)(gki_cu_context);
    void *symbols[2] = {vendor("cuCtxCreate_v2"), vendor("cuCtxDestroy_v2")};
    memcpy(&create, &symbols[0], sizeof(create));
    memcpy(&destroy, &symbols[1], sizeof(destroy));
    gki_cu_context other = NULL;
    gki_cu_context popped = NULL;
    assert_int_equal(create(&other, 0, 0), 0);
    assert_int_equal(api->cuCtxPopCurrent_v2(&popped), 0);
    check_worker(other);
    assert_int_equal(destroy(other), 0);
    assert_null(current());
    /* The only retain was the device's. */
    gki_cu_result (*get_state)(gki_cu_device, unsigned int *, int *);
    void *symbol = vendor("cuDevicePrimaryCtxGetState");
    memcpy(&get_state, &symbol, sizeof(get_state));
    unsigned int flags = 0;
    int active = 0;
    assert_int_equal(get_state(0, &flags, &active), 0);
    assert_int_equal(active, 1);
    close_device(NULL);
    assert_int_equal(get_state(0, &flags, &active), 0);
    assert_int_equal(active, 0);
}

/* --- shared memory and clusters --- */

static void check_shared(gki_module *module, int64_t bytes, int32_t cluster)
{
    enum { GRID = 32 };
    int32_t out[2 * GRID];
    void *buffer = NULL;
    assert_gk_ok(driver()->mem_alloc(device, sizeof(out), &buffer));
    assert_gk_ok(driver()->fill(device, buffer, 0xff, sizeof(out), NULL));
    assert_gk_ok(driver()->module_reserve(device, module, bytes, cluster));
    shared_args args = {buffer, (int32_t)(bytes / 4)};
    gki_kernel_launch launch = {module, GRID, 64, cluster, 0, 0, bytes, &args, sizeof(args)};
    assert_gk_ok(driver()->launch(device, &launch, NULL));
    assert_gk_ok(driver()->copy_out(device, out, buffer, sizeof(out), NULL));
    for (int i = 0; i < GRID; i++) {
        assert_int_equal(out[2 * i], 40 + i);
        assert_int_equal(out[2 * i + 1], cluster);
    }
    double seconds = 0;
    assert_gk_ok(driver()->fill(device, buffer, 0xff, sizeof(out), NULL));
    assert_gk_ok(driver()->time(device, &launch, 1, 20, true, &seconds));
    assert_gk_ok(driver()->copy_out(device, out, buffer, sizeof(out), NULL));
    assert_true(seconds > 0 && seconds < 1e-2);
    assert_int_equal(out[2 * GRID - 2], 40 + GRID - 1);
    assert_int_equal(out[2 * GRID - 1], cluster);
    assert_gk_ok(driver()->mem_free(device, buffer));
}

static void test_limits(void **state)
{
    (void)state;
    if (absent()) {
        return;
    }
    gk_device_info info;
    driver()->info(device, &info);
    print_message("%s, cc %d, %s, %s, driver %d\n", info.name, (int)info.cc, info.arch,
                  info.compiler, (int)info.driver_version);
    assert_in_range(info.sm_count, 1, 1000);
    assert_true(info.smem_per_block_optin >= info.smem_per_block);
    gki_module *module = load(shared_source, "shared_words");
    check_shared(module, 0, 1);
    check_shared(module, 49152, 1);
    check_shared(module, 49156, 1);
    check_shared(module, info.smem_per_block_optin, 1);
    check_shared(module, 49152, 1);
    assert_gk_err(driver()->module_reserve(device, module, info.smem_per_block_optin + 4, 1),
                  GK_ERR_DEVICE, "bytes of shared memory");
    if (info.cc >= 90) {
        check_shared(module, 1024, 2);
        check_shared(module, 1024, 8);
        check_shared(module, 1024, 16);
    }
    driver()->module_unload(device, module);
}

/* --- code --- */

static void test_code(void **state)
{
    (void)state;
    if (absent()) {
        return;
    }
    gk_device_info info;
    driver()->info(device, &info);
    gki_module *module = NULL;
    gki_compiled code;
    /* PTX of an older architecture is compiled by the driver. */
    assert_gk_ok(gki_nvrtc_compile("compute_80", add_source, &code));
    assert_gk_ok(driver()->module_load(device, code.code, code.size, "add", &module));
    driver()->module_unload(device, module);
    assert_gk_err(driver()->module_load(device, code.code, code.size, "other", &module),
                  GK_ERR_DEVICE, "other");
    assert_null(module);
    gki_free(code.code);
    gki_free(code.log);
    /* A binary for another architecture. */
    assert_gk_ok(gki_nvrtc_compile(info.cc == 80 ? "sm_90a" : "sm_80", add_source, &code));
    assert_gk_err(driver()->module_load(device, code.code, code.size, "add", &module),
                  GK_ERR_DEVICE, "CUDA_ERROR_NO_BINARY_FOR_GPU");
    assert_null(module);
    gki_free(code.code);
    gki_free(code.log);
    assert_gk_err(driver()->compile(device, "nonsense", &code), GK_ERR_COMPILE, "kernel.cu(1)");
    gki_free(code.log);
}

/* --- capture --- */

/* Instantiates the graph and launches it once. */
static gki_cu_graph_exec replay(gki_cu_graph graph, void *stream)
{
    gki_cu_graph_exec exec = NULL;
    gki_cu_context context = NULL;
    gki_cu_context popped = NULL;
    assert_int_equal(api->cuDevicePrimaryCtxRetain(&context, 0), 0);
    assert_int_equal(api->cuCtxPushCurrent_v2(context), 0);
    assert_int_equal(api->cuGraphInstantiateWithFlags(&exec, graph, 0), 0);
    assert_int_equal(api->cuGraphLaunch(exec, stream), 0);
    assert_int_equal(api->cuCtxPopCurrent_v2(&popped), 0);
    assert_int_equal(api->cuDevicePrimaryCtxRelease_v2(0), 0);
    return exec;
}

static void test_capture(void **state)
{
    (void)state;
    if (absent()) {
        return;
    }
    gki_cu_result (*begin)(gki_cu_stream, gki_cu_enum);
    gki_cu_result (*end)(gki_cu_stream, gki_cu_graph *);
    void *symbols[2] = {vendor("cuStreamBeginCapture_v2"), vendor("cuStreamEndCapture")};
    memcpy(&begin, &symbols[0], sizeof(begin));
    memcpy(&end, &symbols[1], sizeof(end));
    static const float one[4] = {1, 1, 1, 1};
    gki_module *module = load(add_source, "add");
    void *stream = NULL;
    void *a = NULL;
    assert_gk_ok(driver()->stream_create(device, &stream));
    assert_gk_ok(driver()->mem_alloc(device, sizeof(one), &a));
    assert_gk_ok(driver()->copy_in(device, a, one, sizeof(one), stream));
    add_args args = {a, a, a, 4};
    gki_kernel_launch launch = {module, 1, 32, 1, 0, 0, 0, &args, sizeof(args)};
    bool capturing = true;
    assert_gk_ok(driver()->is_capturing(device, stream, &capturing));
    assert_false(capturing);
    assert_int_equal(begin(stream, 0), 0);
    assert_gk_ok(driver()->is_capturing(device, stream, &capturing));
    assert_true(capturing);
    assert_gk_ok(driver()->launch(device, &launch, stream));
    /* Compiling, loading, allocating, timing and copying in this and in another thread leave the
     * capture valid. */
    check_worker(NULL);
    float out[4];
    double seconds = 0;
    assert_gk_ok(add_four(out));
    void *b = NULL;
    assert_gk_ok(driver()->mem_alloc(device, sizeof(one), &b));
    add_args other = {b, b, b, 4};
    gki_kernel_launch timed = {module, 1, 32, 1, 0, 0, 0, &other, sizeof(other)};
    assert_gk_ok(driver()->time(device, &timed, 1, 3, true, &seconds));
    assert_gk_ok(driver()->time(device, &timed, 1, 3, false, &seconds));
    assert_gk_ok(driver()->launch(device, &launch, stream));
    gki_cu_graph graph = NULL;
    assert_int_equal(end(stream, &graph), 0);
    gki_cu_graph_exec exec = replay(graph, stream);
    assert_gk_ok(driver()->copy_out(device, out, a, sizeof(out), stream));
    for (int i = 0; i < 4; i++) {
        assert_true(out[i] == 4.0F); /* doubled twice */
    }
    assert_int_equal(api->cuGraphExecDestroy(exec), 0);
    assert_int_equal(api->cuGraphDestroy(graph), 0);
    assert_gk_ok(driver()->mem_free(device, a));
    assert_gk_ok(driver()->mem_free(device, b));
    driver()->stream_destroy(device, stream);
    driver()->module_unload(device, module);
}

/* --- speed, reported and only loosely bounded --- */

static double launch_ns(const gki_kernel_launch *launch, void *stream)
{
    enum { CALLS = 2000 };
    double best = 1e9;
    for (int round = 0; round < 5; round++) {
        uint64_t start = gki_clock_ns();
        for (int i = 0; i < CALLS; i++) {
            assert_int_equal(driver()->launch(device, launch, stream), GK_OK);
        }
        double ns = (double)(gki_clock_ns() - start) / CALLS;
        best = ns < best ? ns : best;
        assert_gk_ok(driver()->synchronize(device, stream));
    }
    return best;
}

static double bare_ns(gki_cu_function function, const gki_kernel_launch *launch, void *stream)
{
    enum { CALLS = 2000 };
    double best = 1e9;
    void *params[1];
    memcpy(params, &launch->args, sizeof(params));
    for (int round = 0; round < 5; round++) {
        uint64_t start = gki_clock_ns();
        for (int i = 0; i < CALLS; i++) {
            (void)api->cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, stream, params, NULL);
        }
        double ns = (double)(gki_clock_ns() - start) / CALLS;
        best = ns < best ? ns : best;
        assert_gk_ok(driver()->synchronize(device, stream));
    }
    return best;
}

static void test_speed(void **state)
{
    (void)state;
    if (absent()) {
        return;
    }
    gki_module *module = load(add_source, "add");
    gki_compiled code;
    assert_gk_ok(driver()->compile(device, add_source, &code));
    void *stream = NULL;
    void *a = NULL;
    assert_gk_ok(driver()->stream_create(device, &stream));
    assert_gk_ok(driver()->mem_alloc(device, 64, &a));
    add_args args = {a, a, a, 4};
    gki_kernel_launch launch = {module, 1, 32, 1, 0, 0, 0, &args, sizeof(args)};
    double foreign = launch_ns(&launch, stream);
    gki_cu_context context = NULL;
    gki_cu_context popped = NULL;
    gki_cu_module handle = NULL;
    gki_cu_function function = NULL;
    assert_int_equal(api->cuDevicePrimaryCtxRetain(&context, 0), 0);
    assert_int_equal(api->cuCtxPushCurrent_v2(context), 0);
    assert_int_equal(api->cuModuleLoadData(&handle, code.code), 0);
    assert_int_equal(api->cuModuleGetFunction(&function, handle, "add"), 0);
    double bare = bare_ns(function, &launch, stream);
    double ours = launch_ns(&launch, stream);
    assert_int_equal(api->cuModuleUnload(handle), 0);
    assert_int_equal(api->cuCtxPopCurrent_v2(&popped), 0);
    assert_int_equal(api->cuDevicePrimaryCtxRelease_v2(0), 0);
    double in_stream = 0;
    double in_graph = 0;
    assert_gk_ok(driver()->time(device, &launch, 1, 2000, false, &in_stream));
    assert_gk_ok(driver()->time(device, &launch, 1, 2000, true, &in_graph));
    print_message("launch: bare %.0f ns, through the driver table %.0f ns, with a context push "
                  "%.0f ns; timed in a stream %.0f ns, in a graph %.0f ns; compile %.1f ms\n",
                  bare, ours, foreign, in_stream * 1e9, in_graph * 1e9, code.seconds * 1e3);
    assert_true(ours < bare + 1000);
    assert_true(in_graph > 100e-9 && in_graph < 100e-6);
    assert_true(in_stream > 100e-9 && in_stream < 100e-6);
    gki_free(code.code);
    gki_free(code.log);
    assert_gk_ok(driver()->mem_free(device, a));
    driver()->stream_destroy(device, stream);
    driver()->module_unload(device, module);
}

/* --- a lost context, in a process of its own --- */

typedef struct lost {
    gk_status open;
    gk_status prepared;
    gk_status synchronize;
    gk_status alloc;
    char message[972];
} lost;

static void run_lost(void *data)
{
    lost *o = data;
    gki_device *mine = NULL;
    o->open = driver()->open(driver(), 0, NULL, &mine);
    if (o->open != GK_OK) {
        return;
    }
    gki_compiled code;
    gki_module *module = NULL;
    void *p = NULL;
    o->prepared = driver()->compile(mine, wild_source, &code);
    if (o->prepared == GK_OK) {
        o->prepared = driver()->module_load(mine, code.code, code.size, "wild", &module);
    }
    if (o->prepared == GK_OK) {
        uint64_t args = 0x10;
        gki_kernel_launch launch = {module, 1, 1, 1, 0, 0, 0, &args, sizeof(args)};
        o->prepared = driver()->launch(mine, &launch, NULL);
    }
    o->synchronize = driver()->synchronize(mine, NULL);
    memcpy(o->message, gk_error_last()->message, sizeof(o->message));
    o->alloc = driver()->mem_alloc(mine, 64, &p);
    driver()->module_unload(mine, module);
    driver()->close(mine);
}

static void test_lost(void **state)
{
    (void)state;
    lost o;
    in_child(run_lost, &o, sizeof(o));
    if (o.open == GK_ERR_NO_DRIVER) {
        gk_test_skip("no GPU");
        return;
    }
    assert_int_equal(o.open, GK_OK);
    assert_int_equal(o.prepared, GK_OK);
    assert_int_equal(o.synchronize, GK_ERR_LOST);
    assert_int_equal(o.alloc, GK_ERR_LOST);
    assert_non_null(strstr(o.message, "CUDA_ERROR_ILLEGAL_ADDRESS"));
}

int main(void)
{
    /* The child's test stands first: CUDA does not survive a fork once it has started. */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lost),
        cmocka_unit_test_setup_teardown(test_threads, open_or_skip, close_device),
        cmocka_unit_test_setup_teardown(test_limits, open_or_skip, close_device),
        cmocka_unit_test_setup_teardown(test_code, open_or_skip, close_device),
        cmocka_unit_test_setup_teardown(test_capture, open_or_skip, close_device),
        cmocka_unit_test_setup_teardown(test_speed, open_or_skip, close_device),
    };
    return GK_TEST_MAIN(tests);
}
