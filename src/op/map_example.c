/* Calls made for tests and tools, and smaller calls that stand for large ones. */
#include <string.h>

#include "op/map.h"

static const char WHERE[] = "map";

/* The word behind --dtype: "bf16", or inputs:output as in "bf16:f32". */
static gk_status parse_dtypes(const char *word, gk_dtype *in, gk_dtype *out)
{
    char first[8] = "";
    const size_t length = word != NULL ? strcspn(word, ":") : 0;
    *in = *out = GK_DTYPE_NONE;
    if (length > 0 && length < sizeof(first)) {
        memcpy(first, word, length);
        *in = gk_dtype_parse(first);
        *out = word[length] == ':' ? gk_dtype_parse(word + length + 1) : *in;
    }
    if (*in < GK_F64 || *in > GK_E5M2 || *out < GK_F64 || *out > GK_E5M2) {
        return gk_fail(GK_ERR_INVALID, WHERE, "dtype '%s' is none of map's",
                       word != NULL ? word : "");
    }
    return GK_OK;
}

/* n: rows packed; t: columns packed; r: one row for all; c: one column; s: one element. */
static gk_status matrix(char layout, gk_dtype dtype, const gk_case *item, gk_tensor *out)
{
    const int64_t m = item->dims[MAP_M];
    const int64_t n = item->dims[MAP_N];
    const int64_t leading = (layout == 't' ? m : n) + item->pad;
    *out = gk_matrix_strided(NULL, dtype, m, n, leading, 1);
    switch (layout) {
    case 'n':
        break;
    case 't':
        *out = gk_matrix_strided(NULL, dtype, m, n, 1, leading);
        break;
    case 'r':
        out->stride[0] = 0;
        break;
    case 'c':
        out->stride[1] = 0;
        break;
    case 's':
        out->stride[0] = out->stride[1] = 0;
        break;
    default:
        return gk_fail(
            GK_ERR_INVALID, WHERE,
            "layout has '%c', must be one of n, t, r, c, s for the inputs and n or t for "
            "out",
            layout);
    }
    if (gk_tensor_extent(out) < 0) {
        return gk_fail(GK_ERR_INVALID, WHERE, "%lld x %lld does not fit in 63 bits", (long long)m,
                       (long long)n);
    }
    return GK_OK;
}

/* Without a preset's expression there is a sum of two inputs. The layout's first letter is the last
 * input's (the others' too, if it is n or t), its second out's. */
gk_status gki_map_example(const gk_case *item, gk_tensor *tensors, gk_call *call)
{
    const char *layout = item->layout != NULL ? item->layout : "nn";
    map_expression expression;
    char error[MAP_MAX_ERROR];
    gk_dtype in;
    gk_dtype out;
    gk_status status = parse_dtypes(item->dtype, &in, &out);
    if (status != GK_OK) {
        return status;
    }
    if (strlen(layout) != 2 || item->pad < 0 || item->dims[MAP_M] < 0 || item->dims[MAP_N] < 0 ||
        item->pad > INT64_MAX - item->dims[MAP_N] || item->pad > INT64_MAX - item->dims[MAP_M]) {
        return gk_fail(GK_ERR_INVALID, WHERE, "layout '%s', pad %lld, %lld x %lld is no case",
                       layout, (long long)item->pad, (long long)item->dims[MAP_M],
                       (long long)item->dims[MAP_N]);
    }
    call->text = call->text != NULL ? call->text : "x0 + x1";
    if (!gki_map_parse(call->text, &expression, error)) {
        return gk_fail(GK_ERR_INVALID, WHERE, "expression: %s", error);
    }
    memset(call->args, 0, sizeof(call->args));
    const bool plain = layout[0] == 'n' || layout[0] == 't';
    for (int i = 0; i < MAP_MAX_INPUTS && status == GK_OK; i++) {
        if (expression.inputs >> i & 1) {
            const bool last = expression.inputs >> i == 1;
            status = matrix(last || plain ? layout[0] : 'n', in, item, &tensors[i]);
            call->args[i] = &tensors[i];
        }
    }
    if (status == GK_OK && layout[1] != 'n' && layout[1] != 't') {
        status = gk_fail(GK_ERR_INVALID, WHERE, "layout is '%s', out must be n or t", layout);
    }
    if (status == GK_OK) {
        status = matrix(layout[1], out, item, &tensors[MAP_OUT]);
        call->args[MAP_OUT] = &tensors[MAP_OUT];
    }
    return status;
}

