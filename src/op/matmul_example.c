#include "op/matmul_parts.h"

#include <string.h>

#include <gk/ops.h>

static const char WHERE[] = "matmul";

/* The word behind --dtype: "bf16", "tf32", or input:output as in "bf16:f32"; "+f32" behind the
 * input is math f32. Without an output c has the input's dtype; bf16 for 8-bit floats, i32 for
 * integers. */
static gk_status parse_dtypes(const char *word, gk_dtype *in, gk_dtype *out, gk_math *math)
{
    static const char strict[] = "+f32";
    char first[12] = "";
    const size_t length = word != NULL ? strcspn(word, ":") : 0;
    if (length == 0 || length >= sizeof(first)) {
        return gk_fail(GK_ERR_INVALID, WHERE, "dtype '%s' is unknown", word != NULL ? word : "");
    }
    memcpy(first, word, length);
    char *plus = strstr(first, strict);
    if (plus != NULL && plus[sizeof(strict) - 1] == '\0') {
        *plus = '\0';
        *math = GK_MATH_F32;
    } else if (strcmp(first, "tf32") == 0) {
        *math = GK_MATH_TF32;
    }
    *in = *math == GK_MATH_TF32 ? GK_F32 : gk_dtype_parse(first);
    if (word[length] == ':') {
        *out = gk_dtype_parse(word + length + 1);
    } else if (*in == GK_E4M3 || *in == GK_E5M2) {
        *out = GK_BF16;
    } else if (*in == GK_I8 || *in == GK_U8) {
        *out = GK_I32;
    } else {
        *out = *in;
    }
    if (*in == GK_DTYPE_NONE || *out == GK_DTYPE_NONE) {
        return gk_fail(GK_ERR_INVALID, WHERE, "dtype '%s' is unknown", word);
    }
    return GK_OK;
}

static gk_status matrix(const char *name, gk_dtype dtype, int64_t rows, int64_t cols,
                        bool transposed, int64_t pad, gk_tensor *out)
{
    int64_t leading;
    if (__builtin_add_overflow(transposed ? rows : cols, pad, &leading)) {
        return gk_fail(GK_ERR_INVALID, WHERE, "%s's leading dimension does not fit in 63 bits",
                       name);
    }
    *out = transposed ? gk_matrix_strided(NULL, dtype, rows, cols, 1, leading)
                      : gk_matrix_strided(NULL, dtype, rows, cols, leading, 1);
    if (gk_tensor_extent(out) < 0) {
        return gk_fail(GK_ERR_INVALID, WHERE, "%s, %lld x %lld, does not fit in 63 bits", name,
                       (long long)rows, (long long)cols);
    }
    return GK_OK;
}

gk_status gki_matmul_example(const gk_case *item, gk_tensor *tensors, gk_call *call)
{
    static const char *const names[] = {"M", "N", "K"};
    const char *layout = item->layout != NULL ? item->layout : "nn";
    const int64_t *dims = item->dims;
    gk_dtype in = GK_DTYPE_NONE;
    gk_dtype out = GK_DTYPE_NONE;
    gk_math math = GK_MATH_DEFAULT;
    gk_status status = parse_dtypes(item->dtype, &in, &out, &math);
    if (status != GK_OK) {
        return status;
    }
    if (strlen(layout) != 2 || strspn(layout, "nt") != 2) {
        return gk_fail(GK_ERR_INVALID, WHERE, "layout '%s' is unknown, must be nn, nt, tn or tt",
                       layout);
    }
    for (int i = 0; i < MATMUL_N_DIMS; i++) {
        if (dims[i] < 0) {
            return gk_fail(GK_ERR_INVALID, WHERE, "%s is %lld, must not be negative", names[i],
                           (long long)dims[i]);
        }
    }
    if (item->pad < 0) {
        return gk_fail(GK_ERR_INVALID, WHERE, "pad is %lld, must not be negative",
                       (long long)item->pad);
    }
    status = matrix("a", in, dims[MATMUL_M], dims[MATMUL_K], layout[0] == 't', item->pad,
                    &tensors[MATMUL_A]);
    if (status == GK_OK) {
        status = matrix("b", in, dims[MATMUL_K], dims[MATMUL_N], layout[1] == 't', item->pad,
                        &tensors[MATMUL_B]);
    }
    if (status == GK_OK) {
        status =
            matrix("c", out, dims[MATMUL_M], dims[MATMUL_N], false, item->pad, &tensors[MATMUL_C]);
    }
    if (status != GK_OK) {
        return status;
    }
    memset(call->args, 0, sizeof(call->args));
    for (int i = MATMUL_A; i <= MATMUL_C; i++) {
        call->args[i] = &tensors[i];
    }
    if (math != GK_MATH_DEFAULT) {
        call->attrs[MATMUL_MATH] = math;
    }
    return GK_OK;
}
