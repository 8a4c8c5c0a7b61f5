/* Memory barriers, named barriers, register budgets and clusters of the CPU device. */
#include <string.h>

#include "driver/emu/sm.h"
#include "support/emu_kernel.h"
#include "support/gk_test.h"

typedef struct args {
    const unsigned char *in;
    uint32_t *out;
    int64_t what;
} args;

#define ARGS_TEXT                                                                                  \
    "#include \"gk/hopper.cuh\"\n"                                                                 \
    "struct args { const unsigned char *in; unsigned *out; long long what; };\n"

static gk_status launch(gki_module *module, int64_t grid, int32_t cluster, bool cooperative,
                        int32_t threads, const args *a)
{
    const gki_kernel_launch what = {.module = module,
                                    .grid = grid,
                                    .threads = threads,
                                    .cluster = cluster,
                                    .cooperative = cooperative,
                                    .smem = 4096,
                                    .args = a,
                                    .args_size = sizeof *a};
    return emu_device->driver->launch(emu_device, &what, NULL);
}

/*
 * Warp 0 fills a ring of 2 stages of 128 bytes, warp 1 sums it up, 5 rounds. what: 1 = the consumer
 * does not release a stage, 2 = it does not wait for one, 3 = it releases too early.
 */
static const char RING[] = ARGS_TEXT
    "GK_KERNEL(64, 1, args, a)\n" /* line 3 */
    "{\n"
    "    GK_DYNAMIC_SHARED(s);\n"
    "    gk_u64 *full = (gk_u64 *)(s + 1024), *empty = full + 2;\n"
    "    const unsigned t = threadIdx.x;\n"
    "    if (t == 0) {\n"
    "        for (int i = 0; i < 2; i++) {\n"
    "            gk::mbarrier_init(full + i, 1);\n" /* line 10 */
    "            gk::mbarrier_init(empty + i, 1);\n"
    "        }\n"
    "        gk::mbarrier_init_fence();\n"
    "    }\n"
    "    __syncthreads();\n"
    "    unsigned sum = 0;\n"
    "    for (int i = 0; i < 5; i++) {\n"
    "        const int stage = i % 2, parity = i / 2 % 2;\n"
    "        if (t < 32) {\n"
    "            gk::mbarrier_wait(empty + stage, parity ^ 1);\n" /* line 20 */
    "            if (gk::elect_one()) {\n"
    "                gk::mbarrier_arrive_expect(full + stage, 128);\n"
    "                gk::bulk_load(s + stage * 128, a.in + i * 128, full + stage, 64);\n"
    "                gk::bulk_load(s + stage * 128 + 64, a.in + i * 128 + 64, full + stage, 64);\n"
    "            }\n"
    "            __syncwarp();\n"
    "        } else {\n"
    "            if (a.what != 2) gk::mbarrier_wait(full + stage, parity);\n" /* line 28 */
    "            if (a.what == 3 && t == 32) gk::mbarrier_arrive(empty + stage);\n"
    "            if (a.what == 3) __syncwarp();\n"
    "            sum += ((unsigned *)(s + stage * 128))[t - 32];\n"
    "            __syncwarp();\n"
    "            if (a.what != 1 && a.what != 3 && t == 32) gk::mbarrier_arrive(empty + stage);\n"
    "        }\n"
    "    }\n"
    "    a.out[t] = sum;\n"
    "}\n";

static void test_ring(void **state)
{
    (void)state;
    gki_module *module = emu_load(emu_device, RING);
    _Alignas(16) static uint32_t in[5][32];
    uint32_t out[64];
    for (uint32_t i = 0; i < 160; i++) {
        in[i / 32][i % 32] = i * i + 3;
    }
    args a = {(const unsigned char *)in, out, 0};
    assert_gk_ok(launch(module, 2, 1, false, 64, &a));
    for (uint32_t i = 0; i < 32; i++) {
        assert_int_equal(out[i], 0);
        assert_int_equal(out[32 + i], in[0][i] + in[1][i] + in[2][i] + in[3][i] + in[4][i]);
    }
    a.what = 1;
    assert_gk_err(launch(module, 2, 1, false, 64, &a), GK_ERR_DEVICE,
                  "deadlock in block (0,0,0): threads 0-31 wait at test.cu:20 (mbarrier_wait, "
                  "shared memory offset 1040, phase 0 lacks 1 of 1 arrivals and 0 bytes), threads "
                  "32-63 wait at test.cu:28 (mbarrier_wait, shared memory offset 1024, phase 1 "
                  "lacks 1 of 1 arrivals and 0 bytes)");
    /* Without a wait, or with a stage given back too early, the values are wrong or it is told. */
    for (a.what = 2; a.what <= 3; a.what++) {
        memset(out, 0, sizeof out);
        const gk_status status = launch(module, 1, 1, false, 64, &a);
        uint32_t right = 0;
        for (uint32_t i = 0; i < 32; i++) {
            right += out[32 + i] == in[0][i] + in[1][i] + in[2][i] + in[3][i] + in[4][i];
        }
        assert_true(status != GK_OK || right == 0);
    }
    emu_device->driver->module_unload(emu_device, module);
}

