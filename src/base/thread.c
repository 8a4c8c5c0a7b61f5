#define _GNU_SOURCE /* sched_getaffinity */
#include "base/thread.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <unistd.h>

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
