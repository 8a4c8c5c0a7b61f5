/* Opening a database: whose it is, its schema, its journal. */
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/str.h"
#include "cache/store.h"

enum {
    BUSY_MS = 5000,
    WAL_RETRY_MS = 2000,
    VALUE_LIMIT = 256 << 20, /* bytes of a text or blob that is read */
};

static int query_integer(sqlite3 *db, const char *sql, int64_t *out)
{
    sqlite3_stmt *statement = NULL;
    int rc = sqlite3_prepare_v2(db, sql, -1, &statement, NULL);
    if (rc == SQLITE_OK) {
        rc = sqlite3_step(statement);
        *out = rc == SQLITE_ROW ? sqlite3_column_int64(statement, 0) : 0;
        rc = rc == SQLITE_ROW ? SQLITE_OK : rc == SQLITE_DONE ? SQLITE_CORRUPT : rc;
    }
    (void)sqlite3_finalize(statement);
    return rc;
}

/* What stands in the file is data: no triggers, no views, no functions with side effects. */
static void restrict_connection(sqlite3 *db)
{
    (void)sqlite3_extended_result_codes(db, 1);
    (void)sqlite3_busy_timeout(db, BUSY_MS);
    (void)sqlite3_limit(db, SQLITE_LIMIT_LENGTH, VALUE_LIMIT);
    (void)sqlite3_db_config(db, SQLITE_DBCONFIG_DEFENSIVE, 1, NULL);
    (void)sqlite3_db_config(db, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, NULL);
    (void)sqlite3_db_config(db, SQLITE_DBCONFIG_ENABLE_TRIGGER, 0, NULL);
    (void)sqlite3_db_config(db, SQLITE_DBCONFIG_ENABLE_VIEW, 0, NULL);
    (void)sqlite3_exec(db, "PRAGMA cell_size_check = ON; PRAGMA mmap_size = 0;", NULL, NULL, NULL);
}

/* An absolute path as "file:" URI with every byte escaped that could mean something in one. */
static bool immutable_uri(const char *path, gki_buf *out)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                "/-_.~";
    gki_buf_puts(out, "file://");
    for (const char *p = path; *p != '\0'; p++) {
        if (strchr(plain, *p) != NULL) {
            gki_buf_append(out, p, 1);
        } else {
            gki_buf_printf(out, "%%%02X", (unsigned)(unsigned char)*p);
        }
    }
    gki_buf_puts(out, "?immutable=1");
    return !out->failed;
}

static int connect_to(gki_store *store, gki_store_kind kind, const char *path)
{
    int flags = SQLITE_OPEN_NOMUTEX;
    switch (kind) {
    case GKI_STORE_MEMORY:
        flags |= SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE;
        return sqlite3_open_v2(":memory:", &store->db, flags, NULL);
    case GKI_STORE_FILE:
        /* No CREATE: the file is made beforehand with its permissions. The path is absolute, so
         * it is never taken for a URI. */
        return sqlite3_open_v2(path, &store->db, flags | SQLITE_OPEN_READWRITE, NULL);
    case GKI_STORE_READ_ONLY:
        return sqlite3_open_v2(path, &store->db, flags | SQLITE_OPEN_READONLY, NULL);
    case GKI_STORE_IMMUTABLE:
        break;
    }
    gki_buf uri = {0};
    int rc = SQLITE_NOMEM;
    if (immutable_uri(path, &uri)) {
        flags |= SQLITE_OPEN_READONLY | SQLITE_OPEN_URI;
        rc = sqlite3_open_v2(uri.text, &store->db, flags, NULL);
    }
    gki_buf_free(&uri);
    return rc;
}

