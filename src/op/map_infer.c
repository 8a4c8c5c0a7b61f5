/* Every rule of a map call, and the problem it is. */
#include <string.h>

#include "base/error.h"
#include "base/hash.h"
#include "base/intern.h"
#include "op/map.h"

static const char WHERE[] = "map";
static const char *const names[MAP_N_ARGS] = {"x0", "x1", "x2", "x3", "x4", "out"};

static uint64_t size_of(int32_t dtype)
{
    return (uint32_t)dtype < GK_DTYPE_COUNT ? gk_dtype_size((gk_dtype)dtype) : 0;
}

/* --- the expression --- */

/* What the thread has parsed lately. */
enum { KNOWN = 16, KNOWN_TEXT = 104 };
typedef struct known_text {
    const char *canonical; /* NULL = unused */
    uint32_t inputs;
    char text[KNOWN_TEXT];
} known_text;
static _Thread_local known_text known[KNOWN];

static gk_status parse(const char *text, const char **canonical, uint32_t *inputs)
{
    map_expression expression;
    char error[MAP_MAX_ERROR];
    char written[MAP_MAX_TEXT + 1];
    if (!gki_map_parse(text, &expression, error)) {
        return gk_fail(GK_ERR_INVALID, WHERE, "expression: %s", error);
    }
    if (!gki_map_canonical(&expression, written)) {
        return gk_fail(GK_ERR_UNSUPPORTED, WHERE,
                       "expression: more than %d characters written in full", MAP_MAX_TEXT);
    }
    *canonical = gki_intern(written, strlen(written));
    *inputs = expression.inputs;
    return *canonical != NULL ? GK_OK : gki_fail_nomem(WHERE, strlen(written));
}

static gk_status read_text(const char *text, const char **canonical, uint32_t *inputs)
{
    if (text == NULL) {
        return gk_fail(GK_ERR_INVALID, WHERE, "expression is NULL");
    }
    const size_t length = strlen(text);
    known_text *place = &known[gki_hash64(text, length) % KNOWN];
    if (place->canonical != NULL && strcmp(place->text, text) == 0) {
        *canonical = place->canonical;
        *inputs = place->inputs;
        return GK_OK;
    }
    const gk_status status = parse(text, canonical, inputs);
    if (status == GK_OK && length < KNOWN_TEXT) {
        place->canonical = *canonical;
        place->inputs = *inputs;
        memcpy(place->text, text, length + 1);
    }
    return status;
}

/* The inputs are those that the expression uses, no more and no less. */
static gk_status check_inputs(const gk_call *call, uint32_t used)
{
    int given = 0;
    int needed = 0;
    for (int i = 0; i < MAP_MAX_INPUTS; i++) {
        given += call->args[i] != NULL;
        needed += used >> i & 1;
    }
    for (int i = 0; i < MAP_MAX_INPUTS; i++) {
        const bool is_used = (used >> i & 1) != 0;
        if ((call->args[i] != NULL) != is_used) {
            return gk_fail(GK_ERR_INVALID, WHERE,
                           is_used ? "the expression uses %d inputs but %d are given: %s is NULL"
                                   : "the expression uses %d inputs but %d are given: %s is unused",
                           needed, given, names[i]);
        }
    }
    if (needed == 0) {
        return gk_fail(GK_ERR_INVALID, WHERE, "the expression uses 0 inputs, must use 1 to %d",
                       MAP_MAX_INPUTS);
    }
    return GK_OK;
}

/* --- tensors --- */

static bool is_float(int32_t dtype)
{
    return dtype >= GK_F64 && dtype <= GK_E5M2;
}

static gk_status check_form(const char *name, const gk_tensor *t)
{
    if (size_of(t->dtype) == 0) {
        return gk_fail(GK_ERR_INVALID, WHERE, "%s.dtype is %d, which is no gk_dtype", name,
                       (int)t->dtype);
    }
    if (!is_float(t->dtype)) {
        return gk_fail(GK_ERR_UNSUPPORTED, WHERE, "%s.dtype is %s, must be a floating type", name,
                       gk_dtype_name((gk_dtype)t->dtype));
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
        if (t->shape[axis] < 0 || t->stride[axis] < 0) {
            const bool shape = t->shape[axis] < 0;
            return gk_fail(GK_ERR_INVALID, WHERE, "%s.%s[%d] is %lld, must not be negative", name,
                           shape ? "shape" : "stride", axis,
                           (long long)(shape ? t->shape[axis] : t->stride[axis]));
        }
    }
    return GK_OK;
}

