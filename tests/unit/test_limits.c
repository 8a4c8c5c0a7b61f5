/* Configurations beyond what the device has: refused with both numbers, never timed or stored, and
 * the next one runs. */
#define _GNU_SOURCE
#include "api_case.h"

#include "support/add_op.h"

/* --- an op whose configurations take what a test says --- */

/* What a block of BLOCK=16, the model's favourite and the fastest, and one of BLOCK=32 take. */
static struct {
    int64_t smem16, smem32;
    int32_t threads16;
} demand;

static void launch_on_demand(const gk_problem *problem, const gk_device_info *device,
                             const gk_config *config, gk_launch *out)
{
    add_plain.launch(problem, device, config, out);
    if (config->values[0] == 16) {
        out->smem = demand.smem16;
        out->threads = demand.threads16;
    } else if (config->values[0] == 32) {
        out->smem = demand.smem32;
    }
}

typedef struct fixture {
    fake_device *fake;
    gki_cache *cache;
    gki_counters counters;
    gki_jit *jit;
    fake_rule *first, *second;
    float a[ADD_N], b[ADD_N], c[ADD_N];
    gk_tensor tensors[3];
    gk_call call;
    gk_problem problem;
    gki_candidate winner;
    gk_tune_report report;
} fixture;

static gk_variant on_demand;
static const gk_variant *const variants[] = {&on_demand};

static int set_up(void **state)
{
    fixture *f = gki_calloc(1, sizeof(*f));
    assert_non_null(f);
    *state = f;
    add_templates();
    add_op_reset();
    on_demand = add_plain;
    on_demand.launch = launch_on_demand;
    add_op.variants = variants;
    add_op.n_variants = 1;
    demand.smem16 = 16;
    demand.smem32 = 32;
    demand.threads16 = 64;
    f->fake = fake_device_create();
    f->fake->run = add_run;
    f->fake->info.l2_bytes = 100000;
    f->first = fake_device_rule(f->fake, "x16");
    f->first->seconds = 1e-6;
    f->second = fake_device_rule(f->fake, "x32");
    f->second->seconds = 1e-4;
    assert_gk_ok(gki_cache_open(&f->cache, ":memory:", 1 << 20, NULL));
    f->call = add_call(f->tensors, f->a, f->b, f->c, ADD_N);
    assert_gk_ok(add_op.infer(&f->call, &f->problem));
    return 0;
}

static int tear_down(void **state)
{
    fixture *f = *state;
    gki_jit_destroy(&f->jit);
    gki_cache_close(&f->cache);
    end_device(&f->fake);
    gki_free(f);
    return 0;
}

static gk_status tune(fixture *f)
{
    gki_jit_destroy(&f->jit);
    const gki_jit_options options = {.device = &f->fake->base,
                                     .cache = f->cache,
                                     .counters = &f->counters,
                                     .compile_threads = 1};
    const gk_tune_options tuning = GK_TUNE_OPTIONS_INIT;
    assert_gk_ok(gki_jit_create(&f->jit, &options));
    return gki_tune(f->jit, &add_op, &f->call, &f->problem, &tuning, &f->winner, &f->report);
}

typedef struct found_trial {
    const char *config;
    uint32_t rows;
    char status[32];
    bool chosen;
    double seconds;
} found_trial;

static bool find_trial(void *user, const gk_trial *trial)
{
    found_trial *found = user;
    if (strncmp(trial->config, found->config, strlen(found->config)) == 0) {
        found->rows++;
        (void)snprintf(found->status, sizeof(found->status), "%s", trial->status);
        found->chosen = found->chosen || trial->chosen;
        found->seconds += trial->seconds;
    }
    return true;
}

