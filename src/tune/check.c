/* Which of the compiled candidates give right results. */
#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/str.h"
#include "tune/session.h"

static const double CHECK_SHARE = 0.6;  /* of the budget is spent when this stage ends */
static const double LEAST_CHECK = 0.15; /* of the budget, after the first that is right */

/* Can the candidate run on the reduced problem, and is its code there the same? *why: if not. */
static gk_status fits_reduced(gki_session *s, const gki_entrant *e, bool *fits, gk_reason *why)
{
    gki_rendered rendered;
    *fits = false;
    if (!gki_config_serves(e->candidate.variant, &s->reduced.problem, &s->info,
                           &e->candidate.config, why)) {
        return GK_OK;
    }
    if (s->real.operands == NULL) {
        *fits = true;
        return GK_OK;
    }
    gk_status status = gki_render(s->jit, s->op, e->candidate.variant, &s->reduced.problem,
                                  &e->candidate.config, &rendered);
    if (status == GK_OK) {
        *fits = memcmp(&rendered.key, &e->kernel->key, sizeof(rendered.key)) == 0;
        gki_free(rendered.source);
    }
    return status;
}

static gk_status verify_one(gki_session *s, gki_entrant *e)
{
    gki_bench *bench = &s->real;
    gk_reason reason = {""};
    gk_status status = gki_trial_load(s, e);
    if (status != GK_OK || e->status != NULL) {
        return status;
    }
    if (s->reduced.operands != NULL) {
        bool fits;
        status = fits_reduced(s, e, &fits, &reason);
        if (status != GK_OK) {
            return status;
        }
        bench = fits ? &s->reduced : &s->real;
    }
    if (bench->operands == NULL) {
        gki_copy_text(e->why, sizeof(e->why), reason.text);
        return GK_OK;
    }
    status = gki_trial_check(s, e, bench, false);
    e->verified = status == GK_OK && e->status == NULL;
    return status;
}

/* Until when candidates are checked: the first that is right is not to remain the only one. The
 * guess is waited for longer: without it the answer might be slower than what runs untuned. */
static void limit_checks(const gki_session *s, double first_found, double *until,
                         double *guess_until)
{
    const double budget = s->options.budget_s;
    *until = 0;
    *guess_until = 0;
    if (budget > 0 && first_found >= 0) {
        *until = fmax(CHECK_SHARE * budget, first_found + LEAST_CHECK * budget);
        *guess_until = fmax(budget, *until);
    }
}

gk_status gki_check_all(gki_session *s)
{
    gk_status status = GK_OK;
    double first_found = -1;
    uint32_t checked = 0;
    while (status == GK_OK && !s->cancelled) {
        double until;
        double guess_until;
        gki_entrant *e = NULL;
        limit_checks(s, first_found, &until, &guess_until);
        status = gki_build_next(s, until, guess_until, &e);
        if (status != GK_OK || e == NULL) {
            break;
        }
        status = verify_one(s, e);
        if (e->verified && first_found < 0) {
            first_found = gki_session_elapsed(s);
        }
        (void)gki_session_progress(s, "verify", ++checked, s->n_entrants, 0);
    }
    return status;
}
