/* One tuning, from the space to the stored answer. */
#include "tune/session.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/str.h"

static const double RACE_SHARE = 0.95;
static const double LEAST_RACE = 0.2;   /* of the budget, however long the stages before took */
static const double WARM_WINDOW = 0.02; /* seconds */
static const double WARM_LIMIT = 0.3;

double gki_session_elapsed(const gki_session *s)
{
    return (double)(gki_clock_ns() - s->started_ns) * 1e-9;
}

bool gki_session_progress(gki_session *s, const char *stage, uint32_t done, uint32_t total,
                          double best)
{
    if (s->options.progress != NULL && !s->cancelled) {
        gk_tune_progress progress = {stage, done, total, gki_session_elapsed(s), best};
        s->cancelled = !s->options.progress(s->options.progress_user, &progress);
    }
    return !s->cancelled;
}

void gki_session_refuse(gki_session *s, gki_entrant *e, const char *status, const char *why)
{
    e->status = status;
    gki_copy_text(e->why, sizeof(e->why), why);
    gki_logf(s->log, GK_LOG_INFO, "tune: %s %s %s is refused: %s: %s", s->op->name,
             e->candidate.variant->name, e->config, status, why);
}

bool gki_session_fatal(gk_status status)
{
    return status == GK_ERR_LOST || status == GK_ERR_NO_COMPILER || status == GK_ERR_NOMEM ||
           status == GK_ERR_CANCELLED || status == GK_ERR_FORKED;
}

/* --- candidates --- */

static int64_t index_in_space(const gki_session *s, const gk_variant *variant,
                              const gk_config *config)
{
    for (uint32_t i = 0; i < s->n_space; i++) {
        if (s->space[i].variant == variant &&
            memcmp(&s->space[i].config, config, sizeof(*config)) == 0) {
            return i;
        }
    }
    return -1;
}

static int64_t index_of_text(const gki_session *s, const char *variant_name, const char *text)
{
    const gk_variant *variant = gki_variant_find(s->op, variant_name);
    gk_config config;
    memset(&config, 0, sizeof(config));
    if (variant == NULL || !gki_config_parse(variant, text, &config)) {
        return -1;
    }
    return index_in_space(s, variant, &config);
}

static bool exclude_trial(void *user, const gk_trial *trial)
{
    gki_session *s = user;
    if (strcmp(trial->status, GKI_TRIAL_WRONG) == 0 || strcmp(trial->status, GKI_TRIAL_OOB) == 0 ||
        strcmp(trial->status, GKI_TRIAL_NONDETERMINISTIC) == 0) {
        int64_t index = index_of_text(s, trial->variant, trial->config);
        if (index >= 0) {
            s->excluded[index] = true;
            gki_logf(s->log, GK_LOG_INFO, "tune: %s %s is known to be %s", trial->variant,
                     trial->config, trial->status);
        }
    }
    return true;
}

/* What is known from before: answers of other environments enter the race, wrong ones stay out. */
static int64_t use_the_past(gki_session *s)
{
    gki_cache *cache = gki_jit_options_of(s->jit)->cache;
    gki_choice choice;
    int64_t seed = -1;
    gk_error saved;
    if (cache == NULL) {
        return -1;
    }
    gki_error_save(&saved);
    (void)gki_cache_trials(cache, &s->key, exclude_trial, s);
    if (gki_cache_choice_seed(cache, &s->key, &choice) == GK_OK) {
        seed = index_of_text(s, choice.variant, choice.config);
    }
    (void)gki_error_restore(&saved);
    return seed;
}

static void add_entrant(gki_session *s, uint32_t i, uint32_t guess, int64_t incumbent)
{
    gki_entrant *e = &s->entrants[s->n_entrants++];
    e->candidate = s->space[i];
    e->group = s->groups[i];
    e->is_guess = i == guess;
    e->is_incumbent = (int64_t)i == incumbent;
    gki_config_text(e->candidate.variant, &e->candidate.config, e->config, sizeof(e->config));
    gki_config_launch(e->candidate.variant, &s->problem, &s->info, &e->candidate.config,
                      &e->launch);
}

