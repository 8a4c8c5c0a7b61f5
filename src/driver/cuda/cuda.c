/* The CUDA driver's table: devices, memory and streams. */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "driver/cuda/cuda_device.h"
#include "driver/cuda/nvrtc.h"

static gki_cu_ptr address(const void *p)
{
    return (gki_cu_ptr)(uintptr_t)p;
}

static gk_status find_device(const gki_cuda_api *api, int32_t ordinal, gki_cu_device *out)
{
    gki_cu_result result = api->cuInit(0);
    if (result == GKI_CU_STUB_LIBRARY) {
        return gki_cuda_fail_stub(api->path);
    }
    int count = 0;
    if (result == GKI_CU_SUCCESS) {
        result = api->cuDeviceGetCount(&count);
    }
    if (result != GKI_CU_SUCCESS || count < 1) {
        return gki_fail_code(GK_ERR_NO_DRIVER, "cuda", (int32_t)result,
                             "no CUDA device: %s (%s, CUDA %d.%d)",
                             result != GKI_CU_SUCCESS ? gki_cuda_error_name(api, result)
                                                      : "the driver counts 0 devices",
                             api->path, api->version / 1000, api->version % 1000 / 10);
    }
    if (ordinal < 0 || ordinal >= count) {
        return gk_fail(GK_ERR_INVALID, "cuda", "device: cuda:%d, but there %s %d CUDA device%s",
                       (int)ordinal, count == 1 ? "is" : "are", count, count == 1 ? "" : "s");
    }
    result = api->cuDeviceGet(out, ordinal);
    if (result != GKI_CU_SUCCESS) {
        return gki_fail_code(GK_ERR_NO_DRIVER, "cuda", (int32_t)result, "device cuda:%d: %s",
                             (int)ordinal, gki_cuda_error_name(api, result));
    }
    return GK_OK;
}

/* Settles what kernels are compiled for, and warns where driver and compiler do not match. */
static gk_status choose_target(gki_cuda_device *device)
{
    gk_device_info *info = &device->info;
    const gki_nvrtc_api *nvrtc;
    gk_status status = gki_nvrtc_api_get(&nvrtc);
    if (status == GK_OK) {
        status = gki_nvrtc_target(info->cc, info->arch, sizeof(info->arch));
    }
    if (status != GK_OK) {
        return status;
    }
    snprintf(info->compiler, sizeof(info->compiler), "nvrtc %d.%d", nvrtc->major, nvrtc->minor);
    if (strncmp(info->arch, "sm_", 3) != 0) {
        gki_logf(&device->log, GK_LOG_WARNING,
                 "NVRTC %d.%d does not know compute capability %d.%d; compiling PTX for %s",
                 nvrtc->major, nvrtc->minor, info->cc / 10, info->cc % 10, info->arch);
    }
    if (nvrtc->major > info->driver_version / 1000) {
        gki_logf(&device->log, GK_LOG_WARNING,
                 "NVRTC %d.%d (%s) is newer than the driver, which supports CUDA %d.%d; its code "
                 "may not load",
                 nvrtc->major, nvrtc->minor, nvrtc->path, info->driver_version / 1000,
                 info->driver_version % 1000 / 10);
    }
    return GK_OK;
}

static gk_status cuda_open(const gki_driver *self, int32_t ordinal, const gki_log *log,
                           gki_device **out)
{
    *out = NULL;
    const gki_cuda_api *api;
    gk_status status = gki_cuda_api_get(&api);
    gki_cu_device handle = 0;
    if (status == GK_OK) {
        status = find_device(api, ordinal, &handle);
    }
    if (status != GK_OK) {
        return status;
    }
    gki_cuda_device *device = gki_calloc(1, sizeof(*device));
    if (device == NULL) {
        return gki_fail_nomem("cuda", sizeof(*device));
    }
    device->base.driver = self;
    device->api = api;
    device->handle = handle;
    if (log != NULL) {
        device->log = *log;
    }
    status = gki_cuda_read_info(device, ordinal);
    if (status == GK_OK) {
        status = choose_target(device);
    }
    if (status == GK_OK) {
        gki_cu_result result = api->cuDevicePrimaryCtxRetain(&device->context, handle);
        if (result != GKI_CU_SUCCESS) {
            status = gki_cuda_fail(api, result, "opening the primary context of device cuda:%d",
                                   (int)ordinal);
        }
    }
    if (status != GK_OK) {
        gki_free(device);
        return status;
    }
    pthread_mutex_init(&device->lock, NULL);
    pthread_mutex_init(&device->timing, NULL);
    *out = &device->base;
    return GK_OK;
}

