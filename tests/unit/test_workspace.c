/* Scratch memory of split-K launches: an area a stream, growth, tickets that start at zero. */
#define _GNU_SOURCE
#include "api_case.h"

static const char SPLIT_4[] = "BLOCK_K=8 BLOCK_M=64 BLOCK_N=64 GROUP_M=1 SLICE_K=1 SPLIT_K=4 "
                              "STAGES=3 THREAD_M=8 THREAD_N=8";
static const char SPLIT_8[] = "BLOCK_K=8 BLOCK_M=64 BLOCK_N=64 GROUP_M=1 SLICE_K=1 SPLIT_K=8 "
                              "STAGES=3 THREAD_M=8 THREAD_N=8";
/* Bytes of 4 splits of one 64x64 tile, and what is set aside for tickets at least. */
enum { SPLIT_4_BYTES = 4 * 64 * 64 * 4, TICKET_BYTES = 65536 };

/* Of the last launch. */
static float *last_partials;
static unsigned long long *last_tickets;
static int64_t used; /* bytes of partials that launches fill */

/* Uses its scratch as a kernel would, to the last byte. */
static gk_status use_scratch(void *user, const fake_module *module, const gki_kernel_launch *launch)
{
    const gk_matmul_args *p = launch->args;
    (void)user;
    last_partials = p->partials;
    last_tickets = p->tickets;
    if (p->split_k > 1) {
        if (p->partials == NULL || p->tickets == NULL || (uintptr_t)p->partials % 256 != 0) {
            return gk_fail(GK_ERR_INTERNAL, "test", "split-K without scratch");
        }
        if (p->tickets[0] != 0) {
            return gk_fail(GK_ERR_INTERNAL, "test", "a ticket is %llu", p->tickets[0]);
        }
        memset(p->partials, 0xee, (size_t)used);
    }
    return matmul_on_host(NULL, module, launch);
}

static int set_up(void **state)
{
    api_fixture *f = api_set_up(state, matmul_device(), 64);
    f->fake->run = use_scratch;
    used = SPLIT_4_BYTES;
    f->ctx = context_on(f->fake, GK_MODE_HEURISTIC, NULL, NULL);
    return 0;
}

static void force(api_fixture *f, const char *config)
{
    gk_plan_options options = GK_PLAN_OPTIONS_INIT;
    options.variant = "simt";
    options.config = config;
    gk_plan_destroy(&f->plan);
    assert_gk_ok(gk_plan_create(&f->plan, f->ctx, "matmul", &f->s->call, &options));
}

static void run_plan(api_fixture *f, void *stream)
{
    square_poison(f->s);
    assert_gk_ok(gk_plan_run(f->plan, &f->s->call, stream));
    assert_true(square_is_right(f->s, false));
}

static void *stream_of(uintptr_t number)
{
    return (void *)(number * 64);
}

static void *const stream_of_thread = (void *)2;

static void test_one_area_a_stream(void **state)
{
    api_fixture *f = *state;
    force(f, SPLIT_4);
    assert_int_equal(plan_info(f->plan).workspace, SPLIT_4_BYTES + 8);
    assert_int_equal(stats_of(f->ctx).workspace_bytes, 0);
    run_plan(f, stream_of(1));
    const float *first = last_partials;
    const unsigned long long *tickets = last_tickets;
    assert_int_equal(stats_of(f->ctx).workspace_bytes, SPLIT_4_BYTES + TICKET_BYTES);
    assert_int_equal(atomic_load(&f->fake->live_bytes), SPLIT_4_BYTES + TICKET_BYTES);
    for (size_t i = 0; i < TICKET_BYTES / sizeof(tickets[0]); i++) {
        assert_true(tickets[i] == 0);
    }
    run_plan(f, stream_of(1));
    assert_ptr_equal(last_partials, first);
    assert_ptr_equal(last_tickets, tickets);
    /* Launches of two streams may be under way at the same time. */
    run_plan(f, stream_of(2));
    assert_ptr_not_equal(last_partials, first);
    assert_ptr_not_equal(last_tickets, tickets);
    run_plan(f, NULL);
    assert_int_equal(stats_of(f->ctx).workspace_bytes, 3 * (SPLIT_4_BYTES + TICKET_BYTES));
    run_plan(f, stream_of(1));
    assert_ptr_equal(last_partials, first);
    assert_int_equal(atomic_load(&f->fake->live_allocations), 6);
}

/* A call that is repeated gets the areas of the stream that it is made in, also when it is not the
 * one of the last time, or has outgrown its areas meanwhile. */
static void test_repetitions(void **state)
{
    api_fixture *f = *state;
    force(f, SPLIT_4);
    gk_plan *small = f->plan;
    const float *areas[2] = {NULL, NULL};
    for (int i = 0; i < 8; i++) {
        run_plan(f, stream_of(1 + i % 2));
        assert_true(areas[i % 2] == NULL || areas[i % 2] == last_partials);
        areas[i % 2] = last_partials;
        assert_ptr_not_equal(areas[0], areas[1]);
    }
    for (int i = 0; i < 4; i++) {
        run_plan(f, stream_of(1));
        assert_ptr_equal(last_partials, areas[0]);
    }
    f->plan = NULL;
    force(f, SPLIT_8);
    used = 2 * SPLIT_4_BYTES;
    run_plan(f, stream_of(1));
    assert_ptr_not_equal(last_partials, areas[0]);
    used = SPLIT_4_BYTES;
    gk_plan_destroy(&f->plan);
    f->plan = small;
    for (int i = 0; i < 4; i++) {
        run_plan(f, stream_of(1));
        run_plan(f, stream_of(2));
        assert_ptr_equal(last_partials, areas[1]);
    }
}

