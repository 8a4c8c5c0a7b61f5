/* Independent work in several threads. */
#ifndef PARALLEL_H
#define PARALLEL_H

#include <stdint.h>

/* fn(user, i) for i in [0, count), each once, in `threads` threads (at least 1; the caller is one
 * of them). Fewer threads if some cannot be started. Returns when all are done. */
void run_parallel(uint32_t threads, uint32_t count, void (*fn)(void *user, uint32_t index),
                  void *user);

#endif
