#include "op/matmul_parts.h"

#include <float.h>
#include <math.h>

#include <gk/ops.h>

#include "base/numeric.h"

static const char WHERE[] = "matmul";

/* gk_dtype_size() without the call, 0 past the table. */
static uint64_t size_of(int32_t dtype)
{
#define SIZE(suffix, number, bytes, name) [GK_##suffix] = (bytes),
    static const uint8_t sizes[GK_DTYPE_COUNT] = {GK_DTYPE_MAP(SIZE)};
#undef SIZE
    return (uint32_t)dtype < GK_DTYPE_COUNT ? sizes[dtype] : 0;
}

/* A tensor's place in memory. */
typedef struct span {
    uintptr_t first;
    int64_t bytes; /* from the first to just past the last element; 0 if it has none */
} span;

static gk_status check_axis(const char *name, const gk_tensor *t, int axis)
{
    if (t->shape[axis] < 0) {
        return gk_fail(GK_ERR_INVALID, WHERE, "%s.shape[%d] is %lld, must not be negative", name,
                       axis, (long long)t->shape[axis]);
    }
    if (t->stride[axis] < 0) {
        return gk_fail(GK_ERR_INVALID, WHERE, "%s.stride[%d] is %lld, must not be negative", name,
                       axis, (long long)t->stride[axis]);
    }
    return GK_OK;
}

static gk_status check_form(const char *name, const gk_tensor *t, int rank)
{
    if (size_of(t->dtype) == 0) {
        return gk_fail(GK_ERR_INVALID, WHERE, "%s.dtype is %d, which is no gk_dtype", name,
                       (int)t->dtype);
    }
    if (t->rank != rank) {
        return gk_fail(GK_ERR_INVALID, WHERE, "%s.rank is %d, must be %d", name, (int)t->rank,
                       rank);
    }
    for (int i = 0;
         i < 4 && (t->reserved[0] | t->reserved[1] | t->reserved[2] | t->reserved[3]) != 0; i++) {
        if (t->reserved[i] != 0) {
            return gk_fail(GK_ERR_INVALID, WHERE, "%s.reserved[%d] is %u, must be 0", name, i,
                           (unsigned)t->reserved[i]);
        }
    }
    int64_t signs = t->shape[0] | t->stride[0];
    if (rank == 2) {
        signs |= t->shape[1] | t->stride[1];
    }
    for (int axis = 0; axis < rank && signs < 0; axis++) {
        const gk_status status = check_axis(name, t, axis);
        if (status != GK_OK) {
            return status;
        }
    }
    return GK_OK;
}

/* Index of the last element plus one, or -1 if it does not fit. */
static int64_t reach(const gk_tensor *t, int rank)
{
    int64_t last = 0;
    for (int axis = 0; axis < rank; axis++) {
        int64_t step;
        if (t->shape[axis] == 0) {
            return 0;
        }
        if (__builtin_mul_overflow(t->shape[axis] - 1, t->stride[axis], &step) ||
            __builtin_add_overflow(last, step, &last)) {
            return -1;
        }
    }
    return __builtin_add_overflow(last, 1, &last) ? -1 : last;
}

/* touched: whether the call reads or writes the elements at all. */
static gk_status check_memory(const char *name, const gk_tensor *t, int rank, bool touched,
                              span *out)
{
    const int64_t size = (int64_t)size_of(t->dtype);
    const int64_t elements = reach(t, rank);
    const uintptr_t address = (uintptr_t)t->data;
    int64_t bytes;
    if (elements < 0 || __builtin_mul_overflow(elements, size, &bytes)) {
        return gk_fail(GK_ERR_INVALID, WHERE,
                       "%s does not fit in 63 bits: shape [%lld, %lld], strides [%lld, %lld]", name,
                       (long long)t->shape[0], (long long)(rank > 1 ? t->shape[1] : 1),
                       (long long)t->stride[0], (long long)(rank > 1 ? t->stride[1] : 1));
    }
    out->first = address;
    out->bytes = bytes;
    if (bytes == 0) {
        return GK_OK;
    }
    if (address == 0) {
        out->bytes = 0;
        if (!touched) {
            return GK_OK;
        }
        return gk_fail(GK_ERR_INVALID, WHERE, "%s.data is NULL but %s has %lld x %lld elements",
                       name, name, (long long)t->shape[0], (long long)(rank > 1 ? t->shape[1] : 1));
    }
    if ((address & (uintptr_t)(size - 1)) != 0) {
        return gk_fail(GK_ERR_INVALID, WHERE,
                       "%s.data is %p, not a multiple of %lld, the size of %s", name, t->data,
                       (long long)size, gk_dtype_name((gk_dtype)t->dtype));
    }
    if (address + (uintptr_t)bytes < address) {
        return gk_fail(GK_ERR_INVALID, WHERE, "%s's %lld bytes from %p on exceed the address space",
                       name, (long long)bytes, t->data);
    }
    return GK_OK;
}

