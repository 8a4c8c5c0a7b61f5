#define _GNU_SOURCE
#include "fake_cuda.h"

#include "driver/cuda/cuda_abi.h"
#include "fake_env.h"

#define DECLARE(name, params) gki_cu_result name params;
GKI_CUDA_SYMBOLS(DECLARE)
GKI_CUDA_STRUCT_SYMBOLS(DECLARE)

enum { MAX_DEPTH = 16, INVALID_CONTEXT = 201, INVALID_HANDLE = 400, UNSUPPORTED_CAPTURE = 900 };

struct CUevent_st {
    uint64_t us;
};

fake_cuda fake_cuda_state;

static fake_cuda *const fake = &fake_cuda_state;
static _Thread_local gki_cu_context stack[MAX_DEPTH];
static _Thread_local int depth;
static _Thread_local gki_cu_enum capture_mode;
static int primary; /* its address is the context */

static gki_cu_context primary_context(void)
{
    return (gki_cu_context)(void *)&primary;
}

static void *memory(gki_cu_ptr ptr)
{
    return (void *)(uintptr_t)ptr;
}

void fake_cuda_note(char what)
{
    size_t n = strlen(fake->trace);
    if (n + 1 < sizeof(fake->trace)) {
        fake->trace[n] = what;
        fake->trace[n + 1] = '\0';
    }
}

unsigned fake_cuda_need_context(void)
{
    return depth > 0 && stack[depth - 1] == primary_context() ? 0 : (gki_cu_result)INVALID_CONTEXT;
}

unsigned fake_cuda_need_safe(void)
{
    if (fake->capturing != NULL && capture_mode != GKI_CU_CAPTURE_MODE_RELAXED) {
        fake->forbidden++;
        return UNSUPPORTED_CAPTURE;
    }
    return fake_cuda_need_context();
}

gki_cu_result cuInit(unsigned int flags)
{
    (void)flags;
    return (gki_cu_result)fake_number("FAKE_CUDA", "init", 0);
}

gki_cu_result cuDriverGetVersion(int *version)
{
    *version = (int)fake_number("FAKE_CUDA", "version", 13000);
    return 0;
}

gki_cu_result cuGetErrorName(gki_cu_result error, const char **out)
{
    *out = error == 2     ? "CUDA_ERROR_OUT_OF_MEMORY"
           : error == 100 ? "CUDA_ERROR_NO_DEVICE"
           : error == 209 ? "CUDA_ERROR_NO_BINARY_FOR_GPU"
           : error == 700 ? "CUDA_ERROR_ILLEGAL_ADDRESS"
           : error == 701 ? "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES"
                          : NULL;
    return *out != NULL ? 0 : (gki_cu_result)GKI_CU_INVALID_VALUE;
}

gki_cu_result cuGetErrorString(gki_cu_result error, const char **out)
{
    (void)error;
    *out = "a fake error";
    return 0;
}

gki_cu_result cuDeviceGetCount(int *count)
{
    *count = (int)fake_number("FAKE_CUDA", "count", 1);
    return 0;
}

gki_cu_result cuDeviceGet(gki_cu_device *device, int ordinal)
{
    *device = ordinal + 7;
    return 0;
}

gki_cu_result cuDeviceGetName(char *name, int size, gki_cu_device device)
{
    (void)device;
    fake_text("FAKE_CUDA", "name", "NVIDIA H100 80GB HBM3", name, (size_t)size);
    return 0;
}

