#include "base/rng.h"

#include <math.h>

static uint64_t rotate(uint64_t x, int bits)
{
    return (x << bits) | (x >> (64 - bits));
}

void gki_rng_seed(gki_rng *rng, uint64_t seed)
{
    for (int i = 0; i < 4; i++) {
        seed += UINT64_C(0x9e3779b97f4a7c15);
        uint64_t z = seed;
        z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
        z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
        rng->state[i] = z ^ (z >> 31);
    }
}

uint64_t gki_rng_next(gki_rng *rng)
{
    uint64_t *s = rng->state;
    uint64_t result = rotate(s[1] * 5, 7) * 9;
    uint64_t shifted = s[1] << 17;
    s[2] ^= s[0];
    s[3] ^= s[1];
    s[1] ^= s[2];
    s[0] ^= s[3];
    s[2] ^= shifted;
    s[3] = rotate(s[3], 45);
    return result;
}

uint64_t gki_rng_below(gki_rng *rng, uint64_t bound)
{
    if (bound == 0) {
        return 0;
    }
    /* The first 2^64 mod bound values would be hit once too often. */
    uint64_t excess = (0 - bound) % bound;
    uint64_t value = gki_rng_next(rng);
    while (value < excess) {
        value = gki_rng_next(rng);
    }
    return value % bound;
}

double gki_rng_uniform(gki_rng *rng)
{
    return (double)(gki_rng_next(rng) >> 11) * 0x1p-53;
}

/* Marsaglia's polar method. */
double gki_rng_normal(gki_rng *rng)
{
    double x = 0;
    double square = 0;
    while (square >= 1 || square <= 0) {
        x = 2 * gki_rng_uniform(rng) - 1;
        double y = 2 * gki_rng_uniform(rng) - 1;
        square = x * x + y * y;
    }
    return x * sqrt(-2 * log(square) / square);
}
