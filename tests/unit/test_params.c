/* What gk/extend.h says of tunables holds for those of every op. */
#include "support/gk_test.h"

#include <string.h>

#include "base/rng.h"
#include "jit/jit.h"
#include "support/case_call.h"
#include "support/fake_driver.h"

static gk_device_info hopper(void)
{
    fake_device *fake = fake_device_create();
    const gk_device_info info = fake->info;
    fake_device_destroy(&fake);
    return info;
}

static void each_variant(void (*check)(const gk_op_desc *op, const gk_variant *variant))
{
    const gk_op_desc *op;
    for (uint32_t i = 0; (op = gk_op_at(i)) != NULL; i++) {
        for (uint32_t v = 0; v < op->n_variants; v++) {
            check(op, op->variants[v]);
        }
    }
}

static void check_order(const gk_op_desc *op, const gk_variant *variant)
{
    for (uint32_t i = 0; i < variant->n_params; i++) {
        const gk_param *param = &variant->params[i];
        if (i > 0 && param->at_launch < variant->params[i - 1].at_launch) {
            fail_msg("%s %s: %s comes last but is compiled in", op->name, variant->name,
                     param->name);
        }
        for (uint32_t j = 1; j < param->n_values; j++) {
            assert_true(param->values[j - 1] < param->values[j]);
        }
    }
}

static void values_ascend_and_launch_comes_last(void **state)
{
    (void)state;
    each_variant(check_order);
}

/* False if there is no such problem. */
static bool describe(const gk_op_desc *op, const gk_preset *preset, const gk_case *item,
                     gk_problem *problem)
{
    gk_tensor tensors[GK_MAX_ARGS];
    gk_call call;
    memset(problem, 0, sizeof(*problem));
    return case_call(op, preset, item, tensors, &call) == GK_OK &&
           op->infer(&call, problem) == GK_OK && op->is_empty(problem) == 0;
}

/* What is refused with the first values at launch is refused with others, drawn at random, too.
 * Returns how many are served. */
static uint32_t check_refusals(const gk_op_desc *op, const gk_variant *variant,
                               const gk_problem *problem)
{
    const gk_device_info device = hopper();
    gki_config_walk walk;
    gki_rng rng;
    uint32_t served = 0;
    gki_rng_seed(&rng, 1);
    for (bool more = gki_config_first(&walk, variant); more; more = gki_config_next_kernel(&walk)) {
        gk_config config = walk.config;
        if (gki_config_serves(variant, problem, &device, &config, NULL)) {
            served++;
            continue;
        }
        for (uint32_t p = variant->n_params; p-- > 0 && variant->params[p].at_launch != 0;) {
            const gk_param *param = &variant->params[p];
            config.values[p] = param->values[gki_rng_below(&rng, param->n_values)];
        }
        if (gki_config_serves(variant, problem, &device, &config, NULL)) {
            char text[GKI_CONFIG_TEXT];
            gk_reason reason = {""};
            gki_config_text(variant, &config, text, sizeof(text));
            (void)gki_config_serves(variant, problem, &device, &walk.config, &reason);
            fail_msg("%s %s serves %s, but with the first values at launch: %s", op->name,
                     variant->name, text, reason.text);
        }
    }
    return served;
}

static void check_cases(const gk_op_desc *op, const gk_variant *variant)
{
    uint32_t served = 0;
    for (uint32_t c = 0; c < op->n_cases; c++) {
        for (uint32_t p = 0; p <= op->n_presets; p++) {
            const gk_preset *preset = p < op->n_presets ? &op->presets[p] : NULL;
            gk_problem problem;
            if (describe(op, preset, &op->cases[c], &problem)) {
                served += check_refusals(op, variant, &problem);
            }
        }
    }
    if (served == 0) {
        fail_msg("%s %s serves no case", op->name, variant->name);
    }
}

static void first_values_at_launch_are_served_first(void **state)
{
    (void)state;
    each_variant(check_cases);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_ascend_and_launch_comes_last),
        cmocka_unit_test(first_values_at_launch_are_served_first),
    };
    return GK_TEST_MAIN(tests);
}