/* One mistake a value of `what`. */
static const char MISTAKES[] = ARGS_TEXT
    "GK_KERNEL(256, 1, args, a)\n" /* line 3 */
    "{\n"
    "    GK_DYNAMIC_SHARED(s);\n"
    "    gk_u64 *bar = (gk_u64 *)(s + 1024);\n"
    "    const unsigned t = threadIdx.x;\n"
    "    const int w = (int)a.what;\n"
    "    if (w == 1) gk::mbarrier_wait(bar, 0);\n"
    "    if (w == 2) gk::mbarrier_arrive(bar);\n" /* line 10 */
    "    if (w == 3) gk::mbarrier_init((gk_u64 *)(s + 4096), 1);\n"
    "    if (w == 4) gk::mbarrier_init((gk_u64 *)(s + 4), 1);\n"
    "    if (w == 5) gk::mbarrier_init(bar, 0);\n"
    "    if (t == 0) gk::mbarrier_init(bar, 2);\n"
    "    if (w == 6 && t == 0) gk::mbarrier_init(bar, 2);\n"
    "    if (w != 7 && t == 0) gk::mbarrier_init_fence();\n"
    "    __syncthreads();\n"
    "    if (w == 7 && t == 0) gk::bulk_load(s, a.in, bar, 16);\n"
    "    if (w == 8) gk::mbarrier_wait(bar, 2);\n"
    "    if (w == 9) gk::mbarrier_arrive_expect(bar, 16);\n" /* line 20 */
    "    if (w == 10) gk::mbarrier_arrive_expect(bar, 1 << 20);\n"
    "    if (w == 11 && t == 0) *(unsigned *)(s + 1028) = 5;\n"
    "    if (w == 11 && t == 0) gk::mbarrier_arrive(bar);\n"
    "    if (w == 12 && t == 0) gk::mbarrier_arrive_at(bar, 1);\n"
    "    if (w == 13 && t == 0) gk::bulk_load(s, a.in + 8, bar, 16);\n"
    "    if (w == 14 && t == 0) gk::bulk_load(s, a.in, bar, 24);\n"
    "    if (w == 15 && t == 0) gk::bulk_load(s + 4096 - 16, a.in, bar, 32);\n"
    "    if (w == 16 && t == 0) gk::bulk_load(s, a.in, bar, 16);\n"
    "    if (w == 17 && t < 2) gk::mbarrier_arrive_expect(bar, t ? 16 : 0);\n"
    "    if (w == 17 && t == 0) gk::bulk_load(s, a.in, bar, 32);\n" /* line 30 */
    "    if (w == 17) gk::mbarrier_wait(bar, 0);\n"
    "    if (w == 18 && t < 32) gk::named_barrier_sync<64>(3);\n"
    "    if (w == 18 && t >= 32) gk::named_barrier_sync<96>(3);\n"
    "    if (w == 19) for (int i = 0; i < 2; i++) gk::named_barrier_arrive<256>(3);\n"
    "    if (w == 20) gk::named_barrier_sync<64>(16);\n"
    "    if (w == 21) gk::named_barrier_sync<65>(1);\n"
    "    if (w == 22 && t < 32) gk::named_barrier_sync<64>(5);\n"
    "    if (w == 23) gk::registers_raise<240>();\n"
    "    if (w == 24 && t >= 128) gk::registers_lower<24>();\n"
    "    if (w == 24 && t < 96) gk::registers_lower<24>();\n" /* line 40 */
    "    if (w == 25) gk::registers_lower<28>();\n"
    "    if (w == 26) gk::registers_raise<24>();\n"
    "    if (w == 27) { if (t < 64) gk::registers_lower<24>(); else gk::registers_lower<32>(); }\n"
    "    if (w == 28) gk::cluster_wait();\n"
    "    if (w == 29) for (int i = 0; i < 2; i++) gk::cluster_arrive();\n"
    "    if (w == 30 && t < 40) gk::elect_one();\n"
    "    while (w == 31) gk_emu_poll();\n"
    "    if (w == 32 && t % 32 == 0) gk::elect_one();\n"
    "    __syncthreads();\n"
    "}\n";

