/* Enumerating, ranking, guessing, and picking what to compile. */
#include "support/gk_test.h"

#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "support/add_op.h"
#include "tune/select.h"
#include "tune/tune.h"

static gk_device_info device(void)
{
    fake_device *fake = fake_device_create();
    gk_device_info info = fake->info;
    fake_device_destroy(&fake);
    return info;
}

static gk_problem problem_of(int64_t n)
{
    gk_problem problem;
    memset(&problem, 0, sizeof(problem));
    problem.dims[0] = n;
    return problem;
}

static void test_sorted_and_complete(void **state)
{
    (void)state;
    const gk_device_info info = device();
    const gk_problem problem = problem_of(1000);
    gki_candidate *space = NULL;
    uint32_t count = 0;
    uint64_t total = 0;
    add_op_reset();
    assert_gk_ok(gki_space(&add_op, &problem, &info, NULL, &space, &count, &total));
    assert_int_equal(count, 11);
    assert_int_equal(total, 11);
    for (uint32_t i = 1; i < count; i++) {
        assert_true(space[i - 1].predicted <= space[i].predicted);
    }
    assert_ptr_equal(space[0].variant, &add_plain);
    assert_int_equal(space[0].config.values[0], 16);
    assert_int_equal(space[0].config.values[1], 1);
    assert_int_equal(space[1].config.values[0], 16);
    assert_int_equal(space[1].config.values[1], 2);
    assert_ptr_equal(space[10].variant, &add_wide);
    gki_candidate guess;
    assert_gk_ok(gki_guess(&add_op, &problem, &info, &guess));
    assert_memory_equal(&guess, &space[0], sizeof(guess));
    gki_free(space);
}

static void test_one_variant(void **state)
{
    (void)state;
    const gk_device_info info = device();
    const gk_problem problem = problem_of(1000);
    gki_candidate *space = NULL;
    uint32_t count = 0;
    add_op_reset();
    assert_gk_ok(gki_space(&add_op, &problem, &info, "wide", &space, &count, NULL));
    assert_int_equal(count, 1);
    assert_ptr_equal(space[0].variant, &add_wide);
    gki_free(space);
    assert_gk_err(gki_space(&add_op, &problem, &info, "tall", &space, &count, NULL),
                  GK_ERR_NOT_FOUND, "add has no variant \"tall\"");
    assert_null(space);
}

/* Shared memory beyond the device's is refused before anything is compiled, with both numbers. */
static const int32_t HUGE_BLOCKS[] = {64, 101376, 101380};
static const gk_param HUGE_PARAMS[] = {{"BLOCK", "x", HUGE_BLOCKS, 3, 0}, {"SPAN", "", NULL, 0, 0}};

static void test_device_limits(void **state)
{
    (void)state;
    gk_device_info info = device();
    const gk_problem problem = problem_of(1000);
    gki_candidate *space = NULL;
    uint32_t count = 0;
    gk_variant huge = add_plain;
    huge.params = HUGE_PARAMS;
    huge.n_params = 1;
    const gk_variant *const list[] = {&huge};
    add_op_reset();
    add_op.variants = list;
    add_op.n_variants = 1;
    info.smem_per_block_optin = 101376;
    assert_gk_ok(gki_space(&add_op, &problem, &info, NULL, &space, &count, NULL));
    assert_int_equal(count, 2);
    gki_free(space);
    info.smem_per_block_optin = 32;
    gki_candidate guess;
    assert_gk_err(gki_guess(&add_op, &problem, &info, &guess), GK_ERR_NO_CONFIG, "101380");
    assert_gk_err(gki_guess(&add_op, &problem, &info, &guess), GK_ERR_NO_CONFIG, "32");
    /* A parameter without values: no configuration at all. */
    huge.n_params = 2;
    assert_gk_ok(gki_space(&add_op, &problem, &info, NULL, &space, &count, NULL));
    assert_int_equal(count, 0);
    assert_gk_err(gki_guess(&add_op, &problem, &info, &guess), GK_ERR_NO_CONFIG,
                  "add has no configurations");
}

static void test_too_many_tunables(void **state)
{
    (void)state;
    const gk_device_info info = device();
    const gk_problem problem = problem_of(1000);
    static const int32_t values[] = {64};
    gk_param params[GK_MAX_PARAMS + 1];
    for (uint32_t i = 0; i <= GK_MAX_PARAMS; i++) {
        params[i] = (gk_param){"BLOCK", "x", values, 1, 0};
    }
    gk_variant greedy = add_plain;
    greedy.params = params;
    greedy.n_params = GK_MAX_PARAMS + 1;
    const gk_variant *const list[] = {&greedy};
    gki_candidate *space = NULL;
    uint32_t count = 0;
    gki_candidate guess;
    add_op_reset();
    add_op.variants = list;
    add_op.n_variants = 1;
    assert_gk_err(gki_space(&add_op, &problem, &info, NULL, &space, &count, NULL), GK_ERR_INTERNAL,
                  "variant plain has 13 tunables, the limit is 12");
    assert_gk_err(gki_guess(&add_op, &problem, &info, &guess), GK_ERR_INTERNAL,
                  "variant plain has 13 tunables, the limit is 12");
}

