/* Threads that want the same problem, and answers that hold only for a moment. */
#include <string.h>

#include "api/context.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"

/* How long an answer of the moment serves before the cache is asked again. */
static const uint64_t MOMENT_NS = 100000000;

/* A thread that waits for a flight. */
struct gki_waiter {
    gki_waiter *next;
    bool landed;
    gk_status status;
    gk_error error;
};

/* An answer while another process tunes the problem. */
struct gki_makeshift {
    gki_makeshift *next;
    gki_entry *entry;
    uint64_t until_ns;
};

static bool same_problem(const gk_problem *a, const gk_problem *b)
{
    return memcmp(a, b, sizeof(*a)) == 0;
}

/* --- answers of the moment --- */

static gki_makeshift *find(gk_context *ctx, const gk_problem *problem)
{
    gki_makeshift *m = ctx->makeshifts;
    while (m != NULL && !same_problem(&m->entry->problem, problem)) {
        m = m->next;
    }
    return m;
}

void gki_makeshift_keep(gk_context *ctx, const gki_entry *entry)
{
    gki_entry *copy = gki_entry_copy(entry);
    gki_makeshift *fresh = gki_calloc(1, sizeof(*fresh));
    pthread_mutex_lock(&ctx->mutex);
    gki_makeshift *m = find(ctx, &entry->problem);
    if (m == NULL && copy != NULL && fresh != NULL) {
        fresh->next = ctx->makeshifts;
        ctx->makeshifts = fresh;
        m = fresh;
        fresh = NULL;
    }
    if (m != NULL && copy != NULL) {
        gki_entry *old = m->entry;
        m->entry = copy;
        m->until_ns = gki_clock_ns() + MOMENT_NS;
        copy = old;
    }
    pthread_mutex_unlock(&ctx->mutex);
    gki_free(copy);
    gki_free(fresh);
}

void gki_makeshift_free(gk_context *ctx)
{
    while (ctx->makeshifts != NULL) {
        gki_makeshift *next = ctx->makeshifts->next;
        gki_free(ctx->makeshifts->entry);
        gki_free(ctx->makeshifts);
        ctx->makeshifts = next;
    }
}

/* A copy for the caller, NULL if there is none. Called with the mutex held. */
static gki_entry *find_makeshift(gk_context *ctx, const gk_problem *problem, gk_mode mode)
{
    const gki_makeshift *m = mode == GK_MODE_TUNE ? find(ctx, problem) : NULL;
    return m != NULL && gki_clock_ns() < m->until_ns ? gki_entry_copy(m->entry) : NULL;
}

/* --- flights --- */

/* Called with the mutex held, which waiting gives up. False if the thread is to look again. */
static bool wait_for(gk_context *ctx, gki_flight *flight, gk_mode mode, gki_waiter *waiter)
{
    const bool alike = flight->mode == mode;
    waiter->landed = false;
    waiter->next = flight->waiters;
    flight->waiters = waiter;
    while (!waiter->landed) {
        pthread_cond_wait(&ctx->landed, &ctx->mutex);
    }
    return alike && waiter->status != GK_OK;
}

gki_turn gki_flight_join(gk_context *ctx, const gk_problem *problem, gk_mode mode,
                         gki_flight *flight, gki_entry **out, bool *owned)
{
    gki_waiter waiter;
    pthread_mutex_lock(&ctx->mutex);
    for (;;) {
        *out = gki_entry_known(ctx, problem, mode);
        if (*out == NULL) {
            *out = find_makeshift(ctx, problem, mode);
            *owned = *out != NULL;
        }
        if (*out != NULL) {
            pthread_mutex_unlock(&ctx->mutex);
            return GKI_TURN_FOUND;
        }
        gki_flight *other = ctx->flights;
        while (other != NULL && !same_problem(other->problem, problem)) {
            other = other->next;
        }
        if (other == NULL) {
            break;
        }
        if (wait_for(ctx, other, mode, &waiter)) {
            pthread_mutex_unlock(&ctx->mutex);
            (void)gki_error_restore(&waiter.error);
            return GKI_TURN_FAILED;
        }
    }
    *flight = (gki_flight){.next = ctx->flights, .problem = problem, .mode = mode};
    ctx->flights = flight;
    pthread_mutex_unlock(&ctx->mutex);
    return GKI_TURN_FLY;
}

void gki_flight_land(gk_context *ctx, gki_flight *flight, gk_status status)
{
    pthread_mutex_lock(&ctx->mutex);
    gki_flight **link = &ctx->flights;
    while (*link != flight) {
        link = &(*link)->next;
    }
    *link = flight->next;
    gki_waiter *next;
    for (gki_waiter *waiter = flight->waiters; waiter != NULL; waiter = next) {
        next = waiter->next;
        waiter->status = status;
        if (status != GK_OK) {
            gki_error_save(&waiter->error);
        }
        waiter->landed = true;
    }
    pthread_cond_broadcast(&ctx->landed);
    pthread_mutex_unlock(&ctx->mutex);
}
