/* matmul's descriptor on the host: reference, tolerance, examples, reduced problems, work. */
#include "gk_test.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <gk/extend.h>
#include <gk/ops.h>

#include "op/matmul.h"

static const gk_op_desc *matmul(void)
{
    return gk_op_find("matmul", NULL);
}

static gk_problem infer(const gk_call *call)
{
    gk_problem p;
    memset(&p, 0, sizeof(p));
    assert_gk_ok(matmul()->infer(call, &p));
    return p;
}

static gk_call call_of(const gk_tensor *a, const gk_tensor *b, const gk_tensor *c)
{
    gk_call call;
    memset(&call, 0, sizeof(call));
    call.args[MATMUL_A] = a;
    call.args[MATMUL_B] = b;
    call.args[MATMUL_C] = c;
    call.attrs[MATMUL_ALPHA] = 1.0;
    return call;
}

/* Sum and weighted sum of a fixed product, in all four layouts. */
static void known_products(void **state)
{
    (void)state;
    enum { M = 127, N = 129, K = 31 };
    static float a[M * K], b[K * N], c[M * N];
    static double out[M * N], scale[M * N];
    for (int layout = 0; layout < 4; layout++) {
        gk_tensor ta =
            layout & 1 ? gk_matrix_strided(a, GK_F32, M, K, 1, M) : gk_matrix(a, GK_F32, M, K);
        gk_tensor tb =
            layout & 2 ? gk_matrix_strided(b, GK_F32, K, N, 1, K) : gk_matrix(b, GK_F32, K, N);
        gk_tensor tc = gk_matrix(c, GK_F32, M, N);
        for (int k = 0; k < K; k++) {
            for (int i = 0; i < M; i++) {
                a[i * ta.stride[0] + k * ta.stride[1]] = (float)((3 * i + 5 * k) % 7 - 3);
            }
            for (int j = 0; j < N; j++) {
                b[k * tb.stride[0] + j * tb.stride[1]] = (float)((2 * k + j) % 5 - 2);
            }
        }
        gk_call call = call_of(&ta, &tb, &tc);
        gk_problem p = infer(&call);
        matmul()->reference(&call, &p, out, scale);
        double sum = 0, weighted = 0;
        for (int i = 0; i < M; i++) {
            for (int j = 0; j < N; j++) {
                sum += out[i * N + j];
                weighted += (double)(i + 1) * (j + 1) * out[i * N + j];
                assert_true(scale[i * N + j] >= fabs(out[i * N + j]));
            }
        }
        assert_true(sum == 3 && weighted == -16380);
        assert_true(out[0] == -4 && out[M * N - 1] == -7);
    }
}

static void epilogue(void **state)
{
    (void)state;
    static const double expected[][2] = {
        /* act(2 * 3 * [1, -1] + 0.5 * [4, 2] + [1, 2] + [-0.5, 0.25]) = act([8.5, -2.75]) */
        {8.5, -2.75},
        {8.5, 0},
        {8.5, -0.0077231441},
        {8.5, -0.0081943489},
        {8.4982708707, -0.1652382879},
    };
    float a[] = {3}, b[] = {1, -1}, c[] = {4, 2}, bias[] = {1, 2}, residual[] = {-0.5f, 0.25f};
    const gk_tensor ta = gk_matrix(a, GK_F32, 1, 1), tb = gk_matrix(b, GK_F32, 1, 2);
    const gk_tensor tc = gk_matrix(c, GK_F32, 1, 2), tbias = gk_vector(bias, GK_F32, 2);
    const gk_tensor tresidual = gk_matrix(residual, GK_F32, 1, 2);
    for (int act = 0; act < 5; act++) {
        gk_call call = call_of(&ta, &tb, &tc);
        call.args[MATMUL_BIAS] = &tbias;
        call.args[MATMUL_RESIDUAL] = &tresidual;
        call.attrs[MATMUL_ACTIVATION] = act;
        call.attrs[MATMUL_ALPHA] = 2;
        call.attrs[MATMUL_BETA] = 0.5;
        const gk_problem p = infer(&call);
        double out[2];
        matmul()->reference(&call, &p, out, NULL);
        for (int j = 0; j < 2; j++) {
            assert_true(fabs(out[j] - expected[act][j]) < 1e-8);
        }
    }
}

