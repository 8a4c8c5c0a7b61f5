/* Values and degenerate shapes that softmax and the norms must get right in every configuration. */
#define _GNU_SOURCE
#include "rows_cases.h"

#include <math.h>
#include <string.h>
#include <sys/mman.h>

/* --- rows that are not ordinary --- */

#define INF (double)INFINITY
#define NOT (double)NAN

static void check_extraordinary(rows *r, const char *what)
{
    static const double want[7][4] = {
        {NOT, NOT, NOT, NOT},     {0.5, 0, 0.5, 0},
        {NOT, NOT, NOT, NOT},     {NOT, NOT, NOT, NOT},
        {NOT, NOT, NOT, NOT},     {0.42231879825, 0.42231879825, 0.15536240350, 0},
        {0.25, 0.25, 0.25, 0.25},
    };
    for (int i = 0; i < 28; i++) {
        const double w = want[i / 4][i % 4];
        const double expected = r->attrs[0] != 0 ? log(w) : w;
        if (r->attrs[0] != 0 && i == 23) {
            rows_near(r, what, i, -1000 - log(2 + exp(-1)), 1e-3);
        } else if (isinf(expected)) {
            assert_true(rows_at(r, i) == expected);
        } else {
            rows_near(r, what, i, expected, 2e-6);
        }
    }
}

static void extraordinary_rows(void **state)
{
    static const double in[7][4] = {
        {-INF, -INF, -INF, -INF},     {0, -INF, 0, -INF}, {1, NOT, 2, 3},
        {NOT, -INF, -INF, -INF},      {INF, 0, 0, 0},     {1000, 1000, 999, 0},
        {-1000, -1000, -1000, -1000},
    };
    (void)state;
    for (int logarithm = 0; logarithm < 2; logarithm++) {
        rows r;
        const gk_tensor t = gk_matrix(NULL, GK_F32, 7, 4);
        rows_create(&r, "softmax", logarithm, 0, &t, &t, 0);
        for (int i = 0; i < 28; i++) {
            op_buffer_set(&r.args[X], i / 4, i % 4, in[i / 4][i % 4]);
        }
        assert_true(rows_every_config(&r, op_case_limit(), check_extraordinary) == 31);
        rows_destroy(&r);
    }
}

/* The same in bf16, whose results may be denormal numbers; 2^-133 apart. */
static void check_brain(rows *r, const char *what)
{
    static const double want[6][4] = {
        {0.5, 3.0273e-39, 5.544e-41, 0.5},
        {0.5, 0, 0.5, 0},
        {NOT, NOT, NOT, NOT},
        {NOT, NOT, NOT, NOT},
        {NOT, NOT, NOT, NOT},
        {0, 0.2689414, 0.7310586, 0},
    };
    for (int i = 0; i < 24; i++) {
        const double w = want[i / 4][i % 4];
        rows_near(r, what, i, w, isnan(w) ? 0 : 0.004 * w + 5e-41);
    }
}

static void brain_softmax(void **state)
{
    static const double in[6][4] = {
        {0, -88, -92, 0}, {3e38, -3e38, 3e38, 0}, {-INF, -INF, -INF, -INF},
        {1, NOT, 2, 3},   {INF, 0, -INF, 1},      {-INF, -1, 0, -3e38},
    };
    rows r;
    const gk_tensor t = gk_matrix(NULL, GK_BF16, 6, 4);
    (void)state;
    rows_create(&r, "softmax", 0, 0, &t, &t, 0);
    for (int i = 0; i < 24; i++) {
        op_buffer_set(&r.args[X], i / 4, i % 4, in[i / 4][i % 4]);
    }
    assert_true(rows_every_config(&r, op_case_limit(), check_brain) == 31);
    rows_destroy(&r);
}

/* Sums to which equal terms, each rounded the same way, add as much as the largest element. */
static void sums_of_small_terms(void **state)
{
    static const double small[3] = {-5.3, -7.61, -11.7};
    enum { COLS = 2000 };
    (void)state;
    for (int logarithm = 0; logarithm < 2; logarithm++) {
        rows r;
        const gk_tensor t = gk_matrix(NULL, GK_F32, 3, COLS);
        rows_create(&r, "softmax", logarithm, 0, &t, &t, 0);
        for (int i = 0; i < 3 * COLS; i++) {
            op_buffer_set(&r.args[X], i / COLS, i % COLS, i % COLS == 77 ? 0 : small[i / COLS]);
        }
        assert_true(rows_every_config(&r, op_case_limit(), rows_check_reference) == 31);
        rows_destroy(&r);
    }
}

