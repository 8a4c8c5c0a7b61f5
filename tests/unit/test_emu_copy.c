/* cp.async on the CPU device. */
#define _GNU_SOURCE
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "support/emu_kernel.h"
#include "support/gk_test.h"

typedef struct args {
    const unsigned char *in;
    uint32_t *out;
    int64_t what;
} args;

#define ARGS_TEXT "struct args { const unsigned char *in; unsigned *out; long long what; };\n"

static const char COPIES[] =
    ARGS_TEXT "GK_KERNEL(32, 1, args, a)\n"
              "{\n"
              "    GK_DYNAMIC_SHARED(s);\n"
              "    const unsigned *w = (const unsigned *)s;\n"
              "    if (a.what == 1) gk::cp_async<16>(s + 8, a.in, 16);\n" /* line 6 */
              "    if (a.what == 2) gk::cp_async<8>(s, a.in + 4, 8);\n"
              "    if (a.what == 3) gk::cp_async<4>(s + 64, a.in, 4);\n"
              "    if (a.what == 4) gk::cp_async<8>(s, a.in, 9);\n"
              "    if (a.what != 0) return;\n"
              "    gk::cp_async<16>(s, a.in, 16);\n"
              "    gk::cp_async_commit();\n"
              "    gk::cp_async<8>(s + 16, a.in + 16, 5);\n"
              "    gk::cp_async<4>(s + 24, a.in + 24, 0);\n"
              "    gk::cp_async_commit();\n"
              "    gk::cp_async<4>(s + 32, a.in + 28, 4);\n"
              "    a.out[0] = w[0];\n" /* in flight: poison */
              "    gk::cp_async_wait<2>();\n"
              "    a.out[1] = w[0];\n" /* two groups may be pending */
              "    gk::cp_async_wait<1>();\n"
              "    a.out[2] = w[0]; a.out[3] = w[3];\n"
              "    a.out[4] = w[4];\n"
              "    gk::cp_async_wait<0>();\n"
              "    a.out[5] = w[4]; a.out[6] = w[5]; a.out[7] = w[6];\n"
              "    a.out[8] = w[8];\n" /* not committed */
              "    gk::cp_async_commit();\n"
              "    gk::cp_async_wait<0>();\n"
              "    a.out[9] = w[8];\n"
              "    gk::cp_async<4>(s, a.in + 28, 4);\n" /* an old value is gone at once */
              "    a.out[10] = w[0];\n"
              "    a.out[11] = w[7];\n" /* never written */
              "    a.out[12] = gk::shared_address(s + 40);\n"
              "}\n";

static void test_copies(void **state)
{
    (void)state;
    gki_module *module = emu_load(emu_device, COPIES);
    /* The last valid byte lies directly before an unmapped page. */
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    unsigned char *map =
        mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(map != MAP_FAILED);
    assert_int_equal(mprotect(map + page, page, PROT_NONE), 0);
    unsigned char *in = map + page - 32;
    for (unsigned i = 0; i < 32; i++) {
        in[i] = (unsigned char)(i + 1);
    }
    uint32_t out[16];
    memset(out, 0xee, sizeof out);
    args a = {in, out, 0};
    assert_gk_ok(emu_launch(emu_device, module, 1, 1, 64, &a, sizeof a));
    static const uint32_t RIGHT[16] = {UINT32_MAX, UINT32_MAX, 0x04030201, 0x100f0e0d,
                                       UINT32_MAX, 0x14131211, 0x00000015, 0,
                                       UINT32_MAX, 0x201f1e1d, UINT32_MAX, UINT32_MAX,
                                       40,         0xeeeeeeee, 0xeeeeeeee, 0xeeeeeeee};
    for (size_t i = 0; i < 16; i++) {
        assert_int_equal(out[i], RIGHT[i]);
    }
    static const char *const PARTS[] = {
        "cp.async of 16 bytes: shared memory offset 8 is misaligned, must be a multiple of 16 at "
        "test.cu:6",
        "is misaligned, must be a multiple of 8",
        "shared memory offset 64 is outside the block's 64 bytes",
        "9 valid bytes, must be 0 to 8",
    };
    for (size_t i = 0; i < sizeof PARTS / sizeof PARTS[0]; i++) {
        a.what = (int64_t)i + 1;
        assert_gk_err(emu_launch(emu_device, module, 1, 1, 64, &a, sizeof a), GK_ERR_DEVICE,
                      PARTS[i]);
    }
    assert_int_equal(munmap(map, 2 * page), 0);
    emu_device->driver->module_unload(emu_device, module);
}