static void special_values(void **state)
{
    (void)state;
    float a[] = {NAN, -3, INFINITY, -INFINITY}, b[] = {1}, c[4] = {NAN, NAN, NAN, NAN};
    const gk_tensor ta = gk_matrix(a, GK_F32, 4, 1), tb = gk_matrix(b, GK_F32, 1, 1);
    const gk_tensor tc = gk_matrix(c, GK_F32, 4, 1);
    gk_call call = call_of(&ta, &tb, &tc);
    call.attrs[MATMUL_ACTIVATION] = GK_ACT_RELU;
    double out[4];
    gk_problem p = infer(&call);
    matmul()->reference(&call, &p, out, NULL);
    assert_true(isnan(out[0]) && out[1] == 0 && out[2] == (double)INFINITY && out[3] == 0);
    /* alpha 0: a and b are not read; beta not 0: c is. */
    for (int i = 0; i < 4; i++) {
        c[i] = 2;
    }
    call.attrs[MATMUL_ALPHA] = 0;
    call.attrs[MATMUL_BETA] = 1;
    p = infer(&call);
    matmul()->reference(&call, &p, out, NULL);
    for (int i = 0; i < 4; i++) {
        assert_true(out[i] == 2);
    }
}

static void integers_wrap_around(void **state)
{
    (void)state;
    int32_t a[] = {INT32_MAX, 1, 3}, b[] = {2, 5, -7}, c[] = {10};
    const gk_tensor ta = gk_matrix(a, GK_I32, 1, 3), tb = gk_matrix(b, GK_I32, 3, 1);
    const gk_tensor tc = gk_matrix(c, GK_I32, 1, 1);
    gk_call call = call_of(&ta, &tb, &tc);
    call.attrs[MATMUL_BETA] = 1;
    const gk_problem p = infer(&call);
    double out = 0;
    matmul()->reference(&call, &p, &out, NULL);
    assert_true(out == -2 + 5 - 21 + 10);
    const gk_tolerance t = matmul()->tolerance(&p);
    assert_true(t.relative == 0 && t.absolute == 0);
}

/* Each element rounded to c's dtype is within the tolerance; one unit further off is not. */
static void tolerance_is_a_rounding(void **state)
{
    (void)state;
    uint16_t a[] = {0x3f80}, b[] = {0x3f80}, c[1];
    const gk_tensor ta = gk_matrix(a, GK_BF16, 1, 1), tb = gk_matrix(b, GK_BF16, 1, 1);
    const gk_tensor tc = gk_matrix(c, GK_BF16, 1, 1);
    const gk_call call = call_of(&ta, &tb, &tc);
    const gk_problem p = infer(&call);
    double out, scale;
    matmul()->reference(&call, &p, &out, &scale);
    const gk_tolerance t = matmul()->tolerance(&p);
    const double allowed = t.absolute + t.relative * scale;
    assert_true(out == 1);
    assert_true(allowed >= 0x1p-8 && allowed < 0x1.01p-8);
}

/* A lost tile of 32 of 4096 products of N(0,1) changes an element by about 5.7. */
static void tolerance_finds_lost_tiles(void **state)
{
    (void)state;
    static const int dtypes[] = {GK_F32, GK_F16, GK_BF16, GK_E4M3, GK_E5M2};
    for (size_t i = 0; i < 5; i++) {
        for (int math = GK_MATH_F32; math <= (i == 0 ? GK_MATH_TF32 : GK_MATH_F32); math++) {
            gk_problem p = {.dims = {64, 64, 4096}, .attrs = {[MATMUL_MATH] = (uint8_t)math}};
            p.dtype[MATMUL_A] = p.dtype[MATMUL_B] = (uint8_t)dtypes[i];
            p.dtype[MATMUL_C] = GK_F32;
            const double sum_of_magnitudes = 4096 * 0.6366;
            const double limit = gk_dtype_size((gk_dtype)dtypes[i]) == 1 ? 4 : 2;
            assert_true(matmul()->tolerance(&p).relative * sum_of_magnitudes < limit);
        }
    }
}

