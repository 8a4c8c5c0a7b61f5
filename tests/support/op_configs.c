#include "op_configs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "jit/jit.h"

void op_config_text(const gk_variant *variant, const gk_config *config, char *out, size_t size)
{
    size_t used = 0;
    out[0] = '\0';
    for (uint32_t i = 0; i < variant->n_params && used < size; i++) {
        const int n = snprintf(out + used, size - used, "%s%s=%d", i > 0 ? " " : "",
                               variant->params[i].name, (int)config->values[i]);
        used += n > 0 ? (size_t)n : 0;
    }
}

bool op_config_launch(const gk_variant *variant, gk_config *config, uint32_t index)
{
    for (uint32_t i = 0; i < variant->n_params; i++) {
        const gk_param *param = &variant->params[i];
        if (param->at_launch != 0) {
            config->values[i] = param->values[index % param->n_values];
            index /= param->n_values;
        }
    }
    return index == 0;
}

gk_config *op_configs(const gk_variant *variant, const gk_problem *problem,
                      const gk_device_info *device, bool baked, uint32_t *count)
{
    gk_config *found = NULL;
    uint32_t capacity = 0;
    gki_config_walk walk;
    *count = 0;
    if (variant->check == NULL || device->cc < variant->min_cc) {
        return NULL;
    }
    for (bool more = gki_config_first(&walk, variant); more;) {
        const bool served = variant->check(problem, device, &walk.config, NULL);
        if (served && *count == capacity) {
            capacity = capacity != 0 ? 2 * capacity : 256;
            gk_config *grown = realloc(found, capacity * sizeof(*found));
            if (grown == NULL) {
                free(found);
                *count = 0;
                return NULL;
            }
            found = grown;
        }
        if (served) {
            found[(*count)++] = walk.config;
        }
        more = baked ? gki_config_next_kernel(&walk) : gki_config_next(&walk, served);
    }
    return found;
}

gk_config *op_configs_spread(const gk_variant *variant, const gk_problem *problem,
                             const gk_device_info *device, uint32_t limit, uint32_t shift,
                             uint32_t *count)
{
    uint32_t all;
    gk_config *configs = op_configs(variant, problem, device, true, &all);
    const uint32_t wanted = limit > 0 && limit < all ? limit : all;
    gk_config *out = wanted > 0 ? malloc(wanted * sizeof(*out)) : NULL;
    *count = out != NULL ? wanted : 0;
    for (uint32_t i = 0; i < *count; i++) {
        out[i] = configs[((2 * i + 1) * (uint64_t)all / (2 * wanted) + shift) % all];
    }
    free(configs);
    return out;
}
