/* JSON lines, written by SQLite's JSON functions. */
#include <math.h>
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

/* The bytes of the UTF-8 character at `text`; 0 if there is none, as in a path of another coding.
 */
static size_t character(const unsigned char *text)
{
    static const unsigned least[] = {0, 0, 0x80, 0x800, 0x10000};
    const unsigned char c = text[0];
    if (c < 0x80) {
        return 1;
    }
    const size_t length = c >= 0xc2 && c < 0xe0   ? 2
                          : c >= 0xe0 && c < 0xf0 ? 3
                          : c >= 0xf0 && c < 0xf5 ? 4
                                                  : 0;
    unsigned value = length > 0 ? c & (0x7fu >> length) : 0;
    for (size_t i = 1; i < length; i++) {
        if ((text[i] & 0xc0) != 0x80) {
            return 0;
        }
        value = value << 6 | (text[i] & 0x3fu);
    }
    const bool surrogate = value >= 0xd800 && value < 0xe000;
    return value < least[length] || value > 0x10ffff || surrogate ? 0 : length;
}

void cli_json_text(cli_json *json, const char *name, const char *value)
{
    add(json, name);
    if (value == NULL) {
        sqlite3_str_appendall(json->sql, "NULL");
        return;
    }
    sqlite3_str *clean = sqlite3_str_new(json->db);
    for (const char *p = value; *p != '\0';) {
        const size_t length = character((const unsigned char *)p);
        sqlite3_str_append(clean, length > 0 ? p : "\xef\xbf\xbd", length > 0 ? (int)length : 3);
        p += length > 0 ? length : 1;
    }
    char *text = sqlite3_str_finish(clean);
    sqlite3_str_appendf(json->sql, "%Q", text != NULL ? text : "");
    sqlite3_free(text);
}

void cli_json_number(cli_json *json, const char *name, double value)
{
    add(json, name);
    if (!isfinite(value)) {
        sqlite3_str_appendall(json->sql, "NULL"); /* JSON has no such number */
    } else if (value < 9e15 && value > -9e15 && value == (double)(sqlite3_int64)value) {
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
