/* Reproducible random numbers (xoshiro256**, seeded by splitmix64; Blackman and Vigna). */
#ifndef GKI_RNG_H
#define GKI_RNG_H

#include <stdint.h>

typedef struct gki_rng {
    uint64_t state[4];
} gki_rng;

void gki_rng_seed(gki_rng *rng, uint64_t seed);
uint64_t gki_rng_next(gki_rng *rng);
uint64_t gki_rng_below(gki_rng *rng, uint64_t bound); /* 0 to bound - 1, unbiased */
double gki_rng_uniform(gki_rng *rng);                 /* [0, 1) */
double gki_rng_normal(gki_rng *rng);                  /* N(0, 1) */

#endif
