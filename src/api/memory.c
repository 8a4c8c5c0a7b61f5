#include "api/context.h"

gk_status gk_mem_alloc(gk_context *ctx, size_t bytes, void **out)
{
    if (out == NULL) {
        return gk_fail(GK_ERR_INVALID, "memory", "out is NULL");
    }
    *out = NULL;
    gk_status status = gki_context_usable(ctx, "memory");
    if (status != GK_OK || bytes == 0) {
        return status;
    }
    return ctx->device->driver->mem_alloc(ctx->device, bytes, out);
}

gk_status gk_mem_free(gk_context *ctx, void **ptr)
{
    gk_status status = gki_context_usable(ctx, "memory");
    if (status != GK_OK || ptr == NULL || *ptr == NULL) {
        return status;
    }
    status = ctx->device->driver->mem_free(ctx->device, *ptr);
    if (status == GK_OK) {
        *ptr = NULL;
    }
    return status;
}

static gk_status check_copy(const gk_context *ctx, const void *dst, const void *src, size_t bytes)
{
    gk_status status = gki_context_usable(ctx, "memory");
    if (status != GK_OK) {
        return status;
    }
    if (bytes > 0 && (dst == NULL || src == NULL)) {
        return gk_fail(GK_ERR_INVALID, "memory", "%s is NULL but bytes is %zu",
                       dst == NULL ? "dst" : "src", bytes);
    }
    return GK_OK;
}

gk_status gk_mem_upload(gk_context *ctx, void *dst, const void *src, size_t bytes, void *stream)
{
    gk_status status = check_copy(ctx, dst, src, bytes);
    if (status != GK_OK || bytes == 0) {
        return status;
    }
    return ctx->device->driver->copy_in(ctx->device, dst, src, bytes, stream);
}

gk_status gk_mem_download(gk_context *ctx, void *dst, const void *src, size_t bytes, void *stream)
{
    gk_status status = check_copy(ctx, dst, src, bytes);
    if (status != GK_OK || bytes == 0) {
        return status;
    }
    return ctx->device->driver->copy_out(ctx->device, dst, src, bytes, stream);
}

gk_status gk_synchronize(gk_context *ctx, void *stream)
{
    gk_status status = gki_context_usable(ctx, "synchronize");
    return status == GK_OK ? ctx->device->driver->synchronize(ctx->device, stream) : status;
}
