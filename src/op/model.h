/* What several ops know of devices, most of it for their models. */
#ifndef GKI_MODEL_H
#define GKI_MODEL_H

#include <gk/extend.h>
#include <stdbool.h>

/* Seconds to start blocks: on the H100 and the H200 a multiprocessor starts one each 160 ns, and a
 * warp each 15 ns. */
static inline double gki_model_starts(const gk_device_info *device, double blocks, int64_t threads)
{
    const double warps = 1.5e-8 * (double)threads / 32;
    return blocks / (device->sm_count > 0 ? device->sm_count : 1) *
           (warps > 1.6e-7 ? warps : 1.6e-7);
}

/* Bytes a second that the pins of the device's memory move. */
static inline double gki_model_pins(const gk_device_info *device)
{
    const double pins = 2e3 * device->memory_clock_khz * (device->memory_bus_bits / 8.0);
    return pins > 1e11 ? pins : 1e11;
}

/* Should the L2 cache fetch 256 bytes where 128 are asked for? On an H100 (3.35 TB/s) that gains
 * 3 to 5 %, on an H200 (4.9 TB/s) it costs as much where enough is under way. */
static inline bool gki_model_wide_fetches(const gk_device_info *device)
{
    return gki_model_pins(device) < 4e12;
}

/* What a chain of kernels gains where the next one starts early: gk/ptx.cuh's grid_is_small(). */
static inline double gki_model_early(const gk_device_info *device, int64_t grid, double seconds)
{
    return device->cc >= 90 && grid <= 132 ? seconds : 0;
}

/* Clusters of so many blocks, one block a multiprocessor, that are there at once: groups of
 * multiprocessors, which are not all of one size, hold whole clusters. */
static inline int64_t gki_model_seats(const gk_device_info *device, int64_t cluster)
{
    const int64_t usable = cluster > 2 ? device->sm_count * 10 / 11 : device->sm_count;
    return usable / cluster > 1 ? usable / cluster : 1;
}

#endif
