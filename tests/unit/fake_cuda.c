#define _GNU_SOURCE
#include "fake_cuda.h"

#include <stdbool.h>

#include "driver/cuda/cuda_abi.h"
#include "fake_env.h"

#define DECLARE(name, params) gki_cu_result name params;
GKI_CUDA_SYMBOLS(DECLARE)
GKI_CUDA_STRUCT_SYMBOLS(DECLARE)
GKI_CUDA_LATER_SYMBOLS(DECLARE)

enum { MAX_DEPTH = 16, INVALID_CONTEXT = 201, INVALID_HANDLE = 400, UNSUPPORTED_CAPTURE = 900 };

struct CUmod_st {
    int loaded;
};

struct CUevent_st {
    uint64_t us;
};

struct CUgraph_st {
    uint32_t nodes;
    uint32_t loose; /* the last node depends on nothing yet */
};

fake_cuda fake_cuda_state;

static fake_cuda *const fake = &fake_cuda_state;
static uint64_t clock_us;
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

unsigned fake_cuda_need_context(void)
{
    return depth > 0 && stack[depth - 1] == primary_context() ? 0 : (gki_cu_result)INVALID_CONTEXT;
}

/* For calls that a capture in global mode forbids to every thread that is not in relaxed mode. */
static gki_cu_result need_safe(void)
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
        *value = 52428800;
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
    gki_cu_result result = fake->fail_alloc != 0 ? fake->fail_alloc : need_safe();
    if (result == 0) {
        *ptr = (gki_cu_ptr)(uintptr_t)aligned_alloc(256, (bytes + 255) / 256 * 256);
        fake->live_allocs++;
    }
    return result;
}

gki_cu_result cuMemFree_v2(gki_cu_ptr ptr)
{
    gki_cu_result result = need_safe();
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
    event->us = clock_us;
    return stream != NULL ? fake_cuda_need_context() : (gki_cu_result)INVALID_HANDLE;
}

gki_cu_result cuEventSynchronize(gki_cu_event event)
{
    (void)event;
    return fake->fail_sync != 0 ? fake->fail_sync : need_safe();
}

gki_cu_result cuEventElapsedTime(float *ms, gki_cu_event start, gki_cu_event end)
{
    *ms = (float)(end->us - start->us) * 1e-3F;
    return fake_cuda_need_context();
}

gki_cu_result cuModuleLoadData(gki_cu_module *module, const void *image)
{
    (void)image;
    const gki_cu_result scripted = (gki_cu_result)fake_number("FAKE_CUDA", "load", 0);
    gki_cu_result result = fake->fail_load != 0 ? fake->fail_load
                           : scripted != 0      ? scripted
                                                : need_safe();
    if (result == 0) {
        *module = calloc(1, sizeof(**module));
        fake->live_modules++;
        fake->max_dynamic = 49152U - (uint32_t)fake->static_smem;
        fake->non_portable = 0;
    }
    return result;
}

gki_cu_result cuModuleUnload(gki_cu_module module)
{
    free(module);
    fake->live_modules--;
    return need_safe();
}

gki_cu_result cuModuleGetFunction(gki_cu_function *function, gki_cu_module module, const char *name)
{
    *function = (gki_cu_function)(void *)module;
    return strcmp(name, "absent") == 0 ? (gki_cu_result)GKI_CU_NOT_FOUND : fake_cuda_need_context();
}

gki_cu_result cuFuncGetAttribute(int *value, gki_cu_enum attribute, gki_cu_function function)
{
    (void)function;
    switch (attribute) {
    case GKI_CU_FUNC_MAX_THREADS_PER_BLOCK:
        *value = 256;
        break;
    case GKI_CU_FUNC_SHARED_SIZE_BYTES:
        *value = fake->static_smem;
        break;
    case GKI_CU_FUNC_LOCAL_SIZE_BYTES:
        *value = 16;
        break;
    case GKI_CU_FUNC_NUM_REGS:
        *value = 40;
        break;
    case GKI_CU_FUNC_MAX_DYNAMIC_SHARED_SIZE_BYTES:
        *value = (int)fake->max_dynamic;
        break;
    default:
        return GKI_CU_INVALID_VALUE;
    }
    return fake_cuda_need_context();
}

