#include "op_values.h"

#include <math.h>
#include <string.h>

/* exponent bits, mantissa bits; infinities or saturation */
typedef struct format {
    int exponent;
    int mantissa;
    bool has_inf;
    bool saturates;
} format;

static format format_of(gk_dtype dtype)
{
    switch (dtype) {
    case GK_F16:
        return (format){5, 10, true, false};
    case GK_BF16:
        return (format){8, 7, true, false};
    case GK_E4M3:
        return (format){4, 3, false, true};
    case GK_E5M2:
        return (format){5, 2, true, true};
    default:
        return (format){0, 0, false, false};
    }
}

static double decode(uint32_t bits, format f)
{
    const int bias = (1 << (f.exponent - 1)) - 1;
    const uint32_t mantissa = bits & ((1u << f.mantissa) - 1);
    const int exponent = (int)((bits >> f.mantissa) & ((1u << f.exponent) - 1));
    const bool top = exponent == (1 << f.exponent) - 1;
    const double sign = (bits >> (f.exponent + f.mantissa)) & 1 ? -1.0 : 1.0;
    if (top && f.has_inf) {
        return mantissa == 0 ? sign * (double)INFINITY : (double)NAN;
    }
    if (top && mantissa == (1u << f.mantissa) - 1) {
        return (double)NAN;
    }
    if (exponent == 0) {
        return sign * ldexp((double)mantissa, 1 - bias - f.mantissa);
    }
    return sign * ldexp((double)(mantissa | (1u << f.mantissa)), exponent - bias - f.mantissa);
}

static uint32_t encode(double value, format f)
{
    const int bias = (1 << (f.exponent - 1)) - 1;
    const uint32_t sign = (signbit(value) ? 1u : 0u) << (f.exponent + f.mantissa);
    const uint32_t nan = (1u << (f.exponent + f.mantissa)) - 1;
    const uint32_t infinite = ((1u << f.exponent) - 1) << f.mantissa;
    const uint32_t largest = f.has_inf ? infinite - 1 : nan - 1;
    const double magnitude = fabs(value);
    if (isnan(value)) {
        return sign | nan;
    }
    if (isinf(value)) {
        return sign | (f.has_inf ? infinite : largest);
    }
    if (magnitude == 0) {
        return sign;
    }
    int exponent = ilogb(magnitude);
    if (exponent < 1 - bias) {
        exponent = 1 - bias;
    }
    /* In units of the last place; counts on continue into the next exponent by themselves. */
    const uint32_t units = (uint32_t)nearbyint(fmin(ldexp(magnitude, f.mantissa - exponent), 1e9));
    const int64_t bits = (int64_t)units + ((int64_t)(exponent + bias - 1) << f.mantissa);
    if (bits > (int64_t)largest) {
        return sign | (f.saturates ? largest : infinite);
    }
    return sign | (uint32_t)bits;
}

double op_value_get(gk_dtype dtype, const void *base, int64_t index)
{
    switch (dtype) {
    case GK_F64:
        return ((const double *)base)[index];
    case GK_F32:
        return (double)((const float *)base)[index];
    case GK_I32:
        return ((const int32_t *)base)[index];
    case GK_I8:
        return ((const int8_t *)base)[index];
    case GK_F16:
    case GK_BF16:
        return decode(((const uint16_t *)base)[index], format_of(dtype));
    case GK_E4M3:
    case GK_E5M2:
        return decode(((const uint8_t *)base)[index], format_of(dtype));
    default:
        return ((const uint8_t *)base)[index];
    }
}

void op_value_set(gk_dtype dtype, void *base, int64_t index, double value)
{
    switch (dtype) {
    case GK_F64:
        ((double *)base)[index] = value;
        break;
    case GK_F32:
        ((float *)base)[index] = (float)value;
        break;
    case GK_I32:
        ((int32_t *)base)[index] = (int32_t)(uint32_t)(int64_t)value;
        break;
    case GK_F16:
    case GK_BF16:
        ((uint16_t *)base)[index] = (uint16_t)encode(value, format_of(dtype));
        break;
    case GK_E4M3:
    case GK_E5M2:
        ((uint8_t *)base)[index] = (uint8_t)encode(value, format_of(dtype));
        break;
    default:
        ((uint8_t *)base)[index] = (uint8_t)(int64_t)value;
        break;
    }
}

double op_value_unit(gk_dtype dtype)
{
    switch (dtype) {
    case GK_F64:
        return ldexp(1, -53);
    case GK_F32:
        return ldexp(1, -24);
    case GK_F16:
    case GK_BF16:
    case GK_E4M3:
    case GK_E5M2:
        return ldexp(1, -format_of(dtype).mantissa - 1);
    default:
        return 0;
    }
}

bool op_value_is_integer(gk_dtype dtype)
{
    return dtype == GK_I32 || dtype == GK_I8 || dtype == GK_U8 || dtype == GK_BOOL;
}

uint64_t op_random_next(op_random *r)
{
    uint64_t z = r->state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

uint32_t op_random_below(op_random *r, uint32_t bound)
{
    return (uint32_t)(((op_random_next(r) >> 32) * bound) >> 32);
}

double op_random_value(op_random *r, gk_dtype dtype)
{
    if (dtype == GK_U8) {
        return op_random_below(r, 256);
    }
    if (dtype == GK_I8) {
        return (double)op_random_below(r, 256) - 128;
    }
    if (dtype == GK_I32) {
        return (double)op_random_below(r, 200001) - 100000;
    }
    const double u = ((double)(op_random_next(r) >> 11) + 1) / 9007199254740993.0;
    const double v = (double)(op_random_next(r) >> 11) / 9007199254740992.0;
    return sqrt(-2 * log(u)) * cos(6.283185307179586 * v);
}
