/* From an item's words to tensors and attributes. */
#include "op_harness.h"

#include <string.h>

#include "op_values.h"

const char *const op_places[] = {"wide", "odd", "tight", NULL};
const char *const op_layouts[] = {"nn", "nt", "tn", "tt", "ss", "ntt", NULL};
const char *const op_dtypes[] = {"f32",     "f16",       "bf16",     "tf32", "f64",      "e4m3",
                                 "e5m2",    "i8",        "u8",       "i32",  "bf16:f32", "f16:bf16",
                                 "f32:f16", "e4m3:e4m3", "e4m3+f32", NULL};
const char *const op_epilogues[] = {"none",
                                    "relu",
                                    "relu,bias",
                                    "gelu_tanh,bias32",
                                    "gelu_erf,residual",
                                    "silu,bias,residual,beta",
                                    "relu,bias,inplace",
                                    "none,alpha,beta",
                                    "relu,bias32,inplace,beta",
                                    NULL};

static bool has_word(const char *words, const char *word)
{
    const size_t length = strlen(word);
    for (const char *p = words; p != NULL; p = strchr(p, ',')) {
        p += *p == ',';
        if (strncmp(p, word, length) == 0 && (p[length] == ',' || p[length] == '\0')) {
            return true;
        }
    }
    return false;
}

static int find(const char *const *names, uint32_t count, const char *words)
{
    for (uint32_t i = 0; i < count; i++) {
        if (has_word(words, names[i])) {
            return (int)i;
        }
    }
    return -1;
}

static double *attribute(const gk_op_desc *op, gk_call *call, const char *name)
{
    for (uint32_t i = 0; i < op->n_attrs; i++) {
        if (strcmp(op->attrs[i].name, name) == 0) {
            return &call->attrs[i];
        }
    }
    return NULL;
}

static int argument(const gk_op_desc *op, const char *name)
{
    for (uint32_t i = 0; i < op->n_args; i++) {
        if (strcmp(op->args[i].name, name) == 0) {
            return (int)i;
        }
    }
    return -1;
}

static int output_of(const gk_op_desc *op)
{
    int output = 0;
    while (!op->args[output].is_output) {
        output++;
    }
    return output;
}

static int64_t lengthened(int64_t stride, const char *where)
{
    return strcmp(where, "wide") == 0  ? (stride + 15) / 16 * 16 + 16
           : strcmp(where, "odd") == 0 ? (stride | 1) + 2
                                       : stride;
}

/* The axis with the smallest stride of those that are not taken. */
static int innermost(const gk_tensor *t, uint32_t taken)
{
    int found = -1;
    for (int axis = 0; axis < t->rank; axis++) {
        if ((taken >> axis & 1) == 0 && (found < 0 || t->stride[axis] <= t->stride[found])) {
            found = axis;
        }
    }
    return found;
}

/* Lengthens all strides but the innermost, or doubles all. */
static void place(gk_tensor *t, const char *where, bool strided)
{
    if (t->rank == 2) {
        const int outer = t->stride[1] == 1 ? 0 : 1;
        t->stride[outer] = lengthened(t->stride[outer], where);
    } else if (t->rank > 2 && strcmp(where, "tight") != 0) {
        uint32_t taken = 0;
        int64_t reach = 0;
        for (int i = 0; i < t->rank; i++) {
            const int axis = innermost(t, taken);
            taken |= 1u << axis;
            t->stride[axis] = i == 0 ? t->stride[axis] : lengthened(reach, where);
            reach = t->stride[axis] * (t->shape[axis] > 0 ? t->shape[axis] : 1);
        }
    }
    for (int axis = 0; axis < t->rank && strided; axis++) {
        t->stride[axis] *= 2;
    }
}

/* Ops that have no such attribute do without. */
static void set_attribute(const gk_op_desc *op, gk_call *call, const char *name, double value)
{
    double *place = attribute(op, call, name);
    if (place != NULL) {
        *place = value;
    }
}

/* An op that knows no epilogue runs as one of its presets or, if its calls have no text, as itself:
 * another one for each epilogue. */