/* A tile is brought in by one warp and read by another; what: 0 = right, 1 = without the wait,
 * 2 = without the barrier. */
static const char PIPELINE[] = ARGS_TEXT "GK_KERNEL(64, 1, args, a)\n"
                                         "{\n"
                                         "    GK_DYNAMIC_SHARED(s);\n"
                                         "    const unsigned t = threadIdx.x;\n"
                                         "    gk::cp_async<4>(s + 4 * t, a.in + 4 * t, 4);\n"
                                         "    gk::cp_async_commit();\n"
                                         "    if (a.what != 1) gk::cp_async_wait<0>();\n"
                                         "    if (a.what != 2) __syncthreads();\n"
                                         "    a.out[t] = ((unsigned *)s)[63 - t];\n"
                                         "}\n";

static void test_missing_wait(void **state)
{
    (void)state;
    gki_module *module = emu_load(emu_device, PIPELINE);
    uint32_t in[64];
    uint32_t out[64];
    for (uint32_t i = 0; i < 64; i++) {
        in[i] = i * 3;
    }
    for (int64_t what = 0; what < 3; what++) {
        const args a = {(const unsigned char *)in, out, what};
        assert_gk_ok(emu_launch(emu_device, module, 1, 64, 256, &a, sizeof a));
        uint32_t right = 0;
        for (uint32_t i = 0; i < 64; i++) {
            right += out[i] == (63 - i) * 3;
        }
        assert_true(what == 0 ? right == 64 : right < 64);
    }
    emu_device->driver->module_unload(emu_device, module);
}

/* Piece `what` of 16 bytes, of which a thread reads 16, or fewer. */
static const char PIECES[] = ARGS_TEXT "GK_KERNEL(32, 1, args, a)\n"
                                       "{\n"
                                       "    GK_DYNAMIC_SHARED(s);\n"
                                       "    if (threadIdx.x != 0) return;\n"
                                       "    const int valid = a.what & 255;\n"
                                       "    gk::cp_async<16>(s, a.in + (a.what >> 8), valid);\n"
                                       "    gk::cp_async_commit();\n"
                                       "    gk::cp_async_wait<0>();\n"
                                       "    a.out[0] = *(unsigned *)s;\n"
                                       "}\n";

/* The device knows where the memory it gave out ends, to the byte. */
static void test_past_the_end(void **state)
{
    (void)state;
    enum { BYTES = 36, N = 40 };
    gki_module *module = emu_load(emu_device, PIECES);
    void *memory[N];
    /* Many, so that the right one has to be found among neighbours. */
    for (int i = 0; i < N; i++) {
        assert_gk_ok(emu_device->driver->mem_alloc(emu_device, BYTES, &memory[i]));
        memset(memory[i], i + 1, BYTES);
    }
    for (int i = 1; i < N; i += 2) {
        assert_gk_ok(emu_device->driver->mem_free(emu_device, memory[i]));
    }
    for (int i = 0; i < N; i += 2) {
        uint32_t out = 0;
        args a = {memory[i], &out, 16 << 8 | 16};
        assert_gk_ok(emu_launch(emu_device, module, 1, 32, 64, &a, sizeof a));
        assert_int_equal(out, 0x01010101 * (i + 1));
        a.what = 32 << 8 | 4;
        out = 0;
        assert_gk_ok(emu_launch(emu_device, module, 1, 32, 64, &a, sizeof a));
        assert_int_equal(out, 0x01010101 * (i + 1));
        a.what = 32 << 8 | 5;
        assert_gk_err(emu_launch(emu_device, module, 1, 32, 64, &a, sizeof a), GK_ERR_DEVICE,
                      "4 bytes before the end of an allocation of 36");
        a.what = 48 << 8 | 0; /* reads nothing */
        assert_gk_ok(emu_launch(emu_device, module, 1, 32, 64, &a, sizeof a));
        assert_gk_ok(emu_device->driver->mem_free(emu_device, memory[i]));
    }
    /* Of memory that comes from elsewhere the end is not known. */
    _Alignas(16) static const unsigned char own[64] = {1};
    uint32_t out = 0;
    const args a = {own, &out, 16};
    assert_gk_ok(emu_launch(emu_device, module, 1, 32, 64, &a, sizeof a));
    assert_int_equal(out, 1);
    emu_device->driver->module_unload(emu_device, module);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        EMU_TEST(test_copies),
        EMU_TEST(test_missing_wait),
        EMU_TEST(test_past_the_end),
    };
    return GK_TEST_MAIN(tests);
}
