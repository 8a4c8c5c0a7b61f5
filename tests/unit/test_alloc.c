#include "support/gk_test.h"

#include <string.h>

#include "base/alloc.h"

static void test_sizes(void **state)
{
    (void)state;
    int64_t before = gki_alloc_count();
    void *empty = gki_alloc(0);
    void *none = gki_calloc(0, 8);
    unsigned char *zeroed = gki_calloc(3, 5);
    void *aligned = gki_alloc_aligned(256, 7);
    char *copy = gki_strdup("tile");
    assert_non_null(empty);
    assert_non_null(none);
    assert_non_null(zeroed);
    static const unsigned char zeros[15];
    assert_memory_equal(zeroed, zeros, sizeof zeros);
    assert_non_null(aligned);
    assert_int_equal((uintptr_t)aligned % 256, 0);
    assert_string_equal(copy, "tile");
    copy = gki_realloc(copy, 4096);
    assert_non_null(copy);
    assert_string_equal(copy, "tile");
    assert_int_equal(gki_alloc_count() - before, 6);
    gki_free(empty);
    gki_free(none);
    gki_free(zeroed);
    gki_free(aligned);
    gki_free(copy);
    gki_free(NULL);
}

static void test_overflow(void **state)
{
    (void)state;
    volatile size_t huge = SIZE_MAX / 2 + 2;
    assert_null(gki_calloc(huge, 2));
}

static void test_large_pages(void **state)
{
    (void)state;
    const int64_t before = gki_alloc_count();
    unsigned char *memory = gki_alloc_huge(GKI_HUGE_PAGE + 1);
    assert_non_null(memory);
    assert_int_equal((uintptr_t)memory % GKI_HUGE_PAGE, 0);
    memset(memory, 1, GKI_HUGE_PAGE + 1);
    gki_free(memory);
    assert_int_equal(gki_alloc_count() - before, 1);
    gki_alloc_fail_at(1);
    assert_null(gki_alloc_huge(1));
    gki_alloc_fail_at(0);
    volatile size_t huge = SIZE_MAX;
    assert_null(gki_alloc_huge(huge));
}

static void test_failure_injection(void **state)
{
    (void)state;
    gki_alloc_fail_at(2);
    void *first = gki_alloc(1);
    void *second = gki_alloc(1);
    void *third = gki_alloc(1);
    gki_alloc_fail_at(0);
    assert_non_null(first);
    assert_null(second);
    assert_non_null(third);
    char *kept = gki_strdup("kept");
    gki_alloc_fail_at(1);
    assert_null(gki_realloc(kept, 100));
    assert_string_equal(kept, "kept");
    gki_free(first);
    gki_free(third);
    gki_free(kept);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_overflow),
        cmocka_unit_test(test_large_pages),
        cmocka_unit_test(test_failure_injection),
    };
    return GK_TEST_MAIN(tests);
}
