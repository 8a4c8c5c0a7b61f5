/* Calls that were made before: repeated as they were, and told from all that differ in anything. */
#define _GNU_SOURCE
#include "api_case.h"

#include <pthread.h>

#include "support/add_op.h"

static atomic_int launches;

static gk_status count_and_run(void *user, const fake_module *module,
                               const gki_kernel_launch *launch)
{
    (void)user;
    atomic_fetch_add(&launches, 1);
    return matmul_on_host(NULL, module, launch);
}

static int set_up(void **state)
{
    api_fixture *f = api_set_up(state, matmul_device(), 16);
    f->fake->run = count_and_run;
    atomic_store(&launches, 0);
    f->ctx = context_on(f->fake, GK_MODE_HEURISTIC, NULL, NULL);
    return 0;
}

static void test_repetitions(void **state)
{
    api_fixture *f = *state;
    for (int i = 0; i < 3; i++) {
        square_run(f->ctx, f->s);
    }
    const int64_t allocations = gki_alloc_count();
    for (int i = 0; i < 100; i++) {
        square_run(f->ctx, f->s);
    }
    assert_int_equal(gki_alloc_count() - allocations, 0);
    assert_int_equal(atomic_load(&launches), 103);
    assert_int_equal(stats_of(f->ctx).calls, 103);
    assert_int_equal(stats_of(f->ctx).guesses, 1);
    /* The values are read anew, of course. */
    f->s->a[0] = 5;
    square_poison(f->s);
    assert_gk_ok(gk_matmul(f->ctx, &f->s->ta, &f->s->tb, &f->s->tc, NULL, NULL));
    assert_true(f->s->c[0] != -1 && !square_is_right(f->s, false));
}

/* a with its rows further apart, in the same place. */
static void test_strides(void **state)
{
    enum { N = 16, PITCH = 24 };
    api_fixture *f = *state;
    square *s = f->s;
    for (int round = 0; round < 4; round++) {
        square_fill(s, N);
        square_run(f->ctx, s);
        for (int64_t i = N - 1; i >= 0; i--) {
            for (int64_t k = N - 1; k >= 0; k--) {
                s->a[i * PITCH + k] = s->a[i * N + k];
            }
        }
        s->ta = gk_matrix_strided(s->a, GK_F32, N, N, PITCH, 1);
        square_run(f->ctx, s);
    }
    assert_int_equal(stats_of(f->ctx).guesses, 1); /* one problem */
}

/* What is no part of the problem counts as well. */
static void test_attributes(void **state)
{
    api_fixture *f = *state;
    square *s = f->s;
    gk_matmul_params params = GK_MATMUL_PARAMS_INIT;
    float bias[16];
    for (int i = 0; i < 16; i++) {
        bias[i] = 1;
    }
    const gk_tensor one = gk_vector(bias, GK_F32, 16);
    for (int round = 0; round < 12; round++) {
        const double alpha = round % 3;
        params.alpha = alpha;
        params.bias = round % 2 ? &one : NULL;
        square_poison(s);
        assert_gk_ok(gk_matmul(f->ctx, &s->ta, &s->tb, &s->tc, &params, NULL));
        const float got = s->c[1];
        params.alpha = 1;
        params.bias = NULL;
        square_poison(s);
        assert_gk_ok(gk_matmul(f->ctx, &s->ta, &s->tb, &s->tc, &params, NULL));
        assert_true((double)got == alpha * (double)s->c[1] + (round % 2 ? 1 : 0));
    }
}

static void test_wrong_calls_are_refused_each_time(void **state)
{
    api_fixture *f = *state;
    square *s = f->s;
    for (int i = 0; i < 3; i++) {
        square_run(f->ctx, s);
    }
    for (int i = 0; i < 3; i++) {
        s->ta.reserved[1] = 1;
        assert_gk_err(gk_matmul(f->ctx, &s->ta, &s->tb, &s->tc, NULL, NULL), GK_ERR_INVALID,
                      "reserved[1]");
        s->ta.reserved[1] = 0;
        s->ta.rank = 3;
        assert_gk_err(gk_matmul(f->ctx, &s->ta, &s->tb, &s->tc, NULL, NULL), GK_ERR_INVALID,
                      "rank");
        s->ta.rank = 2;
        assert_gk_err(gk_matmul(f->ctx, NULL, &s->tb, &s->tc, NULL, NULL), GK_ERR_INVALID, "a is");
        square_run(f->ctx, s);
    }
    f->fake->launch.fail_at = atomic_load(&f->fake->launch.calls) + 1;
    assert_gk_err(gk_matmul(f->ctx, &s->ta, &s->tb, &s->tc, NULL, NULL), GK_ERR_DEVICE, "launch");
    square_run(f->ctx, s);
}

