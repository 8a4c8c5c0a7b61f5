/* What happens to a problem this process has no kernel for. */
#include <string.h>

#include "api/context.h"
#include "base/alloc.h"
#include "base/error.h"

/* Codes tried: the model's favourites, then those of the op's first variant. */
enum { GUESSES_TRIED = 8, LAST_TRIED = 4 };

/* A call that succeeds leaves the error record alone, whatever failed on the way. */
static gk_status settled(gk_status status, const gk_error *before)
{
    if (status == GK_OK) {
        (void)gki_error_restore(before);
    }
    return status;
}

/* Whether the entry is what the mode would come to. */
static bool suits(const gki_entry *entry, gk_mode mode)
{
    switch (mode) {
    case GK_MODE_TUNE:
    case GK_MODE_CACHED:
        return entry->source != GK_SOURCE_GUESS;
    case GK_MODE_PINNED:
        return entry->source == GK_SOURCE_GUESS;
    default:
        return true;
    }
}

gk_status gki_entry_publish(gk_context *ctx, gki_entry *entry)
{
    gk_status status =
        gki_table_insert(&ctx->table, entry, gki_hash64(&entry->problem, sizeof(entry->problem)));
    if (status != GK_OK) {
        gki_free(entry);
    }
    return status;
}

/* Puts the entry into the table, unless the context's own calls must not find it there. */
static gk_status share(gk_context *ctx, gki_entry *entry, bool *owned)
{
    *owned = ctx->mode == GK_MODE_PINNED && !suits(entry, GK_MODE_PINNED);
    return *owned ? GK_OK : gki_entry_publish(ctx, entry);
}

static bool same_code(const gki_candidate *a, const gki_candidate *b)
{
    if (a->variant != b->variant) {
        return false;
    }
    for (uint32_t i = 0; i < a->variant->n_params; i++) {
        if (!a->variant->params[i].at_launch && a->config.values[i] != b->config.values[i]) {
            return false;
        }
    }
    return true;
}

/* The next candidate behind the i-th whose code is none of those tried. */
static uint32_t next_code(const gki_candidate *candidates, uint32_t count, uint32_t i,
                          const uint32_t *tried, uint32_t n_tried)
{
    for (i++; i < count; i++) {
        bool known = false;
        for (uint32_t j = 0; j < n_tried && !known; j++) {
            known = same_code(&candidates[i], &candidates[tried[j]]);
        }
        if (!known) {
            break;
        }
    }
    return i;
}

/* Builds the candidate; code that spills registers does not serve. */
static gk_status build_guess(gk_context *ctx, const gk_op_desc *op, const gk_problem *problem,
                             const gki_candidate *candidate, gki_entry **out)
{
    gk_status status = gki_entry_build(ctx, op, problem, candidate->variant, &candidate->config,
                                       GK_SOURCE_GUESS, out);
    if (status == GK_OK && ((*out)->kernel->spill_bytes > 0 || (*out)->kernel->serialized)) {
        gki_free(*out);
        *out = NULL;
        status = gk_fail(GK_ERR_NO_CONFIG, op->name,
                         "the configurations tried for the untuned problem spill registers");
    }
    return status;
}

/* What no other configuration will mend. */
static bool is_final(gk_status status)
{
    return status == GK_OK || status == GK_ERR_NO_COMPILER || status == GK_ERR_LOST ||
           status == GK_ERR_NOMEM;
}

static gk_status guess_in_order(gk_context *ctx, const gk_op_desc *op, const gk_problem *problem,
                                const char *only, gki_entry **out)
{
    gki_candidate *candidates = NULL;
    uint32_t count;
    gk_status status = gki_space(op, problem, &ctx->info, only, &candidates, &count, NULL);
    if (status != GK_OK) {
        return status;
    }
    if (count == 0) {
        status = gk_fail(GK_ERR_NO_CONFIG, op->name,
                         "no configuration of variant \"%s\" fits the problem",
                         only != NULL ? only : "any");
    }
    uint32_t tried[GUESSES_TRIED + LAST_TRIED];
    uint32_t n_tried = 0;
    for (uint32_t i = 0; i < count && n_tried < GUESSES_TRIED + LAST_TRIED;
         i = next_code(candidates, count, i, tried, n_tried)) {
        /* The variant that serves everything comes first in the op, and last here. */
        if (n_tried >= GUESSES_TRIED && candidates[i].variant != op->variants[0]) {
            continue;
        }
        tried[n_tried++] = i;
        status = build_guess(ctx, op, problem, &candidates[i], out);
        if (is_final(status)) {
            break;
        }
    }
    gki_free(candidates);
    return status;
}

gk_status gki_entry_guess(gk_context *ctx, const gk_op_desc *op, const gk_problem *problem,
                          const char *only, gki_entry **out)
{
    *out = NULL;
    gk_error before;
    gki_error_save(&before);
    gk_status status = GK_ERR_NO_CONFIG;
    if (only == NULL) {
        gki_candidate best;
        status = gki_guess(op, problem, &ctx->info, &best);
        if (status != GK_OK) {
            return status;
        }
        status = build_guess(ctx, op, problem, &best, out);
    }
    if (!is_final(status)) {
        status = guess_in_order(ctx, op, problem, only, out);
    }
    if (status == GK_OK) {
        atomic_fetch_add(&ctx->counters.guesses, 1);
    }
    return settled(status, &before);
}

