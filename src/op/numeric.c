#include "op/numeric.h"

#include <float.h>
#include <math.h>
#include <string.h>

static double from_bits32(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

/* 2^e for e within the range of normal doubles. */
static double power_of_two(int e)
{
    const uint64_t bits = (uint64_t)(e + 1023) << 52;
    double value;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

/* A small float of 1 sign, `exp_bits` exponent and `man_bits` mantissa bits with IEEE's encoding of
 * infinities and NaN; without them (has_inf false) only the all-ones pattern is NaN. */
static double widen(uint32_t bits, int exp_bits, int man_bits, bool has_inf)
{
    const uint32_t exponent = (bits >> man_bits) & ((1u << exp_bits) - 1);
    const uint32_t mantissa = bits & ((1u << man_bits) - 1);
    const uint32_t top = (1u << exp_bits) - 1;
    const int bias = (1 << (exp_bits - 1)) - 1;
    double value;
    if (exponent == top && has_inf) {
        value = mantissa == 0 ? (double)INFINITY : (double)NAN;
    } else if (exponent == top && mantissa == (1u << man_bits) - 1) {
        value = (double)NAN;
    } else if (exponent == 0) {
        value = (double)mantissa * power_of_two(1 - bias - man_bits);
    } else {
        value =
            (double)(mantissa + (1u << man_bits)) * power_of_two((int)exponent - bias - man_bits);
    }
    return (bits >> (exp_bits + man_bits)) & 1 ? -value : value;
}

double gki_numeric_get(gk_dtype dtype, const void *base, int64_t index)
{
    switch (dtype) {
    case GK_F64:
        return ((const double *)base)[index];
    case GK_F32:
        return ((const float *)base)[index];
    case GK_F16:
        return widen(((const uint16_t *)base)[index], 5, 10, true);
    case GK_BF16:
        return from_bits32((uint32_t)((const uint16_t *)base)[index] << 16);
    case GK_E4M3:
        return widen(((const uint8_t *)base)[index], 4, 3, false);
    case GK_E5M2:
        return widen(((const uint8_t *)base)[index], 5, 2, true);
    case GK_I32:
        return ((const int32_t *)base)[index];
    case GK_I8:
        return ((const int8_t *)base)[index];
    case GK_U8:
    case GK_BOOL:
        return ((const uint8_t *)base)[index];
    case GK_DTYPE_NONE:
    case GK_DTYPE_COUNT:
        break;
    }
    return (double)NAN;
}

void gki_numeric_load(gk_dtype dtype, const void *base, int64_t stride, int64_t count, double *out)
{
    if (dtype == GK_F32) {
        const float *p = base;
        for (int64_t i = 0; i < count; i++) {
            out[i] = p[i * stride];
        }
        return;
    }
    for (int64_t i = 0; i < count; i++) {
        out[i] = gki_numeric_get(dtype, base, i * stride);
    }
}

void gki_numeric_load_integers(gk_dtype dtype, const void *base, int64_t stride, int64_t count,
                               uint32_t *out)
{
    for (int64_t i = 0; i < count; i++) {
        out[i] = (uint32_t)(int32_t)gki_numeric_get(dtype, base, i * stride);
    }
}

bool gki_numeric_is_integer(gk_dtype dtype)
{
    return dtype == GK_I32 || dtype == GK_I8 || dtype == GK_U8 || dtype == GK_BOOL;
}

double gki_numeric_limit(gk_dtype dtype, double value)
{
    /* largest: the largest finite value; edge: where nearest-even rounding leaves the range. */
    double largest;
    double edge;
    bool saturates = false;
    switch (dtype) {
    case GK_F32:
        largest = (double)FLT_MAX;
        edge = largest + power_of_two(103);
        break;
    case GK_F16:
        largest = 65504;
        edge = 65520;
        break;
    case GK_BF16:
        largest = 255 * power_of_two(120);
        edge = largest + power_of_two(119);
        break;
    case GK_E4M3:
        largest = edge = 448;
        saturates = true;
        break;
    case GK_E5M2:
        largest = edge = 57344;
        saturates = true;
        break;
    default:
        return value;
    }
    const double magnitude = fabs(value);
    if (!(magnitude >= edge) || (isinf(value) && dtype != GK_E4M3)) {
        return value;
    }
    return copysign(saturates ? largest : (double)INFINITY, value);
}

double gki_numeric_unit(gk_dtype dtype)
{
    switch (dtype) {
    case GK_F64:
        return power_of_two(-53);
    case GK_F32:
        return power_of_two(-24);
    case GK_F16:
        return power_of_two(-11);
    case GK_BF16:
        return power_of_two(-8);
    case GK_E4M3:
        return power_of_two(-4);
    case GK_E5M2:
        return power_of_two(-3);
    default:
        return 0;
    }
}

double gki_numeric_tiny(gk_dtype dtype)
{
    switch (dtype) {
    case GK_F64:
        return DBL_TRUE_MIN;
    case GK_F32:
        return power_of_two(-149);
    case GK_F16:
        return power_of_two(-24);
    case GK_BF16:
        return power_of_two(-133);
    case GK_E4M3:
        return power_of_two(-9);
    case GK_E5M2:
        return power_of_two(-16);
    default:
        return 0;
    }
}
