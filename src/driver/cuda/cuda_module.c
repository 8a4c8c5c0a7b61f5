/* Loaded kernels and their launches. */
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/str.h"
#include "driver/cuda/cuda_device.h"

/* More blocks in a cluster need leave of their own. */
enum { PORTABLE_CLUSTER = 8 };

static gk_status fail_load(const gki_cuda_device *device, gki_cu_result result, const char *kernel)
{
    const gk_device_info *info = &device->info;
    return gki_cuda_fail(device->api, result,
                         "loading %s (%s code made by %s; device of compute capability %d.%d, "
                         "driver for CUDA %d.%d)",
                         kernel, info->arch, info->compiler, info->cc / 10, info->cc % 10,
                         info->driver_version / 1000, info->driver_version % 1000 / 10);
}

static gki_cu_result read_attributes(const gki_cuda_api *api, gki_cuda_module *module)
{
    int values[4] = {0};
    static const gki_cu_enum ids[4] = {GKI_CU_FUNC_NUM_REGS, GKI_CU_FUNC_LOCAL_SIZE_BYTES,
                                       GKI_CU_FUNC_MAX_THREADS_PER_BLOCK,
                                       GKI_CU_FUNC_SHARED_SIZE_BYTES};
    for (int i = 0; i < 4; i++) {
        gki_cu_result result = api->cuFuncGetAttribute(&values[i], ids[i], module->function);
        if (result != GKI_CU_SUCCESS) {
            return result;
        }
    }
    module->base.registers = values[0];
    module->base.local_bytes = values[1];
    module->base.max_threads = values[2];
    module->base.static_smem = values[3];
    return GKI_CU_SUCCESS;
}

gk_status gki_cuda_module_load(gki_device *base, const void *code, size_t size, const char *kernel,
                               gki_module **out)
{
    gki_cuda_device *device = gki_cuda_device_of(base);
    const gki_cuda_api *api = device->api;
    *out = NULL;
    if (size == 0) {
        return gk_fail(GK_ERR_DEVICE, "cuda", "loading %s: the code is empty", kernel);
    }
    gki_cuda_module *module = gki_calloc(1, sizeof(*module));
    if (module == NULL) {
        return gki_fail_nomem("cuda", sizeof(*module));
    }
    gki_copy_text(module->name, sizeof(module->name), kernel);
    gki_cuda_scope scope;
    gk_status status = gki_cuda_enter_relaxed(device, &scope);
    if (status != GK_OK) {
        gki_free(module);
        return status;
    }
    gki_cu_result result = api->cuModuleLoadData(&module->handle, code);
    if (result == GKI_CU_SUCCESS) {
        result = api->cuModuleGetFunction(&module->function, module->handle, kernel);
        if (result == GKI_CU_SUCCESS) {
            result = read_attributes(api, module);
            module->base.function = module->function;
        }
        if (result != GKI_CU_SUCCESS) {
            api->cuModuleUnload(module->handle);
        }
    }
    gki_cuda_leave(device, &scope);
    if (result != GKI_CU_SUCCESS) {
        gki_free(module);
        return fail_load(device, result, kernel);
    }
    *out = &module->base;
    return GK_OK;
}

void gki_cuda_module_unload(gki_device *base, gki_module *module)
{
    gki_cuda_device *device = gki_cuda_device_of(base);
    gki_cuda_scope scope;
    if (module == NULL) {
        return;
    }
    if (gki_cuda_enter_relaxed(device, &scope) == GK_OK) {
        gki_cuda_time_drop(device);
        device->api->cuModuleUnload(gki_cuda_module_of(module)->handle);
        gki_cuda_leave(device, &scope);
    }
    gki_free(module);
}

/* Raises the function's limit on dynamic shared memory, never lowers it. The limit stands below
 * 48 KiB for a function with static shared memory, so it is asked for, not assumed. */
