/*
 * The part of the CUDA driver's and NVRTC's binary interface that gk calls, declared here so that
 * no CUDA header is needed to build. Handles use the vendor's struct tags, and results the
 * enumerations' underlying type, so that the declarations can be compared with the vendor's.
 */
#ifndef GKI_CUDA_ABI_H
#define GKI_CUDA_ABI_H

#include <stddef.h>
#include <stdint.h>

typedef unsigned int gki_cu_result;
typedef unsigned int gki_cu_enum;
typedef int gki_cu_device;
typedef unsigned long long gki_cu_ptr;
typedef struct CUctx_st *gki_cu_context;
typedef struct CUmod_st *gki_cu_module;
typedef struct CUfunc_st *gki_cu_function;
typedef struct CUkern_st *gki_cu_kernel;
typedef struct CUstream_st *gki_cu_stream;
typedef struct CUevent_st *gki_cu_event;
typedef struct CUgraph_st *gki_cu_graph;
typedef struct CUgraphNode_st *gki_cu_node;
typedef struct CUgraphExec_st *gki_cu_graph_exec;

/* X(suffix): GKI_CU_<suffix> is CUDA_ERROR_<suffix>. */
#define GKI_CU_RESULT_MAP(X)                                                                       \
    X(INVALID_VALUE, 1)                                                                            \
    X(OUT_OF_MEMORY, 2)                                                                            \
    X(DEINITIALIZED, 4)                                                                            \
    X(STUB_LIBRARY, 34)                                                                            \
    X(NO_DEVICE, 100)                                                                              \
    X(INVALID_IMAGE, 200)                                                                          \
    X(NO_BINARY_FOR_GPU, 209)                                                                      \
    X(ECC_UNCORRECTABLE, 214)                                                                      \
    X(INVALID_PTX, 218)                                                                            \
    X(NVLINK_UNCORRECTABLE, 220)                                                                   \
    X(JIT_COMPILER_NOT_FOUND, 221)                                                                 \
    X(UNSUPPORTED_PTX_VERSION, 222)                                                                \
    X(CONTAINED, 226)                                                                              \
    X(INVALID_SOURCE, 300)                                                                         \
    X(NOT_FOUND, 500)                                                                              \
    X(ILLEGAL_ADDRESS, 700)                                                                        \
    X(LAUNCH_OUT_OF_RESOURCES, 701)                                                                \
    X(LAUNCH_TIMEOUT, 702)                                                                         \
    X(CONTEXT_IS_DESTROYED, 709)                                                                   \
    X(ASSERT, 710)                                                                                 \
    X(HARDWARE_STACK_ERROR, 714)                                                                   \
    X(ILLEGAL_INSTRUCTION, 715)                                                                    \
    X(MISALIGNED_ADDRESS, 716)                                                                     \
    X(INVALID_ADDRESS_SPACE, 717)                                                                  \
    X(INVALID_PC, 718)                                                                             \
    X(LAUNCH_FAILED, 719)                                                                          \
    X(TENSOR_MEMORY_LEAK, 721)                                                                     \
    X(STREAM_CAPTURE_IMPLICIT, 906)

enum {
    GKI_CU_SUCCESS = 0,
#define GKI_CU_RESULT_ENUM(suffix, number) GKI_CU_##suffix = (number),
    GKI_CU_RESULT_MAP(GKI_CU_RESULT_ENUM)
#undef GKI_CU_RESULT_ENUM
};

/* X(suffix): GKI_CU_DEVICE_<suffix> is CU_DEVICE_ATTRIBUTE_<suffix>. */
#define GKI_CU_DEVICE_MAP(X)                                                                       \
    X(MAX_THREADS_PER_BLOCK, 1)                                                                    \
    X(MAX_SHARED_MEMORY_PER_BLOCK, 8)                                                              \
    X(MAX_REGISTERS_PER_BLOCK, 12)                                                                 \
    X(CLOCK_RATE, 13)                                                                              \
    X(MULTIPROCESSOR_COUNT, 16)                                                                    \
    X(MEMORY_CLOCK_RATE, 36)                                                                       \
    X(GLOBAL_MEMORY_BUS_WIDTH, 37)                                                                 \
    X(L2_CACHE_SIZE, 38)                                                                           \
    X(MAX_THREADS_PER_MULTIPROCESSOR, 39)                                                          \
    X(COMPUTE_CAPABILITY_MAJOR, 75)                                                                \
    X(COMPUTE_CAPABILITY_MINOR, 76)                                                                \
    X(MAX_SHARED_MEMORY_PER_MULTIPROCESSOR, 81)                                                    \
    X(MAX_REGISTERS_PER_MULTIPROCESSOR, 82)                                                        \
    X(MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, 97)

