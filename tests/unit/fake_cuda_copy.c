/* The fake libcuda's copies. */
#include <string.h>

#include "driver/cuda/cuda_abi.h"
#include "fake_cuda.h"

#define DECLARE(name, params) gki_cu_result name params;
GKI_CUDA_SYMBOLS(DECLARE)
GKI_CUDA_STRUCT_SYMBOLS(DECLARE)

static void *memory(gki_cu_ptr ptr)
{
    return (void *)(uintptr_t)ptr;
}

gki_cu_result cuMemcpyHtoDAsync_v2(gki_cu_ptr to, const void *from, size_t bytes,
                                   gki_cu_stream stream)
{
    (void)stream;
    gki_cu_result result = fake_cuda_need_context();
    if (result == 0) {
        memcpy(memory(to), from, bytes);
    }
    return result;
}

gki_cu_result cuMemcpyDtoHAsync_v2(void *to, gki_cu_ptr from, size_t bytes, gki_cu_stream stream)
{
    (void)stream;
    gki_cu_result result = fake_cuda_need_context();
    if (result == 0) {
        memcpy(to, memory(from), bytes);
    }
    return result;
}

gki_cu_result cuMemcpyDtoDAsync_v2(gki_cu_ptr to, gki_cu_ptr from, size_t bytes,
                                   gki_cu_stream stream)
{
    (void)stream;
    gki_cu_result result = fake_cuda_need_context();
    if (result == 0) {
        memcpy(memory(to), memory(from), bytes);
    }
    return result;
}

gki_cu_result cuMemsetD8Async(gki_cu_ptr to, unsigned char value, size_t bytes,
                              gki_cu_stream stream)
{
    fake_cuda_state.memset_stream = stream;
    gki_cu_result result = fake_cuda_need_context();
    if (fake_cuda_state.fail_memset != 0) {
        return fake_cuda_state.fail_memset;
    }
    if (result == 0) {
        memset(memory(to), value, bytes);
    }
    return result;
}

gki_cu_result cuMemcpy2DAsync_v2(const gki_cu_copy_2d *copy, gki_cu_stream stream)
{
    (void)stream;
    fake_cuda_state.copies_2d++;
    if (copy->src_type != GKI_CU_MEMORY_HOST || copy->dst_type != GKI_CU_MEMORY_DEVICE ||
        copy->src_pitch < copy->width || copy->dst_pitch < copy->width ||
        copy->src_pitch > INT32_MAX) {
        return GKI_CU_INVALID_VALUE;
    }
    gki_cu_result result = fake_cuda_need_context();
    for (size_t i = 0; result == 0 && i < copy->height; i++) {
        memcpy((char *)memory(copy->dst_device) + i * copy->dst_pitch,
               (const char *)copy->src_host + i * copy->src_pitch, copy->width);
    }
    return result;
}