static gki_file_mark look_at(sqlite3 *db, uint32_t *application)
{
    enum { HEAD_BYTES = 100, ID_AT = 68 };
    static const char magic[] = "SQLite format 3";
    unsigned char head[HEAD_BYTES];
    sqlite3_file *file = NULL;
    sqlite3_int64 size = 0;
    if (sqlite3_file_control(db, "main", SQLITE_FCNTL_FILE_POINTER, &file) != SQLITE_OK ||
        file == NULL || file->pMethods == NULL ||
        file->pMethods->xFileSize(file, &size) != SQLITE_OK) {
        return GKI_MARK_DATABASE;
    }
    if (size < HEAD_BYTES) {
        return size == 0 ? GKI_MARK_EMPTY : GKI_MARK_OTHER;
    }
    if (file->pMethods->xRead(file, head, HEAD_BYTES, 0) != SQLITE_OK) {
        return GKI_MARK_DATABASE;
    }
    if (memcmp(head, magic, sizeof magic) != 0) {
        return GKI_MARK_OTHER;
    }
    for (int i = 0; i < 4; i++) {
        *application = *application << 8 | head[ID_AT + i];
    }
    return *application == GKI_APPLICATION_ID ? GKI_MARK_OURS
           : *application == 0                ? GKI_MARK_DATABASE
                                              : GKI_MARK_FOREIGN;
}

gki_file_mark gki_store_look(const char *path, uint32_t *application)
{
    gki_store store = {0};
    *application = 0;
    gki_file_mark mark = GKI_MARK_DATABASE;
    if (connect_to(&store, GKI_STORE_READ_ONLY, path) == SQLITE_OK) {
        mark = look_at(store.db, application);
    }
    gki_store_close(&store);
    return mark;
}

static int migrate(sqlite3 *db)
{
    int rc = sqlite3_exec(db, "BEGIN IMMEDIATE", NULL, NULL, NULL);
    if (rc != SQLITE_OK) {
        return rc;
    }
    /* Another process may have done it before the lock was there. */
    int64_t version = 0;
    rc = query_integer(db, "PRAGMA user_version", &version);
    for (; rc == SQLITE_OK && version < GKI_SCHEMA_VERSION; version++) {
        rc = sqlite3_exec(db, gki_schema_step((int)version), NULL, NULL, NULL);
    }
    if (rc == SQLITE_OK) {
        char text[96];
        (void)snprintf(text, sizeof text, "PRAGMA application_id = %d; PRAGMA user_version = %d",
                       GKI_APPLICATION_ID, (int)version);
        rc = sqlite3_exec(db, text, NULL, NULL, NULL);
    }
    if (rc == SQLITE_OK) {
        rc = sqlite3_exec(db, "COMMIT", NULL, NULL, NULL);
    }
    if (sqlite3_get_autocommit(db) == 0) {
        (void)sqlite3_exec(db, "ROLLBACK", NULL, NULL, NULL);
    }
    return rc;
}

/* The busy handler is not called for a change of the journal mode. Whatever mode it ends in
 * works; a later process tries again. */
static void enter_wal(sqlite3 *db)
{
    uint64_t start = gki_clock_ns();
    int rc = SQLITE_BUSY;
    for (long wait = 1; rc == SQLITE_BUSY || rc == SQLITE_LOCKED;
         wait = wait < 32 ? 2 * wait : 32) {
        rc = sqlite3_exec(db, "PRAGMA journal_mode = WAL", NULL, NULL, NULL) & 0xff;
        if (gki_clock_ns() - start > (uint64_t)WAL_RETRY_MS * 1000000u) {
            break;
        }
        if (rc == SQLITE_BUSY || rc == SQLITE_LOCKED) {
            gki_clock_sleep_ms(wait);
        }
    }
    /* A crash of the machine may lose the last answers, but not the file. */
    (void)sqlite3_exec(db, "PRAGMA synchronous = NORMAL", NULL, NULL, NULL);
}

