/*
 * A tensor map: a view of an array in device memory as the tensor memory accelerator takes it.
 * Compiled as C by the host and as CUDA C++ by the kernels. Its contents belong to the device; the
 * maps of a kernel stand first in its parameter struct.
 */
#ifndef GK_TENSOR_MAP_H
#define GK_TENSOR_MAP_H

#ifdef __cplusplus
#define GK_TENSOR_MAP_ALIGN alignas(64)
#else
#define GK_TENSOR_MAP_ALIGN _Alignas(64)
#endif

typedef struct gk_tensor_map {
    GK_TENSOR_MAP_ALIGN unsigned char bytes[128];
} gk_tensor_map;

#endif