enum {
#define GKI_CU_DEVICE_ENUM(suffix, number) GKI_CU_DEVICE_##suffix = (number),
    GKI_CU_DEVICE_MAP(GKI_CU_DEVICE_ENUM)
#undef GKI_CU_DEVICE_ENUM
};

/* X(suffix): GKI_CU_FUNC_<suffix> is CU_FUNC_ATTRIBUTE_<suffix>. */
#define GKI_CU_FUNC_MAP(X)                                                                         \
    X(MAX_THREADS_PER_BLOCK, 0)                                                                    \
    X(SHARED_SIZE_BYTES, 1)                                                                        \
    X(LOCAL_SIZE_BYTES, 3)                                                                         \
    X(NUM_REGS, 4)                                                                                 \
    X(MAX_DYNAMIC_SHARED_SIZE_BYTES, 8)                                                            \
    X(NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 14)

enum {
#define GKI_CU_FUNC_ENUM(suffix, number) GKI_CU_FUNC_##suffix = (number),
    GKI_CU_FUNC_MAP(GKI_CU_FUNC_ENUM)
#undef GKI_CU_FUNC_ENUM
};

enum {
    GKI_CU_STREAM_NON_BLOCKING = 1,
    GKI_CU_EVENT_DEFAULT = 0,
    GKI_CU_CAPTURE_NONE = 0,
    GKI_CU_CAPTURE_ACTIVE = 1,
    GKI_CU_CAPTURE_MODE_RELAXED = 2,
    GKI_CU_ATTRIBUTE_COOPERATIVE = 2,
    GKI_CU_ATTRIBUTE_CLUSTER_DIMENSION = 4,
    GKI_CU_ATTRIBUTE_PROGRAMMATIC_SERIALIZATION = 6,
    GKI_CU_PORT_PROGRAMMATIC = 1,
    GKI_CU_DEPENDENCY_PROGRAMMATIC = 1,
    GKI_CU_MEMORY_HOST = 1,
    GKI_CU_MEMORY_DEVICE = 2,
    GKI_CU_MAP_INTERLEAVE_NONE = 0,
    GKI_CU_MAP_FILL_ZEROS = 0,
};

/* X(suffix): GKI_CU_MAP_<suffix> is CU_TENSOR_MAP_DATA_TYPE_<suffix>. */
#define GKI_CU_MAP_TYPE_MAP(X)                                                                     \
    X(UINT8, 0)                                                                                    \
    X(INT32, 3)                                                                                    \
    X(FLOAT16, 6)                                                                                  \
    X(FLOAT32, 7)                                                                                  \
    X(FLOAT64, 8)                                                                                  \
    X(BFLOAT16, 9)                                                                                 \
    X(TFLOAT32, 11)

enum {
#define GKI_CU_MAP_TYPE_ENUM(suffix, number) GKI_CU_MAP_##suffix = (number),
    GKI_CU_MAP_TYPE_MAP(GKI_CU_MAP_TYPE_ENUM)
#undef GKI_CU_MAP_TYPE_ENUM
};

typedef union gki_cu_attribute_value {
    char pad[64];
    struct {
        unsigned int x, y, z;
    } cluster;
    int cooperative;
    int programmatic_serialization;
    void *align; /* the vendor's union holds pointers */
} gki_cu_attribute_value;

typedef struct gki_cu_attribute {
    gki_cu_enum id;
    char pad[4];
    gki_cu_attribute_value value;
} gki_cu_attribute;

typedef struct gki_cu_launch_config {
    unsigned int grid_x, grid_y, grid_z;
    unsigned int block_x, block_y, block_z;
    unsigned int smem;
    gki_cu_stream stream;
    gki_cu_attribute *attrs;
    unsigned int n_attrs;
} gki_cu_launch_config;

typedef struct gki_cu_kernel_node {
    gki_cu_function function;
    unsigned int grid_x, grid_y, grid_z;
    unsigned int block_x, block_y, block_z;
    unsigned int smem;
    void **params;
    void **extra;
    gki_cu_kernel kernel;
    gki_cu_context context;
} gki_cu_kernel_node;

