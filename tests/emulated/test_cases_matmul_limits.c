/* Offsets, grids and shared memory beyond the usual limits. */
#define _GNU_SOURCE
#include "op_cases.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "op_configs.h"

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
        assert_gk_ok(gk_mem_alloc(op_case_ctx, bytes, &x));
    }
    assert_gk_ok(gk_mem_alloc(op_case_ctx, sizeof(identity), &b));
    assert_gk_ok(gk_mem_alloc(op_case_ctx, sizeof(c), &out));
    for (int i = 0; i < ROWS; i++) {
        for (int j = 0; j < COLS; j++) {
            op_value_set(GK_F16, row, j, 4 * i + j + 1);
        }
        assert_gk_ok(gk_mem_upload(op_case_ctx, (unsigned char *)x + (size_t)i * 2 * (size_t)stride,
                                   row, sizeof(row), NULL));
    }
    for (int i = 0; i < COLS * COLS; i++) {
        op_value_set(GK_F16, identity, i, i % (COLS + 1) == 0);
    }
    assert_gk_ok(gk_mem_upload(op_case_ctx, b, identity, sizeof(identity), NULL));
    memset(c, 0xff, sizeof(c));
    assert_gk_ok(gk_mem_upload(op_case_ctx, out, c, sizeof(c), NULL));
    const gk_tensor ta = gk_matrix_strided(x, GK_F16, ROWS, COLS, stride, 1);
    const gk_tensor tb = gk_matrix(b, GK_F16, COLS, COLS);
    const gk_tensor tc = gk_matrix(out, GK_F16, ROWS, COLS);
    assert_gk_ok(gk_matmul(op_case_ctx, &ta, &tb, &tc, NULL, NULL));
    assert_gk_ok(gk_mem_download(op_case_ctx, c, out, sizeof(c), NULL));
    for (int i = 0; i < ROWS * COLS; i++) {
        assert_true(op_value_get(GK_F16, c, i) == i + 1);
    }
    if (op_test_is_cpu()) {
        munmap(x, bytes);
    } else {
        gk_mem_free(op_case_ctx, &x);
    }
    gk_mem_free(op_case_ctx, &b);
    gk_mem_free(op_case_ctx, &out);
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
        assert_gk_err(gk_plan_create(&plan, op_case_ctx, "matmul", &call, &options),
                      GK_ERR_NO_CONFIG, "shared memory");
        assert_null(plan);
        found->refused++;
        return;
    }
    const gk_status status = gk_plan_create(&plan, op_case_ctx, "matmul", &call, &options);
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
    op_operands_create(&o, op_case_ctx, GK_F32, GK_F32, 64, 64, 64, false);
    op_operands_pr(&o);
    const gk_call call = op_operands_call(&o);
    memset(&problem, 0, sizeof(problem));
    assert_gk_ok(op->infer(&call, &problem));
    assert_gk_ok(gk_device_info_get(op_case_ctx, &device));
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

/* --- more rows or columns of tiles than a grid's y or z axis has places --- */

enum { GRID_LIMIT = 65535 };

/* A vector times one number; on the CPU device an empty sum and a residual, which takes less time.
 */
static void long_operands(op_operands *o, int64_t length, bool along_m)
{
    const int64_t k = op_test_is_cpu() ? 0 : 1;
    op_operands_create(o, op_case_ctx, GK_F16, GK_F16, along_m ? length : 1, along_m ? 1 : length,
                       k, false);
    op_buffer *varied = along_m ? &o->a : &o->b;
    if (k == 0) {
        varied = &o->residual;
        assert_gk_ok(op_buffer_create(varied, op_case_ctx, true, &o->c.host, 0, false));
        o->params.residual = &varied->device;
    } else {
        op_buffer_set(along_m ? &o->b : &o->a, 0, 0, 1);
    }
    for (int64_t i = 0; i < length; i++) {
        op_buffer_set(varied, along_m ? i : 0, along_m ? 0 : i, (double)(i % 251));
    }
}

