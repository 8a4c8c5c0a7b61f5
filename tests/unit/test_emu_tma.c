/* Bulk copies by tensor maps on the CPU device: boxes, swizzles, edges, and when they happen. */
#include <stdlib.h>
#include <string.h>

#include "support/emu_kernel.h"
#include "support/gk_test.h"

enum { SHARED = 32768, LINE = 128 };

/* The kernels' parameter, as any with maps. */
typedef struct args {
    gk_tensor_map map;
    gk_tensor_map second;
    unsigned char *in;
    unsigned char *out;
    int64_t what;
    int64_t at[4];
    int64_t bytes; /* a box */
} args;

#define ARGS_TEXT                                                                                  \
    "#include \"gk/hopper.cuh\"\n"                                                                 \
    "struct args { gk_tensor_map map, second; unsigned char *in, *out; long long what, at[4];"     \
    " long long bytes; };\n"

static args new_args(const gk_map_desc *desc)
{
    args a = {.what = 0};
    assert_gk_ok(emu_device->driver->map_encode(emu_device, desc, &a.map));
    a.second = a.map;
    return a;
}

static gk_status launch(gki_module *module, int64_t grid, int32_t cluster, const args *a)
{
    const gki_kernel_launch what = {.module = module,
                                    .grid = grid,
                                    .threads = 64,
                                    .cluster = cluster,
                                    .smem = SHARED,
                                    .args = a,
                                    .args_size = sizeof *a};
    return emu_device->driver->launch(emu_device, &what, NULL);
}

/* Loads a box to offset 1024 and gives back the shared memory; or the other way round. */
static const char COPY[] = ARGS_TEXT
    "GK_KERNEL(64, 1, args, a)\n" /* line 3 */
    "{\n"
    "    GK_DYNAMIC_SHARED(s);\n"
    "    gk_u64 *bar = (gk_u64 *)s;\n"
    "    const int x = (int)a.at[0], y = (int)a.at[1], z = (int)a.at[2], w = (int)a.at[3];\n"
    "    const unsigned t = threadIdx.x;\n"
    "    if (a.what >= 10) for (int i = 1024 + t; i < 32768; i += 64) s[i] = a.in[i];\n"
    "    if (t == 0) { gk::mbarrier_init(bar, 1); gk::mbarrier_init_fence(); }\n" /* line 10 */
    "    gk::fence_async_shared();\n"
    "    __syncthreads();\n"
    "    if (t == 0) {\n"
    "        gk::tma_prefetch(a.map);\n"
    "        if (a.what < 10) gk::mbarrier_arrive_expect(bar, (gk_u32)a.bytes);\n"
    "        if (a.what == 2) gk::tma_load(s + 1024, a.map, bar, x, y);\n"
    "        if (a.what == 3) gk::tma_load(s + 1024, a.map, bar, x, y, z, gk::EVICT_FIRST);\n"
    "        if (a.what == 4) gk::tma_load(s + 1024, a.map, bar, x, y, z, w);\n"
    "        if (a.what == 5) gk::tma_load(s + 1024 + 64, a.map, bar, x, y);\n"
    "        if (a.what == 6) gk::tma_load(s + 32768 - 128, a.map, bar, x, y);\n" /* line 20 */
    "        if (a.what == 7) gk::tma_load(s + 1024, a.map, bar, x, y, (gk_u64)5);\n"
    "        if (a.what == 8) gk::tma_load(s + 1024, *(gk_tensor_map *)a.in, bar, x, y);\n"
    "        if (a.what == 12) gk::tma_store(a.map, s + 1024, x, y);\n"
    "        if (a.what == 13) gk::tma_store(a.map, s + 1024, x, y, z);\n"
    "        if (a.what == 14) gk::tma_store(a.map, s + 1024 + 16, x, y);\n"
    "        gk::tma_store_commit();\n"
    "        gk::tma_store_wait<0>();\n"
    "    }\n"
    "    if (a.what >= 10) return;\n"
    "    gk::mbarrier_wait(bar, 0);\n" /* line 30 */
    "    for (int i = t; i < 32768; i += 64) a.out[i] = i < 1024 ? 0xff : s[i];\n"
    "}\n";

