/* The argument rules of softmax and the norms: one test a rule. */
#include "gk_test.h"

#include <string.h>

#include <gk/gk.h>

#define ADDRESS(i) ((void *)(uintptr_t)(((uint64_t)(i) + 1) << 32))

typedef struct operands {
    gk_tensor x, out, weight, bias;
    gk_call call;
    gk_problem problem;
} operands;

static void make(operands *o, gk_dtype dtype, int64_t rows, int64_t cols)
{
    memset(o, 0, sizeof(*o));
    o->x = gk_matrix(ADDRESS(0), dtype, rows, cols);
    o->out = gk_matrix(ADDRESS(1), dtype, rows, cols);
    o->weight = gk_vector(ADDRESS(2), dtype, cols);
    o->bias = gk_vector(ADDRESS(3), dtype, cols);
    o->call.args[0] = &o->x;
    o->call.args[1] = &o->out;
}

static gk_status infer(operands *o, const char *op)
{
    memset(&o->problem, 0, sizeof(o->problem));
    return gk_op_find(op, NULL)->infer(&o->call, &o->problem);
}

static void refused(operands *o, const char *op, gk_status status, const char *message)
{
    assert_int_equal(infer(o, op), status);
    if (strstr(gk_error_last()->message, message) == NULL) {
        fail_msg("the message is \"%s\", not \"%s\"", gk_error_last()->message, message);
    }
}

static void the_problem(void **state)
{
    operands o;
    (void)state;
    make(&o, GK_F32, 6, 12);
    assert_gk_ok(infer(&o, "softmax"));
    assert_int_equal(o.problem.dims[0], 6);
    assert_int_equal(o.problem.dims[1], 12);
    assert_int_equal(o.problem.dtype[0], GK_F32);
    assert_int_equal(o.problem.layout[0], GK_LAYOUT_ROW);
    assert_int_equal(o.problem.align[0], 16);
    assert_int_equal(o.problem.dtype[2], 0);
    o.x = gk_matrix_strided(ADDRESS(0), GK_F32, 6, 12, 13, 1);
    o.out = gk_matrix_strided(ADDRESS(1), GK_F32, 6, 12, 1, 6);
    assert_gk_ok(infer(&o, "softmax"));
    assert_int_equal(o.problem.align[0], 4);
    assert_int_equal(o.problem.layout[1], GK_LAYOUT_STRIDED);
}

static void vectors_and_higher_ranks(void **state)
{
    operands o;
    (void)state;
    make(&o, GK_F16, 1, 9);
    o.x = gk_vector(ADDRESS(0), GK_F16, 9);
    o.out = gk_vector(ADDRESS(1), GK_F16, 9);
    assert_gk_ok(infer(&o, "softmax"));
    assert_int_equal(o.problem.dims[0], 1);
    o.x.rank = o.out.rank = 3;
    const int64_t shape[] = {2, 3, 4};
    const int64_t stride[] = {12, 4, 1};
    memcpy(o.x.shape, shape, sizeof(shape));
    memcpy(o.out.shape, shape, sizeof(shape));
    memcpy(o.x.stride, stride, sizeof(stride));
    memcpy(o.out.stride, stride, sizeof(stride));
    assert_gk_ok(infer(&o, "softmax"));
    assert_int_equal(o.problem.dims[0], 6);
    assert_int_equal(o.problem.dims[1], 4);
    assert_int_equal(o.problem.layout[0], GK_LAYOUT_ROW);
    o.x.stride[0] = 16;
    assert_gk_ok(infer(&o, "softmax"));
    assert_int_equal(o.problem.layout[0], 3);
    assert_int_equal(o.problem.align[0], 8);
    o.x.rank = 9;
    refused(&o, "softmax", GK_ERR_INVALID, "x.rank is 9, must be 1 to 8");
    o.x.rank = 2;
    refused(&o, "softmax", GK_ERR_INVALID, "out.rank is 3 but x.rank is 2");
}

