/* How the CUDA driver times launches: in a stream, and from graphs, which it keeps for a while and
 * replays with a cold L2. */
#define _GNU_SOURCE
#include "cuda_case.h"

#include <gk/extend.h>

static gki_kernel_launch launch_of(gki_module *module, const int32_t *arg)
{
    const gki_kernel_launch launch = {.module = module,
                                      .grid = 8,
                                      .threads = 128,
                                      .cluster = 1,
                                      .args = arg,
                                      .args_size = sizeof(*arg)};
    return launch;
}

/* What the fake saw since the last one: graphs' launches, flushes, recorded events. */
static void keep_trace(outcome *o, int index)
{
    fake_cuda *fake = fake_state();
    memcpy(o->messages[index], fake->trace, sizeof(fake->trace));
    fake->trace[0] = '\0';
}

static int64_t live(void)
{
    const fake_cuda *fake = fake_state();
    return fake->live_streams + fake->live_events + fake->live_graphs + fake->live_execs +
           fake->live_allocs + fake->live_modules;
}

static void check_values(const outcome *o, const int64_t *wanted, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(o->values[i], wanted[i]);
    }
}

static void run_time(void *data)
{
    outcome *o = data;
    prepare(o);
    gki_device *device = open_device(o);
    const gki_driver *driver = device->driver;
    fake_cuda *fake = fake_state();
    gki_module *module = load_module(device);
    int32_t args[3] = {10, 11, 12};
    gki_kernel_launch launches[3];
    for (int i = 0; i < 3; i++) {
        launches[i] = launch_of(module, &args[i]);
        launches[i].cluster = i == 2 ? 2 : 1;
    }
    double seconds = 0;
    o->statuses[0] = driver->time(device, launches, 3, 4, false, &seconds);
    o->values[0] = (int64_t)(seconds * 1e9 + 0.5);
    o->values[1] = fake->n_launches;
    o->values[2] =
        fake->launches[0].arg * 10000 + fake->launches[4].arg * 100 + fake->launches[11].arg;
    o->values[3] = fake->launches[2].cluster;
    o->statuses[1] = driver->time(device, launches, 3, 4, true, &seconds);
    o->values[4] = (int64_t)(seconds * 1e9 + 0.5);
    o->values[5] = fake->n_nodes;
    o->values[6] = fake->graph_launches;
    o->values[7] = fake->nodes[3].arg * 10000 + fake->nodes[4].arg * 100 + fake->nodes[11].arg;
    o->values[8] = fake->nodes[11].cluster * 10 + fake->nodes[10].cluster;
    keep_trace(o, 0);
    fake->n_nodes = 0;
    fake->graph_launches = 0;
    /* 3000 launches: graphs of 1023 nodes, 3 replays. */
    o->statuses[2] = driver->time(device, launches, 3, 1000, true, &seconds);
    o->values[9] = (int64_t)(seconds * 1e9 + 0.5);
    o->values[10] = fake->n_nodes;
    o->values[11] = fake->graph_launches;
    o->values[12] = fake->n_launches;
    keep_trace(o, 1);
    o->statuses[3] = driver->time(device, launches, 0, 1, true, &seconds);
    o->statuses[4] = driver->time(device, launches, 1, 0, false, &seconds);
    /* Work in the default stream and in streams of the driver is waited for. */
    void *streams[2] = {NULL, NULL};
    (void)driver->stream_create(device, &streams[0]);
    (void)driver->stream_create(device, &streams[1]);
    fake->syncs = 0;
    (void)driver->time(device, launches, 1, 1, false, &seconds);
    o->values[13] = fake->syncs;
    driver->stream_destroy(device, streams[0]);
    fake->syncs = 0;
    (void)driver->time(device, launches, 1, 1, false, &seconds);
    o->values[14] = fake->syncs;
    driver->stream_destroy(device, streams[1]);
    driver->module_unload(device, module);
    driver->close(device);
    o->values[15] = live();
}

static void test_time(void **state)
{
    (void)state;
    outcome o = run(run_time, "");
    assert_int_equal(o.statuses[0], GK_OK);
    assert_int_equal(o.statuses[1], GK_OK);
    assert_int_equal(o.statuses[2], GK_OK);
    assert_int_equal(o.statuses[3], GK_ERR_INTERNAL);
    assert_int_equal(o.statuses[4], GK_ERR_INTERNAL);
    assert_int_equal(o.values[0], FAKE_LAUNCH_US * 1000);
    assert_int_equal(o.values[1], 12);
    assert_int_equal(o.values[2], 101112);
    assert_int_equal(o.values[3], 2);
    assert_int_equal(o.values[4], FAKE_NODE_US * 1000);
    assert_int_equal(o.values[5], 12);
    assert_int_equal(o.values[6], 2);
    assert_string_equal(o.messages[0], "RRGFRGR"); /* in a stream first */
    assert_int_equal(o.values[7], 101112);
    assert_int_equal(o.values[8], 21);
    assert_int_equal(o.values[9], FAKE_NODE_US * 1000);
    assert_int_equal(o.values[10], 1023);
    assert_int_equal(o.values[11], 4);
    assert_string_equal(o.messages[1], "GFRGGGR");
    assert_int_equal(o.values[12], 12);
    assert_int_equal(o.values[13], 3);
    assert_int_equal(o.values[14], 2);
    assert_int_equal(o.values[15], 0);
}

