/* map's expressions: what is taken, what is refused and where, values, canonical text, code. */
#include "gk_test.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "op/map_expression.h"

static map_expression expression;
static char error[MAP_MAX_ERROR];

static void takes(const char *text)
{
    if (!gki_map_parse(text, &expression, error)) {
        fail_msg("\"%s\": %s", text, error);
    }
}

static void refuses(const char *text, const char *message)
{
    assert_false(gki_map_parse(text, &expression, error));
    assert_string_equal(error, message);
}

static void errors_say_where(void **state)
{
    (void)state;
    refuses("", "column 1: expected a value, found the end");
    refuses("  ", "column 3: expected a value, found the end");
    refuses("x0 + )", "column 6: expected a value, found ')'");
    refuses("(x0 + )", "column 7: expected a value, found ')'");
    refuses("x0 +", "column 5: expected a value, found the end");
    refuses("x0 x1", "column 4: expected an operator or the end, found \"x1\"");
    refuses("(x0", "column 4: expected an operator or ')', found the end");
    refuses("x0)", "column 3: expected an operator or the end, found ')'");
    refuses("x5", "column 1: expected a function, pi, inf, nan or x0 to x4, found \"x5\"");
    refuses("x0 + y", "column 6: expected a function, pi, inf, nan or x0 to x4, found \"y\"");
    refuses("exp", "column 4: expected '(', found the end");
    refuses("exp()", "column 5: expected a value, found ')'");
    refuses("max(x0)", "column 1: max takes 2 values, found 1");
    refuses("1 + abs(x0, x1)", "column 5: abs takes 1 value, found 2");
    refuses("fma(x0, x1, x2, x3, x4)", "column 1: fma takes 3 values, found 5");
    refuses("max(x0 x1)", "column 8: expected ',', found \"x1\"");
    refuses("x0 ? x1", "column 8: expected an operator or ':', found the end");
    refuses("x0 = x1", "column 4: expected an operator or the end, found '='");
    refuses("x0 & x1", "column 4: expected an operator or the end, found '&'");
    refuses("1.2.3", "column 1: expected a number within the range of f64, found \"1\"");
    refuses("1e999", "column 1: expected a number within the range of f64, found \"1e999\"");
    refuses("2x0", "column 2: expected an operator, found \"x0\"");
    refuses("0x10", "column 2: expected an operator, found \"x10\"");
    refuses("1.5l", "column 4: expected an operator, found \"l\"");
}

/* Nothing of another language gets through. */
static void code_is_refused(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "x0; x1",     "x0 // x1",        "x0 /* */ + x1", "x0\\",
        "#define x0", "x0[0]",           "*x0",           "&x0",
        "x0++",       "x0, x1",          "x0 += 1",       "asm(\"\")",
        "sizeof(x0)", "__syncthreads()", "args.x",        "x0->x",
        "(float)x0",  "x0 ^ x1",         "x0 % x1",       "\"x0\"",
        "x0 \x01",    "x0 \xc3\xa4",     "printf(x0)",    "m_exp(x0)",
        "x00",
    };
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        if (gki_map_parse(texts[i], &expression, error)) {
            fail_msg("\"%s\" was taken", texts[i]);
        }
        assert_non_null(strstr(error, "column "));
    }
}