typedef struct asking {
    gk_context *ctx;
    const gki_workspace *space;
    gk_status status;
} asking;

static void *ask(void *user)
{
    asking *a = user;
    const gk_launch launch = {.workspace = 1000, .zeroed = 8};
    a->status = gki_workspace_find(a->ctx, &launch, stream_of_thread, &a->space);
    return NULL;
}

/* CU_STREAM_PER_THREAD is another stream in each thread. */
static void test_one_area_a_thread(void **state)
{
    api_fixture *f = *state;
    asking here = {.ctx = f->ctx};
    asking again = {.ctx = f->ctx};
    asking there = {.ctx = f->ctx};
    pthread_t thread;
    (void)ask(&here);
    (void)ask(&again);
    assert_int_equal(pthread_create(&thread, NULL, ask, &there), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(here.status, GK_OK);
    assert_int_equal(again.status, GK_OK);
    assert_int_equal(there.status, GK_OK);
    assert_ptr_equal(again.space, here.space);
    assert_ptr_not_equal(there.space, here.space);
    assert_ptr_not_equal(there.space->scratch, here.space->scratch);
    assert_ptr_not_equal(there.space->zeroed, here.space->zeroed);
}

static void test_none_without_need(void **state)
{
    api_fixture *f = *state;
    force(f, "BLOCK_K=8 BLOCK_M=64 BLOCK_N=64 GROUP_M=1 SLICE_K=1 SPLIT_K=1 STAGES=3 THREAD_M=8 "
             "THREAD_N=8");
    run_plan(f, NULL);
    assert_null(last_partials);
    assert_null(last_tickets);
    assert_int_equal(stats_of(f->ctx).workspace_bytes, 0);
    assert_int_equal(atomic_load(&f->fake->alloc.calls), 0);
}

static void test_growth(void **state)
{
    api_fixture *f = *state;
    force(f, SPLIT_4);
    run_plan(f, stream_of(1));
    float *old = last_partials;
    force(f, SPLIT_8);
    used = 2 * SPLIT_4_BYTES;
    run_plan(f, stream_of(1));
    assert_ptr_not_equal(last_partials, old);
    assert_true(last_tickets[0] == 0);
    /* A captured graph may still use the outgrown area. */
    memset(old, 0x11, SPLIT_4_BYTES);
    assert_int_equal(stats_of(f->ctx).workspace_bytes, 3 * SPLIT_4_BYTES + 2 * TICKET_BYTES);
    assert_int_equal(atomic_load(&f->fake->live_allocations), 4);
    /* From now on everything in the stream uses the larger one. */
    const float *larger = last_partials;
    force(f, SPLIT_4);
    run_plan(f, stream_of(1));
    assert_ptr_equal(last_partials, larger);
    assert_int_equal(atomic_load(&f->fake->live_allocations), 4);
}

/* Requests that grow a little each time: the areas at least double. */
static void test_growth_is_bounded(void **state)
{
    api_fixture *f = *state;
    int64_t asked = 0;
    for (int64_t i = 1; i <= 100; i++) {
        const gk_launch launch = {.workspace = 1000 * i, .zeroed = 8 * i};
        const gki_workspace *space = NULL;
        assert_gk_ok(gki_workspace_find(f->ctx, &launch, NULL, &space));
        assert_true(space->scratch_bytes >= launch.workspace);
        assert_true(space->zeroed_bytes >= launch.zeroed);
        asked = launch.workspace;
    }
    assert_true(atomic_load(&f->fake->live_allocations) <= 2 * 8);
    assert_true(atomic_load(&f->fake->live_bytes) <= 4 * asked + 8 * TICKET_BYTES);
    const gk_launch tickets = {.zeroed = 10 * TICKET_BYTES};
    const gki_workspace *space = NULL;
    assert_gk_ok(gki_workspace_find(f->ctx, &tickets, NULL, &space));
    assert_int_equal(space->zeroed_bytes, 10 * TICKET_BYTES);
    assert_true(space->scratch_bytes >= asked);
    for (int64_t i = 0; i < space->zeroed_bytes; i++) {
        assert_int_equal(((const unsigned char *)space->zeroed)[i], 0);
    }
    const int64_t before = atomic_load(&f->fake->live_allocations);
    for (int64_t i = 1; i <= 100; i++) {
        const gk_launch more = {.zeroed = 10 * TICKET_BYTES + 8 * i};
        assert_gk_ok(gki_workspace_find(f->ctx, &more, NULL, &space));
        assert_true(space->zeroed_bytes >= more.zeroed);
    }
    assert_int_equal(atomic_load(&f->fake->live_allocations), before + 2);
}

static void test_device_out_of_memory(void **state)
{
    api_fixture *f = *state;
    force(f, SPLIT_4);
    for (int i = 1; i <= 2; i++) {
        f->fake->alloc.fail_at = atomic_load(&f->fake->alloc.calls) + i;
        f->fake->alloc.status = GK_ERR_NOMEM;
        assert_gk_err(gk_plan_run(f->plan, &f->s->call, NULL), GK_ERR_NOMEM, NULL);
        assert_true(square_is_untouched(f->s));
        assert_int_equal(atomic_load(&f->fake->live_allocations), 0);
        assert_int_equal(stats_of(f->ctx).workspace_bytes, 0);
    }
    f->fake->alloc.fail_at = 0;
    f->fake->copy.fail_at = atomic_load(&f->fake->copy.calls) + 1; /* of the zeros */
    assert_gk_err(gk_plan_run(f->plan, &f->s->call, NULL), GK_ERR_DEVICE, NULL);
    assert_int_equal(atomic_load(&f->fake->live_allocations), 0);
    gki_alloc_fail_at(1);
    assert_gk_err(gk_plan_run(f->plan, &f->s->call, NULL), GK_ERR_NOMEM, NULL);
    gki_alloc_fail_at(0);
    assert_true(square_is_untouched(f->s));
    run_plan(f, NULL);
}

static void test_capture(void **state)
{
    api_fixture *f = *state;
    force(f, SPLIT_4);
    f->fake->capturing = true;
    assert_gk_err(gk_plan_run(f->plan, &f->s->call, stream_of(1)), GK_ERR_NOT_PREPARED,
                  "65536 bytes");
    assert_non_null(strstr(gk_error_last()->message, "run the plan once")); /* it is no guess */
    assert_true(square_is_untouched(f->s));
    assert_int_equal(atomic_load(&f->fake->alloc.calls), 0);
    f->fake->capturing = false;
    run_plan(f, stream_of(1));
    f->fake->capturing = true;
    run_plan(f, stream_of(1));
    /* Another stream has none. */
    square_poison(f->s);
    assert_gk_err(gk_plan_run(f->plan, &f->s->call, stream_of(2)), GK_ERR_NOT_PREPARED, NULL);
    f->fake->capturing = false;
}

/* A long sum whose guess is split-K: preparing sets its scratch aside, in that stream. */
static void test_prepare(void **state)
{
    api_fixture *f = *state;
    enum { N = 17, K = 4096 };
    static float a[N * K];
    static float b[K * N];
    static float c[N * N];
    const gk_tensor ta = gk_matrix(a, GK_F32, N, K);
    const gk_tensor tb = gk_matrix(b, GK_F32, K, N);
    const gk_tensor tc = gk_matrix(c, GK_F32, N, N);
    gk_call call;
    for (int i = 0; i < N * K; i++) {
        a[i] = 1;
        b[i] = 1;
    }
    used = 0;
    assert_gk_ok(gk_matmul_call(&call, &ta, &tb, &tc, NULL));
    assert_gk_ok(gk_prepare(f->ctx, "matmul", &call, stream_of(3)));
    assert_true(planned(f->ctx, &call).workspace > 0);
    assert_true(stats_of(f->ctx).workspace_bytes > 0);
    f->fake->capturing = true;
    assert_gk_ok(gk_matmul(f->ctx, &ta, &tb, &tc, NULL, stream_of(3)));
    assert_true(c[0] == K && c[N * N - 1] == K);
    assert_gk_err(gk_matmul(f->ctx, &ta, &tb, &tc, NULL, stream_of(4)), GK_ERR_NOT_PREPARED, NULL);
    f->fake->capturing = false;
}

/* Timing uses areas of its own, which are given back. */
static void test_measure(void **state)
{
    api_fixture *f = *state;
    double seconds[3] = {0, 0, 0};
    force(f, SPLIT_4);
    assert_gk_ok(gk_measure(f->plan, &f->s->call, 1, 3, seconds));
    assert_true(seconds[0] == 1e-3 && seconds[1] == 1e-3 && seconds[2] == 1e-3);
    assert_true(square_is_right(f->s, false));
    assert_int_equal(atomic_load(&f->fake->live_allocations), 0);
    f->fake->alloc.fail_at = atomic_load(&f->fake->alloc.calls) + 2;
    f->fake->alloc.status = GK_ERR_NOMEM;
    assert_gk_err(gk_measure(f->plan, &f->s->call, 1, 3, seconds), GK_ERR_NOMEM, NULL);
    assert_int_equal(atomic_load(&f->fake->live_allocations), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        API_TEST(test_one_area_a_stream),
        API_TEST(test_repetitions),
        API_TEST(test_one_area_a_thread),
        API_TEST(test_none_without_need),
        API_TEST(test_growth),
        API_TEST(test_growth_is_bounded),
        API_TEST(test_device_out_of_memory),
        API_TEST(test_capture),
        API_TEST(test_prepare),
        API_TEST(test_measure),
    };
    return GK_TEST_MAIN(tests);
}
