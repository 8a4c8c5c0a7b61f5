#include "support/gk_test.h"

#include <math.h>

#include "base/rng.h"

/* xoshiro256** by its definition, on a state that can be followed by hand. */
static void test_next(void **state)
{
    (void)state;
    gki_rng rng = {.state = {1, 2, 3, 4}};
    static const uint64_t expected[] = {
        UINT64_C(11520),
        UINT64_C(0),
        UINT64_C(1509978240),
        UINT64_C(1215971899390074240),
        UINT64_C(1216172134540287360),
        UINT64_C(607988272756665600),
    };
    for (size_t i = 0; i < sizeof expected / sizeof expected[0]; i++) {
        assert_true(gki_rng_next(&rng) == expected[i]);
    }
}

static void test_seed(void **state)
{
    (void)state;
    gki_rng rng;
    gki_rng_seed(&rng, 1234567);
    /* The first outputs of splitmix64 for this seed. */
    assert_true(rng.state[0] == UINT64_C(6457827717110365317));
    assert_true(rng.state[1] == UINT64_C(3203168211198807973));
    assert_true(rng.state[2] == UINT64_C(9817491932198370423));
    assert_true(rng.state[3] == UINT64_C(4593380528125082431));
}

static void test_below(void **state)
{
    (void)state;
    gki_rng rng;
    gki_rng_seed(&rng, 1);
    int counts[7] = {0};
    for (int i = 0; i < 70000; i++) {
        uint64_t value = gki_rng_below(&rng, 7);
        assert_true(value < 7);
        counts[value]++;
    }
    for (int i = 0; i < 7; i++) {
        assert_in_range(counts[i], 9600, 10400);
    }
    assert_true(gki_rng_below(&rng, 1) == 0);
    assert_true(gki_rng_below(&rng, 0) == 0);
    uint64_t large = (UINT64_C(1) << 63) + 1;
    for (int i = 0; i < 1000; i++) {
        assert_true(gki_rng_below(&rng, large) < large);
    }
}

static void test_distributions(void **state)
{
    (void)state;
    gki_rng rng;
    gki_rng_seed(&rng, 2);
    enum { COUNT = 100000 };
    double sum = 0;
    double lowest = 1;
    double highest = 0;
    for (int i = 0; i < COUNT; i++) {
        double u = gki_rng_uniform(&rng);
        assert_true(u >= 0 && u < 1);
        lowest = fmin(lowest, u);
        highest = fmax(highest, u);
        sum += u;
    }
    assert_true(fabs(sum / COUNT - 0.5) < 0.005);
    assert_true(lowest < 0.001 && highest > 0.999);
    double squares = 0;
    int beyond = 0;
    sum = 0;
    for (int i = 0; i < COUNT; i++) {
        double z = gki_rng_normal(&rng);
        sum += z;
        squares += z * z;
        beyond += fabs(z) > 1.959964 ? 1 : 0;
    }
    assert_true(fabs(sum / COUNT) < 0.015);
    assert_true(fabs(squares / COUNT - 1) < 0.03);
    assert_in_range(beyond, COUNT / 25, COUNT * 3 / 50);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_next),
        cmocka_unit_test(test_seed),
        cmocka_unit_test(test_below),
        cmocka_unit_test(test_distributions),
    };
    return GK_TEST_MAIN(tests);
}
