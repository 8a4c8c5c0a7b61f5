/* What the variants of map have in common. */
#include <stdio.h>
#include <string.h>

#include <gk/map_args.h>

#include "base/hash.h"
#include "op/map.h"
#include "op/model.h"

enum { LIGHT_NODES = 16 };

static void add(gk_constants *out, const char *name, gk_constant_kind kind, int64_t value)
{
    if (out->n_items < GK_MAX_CONSTANTS) {
        const gk_constant item = {name, kind, value};
        out->items[out->n_items++] = item;
    }
}

/* Along one axis the problem has the alignment of what follows the head. */
int64_t gki_map_align(const gk_problem *problem, int arg, bool has_head)
{
    const bool behind_head = problem->dims[MAP_M] == 1 && problem->layout[MAP_OUT] == GK_LAYOUT_ROW;
    const int64_t size = (int64_t)gk_dtype_size((gk_dtype)problem->dtype[arg]);
    return size == 0 ? 1 : behind_head && !has_head ? size : problem->align[arg];
}

bool gki_map_read(const gk_problem *problem, map_expression *out)
{
    char error[MAP_MAX_ERROR];
    if (!gki_map_parse(problem->text, out, error)) {
        return false;
    }
    if (gk_dtype_size((gk_dtype)problem->dtype[MAP_OUT]) <= 2 && !gki_map_is_double(problem)) {
        gki_map_shorten(out);
    }
    return true;
}

/* Whether a thread needs few registers beside its vectors. */
static bool is_light(const map_expression *expression)
{
    for (uint32_t i = 0; i < expression->n_nodes; i++) {
        const uint8_t kind = expression->nodes[i].kind;
        const bool is_exact = kind < MAP_N_WRITTEN && gki_map_kinds[kind].ulps > 0;
        if (is_exact || kind == MAP_DIVIDE || kind == MAP_SQRT) {
            return false;
        }
    }
    return expression->n_nodes <= LIGHT_NODES;
}

void gki_map_constants(const gk_problem *problem, bool has_head, gk_constants *out)
{
    static const char *const types[] = {"X0_TYPE", "X1_TYPE", "X2_TYPE", "X3_TYPE", "X4_TYPE"};
    static const char *const has[] = {"HAS_X0", "HAS_X1", "HAS_X2", "HAS_X3", "HAS_X4"};
    static const char *const layouts[] = {"X0_LAYOUT", "X1_LAYOUT", "X2_LAYOUT", "X3_LAYOUT",
                                          "X4_LAYOUT"};
    static const char *const aligns[] = {"X0_ALIGN", "X1_ALIGN", "X2_ALIGN", "X3_ALIGN",
                                         "X4_ALIGN"};
    const bool is_double = gki_map_is_double(problem);
    const uint8_t out_type = problem->dtype[MAP_OUT];
    map_expression expression;
    for (int i = 0; i < MAP_MAX_INPUTS; i++) {
        const bool present = problem->dtype[i] != 0;
        add(out, has[i], GK_CONSTANT_BOOL, present);
        add(out, types[i], GK_CONSTANT_TYPE, present ? problem->dtype[i] : out_type);
        add(out, layouts[i], GK_CONSTANT_INT, problem->layout[i]);
        add(out, aligns[i], GK_CONSTANT_INT, gki_map_align(problem, i, has_head));
    }
    add(out, "OUT_TYPE", GK_CONSTANT_TYPE, out_type);
    add(out, "OUT_LAYOUT", GK_CONSTANT_INT, problem->layout[MAP_OUT]);
    add(out, "OUT_ALIGN", GK_CONSTANT_INT, gki_map_align(problem, MAP_OUT, has_head));
    add(out, "ACC_TYPE", GK_CONSTANT_TYPE, is_double ? GK_F64 : GK_F32);
    add(out, "WIDEST", GK_CONSTANT_INT, gki_map_sizes(problem).widest);
    out->code[0] = '\0'; /* which the renderer refuses */
    const bool readable = gki_map_read(problem, &expression);
    if (readable && !gki_map_code(&expression, is_double, out->code, sizeof(out->code))) {
        out->code[0] = '\0';
    }
    add(out, "LIGHT", GK_CONSTANT_BOOL, readable && !is_double && is_light(&expression));
    add(out, "EXPRESSION", GK_CONSTANT_CODE, 0);
    (void)snprintf(out->tag, sizeof(out->tag), "%s_%08x", gk_dtype_name((gk_dtype)out_type),
                   (unsigned)(gki_hash64(problem->text, strlen(problem->text)) & 0xffffffffu));
}

