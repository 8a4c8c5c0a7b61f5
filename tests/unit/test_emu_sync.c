/* Barriers, warp operations, deadlocks and shared memory of the CPU device. */
#include <pthread.h>
#include <string.h>

#include "driver/emu/sm.h"
#include "support/emu_kernel.h"
#include "support/gk_test.h"

enum { GUARD = 16, POISON = 0x5a5a5a5a };

typedef struct args {
    uint32_t *out;
    int64_t what;
} args;

#define ARGS_TEXT "struct args { unsigned *out; long long what; };\n"

/* An output of n words between guards. */
typedef struct words {
    uint32_t all[GUARD + 4096 + GUARD];
    size_t n;
} words;

static uint32_t *words_init(words *w, size_t n)
{
    for (size_t i = 0; i < sizeof w->all / sizeof w->all[0]; i++) {
        w->all[i] = POISON;
    }
    w->n = n;
    return w->all + GUARD;
}

static void words_check_guards(const words *w)
{
    for (size_t i = 0; i < GUARD; i++) {
        assert_int_equal(w->all[i], POISON);
    }
    for (size_t i = GUARD + w->n; i < sizeof w->all / sizeof w->all[0]; i++) {
        assert_int_equal(w->all[i], POISON);
    }
}

static words output;

static const char REVERSE[] =
    ARGS_TEXT "GK_KERNEL(256, 1, args, a)\n"
              "{\n"
              "    GK_DYNAMIC_SHARED(raw);\n"
              "    unsigned *s = (unsigned *)raw;\n"
              "    const unsigned n = blockDim.x, t = threadIdx.x;\n"
              "    unsigned sum = 0;\n"
              "    for (unsigned round = 0; round < (unsigned)a.what; round++) {\n"
              "        s[t] = blockIdx.x * 1000 + round * 7 + t;\n"
              "        __syncthreads();\n"
              "        sum += s[n - 1 - t];\n"
              "        __syncthreads();\n"
              "    }\n"
              "    a.out[blockIdx.x * n + t] = sum;\n"
              "}\n";

static void check_reverse(const uint32_t *out, uint32_t grid, uint32_t n, uint32_t rounds)
{
    for (uint32_t b = 0; b < grid; b++) {
        for (uint32_t t = 0; t < n; t++) {
            const uint32_t sum = rounds * (b * 1000 + n - 1 - t) + 7 * (rounds * (rounds - 1) / 2);
            assert_int_equal(out[b * n + t], sum);
        }
    }
}

static void test_barrier(void **state)
{
    (void)state;
    gki_module *module = emu_load(emu_device, REVERSE);
    static const int32_t SIZES[] = {1, 31, 32, 33, 100, 256};
    for (size_t i = 0; i < sizeof SIZES / sizeof SIZES[0]; i++) {
        const uint32_t n = (uint32_t)SIZES[i];
        uint32_t *out = words_init(&output, 3 * (size_t)n);
        const args a = {out, 5};
        assert_gk_ok(emu_launch(emu_device, module, 3, SIZES[i], SIZES[i] * 4, &a, sizeof a));
        check_reverse(out, 3, n, 5);
        words_check_guards(&output);
    }
    assert_int_equal(module->max_threads, 256);
    const args a = {words_init(&output, 0), 5};
    assert_gk_err(emu_launch(emu_device, module, 1, 257, 2000, &a, sizeof a), GK_ERR_DEVICE,
                  "at most 256");
    assert_gk_err(emu_launch(emu_device, module, 1, 32, 49153, &a, sizeof a), GK_ERR_DEVICE,
                  "49153");
    assert_gk_ok(emu_device->driver->module_reserve(emu_device, module, 100000, 1));
    assert_gk_ok(
        emu_launch(emu_device, module, 1, 32, 49153, &(args){output.all + GUARD, 1}, sizeof a));
    assert_gk_err(emu_launch(emu_device, module, 1, 32, 128, &a, sizeof a - 1), GK_ERR_DEVICE,
                  "parameter has 15");
    emu_device->driver->module_unload(emu_device, module);
}

