/* f32 products at f32's accuracy, whatever units a variant computes them on: values whose bf16
 * parts underflow or overflow, infinities and NaN, exact products, and errors of sums. */
#include "op_cases.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* More than one block of rows, ragged on every side. */
enum { M = 140, N = 70, K = 100 };

/* The variants that split. */
static const char *const splitters[] = {"mma", "wgmma_f32", "wgmma_split"};
enum { SPLITTERS = sizeof(splitters) / sizeof(splitters[0]) };

/* Which one it is, SPLITTERS for none. */
static int splitter_of(const op_forced *forced)
{
    int i = 0;
    while (i < SPLITTERS && strcmp(forced->variant->name, splitters[i]) != 0) {
        i++;
    }
    return i;
}

static float bits_to_float(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof(x));
    return x;
}

static uint32_t scramble(uint32_t x)
{
    x = (x ^ x >> 16) * 0x7feb352du;
    x = (x ^ x >> 15) * 0x846ca68bu;
    return x ^ x >> 16;
}

/* Element (i, j) of a matrix of finite floats with all 24 bits, exponents from `low` to `high`. */
static float noise(int64_t i, int64_t j, int low, int high)
{
    const uint32_t x = scramble((uint32_t)(i * 1009 + j + 1));
    const uint32_t exponent = (uint32_t)(low + 127) + (x >> 8) % (uint32_t)(high - low + 1);
    return bits_to_float((x & 0x80000000u) | exponent << 23 | (scramble(x) & 0x7fffffu));
}

static void clear(op_buffer *b)
{
    for (int64_t i = 0; i < b->host.shape[0]; i++) {
        for (int64_t j = 0; j < b->host.shape[1]; j++) {
            op_buffer_set(b, i, j, 0);
        }
    }
}

/* What the result is to be, and how many runs of the variants that split there were. */
typedef struct expected {
    float c[M][N];
    uint32_t runs[SPLITTERS + 1];
} expected;

static void check_bits(op_operands *o, const op_forced *forced, void *user)
{
    expected *want = user;
    want->runs[splitter_of(forced)]++;
    for (int64_t i = 0; i < M; i++) {
        for (int64_t j = 0; j < N; j++) {
            const double got = op_operands_c(o, i, j);
            const double right = (double)want->c[i][j];
            if (isnan(right) ? !isnan(got) : got != right) {
                fail_msg("%s %s: [%d,%d] is %.9g, not %.9g", forced->variant->name, forced->text,
                         (int)i, (int)j, got, right);
            }
        }
    }
}

static void assert_all_ran(const uint32_t *runs)
{
    gk_device_info device;
    assert_gk_ok(gk_device_info_get(op_case_ctx, &device));
    for (int i = 0; i < SPLITTERS; i++) {
        assert_true(runs[i] > 0 || (i == 0 ? device.cc < 80 : device.cc != 90));
    }
}

static void run_all(op_operands *o, expected *want)
{
    assert_true(op_every_config(op_case_ctx, o, !op_test_is_cpu(), check_bits, want) > 0);
    assert_all_ran(want->runs);
    op_operands_destroy(o);
}

/* C = A I: every bit of A comes back, also where A lies next to numbers of another magnitude. */
static void identity(int low, int high, bool subnormals)
{
    op_operands o;
    expected *want = calloc(1, sizeof(*want));
    assert_non_null(want);
    op_operands_create(&o, op_case_ctx, GK_F32, GK_F32, M, N, K, true);
    clear(&o.b);
    for (int64_t j = 0; j < N; j++) {
        op_buffer_set(&o.b, j, j, 1);
    }
    for (int64_t i = 0; i < M; i++) {
        for (int64_t k = 0; k < K; k++) {
            float x = noise(i, k, low, high);
            if (subnormals && k % 3 == 0) {
                x = bits_to_float(scramble((uint32_t)(i * K + k)) & 0x807fffffu);
            }
            op_buffer_set(&o.a, i, k, (double)x);
            if (k < N) {
                want->c[i][k] = x;
            }
        }
    }
    run_all(&o, want);
    free(want);
}

static void bits_come_back(void **state)
{
    (void)state;
    identity(-3, 3, false);
    identity(-100, 40, false);
    identity(-126, 127, false);
    identity(-20, 20, true);
}

