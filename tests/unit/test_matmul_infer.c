/* Every rule of matmul's validation: the code, the message, and an output left alone. */
#include "gk_test.h"

#include <math.h>
#include <string.h>

#include <gk/extend.h>
#include <gk/ops.h>

#include "op/matmul.h"

enum { M = 4, N = 6, K = 5 };

/* 4x6 = 4x5 * 5x6 in f32, with all optional arguments at hand. */
typedef struct fixture {
    float a[64];
    float b[64];
    float c[64];
    float bias[64];
    float residual[64];
    gk_tensor ta, tb, tc, tbias, tresidual;
    gk_call call;
} fixture;

static fixture f;

static int fresh(void **state)
{
    (void)state;
    memset(&f, 0, sizeof(f));
    memset(f.c, 0xa5, sizeof(f.c));
    f.ta = gk_matrix(f.a, GK_F32, M, K);
    f.tb = gk_matrix(f.b, GK_F32, K, N);
    f.tc = gk_matrix(f.c, GK_F32, M, N);
    f.tbias = gk_vector(f.bias, GK_F32, N);
    f.tresidual = gk_matrix(f.residual, GK_F32, M, N);
    f.call.args[MATMUL_A] = &f.ta;
    f.call.args[MATMUL_B] = &f.tb;
    f.call.args[MATMUL_C] = &f.tc;
    f.call.attrs[MATMUL_ALPHA] = 1.0;
    return 0;
}

static int untouched(void **state)
{
    (void)state;
    const unsigned char *bytes = (const unsigned char *)f.c;
    for (size_t i = 0; i < sizeof(f.c); i++) {
        if (bytes[i] != 0xa5) {
            return 1;
        }
    }
    return 0;
}

static gk_status infer(gk_problem *out)
{
    memset(out, 0, sizeof(*out));
    return gk_op_find("matmul", NULL)->infer(&f.call, out);
}

#define accepts(problem) assert_gk_ok(infer(problem))
#define refuses(code, text)                                                                        \
    do {                                                                                           \
        gk_problem ignored;                                                                        \
        assert_gk_err(infer(&ignored), (code), (text));                                            \
        assert_string_equal(gk_error_last()->where, "matmul");                                     \
    } while (0)

static void with_optional(void)
{
    f.call.args[MATMUL_BIAS] = &f.tbias;
    f.call.args[MATMUL_RESIDUAL] = &f.tresidual;
}

static void plain_call(void **state)
{
    (void)state;
    gk_problem p;
    f.call.attrs[MATMUL_ACTIVATION] = GK_ACT_SILU;
    accepts(&p);
    assert_int_equal(p.dims[MATMUL_M], M);
    assert_int_equal(p.dims[MATMUL_N], N);
    assert_int_equal(p.dims[MATMUL_K], K);
    assert_int_equal(p.dtype[MATMUL_A], GK_F32);
    assert_int_equal(p.dtype[MATMUL_C], GK_F32);
    assert_int_equal(p.dtype[MATMUL_BIAS], GK_DTYPE_NONE);
    assert_int_equal(p.layout[MATMUL_B], GK_LAYOUT_ROW);
    assert_int_equal(p.attrs[MATMUL_ACTIVATION], GK_ACT_SILU);
    assert_int_equal(p.attrs[MATMUL_MATH], GK_MATH_DEFAULT);
    assert_int_equal(p.attrs[MATMUL_BETA], 0);
    f.call.attrs[MATMUL_MATH] = GK_MATH_F32;
    accepts(&p);
    assert_int_equal(p.attrs[MATMUL_MATH], GK_MATH_F32);
}

static void missing_arguments(void **state)
{
    (void)state;
    static const char *const text[] = {"a is NULL", "b is NULL", "c is NULL"};
    for (int i = MATMUL_A; i <= MATMUL_C; i++) {
        fresh(NULL);
        f.call.args[i] = NULL;
        refuses(GK_ERR_INVALID, text[i]);
    }
}

static void ranks(void **state)
{
    (void)state;
    f.ta.rank = 3;
    refuses(GK_ERR_INVALID, "a.rank is 3, must be 2");
    fresh(NULL);
    with_optional();
    f.tbias.rank = 2;
    refuses(GK_ERR_INVALID, "bias.rank is 2, must be 1");
    fresh(NULL);
    with_optional();
    f.tresidual.rank = 1;
    refuses(GK_ERR_INVALID, "residual.rank is 1, must be 2");
}

