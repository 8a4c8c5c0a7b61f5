#include "tune/numeric.h"

#include <math.h>
#include <string.h>

/* A binary format below f32: IEEE's encoding, except that formats without infinities use the whole
 * top exponent for numbers but for one NaN. */
typedef struct small_float {
    int exponent_bits;
    int mantissa_bits;
    bool has_infinity;
    bool saturates;
} small_float;

static const small_float F16 = {5, 10, true, false};
static const small_float E4M3 = {4, 3, false, true};
static const small_float E5M2 = {5, 2, true, true};

static double decode_small(const small_float *f, uint32_t bits)
{
    int bias = (1 << (f->exponent_bits - 1)) - 1;
    uint32_t mantissa_mask = (1u << f->mantissa_bits) - 1;
    uint32_t top = (1u << f->exponent_bits) - 1;
    uint32_t mantissa = bits & mantissa_mask;
    uint32_t exponent = (bits >> f->mantissa_bits) & top;
    double sign = (bits >> (f->mantissa_bits + f->exponent_bits)) & 1 ? -1.0 : 1.0;
    if (exponent == top && f->has_infinity) {
        return mantissa != 0 ? NAN : sign * INFINITY;
    }
    if (exponent == top && mantissa == mantissa_mask) {
        return NAN;
    }
    if (exponent == 0) {
        return sign * ldexp((double)mantissa, 1 - bias - f->mantissa_bits);
    }
    return sign *
           ldexp((double)(mantissa | (mantissa_mask + 1)), (int)exponent - bias - f->mantissa_bits);
}

static uint32_t encode_small(const small_float *f, double value)
{
    int bias = (1 << (f->exponent_bits - 1)) - 1;
    uint32_t top = (1u << f->exponent_bits) - 1;
    uint32_t infinity = top << f->mantissa_bits;
    uint32_t nan = infinity | ((1u << f->mantissa_bits) - 1);
    uint32_t largest = f->has_infinity ? infinity - 1 : nan - 1;
    uint32_t sign = signbit(value) ? 1u << (f->mantissa_bits + f->exponent_bits) : 0;
    if (isnan(value)) {
        return nan;
    }
    double magnitude = fabs(value);
    int exponent = 0;
    frexp(magnitude, &exponent);
    exponent -= 1; /* of 1.m * 2^exponent */
    if (magnitude == 0 || exponent < 1 - bias) {
        exponent = 1 - bias;
    }
    if (isinf(magnitude) || exponent > bias + 1) {
        return sign | (f->saturates ? largest : infinity);
    }
    /* Rounding up out of the mantissa carries into the exponent by itself. */
    double units = nearbyint(ldexp(magnitude, f->mantissa_bits - exponent));
    uint32_t bits = (uint32_t)units + ((uint32_t)(exponent + bias - 1) << f->mantissa_bits);
    if (bits > largest) {
        bits = f->saturates ? largest : infinity;
    }
    return sign | bits;
}

static uint16_t encode_bf16(double value)
{
    float single = (float)value;
    uint32_t bits;
    memcpy(&bits, &single, sizeof(bits));
    if (isnan(value)) {
        return 0x7fff;
    }
    return (uint16_t)((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

double gki_decode(gk_dtype dtype, const void *element)
{
    unsigned char bytes[8] = {0};
    memcpy(bytes, element, gk_dtype_size(dtype));
    uint16_t half;
    memcpy(&half, bytes, sizeof(half));
    switch (dtype) {
    case GK_F64: {
        double value;
        memcpy(&value, bytes, sizeof(value));
        return value;
    }
    case GK_F32: {
        float value;
        memcpy(&value, bytes, sizeof(value));
        return (double)value;
    }
    case GK_BF16: {
        uint32_t bits = (uint32_t)half << 16;
        float value;
        memcpy(&value, &bits, sizeof(value));
        return (double)value;
    }
    case GK_F16:
        return decode_small(&F16, half);
    case GK_E4M3:
        return decode_small(&E4M3, bytes[0]);
    case GK_E5M2:
        return decode_small(&E5M2, bytes[0]);
    case GK_I32: {
        int32_t value;
        memcpy(&value, bytes, sizeof(value));
        return (double)value;
    }
    case GK_I8: {
        int8_t value;
        memcpy(&value, bytes, sizeof(value));
        return (double)value;
    }
    case GK_U8:
    case GK_BOOL:
        return (double)bytes[0];
    case GK_DTYPE_NONE:
    case GK_DTYPE_COUNT:
        break;
    }
    return NAN;
}

void gki_encode(gk_dtype dtype, double value, void *element)
{
    unsigned char bytes[8] = {0};
    float single = (float)value;
    uint16_t half = 0;
    int32_t integer = gki_dtype_is_integer(dtype) ? (int32_t)value : 0;
    switch (dtype) {
    case GK_F64:
        memcpy(bytes, &value, sizeof(value));
        break;
    case GK_F32:
        memcpy(bytes, &single, sizeof(single));
        break;
    case GK_F16:
    case GK_BF16:
        half = dtype == GK_BF16 ? encode_bf16(value) : (uint16_t)encode_small(&F16, value);
        memcpy(bytes, &half, sizeof(half));
        break;
    case GK_E4M3:
    case GK_E5M2:
        bytes[0] = (unsigned char)encode_small(dtype == GK_E4M3 ? &E4M3 : &E5M2, value);
        break;
    case GK_I32:
        memcpy(bytes, &integer, sizeof(integer));
        break;
    case GK_I8:
    case GK_U8:
    case GK_BOOL:
        bytes[0] = (unsigned char)(integer & 0xff);
        break;
    case GK_DTYPE_NONE:
    case GK_DTYPE_COUNT:
        break;
    }
    memcpy(element, bytes, gk_dtype_size(dtype));
}

bool gki_dtype_is_integer(gk_dtype dtype)
{
    return dtype == GK_I32 || dtype == GK_I8 || dtype == GK_U8 || dtype == GK_BOOL;
}
