/* From an expression's text to its nodes. */
#include <stdio.h>
#include <string.h>

#include "base/str.h"
#include "op/map_expression.h"

const map_kind_desc gki_map_kinds[MAP_N_KINDS] = {
    [MAP_NUMBER] = {"", 0, 0, 0},
    [MAP_INPUT] = {"", 0, 0, 0},
    [MAP_NEGATE] = {"-", 1, 7, 0},
    [MAP_NOT] = {"!", 1, 7, 0},
    [MAP_OR] = {"||", 2, 1, 0},
    [MAP_AND] = {"&&", 2, 2, 0},
    [MAP_EQUAL] = {"==", 2, 3, 0},
    [MAP_UNEQUAL] = {"!=", 2, 3, 0},
    [MAP_LESS] = {"<", 2, 4, 0},
    [MAP_LESS_EQUAL] = {"<=", 2, 4, 0},
    [MAP_GREATER] = {">", 2, 4, 0},
    [MAP_GREATER_EQUAL] = {">=", 2, 4, 0},
    [MAP_ADD] = {"+", 2, 5, 0},
    [MAP_SUBTRACT] = {"-", 2, 5, 0},
    [MAP_MULTIPLY] = {"*", 2, 6, 0},
    [MAP_DIVIDE] = {"/", 2, 6, 0},
    [MAP_WHERE] = {"where", 3, 0, 0},
    [MAP_ABS] = {"abs", 1, 0, 0},
    [MAP_CEIL] = {"ceil", 1, 0, 0},
    [MAP_COS] = {"cos", 1, 0, 2},
    [MAP_ERF] = {"erf", 1, 0, 2},
    [MAP_ERFC] = {"erfc", 1, 0, 4},
    [MAP_EXP] = {"exp", 1, 0, 2},
    [MAP_EXP2] = {"exp2", 1, 0, 2},
    [MAP_EXPM1] = {"expm1", 1, 0, 2},
    [MAP_FLOOR] = {"floor", 1, 0, 0},
    [MAP_FMA] = {"fma", 3, 0, 0},
    [MAP_GELU] = {"gelu", 1, 0, 6, MAP_BRIEF_GELU},
    [MAP_GELU_TANH] = {"gelu_tanh", 1, 0, 6, MAP_BRIEF_GELU_TANH},
    [MAP_ISNAN] = {"isnan", 1, 0, 0},
    [MAP_LOG] = {"log", 1, 0, 2},
    [MAP_LOG1P] = {"log1p", 1, 0, 2},
    [MAP_LOG2] = {"log2", 1, 0, 2},
    [MAP_MAX] = {"max", 2, 0, 0},
    [MAP_MIN] = {"min", 2, 0, 0},
    [MAP_POW] = {"pow", 2, 0, 8},
    [MAP_RELU] = {"relu", 1, 0, 0},
    [MAP_RINT] = {"rint", 1, 0, 0},
    [MAP_RSQRT] = {"rsqrt", 1, 0, 2},
    [MAP_SIGMOID] = {"sigmoid", 1, 0, 4, MAP_BRIEF_SIGMOID},
    [MAP_SILU] = {"silu", 1, 0, 5, MAP_BRIEF_SILU},
    [MAP_SIN] = {"sin", 1, 0, 2},
    [MAP_SQRT] = {"sqrt", 1, 0, 0},
    [MAP_TAN] = {"tan", 1, 0, 4},
    [MAP_TANH] = {"tanh", 1, 0, 2},
    [MAP_TRUNC] = {"trunc", 1, 0, 0},
    [MAP_BRIEF_GELU] = {"brief_gelu", 1, 0, 128, MAP_GELU},
    [MAP_BRIEF_GELU_TANH] = {"brief_gelu_tanh", 1, 0, 64, MAP_GELU_TANH},
    [MAP_BRIEF_SIGMOID] = {"brief_sigmoid", 1, 0, 64, MAP_SIGMOID},
    [MAP_BRIEF_SILU] = {"brief_silu", 1, 0, 64, MAP_SILU},
};

enum { NONE = -1, MAX_TOKEN = 40 };

typedef struct parser {
    const char *text;
    const char *at;
    map_expression *out;
    char *error;
    int depth;
} parser;

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

static void skip_blanks(parser *p)
{
    p->at += strspn(p->at, " \t\r\n");
}