static gk_status check_shape(const char *name, const gk_tensor *t, const gk_tensor *out)
{
    if (t->rank != out->rank) {
        return gk_fail(GK_ERR_INVALID, WHERE, "%s.rank is %d but out.rank is %d", name,
                       (int)t->rank, (int)out->rank);
    }
    for (int axis = 0; axis < out->rank; axis++) {
        if (t->shape[axis] != out->shape[axis]) {
            return gk_fail(GK_ERR_INVALID, WHERE, "%s.shape[%d] is %lld but out.shape[%d] is %lld",
                           name, axis, (long long)t->shape[axis], axis,
                           (long long)out->shape[axis]);
        }
    }
    return GK_OK;
}

/* A tensor's place in memory. */
typedef struct span {
    uintptr_t first;
    uintptr_t bytes; /* from the first to just past the last element */
} span;

static gk_status check_memory(const char *name, const gk_tensor *t, span *out)
{
    const uint64_t size = size_of(t->dtype);
    const uintptr_t address = (uintptr_t)t->data;
    int64_t last = 0;
    int64_t bytes = 0;
    bool fits = true;
    for (int axis = 0; axis < t->rank; axis++) {
        int64_t step;
        fits = fits && !__builtin_mul_overflow(t->shape[axis] - 1, t->stride[axis], &step) &&
               !__builtin_add_overflow(last, step, &last);
    }
    if (!fits || last == INT64_MAX || __builtin_mul_overflow(last + 1, (int64_t)size, &bytes)) {
        return gk_fail(GK_ERR_INVALID, WHERE,
                       "%s does not fit in 63 bits: shape[0] is %lld, stride[0] is %lld", name,
                       (long long)t->shape[0], (long long)t->stride[0]);
    }
    if (address == 0) {
        return gk_fail(GK_ERR_INVALID, WHERE,
                       "%s.data is NULL but %s has elements, shape[0] is %lld", name, name,
                       (long long)t->shape[0]);
    }
    if ((address & (uintptr_t)(size - 1)) != 0) {
        return gk_fail(GK_ERR_INVALID, WHERE,
                       "%s.data is %p, not a multiple of %llu, the size of %s", name, t->data,
                       (unsigned long long)size, gk_dtype_name((gk_dtype)t->dtype));
    }
    if (address + (uintptr_t)bytes < address) {
        return gk_fail(GK_ERR_INVALID, WHERE, "%s's %lld bytes from %p on exceed the address space",
                       name, (long long)bytes, t->data);
    }
    out->first = address;
    out->bytes = (uintptr_t)bytes;
    return GK_OK;
}

/* --- overlap --- */

/* Whether each axis steps over all that the axes inside it reach. */
static bool nests(const map_axes *axes, int arg)
{
    int64_t reach = 0;
    for (int32_t axis = axes->rank - 1; axis >= 0; axis--) {
        const int64_t stride = axes->stride[arg][axis];
        if (axes->shape[axis] > 1 && stride <= reach) {
            return false;
        }
        reach += (axes->shape[axis] - 1) * stride;
    }
    return true;
}

/* Whether elements of two tensors of the same nesting strides coincide: whether the distance is a
 * sum of steps k * stride, each |k| below the axis' length. */
static bool meets(const map_axes *axes, int32_t axis, int64_t distance)
{
    if (axis == axes->rank) {
        return distance == 0;
    }
    const int64_t stride = axes->stride[MAP_OUT][axis];
    const int64_t whole = stride > 0 ? distance / stride : 0;
    for (int64_t k = whole - 1; k <= whole + 1; k++) {
        if (k > -axes->shape[axis] && k < axes->shape[axis] &&
            meets(axes, axis + 1, distance - k * stride)) {
            return true;
        }
    }
    return false;
}

static bool same_strides(const map_axes *axes, int arg)
{
    return memcmp(axes->stride[arg], axes->stride[MAP_OUT],
                  (size_t)axes->rank * sizeof(axes->stride[0][0])) == 0;
}

/* In place is well defined: each element is read where it is written. Elements that interleave with
 * out's without meeting them, such as another column's, are fine too. */
