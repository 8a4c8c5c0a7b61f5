#include <gk/ops.h>

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

static gk_status check_column(const void *dst, const void *src, int64_t rows, int64_t cols,
                              int64_t column, gk_dtype dtype)
{
    static const char where[] = "copy_column";
    const int64_t size = (int64_t)gk_dtype_size(dtype);
    int64_t bytes;
    if (size == 0) {
        return gk_fail(GK_ERR_INVALID, where, "dtype is %d, which is no gk_dtype", (int)dtype);
    }
    if (rows < 0 || cols < 0) {
        return gk_fail(GK_ERR_INVALID, where, "%s is %lld, must not be negative",
                       rows < 0 ? "rows" : "cols", (long long)(rows < 0 ? rows : cols));
    }
    if (column < 0 || column >= cols) {
        return gk_fail(GK_ERR_INVALID, where, "column is %lld but cols is %lld", (long long)column,
                       (long long)cols);
    }
    if (__builtin_mul_overflow(rows, cols, &bytes) || __builtin_mul_overflow(bytes, size, &bytes)) {
        return gk_fail(GK_ERR_INVALID, where,
                       "rows is %lld and cols is %lld: elements of %lld bytes do not fit in 63 "
                       "bits",
                       (long long)rows, (long long)cols, (long long)size);
    }
    if (rows > 0 && (dst == NULL || src == NULL)) {
        return gk_fail(GK_ERR_INVALID, where, "%s is NULL but rows is %lld",
                       dst == NULL ? "dst" : "src", (long long)rows);
    }
    if ((uintptr_t)dst % (uintptr_t)size != 0) {
        return gk_fail(GK_ERR_INVALID, where, "dst is %p, not a multiple of %lld, the size of %s",
                       dst, (long long)size, gk_dtype_name(dtype));
    }
    return GK_OK;
}

gk_status gk_copy_column(gk_context *ctx, void *dst, const void *src, int64_t rows, int64_t cols,
                         int64_t column, gk_dtype dtype, void *stream)
{
    gk_status status = gki_context_usable(ctx, "copy_column");
    if (status == GK_OK) {
        status = check_column(dst, src, rows, cols, column, dtype);
    }
    if (status != GK_OK || rows == 0) {
        return status;
    }
    const size_t size = gk_dtype_size(dtype);
    return ctx->device->driver->copy_in_2d(ctx->device, dst,
                                           (const unsigned char *)src + (size_t)column * size,
                                           (size_t)cols * size, size, (size_t)rows, stream);
}

gk_status gk_synchronize(gk_context *ctx, void *stream)
{
    gk_status status = gki_context_usable(ctx, "synchronize");
    return status == GK_OK ? ctx->device->driver->synchronize(ctx->device, stream) : status;
}
