/*
 * The matmul kernels' single parameter. Compiled as C by the host and as CUDA C++ by the kernels,
 * so both agree on the layout: 8-byte fields only, no padding.
 *
 * Computes C[i,j] = act(alpha * sum_k A[i,k] * B[k,j] + beta * C[i,j] + bias[j] + residual[i,j]).
 * Strides count elements. Products of an index and a stride are taken in 64 bits.
 */
#ifndef GK_MATMUL_ARGS_H
#define GK_MATMUL_ARGS_H

typedef struct gk_matmul_args {
    const void *a;
    const void *b;
    void *c;
    const void *bias;            /* read only if HAS_BIAS */
    const void *residual;        /* read only if HAS_RESIDUAL */
    float *partials;             /* split-K: [split][tile][BLOCK_M * BLOCK_N] accumulators */
    unsigned long long *tickets; /* split-K: one arrival counter a tile, zero between launches */
    long long m;
    long long n;
    long long k; /* 0 where alpha is 0: A and B are then not read */
    long long a_row_stride;
    long long a_col_stride;
    long long b_row_stride;
    long long b_col_stride;
    long long c_row_stride;
    long long c_col_stride;
    long long residual_row_stride;
    long long residual_col_stride;
    long long bias_stride;
    long long split_k; /* number of blocks that share one output tile, >= 1 */
    long long group_m; /* rows of tiles rasterised together so that B's tiles stay in L2, >= 1 */
    double alpha;
    double beta; /* C is read only if HAS_BETA */
} gk_matmul_args;

#endif