static void test_mistakes(void **state)
{
    (void)state;
    gki_module *module = emu_load(emu_device, MISTAKES);
    _Alignas(16) static const unsigned char in[64] = {1};
    static const char *const PARTS[] = {
        [1] = ("mbarrier_wait: no mbarrier was initialised at shared memory offset 1024 of block "
               "0 of the cluster, or it was overwritten at test.cu:9 in block (0,0,0), thread "
               "(0,0,0)"),
        [2] = "mbarrier_arrive: no mbarrier was initialised at shared memory offset 1024",
        [3] = "mbarrier_init: shared memory offset 4096, must be a multiple of 8 inside",
        [4] = "mbarrier_init: shared memory offset 4, must be",
        [5] = "mbarrier_init: 0 arrivals",
        [6] = "there is an mbarrier at shared memory offset 1024 already at test.cu:15",
        [7] = ("bulk_load: the mbarrier at shared memory offset 1024 was initialised without "
               "mbarrier_init_fence by thread 0"),
        [8] = "parity is 2",
        [9] = ("mbarrier_arrive_expect: the 2 arrivals of phase 0 of the mbarrier at shared memory "
               "offset 1024 have all been, it waits for 32 bytes at test.cu:20 in block (0,0,0)"),
        [10] = "1048576 bytes on top of 0, an mbarrier counts up to 1048575",
        [11] = "or it was overwritten at test.cu:23",
        [12] = "mbarrier_arrive_at: block 1, the cluster has 1",
        [13] = "bulk_load: 16 bytes at",
        [14] = "bulk_load: 24 bytes at",
        [15] = "bulk_load: 32 bytes at shared memory offset 4080, must be a multiple of 16 inside",
        [16] = ("block (0,0,0) has returned before the load of 16 bytes that thread 0 of block "
                "(0,0,0) issued at test.cu:28 has landed"),
        [17] = "phase 0 lacks 0 of 2 arrivals and -16 bytes",
        [18] = "barrier 3 of 64 threads, others are at it for 96 at test.cu:33",
        [19] = "the thread has arrived at barrier 3 before, which waits for 255 more of 256",
        [20] = "barrier 16, must be 1 to 15",
        [21] = "barrier 1 of 65 threads, must be a multiple of 32",
        [22] = "threads 0-31 wait at test.cu:37 (named_barrier_sync), threads 32-255 wait at",
        [23] = "raise to 240",
        [24] = "threads 0-95 wait at test.cu:40 (registers_lower), threads 96-255 wait at",
        [25] = "registers_lower: 28 registers, must be a multiple of 8 from 24 to 256",
        [26] = "registers_raise to 24: the warpgroup has 256",
        [27] = "registers_lower to 32: others of the warpgroup ask for 24 at test.cu:43",
        [28] = "cluster_wait: the thread has not arrived",
        [29] = "cluster_arrive: the thread has arrived before and not waited",
        [30] = "threads 32-39 wait at test.cu:46 (elect_one)",
        [31] = "deadlock in block (0,0,0): threads 0-255 wait at test.cu:47 (poll)",
        [32] = "threads 0, 32, 64, 96, 128, 160, 192, 224 wait at test.cu:48 (elect_one)",
    };
    for (size_t i = 1; i < sizeof PARTS / sizeof PARTS[0]; i++) {
        const args a = {in, NULL, (int64_t)i};
        if (i == 23) {
            continue; /* test_registers */
        }
        assert_gk_err(launch(module, 1, 1, false, 256, &a), GK_ERR_DEVICE, PARTS[i]);
    }
    const args a = {in, NULL, 0};
    assert_gk_ok(launch(module, 3, 1, false, 256, &a));
    emu_device->driver->module_unload(emu_device, module);
}

