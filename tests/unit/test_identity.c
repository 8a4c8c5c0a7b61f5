/* What a stored answer depends on, seen through whole contexts on one cache file: each change of
 * device, compiler or template misses and keeps the old row, and changing it back hits. */
#define _GNU_SOURCE
#include "api_case.h"

static gk_device_info first; /* as it is before a test changes it */
static uint64_t answers;

static int set_up(void **state)
{
    const api_fixture *f = api_set_up(state, small_device(), 16);
    (void)snprintf(f->fake->info.name, sizeof(f->fake->info.name), "NVIDIA H100 80GB HBM3");
    first = f->fake->info;
    answers = 0;
    return 0;
}

static void check_rows(api_fixture *f)
{
    expect_rows(f, "choice", answers);
    expect_query(f->path, "PRAGMA integrity_check", "ok");
}

static void expect_hit(api_fixture *f)
{
    gk_context *ctx = context_on(f->fake, GK_MODE_CACHED, f->path, NULL);
    square_run(ctx, f->s);
    assert_int_equal(stats_of(ctx).compiles, 0);
    assert_int_equal(stats_of(ctx).hits_cache, 1);
    assert_string_equal(stats_of(ctx).cache_degraded, "");
    gk_context_destroy(&ctx);
    check_rows(f);
}

/* Misses, tunes, hits. *compiles: of the tuning. */
static void expect_miss(api_fixture *f, uint64_t *compiles)
{
    gk_context *ctx = context_on(f->fake, GK_MODE_CACHED, f->path, NULL);
    square_poison(f->s);
    assert_gk_err(gk_matmul(ctx, &f->s->ta, &f->s->tb, &f->s->tc, NULL, NULL), GK_ERR_UNTUNED,
                  NULL);
    assert_true(square_is_untouched(f->s));
    gk_context_destroy(&ctx);
    check_rows(f);
    ctx = context_on(f->fake, GK_MODE_TUNE, f->path, NULL);
    square_run(ctx, f->s);
    assert_int_equal(stats_of(ctx).tunes, 1);
    if (compiles != NULL) {
        *compiles = stats_of(ctx).compiles;
    }
    gk_context_destroy(&ctx);
    answers++;
    check_rows(f);
    expect_hit(f);
}

/* Everything a name or a place may change without changing the device. */
static void test_names_do_not_count(void **state)
{
    api_fixture *f = *state;
    expect_miss(f, NULL);
    f->fake->info.ordinal = 1;
    expect_hit(f);
    f->fake->info.driver_version = 12080;
    expect_hit(f);
    static const char *const names[] = {"NVIDIA H100 80GB HBM3 ", "it's; DROP TABLE choice; --", "",
                                        "a \"quoted\" 100% name\n"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        (void)snprintf(f->fake->info.name, sizeof(f->fake->info.name), "%s", names[i]);
        expect_hit(f);
    }
    memset(f->fake->info.name, 'x', 255);
    f->fake->info.name[255] = '\0';
    expect_hit(f);
}

static void test_devices(void **state)
{
    api_fixture *f = *state;
    uint64_t compiles = 0;
    expect_miss(f, &compiles);
    assert_true(compiles > 0);
    /* A slice of it, under the same name: another answer from the same code. */
    f->fake->info.sm_count = 16;
    expect_miss(f, &compiles);
    assert_int_equal(compiles, 0);
    /* Another product of the same generation. */
    f->fake->info = first;
    (void)snprintf(f->fake->info.name, sizeof(f->fake->info.name), "NVIDIA H100 PCIe");
    f->fake->info.sm_count = 114;
    expect_miss(f, NULL);
    /* The first one's name on an older generation: code of the one is not loaded on the other. */
    f->fake->info = first;
    f->fake->info.cc = 80;
    (void)snprintf(f->fake->info.arch, sizeof(f->fake->info.arch), "sm_80");
    expect_miss(f, &compiles);
    assert_true(compiles > 0);
    f->fake->info = first;
    f->fake->info.l2_bytes *= 2;
    expect_miss(f, NULL);
    f->fake->info = first;
    f->fake->info.smem_per_block_optin -= 16;
    expect_miss(f, NULL);
    f->fake->info = first;
    f->fake->info.memory_bus_bits = 4096;
    expect_miss(f, NULL);
    f->fake->info = first;
    expect_hit(f);
    f->fake->info.sm_count = 114;
    expect_hit(f);
}

