/* The host side of matmul's wgmma variant: which configurations there are, what the tensor maps
 * describe, how it is launched, and what its model predicts. */
#include "devices.h"
#include "gk_test.h"

#include <stdio.h>
#include <string.h>

#include <gk/extend.h>
#include <gk/ops.h>

#include "jit/jit.h"
#include "op/matmul_wgmma.h"

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

/* Row-major ('n') or column-major ('t') with `pad` elements between rows. */
static gk_tensor matrix(gk_dtype dtype, int64_t rows, int64_t cols, char layout, int64_t pad)
{
    return layout == 'n' ? gk_matrix_strided(memory, dtype, rows, cols, cols + pad, 1)
                         : gk_matrix_strided(memory, dtype, rows, cols, 1, rows + pad);
}

/* The tensors are never read: memory stands for all of them. */
static void pose(gk_dtype dtype, const char *layout, int64_t m, int64_t n, int64_t k)
{
    f.a = matrix(dtype, m, k, layout[0], 0);
    f.b = matrix(dtype, k, n, layout[1], 0);
    f.c = matrix(dtype == GK_E4M3 ? GK_BF16 : dtype, m, n, 'n', 0);
    f.c.data = (void *)(uintptr_t)0x7f0000000000;
    f.call.args[MATMUL_A] = &f.a;
    f.call.args[MATMUL_B] = &f.b;
    f.call.args[MATMUL_C] = &f.c;
    f.call.attrs[MATMUL_ALPHA] = 1;
    f.call.attrs[MATMUL_MATH] = dtype == GK_F32 ? GK_MATH_TF32 : GK_MATH_DEFAULT;
    memset(&f.problem, 0, sizeof(f.problem));
    assert_gk_ok(gk_op_find("matmul", NULL)->infer(&f.call, &f.problem));
}

static gk_config config(int32_t m, int32_t n, int32_t k)
{
    gk_config c = {{0}};
    for (uint32_t i = 0; i < WGMMA_N_PARAMS; i++) {
        c.values[i] = gki_matmul_wgmma.params[i].values[0];
    }
    c.values[WGMMA_BLOCK_M] = m;
    c.values[WGMMA_BLOCK_N] = n;
    c.values[WGMMA_BLOCK_K] = k;
    c.values[WGMMA_CONSUMERS] = 2;
    return c;
}

typedef void (*visit_fn)(const gk_config *config);

/* Whoever asks why a configuration is refused is told. */
static uint32_t each_valid(visit_fn visit, bool ask)
{
    const gk_variant *v = &gki_matmul_wgmma;
    gki_config_walk walk;
    uint32_t found = 0;
    for (bool more = gki_config_first(&walk, v); more;) {
        gk_reason reason = {""};
        const bool served = v->check(&f.problem, &device, &walk.config, ask ? &reason : NULL);
        if (served) {
            found++;
            visit(&walk.config);
        } else {
            assert_int_equal(reason.text[0] != '\0', ask);
        }
        more = gki_config_next(&walk, served);
    }
    return found;
}

static void check_launch(const gk_config *c)
{
    gk_launch launch = {0};
    gki_matmul_wgmma.launch(&f.problem, &device, c, &launch);
    assert_in_range(launch.smem, 1, device.smem_per_block_optin);
    assert_true(launch.grid >= 1 && launch.grid <= device.sm_count);
    assert_int_equal(launch.grid % launch.cluster, 0);
    assert_int_equal(launch.threads, 128 * (c->values[WGMMA_CONSUMERS] + 1));
    const bool scratch = c->values[WGMMA_SPLIT_K] > 1 || launch.cooperative;
    assert_int_equal(launch.workspace > 0, scratch);
    assert_int_equal(launch.zeroed > 0, scratch);
    assert_true(gki_matmul_wgmma.model(&f.problem, &device, c) > 0);
}

static void every_launch_fits(void **state)
{
    (void)state;
    pose(GK_BF16, "nn", 4096, 4096, 4096);
    assert_in_range(each_valid(check_launch, true), 100, 5000);
    pose(GK_E4M3, "nt", 64, 64, 65536);
    assert_in_range(each_valid(check_launch, true), 100, 10000);
    pose(GK_F32, "nn", 1000, 1000, 1000);
    assert_in_range(each_valid(check_launch, true), 100, 5000);
}

static void maps_of(const gk_config *c, gk_map_desc *maps)
{
    gk_reason reason = {""};
    memset(maps, 0, 3 * sizeof(*maps));
    assert_true(gki_matmul_wgmma.check(&f.problem, &device, c, &reason));
    assert_true(gki_matmul_wgmma.maps(&f.call, &f.problem, &device, c, NULL, maps));
}