static void limits(void **state)
{
    (void)state;
    char text[2000];
    memset(text, ' ', sizeof(text));
    memcpy(text, "x0", 2);
    text[MAP_MAX_SOURCE] = '\0';
    takes(text);
    text[MAP_MAX_SOURCE] = ' ';
    text[MAP_MAX_SOURCE + 1] = '\0';
    refuses(text, "it has more than 512 characters");
    for (int depth = 1; depth <= 250; depth++) {
        memset(text, '(', (size_t)depth);
        memcpy(text + depth, "x0", 2);
        memset(text + depth + 2, ')', (size_t)depth);
        text[2 * depth + 2] = '\0';
        const bool taken = gki_map_parse(text, &expression, error);
        assert_true(taken || strstr(error, "nested more than 128 deep") != NULL);
        assert_true(depth > 60 ? depth < 67 || !taken : taken);
        memset(text, '-', (size_t)depth);
        memcpy(text + depth, "x0", 3);
        assert_true(gki_map_parse(text, &expression, error) == (depth < MAP_MAX_DEPTH - 1));
    }
    size_t length = 0;
    for (int i = 0; i < 50; i++) {
        length += (size_t)snprintf(text + length, sizeof(text) - length, "1+(");
    }
    length += (size_t)snprintf(text + length, sizeof(text) - length, "x0");
    memset(text + length, ')', 50);
    text[length + 50] = '\0';
    takes(text);
    length = (size_t)snprintf(text, sizeof(text), "x0");
    for (int i = 0; i < 63; i++) {
        length += (size_t)snprintf(text + length, sizeof(text) - length, "+x1");
    }
    takes(text);
    assert_int_equal(expression.n_nodes, 127);
    (void)snprintf(text + length, sizeof(text) - length, "*x1");
    assert_false(gki_map_parse(text, &expression, error));
    assert_non_null(strstr(error, "more than 128 operations and values"));
    /* Code of the longest names fits what the renderer has room for. */
    char code[4096];
    takes("x0");
    expression.n_nodes = 1;
    while (expression.n_nodes < MAP_MAX_NODES) { /* the longest name and numbers */
        map_node *node = &expression.nodes[expression.n_nodes];
        *node = expression.nodes[0];
        node->kind = MAP_GELU_TANH;
        node->child[0] = (uint8_t)(expression.n_nodes++ - 1);
    }
    assert_true(gki_map_code(&expression, false, code, sizeof(code)));
    for (uint32_t i = 0; i < MAP_MAX_NODES; i++) {
        map_node *node = &expression.nodes[i];
        node->kind = i % 2 == 0 ? MAP_NUMBER : MAP_MULTIPLY;
        node->value = -1.2345678901234567e-300;
        node->child[0] = (uint8_t)(i > 1 ? i - 2 : 0);
        node->child[1] = (uint8_t)(i - 1);
    }
    assert_true(gki_map_code(&expression, true, code, sizeof(code)));
}

static void one_text_for_all_spellings(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        const char *canonical;
    } cases[] = {
        {"x0+x1", "x0 + x1"},
        {" x0 \t+\nx1 ", "x0 + x1"},
        {"(x0)+((x1))", "x0 + x1"},
        {"+x0", "x0"},
        {"x0+2*x1", "x0 + 2.0 * x1"},
        {"x0 + 2.0e0f * x1", "x0 + 2.0 * x1"},
        {"(x0+2)*x1", "(x0 + 2.0) * x1"},
        {"x0-(x1-x2)", "x0 - (x1 - x2)"},
        {"(x0-x1)-x2", "x0 - x1 - x2"},
        {"x0/(x1*x2)", "x0 / (x1 * x2)"},
        {"-x0*x1", "-x0 * x1"},
        {"-(x0*x1)", "-(x0 * x1)"},
        {"--x0", "--x0"},
        {"x0 - -1", "x0 - -1.0"},
        {".5", "0.5"},
        {"5.", "5.0"},
        {"1e-3", "0.001"},
        {"pi", "3.141592653589793"},
        {"-inf", "-inf"},
        {"where(x0>0,x1,x2)", "x0 > 0.0 ? x1 : x2"},
        {"x0 ? x1 : x2 ? x3 : x4", "x0 ? x1 : x2 ? x3 : x4"},
        {"(x0 ? x1 : x2) ? x3 : x4", "(x0 ? x1 : x2) ? x3 : x4"},
        {"(x0 ? x1 : x2) + 1", "(x0 ? x1 : x2) + 1.0"},
        {"x0<x1&&x2!=x3||!x4", "x0 < x1 && x2 != x3 || !x4"},
        {"(x0||x1)&&x2", "(x0 || x1) && x2"},
        {"x0<=x1==x2>=x3", "x0 <= x1 == x2 >= x3"},
        {"fma( x0,x1 ,x2)", "fma(x0, x1, x2)"},
        {"max(x0,(x1?x2:x3))", "max(x0, x1 ? x2 : x3)"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char text[MAP_MAX_TEXT + 1];
        char again[MAP_MAX_TEXT + 1];
        takes(cases[i].text);
        assert_true(gki_map_canonical(&expression, text));
        assert_string_equal(text, cases[i].canonical);
        takes(text);
        assert_true(gki_map_canonical(&expression, again));
        assert_string_equal(again, text);
    }
}

static double value_of(const char *text, double x0, double x1, double x2)
{
    const double inputs[MAP_MAX_INPUTS] = {x0, x1, x2, 4, 5};
    double off;
    takes(text);
    return gki_map_evaluate(&expression, true, inputs, &off);
}

#define same(text, expected)                                                                       \
    do {                                                                                           \
        const double want = (expected);                                                            \
        const double got = value_of(text, a, b, c);                                                \
        if (!(got == want || fabs(got - want) <= 4e-16 * fabs(want)) &&                            \
            !(isnan(got) && isnan(want))) {                                                        \
            fail_msg("%s at %g %g %g is %.17g, not %.17g", text, a, b, c, got, want);              \
        }                                                                                          \
    } while (0)

