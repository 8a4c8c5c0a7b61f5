/* Elementwise expressions: hard inputs with known results, texts and their answers. */
#include "map_cases.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- O-03: zero elements, then a normal call --- */

static void empty_then_normal(void **state)
{
    (void)state;
    const double a[] = {1, 2, 3, 4}, b[] = {10, 20, 30, 40}, c[] = {11, 22, 33, 44};
    const gk_tensor none = gk_vector(NULL, GK_F32, 0);
    const gk_tensor four = gk_vector(NULL, GK_F32, 4);
    const gk_tensor rows = gk_matrix(NULL, GK_F32, 0, 7);
    gk_statistics before = {.struct_size = sizeof(before)};
    gk_statistics after = before;
    assert_gk_ok(gk_stats(op_case_ctx, &before));
    assert_gk_ok(gk_add(op_case_ctx, &none, &none, &none, NULL));
    assert_gk_ok(gk_silu(op_case_ctx, &none, &none, NULL));
    assert_gk_ok(gk_relu(op_case_ctx, &rows, &rows, NULL));
    assert_gk_ok(gk_stats(op_case_ctx, &after));
    assert_int_equal(after.calls, before.calls);
    assert_int_equal(after.compiles, before.compiles);
    map_case f;
    map_case_create(&f, "x0 + x1", 2, (gk_tensor[]){four, four}, &four, NULL, -1);
    for (int i = 0; i < 4; i++) {
        op_buffer_set_at(&f.x[0], i, a[i]);
        op_buffer_set_at(&f.x[1], i, b[i]);
    }
    map_case_upload(&f);
    assert_gk_ok(gk_add(op_case_ctx, &f.x[0].device, &f.x[1].device, &f.out.device, NULL));
    map_case_fetch(&f);
    map_case_check_values(&f, "gk_add", c, 4);
    assert_true(map_case_every_config(&f, c, 0) > 0);
    map_case_destroy(&f);
}

/* --- O-08: pointers that are not vector-aligned --- */

static void run_offsets(int64_t n, const int64_t *offsets, uint32_t seed)
{
    const gk_tensor shape = gk_vector(NULL, GK_F16, n);
    double *want = malloc((size_t)n * sizeof(double));
    map_case f;
    assert_non_null(want);
    map_case_create(&f, "x0 + x1", 2, (gk_tensor[]){shape, shape}, &shape, offsets, -1);
    for (int64_t i = 0; i < n; i++) {
        op_buffer_set_at(&f.x[0], i, (double)(i % 16));
        op_buffer_set_at(&f.x[1], i, (double)(10 * (i % 16)));
        want[i] = (double)(11 * (i % 16));
    }
    map_case_upload(&f);
    assert_gk_ok(gk_add(op_case_ctx, &f.x[0].device, &f.x[1].device, &f.out.device, NULL));
    map_case_fetch(&f);
    map_case_check_values(&f, "gk_add", want, n);
    if (n > 7) {
        assert_true(map_case_every_config(&f, want, seed) > 0);
    }
    free(want);
    map_case_destroy(&f);
}

static void odd_offsets(void **state)
{
    (void)state;
    for (int64_t i = 0; i < 512; i++) {
        run_offsets(7, (int64_t[]){i % 8, i / 8 % 8, i / 64}, 0);
    }
    for (int64_t i = 0; i < 27; i += op_test_is_cpu() ? 5 : 1) {
        run_offsets(1029, (int64_t[]){1 + 2 * (i % 3), 1 + 2 * (i / 3 % 3), 1 + 2 * (i / 9)},
                    (uint32_t)i);
    }
}

/* --- O-10, O-14: NaN, infinities, the far ends --- */

static void relu_keeps_nan(void **state)
{
    (void)state;
    const double in[] = {(double)NAN, -3, (double)INFINITY, -(double)INFINITY, 2, 0};
    const double want[] = {(double)NAN, 0, (double)INFINITY, 0, 2, 0};
    static const gk_dtype types[] = {GK_F32, GK_F16, GK_BF16, GK_F64};
    for (int t = 0; t < 4; t++) {
        const gk_tensor shape = gk_vector(NULL, types[t], 6);
        map_case f;
        map_case_create(&f, "relu(x0)", 1, &shape, &shape, NULL, -1);
        for (int i = 0; i < 6; i++) {
            op_buffer_set_at(&f.x[0], i, in[i]);
        }
        map_case_upload(&f);
        assert_gk_ok(gk_relu(op_case_ctx, &f.x[0].device, &f.out.device, NULL));
        map_case_fetch(&f);
        map_case_check_values(&f, "gk_relu", want, 6);
        assert_true(map_case_every_config(&f, want, (uint32_t)t) > 0);
        map_case_destroy(&f);
    }
}

