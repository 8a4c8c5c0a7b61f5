#include <gk/tensor.h>

gk_tensor gk_vector(void *data, gk_dtype dtype, int64_t n)
{
    return (gk_tensor){
        .data = data, .dtype = (int32_t)dtype, .rank = 1, .shape = {n}, .stride = {1}};
}

gk_tensor gk_matrix(void *data, gk_dtype dtype, int64_t rows, int64_t cols)
{
    return gk_matrix_strided(data, dtype, rows, cols, cols, 1);
}

gk_tensor gk_matrix_strided(void *data, gk_dtype dtype, int64_t rows, int64_t cols,
                            int64_t row_stride, int64_t col_stride)
{
    return (gk_tensor){.data = data,
                       .dtype = (int32_t)dtype,
                       .rank = 2,
                       .shape = {rows, cols},
                       .stride = {row_stride, col_stride}};
}

gk_tensor gk_transposed(const gk_tensor *t)
{
    gk_tensor out = *t;
    if (t->rank >= 2 && t->rank <= GK_MAX_RANK) {
        out.shape[t->rank - 1] = t->shape[t->rank - 2];
        out.shape[t->rank - 2] = t->shape[t->rank - 1];
        out.stride[t->rank - 1] = t->stride[t->rank - 2];
        out.stride[t->rank - 2] = t->stride[t->rank - 1];
    }
    return out;
}

int64_t gk_tensor_extent(const gk_tensor *t)
{
    const int64_t size = (int64_t)gk_dtype_size((gk_dtype)t->dtype);
    if (size == 0 || t->rank < 0 || t->rank > GK_MAX_RANK) {
        return -1;
    }
    bool empty = false;
    for (int32_t i = 0; i < t->rank; i++) {
        if (t->shape[i] < 0 || t->stride[i] < 0) {
            return -1;
        }
        empty = empty || t->shape[i] == 0;
    }
    if (empty) {
        return 0;
    }
    int64_t last = 0;
    for (int32_t i = 0; i < t->rank; i++) {
        int64_t span;
        if (__builtin_mul_overflow(t->shape[i] - 1, t->stride[i], &span) ||
            __builtin_add_overflow(last, span, &last)) {
            return -1;
        }
    }
    int64_t bytes;
    if (__builtin_add_overflow(last, 1, &last) || __builtin_mul_overflow(last, size, &bytes)) {
        return -1;
    }
    return bytes;
}
