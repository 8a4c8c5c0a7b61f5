/* Every rule of map's validation, the problem that comes of a call, and what its text is part of.
 */
#include "gk_test.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include <gk/extend.h>
#include <gk/gk.h>

#include "base/intern.h"
#include "jit/jit.h"
#include "op/map.h"

/* out = x0 + x1 + x2 on 4x6 in f32. */
typedef struct fixture {
    _Alignas(64) float data[4][128];
    gk_tensor x[5];
    gk_tensor out;
    gk_call call;
} fixture;

static fixture f;

static int fresh(void **state)
{
    (void)state;
    memset(&f, 0, sizeof(f));
    for (int i = 0; i < 3; i++) {
        f.x[i] = gk_matrix(f.data[i], GK_F32, 4, 6);
        f.call.args[i] = &f.x[i];
    }
    f.out = gk_matrix(f.data[3], GK_F32, 4, 6);
    f.call.args[MAP_OUT] = &f.out;
    f.call.text = "x0 + x1 + x2";
    return 0;
}

static gk_status infer(gk_problem *out)
{
    memset(out, 0, sizeof(*out));
    return gk_op_find("map", NULL)->infer(&f.call, out);
}

#define accepts(problem) assert_gk_ok(infer(problem))
#define refuses(code, text)                                                                        \
    do {                                                                                           \
        gk_problem ignored;                                                                        \
        assert_gk_err(infer(&ignored), (code), (text));                                            \
        assert_string_equal(gk_error_last()->where, "map");                                        \
    } while (0)

static void plain_call(void **state)
{
    (void)state;
    gk_problem p;
    accepts(&p);
    assert_int_equal(p.dims[MAP_M], 1);
    assert_int_equal(p.dims[MAP_N], 24);
    assert_int_equal(p.dtype[MAP_OUT], GK_F32);
    assert_int_equal(p.dtype[3], GK_DTYPE_NONE);
    assert_int_equal(p.layout[MAP_OUT], GK_LAYOUT_ROW);
    assert_int_equal(p.align[0], 16);
    assert_string_equal(p.text, "x0 + x1 + x2");
}

static void expressions(void **state)
{
    (void)state;
    gk_problem p, q;
    f.call.text = NULL;
    refuses(GK_ERR_INVALID, "expression is NULL");
    f.call.text = "x0 + )";
    refuses(GK_ERR_INVALID, "expression: column 6: expected a value, found ')'");
    f.call.text = "x0 + x1";
    refuses(GK_ERR_INVALID, "the expression uses 2 inputs but 3 are given: x2 is unused");
    f.call.text = "x0 + x1 + x2 * x3";
    refuses(GK_ERR_INVALID, "the expression uses 4 inputs but 3 are given: x3 is NULL");
    f.call.text = "x0 + x2";
    refuses(GK_ERR_INVALID, "the expression uses 2 inputs but 3 are given: x1 is unused");
    for (int i = 0; i < 5; i++) {
        f.call.args[i] = NULL;
    }
    f.call.text = "1 + 1";
    refuses(GK_ERR_INVALID, "the expression uses 0 inputs, must use 1 to 5");
    fresh(NULL);
    accepts(&p);
    f.call.text = "(x0+x1)+x2";
    accepts(&q);
    assert_memory_equal(&p, &q, sizeof(p));
    f.call.text = "x0 + (x1 + x2)"; /* rounds otherwise */
    accepts(&q);
    assert_true(p.text != q.text);
}

/* The same memory with other contents is another text. */
static void texts_count_by_contents(void **state)
{
    (void)state;
    gk_problem p, q;
    char text[32];
    f.call.text = text;
    for (int round = 0; round < 3; round++) {
        strcpy(text, "x0 + x1 + x2");
        accepts(&p);
        strcpy(text, "x0 + x1 * x2");
        accepts(&q);
        assert_string_equal(p.text, "x0 + x1 + x2");
        assert_string_equal(q.text, "x0 + x1 * x2");
    }
}

