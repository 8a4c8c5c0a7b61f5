#include "bench_cuda.h"

#include <dlfcn.h>
#include <stdio.h>

/* X(name, symbol, parameters): the driver's versioned symbols, as cuda.h maps them. */
#define BENCH_CUDA_SYMBOLS(X)                                                                      \
    X(init, "cuInit", (unsigned))                                                                  \
    X(device_get, "cuDeviceGet", (int *, int))                                                     \
    X(context_retain, "cuDevicePrimaryCtxRetain", (void **, int))                                  \
    X(context_set, "cuCtxSetCurrent", (void *))                                                    \
    X(stream_create, "cuStreamCreate", (void **, unsigned))                                        \
    X(stream_sync, "cuStreamSynchronize", (void *))                                                \
    X(event_create, "cuEventCreate", (void **, unsigned))                                          \
    X(event_record, "cuEventRecord", (void *, void *))                                             \
    X(event_sync, "cuEventSynchronize", (void *))                                                  \
    X(event_time, "cuEventElapsedTime", (float *, void *, void *))                                 \
    X(capture_begin, "cuStreamBeginCapture_v2", (void *, int))                                     \
    X(capture_end, "cuStreamEndCapture", (void *, void **))                                        \
    X(graph_instantiate, "cuGraphInstantiateWithFlags", (void **, void *, unsigned long long))     \
    X(graph_launch, "cuGraphLaunch", (void *, void *))                                             \
    X(graph_exec_destroy, "cuGraphExecDestroy", (void *))                                          \
    X(graph_destroy, "cuGraphDestroy", (void *))                                                   \
    X(launch, "cuLaunchKernel",                                                                    \
      (void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *,       \
       void **, void **))

typedef struct bench_driver {
/* NOLINTNEXTLINE(bugprone-macro-parentheses): a declaration cannot have them. */
#define BENCH_CUDA_MEMBER(name, symbol, parameters) int(*name) parameters;
    BENCH_CUDA_SYMBOLS(BENCH_CUDA_MEMBER)
#undef BENCH_CUDA_MEMBER
    void *context;
} bench_driver;

static bench_driver driver;

static bool check(int code, const char *what)
{
    if (code != 0) {
        fprintf(stderr, "gk-bench: %s failed with CUresult %d\n", what, code);
    }
    return code == 0;
}

static bool load(void)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        fprintf(stderr, "gk-bench: %s\n", dlerror());
        return false;
    }
#define BENCH_CUDA_LOAD(name, symbol, parameters)                                                  \
    *(void **)&driver.name = dlsym(library, symbol);                                               \
    if (driver.name == NULL) {                                                                     \
        fprintf(stderr, "gk-bench: libcuda has no %s\n", symbol);                                  \
        return false;                                                                              \
    }
    BENCH_CUDA_SYMBOLS(BENCH_CUDA_LOAD)
#undef BENCH_CUDA_LOAD
    return true;
}

bool bench_cuda_open(bench_cuda *cuda, int ordinal)
{
    int device;
    if (driver.context == NULL &&
        !(load() && check(driver.init(0), "cuInit") &&
          check(driver.device_get(&device, ordinal), "cuDeviceGet") &&
          check(driver.context_retain(&driver.context, device), "cuDevicePrimaryCtxRetain"))) {
        return false;
    }
    bench_cuda_bind();
    cuda->stream = bench_cuda_stream_create();
    return cuda->stream != NULL &&
           check(driver.event_create(&cuda->events[0], 0), "cuEventCreate") &&
           check(driver.event_create(&cuda->events[1], 0), "cuEventCreate");
}

void bench_cuda_close(bench_cuda *cuda)
{
    bench_cuda_synchronize(cuda->stream);
}

void bench_cuda_bind(void)
{
    check(driver.context_set(driver.context), "cuCtxSetCurrent");
}

void *bench_cuda_stream_create(void)
{
    void *stream = NULL;
    check(driver.stream_create(&stream, 1), "cuStreamCreate");
    return stream;
}

void bench_cuda_synchronize(void *stream)
{
    check(driver.stream_sync(stream), "cuStreamSynchronize");
}

static bool enqueue_all(bench_cuda *cuda, bool (*enqueue)(void *, unsigned, void *), void *user,
                        unsigned count, unsigned repeats)
{
    for (unsigned r = 0; r < repeats; r++) {
        for (unsigned i = 0; i < count; i++) {
            if (!enqueue(user, i, cuda->stream)) {
                return false;
            }
        }
    }
    return true;
}

static double elapsed(bench_cuda *cuda, double launches)
{
    float ms;
    if (!check(driver.event_sync(cuda->events[1]), "cuEventSynchronize") ||
        !check(driver.event_time(&ms, cuda->events[0], cuda->events[1]), "cuEventElapsedTime")) {
        return -1;
    }
    return (double)ms * 1e-3 / launches;
}

double bench_cuda_time(bench_cuda *cuda, bool (*enqueue)(void *user, unsigned i, void *stream),
                       void *user, unsigned count, unsigned repeats, bool graph)
{
    const double launches = (double)count * repeats;
    if (!graph) {
        driver.event_record(cuda->events[0], cuda->stream);
        if (!enqueue_all(cuda, enqueue, user, count, repeats)) {
            return -1;
        }
        driver.event_record(cuda->events[1], cuda->stream);
        return elapsed(cuda, launches);
    }
    void *recorded = NULL;
    void *exec = NULL;
    if (!check(driver.capture_begin(cuda->stream, 1), "cuStreamBeginCapture")) {
        return -1;
    }
    bool good = enqueue_all(cuda, enqueue, user, count, repeats);
    good = check(driver.capture_end(cuda->stream, &recorded), "cuStreamEndCapture") && good;
    good = good && check(driver.graph_instantiate(&exec, recorded, 0), "cuGraphInstantiate");
    double seconds = -1;
    if (good) {
        driver.graph_launch(exec, cuda->stream);
        driver.event_record(cuda->events[0], cuda->stream);
        driver.graph_launch(exec, cuda->stream);
        driver.event_record(cuda->events[1], cuda->stream);
        seconds = elapsed(cuda, launches);
        driver.graph_exec_destroy(exec);
    }
    if (recorded != NULL) {
        driver.graph_destroy(recorded);
    }
    return seconds;
}

bool bench_cuda_launch(void *function, int64_t grid, unsigned threads, unsigned smem, void *args,
                       void *stream)
{
    void *params[1] = {args};
    return driver.launch(function, (unsigned)grid, 1, 1, threads, 1, 1, smem, stream, params,
                         NULL) == 0;
}
