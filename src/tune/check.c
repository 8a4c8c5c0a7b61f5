/* Which of the compiled candidates give right results. */
#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/str.h"
#include "tune/session.h"

static const double VERIFY_SHARE = 0.4; /* of the time that compiling left */

/* Can the candidate run on the reduced problem, and is its code there the same? *why: if not. */
static gk_status fits_reduced(gki_session *s, const gki_entrant *e, bool *fits, gk_reason *why)
{
    gki_rendered rendered;
    *fits = false;
    if (!gki_config_check(e->candidate.variant, &s->reduced.problem, &s->info, &e->candidate.config,
                          why)) {
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

/* The share of the time that is spent once `part` of what is left now is. */
static double share_after(const gki_session *s, double part)
{
    const double spent = s->end_s > 0 ? fmin(gki_session_elapsed(s) / s->end_s, 1) : 0;
    return spent + part * (1 - spent);
}

gk_status gki_check_all(gki_session *s)
{
    const double share = share_after(s, VERIFY_SHARE);
    uint32_t found = 0;
    for (uint32_t i = 0; i < s->n_entrants; i++) {
        gki_entrant *e = &s->entrants[i];
        if (e->kernel == NULL || e->status != NULL) {
            continue;
        }
        if (s->cancelled || (found > 0 && gki_session_spent(s, share))) {
            break;
        }
        gk_status status = verify_one(s, e);
        if (status != GK_OK) {
            return status;
        }
        found += e->verified ? 1 : 0;
        (void)gki_session_progress(s, "verify", i + 1, s->n_entrants, 0);
    }
    return GK_OK;
}
