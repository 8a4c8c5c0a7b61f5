/* How long launches take. */
#include <string.h>

#include "base/error.h"
#include "base/hash.h"
#include "driver/cuda/cuda_device.h"

/* Kernel nodes in one graph; longer runs replay it. */
enum { MAX_NODES = 1024 };

static gk_status create_resources(gki_cuda_device *device)
{
    const gki_cuda_api *api = device->api;
    gki_cu_result result = GKI_CU_SUCCESS;
    if (device->timing_stream == NULL) {
        result = api->cuStreamCreate(&device->timing_stream, GKI_CU_STREAM_NON_BLOCKING);
    }
    if (result == GKI_CU_SUCCESS && device->timing_start == NULL) {
        result = api->cuEventCreate(&device->timing_start, GKI_CU_EVENT_DEFAULT);
    }
    if (result == GKI_CU_SUCCESS && device->timing_end == NULL) {
        result = api->cuEventCreate(&device->timing_end, GKI_CU_EVENT_DEFAULT);
    }
    return result == GKI_CU_SUCCESS ? GK_OK
                                    : gki_cuda_fail(api, result, "creating a stream for timing");
}

/* All graphs, before what they launch may go. */
static void drop_graphs(gki_cuda_device *device)
{
    for (uint32_t i = 0; i < GKI_CUDA_MAX_GRAPHS; i++) {
        if (device->graphs[i].exec != NULL) {
            device->api->cuGraphExecDestroy(device->graphs[i].exec);
        }
        device->graphs[i] = (gki_cuda_graph){0};
    }
}

void gki_cuda_time_drop(gki_cuda_device *device)
{
    pthread_mutex_lock(&device->timing);
    drop_graphs(device);
    pthread_mutex_unlock(&device->timing);
}

void gki_cuda_time_done(gki_device *base)
{
    gki_cuda_device *device = gki_cuda_device_of(base);
    gki_cuda_scope scope;
    if (gki_cuda_enter_relaxed(device, &scope) == GK_OK) {
        pthread_mutex_lock(&device->timing);
        drop_graphs(device);
        gki_cuda_flush_done(device);
        pthread_mutex_unlock(&device->timing);
        gki_cuda_leave(device, &scope);
    }
}

void gki_cuda_time_close(gki_cuda_device *device)
{
    drop_graphs(device);
    gki_cuda_flush_close(device);
    if (device->timing_start != NULL) {
        device->api->cuEventDestroy_v2(device->timing_start);
    }
    if (device->timing_end != NULL) {
        device->api->cuEventDestroy_v2(device->timing_end);
    }
    if (device->timing_stream != NULL) {
        device->api->cuStreamDestroy_v2(device->timing_stream);
    }
    device->timing_start = NULL;
    device->timing_end = NULL;
    device->timing_stream = NULL;
}

/* Waits for the stream unless it is being captured, or, being the default stream, must not be used
 * because another one is. */
static gki_cu_result wait_for(const gki_cuda_api *api, gki_cu_stream stream)
{
    gki_cu_enum capture = GKI_CU_CAPTURE_NONE;
    gki_cu_result result = api->cuStreamIsCapturing(stream, &capture);
    if (result == GKI_CU_STREAM_CAPTURE_IMPLICIT ||
        (result == GKI_CU_SUCCESS && capture != GKI_CU_CAPTURE_NONE)) {
        return GKI_CU_SUCCESS;
    }
    return result == GKI_CU_SUCCESS ? api->cuStreamSynchronize(stream) : result;
}

/* Waits for the default stream and the driver's own. Waiting for the whole context would break a
 * capture that another thread is making. */
static gk_status wait_for_queued(gki_cuda_device *device)
{
    gki_cu_stream streams[GKI_CUDA_MAX_STREAMS + 1] = {NULL};
    pthread_mutex_lock(&device->lock);
    uint32_t n = device->n_streams;
    for (uint32_t i = 0; i < n; i++) {
        streams[i + 1] = device->streams[i];
    }
    pthread_mutex_unlock(&device->lock);
    for (uint32_t i = 0; i <= n; i++) {
        gki_cu_result result = wait_for(device->api, streams[i]);
        if (result != GKI_CU_SUCCESS) {
            return gki_cuda_fail(device->api, result, "waiting for queued work before timing");
        }
    }
    return GK_OK;
}

/* The time from start to end, both recorded already. */
static gk_status read_elapsed(const gki_cuda_device *device, double *seconds)
{
    float milliseconds = 0;
    gki_cu_result result = device->api->cuEventSynchronize(device->timing_end);
    if (result == GKI_CU_SUCCESS) {
        result = device->api->cuEventElapsedTime(&milliseconds, device->timing_start,
                                                 device->timing_end);
    }
    if (result != GKI_CU_SUCCESS) {
        return gki_cuda_fail(device->api, result, "timing kernels");
    }
    *seconds = (double)milliseconds * 1e-3;
    return GK_OK;
}