static void silu_at_the_extremes(void **state)
{
    (void)state;
    const double inf = (double)INFINITY;
    for (int half = 0; half < 2; half++) {
        const gk_dtype type = half ? GK_F16 : GK_F32;
        const double in[] = {-inf, half ? -6e4 : -1e4, -100, -0.0, 0.0, 100, inf, (double)NAN};
        const double want[] = {0, 0, half ? 0 : -3.72e-42, -0.0, 0.0, 100, inf, (double)NAN};
        const gk_tensor shape = gk_vector(NULL, type, 8);
        map_case f;
        map_case_create(&f, "silu(x0)", 1, &shape, &shape, NULL, -1);
        for (int i = 0; i < 8; i++) {
            op_buffer_set_at(&f.x[0], i, in[i]);
        }
        map_case_upload(&f);
        assert_gk_ok(gk_silu(op_case_ctx, &f.x[0].device, &f.out.device, NULL));
        map_case_fetch(&f);
        for (int i = 0; i < 8; i++) {
            const double got = map_case_result(&f, i);
            assert_true(isnan(want[i]) ? isnan(got)
                                       : got == want[i] || fabs(got - want[i]) <= 1e-41);
        }
        assert_true(signbit(map_case_result(&f, 3)) && !signbit(map_case_result(&f, 4)));
        assert_true(map_case_every_config(&f, NULL, (uint32_t)half) > 0);
        map_case_destroy(&f);
    }
}

/* Results in 16 bits over all of the type, within a unit in the last place. */
static void activations_everywhere(void **state)
{
    (void)state;
    static const char *const names[] = {"silu(x0)",
                                        "gelu(x0)",
                                        "gelu_tanh(x0)",
                                        "sigmoid(x0)",
                                        "exp(x0)",
                                        "tanh(x0)",
                                        "erf(x0)",
                                        "log(x0)",
                                        "silu(x0) * 3",
                                        "x0 > 1 ? -gelu(x0) / 7 : gelu(x0)",
                                        "gelu_tanh(x0) - x0",
                                        "1 - sigmoid(x0)"};
    static const gk_dtype types[] = {GK_BF16, GK_F16};
    const gk_tensor shapes[] = {gk_vector(NULL, GK_BF16, 65536), gk_vector(NULL, GK_F16, 65536)};
    for (int t = 0; t < 2; t++) {
        map_case f;
        map_case_create(&f, names[0], 1, &shapes[t], &shapes[t], NULL, -1);
        for (int64_t i = 0; i < 65536; i++) {
            const uint16_t bits = (uint16_t)i;
            op_buffer_set_at(&f.x[0], i, op_value_get(types[t], &bits, 0));
        }
        for (size_t n = 0; n < sizeof(names) / sizeof(names[0]); n++) {
            f.text = names[n];
            map_case_upload(&f);
            const gk_tensor x = f.x[0].device;
            assert_gk_ok(gk_map(op_case_ctx, names[n], &x, 1, &f.out.device, NULL));
            map_case_fetch(&f);
            map_case_check(&f, "gk_map");
        }
        map_case_destroy(&f);
    }
}

/* --- O-17, O-18: subnormals, rounding --- */

static void check_bits(gk_dtype type, int n, const uint32_t *a, const uint32_t *b,
                       const uint32_t *want)
{
    const size_t size = gk_dtype_size(type);
    const gk_tensor shape = gk_vector(NULL, type, n);
    map_case f;
    map_case_create(&f, "x0 + x1", 2, (gk_tensor[]){shape, shape}, &shape, NULL, -1);
    for (int i = 0; i < n; i++) {
        memcpy((unsigned char *)f.x[0].host.data + (size_t)i * size, &a[i], size);
        memcpy((unsigned char *)f.x[1].host.data + (size_t)i * size, &b[i], size);
    }
    map_case_upload(&f);
    assert_gk_ok(gk_add(op_case_ctx, &f.x[0].device, &f.x[1].device, &f.out.device, NULL));
    map_case_fetch(&f);
    const gk_tensor view = op_buffer_view(&f.out, f.result);
    for (int i = 0; i < n; i++) {
        uint32_t got = 0;
        memcpy(&got, (unsigned char *)view.data + (size_t)i * size, size);
        if (want[i] == 0xffffffffu) {
            assert_true(isnan(map_case_result(&f, i)));
        } else if (got != want[i]) {
            fail_msg("%08x + %08x gives %08x, not %08x", (unsigned)a[i], (unsigned)b[i],
                     (unsigned)got, (unsigned)want[i]);
        }
    }
    assert_true(map_case_every_config(&f, NULL, 3) > 0);
    map_case_destroy(&f);
}