static atomic_int ran_new;

static gk_status note_kernel(void *user, const fake_module *module, const gki_kernel_launch *launch)
{
    atomic_store(&ran_new, strcmp(module->kernel, user) != 0);
    return matmul_on_host(NULL, module, launch);
}

/* A later answer to the problem is what runs from then on. */
static void test_a_later_answer(void **state)
{
    api_fixture *f = *state;
    gk_context *other = context_on(f->fake, GK_MODE_HEURISTIC, NULL, NULL);
    gk_plan_description guess = planned(other, &f->s->call);
    gk_context_destroy(&other);
    fake_device_rule(f->fake, guess.kernel)->seconds = 1;
    f->fake->fallback.seconds = 1e-6;
    for (int i = 0; i < 3; i++) {
        square_run(f->ctx, f->s);
    }
    assert_string_equal(planned(f->ctx, &f->s->call).kernel, guess.kernel);
    assert_gk_ok(gk_tune(f->ctx, "matmul", &f->s->call, NULL, NULL));
    f->fake->run = note_kernel;
    f->fake->run_user = guess.kernel;
    for (int i = 0; i < 3; i++) {
        square_run(f->ctx, f->s);
        assert_int_equal(atomic_load(&ran_new), 1);
    }
}

/* More contexts than a thread remembers, alive and gone. */
static void test_contexts(void **state)
{
    enum { CONTEXTS = 6 };
    api_fixture *f = *state;
    gk_context *contexts[CONTEXTS];
    for (int i = 0; i < CONTEXTS; i++) {
        contexts[i] = context_on(f->fake, GK_MODE_HEURISTIC, NULL, NULL);
    }
    for (int round = 0; round < 4; round++) {
        for (int i = 0; i < CONTEXTS; i++) {
            square_run(contexts[i], f->s);
            square_run(contexts[i], f->s);
        }
        gk_context_destroy(&contexts[round]);
        contexts[round] = context_on(f->fake, GK_MODE_HEURISTIC, NULL, NULL);
    }
    for (int i = 0; i < CONTEXTS; i++) {
        gk_context_destroy(&contexts[i]);
    }
    square_run(f->ctx, f->s);
}

/* --- many calls --- */

typedef struct many {
    gk_context *ctx;
    fake_device *fake;
    gki_entry *entry;
    float *memory;
    const float *a; /* of the last launch */
    const void *scratch;
} many;

static gk_status note_operand(void *user, const fake_module *module,
                              const gki_kernel_launch *launch)
{
    many *m = user;
    const void *pointers[4]; /* a, b, c, workspace */
    (void)module;
    memcpy(pointers, launch->args, sizeof(pointers));
    m->a = pointers[0];
    m->scratch = pointers[3];
    return GK_OK;
}

static gk_call call_at(many *m, gk_tensor tensors[3], size_t i)
{
    return add_call(tensors, m->memory + i * 4, m->memory, m->memory + 8, 4);
}

/* Whether the i-th call launches what it must. */
static bool is_right_in(many *m, size_t i, void *stream)
{
    gk_tensor tensors[3];
    const gk_call call = call_at(m, tensors, i);
    const gk_plan plan = {.ctx = m->ctx, .entry = m->entry};
    m->a = NULL;
    return gki_plan_launch(&plan, &call, stream) == GK_OK && m->a == tensors[0].data;
}

static bool is_right(many *m, size_t i)
{
    return is_right_in(m, i, NULL);
}

/* A context, and in it a kernel for all the calls. */
static void many_open(many *m)
{
    gk_tensor tensors[3];
    const gk_config config = {{32, 1}};
    gk_problem problem;
    memset(&problem, 0, sizeof(problem));
    m->ctx = context_on(m->fake, GK_MODE_HEURISTIC, NULL, NULL);
    const gk_call call = call_at(m, tensors, 0);
    assert_gk_ok(add_op.infer(&call, &problem));
    assert_gk_ok(gki_entry_build(m->ctx, &add_op, &problem, &add_plain, &config, GK_SOURCE_FORCED,
                                 &m->entry));
}

static void many_close(many *m)
{
    gki_free(m->entry);
    gk_context_destroy(&m->ctx);
}

/* workspace: bytes of scratch memory that the launches want. */
static void many_begin(many *m, int64_t workspace)
{
    add_templates();
    add_op_reset();
    add_workspace = workspace;
    m->fake = fake_device_create();
    m->fake->run = note_operand;
    m->fake->run_user = m;
    m->memory = gki_alloc_aligned(64, (size_t)1 << 20);
    assert_non_null(m->memory);
    many_open(m);
}

