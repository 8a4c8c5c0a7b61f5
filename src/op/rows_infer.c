/* The argument rules of ops on whole rows. */
#include "op/rows.h"

const char *const gki_rows_names[ROWS_MAX_ARGS] = {"x", "out", "weight", "bias"};

static gk_status check_form(const char *where, const char *name, const gk_tensor *t)
{
    if (gk_dtype_size((gk_dtype)t->dtype) == 0) {
        return gk_fail(GK_ERR_INVALID, where, "%s.dtype is %d, which is no gk_dtype", name,
                       (int)t->dtype);
    }
    if (t->rank < 1 || t->rank > GK_MAX_RANK) {
        return gk_fail(GK_ERR_INVALID, where, "%s.rank is %d, must be 1 to %d", name, (int)t->rank,
                       GK_MAX_RANK);
    }
    for (int i = 0; i < 4; i++) {
        if (t->reserved[i] != 0) {
            return gk_fail(GK_ERR_INVALID, where, "%s.reserved[%d] is %u, must be 0", name, i,
                           (unsigned)t->reserved[i]);
        }
    }
    for (int axis = 0; axis < t->rank; axis++) {
        if (t->shape[axis] < 0) {
            return gk_fail(GK_ERR_INVALID, where, "%s.shape[%d] is %lld, must not be negative",
                           name, axis, (long long)t->shape[axis]);
        }
        if (t->stride[axis] < 0) {
            return gk_fail(GK_ERR_INVALID, where, "%s.stride[%d] is %lld, must not be negative",
                           name, axis, (long long)t->stride[axis]);
        }
    }
    return GK_OK;
}

static gk_status check_shapes(const char *where, const gk_tensor *x, const gk_tensor *out)
{
    if (x->rank != out->rank) {
        return gk_fail(GK_ERR_INVALID, where, "out.rank is %d but x.rank is %d", (int)out->rank,
                       (int)x->rank);
    }
    for (int axis = 0; axis < x->rank; axis++) {
        if (x->shape[axis] != out->shape[axis]) {
            return gk_fail(GK_ERR_INVALID, where, "out.shape[%d] is %lld but x.shape[%d] is %lld",
                           axis, (long long)out->shape[axis], axis, (long long)x->shape[axis]);
        }
    }
    return GK_OK;
}

static bool is_float(int32_t dtype)
{
    return dtype == GK_F64 || dtype == GK_F32 || dtype == GK_F16 || dtype == GK_BF16;
}

static gk_status check_dtypes(const char *where, const gk_tensor *x, const gk_tensor *out)
{
    const gk_tensor *const both[] = {x, out};
    for (int i = 0; i < 2; i++) {
        if (!is_float(both[i]->dtype)) {
            return gk_fail(GK_ERR_UNSUPPORTED, where,
                           "%s.dtype is %s, must be f32, f16, bf16 or f64", gki_rows_names[i],
                           gk_dtype_name((gk_dtype)both[i]->dtype));
        }
    }
    if ((x->dtype == GK_F64) != (out->dtype == GK_F64)) {
        return gk_fail(GK_ERR_UNSUPPORTED, where,
                       "out.dtype is %s but x.dtype is %s: f64 goes "
                       "with f64 only",
                       gk_dtype_name((gk_dtype)out->dtype), gk_dtype_name((gk_dtype)x->dtype));
    }
    return GK_OK;
}

/* A weight or bias: one value a column. */
static gk_status check_factor(const char *where, const char *name, const gk_tensor *t,
                              const gk_tensor *x)
{
    const int last = x->rank - 1;
    if (t->rank != 1) {
        return gk_fail(GK_ERR_INVALID, where, "%s.rank is %d, must be 1", name, (int)t->rank);
    }
    if (t->shape[0] != x->shape[last]) {
        return gk_fail(GK_ERR_INVALID, where, "%s.shape[0] is %lld but x.shape[%d] is %lld", name,
                       (long long)t->shape[0], last, (long long)x->shape[last]);
    }
    if (t->dtype != x->dtype && (t->dtype != GK_F32 || x->dtype == GK_F64)) {
        return gk_fail(GK_ERR_UNSUPPORTED, where,
                       "%s.dtype is %s but x.dtype is %s: it must be x's%s", name,
                       gk_dtype_name((gk_dtype)t->dtype), gk_dtype_name((gk_dtype)x->dtype),
                       x->dtype == GK_F64 ? "" : " or f32");
    }
    return GK_OK;
}

/* A tensor's place in memory. */
typedef struct span {
    uintptr_t first;
    uintptr_t bytes; /* from the first to just past the last element; 0 if it has none */
} span;

