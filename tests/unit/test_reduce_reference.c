/* reduce in host memory, the smaller calls that stand for a large one, and its examples. */
#include "gk_test.h"

#include <math.h>
#include <string.h>

#include <gk/extend.h>
#include <gk/ops.h>

#include "op/reduce.h"

static gk_call call_of(const gk_tensor *x, const gk_tensor *out, int op, int axis)
{
    gk_call call = {.args = {x, out}};
    call.attrs[REDUCE_ATTR_OP] = op;
    call.attrs[REDUCE_ATTR_AXIS] = axis;
    return call;
}

static void refer(const gk_tensor *x, const gk_tensor *out, int op, int axis, double *want,
                  double *scale)
{
    const gk_call call = call_of(x, out, op, axis);
    gk_problem problem = {0};
    assert_gk_ok(gki_reduce_infer(&call, &problem));
    gki_reduce_reference(&call, &problem, want, scale);
}

static void values(void **state)
{
    float x[12] = {1, -2, 3, 4, 5, -6, 7, 8, -9, 10, 11, 12};
    float out[4] = {0};
    int32_t places[4] = {0};
    double got[4], scale[4];
    (void)state;
    const gk_tensor tx = gk_matrix(x, GK_F32, 3, 4);
    const gk_tensor rows = gk_vector(out, GK_F32, 3);
    const gk_tensor cols = gk_vector(out, GK_F32, 4);
    const gk_tensor at = gk_vector(places, GK_I32, 4);
    refer(&tx, &rows, GK_REDUCE_SUM, 1, got, scale);
    assert_true(got[0] == 6 && got[1] == 14 && got[2] == 24);
    assert_true(scale[0] >= 10 && scale[0] < 12);
    refer(&tx, &cols, GK_REDUCE_MEAN, 0, got, NULL);
    assert_true(got[0] == -1 && got[1] == 2.0 / 3 && got[3] == 8);
    refer(&tx, &cols, GK_REDUCE_MAX, 0, got, scale);
    assert_true(got[0] == 5 && got[1] == 10 && scale[0] == 0);
    refer(&tx, &cols, GK_REDUCE_MIN, 0, got, scale);
    assert_true(got[0] == -9 && got[1] == -6);
    refer(&tx, &at, GK_REDUCE_ARGMAX, 0, got, scale);
    assert_true(got[0] == 1 && got[1] == 2 && got[3] == 2);
    x[5] = NAN;
    refer(&tx, &at, GK_REDUCE_ARGMAX, 0, got, scale);
    assert_true(got[1] == 1);
    refer(&tx, &cols, GK_REDUCE_MIN, 0, got, scale);
    assert_true(isnan(got[1]) && got[0] == -9);
}

static void all_in_the_order_of_axes(void **state)
{
    float x[8] = {0, 9, 0, 0, 9, 0, 0, 0};
    int32_t place = 0;
    double got;
    (void)state;
    /* [2, 4] whose memory runs along the first axis: element (0, 2) is x[4], (1, 0) x[1]. */
    const gk_tensor tx = gk_matrix_strided(x, GK_F32, 2, 4, 1, 2);
    const gk_tensor at = gk_vector(&place, GK_I32, 1);
    refer(&tx, &at, GK_REDUCE_ARGMAX, GK_REDUCE_ALL, &got, NULL);
    assert_true(got == 2);
}

static void integers_wrap(void **state)
{
    const int32_t x[3] = {INT32_MAX, INT32_MAX, 5};
    int32_t out = 0;
    double got;
    (void)state;
    const gk_tensor tx = gk_vector((void *)(uintptr_t)x, GK_I32, 3);
    const gk_tensor tout = gk_vector(&out, GK_I32, 1);
    refer(&tx, &tout, GK_REDUCE_SUM, 0, &got, NULL);
    assert_true(got == 3);
}