static void forms(void **state)
{
    (void)state;
    f.x[1].dtype = 77;
    refuses(GK_ERR_INVALID, "x1.dtype is 77, which is no gk_dtype");
    f.x[1].dtype = GK_I32;
    refuses(GK_ERR_UNSUPPORTED, "x1.dtype is i32, must be a floating type");
    fresh(NULL);
    f.out.rank = 9;
    refuses(GK_ERR_INVALID, "out.rank is 9, must be 1 to 8");
    f.out.rank = 0;
    refuses(GK_ERR_INVALID, "out.rank is 0, must be 1 to 8");
    fresh(NULL);
    f.x[0].reserved[2] = 5;
    refuses(GK_ERR_INVALID, "x0.reserved[2] is 5, must be 0");
    fresh(NULL);
    f.x[2].shape[1] = -6;
    refuses(GK_ERR_INVALID, "x2.shape[1] is -6, must not be negative");
    fresh(NULL);
    f.x[2].stride[0] = -6;
    refuses(GK_ERR_INVALID, "x2.stride[0] is -6, must not be negative");
    fresh(NULL);
    f.x[1].rank = 1;
    refuses(GK_ERR_INVALID, "x1.rank is 1 but out.rank is 2");
    fresh(NULL);
    f.x[1].shape[0] = 1;
    refuses(GK_ERR_INVALID, "x1.shape[0] is 1 but out.shape[0] is 4");
    fresh(NULL);
    f.call.args[MAP_OUT] = NULL;
    refuses(GK_ERR_INVALID, "out is NULL");
}

static void memory(void **state)
{
    (void)state;
    f.x[1].data = NULL;
    refuses(GK_ERR_INVALID, "x1.data is NULL but x1 has elements");
    f.x[1].data = (char *)f.data[1] + 2;
    refuses(GK_ERR_INVALID, "not a multiple of 4, the size of f32");
    fresh(NULL);
    f.x[0].stride[0] = INT64_MAX / 2;
    refuses(GK_ERR_INVALID, "x0 does not fit in 63 bits");
    fresh(NULL);
    f.x[0].data = (void *)(UINTPTR_MAX - 31);
    refuses(GK_ERR_INVALID, "x0's 96 bytes from 0xffffffffffffffe0 on exceed");
    fresh(NULL);
    for (int i = 0; i < 3; i++) {
        f.x[i].stride[0] = f.x[i].stride[1] = 0;
        f.x[i].shape[0] = f.x[i].shape[1] = INT64_C(1) << 33;
    }
    f.out.shape[0] = f.out.shape[1] = INT64_C(1) << 33;
    f.out.stride[0] = 1;
    refuses(GK_ERR_INVALID, "out has more than 2^63 elements");
}

static void overlap(void **state)
{
    (void)state;
    gk_problem p;
    f.out.stride[0] = 0;
    refuses(GK_ERR_INVALID, "out overlaps itself");
    f.out.stride[0] = 5;
    refuses(GK_ERR_INVALID, "out overlaps itself");
    fresh(NULL);
    f.x[1].data = f.out.data; /* in place */
    accepts(&p);
    f.x[1].stride[0] = 7;
    refuses(GK_ERR_INVALID, "out overlaps x1 but is not x1 itself");
    f.x[1].stride[0] = 6;
    f.x[1].data = (float *)f.out.data + 1;
    refuses(GK_ERR_INVALID, "out overlaps x1");
    f.x[1].data = (float *)f.out.data + 24;
    accepts(&p);
    f.x[1].data = f.out.data;
    f.x[1].dtype = GK_F16;
    refuses(GK_ERR_INVALID, "dtype and strides must be the same");
    /* Columns of one parent interleave without meeting. */
    fresh(NULL);
    for (int i = 0; i < 3; i++) {
        f.x[i] = gk_matrix_strided(f.data[0] + 2 * i, GK_F32, 4, 2, 8, 1);
    }
    f.out = gk_matrix_strided(f.data[0] + 6, GK_F32, 4, 2, 8, 1);
    accepts(&p);
    f.out.data = f.data[0] + 5;
    refuses(GK_ERR_INVALID, "out overlaps x2");
    fresh(NULL);
    f.x[0].stride[0] = 0; /* one row for all */
    accepts(&p);
    f.x[0].data = (float *)f.out.data + 6;
    refuses(GK_ERR_INVALID, "out overlaps x0");
}

