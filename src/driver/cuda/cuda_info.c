#include <string.h>

#include "base/str.h"
#include "driver/cuda/cuda_device.h"

/* One attribute and where it goes. */
typedef struct attribute {
    const char *name;
    int32_t *narrow;
    int64_t *wide;
    gki_cu_enum id;
    bool optional; /* newer drivers may cease to report it */
} attribute;

static gk_status read_attributes(const gki_cuda_device *device, const attribute *list, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        int value = 0;
        gki_cu_result result =
            device->api->cuDeviceGetAttribute(&value, list[i].id, device->handle);
        if (result != GKI_CU_SUCCESS && !list[i].optional) {
            return gki_cuda_fail(device->api, result, "reading the device's %s", list[i].name);
        }
        if (result != GKI_CU_SUCCESS) {
            value = 0;
        }
        if (list[i].narrow != NULL) {
            *list[i].narrow = value;
        } else {
            *list[i].wide = value;
        }
    }
    return GK_OK;
}

gk_status gki_cuda_read_info(gki_cuda_device *device, int32_t ordinal)
{
    gk_device_info *info = &device->info;
    int32_t major = 0;
    int32_t minor = 0;
    const attribute list[] = {
#define ATTRIBUTE(id, narrow, wide, optional) {#id, narrow, wide, GKI_CU_DEVICE_##id, optional}
        ATTRIBUTE(COMPUTE_CAPABILITY_MAJOR, &major, NULL, false),
        ATTRIBUTE(COMPUTE_CAPABILITY_MINOR, &minor, NULL, false),
        ATTRIBUTE(MULTIPROCESSOR_COUNT, &info->sm_count, NULL, false),
        ATTRIBUTE(MAX_THREADS_PER_BLOCK, &info->max_threads_per_block, NULL, false),
        ATTRIBUTE(MAX_THREADS_PER_MULTIPROCESSOR, &info->max_threads_per_sm, NULL, false),
        ATTRIBUTE(MAX_REGISTERS_PER_MULTIPROCESSOR, &info->regs_per_sm, NULL, false),
        ATTRIBUTE(MAX_REGISTERS_PER_BLOCK, &info->regs_per_block, NULL, false),
        ATTRIBUTE(CLOCK_RATE, &info->clock_khz, NULL, true),
        ATTRIBUTE(MEMORY_CLOCK_RATE, &info->memory_clock_khz, NULL, true),
        ATTRIBUTE(GLOBAL_MEMORY_BUS_WIDTH, &info->memory_bus_bits, NULL, true),
        ATTRIBUTE(MAX_SHARED_MEMORY_PER_BLOCK, NULL, &info->smem_per_block, false),
        ATTRIBUTE(MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, NULL, &info->smem_per_block_optin, true),
        ATTRIBUTE(MAX_SHARED_MEMORY_PER_MULTIPROCESSOR, NULL, &info->smem_per_sm, false),
        ATTRIBUTE(L2_CACHE_SIZE, NULL, &info->l2_bytes, false),
#undef ATTRIBUTE
    };
    gk_status status = read_attributes(device, list, sizeof(list) / sizeof(list[0]));
    if (status != GK_OK) {
        return status;
    }
    size_t memory = 0;
    gki_cu_result result = device->api->cuDeviceTotalMem_v2(&memory, device->handle);
    if (result == GKI_CU_SUCCESS) {
        result = device->api->cuDeviceGetName(info->name, (int)sizeof(info->name), device->handle);
    }
    if (result != GKI_CU_SUCCESS) {
        return gki_cuda_fail(device->api, result, "reading the device's name and memory size");
    }
    info->name[sizeof(info->name) - 1] = '\0';
    info->memory_bytes = (int64_t)memory;
    info->ordinal = ordinal;
    info->cc = major * 10 + minor;
    info->driver_version = device->api->version;
    if (info->smem_per_block_optin < info->smem_per_block) {
        info->smem_per_block_optin = info->smem_per_block;
    }
    return GK_OK;
}
