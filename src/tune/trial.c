/* Running one candidate: its kernel, its scratch memory, its launches. */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "tune/session.h"

enum { MAX_LAUNCHES = GKI_RACE_RUNS };
static const double BRIEF = 50e-6; /* below, launches come at the host's rate: graphs do not */

/* --- scratch --- */

/* At least `bytes` and a guard. Contents are lost when it grows. */
static gk_status scratch_grow(gki_session *s, gki_scratch *scratch, int64_t bytes)
{
    const gki_driver *driver = s->device->driver;
    if (scratch->memory != NULL && scratch->bytes >= bytes) {
        return GK_OK;
    }
    if (scratch->memory != NULL) {
        driver->mem_free(s->device, scratch->memory);
        scratch->memory = NULL;
        scratch->bytes = 0;
    }
    void *memory = NULL;
    gk_status status = driver->mem_alloc(s->device, (size_t)(bytes + GKI_GUARD), &memory);
    if (status == GK_OK) {
        scratch->memory = memory;
        scratch->bytes = bytes;
        status = driver->fill(s->device, memory, 0, (size_t)(bytes + GKI_GUARD), s->stream);
    }
    return status;
}

static gk_status scratch_reserve(gki_session *s, const gk_launch *launch)
{
    gk_status status = GK_OK;
    if (launch->workspace > 0) {
        status = scratch_grow(s, &s->workspace, launch->workspace);
    }
    if (status == GK_OK && launch->zeroed > 0) {
        status = scratch_grow(s, &s->zeroed, launch->zeroed);
    }
    return status;
}

static gk_status guard_scratch(gki_session *s, const gk_launch *launch)
{
    const gki_driver *driver = s->device->driver;
    gk_status status = GK_OK;
    if (launch->workspace > 0) {
        /* What a candidate finds there must not matter. */
        status = driver->fill(s->device, s->workspace.memory, 0xff, (size_t)launch->workspace,
                              s->stream);
        if (status == GK_OK) {
            status = driver->fill(s->device, s->workspace.memory + launch->workspace,
                                  GKI_GUARD_BYTE, GKI_GUARD, s->stream);
        }
    }
    if (status == GK_OK && launch->zeroed > 0) {
        status = driver->fill(s->device, s->zeroed.memory, 0, (size_t)launch->zeroed, s->stream);
        if (status == GK_OK) {
            status = driver->fill(s->device, s->zeroed.memory + launch->zeroed, GKI_GUARD_BYTE,
                                  GKI_GUARD, s->stream);
        }
    }
    return status;
}

static bool all_bytes(const unsigned char *bytes, size_t n, unsigned char value)
{
    for (size_t i = 0; i < n; i++) {
        if (bytes[i] != value) {
            return false;
        }
    }
    return true;
}

static gk_status check_guard(gki_session *s, const gki_scratch *scratch, int64_t used,
                             const char *name, gki_verdict *verdict)
{
    unsigned char guard[GKI_GUARD];
    gk_status status = s->device->driver->copy_out(s->device, guard, scratch->memory + used,
                                                   sizeof(guard), s->stream);
    if (status == GK_OK && !all_bytes(guard, sizeof(guard), GKI_GUARD_BYTE)) {
        verdict->status = GKI_TRIAL_OOB;
        snprintf(verdict->why, sizeof(verdict->why), "wrote behind the %lld bytes of its %s",
                 (long long)used, name);
    }
    return status;
}

static gk_status check_scratch(gki_session *s, const gk_launch *launch, gki_verdict *verdict)
{
    gk_status status = GK_OK;
    if (launch->workspace > 0) {
        status = check_guard(s, &s->workspace, launch->workspace, "workspace", verdict);
    }
    if (status != GK_OK || launch->zeroed == 0) {
        return status;
    }
    status = check_guard(s, &s->zeroed, launch->zeroed, "zeroed memory", verdict);
    if (status != GK_OK) {
        return status;
    }
    unsigned char *bytes = gki_alloc((size_t)launch->zeroed);
    if (bytes == NULL) {
        return gki_fail_nomem("tune", (size_t)launch->zeroed);
    }
    status = s->device->driver->copy_out(s->device, bytes, s->zeroed.memory, (size_t)launch->zeroed,
                                         s->stream);
    if (status == GK_OK && !all_bytes(bytes, (size_t)launch->zeroed, 0)) {
        verdict->status = GKI_TRIAL_WRONG;
        snprintf(verdict->why, sizeof(verdict->why), "did not leave its zeroed memory zero");
    }
    gki_free(bytes);
    return status;
}

