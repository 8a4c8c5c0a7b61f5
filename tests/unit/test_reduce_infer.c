/* Every rule of reduce's validation: the code, the message, and the class that a call falls in. */
#include "gk_test.h"

#include <math.h>
#include <string.h>

#include <gk/extend.h>
#include <gk/ops.h>
#include <gk/plan.h>

#include "op/reduce.h"

/* The column sums of 4x6 in f32. */
typedef struct fixture {
    _Alignas(16) float x[64];
    _Alignas(16) float out[64];
    gk_tensor tx, tout;
    gk_call call;
} fixture;

static fixture f;

static int fresh(void **state)
{
    (void)state;
    memset(&f, 0, sizeof(f));
    f.tx = gk_matrix(f.x, GK_F32, 4, 6);
    f.tout = gk_vector(f.out, GK_F32, 6);
    f.call.args[REDUCE_X] = &f.tx;
    f.call.args[REDUCE_OUT] = &f.tout;
    return 0;
}

static gk_status infer(gk_problem *out)
{
    memset(out, 0, sizeof(*out));
    return gk_op_find("reduce", NULL)->infer(&f.call, out);
}

static void rows(void)
{
    f.call.attrs[REDUCE_ATTR_AXIS] = 1;
    f.tout = gk_vector(f.out, GK_F32, 4);
}

static void all(void)
{
    f.call.attrs[REDUCE_ATTR_AXIS] = GK_REDUCE_ALL;
    f.tout = gk_vector(f.out, GK_F32, 1);
}

#define accepts(problem) assert_gk_ok(infer(problem))
#define refuses(code, text)                                                                        \
    do {                                                                                           \
        gk_problem ignored;                                                                        \
        assert_gk_err(infer(&ignored), (code), (text));                                            \
        assert_string_equal(gk_error_last()->where, "reduce");                                     \
    } while (0)

static void missing_tensors(void **state)
{
    (void)state;
    f.call.args[REDUCE_X] = NULL;
    refuses(GK_ERR_INVALID, "x is NULL");
    f.call.args[REDUCE_X] = &f.tx;
    f.call.args[REDUCE_OUT] = NULL;
    refuses(GK_ERR_INVALID, "out is NULL");
}

static void forms(void **state)
{
    (void)state;
    f.tx.dtype = 99;
    refuses(GK_ERR_INVALID, "x.dtype is 99");
    f.tx.dtype = GK_F32;
    f.tx.rank = 9;
    refuses(GK_ERR_INVALID, "x.rank is 9, must be 1 to 8");
    f.tx.rank = 0;
    refuses(GK_ERR_INVALID, "x.rank is 0");
    f.tx.rank = 2;
    f.tout.reserved[2] = 7;
    refuses(GK_ERR_INVALID, "out.reserved[2] is 7");
    f.tout.reserved[2] = 0;
    f.tx.shape[1] = -6;
    refuses(GK_ERR_INVALID, "x.shape[1] is -6");
    f.tx.shape[1] = 6;
    f.tx.stride[0] = -1;
    refuses(GK_ERR_INVALID, "x.stride[0] is -1");
}

static void attributes(void **state)
{
    (void)state;
    static const double ops[] = {-1, 5, 0.5, (double)NAN};
    static const double axes[] = {-1, 2, 0.5, (double)NAN, 1e300};
    for (size_t i = 0; i < sizeof(ops) / sizeof(ops[0]); i++) {
        f.call.attrs[REDUCE_ATTR_OP] = ops[i];
        refuses(GK_ERR_INVALID, "must be a whole number from 0 to 4");
    }
    f.call.attrs[REDUCE_ATTR_OP] = GK_REDUCE_SUM;
    for (size_t i = 0; i < sizeof(axes) / sizeof(axes[0]); i++) {
        f.call.attrs[REDUCE_ATTR_AXIS] = axes[i];
        refuses(GK_ERR_INVALID, "x.rank is 2, must be 0 to 1 or GK_REDUCE_ALL");
    }
    f.call.attrs[REDUCE_ATTR_AXIS] = 0;
    f.call.attrs[REDUCE_ATTR_KEEPDIM] = 2;
    refuses(GK_ERR_INVALID, "keepdim is 2");
}

