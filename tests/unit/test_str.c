#define _POSIX_C_SOURCE 200809L
#include "support/gk_test.h"

#include <float.h>
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/proc.h"
#include "base/rng.h"
#include "base/str.h"

static void test_buffer(void **state)
{
    (void)state;
    gki_buf buf = {0};
    gki_buf_append(&buf, "", 0);
    assert_string_equal(buf.text, "");
    gki_buf_puts(&buf, "constexpr ");
    gki_buf_printf(&buf, "int %s = %d;", "BLOCK_M", 128);
    gki_buf_append(&buf, "\0!", 2);
    assert_int_equal(buf.length, 30);
    assert_memory_equal(buf.text, "constexpr int BLOCK_M = 128;\0!", 31);
    for (int i = 0; i < 1000; i++) {
        gki_buf_printf(&buf, "%04d", i);
    }
    assert_int_equal(buf.length, 4030);
    assert_string_equal(buf.text + 4026, "0999");
    assert_false(buf.failed);
    gki_buf_free(&buf);
    assert_null(buf.text);
    assert_int_equal(buf.capacity, 0);
}

static void test_buffer_out_of_memory(void **state)
{
    (void)state;
    gki_buf buf = {0};
    gki_buf_puts(&buf, "kept");
    char many[4096];
    memset(many, 'x', sizeof many);
    gki_alloc_fail_at(1);
    gki_buf_append(&buf, many, sizeof many);
    gki_alloc_fail_at(0);
    assert_true(buf.failed);
    gki_buf_puts(&buf, "more");
    assert_string_equal(buf.text, "kept");
    gki_buf_append(&buf, many, SIZE_MAX - 2);
    gki_buf_free(&buf);
    gki_buf_append(&buf, many, SIZE_MAX - 2);
    assert_true(buf.failed);
    assert_null(buf.text);
}

static void check_double(double value, const char *expected)
{
    char text[32];
    memset(text, '#', sizeof text);
    gki_format_double(text, sizeof text, value);
    assert_string_equal(text, expected);
}

static void check_numbers(void)
{
    check_double(0, "0.0");
    check_double(-0.0, "-0.0");
    check_double(0.125, "0.125");
    check_double(0.1, "0.1");
    check_double(-3, "-3.0");
    check_double(1e20, "1.0e+20");
    check_double(1.5e-7, "1.5e-07");
    check_double(0.1 + 0.2, "0.30000000000000004");
    check_double(INFINITY, "inf");
    check_double(-INFINITY, "-inf");
    check_double(NAN, "nan");
    double value = 0;
    assert_true(gki_parse_double("0.125", &value));
    assert_true(value == 0.125);
    gki_rng rng;
    gki_rng_seed(&rng, 5);
    for (int i = 0; i < 2000; i++) {
        uint64_t bits = gki_rng_next(&rng);
        double random;
        memcpy(&random, &bits, sizeof random);
        if (!isfinite(random)) {
            continue;
        }
        char text[32];
        gki_format_double(text, sizeof text, random);
        assert_non_null(strchr(text, '.'));
        assert_true(gki_parse_double(text, &value));
        assert_memory_equal(&value, &random, sizeof value);
    }
}

static void test_doubles(void **state)
{
    (void)state;
    check_numbers();
    static const double extremes[] = {DBL_MAX, -DBL_MAX, DBL_MIN, 4.9406564584124654e-324};
    for (size_t i = 0; i < sizeof extremes / sizeof extremes[0]; i++) {
        char text[32];
        double value = 0;
        gki_format_double(text, sizeof text, extremes[i]);
        assert_true(gki_parse_double(text, &value));
        assert_true(value == extremes[i]);
    }
    gki_buf buf = {0};
    gki_buf_double(&buf, 2);
    gki_buf_double(&buf, 0.5);
    assert_string_equal(buf.text, "2.00.5");
    gki_buf_free(&buf);
}

static void test_parse_double_refuses(void **state)
{
    (void)state;
    static const char *const bad[] = {"",      " 1",  "1 ", "+1",   "1,5",   "0x1p3",
                                      "inf",   "nan", "-",  "-inf", "1e999", "1.2.3",
                                      "12abc", "e5",  ".",  "--1",  "1e",    "-nan"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        double value = 42;
        if (gki_parse_double(bad[i], &value) || value != 42) {
            fail_msg("'%s' was taken for %g", bad[i], value);
        }
    }
}

