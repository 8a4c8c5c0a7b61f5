/* The host side of matmul's gemv variant: what the second-level cache is told to fetch. */
#include "devices.h"
#include "gk_test.h"

#include <string.h>

#include <gk/extend.h>

#include "jit/jit.h"
#include "op/matmul.h"

static gk_device_info device;
static gk_problem problem;

static int fresh(void **state)
{
    (void)state;
    device = fake_h100;
    memset(&problem, 0, sizeof(problem));
    problem.dims[MATMUL_M] = 1;
    problem.dims[MATMUL_N] = 4096;
    problem.dims[MATMUL_K] = 4096;
    for (int i = MATMUL_A; i <= MATMUL_C; i++) {
        problem.dtype[i] = GK_BF16;
        problem.align[i] = 16;
    }
    problem.layout[MATMUL_B] = GK_LAYOUT_COL; /* rows of weights of 4096 */
    return 0;
}

/* Configurations whose warps read 64 or 128 bytes of a row at once fetch so much, others 128; no
 * other size is served. */
static void assert_fetches(int32_t of_short_pieces)
{
    const gk_variant *v = &gki_matmul_gemv;
    gki_config_walk walk;
    uint32_t lanes = 0, fetch = 0, found[2] = {0, 0};
    while (strcmp(v->params[lanes].name, "LANES") != 0) {
        lanes++;
    }
    while (strcmp(v->params[fetch].name, "FETCH") != 0) {
        fetch++;
    }
    for (bool more = gki_config_first(&walk, v); more;) {
        const bool served = v->check(&problem, &device, &walk.config, NULL);
        const bool is_short = walk.config.values[lanes] * 16 <= 128;
        if (served) {
            assert_int_equal(walk.config.values[fetch], is_short ? of_short_pieces : 128);
            found[is_short]++;
        }
        more = gki_config_next(&walk, served);
    }
    assert_in_range(found[0], 10, 1000);
    assert_in_range(found[1], 10, 1000);
}

static void slow_memory_fetches_more_of_short_pieces(void **state)
{
    (void)state;
    assert_fetches(256);
}

static void fast_memory_does_not(void **state)
{
    (void)state;
    device = fake_h200;
    assert_fetches(128);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(slow_memory_fetches_more_of_short_pieces, fresh),
        cmocka_unit_test_setup(fast_memory_does_not, fresh),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
