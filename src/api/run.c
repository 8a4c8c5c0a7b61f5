/* The path of every call: validate, look up, pack, launch. No lock, allocation, string or SQL once
 * the problem is known to the thread. */
#include <string.h>

#include "api/context.h"
#include "base/alloc.h"
#include "op/op.h"

enum { THREAD_CACHE_SLOTS = 64 };

typedef struct thread_slot {
    uint64_t epoch;
    uint64_t hash; /* compared first: another problem's entry would be fetched for nothing */
    gki_entry *entry;
} thread_slot;

static _Thread_local thread_slot thread_cache[THREAD_CACHE_SLOTS];

static gki_calls *stripe(gk_context *ctx)
{
    static atomic_uint threads;
    static _Thread_local unsigned number;
    if (number == 0) {
        number = atomic_fetch_add(&threads, 1) + 1;
    }
    return &ctx->calls[number % GKI_CALL_STRIPES];
}

static gki_entry *look_up(gk_context *ctx, const gk_problem *problem)
{
    const uint64_t hash = gki_hash64(problem, sizeof(*problem));
    const uint64_t epoch = atomic_load_explicit(&ctx->epoch, memory_order_acquire);
    thread_slot *slot = &thread_cache[(hash >> 40) % THREAD_CACHE_SLOTS];
    if (slot->epoch == epoch && slot->hash == hash &&
        memcmp(&slot->entry->problem, problem, sizeof(*problem)) == 0) {
        return slot->entry;
    }
    gki_entry *entry = gki_table_find(&ctx->table, problem, hash);
    if (entry != NULL) {
        slot->epoch = epoch;
        slot->hash = hash;
        slot->entry = entry;
    }
    return entry;
}

gk_status gki_entry_run(gk_context *ctx, const gki_entry *entry, const gk_call *call, void *stream)
{
    if (entry->variant == NULL) {
        return GK_OK;
    }
    const gki_workspace *space;
    gk_status status = gki_workspace_find(ctx, &entry->launch, stream, &space);
    if (status != GK_OK) {
        return status;
    }
    _Alignas(16) unsigned char args[GK_MAX_KERNEL_ARGS];
    const size_t args_size = entry->op->pack(call, &entry->problem, entry->variant, &entry->config,
                                             space != NULL ? space->scratch : NULL,
                                             space != NULL ? space->zeroed : NULL, args);
    const gki_kernel_launch launch = {
        .module = atomic_load_explicit(&entry->kernel->module, memory_order_acquire),
        .grid = entry->launch.grid,
        .threads = entry->launch.threads,
        .cluster = entry->launch.cluster,
        .smem = entry->launch.smem,
        .args = args,
        .args_size = args_size};
    status = ctx->device->driver->launch(ctx->device, &launch, stream);
    if (status == GK_OK) {
        atomic_fetch_add_explicit(&stripe(ctx)->count, 1, memory_order_relaxed);
    }
    return status;
}

gk_status gki_call_run(gk_context *ctx, const gk_op_desc *op, const gk_call *call, void *stream)
{
    gk_status status = gki_context_usable(ctx, op->name);
    if (status != GK_OK) {
        return status;
    }
    gk_problem problem;
    memset(&problem, 0, sizeof(problem));
    problem.op = gki_op_index(op);
    status = op->infer(call, &problem);
    if (status != GK_OK || op->is_empty(&problem)) {
        return status;
    }
    gki_entry *entry = look_up(ctx, &problem);
    if (entry != NULL) {
        return gki_entry_run(ctx, entry, call, stream);
    }
    bool owned;
    status =
        gki_resolve(ctx, op, call, &problem, ctx->mode, ctx->tune_budget_s, stream, &entry, &owned);
    if (status != GK_OK) {
        return status;
    }
    status = gki_entry_run(ctx, entry, call, stream);
    if (owned) {
        gki_free(entry);
    }
    return status;
}