gki_cu_result cuDeviceGetAttribute(int *value, gki_cu_enum attribute, gki_cu_device device)
{
    (void)device;
    long cc = fake_number("FAKE_CUDA", "cc", 90);
    switch (attribute) {
    case GKI_CU_DEVICE_MAX_THREADS_PER_BLOCK:
        *value = 1024;
        break;
    case GKI_CU_DEVICE_MAX_SHARED_MEMORY_PER_BLOCK:
        *value = 49152;
        break;
    case GKI_CU_DEVICE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN:
        *value = (int)fake_number("FAKE_CUDA", "optin", 232448);
        break;
    case GKI_CU_DEVICE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR:
        *value = 233472;
        break;
    case GKI_CU_DEVICE_MAX_REGISTERS_PER_BLOCK:
    case GKI_CU_DEVICE_MAX_REGISTERS_PER_MULTIPROCESSOR:
        *value = 65536;
        break;
    case GKI_CU_DEVICE_MULTIPROCESSOR_COUNT:
        *value = (int)fake_number("FAKE_CUDA", "sms", 132);
        break;
    case GKI_CU_DEVICE_GLOBAL_MEMORY_BUS_WIDTH:
        *value = 5120;
        break;
    case GKI_CU_DEVICE_L2_CACHE_SIZE:
        *value = (int)fake_number("FAKE_CUDA", "l2", 52428800);
        break;
    case GKI_CU_DEVICE_MAX_THREADS_PER_MULTIPROCESSOR:
        *value = 2048;
        break;
    case GKI_CU_DEVICE_COMPUTE_CAPABILITY_MAJOR:
        *value = (int)(cc / 10);
        break;
    case GKI_CU_DEVICE_COMPUTE_CAPABILITY_MINOR:
        *value = (int)(cc % 10);
        break;
    default: /* clock rates: a driver that has ceased to report them */
        return GKI_CU_INVALID_VALUE;
    }
    return 0;
}

gki_cu_result cuDeviceTotalMem_v2(size_t *bytes, gki_cu_device device)
{
    (void)device;
    *bytes = (size_t)fake_number("FAKE_CUDA", "memory", 85899345920);
    return 0;
}

gki_cu_result cuDevicePrimaryCtxRetain(gki_cu_context *context, gki_cu_device device)
{
    (void)device;
    fake->retained++;
    *context = primary_context();
    return 0;
}

gki_cu_result cuDevicePrimaryCtxRelease_v2(gki_cu_device device)
{
    (void)device;
    fake->retained--;
    return 0;
}

gki_cu_result cuCtxGetCurrent(gki_cu_context *context)
{
    *context = depth > 0 ? stack[depth - 1] : NULL;
    return 0;
}

gki_cu_result cuCtxPushCurrent_v2(gki_cu_context context)
{
    if (depth == MAX_DEPTH) {
        return GKI_CU_INVALID_VALUE;
    }
    stack[depth++] = context;
    fake->pushes++;
    return 0;
}

gki_cu_result cuCtxPopCurrent_v2(gki_cu_context *context)
{
    if (depth == 0) {
        return INVALID_CONTEXT;
    }
    *context = stack[--depth];
    fake->pops++;
    return 0;
}

gki_cu_result cuThreadExchangeStreamCaptureMode(gki_cu_enum *mode)
{
    gki_cu_enum old = capture_mode;
    capture_mode = *mode;
    *mode = old;
    return 0;
}

gki_cu_result cuMemGetInfo_v2(size_t *available, size_t *total)
{
    *available = 1000;
    *total = 2000;
    return fake_cuda_need_context();
}

gki_cu_result cuMemAlloc_v2(gki_cu_ptr *ptr, size_t bytes)
{
    gki_cu_result result = fake->fail_alloc != 0 ? fake->fail_alloc : fake_cuda_need_safe();
    if (result == 0) {
        char *p = aligned_alloc(256, (bytes + 255) / 256 * 256);
        if (p == NULL) {
            return GKI_CU_OUT_OF_MEMORY;
        }
        /* What is there must not matter. */
        if (bytes > 0) {
            p[0] = 0x55;
            p[bytes - 1] = 0x55;
        }
        *ptr = (gki_cu_ptr)(uintptr_t)p;
        fake->live_allocs++;
        fake->alloc_bytes = bytes;
    }
    return result;
}

gki_cu_result cuMemFree_v2(gki_cu_ptr ptr)
{
    gki_cu_result result = fake_cuda_need_safe();
    if (result == 0) {
        free(memory(ptr));
        fake->live_allocs--;
    }
    return result;
}

