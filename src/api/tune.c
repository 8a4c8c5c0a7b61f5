/* <gk/tune.h>: tuning on request, and the cache seen from outside. */
#include <math.h>
#include <string.h>

#include "api/context.h"
#include "base/alloc.h"
#include "base/error.h"
#include "op/op.h"

typedef struct key_texts {
    char problem[GKI_PROBLEM_TEXT];
    char environment[GKI_ENVIRONMENT_TEXT];
    gki_key key;
} key_texts;

static gk_status key_of(gk_context *ctx, const gk_op_desc *op, const gk_problem *problem,
                        key_texts *out)
{
    gki_problem_text(op, problem, out->problem, sizeof(out->problem));
    out->key = (gki_key){op->name, out->problem, out->environment};
    return gki_environment_text(ctx->jit, op, out->environment, sizeof(out->environment));
}

/* Others run the guess while the lease is held. Where another process holds it, both measure: the
 * caller asked for it. */
static gk_status tune_leased(gk_context *ctx, const gk_op_desc *op, const gk_call *call,
                             const gk_problem *problem, const gk_tune_options *options,
                             gk_tune_report *report)
{
    key_texts texts;
    gki_entry *entry;
    bool owned;
    gk_status status = key_of(ctx, op, problem, &texts);
    if (status != GK_OK) {
        return status;
    }
    const bool leased = gki_cache_lease(ctx->cache, &texts.key,
                                        options->budget_s > 0 ? options->budget_s + 30 : INFINITY);
    status = gki_entry_tune(ctx, op, call, problem, options, &entry, &owned, report);
    if (leased) {
        gki_cache_lease_end(ctx->cache, &texts.key);
    }
    if (status == GK_OK && owned) {
        gki_free(entry);
    }
    return status;
}

static gk_status check_options(const gk_tune_options *options)
{
    if (options->effort < GK_EFFORT_DEFAULT || options->effort > GK_EFFORT_EXHAUSTIVE) {
        return gk_fail(GK_ERR_INVALID, "tune", "options.effort is %d, expected 0 to %d",
                       (int)options->effort, GK_EFFORT_EXHAUSTIVE);
    }
    return gki_options_seconds(options->budget_s, "tune", "options.budget_s");
}

static const gki_span report_texts[] = {
    GKI_TEXT(gk_tune_report, variant), GKI_TEXT(gk_tune_report, config), {0, 0}};

gk_status gk_tune(gk_context *ctx, const char *op_name, const gk_call *call,
                  const gk_tune_options *user_options, gk_tune_report *report)
{
    gk_status status = gki_context_usable(ctx, "tune");
    if (status == GK_OK && gki_is_tuning(ctx)) {
        status = gk_fail(GK_ERR_INVALID, "tune",
                         "gk_tune was called from the progress callback of a tuning on the same "
                         "context");
    }
    if (status != GK_OK) {
        return status;
    }
    gk_tune_options options;
    status = gki_options_read(&options, sizeof(options), user_options, "options");
    if (status == GK_OK) {
        status = check_options(&options);
    }
    /* A caller should not wait for a tuning to hear of this. */
    if (status == GK_OK && report != NULL) {
        status = gki_result_check(report, sizeof(*report), report_texts, "tune", "report");
    }
    if (status != GK_OK) {
        return status;
    }
    const gk_op_desc *op;
    gk_call resolved;
    gk_problem problem;
    status = gki_call_resolve(op_name, call, &op, NULL, &resolved, &problem);
    if (status == GK_OK && options.variant != NULL &&
        gki_variant_find(op, options.variant) == NULL) {
        status = gk_fail(GK_ERR_NOT_FOUND, "tune", "%s has no variant \"%s\"", op->name,
                         options.variant);
    }
    if (status != GK_OK) {
        return status;
    }
    gk_tune_report local;
    memset(&local, 0, sizeof(local));
    local.struct_size = sizeof(local);
    if (!op->is_empty(&problem)) {
        status = tune_leased(ctx, op, &resolved, &problem, &options, &local);
    }
    if (report != NULL) {
        (void)gki_result_write(report, &local, sizeof(local), report_texts, "tune", "report");
    }
    return status;
}