/* --- launches --- */

static gk_status fill_launch(gki_session *s, const gki_entrant *e, const gki_bench *bench,
                             const gki_kernel *kernel, const gk_launch *launch, uint32_t set,
                             uint32_t slot)
{
    unsigned char *args = s->args + (size_t)slot * GK_MAX_KERNEL_ARGS;
    const gki_recipe recipe = {
        s->op, e->candidate.variant, &bench->problem, &e->candidate.config, kernel, launch};
    return gki_launch_make(s->device, &recipe, gki_operands_call(bench->operands, set),
                           launch->workspace > 0 ? s->workspace.memory : NULL,
                           launch->zeroed > 0 ? s->zeroed.memory : NULL, args, &s->launches[slot]);
}

static gk_status make_room(gki_session *s)
{
    if (s->launches == NULL) {
        s->launches = gki_calloc(MAX_LAUNCHES, sizeof(s->launches[0]));
        /* Kernel parameters are read with their own types. */
        s->args = gki_alloc_aligned(GKI_ARGS_ALIGN, (size_t)MAX_LAUNCHES * GK_MAX_KERNEL_ARGS);
    }
    if (s->launches == NULL || s->args == NULL) {
        return gki_fail_nomem("tune", (size_t)MAX_LAUNCHES * GK_MAX_KERNEL_ARGS);
    }
    return GK_OK;
}

/* Turns a failure into the entrant's status, unless it ends the tuning. */
static gk_status absorb(gki_session *s, gki_entrant *e, const char *as, gk_status status)
{
    if (status == GK_OK || gki_session_fatal(status)) {
        return status;
    }
    gki_session_refuse(s, e, as, gk_error_last()->message);
    return GK_OK;
}

gk_status gki_trial_load(gki_session *s, gki_entrant *e)
{
    gk_reason reason = {{0}};
    gki_kernel *kernel = NULL;
    gk_status status = gki_kernel_load(s->jit, s->op, e->candidate.variant, &s->problem,
                                       &e->candidate.config, &e->launch, &kernel);
    if (status != GK_OK) {
        return absorb(s, e, GKI_TRIAL_LAUNCH_ERROR, status);
    }
    e->kernel = kernel;
    if (!gki_kernel_fits(kernel, &e->launch, &s->info, &reason)) {
        gki_session_refuse(s, e, GKI_TRIAL_NO_RESOURCE, reason.text);
    }
    return GK_OK;
}

/* --- checking --- */

/* One run on copy 0, from a poisoned output; `again` from another poison. */
static gk_status run_once(gki_session *s, gki_entrant *e, gki_bench *bench,
                          const gki_kernel *kernel, const gk_launch *launch, bool again)
{
    gk_status status = gki_operands_poison(bench->operands, again);
    if (status == GK_OK) {
        status = guard_scratch(s, launch);
    }
    if (status != GK_OK) {
        return status;
    }
    status = fill_launch(s, e, bench, kernel, launch, 0, 0);
    if (status == GK_OK) {
        status = s->device->driver->launch(s->device, &s->launches[0], s->stream);
    }
    if (status == GK_OK) {
        status = s->device->driver->synchronize(s->device, s->stream);
    }
    return absorb(s, e, GKI_TRIAL_LAUNCH_ERROR, status);
}

static gk_status check_runs(gki_session *s, gki_entrant *e, gki_bench *bench,
                            const gki_kernel *kernel, const gk_launch *launch, bool deep)
{
    gk_status status = GK_OK;
    for (int run = 0; run < 2 && status == GK_OK && e->status == NULL; run++) {
        gki_verdict verdict;
        status = run_once(s, e, bench, kernel, launch, run > 0);
        if (status != GK_OK || e->status != NULL) {
            break;
        }
        status = gki_verifier_check(bench->verifier, run > 0, deep, &verdict);
        if (status == GK_OK && strcmp(verdict.status, GKI_TRIAL_OK) == 0) {
            status = check_scratch(s, launch, &verdict);
        }
        if (status != GK_OK) {
            break;
        }
        e->max_error = verdict.max_error > e->max_error ? verdict.max_error : e->max_error;
        if (strcmp(verdict.status, GKI_TRIAL_OK) != 0) {
            gki_session_refuse(s, e, verdict.status, verdict.why);
        }
    }
    return status;
}

