#include <gk/ops.h>

#include "op/reduce.h"

static const char WHERE[] = "reduce";
static const char *const names[REDUCE_N_ARGS] = {"x", "out"};

static gk_status check_form(const char *name, const gk_tensor *t)
{
    if (t == NULL) {
        return gk_fail(GK_ERR_INVALID, WHERE, "%s is NULL", name);
    }
    if (gk_dtype_size((gk_dtype)t->dtype) == 0) {
        return gk_fail(GK_ERR_INVALID, WHERE, "%s.dtype is %d, which is no gk_dtype", name,
                       (int)t->dtype);
    }
    if (t->rank < 1 || t->rank > GK_MAX_RANK) {
        return gk_fail(GK_ERR_INVALID, WHERE, "%s.rank is %d, must be 1 to %d", name, (int)t->rank,
                       GK_MAX_RANK);
    }
    for (int i = 0; i < 4; i++) {
        if (t->reserved[i] != 0) {
            return gk_fail(GK_ERR_INVALID, WHERE, "%s.reserved[%d] is %u, must be 0", name, i,
                           (unsigned)t->reserved[i]);
        }
    }
    for (int axis = 0; axis < t->rank; axis++) {
        if (t->shape[axis] < 0) {
            return gk_fail(GK_ERR_INVALID, WHERE, "%s.shape[%d] is %lld, must not be negative",
                           name, axis, (long long)t->shape[axis]);
        }
        if (t->stride[axis] < 0) {
            return gk_fail(GK_ERR_INVALID, WHERE, "%s.stride[%d] is %lld, must not be negative",
                           name, axis, (long long)t->stride[axis]);
        }
    }
    return GK_OK;
}

static gk_status check_attrs(const gk_call *call)
{
    const double op = call->attrs[REDUCE_ATTR_OP];
    const double axis = call->attrs[REDUCE_ATTR_AXIS];
    const double keepdim = call->attrs[REDUCE_ATTR_KEEPDIM];
    const int rank = call->args[REDUCE_X]->rank;
    if (!(op >= GK_REDUCE_SUM && op <= GK_REDUCE_ARGMAX && op == (double)(int)op)) {
        return gk_fail(GK_ERR_INVALID, WHERE, "op is %g, must be a whole number from %d to %d", op,
                       GK_REDUCE_SUM, GK_REDUCE_ARGMAX);
    }
    const bool whole = axis >= 0 && axis < rank && axis == (double)(int)axis;
    if (!whole && axis != GK_REDUCE_ALL) {
        return gk_fail(GK_ERR_INVALID, WHERE,
                       "axis is %g but x.rank is %d, must be 0 to %d or GK_REDUCE_ALL", axis, rank,
                       rank - 1);
    }
    if (keepdim != 0 && keepdim != 1) {
        return gk_fail(GK_ERR_INVALID, WHERE, "keepdim is %g, must be 0 or 1", keepdim);
    }
    return GK_OK;
}

static gk_status check_dtypes(const gk_call *call)
{
    const gk_dtype x = (gk_dtype)call->args[REDUCE_X]->dtype;
    const gk_dtype out = (gk_dtype)call->args[REDUCE_OUT]->dtype;
    const double op = call->attrs[REDUCE_ATTR_OP];
    if (x != GK_F64 && x != GK_F32 && x != GK_F16 && x != GK_BF16 && x != GK_I32) {
        return gk_fail(GK_ERR_UNSUPPORTED, WHERE,
                       "x.dtype is %s, must be f64, f32, f16, bf16 or i32", gk_dtype_name(x));
    }
    if (op == GK_REDUCE_ARGMAX) {
        return out == GK_I32
                   ? GK_OK
                   : gk_fail(GK_ERR_UNSUPPORTED, WHERE,
                             "out.dtype is %s, must be i32 for op argmax", gk_dtype_name(out));
    }
    if (x == GK_I32 && op == GK_REDUCE_MEAN) {
        return gk_fail(GK_ERR_UNSUPPORTED, WHERE, "x.dtype is i32, of which op mean is not taken");
    }
    if (out != x && !(out == GK_F32 && (x == GK_F16 || x == GK_BF16))) {
        return gk_fail(GK_ERR_UNSUPPORTED, WHERE,
                       "out.dtype is %s but x.dtype is %s: out must be %s%s", gk_dtype_name(out),
                       gk_dtype_name(x), gk_dtype_name(x),
                       x == GK_F16 || x == GK_BF16 ? " or f32" : "");
    }
    return GK_OK;
}

