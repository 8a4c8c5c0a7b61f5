#include "support/gk_test.h"

#include <stdatomic.h>

#include "base/clock.h"
#include "base/thread.h"
#include "support/parallel.h"

enum { COUNT = 1000 };

typedef struct counters {
    _Atomic int runs[COUNT];
    _Atomic int total;
} counters;

static void count_one(void *user, uint32_t index)
{
    counters *c = user;
    atomic_fetch_add(&c->runs[index], 1);
    atomic_fetch_add(&c->total, 1);
}

static void check_runs(uint32_t threads, uint32_t count)
{
    static counters c;
    for (int i = 0; i < COUNT; i++) {
        atomic_store(&c.runs[i], 0);
    }
    atomic_store(&c.total, 0);
    run_parallel(threads, count, count_one, &c);
    assert_int_equal(atomic_load(&c.total), count);
    for (uint32_t i = 0; i < COUNT; i++) {
        assert_int_equal(atomic_load(&c.runs[i]), i < count ? 1 : 0);
    }
}

static void test_each_once(void **state)
{
    (void)state;
    check_runs(1, COUNT);
    check_runs(0, 5);
    check_runs(8, COUNT);
    check_runs(8, 3);
    check_runs(4, 0);
    check_runs(2, 1);
}

typedef struct meeting {
    _Atomic int here;
    _Atomic int together;
} meeting;

/* Each waits until another one is there too. */
static void meet(void *user, uint32_t index)
{
    (void)index;
    meeting *m = user;
    atomic_fetch_add(&m->here, 1);
    uint64_t end = gki_clock_ns() + UINT64_C(10000000000);
    while (atomic_load(&m->here) < 2 && gki_clock_ns() < end) {
    }
    if (atomic_load(&m->here) >= 2) {
        atomic_fetch_add(&m->together, 1);
    }
}

static void test_in_parallel(void **state)
{
    (void)state;
    meeting m = {0};
    run_parallel(2, 2, meet, &m);
    assert_int_equal(atomic_load(&m.together), 2);
}

static void test_cpu_count(void **state)
{
    (void)state;
    assert_in_range(gki_cpu_count(), 1, 65536);
}

static void test_clock(void **state)
{
    (void)state;
    uint64_t before = gki_clock_ns();
    uint64_t after = gki_clock_ns();
    assert_true(after >= before);
    assert_true(gki_clock_wall() > INT64_C(1700000000));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_once),
        cmocka_unit_test(test_in_parallel),
        cmocka_unit_test(test_cpu_count),
        cmocka_unit_test(test_clock),
    };
    return GK_TEST_MAIN(tests);
}
