/* An expression's value in double precision, and what rounding may do to it on the way. */
#include <float.h>
#include <math.h>

#include "op/map_expression.h"

/* A value and how far a kernel's may be from it. */
typedef struct measured {
    double value;
    double error;
} measured;

static const double ROOT_HALF = 0.7071067811865476;
static const double ROOT_2_PI = 0.7978845608028654; /* sqrt(2 / pi) */

/* x t / (1 + t) with t = exp(a): x times the logistic function of a. */
static double times_logistic(double x, double a)
{
    if (x < -1e30) {
        return 0;
    }
    const double t = exp(-fabs(a));
    return a < 0 ? x * t / (1 + t) : x / (1 + t);
}

static double gelu_argument(double x)
{
    return 2 * ROOT_2_PI * (x + 0.044715 * x * x * x);
}

static double of_one(uint8_t kind, double x)
{
    switch (kind) {
    case MAP_NEGATE:
        return -x;
    case MAP_ABS:
        return fabs(x);
    case MAP_CEIL:
        return ceil(x);
    case MAP_COS:
        return cos(x);
    case MAP_ERF:
        return erf(x);
    case MAP_ERFC:
        return erfc(x);
    case MAP_EXP:
        return exp(x);
    case MAP_EXP2:
        return exp2(x);
    case MAP_EXPM1:
        return expm1(x);
    case MAP_FLOOR:
        return floor(x);
    case MAP_GELU:
        return x < -1e30 ? 0 : 0.5 * x * erfc(-x * ROOT_HALF);
    case MAP_GELU_TANH:
        return times_logistic(x, gelu_argument(x));
    case MAP_ISNAN:
        return isnan(x);
    case MAP_LOG:
        return log(x);
    case MAP_LOG1P:
        return log1p(x);
    case MAP_LOG2:
        return log2(x);
    case MAP_RELU:
        return x < 0 ? 0 : x;
    case MAP_RINT:
        return nearbyint(x);
    case MAP_RSQRT:
        return 1 / sqrt(x);
    case MAP_SIGMOID:
        return x < 0 ? exp(x) / (1 + exp(x)) : 1 / (1 + exp(-x));
    case MAP_SILU:
        return times_logistic(x, x);
    case MAP_SIN:
        return sin(x);
    case MAP_SQRT:
        return sqrt(x);
    case MAP_TAN:
        return tan(x);
    case MAP_TANH:
        return tanh(x);
    default:
        return trunc(x);
    }
}

static double of_two(uint8_t kind, double a, double b)
{
    switch (kind) {
    case MAP_EQUAL:
        return a == b;
    case MAP_UNEQUAL:
        return a != b;
    case MAP_LESS:
        return a < b;
    case MAP_LESS_EQUAL:
        return a <= b;
    case MAP_GREATER:
        return a > b;
    case MAP_GREATER_EQUAL:
        return a >= b;
    case MAP_ADD:
        return a + b;
    case MAP_SUBTRACT:
        return a - b;
    case MAP_MULTIPLY:
        return a * b;
    case MAP_DIVIDE:
        return a / b;
    case MAP_MAX:
        return a > b ? a : b >= a ? b : a + b;
    case MAP_MIN:
        return a < b ? a : b <= a ? b : a + b;
    default:
        return pow(a, b);
    }
}

/* A product of bounds, of which 0 is exact. */
static double bound(double a, double b)
{
    return a > 0 && b > 0 ? a * b : 0;
}

/* What is not a number has no distance: anything may have come of it. */
static double distance(double a, double b)
{
    const double d = fabs(a - b);
    return a == b ? 0 : isnan(d) ? (double)INFINITY : d;
}

static bool is_doubtful(measured x)
{
    return x.error > 0 && !(fabs(x.value) > x.error);
}

/* One operation's own rounding: `halves` times half a unit in the last place. */
static double rounding(double value, double halves, bool is_double)
{
    const double size = isfinite(value) ? fabs(value) : 0;
    return halves * (is_double ? 0x1p-53 * size + 0x1p-1074 : 0x1p-24 * size + 0x1p-149);
}

/* An operation whose result is some function's of its operands. */
static double spread_of_one(uint8_t kind, measured x, double value)
{
    if (!(x.error > 0)) {
        return 0;
    }
    if (kind == MAP_SIN || kind == MAP_COS) {
        return x.error;
    }
    return fmax(distance(of_one(kind, x.value - x.error), value),
                distance(of_one(kind, x.value + x.error), value));
}

/* Activations compute their inner argument with a rounding or two, which the exponential makes
 * more of. */
static double inner_rounding(uint8_t kind, double x, double value, bool is_double)
{
    double argument = 0;
    if (kind == MAP_GELU) {
        argument = x < 0 ? 2 * x * x : 0;
    } else if (kind == MAP_GELU_TANH) {
        argument = 4 * fabs(gelu_argument(x));
    }
    const double halves = isfinite(argument) ? argument : 0;
    return rounding(value, halves, is_double) +
           (kind == MAP_GELU || kind == MAP_GELU_TANH || kind == MAP_SILU
                ? fmin(fabs(x), 1e3) * (is_double ? 0x1p-1074 : 0x1p-149)
                : 0);
}

