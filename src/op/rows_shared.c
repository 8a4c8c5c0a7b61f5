/* What the ops on whole rows have in common besides their rules. */
#include "op/rows.h"

#include <string.h>

#include <gk/rows_args.h>

#include "base/numeric.h"

static void add(gk_constants *out, const char *name, gk_constant_kind kind, int64_t value)
{
    if (out->n_items < GK_MAX_CONSTANTS) {
        const gk_constant item = {name, kind, value};
        out->items[out->n_items++] = item;
    }
}

static void append(char *out, size_t size, const char *text)
{
    const size_t length = strlen(out);
    const size_t more = strlen(text);
    if (length + more < size) {
        memcpy(out + length, text, more + 1);
    }
}

void gki_rows_constants(const gk_problem *problem, const char *attribute, gk_constants *out)
{
    const uint8_t *dtype = problem->dtype;
    const bool weight = dtype[ROWS_WEIGHT] != 0;
    const bool bias = dtype[ROWS_BIAS] != 0;
    add(out, "X_TYPE", GK_CONSTANT_TYPE, dtype[ROWS_X]);
    add(out, "OUT_TYPE", GK_CONSTANT_TYPE, dtype[ROWS_OUT]);
    add(out, "WEIGHT_TYPE", GK_CONSTANT_TYPE, dtype[weight ? ROWS_WEIGHT : ROWS_X]);
    add(out, "BIAS_TYPE", GK_CONSTANT_TYPE, dtype[bias ? ROWS_BIAS : ROWS_X]);
    add(out, "X_UNIT", GK_CONSTANT_BOOL, problem->layout[ROWS_X] != GK_LAYOUT_STRIDED);
    add(out, "ONE_AXIS", GK_CONSTANT_BOOL, problem->layout[ROWS_X] == GK_LAYOUT_ROW);
    add(out, "OUT_UNIT", GK_CONSTANT_BOOL, problem->layout[ROWS_OUT] == GK_LAYOUT_ROW);
    add(out, "X_ALIGN", GK_CONSTANT_INT, problem->align[ROWS_X]);
    add(out, "COLS_DIVISOR", GK_CONSTANT_INT,
        (problem->dims[ROWS_COLS] | 16) & -(problem->dims[ROWS_COLS] | 16));
    add(out, "HAS_WEIGHT", GK_CONSTANT_BOOL, weight);
    add(out, "HAS_BIAS", GK_CONSTANT_BOOL, bias);
    /* Strided factors are read one by one, as those of the smallest alignment are. */
    add(out, "WEIGHT_ALIGN", GK_CONSTANT_INT,
        problem->layout[ROWS_WEIGHT] == GK_LAYOUT_ROW ? problem->align[ROWS_WEIGHT] : 1);
    add(out, "BIAS_ALIGN", GK_CONSTANT_INT,
        problem->layout[ROWS_BIAS] == GK_LAYOUT_ROW ? problem->align[ROWS_BIAS] : 1);
    add(out, attribute, GK_CONSTANT_BOOL, problem->attrs[0] != 0);
    append(out->tag, sizeof(out->tag), gk_dtype_name((gk_dtype)dtype[ROWS_X]));
    if (dtype[ROWS_OUT] != dtype[ROWS_X]) {
        append(out->tag, sizeof(out->tag), "_");
        append(out->tag, sizeof(out->tag), gk_dtype_name((gk_dtype)dtype[ROWS_OUT]));
    }
}

int gki_rows_collapse(const gk_tensor *x, const gk_tensor *out, long long *shape,
                      long long *x_stride, long long *out_stride)
{
    int n = 0;
    shape[0] = 1;
    x_stride[0] = out_stride[0] = 0;
    for (int axis = x->rank - 2; axis >= 0; axis--) {
        if (x->shape[axis] == 1) {
            continue;
        }
        if (n > 0 && x->stride[axis] == shape[n - 1] * x_stride[n - 1] &&
            out->stride[axis] == shape[n - 1] * out_stride[n - 1]) {
            shape[n - 1] *= x->shape[axis];
            continue;
        }
        shape[n] = x->shape[axis];
        x_stride[n] = x->stride[axis];
        out_stride[n] = out->stride[axis];
        n++;
    }
    return n > 0 ? n : 1;
}

/* The value of a named param; 0 if the variant has none of that name. */
static int64_t config_value(const gk_variant *variant, const gk_config *config, const char *name)
{
    for (uint32_t i = variant->n_params; i-- > 0;) {
        if (strcmp(variant->params[i].name, name) == 0) {
            return config->values[i];
        }
    }
    return 0;
}