/* An array of some rank with other bytes around it. */
typedef struct array {
    unsigned char *base;
    gk_map_desc desc;
    int64_t bytes; /* of the allocation; the array begins at GUARD */
} array;

enum { GUARD = 256 };

static array new_array(int32_t dtype, uint32_t rank, const int64_t *dims, const int32_t *box,
                       uint32_t swizzle)
{
    array a = {.desc = {.dtype = dtype, .rank = rank, .swizzle = swizzle}};
    int64_t stride = (int64_t)gk_dtype_size((gk_dtype)dtype);
    for (uint32_t i = 0; i < rank; i++) {
        a.desc.dims[i] = dims[i];
        a.desc.box[i] = box[i];
        a.desc.strides[i] = i == 0 ? 0 : stride;
        /* gaps behind every axis */
        stride = (stride * dims[i] + 15) / 16 * 16 + 16 * (i + 1);
    }
    a.bytes = stride + 2 * GUARD;
    void *memory = NULL;
    assert_gk_ok(emu_device->driver->mem_alloc(emu_device, (size_t)a.bytes, &memory));
    a.base = memory;
    a.desc.data = a.base + GUARD;
    uint32_t seed = 7;
    for (int64_t i = 0; i < a.bytes; i++) {
        seed = seed * 1664525u + 1013904223u;
        a.base[i] = (unsigned char)(1 + (seed >> 24) % 255); /* never 0 */
    }
    return a;
}

static void free_array(array *a)
{
    assert_gk_ok(emu_device->driver->mem_free(emu_device, a->base));
}

/* The array's byte b of the element at the coordinates; NULL outside. */
static unsigned char *element_byte(const array *a, const int64_t *at, int64_t b)
{
    unsigned char *p = a->desc.data;
    for (uint32_t i = 0; i < a->desc.rank && i < GK_MAX_MAP_RANK; i++) {
        if (at[i] < 0 || at[i] >= a->desc.dims[i]) {
            return NULL;
        }
        p +=
            at[i] * (i == 0 ? (int64_t)gk_dtype_size((gk_dtype)a->desc.dtype) : a->desc.strides[i]);
    }
    return p + b;
}

/*
 * Where byte `index` of a box is behind an address aligned to 1024, by the tables of the CUDA
 * programming guide: row r's chunk c of 16 bytes is at chunk c ^ r % 8 for rows of 128 bytes; the
 * narrower patterns exchange chunks of a 128-byte line that holds 2 or 4 rows.
 */
static int64_t placed(int64_t index, uint32_t swizzle)
{
    static const int HALF[4] = {0, 1, 2, 3}; /* 64 bytes: lines 0 to 3 of the pattern */
    const int64_t line = index / LINE;
    const int64_t chunk = index % LINE / 16;
    int64_t moved = chunk;
    if (swizzle == 128) {
        moved = chunk ^ line % 8;
    } else if (swizzle == 64) {
        moved = chunk / 4 * 4 + (chunk % 4 ^ HALF[line % 4]);
    } else if (swizzle == 32) {
        moved = chunk / 2 * 2 + (chunk % 2 ^ line % 2);
    }
    return line * LINE + moved * 16 + index % 16;
}

static int64_t box_bytes(const gk_map_desc *desc)
{
    int64_t bytes = (int64_t)gk_dtype_size((gk_dtype)desc->dtype);
    for (uint32_t i = 0; i < desc->rank; i++) {
        bytes *= desc->box[i];
    }
    return bytes;
}