static gk_status check_overlap(const gk_call *call, const map_axes *axes, const span *spans, int i)
{
    const gk_tensor *x = call->args[i];
    const gk_tensor *out = call->args[MAP_OUT];
    if (spans[i].first + spans[i].bytes <= spans[MAP_OUT].first ||
        spans[MAP_OUT].first + spans[MAP_OUT].bytes <= spans[i].first) {
        return GK_OK;
    }
    const int64_t size = (int64_t)size_of(out->dtype);
    if (size > 0 && x->dtype == out->dtype && same_strides(axes, i)) {
        const int64_t apart = (int64_t)(spans[i].first - spans[MAP_OUT].first);
        if (apart == 0 || !meets(axes, 0, apart / size)) {
            return GK_OK;
        }
    }
    return gk_fail(
        GK_ERR_INVALID, WHERE,
        "out overlaps %s but is not %s itself: out is %llu bytes at %p, %s %llu bytes at "
        "%p, and dtype and strides must be the same",
        names[i], names[i], (unsigned long long)spans[MAP_OUT].bytes, out->data, names[i],
        (unsigned long long)spans[i].bytes, x->data);
}

static gk_status check_all_memory(const gk_call *call, map_axes *axes)
{
    span spans[MAP_N_ARGS];
    for (int i = 0; i < MAP_N_ARGS; i++) {
        if (call->args[i] != NULL) {
            const gk_status status = check_memory(names[i], call->args[i], &spans[i]);
            if (status != GK_OK) {
                return status;
            }
        }
    }
    gki_map_axes(call, axes);
    if (!nests(axes, MAP_OUT)) {
        return gk_fail(GK_ERR_INVALID, WHERE,
                       "out overlaps itself: an axis of %lld elements has stride %lld",
                       (long long)axes->shape[0], (long long)axes->stride[MAP_OUT][0]);
    }
    for (int i = 0; i < MAP_MAX_INPUTS; i++) {
        if (call->args[i] != NULL) {
            const gk_status status = check_overlap(call, axes, spans, i);
            if (status != GK_OK) {
                return status;
            }
        }
    }
    return GK_OK;
}

/* The number of elements: inputs may repeat theirs, so that no operand's memory bounds it. */
static gk_status count(const gk_tensor *out, int64_t *elements)
{
    bool fits = true;
    *elements = 1;
    for (int axis = 0; axis < out->rank; axis++) {
        if (out->shape[axis] == 0) {
            *elements = 0;
            return GK_OK;
        }
    }
    for (int axis = 0; axis < out->rank; axis++) {
        fits = fits && !__builtin_mul_overflow(*elements, out->shape[axis], elements);
    }
    return fits ? GK_OK
                : gk_fail(GK_ERR_INVALID, WHERE,
                          "out has more than 2^63 elements: shape[0] is %lld, rank %d",
                          (long long)out->shape[0], (int)out->rank);
}

static gk_status check_tensors(const gk_call *call)
{
    const gk_tensor *out = call->args[MAP_OUT];
    if (out == NULL) {
        return gk_fail(GK_ERR_INVALID, WHERE, "out is NULL");
    }
    gk_status status = check_form(names[MAP_OUT], out);
    for (int i = 0; i < MAP_MAX_INPUTS && status == GK_OK; i++) {
        if (call->args[i] != NULL) {
            status = check_form(names[i], call->args[i]);
            if (status == GK_OK) {
                status = check_shape(names[i], call->args[i], out);
            }
        }
    }
    return status;
}

gk_status gki_map_infer(const gk_call *call, gk_problem *problem)
{
    uint32_t used = 0;
    int64_t elements = 0;
    map_axes axes;
    gk_status status = read_text(call->text, &problem->text, &used);
    if (status == GK_OK) {
        status = check_inputs(call, used);
    }
    if (status == GK_OK) {
        status = check_tensors(call);
    }
    if (status == GK_OK) {
        status = count(call->args[MAP_OUT], &elements);
    }
    if (status == GK_OK && elements > 0) {
        status = check_all_memory(call, &axes);
    }
    if (status != GK_OK) {
        return status;
    }
    for (int i = 0; i < MAP_N_ARGS; i++) {
        problem->dtype[i] = call->args[i] != NULL ? (uint8_t)call->args[i]->dtype : 0;
    }
    if (elements > 0) {
        problem->dims[MAP_N] = axes.shape[axes.rank - 1];
        problem->dims[MAP_M] = elements / problem->dims[MAP_N];
        gki_map_classify(call, &axes, problem);
    }
    return GK_OK;
}
