/* Compiling the candidates: in threads of its own, most promising first, within the budget. What is
 * done is checked and timed meanwhile. */
#define _GNU_SOURCE /* pthread_condattr_setclock */
#include <pthread.h>
#include <stdio.h>
#include <time.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/thread.h"
#include "tune/session.h"

static const double COMPILE_SHARE = 0.55; /* of the budget; later none is begun */

struct gki_build {
    gki_session *session;
    pthread_t *threads;
    uint32_t n_threads;
    uint32_t *leaders; /* for each code, the first entrant that has it */
    uint32_t n_leaders;
    uint64_t *began_ns; /* of each code that is being compiled; 0 = is not */
    uint32_t next;      /* leader */
    uint32_t done;
    uint32_t told;    /* of those done */
    uint32_t running; /* compiles */
    uint32_t usable;  /* candidates that the compiler's verdict lets run */
    uint64_t longest_ns;
    bool stop;   /* begin nothing more */
    bool closed; /* what is done from now on is of no interest */
    gk_status status;
    gk_error error;
    pthread_mutex_t mutex; /* guards all of it, and the entrants that are not ready */
    pthread_cond_t changed;
};

/* Compiler's verdicts. A kernel that spills or serializes is right, but never worth its place. */
static void judge(gki_session *s, gki_entrant *e)
{
    char why[128];
    gk_reason reason = {{0}};
    const gki_kernel *kernel = e->kernel;
    if (kernel->spill_bytes > 0) {
        snprintf(why, sizeof(why), "%d bytes of registers spilled", kernel->spill_bytes);
        gki_session_refuse(s, e, GKI_TRIAL_SPILLS, why);
    } else if (kernel->serialized) {
        gki_session_refuse(s, e, GKI_TRIAL_SERIALIZED, "the compiler serialized its wgmma");
    } else if (!gki_kernel_fits(kernel, &e->launch, &s->info, &reason)) {
        gki_session_refuse(s, e, GKI_TRIAL_NO_RESOURCE, reason.text);
    }
}

/* Hands the code to all entrants that have it. */
static void deliver(struct gki_build *b, uint32_t leader, gki_kernel *kernel, gk_status status)
{
    gki_session *s = b->session;
    if (status != GK_OK && gki_session_fatal(status)) {
        b->status = status;
        gki_error_save(&b->error);
        b->stop = true;
        return;
    }
    for (uint32_t i = leader; i < s->n_entrants; i++) {
        gki_entrant *e = &s->entrants[i];
        if (e->group != s->entrants[leader].group) {
            continue;
        }
        e->tried = true;
        e->kernel = kernel;
        if (status != GK_OK) {
            gki_session_refuse(s, e, GKI_TRIAL_COMPILE_ERROR, gk_error_last()->message);
        } else {
            judge(s, e);
        }
        b->usable += e->status == NULL ? 1 : 0;
    }
}

/* Another compile takes as long as the longest so far, those that still run included: the first to
 * finish are the short ones. */
static bool too_late(const struct gki_build *b)
{
    const gki_session *s = b->session;
    const uint64_t now = gki_clock_ns();
    uint64_t longest = b->longest_ns;
    if (!(s->options.budget_s > 0)) {
        return false;
    }
    for (uint32_t i = 0; i < b->next; i++) {
        if (b->began_ns[i] != 0 && now > b->began_ns[i] && now - b->began_ns[i] > longest) {
            longest = now - b->began_ns[i];
        }
    }
    return gki_session_elapsed(s) + (double)longest * 1e-9 > COMPILE_SHARE * s->options.budget_s;
}

/* Unlocks the mutex meanwhile. */
static void compile_next(struct gki_build *b)
{
    gki_session *s = b->session;
    const uint32_t index = b->next++;
    const gki_candidate *candidate = &s->entrants[b->leaders[index]].candidate;
    gki_kernel *kernel = NULL;
    const uint64_t began = gki_clock_ns();
    b->began_ns[index] = began;
    b->running++;
    pthread_mutex_unlock(&b->mutex);
    const gk_status status =
        gki_kernel_get(s->jit, s->op, candidate->variant, &s->problem, &candidate->config, &kernel);
    pthread_mutex_lock(&b->mutex);
    const uint64_t took = gki_clock_ns() - began;
    b->longest_ns = took > b->longest_ns ? took : b->longest_ns;
    b->began_ns[index] = 0;
    b->running--;
    b->done++;
    if (!b->closed) {
        deliver(b, b->leaders[index], kernel, status);
    }
    pthread_cond_broadcast(&b->changed);
}

/* Whether another compile is to begin. The best guess always is compiled, the others if they will
 * be done in time; if nothing of that is of use, on, until something is. */
static bool wants_more(const struct gki_build *b)
{
    return !b->stop && b->next < b->n_leaders && (b->next == 0 || !too_late(b) || b->usable == 0);
}

static void *work(void *user)
{
    struct gki_build *b = user;
    pthread_mutex_lock(&b->mutex);
    while (wants_more(b)) {
        if (b->next > 0 && b->running > 0 && too_late(b)) {
            pthread_cond_wait(&b->changed, &b->mutex); /* for what the others make of it */
        } else {
            compile_next(b);
        }
    }
    pthread_cond_broadcast(&b->changed);
    pthread_mutex_unlock(&b->mutex);
    return NULL;
}