/* The coordinates of the box's byte `index`. */
static int64_t locate(const array *a, const int64_t *origin, int64_t index, int64_t *at)
{
    const int64_t size = (int64_t)gk_dtype_size((gk_dtype)a->desc.dtype);
    const int64_t b = index % size;
    index /= size;
    for (uint32_t i = 0; i < a->desc.rank; i++) {
        at[i] = origin[i] + index % a->desc.box[i];
        index /= a->desc.box[i];
    }
    return b;
}

static void check_load(gki_module *module, array *a, const int64_t *at)
{
    static unsigned char out[SHARED];
    args parameter = new_args(&a->desc);
    memset(out, 0x77, sizeof out);
    parameter.out = out;
    parameter.what = a->desc.rank;
    parameter.bytes = box_bytes(&a->desc);
    memcpy(parameter.at, at, a->desc.rank * sizeof *at);
    assert_gk_ok(launch(module, 1, 1, &parameter));
    for (int64_t i = 0; i < parameter.bytes; i++) {
        int64_t coordinates[5];
        const int64_t b = locate(a, at, i, coordinates);
        const unsigned char *source = element_byte(a, coordinates, b);
        assert_int_equal(out[1024 + placed(i, a->desc.swizzle)], source != NULL ? *source : 0);
    }
    for (int64_t i = 1024 + parameter.bytes; i < SHARED; i++) {
        assert_int_equal(out[i], 0xff);
    }
}

/* The same for stores, which cut rows at multiples of 16 bytes only. first: of the box's columns.
 */
static unsigned char *stored_byte(const array *a, int64_t first, const int64_t *at, int64_t b)
{
    const int64_t size = (int64_t)gk_dtype_size((gk_dtype)a->desc.dtype);
    const int64_t past = at[0] - a->desc.dims[0];
    const int64_t row = a->desc.dims[0] * size;
    if (first >= a->desc.dims[0] || past < 0 || past * size >= (16 - row % 16) % 16) {
        return element_byte(a, at, b);
    }
    int64_t last[GK_MAX_MAP_RANK] = {0};
    memcpy(last, at, a->desc.rank * sizeof *at);
    last[0] = a->desc.dims[0] - 1;
    unsigned char *byte = element_byte(a, last, b);
    return byte != NULL ? byte + (past + 1) * size : NULL;
}

static void check_store(gki_module *module, array *a, const int64_t *at)
{
    static unsigned char in[SHARED];
    args parameter = new_args(&a->desc);
    for (size_t i = 0; i < SHARED; i++) {
        in[i] = (unsigned char)(i * 31 + i / 251);
    }
    unsigned char *before = malloc((size_t)a->bytes);
    assert_non_null(before);
    memcpy(before, a->base, (size_t)a->bytes);
    parameter.in = in;
    parameter.what = 10 + a->desc.rank;
    memcpy(parameter.at, at, a->desc.rank * sizeof *at);
    assert_gk_ok(launch(module, 1, 1, &parameter));
    for (int64_t i = 0; i < box_bytes(&a->desc); i++) {
        int64_t coordinates[5];
        const int64_t b = locate(a, at, i, coordinates);
        unsigned char *target = stored_byte(a, at[0], coordinates, b);
        if (target != NULL) {
            assert_int_equal(*target, in[1024 + placed(i, a->desc.swizzle)]);
            before[target - a->base] = *target;
        }
    }
    assert_memory_equal(before, a->base, (size_t)a->bytes); /* all else is as it was */
    free(before);
}

typedef struct shape {
    int32_t dtype;
    uint32_t rank;
    int64_t dims[4];
    int32_t box[4];
    uint32_t swizzle;
} shape;

