/* Compiled code. It will be run, so it is compared with its digest on every read. */
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"
#include "cache/internal.h"

enum { DAY = 24 * 3600, CODE_LIMIT = 64 << 20 };

typedef struct kernel_query {
    const gki_digest *key;
    gki_kernel_record record;
    int64_t now;
    bool bad;
    bool out_of_memory;
    bool aged; /* its last use is to be written down */
} kernel_query;

/* -1 stands for what the compiler does not say. */
static bool read_int32(gki_store *store, int column, int32_t *out)
{
    int64_t value = 0;
    if (!gki_store_integer(store, GKI_SQL_KERNEL_GET, column, &value) || value < -1 ||
        value > INT32_MAX) {
        return false;
    }
    *out = (int32_t)value;
    return true;
}

/* False if the row is damaged. */
static bool read_kernel(gki_store *store, kernel_query *q)
{
    sqlite3_stmt *statement = store->statements[GKI_SQL_KERNEL_GET];
    if (sqlite3_column_type(statement, 0) != SQLITE_BLOB ||
        sqlite3_column_type(statement, 1) != SQLITE_BLOB) {
        return false;
    }
    const void *code = sqlite3_column_blob(statement, 0);
    int size = sqlite3_column_bytes(statement, 0);
    const void *stored = sqlite3_column_blob(statement, 1);
    if (code == NULL || size <= 0 || size > CODE_LIMIT || stored == NULL ||
        sqlite3_column_bytes(statement, 1) != (int)sizeof(gki_digest)) {
        return false;
    }
    gki_digest actual = gki_sha256(code, (size_t)size);
    int32_t serialized = 0;
    gki_kernel_record *r = &q->record;
    if (memcmp(&actual, stored, sizeof actual) != 0 || !read_int32(store, 2, &r->registers) ||
        !read_int32(store, 3, &r->spill_bytes) || !read_int32(store, 4, &r->stack_bytes) ||
        !read_int32(store, 5, &serialized)) {
        return false;
    }
    r->serialized = serialized != 0;
    r->size = (size_t)size;
    r->code = gki_alloc(r->size);
    if (r->code == NULL) {
        q->out_of_memory = true;
        return true;
    }
    memcpy(r->code, code, r->size);
    int64_t used = 0;
    q->aged = !gki_store_integer(store, GKI_SQL_KERNEL_GET, 6, &used) || used > q->now ||
              used < q->now - DAY;
    return true;
}

static int get_kernel(gki_store *store, void *arg)
{
    kernel_query *q = arg;
    int rc = gki_store_run(store, GKI_SQL_KERNEL_GET, "b", q->key->bytes, sizeof q->key->bytes);
    if (rc == SQLITE_ROW) {
        if (!read_kernel(store, q)) {
            q->bad = true;
            rc = SQLITE_DONE;
        }
        gki_store_end(store, GKI_SQL_KERNEL_GET);
    }
    return rc;
}

static int drop_kernel(gki_store *store, void *arg)
{
    const kernel_query *q = arg;
    return gki_store_run(store, GKI_SQL_KERNEL_DROP, "b", q->key->bytes, sizeof q->key->bytes);
}

static int use_kernel(gki_store *store, void *arg)
{
    const kernel_query *q = arg;
    return gki_store_run(store, GKI_SQL_KERNEL_USE, "bi", q->key->bytes, sizeof q->key->bytes,
                         q->now);
}

gk_status gki_cache_kernel_get(gki_cache *cache, const gki_digest *key, gki_kernel_record *out)
{
    *out = (gki_kernel_record){0};
    kernel_query q = {.key = key, .now = gki_clock_wall()};
    gki_cache_enter(cache);
    bool found = gki_cache_read(cache, get_kernel, &q);
    if (q.bad) {
        gki_cache_bad_row(cache, "it holds compiled code that is damaged");
        gki_cache_write_both(cache, drop_kernel, &q);
    } else if (found && q.aged && gki_cache_is_writable(cache)) {
        (void)gki_cache_write(cache, use_kernel, &q);
    }
    gki_cache_leave(cache);
    if (q.out_of_memory) {
        return gki_fail_nomem("cache", q.record.size);
    }
    if (!found) {
        return GK_ERR_NOT_FOUND;
    }
    *out = q.record;
    return GK_OK;
}

typedef struct kernel_entry {
    const gki_digest *key;
    const char *name;
    const gki_kernel_record *record;
    gki_digest digest;
    int64_t now;
    int64_t limit;
} kernel_entry;

/* Old code goes in batches, down to three quarters of the limit. */
static int trim(gki_store *store, int64_t limit)
{
    int64_t total = 0;
    int rc = gki_store_run(store, GKI_SQL_KERNEL_BYTES, "");
    if (rc != SQLITE_ROW) {
        return rc;
    }
    (void)gki_store_integer(store, GKI_SQL_KERNEL_BYTES, 0, &total);
    gki_store_end(store, GKI_SQL_KERNEL_BYTES);
    return total > limit ? gki_store_run(store, GKI_SQL_KERNEL_TRIM, "i", limit - limit / 4)
                         : SQLITE_DONE;
}

static int put_kernel(gki_store *store, void *arg)
{
    const kernel_entry *e = arg;
    const gki_kernel_record *r = e->record;
    int rc =
        gki_store_run(store, GKI_SQL_KERNEL_SET, "bsiibiiiib", e->key->bytes, sizeof e->key->bytes,
                      e->name, (int64_t)r->size, e->now, e->digest.bytes, sizeof e->digest.bytes,
                      (int64_t)r->registers, (int64_t)r->spill_bytes, (int64_t)r->stack_bytes,
                      (int64_t)(r->serialized ? 1 : 0), r->code, r->size);
    return rc == SQLITE_DONE ? trim(store, e->limit) : rc;
}

void gki_cache_kernel_put(gki_cache *cache, const gki_digest *key, const char *name,
                          const gki_kernel_record *record)
{
    if (record->size == 0 || record->size > CODE_LIMIT || record->size > cache->kernel_bytes) {
        return;
    }
    uint64_t limit = cache->kernel_bytes < INT64_MAX ? cache->kernel_bytes : INT64_MAX;
    kernel_entry entry = {
        .key = key,
        .name = name,
        .record = record,
        .digest = gki_sha256(record->code, record->size),
        .now = gki_clock_wall(),
        .limit = (int64_t)limit,
    };
    gki_cache_enter(cache);
    (void)gki_cache_write(cache, put_kernel, &entry);
    gki_cache_leave(cache);
}
