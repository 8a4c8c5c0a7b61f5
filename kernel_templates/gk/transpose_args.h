/*
 * The transpose kernels' single parameter. Compiled as C by the host and as CUDA C++ by the
 * kernels: 8-byte fields only, no padding.
 *
 * Moves x[b,r,c] to out[b,r,c] for the strides of each: c counts along the axis on which x is
 * contiguous, whichever of its own it is. Strides count elements. Products of an index and a stride
 * are taken in 64 bits.
 */
#ifndef GK_TRANSPOSE_ARGS_H
#define GK_TRANSPOSE_ARGS_H

typedef struct gk_transpose_args {
    const void *x;
    void *out;
    long long rows;
    long long cols;
    long long batches; /* 1 unless BATCHED */
    long long x_row_stride;
    long long x_col_stride;
    long long x_batch_stride;
    long long out_row_stride;
    long long out_col_stride;
    long long out_batch_stride;
    long long group; /* rows of tiles that are visited together, 1 to the rows of tiles there are */
    long long unused[4]; /* 128 bytes in all, as maps before them ask for */
} gk_transpose_args;

#endif
