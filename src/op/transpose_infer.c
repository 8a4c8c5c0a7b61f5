#include <string.h>

#include "op/transpose.h"

static const char WHERE[] = "transpose";

/* The strides of the axes longer than 1, ascending, and their lengths. */
typedef struct axes {
    int count;
    int64_t stride[3];
    int64_t length[3];
} axes;

static axes axes_of(const gk_tensor *t)
{
    axes a = {0, {0}, {0}};
    for (int axis = 0; axis < t->rank; axis++) {
        if (t->shape[axis] <= 1) {
            continue;
        }
        int at = a.count++;
        for (; at > 0 && a.stride[at - 1] > t->stride[axis]; at--) {
            a.stride[at] = a.stride[at - 1];
            a.length[at] = a.length[at - 1];
        }
        a.stride[at] = t->stride[axis];
        a.length[at] = t->shape[axis];
    }
    return a;
}

static gk_status check_form(const char *name, const gk_tensor *t)
{
    if (gk_dtype_size((gk_dtype)t->dtype) == 0) {
        return gk_fail(GK_ERR_INVALID, WHERE, "%s.dtype is %d, which is no gk_dtype", name,
                       (int)t->dtype);
    }
    if (t->rank != 2 && t->rank != 3) {
        return gk_fail(GK_ERR_INVALID, WHERE, "%s.rank is %d, must be 2, or 3 for a batch", name,
                       (int)t->rank);
    }
    for (int i = 0; i < 4; i++) {
        if (t->reserved[i] != 0) {
            return gk_fail(GK_ERR_INVALID, WHERE, "%s.reserved[%d] is %u, must be 0", name, i,
                           (unsigned)t->reserved[i]);
        }
    }
    for (int axis = 0; axis < t->rank; axis++) {
        if (t->shape[axis] < 0 || t->stride[axis] < 0) {
            const bool shape = t->shape[axis] < 0;
            return gk_fail(GK_ERR_INVALID, WHERE, "%s.%s[%d] is %lld, must not be negative", name,
                           shape ? "shape" : "stride", axis,
                           (long long)(shape ? t->shape[axis] : t->stride[axis]));
        }
    }
    return GK_OK;
}

static gk_status check_shapes(const gk_tensor *x, const gk_tensor *out)
{
    if (x->dtype != out->dtype) {
        return gk_fail(GK_ERR_UNSUPPORTED, WHERE, "out.dtype is %s but x.dtype is %s",
                       gk_dtype_name((gk_dtype)out->dtype), gk_dtype_name((gk_dtype)x->dtype));
    }
    if (x->rank != out->rank) {
        return gk_fail(GK_ERR_INVALID, WHERE, "out.rank is %d but x.rank is %d", (int)out->rank,
                       (int)x->rank);
    }
    const int last = x->rank - 1;
    for (int axis = 0; axis <= last; axis++) {
        const int from = axis == last ? last - 1 : axis == last - 1 ? last : axis;
        if (out->shape[axis] != x->shape[from]) {
            return gk_fail(GK_ERR_INVALID, WHERE, "out.shape[%d] is %lld but x.shape[%d] is %lld",
                           axis, (long long)out->shape[axis], from, (long long)x->shape[from]);
        }
    }
    return GK_OK;
}

static gk_status check_memory(const char *name, const gk_tensor *t, int64_t *bytes)
{
    const int64_t size = (int64_t)gk_dtype_size((gk_dtype)t->dtype);
    const uintptr_t address = (uintptr_t)t->data;
    *bytes = gk_tensor_extent(t);
    if (*bytes < 0) {
        const int last = t->rank - 1;
        return gk_fail(GK_ERR_INVALID, WHERE,
                       "%s does not fit in 63 bits: its last axes are [%lld, %lld], strides [%lld, "
                       "%lld]",
                       name, (long long)t->shape[last - 1], (long long)t->shape[last],
                       (long long)t->stride[last - 1], (long long)t->stride[last]);
    }
    if (*bytes == 0) {
        return GK_OK;
    }
    if (address == 0) {
        return gk_fail(GK_ERR_INVALID, WHERE, "%s.data is NULL but %s takes %lld bytes", name, name,
                       (long long)*bytes);
    }
    if (address % (uintptr_t)size != 0) {
        return gk_fail(GK_ERR_INVALID, WHERE,
                       "%s.data is %p, not a multiple of %lld, the size of %s", name, t->data,
                       (long long)size, gk_dtype_name((gk_dtype)t->dtype));
    }
    if (address + (uintptr_t)*bytes < address) {
        return gk_fail(GK_ERR_INVALID, WHERE, "%s's %lld bytes from %p on exceed the address space",
                       name, (long long)*bytes, t->data);
    }
    return GK_OK;
}