/* Whose the file is. SQLITE_OK: gk's, or empty and to become gk's. */
static int identify(sqlite3 *db, int64_t *version, char *why, size_t why_size)
{
    int64_t application = 0;
    int64_t tables = 0;
    int rc = query_integer(db, "PRAGMA application_id", &application);
    rc = rc == SQLITE_OK ? query_integer(db, "PRAGMA user_version", version) : rc;
    rc = rc == SQLITE_OK ? query_integer(db, "SELECT count(*) FROM sqlite_master", &tables) : rc;
    if (rc != SQLITE_OK) {
        return rc;
    }
    bool empty = application == 0 && tables == 0 && *version == 0;
    if (application != GKI_APPLICATION_ID && !empty) {
        (void)snprintf(why, why_size, GKI_FOREIGN_DATABASE, (long long)application);
        return SQLITE_AUTH;
    }
    if (application == GKI_APPLICATION_ID && *version < 1) {
        return SQLITE_CORRUPT;
    }
    return SQLITE_OK;
}

bool gki_store_generation(gki_store *store, char out[33], unsigned *page)
{
    sqlite3_stmt *statement = NULL;
    int64_t root = 0;
    bool ok = query_integer(store->db, "SELECT rootpage FROM sqlite_master WHERE name = 'meta'",
                            &root) == SQLITE_OK &&
              sqlite3_prepare_v2(store->db, "SELECT generation FROM meta", -1, &statement, NULL) ==
                  SQLITE_OK &&
              sqlite3_step(statement) == SQLITE_ROW && sqlite3_column_bytes(statement, 0) == 32;
    if (ok) {
        memcpy(out, sqlite3_column_blob(statement, 0), 32);
        out[32] = '\0';
        *page = (unsigned)root;
    }
    (void)sqlite3_finalize(statement);
    return ok;
}

static int prepare_all(gki_store *store)
{
    int rc = SQLITE_OK;
    for (int i = 0; i < GKI_SQL_COUNT && rc == SQLITE_OK; i++) {
        rc = sqlite3_prepare_v3(store->db, gki_sql_text((gki_sql)i), -1, SQLITE_PREPARE_PERSISTENT,
                                &store->statements[i], NULL);
    }
    return rc;
}

static int set_up(gki_store *store, gki_store_kind kind, bool use_wal, char *why, size_t why_size)
{
    restrict_connection(store->db);
    int64_t version = 0;
    int rc = identify(store->db, &version, why, why_size);
    bool newer = rc == SQLITE_OK && version > GKI_SCHEMA_VERSION;
    store->writable = (kind == GKI_STORE_MEMORY || kind == GKI_STORE_FILE) && !newer;
    if (rc == SQLITE_OK && store->writable && version < GKI_SCHEMA_VERSION) {
        /* In rollback mode, so that the file itself holds the generation before there is a log. */
        rc = migrate(store->db);
    } else if (rc == SQLITE_OK && version < GKI_SCHEMA_VERSION) {
        (void)snprintf(why, why_size, "it is read-only and of the older schema %lld",
                       (long long)version);
        return SQLITE_AUTH;
    }
    if (rc == SQLITE_OK && store->writable && kind == GKI_STORE_FILE && use_wal) {
        enter_wal(store->db);
    }
    rc = rc == SQLITE_OK ? prepare_all(store) : rc;
    if (newer) {
        (void)snprintf(why, why_size, "its schema %lld is newer than %d: it is only read",
                       (long long)version, GKI_SCHEMA_VERSION);
    } else if ((rc & 0xff) == SQLITE_ERROR) {
        /* It says it is ours, but lacks a table or column. */
        rc = SQLITE_CORRUPT;
    }
    return rc;
}

int gki_store_open(gki_store *store, gki_store_kind kind, const char *path, bool use_wal, char *why,
                   size_t why_size)
{
    *store = (gki_store){0};
    if (why_size > 0) {
        why[0] = '\0';
    }
    int rc = connect_to(store, kind, path);
    if (rc == SQLITE_OK) {
        rc = set_up(store, kind, use_wal, why, why_size);
    }
    if (rc != SQLITE_OK) {
        if (why_size > 0 && why[0] == '\0') {
            const char *text = store->db != NULL && rc == sqlite3_extended_errcode(store->db)
                                   ? sqlite3_errmsg(store->db)
                                   : sqlite3_errstr(rc);
            gki_copy_text(why, why_size, text);
        }
        gki_store_close(store);
    }
    return rc;
}
