/*
 * The expressions of map: a small language of its own, so that nothing a caller writes reaches a
 * compiler as it is.
 *
 *   value    = condition ["?" value ":" value]
 *   condition: || && (== !=) (< <= > >=) (+ -) (* /), in C's order and from the left
 *   unary    = ("-" | "+" | "!") unary | primary
 *   primary  = number | x0 .. x4 | pi | inf | nan | function "(" value {"," value} ")"
 *            | "(" value ")"
 *
 * Comparisons give 1 or 0; what is not 0, NaN too, is true.
 */
#ifndef GKI_MAP_EXPRESSION_H
#define GKI_MAP_EXPRESSION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    MAP_MAX_INPUTS = 5,
    MAP_MAX_NODES = 128,
    MAP_MAX_DEPTH = 128,  /* a parenthesis or a function is two */
    MAP_MAX_SOURCE = 512, /* characters of what is parsed */
    MAP_MAX_TEXT = 440,   /* and of its canonical form */
    MAP_MAX_ERROR = 160,
};

typedef enum map_kind {
    MAP_NUMBER,
    MAP_INPUT,
    MAP_NEGATE,
    MAP_NOT,
    MAP_OR,
    MAP_AND,
    MAP_EQUAL,
    MAP_UNEQUAL,
    MAP_LESS,
    MAP_LESS_EQUAL,
    MAP_GREATER,
    MAP_GREATER_EQUAL,
    MAP_ADD,
    MAP_SUBTRACT,
    MAP_MULTIPLY,
    MAP_DIVIDE,
    MAP_WHERE,
    MAP_ABS,
    MAP_CEIL,
    MAP_COS,
    MAP_ERF,
    MAP_ERFC,
    MAP_EXP,
    MAP_EXP2,
    MAP_EXPM1,
    MAP_FLOOR,
    MAP_FMA,
    MAP_GELU,
    MAP_GELU_TANH,
    MAP_ISNAN,
    MAP_LOG,
    MAP_LOG1P,
    MAP_LOG2,
    MAP_MAX,
    MAP_MIN,
    MAP_POW,
    MAP_RELU,
    MAP_RINT,
    MAP_RSQRT,
    MAP_SIGMOID,
    MAP_SILU,
    MAP_SIN,
    MAP_SQRT,
    MAP_TAN,
    MAP_TANH,
    MAP_TRUNC,
    MAP_N_WRITTEN, /* what a text may hold */
    MAP_BRIEF_GELU = MAP_N_WRITTEN,
    MAP_BRIEF_GELU_TANH,
    MAP_BRIEF_SIGMOID,
    MAP_BRIEF_SILU,
    MAP_N_KINDS,
} map_kind;

typedef struct map_node {
    uint8_t kind;
    uint8_t input;    /* of MAP_INPUT */
    uint8_t child[3]; /* nodes before this one */
    double value;     /* of MAP_NUMBER */
} map_node;

/* Nodes in the order in which they are computed; the last is the result. */
typedef struct map_expression {
    map_node nodes[MAP_MAX_NODES];
    uint32_t n_nodes;
    uint32_t inputs; /* bit i: xi is used */
} map_expression;

/* How many values the kind takes, and its name in the language (operators: the sign). */
typedef struct map_kind_desc {
    const char *name;
    uint8_t arity;
    uint8_t precedence; /* of an operator, 1 to 8; 0 of a function */
    uint8_t ulps;       /* bound of the device's error in f32; 0 = rounded to nearest, or exact */
    uint8_t twin;       /* the brief kind of an exact one and the reverse; 0 = there is none */
} map_kind_desc;
extern const map_kind_desc gki_map_kinds[MAP_N_KINDS];

/* False with a sentence in error ("column 7: expected a value, found ')'"). */
bool gki_map_parse(const char *text, map_expression *out, char error[MAP_MAX_ERROR]);

/* The one text of all spellings: false if it is longer than MAP_MAX_TEXT. */
bool gki_map_canonical(const map_expression *expression, char out[MAP_MAX_TEXT + 1]);

/*
 * Has functions computed with some 16 bits, in fewer instructions, from which the result comes by
 * products, quotients and choices alone: what errs by a share of them errs by the same of the
 * result. For results of at most 16 bits.
 */
void gki_map_shorten(map_expression *expression);

/* The same as code for gk/elementwise.cuh over variables x0 .. x4 of float or double; false if it
 * does not fit. */
bool gki_map_code(const map_expression *expression, bool is_double, char *out, size_t size);

/*
 * The value in double precision, where each operation's overflow is f32's unless is_double, and how
 * far a kernel's may be off before it is rounded to the output's type: rounding errors and library
 * functions' bounds, carried through the expression. Infinite where a comparison, or a function's
 * domain, hangs on them.
 */
double gki_map_evaluate(const map_expression *expression, bool is_double, const double *inputs,
                        double *error);

#endif
