/* Tensor maps and launch attributes, from a variant's description to what the device is given. */
#define _GNU_SOURCE
#include "api_case.h"

#include <pthread.h>

#include "support/add_op.h"
#include "support/devices.h"

/* --- what can be described --- */

static gk_map_desc good_desc(void)
{
    static _Alignas(64) unsigned char memory[64];
    return (gk_map_desc){.data = memory,
                         .dtype = GK_BF16,
                         .rank = 2,
                         .dims = {1000, 500},
                         .strides = {0, 2000},
                         .box = {64, 128},
                         .swizzle = 128,
                         .l2_promotion = 256};
}

static void expect_refused(const gk_map_desc *desc, const char *text)
{
    gk_reason reason = {{0}};
    assert_false(gki_map_check(desc, &reason));
    if (strstr(reason.text, text) == NULL) {
        fail_msg("\"%s\" is not in \"%s\"", text, reason.text);
    }
}

static void test_limits(void **state)
{
    (void)state;
    gk_reason reason = {{0}};
    gk_map_desc d = good_desc();
    assert_true(gki_map_check(&d, &reason));
    d.rank = 5;
    for (int i = 2; i < 5; i++) {
        d.dims[i] = INT64_C(1) << 32;
        d.strides[i] = (INT64_C(1) << 40) - 16;
        d.box[i] = 256;
    }
    assert_true(gki_map_check(&d, &reason));
    d = good_desc();
    d.rank = 1;
    d.strides[1] = 1;
    assert_true(gki_map_check(&d, &reason));
    d.swizzle = 0;
    d.box[0] = 256;
    assert_true(gki_map_check(&d, &reason));
}

static void test_refused(void **state)
{
    (void)state;
    gk_map_desc d = good_desc();
    d.data = (char *)d.data + 8;
    expect_refused(&d, "16-byte aligned");
    d.data = NULL;
    expect_refused(&d, "16-byte aligned");
    d = good_desc();
    d.dtype = 99;
    expect_refused(&d, "dtype is 99");
    d = good_desc();
    d.rank = 0;
    expect_refused(&d, "rank is 0");
    d.rank = 6;
    expect_refused(&d, "rank is 6");
    d = good_desc();
    d.dims[1] = 0;
    expect_refused(&d, "dims[1] is 0");
    d.dims[1] = (INT64_C(1) << 32) + 1;
    expect_refused(&d, "dims[1] is 4294967297");
    d = good_desc();
    d.strides[1] = 2002;
    expect_refused(&d, "strides[1] is 2002");
    d.strides[1] = INT64_C(1) << 40;
    expect_refused(&d, "strides[1] is 1099511627776");
    d.strides[1] = -16;
    expect_refused(&d, "strides[1] is -16");
    d = good_desc();
    d.box[1] = 257;
    expect_refused(&d, "box[1] is 257");
    d.box[1] = 0;
    expect_refused(&d, "box[1] is 0");
    d = good_desc();
    d.box[0] = 60;
    expect_refused(&d, "120 bytes");
    d.box[0] = 72;
    expect_refused(&d, "144 bytes, a swizzle of 128");
    d = good_desc();
    d.swizzle = 16;
    expect_refused(&d, "swizzle is 16");
    d = good_desc();
    d.l2_promotion = 32;
    expect_refused(&d, "l2_promotion is 32");
}

/* --- an op whose kernel takes a map of each operand --- */

typedef struct seen_launch {
    gk_map_desc maps[3];
    gki_kernel_launch launch;
    int64_t n; /* the last field that the op packs */
    int count;
} seen_launch;

typedef struct fixture {
    fake_device *fake;
    gk_context *ctx;
    _Alignas(64) float a[2][ADD_N], b[ADD_N], c[ADD_N];
    gk_tensor tensors[3];
    gk_call call;
    gk_problem problem;
    gki_entry *entry;
    seen_launch seen;
} fixture;

static gk_variant mapped;
static const gk_variant *const variants[] = {&mapped, &add_wide};
static bool describable;
static int offset;
static int32_t cluster, cooperative;

