/* The caches of this process, for what concerns them all: forking and shared files. */
#include "cache/internal.h"

#include <unistd.h>

/* Locked in this order: all, each cache, open_files. */
static struct {
    pthread_mutex_t mutex;
    gki_cache *first;
} all = {.mutex = PTHREAD_MUTEX_INITIALIZER};

static struct {
    pthread_mutex_t mutex;
    gki_cache *first;
} open_files = {.mutex = PTHREAD_MUTEX_INITIALIZER};

static void before_fork(void)
{
    (void)pthread_mutex_lock(&all.mutex);
    for (gki_cache *c = all.first; c != NULL; c = c->next) {
        (void)pthread_mutex_lock(&c->mutex);
        if (c->pid == getpid()) {
            gki_cache_disk_close(c);
        }
    }
}

static void after_fork_in_parent(void)
{
    for (gki_cache *c = all.first; c != NULL; c = c->next) {
        (void)pthread_mutex_unlock(&c->mutex);
    }
    (void)pthread_mutex_unlock(&all.mutex);
}

static void after_fork_in_child(void)
{
    for (gki_cache *c = all.first; c != NULL; c = c->next) {
        c->pid = getpid();
        gki_cache_new_token(c);
    }
    after_fork_in_parent();
}

static void install_handlers(void)
{
    /* Without them the process number tells, see gki_cache_enter. */
    (void)pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
}

void gki_cache_register(gki_cache *cache)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    (void)pthread_once(&once, install_handlers);
    (void)pthread_mutex_lock(&all.mutex);
    cache->next = all.first;
    all.first = cache;
    (void)pthread_mutex_unlock(&all.mutex);
}

void gki_cache_unregister(gki_cache *cache)
{
    (void)pthread_mutex_lock(&all.mutex);
    for (gki_cache **p = &all.first; *p != NULL; p = &(*p)->next) {
        if (*p == cache) {
            *p = cache->next;
            break;
        }
    }
    (void)pthread_mutex_unlock(&all.mutex);
}

void gki_cache_note_open(gki_cache *cache)
{
    (void)pthread_mutex_lock(&open_files.mutex);
    cache->next_open = open_files.first;
    open_files.first = cache;
    (void)pthread_mutex_unlock(&open_files.mutex);
}

void gki_cache_note_closed(gki_cache *cache)
{
    (void)pthread_mutex_lock(&open_files.mutex);
    for (gki_cache **p = &open_files.first; *p != NULL; p = &(*p)->next_open) {
        if (*p == cache) {
            *p = cache->next_open;
            break;
        }
    }
    (void)pthread_mutex_unlock(&open_files.mutex);
}

bool gki_cache_file_is_shared(const gki_cache_file *file)
{
    (void)pthread_mutex_lock(&open_files.mutex);
    bool shared = false;
    for (const gki_cache *c = open_files.first; c != NULL; c = c->next_open) {
        shared = shared || (c->file.device == file->device && c->file.inode == file->inode);
    }
    (void)pthread_mutex_unlock(&open_files.mutex);
    return shared;
}