gki_cu_result cuFuncSetAttribute(gki_cu_function function, gki_cu_enum attribute, int value)
{
    (void)function;
    if (attribute == GKI_CU_FUNC_NON_PORTABLE_CLUSTER_SIZE_ALLOWED) {
        fake->non_portable = value;
        return fake_cuda_need_context();
    }
    long optin = fake_number("FAKE_CUDA", "optin", 232448);
    if (attribute != GKI_CU_FUNC_MAX_DYNAMIC_SHARED_SIZE_BYTES ||
        value > optin - fake->static_smem) {
        return GKI_CU_INVALID_VALUE;
    }
    fake->max_dynamic = (uint32_t)value;
    return fake_cuda_need_context();
}

static gki_cu_result record(fake_launch *list, uint32_t *n, fake_launch launch, void **params)
{
    if (launch.smem > fake->max_dynamic || launch.grid == 0 ||
        (launch.cluster > 8 && fake->non_portable == 0)) {
        return GKI_CU_INVALID_VALUE;
    }
    memcpy(&launch.arg, params[0], sizeof(launch.arg));
    if (*n < FAKE_MAX_LAUNCHES) {
        list[*n] = launch;
    }
    (*n)++;
    return fake->fail_launch != 0 ? fake->fail_launch : fake_cuda_need_context();
}

gki_cu_result cuLaunchKernel(gki_cu_function function, unsigned int grid_x, unsigned int grid_y,
                             unsigned int grid_z, unsigned int block_x, unsigned int block_y,
                             unsigned int block_z, unsigned int smem, gki_cu_stream stream,
                             void **params, void **extra)
{
    (void)function;
    if (grid_y != 1 || grid_z != 1 || block_y != 1 || block_z != 1 || extra != NULL) {
        return GKI_CU_INVALID_VALUE;
    }
    fake_launch launch = {grid_x, block_x, smem, 1, 0, 0, stream, 0};
    clock_us += FAKE_LAUNCH_US;
    return record(fake->launches, &fake->n_launches, launch, params);
}

static bool set_attribute(fake_launch *launch, gki_cu_enum id, const gki_cu_attribute_value *value)
{
    if (id == GKI_CU_ATTRIBUTE_CLUSTER_DIMENSION && value->cluster.y == 1 &&
        value->cluster.z == 1) {
        launch->cluster = value->cluster.x;
        return true;
    }
    if (id == GKI_CU_ATTRIBUTE_PROGRAMMATIC_SERIALIZATION) {
        launch->overlap = (uint32_t)value->programmatic_serialization;
        return true;
    }
    launch->cooperative = (uint32_t)value->cooperative;
    return id == GKI_CU_ATTRIBUTE_COOPERATIVE;
}

static bool read_config(const gki_cu_launch_config *config, fake_launch *launch)
{
    const fake_launch plain = {
        config->grid_x, config->block_x, config->smem, 1, 0, 0, config->stream, 0};
    *launch = plain;
    for (unsigned i = 0; i < config->n_attrs; i++) {
        if (!set_attribute(launch, config->attrs[i].id, &config->attrs[i].value)) {
            return false;
        }
    }
    return config->n_attrs > 0 && config->grid_y == 1 && config->block_y == 1;
}

gki_cu_result cuOccupancyMaxActiveClusters(int *count, gki_cu_function function,
                                           const gki_cu_launch_config *config)
{
    (void)function;
    *count = fake->resident;
    if (!read_config(config, &fake->occupancy)) {
        return GKI_CU_INVALID_VALUE;
    }
    return fake->fail_occupancy != 0 ? fake->fail_occupancy : fake_cuda_need_context();
}