static void examples(void **state)
{
    (void)state;
    gk_tensor t[GK_MAX_ARGS];
    gk_call call;
    memset(&call, 0, sizeof(call));
    gk_case item = {{6, 8, 10}, 0, "bf16:f32", "tn", 3, 0};
    assert_gk_ok(matmul()->example(&item, t, &call));
    assert_int_equal(t[MATMUL_A].dtype, GK_BF16);
    assert_int_equal(t[MATMUL_C].dtype, GK_F32);
    assert_int_equal(t[MATMUL_A].stride[0], 1);
    assert_int_equal(t[MATMUL_A].stride[1], 9);
    assert_int_equal(t[MATMUL_B].stride[0], 11);
    assert_int_equal(t[MATMUL_C].stride[0], 11);
    assert_ptr_equal(call.args[MATMUL_B], &t[MATMUL_B]);
    item.dtype = "tf32";
    assert_gk_ok(matmul()->example(&item, t, &call));
    assert_int_equal(t[MATMUL_A].dtype, GK_F32);
    assert_true(call.attrs[MATMUL_MATH] == GK_MATH_TF32);
    item.dtype = "e4m3+f32:f16";
    assert_gk_ok(matmul()->example(&item, t, &call));
    assert_int_equal(t[MATMUL_A].dtype, GK_E4M3);
    assert_int_equal(t[MATMUL_C].dtype, GK_F16);
    assert_true(call.attrs[MATMUL_MATH] == GK_MATH_F32);
    call.attrs[MATMUL_MATH] = GK_MATH_DEFAULT;
    static const char *const defaults[][2] = {{"e4m3", "bf16"}, {"u8", "i32"}, {"f64", "f64"}};
    for (int i = 0; i < 3; i++) {
        item.dtype = defaults[i][0];
        assert_gk_ok(matmul()->example(&item, t, &call));
        assert_string_equal(gk_dtype_name((gk_dtype)t[MATMUL_C].dtype), defaults[i][1]);
    }
    static const char *const bad[] = {"f33",  "",          "bf16:",    ":f32",         "bf16:q",
                                      "+f32", "bf16+f32x", "tf32+f32", "verylongname", NULL};
    for (int i = 0; i < 10; i++) {
        item.dtype = bad[i];
        assert_gk_err(matmul()->example(&item, t, &call), GK_ERR_INVALID, "dtype");
    }
    item.dtype = "f32";
    item.layout = "nx";
    assert_gk_err(matmul()->example(&item, t, &call), GK_ERR_INVALID, "layout 'nx'");
    item.layout = NULL;
    item.dims[2] = -1;
    assert_gk_err(matmul()->example(&item, t, &call), GK_ERR_INVALID, "K is -1");
    item.dims[2] = INT64_MAX;
    assert_gk_err(matmul()->example(&item, t, &call), GK_ERR_INVALID, "does not fit");
}

/* Gives tensors without data addresses far apart. */
static void place(gk_tensor *t, int64_t offset)
{
    for (int i = 0; i < MATMUL_N_ARGS; i++) {
        const uintptr_t address =
            ((uintptr_t)(i + 1) << 44) + (uintptr_t)offset * gk_dtype_size((gk_dtype)t[i].dtype);
        t[i].data = (void *)address;
    }
}

static void every_case_is_valid(void **state)
{
    (void)state;
    const gk_op_desc *op = matmul();
    uint32_t bench = 0;
    for (uint32_t i = 0; i < op->n_cases; i++) {
        gk_tensor t[GK_MAX_ARGS];
        gk_call call;
        memset(&call, 0, sizeof(call));
        memset(t, 0, sizeof(t));
        call.attrs[MATMUL_ALPHA] = 1;
        assert_gk_ok(op->example(&op->cases[i], t, &call));
        place(t, op->cases[i].offset);
        const gk_problem p = infer(&call);
        assert_memory_equal(p.dims, op->cases[i].dims, sizeof(p.dims));
        bench += (op->cases[i].tags & GK_CASE_BENCH) != 0;
    }
    assert_int_equal(bench, 31);
}