static const char DEADLOCK[] =
    ARGS_TEXT "GK_KERNEL(1024, 1, args, a)\n"                     /* line 2 */
              "{\n"                                               /* 3 */
              "    const unsigned t = threadIdx.x;\n"             /* 4 */
              "    if (a.what == 1 && blockIdx.x == 3) {\n"       /* 5 */
              "        if (t < 32) {\n"                           /* 6 */
              "            __syncthreads();\n"                    /* 7 */
              "        } else {\n"                                /* 8 */
              "            __syncthreads();\n"                    /* 9 */
              "        }\n"                                       /* 10 */
              "    }\n"                                           /* 11 */
              "    if (a.what == 2 && t == 5) __syncwarp();\n"    /* 12 */
              "    if (a.what == 3 && t < 16) __syncthreads();\n" /* 13 */
              "    if (a.what == 4) {\n"                          /* 14 */
              "        if (t == 0) return;\n"                     /* 15 */
              "        __ballot_sync(0xffffffffu, 1);\n"          /* 16 */
              "    }\n"                                           /* 17 */
              "    if (a.what == 5) {\n"                          /* 18 */
              "        if (t < 16) __ballot_sync(0xffffffffu, 1);\n"
              "        else __any_sync(0xffffffffu, 1);\n"                       /* 20 */
              "    }\n"                                                          /* 21 */
              "    if (a.what == 6) __syncwarp(1u);\n"                           /* 22 */
              "    if (a.what == 7 && t == 40) return;\n"                        /* 23 */
              "    if (a.what == 8 && t != 7) __shfl_sync(0xffffffffu, 1, 0);\n" /* 24 */
              "    __syncthreads();\n"                                           /* 25 */
              "    a.out[blockIdx.x * blockDim.x + t] = t;\n"                    /* 26 */
              "}\n";

static void test_deadlock(void **state)
{
    (void)state;
    gki_module *module = emu_load(emu_device, DEADLOCK);
    args a = {words_init(&output, 4 * 64), 1};
    assert_gk_err(emu_launch(emu_device, module, 4, 64, 0, &a, sizeof a), GK_ERR_DEVICE,
                  "deadlock in block (3,0,0): threads 0-31 wait at test.cu:7 (__syncthreads), "
                  "threads 32-63 wait at test.cu:9 (__syncthreads)");
    /* The blocks before it have run. */
    assert_int_equal(a.out[2 * 64 + 63], 63);
    assert_int_equal(a.out[3 * 64], POISON);
    static const struct {
        int64_t what;
        const char *part;
    } CASES[] = {
        {2, "threads 0-4, 6-63 wait at test.cu:25 (__syncthreads), thread"},
        {3, "threads 0-15 wait at test.cu:13 (__syncthreads), threads 16-63 wait at test.cu:25"},
        {4, "which have returned at test.cu:16 in block (0,0,0), thread (1,0,0)"},
        {5, "threads 0-15 wait at test.cu:19 (__ballot_sync), threads 16-31 wait at test.cu:20 "
            "(__any_sync), thread"},
        {6, "mask 0x00000001 does not name lane 1"},
        {8, "threads 0-6, 8-31 wait at test.cu:24 (__shfl_sync), thread"},
    };
    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++) {
        a.what = CASES[i].what;
        assert_gk_err(emu_launch(emu_device, module, 4, 64, 0, &a, sizeof a), GK_ERR_DEVICE,
                      CASES[i].part);
    }
    /* A thread that has returned is not waited for, and the device works as before. */
    a.out = words_init(&output, 2 * 64);
    a.what = 7;
    assert_gk_ok(emu_launch(emu_device, module, 2, 64, 0, &a, sizeof a));
    for (uint32_t i = 0; i < 128; i++) {
        assert_int_equal(a.out[i], i % 64 == 40 ? POISON : i % 64);
    }
    words_check_guards(&output);
    emu_device->driver->module_unload(emu_device, module);
}

