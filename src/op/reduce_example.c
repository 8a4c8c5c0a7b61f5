/* Shapes that tests, benchmarks and tools share, and what becomes of them. */
#include <string.h>

#include <gk/ops.h>

#include "op/reduce.h"

static const char WHERE[] = "reduce";

/* The word behind --dtype: "bf16", or input:output as in "bf16:f32". A float with i32 behind it
 * asks for places. */
static gk_status parse_dtypes(const char *word, gk_call *call, gk_dtype *x, gk_dtype *out)
{
    char first[8] = "";
    const size_t length = word != NULL ? strcspn(word, ":") : 0;
    if (length > 0 && length < sizeof(first)) {
        memcpy(first, word, length);
        *x = gk_dtype_parse(first);
        *out = word[length] == ':' ? gk_dtype_parse(word + length + 1) : *x;
    }
    if (*x == GK_DTYPE_NONE || *out == GK_DTYPE_NONE) {
        return gk_fail(GK_ERR_INVALID, WHERE, "dtype '%s' is unknown", word != NULL ? word : "");
    }
    double *op = &call->attrs[REDUCE_ATTR_OP];
    if (*out == GK_I32 && *x != GK_I32) {
        *op = GK_REDUCE_ARGMAX;
    } else if (*op == GK_REDUCE_ARGMAX && word[length] != ':') {
        *out = GK_I32;
    }
    const bool known =
        *x == GK_F64 || *x == GK_F32 || *x == GK_F16 || *x == GK_BF16 || *x == GK_I32;
    const bool half = *x == GK_F16 || *x == GK_BF16;
    const bool fits =
        *op == GK_REDUCE_ARGMAX ? *out == GK_I32 : *out == *x || (half && *out == GK_F32);
    if (!known || !fits || (*x == GK_I32 && *op == GK_REDUCE_MEAN)) {
        return gk_fail(GK_ERR_UNSUPPORTED, WHERE, "dtype '%s' does not suit the op", word);
    }
    return GK_OK;
}

/* Sizes in the order in which memory runs through them, outermost first. */
static gk_status lay_out(const char *name, gk_tensor *t, bool reversed, int64_t pad)
{
    int64_t stride = 1;
    bool padded = false;
    for (int i = 0; i < t->rank; i++) {
        const int axis = reversed ? i : t->rank - 1 - i;
        t->stride[axis] = stride;
        if (t->shape[axis] > 1 && __builtin_mul_overflow(stride, t->shape[axis], &stride)) {
            return gk_fail(GK_ERR_INVALID, WHERE, "%s does not fit in 63 bits", name);
        }
        if (t->shape[axis] > 1 && !padded) {
            padded = true;
            if (__builtin_add_overflow(stride, pad, &stride)) {
                return gk_fail(GK_ERR_INVALID, WHERE, "%s with pad %lld does not fit in 63 bits",
                               name, (long long)pad);
            }
        }
    }
    if (gk_tensor_extent(t) < 0) {
        return gk_fail(GK_ERR_INVALID, WHERE, "%s does not fit in 63 bits", name);
    }
    return GK_OK;
}

/* x [OUTER, AXIS, INNER] and out [OUTER, INNER]; the letters of the layout are x's and out's, t for
 * memory that runs along the first axis. */
