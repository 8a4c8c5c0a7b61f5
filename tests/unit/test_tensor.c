/* Tensors: their extents, and calls on those that have no elements. */
#define _GNU_SOURCE
#include "api_case.h"

static gk_tensor cube(int64_t a, int64_t b, int64_t c)
{
    gk_tensor t = {.dtype = GK_F32, .rank = 3, .shape = {a, b, c}, .stride = {1, 1, 1}};
    return t;
}

static void test_extent(void **state)
{
    (void)state;
    gk_tensor t = gk_vector(NULL, GK_F64, 5);
    assert_int_equal(gk_tensor_extent(&t), 40);
    t = gk_matrix(NULL, GK_BF16, 3, 4);
    assert_int_equal(gk_tensor_extent(&t), 24);
    t = gk_matrix_strided(NULL, GK_U8, 3, 4, 100, 2);
    assert_int_equal(gk_tensor_extent(&t), 207);
    t = gk_matrix_strided(NULL, GK_I32, 1000, 4, 0, 1);
    assert_int_equal(gk_tensor_extent(&t), 16);
    t = (gk_tensor){.dtype = GK_F16, .rank = 0};
    assert_int_equal(gk_tensor_extent(&t), 2);
    t = gk_vector(NULL, GK_U8, INT64_MAX);
    assert_int_equal(gk_tensor_extent(&t), INT64_MAX);
}

static void test_extent_of_nothing(void **state)
{
    (void)state;
    gk_tensor t = gk_vector(NULL, GK_F64, 0);
    assert_int_equal(gk_tensor_extent(&t), 0);
    /* Whatever the other axes would come to. */
    t = gk_matrix_strided(NULL, GK_F32, 0, INT64_MAX, INT64_MAX, INT64_MAX);
    assert_int_equal(gk_tensor_extent(&t), 0);
    t = gk_matrix_strided(NULL, GK_F32, INT64_MAX, 0, INT64_MAX, 1);
    assert_int_equal(gk_tensor_extent(&t), 0);
}

static void test_no_extent(void **state)
{
    (void)state;
    static const int32_t no_dtypes[] = {GK_DTYPE_NONE, GK_DTYPE_COUNT, -1, 1000, INT32_MIN};
    for (size_t i = 0; i < sizeof(no_dtypes) / sizeof(no_dtypes[0]); i++) {
        gk_tensor t = gk_matrix(NULL, GK_F32, 3, 4);
        t.dtype = no_dtypes[i];
        assert_int_equal(gk_tensor_extent(&t), -1);
        t.shape[0] = 0;
        assert_int_equal(gk_tensor_extent(&t), -1);
    }
    gk_tensor t = gk_vector(NULL, GK_F16, INT64_MAX);
    assert_int_equal(gk_tensor_extent(&t), -1);
    t = gk_matrix_strided(NULL, GK_U8, INT64_MAX, 2, 1, 2);
    assert_int_equal(gk_tensor_extent(&t), -1);
    t = gk_matrix_strided(NULL, GK_U8, 3, 4, -4, 1);
    assert_int_equal(gk_tensor_extent(&t), -1);
    t = cube(0, INT64_MAX, -1);
    assert_int_equal(gk_tensor_extent(&t), -1);
    t = cube(-1, 0, 1);
    assert_int_equal(gk_tensor_extent(&t), -1);
    t = cube(1, 1, 1);
    t.rank = GK_MAX_RANK + 1;
    assert_int_equal(gk_tensor_extent(&t), -1);
    t.rank = -1;
    assert_int_equal(gk_tensor_extent(&t), -1);
}

/* No elements, beside axes whose product is out of range: nothing to do, or refused by name. */
static void test_calls_on_nothing(void **state)
{
    (void)state;
    static const int64_t shapes[][3] = {
        {0, INT64_MAX, INT64_MAX}, {INT64_MAX, 0, INT64_MAX}, {INT64_MAX, INT64_MAX, 0}};
    static const int64_t strides[] = {0, 1, INT64_MAX};
    fake_device *fake = matmul_device();
    gk_context *ctx = context_on(fake, GK_MODE_HEURISTIC, NULL, NULL);
    for (size_t i = 0; i < 9; i++) {
        const int64_t *n = shapes[i / 3];
        gk_tensor x = cube(n[0], n[1], n[2]);
        gk_tensor out = x;
        for (int axis = 0; axis < 3; axis++) {
            x.stride[axis] = strides[i % 3];
        }
        gk_tensor turned = cube(n[0], n[2], n[1]);
        gk_reduce_params params = GK_REDUCE_PARAMS_INIT;
        params.axis = 0;
        params.keepdim = 1;
        gk_tensor reduced = cube(1, n[1], n[2]);
        const gk_status statuses[] = {gk_softmax(ctx, &x, &out, NULL),
                                      gk_transpose(ctx, &x, &turned, NULL),
                                      gk_reduce(ctx, &x, &reduced, &params, NULL)};
        for (size_t k = 0; k < 3; k++) {
            assert_true(statuses[k] == GK_OK || statuses[k] == GK_ERR_INVALID ||
                        statuses[k] == GK_ERR_UNSUPPORTED);
        }
    }
    assert_int_equal(stats_of(ctx).launches, 0);
    gk_context_destroy(&ctx);
    end_device(&fake);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_extent),
        cmocka_unit_test(test_extent_of_nothing),
        cmocka_unit_test(test_no_extent),
        cmocka_unit_test(test_calls_on_nothing),
    };
    return GK_TEST_MAIN(tests);
}