typedef struct list_state {
    gk_context *ctx;
    gk_cache_entry_fn fn;
    void *user;
    const gk_op_desc *op;
    char environment[GKI_ENVIRONMENT_TEXT];
    gk_status status; /* of making it */
} list_state;

static bool list_one(void *user, const gk_cache_entry *stored)
{
    list_state *state = user;
    const gk_op_desc *op = gk_op_find(stored->op, NULL);
    if (op != NULL && op != state->op) {
        state->status = gki_environment_text(state->ctx->jit, op, state->environment,
                                             sizeof(state->environment));
        if (state->status == GK_ERR_NOMEM) {
            return false;
        }
        state->status = GK_OK; /* without readable templates no answer is current */
        state->op = op;
    }
    gk_cache_entry entry = *stored;
    entry.current = op != NULL && strcmp(entry.environment, state->environment) == 0;
    return state->fn(state->user, &entry);
}

gk_status gk_cache_list(gk_context *ctx, const char *op, gk_cache_entry_fn fn, void *user)
{
    gk_status status = gki_context_usable(ctx, "cache");
    if (status != GK_OK) {
        return status;
    }
    if (fn == NULL) {
        return gk_fail(GK_ERR_INVALID, "cache", "fn is NULL");
    }
    list_state state = {.ctx = ctx, .fn = fn, .user = user};
    status = gki_cache_choices(ctx->cache, op, list_one, &state);
    return state.status == GK_OK ? status : state.status;
}

gk_status gk_cache_trials(gk_context *ctx, const char *op_name, const gk_call *call, gk_trial_fn fn,
                          void *user)
{
    gk_status status = gki_context_usable(ctx, "cache");
    if (status != GK_OK) {
        return status;
    }
    if (fn == NULL) {
        return gk_fail(GK_ERR_INVALID, "cache", "fn is NULL");
    }
    const gk_op_desc *op;
    gk_call resolved;
    gk_problem problem;
    status = gki_call_resolve(op_name, call, &op, NULL, &resolved, &problem);
    if (status != GK_OK) {
        return status;
    }
    key_texts texts;
    status = key_of(ctx, op, &problem, &texts);
    return status == GK_OK ? gki_cache_trials(ctx->cache, &texts.key, fn, user) : status;
}

gk_status gk_cache_export(gk_context *ctx, const char *path, uint32_t *count)
{
    gk_status status = gki_context_usable(ctx, "cache");
    if (status != GK_OK) {
        return status;
    }
    if (path == NULL) {
        return gk_fail(GK_ERR_INVALID, "cache", "path is NULL");
    }
    uint32_t written = 0;
    status = gki_cache_export(ctx->cache, path, &written);
    if (count != NULL) {
        *count = written;
    }
    return status;
}

gk_status gk_cache_import(gk_context *ctx, const char *path, bool replace, uint32_t *imported,
                          uint32_t *skipped)
{
    gk_status status = gki_context_usable(ctx, "cache");
    if (status != GK_OK) {
        return status;
    }
    if (path == NULL) {
        return gk_fail(GK_ERR_INVALID, "cache", "path is NULL");
    }
    uint32_t taken = 0;
    uint32_t left = 0;
    status = gki_cache_import(ctx->cache, path, replace, &taken, &left);
    if (imported != NULL) {
        *imported = taken;
    }
    if (skipped != NULL) {
        *skipped = left;
    }
    return status;
}

gk_status gk_cache_misses(gk_context *ctx, gk_miss_fn fn, void *user)
{
    gk_status status = gki_context_usable(ctx, "cache");
    if (status != GK_OK) {
        return status;
    }
    if (fn == NULL) {
        return gk_fail(GK_ERR_INVALID, "cache", "fn is NULL");
    }
    return gki_cache_misses(ctx->cache, fn, user);
}
