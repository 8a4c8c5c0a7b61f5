/* Values, layouts and degenerate shapes that matmul must get right in every configuration. */
#define _GNU_SOURCE
#include "op_cases.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "op_configs.h"

static gk_context *ctx;

static int open_context(void **state)
{
    (void)state;
    ctx = op_test_context(GK_MODE_HEURISTIC, NULL);
    return 0;
}

static int close_context(void **state)
{
    (void)state;
    gk_context_destroy(&ctx);
    return 0;
}

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
            op_operands_create(&o, ctx, dtypes[d], dtypes[d], want->m, want->n, want->k, true);
            for (int64_t k = 0; k < want->k; k++) {
                for (int64_t i = 0; i < want->m; i++) {
                    op_buffer_set(&o.a, i, k, (double)((3 * i + 5 * k) % 7 - 3));
                }
                for (int64_t j = 0; j < want->n; j++) {
                    op_buffer_set(&o.b, k, j, (double)((2 * k + j) % 5 - 2));
                }
            }
            assert_true(op_every_config(ctx, &o, false, check_ragged, &shapes[s]) > 0);
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
            op_operands_create(&o, ctx, GK_F32, GK_F32, 3, 5, 0, false);
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
            op_operands_run(ctx, &o);
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
        assert_gk_ok(gk_matmul(ctx, &a, &b, &c, NULL, NULL));
        assert_gk_ok(gk_synchronize(ctx, NULL));
    }
    gk_statistics stats = {.struct_size = sizeof(stats)};
    assert_gk_ok(gk_stats(ctx, &stats));
    assert_int_equal(stats.launches, 0);
    assert_int_equal(stats.tunes, 0);
    assert_int_equal(stats.compiles, 0);
    op_operands o;
    op_operands_create(&o, ctx, GK_F32, GK_F32, 64, 64, 64, false);
    op_operands_pr(&o);
    op_operands_run(ctx, &o);
    op_operands_check_pr(&o);
    op_operands_destroy(&o);
}

/* --- offsets beyond 2^31 elements --- */

static void offsets_beyond_32_bits(void **state)
{
    (void)state;
    enum { ROWS = 3, COLS = 4 };
    const int64_t stride = 1200000000;
    const size_t bytes = 4800000008;
    uint16_t row[COLS], identity[COLS * COLS], c[ROWS * COLS];
    void *x, *b, *out;
    if (op_test_is_cpu()) {
        x = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                 -1, 0);
        assert_true(x != MAP_FAILED);
    } else {
        assert_gk_ok(gk_mem_alloc(ctx, bytes, &x));
    }
    assert_gk_ok(gk_mem_alloc(ctx, sizeof(identity), &b));
    assert_gk_ok(gk_mem_alloc(ctx, sizeof(c), &out));
    for (int i = 0; i < ROWS; i++) {
        for (int j = 0; j < COLS; j++) {
            op_value_set(GK_F16, row, j, 4 * i + j + 1);
        }
        assert_gk_ok(gk_mem_upload(ctx, (unsigned char *)x + (size_t)i * 2 * (size_t)stride, row,
                                   sizeof(row), NULL));
    }
    for (int i = 0; i < COLS * COLS; i++) {
        op_value_set(GK_F16, identity, i, i % (COLS + 1) == 0);
    }
    assert_gk_ok(gk_mem_upload(ctx, b, identity, sizeof(identity), NULL));
    memset(c, 0xff, sizeof(c));
    assert_gk_ok(gk_mem_upload(ctx, out, c, sizeof(c), NULL));
    const gk_tensor ta = gk_matrix_strided(x, GK_F16, ROWS, COLS, stride, 1);
    const gk_tensor tb = gk_matrix(b, GK_F16, COLS, COLS);
    const gk_tensor tc = gk_matrix(out, GK_F16, ROWS, COLS);
    assert_gk_ok(gk_matmul(ctx, &ta, &tb, &tc, NULL, NULL));
    assert_gk_ok(gk_mem_download(ctx, c, out, sizeof(c), NULL));
    for (int i = 0; i < ROWS * COLS; i++) {
        assert_true(op_value_get(GK_F16, c, i) == i + 1);
    }
    if (op_test_is_cpu()) {
        munmap(x, bytes);
    } else {
        gk_mem_free(ctx, &x);
    }
    gk_mem_free(ctx, &b);
    gk_mem_free(ctx, &out);
}

/* --- shared memory at and beyond the limit without opting in --- */

enum { DEFAULT_SMEM = 49152 };