/* A failure at the present place; the first one counts. */
static int fail_at(parser *p, const char *at, const char *expected)
{
    gki_text w = gki_text_begin(p->error, MAP_MAX_ERROR);
    const int column = (int)(at - p->text) + 1;
    size_t length = 0;
    while (is_letter(at[length]) || is_digit(at[length])) {
        length++;
    }
    if (*at == '\0') {
        gki_text_printf(&w, "column %d: expected %s, found the end", column, expected);
    } else if (length > 0) {
        gki_text_printf(&w, "column %d: expected %s, found \"%.*s\"", column, expected,
                        (int)(length < 24 ? length : 24), at);
    } else if (*at > ' ' && *at <= '~') {
        gki_text_printf(&w, "column %d: expected %s, found '%c'", column, expected, *at);
    } else {
        gki_text_printf(&w, "column %d: expected %s, found a byte of %u", column, expected,
                        (unsigned)(unsigned char)*at);
    }
    return NONE;
}

static int add_node(parser *p, map_kind kind, const int *children, int n_children)
{
    map_expression *e = p->out;
    if (e->n_nodes == MAP_MAX_NODES) {
        gki_text w = gki_text_begin(p->error, MAP_MAX_ERROR);
        gki_text_printf(&w, "column %d: more than %d operations and values",
                        (int)(p->at - p->text) + 1, MAP_MAX_NODES);
        return NONE;
    }
    map_node *node = &e->nodes[e->n_nodes];
    memset(node, 0, sizeof(*node));
    node->kind = (uint8_t)kind;
    for (int i = 0; i < n_children && i < 3; i++) {
        node->child[i] = (uint8_t)children[i];
    }
    return (int)e->n_nodes++;
}

static int add_number(parser *p, double value)
{
    const int node = add_node(p, MAP_NUMBER, NULL, 0);
    if (node != NONE) {
        p->out->nodes[node].value = value;
    }
    return node;
}

/* Digits with an optional point and exponent; a suffix f, as C has it, changes nothing. */
static int parse_number(parser *p)
{
    char token[MAX_TOKEN];
    const char *first = p->at;
    size_t length = strspn(first, "0123456789.");
    if (first[length] == 'e' || first[length] == 'E') {
        const size_t sign = first[length + 1] == '+' || first[length + 1] == '-' ? 1 : 0;
        const size_t digits = strspn(first + length + 1 + sign, "0123456789");
        length += digits > 0 ? 1 + sign + digits : 0;
    }
    double value = 0;
    if (length >= sizeof(token)) {
        return fail_at(p, first, "a number of less than 40 characters");
    }
    memcpy(token, first, length);
    token[length] = '\0';
    if (!gki_parse_double(token, &value)) {
        return fail_at(p, first, "a number within the range of f64");
    }
    p->at += length;
    if (*p->at == 'f' || *p->at == 'F') {
        p->at++;
    }
    if (is_letter(*p->at) || is_digit(*p->at)) {
        return fail_at(p, p->at, "an operator");
    }
    return add_number(p, value);
}

static int parse_value(parser *p);

static int parse_call(parser *p, map_kind kind, const char *name_at)
{
    const map_kind_desc *desc = &gki_map_kinds[kind];
    int children[3] = {0, 0, 0};
    int n = 0;
    skip_blanks(p);
    if (*p->at != '(') {
        return fail_at(p, p->at, "'('");
    }
    do {
        p->at++;
        const int child = parse_value(p);
        if (child == NONE) {
            return NONE;
        }
        if (n < 3) {
            children[n] = child;
        }
        n++;
    } while (*p->at == ',');
    if (*p->at != ')') {
        return fail_at(p, p->at, n < desc->arity ? "','" : "')'");
    }
    p->at++;
    if (n != desc->arity) {
        gki_text w = gki_text_begin(p->error, MAP_MAX_ERROR);
        gki_text_printf(&w, "column %d: %s takes %d value%s, found %d",
                        (int)(name_at - p->text) + 1, desc->name, (int)desc->arity,
                        desc->arity == 1 ? "" : "s", n);
        return NONE;
    }
    return add_node(p, kind, children, n);
}

static bool is_word(const char *name, size_t length, const char *word)
{
    return strlen(word) == length && memcmp(name, word, length) == 0;
}

static int parse_name(parser *p)
{
    const char *name = p->at;
    size_t length = 0;
    while (is_letter(name[length]) || is_digit(name[length])) {
        length++;
    }
    p->at += length;
    if (length == 2 && name[0] == 'x' && name[1] >= '0' && name[1] < '0' + MAP_MAX_INPUTS) {
        const int node = add_node(p, MAP_INPUT, NULL, 0);
        if (node != NONE) {
            p->out->nodes[node].input = (uint8_t)(name[1] - '0');
            p->out->inputs |= 1u << (name[1] - '0');
        }
        return node;
    }
    if (is_word(name, length, "pi")) {
        return add_number(p, 3.141592653589793);
    }
    if (is_word(name, length, "inf") || is_word(name, length, "nan")) {
        return add_number(p, name[0] == 'i' ? (double)__builtin_inf() : (double)__builtin_nan(""));
    }
    for (int kind = MAP_WHERE; kind < MAP_N_WRITTEN; kind++) {
        if (is_word(name, length, gki_map_kinds[kind].name)) {
            return parse_call(p, (map_kind)kind, name);
        }
    }
    return fail_at(p, name, "a function, pi, inf, nan or x0 to x4");
}

