/* What the api's tests share: contexts on a fake device whose matmul kernels compute on the host,
 * guarded operands, counters. The test file defines _GNU_SOURCE (fake_driver.h does not need it).
 */
#ifndef API_CASE_H
#define API_CASE_H

#include "support/gk_test.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <gk/gk.h>
#include <gk/matmul_args.h>

#include "api/context.h"
#include "base/alloc.h"
#include "cache_case.h"
#include "support/fake_driver.h"

/* All matmuls of these tests are of f32. Split-K's tickets stay zero, as every launch leaves them.
 */
static inline gk_status matmul_on_host(void *user, const fake_module *module,
                                       const gki_kernel_launch *launch)
{
    const gk_matmul_args *p = launch->args;
    int64_t activation = -1;
    int64_t has_beta = -1;
    (void)user;
    if (launch->args_size != sizeof(*p) ||
        !fake_module_constant(module, "ACTIVATION", &activation) ||
        !fake_module_constant(module, "HAS_BETA", &has_beta)) {
        return gk_fail(GK_ERR_INTERNAL, "test", "%s is no matmul kernel", module->kernel);
    }
    for (long long i = 0; i < p->m; i++) {
        for (long long j = 0; j < p->n; j++) {
            const float *a = (const float *)p->a + i * p->a_row_stride;
            const float *b = (const float *)p->b + j * p->b_col_stride;
            float *c = (float *)p->c + i * p->c_row_stride + j * p->c_col_stride;
            double sum = 0;
            for (long long k = 0; k < p->k; k++) {
                sum += (double)a[k * p->a_col_stride] * (double)b[k * p->b_row_stride];
            }
            sum = p->alpha * sum + (has_beta ? p->beta * (double)*c : 0);
            sum += p->bias != NULL ? (double)((const float *)p->bias)[j * p->bias_stride] : 0;
            *c = (float)(activation == GK_ACT_RELU && sum < 0 ? 0 : sum);
        }
    }
    return GK_OK;
}

static inline fake_device *matmul_device(void)
{
    fake_device *fake = fake_device_create();
    fake->run = matmul_on_host;
    fake->info.l2_bytes = 1000; /* few copies of the operands */
    return fake;
}

/* Room for the smallest tiles only, so that a tuning is short: for tests to which any winner will
 * do. */
static inline fake_device *small_device(void)
{
    fake_device *fake = matmul_device();
    fake->info.smem_per_block_optin = 8192;
    return fake;
}

/* A context on the device; path NULL = memory only. The log may be NULL. */
static inline gk_context *context_within(fake_device *fake, gk_mode mode, const char *path,
                                         test_log *log, double budget_s)
{
    gk_context_options options = GK_CONTEXT_OPTIONS_INIT;
    gk_context *ctx = NULL;
    options.cache_path = path != NULL ? path : ":memory:";
    options.mode = mode;
    options.compile_threads = 2;
    options.tune_budget_s = budget_s;
    if (log != NULL) {
        memset(log, 0, sizeof(*log));
        options.log = test_log_line;
        options.log_user = log;
    }
    assert_gk_ok(gki_context_create_on(&ctx, fake_device_driver(fake), 0, &options));
    assert_non_null(ctx);
    return ctx;
}

/* With time for every tuning, however busy the machine is. */
static inline gk_context *context_on(fake_device *fake, gk_mode mode, const char *path,
                                     test_log *log)
{
    return context_within(fake, mode, path, log, 60);
}

/* The device's memory and modules are all given back, then it goes too. */
static inline void end_device(fake_device **fake)
{
    assert_int_equal(atomic_load(&(*fake)->live_allocations), 0);
    assert_int_equal(atomic_load(&(*fake)->live_modules), 0);
    fake_device_destroy(fake);
}

static inline gk_statistics stats_of(gk_context *ctx)
{
    gk_statistics stats;
    memset(&stats, 0x5a, sizeof(stats));
    stats.struct_size = sizeof(stats);
    assert_gk_ok(gk_stats(ctx, &stats));
    return stats;
}

/* Operands of c = a b, a 16-byte aligned square of `n` each, c between guards. */
enum { SQUARE_MAX = 64, SQUARE_GUARD = 64 };
typedef struct square {
    _Alignas(256) float a[SQUARE_MAX * SQUARE_MAX];
    _Alignas(256) float b[SQUARE_MAX * SQUARE_MAX];
    _Alignas(256) float memory[SQUARE_GUARD + SQUARE_MAX * SQUARE_MAX + SQUARE_GUARD];
    float *c;
    int64_t n;
    gk_tensor ta, tb, tc;
    gk_call call; /* of gk_matmul with the defaults */
} square;

