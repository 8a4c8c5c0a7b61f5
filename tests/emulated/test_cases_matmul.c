/* Values, layouts and degenerate shapes that matmul must get right in every configuration. */
#include "op_cases.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* --- ragged tiles --- */

typedef struct ragged {
    int64_t m, n, k;
    double sum, weighted, first, last;
} ragged;

static double product(int64_t i, int64_t j, int64_t depth)
{
    double sum = 0;
    for (int64_t k = 0; k < depth; k++) {
        sum += (double)((3 * i + 5 * k) % 7 - 3) * (double)((2 * k + j) % 5 - 2);
    }
    return sum;
}

static void check_ragged(op_operands *o, const op_forced *forced, void *user)
{
    const ragged *want = user;
    double sum, weighted;
    op_operands_sums(o, &sum, &weighted);
    for (int64_t i = 0; i < want->m; i++) {
        for (int64_t j = 0; j < want->n; j++) {
            if (op_operands_c(o, i, j) != product(i, j, want->k)) {
                fail_msg("%s %s: [%d,%d] is %g, not %g", forced->variant->name, forced->text,
                         (int)i, (int)j, op_operands_c(o, i, j), product(i, j, want->k));
            }
        }
    }
    assert_true(sum == want->sum && weighted == want->weighted);
    assert_true(op_operands_c(o, 0, 0) == want->first);
    assert_true(op_operands_c(o, want->m - 1, want->n - 1) == want->last);
}

static void ragged_tiles(void **state)
{
    (void)state;
    static ragged shapes[] = {{1, 1, 1, 6, 6, 6, 6},
                              {1, 128, 1, 9, 387, 6, 0},
                              {17, 1, 65, -5, -94, -4, -4},
                              {33, 17, 33, 9, 2482, 2, 6},
                              {127, 129, 31, 3, -16380, -4, -7}};
    static const gk_dtype dtypes[] = {GK_F32, GK_F16, GK_BF16};
    for (int d = 0; d < 3; d++) {
        for (int s = 0; s < 5; s++) {
            op_operands o;
            const ragged *want = &shapes[s];
            op_operands_create(&o, op_case_ctx, dtypes[d], dtypes[d], want->m, want->n, want->k,
                               true);
            for (int64_t k = 0; k < want->k; k++) {
                for (int64_t i = 0; i < want->m; i++) {
                    op_buffer_set(&o.a, i, k, (double)((3 * i + 5 * k) % 7 - 3));
                }
                for (int64_t j = 0; j < want->n; j++) {
                    op_buffer_set(&o.b, k, j, (double)((2 * k + j) % 5 - 2));
                }
            }
            /* On the CPU device launch-time values are gone through for one of the shapes. */
            const bool launch = !op_test_is_cpu() || s == 3;
            assert_true(op_every_config(op_case_ctx, &o, launch, check_ragged, &shapes[s]) > 0);
            op_operands_destroy(&o);
        }
    }
}

/* --- degenerate sizes --- */

static void empty_reduction(void **state)
{
    (void)state;
    for (int with_pointers = 0; with_pointers < 2; with_pointers++) {
        for (int step = 0; step < 3; step++) {
            op_operands o;
            op_operands_create(&o, op_case_ctx, GK_F32, GK_F32, 3, 5, 0, false);
            if (!with_pointers) {
                o.a.device.data = NULL;
                o.b.device.data = NULL;
            }
            if (step > 0) {
                op_operands_bias(&o, GK_F32);
                for (int64_t j = 0; j < 5; j++) {
                    op_buffer_set(&o.bias, j, 0, (double)(j - 2));
                }
            }
            o.params.activation = step == 2 ? GK_ACT_RELU : GK_ACT_NONE;
            op_operands_run(op_case_ctx, &o);
            for (int64_t i = 0; i < 3; i++) {
                for (int64_t j = 0; j < 5; j++) {
                    const double bias = step > 0 ? (double)(j - 2) : 0;
                    assert_true(op_operands_c(&o, i, j) == (step == 2 && bias < 0 ? 0 : bias));
                }
            }
            op_operands_destroy(&o);
        }
    }
}