/* Failures to build a stored answer that say nothing about the answer. */
static bool is_passing(gk_status status)
{
    return status == GK_ERR_NO_COMPILER || status == GK_ERR_LOST || status == GK_ERR_NOMEM ||
           status == GK_ERR_IO || status == GK_ERR_TIMEOUT || status == GK_ERR_FORKED;
}

/* A stored answer is data from outside: it must name a variant and listed values, fit the device,
 * and load; otherwise it is dropped and the problem counts as untuned. */
static gk_status entry_from_cache(gk_context *ctx, const gk_op_desc *op, const gk_problem *problem,
                                  const gki_key *key, gki_entry **out)
{
    gki_choice choice;
    if (gki_cache_choice_get(ctx->cache, key, &choice) != GK_OK) {
        return GK_ERR_NOT_FOUND;
    }
    const gk_variant *variant = gki_variant_find(op, choice.variant);
    gk_config config;
    gk_reason reason = {{0}};
    if (variant == NULL || !gki_config_parse(variant, choice.config, &config)) {
        gk_refuse(&reason, "it is not a configuration of this version");
    } else if (gki_config_check(variant, problem, &ctx->info, &config, &reason)) {
        gk_status status =
            gki_entry_build(ctx, op, problem, variant, &config, GK_SOURCE_CACHE, out);
        if (status == GK_OK) {
            (*out)->seconds = choice.seconds;
            return GK_OK;
        }
        if (is_passing(status)) {
            return status;
        }
        gk_refuse(&reason, "%s", gk_error_last()->message);
    }
    gki_logf(&ctx->log, GK_LOG_WARNING,
             "gk: the stored answer for %s %s is not usable and is dropped: %s", op->name,
             key->problem, reason.text);
    gki_cache_choice_drop(ctx->cache, key);
    return GK_ERR_NOT_FOUND;
}

/* An address that is no other thread's as long as this one lives. */
static const void *this_thread(void)
{
    static _Thread_local char place;
    return &place;
}

bool gki_is_tuning(const gk_context *ctx)
{
    return atomic_load_explicit(&ctx->tuner, memory_order_relaxed) == this_thread();
}

static gk_status tune_and_build(gk_context *ctx, const gk_op_desc *op, const gk_call *call,
                                const gk_problem *problem, const gk_tune_options *options,
                                gki_entry **out, gk_tune_report *report)
{
    gki_candidate winner;
    pthread_mutex_lock(&ctx->tune_mutex);
    atomic_store_explicit(&ctx->tuner, this_thread(), memory_order_relaxed);
    gk_status status = gki_tune(ctx->jit, op, call, problem, options, &winner, report);
    atomic_store_explicit(&ctx->tuner, NULL, memory_order_relaxed);
    pthread_mutex_unlock(&ctx->tune_mutex);
    return status != GK_OK
               ? status
               : gki_entry_build(ctx, op, problem, winner.variant, &winner.config,
                                 report->from_cache ? GK_SOURCE_CACHE : GK_SOURCE_TUNED, out);
}

gk_status gki_entry_tune(gk_context *ctx, const gk_op_desc *op, const gk_call *call,
                         const gk_problem *problem, const gk_tune_options *options, gki_entry **out,
                         bool *owned, gk_tune_report *report)
{
    *out = NULL;
    *owned = false;
    gki_entry *entry = NULL;
    gk_error before;
    gk_tune_report local;
    gki_error_save(&before);
    memset(&local, 0, sizeof(local));
    local.struct_size = sizeof(local);
    gk_status status = tune_and_build(ctx, op, call, problem, options, &entry, &local);
    if (status != GK_OK && local.from_cache && !is_passing(status)) {
        gki_logf(&ctx->log, GK_LOG_WARNING,
                 "gk: the stored answer for a problem of %s is not usable and will be replaced: %s",
                 op->name, gk_error_last()->message);
        gk_tune_options again = *options;
        again.retune = true;
        memset(&local, 0, sizeof(local));
        local.struct_size = sizeof(local);
        status = tune_and_build(ctx, op, call, problem, &again, &entry, &local);
    }
    if (report != NULL) {
        *report = local;
    }
    if (status == GK_OK) {
        entry->seconds = local.seconds;
        status = share(ctx, entry, owned);
    }
    if (status == GK_OK) {
        *out = entry;
    }
    return settled(status, &before);
}

/* The model's favourite; every call's answer from then on if the mode is the context's own. */
static gk_status guess_for(gk_context *ctx, const gk_op_desc *op, const gk_problem *problem,
                           gk_mode mode, gki_entry **out, bool *owned)
{
    *owned = ctx->mode != mode;
    gk_status status = gki_entry_guess(ctx, op, problem, NULL, out);
    return status == GK_OK && !*owned ? gki_entry_publish(ctx, *out) : status;
}