static void reduced_problems_are_of_the_same_class(void **state)
{
    (void)state;
    const gk_op_desc *op = matmul();
    for (uint32_t i = 0; i < op->n_cases; i++) {
        gk_tensor t[GK_MAX_ARGS], small[GK_MAX_ARGS];
        gk_call call, reduced;
        memset(&call, 0, sizeof(call));
        memset(t, 0, sizeof(t));
        call.attrs[MATMUL_ALPHA] = 1;
        assert_gk_ok(op->example(&op->cases[i], t, &call));
        place(t, op->cases[i].offset);
        gk_problem p = infer(&call);
        assert_true(op->reduce(&call, 20000000, small, &reduced));
        for (int arg = MATMUL_A; arg <= MATMUL_C; arg++) {
            assert_null(small[arg].data);
            assert_ptr_equal(reduced.args[arg], &small[arg]);
        }
        place(small, op->cases[i].offset);
        gk_problem q = infer(&reduced);
        double flops, bytes;
        op->work(&q, &flops, &bytes);
        assert_true(flops <= 20000000);
        for (int d = 0; d < MATMUL_N_DIMS; d++) {
            assert_true(q.dims[d] <= p.dims[d]);
            if (q.dims[d] != p.dims[d]) { /* ragged, but as variants tell sizes apart */
                assert_int_equal(q.dims[d] % 16, p.dims[d] % 16);
                assert_true(q.dims[d] < 32 || q.dims[d] % 32 != 0);
                assert_true(q.dims[d] > 1);
            }
            q.dims[d] = p.dims[d];
        }
        assert_memory_equal(&p, &q, sizeof(p));
    }
    /* Room for more than one of the largest tiles. */
    gk_tensor t[GK_MAX_ARGS], small[GK_MAX_ARGS];
    gk_call call, reduced;
    memset(&call, 0, sizeof(call));
    const gk_case large = {{8192, 8192, 8192}, 0, "bf16", "nn", 0, 0};
    assert_gk_ok(op->example(&large, t, &call));
    assert_true(op->reduce(&call, 20000000, small, &reduced));
    assert_true(small[MATMUL_C].shape[0] > 256 && small[MATMUL_C].shape[1] > 256);
    assert_true(small[MATMUL_A].shape[1] > 64);
    /* Few flops an element are no reason to check millions of elements. */
    memset(&call, 0, sizeof(call));
    const gk_case flat = {{7507, 320, 1}, 0, "bf16", "nn", 0, 0};
    assert_gk_ok(op->example(&flat, t, &call));
    assert_true(op->reduce(&call, 20000000, small, &reduced));
    assert_in_range(small[MATMUL_C].shape[0] * small[MATMUL_C].shape[1], 100000, 200000);
    assert_true(small[MATMUL_C].shape[0] > 256 && small[MATMUL_C].shape[1] > 256);
}

static void parts_are_views(void **state)
{
    (void)state;
    enum { M = 100, N = 150, K = 20 };
    static float a[M * K], b[K * N], c[M * N], bias[N];
    static double whole[M * N], out[M * N];
    for (int i = 0; i < M * K; i++) {
        a[i] = (float)(i % 13 - 6);
    }
    for (int i = 0; i < K * N; i++) {
        b[i] = (float)(i % 11 - 5);
    }
    for (int j = 0; j < N; j++) {
        bias[j] = (float)j;
    }
    const gk_tensor ta = gk_matrix_strided(a, GK_F32, M, K, 1, M), tb = gk_matrix(b, GK_F32, K, N);
    const gk_tensor tc = gk_matrix_strided(c, GK_F32, M, N, 1, M);
    const gk_tensor tbias = gk_vector(bias, GK_F32, N);
    gk_call call = call_of(&ta, &tb, &tc);
    call.args[MATMUL_BIAS] = &tbias;
    gk_problem p = infer(&call);
    matmul()->reference(&call, &p, whole, NULL);
    gk_tensor t[GK_MAX_ARGS];
    gk_call part;
    bool first = false, last = false;
    uint32_t n = 0;
    for (; matmul()->part(&call, n, 2 * K * 500, t, &part); n++) {
        const gk_tensor *pc = part.args[MATMUL_C];
        gk_problem q = infer(&part);
        double flops, bytes;
        matmul()->work(&q, &flops, &bytes);
        assert_true(flops <= 2 * K * 500 && flops >= 2 * K * 250);
        assert_int_equal(q.dims[MATMUL_K], K);
        matmul()->reference(&part, &q, out, NULL);
        const int64_t at = ((const float *)pc->data - c);
        const int64_t row = at % M, col = at / M;
        first = first || at == 0;
        last = last || (row + pc->shape[0] == M && col + pc->shape[1] == N);
        assert_true(row + pc->shape[0] <= M && col + pc->shape[1] <= N);
        for (int64_t i = 0; i < pc->shape[0]; i++) {
            for (int64_t j = 0; j < pc->shape[1]; j++) {
                assert_true(out[i * pc->shape[1] + j] == whole[(row + i) * N + col + j]);
            }
        }
    }
    assert_true(first && last && n > 2);
    assert_true(matmul()->part(&call, 0, 2 * M * N * K, t, &part));
    assert_false(matmul()->part(&call, 1, INT64_MAX, t, &part));
}