static void test_compilers(void **state)
{
    static const char *const compilers[] = {
        "nvrtc 12.9", "nvrtc 13.0 ", "nvrtc 13.0'\" options=1",
        /* As long as they come, and different in the last place only. */
        "nvrtc 13.0 aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa1",
        "nvrtc 13.0 aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa2"};
    api_fixture *f = *state;
    expect_miss(f, NULL);
    for (size_t i = 0; i < sizeof(compilers) / sizeof(compilers[0]); i++) {
        uint64_t compiles = 0;
        (void)snprintf(f->fake->info.compiler, sizeof(f->fake->info.compiler), "%s", compilers[i]);
        expect_miss(f, &compiles);
        assert_true(compiles > 0);
    }
    f->fake->info = first;
    expect_hit(f);
}

static void test_templates(void **state)
{
    api_fixture *f = *state;
    const char *directory = gk_test_path("templates");
    char *text = NULL;
    uint64_t compiles = 0;
    expect_miss(f, NULL);
    assert_int_equal(mkdir(directory, 0700), 0);
    assert_int_equal(setenv("GK_TEMPLATE_DIR", directory, 1), 0);
    expect_hit(f);
    assert_gk_ok(gki_template_expand("matmul_simt.cu", "cuda", &text));
    gk_test_write(gk_test_path("templates/matmul_simt.cu"), text, strlen(text));
    expect_miss(f, &compiles);
    assert_true(compiles > 0);
    /* One character more. */
    const size_t length = strlen(text);
    text[length] = '\n'; /* in the terminator's place */
    gk_test_write(gk_test_path("templates/matmul_simt.cu"), text, length + 1);
    text[length] = '\0';
    expect_miss(f, &compiles);
    assert_true(compiles > 0);
    gk_test_write(gk_test_path("templates/matmul_simt.cu"), text, strlen(text));
    expect_hit(f);
    assert_int_equal(unsetenv("GK_TEMPLATE_DIR"), 0);
    expect_hit(f);
    gki_free(text);
}

/* The same shape in another layout, alignment, type of epilogue: an answer each. */
static void test_problems(void **state)
{
    api_fixture *f = *state;
    square *s = f->s;
    expect_miss(f, NULL);
    gk_context *ctx = context_on(f->fake, GK_MODE_TUNE, f->path, NULL);
    const gk_tensor ta = s->ta;
    square_poison(s);
    assert_gk_ok(gk_matmul_relu(ctx, &s->ta, &s->tb, &s->tc, NULL));
    assert_true(square_is_right(s, true));
    assert_int_equal(stats_of(ctx).tunes, 1);
    /* a by columns: i + k is symmetric, so the product is the same. */
    s->ta = gk_transposed(&ta);
    square_run(ctx, s);
    assert_int_equal(stats_of(ctx).tunes, 2);
    /* 4 bytes further on. */
    memmove(s->a + 1, s->a, sizeof(float) * 16 * 16);
    s->ta = gk_matrix(s->a + 1, GK_F32, 16, 16);
    square_run(ctx, s);
    assert_int_equal(stats_of(ctx).tunes, 3);
    square_run(ctx, s);
    assert_int_equal(stats_of(ctx).tunes, 3);
    /* An aligned pointer again: a hit. */
    memmove(s->a, s->a + 1, sizeof(float) * 16 * 16);
    s->ta = ta;
    square_run(ctx, s);
    assert_int_equal(stats_of(ctx).tunes, 3);
    assert_int_equal(stats_of(ctx).hits_cache, 1);
    gk_context_destroy(&ctx);
    answers += 3;
    check_rows(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        API_TEST(test_names_do_not_count), API_TEST(test_devices),  API_TEST(test_compilers),
        API_TEST(test_templates),          API_TEST(test_problems),
    };
    return GK_TEST_MAIN(tests);
}
