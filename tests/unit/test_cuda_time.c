/* How the CUDA driver times launches: in a stream, and from graphs, which it keeps for a while. */
#define _GNU_SOURCE
#include "cuda_case.h"

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
    o->values[6] = fake->graph_launches; /* once to warm up, once timed */
    o->values[7] = fake->nodes[3].arg * 10000 + fake->nodes[4].arg * 100 + fake->nodes[11].arg;
    o->values[8] = fake->nodes[11].cluster * 10 + fake->nodes[10].cluster;
    fake->n_nodes = 0;
    fake->graph_launches = 0;
    /* 3000 launches: graphs of 1023 nodes, 3 replays. */
    o->statuses[2] = driver->time(device, launches, 3, 1000, true, &seconds);
    o->values[9] = (int64_t)(seconds * 1e9 + 0.5);
    o->values[10] = fake->n_nodes;
    o->values[11] = fake->graph_launches;
    o->values[12] = fake->n_launches;
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
    o->values[15] = fake->live_streams + fake->live_events + fake->live_graphs + fake->live_execs;
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
    assert_int_equal(o.values[7], 101112);
    assert_int_equal(o.values[8], 21);
    assert_int_equal(o.values[9], FAKE_NODE_US * 1000);
    assert_int_equal(o.values[10], 1023);
    assert_int_equal(o.values[11], 4);
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
    fake->graph_launches = 0;
    if (device->driver->time(device, launch, 1, 20, true, &seconds) != GK_OK ||
        fake->graph_launches != 2 || (fake->n_nodes != 0 && fake->n_nodes != 20)) {
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
    outcome o = run(run_kept, "");
    for (size_t i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++) {
        assert_int_equal(o.values[i], wanted[i]);
    }
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_time),
        cmocka_unit_test(test_graphs_are_kept),
        cmocka_unit_test(test_failing_graph),
    };
    return GK_TEST_MAIN(tests);
}