gk_status gki_reduce_example(const gk_case *item, gk_tensor *tensors, gk_call *call)
{
    static const char *const names[] = {"OUTER", "AXIS", "INNER"};
    const char *layout = item->layout != NULL ? item->layout : "nn";
    const int64_t *dims = item->dims;
    gk_dtype x = GK_DTYPE_NONE;
    gk_dtype out = GK_DTYPE_NONE;
    gk_status status = parse_dtypes(item->dtype, call, &x, &out);
    if (status != GK_OK) {
        return status;
    }
    if (strlen(layout) != 2 || strspn(layout, "nt") != 2) {
        return gk_fail(GK_ERR_INVALID, WHERE, "layout '%s' is unknown, must be nn, nt, tn or tt",
                       layout);
    }
    for (int i = 0; i < REDUCE_N_DIMS; i++) {
        if (dims[i] < 0) {
            return gk_fail(GK_ERR_INVALID, WHERE, "%s is %lld, must not be negative", names[i],
                           (long long)dims[i]);
        }
    }
    if (item->pad < 0) {
        return gk_fail(GK_ERR_INVALID, WHERE, "pad is %lld, must not be negative",
                       (long long)item->pad);
    }
    tensors[REDUCE_X] =
        (gk_tensor){.dtype = x,
                    .rank = 3,
                    .shape = {dims[REDUCE_OUTER], dims[REDUCE_AXIS], dims[REDUCE_INNER]}};
    tensors[REDUCE_OUT] =
        (gk_tensor){.dtype = out, .rank = 2, .shape = {dims[REDUCE_OUTER], dims[REDUCE_INNER]}};
    status = lay_out("x", &tensors[REDUCE_X], layout[0] == 't', item->pad);
    if (status == GK_OK) {
        status = lay_out("out", &tensors[REDUCE_OUT], layout[1] == 't', item->pad);
    }
    if (status != GK_OK) {
        return status;
    }
    memset(call->args, 0, sizeof(call->args));
    call->args[REDUCE_X] = &tensors[REDUCE_X];
    call->args[REDUCE_OUT] = &tensors[REDUCE_OUT];
    call->attrs[REDUCE_ATTR_AXIS] = 1;
    call->attrs[REDUCE_ATTR_KEEPDIM] = 0;
    return GK_OK;
}

#define SMOKE(dtype, layout, outer, axis, inner)                                                   \
    {                                                                                              \
        {outer, axis, inner}, GK_CASE_SMOKE, dtype, layout, 0, 0                                   \
    }
#define EDGE(dtype, layout, outer, axis, inner, pad, offset)                                       \
    {                                                                                              \
        {outer, axis, inner}, GK_CASE_EDGE, dtype, layout, pad, offset                             \
    }
#define BENCH(dtype, outer, axis, inner)                                                           \
    {                                                                                              \
        {outer, axis, inner}, GK_CASE_BENCH, dtype, "nn", 0, 0                                     \
    }

const gk_case gki_reduce_cases[GKI_REDUCE_CASES] = {
    SMOKE("f32", "nn", 64, 256, 1),
    SMOKE("f16", "nn", 64, 256, 1),
    SMOKE("bf16", "nn", 1, 128, 256),
    SMOKE("f64", "nn", 33, 65, 1),
    SMOKE("i32", "nn", 5, 33, 64),
    SMOKE("bf16:f32", "nn", 8, 64, 64),
    SMOKE("f32:i32", "nn", 33, 65, 1),
    SMOKE("bf16:i32", "nn", 3, 65, 33),
    SMOKE("f64:i32", "nn", 3, 65, 33),
    EDGE("f32", "nn", 1, 1, 1, 0, 0),
    EDGE("f32", "tn", 17, 65, 33, 0, 1),
    EDGE("bf16", "nn", 17, 129, 1, 3, 1),
    EDGE("f16", "nt", 3, 31, 127, 1, 0),
    EDGE("f16:i32", "nn", 127, 31, 1, 1, 1),
    EDGE("i32:i32", "tt", 7, 5, 3, 1, 1),
    EDGE("f64", "tn", 3, 5, 7, 1, 1),
    EDGE("f32", "nn", 3, 0, 5, 0, 0),
    EDGE("f32", "nn", 0, 4, 3, 0, 0),
    EDGE("bf16:f32", "nn", 1, 70001, 1, 0, 1),
    BENCH("f32", 1, 268435456, 1),
    BENCH("bf16", 1, 268435456, 1),
    BENCH("f32:i32", 1, 268435456, 1),
    BENCH("f32", 8192, 8192, 1),
    BENCH("bf16", 8192, 8192, 1),
    BENCH("f32", 1024, 131072, 1),
    BENCH("bf16", 1024, 131072, 1),
    BENCH("f32", 131072, 1024, 1),
    BENCH("f32", 1823, 781, 1),
    BENCH("f32", 4096, 4096, 1),
    BENCH("f32:i32", 8192, 8192, 1),
    BENCH("f32", 1, 8192, 8192),
    BENCH("bf16", 1, 8192, 8192),
    BENCH("f32", 1, 1024, 131072),
    BENCH("bf16", 1, 1024, 131072),
    BENCH("f32", 1, 131072, 1024),
    BENCH("f32", 1, 1823, 781),
    BENCH("f32", 64, 1024, 1024),
    BENCH("bf16", 64, 1024, 1024),
    BENCH("f32:i32", 1, 8192, 8192),
};