static void unknown_dtypes(void **state)
{
    (void)state;
    f.tb.dtype = 77;
    refuses(GK_ERR_INVALID, "b.dtype is 77");
    f.tb.dtype = -1;
    refuses(GK_ERR_INVALID, "b.dtype is -1");
    f.tb.dtype = GK_DTYPE_NONE;
    refuses(GK_ERR_INVALID, "b.dtype is 0");
}

static void dtype_combinations(void **state)
{
    (void)state;
    f.ta.dtype = GK_F16;
    refuses(GK_ERR_UNSUPPORTED, "a.dtype is f16 but b.dtype is f32");
    f.ta.dtype = f.tb.dtype = GK_BOOL;
    refuses(GK_ERR_UNSUPPORTED, "a.dtype is bool");
    f.ta.dtype = f.tb.dtype = GK_I8;
    refuses(GK_ERR_UNSUPPORTED, "c.dtype is f32 but a.dtype is i8: c must be i32");
    f.ta.dtype = f.tb.dtype = GK_F16;
    f.tc.dtype = GK_I32;
    refuses(GK_ERR_UNSUPPORTED, "c.dtype is i32 but a.dtype is f16");
    fresh(NULL);
    with_optional();
    f.tbias.dtype = GK_F16;
    refuses(GK_ERR_UNSUPPORTED, "bias.dtype is f16 but c.dtype is f32");
    f.tbias.dtype = GK_F32;
    f.tresidual.dtype = GK_BF16;
    refuses(GK_ERR_UNSUPPORTED, "residual.dtype is bf16 but c.dtype is f32");
    fresh(NULL);
    f.call.args[MATMUL_BIAS] = &f.tbias;
    f.ta.dtype = f.tb.dtype = GK_U8;
    f.tc.dtype = GK_I32;
    refuses(GK_ERR_UNSUPPORTED, "bias.dtype is f32 but c.dtype is i32");
}

static void every_supported_combination(void **state)
{
    (void)state;
    static double memory[5][64];
    gk_problem p;
    for (int in = GK_F64; in <= GK_U8; in++) {
        for (int out = GK_F64; out <= GK_U8; out++) {
            const bool integers = in >= GK_I32;
            fresh(NULL);
            f.ta = gk_matrix(memory[0], (gk_dtype)in, M, K);
            f.tb = gk_matrix(memory[1], (gk_dtype)in, K, N);
            f.tc = gk_matrix(memory[2], (gk_dtype)out, M, N);
            f.tbias = gk_vector(memory[3], integers ? GK_I32 : GK_F32, N);
            f.tresidual = gk_matrix(memory[4], (gk_dtype)out, M, N);
            with_optional();
            if (integers ? out == GK_I32 : out <= GK_E5M2) {
                accepts(&p);
            } else {
                refuses(GK_ERR_UNSUPPORTED, "c.dtype is");
            }
        }
    }
}

static void negative_sizes(void **state)
{
    (void)state;
    f.ta.shape[0] = -1;
    refuses(GK_ERR_INVALID, "a.shape[0] is -1");
    fresh(NULL);
    f.tc.shape[1] = INT64_MIN;
    refuses(GK_ERR_INVALID, "c.shape[1] is -9223372036854775808");
}

static void negative_strides(void **state)
{
    (void)state;
    f.tb.stride[1] = -2;
    refuses(GK_ERR_INVALID, "b.stride[1] is -2");
}

static void shapes_that_do_not_match(void **state)
{
    (void)state;
    f.tb.shape[0] = 7;
    refuses(GK_ERR_INVALID, "a.shape[1] is 5 but b.shape[0] is 7");
    fresh(NULL);
    f.tc.shape[0] = 3;
    refuses(GK_ERR_INVALID, "c.shape[0] is 3 but a.shape[0] is 4");
    fresh(NULL);
    f.tc.shape[1] = 3;
    refuses(GK_ERR_INVALID, "c.shape[1] is 3 but b.shape[1] is 6");
    fresh(NULL);
    with_optional();
    f.tbias.shape[0] = 4;
    refuses(GK_ERR_INVALID, "bias.shape[0] is 4 but c.shape[1] is 6");
    fresh(NULL);
    with_optional();
    f.tresidual.shape[1] = 5;
    refuses(GK_ERR_INVALID, "residual.shape[1] is 5 but c.shape[1] is 6");
    fresh(NULL);
    with_optional();
    f.tresidual.shape[0] = 5;
    refuses(GK_ERR_INVALID, "residual.shape[0] is 5 but c.shape[0] is 4");
}