/* What a dependency between two nodes of a graph waits for. */
typedef struct gki_cu_edge {
    unsigned char from_port;
    unsigned char to_port;
    unsigned char type;
    unsigned char reserved[5];
} gki_cu_edge;

/* A rectangle of bytes; the x and y of either side are 0 and arrays NULL. */
typedef struct gki_cu_copy_2d {
    size_t src_x, src_y;
    gki_cu_enum src_type;
    const void *src_host;
    gki_cu_ptr src_device;
    void *src_array;
    size_t src_pitch;
    size_t dst_x, dst_y;
    gki_cu_enum dst_type;
    void *dst_host;
    gki_cu_ptr dst_device;
    void *dst_array;
    size_t dst_pitch;
    size_t width; /* bytes */
    size_t height;
} gki_cu_copy_2d;

/* 64-byte aligned, though newer headers ask for 128. */
typedef struct gki_cu_tensor_map {
    uint64_t opaque[16];
} gki_cu_tensor_map;

/*
 * X(symbol, parameters): every function returns gki_cu_result. Names carry the version suffix that
 * the vendor's header hides behind macros. All are there from driver 12.0 on.
 */
#define GKI_CUDA_SYMBOLS(X)                                                                        \
    X(cuInit, (unsigned int))                                                                      \
    X(cuDriverGetVersion, (int *))                                                                 \
    X(cuGetErrorName, (gki_cu_result, const char **))                                              \
    X(cuGetErrorString, (gki_cu_result, const char **))                                            \
    X(cuDeviceGetCount, (int *))                                                                   \
    X(cuDeviceGet, (gki_cu_device *, int))                                                         \
    X(cuDeviceGetName, (char *, int, gki_cu_device))                                               \
    X(cuDeviceGetAttribute, (int *, gki_cu_enum, gki_cu_device))                                   \
    X(cuDeviceTotalMem_v2, (size_t *, gki_cu_device))                                              \
    X(cuDevicePrimaryCtxRetain, (gki_cu_context *, gki_cu_device))                                 \
    X(cuDevicePrimaryCtxRelease_v2, (gki_cu_device))                                               \
    X(cuCtxGetCurrent, (gki_cu_context *))                                                         \
    X(cuCtxPushCurrent_v2, (gki_cu_context))                                                       \
    X(cuCtxPopCurrent_v2, (gki_cu_context *))                                                      \
    X(cuThreadExchangeStreamCaptureMode, (gki_cu_enum *))                                          \
    X(cuMemGetInfo_v2, (size_t *, size_t *))                                                       \
    X(cuMemAlloc_v2, (gki_cu_ptr *, size_t))                                                       \
    X(cuMemFree_v2, (gki_cu_ptr))                                                                  \
    X(cuMemcpyHtoDAsync_v2, (gki_cu_ptr, const void *, size_t, gki_cu_stream))                     \
    X(cuMemcpyDtoHAsync_v2, (void *, gki_cu_ptr, size_t, gki_cu_stream))                           \
    X(cuMemcpyDtoDAsync_v2, (gki_cu_ptr, gki_cu_ptr, size_t, gki_cu_stream))                       \
    X(cuMemsetD8Async, (gki_cu_ptr, unsigned char, size_t, gki_cu_stream))                         \
    X(cuStreamCreate, (gki_cu_stream *, unsigned int))                                             \
    X(cuStreamDestroy_v2, (gki_cu_stream))                                                         \
    X(cuStreamSynchronize, (gki_cu_stream))                                                        \
    X(cuStreamIsCapturing, (gki_cu_stream, gki_cu_enum *))                                         \
    X(cuEventCreate, (gki_cu_event *, unsigned int))                                               \
    X(cuEventDestroy_v2, (gki_cu_event))                                                           \
    X(cuEventRecord, (gki_cu_event, gki_cu_stream))                                                \
    X(cuEventSynchronize, (gki_cu_event))                                                          \
    X(cuEventElapsedTime, (float *, gki_cu_event, gki_cu_event))                                   \
    X(cuModuleLoadData, (gki_cu_module *, const void *))                                           \
    X(cuModuleUnload, (gki_cu_module))                                                             \
    X(cuModuleGetFunction, (gki_cu_function *, gki_cu_module, const char *))                       \
    X(cuFuncGetAttribute, (int *, gki_cu_enum, gki_cu_function))                                   \
    X(cuFuncSetAttribute, (gki_cu_function, gki_cu_enum, int))                                     \
    X(cuLaunchKernel, (gki_cu_function, unsigned int, unsigned int, unsigned int, unsigned int,    \
                       unsigned int, unsigned int, unsigned int, gki_cu_stream, void **, void **)) \
    X(cuOccupancyMaxActiveBlocksPerMultiprocessor, (int *, gki_cu_function, int, size_t))          \
    X(cuGraphCreate, (gki_cu_graph *, unsigned int))                                               \
    X(cuGraphDestroy, (gki_cu_graph))                                                              \
    X(cuGraphInstantiateWithFlags, (gki_cu_graph_exec *, gki_cu_graph, unsigned long long))        \
    X(cuGraphLaunch, (gki_cu_graph_exec, gki_cu_stream))                                           \
    X(cuGraphExecDestroy, (gki_cu_graph_exec))

