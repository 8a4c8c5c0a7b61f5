/* The library's own declarations of the CUDA driver's and NVRTC's interface against the vendor's.
 * Everything is checked while this file compiles; without the vendor's headers the test skips. */
#include "driver/cuda/cuda_abi.h"

#if defined(__has_include)
#if __has_include(<cuda.h>) && __has_include(<nvrtc.h>)
#define HAVE_CUDA 1
#endif
#endif

#ifdef HAVE_CUDA
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wpedantic"
#include <cuda.h>
#include <nvrtc.h>
#pragma GCC diagnostic pop

#if CUDA_VERSION >= 13000
/* 13.0 gives the name cuEventElapsedTime to a newer symbol with the same parameters. */
#undef cuEventElapsedTime
#define cuEventElapsedTime cuEventElapsedTime_v2
#endif

#define SAME_TYPE(a, b) __builtin_types_compatible_p(a, b)

#define CHECK_RESULT(suffix, number)                                                               \
    _Static_assert((int)CUDA_ERROR_##suffix == (number), "CUDA_ERROR_" #suffix);
GKI_CU_RESULT_MAP(CHECK_RESULT)

#define CHECK_DEVICE(suffix, number)                                                               \
    _Static_assert((int)CU_DEVICE_ATTRIBUTE_##suffix == (number), "CU_DEVICE_ATTRIBUTE_" #suffix);
GKI_CU_DEVICE_MAP(CHECK_DEVICE)

#define CHECK_FUNC(suffix, number)                                                                 \
    _Static_assert((int)CU_FUNC_ATTRIBUTE_##suffix == (number), "CU_FUNC_ATTRIBUTE_" #suffix);
GKI_CU_FUNC_MAP(CHECK_FUNC)

_Static_assert((int)CUDA_SUCCESS == (int)GKI_CU_SUCCESS, "");
_Static_assert((int)CU_STREAM_NON_BLOCKING == (int)GKI_CU_STREAM_NON_BLOCKING, "");
_Static_assert((int)CU_EVENT_DEFAULT == (int)GKI_CU_EVENT_DEFAULT, "");
_Static_assert((int)CU_STREAM_CAPTURE_STATUS_NONE == (int)GKI_CU_CAPTURE_NONE, "");
_Static_assert((int)CU_STREAM_CAPTURE_STATUS_ACTIVE == (int)GKI_CU_CAPTURE_ACTIVE, "");
_Static_assert((int)CU_STREAM_CAPTURE_MODE_RELAXED == (int)GKI_CU_CAPTURE_MODE_RELAXED, "");
_Static_assert((int)CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION ==
                   (int)GKI_CU_ATTRIBUTE_CLUSTER_DIMENSION,
               "");
_Static_assert((int)CU_LAUNCH_ATTRIBUTE_COOPERATIVE == (int)GKI_CU_ATTRIBUTE_COOPERATIVE, "");
_Static_assert((int)CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION ==
                   (int)GKI_CU_ATTRIBUTE_PROGRAMMATIC_SERIALIZATION,
               "");
_Static_assert((int)CU_MEMORYTYPE_HOST == (int)GKI_CU_MEMORY_HOST, "");
_Static_assert((int)CU_MEMORYTYPE_DEVICE == (int)GKI_CU_MEMORY_DEVICE, "");
_Static_assert((int)CU_TENSOR_MAP_INTERLEAVE_NONE == (int)GKI_CU_MAP_INTERLEAVE_NONE, "");
_Static_assert((int)CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE == (int)GKI_CU_MAP_FILL_ZEROS, "");
/* As the encoder numbers spans. */
_Static_assert((int)CU_TENSOR_MAP_SWIZZLE_NONE == 0 && (int)CU_TENSOR_MAP_SWIZZLE_32B == 1 &&
                   (int)CU_TENSOR_MAP_SWIZZLE_64B == 2 && (int)CU_TENSOR_MAP_SWIZZLE_128B == 3,
               "");
_Static_assert((int)CU_TENSOR_MAP_L2_PROMOTION_NONE == 0 &&
                   (int)CU_TENSOR_MAP_L2_PROMOTION_L2_64B == 1 &&
                   (int)CU_TENSOR_MAP_L2_PROMOTION_L2_128B == 2 &&
                   (int)CU_TENSOR_MAP_L2_PROMOTION_L2_256B == 3,
               "");
#define CHECK_MAP_TYPE(suffix, number)                                                             \
    _Static_assert((int)CU_TENSOR_MAP_DATA_TYPE_##suffix == (number),                              \
                   "CU_TENSOR_MAP_DATA_TYPE_" #suffix);
GKI_CU_MAP_TYPE_MAP(CHECK_MAP_TYPE)
_Static_assert(SAME_TYPE(CUdeviceptr, gki_cu_ptr), "");
_Static_assert(SAME_TYPE(CUdevice, gki_cu_device), "");
_Static_assert(SAME_TYPE(CUresult, gki_cu_result), "");
_Static_assert(SAME_TYPE(CUdevice_attribute, gki_cu_enum), "");

#define SAME_SIZE(vendor, own) _Static_assert(sizeof(vendor) == sizeof(own), #own)
#define SAME_FIELD(vendor, vendor_field, own, own_field)                                           \
    _Static_assert(offsetof(vendor, vendor_field) == offsetof(own, own_field) &&                   \
                       sizeof(((vendor *)0)->vendor_field) == sizeof(((own *)0)->own_field),       \
                   #own "." #own_field)

/* NOLINTBEGIN(bugprone-sizeof-expression): members that are pointers. */
SAME_SIZE(CUlaunchAttributeValue, gki_cu_attribute_value);
SAME_SIZE(CUkernelNodeAttrValue, gki_cu_attribute_value);
SAME_FIELD(CUlaunchAttributeValue, clusterDim, gki_cu_attribute_value, cluster);
SAME_FIELD(CUlaunchAttributeValue, clusterDim.y, gki_cu_attribute_value, cluster.y);
SAME_FIELD(CUlaunchAttributeValue, cooperative, gki_cu_attribute_value, cooperative);
SAME_FIELD(CUlaunchAttributeValue, programmaticStreamSerializationAllowed, gki_cu_attribute_value,
           programmatic_serialization);
SAME_SIZE(CUlaunchAttribute, gki_cu_attribute);
SAME_FIELD(CUlaunchAttribute, id, gki_cu_attribute, id);
SAME_FIELD(CUlaunchAttribute, value, gki_cu_attribute, value);
SAME_SIZE(CUlaunchConfig, gki_cu_launch_config);
SAME_FIELD(CUlaunchConfig, gridDimX, gki_cu_launch_config, grid_x);
SAME_FIELD(CUlaunchConfig, gridDimZ, gki_cu_launch_config, grid_z);
SAME_FIELD(CUlaunchConfig, blockDimX, gki_cu_launch_config, block_x);
SAME_FIELD(CUlaunchConfig, blockDimZ, gki_cu_launch_config, block_z);
SAME_FIELD(CUlaunchConfig, sharedMemBytes, gki_cu_launch_config, smem);
SAME_FIELD(CUlaunchConfig, hStream, gki_cu_launch_config, stream);
SAME_FIELD(CUlaunchConfig, attrs, gki_cu_launch_config, attrs);
SAME_FIELD(CUlaunchConfig, numAttrs, gki_cu_launch_config, n_attrs);
SAME_SIZE(CUDA_KERNEL_NODE_PARAMS_v2, gki_cu_kernel_node);
SAME_FIELD(CUDA_KERNEL_NODE_PARAMS_v2, func, gki_cu_kernel_node, function);
SAME_FIELD(CUDA_KERNEL_NODE_PARAMS_v2, gridDimX, gki_cu_kernel_node, grid_x);
SAME_FIELD(CUDA_KERNEL_NODE_PARAMS_v2, blockDimX, gki_cu_kernel_node, block_x);
SAME_FIELD(CUDA_KERNEL_NODE_PARAMS_v2, sharedMemBytes, gki_cu_kernel_node, smem);
SAME_FIELD(CUDA_KERNEL_NODE_PARAMS_v2, kernelParams, gki_cu_kernel_node, params);
SAME_FIELD(CUDA_KERNEL_NODE_PARAMS_v2, extra, gki_cu_kernel_node, extra);
SAME_FIELD(CUDA_KERNEL_NODE_PARAMS_v2, kern, gki_cu_kernel_node, kernel);
SAME_FIELD(CUDA_KERNEL_NODE_PARAMS_v2, ctx, gki_cu_kernel_node, context);
SAME_SIZE(CUtensorMap, gki_cu_tensor_map);
SAME_SIZE(CUDA_MEMCPY2D, gki_cu_copy_2d);
SAME_FIELD(CUDA_MEMCPY2D, srcXInBytes, gki_cu_copy_2d, src_x);
SAME_FIELD(CUDA_MEMCPY2D, srcY, gki_cu_copy_2d, src_y);
SAME_FIELD(CUDA_MEMCPY2D, srcMemoryType, gki_cu_copy_2d, src_type);
SAME_FIELD(CUDA_MEMCPY2D, srcHost, gki_cu_copy_2d, src_host);
SAME_FIELD(CUDA_MEMCPY2D, srcDevice, gki_cu_copy_2d, src_device);
SAME_FIELD(CUDA_MEMCPY2D, srcArray, gki_cu_copy_2d, src_array);
SAME_FIELD(CUDA_MEMCPY2D, srcPitch, gki_cu_copy_2d, src_pitch);
SAME_FIELD(CUDA_MEMCPY2D, dstXInBytes, gki_cu_copy_2d, dst_x);
SAME_FIELD(CUDA_MEMCPY2D, dstY, gki_cu_copy_2d, dst_y);
SAME_FIELD(CUDA_MEMCPY2D, dstMemoryType, gki_cu_copy_2d, dst_type);
SAME_FIELD(CUDA_MEMCPY2D, dstHost, gki_cu_copy_2d, dst_host);
SAME_FIELD(CUDA_MEMCPY2D, dstDevice, gki_cu_copy_2d, dst_device);
SAME_FIELD(CUDA_MEMCPY2D, dstArray, gki_cu_copy_2d, dst_array);
SAME_FIELD(CUDA_MEMCPY2D, dstPitch, gki_cu_copy_2d, dst_pitch);
SAME_FIELD(CUDA_MEMCPY2D, WidthInBytes, gki_cu_copy_2d, width);
SAME_FIELD(CUDA_MEMCPY2D, Height, gki_cu_copy_2d, height);
/* NOLINTEND(bugprone-sizeof-expression) */

/* Pointers to functions: enumerations are compatible with their underlying type. */
#define CHECK_CUDA(name, params)                                                                   \
    typedef gki_cu_result own_##name params;                                                       \
    _Static_assert(SAME_TYPE(__typeof__(name) *, own_##name *), "signature of " #name);
GKI_CUDA_SYMBOLS(CHECK_CUDA)

/* The structs differ in name only, and their layout is checked above. */
_Static_assert(SAME_TYPE(__typeof__(cuLaunchKernelEx) *,
                         gki_cu_result (*)(const CUlaunchConfig *, gki_cu_function, void **,
                                           void **)),
               "signature of cuLaunchKernelEx");
_Static_assert(SAME_TYPE(__typeof__(cuOccupancyMaxActiveClusters) *,
                         gki_cu_result (*)(int *, gki_cu_function, const CUlaunchConfig *)),
               "signature of cuOccupancyMaxActiveClusters");
_Static_assert(SAME_TYPE(__typeof__(cuMemcpy2DAsync_v2) *,
                         gki_cu_result (*)(const CUDA_MEMCPY2D *, gki_cu_stream)),
               "signature of cuMemcpy2DAsync_v2");
_Static_assert(SAME_TYPE(__typeof__(cuTensorMapEncodeTiled) *,
                         gki_cu_result (*)(CUtensorMap *, gki_cu_enum, uint32_t, void *,
                                           const uint64_t *, const uint64_t *, const uint32_t *,
                                           const uint32_t *, gki_cu_enum, gki_cu_enum, gki_cu_enum,
                                           gki_cu_enum)),
               "signature of cuTensorMapEncodeTiled");
_Static_assert(SAME_TYPE(__typeof__(cuGraphAddKernelNode_v2) *,
                         gki_cu_result (*)(gki_cu_node *, gki_cu_graph, const gki_cu_node *, size_t,
                                           const CUDA_KERNEL_NODE_PARAMS_v2 *)),
               "signature of cuGraphAddKernelNode_v2");
_Static_assert(SAME_TYPE(__typeof__(cuGraphKernelNodeSetAttribute) *,
                         gki_cu_result (*)(gki_cu_node, gki_cu_enum,
                                           const CUkernelNodeAttrValue *)),
               "signature of cuGraphKernelNodeSetAttribute");

_Static_assert((int)NVRTC_SUCCESS == (int)GKI_NVRTC_SUCCESS, "");
_Static_assert((int)NVRTC_ERROR_OUT_OF_MEMORY == (int)GKI_NVRTC_OUT_OF_MEMORY, "");
_Static_assert((int)NVRTC_ERROR_INVALID_OPTION == (int)GKI_NVRTC_INVALID_OPTION, "");
_Static_assert((int)NVRTC_ERROR_COMPILATION == (int)GKI_NVRTC_COMPILATION, "");
_Static_assert((int)NVRTC_ERROR_BUILTIN_OPERATION_FAILURE ==
                   (int)GKI_NVRTC_BUILTIN_OPERATION_FAILURE,
               "");
_Static_assert((int)NVRTC_ERROR_INTERNAL_ERROR == (int)GKI_NVRTC_INTERNAL_ERROR, "");

#if CUDA_VERSION >= 12030
SAME_SIZE(CUgraphEdgeData, gki_cu_edge);
SAME_FIELD(CUgraphEdgeData, from_port, gki_cu_edge, from_port);
SAME_FIELD(CUgraphEdgeData, to_port, gki_cu_edge, to_port);
SAME_FIELD(CUgraphEdgeData, type, gki_cu_edge, type);
_Static_assert((int)CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC == (int)GKI_CU_PORT_PROGRAMMATIC, "");
_Static_assert((int)CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC == (int)GKI_CU_DEPENDENCY_PROGRAMMATIC,
               "");
_Static_assert(SAME_TYPE(__typeof__(cuGraphAddDependencies_v2) *,
                         gki_cu_result (*)(gki_cu_graph, const gki_cu_node *, const gki_cu_node *,
                                           const CUgraphEdgeData *, size_t)),
               "signature of cuGraphAddDependencies_v2");
#endif

#define CHECK_NVRTC(name, params)                                                                  \
    typedef gki_nvrtc_result own_##name params;                                                    \
    _Static_assert(SAME_TYPE(__typeof__(name) *, own_##name *), "signature of " #name);
GKI_NVRTC_SYMBOLS(CHECK_NVRTC)

int main(void)
{
    return 0;
}

#else

int main(void)
{
    return 77;
}

#endif