static void dtypes(void **state)
{
    (void)state;
    gk_problem p;
    f.tx.dtype = GK_E4M3;
    refuses(GK_ERR_UNSUPPORTED, "x.dtype is e4m3");
    f.tx.dtype = GK_F32;
    f.tout.dtype = GK_F16;
    refuses(GK_ERR_UNSUPPORTED, "out.dtype is f16 but x.dtype is f32");
    f.call.attrs[REDUCE_ATTR_OP] = GK_REDUCE_ARGMAX;
    refuses(GK_ERR_UNSUPPORTED, "out.dtype is f16, must be i32");
    f.tout.dtype = GK_I32;
    accepts(&p);
    assert_int_equal(p.attrs[REDUCE_ATTR_OP], GK_REDUCE_ARGMAX);
    f.tx.dtype = GK_I32;
    f.call.attrs[REDUCE_ATTR_OP] = GK_REDUCE_MEAN;
    refuses(GK_ERR_UNSUPPORTED, "op mean");
    f.tx.dtype = GK_BF16;
    f.tout.dtype = GK_F32;
    accepts(&p);
    f.tout.dtype = GK_F64;
    refuses(GK_ERR_UNSUPPORTED, "out must be bf16 or f32");
}

static void shapes(void **state)
{
    (void)state;
    f.tout.shape[0] = 5;
    refuses(GK_ERR_INVALID, "out.shape[0] is 5 but x.shape[1] is 6");
    f.call.attrs[REDUCE_ATTR_KEEPDIM] = 1;
    refuses(GK_ERR_INVALID, "out.rank is 1 but x.rank is 2: out's must be 2");
    f.tout = gk_matrix(f.out, GK_F32, 2, 6);
    refuses(GK_ERR_INVALID, "out.shape[0] is 2, must be 1");
    f.tout = gk_matrix(f.out, GK_F32, 1, 7);
    refuses(GK_ERR_INVALID, "out.shape[1] is 7 but x.shape[1] is 6");
    f.call.attrs[REDUCE_ATTR_KEEPDIM] = 0;
    all();
    f.tout.shape[0] = 2;
    refuses(GK_ERR_INVALID, "out.shape[0] is 2, must be 1");
}

static void a_vector_leaves_one_element(void **state)
{
    (void)state;
    gk_problem p;
    f.tx = gk_vector(f.x, GK_F32, 24);
    f.tout = gk_vector(f.out, GK_F32, 1);
    accepts(&p);
    assert_int_equal(p.dims[REDUCE_OUTER], 1);
    assert_int_equal(p.dims[REDUCE_AXIS], 24);
    f.tout.shape[0] = 0;
    refuses(GK_ERR_INVALID, "out.shape[0] is 0, must be 1");
}

static void empty_axes(void **state)
{
    (void)state;
    gk_problem p;
    f.tx.shape[0] = 0;
    f.tx.data = NULL;
    accepts(&p);
    assert_int_equal(p.dims[REDUCE_AXIS], 0);
    f.call.attrs[REDUCE_ATTR_OP] = GK_REDUCE_MAX;
    refuses(GK_ERR_INVALID, "x.shape[0] is 0: there is no max of no elements");
    /* Nothing of nothing is fine. */
    f.tx.shape[1] = 0;
    f.tout.shape[0] = 0;
    f.tout.data = NULL;
    accepts(&p);
    assert_true(gk_op_find("reduce", NULL)->is_empty(&p));
    all();
    refuses(GK_ERR_INVALID, "x.shape[0] is 0: there is no max of no elements");
}

static void counts(void **state)
{
    (void)state;
    gk_problem p;
    all();
    f.tx.stride[0] = f.tx.stride[1] = 0;
    f.tx.shape[0] = f.tx.shape[1] = INT64_C(1) << 32;
    refuses(GK_ERR_INVALID, "too many to count");
    f.tx.shape[0] = 1;
    f.call.attrs[REDUCE_ATTR_OP] = GK_REDUCE_ARGMAX;
    f.tout.dtype = GK_I32;
    refuses(GK_ERR_UNSUPPORTED, "argmax over 4294967296 elements");
    f.tx.shape[1] = INT32_MAX;
    accepts(&p);
}

