/* What remains of a tuning: the answer, the trials, the report. */
#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/str.h"
#include "tune/session.h"

/* Rows for what was learned; NULL if memory is out or there is nothing. Strings are borrowed. */
static gk_trial *trial_rows(const gki_session *s, int32_t winner, uint32_t *count)
{
    *count = 0;
    gk_trial *rows = gki_calloc(s->n_entrants, sizeof(rows[0]));
    for (uint32_t i = 0; rows != NULL && i < s->n_entrants; i++) {
        const gki_entrant *e = &s->entrants[i];
        if (e->status != NULL) {
            gk_trial *row = &rows[(*count)++];
            row->variant = e->candidate.variant->name;
            row->config = e->config;
            row->status = e->status;
            row->seconds = e->seconds;
            row->spread = e->spread;
            row->max_error = e->max_error;
            row->chosen = winner == (int32_t)i;
        }
    }
    return rows;
}

void gki_keep_trials(gki_session *s)
{
    gki_cache *cache = gki_jit_options_of(s->jit)->cache;
    uint32_t count;
    gk_trial *rows = cache != NULL ? trial_rows(s, -1, &count) : NULL;
    if (rows != NULL && count > 0) {
        gki_cache_trials_put(cache, &s->key, rows, count);
    }
    gki_free(rows);
}

/* What is stored is data from outside: only a configuration that would be tried may come in. */
static bool read_choice(const gki_session *s, const gki_choice *choice, gki_candidate *out)
{
    const gk_variant *variant = gki_variant_find(s->op, choice->variant);
    gk_config config;
    if (variant == NULL || !gki_config_parse(variant, choice->config, &config) ||
        !gki_config_check(variant, &s->problem, &s->info, &config, NULL)) {
        return false;
    }
    out->variant = variant;
    out->config = config;
    out->predicted = variant->model(&s->problem, &s->info, &config);
    return true;
}

bool gki_stored_answer(gki_session *s, gki_candidate *out, gki_choice *choice, bool *bad)
{
    gki_cache *cache = gki_jit_options_of(s->jit)->cache;
    gk_error saved;
    *bad = false;
    memset(choice, 0, sizeof(*choice));
    gki_error_save(&saved);
    bool found = cache != NULL && gki_cache_choice_get(cache, &s->key, choice) == GK_OK;
    (void)gki_error_restore(&saved);
    if (found && !read_choice(s, choice, out)) {
        gki_logf(s->log, GK_LOG_WARNING,
                 "gk: the stored answer for %s %s is not usable and will be replaced", s->op->name,
                 s->problem_text);
        *bad = true;
    }
    return found && !*bad;
}

/* The search was cut short before anything was compared. Compiled code and trials are kept, so the
 * next tuning comes further; an answer would only keep it from happening. */
static bool is_inconclusive(const gki_session *s)
{
    uint32_t timed = 0;
    bool open = false;
    for (uint32_t i = 0; i < s->n_entrants; i++) {
        timed += s->entrants[i].seconds > 0 ? 1 : 0;
        open = open || s->entrants[i].status == NULL;
    }
    return !s->info.is_emulated && timed < 2 && open;
}

gk_status gki_publish(gki_session *s, int32_t winner, gki_candidate *out, gki_choice *choice,
                      bool *adopted, bool *saved)
{
    const gki_entrant *e = &s->entrants[winner];
    gki_cache *cache = gki_jit_options_of(s->jit)->cache;
    *out = e->candidate;
    *saved = false;
    *adopted = false;
    memset(choice, 0, sizeof(*choice));
    gki_copy_text(choice->variant, sizeof(choice->variant), e->candidate.variant->name);
    gki_copy_text(choice->config, sizeof(choice->config), e->config);
    choice->seconds = e->seconds;
    choice->spread = e->spread;
    choice->created = gki_clock_wall();
    if (cache == NULL || is_inconclusive(s)) {
        gki_keep_trials(s);
        return GK_OK;
    }
    uint32_t count;
    gk_trial *rows = trial_rows(s, winner, &count);
    if (rows == NULL) {
        return gki_fail_nomem("tune", s->n_entrants * sizeof(*rows));
    }
    gki_choice stored = *choice;
    gki_candidate other;
    bool replace = s->options.retune || s->bad_incumbent;
    gk_status status = gki_cache_publish(cache, &s->key, &stored, rows, count, replace, saved);
    gki_free(rows);
    const bool differs =
        strcmp(stored.variant, choice->variant) != 0 || strcmp(stored.config, choice->config) != 0;
    if (status == GK_OK && differs && read_choice(s, &stored, &other)) {
        *adopted = true;
        *choice = stored;
        *out = other;
    }
    /* The cache counts and reports its own trouble; the answer stands without it. */
    return status == GK_ERR_NOMEM ? status : GK_OK;
}

static bool was_refused(const gki_entrant *e)
{
    return e->status != NULL && strcmp(e->status, GKI_TRIAL_OK) != 0 &&
           strcmp(e->status, GKI_TRIAL_DROPPED) != 0;
}

static double compile_seconds(const gki_session *s)
{
    double sum = 0;
    for (uint32_t i = 0; i < s->n_entrants; i++) {
        bool counted = false;
        for (uint32_t j = 0; j < i && !counted; j++) {
            counted = s->entrants[j].kernel == s->entrants[i].kernel;
        }
        if (!counted && s->entrants[i].kernel != NULL) {
            sum += s->entrants[i].kernel->compile_s;
        }
    }
    return sum;
}

static double roofline(const gki_session *s, double flops, double bytes)
{
    const double peak = s->op->peak != NULL ? s->op->peak(&s->problem, &s->info) : INFINITY;
    /* Two transfers a clock. */
    double bandwidth =
        (double)s->info.memory_clock_khz * 1e3 * 2 * (double)s->info.memory_bus_bits / 8;
    if (s->info.is_emulated || !(peak > 0) || !(bandwidth > 0)) {
        return 0;
    }
    return fmax(flops / peak, bytes / bandwidth);
}

void gki_report(const gki_session *s, const gki_choice *choice, gk_tune_report *report)
{
    memset(report, 0, sizeof(*report));
    report->struct_size = sizeof(*report);
    report->space = s->n_space;
    for (uint32_t i = 0; i < s->n_entrants; i++) {
        const gki_entrant *e = &s->entrants[i];
        report->tried += e->tried ? 1 : 0;
        report->refused += was_refused(e) ? 1 : 0;
        if (e->is_guess) {
            report->guess_seconds = e->seconds;
        }
    }
    for (uint32_t i = 0; i < s->n_racers; i++) {
        report->measured += s->racers[i].n_samples > 0 ? 1 : 0;
    }
    gki_copy_text(report->variant, sizeof(report->variant), choice->variant);
    gki_copy_text(report->config, sizeof(report->config), choice->config);
    report->seconds = choice->seconds;
    report->spread = choice->spread;
    report->wall_s = gki_session_elapsed(s);
    report->compile_s = compile_seconds(s);
    s->op->work(&s->problem, &report->flops, &report->bytes);
    report->roofline_seconds = roofline(s, report->flops, report->bytes);
}
