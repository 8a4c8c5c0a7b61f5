/* The matmul op's own pieces, one file each. */
#ifndef GKI_MATMUL_PARTS_H
#define GKI_MATMUL_PARTS_H

#include <gk/matmul_args.h>

#include "op/matmul.h"

extern const gk_op_desc gki_op_matmul;

/* matmul_infer.c */
gk_status gki_matmul_infer(const gk_call *call, gk_problem *problem);

/*
 * The strides a kernel works with for a matrix of the given layout class: the unit one is 1
 * whatever the tensor says, since an axis of one element may carry any stride; the outer stride of
 * an axis of one element is 0.
 */
void gki_matmul_strides(const gk_tensor *t, uint8_t layout, long long *row_stride,
                        long long *col_stride);

/* matmul_shared.c */
size_t gki_matmul_pack(const gk_call *call, const gk_problem *problem, const gk_variant *variant,
                       const gk_config *config, void *workspace, void *zeroed, void *out);

/* matmul_reference.c */
void gki_matmul_reference(const gk_call *call, const gk_problem *problem, double *out,
                          double *scale);
gk_tolerance gki_matmul_tolerance(const gk_problem *problem);

/* matmul_example.c */
gk_status gki_matmul_example(const gk_case *item, gk_tensor *tensors, gk_call *call);

/* matmul_reduce.c */
bool gki_matmul_reduce(const gk_call *call, int64_t max_flops, gk_tensor *tensors, gk_call *out);
bool gki_matmul_part(const gk_call *call, uint32_t index, int64_t max_flops, gk_tensor *tensors,
                     gk_call *out);

/* matmul_work.c */
void gki_matmul_work(const gk_problem *problem, double *flops, double *bytes);
double gki_matmul_peak(const gk_problem *problem, const gk_device_info *device);

/* matmul_cases.c */
enum { GKI_MATMUL_CASES = 67 };
extern const gk_case gki_matmul_cases[GKI_MATMUL_CASES];

#endif