static void forms(void **state)
{
    operands o;
    (void)state;
    make(&o, GK_F32, 6, 12);
    o.call.args[0] = NULL;
    refused(&o, "softmax", GK_ERR_INVALID, "x is NULL");
    make(&o, GK_F32, 6, 12);
    o.out.dtype = 77;
    refused(&o, "softmax", GK_ERR_INVALID, "out.dtype is 77");
    make(&o, GK_F32, 6, 12);
    o.x.reserved[2] = 5;
    refused(&o, "softmax", GK_ERR_INVALID, "x.reserved[2] is 5");
    make(&o, GK_F32, 6, 12);
    o.x.shape[1] = -3;
    refused(&o, "softmax", GK_ERR_INVALID, "x.shape[1] is -3");
    make(&o, GK_F32, 6, 12);
    o.x.stride[0] = -12;
    refused(&o, "softmax", GK_ERR_INVALID, "x.stride[0] is -12");
    make(&o, GK_F32, 6, 12);
    o.out.shape[0] = 7;
    refused(&o, "softmax", GK_ERR_INVALID, "out.shape[0] is 7 but x.shape[0] is 6");
}

static void dtypes(void **state)
{
    operands o;
    (void)state;
    make(&o, GK_BF16, 6, 12);
    o.out.dtype = GK_F32;
    assert_gk_ok(infer(&o, "softmax"));
    o.out.dtype = GK_F64;
    refused(&o, "softmax", GK_ERR_UNSUPPORTED, "out.dtype is f64 but x.dtype is bf16");
    o.out.dtype = GK_I32;
    refused(&o, "softmax", GK_ERR_UNSUPPORTED, "out.dtype is i32");
    make(&o, GK_F64, 6, 12);
    assert_gk_ok(infer(&o, "norm"));
    make(&o, GK_E4M3, 6, 12);
    refused(&o, "norm", GK_ERR_UNSUPPORTED, "x.dtype is e4m3");
}

static void memory(void **state)
{
    operands o;
    (void)state;
    make(&o, GK_F32, 6, 12);
    o.x.data = NULL;
    refused(&o, "softmax", GK_ERR_INVALID, "x.data is NULL but x has 72 elements");
    o.x.data = (unsigned char *)ADDRESS(0) + 2;
    refused(&o, "softmax", GK_ERR_INVALID, "not a multiple of 4");
    o.x.data = (void *)(UINTPTR_MAX - 63);
    refused(&o, "softmax", GK_ERR_INVALID, "exceed the address space");
    make(&o, GK_F32, 6, 12);
    o.x.stride[0] = INT64_MAX / 2;
    refused(&o, "softmax", GK_ERR_INVALID, "x does not fit in 63 bits");
    make(&o, GK_F32, 0, 7);
    o.x.data = o.out.data = NULL;
    assert_gk_ok(infer(&o, "softmax"));
    assert_true(gk_op_find("softmax", NULL)->is_empty(&o.problem));
}

static void overlap(void **state)
{
    operands o;
    (void)state;
    make(&o, GK_F32, 6, 12);
    o.out.data = o.x.data;
    assert_gk_ok(infer(&o, "softmax"));
    o.out.data = (unsigned char *)o.x.data + 4;
    refused(&o, "softmax", GK_ERR_INVALID, "out overlaps x without being it");
    /* The same bytes read as another type. */
    make(&o, GK_F16, 6, 12);
    o.out.data = o.x.data;
    o.out.dtype = GK_BF16;
    refused(&o, "softmax", GK_ERR_INVALID, "out overlaps x");
    /* Column blocks of one parent. */
    make(&o, GK_F32, 6, 12);
    o.x = gk_matrix_strided(ADDRESS(0), GK_F32, 6, 12, 24, 1);
    o.out = gk_matrix_strided((float *)ADDRESS(0) + 12, GK_F32, 6, 12, 24, 1);
    assert_gk_ok(infer(&o, "softmax"));
    o.out.data = (float *)ADDRESS(0) + 11;
    refused(&o, "softmax", GK_ERR_INVALID, "out overlaps x");
    make(&o, GK_F32, 6, 12);
    o.call.args[2] = &o.weight;
    o.weight.data = o.out.data;
    refused(&o, "norm", GK_ERR_INVALID, "out overlaps weight");
}

static void an_output_of_its_own(void **state)
{
    operands o;
    (void)state;
    make(&o, GK_F32, 6, 12);
    o.x.stride[0] = 0;
    assert_gk_ok(infer(&o, "softmax"));
    o.out.stride[0] = 11;
    refused(&o, "softmax", GK_ERR_INVALID,
            "out overlaps itself: out.stride[0] is 11 but the axes inside it reach 12 elements");
    o.out.stride[0] = 0;
    refused(&o, "softmax", GK_ERR_INVALID, "out overlaps itself");
}

