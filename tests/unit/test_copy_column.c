/* gk_copy_column: its rules, and that it is one call of the driver. */
#include "api_case.h"

#include <gk/ops.h>

enum { ROWS = 5, COLS = 3 };

typedef struct fixture {
    fake_device *fake;
    gk_context *ctx;
    float matrix[ROWS * COLS];
    float vector[ROWS + 1];
} fixture;

static fixture f;

static int setup(void **state)
{
    (void)state;
    memset(&f, 0, sizeof(f));
    f.fake = fake_device_create();
    f.ctx = context_within(f.fake, GK_MODE_HEURISTIC, NULL, NULL, 1);
    for (int i = 0; i < ROWS * COLS; i++) {
        f.matrix[i] = (float)i;
    }
    for (int i = 0; i <= ROWS; i++) {
        f.vector[i] = -1;
    }
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    gk_context_destroy(&f.ctx);
    fake_device_destroy(&f.fake);
    return 0;
}

static gk_status copy(int64_t rows, int64_t cols, int64_t column, int dtype)
{
    return gk_copy_column(f.ctx, f.vector, f.matrix, rows, cols, column, (gk_dtype)dtype, NULL);
}

static void one_copy(void **state)
{
    (void)state;
    const int before = atomic_load(&f.fake->copy.calls);
    assert_gk_ok(copy(ROWS, COLS, 2, GK_F32));
    assert_int_equal(atomic_load(&f.fake->copy.calls), before + 1);
    for (int i = 0; i < ROWS; i++) {
        assert_true(f.vector[i] == (float)(i * COLS + 2));
    }
    assert_true(f.vector[ROWS] == -1);
}

static void nothing_to_copy(void **state)
{
    (void)state;
    const int before = atomic_load(&f.fake->copy.calls);
    assert_gk_ok(gk_copy_column(f.ctx, NULL, NULL, 0, COLS, 1, GK_F32, NULL));
    assert_int_equal(atomic_load(&f.fake->copy.calls), before);
}

static void refusals(void **state)
{
    (void)state;
    const int before = atomic_load(&f.fake->copy.calls);
    assert_gk_err(copy(ROWS, COLS, 3, GK_F32), GK_ERR_INVALID, "column is 3 but cols is 3");
    assert_gk_err(copy(ROWS, COLS, -1, GK_F32), GK_ERR_INVALID, "column is -1 but cols is 3");
    assert_gk_err(copy(ROWS, 0, 0, GK_F32), GK_ERR_INVALID, "column is 0 but cols is 0");
    assert_gk_err(copy(-1, COLS, 0, GK_F32), GK_ERR_INVALID, "rows is -1, must not be negative");
    assert_gk_err(copy(ROWS, -2, 0, GK_F32), GK_ERR_INVALID, "cols is -2, must not be negative");
    assert_gk_err(copy(ROWS, COLS, 0, 99), GK_ERR_INVALID, "dtype is 99, which is no gk_dtype");
    assert_gk_err(copy(INT64_MAX / 2, 3, 0, GK_U8), GK_ERR_INVALID,
                  "rows is 4611686018427387903 and cols is 3");
    assert_gk_err(copy(INT64_MAX / 4, 1, 0, GK_F64), GK_ERR_INVALID, "do not fit in 63 bits");
    assert_gk_err(gk_copy_column(f.ctx, NULL, f.matrix, ROWS, COLS, 0, GK_F32, NULL),
                  GK_ERR_INVALID, "dst is NULL but rows is 5");
    assert_gk_err(gk_copy_column(f.ctx, f.vector, NULL, ROWS, COLS, 0, GK_F32, NULL),
                  GK_ERR_INVALID, "src is NULL but rows is 5");
    assert_gk_err(
        gk_copy_column(f.ctx, (char *)f.vector + 1, f.matrix, ROWS - 1, COLS, 0, GK_F32, NULL),
        GK_ERR_INVALID, "not a multiple of 4, the size of f32");
    assert_gk_err(gk_copy_column(NULL, f.vector, f.matrix, ROWS, COLS, 0, GK_F32, NULL),
                  GK_ERR_INVALID, "ctx");
    assert_int_equal(atomic_load(&f.fake->copy.calls), before);
    assert_true(f.vector[0] == -1);
    assert_string_equal(gk_error_last()->where, "copy_column");
}

static void trouble_of_the_driver(void **state)
{
    (void)state;
    f.fake->copy.fail_at = atomic_load(&f.fake->copy.calls) + 1;
    assert_gk_err(copy(ROWS, COLS, 0, GK_F32), GK_ERR_DEVICE, "copy");
    assert_gk_ok(copy(ROWS, COLS, 0, GK_F32));
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(one_copy),
        TEST(nothing_to_copy),
        TEST(refusals),
        TEST(trouble_of_the_driver),
    };
    return GK_TEST_MAIN(tests);
}
