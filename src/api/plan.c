#include <string.h>

#include "api/context.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/str.h"
#include "op/op.h"

gk_status gki_call_resolve(const char *op_name, const gk_call *call, const gk_op_desc **op,
                           const gk_preset **preset_out, gk_call *resolved, gk_problem *problem)
{
    if (op_name == NULL || call == NULL) {
        gk_fail(GK_ERR_INVALID, "plan", "%s is NULL", op_name == NULL ? "op" : "call");
        return GK_ERR_INVALID; /* by its name: *op is not set, and analysers see why */
    }
    const gk_preset *preset;
    *op = gk_op_find(op_name, &preset);
    if (*op == NULL) {
        gk_fail(GK_ERR_NOT_FOUND, "plan", "there is no op \"%s\"", op_name);
        return GK_ERR_NOT_FOUND;
    }
    if (preset_out != NULL) {
        *preset_out = preset;
    }
    *resolved = *call;
    gk_preset_apply(preset, resolved);
    memset(problem, 0, sizeof(*problem));
    problem->op = gki_op_index(*op);
    return (*op)->infer(resolved, problem);
}

/* What the options name: *variant NULL if they force none, *config set if they name one. */
static gk_status read_forced(const gk_op_desc *op, const gk_plan_options *options,
                             const gk_variant **variant, gk_config *config)
{
    *variant = NULL;
    if (options->variant == NULL) {
        return options->config == NULL
                   ? GK_OK
                   : gk_fail(GK_ERR_INVALID, "plan",
                             "options.config is \"%s\" but options.variant is NULL",
                             options->config);
    }
    *variant = gki_variant_find(op, options->variant);
    if (*variant == NULL) {
        return gk_fail(GK_ERR_NOT_FOUND, "plan", "%s has no variant \"%s\"", op->name,
                       options->variant);
    }
    if (options->config != NULL && !gki_config_parse(*variant, options->config, config)) {
        return gk_fail(GK_ERR_INVALID, "plan",
                       "options.config is \"%s\", which is no configuration of %s %s",
                       options->config, op->name, (*variant)->name);
    }
    return GK_OK;
}

static gk_status forced_entry(gk_context *ctx, const gk_op_desc *op, const gk_problem *problem,
                              const gk_plan_options *options, const gk_variant *variant,
                              const gk_config *config, gki_entry **out)
{
    if (options->config == NULL) {
        gk_status status = gki_entry_guess(ctx, op, problem, variant->name, out);
        if (status == GK_OK) {
            (*out)->source = GK_SOURCE_FORCED;
        }
        return status;
    }
    gk_reason reason = {{0}};
    if (!gki_config_check(variant, problem, &ctx->info, config, &reason)) {
        return gk_fail(GK_ERR_NO_CONFIG, "plan", "%s %s %s: %s", op->name, variant->name,
                       options->config, reason.text);
    }
    return gki_entry_build(ctx, op, problem, variant, config, GK_SOURCE_FORCED, out);
}

static gk_status plan_entry(gk_plan *plan, const gk_op_desc *op, const gk_call *call,
                            const gk_problem *problem, const gk_plan_options *options)
{
    gk_context *ctx = plan->ctx;
    const gk_variant *variant;
    gk_config config;
    gk_status status = read_forced(op, options, &variant, &config);
    if (status != GK_OK) {
        return status;
    }
    if (op->is_empty(problem)) {
        plan->owned = true;
        return gki_entry_build(ctx, op, problem, NULL, NULL, GK_SOURCE_EMPTY, &plan->entry);
    }
    if (variant != NULL) {
        plan->owned = true;
        return forced_entry(ctx, op, problem, options, variant, &config, &plan->entry);
    }
    const gk_mode mode = options->mode == GK_MODE_DEFAULT ? ctx->mode : options->mode;
    const double budget = options->tune_budget_s > 0 ? options->tune_budget_s : ctx->tune_budget_s;
    return gki_resolve(ctx, op, call, problem, mode, budget, NULL, &plan->entry, &plan->owned);
}