static uint64_t gcd(uint64_t a, uint64_t b)
{
    while (b != 0) {
        const uint64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

/* Whether each axis steps over all that the smaller strides reach, or two axes never meet. */
static bool is_injective(const axes *a)
{
    int64_t reach = 0;
    bool nested = true;
    for (int i = 0; i < a->count; i++) {
        nested = nested && a->stride[i] > reach;
        reach += (a->length[i] - 1) * a->stride[i];
    }
    if (nested || a->count != 2 || a->stride[0] == 0) {
        return nested;
    }
    const uint64_t common = gcd((uint64_t)a->stride[0], (uint64_t)a->stride[1]);
    return (uint64_t)a->stride[1] / common >= (uint64_t)a->length[0] ||
           (uint64_t)a->stride[0] / common >= (uint64_t)a->length[1];
}

static gk_status check_output(const gk_tensor *out)
{
    const axes a = axes_of(out);
    const int last = out->rank - 1;
    if (is_injective(&a)) {
        return GK_OK;
    }
    return gk_fail(GK_ERR_INVALID, WHERE,
                   "out overlaps itself: its last strides are [%lld, %lld] but its last axes are "
                   "[%lld, %lld]",
                   (long long)out->stride[last - 1], (long long)out->stride[last],
                   (long long)out->shape[last - 1], (long long)out->shape[last]);
}

/* Whether tensors whose bytes interleave are blocks of the columns of one parent: a step by which
 * both repeat, within which they do not meet. */
static bool are_blocks(const gk_tensor *x, const gk_tensor *out, int64_t size)
{
    const axes a = axes_of(x);
    const axes b = axes_of(out);
    if (a.count == 0 || b.count == 0) {
        return false;
    }
    for (int inner_a = 0; inner_a <= a.count; inner_a++) {
        for (int inner_b = 0; inner_b <= b.count; inner_b++) {
            uint64_t period = 0;
            uint64_t width[2] = {(uint64_t)size, (uint64_t)size};
            for (int i = 0; i < a.count; i++) {
                const uint64_t step = (uint64_t)(a.stride[i] * size);
                period = i >= inner_a ? gcd(period, step) : period;
                width[0] += i >= inner_a ? 0 : step * (uint64_t)(a.length[i] - 1);
            }
            for (int i = 0; i < b.count; i++) {
                const uint64_t step = (uint64_t)(b.stride[i] * size);
                period = i >= inner_b ? gcd(period, step) : period;
                width[1] += i >= inner_b ? 0 : step * (uint64_t)(b.length[i] - 1);
            }
            if (period == 0) {
                continue;
            }
            const bool x_first = (uintptr_t)x->data <= (uintptr_t)out->data;
            const uint64_t distance = x_first ? (uintptr_t)out->data - (uintptr_t)x->data
                                              : (uintptr_t)x->data - (uintptr_t)out->data;
            const uint64_t phase = distance % period;
            if (phase >= width[x_first ? 0 : 1] && period - phase >= width[x_first ? 1 : 0]) {
                return true;
            }
        }
    }
    return false;
}

static gk_status check_overlap(const gk_tensor *x, int64_t x_bytes, const gk_tensor *out,
                               int64_t out_bytes)
{
    const uintptr_t from = (uintptr_t)x->data;
    const uintptr_t to = (uintptr_t)out->data;
    if (from + (uintptr_t)x_bytes <= to || to + (uintptr_t)out_bytes <= from ||
        are_blocks(x, out, (int64_t)gk_dtype_size((gk_dtype)x->dtype))) {
        return GK_OK;
    }
    if (from == to) {
        return gk_fail(GK_ERR_INVALID, WHERE,
                       "out overlaps x: both begin at %p, and nothing is transposed in place",
                       out->data);
    }
    return gk_fail(GK_ERR_INVALID, WHERE,
                   "out overlaps x: out is %lld bytes at %p, x %lld bytes at %p",
                   (long long)out_bytes, out->data, (long long)x_bytes, x->data);
}

/* Which of the last two axes is contiguous, or nearest to it. An axis of one element is not. */
static uint8_t fast_axis(const gk_tensor *t)
{
    const int last = t->rank - 1;
    const int64_t row = t->stride[last];
    const int64_t col = t->stride[last - 1];
    if (t->shape[last] <= 1 || t->shape[last - 1] <= 1) {
        return t->shape[last] <= 1 && t->shape[last - 1] > 1 ? TRANSPOSE_COL : TRANSPOSE_ROW;
    }
    if (row == 1 || col == 1) {
        return row == 1 ? TRANSPOSE_ROW : TRANSPOSE_COL;
    }
    return col < row ? TRANSPOSE_COL : TRANSPOSE_ROW;
}

/* The largest vector, up to 16 bytes, that starts each line of the contiguous axis and, as rows
 * that coincide have none behind them, fits between two. */
static uint8_t alignment(const gk_tensor *t, uint8_t fast)
{
    const uint64_t size = gk_dtype_size((gk_dtype)t->dtype);
    const int fast_at = fast == TRANSPOSE_ROW ? t->rank - 1 : t->rank - 2;
    uint64_t bits = (uintptr_t)t->data | 16;
    for (int axis = 0; axis < t->rank; axis++) {
        if (t->shape[axis] <= 1) {
            continue;
        }
        if (axis == fast_at) {
            bits |= t->stride[axis] == 1 ? 0 : size;
        } else {
            bits |= t->stride[axis] == 0 ? size : (uint64_t)t->stride[axis] * size;
        }
    }
    return (uint8_t)(bits & (~bits + 1));
}

/* Whether the elements fill a run without gaps: the contiguous axis, the other one, the batch. */
static bool is_run(const gk_tensor *t, uint8_t fast)
{
    const int fast_at = fast == TRANSPOSE_ROW ? t->rank - 1 : t->rank - 2;
    const int slow_at = fast == TRANSPOSE_ROW ? t->rank - 2 : t->rank - 1;
    const int64_t length = t->shape[fast_at];
    return (length <= 1 || t->stride[fast_at] == 1) &&
           (t->shape[slow_at] <= 1 || t->stride[slow_at] == length) &&
           (t->rank < 3 || t->shape[0] <= 1 || t->stride[0] == length * t->shape[slow_at]);
}

static void write_problem(const gk_tensor *x, const gk_tensor *out, gk_problem *problem)
{
    const int last = x->rank - 1;
    problem->dims[TRANSPOSE_M] = x->shape[last - 1];
    problem->dims[TRANSPOSE_N] = x->shape[last];
    problem->dims[TRANSPOSE_B] = x->rank == 3 ? x->shape[0] : 1;
    const gk_tensor *tensors[TRANSPOSE_N_ARGS] = {x, out};
    bool flat = true;
    for (int i = 0; i < TRANSPOSE_N_ARGS; i++) {
        problem->dtype[i] = (uint8_t)tensors[i]->dtype;
        problem->layout[i] = fast_axis(tensors[i]);
        if (i == TRANSPOSE_OUT && x->shape[last - 1] <= 1 && x->shape[last] <= 1) {
            problem->layout[i] = TRANSPOSE_COL; /* one element is moved as it lies */
        }
        problem->align[i] = alignment(tensors[i], problem->layout[i]);
        flat = flat && is_run(tensors[i], problem->layout[i]);
    }
    if (flat && problem->layout[TRANSPOSE_X] != problem->layout[TRANSPOSE_OUT]) {
        for (int i = 0; i < TRANSPOSE_N_ARGS; i++) {
            const uint64_t bits = (uintptr_t)tensors[i]->data | 16;
            problem->layout[i] = TRANSPOSE_FLAT;
            problem->align[i] = (uint8_t)(bits & (~bits + 1));
        }
    }
}

gk_status gki_transpose_infer(const gk_call *call, gk_problem *problem)
{
    const gk_tensor *x = call->args[TRANSPOSE_X];
    const gk_tensor *out = call->args[TRANSPOSE_OUT];
    int64_t x_bytes = 0;
    int64_t out_bytes = 0;
    if (x == NULL || out == NULL) {
        return gk_fail(GK_ERR_INVALID, WHERE, "%s is NULL", x == NULL ? "x" : "out");
    }
    gk_status status = check_form("x", x);
    status = status == GK_OK ? check_form("out", out) : status;
    status = status == GK_OK ? check_shapes(x, out) : status;
    status = status == GK_OK ? check_memory("x", x, &x_bytes) : status;
    status = status == GK_OK ? check_memory("out", out, &out_bytes) : status;
    if (status == GK_OK && out_bytes > 0) {
        status = check_output(out);
        status = status == GK_OK ? check_overlap(x, x_bytes, out, out_bytes) : status;
    }
    if (status == GK_OK) {
        write_problem(x, out, problem);
    }
    return status;
}