/* --- smaller calls --- */

static int64_t operations(const gk_call *call)
{
    map_expression expression;
    char error[MAP_MAX_ERROR];
    return gki_map_parse(call->text, &expression, error) ? expression.n_nodes : 1;
}

/* The call on the axes that it really has. */
static void copy_axes(const gk_call *call, const map_axes *axes, const int64_t *shape,
                      gk_tensor *tensors, gk_call *out)
{
    *out = *call;
    for (int i = 0; i < MAP_N_ARGS; i++) {
        if (call->args[i] == NULL) {
            continue;
        }
        tensors[i] = *call->args[i];
        tensors[i].rank = axes->rank;
        for (int32_t axis = 0; axis < axes->rank; axis++) {
            tensors[i].shape[axis] = shape[axis];
            tensors[i].stride[axis] = axes->stride[i][axis];
        }
        out->args[i] = &tensors[i];
    }
}

/* Axes become shorter and keep their strides: where they did not go on from one another before,
 * they do not now. None becomes 1, which would leave it out. */
bool gki_map_reduce(const gk_call *call, int64_t max_flops, gk_tensor *tensors, gk_call *out)
{
    enum { MOST = 200003 };
    map_axes axes;
    int64_t shape[GK_MAX_RANK];
    int64_t left = max_flops / operations(call);
    left = left < MOST ? left : MOST;
    gki_map_axes(call, &axes);
    for (int32_t axis = axes.rank - 1; axis >= 0; axis--) {
        int64_t share = left;
        for (int32_t other = 0; other < axis; other++) {
            /* Some repetitions of each outer axis. */
            share /= axes.shape[other] < 37 ? axes.shape[other] : 37;
        }
        share = share < 2 ? 2 : share;
        shape[axis] = axes.shape[axis];
        if (shape[axis] > share) {
            shape[axis] = share - (share > 2 && share % 2 == 0);
        }
        left /= shape[axis];
    }
    copy_axes(call, &axes, shape, tensors, out);
    for (int i = 0; i < MAP_N_ARGS; i++) {
        tensors[i].data = NULL;
    }
    return true;
}

/* Where a block of `length` of `size` begins: first, last, then anywhere. */
static int64_t begin(uint32_t index, uint64_t salt, int64_t size, int64_t length)
{
    const int64_t last = size - length;
    if (index < 2) {
        return index == 0 ? 0 : last;
    }
    uint64_t x = (index + 64 * salt) * 0x9e3779b97f4a7c15u;
    x ^= x >> 31;
    x *= 0xbf58476d1ce4e5b9u;
    x ^= x >> 29;
    return (int64_t)(x % ((uint64_t)last + 1));
}

bool gki_map_part(const gk_call *call, uint32_t index, int64_t max_flops, gk_tensor *tensors,
                  gk_call *out)
{
    enum { PARTS = 8, MOST = 100000 };
    map_axes axes;
    int64_t shape[GK_MAX_RANK];
    int64_t left = max_flops / operations(call);
    bool is_whole = true;
    left = left < MOST ? left : MOST;
    gki_map_axes(call, &axes);
    for (int32_t axis = axes.rank - 1; axis >= 0; axis--) {
        shape[axis] = axes.shape[axis] < left ? axes.shape[axis] : left > 0 ? left : 1;
        is_whole = is_whole && shape[axis] == axes.shape[axis];
        left /= shape[axis];
    }
    if (index >= PARTS || (index > 0 && is_whole)) {
        return false;
    }
    copy_axes(call, &axes, shape, tensors, out);
    for (int32_t axis = 0; axis < axes.rank; axis++) {
        const int64_t at = begin(index, (uint64_t)axis, axes.shape[axis], shape[axis]);
        for (int i = 0; i < MAP_N_ARGS; i++) {
            if (call->args[i] != NULL && tensors[i].data != NULL) {
                tensors[i].data =
                    (unsigned char *)tensors[i].data +
                    at * axes.stride[i][axis] * (int64_t)gk_dtype_size((gk_dtype)tensors[i].dtype);
            }
        }
    }
    return true;
}