static gk_status check_equal(const char *left, int left_axis, int64_t left_size, const char *right,
                             int right_axis, int64_t right_size)
{
    if (left_size == right_size) {
        return GK_OK;
    }
    return gk_fail(GK_ERR_INVALID, WHERE, "%s.shape[%d] is %lld but %s.shape[%d] is %lld", left,
                   left_axis, (long long)left_size, right, right_axis, (long long)right_size);
}

static bool is_float(int32_t dtype)
{
    return dtype >= GK_F64 && dtype <= GK_E5M2;
}

static gk_status check_dtypes(const gk_tensor *a, const gk_tensor *b, const gk_tensor *c,
                              const gk_tensor *bias, const gk_tensor *residual)
{
    if (a->dtype != b->dtype) {
        return gk_fail(GK_ERR_UNSUPPORTED, WHERE, "a.dtype is %s but b.dtype is %s",
                       gk_dtype_name((gk_dtype)a->dtype), gk_dtype_name((gk_dtype)b->dtype));
    }
    const bool integers = a->dtype == GK_I32 || a->dtype == GK_I8 || a->dtype == GK_U8;
    if (!integers && !is_float(a->dtype)) {
        return gk_fail(GK_ERR_UNSUPPORTED, WHERE, "a.dtype is %s, which matmul does not take",
                       gk_dtype_name((gk_dtype)a->dtype));
    }
    if (integers ? c->dtype != GK_I32 : !is_float(c->dtype)) {
        return gk_fail(GK_ERR_UNSUPPORTED, WHERE, "c.dtype is %s but a.dtype is %s: c must be %s",
                       gk_dtype_name((gk_dtype)c->dtype), gk_dtype_name((gk_dtype)a->dtype),
                       integers ? "i32" : "a floating type");
    }
    if (bias != NULL && bias->dtype != c->dtype && (integers || bias->dtype != GK_F32)) {
        return gk_fail(GK_ERR_UNSUPPORTED, WHERE, "bias.dtype is %s but c.dtype is %s%s",
                       gk_dtype_name((gk_dtype)bias->dtype), gk_dtype_name((gk_dtype)c->dtype),
                       integers ? "" : ": bias must have c's dtype or f32");
    }
    if (residual != NULL && residual->dtype != c->dtype) {
        return gk_fail(GK_ERR_UNSUPPORTED, WHERE, "residual.dtype is %s but c.dtype is %s",
                       gk_dtype_name((gk_dtype)residual->dtype), gk_dtype_name((gk_dtype)c->dtype));
    }
    return GK_OK;
}

static gk_status check_choice(const char *name, double value, int largest)
{
    if (value >= 0 && value <= largest && value == (double)(int)value) {
        return GK_OK;
    }
    if (value > -1e9 && value < 1e9 && value == (double)(int)value) {
        return gk_fail(GK_ERR_INVALID, WHERE, "%s is %d, must be 0 to %d", name, (int)value,
                       largest);
    }
    return gk_fail(GK_ERR_INVALID, WHERE, "%s is %g, must be a whole number from 0 to %d", name,
                   value, largest);
}

/* Kernels keep factors in the type of the sums: one that f32 cannot hold would end as infinity, and
 * NaN with sums of 0, or as 0. */
static gk_status check_factor(const char *name, double value)
{
    const double magnitude = fabs(value);
    if (magnitude == 0 || magnitude >= (double)INFINITY ||
        !(magnitude > (double)FLT_MAX || magnitude < (double)FLT_MIN)) {
        return GK_OK;
    }
    return gk_fail(GK_ERR_UNSUPPORTED, WHERE,
                   "%s is %g, must be 0 or within %g to %g for sums in f32", name, value,
                   (double)FLT_MIN, (double)FLT_MAX);
}

