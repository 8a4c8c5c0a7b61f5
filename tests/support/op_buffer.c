#define _GNU_SOURCE
#include "op_buffer.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { GUARD = 512, INPUT_FILL = 0xff, OUTPUT_FILL = 0xa5 };

static int64_t offset_of(const gk_tensor *t, int64_t i, int64_t j)
{
    return i * t->stride[0] + (t->rank > 1 ? j * t->stride[1] : 0);
}

int64_t op_tensor_count(const gk_tensor *t)
{
    int64_t count = 1;
    for (int32_t axis = 0; axis < t->rank; axis++) {
        count *= t->shape[axis];
    }
    return count;
}

static int64_t flat_offset(const gk_tensor *t, int64_t index)
{
    int64_t offset = 0;
    for (int32_t axis = t->rank; axis-- > 0;) {
        offset += index % t->shape[axis] * t->stride[axis];
        index /= t->shape[axis];
    }
    return offset;
}

double op_tensor_at(const gk_tensor *t, int64_t index)
{
    return op_value_get((gk_dtype)t->dtype, t->data, flat_offset(t, index));
}

double op_tensor_get(const gk_tensor *t, int64_t i, int64_t j)
{
    return op_value_get((gk_dtype)t->dtype, t->data, offset_of(t, i, j));
}

double op_buffer_get(const op_buffer *buffer, int64_t i, int64_t j)
{
    return op_tensor_get(&buffer->host, i, j);
}

void op_buffer_set(op_buffer *buffer, int64_t i, int64_t j, double value)
{
    const gk_tensor *t = &buffer->host;
    op_value_set((gk_dtype)t->dtype, t->data, offset_of(t, i, j), value);
}

void op_buffer_set_at(op_buffer *buffer, int64_t index, double value)
{
    const gk_tensor *t = &buffer->host;
    op_value_set((gk_dtype)t->dtype, t->data, flat_offset(t, index), value);
}

void op_buffer_randomise(op_buffer *buffer, op_random *r)
{
    const int64_t count = op_tensor_count(&buffer->host);
    for (int64_t i = 0; i < count; i++) {
        op_buffer_set_at(buffer, i, op_random_value(r, (gk_dtype)buffer->host.dtype));
    }
}

static void fill_elements(op_buffer *buffer)
{
    const gk_tensor *t = &buffer->host;
    const size_t size = gk_dtype_size((gk_dtype)t->dtype);
    const int poison = op_value_is_integer((gk_dtype)t->dtype) ? 0x80 : 0xff;
    const int64_t count = op_tensor_count(t);
    for (int64_t i = 0; i < count; i++) {
        memset((unsigned char *)t->data + (size_t)flat_offset(t, i) * size,
               buffer->is_output ? poison : 0, size);
    }
}

/* Memory that ends, but for alignment, where an unreadable page begins; 256 readable bytes at least
 * before the first element. *first: from its beginning to the first element. */
static gk_status map_pages(op_buffer *buffer, size_t extent, size_t misalignment, size_t *first)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    const size_t readable = (extent + GUARD + 16 + page - 1) / page * page;
    unsigned char *map =
        mmap(NULL, readable + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (map == MAP_FAILED || mprotect(map + readable, page, PROT_NONE) != 0) {
        return GK_ERR_NOMEM;
    }
    buffer->pages = map;
    buffer->page_bytes = readable + page;
    buffer->memory = map;
    buffer->bytes = readable;
    *first = readable - extent;
    *first -= (*first - misalignment) % 16;
    return GK_OK;
}

/* A second place for an input: an allocation that begins with the bytes its misalignment takes and
 * ends with the last element. */
static gk_status allocate_exact(op_buffer *buffer, size_t extent, size_t misalignment)
{
    buffer->exact_bytes = misalignment + extent;
    const gk_status status = gk_mem_alloc(buffer->ctx, buffer->exact_bytes, &buffer->exact_memory);
    if (status == GK_OK && buffer->exact_memory != NULL) {
        buffer->exact.data = (unsigned char *)buffer->exact_memory + misalignment;
    }
    return status;
}