static void assert_map(const gk_map_desc *map, int64_t inner, int64_t outer, int64_t pitch,
                       int32_t box_inner, int32_t box_outer, uint32_t swizzle)
{
    assert_non_null(map->data);
    assert_int_equal((uintptr_t)map->data % 16, 0);
    assert_int_equal(map->rank, 2);
    assert_int_equal(map->dims[0], inner);
    assert_int_equal(map->dims[1], outer);
    assert_int_equal(map->strides[1], pitch);
    assert_int_equal(map->box[0], box_inner);
    assert_int_equal(map->box[1], box_outer);
    assert_int_equal(map->swizzle, swizzle);
}

static void maps_follow_the_layouts(void **state)
{
    (void)state;
    gk_map_desc maps[3];
    const gk_config c = config(128, 256, 64);
    pose(GK_BF16, "nn", 512, 1024, 2048);
    maps_of(&c, maps);
    assert_map(&maps[0], 2048, 512, 4096, 64, 128, 128); /* boxes of 64 of K, all rows */
    assert_map(&maps[1], 1024, 2048, 2048, 64, 64, 128); /* of 64 columns, all of K */
    assert_map(&maps[2], 1024, 512, 2048, 64, 64, 128);
    assert_int_equal(maps[0].l2_promotion, 256);
    assert_int_equal(maps[0].tf32, 0);
    pose(GK_BF16, "tt", 512, 1024, 2048);
    maps_of(&c, maps);
    assert_map(&maps[0], 512, 2048, 1024, 64, 64, 128);
    assert_map(&maps[1], 2048, 1024, 4096, 64, 256, 128);
}

static uint32_t promotion_of(const gk_config *c)
{
    gk_map_desc maps[3];
    maps_of(c, maps);
    assert_int_equal(maps[1].l2_promotion, maps[0].l2_promotion);
    return maps[0].l2_promotion;
}

static void fast_memory_reads_no_further_where_many_stages_are_under_way(void **state)
{
    (void)state;
    const gk_config few = config(128, 256, 64); /* 4 stages of 48 KB */
    const gk_config many = config(128, 128, 64);
    pose(GK_BF16, "nt", 512, 1024, 2048);
    assert_int_equal(promotion_of(&few), 256);
    assert_int_equal(promotion_of(&many), 256);
    device = fake_h200;
    assert_int_equal(promotion_of(&few), 256);
    assert_int_equal(promotion_of(&many), 128);
    pose(GK_BF16, "nt", 512, 1024, 2056); /* lines of both operands begin inside 128 bytes */
    assert_int_equal(promotion_of(&few), 128);
    assert_int_equal(promotion_of(&many), 128);
}

static void blocks_of_a_cluster_load_shares(void **state)
{
    (void)state;
    gk_map_desc maps[3];
    gk_config c = config(128, 256, 64);
    c.values[WGMMA_CLUSTER_M] = 2; /* both need the same columns of B */
    pose(GK_BF16, "nn", 512, 1024, 2048);
    maps_of(&c, maps);
    assert_map(&maps[0], 2048, 512, 4096, 64, 128, 128);
    assert_map(&maps[1], 1024, 2048, 2048, 64, 32, 128);
    pose(GK_BF16, "nt", 512, 1024, 2048);
    maps_of(&c, maps);
    assert_map(&maps[1], 2048, 1024, 4096, 64, 128, 128);
}

static void large_clusters(void **state)
{
    (void)state;
    gk_map_desc maps[3];
    gk_launch launch = {0};
    gk_config c = config(72, 128, 64);
    c.values[WGMMA_SWAP] = 1;
    c.values[WGMMA_CLUSTER_M] = 2;
    c.values[WGMMA_CLUSTER_N] = 4;
    pose(GK_BF16, "nn", 1000, 1000, 1000);
    maps_of(&c, maps);
    assert_map(&maps[0], 1000, 1000, 2000, 64, 8, 128); /* 9 times 8 rows for 4 blocks */
    assert_map(&maps[1], 1000, 1000, 2000, 64, 32, 128);
    assert_map(&maps[2], 1000, 1000, 2000, 64, 24, 128);
    gki_matmul_wgmma.launch(&f.problem, &device, &c, &launch);
    assert_int_equal(launch.cluster, 8);
    assert_int_equal(launch.grid, 14 * 8);
    c.values[WGMMA_BLOCK_M] = 64; /* 4 times 16 rows */
    pose(GK_BF16, "nn", 640, 1000, 1000);
    maps_of(&c, maps);
    assert_map(&maps[0], 1000, 640, 2000, 64, 16, 128);
}

