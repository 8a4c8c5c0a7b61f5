/*
 * The answers as text, to be kept in version control, shipped, and merged:
 *
 *   gk-cache 1
 *   op <tab> problem <tab> environment <tab> variant <tab> config <tab> seconds <tab> spread <tab>
 *   created
 *
 * Lines are sorted. Control bytes and backslashes in a field are written \xHH. Fields past the
 * eighth, blank lines and lines that begin with '#' are ignored.
 */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/str.h"
#include "cache/internal.h"

enum { N_FIELDS = 8, TEXT_LIMIT = 256 << 20, KEY_LIMIT = 1 << 16 };

static const char magic[] = "gk-cache ";

static void put_field(gki_buf *out, const char *text, char end)
{
    for (const char *p = text; *p != '\0'; p++) {
        unsigned char c = (unsigned char)*p;
        if (c < ' ' || c == 0x7f || c == '\\') {
            gki_buf_printf(out, "\\x%02x", (unsigned)c);
        } else {
            gki_buf_append(out, p, 1);
        }
    }
    gki_buf_append(out, &end, 1);
}

static void put_row(gki_buf *out, const gki_choice_row *row)
{
    put_field(out, row->op, '\t');
    put_field(out, row->problem, '\t');
    put_field(out, row->environment, '\t');
    put_field(out, row->choice.variant, '\t');
    put_field(out, row->choice.config, '\t');
    gki_buf_double(out, row->choice.seconds);
    gki_buf_puts(out, "\t");
    gki_buf_double(out, row->choice.spread);
    gki_buf_printf(out, "\t%lld\n", (long long)row->choice.created);
}

gk_status gki_cache_export(gki_cache *cache, const char *path, uint32_t *count)
{
    *count = 0;
    gki_choice_row *rows = NULL;
    size_t n = 0;
    bool complete = false;
    gk_status status = gki_choices_collect(cache, NULL, &rows, &n, &complete);
    if (status != GK_OK) {
        return status;
    }
    if (!complete) {
        /* A part of the answers would take the place of an earlier export of all. */
        gki_choices_free(rows, n);
        return gk_fail(GK_ERR_CACHE, "cache",
                       "'%s' could not be read to its end, '%s' is not written", cache->wanted,
                       path);
    }
    gki_buf out = {0};
    gki_buf_printf(&out, "%s1\n", magic);
    for (size_t i = 0; i < n; i++) {
        put_row(&out, &rows[i]);
    }
    gki_choices_free(rows, n);
    if (out.failed) {
        status = gki_fail_nomem("cache", out.length);
    } else {
        status = gki_fs_write(path, out.text, out.length, 0644);
    }
    gki_buf_free(&out);
    if (status == GK_OK) {
        *count = (uint32_t)n;
    }
    return status;
}

