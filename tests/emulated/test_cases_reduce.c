/* Long sums, layouts and sizes that reduce must get right in every configuration. */
#define _GNU_SOURCE
#include "reduce_case.h"

#include <sys/mman.h>

/* --- long sums --- */

static void fill(double value)
{
    const int64_t count = op_tensor_count(&f.x.host);
    for (int64_t i = 0; i < count; i++) {
        op_buffer_set_at(&f.x, i, value);
    }
}

static void long_half_sum(void **state)
{
    (void)state;
    const gk_tensor x = gk_vector(NULL, GK_F16, 30000);
    create(&x, 0, GK_REDUCE_SUM, 0, 0);
    fill(1);
    expect();
    assert_true(f.want[0] == 30000);
    run_every();
    const gk_tensor got = op_buffer_view(&f.out, f.result);
    assert_true(op_tensor_at(&got, 0) == 30000);
    destroy();
}

static void long_bf16_mean(void **state)
{
    (void)state;
    const gk_tensor x = gk_vector(NULL, GK_BF16, 100000);
    create(&x, 0, GK_REDUCE_MEAN, GK_REDUCE_ALL, 0);
    fill(1);
    f.want[0] = 1;
    run_every();
    const gk_tensor got = op_buffer_view(&f.out, f.result);
    assert_true(op_tensor_at(&got, 0) == 1);
    destroy();
}

/* One more than f32 can count to in steps of one, and one more; the tree of a tail, too. */
static void long_f32_sum(void **state)
{
    (void)state;
    const gk_tensor x = gk_vector(NULL, GK_F32, 16777218);
    create(&x, 0, GK_REDUCE_SUM, 0, 0);
    fill(1);
    f.want[0] = 16777218;
    run_untuned();
    const gk_tensor got = op_buffer_view(&f.out, f.result);
    assert_true(op_tensor_at(&got, 0) == 16777218);
    destroy();
}

/* One thread's chain is as long as the column: the sum grows past what f32 counts in ones. */
static void long_column_sum(void **state)
{
    (void)state;
    const gk_tensor x = gk_matrix(NULL, GK_F32, 4096, 5);
    create(&x, 0, GK_REDUCE_SUM, 0, 0);
    for (int64_t i = 0; i < 4096; i++) {
        for (int64_t j = 0; j < 5; j++) {
            op_buffer_set(&f.x, i, j, i == 0 ? 16777216 : i % 2);
        }
    }
    expect();
    assert_true(f.want[0] == 16777216 + 2048);
    run_every();
    destroy();
}

/* --- layout --- */

