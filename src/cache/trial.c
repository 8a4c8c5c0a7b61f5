/* What was tried for a problem, and how it went. */
#include "cache/trial.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"
#include "cache/internal.h"

typedef struct trial_row {
    char variant[32];
    char config[256];
    char status[32];
    double seconds;
    double spread;
    double max_error;
    size_t order; /* of reading */
} trial_row;

static double finite_or(double value, double otherwise)
{
    return isfinite(value) && value >= 0 ? value : otherwise;
}

int gki_trials_write(gki_store *store, const gki_key *key, const gk_trial *trials,
                     uint32_t n_trials, int64_t now)
{
    int rc = SQLITE_DONE;
    for (uint32_t i = 0; i < n_trials && rc == SQLITE_DONE; i++) {
        const gk_trial *t = &trials[i];
        if (t->variant == NULL || t->config == NULL) {
            continue;
        }
        /* An error that is no number is as wrong as can be. */
        rc = gki_store_run(store, GKI_SQL_TRIAL_SET, "ssssssdddi", key->op, key->problem,
                           key->environment, t->variant, t->config,
                           t->status != NULL ? t->status : "?", finite_or(t->seconds, 0),
                           finite_or(t->spread, 0), finite_or(t->max_error, 1e300), now);
    }
    return rc;
}

typedef struct trial_batch {
    const gki_key *key;
    const gk_trial *trials;
    uint32_t n_trials;
    int64_t now;
} trial_batch;

static int put_trials(gki_store *store, void *arg)
{
    const trial_batch *b = arg;
    int rc = gki_store_add_key(store, b->key);
    return rc == SQLITE_DONE ? gki_trials_write(store, b->key, b->trials, b->n_trials, b->now) : rc;
}

void gki_cache_trials_put(gki_cache *cache, const gki_key *key, const gk_trial *trials,
                          uint32_t n_trials)
{
    trial_batch batch = {
        .key = key, .trials = trials, .n_trials = n_trials, .now = gki_clock_wall()};
    gki_cache_enter(cache);
    (void)gki_cache_write(cache, put_trials, &batch);
    gki_cache_leave(cache);
}

typedef struct listing {
    const gki_key *key;
    trial_row *rows;
    size_t count;
    size_t capacity;
    bool failed;
} listing;

static bool read_trial(gki_store *store, trial_row *row)
{
    gki_sql id = GKI_SQL_TRIAL_LIST;
    return gki_store_text(store, id, 0, row->variant, sizeof row->variant) &&
           gki_store_text(store, id, 1, row->config, sizeof row->config) &&
           gki_store_text(store, id, 2, row->status, sizeof row->status) &&
           gki_store_number(store, id, 3, &row->seconds) &&
           gki_store_number(store, id, 4, &row->spread) &&
           gki_store_number(store, id, 5, &row->max_error);
}

static bool append_trial(gki_store *store, listing *l)
{
    trial_row row;
    memset(&row, 0, sizeof row);
    if (!read_trial(store, &row)) {
        return true;
    }
    if (l->count == l->capacity) {
        size_t capacity = l->capacity > 0 ? 2 * l->capacity : 64;
        trial_row *rows = gki_realloc(l->rows, capacity * sizeof *rows);
        if (rows == NULL) {
            return false;
        }
        l->rows = rows;
        l->capacity = capacity;
    }
    row.order = l->count;
    l->rows[l->count++] = row;
    return true;
}

static int list_trials(gki_store *store, void *arg)
{
    listing *l = arg;
    const gki_key *k = l->key;
    int rc = gki_store_run(store, GKI_SQL_TRIAL_LIST, "sss", k->op, k->problem, k->environment);
    while (rc == SQLITE_ROW) {
        if (!append_trial(store, l)) {
            l->failed = true;
            gki_store_end(store, GKI_SQL_TRIAL_LIST);
            return SQLITE_DONE;
        }
        rc = gki_store_next(store, GKI_SQL_TRIAL_LIST);
    }
    return rc;
}

static int compare_configs(const trial_row *a, const trial_row *b)
{
    int c = strcmp(a->variant, b->variant);
    return c != 0 ? c : strcmp(a->config, b->config);
}

static int by_config(const void *a, const void *b)
{
    const trial_row *x = a;
    const trial_row *y = b;
    int c = compare_configs(x, y);
    return c != 0 ? c : (x->order > y->order) - (x->order < y->order);
}

/* Fastest first; what was never timed comes last. */
static int by_seconds(const void *a, const void *b)
{
    const trial_row *x = a;
    const trial_row *y = b;
    bool x_timed = x->seconds > 0;
    bool y_timed = y->seconds > 0;
    if (x_timed != y_timed) {
        return x_timed ? -1 : 1;
    }
    int c = (x->seconds > y->seconds) - (x->seconds < y->seconds);
    return c != 0 ? c : compare_configs(x, y);
}

/* Of equal configurations the one read first stays: memory is read before the file. */
static void sort_and_merge(listing *l)
{
    if (l->count < 2) {
        return;
    }
    qsort(l->rows, l->count, sizeof *l->rows, by_config);
    size_t kept = 1;
    for (size_t i = 1; i < l->count; i++) {
        if (compare_configs(&l->rows[kept - 1], &l->rows[i]) != 0) {
            l->rows[kept++] = l->rows[i];
        }
    }
    l->count = kept;
    qsort(l->rows, l->count, sizeof *l->rows, by_seconds);
}

gk_status gki_cache_trials(gki_cache *cache, const gki_key *key, gk_trial_fn fn, void *user)
{
    listing l = {.key = key};
    gki_cache_enter(cache);
    (void)gki_cache_read(cache, list_trials, &l);
    gki_cache_leave(cache);
    if (l.failed) {
        gki_free(l.rows);
        return gki_fail_nomem("cache", l.count * sizeof *l.rows);
    }
    sort_and_merge(&l);
    gki_choice choice;
    bool any = gki_cache_choice_get(cache, key, &choice) == GK_OK;
    for (size_t i = 0; i < l.count; i++) {
        const trial_row *row = &l.rows[i];
        gk_trial trial = {
            .variant = row->variant,
            .config = row->config,
            .status = row->status,
            .seconds = row->seconds,
            .spread = row->spread,
            .max_error = row->max_error,
            .chosen = any && strcmp(row->variant, choice.variant) == 0 &&
                      strcmp(row->config, choice.config) == 0,
        };
        if (!fn(user, &trial)) {
            break;
        }
    }
    gki_free(l.rows);
    return GK_OK;
}
