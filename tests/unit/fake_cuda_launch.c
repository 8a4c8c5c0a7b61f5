/* The fake libcuda's modules, launches and graphs. */
#include <stdbool.h>

#include "driver/cuda/cuda_abi.h"
#include "fake_cuda.h"
#include "fake_env.h"

#define DECLARE(name, params) gki_cu_result name params;
GKI_CUDA_SYMBOLS(DECLARE)
GKI_CUDA_STRUCT_SYMBOLS(DECLARE)
GKI_CUDA_LATER_SYMBOLS(DECLARE)

enum { INVALID_HANDLE = 400 };

struct CUmod_st {
    bool text; /* PTX: the kernel that evicts L2 */
};

struct CUgraph_st {
    uint32_t nodes;
    uint32_t loose; /* the last node depends on nothing yet */
    bool replayed;
};

static fake_cuda *const fake = &fake_cuda_state;

gki_cu_result cuModuleLoadData(gki_cu_module *module, const void *image)
{
    const bool text = strncmp(image, ".version", 8) == 0;
    const gki_cu_result scripted = (gki_cu_result)fake_number("FAKE_CUDA", "load", 0);
    fake->ptx_loads += text;
    gki_cu_result result = text && fake->fail_ptx != 0 ? fake->fail_ptx
                           : fake->fail_load != 0      ? fake->fail_load
                           : scripted != 0             ? scripted
                                                       : fake_cuda_need_safe();
    if (result == 0) {
        *module = calloc(1, sizeof(**module));
        fake->live_modules++;
        if (text) {
            (*module)->text = true;
            return result;
        }
        fake->max_dynamic = 49152U - (uint32_t)fake->static_smem;
        fake->non_portable = 0;
    }
    return result;
}

gki_cu_result cuModuleUnload(gki_cu_module module)
{
    free(module);
    fake->live_modules--;
    return fake_cuda_need_safe();
}

gki_cu_result cuModuleGetFunction(gki_cu_function *function, gki_cu_module module, const char *name)
{
    *function = (gki_cu_function)(void *)module;
    if (strcmp(name, "absent") == 0 || (module->text && fake->no_ptx_kernel != 0)) {
        return GKI_CU_NOT_FOUND;
    }
    return fake_cuda_need_context();
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

/* The kernel that evicts L2: finds zeros only, from one end of its buffer to the other. */
static gki_cu_result evict(fake_launch launch, void **params)
{
    gki_cu_ptr begin;
    gki_cu_ptr end;
    memcpy(&begin, params[0], sizeof(begin));
    memcpy(&end, params[1], sizeof(end));
    const char *bytes = (const char *)(uintptr_t)begin;
    fake->flush = launch;
    fake->flush_bytes = end - begin;
    fake->clock_us += FAKE_FLUSH_US;
    fake_cuda_note('F');
    if (end <= begin || bytes[0] != 0 || bytes[end - begin - 1] != 0) {
        return GKI_CU_INVALID_VALUE;
    }
    return fake->fail_flush != 0 ? fake->fail_flush : fake_cuda_need_context();
}

gki_cu_result cuLaunchKernel(gki_cu_function function, unsigned int grid_x, unsigned int grid_y,
                             unsigned int grid_z, unsigned int block_x, unsigned int block_y,
                             unsigned int block_z, unsigned int smem, gki_cu_stream stream,
                             void **params, void **extra)
{
    if (grid_y != 1 || grid_z != 1 || block_y != 1 || block_z != 1 || extra != NULL) {
        return GKI_CU_INVALID_VALUE;
    }
    fake_launch launch = {grid_x, block_x, smem, 1, 0, 0, stream, 0};
    /* A library that is not gk launches functions of no module. */
    const struct CUmod_st *module = (gki_cu_module)(void *)function;
    if (module != NULL && module->text) {
        return evict(launch, params);
    }
    fake->clock_us += FAKE_LAUNCH_US;
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

gki_cu_result cuLaunchKernelEx(const gki_cu_launch_config *config, gki_cu_function function,
                               void **params, void **extra)
{
    (void)function;
    fake_launch launch;
    if (!read_config(config, &launch) || extra != NULL) {
        return GKI_CU_INVALID_VALUE;
    }
    fake->clock_us += FAKE_LAUNCH_US;
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
    *node = (gki_cu_node)(uintptr_t)graph->nodes;
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
    fake->clock_us += graph->replayed ? 0 : FAKE_FIRST_US;
    graph->replayed = true;
    fake->clock_us += (uint64_t)graph->nodes * FAKE_NODE_US;
    fake->graph_launches++;
    fake->graph_stream = stream;
    fake_cuda_note('G');
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