static inline void square_poison(square *s)
{
    for (size_t i = 0; i < sizeof(s->memory) / sizeof(s->memory[0]); i++) {
        s->memory[i] = NAN;
    }
}

/* a[i,k] = (i + k) mod 3 - 1, b[k,j] = (k + 2j) mod 3 - 1. */
static inline void square_fill(square *s, int64_t n)
{
    s->n = n;
    s->c = s->memory + SQUARE_GUARD;
    for (int64_t i = 0; i < n; i++) {
        for (int64_t j = 0; j < n; j++) {
            s->a[i * n + j] = (float)((i + j) % 3 - 1);
            s->b[i * n + j] = (float)((i + 2 * j) % 3 - 1);
        }
    }
    s->ta = gk_matrix(s->a, GK_F32, n, n);
    s->tb = gk_matrix(s->b, GK_F32, n, n);
    s->tc = gk_matrix(s->c, GK_F32, n, n);
    assert_gk_ok(gk_matmul_call(&s->call, &s->ta, &s->tb, &s->tc, NULL));
    square_poison(s);
}

static inline square *square_new(int64_t n)
{
    square *s = gki_alloc_aligned(256, sizeof(*s));
    assert_non_null(s);
    square_fill(s, n);
    return s;
}

/* True if c is the product (of negative elements 0 if relu) and nothing around it was written.
 * For threads: no assertion. */
static inline bool square_is_right(const square *s, bool relu)
{
    const int64_t n = s->n;
    for (int64_t i = 0; i < n; i++) {
        for (int64_t j = 0; j < n; j++) {
            double sum = 0;
            for (int64_t k = 0; k < n; k++) {
                sum += (double)(((i + k) % 3 - 1) * ((k + 2 * j) % 3 - 1));
            }
            if ((double)s->c[i * n + j] != (relu && sum < 0 ? 0 : sum)) {
                return false;
            }
        }
    }
    for (int64_t i = 0; i < SQUARE_GUARD; i++) {
        if (!isnan(s->memory[i]) || !isnan(s->c[n * n + i])) {
            return false;
        }
    }
    return true;
}

static inline bool square_is_untouched(const square *s)
{
    for (size_t i = 0; i < sizeof(s->memory) / sizeof(s->memory[0]); i++) {
        if (!isnan(s->memory[i])) {
            return false;
        }
    }
    return true;
}

/* Poisons c, runs gk_matmul, and looks at the result. */
static inline void square_run(gk_context *ctx, square *s)
{
    square_poison(s);
    assert_gk_ok(gk_matmul(ctx, &s->ta, &s->tb, &s->tc, NULL, NULL));
    assert_true(square_is_right(s, false));
}

static inline gk_plan_description plan_info(const gk_plan *plan)
{
    gk_plan_description info;
    memset(&info, 0x5a, sizeof(info));
    info.struct_size = sizeof(info);
    assert_gk_ok(gk_plan_info(plan, &info));
    return info;
}

/* What the context would run for the call. */
static inline gk_plan_description planned(gk_context *ctx, const gk_call *call)
{
    gk_plan *plan = NULL;
    assert_gk_ok(gk_plan_create(&plan, ctx, "matmul", call, NULL));
    const gk_plan_description info = plan_info(plan);
    gk_plan_destroy(&plan);
    return info;
}

/* --- what most of these tests begin with --- */

typedef struct api_fixture {
    fake_device *fake;
    gk_context *ctx;
    square *s;
    gk_plan *plan;
    const char *path; /* a cache file */
    test_log log;
} api_fixture;

/* Takes the device over; s is a square of n; there is no context and no plan yet. */
static inline api_fixture *api_set_up(void **state, fake_device *fake, int64_t n)
{
    api_fixture *f = gki_calloc(1, sizeof(*f));
    assert_non_null(f);
    f->fake = fake;
    f->s = square_new(n);
    f->path = gk_test_path("api.db");
    *state = f;
    return f;
}

static inline int api_tear_down(void **state)
{
    api_fixture *f = *state;
    gk_plan_destroy(&f->plan);
    gk_context_destroy(&f->ctx);
    end_device(&f->fake);
    gki_free(f->s);
    gki_free(f);
    return 0;
}

#define API_TEST(test) cmocka_unit_test_setup_teardown(test, set_up, api_tear_down)

/* Rows of a table of the cache file. */
static inline void expect_rows(const api_fixture *f, const char *table, uint64_t count)
{
    char sql[64];
    char text[32];
    (void)snprintf(sql, sizeof(sql), "SELECT count(*) FROM %s", table);
    (void)snprintf(text, sizeof(text), "%llu", (unsigned long long)count);
    expect_query(f->path, sql, text);
}

#endif
