#ifndef GKI_CLOCK_H
#define GKI_CLOCK_H

#include <stdint.h>

/* Monotonic nanoseconds. */
uint64_t gki_clock_ns(void);
/* Seconds since 1970. */
int64_t gki_clock_wall(void);
/* Returns early if a signal handler runs. */
void gki_clock_sleep_ms(int64_t ms);

#endif