/* Times one launch 20 times from a graph; the value is 1 if it took a new graph. */
static int64_t makes_graph(gki_device *device, const gki_kernel_launch *launch)
{
    fake_cuda *fake = fake_state();
    double seconds = 0;
    fake->n_nodes = 0;
    fake->trace[0] = '\0';
    if (device->driver->time(device, launch, 1, 20, true, &seconds) != GK_OK ||
        (int64_t)(seconds * 1e9 + 0.5) != FAKE_NODE_US * 1000 ||
        (fake->n_nodes != 0 && fake->n_nodes != 20) ||
        strcmp(fake->trace, fake->n_nodes > 0 ? "GFRGR" : "FRGR") != 0) {
        abort();
    }
    return fake->n_nodes > 0;
}

static void run_kept(void *data)
{
    outcome *o = data;
    prepare(o);
    gki_device *device = open_device(o);
    const gki_driver *driver = device->driver;
    fake_cuda *fake = fake_state();
    gki_module *modules[2] = {load_module(device), load_module(device)};
    int32_t arg = 1;
    gki_kernel_launch launch = launch_of(modules[0], &arg);
    int64_t *made = o->values;
    *made++ = makes_graph(device, &launch);
    *made++ = makes_graph(device, &launch);
    arg = 2;
    *made++ = makes_graph(device, &launch);
    launch.grid = 9;
    *made++ = makes_graph(device, &launch);
    launch.overlap = 1;
    *made++ = makes_graph(device, &launch);
    launch.smem = 1024;
    *made++ = makes_graph(device, &launch);
    launch.module = modules[1];
    *made++ = makes_graph(device, &launch);
    *made++ = makes_graph(device, &launch);
    *made++ = fake->live_execs;
    driver->time_done(device);
    *made++ = fake->live_execs;
    *made++ = makes_graph(device, &launch);
    /* No graph outlives a kernel that it might launch. */
    driver->module_unload(device, modules[0]);
    *made++ = fake->live_execs;
    *made++ = makes_graph(device, &launch);
    /* Room for a dozen. */
    for (arg = 100; arg < 150; arg++) {
        (void)makes_graph(device, &launch);
    }
    *made++ = fake->live_execs;
    arg = 149;
    *made++ = makes_graph(device, &launch);
    arg = 138;
    *made++ = makes_graph(device, &launch);
    arg = 137;
    *made++ = makes_graph(device, &launch);
    driver->module_unload(device, modules[1]);
    (void)driver->close(device);
    *made++ = fake->live_execs + fake->live_graphs;
}

static void test_graphs_are_kept(void **state)
{
    static const int64_t wanted[] = {1, 0, 1, 1, 1, 1, 1, 0, 6, 0, 1, 0, 1, 12, 0, 0, 1, 0};
    (void)state;
    outcome o = run(run_kept, "l2=4096");
    check_values(&o, wanted, sizeof(wanted) / sizeof(wanted[0]));
}

/* A graph that failed is not used again. */
static void run_failing(void *data)
{
    outcome *o = data;
    prepare(o);
    gki_device *device = open_device(o);
    const gki_driver *driver = device->driver;
    gki_module *module = load_module(device);
    int32_t arg = 1;
    gki_kernel_launch launch = launch_of(module, &arg);
    double seconds = 0;
    o->statuses[0] = driver->time(device, &launch, 1, 20, true, &seconds);
    o->values[0] = fake_state()->live_execs;
    driver->module_unload(device, module);
    driver->close(device);
}

static void test_failing_graph(void **state)
{
    (void)state;
    outcome o = run(run_failing, "graph=1");
    assert_int_not_equal(o.statuses[0], GK_OK);
    assert_int_equal(o.values[0], 0);
}

/* --- L2 is evicted before --- */

typedef struct timer {
    gki_device *device;
    gki_module *module;
    int32_t arg;
    int32_t notes; /* lines logged */
    char note[200];
    outcome *o;
} timer;

static void take_note(void *user, gk_log_level level, const char *line)
{
    timer *t = user;
    t->notes += level == GK_LOG_INFO ? 1 : 100;
    (void)snprintf(t->note, sizeof(t->note), "%s", line);
}