gki_cu_result cuOccupancyMaxActiveBlocksPerMultiprocessor(int *count, gki_cu_function function,
                                                          int threads, size_t smem)
{
    (void)function;
    *count = fake->resident;
    fake->occupancy = (fake_launch){.threads = (uint32_t)threads, .smem = (uint32_t)smem};
    return fake->fail_occupancy != 0 ? fake->fail_occupancy : fake_cuda_need_context();
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

gki_cu_result cuLaunchKernelEx(const gki_cu_launch_config *config, gki_cu_function function,
                               void **params, void **extra)
{
    (void)function;
    fake_launch launch;
    if (!read_config(config, &launch) || extra != NULL) {
        return GKI_CU_INVALID_VALUE;
    }
    clock_us += FAKE_LAUNCH_US;
    return record(fake->launches, &fake->n_launches, launch, params);
}

gki_cu_result cuGraphCreate(gki_cu_graph *graph, unsigned int flags)
{
    (void)flags;
    *graph = calloc(1, sizeof(**graph));
    fake->live_graphs++;
    return fake_cuda_need_context();
}

gki_cu_result cuGraphDestroy(gki_cu_graph graph)
{
    free(graph);
    fake->live_graphs--;
    return fake_cuda_need_context();
}

gki_cu_result cuGraphAddKernelNode_v2(gki_cu_node *node, gki_cu_graph graph,
                                      const gki_cu_node *after, size_t n_after,
                                      const gki_cu_kernel_node *kernel)
{
    /* Nodes form a chain: each but the first depends on the one before. */
    if (n_after > 1 || (n_after == 1 && (uintptr_t)after[0] != graph->nodes) || graph->loose ||
        kernel->extra != NULL) {
        return GKI_CU_INVALID_VALUE;
    }
    graph->loose = n_after == 0 && graph->nodes > 0;
    graph->nodes++;
    *node = memory(graph->nodes);
    fake_launch launch = {kernel->grid_x, kernel->block_x, kernel->smem, 1, 0, 0, NULL, 0};
    return record(fake->nodes, &fake->n_nodes, launch, kernel->params);
}

gki_cu_result cuGraphAddDependencies_v2(gki_cu_graph graph, const gki_cu_node *from,
                                        const gki_cu_node *to, const gki_cu_edge *edge, size_t n)
{
    if (n != 1 || !graph->loose || (uintptr_t)*to != graph->nodes ||
        (uintptr_t)*from != graph->nodes - 1 || edge->to_port != 0 || edge->reserved[0] != 0 ||
        edge->from_port != GKI_CU_PORT_PROGRAMMATIC ||
        edge->type != GKI_CU_DEPENDENCY_PROGRAMMATIC) {
        return GKI_CU_INVALID_VALUE;
    }
    graph->loose = 0;
    if (fake->n_nodes <= FAKE_MAX_LAUNCHES) { /* those behind are not recorded */
        fake->nodes[fake->n_nodes - 1].overlap = 1;
    }
    return 0;
}

gki_cu_result cuGraphKernelNodeSetAttribute(gki_cu_node node, gki_cu_enum attribute,
                                            const gki_cu_attribute_value *value)
{
    (void)node;
    if (fake->n_nodes > FAKE_MAX_LAUNCHES ||
        !set_attribute(&fake->nodes[fake->n_nodes - 1], attribute, value)) {
        return GKI_CU_INVALID_VALUE;
    }
    return fake_cuda_need_context();
}

gki_cu_result cuGraphInstantiateWithFlags(gki_cu_graph_exec *exec, gki_cu_graph graph,
                                          unsigned long long flags)
{
    (void)flags;
    gki_cu_graph copy = malloc(sizeof(*copy));
    if (copy == NULL) {
        return GKI_CU_OUT_OF_MEMORY;
    }
    *copy = *graph;
    *exec = (gki_cu_graph_exec)(void *)copy;
    fake->live_execs++;
    return fake_cuda_need_context();
}

gki_cu_result cuGraphLaunch(gki_cu_graph_exec exec, gki_cu_stream stream)
{
    gki_cu_graph graph = (gki_cu_graph)(void *)exec;
    clock_us += (uint64_t)graph->nodes * FAKE_NODE_US;
    fake->graph_launches++;
    const gki_cu_result scripted = (gki_cu_result)fake_number("FAKE_CUDA", "graph", 0);
    if (scripted != 0) {
        return scripted;
    }
    return stream != NULL ? fake_cuda_need_context() : (gki_cu_result)INVALID_HANDLE;
}

gki_cu_result cuGraphExecDestroy(gki_cu_graph_exec exec)
{
    free(exec);
    fake->live_execs--;
    return fake_cuda_need_context();
}