static void cuda_close(gki_device *base)
{
    gki_cuda_device *device = gki_cuda_device_of(base);
    gki_cuda_scope scope;
    if (gki_cuda_enter_relaxed(device, &scope) == GK_OK) {
        gki_cuda_time_close(device);
        gki_cuda_leave(device, &scope);
    }
    device->api->cuDevicePrimaryCtxRelease_v2(device->handle);
    pthread_mutex_destroy(&device->lock);
    pthread_mutex_destroy(&device->timing);
    gki_free(device);
}

static void cuda_info(gki_device *base, gk_device_info *out)
{
    *out = gki_cuda_device_of(base)->info;
}

static gk_status cuda_mem_alloc(gki_device *base, size_t bytes, void **out)
{
    gki_cuda_device *device = gki_cuda_device_of(base);
    *out = NULL;
    gki_cuda_scope scope;
    gk_status status = gki_cuda_enter_relaxed(device, &scope);
    if (status != GK_OK) {
        return status;
    }
    gki_cu_ptr ptr = 0;
    gki_cu_result result = device->api->cuMemAlloc_v2(&ptr, bytes);
    if (result == GKI_CU_OUT_OF_MEMORY) {
        size_t available = 0;
        size_t total = 0;
        device->api->cuMemGetInfo_v2(&available, &total);
        status =
            gki_cuda_fail(device->api, result, "%zu bytes of device memory (%zu of %zu are free)",
                          bytes, available, total);
    } else if (result != GKI_CU_SUCCESS) {
        status = gki_cuda_fail(device->api, result, "%zu bytes of device memory", bytes);
    } else {
        *out = (void *)(uintptr_t)ptr;
    }
    gki_cuda_leave(device, &scope);
    return status;
}

static gk_status cuda_mem_free(gki_device *base, void *ptr)
{
    gki_cuda_device *device = gki_cuda_device_of(base);
    gki_cuda_scope scope;
    gk_status status = ptr == NULL ? GK_OK : gki_cuda_enter_relaxed(device, &scope);
    if (ptr == NULL || status != GK_OK) {
        return status;
    }
    gki_cu_result result = device->api->cuMemFree_v2(address(ptr));
    if (result != GKI_CU_SUCCESS) {
        status = gki_cuda_fail(device->api, result, "freeing device memory at %p", ptr);
    }
    gki_cuda_leave(device, &scope);
    return status;
}

/* Between the host and the device; the host's memory may be reused when it returns. */
static gk_status copy_and_wait(gki_device *base, void *dst, const void *src, size_t bytes,
                               void *stream, bool to_device)
{
    gki_cuda_device *device = gki_cuda_device_of(base);
    gki_cuda_scope scope;
    gk_status status = bytes == 0 ? GK_OK : gki_cuda_enter_relaxed(device, &scope);
    if (bytes == 0 || status != GK_OK) {
        return status;
    }
    const gki_cuda_api *api = device->api;
    gki_cu_result result = to_device ? api->cuMemcpyHtoDAsync_v2(address(dst), src, bytes, stream)
                                     : api->cuMemcpyDtoHAsync_v2(dst, address(src), bytes, stream);
    if (result == GKI_CU_SUCCESS) {
        result = api->cuStreamSynchronize(stream);
    }
    if (result != GKI_CU_SUCCESS) {
        status = gki_cuda_fail(api, result, "copying %zu bytes %s the device", bytes,
                               to_device ? "to" : "from");
    }
    gki_cuda_leave(device, &scope);
    return status;
}