/* The same for functions that take one of the structs above. */
#define GKI_CUDA_STRUCT_SYMBOLS(X)                                                                 \
    X(cuLaunchKernelEx, (const gki_cu_launch_config *, gki_cu_function, void **, void **))         \
    X(cuOccupancyMaxActiveClusters, (int *, gki_cu_function, const gki_cu_launch_config *))        \
    X(cuMemcpy2DAsync_v2, (const gki_cu_copy_2d *, gki_cu_stream))                                 \
    X(cuTensorMapEncodeTiled,                                                                      \
      (gki_cu_tensor_map *, gki_cu_enum, uint32_t, void *, const uint64_t *, const uint64_t *,     \
       const uint32_t *, const uint32_t *, gki_cu_enum, gki_cu_enum, gki_cu_enum, gki_cu_enum))    \
    X(cuGraphAddKernelNode_v2,                                                                     \
      (gki_cu_node *, gki_cu_graph, const gki_cu_node *, size_t, const gki_cu_kernel_node *))      \
    X(cuGraphKernelNodeSetAttribute, (gki_cu_node, gki_cu_enum, const gki_cu_attribute_value *))

/* From driver 12.3 on; NULL before. */
#define GKI_CUDA_LATER_SYMBOLS(X)                                                                  \
    X(cuGraphAddDependencies_v2,                                                                   \
      (gki_cu_graph, const gki_cu_node *, const gki_cu_node *, const gki_cu_edge *, size_t))

typedef unsigned int gki_nvrtc_result;
typedef struct _nvrtcProgram *gki_nvrtc_program;

enum {
    GKI_NVRTC_SUCCESS = 0,
    GKI_NVRTC_OUT_OF_MEMORY = 1,
    GKI_NVRTC_INVALID_OPTION = 5,
    GKI_NVRTC_COMPILATION = 6,
    GKI_NVRTC_BUILTIN_OPERATION_FAILURE = 7,
    GKI_NVRTC_INTERNAL_ERROR = 11,
};

/* X(symbol, parameters): every function returns gki_nvrtc_result. There from NVRTC 11.2 on. */
#define GKI_NVRTC_SYMBOLS(X)                                                                       \
    X(nvrtcVersion, (int *, int *))                                                                \
    X(nvrtcGetNumSupportedArchs, (int *))                                                          \
    X(nvrtcGetSupportedArchs, (int *))                                                             \
    X(nvrtcCreateProgram, (gki_nvrtc_program *, const char *, const char *, int,                   \
                           const char *const *, const char *const *))                              \
    X(nvrtcDestroyProgram, (gki_nvrtc_program *))                                                  \
    X(nvrtcCompileProgram, (gki_nvrtc_program, int, const char *const *))                          \
    X(nvrtcGetProgramLogSize, (gki_nvrtc_program, size_t *))                                       \
    X(nvrtcGetProgramLog, (gki_nvrtc_program, char *))                                             \
    X(nvrtcGetPTXSize, (gki_nvrtc_program, size_t *))                                              \
    X(nvrtcGetPTX, (gki_nvrtc_program, char *))                                                    \
    X(nvrtcGetCUBINSize, (gki_nvrtc_program, size_t *))                                            \
    X(nvrtcGetCUBIN, (gki_nvrtc_program, char *))

#endif