static gk_status time_stream(const gki_cuda_device *device, const gki_kernel_launch *launches,
                             uint32_t count, uint32_t repeats, double *seconds)
{
    const gki_cuda_api *api = device->api;
    gki_cu_result result = api->cuEventRecord(device->timing_start, device->timing_stream);
    for (uint32_t r = 0; r < repeats && result == GKI_CU_SUCCESS; r++) {
        for (uint32_t i = 0; i < count; i++) {
            result = gki_cuda_launch_entered(device, &launches[i], device->timing_stream);
            if (result != GKI_CU_SUCCESS) {
                gk_status status = gki_cuda_fail_launch(device, &launches[i], result);
                /* The caller may free what the launches before use. */
                api->cuStreamSynchronize(device->timing_stream);
                return status;
            }
        }
    }
    if (result == GKI_CU_SUCCESS) {
        result = api->cuEventRecord(device->timing_end, device->timing_stream);
    }
    if (result != GKI_CU_SUCCESS) {
        gk_status status = gki_cuda_fail(api, result, "timing kernels");
        api->cuStreamSynchronize(device->timing_stream);
        return status;
    }
    gk_status status = read_elapsed(device, seconds);
    *seconds /= (double)count * (double)repeats;
    return status;
}

/* Adds one launch behind the node *last. The graph is built node by node, not captured, so that no
 * other thread's calls can break it, and it none of theirs. */
static gki_cu_result add_node(const gki_cuda_device *device, gki_cu_graph graph,
                              const gki_kernel_launch *launch, gki_cu_node *last)
{
    void *params[1];
    memcpy(params, &launch->args, sizeof(params));
    const gki_cu_kernel_node node = {
        .function = gki_cuda_module_of(launch->module)->function,
        .grid_x = (unsigned int)launch->grid,
        .grid_y = 1,
        .grid_z = 1,
        .block_x = (unsigned int)launch->threads,
        .block_y = 1,
        .block_z = 1,
        .smem = (unsigned int)launch->smem,
        .params = params,
    };
    static const gki_cu_edge early = {.from_port = GKI_CU_PORT_PROGRAMMATIC,
                                      .type = GKI_CU_DEPENDENCY_PROGRAMMATIC};
    const gki_cuda_api *api = device->api;
    const bool overlaps =
        *last != NULL && launch->overlap && api->cuGraphAddDependencies_v2 != NULL;
    gki_cu_node added = NULL;
    gki_cu_result result = api->cuGraphAddKernelNode_v2(&added, graph, last,
                                                        *last != NULL && !overlaps ? 1 : 0, &node);
    if (result == GKI_CU_SUCCESS && overlaps) {
        result = api->cuGraphAddDependencies_v2(graph, last, &added, &early, 1);
    }
    gki_cu_attribute attributes[GKI_CUDA_ATTRIBUTES];
    const uint32_t n = gki_cuda_attributes(launch, false, attributes);
    for (uint32_t i = 0; i < n && result == GKI_CU_SUCCESS; i++) {
        result = api->cuGraphKernelNodeSetAttribute(added, attributes[i].id, &attributes[i].value);
    }
    *last = added;
    return result;
}

/* A graph of `nodes` launches, one after the other. */
static gk_status build_graph(const gki_cuda_device *device, const gki_kernel_launch *launches,
                             uint32_t count, uint32_t nodes, gki_cu_graph_exec *out)
{
    const gki_cuda_api *api = device->api;
    gki_cu_graph graph = NULL;
    gki_cu_result result = api->cuGraphCreate(&graph, 0);
    if (result != GKI_CU_SUCCESS) {
        return gki_cuda_fail(api, result, "creating a graph");
    }
    gk_status status = GK_OK;
    gki_cu_node last = NULL;
    for (uint32_t i = 0; i < nodes && status == GK_OK; i++) {
        const gki_kernel_launch *launch = &launches[i % count];
        result = add_node(device, graph, launch, &last);
        if (result != GKI_CU_SUCCESS) {
            status = gki_cuda_fail_launch(device, launch, result);
        }
    }
    if (status == GK_OK) {
        result = api->cuGraphInstantiateWithFlags(out, graph, 0);
        if (result != GKI_CU_SUCCESS) {
            status = gki_cuda_fail_launch(device, &launches[0], result);
        }
    }
    api->cuGraphDestroy(graph);
    return status;
}

/* What comes before a timed replay: a new graph's first one, for which the host takes longer, and
 * the flush, whose some 30 us hide the host's time for launching a graph that it knows. */
static gk_status make_ready(const gki_cuda_device *device, gki_cu_graph_exec exec, bool made,
                            bool flush)
{
    const gki_cuda_api *api = device->api;
    if (!flush || made) {
        gki_cu_result result = api->cuGraphLaunch(exec, device->timing_stream);
        if (result != GKI_CU_SUCCESS) {
            return gki_cuda_fail(api, result, "replaying a graph");
        }
    }
    return flush ? gki_cuda_flush_launch(device) : GK_OK;
}

