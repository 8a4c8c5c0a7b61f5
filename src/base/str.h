/* Text: a growing buffer, and numbers that do not depend on the locale. */
#ifndef GKI_STR_H
#define GKI_STR_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Zero-initialise. Once an allocation fails, `failed` is set and further appends do nothing. */
typedef struct gki_buf {
    char *text; /* NUL-terminated once anything was appended */
    size_t length;
    size_t capacity;
    bool failed;
} gki_buf;

void gki_buf_append(gki_buf *buf, const char *text, size_t length);
void gki_buf_puts(gki_buf *buf, const char *text);
/* No %f, %g, %e: see gki_buf_double. */
void gki_buf_printf(gki_buf *buf, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* 15 to 17 digits that read back to the same value, always with a decimal point; "inf", "-inf" and
 * "nan" for what gki_parse_double does not take. */
void gki_buf_double(gki_buf *buf, double value);
void gki_buf_free(gki_buf *buf);

/* Text of a fixed size, cut off where it ends; always terminated. */
typedef struct gki_text {
    char *text;
    size_t size;
    size_t length;
} gki_text;

/* Over `size` bytes at `memory`, at least 1. */
gki_text gki_text_begin(char *memory, size_t size);
void gki_text_printf(gki_text *text, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The same as gki_buf_double into at least 32 bytes. */
void gki_format_double(char *out, size_t size, double value);

/* Whole-string decimal, no leading blanks or '+', no overflow, finite: false and *out untouched
 * otherwise. */
bool gki_parse_i64(const char *text, int64_t *out);
bool gki_parse_double(const char *text, double *out);

/* Copies with truncation marked by "..."; always terminates if size > 0. */
void gki_copy_text(char *out, size_t size, const char *text);
/* Copies a text of 1 to size - 1 printable ASCII characters; false and *out untouched otherwise. */
bool gki_copy_printable(char *out, size_t size, const char *text);

#endif
