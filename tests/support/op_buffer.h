/* A tensor in device memory between guards, with its image on the host. Public API only. */
#ifndef OP_BUFFER_H
#define OP_BUFFER_H

#include <gk/gk.h>

#include "op_values.h"

/*
 * Guards are 512 bytes on both sides. Around an input, and between its rows, lies NaN. Around an
 * output and between its rows lies a pattern, its elements are poisoned (NaN; 0x80 bytes for
 * integers). On the CPU device an input is there twice: `device` ends at a page that cannot be
 * read, up to the 15 bytes that its alignment costs, and `exact` to the byte where its allocation
 * ends, past which the device lets no cp.async read. Elsewhere `exact` is `device`.
 */
typedef struct op_buffer {
    gk_context *ctx;
    bool is_output;
    gk_tensor device; /* as calls take it */
    gk_tensor exact;  /* the same elements without a guard behind them */
    gk_tensor host;   /* the same view of the image */
    unsigned char *image;
    size_t bytes;
    unsigned char *memory; /* device */
    void *pages;           /* the mapping behind it, if it is one */
    size_t page_bytes;
    void *exact_memory; /* NULL if `exact` is `device` */
    size_t exact_bytes;
} op_buffer;

/* `shape` gives dtype, sizes and strides; the first element lies `offset` elements past a 256-byte
 * boundary. Elements hold zero (input) or poison (output) until op_buffer_upload(). */
gk_status op_buffer_create(op_buffer *out, gk_context *ctx, bool is_cpu, const gk_tensor *shape,
                           int64_t offset, bool is_output);
void op_buffer_destroy(op_buffer *buffer);

double op_buffer_get(const op_buffer *buffer, int64_t i, int64_t j);
void op_buffer_set(op_buffer *buffer, int64_t i, int64_t j, double value);
void op_buffer_randomise(op_buffer *buffer, op_random *r);

/* Image to device. */
gk_status op_buffer_upload(op_buffer *buffer);

/*
 * Device to *data, which has buffer->bytes bytes; elements there are found with op_buffer_view().
 * *damage becomes the first byte outside the elements (or, of an input, of all bytes) that differs
 * from the image, as an offset from the first element; INT64_MIN if there is none.
 */
gk_status op_buffer_download(const op_buffer *buffer, void *data, int64_t *damage);
gk_tensor op_buffer_view(const op_buffer *buffer, void *data);

double op_tensor_get(const gk_tensor *t, int64_t i, int64_t j);

/* The same for a tensor of any rank: the index counts its elements in row-major order. */
int64_t op_tensor_count(const gk_tensor *t);
double op_tensor_at(const gk_tensor *t, int64_t index);
void op_buffer_set_at(op_buffer *buffer, int64_t index, double value);

#endif
