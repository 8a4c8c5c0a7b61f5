#define _POSIX_C_SOURCE 200809L
#define _GNU_SOURCE     /* posix_memalign */
#include "base/alloc.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static _Atomic int64_t n_allocations;
static _Atomic int64_t countdown;

static bool must_fail(void)
{
    atomic_fetch_add_explicit(&n_allocations, 1, memory_order_relaxed);
    if (atomic_load_explicit(&countdown, memory_order_relaxed) <= 0) {
        return false;
    }
    return atomic_fetch_sub_explicit(&countdown, 1, memory_order_relaxed) == 1;
}

/* malloc(0) may return NULL, which callers would take for a failure. */
static size_t at_least_one(size_t bytes)
{
    return bytes > 0 ? bytes : 1;
}

void *gki_alloc(size_t bytes)
{
    return must_fail() ? NULL : malloc(at_least_one(bytes));
}

void *gki_calloc(size_t count, size_t size)
{
    size_t bytes = 0;
    if (must_fail() || __builtin_mul_overflow(count, size, &bytes)) {
        return NULL;
    }
    return calloc(at_least_one(bytes), 1);
}

void *gki_alloc_aligned(size_t alignment, size_t bytes)
{
    if (must_fail()) {
        return NULL;
    }
    void *p = NULL;
    if (alignment < sizeof(void *)) {
        alignment = sizeof(void *);
    }
    return posix_memalign(&p, alignment, at_least_one(bytes)) == 0 ? p : NULL;
}

void *gki_alloc_huge(size_t bytes)
{
    if (bytes > SIZE_MAX - GKI_HUGE_PAGE) {
        return NULL;
    }
    bytes = (at_least_one(bytes) + GKI_HUGE_PAGE - 1) / GKI_HUGE_PAGE * GKI_HUGE_PAGE;
    void *p = gki_alloc_aligned(GKI_HUGE_PAGE, bytes);
    if (p != NULL) {
        (void)madvise(p, bytes, MADV_HUGEPAGE);
    }
    return p;
}

void *gki_realloc(void *p, size_t bytes)
{
    return must_fail() ? NULL : realloc(p, at_least_one(bytes));
}

char *gki_strdup(const char *s)
{
    size_t bytes = strlen(s) + 1;
    char *copy = gki_alloc(bytes);
    if (copy != NULL) {
        memcpy(copy, s, bytes);
    }
    return copy;
}

void gki_free(void *p)
{
    free(p);
}

void gki_alloc_fail_at(int64_t n)
{
    atomic_store_explicit(&countdown, n, memory_order_relaxed);
}

int64_t gki_alloc_count(void)
{
    return atomic_load_explicit(&n_allocations, memory_order_relaxed);
}
