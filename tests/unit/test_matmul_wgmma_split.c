/* The host side of matmul's wgmma_split variant: configurations, launches, maps and its model. */
#include "devices.h"
#include "gk_test.h"

#include <string.h>

#include <gk/extend.h>
#include <gk/ops.h>

#include "op/matmul.h"

enum { BLOCK_M, BLOCK_N, SLICES, CLUSTER_K };

static gk_device_info device;
static unsigned char memory[64] __attribute__((aligned(64)));

static struct {
    gk_tensor a, b, c;
    gk_call call;
    gk_problem problem;
} f;

static int fresh(void **state)
{
    (void)state;
    memset(&f, 0, sizeof(f));
    device = fake_h100;
    return 0;
}

/* Row-major ('n') or column-major ('t'); the tensors are never read. */
static gk_tensor matrix(gk_dtype dtype, int64_t rows, int64_t cols, char layout)
{
    return layout == 'n' ? gk_matrix_strided(memory, dtype, rows, cols, cols, 1)
                         : gk_matrix_strided(memory, dtype, rows, cols, 1, rows);
}

static void pose(gk_dtype dtype, const char *layout, int64_t m, int64_t n, int64_t k)
{
    f.a = matrix(dtype, m, k, layout[0]);
    f.b = matrix(dtype, k, n, layout[1]);
    f.c = matrix(dtype, m, n, 'n');
    f.c.data = (void *)(uintptr_t)0x7f0000000000;
    f.call.args[MATMUL_A] = &f.a;
    f.call.args[MATMUL_B] = &f.b;
    f.call.args[MATMUL_C] = &f.c;
    f.call.attrs[MATMUL_ALPHA] = 1;
    memset(&f.problem, 0, sizeof(f.problem));
    assert_gk_ok(gk_op_find("matmul", NULL)->infer(&f.call, &f.problem));
}

static gk_config config(int32_t m, int32_t n, int32_t slices, int32_t cluster_k)
{
    return (gk_config){{m, n, slices, cluster_k}};
}

static gk_launch launch_of(const gk_config *c)
{
    gk_launch launch = {0};
    gk_reason reason = {""};
    assert_true(gki_matmul_wgmma_split.check(&f.problem, &device, c, &reason));
    gki_matmul_wgmma_split.launch(&f.problem, &device, c, &launch);
    return launch;
}

static void launches(void **state)
{
    (void)state;
    pose(GK_F32, "nn", 500, 300, 1024);
    gk_config c = config(64, 32, 3, 1);
    gk_launch launch = launch_of(&c);
    assert_int_equal(launch.grid, 8 * 10);
    assert_int_equal(launch.threads, 3 * 128 + 32);
    assert_int_equal(launch.cluster, 0);
    assert_int_equal(launch.overlap, 1);
    /* 6 stages of 24 KiB: 7 would fit, but teams take fixed places of the ring. */
    assert_int_equal(launch.smem, 6 * 96 * 256 + 3 * 3 * 32 * 128 + 256);
    c = config(128, 64, 1, 4);
    launch = launch_of(&c);
    assert_int_equal(launch.grid, 4 * 5 * 4);
    assert_int_equal(launch.threads, 2 * 128 + 32);
    assert_int_equal(launch.cluster, 4);
    assert_int_equal(launch.smem, 3 * 192 * 256 + 3 * 64 * 128 + 128 * 16 * 4 * 3 + 256);
}

