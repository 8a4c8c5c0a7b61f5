/* JSON lines, written by SQLite's JSON functions. */
#include <sqlite3.h>
#include <stdlib.h>

#include "cli.h"

struct cli_json {
    sqlite3 *db;
    sqlite3_str *sql;
    unsigned count;
};

cli_json *cli_json_begin(void)
{
    cli_json *json = calloc(1, sizeof(*json));
    if (json == NULL || sqlite3_open(":memory:", &json->db) != SQLITE_OK) {
        fprintf(stderr, "out of memory\n");
        abort();
    }
    json->sql = sqlite3_str_new(json->db);
    sqlite3_str_appendall(json->sql, "SELECT json_object(");
    return json;
}

static void add(cli_json *json, const char *name)
{
    sqlite3_str_appendf(json->sql, "%s%Q, ", json->count++ == 0 ? "" : ", ", name);
}

void cli_json_text(cli_json *json, const char *name, const char *value)
{
    add(json, name);
    sqlite3_str_appendf(json->sql, "%Q", value);
}

void cli_json_number(cli_json *json, const char *name, double value)
{
    add(json, name);
    if (value == (double)(sqlite3_int64)value && value < 9e15 && value > -9e15) {
        sqlite3_str_appendf(json->sql, "%lld", (sqlite3_int64)value);
    } else {
        sqlite3_str_appendf(json->sql, "%!.15g", value);
    }
}

void cli_json_bool(cli_json *json, const char *name, bool value)
{
    add(json, name);
    sqlite3_str_appendf(json->sql, "json('%s')", value ? "true" : "false");
}

void cli_json_end(cli_json *json, FILE *out)
{
    sqlite3_str_appendall(json->sql, ")");
    char *sql = sqlite3_str_finish(json->sql);
    sqlite3_stmt *stmt = NULL;
    if (sql != NULL && sqlite3_prepare_v2(json->db, sql, -1, &stmt, NULL) == SQLITE_OK &&
        sqlite3_step(stmt) == SQLITE_ROW) {
        fprintf(out, "%s\n", (const char *)sqlite3_column_text(stmt, 0));
    } else {
        fprintf(stderr, "cannot write JSON: %s\n", sqlite3_errmsg(json->db));
    }
    sqlite3_finalize(stmt);
    sqlite3_free(sql);
    sqlite3_close(json->db);
    free(json);
}