static const shape SHAPES[] = {
    {GK_BF16, 2, {100, 50}, {64, 40}, 128},  {GK_F32, 2, {70, 33}, {32, 64}, 128},
    {GK_U8, 2, {300, 17}, {128, 16}, 128},   {GK_F16, 2, {90, 40}, {32, 24}, 64},
    {GK_U8, 2, {90, 40}, {32, 20}, 32},      {GK_F32, 2, {90, 40}, {4, 30}, 0},
    {GK_BF16, 2, {90, 40}, {200, 32}, 0},    {GK_BF16, 3, {80, 20, 5}, {64, 12, 3}, 128},
    {GK_F32, 3, {40, 9, 4}, {16, 6, 2}, 64}, {GK_I8, 3, {70, 9, 40}, {32, 3, 17}, 32},
    {GK_F64, 3, {40, 9, 4}, {2, 5, 4}, 0},   {GK_BF16, 4, {70, 10, 4, 3}, {64, 4, 2, 2}, 128},
};

static void test_boxes(void **state)
{
    (void)state;
    gki_module *module = emu_load(emu_device, COPY);
    for (size_t i = 0; i < sizeof SHAPES / sizeof SHAPES[0]; i++) {
        const shape *s = &SHAPES[i];
        array a = new_array(s->dtype, s->rank, s->dims, s->box, s->swizzle);
        /* Inside, over every edge, and outside. */
        const int64_t places[][4] = {{0, 0, 0, 0},
                                     {3, 5, 1, 1},
                                     {-7, -3, -1, -1},
                                     {s->dims[0] - 9, s->dims[1] - 2, 2, 1},
                                     {s->dims[0] - 1, -2, 0, 0},
                                     {s->dims[0], 0, 0, 0},
                                     {0, -1000, 0, 0},
                                     {0x7fff0000, 0, 0, 0},
                                     {INT32_MIN, INT32_MAX, 0, 0}};
        for (size_t j = 0; j < sizeof places / sizeof places[0]; j++) {
            check_load(module, &a, places[j]);
            if (s->rank < 4) {
                check_store(module, &a, places[j]);
            }
        }
        free_array(&a);
    }
    emu_device->driver->module_unload(emu_device, module);
}

static void test_mistakes(void **state)
{
    (void)state;
    gki_module *module = emu_load(emu_device, COPY);
    array a = new_array(GK_BF16, 2, SHAPES[0].dims, SHAPES[0].box, 128);
    _Alignas(64) static unsigned char out[SHARED];
    args parameter = new_args(&a.desc);
    parameter.out = out;
    parameter.in = out;
    parameter.bytes = box_bytes(&a.desc);
    static const struct {
        int64_t what;
        const char *part;
    } CASES[] = {
        {3,
         "tma_load: 3 coordinates, the map has 2 at test.cu:17 in block (0,0,0), thread (0,0,0)"},
        {5, "tma_load: 5120 bytes at shared memory offset 1088, must be a multiple of 128"},
        {6, "tma_load: 5120 bytes at shared memory offset 32640, must be a multiple of 128 inside "
            "the block's 32768 bytes"},
        {7, "0x5 is no cache policy"},
        {8, "there is no tensor map at"},
        {13, "tma_store: 3 coordinates, the map has 2"},
        {14, "tma_store: 5120 bytes at shared memory offset 1040"},
    };
    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++) {
        parameter.what = CASES[i].what;
        assert_gk_err(launch(module, 1, 1, &parameter), GK_ERR_DEVICE, CASES[i].part);
    }
    /* More bytes expected than come, and fewer. */
    parameter.what = 2;
    parameter.bytes += 16;
    assert_gk_err(launch(module, 1, 1, &parameter), GK_ERR_DEVICE,
                  "phase 0 lacks 0 of 1 arrivals and 16 bytes");
    parameter.bytes -= 32;
    assert_gk_err(launch(module, 1, 1, &parameter), GK_ERR_DEVICE,
                  "phase 0 lacks 0 of 1 arrivals and -16 bytes");
    /* A map that reaches past its memory. */
    gk_map_desc wrong = a.desc;
    wrong.dims[1] = 60;
    args past = new_args(&wrong);
    past.out = past.in = out;
    past.bytes = box_bytes(&wrong);
    past.at[1] = 40;
    past.what = 2;
    assert_gk_err(launch(module, 1, 1, &past), GK_ERR_DEVICE, "past the end of an allocation of");
    past.what = 12;
    assert_gk_err(launch(module, 1, 1, &past), GK_ERR_DEVICE, "tma_store: reaches");
    wrong = a.desc;
    wrong.box[0] = 32;
    assert_gk_err(emu_device->driver->map_encode(emu_device, &wrong, &past.map), GK_ERR_DEVICE,
                  "boxes are 64 bytes wide, a swizzle of 128");
    free_array(&a);
    emu_device->driver->module_unload(emu_device, module);
}