static gk_status check_memory(const char *where, const char *name, const gk_tensor *t, bool touched,
                              span *out)
{
    const int64_t size = (int64_t)gk_dtype_size((gk_dtype)t->dtype);
    const int64_t extent = gk_tensor_extent(t);
    int64_t count = 1;
    bool fits = extent >= 0;
    for (int axis = 0; axis < t->rank && extent != 0; axis++) {
        fits = fits && !__builtin_mul_overflow(count, t->shape[axis], &count);
    }
    if (!fits) {
        return gk_fail(GK_ERR_INVALID, where,
                       "%s does not fit in 63 bits: its last axis has "
                       "%lld elements at stride %lld",
                       name, (long long)t->shape[t->rank - 1], (long long)t->stride[t->rank - 1]);
    }
    out->first = (uintptr_t)t->data;
    out->bytes = (uintptr_t)extent;
    if (extent == 0 || !touched) {
        out->bytes = 0;
        return GK_OK;
    }
    if (t->data == NULL) {
        return gk_fail(GK_ERR_INVALID, where, "%s.data is NULL but %s has %lld elements", name,
                       name, (long long)count);
    }
    if (out->first % (uintptr_t)size != 0) {
        return gk_fail(GK_ERR_INVALID, where,
                       "%s.data is %p, not a multiple of %lld, the size of "
                       "%s",
                       name, t->data, (long long)size, gk_dtype_name((gk_dtype)t->dtype));
    }
    if (out->first + out->bytes < out->first) {
        return gk_fail(GK_ERR_INVALID, where, "%s's %lld bytes from %p on exceed the address space",
                       name, (long long)extent, t->data);
    }
    return GK_OK;
}

/* Each axis must step over all that the axes of smaller strides reach. */
static gk_status check_output(const char *where, const gk_tensor *out)
{
    bool done[GK_MAX_RANK] = {false};
    int64_t reach = 0;
    for (int n = 0; n < out->rank; n++) {
        int next = 0;
        while (done[next]) {
            next++;
        }
        for (int axis = next + 1; axis < out->rank; axis++) {
            if (!done[axis] && out->stride[axis] < out->stride[next]) {
                next = axis;
            }
        }
        done[next] = true;
        if (out->shape[next] <= 1) {
            continue;
        }
        if (out->stride[next] <= reach) {
            return gk_fail(GK_ERR_INVALID, where,
                           "out overlaps itself: out.stride[%d] is %lld but the axes inside it "
                           "reach %lld elements",
                           next, (long long)out->stride[next], (long long)reach + 1);
        }
        reach += (out->shape[next] - 1) * out->stride[next];
    }
    return GK_OK;
}