static const char SHUFFLES[] = ARGS_TEXT
    "GK_KERNEL(64, 1, args, a)\n"
    "{\n"
    "    const unsigned t = threadIdx.x, lane = t % 32;\n"
    "    unsigned *o = a.out + t * 16;\n"
    "    o[0] = __shfl_sync(0xffffffffu, t, 5);\n"
    "    o[1] = __shfl_xor_sync(0xffffffffu, t, 3);\n"
    "    o[2] = __shfl_up_sync(0xffffffffu, t, 2);\n"
    "    o[3] = __shfl_down_sync(0xffffffffu, t, 30);\n"
    "    o[4] = __shfl_sync(0xffffffffu, (int)t, 9, 8);\n"
    "    o[5] = __shfl_down_sync(0xffffffffu, t, 1, 4);\n"
    "    o[6] = (unsigned)(__shfl_xor_sync(0xffffffffu, (unsigned long long)t << 33, 1) >> 33);\n"
    "    o[7] = (unsigned)__shfl_sync(0xffffffffu, (float)t + 0.5f, 31);\n"
    "    o[8] = __ballot_sync(0xffffffffu, lane % 3 == 0);\n"
    "    o[9] = __any_sync(0xffffffffu, t == 40);\n"
    "    o[10] = __all_sync(0xffffffffu, t < 63);\n"
    "    if (lane < 16) {\n"
    "        o[11] = __ballot_sync(0x0000ffffu, 1);\n"
    "        o[12] = __shfl_sync(0x0000ffffu, t, 20);\n"
    "    } else {\n"
    "        o[11] = __shfl_sync(0xffff0000u, t, 20);\n"
    "        o[12] = __ballot_sync(0xffff0000u, lane & 1);\n"
    "    }\n"
    "    unsigned sum = t;\n"
    "    for (int d = 16; d > 0; d /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, d);\n"
    "    o[13] = sum;\n"
    "    o[14] = __activemask();\n"
    "    __syncwarp();\n"
    "    o[15] = __popc(lane) + __ffs(lane) * 100 + __clz(lane) * 10000;\n"
    "}\n";

static void test_shuffles(void **state)
{
    (void)state;
    gki_module *module = emu_load(emu_device, SHUFFLES);
    const args a = {words_init(&output, 64 * 16), 0};
    assert_gk_ok(emu_launch(emu_device, module, 1, 64, 0, &a, sizeof a));
    for (uint32_t t = 0; t < 64; t++) {
        const uint32_t lane = t % 32;
        const uint32_t base = t - lane;
        const uint32_t *o = a.out + (size_t)t * 16;
        assert_int_equal(o[0], base + 5);
        assert_int_equal(o[1], t ^ 3);
        assert_int_equal(o[2], lane < 2 ? t : t - 2);
        assert_int_equal(o[3], lane < 2 ? t + 30 : t);
        assert_int_equal(o[4], t / 8 * 8 + 1);
        assert_int_equal(o[5], t % 4 == 3 ? t : t + 1);
        assert_int_equal(o[6], t ^ 1);
        assert_int_equal(o[7], base + 31);
        assert_int_equal(o[8], 0x49249249u);
        assert_int_equal(o[9], t >= 32);
        assert_int_equal(o[10], t < 32);
        assert_int_equal(o[11], lane < 16 ? 0x0000ffffu : base + 20);
        assert_int_equal(o[12], lane < 16 ? UINT32_MAX : 0xaaaa0000u);
        assert_int_equal(o[13], base * 32 + 496);
        assert_int_equal(o[14], UINT32_MAX);
        const uint32_t ffs = (uint32_t)__builtin_ffs((int)lane);
        const uint32_t clz = lane == 0 ? 32 : (uint32_t)__builtin_clz(lane);
        assert_int_equal(o[15], (uint32_t)__builtin_popcount(lane) + ffs * 100 + clz * 10000);
    }
    words_check_guards(&output);
    emu_device->driver->module_unload(emu_device, module);
}

