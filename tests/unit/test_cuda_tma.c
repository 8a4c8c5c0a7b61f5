/* Tensor maps, clusters and cooperative launches on a GPU of compute capability 9.0 or later. */
#define _GNU_SOURCE
#include "support/gk_test.h"

#include <string.h>

#include "base/alloc.h"
#include "driver/driver.h"

static gki_device *device;
static gk_device_info info;

static const gki_driver *driver(void)
{
    return &gki_driver_cuda;
}

static int open_or_skip(void **state)
{
    (void)state;
    device = NULL;
    const gk_status status = driver()->open(driver(), 0, NULL, &device);
    if (status != GK_OK && status != GK_ERR_NO_DRIVER) {
        print_error("open: %s\n", gk_error_last()->message);
        return -1;
    }
    if (status == GK_OK) {
        driver()->info(device, &info);
    }
    return 0;
}

static int close_device(void **state)
{
    (void)state;
    if (device != NULL) {
        driver()->close(device);
        device = NULL;
    }
    return 0;
}

static bool absent(void)
{
    if (device == NULL || info.cc < 90) {
        gk_test_skip("no GPU of compute capability 9.0");
        return true;
    }
    return false;
}

static gki_module *load(const char *source, const char *kernel)
{
    gki_compiled code;
    gki_module *module = NULL;
    assert_gk_ok(driver()->compile(device, source, &code));
    assert_gk_ok(driver()->module_load(device, code.code, code.size, kernel, &module));
    gki_free(code.code);
    gki_free(code.log);
    return module;
}

/* --- maps --- */

enum { COLS = 100, PITCH = 112, ROWS = 50, BOX_COLS = 32, BOX_ROWS = 8 };
enum { BOX = BOX_COLS * BOX_ROWS };

typedef struct box_args {
    gk_tensor_map map;
    float *out;
    int x, y, store;
} box_args;

/* Copies a box to `out` as it lies in shared memory, or `out` to the box. */
static const char box_source[] =
    "struct alignas(64) args_t { unsigned char map[128]; float *out; int x, y, store; };\n"
    "extern \"C\" __global__ void box(const __grid_constant__ args_t args)\n"
    "{\n"
    "    __shared__ alignas(1024) float tile[256];\n"
    "    __shared__ alignas(8) unsigned long long bar;\n"
    "    unsigned s = (unsigned)__cvta_generic_to_shared(tile);\n"
    "    unsigned b = (unsigned)__cvta_generic_to_shared(&bar);\n"
    "    if (args.store) {\n"
    "        for (int i = threadIdx.x; i < 256; i += blockDim.x) tile[i] = args.out[i];\n"
    "        asm volatile(\"fence.proxy.async.shared::cta;\" ::: \"memory\");\n"
    "        __syncthreads();\n"
    "        if (threadIdx.x == 0) {\n"
    "            asm volatile(\"cp.async.bulk.tensor.2d.global.shared::cta.bulk_group "
    "[%0, {%1, %2}], [%3];\" :: \"l\"(&args.map), \"r\"(args.x), \"r\"(args.y), \"r\"(s) : "
    "\"memory\");\n"
    "            asm volatile(\"cp.async.bulk.commit_group;\" ::: \"memory\");\n"
    "            asm volatile(\"cp.async.bulk.wait_group 0;\" ::: \"memory\");\n"
    "        }\n"
    "        return;\n"
    "    }\n"
    "    if (threadIdx.x == 0) {\n"
    "        asm volatile(\"mbarrier.init.shared::cta.b64 [%0], 1;\" :: \"r\"(b) : \"memory\");\n"
    "        asm volatile(\"fence.mbarrier_init.release.cluster;\" ::: \"memory\");\n"
    "        asm volatile(\"mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], 1024;\" "
    ":: \"r\"(b) : \"memory\");\n"
    "        asm volatile(\"cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier"
    "::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];\" :: \"r\"(s), \"l\"(&args.map), "
    "\"r\"(args.x), \"r\"(args.y), \"r\"(b) : \"memory\");\n"
    "    }\n"
    "    __syncthreads();\n"
    "    unsigned done = 0;\n"
    "    while (!done)\n"
    "        asm volatile(\"{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], 0; "
    "selp.u32 %0, 1, 0, p; }\" : \"=r\"(done) : \"r\"(b) : \"memory\");\n"
    "    for (int i = threadIdx.x; i < 256; i += blockDim.x) args.out[i] = tile[i];\n"
    "}\n";

typedef struct box_case {
    float matrix[ROWS * PITCH];
    float tile[BOX];
    gki_module *module;
    void *d_matrix, *d_tile;
} box_case;

