#include "devices.h"

/* What both chips have. */
#define HOPPER                                                                                     \
    .cc = 90, .sm_count = 132, .max_threads_per_block = 1024, .max_threads_per_sm = 2048,          \
    .regs_per_sm = 65536, .regs_per_block = 65536, .clock_khz = 1980000, .driver_version = 13000,  \
    .smem_per_block = 49152, .smem_per_block_optin = 232448, .smem_per_sm = 233472,                \
    .arch = "sm_90a", .compiler = "nvrtc 13.0"

const gk_device_info fake_h100 = {
    HOPPER,
    .name = "fake H100",
    .memory_clock_khz = 2619000,
    .memory_bus_bits = 5120,
    .l2_bytes = 52428800,
    .memory_bytes = INT64_C(85899345920),
};

const gk_device_info fake_h200 = {
    HOPPER,
    .name = "fake H200",
    .memory_clock_khz = 3201000,
    .memory_bus_bits = 6144,
    .l2_bytes = 62914560,
    .memory_bytes = INT64_C(150114140160),
};