static gk_status check_size(const gk_tensor *out, int axis, int64_t size, int x_axis)
{
    if (out->shape[axis] == size) {
        return GK_OK;
    }
    if (x_axis < 0) {
        return gk_fail(GK_ERR_INVALID, WHERE, "out.shape[%d] is %lld, must be 1", axis,
                       (long long)out->shape[axis]);
    }
    return gk_fail(GK_ERR_INVALID, WHERE, "out.shape[%d] is %lld but x.shape[%d] is %lld", axis,
                   (long long)out->shape[axis], x_axis, (long long)size);
}

/* out has x's axes without the one that goes, or with it as 1; of a tensor that loses its last axis
 * a single element is left. */
static gk_status check_shapes(const gk_call *call)
{
    const gk_tensor *x = call->args[REDUCE_X];
    const gk_tensor *out = call->args[REDUCE_OUT];
    const int reduced = gki_reduce_axis(call);
    const bool keeps = call->attrs[REDUCE_ATTR_KEEPDIM] != 0;
    const int rank = keeps ? x->rank : reduced < 0 || x->rank == 1 ? 1 : x->rank - 1;
    if (out->rank != rank) {
        return gk_fail(GK_ERR_INVALID, WHERE, "out.rank is %d but x.rank is %d: out's must be %d",
                       (int)out->rank, (int)x->rank, rank);
    }
    if (!keeps && (reduced < 0 || x->rank == 1)) {
        return check_size(out, 0, 1, -1);
    }
    gk_status status = GK_OK;
    for (int axis = 0; axis < x->rank && status == GK_OK; axis++) {
        const bool goes = reduced < 0 || axis == reduced;
        if (!goes) {
            status = check_size(out, gki_reduce_out_axis(call, axis), x->shape[axis], axis);
        } else if (keeps) {
            status = check_size(out, axis, 1, -1);
        }
    }
    return status;
}

/* Elements of all axes, or of those that stay; -1 if they do not fit in 63 bits. */
static int64_t count(const gk_tensor *x, int left_out)
{
    int64_t product = 1;
    bool empty = false;
    bool fits = true;
    for (int axis = 0; axis < x->rank; axis++) {
        if (axis == left_out) {
            continue;
        }
        if (x->shape[axis] == 0) {
            empty = true;
        } else if (__builtin_mul_overflow(product, x->shape[axis], &product)) {
            fits = false;
            product = 1;
        }
    }
    return empty ? 0 : fits ? product : -1;
}

static int empty_axis(const gk_tensor *x)
{
    int axis = 0;
    while (x->shape[axis] != 0) {
        axis++;
    }
    return axis;
}

static gk_status check_counts(const gk_call *call)
{
    static const char *const words[] = {"sum", "mean", "max", "min", "argmax"};
    const gk_tensor *x = call->args[REDUCE_X];
    const int op = (int)call->attrs[REDUCE_ATTR_OP];
    const int reduced = gki_reduce_axis(call);
    const int64_t elements = count(x, -1);
    if (elements < 0) {
        return gk_fail(GK_ERR_INVALID, WHERE, "x's elements are too many to count in 63 bits");
    }
    const int64_t outputs = reduced < 0 ? 1 : count(x, reduced);
    const int64_t length = reduced < 0 ? elements : x->shape[reduced];
    if (outputs != 0 && length == 0 && op != GK_REDUCE_SUM && op != GK_REDUCE_MEAN) {
        const int axis = reduced < 0 ? empty_axis(x) : reduced;
        return gk_fail(GK_ERR_INVALID, WHERE, "x.shape[%d] is 0: there is no %s of no elements",
                       axis, words[op]);
    }
    if (op == GK_REDUCE_ARGMAX && length > INT32_MAX) {
        return gk_fail(GK_ERR_UNSUPPORTED, WHERE,
                       "argmax over %lld elements, its i32 counts up to %lld", (long long)length,
                       (long long)INT32_MAX);
    }
    return GK_OK;
}