/* The trials whose configuration begins so. */
static found_trial trials_of(fixture *f, const char *config)
{
    char problem[GKI_PROBLEM_TEXT];
    char environment[GKI_ENVIRONMENT_TEXT];
    found_trial found = {.config = config};
    gki_problem_text(&add_op, &f->problem, problem, sizeof(problem));
    assert_gk_ok(gki_environment_text(f->jit, &add_op, environment, sizeof(environment)));
    const gki_key key = {add_op.name, problem, environment};
    assert_gk_ok(gki_cache_trials(f->cache, &key, find_trial, &found));
    return found;
}

static void assert_first_never_ran(fixture *f)
{
    assert_int_equal(atomic_load(&f->first->timed), 0);
    assert_int_equal(atomic_load(&f->first->launched), 0);
    assert_string_equal(f->report.config, "BLOCK=32 SPAN=1");
    assert_int_equal(f->winner.config.values[0], 32);
    assert_true(atomic_load(&f->second->timed) > 0);
    assert_true(trials_of(f, "BLOCK=32 ").chosen);
}

static void smem_beyond(fixture *f, int64_t limit, const char *limit_text, const char *needed_text)
{
    static const gk_config config = {{16, 1}};
    gk_reason reason = {""};
    f->fake->info.smem_per_block_optin = limit;
    demand.smem16 = limit + 4;
    demand.smem32 = limit;
    assert_false(gki_config_check(&on_demand, &f->problem, &f->fake->info, &config, &reason));
    assert_non_null(strstr(reason.text, limit_text));
    assert_non_null(strstr(reason.text, needed_text));
    assert_gk_ok(tune(f));
    assert_int_equal(atomic_load(&f->first->compiled), 0);
    assert_first_never_ran(f);
    assert_int_equal(trials_of(f, "BLOCK=16 ").rows, 0);
    /* All there is may be used. */
    assert_true(trials_of(f, "BLOCK=32 ").seconds > 0);
}

static void test_shared_memory_99k(void **state)
{
    smem_beyond(*state, 101376, "101376", "101380");
}

static void test_shared_memory_64k(void **state)
{
    smem_beyond(*state, 65536, "65536", "65540");
}

/* More than can be had without opting in is asked for, to the byte. */
static void smem_above_default(fixture *f, int64_t smem)
{
    demand.smem16 = smem;
    assert_gk_ok(tune(f));
    assert_string_equal(f->report.config, "BLOCK=16 SPAN=1");
    gki_kernel *kernel = NULL;
    gk_launch launch = {0};
    on_demand.launch(&f->problem, &f->fake->info, &f->winner.config, &launch);
    gki_jit_destroy(&f->jit);
    const gki_jit_options options = {.device = &f->fake->base,
                                     .cache = f->cache,
                                     .counters = &f->counters,
                                     .compile_threads = 1};
    assert_gk_ok(gki_jit_create(&f->jit, &options));
    atomic_store(&f->fake->reserved_smem, 0);
    assert_gk_ok(gki_kernel_load(f->jit, &add_op, &on_demand, &f->problem, &f->winner.config,
                                 &launch, &kernel));
    assert_int_equal(atomic_load(&f->fake->reserved_smem), smem);
}

static void test_shared_memory_48k(void **state)
{
    smem_above_default(*state, 49152);
}

static void test_shared_memory_above_48k(void **state)
{
    smem_above_default(*state, 49156);
}

static void test_registers(void **state)
{
    fixture *f = *state;
    demand.threads16 = 1024;
    f->first->registers = 65; /* given in units of 8: 72 * 1024 */
    assert_gk_ok(tune(f));
    assert_first_never_ran(f);
    const found_trial refused = trials_of(f, "BLOCK=16 ");
    assert_true(refused.rows > 0);
    assert_string_equal(refused.status, "no_resource");
    assert_false(refused.chosen);
    assert_true(refused.seconds == 0);
}

static void test_just_enough_registers(void **state)
{
    fixture *f = *state;
    demand.threads16 = 1024;
    f->first->registers = 64;
    assert_gk_ok(tune(f));
    assert_string_equal(f->report.config, "BLOCK=16 SPAN=1");
}