/* An emulated device runs nothing but the reduced problem, so only what can run there enters. */
static gk_status exclude_for_emulation(gki_session *s)
{
    gk_problem reduced;
    uint32_t left = 0;
    if (!s->info.is_emulated || !gki_bench_reduced_problem(s, &reduced)) {
        return GK_OK;
    }
    bool *runs = gki_calloc(s->n_space, sizeof(*runs));
    if (runs == NULL) {
        return gki_fail_nomem("tune", s->n_space * sizeof(*runs));
    }
    for (uint32_t i = 0; i < s->n_space; i++) {
        runs[i] = !s->excluded[i] && gki_config_serves(s->space[i].variant, &reduced, &s->info,
                                                       &s->space[i].config, NULL);
        left += runs[i] ? 1 : 0;
    }
    s->no_reduced = left == 0;
    for (uint32_t i = 0; left > 0 && i < s->n_space; i++) {
        s->excluded[i] = !runs[i];
    }
    gki_free(runs);
    return GK_OK;
}

static gk_status enter(gki_session *s, int64_t incumbent)
{
    s->picked = gki_calloc(s->n_space, sizeof(bool));
    s->excluded = gki_calloc(s->n_space, sizeof(bool));
    s->groups = gki_calloc(s->n_space, sizeof(s->groups[0]));
    if (s->picked == NULL || s->excluded == NULL || s->groups == NULL) {
        return gki_fail_nomem("tune", s->n_space * sizeof(s->groups[0]));
    }
    int64_t seed = use_the_past(s);
    gk_status status = exclude_for_emulation(s);
    if (status != GK_OK) {
        return status;
    }
    uint32_t guess = 0;
    while (guess < s->n_space && s->excluded[guess]) {
        guess++;
    }
    if (guess == s->n_space) {
        return gk_fail(GK_ERR_NO_CONFIG, "tune",
                       "all %u configurations of %s are known to give wrong results", s->n_space,
                       s->op->name);
    }
    s->picked[guess] = true;
    if (seed >= 0) {
        s->picked[seed] = true;
    }
    if (incumbent >= 0) {
        s->picked[incumbent] = true;
    }
    gki_selection_rules rules = gki_selection_for(s->options.effort, s->info.is_emulated);
    status = gki_select(s->space, s->n_space, &rules, s->excluded, s->picked, s->groups);
    if (status != GK_OK) {
        return status;
    }
    uint32_t n = 0;
    for (uint32_t i = 0; i < s->n_space; i++) {
        n += s->picked[i] ? 1 : 0;
    }
    s->entrants = gki_calloc(n, sizeof(s->entrants[0]));
    if (s->entrants == NULL) {
        return gki_fail_nomem("tune", n * sizeof(s->entrants[0]));
    }
    for (uint32_t i = 0; i < s->n_space; i++) {
        if (s->picked[i]) {
            add_entrant(s, i, guess, incumbent);
        }
    }
    return GK_OK;
}

static gk_status no_config(const gki_session *s)
{
    const gki_entrant *last = NULL;
    for (uint32_t i = 0; i < s->n_entrants; i++) {
        last = s->entrants[i].why[0] != '\0' ? &s->entrants[i] : last;
    }
    if (last == NULL) {
        return gk_fail(GK_ERR_NO_CONFIG, "tune", "none of %u candidates for %s can be used",
                       s->n_entrants, s->op->name);
    }
    return gk_fail(
        GK_ERR_NO_CONFIG, "tune", "none of %u candidates for %s can be used; %s %s: %s%s%s",
        s->n_entrants, s->op->name, last->candidate.variant->name, last->config,
        last->status != NULL ? last->status : "", last->status != NULL ? ": " : "", last->why);
}

/* --- the race --- */

static gki_entrant *entrant_of(gki_session *s, uint32_t racer)
{
    return &s->entrants[s->racing[racer]];
}

