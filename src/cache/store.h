/* One SQLite connection with its statements: the file, or a private database in memory. */
#ifndef GKI_CACHE_STORE_H
#define GKI_CACHE_STORE_H

#include <sqlite3.h>
#include <stdbool.h>
#include <stddef.h>

#include "cache/cache.h"
#include "cache/schema.h"

typedef struct gki_store {
    sqlite3 *db; /* NULL = closed */
    sqlite3_stmt *statements[GKI_SQL_COUNT];
    bool writable;
} gki_store;

typedef enum gki_store_kind {
    GKI_STORE_MEMORY,
    GKI_STORE_FILE,
    GKI_STORE_READ_ONLY,
    GKI_STORE_IMMUTABLE, /* a read-only file that nobody writes: read without locks */
} gki_store_kind;

/* Says whose a file is, with its application id. */
#define GKI_FOREIGN_DATABASE "it is a database of another program (application id %lld)"

/*
 * Opens the database and creates or migrates its tables. Returns an SQLite code; on failure the
 * store is closed and `why` says why. A file of somebody else's is left unchanged
 * (SQLITE_AUTH), one of a newer schema is opened read-only (SQLITE_OK with a `why`).
 */
int gki_store_open(gki_store *store, gki_store_kind kind, const char *path, bool use_wal, char *why,
                   size_t why_size);
void gki_store_close(gki_store *store);

typedef enum gki_file_mark {
    GKI_MARK_EMPTY,
    GKI_MARK_OURS,     /* a database with gk's application id */
    GKI_MARK_DATABASE, /* one without an id, or what cannot be read */
    GKI_MARK_FOREIGN,  /* one with the id of another program */
    GKI_MARK_OTHER,    /* no database */
} gki_file_mark;

/* What the file's first bytes say. It is read through SQLite, as closing it otherwise would drop
 * the locks of other connections, but no transaction is begun: one may delete a journal. */
gki_file_mark gki_store_look(const char *path, uint32_t *application);

/* The random text made with the file (33 bytes), and the page of the table that holds it. */
bool gki_store_generation(gki_store *store, char out[33], unsigned *page);

/*
 * Runs a statement to its first row. types has a letter for each parameter: s text (NULL is NULL),
 * i int64_t, d double, b blob (pointer, size_t). Returns SQLITE_ROW (read the columns of
 * store->statements[id], then gki_store_end), SQLITE_DONE, or an error code. Texts and blobs are
 * not copied and must live until then.
 */
int gki_store_run(gki_store *store, gki_sql id, const char *types, ...);
/* The next row of a statement that returned SQLITE_ROW. */
int gki_store_next(gki_store *store, gki_sql id);
void gki_store_end(gki_store *store, gki_sql id);

/* A text column of 1 to size - 1 printable bytes; false if it holds anything else. */
bool gki_store_text(gki_store *store, gki_sql id, int column, char *out, size_t size);
/* The same of any length, valid until the statement moves on; NULL if it holds anything else. */
const char *gki_store_key(gki_store *store, gki_sql id, int column);
/* A finite number of at least 0. */
bool gki_store_number(gki_store *store, gki_sql id, int column, double *out);
bool gki_store_integer(gki_store *store, gki_sql id, int column, int64_t *out);

/* Makes sure that the key's problem and environment have rows. */
int gki_store_add_key(gki_store *store, const gki_key *key);

/* fn inside one transaction: committed if it returns SQLITE_DONE or SQLITE_ROW. */
typedef int (*gki_store_fn)(gki_store *store, void *arg);
int gki_store_transaction(gki_store *store, gki_store_fn fn, void *arg);

#endif