static void axes_that_go_on(void **state)
{
    (void)state;
    gk_problem p;
    for (int i = 0; i < 4; i++) { /* column-major everywhere */
        gk_tensor *t = i < 3 ? &f.x[i] : &f.out;
        t->stride[0] = 1;
        t->stride[1] = 4;
    }
    accepts(&p);
    assert_int_equal(p.dims[MAP_M], 1);
    assert_int_equal(p.dims[MAP_N], 24);
    assert_int_equal(p.layout[0], GK_LAYOUT_ROW);
    f.x[0].stride[0] = 6;
    f.x[0].stride[1] = 1;
    accepts(&p);
    assert_int_equal(p.dims[MAP_M], 6);
    assert_int_equal(p.dims[MAP_N], 4);
    assert_int_equal(p.layout[0], GK_LAYOUT_STRIDED);
    assert_int_equal(p.layout[1], GK_LAYOUT_ROW);
    /* A repeated row keeps its axis, one repeated element does not. */
    fresh(NULL);
    f.x[0].stride[0] = 0;
    accepts(&p);
    assert_int_equal(p.dims[MAP_M], 4);
    assert_int_equal(p.layout[0], GK_LAYOUT_ROW);
    f.x[0].stride[1] = 0;
    accepts(&p);
    assert_int_equal(p.dims[MAP_M], 1);
    assert_int_equal(p.layout[0], GK_LAYOUT_REPEAT);
    /* Rank 8 with axes of one element of absurd strides. */
    fresh(NULL);
    for (int i = 0; i < 4; i++) {
        gk_tensor *t = i < 3 ? &f.x[i] : &f.out;
        t->rank = 8;
        for (int axis = 0; axis < 8; axis++) {
            t->shape[axis] = axis == 3 ? 4 : axis == 6 ? 6 : 1;
            t->stride[axis] = axis == 3 ? 6 : axis == 6 ? 1 : 1000 + 7 * i;
        }
    }
    accepts(&p);
    assert_int_equal(p.dims[MAP_M], 1);
    assert_int_equal(p.dims[MAP_N], 24);
}

static void alignments(void **state)
{
    (void)state;
    gk_problem p;
    for (int i = 0; i < 3; i++) { /* all the same phase: aligned behind a head */
        f.x[i].data = f.data[i] + 1;
    }
    f.out.data = f.data[3] + 5;
    accepts(&p);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(p.align[i], 16);
    }
    assert_int_equal(p.align[MAP_OUT], 16);
    map_axes axes;
    gki_map_axes(&f.call, &axes);
    assert_int_equal(gki_map_head(&f.call, &axes), 3);
    f.x[1].data = f.data[1]; /* one of four out of phase */
    accepts(&p);
    assert_int_equal(p.align[0], 16);
    assert_int_equal(p.align[1], 4);
    f.x[1].data = f.data[1] + 3;
    accepts(&p);
    assert_int_equal(p.align[1], 8);
    /* Rows apart: the row stride counts. */
    fresh(NULL);
    f.x[0].stride[0] = 10;
    accepts(&p);
    assert_int_equal(p.align[0], 8);
    assert_int_equal(p.align[1], 8);
    f.x[0].stride[0] = 16;
    f.x[1].stride[0] = f.x[2].stride[0] = f.out.stride[0] = 8;
    accepts(&p);
    assert_int_equal(p.align[0], 16);
    assert_int_equal(p.align[MAP_OUT], 16);
}

static void nothing_to_do(void **state)
{
    (void)state;
    const gk_op_desc *op = gk_op_find("map", NULL);
    gk_problem p;
    for (int i = 0; i < 4; i++) {
        gk_tensor *t = i < 3 ? &f.x[i] : &f.out;
        *t = gk_vector(NULL, GK_F32, 0);
    }
    accepts(&p);
    assert_true(op->is_empty(&p));
    fresh(NULL);
    accepts(&p);
    assert_false(op->is_empty(&p));
}

