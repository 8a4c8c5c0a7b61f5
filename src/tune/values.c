/* What operands hold, and the order in which tensors are visited. */
#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/numeric.h"
#include "base/rng.h"
#include "tune/operands.h"

static double draw(gki_rng *rng, gk_dtype dtype)
{
    switch (dtype) {
    case GK_I32:
    case GK_I8:
        return (double)gki_rng_below(rng, 7) - 3.0;
    case GK_U8:
        return (double)gki_rng_below(rng, 6);
    case GK_BOOL:
        return (double)gki_rng_below(rng, 2);
    default:
        return gki_rng_normal(rng);
    }
}

unsigned char *gki_pattern(gk_dtype dtype, uint64_t seed)
{
    size_t size = gk_dtype_size(dtype);
    unsigned char *pattern = gki_alloc(2 * size * GKI_PERIOD);
    if (pattern == NULL) {
        return NULL;
    }
    gki_rng rng;
    gki_rng_seed(&rng, seed);
    for (size_t i = 0; i < GKI_PERIOD; i++) {
        gki_numeric_set(dtype, pattern, (int64_t)i, draw(&rng, dtype));
    }
    memcpy(pattern + size * GKI_PERIOD, pattern, size * GKI_PERIOD);
    return pattern;
}

gki_walk gki_walk_begin(const gk_tensor *tensor)
{
    gki_walk walk = {.tensor = tensor, .done = gki_tensor_elements(tensor) == 0};
    return walk;
}

void gki_walk_next(gki_walk *walk)
{
    const gk_tensor *t = walk->tensor;
    for (int32_t axis = t->rank; axis-- > 0;) {
        walk->at[axis]++;
        walk->offset += t->stride[axis];
        if (walk->at[axis] < t->shape[axis]) {
            return;
        }
        walk->offset -= t->stride[axis] * t->shape[axis];
        walk->at[axis] = 0;
    }
    walk->done = true;
}

/* Steps in bytes. */
static inline void copy_steps(unsigned char *to, int64_t to_step, const unsigned char *from,
                              int64_t from_step, int64_t n, size_t size)
{
    for (int64_t i = 0; i < n; i++) {
        memcpy(to + i * to_step, from + i * from_step, size);
    }
}

/* A loop for each size, in which a copy is a load and a store. */
static void copy_line(unsigned char *to, int64_t to_step, const unsigned char *from,
                      int64_t from_step, int64_t n, size_t size)
{
    if (to_step == (int64_t)size && from_step == (int64_t)size) {
        memcpy(to, from, (size_t)n * size);
    } else if (size == 1) {
        copy_steps(to, to_step, from, from_step, n, 1);
    } else if (size == 2) {
        copy_steps(to, to_step, from, from_step, n, 2);
    } else if (size == 4) {
        copy_steps(to, to_step, from, from_step, n, 4);
    } else {
        copy_steps(to, to_step, from, from_step, n, size);
    }
}

void gki_copy_elements(const gk_tensor *tensor, size_t size, unsigned char *to, bool packed,
                       const unsigned char *from)
{
    gk_tensor lines = *tensor;
    int64_t n = 1;
    int64_t step = (int64_t)size;
    if (tensor->rank > 0) {
        n = tensor->shape[tensor->rank - 1];
        step *= tensor->stride[tensor->rank - 1];
        lines.shape[tensor->rank - 1] = n > 0 ? 1 : 0;
    }
    for (gki_walk w = gki_walk_begin(&lines); !w.done; gki_walk_next(&w)) {
        const int64_t at = w.offset * (int64_t)size;
        copy_line(packed ? to : to + at, packed ? (int64_t)size : step, from + at, step, n, size);
        to += packed ? n * (int64_t)size : 0;
    }
}

int64_t gki_tensor_elements(const gk_tensor *tensor)
{
    int64_t count = 1;
    for (int32_t axis = 0; axis < tensor->rank; axis++) {
        count *= tensor->shape[axis];
    }
    return count;
}

unsigned char gki_poison_byte(gk_dtype dtype, bool again)
{
    /* All ones is a NaN in every floating-point format, but -1, a common value, in integers. */
    return (gki_numeric_is_integer(dtype) ? 0xfb : 0xff) - (again ? 1 : 0);
}