typedef struct smem_run {
    uint32_t at, above, refused;
} smem_run;

/* Runs the configuration if its launch needs just 48 KiB, a little more, or more than there is. */
static void try_smem(op_operands *o, const gk_variant *variant, const gk_config *config,
                     const gk_problem *problem, const gk_device_info *device, smem_run *found)
{
    gk_launch launch;
    char text[256];
    memset(&launch, 0, sizeof(launch));
    variant->launch(problem, device, config, &launch);
    const bool at = launch.smem == DEFAULT_SMEM && found->at < 2;
    const bool above = launch.smem > DEFAULT_SMEM && launch.smem <= device->smem_per_block_optin &&
                       found->above < 2;
    const bool beyond = launch.smem > device->smem_per_block_optin && found->refused < 2;
    if (!at && !above && !beyond) {
        return;
    }
    op_config_text(variant, config, text, sizeof(text));
    const gk_plan_options options = {
        .struct_size = sizeof(options), .variant = variant->name, .config = text};
    const gk_call call = op_operands_call(o);
    gk_plan *plan;
    if (beyond) {
        assert_gk_err(gk_plan_create(&plan, ctx, "matmul", &call, &options), GK_ERR_NO_CONFIG,
                      "shared memory");
        assert_null(plan);
        found->refused++;
        return;
    }
    const gk_status status = gk_plan_create(&plan, ctx, "matmul", &call, &options);
    if (status == GK_ERR_NO_CONFIG) {
        return;
    }
    assert_gk_ok(status);
    op_operands_upload(o);
    assert_gk_ok(gk_plan_run(plan, &call, NULL));
    op_operands_fetch(o);
    op_operands_check_pr(o);
    gk_plan_destroy(&plan);
    found->at += at;
    found->above += above;
}

static void shared_memory_limits(void **state)
{
    (void)state;
    const gk_op_desc *op = gk_op_find("matmul", NULL);
    op_operands o;
    gk_problem problem;
    gk_device_info device;
    smem_run found = {0, 0, 0};
    op_operands_create(&o, ctx, GK_F32, GK_F32, 64, 64, 64, false);
    op_operands_pr(&o);
    const gk_call call = op_operands_call(&o);
    memset(&problem, 0, sizeof(problem));
    assert_gk_ok(op->infer(&call, &problem));
    assert_gk_ok(gk_device_info_get(ctx, &device));
    for (uint32_t v = 0; v < op->n_variants; v++) {
        uint32_t count;
        gk_config *configs = op_configs(op->variants[v], &problem, &device, true, &count);
        for (uint32_t i = 0; i < count; i++) {
            try_smem(&o, op->variants[v], &configs[i], &problem, &device, &found);
        }
        free(configs);
    }
    assert_true(found.at > 0);
    assert_true(found.above > 0);
    op_operands_destroy(&o);
}

/* --- layout and alignment --- */

static void padded_rows(void **state)
{
    (void)state;
    static const double rows[4][3] = {{4, -2, -2}, {-2, -2, 4}, {-2, 4, -2}, {4, -2, -2}};
    const gk_tensor a = gk_matrix_strided(NULL, GK_F32, 4, 6, 8, 1);
    const gk_tensor b = gk_matrix_strided(NULL, GK_F32, 6, 3, 5, 1);
    const gk_tensor c = gk_matrix_strided(NULL, GK_F32, 4, 3, 7, 1);
    op_operands o;
    op_operands_create_as(&o, ctx, &a, &b, &c, 0);
    op_operands_pr(&o);
    op_operands_run(ctx, &o); /* fails if c's padding or guards change */
    for (int64_t i = 0; i < 4; i++) {
        for (int64_t j = 0; j < 3; j++) {
            assert_true(op_operands_c(&o, i, j) == rows[i][j]);
        }
    }
    op_operands_destroy(&o);
}

static void odd_pointers(void **state)
{
    (void)state;
    for (int64_t offset = 0; offset < 8; offset++) {
        const gk_tensor t = gk_matrix(NULL, GK_F16, 64, 64);
        op_operands o;
        op_operands_create_as(&o, ctx, &t, &t, &t, offset);
        op_operands_pr(&o);
        op_operands_run(ctx, &o);
        op_operands_check_pr(&o);
        op_operands_destroy(&o);
    }
}

/* --- NaN and infinities --- */

