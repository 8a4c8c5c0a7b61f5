/* gk_tensor: a view of memory that somebody else owns. */
#ifndef GK_TENSOR_H
#define GK_TENSOR_H

#include <gk/base.h>

#ifdef __cplusplus
extern "C" {
#endif

#define GK_MAX_RANK 8

/*
 * shape and stride have DLPack's meaning: element (i0, i1, ..) lies at
 * data + (i0 * stride[0] + i1 * stride[1] + ..) * gk_dtype_size(dtype) bytes. Strides count
 * elements and are not negative; a stride of 0 repeats an element (inputs only). data may be NULL
 * only if no element is ever touched. The struct's size is frozen; reserved must be zero.
 */
typedef struct gk_tensor {
    void *data;
    int32_t dtype; /* a gk_dtype */
    int32_t rank;
    int64_t shape[GK_MAX_RANK];
    int64_t stride[GK_MAX_RANK];
    uint32_t reserved[4];
} gk_tensor;

/*
 * Constructors. They copy nothing and check nothing: the call that uses the tensor does.
 * Thread-safe.
 */

/* n elements, one after the other. */
GK_API gk_tensor gk_vector(void *data, gk_dtype dtype, int64_t n);

/* rows x cols, packed, row-major: element (i, j) is data[i * cols + j]. */
GK_API gk_tensor gk_matrix(void *data, gk_dtype dtype, int64_t rows, int64_t cols);

/* rows x cols with any strides: element (i, j) is data[i * row_stride + j * col_stride]. */
GK_API gk_tensor gk_matrix_strided(void *data, gk_dtype dtype, int64_t rows, int64_t cols,
                                   int64_t row_stride, int64_t col_stride);

/* The same memory with the last two axes exchanged; a tensor of rank below 2 comes back as it is.
 */
GK_API gk_tensor gk_transposed(const gk_tensor *t);

/*
 * Bytes from the first to just past the last element of t, 0 if it has none. -1 if a size or stride
 * is negative, the rank is out of range, dtype is none of gk_dtype's, or the count does not fit in
 * 63 bits. Thread-safe.
 */
GK_API int64_t gk_tensor_extent(const gk_tensor *t);

#ifdef __cplusplus
}
#endif

#endif
