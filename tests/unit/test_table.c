/* The context's table: look-up, replacement, growth, readers beside a writer. */
#define _GNU_SOURCE
#include "support/gk_test.h"

#include <pthread.h>
#include <string.h>

#include "api/context.h"
#include "base/alloc.h"

enum { MANY = 10000, READERS = 8 };

static gk_problem problem_of(int64_t m)
{
    gk_problem problem;
    memset(&problem, 0, sizeof(problem));
    problem.dims[0] = m;
    problem.dims[1] = 64;
    return problem;
}

static uint64_t hash_of(const gk_problem *problem)
{
    return gki_hash64(problem, sizeof(*problem));
}

/* Without a variant gki_entry_build loads no kernel and uses no context. */
static gki_entry *entry_of(int64_t m)
{
    const gk_problem problem = problem_of(m);
    gki_entry *entry = NULL;
    if (gki_entry_build(NULL, NULL, &problem, NULL, NULL, GK_SOURCE_EMPTY, &entry) != GK_OK) {
        return NULL;
    }
    return entry;
}

static gki_entry *insert(gki_table *table, int64_t m, double seconds)
{
    gki_entry *entry = entry_of(m);
    if (entry == NULL) {
        return NULL;
    }
    entry->seconds = seconds;
    return gki_table_insert(table, entry, hash_of(&entry->problem)) == GK_OK ? entry : NULL;
}

static gki_entry *find(gki_table *table, int64_t m)
{
    const gk_problem problem = problem_of(m);
    return gki_table_find(table, &problem, hash_of(&problem));
}

static void test_empty(void **state)
{
    (void)state;
    gki_table table;
    assert_gk_ok(gki_table_init(&table));
    assert_null(find(&table, 1));
    gki_table_free(&table);
    /* One that was never filled in, as after a failed creation. */
    memset(&table, 0, sizeof(table));
    gki_table_free(&table);
}

static void test_insert_and_find(void **state)
{
    (void)state;
    gki_table table;
    assert_gk_ok(gki_table_init(&table));
    gki_entry *one = insert(&table, 1, 1);
    gki_entry *two = insert(&table, 2, 2);
    assert_non_null(one);
    assert_non_null(two);
    assert_ptr_equal(find(&table, 1), one);
    assert_ptr_equal(find(&table, 2), two);
    assert_null(find(&table, 3));
    assert_int_equal(table.count, 2);
    gki_table_free(&table);
}

static void test_every_byte_counts(void **state)
{
    (void)state;
    gki_table table;
    assert_gk_ok(gki_table_init(&table));
    gki_entry *one = insert(&table, 1, 1);
    assert_non_null(one);
    const uint64_t hash = hash_of(&one->problem);
    for (size_t i = 0; i < sizeof(gk_problem); i++) {
        gk_problem other = one->problem;
        ((unsigned char *)&other)[i] ^= 1;
        /* Even under the same hash. */
        assert_null(gki_table_find(&table, &other, hash));
    }
    assert_ptr_equal(gki_table_find(&table, &one->problem, hash), one);
    gki_table_free(&table);
}

static void test_equal_hashes(void **state)
{
    (void)state;
    enum { N = 300 };
    gki_table table;
    assert_gk_ok(gki_table_init(&table));
    for (int64_t m = 0; m < N; m++) {
        gki_entry *entry = entry_of(m);
        assert_non_null(entry);
        /* All start at the last slot, so that the search wraps around. */
        assert_gk_ok(gki_table_insert(&table, entry, UINT64_MAX));
    }
    for (int64_t m = 0; m < N; m++) {
        const gk_problem problem = problem_of(m);
        const gki_entry *entry = gki_table_find(&table, &problem, UINT64_MAX);
        assert_non_null(entry);
        assert_int_equal(entry->problem.dims[0], m);
    }
    const gk_problem absent = problem_of(N);
    assert_null(gki_table_find(&table, &absent, UINT64_MAX));
    gki_table_free(&table);
}

static void test_replace(void **state)
{
    (void)state;
    gki_table table;
    assert_gk_ok(gki_table_init(&table));
    gki_entry *old = insert(&table, 7, 1);
    gki_entry *newer = insert(&table, 7, 2);
    gki_entry *newest = insert(&table, 7, 3);
    assert_non_null(newest);
    assert_ptr_equal(find(&table, 7), newest);
    assert_int_equal(table.count, 1);
    /* Whoever holds an older one may go on with it. */
    assert_true(old->seconds == 1 && newer->seconds == 2);
    /* Also after the table has moved. */
    for (int64_t m = 100; m < 1100; m++) {
        assert_non_null(insert(&table, m, (double)m));
    }
    assert_ptr_equal(find(&table, 7), newest);
    assert_true(old->seconds == 1 && newer->seconds == 2);
    gki_table_free(&table);
}

