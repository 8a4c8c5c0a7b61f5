/* Configurations: text, strict reading of stored text, checks against the device. */
#include "support/gk_test.h"

#include <string.h>

#include "jit/jit.h"
#include "support/fake_driver.h"
#include "support/toy_op.h"

static gk_device_info device_info(void)
{
    fake_device *fake = fake_device_create();
    const gk_device_info info = fake->info;
    fake_device_destroy(&fake);
    return info;
}

static void test_text_is_sorted_by_name(void **state)
{
    (void)state;
    char text[GKI_CONFIG_TEXT];
    const gk_config config = toy_config(64, 16, 4);
    gki_config_text(&toy_plain, &config, text, sizeof text);
    assert_string_equal(text, "BLOCK_K=16 BLOCK_M=64 SPLIT=4");
}

static void test_text_too_long_is_marked(void **state)
{
    (void)state;
    char text[16];
    const gk_config config = toy_config(64, 16, 4);
    gki_config_text(&toy_plain, &config, text, sizeof text);
    assert_string_equal(text, "BLOCK_K=16 B...");
}

static void test_every_config_reads_back(void **state)
{
    (void)state;
    static const int32_t ms[] = {16, 32, 64};
    static const int32_t ks[] = {8, 16};
    static const int32_t splits[] = {1, 2, 4};
    for (size_t i = 0; i < 18; i++) {
        char text[GKI_CONFIG_TEXT];
        const gk_config config = toy_config(ms[i % 3], ks[i / 3 % 2], splits[i / 6]);
        gk_config back;
        memset(&back, 0xa5, sizeof back);
        gki_config_text(&toy_plain, &config, text, sizeof text);
        assert_true(gki_config_parse(&toy_plain, text, &back));
        assert_memory_equal(&back, &config, sizeof back);
    }
}

static void test_parse_takes_any_order(void **state)
{
    (void)state;
    const gk_config expected = toy_config(64, 16, 4);
    gk_config config = {{0}};
    assert_true(gki_config_parse(&toy_plain, " SPLIT=4 BLOCK_M=64  BLOCK_K=16 ", &config));
    assert_memory_equal(&config, &expected, sizeof config);
}

static void test_parse_refuses(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "",
        "BLOCK_K=16 BLOCK_M=64",
        "BLOCK_K=16 BLOCK_M=64 -DX=1",
        "BLOCK_K=16 BLOCK_M=64 SPLIT=4 -DX=1",
        "BLOCK_K=16 BLOCK_M=64 -DX=1 SPLIT=4",
        "BLOCK_K=16 BLOCK_M=64 -DX=1;SPLIT=4",
        "BLOCK_K=16 BLOCK_K=16 BLOCK_M=64 SPLIT=4",
        "BLOCK_K=16 BLOCK_K=16 BLOCK_M=64",
        "BLOCK_K=16 BLOCK_M=64 SPLIT=4 STAGES=2",
        "BLOCK_K=16 BLOCK_M=64 STAGES=2",
        "BLOCK_K=7 BLOCK_M=7 SPLIT=7",
        "BLOCK_K=16 BLOCK_M=48 SPLIT=4",
        "BLOCK_K=16 BLOCK_M=-64 SPLIT=4",
        "BLOCK_K=16 BLOCK_M=+64 SPLIT=4",
        "BLOCK_K=16 BLOCK_M=064 SPLIT=4",
        "BLOCK_K=16 BLOCK_M=0x40 SPLIT=4",
        "BLOCK_K=16 BLOCK_M=64.0 SPLIT=4",
        "BLOCK_K=16 BLOCK_M=64u SPLIT=4",
        "BLOCK_K=16 BLOCK_M=4294967360 SPLIT=4",
        "BLOCK_K=16 BLOCK_M= SPLIT=4",
        "BLOCK_K=16 BLOCK_M SPLIT=4",
        "BLOCK_K=16 BLOCK_M =64 SPLIT=4",
        "BLOCK_K=16 block_m=64 SPLIT=4",
        "BLOCK_K=16 BLOCK_M=64\nSPLIT=4",
        "BLOCK_K=16\tBLOCK_M=64 SPLIT=4",
        "BLOCK_K=16,BLOCK_M=64,SPLIT=4",
        "=16 BLOCK_M=64 SPLIT=4",
        "BLOCK_K==16 BLOCK_M=64 SPLIT=4",
        "BLOCK_K=16 BLOCK_M=64 SPLIT=4 \"",
    };
    gk_config poison;
    memset(&poison, 0xa5, sizeof poison);
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        gk_config config = poison;
        if (gki_config_parse(&toy_plain, texts[i], &config)) {
            fail_msg("accepted: %s", texts[i]);
        }
        assert_memory_equal(&config, &poison, sizeof config);
    }
    gk_config config = poison;
    assert_false(gki_config_parse(&toy_plain, NULL, &config));
    assert_memory_equal(&config, &poison, sizeof config);
}