static void no_elements_then_a_call(void **state)
{
    (void)state;
    static const int64_t empty[][3] = {{0, 4, 3}, {4, 0, 3}, {0, 0, 0}};
    for (int i = 0; i < 3; i++) {
        const gk_tensor a = gk_matrix(NULL, GK_F32, empty[i][0], empty[i][2]);
        const gk_tensor b = gk_matrix(NULL, GK_F32, empty[i][2], empty[i][1]);
        const gk_tensor c = gk_matrix(NULL, GK_F32, empty[i][0], empty[i][1]);
        assert_gk_ok(gk_matmul(op_case_ctx, &a, &b, &c, NULL, NULL));
        assert_gk_ok(gk_synchronize(op_case_ctx, NULL));
    }
    gk_statistics stats = {.struct_size = sizeof(stats)};
    assert_gk_ok(gk_stats(op_case_ctx, &stats));
    assert_int_equal(stats.launches, 0);
    assert_int_equal(stats.tunes, 0);
    assert_int_equal(stats.compiles, 0);
    op_operands o;
    op_operands_create(&o, op_case_ctx, GK_F32, GK_F32, 64, 64, 64, false);
    op_operands_pr(&o);
    op_operands_run(op_case_ctx, &o);
    op_operands_check_pr(&o);
    op_operands_destroy(&o);
}

/* --- layout and alignment --- */

static void check_rows(op_operands *o, const op_forced *forced, void *user)
{
    static const double rows[4][3] = {{4, -2, -2}, {-2, -2, 4}, {-2, 4, -2}, {4, -2, -2}};
    (void)user;
    for (int64_t i = 0; i < 4; i++) {
        for (int64_t j = 0; j < 3; j++) {
            if (op_operands_c(o, i, j) != rows[i][j]) {
                fail_msg("%s %s: [%d,%d] is %g, not %g", forced->variant->name, forced->text,
                         (int)i, (int)j, op_operands_c(o, i, j), rows[i][j]);
            }
        }
    }
}

/* Fails as well if c's padding or guards change: what lies between its rows is 777. */
static void padded_rows(void **state)
{
    static const gk_dtype dtypes[] = {GK_F32, GK_BF16};
    (void)state;
    for (int d = 0; d < 2; d++) {
        const gk_tensor a = gk_matrix_strided(NULL, dtypes[d], 4, 6, 8, 1);
        const gk_tensor b = gk_matrix_strided(NULL, dtypes[d], 6, 3, 5, 1);
        const gk_tensor c = gk_matrix_strided(NULL, GK_F32, 4, 3, 7, 1);
        op_operands o;
        op_operands_create_as(&o, op_case_ctx, &a, &b, &c, 0);
        op_operands_pr(&o);
        for (int64_t i = 0; i < 3; i++) {
            for (int64_t j = 3; j < 7; j++) {
                op_buffer_set(&o.c, i, j, 777);
            }
        }
        op_operands_run(op_case_ctx, &o);
        check_rows(&o, &(op_forced){gk_op_find("matmul", NULL)->variants[0], {{0}}, "untuned"},
                   NULL);
        assert_true(op_every_config(op_case_ctx, &o, true, check_rows, NULL) > 0);
        op_operands_destroy(&o);
    }
}

static void odd_pointers(void **state)
{
    (void)state;
    for (int64_t offset = 0; offset < 8; offset++) {
        const gk_tensor t = gk_matrix(NULL, GK_F16, 64, 64);
        op_operands o;
        op_operands_create_as(&o, op_case_ctx, &t, &t, &t, offset);
        op_operands_pr(&o);
        op_operands_run(op_case_ctx, &o);
        op_operands_check_pr(&o);
        op_operands_destroy(&o);
    }
}

/* A row of A or B along M or N ends inside a piece that is copied at once, and behind the last one
 * there is nothing. */