static void extents_that_overflow(void **state)
{
    (void)state;
    f.ta.stride[0] = INT64_MAX / 2;
    refuses(GK_ERR_INVALID, "a does not fit in 63 bits");
    fresh(NULL);
    f.ta.stride[0] = INT64_MAX / 3 - 8; /* elements fit, bytes do not */
    refuses(GK_ERR_INVALID, "a does not fit in 63 bits");
    fresh(NULL);
    f.ta.data = (void *)(UINTPTR_MAX - 15);
    refuses(GK_ERR_INVALID, "exceed the address space");
}

static void reserved_words(void **state)
{
    (void)state;
    f.tc.reserved[3] = 9;
    refuses(GK_ERR_INVALID, "c.reserved[3] is 9");
}

static void null_data(void **state)
{
    (void)state;
    gk_problem p;
    f.tb.data = NULL;
    refuses(GK_ERR_INVALID, "b.data is NULL but b has 5 x 6 elements");
    f.call.attrs[MATMUL_ALPHA] = 0; /* a and b are not read */
    accepts(&p);
    f.tc.data = NULL;
    refuses(GK_ERR_INVALID, "c.data is NULL");
    fresh(NULL);
    f.ta = gk_matrix(NULL, GK_F32, M, 0);
    f.tb = gk_matrix(NULL, GK_F32, 0, N);
    accepts(&p);
    assert_int_equal(p.dims[MATMUL_K], 0);
    fresh(NULL);
    f.ta = gk_matrix(NULL, GK_F32, 0, K);
    f.tb.data = NULL;
    f.tc = gk_matrix(NULL, GK_F32, 0, N);
    accepts(&p);
    assert_true(gk_op_find("matmul", NULL)->is_empty(&p));
}

static void misaligned_pointers(void **state)
{
    (void)state;
    f.ta.data = (unsigned char *)f.a + 2;
    refuses(GK_ERR_INVALID, "not a multiple of 4, the size of f32");
}

static void zero_strides(void **state)
{
    (void)state;
    gk_problem p;
    f.ta.stride[0] = 0;
    f.tb.stride[1] = 0;
    accepts(&p);
    f.tc.stride[0] = 0;
    refuses(GK_ERR_INVALID, "c.stride[0] is 0 with c.shape[0] 4");
}

static void output_that_overlaps_itself(void **state)
{
    (void)state;
    gk_problem p;
    f.tc.stride[0] = N - 1;
    refuses(GK_ERR_INVALID, "c overlaps itself: c.stride is [5, 1] but c.shape is [4, 6]");
    f.tc.stride[0] = 1;
    f.tc.stride[1] = M - 1;
    refuses(GK_ERR_INVALID, "c overlaps itself");
    f.tc.stride[1] = M;
    accepts(&p);
    /* 0 3 6 9 12 15 and the same plus 7, 14, 21: nested strides are not needed to be distinct. */
    f.tc.stride[0] = 7;
    f.tc.stride[1] = 3;
    accepts(&p);
    f.tc.stride[0] = 6; /* 2 * 3 */
    refuses(GK_ERR_INVALID, "c overlaps itself");
}

static void output_over_an_input(void **state)
{
    (void)state;
    f.tc.data = f.a;
    refuses(GK_ERR_INVALID, "c overlaps a");
    f.tc.data = f.a + M * K - 1;
    refuses(GK_ERR_INVALID, "c overlaps a");
    fresh(NULL);
    f.tb.data = f.c;
    refuses(GK_ERR_INVALID, "c overlaps b");
    fresh(NULL);
    with_optional();
    f.tbias.data = f.c + M * N - 1;
    refuses(GK_ERR_INVALID, "c overlaps bias");
    fresh(NULL);
    with_optional();
    f.tresidual.data = f.c + 1;
    refuses(GK_ERR_INVALID, "c overlaps residual");
    f.tresidual.data = f.c;
    f.tresidual.stride[0] = N + 1;
    refuses(GK_ERR_INVALID, "c overlaps residual");
}

