/* Smaller problems that stand for a large one. */
#include <gk/ops.h>

#include "op/reduce.h"

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* A size up to the limit that is no multiple of usual tiles, or the whole size; 2 at least of more
 * than 1, so that its stride keeps its meaning. */
static int64_t ragged(int64_t size, int64_t limit)
{
    if (size <= limit) {
        return size;
    }
    const int64_t odd = limit - (limit % 2 == 0 ? 1 : 0);
    return odd >= 3 ? odd : smaller(size, 2);
}

/* Elements that move on by a multiple of the alignment and of nothing longer. */
static int64_t spaced(int64_t elements, int64_t size, int64_t align)
{
    const int64_t unit = align > size ? align / size : 1;
    const int64_t units = gki_reduce_ceil_div(elements, unit);
    return (align < 16 && units % 2 == 0 ? units + 1 : units) * unit;
}

/*
 * x [OUTER, AXIS, INNER], laid out like the call's: which axis adjoins and how rows are aligned is
 * what its class consists of.
 */
bool gki_reduce_reduce(const gk_call *call, int64_t max_flops, gk_tensor *tensors, gk_call *out)
{
    gk_problem problem = {0};
    if (gki_reduce_infer(call, &problem) != GK_OK) {
        return false;
    }
    const gk_tensor *x = call->args[REDUCE_X];
    const int64_t size = (int64_t)gk_dtype_size((gk_dtype)x->dtype);
    const int64_t align = problem.align[REDUCE_X];
    const bool across = problem.layout[REDUCE_X] == GK_LAYOUT_COL;
    const bool strided = problem.layout[REDUCE_X] == GK_LAYOUT_STRIDED;
    const int64_t length = smaller(problem.dims[REDUCE_AXIS], 4099);
    const int64_t room = smaller(max_flops, INT64_C(1) << 40) / (length > 0 ? length : 1);
    const int64_t inner = ragged(problem.dims[REDUCE_INNER], smaller(room, 1031));
    const int64_t outer = ragged(problem.dims[REDUCE_OUTER], smaller(room / inner, 1031));
    const int64_t axis =
        ragged(problem.dims[REDUCE_AXIS], max_flops / (inner * outer > 0 ? inner * outer : 1));
    const int64_t between = strided ? 2 : 1;
    gk_tensor *t = &tensors[REDUCE_X];
    *out = *call;
    *t = (gk_tensor){.dtype = x->dtype, .rank = 3, .shape = {outer, axis, inner}};
    t->stride[2] = between;
    t->stride[1] = across ? spaced(inner, size, align) : between;
    t->stride[0] = across ? spaced(t->stride[1] * axis, size, align)
                          : spaced(axis * between + (strided || axis == 1 ? 1 : 0), size, align);
    tensors[REDUCE_OUT] = gk_matrix(NULL, (gk_dtype)call->args[REDUCE_OUT]->dtype, outer, inner);
    out->args[REDUCE_X] = t;
    out->args[REDUCE_OUT] = &tensors[REDUCE_OUT];
    out->attrs[REDUCE_ATTR_AXIS] = 1;
    out->attrs[REDUCE_ATTR_KEEPDIM] = 0;
    return true;
}

static void advance(gk_tensor *t, int64_t elements)
{
    if (t->data != NULL) {
        t->data = (unsigned char *)t->data + elements * (int64_t)gk_dtype_size((gk_dtype)t->dtype);
    }
}

/* Where a block of `length` of `size` begins: first, last, then anywhere. */
static int64_t begin(uint32_t index, uint64_t salt, int64_t size, int64_t length)
{
    const int64_t last = size - length;
    if (index < 2) {
        return index == 0 ? 0 : last;
    }
    uint64_t x = (index + salt) * 0x9e3779b97f4a7c15u;
    x ^= x >> 31;
    x *= 0xbf58476d1ce4e5b9u;
    x ^= x >> 29;
    return (int64_t)(x % ((uint64_t)last + 1));
}

/* Blocks of out, as many elements as the work allows, over all that goes into them. */
bool gki_reduce_part(const gk_call *call, uint32_t index, int64_t max_flops, gk_tensor *tensors,
                     gk_call *out)
{
    enum { PARTS = 8 };
    const int reduced = gki_reduce_axis(call);
    const gk_tensor *x = call->args[REDUCE_X];
    int64_t length = 1;
    bool empty = false;
    for (int axis = 0; axis < x->rank; axis++) {
        const bool goes = reduced < 0 || axis == reduced;
        length *= goes && x->shape[axis] > 0 ? x->shape[axis] : 1;
        empty = empty || (!goes && x->shape[axis] == 0);
    }
    if (index >= PARTS || empty) {
        return false;
    }
    *out = *call;
    for (int i = 0; i < REDUCE_N_ARGS; i++) {
        tensors[i] = *call->args[i];
        out->args[i] = &tensors[i];
    }
    int64_t left = max_flops / length;
    bool whole = true;
    for (int axis = x->rank; axis-- > 0 && reduced >= 0;) {
        if (axis == reduced) {
            continue;
        }
        const int to = gki_reduce_out_axis(call, axis);
        const int64_t n = left < 1 ? 1 : smaller(left, x->shape[axis]);
        const int64_t first = begin(index, (uint64_t)axis * 1000 + 1, x->shape[axis], n);
        whole = whole && n == x->shape[axis];
        left /= n;
        tensors[REDUCE_X].shape[axis] = n;
        tensors[REDUCE_OUT].shape[to] = n;
        advance(&tensors[REDUCE_X], first * x->stride[axis]);
        advance(&tensors[REDUCE_OUT], first * tensors[REDUCE_OUT].stride[to]);
    }
    return index == 0 || !whole;
}
