#define _GNU_SOURCE /* sched_getaffinity */
#include "base/thread.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <unistd.h>

#include "base/alloc.h"

typedef struct work {
    _Atomic uint32_t next;
    uint32_t count;
    void (*fn)(void *user, uint32_t index);
    void *user;
} work;

static void *run(void *data)
{
    work *w = data;
    /* Only grows past count by the number of threads, but must not wrap around. */
    while (atomic_load(&w->next) < w->count) {
        uint32_t index = atomic_fetch_add(&w->next, 1);
        if (index >= w->count) {
            break;
        }
        w->fn(w->user, index);
    }
    return NULL;
}

uint32_t gki_threads_start(pthread_t *ids, uint32_t wanted, void *(*fn)(void *user), void *user)
{
    sigset_t all;
    sigset_t before;
    (void)sigfillset(&all);
    if (pthread_sigmask(SIG_SETMASK, &all, &before) != 0) {
        return 0;
    }
    uint32_t started = 0;
    while (started < wanted && pthread_create(&ids[started], NULL, fn, user) == 0) {
        started++;
    }
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    return started;
}

void gki_parallel(uint32_t threads, uint32_t count, void (*fn)(void *user, uint32_t index),
                  void *user)
{
    work w = {.count = count, .fn = fn, .user = user};
    uint32_t helpers = threads < count ? threads : count;
    helpers = helpers > 0 ? helpers - 1 : 0;
    pthread_t *ids = helpers > 0 ? gki_calloc(helpers, sizeof *ids) : NULL;
    uint32_t started = ids != NULL ? gki_threads_start(ids, helpers, run, &w) : 0;
    (void)run(&w);
    for (uint32_t i = 0; i < started; i++) {
        (void)pthread_join(ids[i], NULL);
    }
    gki_free(ids);
}

uint32_t gki_cpu_count(void)
{
    /* The kernel refuses a set smaller than its own. */
    for (size_t cpus = CPU_SETSIZE; cpus <= (size_t)CPU_SETSIZE * 64; cpus *= 2) {
        cpu_set_t *set = CPU_ALLOC(cpus);
        if (set == NULL) {
            break;
        }
        size_t bytes = CPU_ALLOC_SIZE(cpus);
        CPU_ZERO_S(bytes, set);
        int rc = sched_getaffinity(0, bytes, set);
        int error = errno;
        int count = rc == 0 ? CPU_COUNT_S(bytes, set) : 0;
        CPU_FREE(set);
        if (count > 0) {
            return (uint32_t)count;
        }
        if (rc != 0 && error != EINVAL) {
            break;
        }
    }
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    return online > 0 ? (uint32_t)online : 1;
}