static void many_end(many *m)
{
    many_close(m);
    end_device(&m->fake);
    gki_free(m->memory);
}

static void test_more_calls_than_are_kept(void **state)
{
    enum { CALLS = 40000 };
    many m;
    (void)state;
    many_begin(&m, 0);
    for (int round = 0; round < 4; round++) {
        for (size_t i = 0; i < CALLS; i++) {
            assert_true(is_right(&m, i));
        }
    }
    /* A few among many others are repeated without allocating. */
    for (size_t i = 0; i < 400; i++) {
        assert_true(is_right(&m, i % 4));
    }
    const int64_t allocations = gki_alloc_count();
    for (size_t i = 0; i < 400; i++) {
        assert_true(is_right(&m, i % 4));
    }
    assert_int_equal(gki_alloc_count() - allocations, 0);
    many_end(&m);
}

/* In any order, as far as one call may lead on to another. */
static void test_orders(void **state)
{
    enum { CALLS = 500 };
    many m;
    uint32_t number = 1;
    (void)state;
    many_begin(&m, 0);
    for (int round = 0; round < 8; round++) {
        for (size_t i = 0; i < CALLS; i++) {
            number = number * 1664525u + 1013904223u;
            const size_t other = number >> 16;
            assert_true(is_right(&m, round % 4 < 3 ? i : other % CALLS));
            assert_true(round % 4 != 2 || other % 32 != 0 || is_right(&m, CALLS + other));
        }
    }
    many_end(&m);
}

/* Every stream has scratch memory of its own, whichever launched the call before. */
static void test_streams(void **state)
{
    enum { STREAMS = 3, CALLS = 4 };
    many m;
    const void *scratch[STREAMS] = {NULL};
    (void)state;
    many_begin(&m, 256);
    for (uintptr_t i = 0; i < 200; i++) {
        const uintptr_t stream = i < 60 ? i / 20 : i * 7 / 5 % STREAMS;
        assert_true(is_right_in(&m, i % CALLS, (void *)(0x100 * (stream + 1))));
        assert_non_null(m.scratch);
        assert_true(scratch[stream] == NULL || scratch[stream] == m.scratch);
        scratch[stream] = m.scratch;
    }
    assert_ptr_not_equal(scratch[0], scratch[1]);
    assert_ptr_not_equal(scratch[1], scratch[2]);
    assert_ptr_not_equal(scratch[2], scratch[0]);
    many_end(&m);
}

/* A thread's memory goes with it, and the context's launches with the context. */
static void *run_and_end(void *user)
{
    many *m = user;
    bool good = true;
    for (size_t i = 0; i < 1000; i++) {
        good = good && is_right(m, i % 250);
    }
    return good ? m : NULL;
}

static void test_threads_and_contexts_end(void **state)
{
    many m;
    (void)state;
    many_begin(&m, 0);
    for (int round = 0; round < 6; round++) {
        pthread_t thread;
        void *result = NULL;
        assert_int_equal(pthread_create(&thread, NULL, run_and_end, &m), 0);
        assert_int_equal(pthread_join(thread, &result), 0);
        assert_ptr_equal(result, &m);
        assert_ptr_equal(run_and_end(&m), &m);
        many_close(&m);
        many_open(&m);
    }
    many_end(&m);
}

/* Whatever allocation fails, the call is made. */
static void *run_without_memory(void *user)
{
    many *m = user;
    bool good = true;
    for (int64_t n = 1; n < 60; n++) {
        gki_alloc_fail_at(n);
        for (size_t i = 0; i < 300; i++) {
            good = good && is_right(m, i % 150);
        }
    }
    gki_alloc_fail_at(0);
    return good ? m : NULL;
}

static void test_no_memory(void **state)
{
    many m;
    (void)state;
    many_begin(&m, 0);
    for (int i = 0; i < 2; i++) {
        pthread_t thread;
        void *result = NULL;
        assert_int_equal(pthread_create(&thread, NULL, run_without_memory, &m), 0);
        assert_int_equal(pthread_join(thread, &result), 0);
        assert_ptr_equal(result, &m);
    }
    many_end(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        API_TEST(test_repetitions),
        API_TEST(test_strides),
        API_TEST(test_attributes),
        API_TEST(test_wrong_calls_are_refused_each_time),
        API_TEST(test_a_later_answer),
        API_TEST(test_contexts),
        cmocka_unit_test(test_more_calls_than_are_kept),
        cmocka_unit_test(test_orders),
        cmocka_unit_test(test_streams),
        cmocka_unit_test(test_threads_and_contexts_end),
        cmocka_unit_test(test_no_memory),
    };
    return GK_TEST_MAIN(tests);
}