static bool same_view(const gk_tensor *x, const gk_tensor *out)
{
    bool same = x->data == out->data && x->dtype == out->dtype;
    for (int axis = 0; axis < out->rank && same; axis++) {
        same = out->shape[axis] <= 1 || x->stride[axis] == out->stride[axis];
    }
    return same;
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

/* The greatest common divisor of `start` and the strides, in bytes, of all axes but the last. */
static uint64_t period_of(const gk_tensor *t, uint64_t start)
{
    const uint64_t size = gk_dtype_size((gk_dtype)t->dtype);
    for (int axis = 0; axis + 1 < t->rank; axis++) {
        start = t->shape[axis] > 1 ? gcd(start, (uint64_t)t->stride[axis] * size) : start;
    }
    return start;
}

/* Bytes of a row, from its first to just past its last element. */
static uint64_t row_bytes(const gk_tensor *t)
{
    const int last = t->rank - 1;
    return ((uint64_t)(t->shape[last] - 1) * (uint64_t)t->stride[last] + 1) *
           gk_dtype_size((gk_dtype)t->dtype);
}

/* Whether the rows of two tensors whose bytes meet are known to be disjoint: column blocks of one
 * parent. */
static bool side_by_side(const gk_tensor *a, const gk_tensor *b)
{
    if ((uintptr_t)b->data < (uintptr_t)a->data) {
        const gk_tensor *const lower = b;
        b = a;
        a = lower;
    }
    const uint64_t period = period_of(b, period_of(a, 0));
    if (period == 0) {
        return false;
    }
    const uint64_t phase = (uint64_t)((uintptr_t)b->data - (uintptr_t)a->data) % period;
    return phase >= row_bytes(a) && row_bytes(b) <= period - phase;
}

static gk_status check_overlap(const char *where, const gk_call *call, uint32_t n_args,
                               const span *spans)
{
    const gk_tensor *out = call->args[ROWS_OUT];
    const span *o = &spans[ROWS_OUT];
    for (uint32_t i = 0; i < n_args; i++) {
        const gk_tensor *t = call->args[i];
        const span *s = &spans[i];
        if (i == ROWS_OUT || t == NULL || s->bytes == 0 || o->bytes == 0 ||
            s->first + s->bytes <= o->first || o->first + o->bytes <= s->first ||
            (i == ROWS_X && same_view(t, out)) || side_by_side(t, out)) {
            continue;
        }
        return gk_fail(GK_ERR_INVALID, where,
                       "out overlaps %s%s: out is %lld bytes at %p, %s %lld bytes at %p",
                       gki_rows_names[i], i == ROWS_X ? " without being it" : "",
                       (long long)o->bytes, out->data, gki_rows_names[i], (long long)s->bytes,
                       t->data);
    }
    return GK_OK;
}

/* The largest power of two up to 16 that divides the address and the distances between rows. */
static uint8_t alignment(const gk_tensor *t)
{
    uint64_t bits = (uint64_t)(uintptr_t)t->data | 16;
    for (int axis = 0; axis + 1 < t->rank; axis++) {
        if (t->shape[axis] > 1) {
            bits |= (uint64_t)t->stride[axis] * gk_dtype_size((gk_dtype)t->dtype);
        }
    }
    return (uint8_t)(bits & (~bits + 1));
}

static void write_problem(const gk_call *call, uint32_t n_args, gk_problem *problem)
{
    const gk_tensor *x = call->args[ROWS_X];
    const int last = x->rank - 1;
    problem->dims[ROWS_COLS] = x->shape[last];
    problem->dims[ROWS_ROWS] = gk_tensor_extent(x) != 0;
    for (int axis = 0; axis < last && problem->dims[ROWS_ROWS] != 0; axis++) {
        problem->dims[ROWS_ROWS] *= x->shape[axis];
    }
    for (uint32_t i = 0; i < n_args; i++) {
        const gk_tensor *t = call->args[i];
        if (t == NULL) {
            continue;
        }
        const bool unit = t->stride[t->rank - 1] == 1 || t->shape[t->rank - 1] <= 1;
        problem->dtype[i] = (uint8_t)t->dtype;
        problem->layout[i] = unit ? GK_LAYOUT_ROW : GK_LAYOUT_STRIDED;
        if (i == ROWS_X && unit && problem->dims[ROWS_ROWS] > 1) {
            long long shape[GK_MAX_RANK], x_stride[GK_MAX_RANK], out_stride[GK_MAX_RANK];
            const int axes =
                gki_rows_collapse(x, call->args[ROWS_OUT], shape, x_stride, out_stride);
            problem->layout[i] = axes > 1 ? ROWS_LAYOUT_AXES : GK_LAYOUT_ROW;
        }
        problem->align[i] = unit ? alignment(t) : (uint8_t)gk_dtype_size((gk_dtype)t->dtype);
    }
}

gk_status gki_rows_infer(const char *where, uint32_t n_args, const gk_call *call,
                         gk_problem *problem)
{
    const gk_tensor *x = call->args[ROWS_X];
    const gk_tensor *out = call->args[ROWS_OUT];
    gk_status status = GK_OK;
    if (x == NULL || out == NULL) {
        return gk_fail(GK_ERR_INVALID, where, "%s is NULL",
                       gki_rows_names[x == NULL ? ROWS_X : ROWS_OUT]);
    }
    for (uint32_t i = 0; i < n_args && status == GK_OK; i++) {
        if (call->args[i] != NULL) {
            status = check_form(where, gki_rows_names[i], call->args[i]);
        }
    }
    if (status == GK_OK) {
        status = check_dtypes(where, x, out);
    }
    if (status == GK_OK) {
        status = check_shapes(where, x, out);
    }
    for (uint32_t i = ROWS_WEIGHT; i < n_args && status == GK_OK; i++) {
        if (call->args[i] != NULL) {
            status = check_factor(where, gki_rows_names[i], call->args[i], x);
        }
    }
    span spans[ROWS_MAX_ARGS] = {{0, 0}};
    const bool touched = status == GK_OK && gk_tensor_extent(out) != 0;
    for (uint32_t i = 0; i < n_args && status == GK_OK; i++) {
        if (call->args[i] != NULL) {
            status = check_memory(where, gki_rows_names[i], call->args[i], touched, &spans[i]);
        }
    }
    if (status == GK_OK && touched) {
        status = check_output(where, out);
    }
    if (status == GK_OK && touched) {
        status = check_overlap(where, call, n_args, spans);
    }
    if (status == GK_OK) {
        write_problem(call, n_args, problem);
    }
    return status;
}

bool gki_rows_is_empty(const gk_problem *problem)
{
    return problem->dims[ROWS_ROWS] == 0 || problem->dims[ROWS_COLS] == 0;
}
