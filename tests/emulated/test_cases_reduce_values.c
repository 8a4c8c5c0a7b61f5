/* Values that are not ordinary, and axes without elements. */
#include "reduce_case.h"

/* --- degenerate sizes --- */

static void no_elements_then_a_call(void **state)
{
    (void)state;
    const gk_reduce_params rows = {sizeof(rows), GK_REDUCE_MAX, 1, 0};
    const gk_tensor empty = gk_matrix(NULL, GK_F32, 0, 7);
    const gk_tensor none = gk_vector(NULL, GK_F32, 0);
    assert_gk_ok(gk_reduce(op_case_ctx, &empty, &none, &rows, NULL));
    assert_gk_ok(gk_synchronize(op_case_ctx, NULL));
    gk_statistics stats = {.struct_size = sizeof(stats)};
    assert_gk_ok(gk_stats(op_case_ctx, &stats));
    assert_int_equal(stats.launches, 0);
    assert_int_equal(stats.tunes, 0);
    assert_int_equal(stats.compiles, 0);
    const gk_tensor x = gk_matrix(NULL, GK_F32, 4, 7);
    create(&x, 0, GK_REDUCE_MAX, 1, 0);
    fill_whole(1);
    expect();
    run_untuned();
    destroy();
}

static void empty_axis(void **state)
{
    (void)state;
    for (int op = GK_REDUCE_SUM; op <= GK_REDUCE_ARGMAX; op++) {
        for (int whole = 0; whole < 2; whole++) {
            const gk_tensor x = gk_matrix(NULL, GK_F32, 3, 0);
            create(&x, 0, (gk_reduce_op)op, whole ? GK_REDUCE_ALL : 1, 0);
            f.x.device.data = NULL;
            for (int i = 0; i < 3; i++) {
                f.want[i] = op == GK_REDUCE_MEAN ? (double)NAN : 0;
            }
            if (op <= GK_REDUCE_MEAN) {
                upload();
                assert_gk_ok(gk_reduce(op_case_ctx, &f.x.device, &f.out.device, &f.params, NULL));
                fetch();
                compare("untuned", "");
            } else {
                assert_gk_err(gk_reduce(op_case_ctx, &f.x.device, &f.out.device, &f.params, NULL),
                              GK_ERR_INVALID, "x.shape[1] is 0");
            }
            destroy();
        }
    }
}

/* --- values that are not ordinary --- */

/* One of these at each place in turn, the others ordinary. */
static void nan_is_kept(void **state)
{
    static const double special[] = {(double)NAN, (double)INFINITY, -(double)INFINITY};
    static const gk_dtype dtypes[] = {GK_F32, GK_F16, GK_BF16, GK_F64};
    (void)state;
    for (int d = 0; d < 4; d++) {
        for (int op = GK_REDUCE_SUM; op <= GK_REDUCE_ARGMAX; op++) {
            for (int axis = 0; axis < 2; axis++) {
                const gk_tensor x =
                    gk_matrix(NULL, dtypes[d], axis == 1 ? 36 : 11, axis == 1 ? 11 : 36);
                create(&x, 0, (gk_reduce_op)op, axis, 0);
                fill_whole((uint64_t)op);
                for (int64_t i = 0; i < 36; i++) {
                    const int64_t at = i % 11;
                    op_buffer_set(&f.x, axis == 1 ? i : at, axis == 1 ? at : i, special[i / 12]);
                }
                expect();
                if (d == 0) {
                    run_every();
                } else {
                    run_untuned();
                }
                destroy();
            }
        }
    }
}

static void check_row(gk_dtype dtype, gk_reduce_op op, const double *values, int64_t n, double want)
{
    for (int down = 0; down < 2; down++) {
        /* Down columns with a neighbour, or along the row. */
        const gk_tensor x = down ? gk_matrix(NULL, dtype, n, 2) : gk_matrix(NULL, dtype, 2, n);
        create(&x, 0, op, down ? 0 : 1, 0);
        for (int64_t i = 0; i < n; i++) {
            for (int64_t j = 0; j < 2; j++) {
                op_buffer_set(&f.x, down ? i : j, down ? j : i, values[i]);
            }
        }
        f.want[0] = f.want[1] = want;
        run_every();
        const gk_tensor got = op_buffer_view(&f.out, f.result);
        assert_true(want != 0 || signbit(op_tensor_at(&got, 0)) == signbit(want));
        destroy();
    }
}

static void first_of_equals(void **state)
{
    const double inf = (double)INFINITY;
    const double nan = (double)NAN;
    const double ties[] = {1, 3, 3, 2, 3};
    const double nans[] = {9, 1, nan, inf, nan};
    const double least[] = {-inf, -inf, -inf};
    const double zeros[] = {-1, -0.0, 0.0, -0.0};
    (void)state;
    check_row(GK_F32, GK_REDUCE_ARGMAX, ties, 5, 1);
    check_row(GK_F32, GK_REDUCE_ARGMAX, nans, 5, 2);
    check_row(GK_F32, GK_REDUCE_ARGMAX, least, 3, 0);
    check_row(GK_F32, GK_REDUCE_ARGMAX, zeros, 4, 1);
    check_row(GK_BF16, GK_REDUCE_ARGMAX, nans, 5, 2);
    check_row(GK_F64, GK_REDUCE_ARGMAX, nans, 5, 2);
}

static void zeros_are_ordered(void **state)
{
    static const gk_dtype dtypes[] = {GK_F32, GK_F64};
    const double a[] = {-0.0, 0.0, -0.0};
    const double b[] = {0.0, -0.0, 0.0};
    const double least[] = {-(double)INFINITY, -(double)INFINITY};
    (void)state;
    for (int d = 0; d < 2; d++) {
        check_row(dtypes[d], GK_REDUCE_MAX, a, 3, 0.0);
        check_row(dtypes[d], GK_REDUCE_MAX, b, 3, 0.0);
        check_row(dtypes[d], GK_REDUCE_MIN, a, 3, -0.0);
        check_row(dtypes[d], GK_REDUCE_MIN, b, 3, -0.0);
        check_row(dtypes[d], GK_REDUCE_MAX, least, 2, -(double)INFINITY);
    }
}

static void integers_wrap_around(void **state)
{
    const double values[] = {2147483647, 1, -5};
    (void)state;
    check_row(GK_I32, GK_REDUCE_SUM, values, 3, 2147483643);
    check_row(GK_I32, GK_REDUCE_SUM, values, 2, -2147483648.0);
    check_row(GK_I32, GK_REDUCE_MAX, values, 3, 2147483647);
    check_row(GK_I32, GK_REDUCE_MIN, values, 3, -5);
}

static void subnormals_add_up(void **state)
{
    const double tiny = ldexp(1, -149);
    const double values[] = {tiny, tiny, tiny};
    (void)state;
    check_row(GK_F32, GK_REDUCE_SUM, values, 3, 3 * tiny);
    check_row(GK_F32, GK_REDUCE_MAX, values, 3, tiny);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        on_device(no_elements_then_a_call),
        on_device(empty_axis),
        on_device(nan_is_kept),
        on_device(first_of_equals),
        on_device(zeros_are_ordered),
        on_device(integers_wrap_around),
        on_device(subnormals_add_up),
    };
    const int missing = op_test_missing();
    return missing != 0 ? missing : GK_TEST_MAIN(tests);
}