static const char ATOMICS[] =
    ARGS_TEXT "GK_KERNEL(64, 1, args, a)\n"
              "{\n"
              "    const unsigned t = threadIdx.x;\n"
              "    atomicAdd(&a.out[0], t);\n"
              "    atomicMax((int *)&a.out[1], (int)t - 100);\n"
              "    atomicMin(&a.out[2], t + 3);\n"
              "    atomicAdd((float *)&a.out[3], 0.5f);\n"
              "    gk::atomic_add((unsigned long long *)&a.out[4], 1ull << 32);\n"
              "    if (atomicCAS(&a.out[6], t, t + 1) == t) atomicExch(&a.out[7], t);\n"
              "}\n";

static void test_atomics(void **state)
{
    (void)state;
    gki_module *module = emu_load(emu_device, ATOMICS);
    const args a = {words_init(&output, 8), 0};
    memset(a.out, 0, 8 * sizeof *a.out);
    a.out[1] = (uint32_t)-1000;
    a.out[2] = 1000;
    assert_gk_ok(emu_launch(emu_device, module, 1, 64, 0, &a, sizeof a));
    float sum;
    memcpy(&sum, &a.out[3], sizeof sum);
    assert_int_equal(a.out[0], 2016);
    assert_int_equal((int32_t)a.out[1], -37);
    assert_int_equal(a.out[2], 3);
    assert_true(sum == 32.0f);
    assert_int_equal(a.out[4], 0);
    assert_int_equal(a.out[5], 64);
    assert_int_equal(a.out[6], 64);
    assert_int_equal(a.out[7], 63);
    words_check_guards(&output);
    emu_device->driver->module_unload(emu_device, module);
}

static const char SHARED[] =
    ARGS_TEXT "GK_KERNEL(32, 1, args, a)\n"
              "{\n"
              "    GK_DYNAMIC_SHARED(raw);\n"
              "    if (a.what == 0) a.out[threadIdx.x] = ((unsigned *)raw)[threadIdx.x];\n"
              "    raw[threadIdx.x] = 1;\n"
              "    if (a.what == 1 && threadIdx.x == 9) raw[128] = 0;\n"
              "    if (a.what == 2 && threadIdx.x == 9) raw[-256] = 0;\n"
              "    if (a.what == 3) a.out[0] = *(unsigned *)(raw + a.what);\n"
              "    if (a.what == 4 && threadIdx.x == 2) ((float4 *)(a.out + 1))->x = 0;\n"
              "    assert(a.what != 5);\n"
              "    if (a.what == 6) __trap();\n"
              "}\n";

static void test_shared_memory(void **state)
{
    (void)state;
    gki_module *module = emu_load(emu_device, SHARED);
    args a = {words_init(&output, 32), 0};
    assert_gk_ok(emu_launch(emu_device, module, 2, 32, 128, &a, sizeof a));
    for (size_t i = 0; i < 32; i++) {
        assert_int_equal(a.out[i], UINT32_MAX); /* NaN, also in the second block */
    }
    words_check_guards(&output);
    static const char *const PARTS[] = {
        "shared memory written out of bounds in block (0,0,0): offset 128, the block has 128 bytes",
        "shared memory written out of bounds in block (0,0,0): offset -256",
        "must be a multiple of 4 at test.cu:9 in block (0,0,0), thread (0,0,0)",
        "must be a multiple of 16 at test.cu:10 in block (0,0,0), thread (2,0,0)",
        "assertion a.what != 5 failed at test.cu:11 in block (0,0,0), thread (0,0,0)",
        "trap at test.cu:12",
    };
    for (size_t i = 0; i < sizeof PARTS / sizeof PARTS[0]; i++) {
        a.what = (int64_t)i + 1;
        assert_gk_err(emu_launch(emu_device, module, 2, 32, 128, &a, sizeof a), GK_ERR_DEVICE,
                      PARTS[i]);
    }
    a.what = 0;
    assert_gk_ok(emu_launch(emu_device, module, 1, 32, 128, &a, sizeof a));
    emu_device->driver->module_unload(emu_device, module);
}

