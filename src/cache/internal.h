/* What the files of the cache share. */
#ifndef GKI_CACHE_INTERNAL_H
#define GKI_CACHE_INTERNAL_H

#include <pthread.h>
#include <sys/types.h>

#include "cache/cache.h"
#include "cache/file.h"
#include "cache/store.h"

enum { GKI_NOTICE_BYTES = 1000, GKI_N_NOTICES = 2 };

typedef enum gki_disk_state {
    GKI_DISK_NONE,   /* memory was asked for */
    GKI_DISK_CLOSED, /* to be opened at the next use */
    GKI_DISK_OPEN,
    GKI_DISK_LOST, /* unusable: memory from now on */
} gki_disk_state;

/*
 * Two databases of one schema: the file, and one in memory that holds what could not be written
 * to the file. The one in memory is asked first.
 */
struct gki_cache {
    pthread_mutex_t mutex; /* guards all but the links */
    gki_log log;
    char *wanted;    /* the path asked for */
    bool is_default; /* gk's own choice of it, nobody else's */
    uint64_t kernel_bytes;
    pid_t pid;
    char token[48]; /* owner of this cache's leases */
    gki_disk_state state;
    gki_cache_file file;
    gki_store disk;
    gki_store memory;
    char degraded[GKI_WHY_BYTES];
    uint64_t errors;
    uint32_t repairs;
    bool warned;
    /* Logged once the mutex is free, so that a log callback may do what it likes. */
    char notices[GKI_N_NOTICES][GKI_NOTICE_BYTES];
    uint32_t n_notices;
    gki_cache *next;      /* of all, see fork.c */
    gki_cache *next_open; /* of those with an open file */
};

/* Around every use of a cache. */
void gki_cache_enter(gki_cache *cache);
void gki_cache_leave(gki_cache *cache);

/*
 * Between enter and leave. A function that is run on a store returns SQLITE_ROW (found),
 * SQLITE_DONE, or an error; it may be run again on an error, and then starts from scratch.
 */

/* Memory, then the file, until fn finds something; true if it did. */
bool gki_cache_read(gki_cache *cache, gki_store_fn fn, void *arg);
/* In a transaction of the file, or in one of the database in memory; true if in the file. */
bool gki_cache_write(gki_cache *cache, gki_store_fn fn, void *arg);
/* In both, for removals. */
void gki_cache_write_both(gki_cache *cache, gki_store_fn fn, void *arg);
/* True if gki_cache_write would go to the file. */
bool gki_cache_is_writable(gki_cache *cache);
/* Counts a row that is there but cannot be used, and warns once. */
void gki_cache_bad_row(gki_cache *cache, const char *what);

/* One stored answer with its key; the texts are gki_free'd by gki_choices_free. */
typedef struct gki_choice_row {
    char *op;
    char *problem;
    char *environment;
    gki_choice choice;
    int64_t trials;
    size_t order; /* of reading */
} gki_choice_row;

/* All answers for op (NULL = all), sorted by op, problem, environment; complete: the file gave no
 * trouble meanwhile. Takes the lock itself. */
gk_status gki_choices_collect(gki_cache *cache, const char *op, gki_choice_row **rows,
                              size_t *count, bool *complete);
void gki_choices_free(gki_choice_row *rows, size_t count);

/* A choice as it may be stored: no infinities, which SQLite or the text form would not keep. */
bool gki_choice_is_sound(const gki_choice *choice);

/*
 * Forking. A connection may not be used, closed, or even left open beside another one in the
 * child, as SQLite would believe that the child holds the parent's locks. So every file is closed
 * before a fork and opened again at its next use, on both sides.
 */
void gki_cache_register(gki_cache *cache);
void gki_cache_unregister(gki_cache *cache);
/* Between enter and leave: keeps the list of open files. */
void gki_cache_note_open(gki_cache *cache);
void gki_cache_note_closed(gki_cache *cache);
/* True if another cache of this process has the same file open. */
bool gki_cache_file_is_shared(const gki_cache_file *file);
/* Closes the file if it is open, to be opened at the next use. */
void gki_cache_disk_close(gki_cache *cache);
/* A new owner of leases. */
void gki_cache_new_token(gki_cache *cache);

#endif