static void neighbours_do_not_overlap(void **state)
{
    (void)state;
    gk_problem p;
    static float parent[M * 16];
    f.tc.data = f.a + M * K;
    accepts(&p);
    fresh(NULL);
    with_optional();
    f.tresidual.data = f.c;
    accepts(&p);
    /* Two column blocks of one parent, either way round; then one column too many. */
    fresh(NULL);
    f.ta = gk_matrix_strided(parent, GK_F32, M, K, 16, 1);
    f.tc = gk_matrix_strided(parent + K, GK_F32, M, N, 16, 1);
    accepts(&p);
    f.tc = gk_matrix_strided(parent, GK_F32, M, N, 16, 1);
    f.ta = gk_matrix_strided(parent + N, GK_F32, M, K, 16, 1);
    accepts(&p);
    f.ta.data = parent + N - 1;
    refuses(GK_ERR_INVALID, "c overlaps a");
    f.ta.data = parent + 16 - K + 1; /* wraps into the next row */
    refuses(GK_ERR_INVALID, "c overlaps a");
    /* Even and odd columns. */
    f.tc = gk_matrix_strided(parent, GK_F32, M, N, 16, 2);
    f.ta = gk_matrix_strided(parent + 1, GK_F32, M, K, 16, 2);
    accepts(&p);
    f.ta.data = parent + 2;
    refuses(GK_ERR_INVALID, "c overlaps a");
}

static void attributes(void **state)
{
    (void)state;
    gk_problem p;
    f.call.attrs[MATMUL_ACTIVATION] = 5;
    refuses(GK_ERR_INVALID, "activation is 5, must be 0 to 4");
    f.call.attrs[MATMUL_ACTIVATION] = -1;
    refuses(GK_ERR_INVALID, "activation is -1");
    f.call.attrs[MATMUL_ACTIVATION] = 0.5;
    refuses(GK_ERR_INVALID, "activation is 0.5, must be a whole number from 0 to 4");
    f.call.attrs[MATMUL_ACTIVATION] = NAN;
    refuses(GK_ERR_INVALID, "activation is nan, must be a whole number");
    f.call.attrs[MATMUL_ACTIVATION] = 0;
    f.call.attrs[MATMUL_MATH] = 3;
    refuses(GK_ERR_INVALID, "math is 3, must be 0 to 2");
    f.call.attrs[MATMUL_MATH] = GK_MATH_TF32;
    f.call.attrs[MATMUL_BETA] = NAN; /* not 0: c is read */
    accepts(&p);
    assert_int_equal(p.attrs[MATMUL_MATH], GK_MATH_TF32);
    assert_int_equal(p.attrs[MATMUL_BETA], 1);
    assert_true(gk_op_find("matmul", NULL)->reads_output(&p));
}

/* The mode tells problems apart only where it makes a difference. */
static void math_of_types(void **state)
{
    (void)state;
    static const struct {
        gk_dtype dtype;
        gk_math asked, kept;
        bool promotes;
    } cases[] = {
        {GK_E4M3, GK_MATH_DEFAULT, GK_MATH_DEFAULT, false},
        {GK_E4M3, GK_MATH_TF32, GK_MATH_DEFAULT, false},
        {GK_E4M3, GK_MATH_F32, GK_MATH_F32, true},
        {GK_E5M2, GK_MATH_F32, GK_MATH_F32, true},
        {GK_BF16, GK_MATH_DEFAULT, GK_MATH_F32, false},
        {GK_F16, GK_MATH_TF32, GK_MATH_F32, false},
        {GK_F64, GK_MATH_TF32, GK_MATH_F32, false},
        {GK_F32, GK_MATH_F32, GK_MATH_F32, false},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        gk_problem p;
        fresh(NULL);
        f.ta.dtype = f.tb.dtype = cases[i].dtype;
        f.ta.data = f.tb.data = NULL;
        f.ta.shape[1] = f.tb.shape[0] = 0;
        f.call.attrs[MATMUL_MATH] = cases[i].asked;
        accepts(&p);
        assert_int_equal(p.attrs[MATMUL_MATH], cases[i].kept);
        assert_int_equal(gki_matmul_promotes(&p), cases[i].promotes);
    }
}