static void run_box(box_case *b, uint32_t swizzle, int x, int y, int store)
{
    const gk_map_desc desc = {.data = b->d_matrix,
                              .dtype = GK_F32,
                              .rank = 2,
                              .dims = {COLS, ROWS},
                              .strides = {0, PITCH * 4},
                              .box = {BOX_COLS, BOX_ROWS},
                              .swizzle = swizzle,
                              .l2_promotion = 128};
    box_args args;
    memset(&args, 0, sizeof(args));
    assert_gk_ok(driver()->map_encode(device, &desc, &args.map));
    args.out = b->d_tile;
    args.x = x;
    args.y = y;
    args.store = store;
    const gki_kernel_launch launch = {
        .module = b->module, .grid = 1, .threads = 128, .args = &args, .args_size = sizeof(args)};
    assert_gk_ok(driver()->launch(device, &launch, NULL));
}

/* Where element (row, col) of a box lies: 16-byte chunks change places within the span. */
static int place(uint32_t swizzle, int row, int col)
{
    const int at = (row * BOX_COLS + col) * 4;
    const int bits = swizzle == 128 ? 7 : swizzle == 64 ? 3 : swizzle == 32 ? 1 : 0;
    return (at ^ ((at >> 7 & bits) << 4)) / 4;
}

static void check_load(box_case *b, uint32_t swizzle, int x, int y)
{
    assert_gk_ok(driver()->fill(device, b->d_tile, 0xff, sizeof(b->tile), NULL));
    run_box(b, swizzle, x, y, 0);
    assert_gk_ok(driver()->copy_out(device, b->tile, b->d_tile, sizeof(b->tile), NULL));
    for (int row = 0; row < BOX_ROWS; row++) {
        for (int col = 0; col < BOX_COLS; col++) {
            const int r = y + row;
            const int c = x + col;
            const bool inside = r >= 0 && r < ROWS && c >= 0 && c < COLS;
            const float right = inside ? b->matrix[r * PITCH + c] : 0;
            assert_true(b->tile[place(swizzle, row, col)] == right);
        }
    }
}

static void check_store(box_case *b, int x, int y)
{
    static float after[ROWS * PITCH];
    for (int i = 0; i < BOX; i++) {
        b->tile[i] = (float)(-1 - i);
    }
    assert_gk_ok(driver()->copy_in(device, b->d_tile, b->tile, sizeof(b->tile), NULL));
    run_box(b, 128, x, y, 1);
    assert_gk_ok(driver()->copy_out(device, after, b->d_matrix, sizeof(after), NULL));
    for (int r = 0; r < ROWS; r++) {
        for (int c = 0; c < PITCH; c++) {
            const bool inside =
                c < COLS && r >= y && r < y + BOX_ROWS && c >= x && c < x + BOX_COLS;
            const float right =
                inside ? b->tile[place(128, r - y, c - x)] : b->matrix[r * PITCH + c];
            assert_true(after[r * PITCH + c] == right);
        }
    }
    assert_gk_ok(driver()->copy_in(device, b->d_matrix, b->matrix, sizeof(b->matrix), NULL));
}

static void test_boxes(void **state)
{
    (void)state;
    if (absent()) {
        return;
    }
    static box_case b;
    for (int i = 0; i < ROWS * PITCH; i++) {
        b.matrix[i] = (float)(1 + i);
    }
    b.module = load(box_source, "box");
    assert_gk_ok(driver()->mem_alloc(device, sizeof(b.matrix), &b.d_matrix));
    assert_gk_ok(driver()->mem_alloc(device, sizeof(b.tile), &b.d_tile));
    assert_gk_ok(driver()->copy_in(device, b.d_matrix, b.matrix, sizeof(b.matrix), NULL));
    check_load(&b, 0, 0, 0);
    check_load(&b, 128, 4, 3);
    check_load(&b, 128, 80, 45);
    check_load(&b, 128, -8, -3);
    check_store(&b, 0, 0);
    check_store(&b, 80, 45);
    assert_gk_ok(driver()->mem_free(device, b.d_matrix));
    assert_gk_ok(driver()->mem_free(device, b.d_tile));
    driver()->module_unload(device, b.module);
}

