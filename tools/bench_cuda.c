#include "bench_cuda.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

/* X(name, symbol, parameters): the driver's versioned symbols, as cuda.h maps them. */
#define BENCH_CUDA_SYMBOLS(X)                                                                      \
    X(init, "cuInit", (unsigned))                                                                  \
    X(device_get, "cuDeviceGet", (int *, int))                                                     \
    X(context_retain, "cuDevicePrimaryCtxRetain", (void **, int))                                  \
    X(context_release, "cuDevicePrimaryCtxRelease_v2", (int))                                      \
    X(context_set, "cuCtxSetCurrent", (void *))                                                    \
    X(mem_alloc, "cuMemAlloc_v2", (uint64_t *, size_t))                                            \
    X(mem_free, "cuMemFree_v2", (uint64_t))                                                        \
    X(copy, "cuMemcpyDtoDAsync_v2", (uint64_t, uint64_t, size_t, void *))                          \
    X(stream_create, "cuStreamCreate", (void **, unsigned))                                        \
    X(stream_destroy, "cuStreamDestroy_v2", (void *))                                              \
    X(stream_sync, "cuStreamSynchronize", (void *))                                                \
    X(event_create, "cuEventCreate", (void **, unsigned))                                          \
    X(event_destroy, "cuEventDestroy_v2", (void *))                                                \
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
    int device;
} bench_driver;

static bench_driver driver;

#define COPY_BYTES ((size_t)1 << 30)

static bool check(int code, const char *what)
{
    if (code != 0) {
        fprintf(stderr, "gk-bench: %s failed with CUresult %d\n", what, code);
    }
    return code == 0;
}

static bool load(void)
{
    const char *wanted = getenv("GK_CUDA_DRIVER");
    void *library = dlopen(wanted != NULL && wanted[0] != '\0' ? wanted : "libcuda.so.1",
                           RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        fprintf(stderr, "gk-bench: %s\n", dlerror());
        return false;
    }
#define BENCH_CUDA_LOAD(name, symbol, parameters)                                                  \
    *(void **)&driver.name = dlsym(library, symbol);                                               \
    if (driver.name == NULL) {                                                                     \
        fprintf(stderr, "gk-bench: the driver has no %s\n", symbol);                               \
        return false;                                                                              \
    }
    BENCH_CUDA_SYMBOLS(BENCH_CUDA_LOAD)
#undef BENCH_CUDA_LOAD
    return true;
}

bool bench_cuda_open(bench_cuda *cuda, int ordinal)
{
    if (driver.context == NULL &&
        !(load() && check(driver.init(0), "cuInit") &&
          check(driver.device_get(&driver.device, ordinal), "cuDeviceGet") &&
          check(driver.context_retain(&driver.context, driver.device),
                "cuDevicePrimaryCtxRetain"))) {
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
    if (cuda->stream == NULL) {
        return;
    }
    bench_cuda_synchronize(cuda->stream);
    for (int i = 0; i < 2; i++) {
        if (cuda->events[i] != NULL) {
            driver.event_destroy(cuda->events[i]);
        }
    }
    driver.stream_destroy(cuda->stream);
    driver.context_set(NULL);
    driver.context_release(driver.device);
    driver.context = NULL;
    cuda->stream = NULL;
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

void bench_cuda_stream_destroy(void *stream)
{
    if (stream != NULL) {
        check(driver.stream_destroy(stream), "cuStreamDestroy");
    }
}

bool bench_cuda_synchronize(void *stream)
{
    return check(driver.stream_sync(stream), "cuStreamSynchronize");
}

void *bench_cuda_alloc(size_t bytes)
{
    uint64_t address = 0;
    return check(driver.mem_alloc(&address, bytes), "cuMemAlloc") ? (void *)(uintptr_t)address
                                                                  : NULL;
}

void bench_cuda_free(void *memory)
{
    if (memory != NULL) {
        driver.mem_free((uint64_t)(uintptr_t)memory);
    }
}

static bool enqueue_all(bench_cuda *cuda, bench_enqueue enqueue, void *user, unsigned count,
                        unsigned repeats)
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

double bench_cuda_time(bench_cuda *cuda, bench_enqueue enqueue, void *user, unsigned count,
                       unsigned repeats)
{
    driver.event_record(cuda->events[0], cuda->stream);
    if (!enqueue_all(cuda, enqueue, user, count, repeats)) {
        return -1;
    }
    driver.event_record(cuda->events[1], cuda->stream);
    return elapsed(cuda, (double)count * repeats);
}

void *bench_cuda_record(bench_cuda *cuda, bench_enqueue enqueue, void *user, unsigned count,
                        unsigned repeats)
{
    void *recorded = NULL;
    void *exec = NULL;
    if (!check(driver.capture_begin(cuda->stream, 1), "cuStreamBeginCapture")) {
        return NULL;
    }
    bool good = enqueue_all(cuda, enqueue, user, count, repeats);
    good = check(driver.capture_end(cuda->stream, &recorded), "cuStreamEndCapture") && good;
    if (good && !check(driver.graph_instantiate(&exec, recorded, 0), "cuGraphInstantiate")) {
        exec = NULL;
    }
    if (recorded != NULL) {
        driver.graph_destroy(recorded);
    }
    return exec;
}

double bench_cuda_replay(bench_cuda *cuda, void *graph, double runs)
{
    /* The first replay uploads the graph, and brings back the clocks. */
    driver.graph_launch(graph, cuda->stream);
    driver.event_record(cuda->events[0], cuda->stream);
    driver.graph_launch(graph, cuda->stream);
    driver.event_record(cuda->events[1], cuda->stream);
    return elapsed(cuda, runs);
}

void bench_cuda_drop(void *graph)
{
    if (graph != NULL) {
        driver.graph_exec_destroy(graph);
    }
}

typedef struct copy_job {
    uint64_t from;
    uint64_t to;
} copy_job;

static bool enqueue_copy(void *user, unsigned i, void *stream)
{
    const copy_job *job = user;
    (void)i;
    return driver.copy(job->to, job->from, COPY_BYTES, stream) == 0;
}

double bench_cuda_copy_rate(bench_cuda *cuda)
{
    copy_job job = {0, 0};
    double best = -1;
    if (driver.mem_alloc(&job.from, COPY_BYTES) == 0 &&
        driver.mem_alloc(&job.to, COPY_BYTES) == 0) {
        for (int i = 0; i < 5; i++) {
            const double seconds = bench_cuda_time(cuda, enqueue_copy, &job, 1, 4);
            best = seconds > 0 && (best < 0 || seconds < best) ? seconds : best;
        }
    }
    driver.mem_free(job.from);
    driver.mem_free(job.to);
    return best > 0 ? 2 * (double)COPY_BYTES / best : 0;
}

bool bench_cuda_launch(void *function, int64_t grid, unsigned threads, unsigned smem, void *args,
                       void *stream)
{
    void *params[1] = {args};
    return driver.launch(function, (unsigned)grid, 1, 1, threads, 1, 1, smem, stream, params,
                         NULL) == 0;
}