static gk_status replay(const gki_cuda_device *device, gki_cu_graph_exec exec, uint64_t replays,
                        double *seconds)
{
    const gki_cuda_api *api = device->api;
    gki_cu_stream stream = device->timing_stream;
    gki_cu_result result = api->cuEventRecord(device->timing_start, stream);
    for (uint64_t i = 0; i < replays && result == GKI_CU_SUCCESS; i++) {
        result = api->cuGraphLaunch(exec, stream);
    }
    if (result == GKI_CU_SUCCESS) {
        result = api->cuEventRecord(device->timing_end, stream);
    }
    if (result != GKI_CU_SUCCESS) {
        return gki_cuda_fail(api, result, "replaying a graph");
    }
    return read_elapsed(device, seconds);
}

/* Of all that a graph of these launches depends on. */
static uint64_t key_of(const gki_kernel_launch *launches, uint32_t count, uint64_t nodes)
{
    uint64_t key = nodes;
    for (uint32_t i = 0; i < count; i++) {
        const gki_kernel_launch *l = &launches[i];
        const uint64_t words[] = {
            key,
            (uintptr_t)gki_cuda_module_of(l->module)->function,
            (uint64_t)l->grid,
            (uint64_t)l->threads,
            (uint64_t)l->cluster,
            (uint64_t)(l->cooperative != 0) * 2 + (l->overlap != 0),
            (uint64_t)l->smem,
            gki_hash64(l->args, l->args_size),
        };
        key = gki_hash64(words, sizeof(words));
    }
    return key;
}

/* The graph of these launches: one that was timed lately, or a new one, just made, in the place of
 * that which was not for longest. */
static gk_status find_graph(gki_cuda_device *device, const gki_kernel_launch *launches,
                            uint32_t count, uint64_t nodes, gki_cu_graph_exec *out, bool *made)
{
    const uint64_t key = key_of(launches, count, nodes);
    *made = false;
    gki_cuda_graph *oldest = &device->graphs[0];
    device->n_timings++;
    for (uint32_t i = 0; i < GKI_CUDA_MAX_GRAPHS; i++) {
        gki_cuda_graph *graph = &device->graphs[i];
        if (graph->exec != NULL && graph->key == key) {
            graph->used = device->n_timings;
            *out = graph->exec;
            return GK_OK;
        }
        oldest = graph->used < oldest->used ? graph : oldest;
    }
    gk_status status = build_graph(device, launches, count, (uint32_t)nodes, out);
    if (status == GK_OK) {
        *made = true;
        if (oldest->exec != NULL) {
            device->api->cuGraphExecDestroy(oldest->exec);
        }
        *oldest = (gki_cuda_graph){*out, key, device->n_timings};
    }
    return status;
}

static gk_status time_graph(gki_cuda_device *device, const gki_kernel_launch *launches,
                            uint32_t count, uint32_t repeats, double *seconds)
{
    uint64_t total = (uint64_t)count * repeats;
    uint64_t nodes = total;
    if (total > MAX_NODES) {
        nodes = count < MAX_NODES ? MAX_NODES / count * count : count;
    }
    uint64_t replays = (total + nodes - 1) / nodes;
    gki_cu_graph_exec exec = NULL;
    bool made = false;
    bool flush = false;
    gk_status status = gki_cuda_flush_prepare(device, &flush);
    if (status == GK_OK) {
        status = find_graph(device, launches, count, nodes, &exec, &made);
    }
    if (status != GK_OK) {
        return status;
    }
    status = make_ready(device, exec, made, flush);
    if (status == GK_OK) {
        status = replay(device, exec, replays, seconds);
    }
    if (status != GK_OK) {
        device->api->cuStreamSynchronize(device->timing_stream);
        drop_graphs(device);
    }
    *seconds /= (double)(nodes * replays);
    return status;
}

gk_status gki_cuda_time(gki_device *base, const gki_kernel_launch *launches, uint32_t count,
                        uint32_t repeats, bool graph, double *seconds)
{
    gki_cuda_device *device = gki_cuda_device_of(base);
    *seconds = 0;
    if (count == 0 || repeats == 0) {
        return gk_fail(GK_ERR_INTERNAL, "cuda", "timing %u launches %u times", (unsigned)count,
                       (unsigned)repeats);
    }
    gki_cuda_scope scope;
    gk_status status = gki_cuda_enter_relaxed(device, &scope);
    if (status != GK_OK) {
        return status;
    }
    pthread_mutex_lock(&device->timing);
    status = create_resources(device);
    if (status == GK_OK) {
        status = wait_for_queued(device);
    }
    if (status == GK_OK) {
        status = graph ? time_graph(device, launches, count, repeats, seconds)
                       : time_stream(device, launches, count, repeats, seconds);
    }
    pthread_mutex_unlock(&device->timing);
    gki_cuda_leave(device, &scope);
    return status;
}
