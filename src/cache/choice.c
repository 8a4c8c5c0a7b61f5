/* Answers: the configuration chosen for a problem in an environment. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"
#include "cache/internal.h"
#include "cache/trial.h"

bool gki_choice_is_sound(const gki_choice *choice)
{
    return choice->variant[0] != '\0' && isfinite(choice->seconds) && choice->seconds >= 0 &&
           isfinite(choice->spread) && choice->spread >= 0;
}

/* Columns 0 to 4 of every statement that reads a choice. */
static bool read_choice(gki_store *store, gki_sql id, gki_choice *out)
{
    gki_choice choice;
    memset(&choice, 0, sizeof choice);
    if (!gki_store_text(store, id, 0, choice.variant, sizeof choice.variant) ||
        !gki_store_text(store, id, 1, choice.config, sizeof choice.config) ||
        !gki_store_number(store, id, 2, &choice.seconds) ||
        !gki_store_number(store, id, 3, &choice.spread) ||
        !gki_store_integer(store, id, 4, &choice.created)) {
        return false;
    }
    *out = choice;
    return true;
}

typedef struct choice_query {
    const gki_key *key;
    gki_choice choice;
    bool bad;
} choice_query;

static int get_choice(gki_store *store, void *arg)
{
    choice_query *q = arg;
    const gki_key *k = q->key;
    int rc = gki_store_run(store, GKI_SQL_CHOICE_GET, "sss", k->op, k->problem, k->environment);
    if (rc != SQLITE_ROW) {
        return rc;
    }
    if (!read_choice(store, GKI_SQL_CHOICE_GET, &q->choice)) {
        q->bad = true;
        rc = SQLITE_DONE;
    }
    gki_store_end(store, GKI_SQL_CHOICE_GET);
    return rc;
}

static int drop_choice(gki_store *store, void *arg)
{
    const gki_key *k = arg;
    return gki_store_run(store, GKI_SQL_CHOICE_DROP, "sss", k->op, k->problem, k->environment);
}

static bool find(gki_cache *cache, const gki_key *key, gki_choice *out)
{
    choice_query q = {.key = key};
    bool found = gki_cache_read(cache, get_choice, &q);
    if (q.bad) {
        gki_cache_bad_row(cache, "it holds an answer that cannot be read");
        gki_key copy = *key;
        gki_cache_write_both(cache, drop_choice, &copy);
    }
    if (found) {
        *out = q.choice;
    }
    return found;
}

gk_status gki_cache_choice_get(gki_cache *cache, const gki_key *key, gki_choice *out)
{
    memset(out, 0, sizeof *out);
    gki_cache_enter(cache);
    bool found = find(cache, key, out);
    gki_cache_leave(cache);
    return found ? GK_OK : GK_ERR_NOT_FOUND;
}

static int get_seed(gki_store *store, void *arg)
{
    choice_query *q = arg;
    int rc = gki_store_run(store, GKI_SQL_CHOICE_SEED, "ss", q->key->op, q->key->problem);
    while (rc == SQLITE_ROW && !read_choice(store, GKI_SQL_CHOICE_SEED, &q->choice)) {
        rc = gki_store_next(store, GKI_SQL_CHOICE_SEED);
    }
    if (rc == SQLITE_ROW) {
        gki_store_end(store, GKI_SQL_CHOICE_SEED);
    }
    return rc;
}

gk_status gki_cache_choice_seed(gki_cache *cache, const gki_key *key, gki_choice *out)
{
    memset(out, 0, sizeof *out);
    choice_query q = {.key = key};
    gki_cache_enter(cache);
    bool found = gki_cache_read(cache, get_seed, &q);
    gki_cache_leave(cache);
    if (found) {
        *out = q.choice;
    }
    return found ? GK_OK : GK_ERR_NOT_FOUND;
}

typedef struct publication {
    const gki_key *key;
    const gki_choice *choice;
    gki_choice result;
    const gk_trial *trials;
    uint32_t n_trials;
    int64_t now;
    bool replace;
} publication;

static int put_choice(gki_store *store, gki_sql id, const publication *p)
{
    const gki_key *k = p->key;
    const gki_choice *c = p->choice;
    return gki_store_run(store, id, "sssssddi", k->op, k->problem, k->environment, c->variant,
                         c->config, c->seconds, c->spread, c->created);
}

