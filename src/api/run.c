/* The path of every call: validate, look up, pack, launch. No lock, allocation, string or SQL once
 * the problem is known to the thread. */
#include <string.h>

#include "api/recent.h"
#include "base/alloc.h"
#include "op/op.h"

static gki_calls *stripe(gk_context *ctx)
{
    static atomic_uint threads;
    static _Thread_local unsigned number;
    if (number == 0) {
        number = atomic_fetch_add(&threads, 1) + 1;
    }
    return &ctx->calls[number % GKI_CALL_STRIPES];
}

/* Counted before the launch: after it an atomic operation would wait until the driver's writes to
 * the device have left the processor. */
static gk_status launch_counted(gk_context *ctx, const gki_kernel_launch *launch, void *stream)
{
    atomic_uint_fast64_t *count = &stripe(ctx)->count;
    atomic_fetch_add_explicit(count, 1, memory_order_relaxed);
    const gk_status status = ctx->device->driver->launch(ctx->device, launch, stream);
    if (status != GK_OK) {
        atomic_fetch_sub_explicit(count, 1, memory_order_relaxed);
    }
    return status;
}

/* place: where the launch is kept for the next such call; NULL = nowhere. asked: the call as it was
 * looked up there. */
static gk_status run(gk_context *ctx, const gki_entry *entry, const gk_call *call, void *stream,
                     const gki_place *place, const gk_call *asked)
{
    if (entry->variant == NULL) {
        return GK_OK;
    }
    __builtin_prefetch(entry->module);
    const gki_workspace *space;
    gk_status status = gki_workspace_find(ctx, &entry->launch, stream, &space);
    if (status != GK_OK) {
        return status;
    }
    _Alignas(GKI_ARGS_ALIGN) unsigned char args[GK_MAX_KERNEL_ARGS];
    const gki_recipe recipe = gki_entry_recipe(entry);
    gki_kernel_launch launch;
    status = gki_launch_make(ctx->device, &recipe, call, space != NULL ? space->scratch : NULL,
                             space != NULL ? space->zeroed : NULL, args, &launch);
    if (status == GK_OK) {
        status = launch_counted(ctx, &launch, stream);
    }
    if (status == GK_OK && place != NULL) {
        gki_recent_keep(place, entry, asked, space, &launch);
    }
    return status;
}

/* Repeats the memo's launch. False if that is not possible. */
static bool repeat(gk_context *ctx, const gki_memo *memo, void *stream, gk_status *status)
{
    gki_kernel_launch launch;
    if (memo == NULL || !gki_memo_launch(memo, stream, &launch)) {
        return false;
    }
    *status = launch_counted(ctx, &launch, stream);
    return true;
}

static bool answers(const gki_entry *entry, const gk_problem *problem)
{
    return entry != NULL && memcmp(&entry->problem, problem, sizeof(*problem)) == 0 &&
           !atomic_load_explicit(&entry->replaced, memory_order_acquire);
}

gk_status gki_call_run(gk_context *ctx, const gk_op_desc *op, const gk_call *call, void *stream)
{
    gki_place place;
    gk_status status = gki_context_usable(ctx, op->name);
    if (status != GK_OK ||
        repeat(ctx, gki_recent_look(ctx, op, 0, call, &place), stream, &status)) {
        return status;
    }
    gki_entry *entry = gki_recent_entry(&place, op, call);
    gk_problem problem;
    memset(&problem, 0, sizeof(problem));
    problem.op = gki_op_index(op);
    status = op->infer(call, &problem);
    if (status != GK_OK || op->is_empty(&problem)) {
        return status;
    }
    if (answers(entry, &problem)) {
        return run(ctx, entry, call, stream, &place, call);
    }
    entry = gki_table_find(&ctx->table, &problem, gki_hash64(&problem, sizeof(problem)));
    if (entry != NULL) {
        gki_recent_note(&place, entry);
        return run(ctx, entry, call, stream, &place, call);
    }
    bool owned;
    status =
        gki_resolve(ctx, op, call, &problem, ctx->mode, ctx->tune_budget_s, stream, &entry, &owned);
    if (status != GK_OK) {
        return status;
    }
    status = run(ctx, entry, call, stream, NULL, NULL);
    if (owned) {
        gki_free(entry);
    }
    return status;
}

gk_status gki_plan_launch(const gk_plan *plan, const gk_call *call, void *stream)
{
    gk_context *ctx = plan->ctx;
    const gki_entry *entry = plan->entry;
    gki_place place;
    gk_call applied;
    gk_status status;
    if (repeat(ctx, gki_recent_look(ctx, entry->op, entry->id, call, &place), stream, &status)) {
        return status;
    }
    status = gki_plan_call(plan, call, &applied);
    return status == GK_OK ? run(ctx, entry, &applied, stream, &place, call) : status;
}
