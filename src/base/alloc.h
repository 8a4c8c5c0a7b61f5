/* The one seam through which the library allocates, so that failures can be injected. */
#ifndef GKI_ALLOC_H
#define GKI_ALLOC_H

#include <stddef.h>
#include <stdint.h>

enum { GKI_HUGE_PAGE = 2 << 20 };

/* All return NULL when memory is out, or when a test asked for a failure. */
void *gki_alloc(size_t bytes);
void *gki_calloc(size_t count, size_t size); /* zeroed; NULL also if the product overflows */
void *gki_alloc_aligned(size_t alignment, size_t bytes); /* freed with gki_free */
/* Aligned to GKI_HUGE_PAGE, in large pages if the system has them: for what is read at random. */
void *gki_alloc_huge(size_t bytes);
void *gki_realloc(void *p, size_t bytes);
char *gki_strdup(const char *s);
void gki_free(void *p);

/* Test seam: the n-th allocation from now (1 = the next) fails, in any thread; 0 = none. */
void gki_alloc_fail_at(int64_t n);
/* Allocations since the process began. */
int64_t gki_alloc_count(void);

#endif
