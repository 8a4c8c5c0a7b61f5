/* The architectures that compile_sweep compiles for, each as a device that only says what it is. */
#ifndef DESCRIBED_DEVICE_H
#define DESCRIBED_DEVICE_H

#include <stdio.h>

#include "driver/cuda/nvrtc.h"
#include "driver/driver.h"

/* An architecture by what limits its configurations: a chip that has it, as its data sheet says. */
typedef struct arch {
    const char *name;
    int32_t cc;
    int32_t sm_count;
    int32_t max_threads_per_sm;
    int64_t smem_optin;
} arch;

static const arch archs[] = {
    {"sm_80", 80, 108, 2048, 166912},    {"sm_86", 86, 84, 1536, 101376},
    {"sm_89", 89, 128, 1536, 101376},    {"sm_90a", 90, 132, 2048, 232448},
    {"sm_100a", 100, 148, 2048, 232448}, {"sm_120a", 120, 170, 1536, 101376},
};
enum { N_ARCHS = sizeof(archs) / sizeof(archs[0]) };

typedef struct described_device {
    gki_device base;
    gk_device_info info;
} described_device;

static void describe(gki_device *device, gk_device_info *out)
{
    *out = ((const described_device *)device)->info;
}

static const gki_driver describing_driver = {.name = "cuda", .info = describe};

static described_device make_device(const arch *a, const gki_nvrtc_api *nvrtc)
{
    described_device device = {.base = {&describing_driver}};
    gk_device_info *info = &device.info;
    (void)snprintf(info->name, sizeof(info->name), "any %s", a->name);
    (void)snprintf(info->arch, sizeof(info->arch), "%s", a->name);
    (void)snprintf(info->compiler, sizeof(info->compiler), "nvrtc %d.%d", nvrtc->major,
                   nvrtc->minor);
    info->cc = a->cc;
    info->sm_count = a->sm_count;
    info->max_threads_per_block = 1024;
    info->max_threads_per_sm = a->max_threads_per_sm;
    info->regs_per_sm = 65536;
    info->regs_per_block = 65536;
    info->clock_khz = 1500000;
    info->memory_clock_khz = 2000000;
    info->memory_bus_bits = 4096;
    info->driver_version = nvrtc->major * 1000 + nvrtc->minor * 10;
    info->smem_per_block = 49152;
    info->smem_per_block_optin = a->smem_optin;
    info->smem_per_sm = a->smem_optin + 1024;
    info->l2_bytes = 40 * 1024 * 1024;
    info->memory_bytes = (int64_t)16 << 30;
    return device;
}

#endif
