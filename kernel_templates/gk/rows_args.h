/*
 * The single parameter of kernels that work on whole rows: softmax and the norms. Compiled as C by
 * the host and as CUDA C++ by the kernels: 8-byte fields only, no padding. Strides count elements.
 *
 * A row lies along the tensors' last axis. The other axes are n_axes axes (at least one, the
 * innermost first) that could not be made one.
 */
#ifndef GK_ROWS_ARGS_H
#define GK_ROWS_ARGS_H

enum { GK_ROWS_AXES = 7 };

typedef struct gk_rows_args {
    const void *x;
    void *out;
    const void *weight;
    const void *bias;
    long long rows;
    long long cols;
    long long x_stride;
    long long out_stride;
    long long weight_stride;
    long long bias_stride;
    long long n_axes;
    long long shape[GK_ROWS_AXES];
    long long x_row_stride[GK_ROWS_AXES];
    long long out_row_stride[GK_ROWS_AXES];
    double eps;
    void *partials;         /* split rows: what each block found */
    unsigned int *counters; /* split rows: one a row, 0 before and after */
    long long held;         /* split rows: vectors that a thread keeps in shared memory */
    long long turns;        /* split rows: rows that a block has one after the other, at least 1 */
} gk_rows_args;

#endif
