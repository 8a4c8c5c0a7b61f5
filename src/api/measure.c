/* Timing a plan on the caller's operands. */
#include "api/context.h"
#include "base/alloc.h"
#include "base/error.h"

typedef struct run_batch {
    gki_kernel_launch *launches;
    unsigned char *args;
    gki_workspace space;
} run_batch;

static gk_status batch_fill(const gk_plan *plan, const gk_call *calls, uint32_t n_calls,
                            run_batch *batch)
{
    const gki_entry *entry = plan->entry;
    const gki_driver *driver = plan->ctx->device->driver;
    gki_device *device = plan->ctx->device;
    const gki_recipe recipe = gki_entry_recipe(entry);
    gk_status status = GK_OK;
    batch->launches = gki_calloc(n_calls, sizeof(*batch->launches));
    batch->args = gki_alloc_aligned(GKI_ARGS_ALIGN, (size_t)n_calls * GK_MAX_KERNEL_ARGS);
    if (batch->launches == NULL || batch->args == NULL) {
        return gki_fail_nomem("measure", n_calls * (size_t)GK_MAX_KERNEL_ARGS);
    }
    if (entry->launch.workspace > 0) {
        status = driver->mem_alloc(device, (size_t)entry->launch.workspace, &batch->space.scratch);
    }
    if (status == GK_OK && entry->launch.zeroed > 0) {
        status = driver->mem_alloc(device, (size_t)entry->launch.zeroed, &batch->space.zeroed);
        if (status == GK_OK) {
            status =
                driver->fill(device, batch->space.zeroed, 0, (size_t)entry->launch.zeroed, NULL);
        }
        if (status == GK_OK) {
            status = driver->synchronize(device, NULL);
        }
    }
    for (uint32_t i = 0; status == GK_OK && i < n_calls; i++) {
        gk_call call;
        status = gki_plan_call(plan, &calls[i], &call);
        if (status != GK_OK) {
            break;
        }
        unsigned char *args = batch->args + (size_t)i * GK_MAX_KERNEL_ARGS;
        status = gki_launch_make(device, &recipe, &call, batch->space.scratch, batch->space.zeroed,
                                 args, &batch->launches[i]);
    }
    return status;
}

gk_status gk_measure(const gk_plan *plan, const gk_call *calls, uint32_t n_calls, uint32_t rounds,
                     double *seconds)
{
    if (plan == NULL || calls == NULL || seconds == NULL) {
        return gk_fail(GK_ERR_INVALID, "measure", "%s is NULL",
                       plan == NULL    ? "plan"
                       : calls == NULL ? "calls"
                                       : "seconds");
    }
    if (n_calls == 0) {
        return gk_fail(GK_ERR_INVALID, "measure", "n_calls is 0, expected 1 or more");
    }
    gk_context *ctx = plan->ctx;
    gk_status status = gki_context_usable(ctx, "measure");
    if (status == GK_OK && plan->entry->variant == NULL) {
        status = gk_fail(GK_ERR_INVALID, "measure", "the plan computes nothing");
    }
    if (status != GK_OK) {
        return status;
    }
    const gki_driver *driver = ctx->device->driver;
    run_batch batch = {0};
    status = batch_fill(plan, calls, n_calls, &batch);
    double estimate = 0;
    if (status == GK_OK) {
        status = driver->time(ctx->device, batch.launches, n_calls, 1, false, &estimate);
    }
    const bool graph = estimate < 50e-6 && !ctx->info.is_emulated;
    /* A batch long enough for the timer: a millisecond, or one pass over the calls. */
    double passes = 1e-3 / (estimate * n_calls + 1e-9);
    const uint32_t repeats = passes < 1 ? 1 : passes > 1000 ? 1000 : (uint32_t)passes;
    for (uint32_t i = 0; status == GK_OK && i < rounds; i++) {
        status = driver->time(ctx->device, batch.launches, n_calls, repeats, graph, &seconds[i]);
    }
    driver->time_done(ctx->device);
    driver->mem_free(ctx->device, batch.space.scratch);
    driver->mem_free(ctx->device, batch.space.zeroed);
    gki_free(batch.launches);
    gki_free(batch.args);
    return status;
}
