#include <math.h>

#include "base/numeric.h"
#include "op/map.h"

bool gki_map_is_double(const gk_problem *problem)
{
    for (int i = 0; i < MAP_N_ARGS; i++) {
        if (problem->dtype[i] == GK_F64) {
            return true;
        }
    }
    return false;
}

/* The next element in row-major order; false past the last. */
static bool next(const gk_tensor *t, int64_t *at)
{
    for (int32_t axis = t->rank - 1; axis >= 0; axis--) {
        if (++at[axis] < t->shape[axis]) {
            return true;
        }
        at[axis] = 0;
    }
    return false;
}

static double element(const gk_tensor *t, const int64_t *at)
{
    int64_t offset = 0;
    for (int32_t axis = 0; axis < t->rank; axis++) {
        offset += at[axis] * t->stride[axis];
    }
    return gki_numeric_get((gk_dtype)t->dtype, t->data, offset);
}

void gki_map_reference(const gk_call *call, const gk_problem *problem, double *out, double *scale)
{
    const gk_tensor *shape = call->args[MAP_OUT];
    const gk_dtype dtype = (gk_dtype)shape->dtype;
    const double unit = gki_numeric_unit(dtype);
    const bool is_double = gki_map_is_double(problem);
    int64_t at[GK_MAX_RANK] = {0};
    map_expression expression;
    if (problem->dims[MAP_N] == 0 || !gki_map_read(problem, &expression)) {
        return;
    }
    int64_t index = 0;
    do {
        double inputs[MAP_MAX_INPUTS] = {0};
        double off = 0;
        for (int i = 0; i < MAP_MAX_INPUTS; i++) {
            inputs[i] = call->args[i] != NULL ? element(call->args[i], at) : 0;
        }
        const double value = gki_map_evaluate(&expression, is_double, inputs, &off);
        out[index] = gki_numeric_limit(dtype, value);
        if (scale != NULL) {
            const double size = isfinite(out[index]) ? fabs(out[index]) : 0;
            scale[index] = off * (1 + unit) + unit * size;
        }
        index++;
    } while (next(shape, at));
}

/*
 * The scale is the allowed error but for subnormals: half a unit in the last place of the result,
 * and what gki_map_evaluate() says of the operations before it.
 */
gk_tolerance gki_map_tolerance(const gk_problem *problem)
{
    return (gk_tolerance){1, gki_numeric_tiny((gk_dtype)problem->dtype[MAP_OUT])};
}