static gk_status check_attrs(const gk_call *call, int32_t dtype)
{
    const bool integers = gki_numeric_is_integer((gk_dtype)dtype);
    const double *attrs = call->attrs;
    gk_status status = check_choice("activation", attrs[MATMUL_ACTIVATION], GK_ACT_SILU);
    if (status == GK_OK) {
        status = check_choice("math", attrs[MATMUL_MATH], GK_MATH_TF32);
    }
    if (status == GK_OK && !integers && dtype != GK_F64) {
        status = check_factor("alpha", attrs[MATMUL_ALPHA]);
        if (status == GK_OK) {
            status = check_factor("beta", attrs[MATMUL_BETA]);
        }
    }
    if (status != GK_OK || !integers) {
        return status;
    }
    if (attrs[MATMUL_ALPHA] != 1) {
        return gk_fail(GK_ERR_UNSUPPORTED, WHERE, "alpha is %g, must be 1 for integers",
                       attrs[MATMUL_ALPHA]);
    }
    if (attrs[MATMUL_BETA] != 0 && attrs[MATMUL_BETA] != 1) {
        return gk_fail(GK_ERR_UNSUPPORTED, WHERE, "beta is %g, must be 0 or 1 for integers",
                       attrs[MATMUL_BETA]);
    }
    if (attrs[MATMUL_ACTIVATION] > GK_ACT_RELU) {
        return gk_fail(GK_ERR_UNSUPPORTED, WHERE,
                       "activation is %d, must be none or relu for integers",
                       (int)attrs[MATMUL_ACTIVATION]);
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

/* Two elements (i, j) of c coincide if i * stride0 = j * stride1 has a solution within the shape.
 */
static gk_status check_output(const gk_tensor *c)
{
    for (int axis = 0; axis < 2; axis++) {
        if (c->stride[axis] == 0 && c->shape[axis] > 1) {
            return gk_fail(GK_ERR_INVALID, WHERE,
                           "c.stride[%d] is 0 with c.shape[%d] %lld: c overlaps itself", axis, axis,
                           (long long)c->shape[axis]);
        }
    }
    if (c->shape[0] <= 1 || c->shape[1] <= 1) {
        return GK_OK;
    }
    const int inner = c->stride[0] < c->stride[1] ? 0 : 1;
    if (c->stride[1 - inner] > (c->shape[inner] - 1) * c->stride[inner]) {
        return GK_OK;
    }
    const uint64_t common = gcd((uint64_t)c->stride[0], (uint64_t)c->stride[1]);
    if ((uint64_t)c->stride[1] / common >= (uint64_t)c->shape[0] ||
        (uint64_t)c->stride[0] / common >= (uint64_t)c->shape[1]) {
        return GK_OK;
    }
    return gk_fail(GK_ERR_INVALID, WHERE,
                   "c overlaps itself: c.stride is [%lld, %lld] but c.shape is [%lld, %lld]",
                   (long long)c->stride[0], (long long)c->stride[1], (long long)c->shape[0],
                   (long long)c->shape[1]);
}

/* The larger stride and the elements one step along it is wide; axes of one element count not. */
static void lattice(const gk_tensor *t, uint64_t *outer, uint64_t *inner, uint64_t *width)
{
    uint64_t stride[2] = {0, 0};
    uint64_t size[2] = {1, 1};
    for (int axis = 0; axis < t->rank; axis++) {
        if (t->shape[axis] > 1) {
            stride[axis] = (uint64_t)t->stride[axis];
            size[axis] = (uint64_t)t->shape[axis];
        }
    }
    const int o = stride[0] >= stride[1] ? 0 : 1;
    *outer = stride[o];
    *inner = stride[1 - o];
    *width = (size[1 - o] - 1) * stride[1 - o] + 1;
}

/* True if bytes [0, width_c) and [distance, distance + width_x) repeated every `period` bytes never
 * meet. */
static bool apart(uint64_t period, uint64_t distance, uint64_t width_c, uint64_t width_x)
{
    if (period == 0) {
        return false;
    }
    const uint64_t phase = distance % period;
    return phase >= width_c && width_x <= period - phase;
}

/*
 * Whether the elements of two tensors whose byte ranges meet are known to be disjoint: column (or
 * row) blocks of one parent, or elements interleaved at a common step. Other interleavings are
 * taken to overlap.
 */
static bool interleaved(const gk_tensor *c, const gk_tensor *x)
{
    const uint64_t c_size = size_of(c->dtype);
    const uint64_t x_size = size_of(x->dtype);
    uint64_t c_outer, c_inner, c_width, x_outer, x_inner, x_width;
    lattice(c, &c_outer, &c_inner, &c_width);
    lattice(x, &x_outer, &x_inner, &x_width);
    const uint64_t period = gcd(c_outer * c_size, x_outer * x_size);
    const uint64_t step = gcd(period, gcd(c_inner * c_size, x_inner * x_size));
    /* The distance modulo a period, also where x lies before c. */
    const uint64_t ahead = (uint64_t)(uintptr_t)x->data - (uint64_t)(uintptr_t)c->data;
    const uint64_t behind = (uint64_t)(uintptr_t)c->data - (uint64_t)(uintptr_t)x->data;
    if ((uintptr_t)x->data >= (uintptr_t)c->data) {
        return apart(period, ahead, c_width * c_size, x_width * x_size) ||
               apart(step, ahead, c_size, x_size);
    }
    return apart(period, behind, x_width * x_size, c_width * c_size) ||
           apart(step, behind, x_size, c_size);
}

static gk_status check_overlap(const char *name, const gk_tensor *x, const span *x_span,
                               const gk_tensor *c, const span *c_span)
{
    if (x_span->bytes == 0 || c_span->bytes == 0 ||
        x_span->first + (uintptr_t)x_span->bytes <= c_span->first ||
        c_span->first + (uintptr_t)c_span->bytes <= x_span->first || interleaved(c, x)) {
        return GK_OK;
    }
    return gk_fail(GK_ERR_INVALID, WHERE,
                   "c overlaps %s: c is %lld bytes at %p, %s %lld bytes at %p", name,
                   (long long)c_span->bytes, c->data, name, (long long)x_span->bytes, x->data);
}

static bool same_view(const gk_tensor *x, const gk_tensor *c)
{
    return x->data == c->data && (x->stride[0] == c->stride[0] || c->shape[0] <= 1) &&
           (x->stride[1] == c->stride[1] || c->shape[1] <= 1);
}

/* The largest of 16, 8, .. that divides both. */
static uint8_t alignment(uintptr_t address, uint64_t stride_bytes)
{
    const uint64_t bits = (uint64_t)address | stride_bytes | 16;
    return (uint8_t)(bits & (~bits + 1));
}

/*
 * What the alignment of rows depends on. Rows that coincide (stride 0) have no padding between them
 * into which a vector may reach, so they count as aligned to an element only.
 */
static uint64_t outer_bytes(const gk_tensor *t, int axis, uint64_t size)
{
    if (t->shape[axis] <= 1) {
        return 0;
    }
    return t->stride[axis] == 0 ? size : (uint64_t)t->stride[axis] * size;
}

/*
 * Row-major if the last axis is contiguous, column-major if the first one is. An axis of at most
 * one element suits any stride; an input that is both is taken the way that aligns better.
 */
static void classify(const gk_tensor *t, bool is_output, uint8_t *layout, uint8_t *align)
{
    const uint64_t size = size_of(t->dtype);
    const uintptr_t address = t->shape[0] == 0 || t->shape[1] == 0 ? 0 : (uintptr_t)t->data;
    const bool row = t->stride[1] == 1 || t->shape[1] <= 1;
    const bool col = t->stride[0] == 1 || t->shape[0] <= 1;
    const uint8_t row_align = alignment(address, outer_bytes(t, 0, size));
    const uint8_t col_align = alignment(address, outer_bytes(t, 1, size));
    if (row && (is_output || !col || row_align >= col_align)) {
        *layout = GK_LAYOUT_ROW;
        *align = row_align;
    } else if (col) {
        *layout = GK_LAYOUT_COL;
        *align = col_align;
    } else {
        *layout = GK_LAYOUT_STRIDED;
        *align = (uint8_t)size;
    }
}

void gki_matmul_strides(const gk_tensor *t, uint8_t layout, long long *row_stride,
                        long long *col_stride)
{
    *row_stride = layout == GK_LAYOUT_COL ? 1 : t->shape[0] <= 1 ? 0 : t->stride[0];
    *col_stride = layout == GK_LAYOUT_ROW ? 1 : t->shape[1] <= 1 ? 0 : t->stride[1];
}

static gk_status check_shapes(const gk_tensor *a, const gk_tensor *b, const gk_tensor *c,
                              const gk_tensor *bias, const gk_tensor *residual)
{
    gk_status status = check_equal("a", 1, a->shape[1], "b", 0, b->shape[0]);
    if (status == GK_OK) {
        status = check_equal("c", 0, c->shape[0], "a", 0, a->shape[0]);
    }
    if (status == GK_OK) {
        status = check_equal("c", 1, c->shape[1], "b", 1, b->shape[1]);
    }
    if (status == GK_OK && bias != NULL) {
        status = check_equal("bias", 0, bias->shape[0], "c", 1, c->shape[1]);
    }
    for (int axis = 0; axis < 2 && status == GK_OK && residual != NULL; axis++) {
        status = check_equal("residual", axis, residual->shape[axis], "c", axis, c->shape[axis]);
    }
    return status;
}

static gk_status check_all_memory(const gk_call *call)
{
    static const char *const names[] = {"a", "b", "c", "bias", "residual"};
    const gk_tensor *c = call->args[MATMUL_C];
    const bool writes = c->shape[0] != 0 && c->shape[1] != 0;
    span spans[MATMUL_N_ARGS] = {{0}};
    for (int i = 0; i < MATMUL_N_ARGS; i++) {
        const bool factor = i == MATMUL_A || i == MATMUL_B;
        const bool touched = writes && !(factor && call->attrs[MATMUL_ALPHA] == 0);
        if (call->args[i] == NULL) {
            continue;
        }
        const gk_status status =
            check_memory(names[i], call->args[i], i == MATMUL_BIAS ? 1 : 2, touched, &spans[i]);
        if (status != GK_OK) {
            return status;
        }
    }
    if (!writes) {
        return GK_OK;
    }
    gk_status status = check_output(c);
    for (int i = 0; i < MATMUL_N_ARGS && status == GK_OK; i++) {
        const gk_tensor *x = call->args[i];
        if (i == MATMUL_C || x == NULL || (i == MATMUL_RESIDUAL && same_view(x, c))) {
            continue;
        }
        status = check_overlap(names[i], x, &spans[i], c, &spans[MATMUL_C]);
    }
    return status;
}

/* The mode, as far as it means something for operands of that type. */
static uint8_t math_of(int32_t dtype, double math)
{
    if (dtype == GK_F32) {
        return (uint8_t)math;
    }
    const bool fast = (dtype == GK_E4M3 || dtype == GK_E5M2) && math != GK_MATH_F32;
    return fast ? GK_MATH_DEFAULT : GK_MATH_F32;
}

static void write_problem(const gk_call *call, gk_problem *problem)
{
    const gk_tensor *a = call->args[MATMUL_A];
    const gk_tensor *c = call->args[MATMUL_C];
    const gk_tensor *residual = call->args[MATMUL_RESIDUAL];
    const gk_tensor *bias = call->args[MATMUL_BIAS];
    problem->dims[MATMUL_M] = c->shape[0];
    problem->dims[MATMUL_N] = c->shape[1];
    problem->dims[MATMUL_K] = a->shape[1];
    for (int i = 0; i < MATMUL_N_ARGS; i++) {
        if (call->args[i] != NULL) {
            problem->dtype[i] = (uint8_t)call->args[i]->dtype;
        }
    }
    for (int i = MATMUL_A; i <= MATMUL_C; i++) {
        classify(call->args[i], i == MATMUL_C, &problem->layout[i], &problem->align[i]);
    }
    /* Kernels read bias and residual element by element: one class serves all. */
    if (bias != NULL) {
        problem->align[MATMUL_BIAS] = (uint8_t)size_of(bias->dtype);
    }
    if (residual != NULL) {
        classify(residual, true, &problem->layout[MATMUL_RESIDUAL],
                 &problem->align[MATMUL_RESIDUAL]);
        problem->align[MATMUL_RESIDUAL] = (uint8_t)size_of(residual->dtype);
    }
    problem->attrs[MATMUL_ACTIVATION] = (uint8_t)call->attrs[MATMUL_ACTIVATION];
    problem->attrs[MATMUL_MATH] = math_of(a->dtype, call->attrs[MATMUL_MATH]);
    problem->attrs[MATMUL_BETA] = call->attrs[MATMUL_BETA] != 0;
}

gk_status gki_matmul_infer(const gk_call *call, gk_problem *problem)
{
    static const char *const names[] = {"a", "b", "c", "bias", "residual"};
    for (int i = 0; i < MATMUL_N_ARGS; i++) {
        if (call->args[i] == NULL) {
            if (i <= MATMUL_C) {
                return gk_fail(GK_ERR_INVALID, WHERE, "%s is NULL", names[i]);
            }
            continue;
        }
        const gk_status status = check_form(names[i], call->args[i], i == MATMUL_BIAS ? 1 : 2);
        if (status != GK_OK) {
            return status;
        }
    }
    const gk_tensor *a = call->args[MATMUL_A];
    const gk_tensor *b = call->args[MATMUL_B];
    const gk_tensor *c = call->args[MATMUL_C];
    const gk_tensor *bias = call->args[MATMUL_BIAS];
    const gk_tensor *residual = call->args[MATMUL_RESIDUAL];
    gk_status status = check_dtypes(a, b, c, bias, residual);
    if (status == GK_OK) {
        status = check_attrs(call, a->dtype);
    }
    if (status == GK_OK) {
        status = check_shapes(a, b, c, bias, residual);
    }
    if (status == GK_OK) {
        status = check_all_memory(call);
    }
    if (status == GK_OK) {
        write_problem(call, problem);
    }
    return status;
}
