/* Compiling the candidates: in parallel, most promising first, within the budget. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/thread.h"
#include "tune/session.h"

static const double COMPILE_SHARE = 0.55;

typedef struct build {
    gki_session *session;
    uint32_t *leaders; /* for each code, the first entrant that has it */
    uint32_t n_leaders;
    pthread_t owner; /* the thread that tunes: the only one that may call the application */
    atomic_uint done;
    atomic_uint usable;             /* candidates that the compiler's verdict lets run */
    atomic_uint_fast64_t *began_ns; /* of each code; 0 = not yet */
    atomic_uint_fast64_t longest_ns;
    atomic_bool stop;
    pthread_mutex_t mutex; /* guards the next two */
    gk_status status;
    gk_error error;
} build;

static void fail(build *b, gk_status status)
{
    pthread_mutex_lock(&b->mutex);
    if (b->status == GK_OK) {
        b->status = status;
        gki_error_save(&b->error);
    }
    pthread_mutex_unlock(&b->mutex);
    atomic_store(&b->stop, true);
}

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

static void build_code(build *b, uint32_t leader)
{
    gki_session *s = b->session;
    gki_entrant *first = &s->entrants[leader];
    gki_kernel *kernel = NULL;
    gk_status status = gki_kernel_get(s->jit, s->op, first->candidate.variant, &s->problem,
                                      &first->candidate.config, &kernel);
    if (status != GK_OK && gki_session_fatal(status)) {
        fail(b, status);
        return;
    }
    for (uint32_t i = leader; i < s->n_entrants; i++) {
        gki_entrant *e = &s->entrants[i];
        if (e->group != first->group) {
            continue;
        }
        e->tried = true;
        e->kernel = kernel;
        if (status != GK_OK) {
            gki_session_refuse(s, e, GKI_TRIAL_COMPILE_ERROR, gk_error_last()->message);
        } else {
            judge(s, e);
            atomic_fetch_add(&b->usable, e->status == NULL ? 1 : 0);
        }
    }
}

/* Another compile takes as long as the longest so far, those that still run included: the first to
 * finish are the short ones. */
static bool too_late(build *b)
{
    const gki_session *s = b->session;
    const uint64_t now = gki_clock_ns();
    uint64_t longest = atomic_load(&b->longest_ns);
    if (!(s->options.budget_s > 0)) {
        return false;
    }
    for (uint32_t i = 0; i < b->n_leaders; i++) {
        const uint64_t began = atomic_load(&b->began_ns[i]);
        if (began != 0 && now > began && now - began > longest) {
            longest = now - began;
        }
    }
    return gki_session_elapsed(s) + (double)longest * 1e-9 > COMPILE_SHARE * s->options.budget_s;
}

static void compile_one(build *b, uint32_t index)
{
    gki_session *s = b->session;
    const uint64_t began = gki_clock_ns();
    atomic_store(&b->began_ns[index], began);
    build_code(b, b->leaders[index]);
    atomic_store(&b->began_ns[index], 0);
    const uint64_t took = gki_clock_ns() - began;
    uint_fast64_t longest = atomic_load(&b->longest_ns);
    while (took > longest && !atomic_compare_exchange_weak(&b->longest_ns, &longest, took)) {
    }
    const uint32_t done = atomic_fetch_add(&b->done, 1) + 1;
    if (pthread_equal(pthread_self(), b->owner) &&
        !gki_session_progress(s, "compile", done, b->n_leaders, 0)) {
        atomic_store(&b->stop, true);
    }
}

static void work(void *user, uint32_t index)
{
    build *b = user;
    gki_session *s = b->session;
    if (atomic_load(&b->stop)) {
        return;
    }
    if (index == 0) {
        gk_status status = gki_bench_prepare(s);
        if (status != GK_OK) {
            fail(b, status);
        }
        return;
    }
    /* The best guess is always compiled, the others if they will be done in time. */
    if (index > 1 && too_late(b)) {
        return;
    }
    compile_one(b, index - 1);
}

/* Nothing that the budget left time for is of use: on, until something is. */
static void work_on(void *user, uint32_t index)
{
    build *b = user;
    if (!atomic_load(&b->stop) && atomic_load(&b->usable) == 0 &&
        !b->session->entrants[b->leaders[index]].tried) {
        compile_one(b, index);
    }
}

static void find_leaders(build *b)
{
    gki_session *s = b->session;
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

gk_status gki_build(gki_session *s)
{
    build b = {.session = s, .owner = pthread_self(), .status = GK_OK};
    b.leaders = gki_alloc(s->n_entrants * sizeof(b.leaders[0]));
    b.began_ns = gki_calloc(s->n_entrants, sizeof(b.began_ns[0]));
    if (b.leaders == NULL || b.began_ns == NULL) {
        gki_free(b.leaders);
        gki_free(b.began_ns);
        return gki_fail_nomem("tune", s->n_entrants * sizeof(b.leaders[0]));
    }
    atomic_init(&b.done, 0);
    atomic_init(&b.usable, 0);
    atomic_init(&b.longest_ns, 0);
    atomic_init(&b.stop, false);
    pthread_mutex_init(&b.mutex, NULL);
    find_leaders(&b);
    const uint32_t threads = gki_jit_options_of(s->jit)->compile_threads;
    gki_parallel(threads, b.n_leaders + 1, work, &b);
    if (atomic_load(&b.usable) == 0) {
        gki_parallel(threads, b.n_leaders, work_on, &b);
    }
    pthread_mutex_destroy(&b.mutex);
    gki_free(b.leaders);
    gki_free(b.began_ns);
    return b.status == GK_OK ? GK_OK : gki_error_restore(&b.error);
}
