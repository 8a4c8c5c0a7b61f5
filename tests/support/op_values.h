/* Element types on the host for tests: independent of the library's own conversions. */
#ifndef OP_VALUES_H
#define OP_VALUES_H

#include <gk/base.h>

double op_value_get(gk_dtype dtype, const void *base, int64_t index);

/* Rounds to nearest even; 8-bit floats saturate, integers wrap around. */
void op_value_set(gk_dtype dtype, void *base, int64_t index, double value);

/* Largest relative error of rounding to the type; 0 for integers. */
double op_value_unit(gk_dtype dtype);

bool op_value_is_integer(gk_dtype dtype);

/* splitmix64 (Steele, Lea, Flood). */
typedef struct op_random {
    uint64_t state;
} op_random;

uint64_t op_random_next(op_random *r);
uint32_t op_random_below(op_random *r, uint32_t bound);
/* N(0, 1); a whole number in the type's usual range for integers. */
double op_random_value(op_random *r, gk_dtype dtype);

#endif