static void values(void **state)
{
    (void)state;
    static const double points[] = {-2.5, -1, 0.25, 0.75, 3};
    for (int i = 0; i < 125; i++) {
        const double a = points[i % 5], b = points[i / 5 % 5], c = points[i / 25];
        same("x0 * x1 + x2", a * b + c);
        same("x0 - x1 - x2", a - b - c);
        same("x0 / x1 / x2", a / b / c);
        same("-x0 + x1 * -x2", -a + b * -c);
        same("1 + 2 * 3 - 4 / 8", 6.5);
        same("x0 < x1 ? x2 : x0 * 10", a < b ? c : a * 10);
        same("where(x0 >= x1, 1, 2)", a >= b ? 1 : 2);
        same("(x0 == x1) + 2 * (x0 != x2) + 4 * (x1 <= x2) + 8 * (x1 > x2)",
             (a == b) + 2 * (a != c) + 4 * (b <= c) + 8 * (b > c));
        same("x0 > 0 && x1 > 0 || !(x2 > 0)", (a > 0 && b > 0) || !(c > 0));
        same("abs(x0) + ceil(x1) + floor(x2) + trunc(x0) + rint(x1)",
             fabs(a) + ceil(b) + floor(c) + trunc(a) + nearbyint(b));
        same("exp(x0) - exp2(x1) * expm1(x2)", exp(a) - exp2(b) * expm1(c));
        same("log(x0 * x0) + log2(abs(x1)) + log1p(abs(x2))",
             log(a * a) + log2(fabs(b)) + log1p(fabs(c)));
        same("sin(x0) + cos(x1) + tan(x2)", sin(a) + cos(b) + tan(c));
        same("sqrt(x0) + rsqrt(x1)", sqrt(a) + 1 / sqrt(b));
        same("pow(abs(x0), x1)", pow(fabs(a), b));
        same("max(x0, x1) - min(x1, x2)", fmax(a, b) - fmin(b, c));
        same("fma(x0, x1, x2)", fma(a, b, c));
        same("tanh(x0) + erf(x1) + erfc(x2)", tanh(a) + erf(b) + erfc(c));
        same("relu(x0) + x3 * x4", (a < 0 ? 0 : a) + 20);
    }
    /* The definitions, where double precision has digits to spare. */
    for (int i = 0; i < 5; i++) {
        const double x = points[i];
        const double cubic = 0.7978845608028654 * (x + 0.044715 * x * x * x);
        assert_true(fabs(value_of("sigmoid(x0)", x, 0, 0) - 1 / (1 + exp(-x))) < 1e-15);
        assert_true(fabs(value_of("silu(x0)", x, 0, 0) - x / (1 + exp(-x))) < 1e-15);
        assert_true(fabs(value_of("gelu(x0)", x, 0, 0) - 0.5 * x * (1 + erf(x / sqrt(2)))) < 2e-15);
        assert_true(fabs(value_of("gelu_tanh(x0)", x, 0, 0) - 0.5 * x * (1 + tanh(cubic))) < 2e-15);
    }
}

static void values_that_are_not_ordinary(void **state)
{
    (void)state;
    const double inf = (double)INFINITY;
    const double a = (double)NAN, b = -inf, c = inf;
    same("x0", a);
    same("max(x0, x1)", a);
    same("max(x2, x0)", a);
    same("min(x0, x1)", a);
    same("min(x1, x0)", a);
    same("max(x1, x2)", c);
    same("relu(x0)", a);
    same("relu(x1)", 0);
    same("relu(x2)", c);
    same("silu(x0)", a);
    same("silu(x1)", 0);
    same("silu(x2)", c);
    same("gelu(x1) + gelu_tanh(x1)", 0);
    same("gelu(x2) + gelu_tanh(x2)", c);
    same("gelu(x0)", a);
    same("sigmoid(x1)", 0);
    same("sigmoid(x2)", 1);
    same("isnan(x0) + 2 * isnan(x1)", 1);
    same("x0 ? 1 : 2", 1); /* NaN is not 0 */
    same("x0 == x0", 0);
    same("x0 != x0", 1);
    same("x2 - x2", a);
    same("x2 == inf", 1);
    same("isnan(nan)", 1);
    same("log(-1)", a);
    same("1 / 0", c);
}