static void test_types(void **state)
{
    (void)state;
    if (absent()) {
        return;
    }
    static const int32_t dtypes[] = {GK_F64,  GK_F32, GK_F16, GK_BF16, GK_E4M3,
                                     GK_E5M2, GK_I32, GK_I8,  GK_U8,   GK_BOOL};
    gk_tensor_map map;
    gk_map_desc desc = {.data = (void *)(uintptr_t)256,
                        .rank = 2,
                        .dims = {1000, 500},
                        .strides = {0, 8000},
                        .box = {16, 256},
                        .swizzle = 128,
                        .l2_promotion = 256};
    for (size_t i = 0; i < sizeof(dtypes) / sizeof(dtypes[0]); i++) {
        desc.dtype = dtypes[i];
        assert_gk_ok(driver()->map_encode(device, &desc, &map));
    }
    /* What the driver itself refuses is an error and leaves the device usable. */
    desc.strides[1] = 8001;
    assert_gk_err(driver()->map_encode(device, &desc, &map), GK_ERR_DEVICE, "tensor map");
    void *memory = NULL;
    assert_gk_ok(driver()->mem_alloc(device, 1, &memory));
    assert_gk_ok(driver()->mem_free(device, memory));
}

/* --- cooperative launches and clusters --- */

typedef struct meet_args {
    unsigned *counter; /* zero before and after */
    unsigned *out;
    long long blocks;
} meet_args;

/* Every block waits for all others. */
static const char meet_source[] =
    "struct args_t { unsigned *counter; unsigned *out; long long blocks; };\n"
    "extern \"C\" __global__ void meet(const __grid_constant__ args_t args)\n"
    "{\n"
    "    unsigned ranks;\n"
    "    asm(\"mov.u32 %0, %cluster_nctarank;\" : \"=r\"(ranks));\n"
    "    if (threadIdx.x == 0) {\n"
    "        atomicAdd(&args.counter[0], 1u);\n"
    "        while (atomicAdd(&args.counter[0], 0u) < args.blocks) { }\n"
    "        args.out[blockIdx.x] = ranks;\n"
    "        if (atomicAdd(&args.counter[1], 1u) == args.blocks - 1) {\n"
    "            args.counter[0] = 0; args.counter[1] = 0;\n"
    "        }\n"
    "    }\n"
    "}\n";

static void check_meeting(gki_module *module, int32_t cluster, int64_t smem)
{
    enum { MOST = 32 * 200 };
    static unsigned out[MOST];
    void *counter = NULL;
    void *d_out = NULL;
    int64_t blocks = 0;
    double seconds = 0;
    gki_kernel_launch launch = {.module = module,
                                .grid = cluster,
                                .threads = 128,
                                .cluster = cluster,
                                .cooperative = 1,
                                .smem = smem};
    assert_gk_ok(driver()->module_reserve(device, module, smem, cluster));
    assert_gk_ok(driver()->resident(device, &launch, &blocks));
    print_message("clusters of %d, %lld bytes: %lld blocks\n", (int)cluster, (long long)smem,
                  (long long)blocks);
    assert_in_range(blocks, cluster, MOST);
    assert_gk_ok(driver()->mem_alloc(device, 8, &counter));
    assert_gk_ok(driver()->fill(device, counter, 0, 8, NULL));
    assert_gk_ok(driver()->mem_alloc(device, sizeof(out), &d_out));
    const meet_args args = {counter, d_out, blocks};
    launch.grid = blocks;
    launch.args = &args;
    launch.args_size = sizeof(args);
    assert_gk_ok(driver()->launch(device, &launch, NULL));
    assert_gk_ok(driver()->copy_out(device, out, d_out, sizeof(out), NULL));
    for (int64_t i = 0; i < blocks; i++) {
        assert_int_equal(out[i], cluster > 1 ? cluster : 1);
    }
    assert_gk_ok(driver()->time(device, &launch, 1, 20, true, &seconds));
    assert_gk_ok(driver()->time(device, &launch, 1, 20, false, &seconds));
    if (cluster == 1) {
        /* One more would wait for ever: it is refused. */
        launch.grid = blocks + 1;
        assert_gk_err(driver()->launch(device, &launch, NULL), GK_ERR_DEVICE, "at once");
    }
    assert_gk_ok(driver()->mem_free(device, counter));
    assert_gk_ok(driver()->mem_free(device, d_out));
}

static void test_meetings(void **state)
{
    (void)state;
    if (absent()) {
        return;
    }
    gki_module *module = load(meet_source, "meet");
    check_meeting(module, 1, 0);
    check_meeting(module, 1, info.smem_per_block_optin);
    check_meeting(module, 2, 0);
    check_meeting(module, 2, info.smem_per_block_optin);
    check_meeting(module, 8, 1024);
    driver()->module_unload(device, module);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_boxes, open_or_skip, close_device),
        cmocka_unit_test_setup_teardown(test_types, open_or_skip, close_device),
        cmocka_unit_test_setup_teardown(test_meetings, open_or_skip, close_device),
    };
    return GK_TEST_MAIN(tests);
}