/* Kernels take alpha and beta in the type of the sums. */
static void factors_beyond_f32(void **state)
{
    (void)state;
    static const double beyond[] = {1e40, -1e40, 1e-40, -1e-40};
    static const double within[] = {3.4e38, -1.2e-38, (double)NAN, (double)INFINITY, 0};
    gk_problem p;
    for (size_t i = 0; i < sizeof(beyond) / sizeof(beyond[0]); i++) {
        fresh(NULL);
        f.call.attrs[MATMUL_ALPHA] = beyond[i];
        refuses(GK_ERR_UNSUPPORTED, i % 2 == 0 ? "alpha is 1e" : "alpha is -1e");
        f.call.attrs[MATMUL_ALPHA] = 1;
        f.call.attrs[MATMUL_BETA] = beyond[i];
        refuses(GK_ERR_UNSUPPORTED, i % 2 == 0 ? "beta is 1e" : "beta is -1e");
        f.call.attrs[MATMUL_ALPHA] = beyond[i];
        f.ta.dtype = f.tb.dtype = GK_F64;
        f.ta.data = f.tb.data = NULL;
        f.ta.shape[1] = f.tb.shape[0] = 0;
        accepts(&p);
    }
    for (size_t i = 0; i < sizeof(within) / sizeof(within[0]); i++) {
        fresh(NULL);
        f.call.attrs[MATMUL_ALPHA] = within[i];
        f.call.attrs[MATMUL_BETA] = within[i];
        accepts(&p);
    }
}

static void integer_attributes(void **state)
{
    (void)state;
    gk_problem p;
    f.ta.dtype = f.tb.dtype = f.tc.dtype = GK_I32;
    f.call.attrs[MATMUL_BETA] = 1;
    f.call.attrs[MATMUL_ACTIVATION] = GK_ACT_RELU;
    accepts(&p);
    f.call.attrs[MATMUL_ALPHA] = 2;
    refuses(GK_ERR_UNSUPPORTED, "alpha is 2, must be 1 for integers");
    f.call.attrs[MATMUL_ALPHA] = 1;
    f.call.attrs[MATMUL_BETA] = 0.5;
    refuses(GK_ERR_UNSUPPORTED, "beta is 0.5, must be 0 or 1 for integers");
    f.call.attrs[MATMUL_BETA] = 0;
    f.call.attrs[MATMUL_ACTIVATION] = GK_ACT_SILU;
    refuses(GK_ERR_UNSUPPORTED, "activation is 4, must be none or relu for integers");
}

static void layout_classes(void **state)
{
    (void)state;
    static _Alignas(256) float memory[1024];
    gk_problem p;
    f.ta = gk_matrix_strided(memory, GK_F32, M, K, 1, 8);
    f.tb = gk_matrix_strided(memory, GK_F32, K, N, 16, 2);
    f.tc = gk_matrix_strided(memory + 512, GK_F32, M, N, 8, 1);
    accepts(&p);
    assert_int_equal(p.layout[MATMUL_A], GK_LAYOUT_COL);
    assert_int_equal(p.align[MATMUL_A], 16);
    assert_int_equal(p.layout[MATMUL_B], GK_LAYOUT_STRIDED);
    assert_int_equal(p.align[MATMUL_B], 4);
    assert_int_equal(p.layout[MATMUL_C], GK_LAYOUT_ROW);
    assert_int_equal(p.align[MATMUL_C], 16);
    f.ta.stride[1] = 6; /* 24 bytes */
    accepts(&p);
    assert_int_equal(p.align[MATMUL_A], 8);
    f.ta.data = memory + 1;
    accepts(&p);
    assert_int_equal(p.align[MATMUL_A], 4);
}

static void axes_of_one_element_suit_any_stride(void **state)
{
    (void)state;
    static _Alignas(256) uint16_t memory[3][1024];
    gk_problem p, q;
    f.ta = gk_matrix_strided(memory[0], GK_F16, 1, K, 3, 1);
    f.tb = gk_matrix_strided(memory[1], GK_F16, K, 1, 1, 77); /* contiguous along K */
    f.tc = gk_matrix_strided(memory[2], GK_F16, 1, 1, 5, 7);
    accepts(&p);
    assert_int_equal(p.layout[MATMUL_A], GK_LAYOUT_ROW);
    assert_int_equal(p.align[MATMUL_A], 16);
    assert_int_equal(p.layout[MATMUL_B], GK_LAYOUT_COL);
    assert_int_equal(p.align[MATMUL_B], 16);
    assert_int_equal(p.layout[MATMUL_C], GK_LAYOUT_ROW);
    assert_int_equal(p.align[MATMUL_C], 16);
    f.ta.stride[0] = 0;
    f.tb.stride[1] = 0;
    f.tc.stride[0] = f.tc.stride[1] = 0;
    accepts(&q);
    assert_memory_equal(&p, &q, sizeof(p));
}