/* what: registers that warpgroup 0 gives up are taken by the others; 1 = too few. */
static const char REGISTERS[] = ARGS_TEXT
    "GK_KERNEL(384, 1, args, a)\n"
    "{\n"
    "    if (threadIdx.x < 128) {\n"
    "        if (a.what == 0) gk::registers_lower<24>(); else gk::registers_lower<40>();\n"
    "    } else {\n"
    "        gk::registers_raise<240>();\n" /* line 8 */
    "    }\n"
    "    a.out[threadIdx.x] = 1;\n"
    "}\n";

static void test_registers(void **state)
{
    (void)state;
    gki_module *module = emu_load(emu_device, REGISTERS);
    uint32_t out[384] = {0};
    args a = {NULL, out, 0};
    assert_gk_ok(launch(module, 2, 1, false, 384, &a));
    for (size_t i = 0; i < 384; i++) {
        assert_int_equal(out[i], 1);
    }
    /* 3 * 168 = 504 = 24 + 2 * 240 */
    a.what = 1;
    assert_gk_err(launch(module, 2, 1, false, 384, &a), GK_ERR_DEVICE,
                  "threads 256-383 wait at test.cu:8 (registers_raise)");
    assert_gk_err(launch(module, 1, 1, false, 192, &a), GK_ERR_DEVICE,
                  "registers_raise: the block has 192 threads, which leaves the warpgroup "
                  "incomplete at test.cu:8");
    emu_device->driver->module_unload(emu_device, module);
}

/* Named barriers hand a value from group to group; the turn goes round. */
static const char TURNS[] = ARGS_TEXT "GK_KERNEL(192, 1, args, a)\n"
                                      "{\n"
                                      "    GK_DYNAMIC_SHARED(s);\n"
                                      "    unsigned *word = (unsigned *)s;\n"
                                      "    const unsigned t = threadIdx.x, group = t / 64;\n"
                                      "    if (group == 1) gk::named_barrier_arrive<128>(1);\n"
                                      "    if (group > 1) return;\n"
                                      "    if (t == 0) *word = 0;\n"
                                      "    for (int i = 0; i < 10; i++) {\n"
                                      "        gk::named_barrier_sync<128>(1 + group);\n"
                                      "        if (t % 64 == 63) *word = *word * 2 + group + 1;\n"
                                      "        gk::named_barrier_arrive<128>(2 - group);\n"
                                      "    }\n"
                                      "    if (group == 0) gk::named_barrier_sync<128>(1);\n"
                                      "    a.out[t] = *word;\n"
                                      "}\n";

static void test_turns(void **state)
{
    (void)state;
    gki_module *module = emu_load(emu_device, TURNS);
    uint32_t out[128] = {0};
    const args a = {NULL, out, 0};
    assert_gk_ok(launch(module, 1, 1, false, 192, &a));
    uint32_t word = 0;
    for (uint32_t i = 0; i < 20; i++) {
        word = word * 2 + i % 2 + 1;
    }
    assert_int_equal(out[0], word);
    assert_int_equal(out[127], word);
    emu_device->driver->module_unload(emu_device, module);
}

/*
 * Every block of a cluster counts on block 0's barrier and sends its rank to the next one.
 * what: 1 = without the cluster's barrier, 2 = a block leaves early, 3 = some threads do not
 * arrive.
 */
static const char CLUSTER[] =
    ARGS_TEXT "GK_KERNEL(64, 1, args, a)\n"
              "{\n"
              "    GK_DYNAMIC_SHARED(s);\n"
              "    gk_u64 *bar = (gk_u64 *)(s + 1024);\n"
              "    const unsigned t = threadIdx.x, n = gk_emu_self->cluster_size;\n"
              "    if (t == 0) { gk::mbarrier_init(bar, n); gk::mbarrier_init_fence(); }\n"
              "    if (a.what == 2 && gk::cluster_rank() == 1) return;\n"
              "    if (a.what != 1) gk::cluster_arrive();\n" /* line 10 */
              "    if (a.what == 3 && blockIdx.x == 1 && t == 7) gk::named_barrier_sync<64>(1);\n"
              "    if (a.what != 1) gk::cluster_wait();\n"
              "    if (t < n) gk::mbarrier_arrive_at(bar, t);\n" /* line 13 */
              "    gk::mbarrier_wait(bar, 0);\n"
              "    a.out[blockIdx.x * 64 + t] = gk::cluster_rank() * 100 + n;\n"
              "    gk::cluster_arrive();\n"
              "    gk::cluster_wait();\n"
              "}\n";