/* Small integers but for what a case adds; the f32 sum in the order of K is exact. */
static void integers(op_operands *o)
{
    op_operands_create(o, op_case_ctx, GK_F32, GK_F32, M, N, K, true);
    for (int64_t k = 0; k < K; k++) {
        for (int64_t i = 0; i < M; i++) {
            op_buffer_set(&o->a, i, k, (double)((3 * i + 5 * k) % 7 - 3));
        }
        for (int64_t j = 0; j < N; j++) {
            op_buffer_set(&o->b, k, j, (double)((2 * k + j) % 5 - 2));
        }
    }
}

static void sum_in_order(const op_operands *o, expected *want)
{
    for (int64_t i = 0; i < M; i++) {
        for (int64_t j = 0; j < N; j++) {
            float sum = 0;
            for (int64_t k = 0; k < K; k++) {
                sum =
                    fmaf((float)op_buffer_get(&o->a, i, k), (float)op_buffer_get(&o->b, k, j), sum);
            }
            want->c[i][j] = sum;
        }
    }
}

static void infinities_and_nan(void **state)
{
    (void)state;
    for (int form = 0; form < 4; form++) {
        op_operands o;
        expected *want = calloc(1, sizeof(*want));
        assert_non_null(want);
        integers(&o);
        if (form == 0) {
            op_buffer_set(&o.a, 5, 7, (double)NAN);
        } else if (form == 1) {
            /* Zeros of A meet it, too. */
            op_buffer_set(&o.b, 3, 60, (double)INFINITY);
        } else if (form == 2) {
            op_buffer_set(&o.a, 139, 98, (double)INFINITY);
            op_buffer_set(&o.a, 139, 99, -(double)INFINITY);
            op_buffer_set(&o.a, 0, 0, -(double)INFINITY);
        } else {
            op_buffer_set(&o.a, 70, 50, (double)NAN);
            op_buffer_set(&o.b, 99, 69, (double)NAN);
        }
        sum_in_order(&o, want);
        run_all(&o, want);
        free(want);
    }
}

/* One product an element, exact or beyond the range of f32; K = 3 of A, the rest zeros. */
static void one_product(const float *a, const float *b)
{
    op_operands o;
    expected *want = calloc(1, sizeof(*want));
    assert_non_null(want);
    op_operands_create(&o, op_case_ctx, GK_F32, GK_F32, M, N, K, true);
    clear(&o.a);
    clear(&o.b);
    for (int64_t i = 0; i < M; i++) {
        op_buffer_set(&o.a, i, i % 3, (double)a[i % 3]);
        for (int64_t j = 0; j < N; j++) {
            op_buffer_set(&o.b, i % 3, j, (double)b[i % 3] * (j % 2 == 0 ? 1 : -1));
        }
    }
    sum_in_order(&o, want);
    run_all(&o, want);
    free(want);
}

static void ends_of_the_range(void **state)
{
    (void)state;
    static const float huge[3] = {0x1.fffffep127f, 0x1.fffffep127f, -0x1p127f};
    static const float ones[3] = {1.0f, 0.5f, 1.0f};
    static const float twos[3] = {2.0f, 1.5f, -2.0f};
    static const float tiny[3] = {0x1p-149f, 0x1.fffffcp-127f, 0x1.fffffep-126f};
    static const float roots[3] = {0x1.8p-70f, -0x1p-74f, 0x1p-100f};
    static const float large[3] = {0x1.8p60f, -0x1.4p55f, 0x1p63f};
    static const float odd[3] = {4095, 0x1.002p0f, 0x1.ffep-60f};
    one_product(huge, ones);
    one_product(huge, twos);
    one_product(ones, huge);
    one_product(tiny, ones);
    one_product(tiny, huge);
    one_product(roots, roots);
    one_product(large, large);
    one_product(odd, odd);
}

/* --- errors of sums --- */

typedef struct bound {
    double units; /* 2^-24 of the sum of magnitudes */
    double *sum;
    double *magnitude;
    uint32_t runs[SPLITTERS];
} bound;