#define rule(name) cmocka_unit_test_setup_teardown(name, fresh, untouched)

/* The kernel counts tiles of K in 32 bits; strides of 0 make an axis of any length. */
static void depth_of_mma(void **state)
{
    (void)state;
    static const int64_t depth = 64;
    const gk_device_info device = {
        .cc = 80, .sm_count = 4, .smem_per_block_optin = 166912, .regs_per_block = 65536};
    /* BLOCK_M, BLOCK_N, BLOCK_K, WARP_M, WARP_N, STAGES, SLICE_K, CACHE_L1, SPLIT_K, GROUP_M */
    const gk_config config = {{64, 64, 64, 32, 32, 3, 1, 0, 1, 1}};
    gk_reason reason = {""};
    gk_problem p;
    f.ta = gk_matrix_strided(f.a, GK_BF16, M, INT32_MAX * depth, 1, 0);
    f.tb = gk_matrix_strided(f.b, GK_BF16, INT32_MAX * depth, N, 0, 1);
    accepts(&p);
    assert_true(gki_matmul_mma.check(&p, &device, &config, &reason));
    f.ta.shape[1] = ++f.tb.shape[0];
    accepts(&p);
    assert_false(gki_matmul_mma.check(&p, &device, &config, &reason));
    assert_non_null(strstr(reason.text, "2147483648 tiles"));
}

/* 48 columns where B's rows lie along K; a warp has 64 beside no more than 16 rows. */
static void columns_of_mma(void **state)
{
    (void)state;
    const gk_device_info device = {
        .cc = 80, .sm_count = 4, .smem_per_block_optin = 166912, .regs_per_block = 65536};
    const gk_config by_48 = {{16, 48, 128, 16, 48, 3, 4, 0, 1, 1}};
    const gk_config by_64 = {{16, 64, 128, 16, 64, 3, 4, 0, 1, 1}};
    const gk_config more_rows = {{32, 64, 128, 16, 64, 3, 2, 0, 1, 1}};
    gk_reason reason = {""};
    gk_problem p;
    f.ta = gk_matrix_strided(f.a, GK_BF16, M, 16, 16, 1);
    f.tb = gk_matrix_strided(f.b, GK_BF16, 16, N, 1, 16);
    accepts(&p);
    assert_true(gki_matmul_mma.check(&p, &device, &by_48, &reason));
    assert_true(gki_matmul_mma.check(&p, &device, &by_64, &reason));
    assert_false(gki_matmul_mma.check(&p, &device, &more_rows, &reason));
    assert_non_null(strstr(reason.text, "16x64 loads too much"));
    f.tb = gk_matrix_strided(f.b, GK_BF16, 16, N, 8, 1);
    accepts(&p);
    assert_true(gki_matmul_mma.check(&p, &device, &by_64, NULL));
    assert_false(gki_matmul_mma.check(&p, &device, &by_48, NULL));
    assert_false(gki_matmul_mma.check(&p, &device, &by_48, &reason));
    assert_non_null(strstr(reason.text, "rows of 48 columns"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        rule(plain_call),
        rule(missing_arguments),
        rule(ranks),
        rule(unknown_dtypes),
        rule(dtype_combinations),
        rule(every_supported_combination),
        rule(negative_sizes),
        rule(negative_strides),
        rule(shapes_that_do_not_match),
        rule(extents_that_overflow),
        rule(reserved_words),
        rule(null_data),
        rule(misaligned_pointers),
        rule(zero_strides),
        rule(output_that_overlaps_itself),
        rule(output_over_an_input),
        rule(neighbours_do_not_overlap),
        rule(attributes),
        rule(math_of_types),
        rule(factors_beyond_f32),
        rule(integer_attributes),
        rule(layout_classes),
        rule(axes_of_one_element_suit_any_stride),
        rule(depth_of_mma),
        rule(columns_of_mma),
    };
    return GK_TEST_MAIN(tests);
}
