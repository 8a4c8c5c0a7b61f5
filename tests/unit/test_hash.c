#include "support/gk_test.h"

#include <stdlib.h>
#include <string.h>

#include "base/hash.h"

static void check(const void *data, size_t size, const char *expected)
{
    char hex[65];
    memset(hex, '#', sizeof hex);
    gki_digest digest = gki_sha256(data, size);
    gki_digest_hex(&digest, hex);
    assert_string_equal(hex, expected);
}

/* The vectors of FIPS 180-2, appendix B, and the empty message. */
static void test_sha256(void **state)
{
    (void)state;
    check(NULL, 0, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    check("abc", 3, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    check("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq", 56,
          "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
    size_t size = 1000000;
    char *million = malloc(size);
    assert_non_null(million);
    memset(million, 'a', size);
    check(million, size, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
    free(million);
}

static void test_hash64(void **state)
{
    (void)state;
    unsigned char key[64] = {0};
    uint64_t base = gki_hash64(key, sizeof key);
    assert_true(base == gki_hash64(key, sizeof key));
    /* Every byte counts, and so does the length. */
    for (size_t i = 0; i < sizeof key; i++) {
        key[i] = 1;
        assert_true(gki_hash64(key, sizeof key) != base);
        key[i] = 0;
    }
    for (size_t size = 0; size < sizeof key; size++) {
        assert_true(gki_hash64(key, size) != base);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sha256),
        cmocka_unit_test(test_hash64),
    };
    return GK_TEST_MAIN(tests);
}