static void test_registers_of_the_only_one(void **state)
{
    static const int32_t one[] = {16};
    static const gk_param params[] = {{"BLOCK", "x", one, 1, 0}, {"SPAN", "_s", one, 1, 1}};
    fixture *f = *state;
    on_demand.params = params;
    demand.threads16 = 1024;
    f->first->registers = 65;
    assert_gk_err(tune(f), GK_ERR_NO_CONFIG, "73728");
    assert_non_null(strstr(gk_error_last()->message, "65536"));
    assert_int_equal(atomic_load(&f->first->timed), 0);
}

static void test_threads(void **state)
{
    static const gk_config config = {{16, 1}};
    fixture *f = *state;
    gk_reason reason = {""};
    demand.threads16 = 1025;
    assert_false(gki_config_check(&on_demand, &f->problem, &f->fake->info, &config, &reason));
    assert_non_null(strstr(reason.text, "1025"));
    assert_non_null(strstr(reason.text, "1024"));
    assert_gk_ok(tune(f));
    assert_first_never_ran(f);
}

/* A candidate wants more scratch for the problem itself than the device has. */
static void launch_greedy(const gk_problem *problem, const gk_device_info *device,
                          const gk_config *config, gk_launch *out)
{
    add_plain.launch(problem, device, config, out);
    if (config->values[0] == 16 && problem->dims[0] == ADD_N) {
        out->workspace = INT64_C(1) << 40;
    }
}

static gk_status (*alloc_of_fake)(gki_device *device, size_t bytes, void **out);

static gk_status alloc_within(gki_device *device, size_t bytes, void **out)
{
    *out = NULL;
    return bytes < (size_t)1 << 40 ? alloc_of_fake(device, bytes, out)
                                   : gk_fail(GK_ERR_NOMEM, "test", "%zu bytes", bytes);
}

static void test_scratch_while_timing(void **state)
{
    fixture *f = *state;
    alloc_of_fake = f->fake->table.mem_alloc;
    f->fake->table.mem_alloc = alloc_within;
    on_demand.launch = launch_greedy;
    add_has_reduce = true; /* where it was right before it is timed */
    assert_gk_ok(tune(f));
    assert_string_equal(f->report.config, "BLOCK=32 SPAN=1");
    const found_trial refused = trials_of(f, "BLOCK=16 SPAN=1");
    assert_int_equal(refused.rows, 1);
    assert_string_equal(refused.status, "no_resource");
    assert_false(refused.chosen);
}

static atomic_int ran_large;

static gk_status note_large(void *user, const fake_module *module, const gki_kernel_launch *launch)
{
    int64_t n = 0;
    memcpy(&n, (const char *)launch->args + launch->args_size - sizeof(n), sizeof(n));
    atomic_fetch_add(&ran_large, n == ADD_N ? 1 : 0);
    return add_run(user, module, launch);
}

/* On an emulated device only the reduced problem runs, even if memory for choosing its candidates
 * is out. */
static void test_emulated_out_of_memory(void **state)
{
    fixture *f = *state;
    add_has_reduce = true;
    f->fake->info.is_emulated = 1;
    f->fake->run = note_large;
    atomic_store(&ran_large, 0);
    gk_tune_options options = GK_TUNE_OPTIONS_INIT;
    options.retune = true;
    assert_gk_ok(tune(f));
    const int64_t before = gki_alloc_count();
    assert_gk_ok(gki_tune(f->jit, &add_op, &f->call, &f->problem, &options, &f->winner, NULL));
    const int64_t allocations = gki_alloc_count() - before;
    assert_in_range(allocations, 10, 2000);
    for (int64_t n = 1; n <= allocations; n++) {
        gki_alloc_fail_at(n);
        const gk_status status =
            gki_tune(f->jit, &add_op, &f->call, &f->problem, &options, &f->winner, NULL);
        gki_alloc_fail_at(0);
        assert_true(status == GK_OK || status == GK_ERR_NOMEM);
        assert_int_equal(atomic_load(&ran_large), 0);
    }
}

