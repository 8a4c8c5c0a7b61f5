/* The thread's error record. gk_fail() of <gk/extend.h> sets it without a driver code. */
#ifndef GKI_ERROR_H
#define GKI_ERROR_H

#include <gk/extend.h>

/* Sets the record and returns status. */
gk_status gki_fail_code(gk_status status, const char *where, int32_t driver_code,
                        const char *format, ...) __attribute__((format(printf, 4, 5)));

/* The usual report of a failed allocation. */
gk_status gki_fail_nomem(const char *where, size_t bytes);

/* Carries a failure from a worker thread to the thread that reports it. */
void gki_error_save(gk_error *out);
gk_status gki_error_restore(const gk_error *saved);

#endif