static void padded_rows(void **state)
{
    static const double sums[] = {15, 51, 87, 123};
    static const double maxima[] = {5, 11, 17, 23};
    static const gk_dtype dtypes[] = {GK_F32, GK_F16, GK_BF16, GK_F64, GK_I32};
    (void)state;
    for (int d = 0; d < 5; d++) {
        for (int op = GK_REDUCE_SUM; op <= GK_REDUCE_ARGMAX; op++) {
            if (dtypes[d] == GK_I32 && op == GK_REDUCE_MEAN) {
                continue;
            }
            for (int axis = -1; axis < 2; axis++) {
                const gk_tensor x = gk_matrix_strided(NULL, dtypes[d], 4, 6, 8, 1);
                create(&x, 0, (gk_reduce_op)op, axis < 0 ? GK_REDUCE_ALL : axis, op % 2);
                for (int64_t i = 0; i < 24; i++) {
                    op_buffer_set_at(&f.x, i, (double)i);
                }
                expect();
                for (int i = 0; i < 4 && axis == 1; i++) {
                    assert_true(op != GK_REDUCE_SUM || f.want[i] == sums[i]);
                    assert_true(op != GK_REDUCE_MAX || f.want[i] == maxima[i]);
                }
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

static void odd_pointers(void **state)
{
    static const int64_t lengths[] = {7, 1029};
    (void)state;
    for (int n = 0; n < 2; n++) {
        for (int64_t offset = 0; offset < 8; offset++) {
            for (int across = 0; across < 2; across++) {
                const gk_tensor x = across ? gk_matrix(NULL, GK_F16, 5, lengths[n])
                                           : gk_matrix(NULL, GK_F16, 3, lengths[n]);
                create(&x, offset, GK_REDUCE_SUM, across ? 0 : 1, 0);
                fill_whole((uint64_t)offset);
                expect();
                if (offset == 3) {
                    run_every();
                } else {
                    run_untuned();
                }
                destroy();
            }
        }
    }
}

static void odd_shapes(void **state)
{
    static const gk_dtype dtypes[] = {GK_F32, GK_BF16};
    (void)state;
    for (int64_t n = 1; n <= 67; n++) {
        for (int axis = 0; axis < 3; axis++) {
            for (int d = 0; d < 2; d++) {
                const int64_t sizes[3] = {axis == 0 ? n : 3, axis == 1 ? n : 5, axis == 2 ? n : 7};
                gk_tensor x = {
                    .dtype = dtypes[d], .rank = 3, .shape = {sizes[0], sizes[1], sizes[2]}};
                x.stride[2] = 1;
                x.stride[1] = sizes[2];
                x.stride[0] = sizes[1] * sizes[2];
                for (int reduced = 0; reduced < 3; reduced++) {
                    const gk_reduce_op op = n % 2 == 0 ? GK_REDUCE_SUM : GK_REDUCE_ARGMAX;
                    create(&x, n % 3, op, reduced, 0);
                    fill_whole((uint64_t)n);
                    expect();
                    run_untuned();
                    destroy();
                }
            }
        }
    }
}

/* A view of up to GK_MAX_RANK axes in any order, with gaps between them, or repeating elements. */
static gk_tensor random_view(op_random *r, gk_dtype dtype)
{
    gk_tensor x = {.dtype = dtype, .rank = 1 + (int32_t)op_random_below(r, GK_MAX_RANK)};
    int order[GK_MAX_RANK];
    int64_t reach = 1;
    int64_t count = 1;
    for (int i = 0; i < x.rank; i++) {
        const int at = (int)op_random_below(r, (uint32_t)i + 1);
        order[i] = order[at];
        order[at] = i;
    }
    for (int i = 0; i < x.rank; i++) {
        const int axis = order[i];
        const int64_t limit = count > 2000 ? 1 : x.rank < 3 ? 67 : 9;
        const bool repeats = op_random_below(r, 8) == 0;
        x.shape[axis] = 1 + op_random_below(r, (uint32_t)limit);
        x.stride[axis] = repeats ? 0 : reach + op_random_below(r, 4) / 2 * op_random_below(r, 5);
        reach += x.stride[axis] * (x.shape[axis] - 1);
        count *= x.shape[axis];
        reach = repeats ? reach : x.stride[axis] * x.shape[axis];
    }
    return x;
}

static void random_views(void **state)
{
    static const gk_dtype dtypes[] = {GK_F32, GK_BF16, GK_F16, GK_F64, GK_I32};
    op_random r = {20};
    (void)state;
    for (int i = 0; i < 60; i++) {
        const gk_dtype dtype = dtypes[op_random_below(&r, 5)];
        const gk_tensor x = random_view(&r, dtype);
        const gk_reduce_op op = (gk_reduce_op)op_random_below(&r, 5);
        const int32_t axis = (int32_t)op_random_below(&r, (uint32_t)x.rank + 1);
        if (dtype == GK_I32 && op == GK_REDUCE_MEAN) {
            continue;
        }
        create(&x, op_random_below(&r, 3), op, axis == x.rank ? GK_REDUCE_ALL : axis,
               (int32_t)op_random_below(&r, 2));
        fill_whole((uint64_t)i);
        expect();
        if (i % 4 == 0) {
            run_every();
        } else {
            run_untuned();
        }
        destroy();
    }
}

/* out's axes may have any strides, too. */
static void strided_output(void **state)
{
    (void)state;
    const gk_reduce_params params = {sizeof(params), GK_REDUCE_SUM, 1, 0};
    const gk_tensor x = {.dtype = GK_F32, .rank = 3, .shape = {6, 9, 40}, .stride = {360, 40, 1}};
    const gk_tensor out = {.dtype = GK_F32, .rank = 2, .shape = {6, 40}, .stride = {2, 13}};
    create_as(&x, &out, 1, &params);
    fill_whole(3);
    expect();
    run_every();
    destroy();
}

static void many_outputs(void **state)
{
    (void)state;
    const gk_tensor x = gk_matrix(NULL, GK_F32, 19000, 5);
    create(&x, 0, GK_REDUCE_SUM, 1, 0);
    fill_whole(4);
    expect();
    run_every();
    destroy();
}

static void more_rows_than_a_grid_is_high(void **state)
{
    (void)state;
    enum { ROWS = 70001 };
    gk_reduce_params params = {sizeof(params), GK_REDUCE_SUM, 1, 0};
    float *data = malloc(ROWS * 5 * sizeof(float));
    float *sums = malloc(ROWS * sizeof(float));
    void *x, *out;
    assert_true(data != NULL && sums != NULL);
    for (int i = 0; i < ROWS * 5; i++) {
        data[i] = (float)(i % 4093);
    }
    assert_gk_ok(gk_mem_alloc(op_case_ctx, ROWS * 5 * sizeof(float), &x));
    assert_gk_ok(gk_mem_alloc(op_case_ctx, ROWS * sizeof(float), &out));
    assert_gk_ok(gk_mem_upload(op_case_ctx, x, data, ROWS * 5 * sizeof(float), NULL));
    const gk_tensor tx = gk_matrix(x, GK_F32, ROWS, 5);
    const gk_tensor tout = gk_vector(out, GK_F32, ROWS);
    assert_gk_ok(gk_reduce(op_case_ctx, &tx, &tout, &params, NULL));
    assert_gk_ok(gk_mem_download(op_case_ctx, sums, out, ROWS * sizeof(float), NULL));
    for (int i = 0; i < ROWS; i++) {
        float want = 0;
        for (int j = 0; j < 5; j++) {
            want += data[5 * i + j];
        }
        assert_true(sums[i] == want);
    }
    gk_mem_free(op_case_ctx, &x);
    gk_mem_free(op_case_ctx, &out);
    free(data);
    free(sums);
}

static void offsets_beyond_32_bits(void **state)
{
    (void)state;
    enum { ROWS = 3, COLS = 4 };
    static const double sums[ROWS] = {10, 26, 42};
    const int64_t stride = 1200000000;
    const size_t bytes = 4800000008;
    uint16_t row[COLS], got[COLS];
    void *x, *out;
    if (op_test_is_cpu()) {
        x = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                 -1, 0);
        assert_true(x != MAP_FAILED);
    } else {
        assert_gk_ok(gk_mem_alloc(op_case_ctx, bytes, &x));
    }
    assert_gk_ok(gk_mem_alloc(op_case_ctx, sizeof(got), &out));
    for (int i = 0; i < ROWS; i++) {
        for (int j = 0; j < COLS; j++) {
            op_value_set(GK_F16, row, j, 4 * i + j + 1);
        }
        assert_gk_ok(gk_mem_upload(op_case_ctx, (unsigned char *)x + (size_t)i * 2 * (size_t)stride,
                                   row, sizeof(row), NULL));
    }
    const gk_tensor tx = gk_matrix_strided(x, GK_F16, ROWS, COLS, stride, 1);
    for (int axis = 0; axis < 2; axis++) {
        const gk_reduce_params params = {sizeof(params), GK_REDUCE_SUM, axis, 0};
        const gk_tensor tout = gk_vector(out, GK_F16, axis == 0 ? COLS : ROWS);
        assert_gk_ok(gk_reduce(op_case_ctx, &tx, &tout, &params, NULL));
        assert_gk_ok(gk_mem_download(op_case_ctx, got, out, sizeof(got), NULL));
        for (int i = 0; i < tout.shape[0]; i++) {
            assert_true(op_value_get(GK_F16, got, i) == (axis == 1 ? sums[i] : 15 + 3 * i));
        }
    }
    if (op_test_is_cpu()) {
        munmap(x, bytes);
    } else {
        gk_mem_free(op_case_ctx, &x);
    }
    gk_mem_free(op_case_ctx, &out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        on_device(long_half_sum),
        on_device(long_bf16_mean),
        on_device(long_f32_sum),
        on_device(long_column_sum),
        on_device(padded_rows),
        on_device(odd_pointers),
        on_device(odd_shapes),
        on_device(random_views),
        on_device(strided_output),
        on_device(many_outputs),
        on_device(more_rows_than_a_grid_is_high),
        on_device(offsets_beyond_32_bits),
    };
    const int missing = op_test_missing();
    return missing != 0 ? missing : GK_TEST_MAIN(tests);
}