static void test_parse_i64(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int64_t value;
    } good[] = {
        {"0", 0},
        {"-0", 0},
        {"007", 7},
        {"4294967297", INT64_C(4294967297)},
        {"9223372036854775807", INT64_MAX},
        {"-9223372036854775808", INT64_MIN},
    };
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        int64_t value = 42;
        assert_true(gki_parse_i64(good[i].text, &value));
        assert_true(value == good[i].value);
    }
    static const char *const bad[] = {"",
                                      "-",
                                      "+1",
                                      " 1",
                                      "1 ",
                                      "12abc",
                                      "1.0",
                                      "0x10",
                                      "--1",
                                      "9223372036854775808",
                                      "-9223372036854775809",
                                      "99999999999999999999"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        int64_t value = 42;
        if (gki_parse_i64(bad[i], &value) || value != 42) {
            fail_msg("'%s' was taken for %lld", bad[i], (long long)value);
        }
    }
}

static void test_copy_text(void **state)
{
    (void)state;
    char out[8];
    gki_copy_text(out, sizeof out, "1234567");
    assert_string_equal(out, "1234567");
    gki_copy_text(out, sizeof out, "12345678");
    assert_string_equal(out, "1234...");
    gki_copy_text(out, 3, "12345678");
    assert_string_equal(out, "..");
    gki_copy_text(out, 1, "1");
    assert_string_equal(out, "");
    out[0] = 'k';
    gki_copy_text(out, 0, "1");
    assert_int_equal(out[0], 'k');
}

static void test_fixed_text(void **state)
{
    (void)state;
    char memory[10];
    memset(memory, '#', sizeof memory);
    gki_text text = gki_text_begin(memory, 8);
    assert_string_equal(memory, "");
    gki_text_printf(&text, "%d-%s", 12, "ab");
    assert_string_equal(memory, "12-ab");
    assert_int_equal(text.length, 5);
    gki_text_printf(&text, "%s", "cd");
    assert_string_equal(memory, "12-abcd");
    gki_text_printf(&text, "%s", "lost");
    assert_string_equal(memory, "12-abcd");
    assert_int_equal(text.length, 7);
    text = gki_text_begin(memory, 4);
    gki_text_printf(&text, "%s", "123456");
    assert_string_equal(memory, "123");
    assert_int_equal(text.length, 3);
    assert_int_equal(memory[8], '#');
    assert_int_equal(memory[9], '#');
}

static void test_copy_printable(void **state)
{
    (void)state;
    char out[6] = "kept!";
    assert_false(gki_copy_printable(out, sizeof out, ""));
    assert_false(gki_copy_printable(out, sizeof out, "123456"));
    assert_false(gki_copy_printable(out, sizeof out, "a\tb"));
    assert_false(gki_copy_printable(out, sizeof out, "a\x7f"));
    assert_false(gki_copy_printable(out, sizeof out, "\xc3\xa4"));
    assert_string_equal(out, "kept!");
    assert_true(gki_copy_printable(out, sizeof out, " a~12"));
    assert_string_equal(out, " a~12");
}

/* A locale with a decimal comma, built into the test's directory: it need not be installed. */
static void test_decimal_comma(void **state)
{
    (void)state;
    char target[4200];
    (void)snprintf(target, sizeof target, "%s/de_DE.UTF-8", gk_test_dir());
    const char *const argv[] = {"localedef", "--no-archive", "-i",   "de_DE",
                                "-f",        "UTF-8",        target, NULL};
    gki_proc_result result;
    gk_status status = gki_proc_run(argv, 120, &result);
    assert_gk_ok(status);
    /* 1 stands for warnings about the locale's sources. */
    if (result.signal != 0 || result.exit_code > 1) {
        fail_msg("localedef: %s", result.output);
    }
    gki_free(result.output);
    assert_int_equal(setenv("LOCPATH", gk_test_dir(), 1), 0);
    assert_int_equal(setenv("LC_ALL", "de_DE.UTF-8", 1), 0);
    assert_non_null(setlocale(LC_ALL, ""));
    char text[32];
    (void)snprintf(text, sizeof text, "%.3f", 0.125);
    bool comma = strcmp(text, "0,125") == 0;
    check_numbers();
    (void)snprintf(text, sizeof text, "%.3f", 0.125);
    bool still = strcmp(text, "0,125") == 0;
    assert_non_null(setlocale(LC_ALL, "C"));
    assert_true(comma);
    assert_true(still);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_buffer),         cmocka_unit_test(test_buffer_out_of_memory),
        cmocka_unit_test(test_doubles),        cmocka_unit_test(test_parse_double_refuses),
        cmocka_unit_test(test_parse_i64),      cmocka_unit_test(test_copy_text),
        cmocka_unit_test(test_copy_printable), cmocka_unit_test(test_fixed_text),
        cmocka_unit_test(test_decimal_comma),
    };
    return GK_TEST_MAIN(tests);
}
