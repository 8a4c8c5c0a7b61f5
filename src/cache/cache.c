/* Opening, degrading, and running on the file or in memory. */
#define _GNU_SOURCE /* getentropy */
#include "cache/internal.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/env.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/str.h"

enum { MAX_REPAIRS = 3, DEFAULT_KERNEL_BYTES = 256 << 20 };

static void notice(gki_cache *cache, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void notice(gki_cache *cache, const char *format, ...)
{
    if (cache->n_notices < GKI_N_NOTICES) {
        va_list args;
        va_start(args, format);
        (void)vsnprintf(cache->notices[cache->n_notices], GKI_NOTICE_BYTES, format, args);
        va_end(args);
        cache->n_notices++;
    }
}

/* The one warning that something is wrong with the file. */
static void warn_once(gki_cache *cache, const char *why, const char *effect)
{
    if (!cache->warned) {
        cache->warned = true;
        char path[304];
        gki_copy_text(path, sizeof path, cache->wanted);
        notice(cache, "cache '%s': %s; %s", path, why, effect);
    }
}

void gki_cache_disk_close(gki_cache *cache)
{
    if (cache->state == GKI_DISK_OPEN) {
        gki_cache_note_closed(cache);
        gki_store_close(&cache->disk);
        cache->state = GKI_DISK_CLOSED;
    }
}

static void lose(gki_cache *cache, const char *why)
{
    gki_cache_disk_close(cache);
    cache->state = GKI_DISK_LOST;
    gki_copy_text(cache->degraded, sizeof cache->degraded, why);
    warn_once(cache, why, "answers are kept in memory only");
}

static bool is_damage(int rc)
{
    int code = rc & 0xff;
    return code == SQLITE_CORRUPT || code == SQLITE_NOTADB || rc == SQLITE_IOERR_SHORT_READ;
}

/* Under the directory's lock, as every process looks before it joins. */
static void drop_foreign_log(gki_cache *cache)
{
    if (!cache->file.has_log || cache->file.read_only || gki_cache_file_is_shared(&cache->file)) {
        return;
    }
    gki_store alone;
    char generation[33];
    unsigned page = 0;
    if (gki_store_open(&alone, GKI_STORE_IMMUTABLE, cache->file.path, false, NULL, 0) !=
        SQLITE_OK) {
        return;
    }
    bool known = gki_store_generation(&alone, generation, &page);
    gki_store_close(&alone);
    if (known && gki_file_log_is_foreign(&cache->file, generation, page)) {
        gki_file_remove_log(&cache->file);
        cache->errors++;
        warn_once(cache, "the write-ahead log beside it is of another database",
                  "the log was removed");
    }
}

/* Without a log the file alone holds everything, and can be read without sidecars and locks, which
 * cannot be made on a full disk or in a directory that cannot be written. Closing it would drop
 * the locks of another connection of this process. */
static int open_immutable(gki_cache *cache, int rc, char *why, size_t why_size)
{
    int code = rc & 0xff;
    bool no_sidecars = code == SQLITE_CANTOPEN || code == SQLITE_READONLY || code == SQLITE_FULL ||
                       code == SQLITE_IOERR;
    if (!no_sidecars || is_damage(rc) || cache->file.has_log ||
        gki_cache_file_is_shared(&cache->file)) {
        return rc;
    }
    char reason[GKI_WHY_BYTES];
    gki_copy_text(reason, sizeof reason, why);
    int again =
        gki_store_open(&cache->disk, GKI_STORE_IMMUTABLE, cache->file.path, false, why, why_size);
    gki_copy_text(why, why_size, reason);
    return again == SQLITE_OK ? SQLITE_OK : rc;
}

static int open_store(gki_cache *cache, char *why, size_t why_size)
{
    bool use_wal = !gki_fs_is_network(cache->file.directory);
    bool read_only = cache->file.read_only;
    gki_store_kind kind = read_only ? GKI_STORE_READ_ONLY : GKI_STORE_FILE;
    int rc = gki_store_open(&cache->disk, kind, cache->file.path, use_wal, why, why_size);
    if (rc != SQLITE_OK) {
        cache->errors += read_only ? 0 : 1;
        rc = open_immutable(cache, rc, why, why_size);
        /* Whatever it says from now on, it is not to be moved away. */
        cache->file.read_only = read_only || rc == SQLITE_OK;
    }
    if (rc == SQLITE_OK && read_only) {
        gki_copy_text(why, why_size, "it is read-only");
    }
    return rc;
}

static bool move_aside(gki_cache *cache, const char *why)
{
    char aside[GKI_PATH_BYTES];
    if (cache->file.read_only || cache->repairs >= MAX_REPAIRS ||
        !gki_file_set_aside(&cache->file, aside, sizeof aside)) {
        return false;
    }
    cache->repairs++;
    if (aside[0] != '\0') {
        char effect[GKI_NOTICE_BYTES];
        (void)snprintf(effect, sizeof effect, "moved to '%.400s', starting anew", aside);
        warn_once(cache, why, effect);
    }
    return true;
}

/* Only what is known to be gk's may be set aside: a path may name anything. False for what is not
 * to be opened either. */
static bool recognise(const gki_cache *cache, bool *ours, char why[GKI_WHY_BYTES])
{
    uint32_t application = 0;
    *ours = (cache->is_default && !gki_file_is_link(cache->wanted)) ||
            gki_cache_file_is_shared(&cache->file);
    if (*ours) {
        return true;
    }
    switch (gki_store_look(cache->file.path, &application)) {
    case GKI_MARK_OTHER:
        (void)snprintf(
            why, GKI_WHY_BYTES,
            "it is not a gk cache: it does not begin as one; move it away or name another");
        return false;
    case GKI_MARK_FOREIGN:
        (void)snprintf(why, GKI_WHY_BYTES, GKI_FOREIGN_DATABASE, (long long)(int32_t)application);
        return false;
    case GKI_MARK_OURS:
        *ours = true;
        return true;
    default:
        return true;
    }
}

/* Under the directory's lock. */
static bool open_locked(gki_cache *cache, char why[GKI_WHY_BYTES])
{
    bool ours;
    for (;;) {
        if (!gki_file_prepare(&cache->file, why)) {
            return false;
        }
        if (!recognise(cache, &ours, why)) {
            return false;
        }
        drop_foreign_log(cache);
        int rc = open_store(cache, why, GKI_WHY_BYTES);
        if (rc == SQLITE_OK) {
            return true;
        }
        cache->errors += cache->file.read_only ? 1 : 0;
        if (is_damage(rc) && !ours) {
            (void)snprintf(why, GKI_WHY_BYTES,
                           "it is damaged and does not say that it is a gk cache; "
                           "move it away or name another");
            return false;
        }
        if (!is_damage(rc) || !move_aside(cache, why)) {
            return false;
        }
    }
}

static void open_disk(gki_cache *cache)
{
    char why[GKI_WHY_BYTES] = "";
    /* Calls that succeed leave the error record alone, and this one always does. */
    gk_error saved;
    gki_error_save(&saved);
    bool ok = gki_file_resolve(&cache->file, cache->wanted, why);
    if (ok) {
        int lock = gki_file_lock(&cache->file);
        ok = open_locked(cache, why);
        gki_file_unlock(lock);
    }
    (void)gki_error_restore(&saved);
    if (!ok) {
        cache->errors++;
        lose(cache, why);
        return;
    }
    cache->state = GKI_DISK_OPEN;
    gki_cache_note_open(cache);
    gki_copy_text(cache->degraded, sizeof cache->degraded, why);
    if (why[0] != '\0') {
        warn_once(cache, why, "new answers are kept in memory only");
    }
}

static bool open_memory(gki_cache *cache)
{
    return cache->memory.db != NULL ||
           gki_store_open(&cache->memory, GKI_STORE_MEMORY, "", false, NULL, 0) == SQLITE_OK;
}

void gki_cache_new_token(gki_cache *cache)
{
    uint64_t words[2] = {gki_clock_ns(), (uint64_t)(uintptr_t)cache};
    /* The process number alone would do on one host; the file may be seen by several. */
    (void)getentropy(words, sizeof words);
    (void)snprintf(cache->token, sizeof cache->token, "%ld-%016llx%016llx",
                   (long)getpid() % 10000000, (unsigned long long)words[0],
                   (unsigned long long)words[1]);
}

/* A process that was cloned past the fork handlers: nothing of SQLite's can be trusted here, not
 * even to be closed. */
static void abandon(gki_cache *cache)
{
    cache->pid = getpid();
    (void)pthread_mutex_init(&cache->mutex, NULL);
    cache->disk = (gki_store){0};
    cache->memory = (gki_store){0};
    if (cache->state != GKI_DISK_NONE) {
        cache->state = GKI_DISK_LOST;
        gki_copy_text(cache->degraded, sizeof cache->degraded, "the process was cloned");
    }
    gki_cache_new_token(cache);
}

void gki_cache_enter(gki_cache *cache)
{
    if (cache->pid != getpid()) {
        abandon(cache);
    }
    (void)pthread_mutex_lock(&cache->mutex);
    if (cache->state == GKI_DISK_CLOSED) {
        open_disk(cache);
    }
}

void gki_cache_leave(gki_cache *cache)
{
    char notices[GKI_N_NOTICES][GKI_NOTICE_BYTES];
    uint32_t count = cache->n_notices;
    memcpy(notices, cache->notices, count * sizeof notices[0]);
    cache->n_notices = 0;
    gki_log log = cache->log;
    (void)pthread_mutex_unlock(&cache->mutex);
    for (uint32_t i = 0; i < count; i++) {
        gki_logf(&log, GK_LOG_WARNING, "%s", notices[i]);
    }
}

/* Deals with an error of the file; true if the operation may be tried again. */
static bool trouble(gki_cache *cache, int rc, bool writing)
{
    cache->errors++;
    char why[GKI_WHY_BYTES];
    gki_copy_text(why, sizeof why, sqlite3_errstr(rc));
    if (is_damage(rc)) {
        gki_cache_disk_close(cache);
        int lock = gki_file_lock(&cache->file);
        bool moved = move_aside(cache, why);
        gki_file_unlock(lock);
        if (moved) {
            open_disk(cache);
            return cache->state == GKI_DISK_OPEN;
        }
        lose(cache, why);
        return false;
    }
    switch (rc & 0xff) {
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
    case SQLITE_PROTOCOL:
    case SQLITE_NOMEM:
    case SQLITE_TOOBIG:
        /* Of this operation only. */
        warn_once(cache, why, "an answer is kept in memory only");
        return false;
    default:
        break;
    }
    if (writing) {
        cache->disk.writable = false;
        gki_copy_text(cache->degraded, sizeof cache->degraded, why);
        warn_once(cache, why, "new answers are kept in memory only");
    } else {
        lose(cache, why);
    }
    return false;
}

bool gki_cache_read(gki_cache *cache, gki_store_fn fn, void *arg)
{
    if (cache->memory.db != NULL && fn(&cache->memory, arg) == SQLITE_ROW) {
        return true;
    }
    for (int tries = 0; tries < 2 && cache->state == GKI_DISK_OPEN; tries++) {
        int rc = fn(&cache->disk, arg);
        if (rc == SQLITE_ROW || rc == SQLITE_DONE) {
            return rc == SQLITE_ROW;
        }
        if (!trouble(cache, rc, false)) {
            break;
        }
    }
    return false;
}

bool gki_cache_is_writable(gki_cache *cache)
{
    return cache->state == GKI_DISK_OPEN && cache->disk.writable;
}

static bool write_to_disk(gki_cache *cache, gki_store_fn fn, void *arg)
{
    /* A file that was deleted or replaced would take the answer with it. */
    if (gki_cache_is_writable(cache) && !gki_file_is_same(&cache->file)) {
        gki_cache_disk_close(cache);
        open_disk(cache);
    }
    for (int tries = 0; tries < 2 && gki_cache_is_writable(cache); tries++) {
        int rc = gki_store_transaction(&cache->disk, fn, arg);
        if (rc == SQLITE_DONE || rc == SQLITE_ROW) {
            return true;
        }
        if (!trouble(cache, rc, true)) {
            break;
        }
    }
    return false;
}

bool gki_cache_write(gki_cache *cache, gki_store_fn fn, void *arg)
{
    if (write_to_disk(cache, fn, arg)) {
        return true;
    }
    if (open_memory(cache)) {
        (void)gki_store_transaction(&cache->memory, fn, arg);
    }
    return false;
}

void gki_cache_write_both(gki_cache *cache, gki_store_fn fn, void *arg)
{
    (void)write_to_disk(cache, fn, arg);
    if (cache->memory.db != NULL) {
        (void)gki_store_transaction(&cache->memory, fn, arg);
    }
}

void gki_cache_bad_row(gki_cache *cache, const char *what)
{
    cache->errors++;
    warn_once(cache, what, "it is ignored and dropped");
}

gk_status gki_cache_open(gki_cache **out, const char *path, uint64_t kernel_bytes,
                         const gki_log *log)
{
    *out = NULL;
    char found[GKI_PATH_BYTES];
    if (path == NULL) {
        gki_cache_default_path(found, sizeof found);
        path = found;
    }
    gki_cache *cache = gki_calloc(1, sizeof *cache);
    if (cache == NULL) {
        return gki_fail_nomem("cache", sizeof *cache);
    }
    bool nowhere = path == found && *path == '\0';
    bool in_memory = *path == '\0' || strcmp(path, ":memory:") == 0;
    cache->wanted = gki_strdup(in_memory ? "" : path);
    if (cache->wanted == NULL || pthread_mutex_init(&cache->mutex, NULL) != 0) {
        gki_free(cache->wanted);
        gki_free(cache);
        return gki_fail_nomem("cache", strlen(path) + 1);
    }
    cache->log = log != NULL ? *log : (gki_log){0};
    cache->kernel_bytes = kernel_bytes > 0 ? kernel_bytes : DEFAULT_KERNEL_BYTES;
    cache->pid = getpid();
    cache->state = in_memory ? GKI_DISK_NONE : GKI_DISK_CLOSED;
    cache->is_default = path == found && gki_env("GK_CACHE") == NULL;
    gki_cache_new_token(cache);
    gki_cache_register(cache);
    gki_cache_enter(cache);
    if (nowhere) {
        lose(cache, gki_env("GK_CACHE") != NULL
                        ? "the path in GK_CACHE is longer than the system allows"
                        : "there is no home directory and GK_CACHE is not set");
    }
    gki_cache_leave(cache);
    *out = cache;
    return GK_OK;
}

void gki_cache_close(gki_cache **cache)
{
    if (cache == NULL || *cache == NULL) {
        return;
    }
    gki_cache *c = *cache;
    *cache = NULL;
    gki_cache_unregister(c);
    if (c->pid == getpid()) {
        gki_cache_disk_close(c);
        gki_store_close(&c->memory);
        (void)pthread_mutex_destroy(&c->mutex);
    }
    gki_free(c->wanted);
    gki_free(c);
}

void gki_cache_state(gki_cache *cache, char *path, size_t path_size, char *degraded,
                     size_t degraded_size, uint64_t *errors)
{
    gki_cache_enter(cache);
    gki_copy_text(path, path_size, cache->state == GKI_DISK_OPEN ? cache->file.path : "");
    gki_copy_text(degraded, degraded_size, cache->degraded);
    *errors = cache->errors;
    gki_cache_leave(cache);
}