static gk_status cuda_copy_in(gki_device *base, void *dst, const void *src, size_t bytes,
                              void *stream)
{
    return copy_and_wait(base, dst, src, bytes, stream, true);
}

static gk_status cuda_copy_in_2d(gki_device *base, void *dst, const void *src, size_t pitch,
                                 size_t width, size_t rows, void *stream)
{
    gki_cuda_device *device = gki_cuda_device_of(base);
    gki_cuda_scope scope;
    gk_status status = rows == 0 ? GK_OK : gki_cuda_enter_relaxed(device, &scope);
    if (rows == 0 || status != GK_OK) {
        return status;
    }
    const gki_cu_copy_2d copy = {
        .src_type = GKI_CU_MEMORY_HOST,
        .src_host = src,
        .src_pitch = pitch,
        .dst_type = GKI_CU_MEMORY_DEVICE,
        .dst_device = address(dst),
        .dst_pitch = width,
        .width = width,
        .height = rows,
    };
    gki_cu_result result = device->api->cuMemcpy2DAsync_v2(&copy, stream);
    if (result == GKI_CU_SUCCESS) {
        result = device->api->cuStreamSynchronize(stream);
    }
    if (result != GKI_CU_SUCCESS) {
        status = gki_cuda_fail(device->api, result,
                               "copying %zu pieces of %zu bytes, %zu bytes apart, to the device",
                               rows, width, pitch);
    }
    gki_cuda_leave(device, &scope);
    return status;
}

static gk_status cuda_copy_out(gki_device *base, void *dst, const void *src, size_t bytes,
                               void *stream)
{
    return copy_and_wait(base, dst, src, bytes, stream, false);
}

static gk_status cuda_copy_dev(gki_device *base, void *dst, const void *src, size_t bytes,
                               void *stream)
{
    gki_cuda_device *device = gki_cuda_device_of(base);
    gki_cuda_scope scope;
    gk_status status = bytes == 0 ? GK_OK : gki_cuda_enter(device, &scope);
    if (bytes == 0 || status != GK_OK) {
        return status;
    }
    gki_cu_result result =
        device->api->cuMemcpyDtoDAsync_v2(address(dst), address(src), bytes, stream);
    if (result != GKI_CU_SUCCESS) {
        status = gki_cuda_fail(device->api, result, "copying %zu bytes on the device", bytes);
    }
    gki_cuda_leave(device, &scope);
    return status;
}

static gk_status cuda_fill(gki_device *base, void *dst, unsigned char value, size_t bytes,
                           void *stream)
{
    gki_cuda_device *device = gki_cuda_device_of(base);
    gki_cuda_scope scope;
    gk_status status = bytes == 0 ? GK_OK : gki_cuda_enter(device, &scope);
    if (bytes == 0 || status != GK_OK) {
        return status;
    }
    gki_cu_result result = device->api->cuMemsetD8Async(address(dst), value, bytes, stream);
    if (result != GKI_CU_SUCCESS) {
        status = gki_cuda_fail(device->api, result, "filling %zu bytes on the device", bytes);
    }
    gki_cuda_leave(device, &scope);
    return status;
}

static gk_status cuda_stream_create(gki_device *base, void **out)
{
    gki_cuda_device *device = gki_cuda_device_of(base);
    *out = NULL;
    gki_cuda_scope scope;
    gk_status status = gki_cuda_enter_relaxed(device, &scope);
    if (status != GK_OK) {
        return status;
    }
    gki_cu_stream stream = NULL;
    gki_cu_result result = device->api->cuStreamCreate(&stream, GKI_CU_STREAM_NON_BLOCKING);
    if (result != GKI_CU_SUCCESS) {
        status = gki_cuda_fail(device->api, result, "creating a stream");
    } else {
        pthread_mutex_lock(&device->lock);
        if (device->n_streams < GKI_CUDA_MAX_STREAMS) {
            device->streams[device->n_streams++] = stream;
            *out = stream;
        }
        pthread_mutex_unlock(&device->lock);
        if (*out == NULL) {
            device->api->cuStreamDestroy_v2(stream);
            status = gk_fail(GK_ERR_DEVICE, "cuda", "more than %d streams of one device",
                             GKI_CUDA_MAX_STREAMS);
        }
    }
    gki_cuda_leave(device, &scope);
    return status;
}