static void test_many(void **state)
{
    (void)state;
    gki_table table;
    assert_gk_ok(gki_table_init(&table));
    for (int64_t m = 0; m < MANY; m++) {
        assert_non_null(insert(&table, m, (double)m));
    }
    assert_int_equal(table.count, MANY);
    for (int64_t m = 0; m < MANY; m++) {
        const gki_entry *entry = find(&table, m);
        assert_non_null(entry);
        assert_true(entry->seconds == (double)m);
    }
    assert_null(find(&table, MANY));
    gki_table_free(&table);
}

static void test_out_of_memory(void **state)
{
    (void)state;
    gki_table table;
    gki_alloc_fail_at(1);
    assert_gk_err(gki_table_init(&table), GK_ERR_NOMEM, NULL);
    gki_alloc_fail_at(0);
    assert_gk_ok(gki_table_init(&table));
    int64_t m = 0;
    for (; m < MANY; m++) {
        gki_entry *entry = entry_of(m);
        assert_non_null(entry);
        gki_alloc_fail_at(1);
        const gk_status status = gki_table_insert(&table, entry, hash_of(&entry->problem));
        gki_alloc_fail_at(0);
        if (status != GK_OK) {
            assert_int_equal(status, GK_ERR_NOMEM);
            gki_free(entry);
            break;
        }
    }
    /* The table was full and has stayed as it was. */
    assert_in_range(m, 100, MANY - 1);
    assert_int_equal(table.count, m);
    assert_null(find(&table, m));
    assert_non_null(find(&table, 0));
    assert_non_null(insert(&table, m, 1));
    assert_non_null(find(&table, m));
    gki_table_free(&table);
}

typedef struct readers {
    gki_table table;
    atomic_int_fast64_t written; /* problems below are there */
    atomic_int_fast64_t wrong;
    atomic_int_fast64_t hits;
    pthread_barrier_t start;
} readers;

static void *read_all(void *user)
{
    readers *r = user;
    uint64_t seed = (uint64_t)(uintptr_t)&r;
    (void)pthread_barrier_wait(&r->start);
    for (;;) {
        const int64_t written = atomic_load(&r->written);
        for (int i = 0; i < 64 && written > 0; i++) {
            seed = seed * UINT64_C(6364136223846793005) + 1;
            const int64_t m = (int64_t)((seed >> 33) % (uint64_t)written);
            const gki_entry *entry = find(&r->table, m);
            if (entry == NULL || entry->problem.dims[0] != m || entry->seconds < (double)m) {
                atomic_fetch_add(&r->wrong, 1);
            }
            atomic_fetch_add(&r->hits, 1);
        }
        if (find(&r->table, MANY + 1) != NULL) {
            atomic_fetch_add(&r->wrong, 1);
        }
        if (written == MANY) {
            return NULL;
        }
    }
}

static void test_readers_beside_a_writer(void **state)
{
    (void)state;
    static readers r;
    pthread_t threads[READERS];
    assert_gk_ok(gki_table_init(&r.table));
    assert_int_equal(pthread_barrier_init(&r.start, NULL, READERS + 1), 0);
    for (int i = 0; i < READERS; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, read_all, &r), 0);
    }
    (void)pthread_barrier_wait(&r.start);
    for (int64_t m = 0; m < MANY; m++) {
        assert_non_null(insert(&r.table, m, (double)m));
        if (m % 16 == 0) {
            assert_non_null(insert(&r.table, m / 2, (double)m)); /* replaces */
        }
        atomic_store(&r.written, m + 1);
    }
    for (int i = 0; i < READERS; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    }
    assert_int_equal(atomic_load(&r.wrong), 0);
    assert_true(atomic_load(&r.hits) >= READERS * 64);
    assert_int_equal(r.table.count, MANY);
    gki_table_free(&r.table);
    (void)pthread_barrier_destroy(&r.start);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_empty),
        cmocka_unit_test(test_insert_and_find),
        cmocka_unit_test(test_every_byte_counts),
        cmocka_unit_test(test_equal_hashes),
        cmocka_unit_test(test_replace),
        cmocka_unit_test(test_many),
        cmocka_unit_test(test_out_of_memory),
        cmocka_unit_test(test_readers_beside_a_writer),
    };
    return GK_TEST_MAIN(tests);
}
