/* What models of several ops say alike. */
#ifndef GKI_MODEL_H
#define GKI_MODEL_H

#include <gk/extend.h>

/* Seconds to start blocks: on the H100 and the H200 a multiprocessor starts one each 160 ns, and a
 * warp each 15 ns. */
static inline double gki_model_starts(const gk_device_info *device, double blocks, int64_t threads)
{
    const double warps = 1.5e-8 * (double)threads / 32;
    return blocks / (device->sm_count > 0 ? device->sm_count : 1) *
           (warps > 1.6e-7 ? warps : 1.6e-7);
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
