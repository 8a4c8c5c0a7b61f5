#include "api/context.h"

#include "base/alloc.h"
#include "base/error.h"

/* CU_STREAM_PER_THREAD is one handle for as many streams as there are threads: its areas are told
 * apart by a number that no other thread ever has. */
static uint64_t thread_of(const void *stream)
{
    static atomic_uint_fast64_t threads;
    static _Thread_local uint64_t number;
    if ((uintptr_t)stream != 2) {
        return 0;
    }
    if (number == 0) {
        number = atomic_fetch_add(&threads, 1) + 1;
    }
    return number;
}

static bool is_of(const gki_workspace *space, const void *stream, uint64_t thread)
{
    return space->stream == stream && space->thread == thread;
}

bool gki_workspace_serves(const gki_workspace *space, const void *stream)
{
    return is_of(space, stream, thread_of(stream));
}

static const gki_workspace *find(gk_context *ctx, const gk_launch *launch, void *stream)
{
    const uint64_t thread = thread_of(stream);
    const gki_workspace *space = atomic_load_explicit(&ctx->workspaces, memory_order_acquire);
    for (; space != NULL; space = space->next) {
        if (is_of(space, stream, thread) && space->scratch_bytes >= launch->workspace &&
            space->zeroed_bytes >= launch->zeroed) {
            return space;
        }
    }
    return NULL;
}

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* Doubling bounds what the outgrown areas, which captured graphs may still use, add up to. */
static gk_status grow(gk_context *ctx, const gk_launch *launch, void *stream, gki_workspace *space)
{
    const gki_driver *driver = ctx->device->driver;
    space->stream = stream;
    space->thread = thread_of(stream);
    space->scratch_bytes = larger(launch->workspace, 256);
    space->zeroed_bytes = larger(launch->zeroed, 65536);
    for (const gki_workspace *old = atomic_load(&ctx->workspaces); old != NULL; old = old->next) {
        if (is_of(old, stream, space->thread)) {
            if (launch->workspace > old->scratch_bytes) {
                space->scratch_bytes = larger(launch->workspace, 2 * old->scratch_bytes);
            } else {
                space->scratch_bytes = larger(space->scratch_bytes, old->scratch_bytes);
            }
            if (launch->zeroed > old->zeroed_bytes) {
                space->zeroed_bytes = larger(launch->zeroed, 2 * old->zeroed_bytes);
            } else {
                space->zeroed_bytes = old->zeroed_bytes;
            }
            break;
        }
    }
    gk_status status =
        driver->mem_alloc(ctx->device, (size_t)space->scratch_bytes, &space->scratch);
    if (status == GK_OK) {
        status = driver->mem_alloc(ctx->device, (size_t)space->zeroed_bytes, &space->zeroed);
    }
    if (status == GK_OK) {
        status = driver->fill(ctx->device, space->zeroed, 0, (size_t)space->zeroed_bytes, stream);
    }
    if (status != GK_OK) {
        driver->mem_free(ctx->device, space->scratch);
        driver->mem_free(ctx->device, space->zeroed);
    }
    return status;
}

gk_status gki_workspace_find(gk_context *ctx, const gk_launch *launch, void *stream,
                             const gki_workspace **out)
{
    *out = NULL;
    if (launch->workspace == 0 && launch->zeroed == 0) {
        return GK_OK;
    }
    *out = find(ctx, launch, stream);
    if (*out != NULL) {
        return GK_OK;
    }
    bool capturing = false;
    gk_status status = ctx->device->driver->is_capturing(ctx->device, stream, &capturing);
    if (status != GK_OK) {
        return status;
    }
    if (capturing) {
        return gk_fail(GK_ERR_NOT_PREPARED, "workspace",
                       "the stream is being captured and has no workspace of %lld bytes yet: call "
                       "gk_prepare for this problem and stream, or run the plan once in it, before "
                       "the capture",
                       (long long)launch->workspace);
    }
    gki_workspace *space = gki_calloc(1, sizeof(*space));
    if (space == NULL) {
        return gki_fail_nomem("workspace", sizeof(*space));
    }
    pthread_mutex_lock(&ctx->mutex);
    *out = find(ctx, launch, stream);
    if (*out == NULL) {
        status = grow(ctx, launch, stream, space);
        if (status == GK_OK) {
            space->next = atomic_load(&ctx->workspaces);
            atomic_store_explicit(&ctx->workspaces, space, memory_order_release);
            atomic_fetch_add(&ctx->counters.workspace_bytes,
                             (uint64_t)(space->scratch_bytes + space->zeroed_bytes));
            *out = space;
            space = NULL;
        }
    }
    pthread_mutex_unlock(&ctx->mutex);
    gki_free(space);
    return status;
}

void gki_workspace_free(gk_context *ctx)
{
    gki_workspace *space = atomic_load(&ctx->workspaces);
    while (space != NULL) {
        gki_workspace *next = space->next;
        ctx->device->driver->mem_free(ctx->device, space->scratch);
        ctx->device->driver->mem_free(ctx->device, space->zeroed);
        gki_free(space);
        space = next;
    }
    atomic_store(&ctx->workspaces, NULL);
}
