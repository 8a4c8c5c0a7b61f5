#include "op/matmul_parts.h"

#include <gk/ops.h>

void gki_matmul_work(const gk_problem *problem, double *flops, double *bytes)
{
    const double m = (double)problem->dims[MATMUL_M];
    const double n = (double)problem->dims[MATMUL_N];
    const double k = (double)problem->dims[MATMUL_K];
    double size[MATMUL_N_ARGS];
    for (int i = 0; i < MATMUL_N_ARGS; i++) {
        size[i] = (double)gk_dtype_size((gk_dtype)problem->dtype[i]);
    }
    *flops = 2 * m * n * k;
    *bytes =
        m * k * size[MATMUL_A] + k * n * size[MATMUL_B] + n * size[MATMUL_BIAS] +
        m * n * (size[MATMUL_C] * (problem->attrs[MATMUL_BETA] ? 2 : 1) + size[MATMUL_RESIDUAL]);
}

/*
 * Operations per multiprocessor and clock, a multiply-add counted as two, without sparsity.
 * Sources: NVIDIA CUDA C++ Programming Guide, "Arithmetic Instructions" (f32, f64, 32-bit integer
 * multiply-add); NVIDIA A100, GA102, AD102, H100 and Blackwell architecture white papers (tensor
 * cores, f32 sums; GeForce boards of 8.6, 8.9 and 12.0 run half of it).
 */
typedef struct rates {
    int32_t cc;
    double f64, f32, tf32, half, fp8, integer;
} rates;

static const rates table[] = {
    {80, 128, 128, 1024, 2048, 2048, 128},   {86, 4, 256, 512, 1024, 1024, 128},
    {89, 4, 256, 512, 1024, 2048, 128},      {90, 256, 256, 2048, 4096, 8192, 128},
    {100, 128, 256, 4096, 8192, 16384, 128}, {120, 4, 256, 512, 1024, 2048, 128},
};

double gki_matmul_peak(const gk_problem *problem, const gk_device_info *device)
{
    const rates *found = NULL;
    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
        if (table[i].cc <= device->cc) {
            found = &table[i];
        }
    }
    if (found == NULL || device->is_emulated) {
        return 0;
    }
    double rate = 0;
    switch ((gk_dtype)problem->dtype[MATMUL_A]) {
    case GK_F64:
        rate = found->f64;
        break;
    case GK_F32:
        rate = problem->attrs[MATMUL_MATH] == GK_MATH_TF32 ? found->tf32 : found->f32;
        if (problem->attrs[MATMUL_MATH] == GK_MATH_DEFAULT && found->cc == 90) {
            rate = found->half / 6; /* six products of bf16 parts, see gk/f32_parts.cuh */
        }
        break;
    case GK_F16:
    case GK_BF16:
        rate = found->half;
        break;
    case GK_E4M3:
    case GK_E5M2:
        rate = found->fp8;
        break;
    default:
        rate = found->integer;
        break;
    }
    return rate * device->sm_count * device->clock_khz * 1e3;
}
