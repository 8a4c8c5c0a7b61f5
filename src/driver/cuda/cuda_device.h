/* What the files of the CUDA driver share. */
#ifndef GKI_CUDA_DEVICE_H
#define GKI_CUDA_DEVICE_H

#include <pthread.h>

#include "driver/cuda/cuda_syms.h"
#include "driver/driver.h"

enum { GKI_CUDA_MAX_STREAMS = 64, GKI_CUDA_MAX_GRAPHS = 12 };

/* A graph that was timed and may be timed again. */
typedef struct gki_cuda_graph {
    gki_cu_graph_exec exec; /* NULL: none */
    uint64_t key;           /* of what is launched, and how often */
    uint64_t used;          /* when, in timings */
} gki_cuda_graph;

/* What evicts L2 before a timing. */
typedef struct gki_cuda_flush {
    gki_cu_module module;
    gki_cu_function kernel; /* NULL: not loaded */
    gki_cu_ptr buffer;      /* 0: none */
    size_t bytes;           /* of the buffer */
    bool no_kernel;         /* it does not load on this device */
    bool no_buffer;         /* there was no memory; asked again after time_done */
    bool noted;             /* one of the two was logged */
} gki_cuda_flush;

typedef struct gki_cuda_device {
    gki_device base;
    const gki_cuda_api *api;
    gki_cu_device handle;
    gki_cu_context context; /* the primary context, retained */
    gki_log log;
    gk_device_info info;

    pthread_mutex_t lock; /* guards what follows, and the limits of functions */
    gki_cu_stream streams[GKI_CUDA_MAX_STREAMS]; /* made by stream_create, waited for by time */
    uint32_t n_streams;

    pthread_mutex_t timing; /* one timing at a time; guards what follows */
    gki_cu_stream timing_stream;
    gki_cu_event timing_start;
    gki_cu_event timing_end;
    gki_cuda_graph graphs[GKI_CUDA_MAX_GRAPHS];
    uint64_t n_timings;
    gki_cuda_flush flush;
} gki_cuda_device;

typedef struct gki_cuda_module {
    gki_module base;
    gki_cu_module handle;
    gki_cu_function function;
    char name[128];
} gki_cuda_module;

static inline gki_cuda_device *gki_cuda_device_of(gki_device *device)
{
    return (gki_cuda_device *)device;
}

static inline gki_cuda_module *gki_cuda_module_of(gki_module *module)
{
    return (gki_cuda_module *)module;
}

/* A stretch of code that runs with the device's context current. */
typedef struct gki_cuda_scope {
    bool pushed;
    bool relaxed;
    gki_cu_enum capture_mode;
} gki_cuda_scope;

static inline gk_status gki_cuda_enter(const gki_cuda_device *device, gki_cuda_scope *scope)
{
    const gki_cuda_api *api = device->api;
    gki_cu_context current = NULL;
    *scope = (gki_cuda_scope){0};
    gki_cu_result result = api->cuCtxGetCurrent(&current);
    if (result == GKI_CU_SUCCESS && current == device->context) {
        return GK_OK;
    }
    result = api->cuCtxPushCurrent_v2(device->context);
    if (result != GKI_CU_SUCCESS) {
        return gki_cuda_fail(api, result, "making the device's context current");
    }
    scope->pushed = true;
    return GK_OK;
}

/* For calls that a capture in global mode, of any thread, would otherwise forbid to all threads. */
static inline gk_status gki_cuda_enter_relaxed(const gki_cuda_device *device, gki_cuda_scope *scope)
{
    gk_status status = gki_cuda_enter(device, scope);
    if (status == GK_OK) {
        scope->capture_mode = GKI_CU_CAPTURE_MODE_RELAXED;
        scope->relaxed =
            device->api->cuThreadExchangeStreamCaptureMode(&scope->capture_mode) == GKI_CU_SUCCESS;
    }
    return status;
}

static inline void gki_cuda_leave(const gki_cuda_device *device, const gki_cuda_scope *scope)
{
    if (scope->relaxed) {
        gki_cu_enum mode = scope->capture_mode;
        device->api->cuThreadExchangeStreamCaptureMode(&mode);
    }
    if (scope->pushed) {
        gki_cu_context popped;
        device->api->cuCtxPopCurrent_v2(&popped);
    }
}

/* cuda_info.c: fills device->info except arch and compiler. */
gk_status gki_cuda_read_info(gki_cuda_device *device, int32_t ordinal);

/* cuda_module.c */
gk_status gki_cuda_module_load(gki_device *device, const void *code, size_t size,
                               const char *kernel, gki_module **out);
void gki_cuda_module_unload(gki_device *device, gki_module *module);
gk_status gki_cuda_module_reserve(gki_device *device, gki_module *module, int64_t smem,
                                  int32_t cluster);
gk_status gki_cuda_resident(gki_device *device, const gki_kernel_launch *launch, int64_t *blocks);
gk_status gki_cuda_launch(gki_device *device, const gki_kernel_launch *launch, void *stream);
/* The attributes that the launch needs in a stream, or as a node of a graph, where an overlap is
 * the dependency's; gives their number. */
enum { GKI_CUDA_ATTRIBUTES = 3 };
uint32_t gki_cuda_attributes(const gki_kernel_launch *launch, bool in_stream,
                             gki_cu_attribute *out);
/* The launch with the device's context current already. */
gki_cu_result gki_cuda_launch_entered(const gki_cuda_device *device,
                                      const gki_kernel_launch *launch, gki_cu_stream stream);
gk_status gki_cuda_fail_launch(const gki_cuda_device *device, const gki_kernel_launch *launch,
                               gki_cu_result result);

/* cuda_map.c */
gk_status gki_cuda_map_encode(gki_device *device, const gk_map_desc *desc, gk_tensor_map *out);

/* cuda_flush.c; the context is current, and the device's timing locked, but for close. */
/* Loads and allocates what is missing. Not ready: L2 cannot be evicted, which is no failure. */
gk_status gki_cuda_flush_prepare(gki_cuda_device *device, bool *ready);
/* Evicts what L2 holds, in the timing stream. */
gk_status gki_cuda_flush_launch(const gki_cuda_device *device);
/* Gives back the memory. */
void gki_cuda_flush_done(gki_cuda_device *device);
/* Gives back all. */
void gki_cuda_flush_close(gki_cuda_device *device);

/* cuda_time.c */
gk_status gki_cuda_time(gki_device *device, const gki_kernel_launch *launches, uint32_t count,
                        uint32_t repeats, bool graph, double *seconds);
void gki_cuda_time_done(gki_device *device);
/* Frees the graphs that timing keeps; the context is current. */
void gki_cuda_time_drop(gki_cuda_device *device);
/* Frees all that timing created; the context is current. */
void gki_cuda_time_close(gki_cuda_device *device);

#endif