size_t gki_rows_pack(const gk_call *call, const gk_problem *problem, const gk_variant *variant,
                     const gk_config *config, void *workspace, void *zeroed, void *out)
{
    const gk_tensor *x = call->args[ROWS_X];
    const gk_tensor *y = call->args[ROWS_OUT];
    const gk_tensor *weight = call->args[ROWS_WEIGHT];
    const gk_tensor *bias = call->args[ROWS_BIAS];
    gk_rows_args args = {0};
    args.x = x->data;
    args.out = y->data;
    args.rows = problem->dims[ROWS_ROWS];
    args.cols = problem->dims[ROWS_COLS];
    args.x_stride = problem->layout[ROWS_X] != GK_LAYOUT_STRIDED ? 1 : x->stride[x->rank - 1];
    args.out_stride = problem->layout[ROWS_OUT] == GK_LAYOUT_ROW ? 1 : y->stride[y->rank - 1];
    args.n_axes = gki_rows_collapse(x, y, args.shape, args.x_row_stride, args.out_row_stride);
    if (weight != NULL) {
        args.weight = weight->data;
        args.weight_stride = weight->stride[0];
    }
    if (bias != NULL) {
        args.bias = bias->data;
        args.bias_stride = bias->stride[0];
    }
    args.eps = call->attrs[NORM_EPS];
    args.partials = workspace;
    args.counters = zeroed;
    args.held = config_value(variant, config, "HOLD");
    args.turns = config_value(variant, config, "TURNS");
    memcpy(out, &args, sizeof(args));
    return sizeof(args);
}

gki_rows_shape gki_rows_shape_of(const gk_problem *problem, int64_t bytes)
{
    gki_rows_shape s;
    s.size = (int64_t)gk_dtype_size((gk_dtype)problem->dtype[ROWS_X]);
    s.vec = problem->layout[ROWS_X] != GK_LAYOUT_STRIDED && bytes > s.size ? bytes / s.size : 1;
    s.vectors = problem->dims[ROWS_COLS] / s.vec;
    s.vectors = s.vectors > 0 ? s.vectors : 1;
    s.summary = problem->dtype[ROWS_X] == GK_F64 ? 32 : 16;
    return s;
}

/* "bf16", or x:out as in "bf16:f32". */
static gk_status parse_dtypes(const char *where, const char *word, gk_dtype *in, gk_dtype *out)
{
    char first[8] = "";
    const size_t length = word != NULL ? strcspn(word, ":") : 0;
    if (length > 0 && length < sizeof(first)) {
        memcpy(first, word, length);
        *in = gk_dtype_parse(first);
        *out = word[length] == ':' ? gk_dtype_parse(word + length + 1) : *in;
    }
    if (*in == GK_DTYPE_NONE || *out == GK_DTYPE_NONE) {
        return gk_fail(GK_ERR_INVALID, where, "dtype '%s' is unknown", word != NULL ? word : "");
    }
    if (*in == GK_F64 ? *out != GK_F64 : *out == GK_F64 || *out > GK_BF16 || *in > GK_BF16) {
        return gk_fail(GK_ERR_UNSUPPORTED, where, "dtype '%s' is not served", word);
    }
    return GK_OK;
}

gk_status gki_rows_example(const char *where, const gk_case *item, gk_tensor *tensors,
                           gk_call *call)
{
    static const char *const names[] = {"ROWS", "COLS"};
    const char *layout = item->layout != NULL ? item->layout : "nn";
    gk_dtype dtype[2] = {GK_DTYPE_NONE, GK_DTYPE_NONE};
    const gk_status status = parse_dtypes(where, item->dtype, &dtype[0], &dtype[1]);
    if (status != GK_OK) {
        return status;
    }
    if (strlen(layout) != 2 || strspn(layout, "nt") != 2) {
        return gk_fail(GK_ERR_INVALID, where, "layout '%s' is unknown, must be nn, nt, tn or tt",
                       layout);
    }
    for (int i = 0; i < ROWS_N_DIMS; i++) {
        if (item->dims[i] < 0) {
            return gk_fail(GK_ERR_INVALID, where, "%s is %lld, must not be negative", names[i],
                           (long long)item->dims[i]);
        }
    }
    memset(call->args, 0, sizeof(call->args));
    for (int i = ROWS_X; i <= ROWS_OUT; i++) {
        const bool transposed = layout[i] == 't';
        int64_t leading;
        if (item->pad < 0 ||
            __builtin_add_overflow(item->dims[transposed ? 0 : 1], item->pad, &leading)) {
            return gk_fail(GK_ERR_INVALID, where, "pad is %lld, out of range",
                           (long long)item->pad);
        }
        tensors[i] = gk_matrix_strided(NULL, dtype[i], item->dims[0], item->dims[1],
                                       transposed ? 1 : leading, transposed ? leading : 1);
        if (gk_tensor_extent(&tensors[i]) < 0) {
            return gk_fail(GK_ERR_INVALID, where, "%s, %lld x %lld, does not fit in 63 bits",
                           gki_rows_names[i], (long long)item->dims[0], (long long)item->dims[1]);
        }
        call->args[i] = &tensors[i];
    }
    return GK_OK;
}

static void copy_call(const gk_call *call, gk_tensor *tensors, gk_call *out)
{
    *out = *call;
    for (int i = 0; i < ROWS_MAX_ARGS; i++) {
        if (call->args[i] != NULL) {
            tensors[i] = *call->args[i];
            out->args[i] = &tensors[i];
        }
    }
}

/* Rows that max_flops pay for, at least one. */
static int64_t rows_for(const gk_tensor *x, int64_t max_flops)
{
    const int64_t cols = x->shape[x->rank - 1];
    const int64_t rows = max_flops / ROWS_FLOPS / (cols > 0 ? cols : 1);
    return rows > 0 ? rows : 1;
}

