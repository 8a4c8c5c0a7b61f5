#include "base/error.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/str.h"

static _Thread_local gk_error last;

/* vsnprintf with truncation marked; bytes of a message that could not be formatted say so. */
static void format_text(char *out, size_t size, const char *format, va_list args)
{
    int n = vsnprintf(out, size, format, args);
    if (n < 0) {
        gki_copy_text(out, size, "(message could not be formatted)");
    } else if ((size_t)n >= size) {
        memcpy(out + size - 4, "...", 4);
    }
}

static gk_status set_record(gk_status status, const char *where, int32_t driver_code,
                            const char *format, va_list args)
{
    int saved_errno = errno;
    /* Arguments may point into the record itself. */
    gk_error record;
    memset(&record, 0, sizeof record);
    record.status = status == GK_OK ? GK_ERR_INTERNAL : status;
    record.driver_code = driver_code;
    gki_copy_text(record.where, sizeof record.where, where != NULL ? where : "");
    format_text(record.message, sizeof record.message, format, args);
    last = record;
    errno = saved_errno;
    return record.status;
}

gk_status gk_fail(gk_status status, const char *where, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    gk_status result = set_record(status, where, 0, format, args);
    va_end(args);
    return result;
}

gk_status gki_fail_code(gk_status status, const char *where, int32_t driver_code,
                        const char *format, ...)
{
    va_list args;
    va_start(args, format);
    gk_status result = set_record(status, where, driver_code, format, args);
    va_end(args);
    return result;
}

gk_status gki_fail_nomem(const char *where, size_t bytes)
{
    return gk_fail(GK_ERR_NOMEM, where, "out of host memory: %zu bytes", bytes);
}

bool gk_refuse(gk_reason *reason, const char *format, ...)
{
    if (reason != NULL) {
        va_list args;
        va_start(args, format);
        format_text(reason->text, sizeof reason->text, format, args);
        va_end(args);
    }
    return false;
}

const gk_error *gk_error_last(void)
{
    return &last;
}

void gki_error_save(gk_error *out)
{
    *out = last;
}

gk_status gki_error_restore(const gk_error *saved)
{
    last = *saved;
    return last.status;
}

const char *gk_status_name(gk_status status)
{
    switch (status) {
#define STATUS_NAME(name, number, text)                                                            \
    case name:                                                                                     \
        return #name;
        GK_STATUS_MAP(STATUS_NAME)
#undef STATUS_NAME
    }
    return "GK_ERR_?";
}

const char *gk_status_text(gk_status status)
{
    switch (status) {
#define STATUS_TEXT(name, number, text)                                                            \
    case name:                                                                                     \
        return text;
        GK_STATUS_MAP(STATUS_TEXT)
#undef STATUS_TEXT
    }
    return "unknown status";
}