static void memory(void **state)
{
    (void)state;
    f.tx.data = NULL;
    refuses(GK_ERR_INVALID, "x.data is NULL");
    f.tx.data = (char *)f.x + 2;
    refuses(GK_ERR_INVALID, "not a multiple of 4, the size of f32");
    f.tx.data = f.x;
    f.tx.stride[0] = INT64_MAX / 8;
    refuses(GK_ERR_INVALID, "x does not fit in 63 bits");
    f.tx.stride[0] = 6;
    f.tx.data = (void *)(UINTPTR_MAX - 15);
    refuses(GK_ERR_INVALID, "exceed the address space");
}

static void overlap(void **state)
{
    (void)state;
    gk_problem p;
    f.tout.data = f.x + 23;
    refuses(GK_ERR_INVALID, "out overlaps x");
    f.tout.data = f.x;
    refuses(GK_ERR_INVALID, "out overlaps x");
    f.tout.data = f.x + 24;
    accepts(&p);
    /* The row sums into a column between the rows. */
    rows();
    f.tx.stride[0] = 8;
    f.tout.data = f.x + 6;
    f.tout.stride[0] = 8;
    accepts(&p);
    f.tout.data = f.x + 5;
    refuses(GK_ERR_INVALID, "out overlaps x");
    f.tout.data = f.x + 7;
    accepts(&p);
    f.tout.data = f.x + 8;
    refuses(GK_ERR_INVALID, "out overlaps x");
}

static void out_overlaps_itself(void **state)
{
    (void)state;
    f.tout.stride[0] = 0;
    refuses(GK_ERR_INVALID, "out.stride[0] is 0 with out.shape[0] 6");
    f.tx = (gk_tensor){
        .data = f.x, .dtype = GK_F32, .rank = 3, .shape = {2, 3, 4}, .stride = {12, 4, 1}};
    f.tout = gk_matrix_strided(f.out, GK_F32, 3, 4, 2, 1);
    refuses(GK_ERR_INVALID, "out's axes interleave or overlap");
}

static void is(int64_t outer, int64_t axis, int64_t inner, int layout, int align)
{
    gk_problem p;
    accepts(&p);
    assert_int_equal(p.dims[REDUCE_OUTER], outer);
    assert_int_equal(p.dims[REDUCE_AXIS], axis);
    assert_int_equal(p.dims[REDUCE_INNER], inner);
    assert_int_equal(p.layout[REDUCE_X], layout);
    assert_int_equal(p.align[REDUCE_X], align);
}

static void classes(void **state)
{
    (void)state;
    is(1, 4, 6, GK_LAYOUT_COL, 8); /* rows of 24 bytes */
    f.tx.stride[0] = 8;
    is(1, 4, 6, GK_LAYOUT_COL, 16);
    f.tx.stride[0] = 7;
    is(1, 4, 6, GK_LAYOUT_COL, 4);
    rows();
    is(4, 6, 1, GK_LAYOUT_ROW, 4);
    f.tx.stride[0] = 6;
    is(4, 6, 1, GK_LAYOUT_ROW, 8);
    f.tx.data = f.x + 1;
    is(4, 6, 1, GK_LAYOUT_ROW, 4);
    f.tx.data = f.x;
    /* Columns of a transposed view adjoin. */
    f.tx.stride[0] = 1;
    f.tx.stride[1] = 4;
    is(1, 6, 4, GK_LAYOUT_COL, 16);
    f.tx.stride[0] = 2;
    f.tx.stride[1] = 8;
    is(4, 6, 1, GK_LAYOUT_STRIDED, 4);
}

static void all_elements_are_one_row(void **state)
{
    (void)state;
    all();
    is(1, 24, 1, GK_LAYOUT_ROW, 16);
    f.tx.stride[0] = 8;
    is(1, 24, 1, GK_LAYOUT_STRIDED, 4);
    /* Any order of memory will do but for places. */
    f.tx.stride[0] = 1;
    f.tx.stride[1] = 4;
    is(1, 24, 1, GK_LAYOUT_ROW, 16);
    f.call.attrs[REDUCE_ATTR_OP] = GK_REDUCE_ARGMAX;
    f.tout.dtype = GK_I32;
    is(1, 24, 1, GK_LAYOUT_STRIDED, 4);
}

