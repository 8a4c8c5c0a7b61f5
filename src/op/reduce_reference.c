#include <math.h>
#include <string.h>

#include <gk/ops.h>

#include "base/numeric.h"
#include "op/reduce.h"

enum { BLOCK = 256 };

/* What the elements of one output come to. */
typedef struct total {
    long double sum;
    long double magnitude;
    double best; /* the maximum or minimum so far, or NaN */
    int64_t index;
    int64_t seen;
} total;

static bool is_better(int op, double x, double best)
{
    if (isnan(best)) {
        return false;
    }
    const bool sign = signbit(best) != 0;
    if (op == GK_REDUCE_MIN) {
        return isnan(x) || x < best || (x == best && x == 0 && signbit(x) && !sign);
    }
    if (op == GK_REDUCE_MAX) {
        return isnan(x) || x > best || (x == best && x == 0 && !signbit(x) && sign);
    }
    return isnan(x) || x > best;
}

static void take(int op, const double *x, int64_t n, total *t)
{
    if (op == GK_REDUCE_SUM || op == GK_REDUCE_MEAN) {
        for (int64_t i = 0; i < n; i++) {
            t->sum += (long double)x[i];
            t->magnitude += (long double)fabs(x[i]);
        }
        return;
    }
    for (int64_t i = 0; i < n; i++) {
        if (t->seen == 0 || is_better(op, x[i], t->best)) {
            t->best = x[i];
            t->index = t->seen;
        }
        t->seen++;
    }
}

/* All elements of one output, whose first lies at `from`, in the order of x's axes. */
static void take_all(int op, const gk_tensor *x, const int *axes, int n_axes,
                     const unsigned char *from, total *t)
{
    const int64_t size = (int64_t)gk_dtype_size((gk_dtype)x->dtype);
    const int last = axes[n_axes - 1];
    int64_t at[GK_MAX_RANK] = {0};
    int64_t offset = 0;
    double block[BLOCK];
    for (int i = 0; i < n_axes; i++) {
        if (x->shape[axes[i]] == 0) {
            return;
        }
    }
    for (;;) {
        for (int64_t i = 0; i < x->shape[last]; i += BLOCK) {
            const int64_t left = x->shape[last] - i;
            const int64_t n = left < BLOCK ? left : BLOCK;
            gki_numeric_load((gk_dtype)x->dtype, from + (offset + i * x->stride[last]) * size,
                             x->stride[last], n, block);
            take(op, block, n, t);
        }
        int i = n_axes - 2;
        for (; i >= 0; i--) {
            offset += x->stride[axes[i]];
            if (++at[i] < x->shape[axes[i]]) {
                break;
            }
            offset -= x->stride[axes[i]] * x->shape[axes[i]];
            at[i] = 0;
        }
        if (i < 0) {
            return;
        }
    }
}

static double relative_error(const gk_problem *problem)
{
    if (problem->attrs[REDUCE_ATTR_OP] > GK_REDUCE_MEAN || problem->dtype[REDUCE_X] == GK_I32) {
        return 0;
    }
    return problem->dtype[REDUCE_X] == GK_F64
               ? (8 + sqrt((double)problem->dims[REDUCE_AXIS])) * 0x1p-53
               : 8 * 0x1p-24;
}

/* Integers wrap around in 32 bits. */
static double wrapped(long double sum)
{
    const double folded = fmod((double)sum, 0x1p32);
    return (double)(int32_t)(uint32_t)(int64_t)folded;
}

static void finish(const gk_problem *problem, const total *t, double *out, double *scale)
{
    const int op = problem->attrs[REDUCE_ATTR_OP];
    const gk_dtype type = (gk_dtype)problem->dtype[REDUCE_OUT];
    if (op == GK_REDUCE_ARGMAX) {
        *out = (double)t->index;
    } else if (op == GK_REDUCE_MAX || op == GK_REDUCE_MIN) {
        *out = t->best;
    } else if (type == GK_I32) {
        *out = wrapped(t->sum);
    } else {
        const long double n = op == GK_REDUCE_MEAN ? (long double)problem->dims[REDUCE_AXIS] : 1;
        *out = gki_numeric_limit(type, (double)(t->sum / n));
        if (scale != NULL) {
            *scale = (double)(t->magnitude / n) +
                     gki_numeric_unit(type) / relative_error(problem) * fabs(*out);
        }
        return;
    }
    if (scale != NULL) {
        *scale = 0;
    }
}

void gki_reduce_reference(const gk_call *call, const gk_problem *problem, double *out,
                          double *scale)
{
    const gk_tensor *x = call->args[REDUCE_X];
    const int reduced = gki_reduce_axis(call);
    const int64_t size = (int64_t)gk_dtype_size((gk_dtype)x->dtype);
    const int64_t outputs = problem->dims[REDUCE_OUTER] * problem->dims[REDUCE_INNER];
    int goes[GK_MAX_RANK] = {0};
    int n_goes = 0;
    for (int axis = 0; axis < x->rank; axis++) {
        if (reduced < 0 || axis == reduced) {
            goes[n_goes++] = axis;
        }
    }
    for (int64_t i = 0; i < outputs; i++) {
        int64_t rest = i;
        int64_t offset = 0;
        for (int axis = x->rank; axis-- > 0;) {
            if (reduced >= 0 && axis != reduced) {
                offset += rest % x->shape[axis] * x->stride[axis];
                rest /= x->shape[axis];
            }
        }
        total t = {0};
        const unsigned char *data = x->data;
        take_all(problem->attrs[REDUCE_ATTR_OP], x, goes, n_goes,
                 data == NULL ? NULL : data + offset * size, &t);
        finish(problem, &t, &out[i], scale != NULL ? &scale[i] : NULL);
    }
}

/*
 * The difference that is allowed, in terms of the sum of magnitudes (their mean for a mean): trees
 * of at most 64 elements in f32 are off by 6 units of 2^-24 of it, adding those in f64 by nothing
 * that counts, and the result's rounding to out is part of the scale. In f64 threads add many
 * trees one after the other; rounding errors of a sum of n terms grow like sqrt(n) unless they
 * conspire. Maxima, minima, places and integers are exact.
 */
gk_tolerance gki_reduce_tolerance(const gk_problem *problem)
{
    const double relative = relative_error(problem);
    const gk_tolerance tolerance = {
        relative, relative > 0 ? gki_numeric_tiny((gk_dtype)problem->dtype[REDUCE_OUT]) : 0};
    return tolerance;
}