static void test_cluster(void **state)
{
    (void)state;
    gki_module *module = emu_load(emu_device, CLUSTER);
    static uint32_t out[16 * 64];
    args a = {NULL, out, 0};
    for (int32_t n = 1; n <= 16; n *= 2) {
        memset(out, 0, sizeof out);
        assert_gk_ok(launch(module, 16, n, false, 64, &a));
        for (int32_t i = 0; i < 16 * 64; i++) {
            assert_int_equal(out[i], i / 64 % n * 100 + n);
        }
        memset(out, 0, sizeof out);
        assert_gk_ok(launch(module, 16, n, true, 64, &a));
        for (int32_t i = 0; i < 16 * 64; i++) {
            assert_int_equal(out[i], i / 64 % n * 100 + n);
        }
    }
    a.what = 1;
    assert_gk_err(launch(module, 4, 2, false, 64, &a), GK_ERR_DEVICE,
                  "mbarrier_arrive_at: no mbarrier was initialised at shared memory offset 1024 of "
                  "block 1 of the cluster, or it was overwritten at test.cu:13 in block (0,0,0), "
                  "thread (1,0,0)");
    a.what = 2;
    assert_gk_err(launch(module, 4, 2, false, 64, &a), GK_ERR_DEVICE,
                  "mbarrier_arrive_at: block 1 of the cluster has returned at test.cu:13 in block "
                  "(0,0,0), thread (1,0,0)");
    a.what = 3;
    assert_gk_err(
        launch(module, 4, 2, false, 64, &a), GK_ERR_DEVICE,
        "deadlock in block (0,0,0): threads 0-63 wait at test.cu:17 (cluster_wait); block "
        "(1,0,0): threads 0-6, 8-63 wait at test.cu:17 (cluster_wait), threads 7 wait at "
        "test.cu:11 (named_barrier_sync)");
    a.what = 0;
    assert_gk_err(launch(module, 5, 2, false, 64, &a), GK_ERR_DEVICE,
                  "clusters of 2 blocks, must be at most 16 and divide the grid's 5");
    assert_gk_err(launch(module, 65, 1, true, 64, &a), GK_ERR_DEVICE,
                  "a cooperative grid of 65x1x1 blocks");
    emu_device->driver->module_unload(emu_device, module);
}

/* All blocks meet twice at counters in memory. what: 1 = block 2 does not come. */
static const char GRID[] =
    ARGS_TEXT "GK_KERNEL(64, 1, args, a)\n"
              "{\n"
              "    const unsigned t = threadIdx.x, b = blockIdx.x;\n"
              "    if (a.what == 1 && b == 2) return;\n"
              "    for (int round = 0; round < 2; round++) {\n"
              "        if (round == 1) a.out[3 + b] = a.out[64 + (b + 1) % gridDim.x];\n"
              "        else a.out[64 + b] = 1000 + b;\n"
              "        __syncthreads();\n"
              "        if (t == 0) {\n"
              "            atomicAdd(a.out + round, 1u);\n"
              "            while (__atomic_load_n(a.out + round, __ATOMIC_ACQUIRE) < gridDim.x) {\n"
              "                gk_emu_poll();\n"
              "            }\n"
              "        }\n"
              "        __syncthreads();\n"
              "    }\n"
              "}\n";

static void test_grid(void **state)
{
    (void)state;
    gki_module *module = emu_load(emu_device, GRID);
    static uint32_t out[128];
    args a = {NULL, out, 0};
    assert_gk_ok(launch(module, 5, 1, true, 64, &a));
    for (uint32_t i = 0; i < 5; i++) {
        assert_int_equal(out[3 + i], 1000 + (i + 1) % 5);
    }
    memset(out, 0, sizeof out);
    a.what = 1;
    assert_gk_err(launch(module, 5, 1, true, 64, &a), GK_ERR_DEVICE,
                  "deadlock in block (0,0,0): threads 0 wait at test.cu:14 (poll), threads 1-63 "
                  "wait at test.cu:17 (__syncthreads); block (1,0,0)");
    memset(out, 0, sizeof out);
    a.what = 0;
    assert_gk_err(launch(module, 5, 1, false, 64, &a), GK_ERR_DEVICE, "deadlock in block (0,0,0)");
    emu_device->driver->module_unload(emu_device, module);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        EMU_TEST(test_ring),  EMU_TEST(test_mistakes), EMU_TEST(test_registers),
        EMU_TEST(test_turns), EMU_TEST(test_cluster),  EMU_TEST(test_grid),
    };
    return GK_TEST_MAIN(tests);
}