/* Numbers its thread among all of the launch. */
static void number_threads(gk_emu_thread *self, const void *raw)
{
    const gk_emu_dim3 b = self->block_dim;
    const gk_emu_dim3 g = self->grid_dim;
    const uint32_t block = (self->block_idx.z * g.y + self->block_idx.y) * g.x + self->block_idx.x;
    const uint32_t thread =
        (self->thread_idx.z * b.y + self->thread_idx.y) * b.x + self->thread_idx.x;
    const uint32_t index = block * b.x * b.y * b.z + thread;
    const args *a = raw;
    a->out[index] = index;
    self->host->barrier(self, "number_threads", 1);
    a->out[index] += self->lane * 10000;
}

static void test_three_dimensions(void **state)
{
    (void)state;
    gki_emu_pool *pool = gki_emu_pool_create();
    assert_non_null(pool);
    const gk_emu_kernel kernel = {GK_EMU_ABI_VERSION, sizeof(args), 1024, 1, number_threads};
    const args a = {words_init(&output, 24 * 30), 0};
    gki_emu_launch launch = {&kernel, &a, {2, 3, 4}, {5, 3, 2}, 0, NULL, 1, false};
    assert_gk_ok(gki_emu_run(pool, &launch));
    for (uint32_t i = 0; i < 24 * 30; i++) {
        assert_int_equal(a.out[i], i + i % 30 * 10000);
    }
    words_check_guards(&output);
    launch.block = (gk_emu_dim3){1024, 1, 1};
    launch.grid = (gk_emu_dim3){1, 1, 1};
    words_init(&output, 1024);
    assert_gk_ok(gki_emu_run(pool, &launch));
    assert_int_equal(a.out[1023], 1023 + 310000);
    words_check_guards(&output);
    launch.block.y = 2;
    assert_gk_err(gki_emu_run(pool, &launch), GK_ERR_DEVICE, "1024x2x1");
    launch.block.y = 1;
    launch.grid.y = 65536;
    assert_gk_err(gki_emu_run(pool, &launch), GK_ERR_DEVICE, "1x65536x1");
    gki_emu_pool_destroy(pool);
}

enum { WORKER_LAUNCHES = 20, WORKER_GRID = 4, WORKER_THREADS = 128 };

typedef struct worker {
    pthread_t thread;
    gki_module *module;
    uint32_t out[WORKER_GRID * WORKER_THREADS];
    uint32_t rounds;
    int failures;
} worker;

static void *work(void *arg)
{
    worker *self = arg;
    for (int i = 0; i < WORKER_LAUNCHES; i++) {
        memset(self->out, 0xff, sizeof self->out);
        const args a = {self->out, self->rounds};
        if (emu_launch(emu_device, self->module, WORKER_GRID, WORKER_THREADS, 4 * WORKER_THREADS,
                       &a, sizeof a) != GK_OK) {
            self->failures++;
        }
    }
    return NULL;
}

static void test_two_host_threads(void **state)
{
    (void)state;
    static worker workers[2];
    gki_module *module = emu_load(emu_device, REVERSE);
    for (uint32_t i = 0; i < 2; i++) {
        workers[i].module = module;
        workers[i].rounds = 3 + i;
        assert_int_equal(pthread_create(&workers[i].thread, NULL, work, &workers[i]), 0);
    }
    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(pthread_join(workers[i].thread, NULL), 0);
        assert_int_equal(workers[i].failures, 0);
        check_reverse(workers[i].out, WORKER_GRID, WORKER_THREADS, 3 + i);
    }
    emu_device->driver->module_unload(emu_device, module);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        EMU_TEST(test_barrier),          EMU_TEST(test_deadlock),
        EMU_TEST(test_shuffles),         EMU_TEST(test_atomics),
        EMU_TEST(test_shared_memory),    cmocka_unit_test(test_three_dimensions),
        EMU_TEST(test_two_host_threads),
    };
    return GK_TEST_MAIN(tests);
}