static bool maps(const gk_call *call, const gk_problem *problem, const gk_device_info *device,
                 const gk_config *config, void *workspace, gk_map_desc *out)
{
    assert_int_equal(device->sm_count, fake_h100.sm_count);
    (void)workspace;
    for (int i = 0; i < 3; i++) {
        out[i] = (gk_map_desc){.data = (char *)call->args[i]->data + offset,
                               .dtype = GK_F32,
                               .rank = 2,
                               .dims = {1, problem->dims[0]},
                               .strides = {0, call->args[i]->stride[0] * 16},
                               .box = {4, config->values[0]}};
    }
    return describable;
}

static void launch_mapped(const gk_problem *problem, const gk_device_info *device,
                          const gk_config *config, gk_launch *out)
{
    add_plain.launch(problem, device, config, out);
    if (config->values[0] == 16) {
        out->grid = 128;
        out->cluster = cluster;
        out->cooperative = cooperative;
    }
}

/* Computes what add_run does, behind the maps. */
static gk_status run_mapped(void *user, const fake_module *module, const gki_kernel_launch *launch)
{
    fixture *f = user;
    const unsigned char *args = launch->args;
    const size_t packed = 6 * sizeof(int64_t);
    if (launch->args_size == packed) {
        return add_run(NULL, module, launch);
    }
    f->seen.count++;
    f->seen.launch = *launch;
    for (int i = 0; i < 3; i++) {
        memcpy(&f->seen.maps[i], args + i * sizeof(gk_tensor_map), sizeof(gk_map_desc));
    }
    memcpy(&f->seen.n, args + 3 * sizeof(gk_tensor_map) + packed - 8, 8);
    gki_kernel_launch plain = *launch;
    plain.args = args + 3 * sizeof(gk_tensor_map);
    plain.args_size = packed;
    return add_run(NULL, module, &plain);
}

static void build(fixture *f, int32_t block)
{
    const gk_config config = {{block, 1}};
    assert_gk_ok(gki_entry_build(f->ctx, &add_op, &f->problem, &mapped, &config, GK_SOURCE_FORCED,
                                 &f->entry));
}

static int set_up(void **state)
{
    fixture *f = gki_alloc_aligned(64, sizeof(*f));
    assert_non_null(f);
    memset(f, 0, sizeof(*f));
    *state = f;
    add_templates();
    add_op_reset();
    mapped = add_plain;
    mapped.name = "mapped";
    mapped.launch = launch_mapped;
    mapped.n_maps = 3;
    mapped.maps = maps;
    describable = true;
    offset = 0;
    cluster = 0;
    cooperative = 0;
    add_op.variants = variants;
    f->fake = fake_device_create();
    f->fake->run = run_mapped;
    f->fake->run_user = f;
    f->fake->info.l2_bytes = 100000;
    f->ctx = context_on(f->fake, GK_MODE_TUNE, NULL, NULL);
    f->call = add_call(f->tensors, f->a[0], f->b, f->c, ADD_N);
    assert_gk_ok(add_op.infer(&f->call, &f->problem));
    return 0;
}

static int tear_down(void **state)
{
    fixture *f = *state;
    gki_free(f->entry);
    gk_context_destroy(&f->ctx);
    end_device(&f->fake);
    gki_free(f);
    return 0;
}

static int encoded(const fixture *f)
{
    return atomic_load(&f->fake->map.calls);
}

/* As a plan does. */
static gk_status launch_call(fixture *f)
{
    const gk_plan plan = {.ctx = f->ctx, .entry = f->entry};
    return gki_plan_launch(&plan, &f->call, NULL);
}

static void run(fixture *f)
{
    memset(f->c, 0xff, sizeof(f->c));
    assert_gk_ok(launch_call(f));
    assert_true(f->c[ADD_N - 1] == 0);
    assert_ptr_equal(f->seen.maps[0].data, f->tensors[0].data);
    assert_ptr_equal(f->seen.maps[1].data, f->tensors[1].data);
    assert_ptr_equal(f->seen.maps[2].data, f->tensors[2].data);
}