static void subnormals(void **state)
{
    (void)state;
    check_bits(GK_F32, 4, (uint32_t[]){0x00400000, 0x00000001, 0x00800000, 0x00000001},
               (uint32_t[]){0x00400000, 0x00000001, 0x80400000, 0x00000000},
               (uint32_t[]){0x00800000, 0x00000002, 0x00400000, 0x00000001});
}

static void bf16_rounding(void **state)
{
    (void)state;
    check_bits(GK_BF16, 6, (uint32_t[]){0x3f80, 0x3f81, 0x3f80, 0x7f7f, 0x7f7f, 0x7f81},
               (uint32_t[]){0x3b80, 0x3b80, 0x3bc0, 0x7f7f, 0x7780, 0x0000},
               (uint32_t[]){0x3f80, 0x3f82, 0x3f81, 0x7f80, 0x7f7f, 0xffffffffu});
}

/* --- one rounding or two --- */

static void contraction(void **state)
{
    (void)state;
    /* (1 + e)(1 - e) = 1 - e^2, which f32 rounds to 1. */
    const double e = 0x1p-13;
    const gk_tensor shape = gk_vector(NULL, GK_F32, 33);
    const gk_tensor all[3] = {shape, shape, shape};
    for (int fused = 0; fused < 2; fused++) {
        double want[33];
        map_case f;
        map_case_create(&f, fused ? "fma(x0, x1, x2)" : "x0 * x1 + x2", 3, all, &shape, NULL, -1);
        for (int i = 0; i < 33; i++) {
            op_buffer_set_at(&f.x[0], i, 1 + e);
            op_buffer_set_at(&f.x[1], i, 1 - e);
            op_buffer_set_at(&f.x[2], i, -1);
            want[i] = fused ? -e * e : 0;
        }
        assert_true(map_case_every_config(&f, want, 0) > 0);
        map_case_upload(&f);
        if (fused) {
            assert_gk_ok(gk_fma(op_case_ctx, &f.x[0].device, &f.x[1].device, &f.x[2].device,
                                &f.out.device, NULL));
            map_case_fetch(&f);
            map_case_check_values(&f, "gk_fma", want, 33);
        }
        map_case_destroy(&f);
    }
}

/* --- O-22: in place on a cold cache --- */

static void in_place(void **state)
{
    (void)state;
    const gk_tensor shape = gk_vector(NULL, GK_F32, 1000);
    double want[1000];
    gk_context *ctx = op_case_ctx;
    op_case_ctx = op_test_context(GK_MODE_TUNE, NULL);
    map_case f;
    map_case_create(&f, "x0 + x1", 2, (gk_tensor[]){shape, shape}, &shape, NULL, 0);
    for (int i = 0; i < 1000; i++) {
        op_buffer_set_at(&f.out, i, i);
        op_buffer_set_at(&f.x[1], i, 1);
    }
    map_case_upload(&f);
    for (int round = 1; round <= 2; round++) {
        assert_gk_ok(gk_add(op_case_ctx, &f.out.device, &f.x[1].device, &f.out.device, NULL));
        map_case_fetch(&f);
        for (int i = 0; i < 1000; i++) {
            want[i] = i + round;
        }
        map_case_check_values(&f, "gk_add in place", want, 1000);
    }
    map_case_destroy(&f);
    gk_context_destroy(&op_case_ctx);
    op_case_ctx = ctx;
    map_case_create(&f, "x0 + x1", 2, (gk_tensor[]){shape, shape}, &shape, (int64_t[]){0, 2, 3}, 0);
    for (int i = 0; i < 1000; i++) {
        op_buffer_set_at(&f.out, i, i);
        op_buffer_set_at(&f.x[1], i, 2);
        want[i] = i + 2;
    }
    assert_true(map_case_every_config(&f, want, 0) > 0);
    map_case_destroy(&f);
}

/* --- texts --- */

