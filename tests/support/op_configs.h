/* The configurations of a variant. */
#ifndef OP_CONFIGS_H
#define OP_CONFIGS_H

#include <gk/gk.h>

/* "NAME=value NAME=value ..", as gk_plan_options.config takes it. */
void op_config_text(const gk_variant *variant, const gk_config *config, char *out, size_t size);

/*
 * The configurations that variant->check takes for the problem, freed with free(). baked: one for
 * each compiled kernel, with the first launch-time values; otherwise all. NULL if there
 * are none (*count 0) or memory is out.
 */
gk_config *op_configs(const gk_variant *variant, const gk_problem *problem,
                      const gk_device_info *device, bool baked, uint32_t *count);

/*
 * Of those, one for each compiled kernel, `limit` that are spread over the list (the middle one if
 * it is 1) and `shift` places on; 0 = all.
 */
gk_config *op_configs_spread(const gk_variant *variant, const gk_problem *problem,
                             const gk_device_info *device, uint32_t limit, uint32_t shift,
                             uint32_t *count);

/* The config with the launch-time value indices counted by `index`; false past the last. */
bool op_config_launch(const gk_variant *variant, gk_config *config, uint32_t index);

#endif
