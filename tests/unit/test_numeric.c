/* The element types on the host: widening, rounding, ranges, bulk loads. */
#include "gk_test.h"

#include <float.h>
#include <limits.h>
#include <math.h>
#include <string.h>

#include "base/numeric.h"
#include "op_values.h"

static const struct {
    gk_dtype dtype;
    uint32_t patterns;
    uint32_t sign;
    bool saturates;
    double largest;
} SMALL[] = {
    {GK_F16, 65536, 0x8000, false, 65504},
    {GK_BF16, 65536, 0x8000, false, 0x1.fep127},
    {GK_E4M3, 256, 0x80, true, 448},
    {GK_E5M2, 256, 0x80, true, 57344},
};
enum { N_SMALL = sizeof(SMALL) / sizeof(SMALL[0]) };

static double value_of(gk_dtype dtype, uint32_t bits)
{
    const uint16_t half = (uint16_t)bits;
    const uint8_t byte = (uint8_t)bits;
    const void *element = gk_dtype_size(dtype) == 1 ? (const void *)&byte : (const void *)&half;
    return gki_numeric_get(dtype, element, 0);
}

static uint32_t bits_of(gk_dtype dtype, double value)
{
    uint16_t half = 0xabab;
    uint8_t byte = 0xab;
    if (gk_dtype_size(dtype) == 1) {
        gki_numeric_set(dtype, &byte, 0, value);
        return byte;
    }
    gki_numeric_set(dtype, &half, 0, value);
    return half;
}

static void same_value(double got, double want)
{
    if (isnan(want)) {
        assert_true(isnan(got));
    } else {
        assert_memory_equal(&got, &want, sizeof(got));
    }
}

static void known_values(void **state)
{
    (void)state;
    const uint32_t f16[] = {0x3c00, 0xc000, 0x0001, 0x7bff, 0x7c00, 0x7e00, 0x8000};
    const double f16_values[] = {1, -2, 0x1p-24, 65504, INFINITY, NAN, -0.0};
    const uint32_t bf16[] = {0x3f80, 0xc000, 0x0001, 0x7f7f, 0x7f80, 0x7fc0, 0x8000};
    const double bf16_values[] = {1, -2, 0x1p-133, 0x1.fep127, INFINITY, NAN, -0.0};
    const uint32_t e4m3[] = {0x38, 0xc0, 0x01, 0x7e, 0x78, 0x7f, 0x80};
    const double e4m3_values[] = {1, -2, 0x1p-9, 448, 256, NAN, -0.0};
    const uint32_t e5m2[] = {0x3c, 0xc0, 0x01, 0x7b, 0x7c, 0x7e, 0x80};
    const double e5m2_values[] = {1, -2, 0x1p-16, 57344, INFINITY, NAN, -0.0};
    const uint32_t *const bits[N_SMALL] = {f16, bf16, e4m3, e5m2};
    const double *const values[N_SMALL] = {f16_values, bf16_values, e4m3_values, e5m2_values};
    for (int t = 0; t < N_SMALL; t++) {
        for (int i = 0; i < 7; i++) {
            same_value(value_of(SMALL[t].dtype, bits[t][i]), values[t][i]);
        }
    }
    const double f64 = -0x1.123456789abcdp-1000;
    const float f32 = 0x1.abcdep-120f;
    const int32_t i32 = INT32_MIN;
    const uint8_t bytes[] = {0, 1, 127, 128, 255};
    same_value(gki_numeric_get(GK_F64, &f64, 0), f64);
    same_value(gki_numeric_get(GK_F32, &f32, 0), 0x1.abcdep-120);
    same_value(gki_numeric_get(GK_I32, &i32, 0), -2147483648.0);
    const double i8[] = {0, 1, 127, -128, -1};
    for (int i = 0; i < 5; i++) {
        same_value(gki_numeric_get(GK_I8, bytes, i), i8[i]);
        same_value(gki_numeric_get(GK_U8, bytes, i), bytes[i]);
        same_value(gki_numeric_get(GK_BOOL, bytes, i), bytes[i]);
    }
    assert_true(isnan(gki_numeric_get(GK_DTYPE_NONE, bytes, 0)));
    assert_true(isnan(gki_numeric_get(GK_DTYPE_COUNT, bytes, 0)));
}

