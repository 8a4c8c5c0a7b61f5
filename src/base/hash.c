#include "base/hash.h"

#include <sys/types.h>

#include <sha2.h>

gki_digest gki_sha256(const void *data, size_t size)
{
    gki_digest digest;
    SHA2_CTX context;
    SHA256Init(&context);
    if (size > 0) {
        SHA256Update(&context, data, size);
    }
    SHA256Final(digest.bytes, &context);
    return digest;
}

void gki_digest_hex(const gki_digest *digest, char out[65])
{
    static const char digits[] = "0123456789abcdef";
    for (size_t i = 0; i < sizeof digest->bytes; i++) {
        out[2 * i] = digits[digest->bytes[i] >> 4];
        out[2 * i + 1] = digits[digest->bytes[i] & 15];
    }
    out[64] = '\0';
}