gk_status gk_plan_create(gk_plan **out, gk_context *ctx, const char *op_name, const gk_call *call,
                         const gk_plan_options *user_options)
{
    if (out == NULL) {
        return gk_fail(GK_ERR_INVALID, "plan", "out is NULL");
    }
    *out = NULL;
    gk_status status = gki_context_usable(ctx, "plan");
    if (status != GK_OK) {
        return status;
    }
    gk_plan_options options;
    status = gki_options_read(&options, sizeof(options), user_options, "options");
    if (status == GK_OK) {
        status = gki_options_mode(options.mode, "plan");
    }
    if (status == GK_OK) {
        status = gki_options_seconds(options.tune_budget_s, "plan", "options.tune_budget_s");
    }
    if (status != GK_OK) {
        return status;
    }
    const gk_op_desc *op;
    const gk_preset *preset;
    gk_call resolved;
    gk_problem problem;
    status = gki_call_resolve(op_name, call, &op, &preset, &resolved, &problem);
    if (status != GK_OK) {
        return status;
    }
    gk_plan *plan = gki_calloc(1, sizeof(*plan));
    if (plan == NULL) {
        return gki_fail_nomem("plan", sizeof(*plan));
    }
    plan->ctx = ctx;
    plan->preset = preset;
    status = plan_entry(plan, op, &resolved, &problem, &options);
    if (status != GK_OK) {
        gki_free(plan);
        return status;
    }
    *out = plan;
    return GK_OK;
}

/* Larger alignment than the plan was made for is fine. */
static bool serves(const gk_problem *planned, gk_problem problem)
{
    for (int i = 0; i < GK_MAX_ARGS; i++) {
        if (problem.align[i] > planned->align[i]) {
            problem.align[i] = planned->align[i];
        }
    }
    return memcmp(planned, &problem, sizeof(problem)) == 0;
}

gk_status gki_plan_call(const gk_plan *plan, const gk_call *call, gk_call *applied)
{
    const gki_entry *entry = plan->entry;
    *applied = *call;
    gk_preset_apply(plan->preset, applied);
    gk_problem problem;
    memset(&problem, 0, sizeof(problem));
    problem.op = entry->problem.op;
    gk_status status = entry->op->infer(applied, &problem);
    if (status != GK_OK) {
        return status;
    }
    if (!serves(&entry->problem, problem)) {
        char planned[GKI_PROBLEM_TEXT];
        char given[GKI_PROBLEM_TEXT];
        gki_problem_text(entry->op, &entry->problem, planned, sizeof(planned));
        gki_problem_text(entry->op, &problem, given, sizeof(given));
        return gk_fail(GK_ERR_INVALID, "plan", "the call is %s but the plan was made for %s", given,
                       planned);
    }
    return GK_OK;
}

gk_status gk_plan_run(const gk_plan *plan, const gk_call *call, void *stream)
{
    if (plan == NULL || call == NULL) {
        return gk_fail(GK_ERR_INVALID, "plan", "%s is NULL", plan == NULL ? "plan" : "call");
    }
    gk_status status = gki_context_usable(plan->ctx, "plan");
    return status == GK_OK ? gki_plan_launch(plan, call, stream) : status;
}

gk_status gk_plan_info(const gk_plan *plan, gk_plan_description *out)
{
    static const gki_span texts[] = {GKI_TEXT(gk_plan_description, op),
                                     GKI_TEXT(gk_plan_description, variant),
                                     GKI_TEXT(gk_plan_description, config),
                                     GKI_TEXT(gk_plan_description, kernel),
                                     {0, 0}};
    if (plan == NULL) {
        return gk_fail(GK_ERR_INVALID, "plan", "plan is NULL");
    }
    gk_status status = gki_context_usable(plan->ctx, "plan");
    if (status != GK_OK) {
        return status;
    }
    const gki_entry *entry = plan->entry;
    gk_plan_description info = {.struct_size = sizeof(info),
                                .source = entry->source,
                                .grid = entry->launch.grid,
                                .threads = entry->launch.threads,
                                .smem = entry->launch.smem,
                                .workspace = entry->launch.workspace + entry->launch.zeroed,
                                .tuned_seconds = entry->seconds,
                                .cluster = entry->launch.cluster,
                                .cooperative = entry->launch.cooperative,
                                .overlap = entry->launch.overlap};
    gki_copy_text(info.op, sizeof(info.op), entry->op->name);
    if (entry->variant != NULL) {
        gki_copy_text(info.variant, sizeof(info.variant), entry->variant->name);
        gki_config_text(entry->variant, &entry->config, info.config, sizeof(info.config));
        gki_copy_text(info.kernel, sizeof(info.kernel), entry->kernel->name);
        info.registers = entry->kernel->registers;
        info.function = atomic_load(&entry->kernel->module)->function;
    }
    return gki_result_write(out, &info, sizeof(info), texts, "plan", "out");
}

