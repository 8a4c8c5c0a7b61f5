#include "base/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { LINE_BYTES = 1024 };

void gki_logf(const gki_log *log, gk_log_level level, const char *format, ...)
{
    if (log == NULL || log->fn == NULL || level > log->level) {
        return;
    }
    char line[LINE_BYTES];
    va_list args;
    va_start(args, format);
    int n = vsnprintf(line, sizeof line, format, args);
    va_end(args);
    if (n < 0) {
        return;
    }
    if (n >= LINE_BYTES) {
        memcpy(line + LINE_BYTES - 4, "...", 4);
    }
    /* The callback gets one line, and no terminal control sequences from quoted input. */
    for (char *p = line; *p != '\0'; p++) {
        if ((unsigned char)*p < ' ' || *p == 0x7f) {
            *p = ' ';
        }
    }
    log->fn(log->user, level, line);
}