/* False if the engine refuses the configuration. */
static bool long_axis(const op_forced *forced, bool along_m)
{
    const int64_t length =
        (int64_t)(GRID_LIMIT + 1) * op_forced_value(forced, along_m ? "BLOCK_M" : "BLOCK_N") + 1;
    op_operands o;
    gk_plan *plan;
    long_operands(&o, length, along_m);
    const gk_plan_options options = {
        .struct_size = sizeof(options), .variant = forced->variant->name, .config = forced->text};
    const gk_call call = op_operands_call(&o);
    const gk_status status = gk_plan_create(&plan, op_case_ctx, "matmul", &call, &options);
    if (status == GK_ERR_NO_CONFIG) {
        op_operands_destroy(&o);
        return false;
    }
    assert_gk_ok(status);
    op_operands_upload(&o);
    assert_gk_ok(gk_plan_run(plan, &call, NULL));
    op_operands_fetch(&o);
    for (int64_t i = 0; i < length; i++) {
        const double got = op_operands_c(&o, along_m ? i : 0, along_m ? 0 : i);
        if (got != (double)(i % 251)) {
            fail_msg("%s %s: [%lld] of %lld is %g, not %g", forced->variant->name, forced->text,
                     (long long)i, (long long)length, got, (double)(i % 251));
        }
    }
    gk_plan_destroy(&plan);
    op_operands_destroy(&o);
    return true;
}

static bool fewer_threads(const gk_variant *variant, const gk_problem *problem,
                          const gk_device_info *device, const gk_config *a, const gk_config *b)
{
    gk_launch launches[2];
    memset(launches, 0, sizeof(launches));
    variant->launch(problem, device, a, &launches[0]);
    variant->launch(problem, device, b, &launches[1]);
    return launches[0].grid * launches[0].threads < launches[1].grid * launches[1].threads;
}

/* One configuration for each size of block; on the CPU device, where every thread takes its time,
 * the one that starts the fewest. False if the variant has no blocks or does not serve the problem.
 */
static bool long_axes(const gk_variant *variant, const gk_problem *problem,
                      const gk_device_info *device, bool along_m)
{
    const char *name = along_m ? "BLOCK_M" : "BLOCK_N";
    int32_t done[64];
    uint32_t n_done = 0, count, best = 0;
    gk_config *configs = op_configs(variant, problem, device, true, &count);
    const bool served =
        count > 0 && op_forced_value(&(op_forced){variant, configs[0], ""}, name) > 0;
    for (uint32_t i = 0; served && i < count; i++) {
        op_forced forced = {variant, configs[i], ""};
        bool known = n_done == sizeof(done) / sizeof(done[0]);
        for (uint32_t d = 0; d < n_done; d++) {
            known = known || done[d] == op_forced_value(&forced, name);
        }
        if (fewer_threads(variant, problem, device, &configs[i], &configs[best])) {
            best = i;
        }
        op_config_text(variant, &configs[i], forced.text, sizeof(forced.text));
        if (!op_test_is_cpu() && !known && long_axis(&forced, along_m)) {
            done[n_done++] = op_forced_value(&forced, name);
        }
    }
    if (op_test_is_cpu() && served) {
        op_forced forced = {variant, configs[best], ""};
        op_config_text(variant, &configs[best], forced.text, sizeof(forced.text));
        n_done += long_axis(&forced, along_m) ? 1 : 0;
    }
    free(configs);
    assert_true(n_done > 0 || !served);
    return served;
}

static void long_grids(void **state)
{
    const gk_op_desc *op = gk_op_find("matmul", NULL);
    gk_device_info device;
    (void)state;
    assert_gk_ok(gk_device_info_get(op_case_ctx, &device));
    for (int along_m = 0; along_m < 2; along_m++) {
        op_operands o;
        gk_problem problem;
        long_operands(&o, GRID_LIMIT, along_m);
        const gk_call call = op_operands_call(&o);
        memset(&problem, 0, sizeof(problem));
        assert_gk_ok(op->infer(&call, &problem));
        op_operands_destroy(&o);
        uint32_t served = 0;
        for (uint32_t v = 0; v < (op_test_is_cpu() ? 1 : op->n_variants); v++) {
            const bool now = long_axes(op->variants[v], &problem, &device, along_m);
            assert_true(now || v > 0); /* simt serves all */
            served += now ? 1 : 0;
        }
        assert_true(served > (op_test_is_cpu() ? 0 : 1));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        on_device(offsets_beyond_32_bits),
        on_device(shared_memory_limits),
        on_device(long_grids),
    };
    const int missing = op_test_missing();
    return missing != 0 ? missing : GK_TEST_MAIN(tests);
}
