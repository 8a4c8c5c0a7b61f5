#define _GNU_SOURCE /* strtod_l */
#include "base/str.h"

#include <ctype.h>
#include <errno.h>
#include <locale.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

static bool reserve(gki_buf *buf, size_t more)
{
    if (buf->failed) {
        return false;
    }
    if (more >= SIZE_MAX / 2 - buf->length) {
        buf->failed = true;
        return false;
    }
    size_t needed = buf->length + more + 1;
    if (needed <= buf->capacity) {
        return true;
    }
    size_t capacity = buf->capacity < 128 ? 128 : buf->capacity;
    while (capacity < needed) {
        capacity *= 2;
    }
    char *text = gki_realloc(buf->text, capacity);
    if (text == NULL) {
        buf->failed = true;
        return false;
    }
    buf->text = text;
    buf->capacity = capacity;
    return true;
}

void gki_buf_append(gki_buf *buf, const char *text, size_t length)
{
    if (!reserve(buf, length)) {
        return;
    }
    if (length > 0) {
        memcpy(buf->text + buf->length, text, length);
    }
    buf->length += length;
    buf->text[buf->length] = '\0';
}

void gki_buf_puts(gki_buf *buf, const char *text)
{
    gki_buf_append(buf, text, strlen(text));
}

void gki_buf_printf(gki_buf *buf, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int n = vsnprintf(NULL, 0, format, args);
    va_end(args);
    if (n < 0) {
        buf->failed = true;
        return;
    }
    if (!reserve(buf, (size_t)n)) {
        return;
    }
    va_start(args, format);
    (void)vsnprintf(buf->text + buf->length, (size_t)n + 1, format, args);
    va_end(args);
    buf->length += (size_t)n;
}

void gki_buf_double(gki_buf *buf, double value)
{
    char text[32];
    gki_format_double(text, sizeof text, value);
    gki_buf_puts(buf, text);
}

void gki_buf_free(gki_buf *buf)
{
    gki_free(buf->text);
    *buf = (gki_buf){0};
}

static locale_t c_locale;

static void make_c_locale(void)
{
    c_locale = newlocale(LC_ALL_MASK, "C", (locale_t)0);
}

/* (locale_t)0 only if memory is out; then the process's own locale is used. */
static locale_t get_c_locale(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    (void)pthread_once(&once, make_c_locale);
    return c_locale;
}

static double read_double(const char *text, char **end)
{
    locale_t c = get_c_locale();
    return c != (locale_t)0 ? strtod_l(text, end, c) : strtod(text, end);
}

/* Puts ".0" after the digits of a number that has neither. */
static void add_point(char *text, size_t size)
{
    if (strchr(text, '.') != NULL) {
        return;
    }
    size_t digits = strcspn(text, "e");
    size_t length = strlen(text);
    if (length + 3 <= size) {
        memmove(text + digits + 2, text + digits, length - digits + 1);
        text[digits] = '.';
        text[digits + 1] = '0';
    }
}

void gki_format_double(char *out, size_t size, double value)
{
    if (!isfinite(value)) {
        gki_copy_text(out, size, isnan(value) ? "nan" : value < 0 ? "-inf" : "inf");
        return;
    }
    locale_t c = get_c_locale();
    locale_t before = c != (locale_t)0 ? uselocale(c) : (locale_t)0;
    char text[40];
    for (int digits = 15; digits <= 17; digits++) {
        (void)snprintf(text, sizeof text, "%.*g", digits, value);
        if (read_double(text, NULL) == value) {
            break;
        }
    }
    if (before != (locale_t)0) {
        (void)uselocale(before);
    }
    add_point(text, sizeof text);
    gki_copy_text(out, size, text);
}

bool gki_parse_i64(const char *text, int64_t *out)
{
    bool negative = *text == '-';
    const char *p = negative ? text + 1 : text;
    if (*p == '\0') {
        return false;
    }
    /* Kept negative, so that the smallest value needs no case of its own. */
    int64_t value = 0;
    for (; *p != '\0'; p++) {
        if (*p < '0' || *p > '9' || __builtin_mul_overflow(value, 10, &value) ||
            __builtin_sub_overflow(value, *p - '0', &value)) {
            return false;
        }
    }
    if (!negative && __builtin_sub_overflow((int64_t)0, value, &value)) {
        return false;
    }
    *out = value;
    return true;
}

bool gki_parse_double(const char *text, double *out)
{
    /* strtod also takes blanks, '+', hexadecimal, "inf" and "nan". */
    const char *first = *text == '-' ? text + 1 : text;
    if ((*first < '0' || *first > '9') && *first != '.') {
        return false;
    }
    if (text[strspn(text, "0123456789.eE+-")] != '\0') {
        return false;
    }
    int saved_errno = errno;
    char *end = NULL;
    double value = read_double(text, &end);
    errno = saved_errno;
    if (end == text || *end != '\0' || !isfinite(value)) {
        return false;
    }
    *out = value;
    return true;
}

gki_text gki_text_begin(char *memory, size_t size)
{
    memory[0] = '\0';
    return (gki_text){.text = memory, .size = size};
}

void gki_text_printf(gki_text *text, const char *format, ...)
{
    const size_t room = text->size - text->length;
    va_list args;
    va_start(args, format);
    const int n = vsnprintf(text->text + text->length, room, format, args);
    va_end(args);
    if (n > 0) {
        text->length += (size_t)n < room ? (size_t)n : room - 1;
    }
}

void gki_copy_text(char *out, size_t size, const char *text)
{
    if (size == 0) {
        return;
    }
    size_t length = strlen(text);
    if (length < size) {
        memcpy(out, text, length + 1);
        return;
    }
    memcpy(out, text, size - 1);
    out[size - 1] = '\0';
    size_t dots = size - 1 < 3 ? size - 1 : 3;
    memcpy(out + size - 1 - dots, "...", dots);
}

bool gki_copy_printable(char *out, size_t size, const char *text)
{
    size_t length = strlen(text);
    if (length == 0 || length >= size) {
        return false;
    }
    for (size_t i = 0; i < length; i++) {
        if (text[i] < ' ' || text[i] > '~') {
            return false;
        }
    }
    memcpy(out, text, length + 1);
    return true;
}
