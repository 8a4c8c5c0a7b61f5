/* Work spread over threads. */
#ifndef GKI_THREAD_H
#define GKI_THREAD_H

#include <gk/base.h>

/* fn(user, i) for i in [0, count), each once, in `threads` threads (at least 1; the caller is one
 * of them). Falls back to fewer threads if some cannot be started. Returns when all are done. */
void gki_parallel(uint32_t threads, uint32_t count, void (*fn)(void *user, uint32_t index),
                  void *user);

/* Processors this process may use, at least 1. */
uint32_t gki_cpu_count(void);

#endif