static void test_last_reason(void **state)
{
    (void)state;
    const gk_device_info info = device();
    const gk_problem problem = problem_of(13);
    gki_candidate guess;
    add_op_reset();
    assert_gk_err(gki_guess(&add_op, &problem, &info, &guess), GK_ERR_NO_CONFIG,
                  "none of 11 configurations of add serves the problem; the last, of wide: BLOCK "
                  "512 does not serve 13 elements");
}

static double nonsense(const gk_problem *problem, const gk_device_info *info,
                       const gk_config *config)
{
    (void)problem;
    (void)info;
    return config->values[0] == 64 ? 1e-3 : config->values[0] == 32 ? NAN : -1.0;
}

static void test_model_without_sense(void **state)
{
    (void)state;
    const gk_device_info info = device();
    const gk_problem problem = problem_of(1000);
    gk_variant variant = add_plain;
    variant.model = nonsense;
    const gk_variant *const list[] = {&variant};
    gki_candidate *space = NULL;
    uint32_t count = 0;
    add_op_reset();
    add_op.variants = list;
    add_op.n_variants = 1;
    assert_gk_ok(gki_space(&add_op, &problem, &info, NULL, &space, &count, NULL));
    assert_int_equal(count, 10);
    assert_int_equal(space[0].config.values[0], 64);
    assert_true(isinf(space[2].predicted));
    assert_int_equal(space[2].config.values[0], 16);
    assert_int_equal(space[9].config.values[0], 256);
    gki_free(space);
}

/* 100 x 30 x 100 configurations: more than are kept; the best must be among those that are. */
static int32_t many[100];
static const gk_param MANY_PARAMS[] = {
    {"BLOCK", "x", many, 100, 0}, {"SPAN", "", many, 100, 0}, {"MORE", "", many, 30, 0}};

static double backwards(const gk_problem *problem, const gk_device_info *info,
                        const gk_config *config)
{
    (void)problem;
    (void)info;
    return 1.0 / (config->values[0] * 10000 + config->values[1] * 100 + config->values[2]);
}

static void test_bounded(void **state)
{
    (void)state;
    const gk_device_info info = device();
    const gk_problem problem = problem_of(1000);
    for (int32_t i = 0; i < 100; i++) {
        many[i] = i + 1;
    }
    gk_variant variant = add_plain;
    variant.params = MANY_PARAMS;
    variant.n_params = 3;
    variant.model = backwards;
    const gk_variant *const list[] = {&variant};
    gki_candidate *space = NULL;
    uint32_t count = 0;
    uint64_t total = 0;
    add_op_reset();
    add_op.variants = list;
    add_op.n_variants = 1;
    assert_gk_ok(gki_space(&add_op, &problem, &info, NULL, &space, &count, &total));
    assert_int_equal(total, 300000);
    assert_true(count <= GKI_SPACE_MAX);
    assert_true(count >= GKI_SPACE_MAX / 2);
    assert_int_equal(space[0].config.values[0], 100);
    assert_int_equal(space[0].config.values[1], 100);
    assert_int_equal(space[0].config.values[2], 30);
    gki_free(space);
}

static uint32_t select_with(const gki_selection_rules *rules, bool *picked, uint32_t *groups,
                            const bool *excluded)
{
    const gk_device_info info = device();
    const gk_problem problem = problem_of(1000);
    gki_candidate *space = NULL;
    uint32_t count = 0;
    add_op_reset();
    assert_gk_ok(gki_space(&add_op, &problem, &info, NULL, &space, &count, NULL));
    assert_int_equal(count, 11);
    assert_gk_ok(gki_select(space, count, rules, excluded, picked, groups));
    gki_free(space);
    uint32_t n = 0;
    for (uint32_t i = 0; i < count; i++) {
        n += picked[i] ? 1 : 0;
    }
    return n;
}

static void test_selection(void **state)
{
    (void)state;
    uint32_t groups[11];
    bool all[11] = {false};
    gki_selection_rules rules = {0, 0, 0, 0};
    assert_int_equal(select_with(&rules, all, groups, NULL), 11);
    assert_int_equal(groups[0], groups[1]); /* SPAN is not compiled in */
    assert_int_not_equal(groups[1], groups[2]);
    /* 4 candidates of 3 codes: the best of each variant, the next code, then a launch value. */
    bool some[11] = {false};
    rules = (gki_selection_rules){4, 3, 2, 1};
    assert_int_equal(select_with(&rules, some, groups, NULL), 4);
    assert_true(some[0] && some[1] && some[2] && some[10]);
    /* What must be taken is, what is excluded is not. */
    bool forced[11] = {false};
    bool excluded[11] = {false};
    forced[7] = true;
    excluded[0] = true;
    assert_int_equal(select_with(&rules, forced, groups, excluded), 4);
    assert_true(forced[7] && !forced[0] && forced[1] && forced[10]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sorted_and_complete), cmocka_unit_test(test_one_variant),
        cmocka_unit_test(test_device_limits),       cmocka_unit_test(test_last_reason),
        cmocka_unit_test(test_model_without_sense), cmocka_unit_test(test_bounded),
        cmocka_unit_test(test_selection),           cmocka_unit_test(test_too_many_tunables),
    };
    return GK_TEST_MAIN(tests);
}