static void cuda_stream_destroy(gki_device *base, void *stream)
{
    gki_cuda_device *device = gki_cuda_device_of(base);
    gki_cuda_scope scope;
    if (stream == NULL) {
        return;
    }
    pthread_mutex_lock(&device->lock);
    for (uint32_t i = 0; i < device->n_streams; i++) {
        if (device->streams[i] == stream) {
            device->n_streams--;
            device->streams[i] = device->streams[device->n_streams];
            break;
        }
    }
    pthread_mutex_unlock(&device->lock);
    if (gki_cuda_enter_relaxed(device, &scope) == GK_OK) {
        device->api->cuStreamDestroy_v2(stream);
        gki_cuda_leave(device, &scope);
    }
}

static gk_status cuda_synchronize(gki_device *base, void *stream)
{
    gki_cuda_device *device = gki_cuda_device_of(base);
    gki_cuda_scope scope;
    gk_status status = gki_cuda_enter(device, &scope);
    if (status != GK_OK) {
        return status;
    }
    gki_cu_result result = device->api->cuStreamSynchronize(stream);
    if (result != GKI_CU_SUCCESS) {
        status = gki_cuda_fail(device->api, result, "waiting for a stream");
    }
    gki_cuda_leave(device, &scope);
    return status;
}

static gk_status cuda_is_capturing(gki_device *base, void *stream, bool *out)
{
    gki_cuda_device *device = gki_cuda_device_of(base);
    *out = false;
    gki_cuda_scope scope;
    gk_status status = gki_cuda_enter(device, &scope);
    if (status != GK_OK) {
        return status;
    }
    gki_cu_enum capture = GKI_CU_CAPTURE_NONE;
    gki_cu_result result = device->api->cuStreamIsCapturing(stream, &capture);
    if (result == GKI_CU_STREAM_CAPTURE_IMPLICIT) {
        /* The default stream, which a capturing stream would have to wait for. */
        *out = true;
    } else if (result != GKI_CU_SUCCESS) {
        status = gki_cuda_fail(device->api, result, "asking whether a stream is being captured");
    } else {
        *out = capture != GKI_CU_CAPTURE_NONE;
    }
    gki_cuda_leave(device, &scope);
    return status;
}

static gk_status cuda_compile(gki_device *base, const char *source, gki_compiled *out)
{
    return gki_nvrtc_compile(gki_cuda_device_of(base)->info.arch, source, out);
}

const gki_driver gki_driver_cuda = {
    .name = "cuda",
    .open = cuda_open,
    .close = cuda_close,
    .info = cuda_info,
    .mem_alloc = cuda_mem_alloc,
    .mem_free = cuda_mem_free,
    .copy_in = cuda_copy_in,
    .copy_in_2d = cuda_copy_in_2d,
    .copy_out = cuda_copy_out,
    .copy_dev = cuda_copy_dev,
    .fill = cuda_fill,
    .stream_create = cuda_stream_create,
    .stream_destroy = cuda_stream_destroy,
    .synchronize = cuda_synchronize,
    .is_capturing = cuda_is_capturing,
    .compile = cuda_compile,
    .module_load = gki_cuda_module_load,
    .module_unload = gki_cuda_module_unload,
    .module_reserve = gki_cuda_module_reserve,
    .resident = gki_cuda_resident,
    .launch = gki_cuda_launch,
    .map_encode = gki_cuda_map_encode,
    .time = gki_cuda_time,
    .time_done = gki_cuda_time_done,
};