/* Fewer rows of the same length: how long they are decides which configurations serve. An axis of
 * more than one element keeps two at least, so that its stride keeps its meaning. */
bool gki_rows_reduce(const gk_call *call, int64_t max_flops, gk_tensor *tensors, gk_call *out)
{
    static const int64_t ENOUGH = ROWS_FLOPS << 18; /* an element takes the host time to check */
    const gk_tensor *x = call->args[ROWS_X];
    const int64_t few = gki_rows_smaller(rows_for(x, max_flops), 3);
    const int64_t enough = rows_for(x, gki_rows_smaller(max_flops, ENOUGH));
    const int64_t limit = enough > few ? enough : few;
    int64_t left = limit;
    int64_t rows = 1;
    copy_call(call, tensors, out);
    for (int axis = x->rank - 2; axis >= 0; axis--) {
        int64_t take = gki_rows_smaller(x->shape[axis], left < 2 ? 2 : left);
        take -= take < x->shape[axis] && take > 8 && take % 2 == 0;
        tensors[ROWS_X].shape[axis] = tensors[ROWS_OUT].shape[axis] = take;
        left /= take > 0 ? take : 1;
        rows *= take;
    }
    for (int i = 0; i < ROWS_MAX_ARGS; i++) {
        if (call->args[i] != NULL) {
            tensors[i].data = NULL;
        }
    }
    return rows <= limit;
}

static void advance(gk_tensor *t, int64_t elements)
{
    if (t->data != NULL) {
        t->data = (unsigned char *)t->data + elements * (int64_t)gk_dtype_size((gk_dtype)t->dtype);
    }
}

/* Where `length` of `size` begins: first, last, then anywhere. */
static int64_t begin(uint32_t index, uint64_t salt, int64_t size, int64_t length)
{
    const int64_t last = size - length;
    if (index < 2) {
        return index == 0 ? 0 : last;
    }
    uint64_t h = (index + salt) * 0x9e3779b97f4a7c15u;
    h ^= h >> 31;
    h *= 0xbf58476d1ce4e5b9u;
    h ^= h >> 29;
    return (int64_t)(h % ((uint64_t)last + 1));
}

/* Whole rows, as many along the innermost axes as are paid for. */
bool gki_rows_part(const gk_call *call, uint32_t index, int64_t max_flops, gk_tensor *tensors,
                   gk_call *out)
{
    enum { PARTS = 8 };
    const gk_tensor *x = call->args[ROWS_X];
    int64_t left = rows_for(x, max_flops);
    bool whole = true;
    if (index >= PARTS || gk_tensor_extent(x) == 0) {
        return false;
    }
    copy_call(call, tensors, out);
    for (int axis = x->rank - 2; axis >= 0; axis--) {
        const int64_t take = gki_rows_smaller(x->shape[axis], left);
        const int64_t first = begin(index, (uint64_t)axis * 1000 + 1, x->shape[axis], take);
        whole = whole && take == x->shape[axis];
        for (int i = ROWS_X; i <= ROWS_OUT; i++) {
            tensors[i].shape[axis] = take;
            advance(&tensors[i], first * tensors[i].stride[axis]);
        }
        left = left / take > 0 ? left / take : 1;
    }
    return index == 0 || !whole;
}

void gki_rows_work(const gk_problem *problem, double *flops, double *bytes)
{
    const double rows = (double)problem->dims[ROWS_ROWS];
    const double cols = (double)problem->dims[ROWS_COLS];
    double size[ROWS_MAX_ARGS];
    for (int i = 0; i < ROWS_MAX_ARGS; i++) {
        size[i] = (double)gk_dtype_size((gk_dtype)problem->dtype[i]);
    }
    *flops = ROWS_FLOPS * rows * cols;
    *bytes = rows * cols * (size[ROWS_X] + size[ROWS_OUT]) +
             cols * (size[ROWS_WEIGHT] + size[ROWS_BIAS]);
}

void gki_rows_load(const gk_tensor *t, int64_t row, double *out)
{
    const int last = t->rank - 1;
    int64_t at = 0;
    for (int axis = last - 1; axis >= 0; axis--) {
        at += row % t->shape[axis] * t->stride[axis];
        row /= t->shape[axis];
    }
    const unsigned char *data = t->data;
    gki_numeric_load((gk_dtype)t->dtype, data + at * (int64_t)gk_dtype_size((gk_dtype)t->dtype),
                     t->stride[last], t->shape[last], out);
}

bool gki_rows_is_lean(const gk_problem *problem, const gki_rows_shape *s)
{
    const bool whole = problem->align[ROWS_X] >= s->vec * s->size &&
                       problem->dims[ROWS_COLS] % s->vec == 0 &&
                       problem->layout[ROWS_OUT] == GK_LAYOUT_ROW;
    const bool plain = !gki_rows_is_norm(problem) ||
                       (problem->attrs[NORM_KIND] == NORM_RMS && problem->dtype[ROWS_BIAS] == 0);
    return whole && plain;
}