/* Every pattern means what the tests' own decoder says, and survives. */
static void round_trips(void **state)
{
    (void)state;
    for (int t = 0; t < N_SMALL; t++) {
        const gk_dtype dtype = SMALL[t].dtype;
        for (uint32_t bits = 0; bits < SMALL[t].patterns; bits++) {
            const double value = value_of(dtype, bits);
            const uint16_t half = (uint16_t)bits;
            const uint8_t byte = (uint8_t)bits;
            same_value(value, op_value_get(dtype,
                                           SMALL[t].patterns == 256 ? (const void *)&byte
                                                                    : (const void *)&half,
                                           0));
            const uint32_t again = bits_of(dtype, value);
            if (isnan(value)) {
                assert_true(isnan(value_of(dtype, again)));
            } else {
                assert_int_equal(again, bits);
            }
        }
    }
}

/* Between all neighbours: the middle goes to the even one, all else to the nearer one. */
static void ties(void **state)
{
    (void)state;
    for (int t = 0; t < N_SMALL; t++) {
        const gk_dtype dtype = SMALL[t].dtype;
        for (uint32_t low = 0; value_of(dtype, low) < SMALL[t].largest; low++) {
            const double middle = (value_of(dtype, low) + value_of(dtype, low + 1)) / 2;
            const uint32_t even = low + (low & 1);
            assert_int_equal(bits_of(dtype, middle), even);
            assert_int_equal(bits_of(dtype, -middle), even | SMALL[t].sign);
            assert_int_equal(bits_of(dtype, nextafter(middle, 0)), low);
            assert_int_equal(bits_of(dtype, nextafter(middle, INFINITY)), low + 1);
        }
    }
}

/* Above the largest value, and what gki_numeric_limit() says of it. */
static void ranges(void **state)
{
    (void)state;
    for (int t = 0; t < N_SMALL; t++) {
        const gk_dtype dtype = SMALL[t].dtype;
        const double largest = SMALL[t].largest;
        const uint32_t top = bits_of(dtype, largest);
        const double edge = largest + (largest - value_of(dtype, top - 1)) / 2;
        const double beyond = SMALL[t].saturates ? largest : (double)INFINITY;
        same_value(value_of(dtype, top), largest);
        same_value(value_of(dtype, bits_of(dtype, nextafter(edge, 0))), largest);
        const double values[] = {edge, nextafter(edge, INFINITY), 4 * largest, 1e300, DBL_MAX};
        for (int i = 0; i < 5; i++) {
            same_value(value_of(dtype, bits_of(dtype, values[i])), beyond);
            same_value(value_of(dtype, bits_of(dtype, -values[i])), -beyond);
            same_value(gki_numeric_limit(dtype, values[i]), beyond);
            same_value(gki_numeric_limit(dtype, -values[i]), -beyond);
        }
        const double infinite = dtype == GK_E4M3 ? 448 : (double)INFINITY;
        same_value(value_of(dtype, bits_of(dtype, INFINITY)), infinite);
        same_value(value_of(dtype, bits_of(dtype, -INFINITY)), -infinite);
        same_value(gki_numeric_limit(dtype, INFINITY), infinite);
        same_value(gki_numeric_limit(dtype, -INFINITY), -infinite);
        assert_true(isnan(gki_numeric_limit(dtype, NAN)));
        /* Within the range nothing is rounded. */
        same_value(gki_numeric_limit(dtype, nextafter(largest, 0)), nextafter(largest, 0));
        same_value(gki_numeric_limit(dtype, -0.1), -0.1);
    }
    same_value(gki_numeric_limit(GK_F16, 65519.0), 65519);
    same_value(gki_numeric_limit(GK_F32, 0x1.fffffefp127), 0x1.fffffefp127);
    same_value(gki_numeric_limit(GK_F32, 0x1.ffffffp127), INFINITY);
    same_value(gki_numeric_limit(GK_F32, -1e39), -INFINITY);
    same_value(gki_numeric_limit(GK_F64, DBL_MAX), DBL_MAX);
    same_value(gki_numeric_limit(GK_I8, 1000), 1000);
}