static gk_status race_time(void *user, uint32_t racer, uint32_t runs, bool warm, double *seconds)
{
    gki_session *s = user;
    const gki_bench *bench = s->real.operands != NULL ? &s->real : &s->reduced;
    s->n_timings++;
    return gki_trial_time(s, entrant_of(s, racer), bench, runs, warm, seconds);
}

static gk_status race_admit(void *user, uint32_t racer, const char **verdict)
{
    gki_session *s = user;
    gki_entrant *e = entrant_of(s, racer);
    gk_status status = GK_OK;
    if (s->real.operands != NULL && !e->fully_checked) {
        status = gki_trial_check(s, e, &s->real, true);
    }
    *verdict = e->status != NULL ? e->status : GKI_TRIAL_OK;
    return status;
}

static double race_left(void *user)
{
    const gki_session *s = user;
    return s->end_s > 0 ? RACE_SHARE * s->end_s - gki_session_elapsed(s) : INFINITY;
}

/* Out of time or cancelled. Something is timed in any case. */
static bool race_stop(void *user, const char *stage, uint32_t done, uint32_t total, double best)
{
    gki_session *s = user;
    const bool spent = best > 0 && race_left(s) < 0;
    return !gki_session_progress(s, stage, done, total, best) || spent;
}

/* Runs the most promising until its times agree: the first candidates must not pay for a device
 * that idled while the compiler ran. */
static gk_status warm_up(gki_session *s)
{
    double previous = 0;
    const double left = s->end_s - gki_session_elapsed(s);
    const double limit = s->end_s > 0 ? fmin(WARM_LIMIT, 0.1 * left) : WARM_LIMIT;
    double began = gki_session_elapsed(s);
    while (gki_session_elapsed(s) - began < limit) {
        double window = gki_session_elapsed(s);
        double sum = 0;
        uint32_t n = 0;
        do {
            double seconds = 0;
            gk_status status =
                race_time(s, 0, gki_race_runs(s->racers[0].predicted), false, &seconds);
            if (status != GK_OK) {
                /* The race will meet the same and judge. */
                return gki_session_fatal(status) ? status : GK_OK;
            }
            sum += seconds;
            n++;
        } while (gki_session_elapsed(s) - window < WARM_WINDOW);
        double mean = sum / n;
        if (fabs(mean - previous) <= 0.01 * mean) {
            break;
        }
        previous = mean;
    }
    return GK_OK;
}

static gk_status make_racers(gki_session *s)
{
    s->racers = gki_calloc(s->n_entrants, sizeof(s->racers[0]));
    s->racing = gki_calloc(s->n_entrants, sizeof(s->racing[0]));
    if (s->racers == NULL || s->racing == NULL) {
        return gki_fail_nomem("tune", s->n_entrants * sizeof(s->racers[0]));
    }
    for (uint32_t i = 0; i < s->n_entrants; i++) {
        const gki_entrant *e = &s->entrants[i];
        if (e->verified && e->status == NULL) {
            gki_racer *r = &s->racers[s->n_racers];
            s->racing[s->n_racers++] = i;
            r->predicted = e->candidate.predicted;
            r->workspace = e->launch.workspace + e->launch.zeroed;
            r->smem = e->launch.smem;
            r->is_guess = e->is_guess;
            r->is_incumbent = e->is_incumbent;
        }
    }
    return GK_OK;
}

/* Emulated times say nothing: each is run once so that the path is walked, the model decides. */
static gk_status race_emulated(gki_session *s, int32_t *winner)
{
    for (uint32_t i = 0; i < s->n_racers; i++) {
        double seconds = 0;
        if (i > 0 && race_stop(s, "measure", i, s->n_racers, 0)) {
            break;
        }
        gk_status status = race_time(s, i, 1, false, &seconds);
        gki_entrant *e = entrant_of(s, i);
        if (status != GK_OK && gki_session_fatal(status)) {
            return status;
        }
        if (status != GK_OK) {
            if (e->status == NULL) {
                gki_session_refuse(s, e, GKI_TRIAL_LAUNCH_ERROR, gk_error_last()->message);
            }
            continue;
        }
        s->racers[i].n_samples = 1;
        /* The reduced problem's time would be no answer for this one. */
        e->seconds = s->real.operands != NULL ? seconds : 0;
        e->status = GKI_TRIAL_OK;
        *winner = *winner < 0 ? (int32_t)s->racing[i] : *winner;
    }
    return GK_OK;
}

