/* Work spread over threads. */
#ifndef GKI_THREAD_H
#define GKI_THREAD_H

#include <pthread.h>

#include <gk/base.h>

/* Starts up to `wanted` threads that run fn(user) and take no signals; returns how many there are,
 * with their ids. The application's signal handlers run in the application's threads. */
uint32_t gki_threads_start(pthread_t *ids, uint32_t wanted, void *(*fn)(void *user), void *user);

/* Processors this process may use, at least 1. */
uint32_t gki_cpu_count(void);

#endif
