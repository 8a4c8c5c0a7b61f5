#include "support/parallel.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "base/thread.h"

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
        const uint32_t index = atomic_fetch_add(&w->next, 1);
        if (index >= w->count) {
            break;
        }
        w->fn(w->user, index);
    }
    return NULL;
}

void run_parallel(uint32_t threads, uint32_t count, void (*fn)(void *user, uint32_t index),
                  void *user)
{
    work w = {.count = count, .fn = fn, .user = user};
    uint32_t helpers = threads < count ? threads : count;
    helpers = helpers > 0 ? helpers - 1 : 0;
    pthread_t *ids = helpers > 0 ? calloc(helpers, sizeof(*ids)) : NULL;
    const uint32_t started = ids != NULL ? gki_threads_start(ids, helpers, run, &w) : 0;
    (void)run(&w);
    for (uint32_t i = 0; i < started; i++) {
        (void)pthread_join(ids[i], NULL);
    }
    free(ids);
}
