#include <stdio.h>
#include <string.h>

#include "base/str.h"
#include "jit/internal.h"

static const int64_t MAX_GRID = INT64_C(0x7fffffff);
enum { MAX_CLUSTER = 16, CC_WITH_CLUSTERS = 90 };

static uint32_t param_count(const gk_variant *variant)
{
    return variant->n_params < GK_MAX_PARAMS ? variant->n_params : GK_MAX_PARAMS;
}

/* Indices of the params in the order of their names. */
static void sort_params(const gk_variant *variant, uint32_t order[GK_MAX_PARAMS])
{
    const uint32_t n = param_count(variant);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t j = i;
        while (j > 0 && strcmp(variant->params[order[j - 1]].name, variant->params[i].name) > 0) {
            order[j] = order[j - 1];
            j--;
        }
        order[j] = i;
    }
}

void gki_config_text(const gk_variant *variant, const gk_config *config, char *out, size_t size)
{
    char text[GK_MAX_PARAMS * 80];
    uint32_t order[GK_MAX_PARAMS] = {0};
    size_t used = 0;
    sort_params(variant, order);
    text[0] = '\0';
    for (uint32_t i = 0; i < param_count(variant); i++) {
        const int written =
            snprintf(text + used, sizeof text - used, "%s%.60s=%d", i > 0 ? " " : "",
                     variant->params[order[i]].name, (int)config->values[order[i]]);
        used += written > 0 ? (size_t)written : 0;
    }
    gki_copy_text(out, size, text);
}

/* The index of the param whose name is the `length` bytes at `name`; n_params if there is none. */
static uint32_t find_param(const gk_variant *variant, const char *name, size_t length)
{
    uint32_t i = 0;
    while (i < param_count(variant) && (strlen(variant->params[i].name) != length ||
                                        memcmp(variant->params[i].name, name, length) != 0)) {
        i++;
    }
    return i;
}

/* Accepts only the digits that a listed value is written with, so the text itself goes no further
 * than this comparison. */
static bool find_value(const gk_param *param, const char *digits, size_t length, int32_t *out)
{
    char text[16];
    for (uint32_t i = 0; i < param->n_values; i++) {
        snprintf(text, sizeof text, "%d", (int)param->values[i]);
        if (strlen(text) == length && memcmp(text, digits, length) == 0) {
            *out = param->values[i];
            return true;
        }
    }
    return false;
}

bool gki_config_parse(const gk_variant *variant, const char *text, gk_config *out)
{
    gk_config config = {{0}};
    bool seen[GK_MAX_PARAMS] = {false};
    uint32_t n_seen = 0;
    if (!text || variant->n_params > GK_MAX_PARAMS) {
        return false;
    }
    while (*text != '\0') {
        if (*text == ' ') {
            text++;
            continue;
        }
        const size_t length = strcspn(text, " ");
        const char *equals = memchr(text, '=', length);
        if (!equals) {
            return false;
        }
        const uint32_t i = find_param(variant, text, (size_t)(equals - text));
        if (i == variant->n_params || seen[i] ||
            !find_value(&variant->params[i], equals + 1, (size_t)(text + length - equals - 1),
                        &config.values[i])) {
            return false;
        }
        seen[i] = true;
        n_seen++;
        text += length;
    }
    if (n_seen != variant->n_params) {
        return false;
    }
    *out = config;
    return true;
}

bool gki_variant_has_room(const gk_variant *variant, gk_reason *reason)
{
    return variant->n_params <= GK_MAX_PARAMS ||
           gk_refuse(reason, "variant %s has %u tunables, the limit is %d", variant->name,
                     (unsigned)variant->n_params, GK_MAX_PARAMS);
}

bool gki_config_is_listed(const gk_variant *variant, const gk_config *config, gk_reason *reason)
{
    if (!gki_variant_has_room(variant, reason)) {
        return false;
    }
    for (uint32_t i = 0; i < variant->n_params; i++) {
        const gk_param *param = &variant->params[i];
        uint32_t j = 0;
        while (j < param->n_values && param->values[j] != config->values[i]) {
            j++;
        }
        if (j == param->n_values) {
            return gk_refuse(reason, "%s=%d is not among the values of variant %s", param->name,
                             (int)config->values[i], variant->name);
        }
    }
    return true;
}

static bool check_launch(const gk_device_info *device, const gk_launch *launch, gk_reason *reason)
{
    if (launch->threads < 1 || launch->threads > device->max_threads_per_block) {
        return gk_refuse(reason, "needs %d threads a block, the device has 1 to %d",
                         (int)launch->threads, (int)device->max_threads_per_block);
    }
    if (launch->smem < 0 || launch->smem > device->smem_per_block_optin) {
        return gk_refuse(reason, "needs %lld bytes of shared memory, the device has %lld",
                         (long long)launch->smem, (long long)device->smem_per_block_optin);
    }
    if (launch->grid < 1 || launch->grid > MAX_GRID) {
        return gk_refuse(reason, "needs %lld blocks, a grid has 1 to %lld", (long long)launch->grid,
                         (long long)MAX_GRID);
    }
    if (launch->workspace < 0 || launch->zeroed < 0) {
        return gk_refuse(reason, "needs %lld bytes of workspace and %lld zeroed ones",
                         (long long)launch->workspace, (long long)launch->zeroed);
    }
    if (launch->cluster <= 1) {
        return true;
    }
    if (device->cc < CC_WITH_CLUSTERS) {
        return gk_refuse(reason, "needs clusters of %d blocks, compute capability %d.%d has none",
                         (int)launch->cluster, (int)device->cc / 10, (int)device->cc % 10);
    }
    if (launch->cluster > MAX_CLUSTER || launch->grid % launch->cluster != 0) {
        return gk_refuse(reason, "clusters of %d blocks do not fit a grid of %lld (limit %d)",
                         (int)launch->cluster, (long long)launch->grid, MAX_CLUSTER);
    }
    return true;
}