static void swapped_c_leaves_by_columns(void **state)
{
    (void)state;
    gk_map_desc maps[3];
    gk_config c = config(16, 128, 64);
    c.values[WGMMA_SWAP] = 1;
    pose(GK_BF16, "nt", 16, 6144, 4096);
    maps_of(&c, maps);
    assert_map(&maps[0], 4096, 16, 8192, 64, 16, 128);
    assert_map(&maps[1], 4096, 6144, 8192, 64, 128, 128);
    assert_map(&maps[2], 6144, 16, 12288, 64, 16, 128);
}

static void f32_is_rounded_by_its_maps(void **state)
{
    (void)state;
    gk_map_desc maps[3];
    gk_config c = config(256, 128, 32);
    c.values[WGMMA_SWAP] = 1;
    pose(GK_F32, "nn", 512, 1024, 2048);
    maps_of(&c, maps);
    assert_map(&maps[0], 2048, 512, 8192, 32, 256, 128);
    assert_map(&maps[1], 1024, 2048, 4096, 32, 32, 128);
    assert_int_equal(maps[0].tf32, 1);
    assert_int_equal(maps[1].tf32, 1);
    assert_int_equal(maps[2].tf32, 0);
}

static void empty_operands_have_maps(void **state)
{
    (void)state;
    gk_map_desc maps[3];
    const gk_config c = config(128, 256, 64);
    pose(GK_BF16, "nn", 512, 1024, 0);
    maps_of(&c, maps);
    assert_map(&maps[0], 1, 512, 16, 64, 128, 128);
    assert_map(&maps[1], 1024, 1, 2048, 64, 64, 128);
    pose(GK_BF16, "nn", 512, 1024, 2048);
    f.a.data = f.b.data = NULL; /* alpha 0: not read */
    maps_of(&c, maps);
    assert_map(&maps[0], 2048, 512, 4096, 64, 128, 128);
}

static void one_row_of_any_stride(void **state)
{
    (void)state;
    gk_map_desc maps[3];
    gk_config c = config(8, 64, 64);
    c.values[WGMMA_SWAP] = 1;
    c.values[WGMMA_CONSUMERS] = 1;
    pose(GK_BF16, "nt", 1, 4096, 4096);
    f.a.stride[0] = 7;
    maps_of(&c, maps);
    assert_map(&maps[0], 4096, 1, 8192, 64, 8, 128);
}

/* TMA would write up to the next multiple of 16 bytes. */
static void ragged_c_is_not_stored_by_tma(void **state)
{
    (void)state;
    gk_map_desc maps[3];
    const gk_config c = config(128, 256, 64);
    for (int64_t n = 1016; n <= 1024; n++) {
        gk_constants constants = {0};
        pose(GK_BF16, "nt", 512, n, 2048);
        f.c = matrix(GK_BF16, 512, n, 'n', 1024 - n);
        f.c.data = (void *)(uintptr_t)0x7f0000000000;
        assert_gk_ok(gk_op_find("matmul", NULL)->infer(&f.call, &f.problem));
        gki_matmul_wgmma.constants(&f.problem, &constants);
        const gk_constant *last = &constants.items[constants.n_items - 1];
        assert_string_equal(last->name, "C_BY_TMA");
        assert_int_equal(last->value, n % 8 == 0);
        maps_of(&c, maps);
        assert_int_equal(maps[2].dims[0] == n, n % 8 == 0);
    }
}

static void refuses(const gk_config *c, const char *text)
{
    gk_reason reason = {""};
    assert_false(gki_matmul_wgmma.check(&f.problem, &device, c, &reason));
    if (strstr(reason.text, text) == NULL) {
        fail_msg("the reason is \"%s\", not \"%s\"", reason.text, text);
    }
}

