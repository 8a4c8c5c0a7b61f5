/* From an expression's nodes to text: for people and keys, and for the compiler. */
#include <float.h>
#include <math.h>
#include <string.h>

#include "base/str.h"
#include "op/map_expression.h"

enum { UNARY = 7, PRIMARY = 8 };

typedef struct writer {
    const map_expression *expression;
    gki_text text;
    bool is_code;
    bool is_double; /* of code */
} writer;

static void put_number(writer *w, double value)
{
    char digits[32];
    if (w->is_code && !w->is_double) {
        value = fabs(value) > (double)FLT_MAX && !isinf(value) ? (double)INFINITY
                                                               : (double)(float)value;
    }
    gki_format_double(digits, sizeof(digits), value);
    if (!w->is_code) {
        gki_text_printf(&w->text, "%s", digits);
    } else if (!isfinite(value)) {
        gki_text_printf(&w->text, "m_%s(x0)", digits);
    } else {
        gki_text_printf(&w->text, "%s%s", digits, w->is_double ? "" : "f");
    }
}

static int precedence_of(const map_node *node)
{
    const int own = gki_map_kinds[node->kind].precedence;
    return node->kind == MAP_WHERE ? 0 : own != 0 ? own : PRIMARY;
}

static void put_node(writer *w, uint32_t index, int least);

static void put_operator(writer *w, const map_node *node)
{
    const map_kind_desc *desc = &gki_map_kinds[node->kind];
    if (node->kind == MAP_WHERE) {
        put_node(w, node->child[0], 1);
        gki_text_printf(&w->text, " ? ");
        put_node(w, node->child[1], 0);
        gki_text_printf(&w->text, " : ");
        put_node(w, node->child[2], 0);
    } else if (desc->arity == 1) {
        gki_text_printf(&w->text, "%s", desc->name);
        put_node(w, node->child[0], UNARY);
    } else {
        put_node(w, node->child[0], desc->precedence);
        gki_text_printf(&w->text, " %s ", desc->name);
        put_node(w, node->child[1], desc->precedence + 1);
    }
}

/* Names of operators in code; functions have their own. */
static const char *code_name(const map_node *node)
{
    static const char *const names[MAP_WHERE] = {
        [MAP_NEGATE] = "neg",   [MAP_NOT] = "not",          [MAP_OR] = "or",
        [MAP_AND] = "and",      [MAP_EQUAL] = "eq",         [MAP_UNEQUAL] = "ne",
        [MAP_LESS] = "lt",      [MAP_LESS_EQUAL] = "le",    [MAP_GREATER] = "gt",
        [MAP_ADD] = "add",      [MAP_GREATER_EQUAL] = "ge", [MAP_SUBTRACT] = "sub",
        [MAP_MULTIPLY] = "mul", [MAP_DIVIDE] = "div",
    };
    const char *name = gki_map_kinds[node->kind].name;
    return node->kind < MAP_WHERE ? names[node->kind] : name;
}

static void put_call(writer *w, const map_node *node)
{
    gki_text_printf(&w->text, w->is_code ? "m_%s(" : "%s(", code_name(node));
    for (int i = 0; i < gki_map_kinds[node->kind].arity; i++) {
        gki_text_printf(&w->text, "%s", i > 0 ? ", " : "");
        put_node(w, node->child[i], 0);
    }
    gki_text_printf(&w->text, ")");
}

/* In parentheses if the node binds less than `least`. */
static void put_node(writer *w, uint32_t index, int least)
{
    const map_node *node = &w->expression->nodes[index];
    const bool parentheses = !w->is_code && precedence_of(node) < least;
    gki_text_printf(&w->text, "%s", parentheses ? "(" : "");
    if (node->kind == MAP_NUMBER) {
        put_number(w, node->value);
    } else if (node->kind == MAP_INPUT) {
        gki_text_printf(&w->text, "x%u", (unsigned)node->input);
    } else if (!w->is_code && precedence_of(node) < PRIMARY) {
        put_operator(w, node);
    } else {
        put_call(w, node);
    }
    gki_text_printf(&w->text, "%s", parentheses ? ")" : "");
}

bool gki_map_canonical(const map_expression *expression, char out[MAP_MAX_TEXT + 1])
{
    /* Full means cut off: the room is one more than a text may have. */
    char text[MAP_MAX_TEXT + 2];
    writer w = {.expression = expression, .text = gki_text_begin(text, sizeof(text))};
    put_node(&w, expression->n_nodes - 1, 0);
    if (w.text.length > MAP_MAX_TEXT) {
        return false;
    }
    memcpy(out, text, w.text.length + 1);
    return true;
}

bool gki_map_code(const map_expression *expression, bool is_double, char *out, size_t size)
{
    writer w = {.expression = expression,
                .text = gki_text_begin(out, size),
                .is_code = true,
                .is_double = is_double};
    put_node(&w, expression->n_nodes - 1, 0);
    return w.text.length + 1 < size;
}