/* Loads of a map for tf32 round to nearest even. */
static void test_tf32(void **state)
{
    (void)state;
    static const uint32_t CASES[][2] = {
        {0x3f800fff, 0x3f800000}, {0x3f801000, 0x3f800000}, {0x3f801001, 0x3f802000},
        {0x3f803000, 0x3f804000}, {0xbf802fff, 0xbf802000}, {0x3fffffff, 0x40000000},
        {0x7f800000, 0x7f800000}, {0x00001800, 0x00002000},
    };
    gki_module *module = emu_load(emu_device, COPY);
    static unsigned char found[SHARED];
    _Alignas(16) uint32_t in[8];
    for (size_t i = 0; i < 8; i++) {
        in[i] = CASES[i][0];
    }
    gk_map_desc desc = {in, GK_F32, 2, {8, 1}, {0, 32}, {8, 1}, 32, 0, 0};
    desc.tf32 = 1;
    args a = new_args(&desc);
    a.out = found;
    a.what = 2;
    a.bytes = 32;
    assert_gk_ok(launch(module, 1, 1, &a));
    for (size_t i = 0; i < 8; i++) {
        uint32_t bits;
        memcpy(&bits, found + 1024 + 4 * i, sizeof bits);
        assert_int_equal(bits, CASES[i][1]);
    }
    emu_device->driver->module_unload(emu_device, module);
}

/*
 * When things happen, seen by one thread. in: 256 bytes, map: boxes of 128 bytes of it, second: of
 * the output.
 */
static const char TIMES[] =
    ARGS_TEXT "GK_KERNEL(64, 1, args, a)\n" /* line 3 */
              "{\n"
              "    GK_DYNAMIC_SHARED(s);\n"
              "    if (threadIdx.x != 0) return;\n"
              "    gk_u64 *bar = (gk_u64 *)s;\n"
              "    unsigned char *b = s + 1024, *o = a.out + 1024;\n"
              "    gk::mbarrier_init(bar, 1);\n"
              "    gk::mbarrier_init(bar + 1, 1);\n" /* line 10 */
              "    gk::mbarrier_init_fence();\n"
              "    b[0] = 9;\n"
              "    gk::mbarrier_arrive_expect(bar, 128);\n"
              "    gk::tma_load(b, a.map, bar, 0, 0);\n"
              "    gk::mbarrier_arrive_expect(bar + 1, 128);\n"
              "    gk::tma_load(b + 128, a.map, bar + 1, 0, 1);\n"
              "    *o++ = b[0];\n" /* in flight: poison */
              "    *o++ = b[127];\n"
              "    gk::mbarrier_wait(bar + 1, 0);\n"
              "    *o++ = b[128];\n" /* line 20: the second, not the first */
              "    *o++ = b[0];\n"
              "    gk::mbarrier_wait(bar, 0);\n"
              "    *o++ = b[0];\n"
              "    b[0] = 50;\n"
              "    gk::tma_store(a.second, b, 0, 0);\n"
              "    gk::tma_store_commit();\n"
              "    b[0] = 51;\n" /* too early: seen by the store */
              "    gk::tma_store_wait_read<0>();\n"
              "    b[0] = 52;\n"
              "    *o++ = a.out[0];\n" /* line 30: not written yet */
              "    gk::tma_store_wait<0>();\n"
              "    *o++ = a.out[0];\n"
              "    gk::tma_store(a.second, b, 0, 0);\n"
              "    gk::tma_store_commit();\n"
              "    gk::tma_store(a.second, b + 128, 0, 1);\n"
              "    gk::tma_store_commit();\n"
              "    gk::tma_store_wait<1>();\n"
              "    *o++ = a.out[0];\n"
              "    *o++ = a.out[128];\n"
              "    if (a.what == 1) return;\n" /* line 40 */
              "    gk::tma_store_wait_read<0>();\n"
              "}\n";