/* The smaller call is of the larger one's class, whatever its axes are like. */
static void reduced_calls(void **state)
{
    static const gk_tensor large[] = {
        {.dtype = GK_F32, .rank = 2, .shape = {8192, 8192}, .stride = {8192, 1}},
        {.dtype = GK_F32, .rank = 2, .shape = {8192, 8191}, .stride = {8191, 1}},
        {.dtype = GK_F32, .rank = 2, .shape = {8192, 8192}, .stride = {1, 8194}},
        {.dtype = GK_F32, .rank = 2, .shape = {70000, 3}, .stride = {6, 2}},
        {.dtype = GK_BF16, .rank = 3, .shape = {64, 1000, 1000}, .stride = {1000000, 1000, 1}},
        {.dtype = GK_F64, .rank = 4, .shape = {9, 8, 700, 100}, .stride = {0, 1, 800, 8}},
        {.dtype = GK_F32, .rank = 2, .shape = {70000, 1}, .stride = {3, 1}},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(large) / sizeof(large[0]); i++) {
        for (int axis = 0; axis < large[i].rank; axis++) {
            gk_tensor x = large[i];
            gk_tensor out = {.dtype = x.dtype};
            int64_t stride = 1;
            for (int a = 0; a < x.rank; a++) {
                if (a != axis) {
                    out.shape[out.rank++] = x.shape[a];
                }
            }
            for (int a = out.rank; a-- > 0;) {
                out.stride[a] = stride;
                stride *= out.shape[a];
            }
            x.data = (void *)(uintptr_t)(INT64_C(1) << 44);
            out.data = (void *)(uintptr_t)(INT64_C(2) << 44);
            const gk_call call = call_of(&x, &out, GK_REDUCE_SUM, axis);
            gk_tensor tensors[GK_MAX_ARGS];
            gk_call small;
            gk_problem whole = {0}, part = {0};
            double flops, bytes;
            assert_gk_ok(gki_reduce_infer(&call, &whole));
            assert_true(gki_reduce_reduce(&call, 2000000, tensors, &small));
            tensors[REDUCE_X].data = x.data;
            tensors[REDUCE_OUT].data = out.data;
            assert_gk_ok(gki_reduce_infer(&small, &part));
            gki_op_reduce.work(&part, &flops, &bytes);
            assert_true(flops > 0 && flops <= 2000000);
            for (int d = 0; d < REDUCE_N_DIMS; d++) {
                assert_true(part.dims[d] <= whole.dims[d]);
                part.dims[d] = whole.dims[d];
            }
            if (memcmp(&part, &whole, sizeof(part)) != 0) {
                fail_msg("tensor %d axis %d: layout %d align %d, not %d %d", (int)i, axis,
                         part.layout[0], part.align[0], whole.layout[0], whole.align[0]);
            }
        }
    }
}

static void parts(void **state)
{
    float x[60], out[15] = {0};
    double whole[15], got[15];
    (void)state;
    for (int i = 0; i < 60; i++) {
        x[i] = (float)(i * i % 17);
    }
    gk_tensor tx = {
        .data = x, .dtype = GK_F32, .rank = 3, .shape = {3, 4, 5}, .stride = {20, 5, 1}};
    gk_tensor tout = gk_matrix(out, GK_F32, 3, 5);
    const gk_call call = call_of(&tx, &tout, GK_REDUCE_SUM, 1);
    refer(&tx, &tout, GK_REDUCE_SUM, 1, whole, NULL);
    gk_tensor tensors[GK_MAX_ARGS];
    gk_call part;
    uint32_t n = 0;
    for (; gki_reduce_part(&call, n, 12, tensors, &part); n++) {
        gk_problem problem = {0};
        assert_gk_ok(gki_reduce_infer(&part, &problem));
        gki_reduce_reference(&part, &problem, got, NULL);
        const gk_tensor *view = part.args[REDUCE_OUT];
        const int64_t at = (float *)view->data - out;
        for (int64_t i = 0; i < view->shape[0] * view->shape[1]; i++) {
            const int64_t row = i / view->shape[1];
            assert_true(got[i] == whole[at + row * 5 + i % view->shape[1]]);
        }
        assert_true(n != 0 || at == 0);
        assert_true(n != 1 || at + view->shape[1] == 15);
    }
    assert_true(n > 2);
    assert_false(gki_reduce_part(&call, 1, 1000, tensors, &part));
}

static void examples(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < GKI_REDUCE_CASES; i++) {
        gk_tensor tensors[GK_MAX_ARGS] = {{0}};
        gk_call call = {0};
        gk_problem problem = {0};
        assert_gk_ok(gki_reduce_example(&gki_reduce_cases[i], tensors, &call));
        tensors[REDUCE_X].data = (void *)(uintptr_t)(INT64_C(1) << 44);
        tensors[REDUCE_OUT].data = (void *)(uintptr_t)(INT64_C(2) << 44);
        assert_gk_ok(gki_reduce_infer(&call, &problem));
    }
    gk_tensor tensors[GK_MAX_ARGS];
    gk_call call = {0};
    gk_case item = {{2, 3, 4}, 0, "e4m3", "nn", 0, 0};
    assert_gk_err(gki_reduce_example(&item, tensors, &call), GK_ERR_UNSUPPORTED, "e4m3");
    item.dtype = "f99";
    assert_gk_err(gki_reduce_example(&item, tensors, &call), GK_ERR_INVALID, "f99");
    item.dtype = "f32";
    item.layout = "n";
    assert_gk_err(gki_reduce_example(&item, tensors, &call), GK_ERR_INVALID, "layout 'n'");
    item.layout = "nn";
    item.dims[1] = -1;
    assert_gk_err(gki_reduce_example(&item, tensors, &call), GK_ERR_INVALID, "AXIS is -1");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values),        cmocka_unit_test(all_in_the_order_of_axes),
        cmocka_unit_test(integers_wrap), cmocka_unit_test(reduced_calls),
        cmocka_unit_test(parts),         cmocka_unit_test(examples),
    };
    return GK_TEST_MAIN(tests);
}