void gki_config_launch(const gk_variant *variant, const gk_problem *problem,
                       const gk_device_info *device, const gk_config *config, gk_launch *out)
{
    memset(out, 0, sizeof(*out));
    variant->launch(problem, device, config, out);
    if (device->cc < 90 || out->cooperative) {
        out->overlap = 0;
    }
}

bool gki_config_serves(const gk_variant *variant, const gk_problem *problem,
                       const gk_device_info *device, const gk_config *config, gk_reason *reason)
{
    gk_launch launch;
    if (reason != NULL) {
        reason->text[0] = '\0';
    }
    if (device->cc < variant->min_cc) {
        return gk_refuse(reason, "needs compute capability %d.%d, the device has %d.%d",
                         (int)variant->min_cc / 10, (int)variant->min_cc % 10, (int)device->cc / 10,
                         (int)device->cc % 10);
    }
    if (variant->check && !variant->check(problem, device, config, reason)) {
        return false;
    }
    gki_config_launch(variant, problem, device, config, &launch);
    return check_launch(device, &launch, reason);
}

bool gki_config_check(const gk_variant *variant, const gk_problem *problem,
                      const gk_device_info *device, const gk_config *config, gk_reason *reason)
{
    return gki_config_is_listed(variant, config, reason) &&
           gki_config_serves(variant, problem, device, config, reason);
}

bool gki_config_first(gki_config_walk *walk, const gk_variant *variant)
{
    memset(walk, 0, sizeof *walk);
    walk->variant = variant;
    for (uint32_t i = 0; i < variant->n_params; i++) {
        if (variant->params[i].n_values == 0) {
            return false;
        }
        walk->config.values[i] = variant->params[i].values[0];
    }
    return true;
}

/* The next value of the last param that has one, of the first `n`; the first again of all others
 * behind it. */
static bool step(gki_config_walk *walk, uint32_t n)
{
    for (uint32_t i = n; i-- > 0;) {
        const gk_param *param = &walk->variant->params[i];
        const bool more = ++walk->at[i] < param->n_values;
        walk->at[i] = more ? walk->at[i] : 0;
        walk->config.values[i] = param->values[walk->at[i]];
        if (more) {
            return true;
        }
    }
    return false;
}

/* How many params are compiled in: those set at launch come last. */
static uint32_t compiled_count(const gk_variant *variant)
{
    uint32_t n = variant->n_params;
    while (n > 0 && variant->params[n - 1].at_launch != 0) {
        n--;
    }
    return n;
}

bool gki_config_next_kernel(gki_config_walk *walk)
{
    const uint32_t n = compiled_count(walk->variant);
    for (uint32_t i = n; i < walk->variant->n_params; i++) {
        walk->at[i] = 0;
        walk->config.values[i] = walk->variant->params[i].values[0];
    }
    return step(walk, n);
}

bool gki_config_next(gki_config_walk *walk, bool served)
{
    bool first = true;
    for (uint32_t i = compiled_count(walk->variant); first && i < walk->variant->n_params; i++) {
        first = walk->at[i] == 0;
    }
    return !served && first ? gki_config_next_kernel(walk) : step(walk, walk->variant->n_params);
}

bool gki_kernel_fits(const gki_kernel *kernel, const gk_launch *launch,
                     const gk_device_info *device, gk_reason *reason)
{
    /* Registers are given to warps in units of 8 a thread. */
    const int64_t warps = (launch->threads + 31) / 32;
    const int64_t registers = warps * 32 * ((kernel->registers + 7) / 8 * 8);
    if (device->regs_per_block > 0 && registers > device->regs_per_block) {
        return gk_refuse(reason, "needs %lld registers, a block has %d", (long long)registers,
                         (int)device->regs_per_block);
    }
    const gki_module *module = atomic_load_explicit(&kernel->module, memory_order_acquire);
    if (module == NULL) {
        return true;
    }
    if (module->max_threads > 0 && launch->threads > module->max_threads) {
        return gk_refuse(reason, "needs %d threads a block, the compiled kernel can have %d",
                         (int)launch->threads, (int)module->max_threads);
    }
    const int64_t smem = module->static_smem + launch->smem;
    if (smem > device->smem_per_block_optin) {
        return gk_refuse(reason, "needs %lld bytes of shared memory, the device has %lld",
                         (long long)smem, (long long)device->smem_per_block_optin);
    }
    return true;
}

const gk_variant *gki_variant_find(const gk_op_desc *op, const char *name)
{
    for (uint32_t i = 0; name && i < op->n_variants; i++) {
        if (strcmp(op->variants[i]->name, name) == 0) {
            return op->variants[i];
        }
    }
    return NULL;
}