/* The first answer stays: all processes then agree, and the late one adopts it. */
static int add_choice(gki_store *store, publication *p)
{
    int rc = put_choice(store, GKI_SQL_CHOICE_ADD, p);
    if (rc != SQLITE_DONE || sqlite3_changes(store->db) > 0) {
        return rc;
    }
    choice_query q = {.key = p->key};
    rc = get_choice(store, &q);
    if (rc == SQLITE_ROW) {
        p->result = q.choice;
        return SQLITE_DONE;
    }
    return rc == SQLITE_DONE ? put_choice(store, GKI_SQL_CHOICE_SET, p) : rc;
}

static int publish(gki_store *store, void *arg)
{
    publication *p = arg;
    const gki_key *k = p->key;
    p->result = *p->choice;
    int rc = gki_store_add_key(store, k);
    if (rc == SQLITE_DONE) {
        rc = p->replace ? put_choice(store, GKI_SQL_CHOICE_SET, p) : add_choice(store, p);
    }
    if (rc == SQLITE_DONE) {
        rc = gki_trials_write(store, k, p->trials, p->n_trials, p->now);
    }
    if (rc == SQLITE_DONE) {
        rc = gki_store_run(store, GKI_SQL_MISS_DROP, "sss", k->op, k->problem, k->environment);
    }
    return rc;
}

static bool is_in_file(gki_cache *cache, const gki_key *key, const gki_choice *choice)
{
    choice_query q = {.key = key};
    return cache->state == GKI_DISK_OPEN && get_choice(&cache->disk, &q) == SQLITE_ROW &&
           strcmp(q.choice.variant, choice->variant) == 0 &&
           strcmp(q.choice.config, choice->config) == 0;
}

bool gki_cache_choice_is_saved(gki_cache *cache, const gki_key *key, const gki_choice *choice)
{
    gki_cache_enter(cache);
    bool saved = is_in_file(cache, key, choice);
    gki_cache_leave(cache);
    return saved;
}

gk_status gki_cache_publish(gki_cache *cache, const gki_key *key, gki_choice *choice,
                            const gk_trial *trials, uint32_t n_trials, bool replace, bool *saved)
{
    *saved = false;
    if (!gki_choice_is_sound(choice)) {
        return gk_fail(GK_ERR_INVALID, "cache", "the answer '%s' takes %g s with spread %g",
                       choice->variant, choice->seconds, choice->spread);
    }
    gki_choice mine = *choice;
    if (mine.created == 0) {
        mine.created = gki_clock_wall();
    }
    publication p = {
        .key = key,
        .choice = &mine,
        .result = mine,
        .trials = trials,
        .n_trials = n_trials,
        .now = gki_clock_wall(),
        .replace = replace,
    };
    gki_cache_enter(cache);
    gki_choice existing;
    /* A file that cannot be written may hold the answer all the same. */
    if (!replace && !gki_cache_is_writable(cache) && find(cache, key, &existing)) {
        p.result = existing;
        *saved = is_in_file(cache, key, &existing);
    } else {
        bool written = gki_cache_write(cache, publish, &p);
        *saved = written || is_in_file(cache, key, &p.result);
        if (written && cache->memory.db != NULL) {
            /* An older answer that once could not be written would hide this one. */
            gki_key copy = *key;
            (void)gki_store_transaction(&cache->memory, drop_choice, &copy);
        }
    }
    gki_cache_leave(cache);
    *choice = p.result;
    return GK_OK;
}

void gki_cache_choice_drop(gki_cache *cache, const gki_key *key)
{
    gki_key copy = *key;
    gki_cache_enter(cache);
    gki_cache_write_both(cache, drop_choice, &copy);
    gki_cache_leave(cache);
}

typedef struct listing {
    const char *op;
    gki_choice_row *rows;
    size_t count;
    size_t capacity;
    bool failed; /* out of memory */
} listing;

static bool copy_row(gki_store *store, gki_choice_row *row)
{
    const char *op = gki_store_key(store, GKI_SQL_CHOICE_LIST, 5);
    const char *problem = gki_store_key(store, GKI_SQL_CHOICE_LIST, 6);
    const char *environment = gki_store_key(store, GKI_SQL_CHOICE_LIST, 7);
    if (op == NULL || problem == NULL || environment == NULL) {
        return true;
    }
    row->op = gki_strdup(op);
    row->problem = gki_strdup(problem);
    row->environment = gki_strdup(environment);
    (void)gki_store_integer(store, GKI_SQL_CHOICE_LIST, 8, &row->trials);
    return row->op != NULL && row->problem != NULL && row->environment != NULL;
}