static void find_leaders(struct gki_build *b)
{
    const gki_session *s = b->session;
    for (uint32_t i = 0; i < s->n_entrants; i++) {
        bool known = false;
        for (uint32_t j = 0; j < b->n_leaders && !known; j++) {
            known = s->entrants[b->leaders[j]].group == s->entrants[i].group;
        }
        if (!known) {
            b->leaders[b->n_leaders++] = i;
        }
    }
}

gk_status gki_build_start(gki_session *s)
{
    const uint32_t threads = gki_jit_options_of(s->jit)->compile_threads;
    struct gki_build *b = gki_calloc(1, sizeof(*b));
    if (b == NULL) {
        return gki_fail_nomem("tune", sizeof(*b));
    }
    s->build = b;
    *b = (struct gki_build){.session = s, .status = GK_OK};
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_mutex_init(&b->mutex, NULL);
    pthread_cond_init(&b->changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    b->leaders = gki_calloc(s->n_entrants, sizeof(b->leaders[0]));
    b->began_ns = gki_calloc(s->n_entrants, sizeof(b->began_ns[0]));
    if (b->leaders == NULL || b->began_ns == NULL) {
        return gki_fail_nomem("tune", s->n_entrants * sizeof(b->leaders[0]));
    }
    find_leaders(b);
    const uint32_t wanted = threads < b->n_leaders ? threads : b->n_leaders;
    b->threads = gki_calloc(wanted, sizeof(b->threads[0]));
    if (b->threads != NULL) {
        b->n_threads = gki_threads_start(b->threads, wanted, work, b);
    }
    return GK_OK;
}

/* The most promising entrant that is compiled and was not taken yet. */
static gki_entrant *first_ready(gki_session *s)
{
    for (uint32_t i = 0; i < s->n_entrants; i++) {
        gki_entrant *e = &s->entrants[i];
        if (e->tried && !e->taken && e->status == NULL) {
            e->taken = true;
            return e;
        }
    }
    return NULL;
}

/* The guess, if it is still to be handed out. */
static const gki_entrant *guess_to_come(const gki_session *s)
{
    for (uint32_t i = 0; i < s->n_entrants; i++) {
        const gki_entrant *e = &s->entrants[i];
        if (e->is_guess) {
            return e->status == NULL && !e->taken ? e : NULL;
        }
    }
    return NULL;
}

static bool compiles(const struct gki_build *b, const gki_entrant *e)
{
    for (uint32_t i = 0; i < b->next; i++) {
        if (b->session->entrants[b->leaders[i]].group == e->group) {
            return b->began_ns[i] != 0;
        }
    }
    return false;
}

/* Until when to wait for more; 0 = as long as it takes. The guess is not left behind while it
 * compiles, which the tuning's end would wait for as well. */
static double limit_of(const struct gki_build *b, double until, double guess_until)
{
    const gki_entrant *guess = guess_to_come(b->session);
    if (guess == NULL) {
        return until;
    }
    return guess->tried || compiles(b, guess) ? 0 : guess_until;
}

/* Waits for a change, at most until so many seconds after the tuning's start; 0 = without limit. */
static void wait_until(struct gki_build *b, double until)
{
    if (!(until > 0)) {
        pthread_cond_wait(&b->changed, &b->mutex);
        return;
    }
    const uint64_t at = b->session->started_ns + (uint64_t)(until * 1e9);
    const struct timespec deadline = {(time_t)(at / 1000000000), (long)(at % 1000000000)};
    pthread_cond_timedwait(&b->changed, &b->mutex, &deadline);
}

gk_status gki_build_next(gki_session *s, double until, double guess_until, gki_entrant **out)
{
    struct gki_build *b = s->build;
    *out = NULL;
    pthread_mutex_lock(&b->mutex);
    for (;;) {
        if (b->told < b->done) {
            b->told = b->done;
            const uint32_t done = b->done;
            pthread_mutex_unlock(&b->mutex);
            (void)gki_session_progress(s, "compile", done, b->n_leaders, 0);
            pthread_mutex_lock(&b->mutex);
            continue;
        }
        b->stop = b->stop || s->cancelled;
        if (b->status != GK_OK || s->cancelled) {
            break;
        }
        const double limit = limit_of(b, until, guess_until);
        if (limit > 0 && gki_session_elapsed(s) >= limit) {
            break;
        }
        *out = first_ready(s);
        if (*out != NULL) {
            break;
        }
        if (b->n_threads == 0 && wants_more(b)) {
            compile_next(b);
        } else if (b->running > 0 || wants_more(b)) {
            wait_until(b, limit);
        } else {
            break;
        }
    }
    const gk_status status = b->status == GK_OK ? GK_OK : gki_error_restore(&b->error);
    pthread_mutex_unlock(&b->mutex);
    return status;
}

void gki_build_close(gki_session *s)
{
    struct gki_build *b = s->build;
    pthread_mutex_lock(&b->mutex);
    b->stop = true;
    b->closed = true;
    pthread_cond_broadcast(&b->changed);
    pthread_mutex_unlock(&b->mutex);
}

void gki_build_end(gki_session *s)
{
    struct gki_build *b = s->build;
    if (b == NULL) {
        return;
    }
    gki_build_close(s);
    for (uint32_t i = 0; i < b->n_threads; i++) {
        (void)pthread_join(b->threads[i], NULL);
    }
    pthread_cond_destroy(&b->changed);
    pthread_mutex_destroy(&b->mutex);
    gki_free(b->threads);
    gki_free(b->leaders);
    gki_free(b->began_ns);
    gki_free(b);
    s->build = NULL;
}