gki_cu_result cuStreamCreate(gki_cu_stream *stream, unsigned int flags)
{
    gki_cu_result result = fake_cuda_need_context();
    if (result == 0 && flags != GKI_CU_STREAM_NON_BLOCKING) {
        return GKI_CU_INVALID_VALUE;
    }
    if (result == 0) {
        *stream = malloc(1);
        fake->live_streams++;
    }
    return result;
}

gki_cu_result cuStreamDestroy_v2(gki_cu_stream stream)
{
    free(stream);
    fake->live_streams--;
    return fake_cuda_need_context();
}

gki_cu_result cuStreamSynchronize(gki_cu_stream stream)
{
    if (fake->capturing != NULL && ((void *)stream == fake->capturing ||
                                    (stream == NULL && fake->capture_blocks_default != 0))) {
        fake->forbidden++;
        return UNSUPPORTED_CAPTURE;
    }
    fake->syncs++;
    return fake->fail_sync != 0 ? fake->fail_sync : fake_cuda_need_context();
}

gki_cu_result cuStreamIsCapturing(gki_cu_stream stream, gki_cu_enum *status)
{
    if (stream == NULL && fake->capturing != NULL && fake->capture_blocks_default != 0) {
        return GKI_CU_STREAM_CAPTURE_IMPLICIT;
    }
    *status = stream != NULL && (void *)stream == fake->capturing ? GKI_CU_CAPTURE_ACTIVE
                                                                  : GKI_CU_CAPTURE_NONE;
    return fake_cuda_need_context();
}

gki_cu_result cuEventCreate(gki_cu_event *event, unsigned int flags)
{
    (void)flags;
    *event = calloc(1, sizeof(**event));
    fake->live_events++;
    return fake_cuda_need_context();
}

gki_cu_result cuEventDestroy_v2(gki_cu_event event)
{
    free(event);
    fake->live_events--;
    return fake_cuda_need_context();
}

gki_cu_result cuEventRecord(gki_cu_event event, gki_cu_stream stream)
{
    event->us = fake->clock_us;
    fake_cuda_note('R');
    return stream != NULL ? fake_cuda_need_context() : (gki_cu_result)INVALID_HANDLE;
}

gki_cu_result cuEventSynchronize(gki_cu_event event)
{
    (void)event;
    return fake->fail_sync != 0 ? fake->fail_sync : fake_cuda_need_safe();
}

gki_cu_result cuEventElapsedTime(float *ms, gki_cu_event start, gki_cu_event end)
{
    *ms = (float)(end->us - start->us) * 1e-3F;
    return fake_cuda_need_context();
}

gki_cu_result cuTensorMapEncodeTiled(gki_cu_tensor_map *map, gki_cu_enum type, uint32_t rank,
                                     void *data, const uint64_t *dims, const uint64_t *strides,
                                     const uint32_t *box, const uint32_t *element_strides,
                                     gki_cu_enum interleave, gki_cu_enum swizzle,
                                     gki_cu_enum l2_promotion, gki_cu_enum fill)
{
    fake_map *last = &fake->map;
    *last =
        (fake_map){type, rank, interleave, swizzle, l2_promotion, fill, data, {0}, {0}, {0}, {0}};
    memcpy(last->dims, dims, rank * sizeof(*dims));
    memcpy(last->strides, strides, (rank - 1) * sizeof(*strides));
    memcpy(last->box, box, rank * sizeof(*box));
    memcpy(last->element_strides, element_strides, rank * sizeof(*element_strides));
    memset(map, 0, sizeof(*map));
    map->opaque[0] = (uintptr_t)data;
    map->opaque[15] = (uint64_t)++fake->n_maps;
    return (uintptr_t)map % 64 != 0 ? (gki_cu_result)GKI_CU_INVALID_VALUE
           : fake->fail_map != 0    ? fake->fail_map
                                    : fake_cuda_need_context();
}