static void test_maps_reach_the_launch(void **state)
{
    fixture *f = *state;
    build(f, 32);
    run(f);
    assert_int_equal(f->seen.maps[2].dims[1], ADD_N);
    assert_int_equal(f->seen.maps[2].box[1], 32);
    assert_int_equal(f->seen.n, ADD_N);
    assert_int_equal(f->seen.launch.args_size, 3 * 128 + 64);
    assert_int_equal((uintptr_t)f->seen.launch.args % 64, 0);
    assert_int_equal(f->seen.launch.cooperative, 0);
    assert_int_equal(encoded(f), 3);
}

static void test_encoded_once_for_the_same_operands(void **state)
{
    fixture *f = *state;
    build(f, 32);
    for (int i = 0; i < 5; i++) {
        run(f);
    }
    assert_int_equal(encoded(f), 3);
    /* Others are made for other memory, and the old ones are kept beside them. */
    f->tensors[0].data = f->a[1];
    run(f);
    run(f);
    assert_int_equal(encoded(f), 6);
    f->tensors[0].data = f->a[0];
    run(f);
    assert_int_equal(encoded(f), 6);
    /* Another configuration. */
    gki_free(f->entry);
    build(f, 64);
    run(f);
    assert_int_equal(f->seen.maps[0].box[1], 64);
    assert_int_equal(encoded(f), 9);
}

static void test_many_operands(void **state)
{
    enum { SETS = 700 };
    fixture *f = *state;
    float *memory = gki_alloc_aligned(64, (SETS + ADD_N) * 16);
    assert_non_null(memory);
    memset(memory, 0, (SETS + ADD_N) * 16);
    build(f, 32);
    for (int round = 0; round < 6; round++) {
        if (round == 5) {
            atomic_store(&f->fake->map.calls, 0);
        }
        for (int i = 0; i < SETS; i++) {
            f->tensors[0].data = memory + (size_t)i * 4;
            run(f);
        }
    }
    /* Room has grown until they (almost) all found a place. */
    assert_in_range(encoded(f), 0, 3 * SETS / 10);
    gki_free(memory);
}

static void *run_in_thread(void *user)
{
    fixture *f = user;
    return launch_call(f) == GK_OK ? f : NULL;
}

static void test_another_thread(void **state)
{
    fixture *f = *state;
    build(f, 32);
    run(f);
    pthread_t thread;
    void *result = NULL;
    assert_int_equal(pthread_create(&thread, NULL, run_in_thread, f), 0);
    assert_int_equal(pthread_join(thread, &result), 0);
    assert_ptr_equal(result, f);
    assert_int_equal(encoded(f), 6);
    run(f);
    assert_int_equal(encoded(f), 6);
}

static void test_failures(void **state)
{
    fixture *f = *state;
    build(f, 32);
    f->fake->map.fail_at = 2;
    assert_gk_err(launch_call(f), GK_ERR_DEVICE, "map_encode");
    assert_int_equal(f->seen.count, 0);
    /* What was half made is not taken for whole. */
    run(f);
    assert_int_equal(encoded(f), 5);
    f->tensors[0].data = f->a[1];
    offset = 4;
    assert_gk_err(launch_call(f), GK_ERR_INVALID, "map 0 of variant mapped");
    assert_non_null(strstr(gk_error_last()->message, "16-byte aligned"));
    f->tensors[0].data = f->a[0];
    describable = false;
    run(f); /* not asked */
    f->tensors[0].data = f->a[1];
    assert_gk_err(launch_call(f), GK_ERR_INTERNAL, "variant mapped");
    assert_int_equal(f->seen.count, 2);
}

/* Without memory to remember them in maps are made each time. */
static void *run_without_memory(void *user)
{
    fixture *f = user;
    gki_alloc_fail_at(1); /* the thread's own */
    const gk_status first = launch_call(f);
    gki_alloc_fail_at(4); /* the launch's */
    const gk_status second = launch_call(f);
    gki_alloc_fail_at(0);
    return first == GK_OK && second == GK_OK ? f : NULL;
}

static void test_no_memory_for_maps(void **state)
{
    fixture *f = *state;
    build(f, 32);
    pthread_t thread;
    void *result = NULL;
    assert_int_equal(pthread_create(&thread, NULL, run_without_memory, f), 0);
    assert_int_equal(pthread_join(thread, &result), 0);
    assert_ptr_equal(result, f);
    assert_int_equal(encoded(f), 6);
    assert_int_equal(f->seen.count, 2);
}