static void edges_cut_pieces(void **state)
{
    enum { TALL = 37, WIDE = 101 };
    static const struct {
        gk_dtype dtype;
        int64_t depth;
    } forced[] = {{GK_BF16, 1}, {GK_BF16, 3}, {GK_F32, 1}};
    (void)state;
    for (size_t f = 0; f < sizeof(forced) / sizeof(forced[0]); f++) {
        const gk_dtype dtype = forced[f].dtype;
        const int64_t depth = forced[f].depth;
        const int64_t padding = depth > 1 ? 3 : 0; /* rows begin at multiples of 16 bytes */
        const gk_tensor a = gk_matrix_strided(NULL, dtype, TALL, depth, 1, TALL + padding);
        const gk_tensor b = gk_matrix_strided(NULL, dtype, depth, WIDE, WIDE + padding, 1);
        const gk_tensor c = gk_matrix_strided(NULL, GK_F32, TALL, WIDE, WIDE, 1);
        const gk_plan_options options = {
            .struct_size = sizeof(options),
            .variant = "mma",
            .config = "BLOCK_M=32 BLOCK_N=64 BLOCK_K=32 WARP_M=16 WARP_N=32 STAGES=2 SLICE_K=1 "
                      "SPLIT_K=1 GROUP_M=1 CACHE_L1=0"};
        op_operands o;
        gk_plan *plan;
        op_operands_create_as(&o, op_case_ctx, &a, &b, &c, 0);
        op_operands_pr(&o);
        const gk_call call = op_operands_call(&o);
        assert_gk_ok(gk_plan_create(&plan, op_case_ctx, "matmul", &call, &options));
        op_operands_upload(&o);
        assert_gk_ok(gk_plan_run(plan, &call, NULL));
        op_operands_fetch(&o);
        for (int64_t i = 0; i < TALL * WIDE; i++) {
            const double want = op_operands_pr_sum(i / WIDE, i % WIDE, depth);
            assert_true(op_operands_c(&o, i / WIDE, i % WIDE) == want);
        }
        gk_plan_destroy(&plan);
        op_operands_destroy(&o);
    }
}

/* A thread's pieces of 48 rows are no power of two, and threads that store 48 columns remain; 64
 * are more than one round for a warp. */
static void few_rows_by_columns(void **state)
{
    enum { DEEP = 600, WIDE = 101 };
    static const struct {
        gk_dtype dtype;
        int64_t pitch; /* of c: rows at odd addresses, or at those of vectors */
        double beta;
        const char *config;
    } forced[] = {{GK_F32, WIDE, 0,
                   "BLOCK_M=16 BLOCK_N=48 BLOCK_K=128 WARP_M=16 WARP_N=48 STAGES=2 SLICE_K=4 "
                   "SPLIT_K=1 GROUP_M=1 CACHE_L1=0"},
                  {GK_BF16, WIDE, 1,
                   "BLOCK_M=16 BLOCK_N=48 BLOCK_K=256 WARP_M=16 WARP_N=48 STAGES=3 SLICE_K=4 "
                   "SPLIT_K=1 GROUP_M=1 CACHE_L1=0"},
                  {GK_BF16, 104, 1,
                   "BLOCK_M=16 BLOCK_N=48 BLOCK_K=128 WARP_M=16 WARP_N=48 STAGES=3 SLICE_K=2 "
                   "SPLIT_K=3 GROUP_M=1 CACHE_L1=0"},
                  {GK_BF16, 104, 1,
                   "BLOCK_M=16 BLOCK_N=64 BLOCK_K=256 WARP_M=16 WARP_N=64 STAGES=2 SLICE_K=4 "
                   "SPLIT_K=1 GROUP_M=1 CACHE_L1=0"}};
    (void)state;
    for (size_t f = 0; f < sizeof(forced) / sizeof(forced[0]); f++) {
        const gk_tensor a = gk_matrix_strided(NULL, forced[f].dtype, 13, DEEP, DEEP + 2, 1);
        const gk_tensor b = gk_matrix_strided(NULL, forced[f].dtype, DEEP, WIDE, 1, DEEP + 2);
        const gk_tensor c = gk_matrix_strided(NULL, GK_F32, 13, WIDE, forced[f].pitch, 1);
        const gk_plan_options options = {
            .struct_size = sizeof(options), .variant = "mma", .config = forced[f].config};
        op_operands o;
        gk_plan *plan;
        op_operands_create_as(&o, op_case_ctx, &a, &b, &c, 0);
        op_operands_pr(&o);
        o.params.beta = forced[f].beta;
        for (int64_t i = 0; i < 13 * WIDE; i++) {
            op_buffer_set(&o.c, i / WIDE, i % WIDE, (double)(i % 5));
        }
        const gk_call call = op_operands_call(&o);
        assert_gk_ok(gk_plan_create(&plan, op_case_ctx, "matmul", &call, &options));
        op_operands_upload(&o);
        assert_gk_ok(gk_plan_run(plan, &call, NULL));
        op_operands_fetch(&o);
        for (int64_t i = 0; i < 13 * WIDE; i++) {
            const double added = forced[f].beta * (double)(i % 5);
            const double want = op_operands_pr_sum(i / WIDE, i % WIDE, DEEP) + added;
            assert_true(op_operands_c(&o, i / WIDE, i % WIDE) == want);
        }
        gk_plan_destroy(&plan);
        op_operands_destroy(&o);
    }
}