static bool rounds(uint8_t kind)
{
    switch (kind) {
    case MAP_NEGATE:
    case MAP_ABS:
    case MAP_CEIL:
    case MAP_FLOOR:
    case MAP_ISNAN:
    case MAP_MAX:
    case MAP_MIN:
    case MAP_RELU:
    case MAP_RINT:
    case MAP_TRUNC:
        return false;
    default:
        return true;
    }
}

static measured one(uint8_t computed, measured x, bool is_double)
{
    const map_kind_desc *desc = &gki_map_kinds[computed];
    const uint8_t kind = computed < MAP_N_WRITTEN ? computed : desc->twin;
    measured r = {of_one(kind, x.value), 0};
    if (kind == MAP_ISNAN) {
        return r;
    }
    r.error = spread_of_one(kind, x, r.value);
    if (rounds(kind)) {
        r.error += rounding(r.value, desc->ulps > 0 ? 2 * desc->ulps : 1, is_double) +
                   inner_rounding(kind, x.value, r.value, is_double);
    }
    return r;
}

static measured product(measured a, measured b, double value)
{
    const measured r = {value, bound(fabs(a.value), b.error) + bound(fabs(b.value), a.error) +
                                   bound(a.error, b.error)};
    return r;
}

static double error_of_power(measured a, measured b, double value)
{
    double most = 0;
    for (int i = 0; i < 4 && (a.error > 0 || b.error > 0); i++) {
        const double x = a.value + (i & 1 ? a.error : -a.error);
        const double y = b.value + (i & 2 ? b.error : -b.error);
        most = fmax(most, distance(pow(x, y), value));
    }
    return most;
}

static measured two(uint8_t kind, measured a, measured b, bool is_double)
{
    measured r = {of_two(kind, a.value, b.value), 0};
    const double both = a.error + b.error;
    switch (kind) {
    case MAP_ADD:
    case MAP_SUBTRACT:
        r.error = both;
        break;
    case MAP_MULTIPLY:
        r = product(a, b, r.value);
        break;
    case MAP_DIVIDE:
        if (both > 0) {
            const double least = fabs(b.value) - b.error;
            r.error =
                least > 0 ? (a.error + bound(fabs(r.value), b.error)) / least : (double)INFINITY;
        }
        break;
    case MAP_MAX:
    case MAP_MIN:
        r.error = fmax(a.error, b.error);
        return r;
    case MAP_POW:
        r.error = error_of_power(a, b, r.value);
        break;
    default: /* comparisons */
        r.error = both > 0 && !(fabs(a.value - b.value) > both) ? 1 : 0;
        return r;
    }
    const int ulps = gki_map_kinds[kind].ulps;
    r.error += rounding(r.value, ulps > 0 ? 2 * ulps : 1, is_double);
    return r;
}

static measured where(measured c, measured a, measured b)
{
    measured r = c.value != 0 ? a : b;
    if (is_doubtful(c)) {
        r.error = fmax(a.error, b.error) + distance(a.value, b.value);
    }
    return r;
}

static measured logic(uint8_t kind, measured a, measured b)
{
    const bool x = a.value != 0;
    const bool y = b.value != 0;
    measured r = {kind == MAP_OR ? x || y : kind == MAP_AND ? x && y : !x, 0};
    r.error = is_doubtful(a) || (kind != MAP_NOT && is_doubtful(b)) ? 1 : 0;
    return r;
}

static measured compute(const map_node *node, const measured *known, bool is_double)
{
    const measured a = known[node->child[0]];
    const measured b = known[node->child[1]];
    const measured c = known[node->child[2]];
    if (node->kind == MAP_WHERE) {
        return where(a, b, c);
    }
    if (node->kind == MAP_OR || node->kind == MAP_AND || node->kind == MAP_NOT) {
        return logic(node->kind, a, b);
    }
    if (node->kind == MAP_FMA) {
        measured r = product(a, b, fma(a.value, b.value, c.value));
        r.error += c.error + rounding(r.value, 1, is_double);
        return r;
    }
    return gki_map_kinds[node->kind].arity == 1 ? one(node->kind, a, is_double)
                                                : two(node->kind, a, b, is_double);
}

double gki_map_evaluate(const map_expression *expression, bool is_double, const double *inputs,
                        double *error)
{
    measured known[MAP_MAX_NODES];
    measured last = {0, 0};
    /* Where rounding to f32 gives infinity. */
    static const double EDGE = 0x1.ffffffp127;
    for (uint32_t i = 0; i < expression->n_nodes; i++) {
        const map_node *node = &expression->nodes[i];
        if (node->kind == MAP_NUMBER) {
            known[i] = (measured){is_double ? node->value : (double)(float)node->value, 0};
        } else if (node->kind == MAP_INPUT) {
            known[i] = (measured){inputs[node->input], 0};
        } else {
            known[i] = compute(node, known, is_double);
        }
        if (!is_double && fabs(known[i].value) >= EDGE) {
            known[i].value = copysign((double)INFINITY, known[i].value);
        }
        last = known[i];
    }
    *error = isnan(last.error) ? (double)INFINITY : last.error;
    return last.value;
}
