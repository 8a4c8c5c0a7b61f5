/* Tensor maps. Encoding one is pure host work, but the driver does it in a current context only. */
#include <string.h>

#include "base/error.h"
#include "driver/cuda/cuda_device.h"

static gki_cu_enum type_of(const gk_map_desc *desc)
{
    switch (desc->dtype) {
    case GK_F64:
        return GKI_CU_MAP_FLOAT64;
    case GK_F32:
        return desc->tf32 != 0 ? GKI_CU_MAP_TFLOAT32 : GKI_CU_MAP_FLOAT32;
    case GK_F16:
        return GKI_CU_MAP_FLOAT16;
    case GK_BF16:
        return GKI_CU_MAP_BFLOAT16;
    case GK_I32:
        return GKI_CU_MAP_INT32;
    default: /* 8 bits: only copied */
        return GKI_CU_MAP_UINT8;
    }
}

/* The driver numbers spans of bytes from 0 on: none, the first, twice that, .. */
static gki_cu_enum step_of(uint32_t bytes, uint32_t first)
{
    gki_cu_enum step = 0;
    for (; bytes >= first; bytes /= 2) {
        step++;
    }
    return step;
}

gk_status gki_cuda_map_encode(gki_device *base, const gk_map_desc *desc, gk_tensor_map *out)
{
    static const uint32_t element_strides[GK_MAX_MAP_RANK] = {1, 1, 1, 1, 1};
    const gki_cuda_device *device = gki_cuda_device_of(base);
    uint64_t dims[GK_MAX_MAP_RANK];
    uint64_t strides[GK_MAX_MAP_RANK];
    uint32_t box[GK_MAX_MAP_RANK];
    _Alignas(64) gki_cu_tensor_map map;
    _Static_assert(sizeof(map) == sizeof(*out), "a tensor map");
    for (uint32_t i = 0; i < desc->rank; i++) {
        dims[i] = (uint64_t)desc->dims[i];
        box[i] = (uint32_t)desc->box[i];
        if (i > 0) {
            strides[i - 1] = (uint64_t)desc->strides[i];
        }
    }
    gki_cuda_scope scope;
    const gk_status status = gki_cuda_enter(device, &scope);
    if (status != GK_OK) {
        return status;
    }
    const gki_cu_result result = device->api->cuTensorMapEncodeTiled(
        &map, type_of(desc), desc->rank, desc->data, dims, strides, box, element_strides,
        GKI_CU_MAP_INTERLEAVE_NONE, step_of(desc->swizzle, 32), step_of(desc->l2_promotion, 64),
        GKI_CU_MAP_FILL_ZEROS);
    gki_cuda_leave(device, &scope);
    if (result != GKI_CU_SUCCESS) {
        return gki_cuda_fail(device->api, result,
                             "a tensor map of %s at %p, rank %u, rows of %lld elements, %lld bytes "
                             "apart, boxes of %d x %d",
                             gk_dtype_name((gk_dtype)desc->dtype), desc->data, (unsigned)desc->rank,
                             (long long)desc->dims[0],
                             desc->rank > 1 ? (long long)desc->strides[1] : 0, (int)desc->box[0],
                             desc->rank > 1 ? (int)desc->box[1] : 1);
    }
    memcpy(out, &map, sizeof(map));
    return GK_OK;
}