/* --- NaN and infinities --- */

static void check_column(op_operands *o, const op_forced *forced, void *user)
{
    const double *want = user;
    for (int64_t i = 0; i < 4; i++) {
        const double got = op_operands_c(o, i, 0);
        if (isnan(want[i]) ? !isnan(got) : got != want[i]) {
            fail_msg("%s %s: [%d] is %g, not %g", forced->variant->name, forced->text, (int)i, got,
                     want[i]);
        }
    }
}

static void relu_keeps_nan(void **state)
{
    static const gk_dtype dtypes[] = {GK_F32, GK_F16, GK_BF16};
    static const double a[] = {(double)NAN, -3, (double)INFINITY, -(double)INFINITY};
    static double first[] = {(double)NAN, 0, (double)INFINITY, 0};
    static double second[] = {(double)NAN, (double)NAN, (double)NAN, (double)NAN};
    (void)state;
    for (int d = 0; d < 3; d++) {
        op_operands o;
        op_operands_create(&o, op_case_ctx, dtypes[d], dtypes[d], 4, 1, 1, false);
        op_operands_bias(&o, dtypes[d]);
        o.params.activation = GK_ACT_RELU;
        op_buffer_set(&o.b, 0, 0, 1);
        for (int64_t i = 0; i < 4; i++) {
            op_buffer_set(&o.a, i, 0, a[i]);
        }
        assert_true(op_every_config(op_case_ctx, &o, false, check_column, first) > 0);
        op_buffer_set(&o.bias, 0, 0, (double)NAN);
        for (int64_t i = 0; i < 4; i++) {
            op_buffer_set(&o.a, i, 0, 1);
        }
        assert_true(op_every_config(op_case_ctx, &o, false, check_column, second) > 0);
        op_operands_destroy(&o);
    }
}

/* f64 results in narrower types: what lies beside the middle of two values by less than f32 tells,
 * and what is beyond f32. */
static void f64_is_rounded_once(void **state)
{
    static const struct {
        gk_dtype dtype;
        double unit; /* in the last place of 1 */
        double beyond;
    } types[] = {{GK_F32, 0x1p-23, (double)INFINITY},
                 {GK_F16, 0x1p-10, (double)INFINITY},
                 {GK_BF16, 0x1p-7, (double)INFINITY},
                 {GK_E4M3, 0x1p-3, 448},
                 {GK_E5M2, 0x1p-2, 57344}};
    (void)state;
    for (size_t t = 0; t < sizeof(types) / sizeof(types[0]); t++) {
        const double u = types[t].unit;
        const double x[][4] = {
            {1 + u / 2 + 0x1p-50, 1 + u / 2 - 0x1p-50, -1 - u / 2 - 0x1p-50, -1 - u / 2},
            {1 + 1.5 * u - 0x1p-50, 1 + 1.5 * u, 1e39, -1e300},
            {1e-300, -1e-300, (double)NAN, 1 + u}};
        double want[][4] = {{1 + u, 1, -1 - u, -1},
                            {1 + u, 1 + 2 * u, types[t].beyond, -types[t].beyond},
                            {0, -0.0, (double)NAN, 1 + u}};
        for (int group = 0; group < 3; group++) {
            op_operands o;
            op_operands_create(&o, op_case_ctx, GK_F64, types[t].dtype, 4, 1, 1, false);
            op_buffer_set(&o.b, 0, 0, 1);
            for (int64_t i = 0; i < 4; i++) {
                op_buffer_set(&o.a, i, 0, x[group][i]);
            }
            assert_true(op_every_config(op_case_ctx, &o, false, check_column, want[group]) > 0);
            op_operands_destroy(&o);
        }
    }
}

/* f32 bits whose tf32 value is to be told from infinity, or to be rounded. */
static const uint32_t tf32_bits[] = {0x7f800001, 0xff800001, 0x7f801fff, 0xffa00001, 0x7fffffff,
                                     0xffffffff, 0x7f800000, 0xff800000, 0x3f801000, 0xbf800fff};
