/* Tunings of the add op on the fake device: the fixture, and what is stored of one. The test file
 * defines _GNU_SOURCE. */
#ifndef TUNE_CASE_H
#define TUNE_CASE_H

#include "support/gk_test.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/alloc.h"
#include "support/add_op.h"
#include "tune/tune.h"

typedef struct fixture {
    fake_device *fake;
    gki_cache *cache;
    gki_counters counters;
    gki_jit *jit;
    float a[ADD_N], b[ADD_N], c[ADD_N];
    gk_tensor tensors[3];
    gk_call call;
    gk_problem problem;
    gki_candidate winner;
    gk_tune_report report;
} fixture;

/* Seconds by block: 64 is the fastest, 16 the guess. */
static inline gk_status times(void *user, const fake_module *module,
                              const gki_kernel_launch *launches, uint32_t count, uint32_t repeats,
                              bool graph, double *seconds)
{
    int64_t block = 0;
    (void)user;
    (void)launches;
    (void)count;
    (void)repeats;
    (void)graph;
    assert_true(fake_module_constant(module, "BLOCK", &block));
    *seconds = block == 64 ? 8e-6 : 10e-6 + 1e-9 * (double)block;
    return GK_OK;
}

/* Also after a change of the device's properties, which the jit reads once. */
static inline void open_jit(fixture *f, uint32_t threads)
{
    gki_jit_destroy(&f->jit);
    const gki_jit_options options = {.device = &f->fake->base,
                                     .cache = f->cache,
                                     .counters = &f->counters,
                                     .compile_threads = threads};
    assert_gk_ok(gki_jit_create(&f->jit, &options));
}

static inline int set_up(void **state)
{
    fixture *f = gki_calloc(1, sizeof(*f));
    assert_non_null(f);
    *state = f;
    add_templates();
    add_op_reset();
    f->fake = fake_device_create();
    f->fake->run = add_run;
    f->fake->timer = times;
    f->fake->info.l2_bytes = 100000;
    assert_gk_ok(gki_cache_open(&f->cache, ":memory:", 1 << 20, NULL));
    open_jit(f, 2);
    f->call = add_call(f->tensors, f->a, f->b, f->c, ADD_N);
    memset(f->c, 0x5a, sizeof(f->c));
    assert_gk_ok(add_op.infer(&f->call, &f->problem));
    return 0;
}

static inline int tear_down(void **state)
{
    fixture *f = *state;
    /* Whatever happened, the caller's memory is as it was and nothing is leaked. */
    for (size_t i = 0; i < sizeof(f->c); i++) {
        assert_int_equal(((unsigned char *)f->c)[i], 0x5a);
    }
    gki_jit_destroy(&f->jit);
    assert_int_equal(atomic_load(&f->fake->live_allocations), 0);
    gki_cache_close(&f->cache);
    fake_device_destroy(&f->fake);
    gki_free(f);
    return 0;
}

static inline gk_status tune_with(fixture *f, const gk_tune_options *options)
{
    return gki_tune(f->jit, &add_op, &f->call, &f->problem, options, &f->winner, &f->report);
}

static inline gk_status tune(fixture *f)
{
    const gk_tune_options options = GK_TUNE_OPTIONS_INIT;
    return tune_with(f, &options);
}

typedef struct stored {
    char text[4096];
    uint32_t rows;
    uint32_t chosen;
} stored;

static inline bool collect(void *user, const gk_trial *trial)
{
    stored *s = user;
    const size_t length = strlen(s->text);
    snprintf(s->text + length, sizeof(s->text) - length, "[%s %s %s]", trial->variant,
             trial->config, trial->status);
    s->rows++;
    s->chosen += trial->chosen ? 1 : 0;
    return true;
}

static inline void read_stored(fixture *f, stored *out, gk_status *choice)
{
    char problem[GKI_PROBLEM_TEXT];
    char environment[GKI_ENVIRONMENT_TEXT];
    gki_choice found;
    memset(out, 0, sizeof(*out));
    gki_problem_text(&add_op, &f->problem, problem, sizeof(problem));
    assert_gk_ok(gki_environment_text(f->jit, &add_op, environment, sizeof(environment)));
    const gki_key key = {add_op.name, problem, environment};
    (void)gki_cache_trials(f->cache, &key, collect, out);
    *choice = gki_cache_choice_get(f->cache, &key, &found);
    if (*choice == GK_OK) {
        assert_string_equal(found.config, f->report.config);
    }
}

static inline void assert_nothing_stored(fixture *f)
{
    stored s;
    gk_status choice;
    read_stored(f, &s, &choice);
    assert_int_equal(choice, GK_ERR_NOT_FOUND);
    assert_int_equal(s.rows, 0);
}

static inline void assert_trial(fixture *f, const char *text)
{
    stored s;
    gk_status choice;
    read_stored(f, &s, &choice);
    if (strstr(s.text, text) == NULL) {
        fail_msg("%s is not among %s", text, s.text);
    }
}

#endif