static gki_cu_result raise_smem(const gki_cuda_device *device, const gki_cuda_module *module,
                                int64_t smem)
{
    int limit = 0;
    gki_cu_result result = device->api->cuFuncGetAttribute(
        &limit, GKI_CU_FUNC_MAX_DYNAMIC_SHARED_SIZE_BYTES, module->function);
    if (result == GKI_CU_SUCCESS && smem > limit) {
        result = device->api->cuFuncSetAttribute(
            module->function, GKI_CU_FUNC_MAX_DYNAMIC_SHARED_SIZE_BYTES, (int)smem);
    }
    return result;
}

static gk_status reserve_entered(const gki_cuda_device *device, const gki_cuda_module *module,
                                 int64_t smem, int32_t cluster)
{
    gki_cu_result result = raise_smem(device, module, smem);
    if (result != GKI_CU_SUCCESS) {
        return gki_cuda_fail(device->api, result, "%s: %lld bytes of dynamic shared memory",
                             module->name, (long long)smem);
    }
    if (cluster > PORTABLE_CLUSTER) {
        result = device->api->cuFuncSetAttribute(module->function,
                                                 GKI_CU_FUNC_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1);
        if (result != GKI_CU_SUCCESS) {
            return gki_cuda_fail(device->api, result, "%s: clusters of %d blocks", module->name,
                                 (int)cluster);
        }
    }
    return GK_OK;
}

gk_status gki_cuda_module_reserve(gki_device *base, gki_module *module_base, int64_t smem,
                                  int32_t cluster)
{
    gki_cuda_device *device = gki_cuda_device_of(base);
    const gki_cuda_module *module = gki_cuda_module_of(module_base);
    int64_t available = device->info.smem_per_block_optin;
    if (smem > available - module_base->static_smem) {
        return gk_fail(GK_ERR_DEVICE, "cuda",
                       "%s needs %lld bytes of shared memory a block, the device has %lld",
                       module->name, (long long)smem + module_base->static_smem,
                       (long long)available);
    }
    if (cluster > 1 && device->info.cc < 90) {
        return gk_fail(GK_ERR_DEVICE, "cuda",
                       "%s: clusters of %d blocks need compute capability 9.0, the device has "
                       "%d.%d",
                       module->name, (int)cluster, device->info.cc / 10, device->info.cc % 10);
    }
    gki_cuda_scope scope;
    gk_status status = gki_cuda_enter_relaxed(device, &scope);
    if (status != GK_OK) {
        return status;
    }
    pthread_mutex_lock(&device->lock);
    status = reserve_entered(device, module, smem, cluster);
    pthread_mutex_unlock(&device->lock);
    gki_cuda_leave(device, &scope);
    return status;
}

uint32_t gki_cuda_attributes(const gki_kernel_launch *launch, bool in_stream, gki_cu_attribute *out)
{
    uint32_t n = 0;
    if (launch->cluster > 1) {
        out[n] = (gki_cu_attribute){.id = GKI_CU_ATTRIBUTE_CLUSTER_DIMENSION};
        out[n].value.cluster.x = (unsigned int)launch->cluster;
        out[n].value.cluster.y = 1;
        out[n].value.cluster.z = 1;
        n++;
    }
    if (launch->cooperative) {
        out[n] = (gki_cu_attribute){.id = GKI_CU_ATTRIBUTE_COOPERATIVE};
        out[n].value.cooperative = 1;
        n++;
    }
    if (launch->overlap && in_stream) {
        out[n] = (gki_cu_attribute){.id = GKI_CU_ATTRIBUTE_PROGRAMMATIC_SERIALIZATION};
        out[n].value.programmatic_serialization = 1;
        n++;
    }
    return n;
}