static gk_status race(gki_session *s, int32_t *winner)
{
    *winner = -1;
    gk_status status = make_racers(s);
    if (status != GK_OK || s->n_racers == 0) {
        return status;
    }
    if (s->info.is_emulated) {
        return race_emulated(s, winner);
    }
    status = s->cancelled ? GK_OK : warm_up(s);
    if (status != GK_OK) {
        return status;
    }
    gki_race run = {.racers = s->racers, .count = s->n_racers, .seed = 1, .user = s};
    run.time = race_time;
    run.admit = race_admit;
    run.stop = race_stop;
    run.left = race_left;
    status = gki_race_run(&run);
    if (status != GK_OK) {
        return status;
    }
    for (uint32_t i = 0; i < s->n_racers; i++) {
        gki_entrant *e = entrant_of(s, i);
        const gki_racer *r = &s->racers[i];
        e->seconds = r->seconds;
        e->spread = r->spread;
        if (e->status == NULL && r->status != NULL) {
            e->status = r->status;
            if (strcmp(r->status, GKI_TRIAL_LAUNCH_ERROR) == 0) {
                gki_copy_text(e->why, sizeof(e->why), "it failed while it was timed");
            }
        }
    }
    *winner = run.winner < 0 ? -1 : (int32_t)s->racing[run.winner];
    return GK_OK;
}

/* --- all of it --- */

static gk_status open_session(gki_session *s, gki_jit *jit, const gk_op_desc *op,
                              const gk_call *call, const gk_problem *problem,
                              const gk_tune_options *options)
{
    memset(s, 0, sizeof(*s));
    s->started_ns = gki_clock_ns();
    s->jit = jit;
    s->device = gki_jit_options_of(jit)->device;
    s->log = gki_jit_options_of(jit)->log;
    s->info = *gki_jit_device(jit);
    s->op = op;
    s->call = call;
    s->problem = *problem;
    if (options != NULL) {
        s->options = *options;
    }
    gki_problem_text(op, problem, s->problem_text, sizeof(s->problem_text));
    gk_status status =
        gki_environment_text(jit, op, s->environment_text, sizeof(s->environment_text));
    if (status != GK_OK) {
        return status;
    }
    s->key = (gki_key){op->name, s->problem_text, s->environment_text};
    if (op->is_empty != NULL && op->is_empty(problem)) {
        return gk_fail(GK_ERR_INVALID, "tune", "%s has nothing to compute: %s", op->name,
                       s->problem_text);
    }
    return s->device->driver->stream_create(s->device, &s->stream);
}

static void close_session(gki_session *s)
{
    gki_build_end(s);
    gki_bench_free(&s->real);
    gki_bench_free(&s->reduced);
    gki_trial_free(s);
    if (s->stream != NULL) {
        s->device->driver->stream_destroy(s->device, s->stream);
    }
    gki_free(s->space);
    gki_free(s->picked);
    gki_free(s->excluded);
    gki_free(s->groups);
    gki_free(s->entrants);
    gki_free(s->racers);
    gki_free(s->racing);
}

static void count(gki_session *s)
{
    gki_counters *counters = gki_jit_options_of(s->jit)->counters;
    if (counters == NULL) {
        return;
    }
    uint32_t trials = 0;
    for (uint32_t i = 0; i < s->n_racers; i++) {
        trials += s->racers[i].n_samples > 0 ? 1 : 0;
    }
    atomic_fetch_add(&counters->tunes, 1);
    atomic_fetch_add(&counters->trials, trials);
}

