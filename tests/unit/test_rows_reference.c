/* softmax's and the norms' references, against values worked out by hand. */
#include "gk_test.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <gk/gk.h>

static void refer(const char *op, const gk_call *call, double *out, double *scale)
{
    const gk_op_desc *desc = gk_op_find(op, NULL);
    gk_problem problem;
    memset(&problem, 0, sizeof(problem));
    assert_gk_ok(desc->infer(call, &problem));
    desc->reference(call, &problem, out, scale);
}

static void close_to(double got, double want)
{
    if (isnan(want) ? !isnan(got) : !(got == want || fabs(got - want) <= 1e-12 * fabs(want))) {
        fail_msg("%.17g, not %.17g", got, want);
    }
}

/* exp(log 1), exp(log 2), exp(log 5): eighths. */
static void softmax(void **state)
{
    double x[6] = {0, 0.6931471805599453, 1.6094379124341003, 1000, -INFINITY, 1000};
    double y[6];
    double out[6];
    double scale[6];
    const double want[6] = {0.125, 0.25, 0.625, 0.5, 0, 0.5};
    const gk_tensor tx = gk_matrix(x, GK_F64, 2, 3);
    const gk_tensor ty = gk_matrix(y, GK_F64, 2, 3);
    gk_call call = {.args = {&tx, &ty}};
    (void)state;
    refer("softmax", &call, out, scale);
    for (int i = 0; i < 6; i++) {
        close_to(out[i], want[i]);
        assert_true(scale[i] >= 10 * out[i]);
    }
    call.attrs[0] = 1;
    refer("softmax", &call, out, NULL);
    for (int i = 0; i < 6; i++) {
        close_to(out[i], log(want[i]));
    }
    x[1] = NAN;
    x[3] = INFINITY;
    refer("softmax", &call, out, NULL);
    for (int i = 0; i < 6; i++) {
        close_to(out[i], NAN);
    }
}

/* Columns as rows: the view's strides count, and so do the factors'. */
static void norms(void **state)
{
    float x[4] = {3, 1, 4, 7}; /* rows 3 4 and 1 7 */
    float y[4];
    float weight[3] = {2, 99, 3};
    float bias[2] = {10, 20};
    double out[4];
    double scale[4];
    const gk_tensor tx = gk_matrix_strided(x, GK_F32, 2, 2, 1, 2);
    const gk_tensor ty = gk_matrix(y, GK_F32, 2, 2);
    gk_tensor tw = gk_vector(weight, GK_F32, 2);
    const gk_tensor tb = gk_vector(bias, GK_F32, 2);
    tw.stride[0] = 2;
    gk_call call = {.args = {&tx, &ty}};
    (void)state;
    refer("norm", &call, out, NULL);
    close_to(out[0], 3 / sqrt(12.5));
    close_to(out[3], 7 / 5.0);
    call.args[2] = &tw;
    call.args[3] = &tb;
    call.attrs[1] = 3.5;
    refer("norm", &call, out, scale);
    close_to(out[0], 3 / 4.0 * 2 + 10);
    close_to(out[1], 4 / 4.0 * 3 + 20);
    assert_true(scale[1] >= 10 * 3 + 2 * 20);
    /* Variance 9 around 4, and 7 of eps. */
    call.attrs[0] = 1;
    call.attrs[1] = 7;
    refer("norm", &call, out, NULL);
    close_to(out[2], -3 / 4.0 * 2 + 10);
    close_to(out[3], 3 / 4.0 * 3 + 20);
}

/* What out cannot hold becomes what its conversion makes of it. */
static void a_narrow_output(void **state)
{
    float x[2] = {1, 1};
    float weight[2] = {60000, 70000};
    uint16_t y[2];
    double out[2];
    const gk_tensor tx = gk_vector(x, GK_F32, 2);
    const gk_tensor ty = gk_vector(y, GK_F16, 2);
    const gk_tensor tw = gk_vector(weight, GK_F32, 2);
    const gk_call call = {.args = {&tx, &ty, &tw}};
    (void)state;
    refer("norm", &call, out, NULL);
    close_to(out[0], 60000);
    assert_true(isinf(out[1]));
}

/* Added up in f64 one after the other, so many terms are off by more than an f64 kernel may be. */
static void a_long_row(void **state)
{
    enum { N = 70000 };
    double *x = malloc(N * sizeof(double));
    double *out = malloc(N * sizeof(double));
    const gk_tensor tx = gk_vector(x, GK_F64, N);
    gk_call call = {.args = {&tx, &tx}, .attrs = {1}};
    (void)state;
    assert_non_null(x);
    assert_non_null(out);
    for (int j = 0; j < N; j++) {
        x[j] = j % 2 == 0 ? 0 : -0.1;
    }
    refer("softmax", &call, out, NULL);
    assert_true(fabs(out[0] + log(0.5 * N * (1 + exp(-0.1)))) <= 4e-15);
    for (int j = 0; j < N; j++) {
        x[j] = 0.1;
    }
    call.attrs[0] = 0;
    call.attrs[1] = 0;
    refer("norm", &call, out, NULL);
    assert_true(fabs(out[0] - 1) <= 4e-16);
    free(x);
    free(out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(softmax),
        cmocka_unit_test(norms),
        cmocka_unit_test(a_narrow_output),
        cmocka_unit_test(a_long_row),
    };
    return GK_TEST_MAIN(tests);
}