/* --- measuring and tuning --- */

static void test_measure(void **state)
{
    fixture *f = *state;
    double seconds[2];
    build(f, 32);
    const gk_plan plan = {.ctx = f->ctx, .entry = f->entry};
    gk_call calls[2] = {f->call, f->call};
    gk_tensor other = f->tensors[0];
    other.data = f->a[1];
    calls[1].args[0] = &other;
    assert_gk_ok(gk_measure(&plan, calls, 2, 2, seconds));
    assert_ptr_equal(f->seen.maps[0].data, f->a[1]);
    assert_int_equal(encoded(f), 6);
    f->fake->map.fail_at = encoded(f) + 5;
    assert_gk_err(gk_measure(&plan, calls, 2, 2, seconds), GK_ERR_DEVICE, "map_encode");
}

static gk_status tune(fixture *f, gki_candidate *winner)
{
    gk_tune_options options = GK_TUNE_OPTIONS_INIT;
    options.retune = true;
    return gki_tune(f->ctx->jit, &add_op, &f->call, &f->problem, &options, winner, NULL);
}

static void test_tune(void **state)
{
    fixture *f = *state;
    gki_candidate winner;
    fake_device_rule(f->fake, "x16")->seconds = 1e-6;
    cluster = 4;
    cooperative = 1;
    assert_gk_ok(tune(f, &winner));
    assert_ptr_equal(winner.variant, &mapped);
    assert_int_equal(winner.config.values[0], 16);
    assert_int_equal(f->seen.launch.cluster, 4);
    assert_int_equal(f->seen.launch.cooperative, 1);
    assert_true(f->seen.maps[2].data != f->c); /* gk's own copy */
    /* A candidate without maps is as good as none; another variant is left. */
    f->fake->map.fail_at = 1;
    f->fake->map.fail_count = -1;
    assert_gk_ok(tune(f, &winner));
    assert_ptr_equal(winner.variant, &add_wide);
}

/* --- room for clusters and cooperative launches --- */

static void test_room(void **state)
{
    fixture *f = *state;
    const gk_config config = {{16, 1}};
    gki_candidate winner;
    fake_rule *first = fake_device_rule(f->fake, "x16");
    first->seconds = 1e-6;
    cluster = 4;
    f->fake->room = 3;
    assert_gk_err(gki_entry_build(f->ctx, &add_op, &f->problem, &mapped, &config, GK_SOURCE_FORCED,
                                  &f->entry),
                  GK_ERR_NO_CONFIG, "in clusters of 4");
    assert_gk_ok(tune(f, &winner));
    assert_int_not_equal(winner.config.values[0], 16);
    assert_int_equal(atomic_load(&first->launched), 0);
    f->fake->room = 5;
    build(f, 16);
    gki_free(f->entry);
    cluster = 1;
    cooperative = 1;
    f->fake->room = 127;
    assert_gk_err(gki_entry_build(f->ctx, &add_op, &f->problem, &mapped, &config, GK_SOURCE_FORCED,
                                  &f->entry),
                  GK_ERR_NO_CONFIG, "128 blocks of 64 threads");
    assert_non_null(strstr(gk_error_last()->message, "127"));
    f->fake->room = 128;
    f->fake->resident.fail_at = atomic_load(&f->fake->resident.calls) + 1;
    assert_gk_err(gki_entry_build(f->ctx, &add_op, &f->problem, &mapped, &config, GK_SOURCE_FORCED,
                                  &f->entry),
                  GK_ERR_DEVICE, "resident");
    build(f, 16);
    run(f);
    assert_int_equal(f->seen.launch.cooperative, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_refused),
        cmocka_unit_test_setup_teardown(test_maps_reach_the_launch, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_encoded_once_for_the_same_operands, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_many_operands, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_another_thread, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_failures, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_no_memory_for_maps, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_measure, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_tune, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_room, set_up, tear_down),
    };
    return GK_TEST_MAIN(tests);
}