static void open_timer(timer *t, outcome *o)
{
    prepare(o);
    *t = (timer){.o = o};
    const gki_log log = {take_note, t, GK_LOG_DEBUG};
    if (gki_driver_cuda.open(&gki_driver_cuda, 0, &log, &t->device) != GK_OK) {
        abort();
    }
    t->module = load_module(t->device);
}

/* Twenty launches from a graph; keeps what the fake saw of them. */
static gk_status time_once(timer *t, int index)
{
    const gki_kernel_launch launch = launch_of(t->module, &t->arg);
    double seconds = 0;
    fake_state()->trace[0] = '\0';
    gk_status status = t->device->driver->time(t->device, &launch, 1, 20, true, &seconds);
    keep_trace(t->o, index);
    if (status == GK_OK && (int64_t)(seconds * 1e9 + 0.5) != FAKE_NODE_US * 1000) {
        abort();
    }
    return status;
}

/* What is left when all is closed. */
static int64_t close_timer(timer *t)
{
    t->device->driver->module_unload(t->device, t->module);
    t->device->driver->close(t->device);
    return live();
}

static void run_flush(void *data)
{
    outcome *o = data;
    timer t;
    open_timer(&t, o);
    const fake_cuda *fake = fake_state();
    o->statuses[0] = time_once(&t, 0);
    o->values[0] = fake->flush_bytes;
    o->values[1] = fake->alloc_bytes;
    o->values[2] = fake->flush.grid * 1000 + fake->flush.threads;
    o->values[3] = fake->graph_stream != NULL && fake->flush.stream == fake->graph_stream &&
                   fake->memset_stream == fake->graph_stream;
    o->values[4] = fake->live_allocs;
    o->statuses[1] = time_once(&t, 1);
    t.device->driver->time_done(t.device);
    o->values[5] = fake->live_allocs * 100 + fake->live_modules * 10 + fake->live_execs;
    t.device->driver->time_done(t.device);
    o->statuses[2] = time_once(&t, 2);
    o->values[6] = fake->live_allocs;
    o->values[7] = fake->ptx_loads;
    o->values[8] = t.notes;
    o->values[9] = close_timer(&t);
    o->values[10] = fake->pushes - fake->pops;
}

static void test_flush(void **state)
{
    static const int64_t wanted[] = {2000000, 2000000, 80256, 1, 1, 20, 1, 1, 0, 0, 0};
    (void)state;
    outcome o = run(run_flush, "l2=1000000|sms=10");
    check_values(&o, wanted, sizeof(wanted) / sizeof(wanted[0]));
    for (int i = 0; i < 3; i++) {
        assert_int_equal(o.statuses[i], GK_OK);
    }
    assert_string_equal(o.messages[0], "GFRGR");
    assert_string_equal(o.messages[1], "FRGR");
    assert_string_equal(o.messages[2], "GFRGR");
}

/* The kernel does not load, or is not found in what loads: as ordinal says. */
static void run_no_kernel(void *data)
{
    outcome *o = data;
    timer t;
    open_timer(&t, o);
    const bool absent = o->ordinal == 1;
    fake_cuda *fake = fake_state();
    fake->fail_ptx = absent ? 0 : 221;
    fake->no_ptx_kernel = absent;
    (void)gk_fail(GK_ERR_INVALID, "test", "an error from before");
    o->statuses[0] = time_once(&t, 0);
    o->statuses[1] = time_once(&t, 1);
    o->values[0] = fake->live_modules;
    t.device->driver->time_done(t.device);
    fake->fail_ptx = 0;
    fake->no_ptx_kernel = 0;
    o->statuses[2] = time_once(&t, 2);
    o->values[1] = fake->ptx_loads;
    o->values[2] = fake->live_allocs;
    o->values[3] = t.notes;
    o->values[4] = strcmp(gk_error_last()->message, "an error from before") == 0;
    memcpy(o->log, t.note, sizeof(t.note));
    o->values[5] = close_timer(&t);
}

static void test_no_kernel(void **state)
{
    static const int64_t wanted[] = {1, 1, 0, 1, 1, 0};
    (void)state;
    for (int absent = 0; absent < 2; absent++) {
        given.ordinal = absent;
        outcome o = run(run_no_kernel, "l2=4096");
        check_values(&o, wanted, sizeof(wanted) / sizeof(wanted[0]));
        for (int i = 0; i < 3; i++) {
            assert_int_equal(o.statuses[i], GK_OK);
            assert_string_equal(o.messages[i], "GRGR");
        }
        assert_non_null(strstr(o.log, "no kernel"));
    }
}

