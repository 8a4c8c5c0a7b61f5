#include "base/numeric.h"

#include <math.h>
#include <string.h>

/* A binary format: IEEE's encoding, except that without infinities only the all-ones pattern is
 * special, a NaN. */
typedef struct format {
    int exponent_bits;
    int mantissa_bits;
    bool has_infinity;
    bool saturates;
} format;

static const format FORMATS[GK_DTYPE_COUNT] = {
    [GK_F64] = {11, 52, true, false}, [GK_F32] = {8, 23, true, false},
    [GK_F16] = {5, 10, true, false},  [GK_BF16] = {8, 7, true, false},
    [GK_E4M3] = {4, 3, false, true},  [GK_E5M2] = {5, 2, true, true},
};

static int bias_of(const format *f)
{
    return (1 << (f->exponent_bits - 1)) - 1;
}

/* 2^e for e within the range of normal doubles. */
static double power_of_two(int e)
{
    const uint64_t bits = (uint64_t)(e + 1023) << 52;
    double value;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

/* For formats of up to 16 bits. */
static inline double widen(const format *f, uint32_t bits)
{
    const uint32_t top = (1u << f->exponent_bits) - 1;
    const uint32_t hidden = 1u << f->mantissa_bits;
    const uint32_t exponent = (bits >> f->mantissa_bits) & top;
    const uint32_t mantissa = bits & (hidden - 1);
    const int unit = 1 - bias_of(f) - f->mantissa_bits; /* of subnormals, as an exponent */
    double value;
    if (exponent == top && f->has_infinity) {
        value = mantissa == 0 ? (double)INFINITY : (double)NAN;
    } else if (exponent == top && mantissa == hidden - 1) {
        value = (double)NAN;
    } else if (exponent == 0) {
        value = (double)mantissa * power_of_two(unit);
    } else {
        value = (double)(mantissa | hidden) * power_of_two((int)exponent - 1 + unit);
    }
    return (bits >> (f->exponent_bits + f->mantissa_bits)) & 1 ? -value : value;
}

/* For formats of up to 16 bits. */
static uint32_t narrow(const format *f, double value)
{
    const int bias = bias_of(f);
    const uint32_t infinity = ((1u << f->exponent_bits) - 1) << f->mantissa_bits;
    const uint32_t nan = infinity | ((1u << f->mantissa_bits) - 1);
    const uint32_t largest = f->has_infinity ? infinity - 1 : nan - 1;
    const uint32_t beyond = f->saturates ? largest : infinity;
    const uint32_t sign = signbit(value) ? 1u << (f->exponent_bits + f->mantissa_bits) : 0;
    const double magnitude = fabs(value);
    if (isnan(value)) {
        return sign | nan;
    }
    if (isinf(value)) {
        return sign | (f->has_infinity ? infinity : largest);
    }
    int exponent = 0;
    frexp(magnitude, &exponent);
    exponent -= 1; /* of 1.m * 2^exponent */
    if (magnitude == 0 || exponent < 1 - bias) {
        exponent = 1 - bias;
    }
    if (exponent > bias + 1) {
        return sign | beyond;
    }
    /* Rounding up out of the mantissa carries into the exponent by itself. */
    const double units = nearbyint(ldexp(magnitude, f->mantissa_bits - exponent));
    const uint32_t bits = (uint32_t)units + ((uint32_t)(exponent + bias - 1) << f->mantissa_bits);
    return sign | (bits > largest ? beyond : bits);
}

/* Inlined with a constant dtype, so that a loop over elements decides nothing. */
static inline double get(gk_dtype dtype, const unsigned char *base, int64_t index)
{
    uint8_t byte;
    uint16_t half;
    uint32_t word;
    int32_t integer;
    float single;
    double value;
    switch (dtype) {
    case GK_F64:
        memcpy(&value, base + index * 8, sizeof(value));
        return value;
    case GK_F32:
        memcpy(&single, base + index * 4, sizeof(single));
        return (double)single;
    case GK_BF16:
        memcpy(&half, base + index * 2, sizeof(half));
        word = (uint32_t)half << 16;
        memcpy(&single, &word, sizeof(single));
        return (double)single;
    case GK_F16:
        memcpy(&half, base + index * 2, sizeof(half));
        return widen(&FORMATS[GK_F16], half);
    case GK_E4M3:
        return widen(&FORMATS[GK_E4M3], base[index]);
    case GK_E5M2:
        return widen(&FORMATS[GK_E5M2], base[index]);
    case GK_I32:
        memcpy(&integer, base + index * 4, sizeof(integer));
        return (double)integer;
    case GK_I8:
        byte = base[index];
        return (double)byte - (byte < 128 ? 0 : 256);
    case GK_U8:
    case GK_BOOL:
        return (double)base[index];
    case GK_DTYPE_NONE:
    case GK_DTYPE_COUNT:
        break;
    }
    return (double)NAN;
}

double gki_numeric_get(gk_dtype dtype, const void *base, int64_t index)
{
    return get(dtype, base, index);
}

static int32_t clamp(double value, double lowest, double highest)
{
    if (isnan(value)) {
        return 0;
    }
    return (int32_t)fmin(fmax(value, lowest), highest);
}

void gki_numeric_set(gk_dtype dtype, void *base, int64_t index, double value)
{
    unsigned char bytes[8];
    const float single = (float)value;
    uint16_t half = 0;
    int32_t integer = 0;
    switch (dtype) {
    case GK_F64:
        memcpy(bytes, &value, sizeof(value));
        break;
    case GK_F32:
        memcpy(bytes, &single, sizeof(single));
        break;
    case GK_F16:
    case GK_BF16:
        half = (uint16_t)narrow(&FORMATS[dtype], value);
        memcpy(bytes, &half, sizeof(half));
        break;
    case GK_E4M3:
    case GK_E5M2:
        bytes[0] = (unsigned char)narrow(&FORMATS[dtype], value);
        break;
    case GK_I32:
        integer = clamp(value, INT32_MIN, INT32_MAX);
        memcpy(bytes, &integer, sizeof(integer));
        break;
    case GK_I8:
        bytes[0] = (unsigned char)(clamp(value, INT8_MIN, INT8_MAX) & 0xff);
        break;
    case GK_U8:
        bytes[0] = (unsigned char)clamp(value, 0, UINT8_MAX);
        break;
    case GK_BOOL:
        bytes[0] = (unsigned char)clamp(value, 0, 1);
        break;
    case GK_DTYPE_NONE:
    case GK_DTYPE_COUNT:
        return;
    }
    const size_t size = gk_dtype_size(dtype);
    memcpy((unsigned char *)base + index * (int64_t)size, bytes, size);
}

static inline void load(gk_dtype dtype, const void *base, int64_t stride, int64_t count,
                        double *out)
{
    for (int64_t i = 0; i < count; i++) {
        out[i] = get(dtype, base, i * stride);
    }
}

void gki_numeric_load(gk_dtype dtype, const void *base, int64_t stride, int64_t count, double *out)
{
    switch (dtype) {
    case GK_F32:
        load(GK_F32, base, stride, count, out);
        break;
    case GK_F16:
        load(GK_F16, base, stride, count, out);
        break;
    case GK_BF16:
        load(GK_BF16, base, stride, count, out);
        break;
    case GK_E4M3:
        load(GK_E4M3, base, stride, count, out);
        break;
    case GK_E5M2:
        load(GK_E5M2, base, stride, count, out);
        break;
    default:
        load(dtype, base, stride, count, out);
        break;
    }
}

void gki_numeric_load_integers(gk_dtype dtype, const void *base, int64_t stride, int64_t count,
                               uint32_t *out)
{
    for (int64_t i = 0; i < count; i++) {
        out[i] = (uint32_t)(int32_t)get(dtype, base, i * stride);
    }
}

bool gki_numeric_is_integer(gk_dtype dtype)
{
    return dtype == GK_I32 || dtype == GK_I8 || dtype == GK_U8 || dtype == GK_BOOL;
}

/* The dtype's format, NULL if it is no floating type. */
static const format *format_of(gk_dtype dtype)
{
    const bool is_dtype = gk_dtype_size(dtype) > 0;
    return is_dtype && !gki_numeric_is_integer(dtype) ? &FORMATS[dtype] : NULL;
}

double gki_numeric_limit(gk_dtype dtype, double value)
{
    const format *f = format_of(dtype);
    if (f == NULL || dtype == GK_F64 || (isinf(value) && f->has_infinity)) {
        return value;
    }
    /* Without infinities the top exponent holds numbers, and NaN is where the largest would be. */
    const int bias = bias_of(f);
    const double largest = f->has_infinity
                               ? (2 - power_of_two(-f->mantissa_bits)) * power_of_two(bias)
                               : (2 - power_of_two(1 - f->mantissa_bits)) * power_of_two(bias + 1);
    /* Where rounding to nearest even leaves the range. */
    const double edge =
        f->saturates ? largest : largest + power_of_two(bias - f->mantissa_bits - 1);
    if (!(fabs(value) >= edge)) {
        return value;
    }
    return copysign(f->saturates ? largest : (double)INFINITY, value);
}

double gki_numeric_unit(gk_dtype dtype)
{
    const format *f = format_of(dtype);
    return f != NULL ? power_of_two(-f->mantissa_bits - 1) : 0;
}

double gki_numeric_tiny(gk_dtype dtype)
{
    const format *f = format_of(dtype);
    /* ldexp: f64's is subnormal. */
    return f != NULL ? ldexp(1, 1 - bias_of(f) - f->mantissa_bits) : 0;
}
