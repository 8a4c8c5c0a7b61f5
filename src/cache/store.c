#include "cache/store.h"

#include <math.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include "base/str.h"

static int prepare(gki_store *store, gki_sql id)
{
    if (store->statements[id] != NULL) {
        return SQLITE_OK;
    }
    return sqlite3_prepare_v3(store->db, gki_sql_text(id), -1, SQLITE_PREPARE_PERSISTENT,
                              &store->statements[id], NULL);
}

static int bind_one(sqlite3_stmt *statement, int index, char type, va_list *args)
{
    switch (type) {
    case 's':
        return sqlite3_bind_text(statement, index, va_arg(*args, const char *), -1, SQLITE_STATIC);
    case 'i':
        return sqlite3_bind_int64(statement, index, va_arg(*args, int64_t));
    case 'd':
        return sqlite3_bind_double(statement, index, va_arg(*args, double));
    case 'b': {
        const void *bytes = va_arg(*args, const void *);
        size_t size = va_arg(*args, size_t);
        return sqlite3_bind_blob64(statement, index, bytes, size, SQLITE_STATIC);
    }
    default:
        return SQLITE_MISUSE;
    }
}

int gki_store_run(gki_store *store, gki_sql id, const char *types, ...)
{
    int rc = prepare(store, id);
    if (rc != SQLITE_OK) {
        return rc;
    }
    sqlite3_stmt *statement = store->statements[id];
    va_list args;
    va_start(args, types);
    for (int i = 0; rc == SQLITE_OK && types[i] != '\0'; i++) {
        rc = bind_one(statement, i + 1, types[i], &args);
    }
    va_end(args);
    if (rc == SQLITE_OK) {
        return gki_store_next(store, id);
    }
    gki_store_end(store, id);
    return rc;
}

int gki_store_next(gki_store *store, gki_sql id)
{
    int rc = sqlite3_step(store->statements[id]);
    if (rc != SQLITE_ROW) {
        gki_store_end(store, id);
    }
    return rc;
}

void gki_store_end(gki_store *store, gki_sql id)
{
    (void)sqlite3_reset(store->statements[id]);
    (void)sqlite3_clear_bindings(store->statements[id]);
}

const char *gki_store_key(gki_store *store, gki_sql id, int column)
{
    sqlite3_stmt *statement = store->statements[id];
    if (sqlite3_column_type(statement, column) != SQLITE_TEXT) {
        return NULL;
    }
    const char *text = (const char *)sqlite3_column_text(statement, column);
    int bytes = sqlite3_column_bytes(statement, column);
    /* A NUL inside would make two different texts look equal. */
    return text != NULL && strlen(text) == (size_t)bytes ? text : NULL;
}

bool gki_store_text(gki_store *store, gki_sql id, int column, char *out, size_t size)
{
    const char *text = gki_store_key(store, id, column);
    return text != NULL && gki_copy_printable(out, size, text);
}

bool gki_store_number(gki_store *store, gki_sql id, int column, double *out)
{
    sqlite3_stmt *statement = store->statements[id];
    int type = sqlite3_column_type(statement, column);
    if (type != SQLITE_FLOAT && type != SQLITE_INTEGER) {
        return false;
    }
    double value = sqlite3_column_double(statement, column);
    if (!isfinite(value) || value < 0) {
        return false;
    }
    *out = value;
    return true;
}

bool gki_store_integer(gki_store *store, gki_sql id, int column, int64_t *out)
{
    sqlite3_stmt *statement = store->statements[id];
    if (sqlite3_column_type(statement, column) != SQLITE_INTEGER) {
        return false;
    }
    *out = sqlite3_column_int64(statement, column);
    return true;
}

int gki_store_add_key(gki_store *store, const gki_key *key)
{
    int rc = gki_store_run(store, GKI_SQL_ADD_PROBLEM, "ss", key->op, key->problem);
    return rc == SQLITE_DONE ? gki_store_run(store, GKI_SQL_ADD_ENV, "s", key->environment) : rc;
}

int gki_store_transaction(gki_store *store, gki_store_fn fn, void *arg)
{
    int rc = gki_store_run(store, GKI_SQL_BEGIN, "");
    if (rc != SQLITE_DONE) {
        return rc;
    }
    rc = gki_store_run(store, GKI_SQL_COUNT_WRITE, "");
    if (rc == SQLITE_DONE) {
        rc = fn(store, arg);
    }
    if (rc == SQLITE_DONE || rc == SQLITE_ROW) {
        rc = gki_store_run(store, GKI_SQL_COMMIT, "");
    }
    /* Some errors have rolled back already, a failed commit has not. */
    if (sqlite3_get_autocommit(store->db) == 0) {
        (void)gki_store_run(store, GKI_SQL_ROLLBACK, "");
    }
    return rc;
}

void gki_store_close(gki_store *store)
{
    for (int i = 0; i < GKI_SQL_COUNT; i++) {
        (void)sqlite3_finalize(store->statements[i]);
        store->statements[i] = NULL;
    }
    (void)sqlite3_close(store->db);
    *store = (gki_store){0};
}