static void test_times(void **state)
{
    (void)state;
    gki_module *module = emu_load(emu_device, TIMES);
    _Alignas(16) static unsigned char in[256];
    _Alignas(16) static unsigned char out[2048];
    const gk_map_desc desc = {in, GK_U8, 2, {128, 2}, {0, 128}, {128, 1}, 128, 0, 0};
    args a = new_args(&desc);
    gk_map_desc second = desc;
    second.data = out;
    assert_gk_ok(emu_device->driver->map_encode(emu_device, &second, &a.second));
    memset(in, 1, 128);
    memset(in + 128, 2, 128);
    memset(out, 7, sizeof out);
    a.out = out;
    assert_gk_ok(launch(module, 1, 1, &a));
    static const unsigned char RIGHT[] = {0xff, 0xff, 2, 0xff, 1, 7, 51, 52, 7, 7};
    for (size_t i = 0; i < sizeof RIGHT; i++) {
        assert_int_equal(out[1024 + i], RIGHT[i]);
    }
    assert_int_equal(out[0], 52);
    assert_int_equal(out[128], 2);
    assert_int_equal(out[255], 2);
    a.what = 1;
    assert_gk_err(launch(module, 1, 1, &a), GK_ERR_DEVICE,
                  "tma_store: the thread has returned without waiting until shared memory was read "
                  "at test.cu:35");
    emu_device->driver->module_unload(emu_device, module);
}

/* Two warps wait for a load each: copies may overtake each other, so that the second lands first.
 */
static const char OVERTAKES[] = ARGS_TEXT "GK_KERNEL(64, 1, args, a)\n"
                                          "{\n"
                                          "    GK_DYNAMIC_SHARED(s);\n"
                                          "    gk_u64 *bar = (gk_u64 *)s;\n"
                                          "    unsigned char *b = s + 1024;\n"
                                          "    if (threadIdx.x == 0) {\n"
                                          "        gk::mbarrier_init(bar, 1);\n"
                                          "        gk::mbarrier_init(bar + 1, 1);\n"
                                          "        gk::mbarrier_init_fence();\n"
                                          "        gk::mbarrier_arrive_expect(bar, 128);\n"
                                          "        gk::tma_load(b, a.map, bar, 0, 0);\n"
                                          "        gk::mbarrier_arrive_expect(bar + 1, 128);\n"
                                          "        gk::tma_load(b + 128, a.map, bar + 1, 0, 1);\n"
                                          "    }\n"
                                          "    __syncthreads();\n"
                                          "    const unsigned warp = threadIdx.x / 32;\n"
                                          "    gk::mbarrier_wait(bar + warp, 0);\n"
                                          "    a.out[threadIdx.x] = b[(1 - warp) * 128];\n"
                                          "}\n";

static void test_overtakes(void **state)
{
    (void)state;
    gki_module *module = emu_load(emu_device, OVERTAKES);
    _Alignas(16) static unsigned char in[256];
    static unsigned char out[64];
    const gk_map_desc desc = {in, GK_U8, 2, {128, 2}, {0, 128}, {128, 1}, 128, 0, 0};
    args a = new_args(&desc);
    memset(in, 1, 128);
    memset(in + 128, 2, 128);
    a.out = out;
    assert_gk_ok(launch(module, 1, 1, &a));
    for (size_t i = 0; i < sizeof out; i++) {
        assert_int_equal(out[i], i < 32 ? 2 : 0xff); /* poison: the first is still under way */
    }
    emu_device->driver->module_unload(emu_device, module);
}