/* Calls that differ in nothing but the contents of one buffer; spellings that mean the same. */
static void one_buffer_many_expressions(void **state)
{
    (void)state;
    const gk_tensor shape = gk_vector(NULL, GK_F32, 5);
    char text[64];
    gk_statistics stats = {.struct_size = sizeof(stats)};
    map_case f;
    map_case_create(&f, text, 2, (gk_tensor[]){shape, shape}, &shape, NULL, -1);
    for (int i = 0; i < 5; i++) {
        op_buffer_set_at(&f.x[0], i, i + 1);
        op_buffer_set_at(&f.x[1], i, 3);
    }
    map_case_upload(&f);
    const gk_tensor inputs[2] = {f.x[0].device, f.x[1].device};
    for (int round = 0; round < 12; round++) {
        static const char *const texts[] = {"x0 + x1", "x0 * x1", "x0+x1", "x0 - x1"};
        snprintf(text, sizeof(text), "%s", texts[round % 4]);
        assert_gk_ok(gk_map(op_case_ctx, text, inputs, 2, &f.out.device, NULL));
        map_case_fetch(&f);
        for (int i = 0; i < 5; i++) {
            const double want[] = {i + 4, 3 * (i + 1), i + 4, i - 2};
            assert_true(map_case_result(&f, i) == want[round % 4]);
        }
    }
    assert_gk_ok(gk_stats(op_case_ctx, &stats));
    assert_int_equal(stats.guesses, 3);
    /* A plan is for one expression, however it is spelled. */
    gk_call call = map_case_call(&f);
    call.text = "x0 / x1";
    gk_plan *plan;
    assert_gk_ok(gk_plan_create(&plan, op_case_ctx, "map", &call, NULL));
    call.text = "(x0)/x1";
    for (int i = 0; i < 4; i++) {
        assert_gk_ok(gk_plan_run(plan, &call, NULL));
    }
    call.text = "x1 / x0";
    assert_gk_err(gk_plan_run(plan, &call, NULL), GK_ERR_INVALID, "expression=\"x1 / x0\"");
    gk_plan_destroy(&plan);
    /* A preset's plan is for its own, whatever the call says. */
    assert_gk_ok(gk_plan_create(&plan, op_case_ctx, "add", &call, NULL));
    assert_gk_ok(gk_plan_run(plan, &call, NULL));
    map_case_fetch(&f);
    assert_true(map_case_result(&f, 0) == 4);
    gk_plan_destroy(&plan);
    assert_gk_err(gk_map(op_case_ctx, "x0 + )", inputs, 2, &f.out.device, NULL), GK_ERR_INVALID,
                  "expression: column 6: expected a value, found ')'");
    map_case_destroy(&f);
}

enum { LISTED_BYTES = 4096 };

static bool collect(void *user, const gk_cache_entry *entry)
{
    char *listed = user;
    const size_t length = strlen(listed);
    snprintf(listed + length, LISTED_BYTES - length, "%s\n", entry->problem);
    return true;
}

/* What is tuned for one expression is no answer to another, and is found again by a third
 * spelling, in another context. */
static void answers_belong_to_expressions(void **state)
{
    (void)state;
    char listed[LISTED_BYTES] = "";
    gk_statistics stats = {.struct_size = sizeof(stats)};
    const char *path = gk_test_path("cache");
    const gk_tensor shape = gk_vector(NULL, GK_F32, 100);
    gk_context *ctx = op_case_ctx;
    for (int round = 0; round < 2; round++) {
        static const char *const texts[2][2] = {{"x0+2", "x0*2"}, {"x0 + 2.0", "( x0*2e0 )"}};
        op_case_ctx = op_test_context(GK_MODE_TUNE, path);
        for (int i = 0; i < 2; i++) {
            double want[100];
            map_case f;
            map_case_create(&f, texts[round][i], 1, &shape, &shape, NULL, -1);
            for (int k = 0; k < 100; k++) {
                op_buffer_set_at(&f.x[0], k, k);
                want[k] = i == 0 ? k + 2 : k * 2;
            }
            map_case_upload(&f);
            const gk_tensor x = f.x[0].device;
            assert_gk_ok(gk_map(op_case_ctx, texts[round][i], &x, 1, &f.out.device, NULL));
            map_case_fetch(&f);
            map_case_check_values(&f, "tuned", want, 100);
            map_case_destroy(&f);
        }
        assert_gk_ok(gk_stats(op_case_ctx, &stats));
        assert_int_equal(stats.tunes, round == 0 ? 2 : 0);
        assert_int_equal(stats.hits_cache, round == 0 ? 0 : 2);
        if (round == 1) {
            assert_gk_ok(gk_cache_list(op_case_ctx, "map", collect, listed));
            assert_non_null(strstr(listed, "expression=\"x0 + 2.0\""));
            assert_non_null(strstr(listed, "expression=\"x0 * 2.0\""));
        }
        gk_context_destroy(&op_case_ctx);
    }
    op_case_ctx = ctx;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        on_device(empty_then_normal),
        on_device(odd_offsets),
        on_device(relu_keeps_nan),
        on_device(silu_at_the_extremes),
        on_device(activations_everywhere),
        on_device(subnormals),
        on_device(bf16_rounding),
        on_device(contraction),
        on_device(in_place),
        on_device(one_buffer_many_expressions),
        on_device(answers_belong_to_expressions),
    };
    const int missing = op_test_missing();
    return missing != 0 ? missing : GK_TEST_MAIN(tests);
}