static void free_row(gki_choice_row *row)
{
    gki_free(row->op);
    gki_free(row->problem);
    gki_free(row->environment);
}

static bool append_row(gki_store *store, listing *l)
{
    gki_choice_row row = {.order = l->count};
    if (!read_choice(store, GKI_SQL_CHOICE_LIST, &row.choice)) {
        return true; /* dropped by the look-up that meets it */
    }
    if (l->count == l->capacity) {
        size_t capacity = l->capacity > 0 ? 2 * l->capacity : 64;
        gki_choice_row *rows = gki_realloc(l->rows, capacity * sizeof *rows);
        if (rows == NULL) {
            return false;
        }
        l->rows = rows;
        l->capacity = capacity;
    }
    if (!copy_row(store, &row)) {
        free_row(&row);
        return false;
    }
    if (row.op != NULL) {
        l->rows[l->count++] = row;
    }
    return true;
}

static int list_choices(gki_store *store, void *arg)
{
    listing *l = arg;
    int rc = gki_store_run(store, GKI_SQL_CHOICE_LIST, "s", l->op);
    while (rc == SQLITE_ROW) {
        if (!append_row(store, l)) {
            l->failed = true;
            gki_store_end(store, GKI_SQL_CHOICE_LIST);
            return SQLITE_DONE;
        }
        rc = gki_store_next(store, GKI_SQL_CHOICE_LIST);
    }
    return rc;
}

static int compare_keys(const gki_choice_row *a, const gki_choice_row *b)
{
    int c = strcmp(a->op, b->op);
    c = c != 0 ? c : strcmp(a->problem, b->problem);
    return c != 0 ? c : strcmp(a->environment, b->environment);
}

static int compare_rows(const void *a, const void *b)
{
    const gki_choice_row *x = a;
    const gki_choice_row *y = b;
    int c = compare_keys(x, y);
    return c != 0 ? c : (x->order > y->order) - (x->order < y->order);
}

/* Of equal keys the one that was read first stays: memory is read before the file. */
static void sort_and_merge(listing *l)
{
    if (l->count > 1) {
        qsort(l->rows, l->count, sizeof *l->rows, compare_rows);
    }
    size_t kept = 0;
    for (size_t i = 0; i < l->count; i++) {
        if (kept > 0 && compare_keys(&l->rows[kept - 1], &l->rows[i]) == 0) {
            free_row(&l->rows[i]);
        } else {
            l->rows[kept++] = l->rows[i];
        }
    }
    l->count = kept;
}

gk_status gki_choices_collect(gki_cache *cache, const char *op, gki_choice_row **rows,
                              size_t *count, bool *complete)
{
    listing l = {.op = op};
    gki_cache_enter(cache);
    uint64_t errors = cache->errors;
    (void)gki_cache_read(cache, list_choices, &l);
    *complete = cache->errors == errors;
    gki_cache_leave(cache);
    *rows = NULL;
    *count = 0;
    if (l.failed) {
        gki_choices_free(l.rows, l.count);
        return gki_fail_nomem("cache", l.count * sizeof *l.rows);
    }
    sort_and_merge(&l);
    *rows = l.rows;
    *count = l.count;
    return GK_OK;
}

void gki_choices_free(gki_choice_row *rows, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        free_row(&rows[i]);
    }
    gki_free(rows);
}

gk_status gki_cache_choices(gki_cache *cache, const char *op, gk_cache_entry_fn fn, void *user)
{
    gki_choice_row *rows = NULL;
    size_t count = 0;
    bool complete = false;
    gk_status status = gki_choices_collect(cache, op, &rows, &count, &complete);
    for (size_t i = 0; i < count; i++) {
        const gki_choice_row *row = &rows[i];
        gk_cache_entry entry = {
            .op = row->op,
            .problem = row->problem,
            .environment = row->environment,
            .variant = row->choice.variant,
            .config = row->choice.config,
            .seconds = row->choice.seconds,
            .trials = (uint32_t)row->trials,
            .created = row->choice.created,
        };
        if (!fn(user, &entry)) {
            break;
        }
    }
    gki_choices_free(rows, count);
    return status;
}