static gk_status check_memory(const char *name, const gk_tensor *t, int64_t *bytes)
{
    const uintptr_t address = (uintptr_t)t->data;
    const int64_t size = (int64_t)gk_dtype_size((gk_dtype)t->dtype);
    *bytes = gk_tensor_extent(t);
    if (*bytes < 0) {
        return gk_fail(GK_ERR_INVALID, WHERE,
                       "%s does not fit in 63 bits: shape[0] is %lld, stride[0] %lld", name,
                       (long long)t->shape[0], (long long)t->stride[0]);
    }
    if (*bytes == 0) {
        return GK_OK;
    }
    if (address == 0) {
        return gk_fail(GK_ERR_INVALID, WHERE, "%s.data is NULL but %s reaches over %lld bytes",
                       name, name, (long long)*bytes);
    }
    if ((address & (uintptr_t)(size - 1)) != 0) {
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

/* --- overlap --- */

/* Axes of more than one element, in bytes, the largest stride first. */
typedef struct lattice {
    uint64_t stride[2 * GK_MAX_RANK];
    uint64_t reach[2 * GK_MAX_RANK]; /* of an axis: all its steps */
    int owner[2 * GK_MAX_RANK];
    int n;
} lattice;

static void add_axes(const gk_tensor *t, int owner, lattice *l)
{
    const uint64_t size = gk_dtype_size((gk_dtype)t->dtype);
    for (int axis = 0; axis < t->rank; axis++) {
        const uint64_t stride = (uint64_t)t->stride[axis] * size;
        if (t->shape[axis] <= 1 || stride == 0) {
            continue;
        }
        int at = l->n++;
        for (; at > 0 && l->stride[at - 1] < stride; at--) {
            l->stride[at] = l->stride[at - 1];
            l->reach[at] = l->reach[at - 1];
            l->owner[at] = l->owner[at - 1];
        }
        l->stride[at] = stride;
        l->reach[at] = stride * (uint64_t)(t->shape[axis] - 1);
        l->owner[at] = owner;
    }
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

/*
 * Whether two tensors whose byte ranges meet are known to be disjoint: modulo a common step of the
 * longer strides, what the shorter ones reach over lies apart. Other interleavings are taken to
 * overlap.
 */
static bool interleaved(const gk_tensor *a, const gk_tensor *b)
{
    lattice l = {.n = 0};
    add_axes(a, 0, &l);
    add_axes(b, 1, &l);
    const bool a_first = (uintptr_t)a->data <= (uintptr_t)b->data;
    const uint64_t distance = a_first ? (uint64_t)((uintptr_t)b->data - (uintptr_t)a->data)
                                      : (uint64_t)((uintptr_t)a->data - (uintptr_t)b->data);
    uint64_t period = 0;
    for (int outer = 1; outer <= l.n; outer++) {
        uint64_t width[2] = {gk_dtype_size((gk_dtype)a->dtype), gk_dtype_size((gk_dtype)b->dtype)};
        period = gcd(period, l.stride[outer - 1]);
        for (int i = outer; i < l.n; i++) {
            width[l.owner[i]] += l.reach[i];
        }
        const uint64_t phase = distance % period;
        if (phase >= width[a_first ? 0 : 1] && width[a_first ? 1 : 0] <= period - phase) {
            return true;
        }
    }
    return false;
}

/* True if no two elements are known to share memory: each axis steps over all that shorter ones
 * reach. */
static bool is_apart(const gk_tensor *t)
{
    const int64_t size = (int64_t)gk_dtype_size((gk_dtype)t->dtype);
    lattice l = {.n = 0};
    add_axes(t, 0, &l);
    uint64_t width = (uint64_t)size;
    for (int i = l.n; i-- > 0;) {
        if (l.stride[i] < width) {
            return false;
        }
        width += l.reach[i];
    }
    return true;
}

static gk_status check_output(const gk_tensor *out)
{
    for (int axis = 0; axis < out->rank; axis++) {
        if (out->stride[axis] == 0 && out->shape[axis] > 1) {
            return gk_fail(GK_ERR_INVALID, WHERE,
                           "out.stride[%d] is 0 with out.shape[%d] %lld: out overlaps itself", axis,
                           axis, (long long)out->shape[axis]);
        }
    }
    if (is_apart(out)) {
        return GK_OK;
    }
    return gk_fail(GK_ERR_INVALID, WHERE,
                   "out's axes interleave or overlap: out.shape[0] is %lld, out.stride[0] %lld",
                   (long long)out->shape[0], (long long)out->stride[0]);
}

static gk_status check_all_memory(const gk_call *call)
{
    const gk_tensor *x = call->args[REDUCE_X];
    const gk_tensor *out = call->args[REDUCE_OUT];
    int64_t bytes[REDUCE_N_ARGS];
    for (int i = 0; i < REDUCE_N_ARGS; i++) {
        const gk_status status = check_memory(names[i], call->args[i], &bytes[i]);
        if (status != GK_OK) {
            return status;
        }
    }
    if (bytes[REDUCE_OUT] == 0) {
        return GK_OK;
    }
    const gk_status status = check_output(out);
    if (status != GK_OK || bytes[REDUCE_X] == 0) {
        return status;
    }
    const uintptr_t x_first = (uintptr_t)x->data;
    const uintptr_t out_first = (uintptr_t)out->data;
    if (x_first + (uintptr_t)bytes[REDUCE_X] <= out_first ||
        out_first + (uintptr_t)bytes[REDUCE_OUT] <= x_first || interleaved(x, out)) {
        return GK_OK;
    }
    return gk_fail(GK_ERR_INVALID, WHERE,
                   "out overlaps x: out is %lld bytes at %p, x %lld bytes at %p",
                   (long long)bytes[REDUCE_OUT], out->data, (long long)bytes[REDUCE_X], x->data);
}

/* --- the problem --- */

static void write_problem(const gk_call *call, gk_problem *problem)
{
    const gk_tensor *x = call->args[REDUCE_X];
    const uint64_t size = gk_dtype_size((gk_dtype)x->dtype);
    gk_reduce_args view;
    gki_reduce_view(call, &view);
    const bool along = view.n_reduced == 1 && view.step == 1;
    const bool across = view.n_reduced <= 1 && view.inner > 1 && !along;
    uint64_t bits = 16;
    if (view.outputs > 0 && view.length > 0) {
        bits |= (uint64_t)(uintptr_t)x->data;
        for (long long i = 0; i < view.n_kept - (across ? 1 : 0); i++) {
            bits |= (uint64_t)view.kept_x[i] * size;
        }
        bits |= across ? (uint64_t)view.step * size : 0;
    }
    problem->dims[REDUCE_INNER] = across && view.outputs > 0 ? view.inner : 1;
    problem->dims[REDUCE_OUTER] = view.outputs / problem->dims[REDUCE_INNER];
    problem->dims[REDUCE_AXIS] = view.length;
    for (int i = 0; i < REDUCE_N_ARGS; i++) {
        problem->dtype[i] = (uint8_t)call->args[i]->dtype;
    }
    if (across) {
        problem->layout[REDUCE_X] = GK_LAYOUT_COL;
    } else {
        problem->layout[REDUCE_X] =
            along || view.n_reduced == 0 ? GK_LAYOUT_ROW : GK_LAYOUT_STRIDED;
    }
    const bool strided = problem->layout[REDUCE_X] == GK_LAYOUT_STRIDED;
    problem->align[REDUCE_X] = (uint8_t)(strided ? size : bits & (~bits + 1));
    /* Kernels write element by element: one class serves all. */
    problem->align[REDUCE_OUT] = (uint8_t)gk_dtype_size((gk_dtype)call->args[REDUCE_OUT]->dtype);
    problem->attrs[REDUCE_ATTR_OP] = (uint8_t)call->attrs[REDUCE_ATTR_OP];
}

gk_status gki_reduce_infer(const gk_call *call, gk_problem *problem)
{
    gk_status status = GK_OK;
    for (int i = 0; i < REDUCE_N_ARGS && status == GK_OK; i++) {
        status = check_form(names[i], call->args[i]);
    }
    if (status == GK_OK) {
        status = check_attrs(call);
    }
    if (status == GK_OK) {
        status = check_dtypes(call);
    }
    if (status == GK_OK) {
        status = check_shapes(call);
    }
    if (status == GK_OK) {
        status = check_counts(call);
    }
    if (status == GK_OK) {
        status = check_all_memory(call);
    }
    if (status == GK_OK) {
        write_problem(call, problem);
    }
    return status;
}