static void work_and_peak(void **state)
{
    (void)state;
    gk_problem p = {.dims = {10, 20, 30}, .dtype = {GK_F16, GK_F16, GK_F32}};
    double flops, bytes;
    matmul()->work(&p, &flops, &bytes);
    assert_true(flops == 12000 && bytes == 600 + 1200 + 800);
    p.attrs[MATMUL_BETA] = 1;
    matmul()->work(&p, &flops, &bytes);
    assert_true(bytes == 600 + 1200 + 1600);
    gk_device_info h100 = {.cc = 90, .sm_count = 132, .clock_khz = 1830000};
    assert_true(fabs(matmul()->peak(&p, &h100) / 989.4e12 - 1) < 0.001);
    h100.cc = 70;
    assert_true(matmul()->peak(&p, &h100) == 0);
}

static void names(void **state)
{
    (void)state;
    const gk_preset *preset;
    assert_ptr_equal(gk_op_find("matmul_relu", &preset), gk_op_at(0));
    assert_string_equal(preset->name, "matmul_relu");
    assert_true(preset->attrs[MATMUL_ACTIVATION] == GK_ACT_RELU);
    assert_true(preset->attrs[MATMUL_ALPHA] == 1);
    assert_ptr_equal(gk_op_find("matmul", &preset), gk_op_at(0));
    assert_null(preset);
    assert_null(gk_op_find("no_such_op", &preset));
    assert_null(gk_op_find(NULL, NULL));
    assert_null(gk_op_at(1000000));
}

static void constants(void **state)
{
    (void)state;
    gk_problem p = {.dims = {10, 20, 30},
                    .dtype = {GK_E4M3, GK_E4M3, GK_BF16, GK_F32},
                    .align = {16, 8, 4},
                    .attrs = {GK_ACT_GELU_TANH, GK_MATH_F32}};
    gk_constants c;
    memset(&c, 0, sizeof(c));
    gki_matmul_constants(&p, &c);
    assert_string_equal(c.tag, "gelu_tanh_e4m3p_bf16");
    assert_int_equal(c.n_items, 14);
    assert_string_equal(c.items[3].name, "BIAS_TYPE");
    assert_int_equal(c.items[3].value, GK_F32);
    p.attrs[MATMUL_MATH] = GK_MATH_DEFAULT;
    memset(&c, 0, sizeof(c));
    gki_matmul_constants(&p, &c);
    assert_string_equal(c.tag, "gelu_tanh_e4m3_bf16");
    gk_launch launch;
    memset(&launch, 0, sizeof(launch));
    gki_matmul_grid(&p, 8, 16, 4, &launch);
    assert_int_equal(launch.grid, 2 * 2 * 4);
    assert_int_equal(launch.workspace, 16 * 8 * 16 * 4);
    assert_int_equal(launch.zeroed, 4 * 8);
    p.dims[MATMUL_M] = INT64_MAX;
    gki_matmul_grid(&p, 1, 1, 4, &launch);
    assert_true(launch.grid == INT64_MAX && launch.workspace == INT64_MAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(known_products),
        cmocka_unit_test(epilogue),
        cmocka_unit_test(special_values),
        cmocka_unit_test(integers_wrap_around),
        cmocka_unit_test(tolerance_is_a_rounding),
        cmocka_unit_test(tolerance_finds_lost_tiles),
        cmocka_unit_test(examples),
        cmocka_unit_test(every_case_is_valid),
        cmocka_unit_test(reduced_problems_are_of_the_same_class),
        cmocka_unit_test(parts_are_views),
        cmocka_unit_test(work_and_peak),
        cmocka_unit_test(names),
        cmocka_unit_test(constants),
    };
    return GK_TEST_MAIN(tests);
}