static void factors(void **state)
{
    operands o;
    (void)state;
    make(&o, GK_BF16, 6, 12);
    o.call.args[2] = &o.weight;
    o.call.args[3] = &o.bias;
    o.bias.dtype = GK_F32;
    o.bias.stride[0] = 2;
    assert_gk_ok(infer(&o, "norm"));
    assert_int_equal(o.problem.dtype[3], GK_F32);
    assert_int_equal(o.problem.layout[3], GK_LAYOUT_STRIDED);
    o.weight.dtype = GK_F16;
    refused(&o, "norm", GK_ERR_UNSUPPORTED, "weight.dtype is f16 but x.dtype is bf16");
    make(&o, GK_BF16, 6, 12);
    o.call.args[2] = &o.weight;
    o.weight.shape[0] = 11;
    refused(&o, "norm", GK_ERR_INVALID, "weight.shape[0] is 11 but x.shape[1] is 12");
    o.weight = gk_matrix(ADDRESS(2), GK_BF16, 1, 12);
    refused(&o, "norm", GK_ERR_INVALID, "weight.rank is 2, must be 1");
}

static void attributes(void **state)
{
    operands o;
    (void)state;
    make(&o, GK_F32, 6, 12);
    o.call.attrs[0] = 2;
    refused(&o, "softmax", GK_ERR_INVALID, "log is 2, must be 0 or 1");
    refused(&o, "norm", GK_ERR_INVALID, "kind is 2, must be 0 or 1");
    o.call.attrs[0] = 1;
    assert_gk_ok(infer(&o, "softmax"));
    assert_int_equal(o.problem.attrs[0], 1);
    o.call.attrs[1] = -1e-5;
    refused(&o, "norm", GK_ERR_INVALID, "eps is -1e-05");
    o.call.attrs[1] = 1e-60;
    refused(&o, "norm", GK_ERR_UNSUPPORTED, "eps is 1e-60");
    o.call.attrs[1] = 1e-6;
    assert_gk_ok(infer(&o, "norm"));
    /* Its value is no part of the problem. */
    assert_int_equal(o.problem.attrs[1], 0);
}

/* A smaller problem keeps everything but the number of rows; parts are whole rows. */
static void smaller_problems(void **state)
{
    const gk_op_desc *op = gk_op_find("softmax", NULL);
    operands o;
    gk_tensor tensors[GK_MAX_ARGS];
    gk_call small;
    gk_problem problem;
    (void)state;
    make(&o, GK_F32, 4096, 1000);
    assert_gk_ok(infer(&o, "softmax"));
    assert_true(op->reduce(&o.call, 500000, tensors, &small));
    assert_true(tensors[0].shape[0] < 101 && tensors[0].shape[0] > 90);
    tensors[0].data = o.x.data;
    tensors[1].data = o.out.data;
    memset(&problem, 0, sizeof(problem));
    assert_gk_ok(op->infer(&small, &problem));
    problem.dims[0] = o.problem.dims[0];
    assert_memory_equal(&problem, &o.problem, sizeof(problem));
    assert_true(op->part(&o.call, 1, 50000, tensors, &small));
    assert_int_equal(tensors[0].shape[0], 10);
    assert_int_equal(tensors[0].shape[1], 1000);
    assert_ptr_equal(tensors[1].data, (float *)o.out.data + 4086 * 1000);
    assert_false(op->part(&o.call, 8, 50000, tensors, &small));
    /* A row that is too long to be referred to. */
    assert_false(op->reduce(&o.call, 1000, tensors, &small));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_problem), cmocka_unit_test(vectors_and_higher_ranks),
        cmocka_unit_test(forms),       cmocka_unit_test(dtypes),
        cmocka_unit_test(memory),      cmocka_unit_test(overlap),
        cmocka_unit_test(factors),     cmocka_unit_test(an_output_of_its_own),
        cmocka_unit_test(attributes),  cmocka_unit_test(smaller_problems),
    };
    return GK_TEST_MAIN(tests);
}