static int hex_digit(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* In place. False if an escape is broken or stands for NUL. */
static bool unescape(char *text)
{
    char *out = text;
    for (const char *p = text; *p != '\0'; p++) {
        if (*p != '\\') {
            *out++ = *p;
            continue;
        }
        int high = p[1] == 'x' ? hex_digit(p[2]) : -1;
        int low = high >= 0 ? hex_digit(p[3]) : -1;
        if (low < 0 || high * 16 + low == 0) {
            return false;
        }
        *out++ = (char)(high * 16 + low);
        p += 3;
    }
    *out = '\0';
    return true;
}

/* Cuts a line into its fields; further ones, of a later version, are cut off. */
static bool split(char *line, char *fields[N_FIELDS])
{
    for (int i = 0; i < N_FIELDS; i++) {
        fields[i] = line;
        char *tab = strchr(line, '\t');
        if (tab == NULL && i < N_FIELDS - 1) {
            return false;
        }
        if (tab != NULL) {
            *tab = '\0';
            line = tab + 1;
        }
        if (!unescape(fields[i])) {
            return false;
        }
    }
    return true;
}

static bool parse_line(char *line, gki_key *key, gki_choice *choice)
{
    char *f[N_FIELDS];
    memset(choice, 0, sizeof *choice);
    if (!split(line, f) || *f[0] == '\0' || *f[1] == '\0' || *f[2] == '\0') {
        return false;
    }
    if (strlen(f[0]) > KEY_LIMIT || strlen(f[1]) > KEY_LIMIT || strlen(f[2]) > KEY_LIMIT) {
        return false;
    }
    *key = (gki_key){.op = f[0], .problem = f[1], .environment = f[2]};
    return gki_copy_printable(choice->variant, sizeof choice->variant, f[3]) &&
           gki_copy_printable(choice->config, sizeof choice->config, f[4]) &&
           gki_parse_double(f[5], &choice->seconds) && gki_parse_double(f[6], &choice->spread) &&
           gki_parse_i64(f[7], &choice->created) && choice->created >= 0 &&
           gki_choice_is_sound(choice);
}

typedef struct import_job {
    char *text; /* after the header */
    size_t size;
    bool replace;
    uint32_t imported;
    uint32_t skipped;
} import_job;

static int store_line(gki_store *store, char *line, import_job *job)
{
    gki_key key;
    gki_choice choice;
    if (*line == '\0' || *line == '#') {
        return SQLITE_DONE;
    }
    if (!parse_line(line, &key, &choice)) {
        job->skipped++;
        return SQLITE_DONE;
    }
    int rc = gki_store_add_key(store, &key);
    if (rc != SQLITE_DONE) {
        return rc;
    }
    rc = gki_store_run(store, job->replace ? GKI_SQL_CHOICE_SET : GKI_SQL_CHOICE_ADD, "sssssddi",
                       key.op, key.problem, key.environment, choice.variant, choice.config,
                       choice.seconds, choice.spread, choice.created);
    if (rc == SQLITE_DONE && sqlite3_changes(store->db) > 0) {
        job->imported++;
    }
    return rc;
}

static int store_lines(gki_store *store, void *arg)
{
    import_job *job = arg;
    job->imported = 0;
    job->skipped = 0;
    /* Lines are taken apart in place, and a failed transaction may be run again. */
    char *text = gki_alloc(job->size + 1);
    if (text == NULL) {
        return SQLITE_NOMEM;
    }
    memcpy(text, job->text, job->size + 1);
    int rc = SQLITE_DONE;
    char *line = text;
    while (rc == SQLITE_DONE && line < text + job->size) {
        char *end = strchr(line, '\n');
        size_t length = end != NULL ? (size_t)(end - line) : strlen(line);
        char *next = line + length + 1;
        line[length] = '\0';
        if (length > 0 && line[length - 1] == '\r') {
            line[length - 1] = '\0';
        }
        rc = store_line(store, line, job);
        line = next;
    }
    gki_free(text);
    return rc;
}

static gk_status run_import(gki_cache *cache, import_job *job)
{
    gki_cache_enter(cache);
    bool wanted = cache->state != GKI_DISK_NONE;
    bool saved = gki_cache_write(cache, store_lines, job);
    if (saved && job->replace && cache->memory.db != NULL) {
        /* Older answers that once could not be written would hide these. */
        import_job again = *job;
        (void)gki_store_transaction(&cache->memory, store_lines, &again);
    }
    char why[GKI_WHY_BYTES];
    gki_copy_text(why, sizeof why, cache->degraded[0] != '\0' ? cache->degraded : "it is busy");
    gki_cache_leave(cache);
    if (wanted && !saved) {
        return gk_fail(GK_ERR_CACHE, "cache",
                       "%u answers were imported into memory only, not into '%s': %s",
                       (unsigned)job->imported, cache->wanted, why);
    }
    return GK_OK;
}

gk_status gki_cache_import(gki_cache *cache, const char *path, bool replace, uint32_t *imported,
                           uint32_t *skipped)
{
    *imported = 0;
    *skipped = 0;
    char *text = NULL;
    size_t size = 0;
    gk_status status = gki_fs_read(path, TEXT_LIMIT, &text, &size);
    if (status != GK_OK) {
        return status;
    }
    if (strncmp(text, magic, sizeof magic - 1) != 0 || strlen(text) != size) {
        gki_free(text);
        return gk_fail(GK_ERR_IO, "cache", "'%s' is no export of gk's: it does not begin with '%s'",
                       path, magic);
    }
    size_t header = strcspn(text, "\n");
    import_job job = {.text = text + header, .size = size - header, .replace = replace};
    status = run_import(cache, &job);
    gki_free(text);
    *imported = job.imported;
    *skipped = job.skipped;
    return status;
}