static bool any_verified(const gki_session *s)
{
    for (uint32_t i = 0; i < s->n_entrants; i++) {
        if (s->entrants[i].verified) {
            return true;
        }
    }
    return false;
}

/* Everything between the space and the winner; -1 with GK_OK does not happen. */
static gk_status search(gki_session *s, int64_t incumbent, int32_t *winner)
{
    gk_status status = enter(s, incumbent);
    if (status == GK_OK) {
        status = gki_build_start(s);
    }
    if (status == GK_OK) {
        status = gki_bench_prepare(s);
    }
    const double prepared = gki_session_elapsed(s);
    if (status == GK_OK) {
        status = gki_check_all(s);
        gki_build_close(s);
    }
    const double checked = gki_session_elapsed(s);
    const double budget = s->options.budget_s;
    s->end_s = budget > 0 ? fmax(budget, gki_session_elapsed(s) + LEAST_RACE * budget) : 0;
    /* Stopped while candidates were checked, the best of those that are right wins. */
    if (status == GK_OK && s->cancelled && !any_verified(s)) {
        gki_keep_trials(s);
        return gk_fail(GK_ERR_CANCELLED, "tune", "stopped before any candidate was checked");
    }
    if (status == GK_OK) {
        status = race(s, winner);
        count(s);
        gki_logf(s->log, GK_LOG_INFO,
                 "tune: %s %s: operands after %.3f s, %u of %u candidates right after %.3f s, "
                 "%u timings until %.3f s",
                 s->op->name, s->problem_text, prepared, s->n_racers, s->n_entrants, checked,
                 s->n_timings, gki_session_elapsed(s));
    }
    if (status == GK_OK && *winner < 0) {
        status = no_config(s);
    }
    return status;
}

static gk_status tune(gki_session *s, gki_candidate *out, gk_tune_report *report)
{
    gki_choice choice;
    gki_candidate stored;
    int64_t incumbent = -1;
    bool known = gki_stored_answer(s, &stored, &choice, &s->bad_incumbent);
    if (known && !s->options.retune) {
        *out = stored;
        gki_report(s, &choice, report);
        report->from_cache = true;
        report->saved =
            gki_cache_choice_is_saved(gki_jit_options_of(s->jit)->cache, &s->key, &choice);
        return GK_OK;
    }
    gk_status status =
        gki_space(s->op, &s->problem, &s->info, s->options.variant, &s->space, &s->n_space, NULL);
    if (status == GK_OK && s->n_space == 0) {
        status = gki_guess(s->op, &s->problem, &s->info, out);
        return status != GK_OK ? status
                               : gk_fail(GK_ERR_NO_CONFIG, "tune",
                                         "no configuration of %s %s serves the problem",
                                         s->op->name, s->options.variant);
    }
    if (status == GK_OK && known) {
        incumbent = index_in_space(s, stored.variant, &stored.config);
    }
    int32_t winner = -1;
    if (status == GK_OK) {
        status = search(s, incumbent, &winner);
    }
    if (status == GK_OK) {
        bool adopted;
        bool saved;
        status = gki_publish(s, winner, out, &choice, &adopted, &saved);
        gki_report(s, &choice, report);
        report->from_cache = adopted;
        report->saved = saved;
    }
    return status;
}

gk_status gki_tune(gki_jit *jit, const gk_op_desc *op, const gk_call *call,
                   const gk_problem *problem, const gk_tune_options *options, gki_candidate *winner,
                   gk_tune_report *report)
{
    gki_session s;
    gk_tune_report local;
    gk_error error;
    memset(&local, 0, sizeof(local));
    gk_status status = open_session(&s, jit, op, call, problem, options);
    if (status == GK_OK) {
        status = tune(&s, winner, &local);
    }
    gki_error_save(&error);
    close_session(&s);
    if (report != NULL && status == GK_OK) {
        *report = local;
    }
    return status == GK_OK ? GK_OK : gki_error_restore(&error);
}