gk_status gk_plan_args(const gk_plan *plan, const gk_call *call, void *stream, void *out,
                       size_t *size)
{
    if (plan == NULL || call == NULL || out == NULL || size == NULL) {
        return gk_fail(GK_ERR_INVALID, "plan", "%s is NULL",
                       plan == NULL   ? "plan"
                       : call == NULL ? "call"
                       : out == NULL  ? "out"
                                      : "size");
    }
    gk_status status = gki_context_usable(plan->ctx, "plan");
    if (status == GK_OK && plan->entry->variant == NULL) {
        status = gk_fail(GK_ERR_INVALID, "plan", "the plan computes nothing");
    }
    gk_call applied;
    if (status == GK_OK) {
        status = gki_plan_call(plan, call, &applied);
    }
    const gki_workspace *space = NULL;
    if (status == GK_OK) {
        status = gki_workspace_find(plan->ctx, &plan->entry->launch, stream, &space);
    }
    _Alignas(GKI_ARGS_ALIGN) unsigned char args[GK_MAX_KERNEL_ARGS];
    gki_kernel_launch launch;
    if (status == GK_OK) {
        const gki_recipe recipe = gki_entry_recipe(plan->entry);
        status = gki_launch_make(plan->ctx->device, &recipe, &applied,
                                 space != NULL ? space->scratch : NULL,
                                 space != NULL ? space->zeroed : NULL, args, &launch);
    }
    if (status == GK_OK && launch.args_size > *size) {
        status = gk_fail(GK_ERR_INVALID, "plan", "size is %zu, the parameter struct has %zu bytes",
                         *size, launch.args_size);
    }
    if (status == GK_OK) {
        memcpy(out, args, launch.args_size);
        *size = launch.args_size;
    }
    return status;
}

void gk_plan_destroy(gk_plan **plan)
{
    if (plan == NULL || *plan == NULL) {
        return;
    }
    if ((*plan)->owned) {
        gki_free((*plan)->entry);
    }
    gki_free(*plan);
    *plan = NULL;
}

/* While another process tunes the problem, resolving gives makeshift answers that later calls would
 * not find: its answer is waited for about as long as a tuning takes. A tuning of this very thread
 * cannot be waited for. */
static gk_status resolve_for_good(gk_context *ctx, const gk_op_desc *op, const gk_call *call,
                                  const gk_problem *problem, void *stream, gki_entry **out)
{
    const uint64_t began = gki_clock_ns();
    for (;;) {
        bool owned;
        gk_status status =
            gki_resolve(ctx, op, call, problem, ctx->mode, ctx->tune_budget_s, stream, out, &owned);
        if (status != GK_OK || !owned) {
            return status;
        }
        if (gki_is_tuning(ctx) ||
            (double)(gki_clock_ns() - began) * 1e-9 > ctx->tune_budget_s + 2) {
            return gki_entry_publish(ctx, *out);
        }
        gki_free(*out);
        gki_clock_sleep_ms(50);
    }
}

gk_status gk_prepare(gk_context *ctx, const char *op_name, const gk_call *call, void *stream)
{
    gk_status status = gki_context_usable(ctx, "prepare");
    if (status != GK_OK) {
        return status;
    }
    const gk_op_desc *op;
    gk_call resolved;
    gk_problem problem;
    status = gki_call_resolve(op_name, call, &op, NULL, &resolved, &problem);
    if (status != GK_OK || op->is_empty(&problem)) {
        return status;
    }
    gki_entry *entry;
    status = resolve_for_good(ctx, op, &resolved, &problem, stream, &entry);
    if (status != GK_OK) {
        return status;
    }
    const gki_workspace *space;
    return gki_workspace_find(ctx, &entry->launch, stream, &space);
}