static size_t pack_vector(const gk_call *call, const map_axes *axes, void *out)
{
    gk_map_args args = {0};
    args.out = call->args[MAP_OUT]->data;
    args.n = axes->shape[0];
    args.head = gki_map_head(call, axes);
    args.head = args.head < args.n ? args.head : args.n;
    for (int i = 0; i < MAP_MAX_INPUTS; i++) {
        args.x[i] = call->args[i] != NULL ? call->args[i]->data : NULL;
    }
    memcpy(out, &args, sizeof(args));
    return sizeof(args);
}

size_t gki_map_pack(const gk_call *call, const gk_problem *problem, const gk_variant *variant,
                    const gk_config *config, void *workspace, void *zeroed, void *out)
{
    map_axes axes;
    gk_map_strided_args args = {0};
    (void)config;
    (void)workspace;
    (void)zeroed;
    gki_map_axes(call, &axes);
    if (variant == &gki_map_vector) {
        return pack_vector(call, &axes, out);
    }
    args.out = call->args[MAP_OUT]->data;
    args.n = problem->dims[MAP_N];
    args.rows = problem->dims[MAP_M];
    args.outer = axes.rank - 1;
    for (int32_t axis = 0; axis < axes.rank - 1; axis++) {
        args.shape[axis] = axes.shape[axis];
    }
    for (int i = 0; i < MAP_N_ARGS; i++) {
        if (call->args[i] == NULL) {
            continue;
        }
        if (i < MAP_MAX_INPUTS) {
            args.x[i] = call->args[i]->data;
        }
        args.inner_stride[i] = axes.stride[i][axes.rank - 1];
        for (int32_t axis = 0; axis < axes.rank - 1; axis++) {
            args.stride[i][axis] = axes.stride[i][axis];
        }
    }
    memcpy(out, &args, sizeof(args));
    return sizeof(args);
}

map_sizes gki_map_sizes(const gk_problem *problem)
{
    map_sizes s = {0, 0, (int64_t)gk_dtype_size((gk_dtype)problem->dtype[MAP_OUT])};
    s.widest = s.out;
    for (int i = 0; i < MAP_MAX_INPUTS; i++) {
        const int64_t size = (int64_t)gk_dtype_size((gk_dtype)problem->dtype[i]);
        s.widest = size > s.widest ? size : s.widest;
        s.inputs += problem->layout[i] != GK_LAYOUT_REPEAT ? size : 0;
    }
    return s;
}

double gki_map_seconds(const gk_problem *problem, const gk_device_info *device)
{
    double flops = 0;
    double bytes = 0;
    gki_map_work(problem, &flops, &bytes);
    return bytes / (0.92 * gki_model_pins(device));
}

/* An input that repeats one element along N is read once a repetition of that axis. */
void gki_map_work(const gk_problem *problem, double *flops, double *bytes)
{
    const double m = (double)problem->dims[MAP_M];
    const double n = (double)problem->dims[MAP_N];
    map_expression expression;
    uint32_t operations = 1;
    if (gki_map_read(problem, &expression)) {
        for (uint32_t i = 0; i < expression.n_nodes; i++) {
            operations += expression.nodes[i].kind > MAP_INPUT;
        }
    }
    *flops = m * n * operations;
    *bytes = 0;
    for (int i = 0; i < MAP_N_ARGS; i++) {
        const double size = (double)gk_dtype_size((gk_dtype)problem->dtype[i]);
        *bytes += m * (problem->layout[i] == GK_LAYOUT_REPEAT ? 1 : n) * size;
    }
}