static void refused(const gk_variant *variant, gk_config config, const gk_device_info *info,
                    const char *text)
{
    const gk_problem problem = toy_problem();
    gk_reason reason;
    memset(&reason, 'x', sizeof reason);
    assert_false(gki_config_check(variant, &problem, info, &config, &reason));
    assert_string_equal(reason.text, text);
}

static void test_check_accepts(void **state)
{
    (void)state;
    const gk_device_info info = device_info();
    const gk_problem problem = toy_problem();
    const gk_config config = toy_config(64, 16, 4);
    const gk_config wide = {{64}};
    gk_reason reason;
    toy_reset();
    toy_launch = (gk_launch){.grid = INT32_MAX, .threads = 1024, .smem = 232448};
    assert_true(gki_config_check(&toy_plain, &problem, &info, &config, &reason));
    assert_string_equal(reason.text, "");
    toy_launch = (gk_launch){.grid = 1, .threads = 1, .cluster = 1};
    assert_true(gki_config_check(&toy_wide, &problem, &info, &wide, &reason));
    toy_launch = (gk_launch){.grid = 32, .threads = 32, .cluster = 16};
    assert_true(gki_config_check(&toy_wide, &problem, &info, &wide, &reason));
}

static void test_check_refuses(void **state)
{
    (void)state;
    gk_device_info info = device_info();
    const gk_config config = toy_config(64, 16, 4);
    toy_reset();
    refused(&toy_plain, toy_config(7, 16, 4), &info,
            "BLOCK_M=7 is not among the values of variant plain");
    refused(&toy_plain, toy_config(64, 16, -1), &info,
            "SPLIT=-1 is not among the values of variant plain");
    toy_fits = false;
    refused(&toy_plain, config, &info, "toys do not fit");
    toy_fits = true;
    info.smem_per_block_optin = 101376;
    toy_launch = (gk_launch){.grid = 1, .threads = 128, .smem = 101380};
    refused(&toy_plain, config, &info,
            "needs 101380 bytes of shared memory, the device has 101376");
    toy_launch = (gk_launch){.grid = 1, .threads = 1025};
    refused(&toy_plain, config, &info, "needs 1025 threads a block, the device has 1 to 1024");
    toy_launch = (gk_launch){.grid = 1, .threads = 0};
    refused(&toy_plain, config, &info, "needs 0 threads a block, the device has 1 to 1024");
    toy_launch = (gk_launch){.grid = INT64_C(2147483648), .threads = 128};
    refused(&toy_plain, config, &info, "needs 2147483648 blocks, a grid has 1 to 2147483647");
    toy_launch = (gk_launch){.grid = 0, .threads = 128};
    refused(&toy_plain, config, &info, "needs 0 blocks, a grid has 1 to 2147483647");
    toy_launch = (gk_launch){.grid = 12, .threads = 128, .cluster = 8};
    refused(&toy_plain, config, &info, "clusters of 8 blocks do not fit a grid of 12 (limit 16)");
    info.cc = 89;
    refused(&toy_plain, config, &info,
            "needs clusters of 8 blocks, compute capability 8.9 has none");
    refused(&toy_wide, (gk_config){{64}}, &info,
            "needs compute capability 9.0, the device has 8.9");
    toy_reset();
}