static gki_cu_launch_config launch_config(const gki_kernel_launch *launch,
                                          gki_cu_attribute *attributes, gki_cu_stream stream)
{
    const gki_cu_launch_config config = {
        .grid_x = (unsigned int)launch->grid,
        .grid_y = 1,
        .grid_z = 1,
        .block_x = (unsigned int)launch->threads,
        .block_y = 1,
        .block_z = 1,
        .smem = (unsigned int)launch->smem,
        .stream = stream,
        .attrs = attributes,
        .n_attrs = gki_cuda_attributes(launch, true, attributes),
    };
    return config;
}

gki_cu_result gki_cuda_launch_entered(const gki_cuda_device *device,
                                      const gki_kernel_launch *launch, gki_cu_stream stream)
{
    /* The driver copies the parameters and does not write to them. */
    void *params[1];
    memcpy(params, &launch->args, sizeof(params));
    if (launch->cluster > 1 || launch->cooperative || launch->overlap) {
        gki_cu_attribute attributes[GKI_CUDA_ATTRIBUTES];
        const gki_cu_launch_config config = launch_config(launch, attributes, stream);
        return device->api->cuLaunchKernelEx(&config, gki_cuda_module_of(launch->module)->function,
                                             params, NULL);
    }
    return device->api->cuLaunchKernel(
        gki_cuda_module_of(launch->module)->function, (unsigned int)launch->grid, 1, 1,
        (unsigned int)launch->threads, 1, 1, (unsigned int)launch->smem, stream, params, NULL);
}

gk_status gki_cuda_fail_launch(const gki_cuda_device *device, const gki_kernel_launch *launch,
                               gki_cu_result result)
{
    const gki_cuda_module *module = gki_cuda_module_of(launch->module);
    return gki_cuda_fail(device->api, result,
                         "launching %s: %lld blocks of %d threads%s, clusters of %d, %lld bytes of "
                         "shared memory, %d registers a thread",
                         module->name, (long long)launch->grid, (int)launch->threads,
                         launch->cooperative ? " at once" : "", (int)launch->cluster,
                         (long long)launch->smem, (int)module->base.registers);
}

gk_status gki_cuda_resident(gki_device *base, const gki_kernel_launch *launch, int64_t *blocks)
{
    const gki_cuda_device *device = gki_cuda_device_of(base);
    const gki_cuda_module *module = gki_cuda_module_of(launch->module);
    gki_cuda_scope scope;
    *blocks = 0;
    gk_status status = gki_cuda_enter_relaxed(device, &scope);
    if (status != GK_OK) {
        return status;
    }
    int count = 0;
    gki_cu_result result;
    if (launch->cluster > 1) {
        gki_cu_attribute attributes[GKI_CUDA_ATTRIBUTES];
        const gki_cu_launch_config config = launch_config(launch, attributes, NULL);
        result = device->api->cuOccupancyMaxActiveClusters(&count, module->function, &config);
        *blocks = (int64_t)count * launch->cluster;
    } else {
        result = device->api->cuOccupancyMaxActiveBlocksPerMultiprocessor(
            &count, module->function, launch->threads, (size_t)launch->smem);
        *blocks = (int64_t)count * device->info.sm_count;
    }
    if (result != GKI_CU_SUCCESS) {
        *blocks = 0;
        status = gki_cuda_fail(device->api, result,
                               "asking how many blocks of %s, in clusters of %d, fit the device",
                               module->name, (int)launch->cluster);
    }
    gki_cuda_leave(device, &scope);
    return status;
}

gk_status gki_cuda_launch(gki_device *base, const gki_kernel_launch *launch, void *stream)
{
    const gki_cuda_device *device = gki_cuda_device_of(base);
    gki_cuda_scope scope;
    gk_status status = gki_cuda_enter(device, &scope);
    if (status != GK_OK) {
        return status;
    }
    gki_cu_result result = gki_cuda_launch_entered(device, launch, stream);
    gki_cuda_leave(device, &scope);
    return result == GKI_CU_SUCCESS ? GK_OK : gki_cuda_fail_launch(device, launch, result);
}