static void identity(void **state)
{
    (void)state;
    gk_problem p;
    char text[GKI_PROBLEM_TEXT];
    f.call.text = "x0+x1+2*x2";
    accepts(&p);
    gki_problem_text(gk_op_find("map", NULL), &p, text, sizeof(text));
    assert_string_equal(text, "r1 M=1 N=24 x0=f32.row.16 x1=f32.row.16 x2=f32.row.16 x3=- x4=- "
                              "out=f32.row.16 expression=\"x0 + x1 + 2.0 * x2\"");
}

static void presets(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        const char *text;
    } names[] = {{"add", "x0 + x1"},   {"fma", "fma(x0, x1, x2)"}, {"relu", "relu(x0)"},
                 {"silu", "silu(x0)"}, {"gelu", "gelu(x0)"},       {"gelu_tanh", "gelu_tanh(x0)"}};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        const gk_preset *preset;
        gk_call call = {.text = "x0"};
        assert_ptr_equal(gk_op_find(names[i].name, &preset), gk_op_find("map", NULL));
        gk_preset_apply(preset, &call);
        assert_string_equal(call.text, names[i].text);
        map_expression expression;
        char error[MAP_MAX_ERROR], written[MAP_MAX_TEXT + 1];
        assert_true(gki_map_parse(call.text, &expression, error));
        assert_true(gki_map_canonical(&expression, written));
        assert_string_equal(written, call.text);
    }
}

static void call_of_the_public_function(void **state)
{
    (void)state;
    gk_call call;
    assert_gk_err(gk_map_call(NULL, "x0", f.x, 1, &f.out), GK_ERR_INVALID, "call is NULL");
    assert_gk_err(gk_map_call(&call, NULL, f.x, 1, &f.out), GK_ERR_INVALID, "expression is NULL");
    assert_gk_err(gk_map_call(&call, "x0", f.x, 0, &f.out), GK_ERR_INVALID,
                  "n_inputs is 0, must be 1 to 5");
    assert_gk_err(gk_map_call(&call, "x0", f.x, 6, &f.out), GK_ERR_INVALID,
                  "n_inputs is 6, must be 1 to 5");
    assert_gk_err(gk_map_call(&call, "x0", NULL, 2, &f.out), GK_ERR_INVALID,
                  "inputs is NULL but n_inputs is 2");
    assert_gk_ok(gk_map_call(&call, "x0 + x1", f.x, 2, &f.out));
    assert_ptr_equal(call.args[1], &f.x[1]);
    assert_null(call.args[2]);
    assert_ptr_equal(call.args[MAP_OUT], &f.out);
}

/* Smaller calls are of the same class, parts are views. */
static void smaller_calls(void **state)
{
    (void)state;
    const gk_op_desc *op = gk_op_find("map", NULL);
    for (int layout = 0; layout < 3; layout++) {
        fresh(NULL);
        for (int i = 0; i < 4; i++) {
            gk_tensor *t = i < 3 ? &f.x[i] : &f.out;
            *t = gk_matrix(t->data, GK_F32, 5000, 3000);
            t->data = (void *)(((uintptr_t)(i + 1) << 40) + 4 * (uintptr_t)layout);
            if (layout == 2 && i == 0) {
                t->stride[0] = 0;
            } else if (layout == 1 && i == 1) {
                *t = gk_transposed(t);
                t->shape[0] = 5000;
                t->shape[1] = 3000;
                t->stride[1] = 5000;
            }
        }
        gk_problem p, q;
        gk_tensor tensors[GK_MAX_ARGS];
        gk_call small;
        accepts(&p);
        assert_true(op->reduce(&f.call, 2000000, tensors, &small));
        for (int i = 0; i < MAP_N_ARGS; i++) {
            if (small.args[i] != NULL) {
                tensors[i].data = f.call.args[i]->data;
            }
        }
        memset(&q, 0, sizeof(q));
        assert_gk_ok(op->infer(&small, &q));
        double flops, bytes;
        op->work(&q, &flops, &bytes);
        assert_true(flops <= 2000000 && flops > 50000);
        assert_true((q.dims[MAP_M] == 1) == (p.dims[MAP_M] == 1));
        memcpy(q.dims, p.dims, sizeof(q.dims));
        assert_memory_equal(&p, &q, sizeof(p));
        for (uint32_t index = 0; op->part(&f.call, index, 2000000, tensors, &small); index++) {
            memset(&q, 0, sizeof(q));
            assert_gk_ok(op->infer(&small, &q));
            const int64_t at = ((float *)tensors[MAP_OUT].data - (float *)f.out.data);
            assert_true(at >= 0 && at + gk_tensor_extent(&tensors[MAP_OUT]) / 4 <= 15000000);
            assert_true(index > 0 || at == 0);
            assert_true(index != 1 || at + gk_tensor_extent(&tensors[MAP_OUT]) / 4 == 15000000);
        }
    }
}

