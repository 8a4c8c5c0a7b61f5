/* Host meaning of the element types: exact widening, rounding, and their ranges. */
#ifndef GKI_BASE_NUMERIC_H
#define GKI_BASE_NUMERIC_H

#include <gk/base.h>

/* Element `index` of base, exactly; base may have any alignment. NaN if dtype is no dtype. */
double gki_numeric_get(gk_dtype dtype, const void *base, int64_t index);

/* Rounds to nearest even. A finite value beyond the range becomes an infinity, in e4m3 and e5m2 the
 * largest value; an infinity becomes the largest value where there is none. Integers are cut
 * towards zero and clamped to their range; NaN becomes 0 in them. */
void gki_numeric_set(gk_dtype dtype, void *base, int64_t index, double value);

/* out[i] = element i * stride of base. */
void gki_numeric_load(gk_dtype dtype, const void *base, int64_t stride, int64_t count, double *out);

/* The same for integer types, as 32-bit two's complement. */
void gki_numeric_load_integers(gk_dtype dtype, const void *base, int64_t stride, int64_t count,
                               uint32_t *out);

bool gki_numeric_is_integer(gk_dtype dtype);

/* value as gki_numeric_set() leaves it if it is out of the range of a floating type. A value within
 * the range is returned as it is, not rounded; so is every value of f64 and of an integer type. */
double gki_numeric_limit(gk_dtype dtype, double value);

/* Largest relative error of rounding to nearest; 0 for integers. */
double gki_numeric_unit(gk_dtype dtype);

/* Smallest positive value of a floating type; 0 for integers. */
double gki_numeric_tiny(gk_dtype dtype);

#endif