/* The tuner's texts are those of its callers, however long. */
static void test_long_problem_text(void **state)
{
    fixture *f = *state;
    static char name[600];
    static const char *const names[] = {name};
    memset(name, 'N', sizeof(name) - 1);
    name[sizeof(name) - 1] = '\0';
    add_op.dim_names = names;
    assert_gk_ok(tune(f));
    assert_true(trials_of(f, "BLOCK=16 SPAN=1").chosen);
}

/* --- matmul through the public functions --- */

typedef struct demanding {
    const char *variant;
    char config[256];
    gk_launch launch;
} demanding;

/* The first configuration that takes at least so much. */
static demanding find_demanding(const gk_device_info *info, const gk_call *call, int64_t smem,
                                int32_t threads)
{
    const gk_op_desc *op = gk_op_find("matmul", NULL);
    gki_candidate *space = NULL;
    uint32_t count = 0;
    gk_problem problem;
    demanding found = {0};
    memset(&problem, 0, sizeof(problem));
    assert_gk_ok(op->infer(call, &problem));
    assert_gk_ok(gki_space(op, &problem, info, NULL, &space, &count, NULL));
    for (uint32_t i = 0; i < count && found.variant == NULL; i++) {
        gk_launch launch = {0};
        space[i].variant->launch(&problem, info, &space[i].config, &launch);
        if (launch.smem >= smem && launch.threads >= threads) {
            found.variant = space[i].variant->name;
            found.launch = launch;
            gki_config_text(space[i].variant, &space[i].config, found.config, sizeof(found.config));
        }
    }
    gki_free(space);
    assert_non_null(found.variant);
    return found;
}

static gk_status force(gk_context *ctx, const square *s, const demanding *d, gk_plan **plan)
{
    gk_plan_options options = GK_PLAN_OPTIONS_INIT;
    options.variant = d->variant;
    options.config = d->config;
    return gk_plan_create(plan, ctx, "matmul", &s->call, &options);
}

/* With tf32, whose tiles take more than those of f32. */
static void matmul_beyond(int64_t limit)
{
    fake_device *fake = matmul_device();
    square *s = square_new(16);
    char text[32];
    gk_plan *plan = NULL;
    const char *path = gk_test_path("limit.db");
    gk_matmul_params params = GK_MATMUL_PARAMS_INIT;
    params.math = GK_MATH_TF32;
    assert_gk_ok(gk_matmul_call(&s->call, &s->ta, &s->tb, &s->tc, &params));
    const demanding d = find_demanding(&fake->info, &s->call, limit + 1, 0);
    fake->info.smem_per_block_optin = limit;
    gk_context *ctx = context_on(fake, GK_MODE_TUNE, path, NULL);
    assert_gk_err(force(ctx, s, &d, &plan), GK_ERR_NO_CONFIG, "shared memory");
    (void)snprintf(text, sizeof(text), "%lld", (long long)d.launch.smem);
    assert_non_null(strstr(gk_error_last()->message, text));
    (void)snprintf(text, sizeof(text), "%lld", (long long)limit);
    assert_non_null(strstr(gk_error_last()->message, text));
    assert_null(plan);
    assert_int_equal(atomic_load(&fake->compile.calls), 0);
    /* Those within the limit serve the problem; it is not among them. */
    assert_gk_ok(gk_matmul(ctx, &s->ta, &s->tb, &s->tc, &params, NULL));
    assert_true(square_is_right(s, false));
    assert_true(planned(ctx, &s->call).smem <= limit);
    char sql[400];
    (void)snprintf(sql, sizeof(sql), "SELECT count(*) FROM trial WHERE config = '%s'", d.config);
    expect_query(path, sql, "0");
    expect_query(path, "SELECT count(*) FROM choice", "1");
    gk_context_destroy(&ctx);
    gki_free(s);
    end_device(&fake);
}