static void relu_keeps_nan(void **state)
{
    (void)state;
    static const gk_dtype dtypes[] = {GK_F32, GK_F16, GK_BF16};
    const double a[] = {(double)NAN, -3, (double)INFINITY, -(double)INFINITY};
    for (int d = 0; d < 3; d++) {
        op_operands o;
        op_operands_create(&o, ctx, dtypes[d], dtypes[d], 4, 1, 1, false);
        op_operands_bias(&o, dtypes[d]);
        o.params.activation = GK_ACT_RELU;
        op_buffer_set(&o.b, 0, 0, 1);
        for (int64_t i = 0; i < 4; i++) {
            op_buffer_set(&o.a, i, 0, a[i]);
        }
        op_operands_run(ctx, &o);
        assert_true(isnan(op_operands_c(&o, 0, 0)));
        assert_true(op_operands_c(&o, 1, 0) == 0);
        assert_true(op_operands_c(&o, 2, 0) == (double)INFINITY);
        assert_true(op_operands_c(&o, 3, 0) == 0);
        op_buffer_set(&o.bias, 0, 0, (double)NAN);
        for (int64_t i = 0; i < 4; i++) {
            op_buffer_set(&o.a, i, 0, 1);
        }
        op_operands_run(ctx, &o);
        for (int64_t i = 0; i < 4; i++) {
            assert_true(isnan(op_operands_c(&o, i, 0)));
        }
        op_operands_destroy(&o);
    }
}

static void check_all(op_operands *o, const op_forced *forced, void *user)
{
    const double want = *(const double *)user;
    for (int64_t i = 0; i < o->c.host.shape[0]; i++) {
        for (int64_t j = 0; j < o->c.host.shape[1]; j++) {
            if (op_operands_c(o, i, j) != want) {
                fail_msg("%s %s: [%d,%d] is %g, not %g", forced->variant->name, forced->text,
                         (int)i, (int)j, op_operands_c(o, i, j), want);
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

static void outputs_are_write_only(void **state)
{
    (void)state;
    double want = 3;
    op_operands o;
    op_operands_create(&o, ctx, GK_F32, GK_F32, 5, 5, 3, false);
    fill(&o.a, 1);
    fill(&o.b, 1);
    assert_true(op_every_config(ctx, &o, true, check_all, &want) > 0);
    /* alpha 0: a is not read; beta 1: c is. */
    want = 2;
    o.params.alpha = 0;
    o.params.beta = 1;
    fill(&o.a, (double)NAN);
    fill(&o.c, 2);
    assert_true(op_every_config(ctx, &o, true, check_all, &want) > 0);
    op_operands_destroy(&o);
}

/* --- long sums --- */

static void long_half_sums(void **state)
{
    (void)state;
    double want = 4094;
    op_operands o;
    op_operands_create(&o, ctx, GK_F16, GK_F16, 1, 1, 4094, false);
    fill(&o.a, 1);
    fill(&o.b, 1);
    assert_true(op_every_config(ctx, &o, false, check_all, &want) > 0);
    op_operands_destroy(&o);
}

static void check_split(op_operands *o, const op_forced *forced, void *user)
{
    double want = 4096;
    unsigned char *first = malloc(o->c.bytes);
    assert_non_null(first);
    check_all(o, forced, &want);
    memcpy(first, o->result, o->c.bytes);
    const gk_plan_options options = {
        .struct_size = sizeof(options), .variant = forced->variant->name, .config = forced->text};
    const gk_call call = op_operands_call(o);
    gk_plan *plan;
    assert_gk_ok(gk_plan_create(&plan, ctx, "matmul", &call, &options));
    for (int run = 0; run < *(int *)user; run++) {
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
    int runs = op_test_is_cpu() ? 2 : 20;
    op_operands o;
    op_operands_create(&o, ctx, GK_F16, GK_F16, 8, 8, 4096, false);
    fill(&o.a, 1);
    fill(&o.b, 1);
    assert_true(op_every_config(ctx, &o, true, check_split, &runs) > 0);
    op_operands_destroy(&o);
}

#define on_device(name) cmocka_unit_test_setup_teardown(name, open_context, close_context)

int main(void)
{
    const struct CMUnitTest tests[] = {
        on_device(ragged_tiles),
        on_device(empty_reduction),
        on_device(no_elements_then_a_call),
        on_device(offsets_beyond_32_bits),
        on_device(shared_memory_limits),
        on_device(padded_rows),
        on_device(odd_pointers),
        on_device(relu_keeps_nan),
        on_device(outputs_are_write_only),
        on_device(long_half_sums),
        on_device(split_sums_repeat_their_bits),
    };
    const int missing = op_test_missing();
    return missing != 0 ? missing : GK_TEST_MAIN(tests);
}