enum { N_TF32 = sizeof(tf32_bits) / sizeof(tf32_bits[0]) };

/* Row i of c is the i-th value, times 1; a variant that does not round is good, too. */
static void check_tf32(op_operands *o, const op_forced *forced, void *user)
{
    const double rounded[] = {(double)INFINITY, -(double)INFINITY, 1 + 0x1p-10, -1};
    (void)user;
    for (int64_t i = 0; i < N_TF32; i++) {
        const double got = op_operands_c(o, i, 0);
        const bool exact = i < 8 || strcmp(forced->variant->name, "mma") == 0;
        if (i < 6   ? !isnan(got)
            : exact ? got != rounded[i - 6]
                    : fabs(got - rounded[i - 6]) > 0x1p-10) {
            fail_msg("%s %s: the tf32 value of %08x is %.9g", forced->variant->name, forced->text,
                     (unsigned)tf32_bits[i], got);
        }
    }
}

static void tf32_keeps_nan(void **state)
{
    (void)state;
    for (int down = 0; down < 2; down++) {
        const gk_tensor a = gk_matrix_strided(NULL, GK_F32, N_TF32, 2, down ? 1 : 4, down ? 12 : 1);
        const gk_tensor b = gk_matrix_strided(NULL, GK_F32, 2, 2, down ? 1 : 4, down ? 4 : 1);
        const gk_tensor c = gk_matrix(NULL, GK_F32, N_TF32, 2);
        op_operands o;
        op_operands_create_as(&o, op_case_ctx, &a, &b, &c, 0);
        o.params.math = GK_MATH_TF32;
        op_buffer_set(&o.b, 0, 0, 1);
        for (int64_t i = 0; i < N_TF32; i++) {
            memcpy((char *)o.a.host.data + i * o.a.host.stride[0] * 4, &tf32_bits[i], 4);
        }
        assert_true(op_every_config(op_case_ctx, &o, false, check_tf32, NULL) > 0);
        op_operands_destroy(&o);
    }
}

/* What all elements are to be, and how many runs were split along K. */
typedef struct uniform {
    double want;
    uint32_t splits;
} uniform;

static void check_all(op_operands *o, const op_forced *forced, void *user)
{
    uniform *u = user;
    u->splits += op_forced_value(forced, "SPLIT_K") > 1 ? 1 : 0;
    for (int64_t i = 0; i < o->c.host.shape[0]; i++) {
        for (int64_t j = 0; j < o->c.host.shape[1]; j++) {
            if (op_operands_c(o, i, j) != u->want) {
                fail_msg("%s %s: [%d,%d] is %g, not %g", forced->variant->name, forced->text,
                         (int)i, (int)j, op_operands_c(o, i, j), u->want);
            }
        }
    }
}

static void fill(op_buffer *b, double value)
{
    for (int64_t i = 0; i < b->host.shape[0]; i++) {
        for (int64_t j = 0; j < (b->host.rank > 1 ? b->host.shape[1] : 1); j++) {
            op_buffer_set(b, i, j, value);
        }
    }
}

/* The output is NaN at first; K = 3, and deep enough to be split. */
static void outputs_are_write_only(void **state)
{
    static const struct {
        gk_dtype dtype;
        int64_t k;
        int64_t m; /* and n */
    } forms[] = {{GK_F32, 3, 5}, {GK_F32, 130, 5}, {GK_F16, 130, 5}, {GK_F32, 832, 8}};
    (void)state;
    for (int f = 0; f < 4; f++) {
        uniform u = {(double)forms[f].k, 0};
        op_operands o;
        op_operands_create(&o, op_case_ctx, forms[f].dtype, forms[f].dtype, forms[f].m, forms[f].m,
                           forms[f].k, false);
        fill(&o.a, 1);
        fill(&o.b, 1);
        assert_true(op_every_config(op_case_ctx, &o, true, check_all, &u) > 0);
        assert_true(forms[f].k == 3 || u.splits > 0);
        /* alpha 0: a is not read; beta 1: c is. */
        u = (uniform){2, 0};
        o.params.alpha = 0;
        o.params.beta = 1;
        fill(&o.a, (double)NAN);
        fill(&o.c, 2);
        assert_true(op_every_config(op_case_ctx, &o, true, check_all, &u) > 0);
        assert_true(forms[f].k == 3 || u.splits > 0);
        op_operands_destroy(&o);
    }
}

