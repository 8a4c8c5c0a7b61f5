/* Host meaning of the element types: exact widening, and what a value beyond a type's range
 * becomes. */
#ifndef GKI_NUMERIC_H
#define GKI_NUMERIC_H

#include <gk/base.h>

/* out[i] = element i * stride of base, exactly. dtype is a floating type or an integer one. */
void gki_numeric_load(gk_dtype dtype, const void *base, int64_t stride, int64_t count, double *out);

/* The same for integer types, as 32-bit two's complement. */
void gki_numeric_load_integers(gk_dtype dtype, const void *base, int64_t stride, int64_t count,
                               uint32_t *out);

/* One element. */
double gki_numeric_get(gk_dtype dtype, const void *base, int64_t index);

bool gki_numeric_is_integer(gk_dtype dtype);

/* value as it leaves the range of a floating type: infinite, or at the largest value where
 * results saturate (e4m3, e5m2). A value within the range is returned as it is, not rounded. */
double gki_numeric_limit(gk_dtype dtype, double value);

/* Largest relative error of rounding to nearest; 0 for integers. */
double gki_numeric_unit(gk_dtype dtype);

/* Smallest positive value of a floating type; 0 for integers. */
double gki_numeric_tiny(gk_dtype dtype);

#endif