static void *intern_many(void *user)
{
    const char **found = user;
    for (int i = 0; i < 1000; i++) {
        char text[32];
        const int length = snprintf(text, sizeof(text), "text %d", i);
        found[i] = gki_intern(text, (size_t)length);
    }
    return NULL;
}

static void equal_texts_are_one(void **state)
{
    (void)state;
    static const char *found[4][1000];
    pthread_t threads[4];
    for (int t = 0; t < 4; t++) {
        assert_int_equal(pthread_create(&threads[t], NULL, intern_many, found[t]), 0);
    }
    for (int t = 0; t < 4; t++) {
        pthread_join(threads[t], NULL);
    }
    for (int i = 0; i < 1000; i++) {
        char text[32];
        (void)snprintf(text, sizeof(text), "text %d", i);
        assert_string_equal(found[0][i], text);
        for (int t = 1; t < 4; t++) {
            assert_ptr_equal(found[t][i], found[0][i]);
        }
    }
}

/* The value of a constant that the template gets, -1 if it gets none of that name. */
static int64_t constant(const gk_problem *problem, const char *name)
{
    gk_constants constants;
    memset(&constants, 0, sizeof(constants));
    gki_map_constants(problem, true, &constants);
    for (uint32_t i = 0; i < constants.n_items; i++) {
        if (strcmp(constants.items[i].name, name) == 0) {
            return constants.items[i].value;
        }
    }
    return -1;
}

/* Kernels of light expressions are given few registers. */
static void light_expressions(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        gk_dtype dtype;
        bool is_light;
    } facts[] = {
        {"fma(x0, x1, x2)", GK_F32, true},
        {"x0 < x1 ? max(x0, 1) : -x2", GK_BF16, true},
        {"silu(x0) * x1 * x2", GK_BF16, true},
        {"silu(x0) * x1 * x2", GK_F32, false}, /* all of exp's bits */
        {"silu(x0) + x1 * x2", GK_BF16, false},
        {"x0 / x1 * x2", GK_F16, false},
        {"sqrt(x0) + x1 + x2", GK_F32, false},
        {"x0 * x1 + x2", GK_F64, false},
        {"x0 + x1 + x2 + x0 + x1 + x2 + x0 + x1 + x2", GK_F32, false}, /* 17 nodes */
    };
    for (size_t i = 0; i < sizeof(facts) / sizeof(facts[0]); i++) {
        gk_problem p;
        f.call.text = facts[i].text;
        for (int arg = 0; arg < 3; arg++) {
            f.x[arg].dtype = facts[i].dtype;
        }
        f.out.dtype = facts[i].dtype;
        accepts(&p);
        if (constant(&p, "LIGHT") != facts[i].is_light) {
            fail_msg("%s in %s", facts[i].text, gk_dtype_name(facts[i].dtype));
        }
    }
}

int main(void)
{
#define rule(name) cmocka_unit_test_setup(name, fresh)
    const struct CMUnitTest tests[] = {
        rule(plain_call),
        rule(light_expressions),
        rule(expressions),
        rule(texts_count_by_contents),
        rule(forms),
        rule(memory),
        rule(overlap),
        rule(axes_that_go_on),
        rule(alignments),
        rule(nothing_to_do),
        rule(identity),
        rule(presets),
        rule(call_of_the_public_function),
        rule(smaller_calls),
        rule(equal_texts_are_one),
    };
    return GK_TEST_MAIN(tests);
}