gk_status gki_trial_check(gki_session *s, gki_entrant *e, gki_bench *bench, bool deep)
{
    gk_launch launch;
    gki_kernel *kernel = NULL;
    gki_config_launch(e->candidate.variant, &bench->problem, &s->info, &e->candidate.config,
                      &launch);
    gk_status status = make_room(s);
    if (status != GK_OK) {
        return status;
    }
    status = gki_kernel_load(s->jit, s->op, e->candidate.variant, &bench->problem,
                             &e->candidate.config, &launch, &kernel);
    if (status != GK_OK) {
        return absorb(s, e, GKI_TRIAL_LAUNCH_ERROR, status);
    }
    status = scratch_reserve(s, &launch);
    if (status == GK_ERR_NOMEM) {
        gki_session_refuse(s, e, GKI_TRIAL_NO_RESOURCE, gk_error_last()->message);
        return GK_OK;
    }
    if (status == GK_OK) {
        status = check_runs(s, e, bench, kernel, &launch, deep);
    }
    if (status == GK_OK && bench == &s->real) {
        e->fully_checked = deep || gki_verifier_is_exhaustive(bench->verifier);
    }
    return status;
}

/* --- timing --- */

/* As many launches, or some more: the same number while the estimate of their time wavers, so that
 * the driver still has their graph. Three significant bits. */
static uint32_t steady(uint32_t runs)
{
    uint32_t unit = 1;
    while (runs / unit > 8) {
        unit *= 2;
    }
    return (runs + unit - 1) / unit * unit;
}

gk_status gki_trial_time(gki_session *s, gki_entrant *e, const gki_bench *bench, uint32_t runs,
                         bool warm, double *seconds)
{
    gk_launch launch;
    gki_config_launch(e->candidate.variant, &bench->problem, &s->info, &e->candidate.config,
                      &launch);
    gki_kernel *kernel = e->kernel;
    gk_status status = make_room(s);
    if (status == GK_OK && bench != &s->real) {
        status = gki_kernel_load(s->jit, s->op, e->candidate.variant, &bench->problem,
                                 &e->candidate.config, &launch, &kernel);
    }
    if (status == GK_OK) {
        status = scratch_reserve(s, &launch);
        if (status == GK_ERR_NOMEM) {
            /* The candidate's own fault, and no reason to end the tuning. */
            gki_session_refuse(s, e, GKI_TRIAL_NO_RESOURCE, gk_error_last()->message);
            return GK_ERR_NO_CONFIG;
        }
    }
    if (status == GK_OK && launch.zeroed > 0) {
        status = s->device->driver->fill(s->device, s->zeroed.memory, 0, (size_t)launch.zeroed,
                                         s->stream);
    }
    if (status != GK_OK) {
        return status;
    }
    runs = steady(runs < MAX_LAUNCHES ? runs : MAX_LAUNCHES);
    /* Brief launches are replayed. A graph begins with a cold L2, whichever operands come first. */
    bool graph = runs > gki_race_runs(BRIEF) && !s->info.is_emulated;
    uint32_t sets = bench->operands->sets;
    uint32_t first = graph ? (uint32_t)(e - s->entrants) * 37 : s->next_set;
    for (uint32_t i = 0; i < runs && status == GK_OK; i++) {
        status = fill_launch(s, e, bench, kernel, &launch, (first + i) % sets, i);
    }
    if (status != GK_OK) {
        return status;
    }
    s->next_set = graph ? s->next_set : (s->next_set + runs) % sets;
    if (warm && !graph && !s->info.is_emulated) {
        status = s->device->driver->launch(s->device, &s->launches[runs - 1], s->stream);
    }
    if (status == GK_OK) {
        status = s->device->driver->synchronize(s->device, s->stream);
    }
    if (status == GK_OK) {
        status = s->device->driver->time(s->device, s->launches, runs, 1, graph, seconds);
    }
    return status;
}

void gki_trial_free(gki_session *s)
{
    s->device->driver->time_done(s->device);
    if (s->workspace.memory != NULL) {
        s->device->driver->mem_free(s->device, s->workspace.memory);
    }
    if (s->zeroed.memory != NULL) {
        s->device->driver->mem_free(s->device, s->zeroed.memory);
    }
    gki_free(s->launches);
    gki_free(s->args);
    s->workspace.memory = NULL;
    s->zeroed.memory = NULL;
    s->launches = NULL;
    s->args = NULL;
}
