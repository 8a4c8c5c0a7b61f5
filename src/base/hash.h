/* SHA-256 for what is trusted, a fast 64-bit hash for tables. */
#ifndef GKI_HASH_H
#define GKI_HASH_H

#include <stddef.h>
#include <stdint.h>

typedef struct gki_digest {
    unsigned char bytes[32];
} gki_digest;

gki_digest gki_sha256(const void *data, size_t size);
/* 64 hexadecimal digits and a NUL. */
void gki_digest_hex(const gki_digest *digest, char out[65]);

/* Not for untrusted keys and never stored. */
static inline uint64_t gki_hash64(const void *data, size_t size)
{
    const unsigned char *p = data;
    uint64_t h = 0x9e3779b97f4a7c15u ^ size;
    while (size >= 8) {
        uint64_t word;
        __builtin_memcpy(&word, p, 8);
        h = (h ^ word) * 0xff51afd7ed558ccdu;
        h ^= h >> 32;
        p += 8;
        size -= 8;
    }
    while (size > 0) {
        h = (h ^ *p) * 0xff51afd7ed558ccdu;
        p++;
        size--;
    }
    return h ^ (h >> 29);
}

#endif