/* Parts of a row that are all minus infinity, and one NaN far behind. */
static void extraordinary_parts(void **state)
{
    (void)state;
    for (int kind = 0; kind < 3; kind++) {
        rows r;
        const gk_tensor t = gk_matrix(NULL, GK_F32, 2, 20000);
        rows_create(&r, "softmax", 0, 0, &t, &t, 0);
        for (int64_t j = 0; j < 20000; j++) {
            op_buffer_set(&r.args[X], 0, j, j == 19000 ? (kind == 2 ? INF : 3) : -INF);
            op_buffer_set(&r.args[X], 1, j, kind == 1 && j == 12345 ? NOT : (double)(j % 7));
        }
        assert_true((rows_every_config(&r, op_case_limit(), rows_check_reference) & 29) == 29);
        rows_destroy(&r);
    }
}

static void check_ones(rows *r, const char *what)
{
    const int64_t count = op_tensor_count(&r->args[OUT].host);
    for (int64_t i = 0; i < count; i++) {
        rows_near(r, what, i, 1, 0);
    }
}

static void one_column(void **state)
{
    rows r;
    const gk_tensor t = gk_matrix(NULL, GK_F32, 5, 1);
    (void)state;
    rows_create(&r, "softmax", 0, 0, &t, &t, 0);
    for (int i = 0; i < 5; i++) {
        op_buffer_set(&r.args[X], i, 0, 3.5 * i - 7);
    }
    assert_true(rows_every_config(&r, op_case_limit(), check_ones) == 31);
    rows_destroy(&r);
}

/* --- many rows --- */

static void check_five(rows *r, const char *what)
{
    static const double want[] = {0.0116562310, 0.0316849208, 0.0861285444, 0.2341216611,
                                  0.6364086427};
    for (int64_t i = 0; i < 350000; i++) {
        rows_near(r, what, i, want[i % 5], 2e-6 * want[i % 5]);
    }
}

static void many_rows(void **state)
{
    rows r;
    const gk_tensor t = gk_matrix(NULL, GK_F32, 70000, 5);
    (void)state;
    rows_create(&r, "softmax", 0, 0, &t, &t, 0);
    for (int64_t i = 0; i < 350000; i++) {
        op_buffer_set_at(&r.args[X], i, (double)(i % 5));
    }
    if (op_test_is_cpu()) {
        rows_upload(&r);
        assert_gk_ok(gk_softmax(op_case_ctx, &r.args[X].device, &r.args[OUT].device, NULL));
        rows_fetch(&r);
        check_five(&r, "the guess");
    } else {
        (void)rows_every_config(&r, op_case_limit(), check_five);
    }
    rows_destroy(&r);
}

/* --- layouts --- */

static void check_columns(rows *r, const char *what)
{
    static const double want[] = {4.509404e-5, 0.00669254912, 0.9932623569};
    for (int i = 0; i < 15; i++) {
        rows_near(r, what, i, want[i % 3], 2e-6 * want[i % 3]);
    }
}

static void check_padded(rows *r, const char *what)
{
    static const double want[] = {0.00426977854, 0.0116064606, 0.0315496309,
                                  0.0857607881,  0.2331219925, 0.6336913465};
    for (int i = 0; i < 24; i++) {
        rows_near(r, what, i, want[i % 6], 2e-6 * want[i % 6]);
    }
}

static void strides_and_padding(void **state)
{
    rows r;
    const gk_tensor columns = gk_matrix_strided(NULL, GK_F32, 5, 3, 1, 5);
    const gk_tensor packed = gk_matrix(NULL, GK_F32, 5, 3);
    const gk_tensor padded = gk_matrix_strided(NULL, GK_F32, 4, 6, 8, 1);
    (void)state;
    rows_create(&r, "softmax", 0, 0, &columns, &packed, 0);
    for (int i = 0; i < 15; i++) {
        const int row = i / 3;
        op_buffer_set(&r.args[X], row, i % 3, row + 5 * (i % 3));
    }
    assert_true(rows_every_config(&r, op_case_limit(), check_columns) == 31);
    rows_destroy(&r);
    rows_create(&r, "softmax", 0, 0, &padded, &padded, 0);
    for (int i = 0; i < 24; i++) {
        op_buffer_set(&r.args[X], i / 6, i % 6, (double)i);
    }
    assert_true(rows_every_config(&r, op_case_limit(), check_padded) == 31);
    rows_destroy(&r);
}