/*
 * Each block of a cluster of `bytes` loads its rows into all of them. what: 1 = to a block that the
 * cluster does not have, 2 = to no block, 3 = a block leaves before its rows have landed.
 */
static const char MULTICAST[] = ARGS_TEXT
    "GK_KERNEL(64, 1, args, a)\n" /* line 3 */
    "{\n"
    "    GK_DYNAMIC_SHARED(s);\n"
    "    gk_u64 *bar = (gk_u64 *)s;\n"
    "    const unsigned n = gk_emu_self->cluster_size, r = gk::cluster_rank(), t = threadIdx.x;\n"
    "    if (t == 0) {\n"
    "        gk::mbarrier_init(bar, 1);\n"
    "        gk::mbarrier_init_fence();\n" /* line 10 */
    "        gk::mbarrier_arrive_expect(bar, n * 1024);\n"
    "    }\n"
    "    gk::cluster_arrive();\n"
    "    gk::cluster_wait();\n"
    "    gk_u16 to = (gk_u16)((1u << n) - 1);\n"
    "    if (a.what == 1) to |= 1u << n;\n"
    "    if (a.what == 2) to = 0;\n"
    "    if (t == 0) gk::tma_load_multicast(s + 1024 + r * 1024, a.map, bar, to, 0, r * 8);\n"
    "    if (a.what == 3 && r == 1) return;\n"
    "    gk::mbarrier_wait(bar, 0);\n" /* line 20 */
    "    for (unsigned i = t; i < n * 1024; i += 64)\n"
    "        a.out[blockIdx.x * 4096 + i] = s[1024 + i];\n"
    "    gk::cluster_arrive();\n"
    "    gk::cluster_wait();\n"
    "}\n";

static void test_multicast(void **state)
{
    (void)state;
    gki_module *module = emu_load(emu_device, MULTICAST);
    static const int64_t dims[] = {64, 30};
    static const int32_t box[] = {64, 8};
    array source = new_array(GK_BF16, 2, dims, box, 128);
    static unsigned char out[4 * 4096];
    args a = new_args(&source.desc);
    a.out = out;
    for (int32_t n = 1; n <= 4; n *= 2) {
        memset(out, 0x77, sizeof out);
        assert_gk_ok(launch(module, 4, n, &a));
        for (int64_t i = 0; i < 4 * n * 1024; i++) {
            const int64_t block = i / (n * 1024);
            const int64_t index = i % (n * 1024);
            const int64_t at[GK_MAX_MAP_RANK] = {index % 128 / 2, index / 128};
            const unsigned char *byte = element_byte(&source, at, index % 2);
            assert_int_equal(out[block * 4096 + placed(index, 128)], byte != NULL ? *byte : 0);
        }
    }
    static const char *const PARTS[] = {
        "tma_load_multicast: blocks 0x7, the cluster has 2 at test.cu:18",
        "tma_load_multicast: to no block at test.cu:18",
        "block (1,0,0) has returned before the load of 1024 bytes that thread 0 of block",
    };
    for (int64_t i = 0; i < 3; i++) {
        a.what = i + 1;
        assert_gk_err(launch(module, 4, 2, &a), GK_ERR_DEVICE, PARTS[i]);
    }
    free_array(&source);
    emu_device->driver->module_unload(emu_device, module);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        EMU_TEST(test_boxes), EMU_TEST(test_mistakes),  EMU_TEST(test_tf32),
        EMU_TEST(test_times), EMU_TEST(test_overtakes), EMU_TEST(test_multicast),
    };
    return GK_TEST_MAIN(tests);
}