static void axes_merge(void **state)
{
    (void)state;
    f.tx = (gk_tensor){.data = f.x,
                       .dtype = GK_F32,
                       .rank = 5,
                       .shape = {2, 1, 3, 2, 4},
                       .stride = {24, 99, 8, 4, 1}};
    f.call.attrs[REDUCE_ATTR_AXIS] = 2;
    f.tout = (gk_tensor){
        .data = f.out, .dtype = GK_F32, .rank = 4, .shape = {2, 1, 2, 4}, .stride = {8, 8, 4, 1}};
    is(2, 3, 8, GK_LAYOUT_COL, 16);
    gk_reduce_args view;
    gki_reduce_view(&f.call, &view);
    assert_int_equal(view.n_kept, 2);
    assert_int_equal(view.kept_size[0], 2);
    assert_int_equal(view.kept_x[0], 24);
    assert_int_equal(view.kept_out[0], 8);
    assert_int_equal(view.kept_size[1], 8);
    assert_int_equal(view.step, 8);
    /* An output that is laid out otherwise keeps them apart. */
    f.tout.stride[2] = 1;
    f.tout.stride[3] = 2;
    is(4, 3, 4, GK_LAYOUT_COL, 16);
    f.call.attrs[REDUCE_ATTR_AXIS] = 4;
    f.tout = (gk_tensor){
        .data = f.out, .dtype = GK_F32, .rank = 4, .shape = {2, 1, 3, 2}, .stride = {6, 6, 2, 1}};
    is(12, 4, 1, GK_LAYOUT_ROW, 16);
}

static void one_element_axes_go_away(void **state)
{
    (void)state;
    f.tx.shape[0] = 1;
    is(1, 1, 6, GK_LAYOUT_COL, 16);
    rows();
    f.tout.shape[0] = 1;
    f.tx.stride[0] = 77;
    is(1, 6, 1, GK_LAYOUT_ROW, 16);
}

static void call_from_params(void **state)
{
    (void)state;
    gk_call call;
    gk_reduce_params params = GK_REDUCE_PARAMS_INIT;
    assert_gk_err(gk_reduce_call(NULL, &f.tx, &f.tout, NULL), GK_ERR_INVALID, "call is NULL");
    assert_gk_ok(gk_reduce_call(&call, &f.tx, &f.tout, NULL));
    assert_true(call.attrs[REDUCE_ATTR_AXIS] == GK_REDUCE_ALL);
    assert_true(call.attrs[REDUCE_ATTR_OP] == GK_REDUCE_SUM);
    params.op = GK_REDUCE_MIN;
    params.axis = 1;
    params.keepdim = 1;
    assert_gk_ok(gk_reduce_call(&call, &f.tx, &f.tout, &params));
    assert_true(call.attrs[REDUCE_ATTR_OP] == GK_REDUCE_MIN);
    assert_true(call.attrs[REDUCE_ATTR_AXIS] == 1 && call.attrs[REDUCE_ATTR_KEEPDIM] == 1);
    params.struct_size = sizeof(size_t);
    assert_gk_err(gk_reduce_call(&call, &f.tx, &f.tout, &params), GK_ERR_INVALID,
                  "params.struct_size is");
    struct {
        gk_reduce_params known;
        unsigned char later[16];
    } newer = {.known = params, .later = {0}};
    newer.known.struct_size = sizeof(newer);
    assert_gk_ok(gk_reduce_call(&call, &f.tx, &f.tout, &newer.known));
    newer.later[3] = 1;
    assert_gk_err(gk_reduce_call(&call, &f.tx, &f.tout, &newer.known), GK_ERR_VERSION,
                  "params.struct_size is");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(missing_tensors, fresh),
        cmocka_unit_test_setup(forms, fresh),
        cmocka_unit_test_setup(attributes, fresh),
        cmocka_unit_test_setup(dtypes, fresh),
        cmocka_unit_test_setup(shapes, fresh),
        cmocka_unit_test_setup(a_vector_leaves_one_element, fresh),
        cmocka_unit_test_setup(empty_axes, fresh),
        cmocka_unit_test_setup(counts, fresh),
        cmocka_unit_test_setup(memory, fresh),
        cmocka_unit_test_setup(overlap, fresh),
        cmocka_unit_test_setup(out_overlaps_itself, fresh),
        cmocka_unit_test_setup(classes, fresh),
        cmocka_unit_test_setup(all_elements_are_one_row, fresh),
        cmocka_unit_test_setup(axes_merge, fresh),
        cmocka_unit_test_setup(one_element_axes_go_away, fresh),
        cmocka_unit_test_setup(call_from_params, fresh),
    };
    return GK_TEST_MAIN(tests);
}