static gk_status tune_or_guess(gk_context *ctx, const gk_op_desc *op, const gk_call *call,
                               const gk_problem *problem, const gki_key *key, double budget_s,
                               gki_entry **out, bool *owned)
{
    if (gki_is_tuning(ctx)) {
        *owned = true;
        return gki_entry_guess(ctx, op, problem, NULL, out);
    }
    if (!gki_cache_lease(ctx->cache, key, budget_s + 30)) {
        /* Another process tunes it: go on with the guess and look again in a moment. */
        *owned = true;
        const gk_status status = gki_entry_guess(ctx, op, problem, NULL, out);
        if (status == GK_OK) {
            gki_makeshift_keep(ctx, *out);
        }
        return status;
    }
    gk_tune_options options = {.struct_size = sizeof(options), .budget_s = budget_s};
    gk_status status = gki_entry_tune(ctx, op, call, problem, &options, out, owned, NULL);
    gki_cache_lease_end(ctx->cache, key);
    if (status != GK_ERR_NOMEM) {
        return status;
    }
    /* The caller's operands are there; only gk's copies of them do not fit. */
    gki_logf(&ctx->log, GK_LOG_WARNING, "gk: %s %s is not tuned, the model's guess runs: %s",
             op->name, key->problem, gk_error_last()->message);
    return guess_for(ctx, op, problem, GK_MODE_TUNE, out, owned);
}

static gk_status decide(gk_context *ctx, const gk_op_desc *op, const gk_call *call,
                        const gk_problem *problem, gk_mode mode, double budget_s, gki_entry **out,
                        bool *owned)
{
    if (mode == GK_MODE_PINNED) {
        return guess_for(ctx, op, problem, mode, out, owned);
    }
    char problem_text[GKI_PROBLEM_TEXT];
    char environment_text[GKI_ENVIRONMENT_TEXT];
    gki_problem_text(op, problem, problem_text, sizeof(problem_text));
    gk_status status =
        gki_environment_text(ctx->jit, op, environment_text, sizeof(environment_text));
    if (status != GK_OK) {
        return status;
    }
    const gki_key key = {op->name, problem_text, environment_text};
    status = entry_from_cache(ctx, op, problem, &key, out);
    if (status == GK_OK) {
        atomic_fetch_add(&ctx->counters.hits_cache, 1);
        return share(ctx, *out, owned);
    }
    if (status != GK_ERR_NOT_FOUND) {
        return status;
    }
    atomic_fetch_add(&ctx->counters.misses, 1);
    if (mode == GK_MODE_TUNE) {
        return tune_or_guess(ctx, op, call, problem, &key, budget_s, out, owned);
    }
    gki_cache_miss(ctx->cache, &key);
    if (mode == GK_MODE_CACHED) {
        return gk_fail(GK_ERR_UNTUNED, op->name,
                       "not tuned: %s (gk-tune warm tunes it; other modes run it untuned)",
                       problem_text);
    }
    gki_logf(&ctx->log, GK_LOG_INFO,
             "gk: %s %s is not tuned, the model's guess runs (gk-tune warm tunes it)", op->name,
             problem_text);
    return guess_for(ctx, op, problem, mode, out, owned);
}

gki_entry *gki_entry_known(gk_context *ctx, const gk_problem *problem, gk_mode mode)
{
    gki_entry *entry = gki_table_find(&ctx->table, problem, gki_hash64(problem, sizeof(*problem)));
    return entry != NULL && suits(entry, mode) ? entry : NULL;
}

gk_status gki_resolve(gk_context *ctx, const gk_op_desc *op, const gk_call *call,
                      const gk_problem *problem, gk_mode mode, double budget_s, void *stream,
                      gki_entry **out, bool *owned)
{
    *owned = false;
    *out = gki_entry_known(ctx, problem, mode);
    if (*out != NULL) {
        atomic_fetch_add(&ctx->counters.hits_memory, 1);
        return GK_OK;
    }
    bool capturing = false;
    gk_status status = ctx->device->driver->is_capturing(ctx->device, stream, &capturing);
    if (status != GK_OK) {
        return status;
    }
    if (capturing) {
        return gk_fail(GK_ERR_NOT_PREPARED, op->name,
                       "the stream is being captured and the problem's kernel is not loaded: call "
                       "gk_prepare or run the problem once before the capture");
    }
    gk_error before;
    gki_error_save(&before);
    if (gki_is_tuning(ctx)) {
        return settled(decide(ctx, op, call, problem, mode, budget_s, out, owned), &before);
    }
    gki_flight flight;
    switch (gki_flight_join(ctx, problem, mode, &flight, out, owned)) {
    case GKI_TURN_FOUND:
        atomic_fetch_add(&ctx->counters.hits_memory, 1);
        return GK_OK;
    case GKI_TURN_FAILED:
        return gk_error_last()->status;
    default:
        break;
    }
    status = decide(ctx, op, call, problem, mode, budget_s, out, owned);
    gki_flight_land(ctx, &flight, status);
    return settled(status, &before);
}