static void test_matmul_99k(void **state)
{
    (void)state;
    matmul_beyond(101376);
}

static void test_matmul_64k(void **state)
{
    (void)state;
    matmul_beyond(65536);
}

/* Registers are known once the code is there: a forced configuration, a stored answer and the
 * guess are all refused before their launch. */
static void test_matmul_registers(void **state)
{
    (void)state;
    fake_device *fake = matmul_device();
    square *s = square_new(16);
    gk_plan *plan = NULL;
    test_log log;
    const char *path = gk_test_path("registers.db");
    const demanding d = find_demanding(&fake->info, &s->call, 0, 512);
    gk_context *ctx = context_on(fake, GK_MODE_HEURISTIC, path, NULL);
    assert_gk_ok(force(ctx, s, &d, &plan));
    const gk_plan_description info = plan_info(plan);
    gk_plan_destroy(&plan);
    gk_context_destroy(&ctx);
    fake_device_rule(fake, info.kernel)->registers = 129; /* 136 * 512 */
    run_sql(path, "DELETE FROM kernel");
    ctx = context_on(fake, GK_MODE_HEURISTIC, path, NULL);
    assert_gk_err(force(ctx, s, &d, &plan), GK_ERR_NO_CONFIG, "69632");
    assert_non_null(strstr(gk_error_last()->message, "65536"));
    assert_null(plan);
    assert_gk_ok(gk_tune(ctx, "matmul", &s->call, NULL, NULL));
    gk_context_destroy(&ctx);
    char sql[400];
    (void)snprintf(sql, sizeof(sql), "UPDATE choice SET variant = '%s', config = '%s'", d.variant,
                   d.config);
    run_sql(path, sql);
    const int launches = atomic_load(&fake->launch.calls);
    ctx = context_on(fake, GK_MODE_CACHED, path, &log);
    assert_gk_err(gk_matmul(ctx, &s->ta, &s->tb, &s->tc, NULL, NULL), GK_ERR_UNTUNED, NULL);
    assert_int_equal(log.warnings, 1);
    assert_non_null(strstr(log.text, "69632"));
    assert_int_equal(atomic_load(&fake->launch.calls), launches);
    assert_true(square_is_untouched(s));
    gk_context_destroy(&ctx);
    gki_free(s);
    end_device(&fake);
}

static void test_guess_passes_over_registers(void **state)
{
    (void)state;
    fake_device *fake = matmul_device();
    square *s = square_new(16);
    gk_context *ctx = context_on(fake, GK_MODE_HEURISTIC, NULL, NULL);
    const gk_plan_description guess = planned(ctx, &s->call);
    gk_context_destroy(&ctx);
    /* A block may have a little less than the guess takes. */
    fake_device_rule(fake, guess.kernel)->registers = 256;
    fake->info.regs_per_block = guess.threads * 256 - 1;
    fake->fallback.registers = 8;
    ctx = context_on(fake, GK_MODE_HEURISTIC, NULL, NULL);
    square_run(ctx, s);
    assert_string_not_equal(planned(ctx, &s->call).kernel, guess.kernel);
    gk_context_destroy(&ctx);
    gki_free(s);
    end_device(&fake);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(test_shared_memory_99k),
        TEST(test_shared_memory_64k),
        TEST(test_shared_memory_48k),
        TEST(test_shared_memory_above_48k),
        TEST(test_registers),
        TEST(test_just_enough_registers),
        TEST(test_registers_of_the_only_one),
        TEST(test_threads),
        TEST(test_scratch_while_timing),
        TEST(test_emulated_out_of_memory),
        TEST(test_long_problem_text),
        cmocka_unit_test(test_matmul_99k),
        cmocka_unit_test(test_matmul_64k),
        cmocka_unit_test(test_matmul_registers),
        cmocka_unit_test(test_guess_passes_over_registers),
    };
    return GK_TEST_MAIN(tests);
}
