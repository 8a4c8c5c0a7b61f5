/* Who is tuning what, and what ran untuned. */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"
#include "cache/internal.h"

/* Longer leases would outlive a tuner that died, and a clock that was set back. */
enum { LEASE_LIMIT = 3600 };

typedef struct lease {
    const gki_key *key;
    const char *owner;
    int64_t now;
    int64_t expires;
    bool taken;
} lease;

static int take_lease(gki_store *store, void *arg)
{
    lease *l = arg;
    const gki_key *k = l->key;
    l->taken = false;
    int rc = gki_store_add_key(store, k);
    if (rc == SQLITE_DONE) {
        rc = gki_store_run(store, GKI_SQL_LEASE_TAKE, "ssssiii", k->op, k->problem, k->environment,
                           l->owner, l->expires, l->now, l->now + LEASE_LIMIT);
        l->taken = rc == SQLITE_DONE && sqlite3_changes(store->db) > 0;
    }
    return rc;
}

bool gki_cache_lease(gki_cache *cache, const gki_key *key, double seconds)
{
    int64_t whole = LEASE_LIMIT;
    if (seconds < LEASE_LIMIT) {
        whole = seconds > 1 ? (int64_t)seconds + 1 : 1;
    }
    lease l = {.key = key, .now = gki_clock_wall()};
    l.expires = l.now + whole;
    gki_cache_enter(cache);
    l.owner = cache->token;
    /* Nobody else sees what is in memory. */
    bool held = !gki_cache_is_writable(cache) || !gki_cache_write(cache, take_lease, &l) || l.taken;
    gki_cache_leave(cache);
    return held;
}

static int end_lease(gki_store *store, void *arg)
{
    const lease *l = arg;
    const gki_key *k = l->key;
    return gki_store_run(store, GKI_SQL_LEASE_END, "ssss", k->op, k->problem, k->environment,
                         l->owner);
}

void gki_cache_lease_end(gki_cache *cache, const gki_key *key)
{
    lease l = {.key = key};
    gki_cache_enter(cache);
    l.owner = cache->token;
    gki_cache_write_both(cache, end_lease, &l);
    gki_cache_leave(cache);
}

typedef struct miss {
    const gki_key *key;
    int64_t now;
} miss;

static int add_miss(gki_store *store, void *arg)
{
    const miss *m = arg;
    const gki_key *k = m->key;
    int rc = gki_store_add_key(store, k);
    return rc == SQLITE_DONE ? gki_store_run(store, GKI_SQL_MISS_ADD, "sssi", k->op, k->problem,
                                             k->environment, m->now)
                             : rc;
}

void gki_cache_miss(gki_cache *cache, const gki_key *key)
{
    miss m = {.key = key, .now = gki_clock_wall()};
    gki_cache_enter(cache);
    (void)gki_cache_write(cache, add_miss, &m);
    gki_cache_leave(cache);
}

typedef struct miss_row {
    char *op;
    char *problem;
    uint64_t calls;
} miss_row;

typedef struct listing {
    miss_row *rows;
    size_t count;
    size_t capacity;
    bool failed;
} listing;

static miss_row *find_row(const listing *l, const char *op, const char *problem)
{
    for (size_t i = 0; i < l->count; i++) {
        if (strcmp(l->rows[i].op, op) == 0 && strcmp(l->rows[i].problem, problem) == 0) {
            return &l->rows[i];
        }
    }
    return NULL;
}

static bool append_row(listing *l, const char *op, const char *problem, uint64_t calls)
{
    if (l->count == l->capacity) {
        size_t capacity = l->capacity > 0 ? 2 * l->capacity : 64;
        miss_row *rows = gki_realloc(l->rows, capacity * sizeof *rows);
        if (rows == NULL) {
            return false;
        }
        l->rows = rows;
        l->capacity = capacity;
    }
    miss_row row = {.op = gki_strdup(op), .problem = gki_strdup(problem), .calls = calls};
    if (row.op == NULL || row.problem == NULL) {
        gki_free(row.op);
        gki_free(row.problem);
        return false;
    }
    l->rows[l->count++] = row;
    return true;
}

/* The rows of one store are distinct, and few are in memory beside a file: only those of an
 * earlier store are searched. */
static int list_misses(gki_store *store, void *arg)
{
    listing *l = arg;
    listing earlier = *l;
    int rc = gki_store_run(store, GKI_SQL_MISS_LIST, "");
    for (; rc == SQLITE_ROW; rc = gki_store_next(store, GKI_SQL_MISS_LIST)) {
        const char *op = gki_store_key(store, GKI_SQL_MISS_LIST, 0);
        const char *problem = gki_store_key(store, GKI_SQL_MISS_LIST, 1);
        int64_t calls = 0;
        if (op == NULL || problem == NULL ||
            !gki_store_integer(store, GKI_SQL_MISS_LIST, 2, &calls) || calls <= 0) {
            continue;
        }
        earlier.rows = l->rows;
        miss_row *row = find_row(&earlier, op, problem);
        if (row != NULL) {
            row->calls += (uint64_t)calls;
        } else if (!append_row(l, op, problem, (uint64_t)calls)) {
            l->failed = true;
            gki_store_end(store, GKI_SQL_MISS_LIST);
            return SQLITE_DONE;
        }
    }
    return rc;
}

static int most_called_first(const void *a, const void *b)
{
    const miss_row *x = a;
    const miss_row *y = b;
    int c = (x->calls < y->calls) - (x->calls > y->calls);
    c = c != 0 ? c : strcmp(x->op, y->op);
    return c != 0 ? c : strcmp(x->problem, y->problem);
}

gk_status gki_cache_misses(gki_cache *cache, gk_miss_fn fn, void *user)
{
    listing l = {0};
    gki_cache_enter(cache);
    (void)gki_cache_read(cache, list_misses, &l);
    gki_cache_leave(cache);
    if (l.count > 1) {
        qsort(l.rows, l.count, sizeof *l.rows, most_called_first);
    }
    bool more = !l.failed;
    for (size_t i = 0; i < l.count; i++) {
        more = more && fn(user, l.rows[i].op, l.rows[i].problem, l.rows[i].calls);
        gki_free(l.rows[i].op);
        gki_free(l.rows[i].problem);
    }
    gki_free(l.rows);
    return l.failed ? gki_fail_nomem("cache", l.count * sizeof *l.rows) : GK_OK;
}