static void integers(void **state)
{
    (void)state;
    static const struct {
        gk_dtype dtype;
        double value;
        double stored;
    } cases[] = {
        {GK_I8, -3, -3},        {GK_I8, 2.9, 2},         {GK_I8, -2.9, -2},
        {GK_I8, 128, 127},      {GK_I8, -1e300, -128},   {GK_U8, 200, 200},
        {GK_U8, 256, 255},      {GK_U8, -1, 0},          {GK_BOOL, 1, 1},
        {GK_BOOL, 7, 1},        {GK_I32, -70000, -7e4},  {GK_I32, 2147483647, 2147483647},
        {GK_I32, 3e9, INT_MAX}, {GK_I32, -3e9, INT_MIN}, {GK_I32, NAN, 0},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        unsigned char memory[16];
        memset(memory, 0xa5, sizeof(memory));
        gki_numeric_set(cases[i].dtype, memory, 1, cases[i].value);
        same_value(gki_numeric_get(cases[i].dtype, memory, 1), cases[i].stored);
        const size_t size = gk_dtype_size(cases[i].dtype);
        assert_int_equal(memory[size - 1], 0xa5);
        assert_int_equal(memory[2 * size], 0xa5);
        assert_int_equal(gki_numeric_is_integer(cases[i].dtype), true);
    }
    for (int t = 0; t < N_SMALL; t++) {
        assert_int_equal(gki_numeric_is_integer(SMALL[t].dtype), false);
    }
    assert_int_equal(gki_numeric_is_integer(GK_F32), false);
    assert_int_equal(gki_numeric_is_integer(GK_F64), false);
}

/* Strided, at an odd address: the same as one by one. */
static void bulk(void **state)
{
    (void)state;
    enum { COUNT = 37, STRIDE = 3 };
    unsigned char memory[1 + COUNT * STRIDE * 8];
    for (gk_dtype dtype = GK_F64; dtype < GK_DTYPE_COUNT; dtype++) {
        const int64_t size = (int64_t)gk_dtype_size(dtype);
        for (int stride = 0; stride <= STRIDE; stride++) {
            memset(memory, 0xff, sizeof(memory));
            for (int64_t i = 0; i < COUNT * STRIDE; i++) {
                gki_numeric_set(dtype, memory + 1, i, (double)(i % 100));
            }
            double got[COUNT + 1];
            uint32_t whole[COUNT + 1];
            got[COUNT] = -5;
            whole[COUNT] = 0xabcdef01;
            gki_numeric_load(dtype, memory + 1, stride, COUNT, got);
            gki_numeric_load_integers(dtype, memory + 1, stride, COUNT, whole);
            for (int64_t i = 0; i < COUNT; i++) {
                unsigned char element[8] = {0};
                memcpy(element, memory + 1 + i * stride * size, (size_t)size);
                same_value(got[i], gki_numeric_get(dtype, element, 0));
                assert_int_equal(whole[i], (uint32_t)got[i]);
            }
            assert_true(got[COUNT] == -5);
            assert_int_equal(whole[COUNT], 0xabcdef01);
        }
    }
    const int8_t negative[] = {-1, -128};
    uint32_t whole[2];
    gki_numeric_load_integers(GK_I8, negative, 1, 2, whole);
    assert_int_equal(whole[0], 0xffffffff);
    assert_int_equal(whole[1], 0xffffff80);
}

static void units(void **state)
{
    (void)state;
    static const struct {
        gk_dtype dtype;
        double unit;
        double tiny;
    } cases[] = {
        {GK_F64, 0x1p-53, 0x1p-1074},
        {GK_F32, 0x1p-24, 0x1p-149},
        {GK_F16, 0x1p-11, 0x1p-24},
        {GK_BF16, 0x1p-8, 0x1p-133},
        {GK_E4M3, 0x1p-4, 0x1p-9},
        {GK_E5M2, 0x1p-3, 0x1p-16},
        {GK_I32, 0, 0},
        {GK_I8, 0, 0},
        {GK_U8, 0, 0},
        {GK_BOOL, 0, 0},
        {GK_DTYPE_NONE, 0, 0},
        {GK_DTYPE_COUNT, 0, 0},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        same_value(gki_numeric_unit(cases[i].dtype), cases[i].unit);
        same_value(gki_numeric_tiny(cases[i].dtype), cases[i].tiny);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(known_values), cmocka_unit_test(round_trips), cmocka_unit_test(ties),
        cmocka_unit_test(ranges),       cmocka_unit_test(integers),    cmocka_unit_test(bulk),
        cmocka_unit_test(units),
    };
    return GK_TEST_MAIN(tests);
}
