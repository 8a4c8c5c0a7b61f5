/* Logging through the application's callback. The library itself never prints. */
#ifndef GKI_LOG_H
#define GKI_LOG_H

#include <gk/base.h>

typedef struct gki_log {
    gk_log_fn fn; /* NULL = off */
    void *user;
    gk_log_level level;
} gki_log;

/* log may be NULL. Lines over 1 KiB end in "...". */
void gki_logf(const gki_log *log, gk_log_level level, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