static void reasons(void **state)
{
    (void)state;
    gk_config c = config(128, 256, 64);
    pose(GK_BF16, "nn", 128, 1024, 2048);
    c.values[WGMMA_CLUSTER_M] = 2;
    refuses(&c, "beside C");
    c.values[WGMMA_CLUSTER_M] = 4;
    pose(GK_BF16, "nn", 384, 1024, 2048);
    refuses(&c, "beside C");
    pose(GK_BF16, "nn", 4096, 4096, 2048);
    refuses(&c, "128 clusters of 4, 30 run at once");
    c.values[WGMMA_PINGPONG] = 1;
    refuses(&c, "one whole tile");
    c.values[WGMMA_PINGPONG] = 0;
    c.values[WGMMA_CLUSTER_N] = 4;
    refuses(&c, "8 blocks");
    c = config(128, 256, 64);
    c.values[WGMMA_SWAP] = 1;
    pose(GK_BF16, "nn", 512, 1024, 2048);
    refuses(&c, "few rows");
    c = config(256, 256, 64);
    refuses(&c, "256 sums a thread");
    /* Beside what the exchange of K's shares needs, they would not fit the registers. */
    c = config(128, 192, 64);
    c.values[WGMMA_CONSUMERS] = 1;
    c.values[WGMMA_CLUSTER_K] = 2;
    refuses(&c, "192 sums a thread, there is room for 128");
    c = config(64, 128, 64);
    c.values[WGMMA_CONSUMERS] = 1;
    c.values[WGMMA_OVERLAP] = 2;
    c.values[WGMMA_CLUSTER_K] = 2;
    refuses(&c, "64 sums a thread, there is room for 48");
    c = config(192, 160, 64);
    c.values[WGMMA_CONSUMERS] = 3;
    c.values[WGMMA_CLUSTER_N] = 2;
    pose(GK_BF16, "nt", 2307, 1111, 1008); /* rows of C at odd addresses */
    refuses(&c, "80 sums a thread, there is room for 72");
    c = config(128, 256, 128);
    pose(GK_BF16, "nn", 512, 1024, 2048);
    refuses(&c, "stages");
    c = config(128, 256, 256);
    refuses(&c, "128 or 256 bytes");
    c = config(128, 256, 64);
    c.values[WGMMA_SPLIT_K] = 32;
    pose(GK_BF16, "nn", 512, 1024, 512);
    refuses(&c, "only 8 tiles");
    device.cc = 100;
    refuses(&c, "9.0");
    device.cc = 90;
    pose(GK_F32, "nn", 512, 1024, 2048);
    f.call.attrs[MATMUL_MATH] = GK_MATH_F32;
    memset(&f.problem, 0, sizeof(f.problem));
    assert_gk_ok(gk_op_find("matmul", NULL)->infer(&f.call, &f.problem));
    refuses(&c, "no warpgroup product");
}

static double best;

static void keep_best(const gk_config *c)
{
    const double seconds = gki_matmul_wgmma.model(&f.problem, &device, c);
    best = seconds < best ? seconds : best;
}

/* Best times measured on an H100, docs/performance.md. */
static void model_is_near_the_measurements(void **state)
{
    static const struct {
        gk_dtype dtype;
        const char *layout;
        int64_t m, n, k;
        double us;
    } table[] = {
        {GK_BF16, "nn", 512, 512, 512, 2.42},    {GK_BF16, "nn", 1024, 1024, 1024, 5.75},
        {GK_BF16, "nn", 1000, 1000, 1000, 6.45}, {GK_BF16, "nn", 2048, 2048, 2048, 23.9},
        {GK_BF16, "nn", 4096, 4096, 4096, 180},  {GK_BF16, "nn", 8192, 8192, 8192, 1594},
        {GK_BF16, "nt", 16, 6144, 4096, 19.9},   {GK_BF16, "nt", 16, 4096, 14336, 41.2},
        {GK_BF16, "nt", 128, 28672, 4096, 84.9}, {GK_BF16, "nn", 4096, 4096, 64, 13.5},
        {GK_BF16, "nn", 8192, 128, 8192, 49.8},  {GK_BF16, "nn", 64, 64, 65536, 8.7},
        {GK_F32, "nn", 4096, 4096, 4096, 376},   {GK_E4M3, "nt", 4096, 4096, 4096, 95},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
        pose(table[i].dtype, table[i].layout, table[i].m, table[i].n, table[i].k);
        best = 1;
        each_valid(keep_best, false);
        if (best * 1e6 > table[i].us * 1.25 || best * 1e6 < table[i].us / 1.25) {
            fail_msg("%s %lldx%lldx%lld: %.2f us predicted, %.2f measured", table[i].layout,
                     (long long)table[i].m, (long long)table[i].n, (long long)table[i].k,
                     best * 1e6, table[i].us);
        }
    }
}

#define rule(name) cmocka_unit_test_setup(name, fresh)

int main(void)
{
    const struct CMUnitTest tests[] = {
        rule(every_launch_fits),
        rule(maps_follow_the_layouts),
        rule(fast_memory_reads_no_further_where_many_stages_are_under_way),
        rule(blocks_of_a_cluster_load_shares),
        rule(large_clusters),
        rule(swapped_c_leaves_by_columns),
        rule(f32_is_rounded_by_its_maps),
        rule(empty_operands_have_maps),
        rule(one_row_of_any_stride),
        rule(ragged_c_is_not_stored_by_tma),
        rule(reasons),
        rule(model_is_near_the_measurements),
    };
    return GK_TEST_MAIN(tests);
}