/* Shared memory suffices, stages are shared evenly, the model says something. */
static void every_launch_fits(void **state)
{
    (void)state;
    static const char *const layouts[] = {"nn", "nt", "tn", "tt"};
    const gk_variant *v = &gki_matmul_wgmma_split;
    uint32_t valid = 0;
    for (size_t l = 0; l < 4; l++) {
        pose(GK_F32, layouts[l], 512, 512, 2048);
        for (uint32_t i = 0; i < 2u * 4 * 3 * 3; i++) {
            const gk_config c =
                config(v->params[BLOCK_M].values[i % 2], v->params[BLOCK_N].values[i / 2 % 4],
                       v->params[SLICES].values[i / 8 % 3], v->params[CLUSTER_K].values[i / 24]);
            gk_reason reason = {""};
            if (!v->check(&f.problem, &device, &c, &reason)) {
                assert_true(reason.text[0] != '\0');
                continue;
            }
            const gk_launch launch = launch_of(&c);
            assert_in_range(launch.smem, 1, device.smem_per_block_optin);
            assert_in_range(v->model(&f.problem, &device, &c) * 1e9, 1000, 1000000);
            valid++;
        }
    }
    assert_int_equal(valid, 2 * 33 + 2 * 27);
}

static void maps_follow_the_layouts(void **state)
{
    (void)state;
    gk_map_desc maps[3];
    const gk_config c = config(128, 96, 1, 1);
    pose(GK_F32, "nn", 512, 256, 1024);
    memset(maps, 0xff, sizeof(maps));
    assert_true(gki_matmul_wgmma_split.maps(&f.call, &f.problem, &device, &c, NULL, maps));
    assert_int_equal(maps[0].dims[0], 1024); /* along K, all rows */
    assert_int_equal(maps[0].dims[1], 512);
    assert_int_equal(maps[0].box[0], 32);
    assert_int_equal(maps[0].box[1], 128);
    assert_int_equal(maps[1].dims[0], 256); /* along N, all of K */
    assert_int_equal(maps[1].box[0], 32);
    assert_int_equal(maps[1].box[1], 64);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(maps[i].swizzle, 128);
        assert_int_equal(maps[i].l2_promotion, 256);
        assert_false(maps[i].tf32);
    }
    pose(GK_F32, "tt", 512, 256, 1024);
    assert_true(gki_matmul_wgmma_split.maps(&f.call, &f.problem, &device, &c, NULL, maps));
    assert_int_equal(maps[0].dims[0], 512);
    assert_int_equal(maps[0].box[1], 64);
    assert_int_equal(maps[1].dims[0], 1024);
    assert_int_equal(maps[1].box[1], 96);
}

static void refuses(const gk_config *c, const char *text)
{
    gk_reason reason = {""};
    assert_false(gki_matmul_wgmma_split.check(&f.problem, &device, c, &reason));
    if (strstr(reason.text, text) == NULL) {
        fail_msg("the reason is \"%s\", not \"%s\"", reason.text, text);
    }
}

static void reasons(void **state)
{
    (void)state;
    gk_config c = config(128, 64, 2, 1);
    pose(GK_F32, "nn", 512, 512, 512);
    refuses(&c, "4 warpgroups a block");
    c = config(128, 128, 1, 1);
    refuses(&c, "128 columns, 96 at most");
    c = config(64, 64, 3, 1);
    refuses(&c, "64 columns, 32 at most");
    /* Columns of A are read element by element. */
    c = config(64, 96, 2, 1);
    pose(GK_F32, "tn", 512, 512, 512);
    refuses(&c, "96 columns, 64 at most");
    pose(GK_F32, "nn", 512, 512, 200);
    c = config(64, 32, 3, 2);
    refuses(&c, "K is shared by 6, it has 4 tiles");
    pose(GK_F32, "nn", 512, 511, 512);
    refuses(&c, "b has no rows at multiples of 16 bytes");
    pose(GK_F16, "nn", 512, 512, 512);
    refuses(&c, "a is f16");
    device.cc = 100;
    pose(GK_F32, "nn", 512, 512, 512);
    refuses(&c, "9.0");
}

#define rule(name) cmocka_unit_test_setup(name, fresh)

int main(void)
{
    const struct CMUnitTest tests[] = {
        rule(launches),
        rule(every_launch_fits),
        rule(maps_follow_the_layouts),
        rule(reasons),
    };
    return GK_TEST_MAIN(tests);
}