static void check_error(op_operands *o, const op_forced *forced, void *user)
{
    bound *b = user;
    const int splitter = splitter_of(forced);
    if (splitter == SPLITTERS) {
        return;
    }
    b->runs[splitter]++;
    const int64_t m = o->c.host.shape[0];
    const int64_t n = o->c.host.shape[1];
    for (int64_t i = 0; i < m; i++) {
        for (int64_t j = 0; j < n; j++) {
            const double error = fabs(op_operands_c(o, i, j) - b->sum[i * n + j]);
            if (!(error <= b->units * 0x1p-24 * b->magnitude[i * n + j])) {
                fail_msg("%s %s: [%d,%d] is off by %g of %g, %g units", forced->variant->name,
                         forced->text, (int)i, (int)j, error, b->magnitude[i * n + j],
                         error / (0x1p-24 * b->magnitude[i * n + j]));
            }
        }
    }
}

/* low < high: any sign and these exponents; otherwise uniform in [0, 1). */
static void errors(int64_t m, int64_t n, int64_t k, int low, int high, double units)
{
    op_operands o;
    bound b = {units,
               calloc((size_t)(m * n), sizeof(double)),
               calloc((size_t)(m * n), sizeof(double)),
               {0}};
    assert_true(b.sum != NULL && b.magnitude != NULL);
    op_operands_create(&o, op_case_ctx, GK_F32, GK_F32, m, n, k, true);
    for (int64_t q = 0; q < k; q++) {
        for (int64_t i = 0; i < m + n; i++) {
            const float x = low < high ? noise(i, q, low, high)
                                       : (float)(scramble((uint32_t)(i * k + q)) >> 8) * 0x1p-24f;
            if (i < m) {
                op_buffer_set(&o.a, i, q, (double)x);
            } else {
                op_buffer_set(&o.b, q, i - m, (double)x);
            }
        }
    }
    for (int64_t i = 0; i < m; i++) {
        for (int64_t j = 0; j < n; j++) {
            for (int64_t q = 0; q < k; q++) {
                const double x = op_buffer_get(&o.a, i, q) * op_buffer_get(&o.b, q, j);
                b.sum[i * n + j] += x;
                b.magnitude[i * n + j] += fabs(x);
            }
        }
    }
    assert_true(op_every_config(op_case_ctx, &o, false, check_error, &b) > 0);
    assert_all_ran(b.runs);
    op_operands_destroy(&o);
    free(b.sum);
    free(b.magnitude);
}

/* Short sums show every product of parts that is left out; long ones of one sign what a tensor core
 * loses, adding. */
static void errors_of_sums(void **state)
{
    (void)state;
    errors(40, 33, 1, -3, 3, 3);
    errors(40, 33, 4, -3, 3, 5);
    errors(40, 33, 4, 0, 0, 5);
    errors(17, 19, 2048, 0, 0, 16);
    errors(17, 19, 1024, -20, 20, 16);
}

/* --- math modes --- */

static void only_where_allowed(void **state)
{
    (void)state;
    const gk_op_desc *op = gk_op_find("matmul", NULL);
    gk_device_info device;
    assert_gk_ok(gk_device_info_get(op_case_ctx, &device));
    device.cc = 90;
    for (int math = GK_MATH_DEFAULT; math <= GK_MATH_TF32; math++) {
        op_operands o;
        gk_problem problem;
        uint32_t allowed = 0;
        memset(&problem, 0, sizeof(problem));
        op_operands_create(&o, op_case_ctx, GK_F32, GK_F32, 64, 64, 64, true);
        o.params.math = (gk_math)math;
        const gk_call call = op_operands_call(&o);
        assert_gk_ok(op->infer(&call, &problem));
        for (uint32_t v = 0; v < op->n_variants; v++) {
            const gk_variant *variant = op->variants[v];
            gk_config config = {{0}};
            gk_reason reason = {""};
            if (strncmp(variant->name, "wgmma_", 6) == 0) {
                for (uint32_t i = 0; i < variant->n_params; i++) {
                    config.values[i] = variant->params[i].values[0];
                }
                allowed += variant->check(&problem, &device, &config, &reason);
                assert_true(math == GK_MATH_DEFAULT || strstr(reason.text, "math is") != NULL);
            }
        }
        assert_int_equal(allowed, math == GK_MATH_DEFAULT ? 2 : 0);
        op_operands_destroy(&o);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        on_device(bits_come_back), on_device(infinities_and_nan), on_device(ends_of_the_range),
        on_device(errors_of_sums), on_device(only_where_allowed),
    };
    const int missing = op_test_missing();
    return missing != 0 ? missing : GK_TEST_MAIN(tests);
}