/* --- long sums --- */

static void long_half_sums(void **state)
{
    (void)state;
    uniform u = {4094, 0};
    op_operands o;
    op_operands_create(&o, op_case_ctx, GK_F16, GK_F16, 1, 1, 4094, false);
    fill(&o.a, 1);
    fill(&o.b, 1);
    assert_true(op_every_config(op_case_ctx, &o, true, check_all, &u) > 0);
    assert_true(u.splits > 0);
    op_operands_destroy(&o);
}

typedef struct repeated {
    uniform u;
    int runs;
} repeated;

static void check_sums_of_e4m3(op_operands *o, const op_forced *forced, void *user)
{
    const double *right = user;
    const double got = op_operands_c(o, 1, 2);
    /* 14 bits keep 17544 to within 2, and there are 9 sums beyond 16384. */
    if (o->params.math == GK_MATH_F32 ? got != *right : !(fabs(got - *right) <= 18)) {
        fail_msg("%s %s: %g, must be %g", forced->variant->name, forced->text, got, *right);
    }
}

/* 8-bit floats: 32 products are 129, 136 times that is 17544. Tensor cores lose ones beyond 16384,
 * unless their sums are promoted. */
static void sums_of_e4m3(void **state)
{
    (void)state;
    enum { K = 4352 };
    double right = 17544;
    for (int math = GK_MATH_DEFAULT; math <= GK_MATH_F32; math++) {
        op_operands o;
        op_operands_create(&o, op_case_ctx, GK_E4M3, GK_F32, 64, 64, K, false);
        o.params.math = (gk_math)math;
        fill(&o.a, 1);
        for (int64_t k = 0; k < K; k++) {
            for (int64_t j = 0; j < 64; j++) {
                op_buffer_set(&o.b, k, j, k % 32 == 0 ? 5 : 4);
            }
        }
        assert_true(op_every_config(op_case_ctx, &o, false, check_sums_of_e4m3, &right) > 0);
        op_operands_destroy(&o);
    }
}

static void check_split(op_operands *o, const op_forced *forced, void *user)
{
    repeated *r = user;
    unsigned char *first = malloc(o->c.bytes);
    assert_non_null(first);
    check_all(o, forced, &r->u);
    memcpy(first, o->result, o->c.bytes);
    const gk_plan_options options = {
        .struct_size = sizeof(options), .variant = forced->variant->name, .config = forced->text};
    const gk_call call = op_operands_call(o);
    gk_plan *plan;
    assert_gk_ok(gk_plan_create(&plan, op_case_ctx, "matmul", &call, &options));
    for (int run = 0; run < r->runs; run++) {
        assert_gk_ok(op_buffer_upload(&o->c));
        assert_gk_ok(gk_plan_run(plan, &call, NULL));
        op_operands_fetch(o);
        assert_memory_equal(o->result, first, o->c.bytes);
    }
    gk_plan_destroy(&plan);
    free(first);
}

static void split_sums_repeat_their_bits(void **state)
{
    (void)state;
    repeated r = {{4096, 0}, op_test_is_cpu() ? 1 : 19}; /* and the first */
    op_operands o;
    op_operands_create(&o, op_case_ctx, GK_F16, GK_F16, 8, 8, 4096, false);
    fill(&o.a, 1);
    fill(&o.b, 1);
    assert_true(op_every_config(op_case_ctx, &o, true, check_split, &r) > 0);
    assert_true(r.u.splits > 0);
    op_operands_destroy(&o);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        on_device(ragged_tiles),
        on_device(empty_reduction),
        on_device(no_elements_then_a_call),
        on_device(padded_rows),
        on_device(odd_pointers),
        on_device(edges_cut_pieces),
        on_device(few_rows_by_columns),
        on_device(relu_keeps_nan),
        on_device(f64_is_rounded_once),
        on_device(tf32_keeps_nan),
        on_device(outputs_are_write_only),
        on_device(long_half_sums),
        on_device(split_sums_repeat_their_bits),
        on_device(sums_of_e4m3),
    };
    const int missing = op_test_missing();
    return missing != 0 ? missing : GK_TEST_MAIN(tests);
}