/* In f32 a step past its range is infinite; half a unit of error is one operation's. */
static void errors_are_bounded(void **state)
{
    (void)state;
    const double inputs[MAP_MAX_INPUTS] = {1e30, 1e30, 1, 100, -5};
    double off;
    takes("x0 * x1");
    assert_true(isinf(gki_map_evaluate(&expression, false, inputs, &off)));
    assert_true(fabs(gki_map_evaluate(&expression, true, inputs, &off) - 1e60) < 1e45);
    takes("x2 + x3");
    assert_true(gki_map_evaluate(&expression, false, inputs, &off) == 101);
    assert_true(off >= 101 * 0x1p-24 && off < 101 * 0x1.01p-24);
    takes("(x0 + x2) - x0"); /* cancels */
    (void)gki_map_evaluate(&expression, false, inputs, &off);
    assert_true(off > 1e22 && off < 1e24);
    takes("x3 * x3 > 9999.9999 ? 1 : 0"); /* hangs on the rounding */
    (void)gki_map_evaluate(&expression, false, inputs, &off);
    assert_true(off >= 1);
    takes("x3 > 50 ? x2 : x0");
    (void)gki_map_evaluate(&expression, false, inputs, &off);
    assert_true(off <= 0);
    takes("0.1");
    assert_true(gki_map_evaluate(&expression, false, inputs, &off) == (double)0.1f);
    takes("exp(x4)");
    assert_true(gki_map_evaluate(&expression, false, inputs, &off) == exp(-5));
    assert_true(off >= 4 * exp(-5) * 0x1p-24 && off < 5 * exp(-5) * 0x1p-24);
}

static void code(void **state)
{
    (void)state;
    char text[256];
    takes("x0 * 0.1 + (x1 < 2 ? -x2 : silu(x0))");
    assert_true(gki_map_code(&expression, false, text, sizeof(text)));
    assert_string_equal(text, "m_add(m_mul(x0, 0.10000000149011612f), m_where(m_lt(x1, 2.0f), "
                              "m_neg(x2), m_silu(x0)))");
    assert_true(gki_map_code(&expression, true, text, sizeof(text)));
    assert_string_equal(text, "m_add(m_mul(x0, 0.1), m_where(m_lt(x1, 2.0), m_neg(x2), "
                              "m_silu(x0)))");
    assert_false(gki_map_code(&expression, true, text, 20));
    takes("x0 + 1e39 * nan");
    assert_true(gki_map_code(&expression, false, text, sizeof(text)));
    assert_string_equal(text, "m_add(x0, m_mul(m_inf(x0), m_nan(x0)))");
    assert_int_equal(expression.inputs, 1);
}

/* Brief functions are those that sums, comparisons and other functions take nothing from. */
static void brief_functions(void **state)
{
    (void)state;
    char text[256];
    takes("silu(x0) * (x1 > sigmoid(x0) ? -gelu(x1) / gelu_tanh(x2) : abs(relu(sigmoid(x3))))");
    gki_map_shorten(&expression);
    assert_true(gki_map_code(&expression, false, text, sizeof(text)));
    assert_string_equal(text, "m_mul(m_brief_silu(x0), m_where(m_gt(x1, m_sigmoid(x0)), "
                              "m_div(m_neg(m_brief_gelu(x1)), m_brief_gelu_tanh(x2)), "
                              "m_abs(m_relu(m_brief_sigmoid(x3)))))");
    takes("silu(x0) - x0 + exp(gelu(x0)) * max(sigmoid(x0), x1)");
    gki_map_shorten(&expression);
    assert_true(gki_map_code(&expression, false, text, sizeof(text)));
    assert_string_equal(text, "m_add(m_sub(m_silu(x0), x0), "
                              "m_mul(m_exp(m_gelu(x0)), m_max(m_sigmoid(x0), x1)))");
    refuses("brief_silu(x0)",
            "column 1: expected a function, pi, inf, nan or x0 to x4, found \"brief_silu\"");
    const double inputs[MAP_MAX_INPUTS] = {2};
    const double silu = 2 / (1 + exp(-2));
    double off;
    takes("silu(x0)");
    gki_map_shorten(&expression);
    assert_true(fabs(gki_map_evaluate(&expression, false, inputs, &off) - silu) < 1e-15);
    assert_true(off >= silu * 0x1p-17 && off < silu * 0x1.01p-17);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(errors_say_where),
        cmocka_unit_test(code_is_refused),
        cmocka_unit_test(limits),
        cmocka_unit_test(one_text_for_all_spellings),
        cmocka_unit_test(values),
        cmocka_unit_test(values_that_are_not_ordinary),
        cmocka_unit_test(errors_are_bounded),
        cmocka_unit_test(code),
        cmocka_unit_test(brief_functions),
    };
    return GK_TEST_MAIN(tests);
}