static void apply_preset(const gk_op_desc *op, const char *words, gk_call *call)
{
    const uint32_t choices = op->n_presets + (op->text_name == NULL ? 1 : 0);
    uint32_t index = 0;
    while (op_epilogues[index] != NULL && strcmp(op_epilogues[index], words) != 0) {
        index++;
    }
    if (choices > 0 && index % choices < op->n_presets &&
        attribute(op, call, "activation") == NULL) {
        gk_preset_apply(&op->presets[index % choices], call);
    }
}

static bool apply_epilogue(const gk_op_desc *op, const char *words, gk_tensor *tensors,
                           gk_call *call)
{
    const int output = output_of(op);
    const gk_tensor *c = &tensors[output];
    const gk_dtype dtype = (gk_dtype)c->dtype;
    const bool integers = op_value_is_integer(dtype);
    double *activation = attribute(op, call, "activation");
    const int bias = argument(op, "bias");
    const int residual = argument(op, "residual");
    const int x = argument(op, "x");
    const gk_dtype own = x >= 0 ? (gk_dtype)tensors[x].dtype : dtype;
    if (activation != NULL) {
        const gk_attr_desc *desc = &op->attrs[activation - call->attrs];
        const int found = find(desc->names, desc->n_names, words);
        *activation = found < 0 ? 0 : found;
    }
    if (integers && (find((const char *const[]){"alpha", "bias32", "silu", "gelu_tanh", "gelu_erf"},
                          5, words) >= 0)) {
        return false;
    }
    if (bias >= 0 && x >= 0 && own == GK_F64 && has_word(words, "bias32")) {
        return false; /* rows in double precision have nothing in f32 */
    }
    if (bias >= 0 && (has_word(words, "bias") || has_word(words, "bias32"))) {
        tensors[bias] =
            gk_vector(NULL, has_word(words, "bias32") ? GK_F32 : own, c->shape[c->rank - 1]);
        call->args[bias] = &tensors[bias];
    }
    if (residual >= 0 && (has_word(words, "residual") || has_word(words, "inplace"))) {
        tensors[residual] = *c;
        call->args[residual] = &tensors[residual];
    }
    if (has_word(words, "alpha")) {
        set_attribute(op, call, "alpha", 1.5);
    }
    if (has_word(words, "beta")) {
        set_attribute(op, call, "beta", integers ? 1 : 0.5);
    }
    return true;
}

bool op_harness_call(const op_harness *h, const op_item *item, const int64_t *dims,
                     gk_tensor *tensors, gk_call *call)
{
    const gk_op_desc *op = h->op;
    const bool strided = strcmp(item->layout, "ss") == 0;
    char layout[3] = "nn";
    if (!strided) {
        strncpy(layout, item->layout, 2);
    }
    gk_case given = {{0}, 0, item->dtype, layout, 0, 0};
    memcpy(given.dims, dims, sizeof(given.dims));
    memset(tensors, 0, GK_MAX_ARGS * sizeof(*tensors));
    memset(call, 0, sizeof(*call));
    for (uint32_t i = 0; i < op->n_attrs; i++) {
        call->attrs[i] = op->attrs[i].default_value;
    }
    apply_preset(op, item->epilogue, call);
    if (op->example(&given, tensors, call) != GK_OK) {
        return false;
    }
    if (!strided && item->layout[2] == 't') {
        gk_tensor *c = &tensors[output_of(op)];
        const int last = c->rank > 1 ? c->rank - 1 : 1;
        c->stride[last - 1] = 1;
        c->stride[last] = c->shape[last - 1];
    }
    for (uint32_t i = 0; i < op->n_args; i++) {
        if (call->args[i] != NULL) {
            place(&tensors[i], item->place, strided);
        }
    }
    if (!apply_epilogue(op, item->epilogue, tensors, call)) {
        return false;
    }
    const uintptr_t offset = strcmp(item->place, "odd") == 0 ? 1 : 0;
    for (uint32_t i = 0; i < op->n_args; i++) {
        const uintptr_t address =
            ((uintptr_t)(i + 1) << 44) + offset * gk_dtype_size((gk_dtype)tensors[i].dtype);
        tensors[i].data = (void *)address;
    }
    const int residual = argument(op, "residual");
    if (residual >= 0 && has_word(item->epilogue, "inplace")) {
        tensors[residual].data = tensors[output_of(op)].data;
    }
    return true;
}