/* Rows so far apart that their distance passes 2^31 elements: three pages of a mapping. */
static void far_apart(void **state)
{
    static const double want[] = {0.0320586033, 0.0871443187, 0.2368828181, 0.6439142599};
    const int64_t stride = 1200000000;
    (void)state;
    if (!op_test_is_cpu()) {
        return;
    }
    const size_t bytes = (size_t)(2 * stride + 4) * 2;
    uint16_t *data = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    assert_true(data != MAP_FAILED);
    uint16_t out[12];
    const gk_tensor x = gk_matrix_strided(data, GK_F16, 3, 4, stride, 1);
    const gk_tensor y = gk_matrix(out, GK_F16, 3, 4);
    for (int64_t i = 0; i < 12; i++) {
        op_value_set(GK_F16, data, i / 4 * stride + i % 4, (double)(i + 1));
    }
    assert_gk_ok(gk_softmax(op_case_ctx, &x, &y, NULL));
    assert_gk_ok(gk_synchronize(op_case_ctx, NULL));
    for (int i = 0; i < 12; i++) {
        assert_true(fabs(op_value_get(GK_F16, out, i) - want[i % 4]) < 5e-4 * want[i % 4]);
    }
    munmap(data, bytes);
}

/* --- RMS norm in half precision --- */

static void check_half(rows *r, const char *what)
{
    for (int i = 0; i < 24; i++) {
        rows_near(r, what, i, i < 8 ? 1 : i == 16 ? 2.828125 : 0, 0);
    }
}

static void half_precision_norm(void **state)
{
    rows r;
    const gk_tensor t = gk_matrix(NULL, GK_F16, 3, 8);
    (void)state;
    rows_create(&r, "norm", 0, 1e-8, &t, &t, 0);
    rows_factor(&r, WEIGHT, GK_F16, 1);
    for (int j = 0; j < 8; j++) {
        op_buffer_set(&r.args[X], 0, j, 300);
        op_buffer_set(&r.args[X], 2, j, j == 0 ? 400 : 0);
        op_buffer_set_at(&r.args[WEIGHT], j, 1);
    }
    assert_true(rows_every_config(&r, op_case_limit(), check_half) == 31);
    rows_destroy(&r);
}

/* --- no elements --- */

static void empty_then_normal(void **state)
{
    gk_statistics before = {.struct_size = sizeof(before)};
    gk_statistics after = {.struct_size = sizeof(after)};
    const gk_tensor none = gk_matrix(NULL, GK_F32, 0, 7);
    const gk_tensor thin = gk_matrix(NULL, GK_F32, 7, 0);
    (void)state;
    assert_gk_ok(gk_stats(op_case_ctx, &before));
    assert_gk_ok(gk_softmax(op_case_ctx, &none, &none, NULL));
    assert_gk_ok(gk_log_softmax(op_case_ctx, &thin, &thin, NULL));
    assert_gk_ok(gk_rms_norm(op_case_ctx, &none, NULL, &none, 1e-5, NULL));
    assert_gk_ok(gk_layer_norm(op_case_ctx, &thin, NULL, NULL, &thin, 1e-5, NULL));
    assert_gk_ok(gk_stats(op_case_ctx, &after));
    assert_true(after.compiles == before.compiles);
    one_column(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        on_device(extraordinary_rows),  on_device(brain_softmax),
        on_device(extraordinary_parts), on_device(one_column),
        on_device(many_rows),           on_device(strides_and_padding),
        on_device(far_apart),           on_device(half_precision_norm),
        on_device(empty_then_normal),   on_device(sums_of_small_terms),
    };
    const int missing = op_test_missing();
    return missing != 0 ? missing : GK_TEST_MAIN(tests);
}