/* Overlap is dropped where the device or a cooperative launch does not allow it. */
static void test_launch_as_the_device_can(void **state)
{
    (void)state;
    gk_device_info info = device_info();
    const gk_problem problem = toy_problem();
    const gk_config config = toy_config(64, 16, 4);
    toy_reset();
    for (int32_t cc = 80; cc <= 120; cc += 10) {
        for (int32_t cooperative = 0; cooperative <= 1; cooperative++) {
            gk_launch launch;
            info.cc = cc;
            toy_launch = (gk_launch){.grid = 7, .cooperative = cooperative, .overlap = 1};
            memset(&launch, 0xa5, sizeof launch);
            gki_config_launch(&toy_plain, &problem, &info, &config, &launch);
            toy_launch.overlap = cc >= 90 && cooperative == 0;
            assert_memory_equal(&launch, &toy_launch, sizeof launch);
        }
    }
    toy_reset();
}

static void test_walk(void **state)
{
    (void)state;
    static const int32_t ms[] = {16, 32, 64};
    static const int32_t ks[] = {8, 16};
    static const int32_t splits[] = {1, 2, 4};
    gki_config_walk walk;
    assert_true(gki_config_first(&walk, &toy_plain));
    for (uint32_t i = 0; i < 18; i++) {
        const gk_config expected = toy_config(ms[i / 6], ks[i / 3 % 2], splits[i % 3]);
        assert_memory_equal(&walk.config, &expected, sizeof(expected));
        /* Those that differ at launch are passed over only behind the first of them. */
        assert_int_equal(gki_config_next(&walk, i % 3 == 0), i < 17);
    }
    assert_true(gki_config_first(&walk, &toy_plain));
    for (uint32_t i = 0; i < 6; i++) {
        const gk_config expected = toy_config(ms[i / 2], ks[i % 2], 1);
        assert_memory_equal(&walk.config, &expected, sizeof(expected));
        if (i % 2 == 0) {
            assert_true(gki_config_next(&walk, false));
            continue;
        }
        assert_true(gki_config_next(&walk, true));
        assert_int_equal(walk.config.values[TOY_SPLIT], 2);
        assert_int_equal(gki_config_next_kernel(&walk), i < 5);
    }
}

static void test_walk_of_nothing(void **state)
{
    (void)state;
    gk_param params[TOY_N_PARAMS];
    gk_variant variant = toy_plain;
    gki_config_walk walk;
    variant.n_params = 0;
    assert_true(gki_config_first(&walk, &variant));
    assert_false(gki_config_next(&walk, true));
    assert_false(gki_config_next(&walk, false));
    assert_false(gki_config_next_kernel(&walk));
    memcpy(params, toy_plain.params, sizeof(params));
    params[TOY_BLOCK_K].n_values = 0;
    variant.params = params;
    variant.n_params = TOY_N_PARAMS;
    assert_false(gki_config_first(&walk, &variant));
}

static void test_find_variant(void **state)
{
    (void)state;
    assert_ptr_equal(gki_variant_find(&toy_op, "plain"), &toy_plain);
    assert_ptr_equal(gki_variant_find(&toy_op, "wide"), &toy_wide);
    assert_null(gki_variant_find(&toy_op, "wid"));
    assert_null(gki_variant_find(&toy_op, ""));
    assert_null(gki_variant_find(&toy_op, NULL));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_text_is_sorted_by_name),
        cmocka_unit_test(test_text_too_long_is_marked),
        cmocka_unit_test(test_every_config_reads_back),
        cmocka_unit_test(test_parse_takes_any_order),
        cmocka_unit_test(test_parse_refuses),
        cmocka_unit_test(test_check_accepts),
        cmocka_unit_test(test_check_refuses),
        cmocka_unit_test(test_launch_as_the_device_can),
        cmocka_unit_test(test_walk),
        cmocka_unit_test(test_walk_of_nothing),
        cmocka_unit_test(test_find_variant),
    };
    return GK_TEST_MAIN(tests);
}