static void run_no_buffer(void *data)
{
    outcome *o = data;
    timer t;
    open_timer(&t, o);
    fake_cuda *fake = fake_state();
    (void)gk_fail(GK_ERR_INVALID, "test", "an error from before");
    fake->fail_alloc = 2;
    o->statuses[0] = time_once(&t, 0);
    fake->fail_alloc = 0;
    o->statuses[1] = time_once(&t, 1); /* not asked for again */
    t.device->driver->time_done(t.device);
    fake->fail_memset = 1;
    o->statuses[2] = time_once(&t, 2);
    o->values[0] = fake->live_allocs;
    t.device->driver->time_done(t.device);
    fake->fail_memset = 0;
    o->statuses[3] = time_once(&t, 3);
    o->values[1] = fake->live_allocs;
    o->values[2] = fake->ptx_loads;
    o->values[3] = t.notes;
    o->values[4] = strcmp(gk_error_last()->message, "an error from before") == 0;
    memcpy(o->log, t.note, sizeof(t.note));
    o->values[5] = close_timer(&t);
}

static void test_no_buffer(void **state)
{
    static const int64_t wanted[] = {0, 1, 1, 1, 1, 0};
    (void)state;
    outcome o = run(run_no_buffer, "l2=4096");
    check_values(&o, wanted, sizeof(wanted) / sizeof(wanted[0]));
    for (int i = 0; i < 4; i++) {
        assert_int_equal(o.statuses[i], GK_OK);
        assert_string_equal(o.messages[i], i < 3 ? "GRGR" : "GFRGR");
    }
    assert_non_null(strstr(o.log, "no memory"));
    assert_non_null(strstr(o.log, "CUDA_ERROR_OUT_OF_MEMORY"));
}

static void test_no_l2(void **state)
{
    (void)state;
    outcome o = run(run_flush, "l2=0");
    for (int i = 0; i < 3; i++) {
        assert_int_equal(o.statuses[i], GK_OK);
        assert_string_equal(o.messages[i], "GRGR");
    }
    assert_int_equal(o.values[4], 0); /* allocations */
    assert_int_equal(o.values[7], 0); /* loads */
    assert_int_equal(o.values[8], 0); /* notes */
    assert_int_equal(o.values[9], 0);
}

static void run_flush_fails(void *data)
{
    outcome *o = data;
    timer t;
    open_timer(&t, o);
    fake_cuda *fake = fake_state();
    char text[972];
    fake->fail_flush = 701;
    o->statuses[0] = time_once(&t, 0);
    memcpy(text, gk_error_last()->message, sizeof(text));
    o->values[0] = fake->live_execs + fake->live_graphs;
    fake->fail_flush = 0;
    o->statuses[1] = time_once(&t, 1);
    o->values[1] = strncmp(text, "evicting L2", 11) == 0;
    o->values[2] = t.notes;
    o->values[3] = close_timer(&t);
    o->values[4] = fake->pushes - fake->pops;
}

static void test_flush_fails(void **state)
{
    static const int64_t wanted[] = {0, 1, 0, 0, 0};
    (void)state;
    outcome o = run(run_flush_fails, "l2=4096");
    check_values(&o, wanted, sizeof(wanted) / sizeof(wanted[0]));
    assert_int_equal(o.statuses[0], GK_ERR_DEVICE);
    assert_int_equal(o.statuses[1], GK_OK);
    assert_string_equal(o.messages[0], "GF");
    assert_string_equal(o.messages[1], "GFRGR");
}

/* A context that is lost is no reason to time another way; ordinal says when it is. */
static void run_lost(void *data)
{
    outcome *o = data;
    timer t;
    open_timer(&t, o);
    fake_cuda *fake = fake_state();
    fake->fail_ptx = o->ordinal == 0 ? 700 : 0;
    fake->fail_alloc = o->ordinal == 1 ? 700 : 0;
    fake->fail_memset = o->ordinal == 2 ? 700 : 0;
    fake->fail_flush = o->ordinal == 3 ? 700 : 0;
    o->statuses[0] = time_once(&t, 0);
    o->driver_code = gk_error_last()->driver_code;
    o->values[0] = t.notes;
    o->values[1] = close_timer(&t);
}

static void test_lost(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++) {
        given.ordinal = i;
        outcome o = run(run_lost, "l2=4096");
        assert_int_equal(o.statuses[0], GK_ERR_LOST);
        assert_int_equal(o.driver_code, 700);
        assert_string_equal(o.messages[0], i == 3 ? "GF" : "");
        assert_int_equal(o.values[0], 0);
        assert_int_equal(o.values[1], 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_time),          cmocka_unit_test(test_graphs_are_kept),
        cmocka_unit_test(test_failing_graph), cmocka_unit_test(test_flush),
        cmocka_unit_test(test_no_kernel),     cmocka_unit_test(test_no_buffer),
        cmocka_unit_test(test_no_l2),         cmocka_unit_test(test_flush_fails),
        cmocka_unit_test(test_lost),
    };
    return GK_TEST_MAIN(tests);
}