static int parse_primary(parser *p)
{
    if (is_digit(*p->at) || (*p->at == '.' && is_digit(p->at[1]))) {
        return parse_number(p);
    }
    if (is_letter(*p->at)) {
        return parse_name(p);
    }
    if (*p->at != '(') {
        return fail_at(p, p->at, "a value");
    }
    p->at++;
    const int node = parse_value(p);
    if (node != NONE && *p->at != ')') {
        return fail_at(p, p->at, "an operator or ')'");
    }
    p->at++;
    return node;
}

/* One level down; fails beyond MAP_MAX_DEPTH. */
static bool enter(parser *p)
{
    if (p->depth < MAP_MAX_DEPTH) {
        p->depth++;
        return true;
    }
    gki_text w = gki_text_begin(p->error, MAP_MAX_ERROR);
    gki_text_printf(&w, "column %d: nested more than %d deep", (int)(p->at - p->text) + 1,
                    MAP_MAX_DEPTH);
    return false;
}

static int parse_unary(parser *p)
{
    skip_blanks(p);
    const char sign = *p->at;
    int node;
    if (!enter(p)) {
        return NONE;
    }
    if (sign == '-' || sign == '+' || (sign == '!' && p->at[1] != '=')) {
        p->at++;
        node = parse_unary(p);
        if (node != NONE && sign != '+') {
            node = add_node(p, sign == '-' ? MAP_NEGATE : MAP_NOT, &node, 1);
        }
    } else {
        node = parse_primary(p);
    }
    p->depth--;
    skip_blanks(p);
    return node;
}

/* The two-sided operator that stands here; MAP_N_KINDS if there is none. */
static map_kind operator_at(const char *at)
{
    map_kind found = MAP_N_KINDS;
    for (int kind = MAP_OR; kind <= MAP_DIVIDE; kind++) {
        const char *name = gki_map_kinds[kind].name;
        const size_t length = strlen(name);
        if (strncmp(at, name, length) == 0 &&
            (found == MAP_N_KINDS || length > strlen(gki_map_kinds[found].name))) {
            found = (map_kind)kind;
        }
    }
    return found;
}

static int parse_binary(parser *p, int least)
{
    int left = parse_unary(p);
    while (left != NONE) {
        const map_kind kind = operator_at(p->at);
        if (kind == MAP_N_KINDS || gki_map_kinds[kind].precedence < least) {
            break;
        }
        p->at += strlen(gki_map_kinds[kind].name);
        const int right = parse_binary(p, gki_map_kinds[kind].precedence + 1);
        if (right == NONE) {
            return NONE;
        }
        left = add_node(p, kind, (const int[]){left, right}, 2);
    }
    return left;
}

static int parse_value(parser *p)
{
    if (!enter(p)) {
        return NONE;
    }
    int node = parse_binary(p, 1);
    if (node != NONE && *p->at == '?') {
        p->at++;
        const int yes = parse_value(p);
        if (yes != NONE && *p->at != ':') {
            return fail_at(p, p->at, "an operator or ':'");
        }
        p->at += yes != NONE;
        const int no = yes != NONE ? parse_value(p) : NONE;
        node = no != NONE ? add_node(p, MAP_WHERE, (const int[]){node, yes, no}, 3) : NONE;
    }
    p->depth--;
    return node;
}

bool gki_map_parse(const char *text, map_expression *out, char error[MAP_MAX_ERROR])
{
    parser p = {.text = text, .at = text, .out = out, .error = error};
    out->n_nodes = 0;
    out->inputs = 0;
    error[0] = '\0';
    if (strnlen(text, MAP_MAX_SOURCE + 1) > MAP_MAX_SOURCE) {
        (void)snprintf(error, MAP_MAX_ERROR, "it has more than %d characters", MAP_MAX_SOURCE);
        return false;
    }
    if (parse_value(&p) == NONE) {
        return false;
    }
    if (*p.at != '\0') {
        (void)fail_at(&p, p.at, "an operator or the end");
        return false;
    }
    return true;
}