gk_status op_buffer_create(op_buffer *out, gk_context *ctx, bool is_cpu, const gk_tensor *shape,
                           int64_t offset, bool is_output)
{
    const size_t size = gk_dtype_size((gk_dtype)shape->dtype);
    const int64_t extent = gk_tensor_extent(shape);
    const size_t misalignment = (size_t)offset * size;
    size_t first = GUARD + misalignment;
    gk_status status;
    memset(out, 0, sizeof(*out));
    out->ctx = ctx;
    out->is_output = is_output;
    if (extent < 0) {
        return GK_ERR_INVALID;
    }
    if (is_cpu && !is_output) {
        status = map_pages(out, (size_t)extent, misalignment, &first);
    } else {
        void *memory;
        out->bytes = first + (size_t)extent + GUARD;
        status = gk_mem_alloc(ctx, out->bytes, &memory);
        out->memory = memory;
    }
    if (status == GK_OK && (out->image = malloc(out->bytes)) == NULL) {
        status = GK_ERR_NOMEM;
    }
    if (status != GK_OK) {
        op_buffer_destroy(out);
        return status;
    }
    out->device = out->host = *shape;
    out->device.data = out->memory + first;
    out->exact = out->device;
    out->host.data = out->image + first;
    memset(out->image, is_output ? OUTPUT_FILL : INPUT_FILL, out->bytes);
    fill_elements(out);
    if (out->pages != NULL) {
        status = allocate_exact(out, (size_t)extent, misalignment);
    }
    if (status != GK_OK) {
        op_buffer_destroy(out);
    }
    return status;
}

void op_buffer_destroy(op_buffer *buffer)
{
    free(buffer->image);
    if (buffer->exact_memory != NULL) {
        gk_mem_free(buffer->ctx, &buffer->exact_memory);
    }
    if (buffer->pages != NULL) {
        munmap(buffer->pages, buffer->page_bytes);
    } else if (buffer->memory != NULL) {
        void *memory = buffer->memory;
        gk_mem_free(buffer->ctx, &memory);
    }
    memset(buffer, 0, sizeof(*buffer));
}

gk_status op_buffer_upload(op_buffer *buffer)
{
    gk_status status =
        gk_mem_upload(buffer->ctx, buffer->memory, buffer->image, buffer->bytes, NULL);
    if (status == GK_OK && buffer->exact_memory != NULL) {
        const unsigned char *image = buffer->host.data;
        const size_t before =
            (size_t)((unsigned char *)buffer->exact.data - (unsigned char *)buffer->exact_memory);
        status = gk_mem_upload(buffer->ctx, buffer->exact_memory, image - before,
                               buffer->exact_bytes, NULL);
    }
    return status;
}

gk_tensor op_buffer_view(const op_buffer *buffer, void *data)
{
    gk_tensor view = buffer->host;
    view.data = (unsigned char *)data + ((unsigned char *)buffer->host.data - buffer->image);
    return view;
}

gk_status op_buffer_download(const op_buffer *buffer, void *data, int64_t *damage)
{
    const gk_status status =
        gk_mem_download(buffer->ctx, data, buffer->memory, buffer->bytes, NULL);
    *damage = INT64_MIN;
    if (status != GK_OK) {
        return status;
    }
    unsigned char *expected = malloc(buffer->bytes);
    if (expected == NULL) {
        return GK_ERR_NOMEM;
    }
    memcpy(expected, buffer->image, buffer->bytes);
    if (buffer->is_output) {
        const gk_tensor got = op_buffer_view(buffer, data);
        const gk_tensor want = op_buffer_view(buffer, expected);
        const size_t size = gk_dtype_size((gk_dtype)got.dtype);
        const int64_t count = op_tensor_count(&got);
        for (int64_t i = 0; i < count; i++) {
            const size_t at = (size_t)flat_offset(&got, i) * size;
            memcpy((unsigned char *)want.data + at, (unsigned char *)got.data + at, size);
        }
    }
    if (memcmp(expected, data, buffer->bytes) != 0) {
        size_t at = 0;
        while (expected[at] == ((unsigned char *)data)[at]) {
            at++;
        }
        *damage = (int64_t)at - ((unsigned char *)buffer->host.data - buffer->image);
    }
    free(expected);
    return GK_OK;
}
