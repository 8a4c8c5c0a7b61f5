/* wgmma of the CPU device against plain loops; what is missing shows. */
#include <math.h>
#include <string.h>

#include "support/emu_kernel.h"
#include "support/gk_test.h"

enum { ROWS = 64, MAX_COLUMNS = 256, MAX_DEPTH = 32, SHARED = 131072, B_AT = 65536 };
enum { F16, BF16, TF32, E4M3, E5M2 };

typedef struct args {
    const unsigned char *in; /* what shared memory holds */
    float *out;              /* 64 x columns, in and out */
    int64_t what;
    uint64_t a;
    uint64_t b;
    const uint32_t *registers; /* four of each thread */
    int64_t accumulate;
} args;

#define ARGS_TEXT                                                                                  \
    "#include \"gk/hopper.cuh\"\n"                                                                 \
    "struct args { const unsigned char *in; float *out; long long what; gk_u64 a, b;"              \
    " const gk_u32 *registers; long long accumulate; };\n"

static gk_status launch(gki_module *module, int32_t threads, const args *a)
{
    const gki_kernel_launch what = {.module = module,
                                    .grid = 1,
                                    .threads = threads,
                                    .cluster = 1,
                                    .smem = SHARED,
                                    .args = a,
                                    .args_size = sizeof *a};
    return emu_device->driver->launch(emu_device, &what, NULL);
}

static gki_module *load(const char *body)
{
    gki_module *module = emu_load(emu_device, body);
    assert_gk_ok(emu_device->driver->module_reserve(emu_device, module, SHARED, 1));
    return module;
}

/* One instruction, of the shape that `what` names. */
static const char ONE[] = ARGS_TEXT
    "template <int N> void place(int i, int &row, int &col)\n"
    "{\n"
    "    const int t = (int)threadIdx.x, lane = t & 31;\n"
    "    row = (t >> 5) * 16 + (lane >> 2) + ((i & 2) ? 8 : 0);\n"
    "    col = (i >> 2) * 8 + (lane & 3) * 2 + (i & 1);\n"
    "}\n"
    "template <class T, int N, bool A, bool B, bool REGISTERS> void run(const args &a)\n"
    "{\n"
    "    float d[N / 2];\n"
    "    gk_u32 r[4];\n"
    "    int row, col;\n"
    "    for (int i = 0; i < 4; i++) r[i] = REGISTERS ? a.registers[threadIdx.x * 4 + i] : 0;\n"
    "    for (int i = 0; i < N / 2; i++) { place<N>(i, row, col); d[i] = a.out[row * N + col]; }\n"
    "    gk::wgmma_fence();\n"
    "    if constexpr (REGISTERS) gk::wgmma<T, N, B>(d, r, a.b, a.accumulate);\n"
    "    else gk::wgmma<T, N, A, B>(d, a.a, a.b, a.accumulate);\n"
    "    for (int i = 0; i < 4; i++) r[i] = 0xffffffff;\n"
    "    gk::wgmma_commit();\n"
    "    gk::wgmma_wait<0>();\n"
    "    for (int i = 0; i < N / 2; i++) { place<N>(i, row, col); a.out[row * N + col] = d[i]; }\n"
    "}\n"
    "#define MAJORS(n, T, N) \\\n"
    "    if (a.what == n) run<T, N, false, false, false>(a); \\\n"
    "    if (a.what == n + 1) run<T, N, true, false, false>(a); \\\n"
    "    if (a.what == n + 2) run<T, N, false, true, false>(a); \\\n"
    "    if (a.what == n + 3) run<T, N, true, true, false>(a); \\\n"
    "    if (a.what == n + 4) run<T, N, false, false, true>(a); \\\n"
    "    if (a.what == n + 6) run<T, N, false, true, true>(a);\n"
    "#define K_MAJOR(n, T, N) \\\n"
    "    if (a.what == n) run<T, N, false, false, false>(a); \\\n"
    "    if (a.what == n + 4) run<T, N, false, false, true>(a);\n"
    "GK_KERNEL(128, 1, args, a)\n"
    "{\n"
    "    GK_DYNAMIC_SHARED(s);\n"
    "    for (int i = threadIdx.x; i < 131072; i += 128) s[i] = a.in[i];\n"
    "    __syncthreads();\n"
    "    MAJORS(0, gk::f16, 8) MAJORS(10, gk::f16, 40) MAJORS(20, gk::f16, 256)\n"
    "    MAJORS(30, gk::bf16, 128) MAJORS(40, gk::bf16, 208)\n"
    "    K_MAJOR(50, gk::tf32, 24) K_MAJOR(60, gk::tf32, 256)\n"
    "    K_MAJOR(70, gk::e4m3, 8) K_MAJOR(80, gk::e4m3, 96) K_MAJOR(90, gk::e5m2, 32)\n"
    "}\n";

static const struct {
    int type;
    uint32_t columns;
} SHAPES[] = {{F16, 8},   {F16, 40},   {F16, 256}, {BF16, 128}, {BF16, 208},
              {TF32, 24}, {TF32, 256}, {E4M3, 8},  {E4M3, 96},  {E5M2, 32}};

static uint32_t depth_of(int type)
{
    return type == TF32 ? 8 : type >= E4M3 ? 32 : 16;
}

static uint32_t size_of(int type)
{
    return 32 / depth_of(type);
}

/* A float of `exponent` and `mantissa` bits by its definition. e4m3 has no infinities. */
static double decode(uint32_t bits, int exponent, int mantissa, bool has_infinity)
{
    const int bias = (1 << (exponent - 1)) - 1;
    const int top = (1 << exponent) - 1;
    const int e = (int)(bits >> mantissa) & top;
    const double m = (double)(bits & ((1u << mantissa) - 1));
    const double sign = bits >> (exponent + mantissa) & 1 ? -1 : 1;
    if (e == top && has_infinity) {
        return m != 0 ? NAN : sign * INFINITY;
    }
    if (e == top && m == (1 << mantissa) - 1 && !has_infinity) {
        return NAN;
    }
    return e == 0 ? sign * ldexp(m, 1 - bias - mantissa)
                  : sign * ldexp(m + (1 << mantissa), e - bias - mantissa);
}

static double value_of(int type, uint32_t bits)
{
    switch (type) {
    case F16:
        return decode(bits, 5, 10, true);
    case BF16:
        return decode(bits, 8, 7, true);
    case TF32:
        return decode(bits >> 13, 8, 10, true);
    case E4M3:
        return decode(bits, 4, 3, false);
    default:
        return decode(bits, 5, 2, true);
    }
}

/* Bits of some small numbers that every type holds, so that all sums are exact. */
static uint32_t pattern(int type, uint32_t i)
{
    static const uint32_t E5M2_BITS[] = {0x00, 0x38, 0x3c, 0x3e, 0xbc, 0x40,
                                         0xc2, 0xb8, 0x44, 0xc4, 0xbe};
    const uint32_t e5m2 = E5M2_BITS[i * 7 % 11];
    const double value = decode(e5m2, 5, 2, true);
    const float single = (float)value;
    uint32_t bits;
    memcpy(&bits, &single, sizeof bits);
    switch (type) {
    case F16:
        return e5m2 << 8;
    case BF16:
        return bits >> 16;
    case TF32:
        return bits | (i * 977 & 0x1fff); /* low bits that do not count */
    case E4M3:
        for (uint32_t code = 0; code < 256; code++) {
            if (decode(code, 4, 3, false) == value) {
                return code;
            }
        }
        fail_msg("%g is not in e4m3", value);
        return 0;
    default:
        return e5m2;
    }
}

/* How an operand lies in shared memory. */
typedef struct layout {
    uint32_t swizzle; /* bytes; 0: none */
    bool mn_major;
    uint32_t leading;
    uint32_t stride;
    uint32_t skip; /* bytes from the tile's begin to the operand's */
} layout;

static uint64_t descriptor(const layout *l, uint32_t at)
{
    static const uint64_t MODES[] = {0, 3, 2, 0, 1};
    return (uint64_t)(at + l->skip) / 16 | (uint64_t)l->leading / 16 << 16 |
           (uint64_t)l->stride / 16 << 32 | MODES[l->swizzle / 32] << 62;
}

/* Byte offset of element (row, k): rows of a swizzled K-major tile are `swizzle` bytes, a line of
 * an MN-major one holds that much of M or N for one k. Unswizzled tiles are made of 8 x 16 bytes.
 */
static uint32_t address(const layout *l, uint32_t size, uint32_t row, uint32_t k)
{
    const uint32_t span = l->swizzle;
    uint32_t at;
    if (!l->mn_major) {
        const uint32_t byte = k * size + l->skip;
        at = span == 0 ? row / 8 * l->stride + row % 8 * 16 + byte / 16 * l->leading + byte % 16
                       : row / 8 * l->stride + row % 8 * span + byte;
    } else if (span == 0) {
        at = row / 8 * l->stride + k / 8 * l->leading + k % 8 * 16 + row % 8 * size;
    } else {
        const uint32_t wide = span / size;
        at = row / wide * l->leading + k / 8 * l->stride + k % 8 * span + row % wide * size;
    }
    const uint32_t line = at / 128;
    const uint32_t chunk = at / 16 % 8;
    uint32_t moved = chunk;
    if (span == 128) {
        moved = chunk ^ line % 8;
    } else if (span == 64) {
        moved = (chunk & 4) | (chunk % 4 ^ line % 4);
    } else if (span == 32) {
        moved = (chunk & 6) | (chunk % 2 ^ line % 2);
    }
    return line * 128 + moved * 16 + at % 16;
}

static unsigned char image[SHARED];
static float out[ROWS * MAX_COLUMNS];
static uint32_t a_bits[ROWS][MAX_DEPTH];
static uint32_t b_bits[MAX_COLUMNS][MAX_DEPTH];

static void put(const layout *l, int type, uint32_t base, uint32_t row, uint32_t k, uint32_t bits)
{
    memcpy(image + base + address(l, size_of(type), row, k), &bits, size_of(type));
}

static void fill_operands(int type, uint32_t columns)
{
    for (uint32_t k = 0; k < depth_of(type); k++) {
        for (uint32_t row = 0; row < ROWS; row++) {
            a_bits[row][k] = pattern(type, row * 5 + k * 3 + row * k % 7);
        }
        for (uint32_t col = 0; col < columns; col++) {
            b_bits[col][k] = pattern(type, col * 3 + k * 5 + col * k % 11);
        }
    }
}

/* Runs shape `s` with operands from fill_operands() and compares the sums. */
static uint32_t count_wrong(gki_module *module, size_t s, const layout *a, const layout *b,
                            bool registers, bool accumulate)
{
    static uint32_t held[128][4];
    const int type = SHAPES[s].type;
    const uint32_t columns = SHAPES[s].columns;
    memset(image, 0xff, sizeof image);
    memset(held, 0, sizeof held);
    for (uint32_t k = 0; k < depth_of(type); k++) {
        for (uint32_t row = 0; row < ROWS; row++) {
            if (!registers) {
                put(a, type, 0, row, k, a_bits[row][k]);
                continue;
            }
            /* register: which eight rows, which half of the 32 bytes of K */
            const uint32_t byte = k * size_of(type);
            const uint32_t thread = row / 16 * 32 + row % 8 * 4 + byte % 16 / 4;
            held[thread][row / 8 % 2 + byte / 16 * 2] |= a_bits[row][k] << byte % 4 * 8;
        }
        for (uint32_t col = 0; col < columns; col++) {
            put(b, type, B_AT, col, k, b_bits[col][k]);
        }
    }
    for (uint32_t i = 0; i < ROWS * columns; i++) {
        out[i] = accumulate ? (float)(i % 37) : NAN;
    }
    const args parameter = {.in = image,
                            .out = out,
                            .what = (int64_t)s * 10 + (registers ? 4 : a->mn_major) +
                                    (b->mn_major ? 2 : 0),
                            .a = registers ? 0 : descriptor(a, 0),
                            .b = descriptor(b, B_AT),
                            .registers = held[0],
                            .accumulate = accumulate};
    assert_gk_ok(launch(module, 128, &parameter));
    uint32_t wrong = 0;
    for (uint32_t row = 0; row < ROWS; row++) {
        for (uint32_t col = 0; col < columns; col++) {
            double sum = accumulate ? (row * columns + col) % 37 : 0;
            for (uint32_t k = 0; k < depth_of(type); k++) {
                sum += value_of(type, a_bits[row][k]) * value_of(type, b_bits[col][k]);
            }
            wrong += !(out[row * columns + col] == (float)sum);
        }
    }
    return wrong;
}

/* Of 8-bit floats the sums keep 14 bits, of others all 24. */
static void test_sums_of_8_bit_floats_are_cut(void **state)
{
    (void)state;
    static const size_t shapes[] = {0, 7, 9}; /* f16, e4m3, e5m2 */
    const layout packed = {128, false, 16, 1024, 0};
    gki_module *module = load(ONE);
    memset(image, 0, sizeof image);
    for (size_t i = 0; i < 3; i++) {
        const uint32_t columns = SHAPES[shapes[i]].columns;
        const args parameter = {.in = image,
                                .out = out,
                                .what = (int64_t)shapes[i] * 10,
                                .a = descriptor(&packed, 0),
                                .b = descriptor(&packed, B_AT),
                                .accumulate = true};
        for (uint32_t j = 0; j < ROWS * columns; j++) {
            out[j] = j % 2 == 0 ? 16385 : -32771;
        }
        out[2] = INFINITY;
        assert_gk_ok(launch(module, 128, &parameter));
        assert_true(isinf(out[2]));
        for (uint32_t j = 4; j < ROWS * columns; j++) {
            const float exact = j % 2 == 0 ? 16385 : -32771;
            const float cut = j % 2 == 0 ? 16384 : -32768;
            assert_true(out[j] == (i == 0 ? exact : cut));
        }
    }
    emu_device->driver->module_unload(emu_device, module);
}

static const layout LAYOUTS[] = {
    {128, false, 16, 1024, 0}, {128, false, 16, 1024, 96}, {64, false, 0, 512, 0},
    {64, false, 16, 512, 32},  {32, false, 16, 256, 0},    {0, false, 128, 256, 0},
    {0, false, 4096, 128, 0},  {128, true, 4096, 1024, 0}, {128, true, 2048, 8192, 0},
    {64, true, 1024, 512, 0},  {32, true, 512, 256, 0},    {0, true, 128, 256, 0},
    {0, true, 4096, 128, 0},
};
enum { N_LAYOUTS = sizeof LAYOUTS / sizeof LAYOUTS[0], FIRST_MN = 7 };

static void test_layouts(void **state)
{
    (void)state;
    gki_module *module = load(ONE);
    for (size_t s = 0; s < sizeof SHAPES / sizeof SHAPES[0]; s++) {
        const size_t n = SHAPES[s].type <= BF16 ? N_LAYOUTS : FIRST_MN;
        fill_operands(SHAPES[s].type, SHAPES[s].columns);
        for (size_t i = 0; i < n; i++) {
            for (size_t j = 0; j < n; j++) {
                assert_int_equal(count_wrong(module, s, &LAYOUTS[i], &LAYOUTS[j], false, i & 1), 0);
            }
            assert_int_equal(count_wrong(module, s, &LAYOUTS[0], &LAYOUTS[i], true, i & 1), 0);
        }
    }
    emu_device->driver->module_unload(emu_device, module);
}

/* Every finite number of the narrow types, and the others on their own. */
static void test_values(void **state)
{
    (void)state;
    gki_module *module = load(ONE);
    static const struct {
        size_t shape;
        uint32_t one; /* its bits */
        uint32_t n;   /* codes */
    } TYPES[] = {{1, 0x3c00, 65536}, {3, 0x3f80, 65536}, {8, 0x38, 256}, {9, 0x3c, 256}};
    for (size_t i = 0; i < sizeof TYPES / sizeof TYPES[0]; i++) {
        const size_t s = TYPES[i].shape;
        const int type = SHAPES[s].type;
        const uint32_t depth = depth_of(type);
        memset(b_bits, 0, sizeof b_bits);
        for (uint32_t k = 0; k < depth; k++) {
            b_bits[k][k] = TYPES[i].one;
        }
        for (uint32_t first = 0; first < TYPES[i].n; first += ROWS * depth) {
            for (uint32_t j = 0; j < ROWS * depth; j++) {
                const uint32_t bits = (first + j) % TYPES[i].n;
                a_bits[j / depth][j % depth] = isfinite(value_of(type, bits)) ? bits : 0;
            }
            assert_int_equal(count_wrong(module, s, &LAYOUTS[0], &LAYOUTS[0], false, false), 0);
        }
        /* A row each for the numbers that are not finite; b's columns are 1 now. */
        for (uint32_t col = 0; col < SHAPES[s].columns; col++) {
            b_bits[col][0] = TYPES[i].one;
        }
        memset(a_bits, 0, sizeof a_bits);
        uint32_t row = 0;
        for (uint32_t bits = 0; bits < TYPES[i].n && row < ROWS; bits++) {
            if (!isfinite(value_of(type, bits)) && (bits % 8 == 0 || TYPES[i].n == 256)) {
                a_bits[row++][0] = bits;
            }
        }
        count_wrong(module, s, &LAYOUTS[0], &LAYOUTS[0], false, false);
        for (uint32_t j = 0; j < ROWS; j++) {
            const double right = value_of(type, a_bits[j][0]);
            const float found = out[j * SHAPES[s].columns];
            assert_true(isnan(right) ? isnan(found) : found == (float)right);
        }
    }
    emu_device->driver->module_unload(emu_device, module);
}

/* A descriptor that does not say how the tile lies. */
static void test_wrong_layout(void **state)
{
    (void)state;
    gki_module *module = load(ONE);
    fill_operands(F16, 40);
    const layout *right = &LAYOUTS[0];
    assert_int_equal(count_wrong(module, 1, right, right, false, false), 0);
    args a = {.in = image, .out = out, .what = 10, .a = descriptor(right, 0)};
    static const struct {
        layout l;
        const char *part; /* NULL: other sums */
    } CASES[] = {
        {{64, false, 16, 1024, 0}, NULL},
        {{0, false, 16, 1024, 0}, NULL},
        {{128, false, 16, 2048, 0}, NULL},
        {{128, false, 16, 1024, 32}, NULL},
        {{128, false, 16, 1024, 128},
         "the descriptor of B is 0x4000004000011008: the start is not in the first row of the "
         "swizzle's pattern"},
        {{128, false, 16, 65536, 0}, "it reaches past the end of the block's shared memory"},
    };
    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++) {
        count_wrong(module, 1, right, right, false, false);
        static float before[ROWS * 40];
        memcpy(before, out, sizeof before);
        a.b = descriptor(&CASES[i].l, B_AT);
        if (CASES[i].part != NULL) {
            assert_gk_err(launch(module, 128, &a), GK_ERR_DEVICE, CASES[i].part);
        } else {
            assert_gk_ok(launch(module, 128, &a));
            assert_true(memcmp((const void *)before, (const void *)out, sizeof before) != 0);
        }
    }
    a.b = descriptor(right, B_AT) | UINT64_C(1) << 49;
    assert_gk_err(launch(module, 128, &a), GK_ERR_DEVICE, "base offset 0 only");
    a.b = descriptor(right, B_AT) | UINT64_C(1) << 15;
    assert_gk_err(launch(module, 128, &a), GK_ERR_DEVICE, "bits are set that have no meaning");
    emu_device->driver->module_unload(emu_device, module);
}

/*
 * In: 4 tiles of A (K-major, 128-byte rows) and one of B. Products with a pipeline of groups;
 * `what` takes something out. Output: a row of words a thread.
 */
static const char GROUPS[] = ARGS_TEXT
    "template <int N> void put(const args &a, int n, const float (&d)[N])\n" /* line 3 */
    "{\n"
    "    a.out[n * 128 + threadIdx.x] = d[0] + d[N - 1];\n"
    "}\n"
    "GK_KERNEL(256, 1, args, a)\n"
    "{\n"
    "    GK_DYNAMIC_SHARED(s);\n"
    "    const int w = (int)a.what, t = (int)threadIdx.x;\n" /* line 10 */
    "    for (int i = t; i < 131072; i += (int)blockDim.x) s[i] = a.in[i];\n"
    "    __syncthreads();\n"
    "    if (t >= 128) return;\n"
    "    float d[4], e[4], f[8] = {}, g[4];\n"
    "    const gk_u64 x = a.a, y = a.b;\n"
    "#define MUL(sums, tile, step, add) \\\n"
    "    gk::wgmma<gk::f16, 8, false, false>(sums, x + tile * 512 + step * 2, y + step * 2, add)\n"
    "    if (w != 1) gk::wgmma_fence();\n"
    "    MUL(d, 0, 0, false);\n" /* line 19 */
    "    MUL(d, 0, 1, true);\n"
    "    gk::wgmma_commit();\n"
    "    MUL(e, 1, 0, false);\n"
    "    if (w == 2) put(a, 0, d);\n"
    "    gk::wgmma_commit();\n"
    "    gk::wgmma_wait<1>();\n"
    "    put(a, 0, d);\n"
    "    if (w == 3) put(a, 1, e);\n"
    "    if (w == 4) e[0] = 1;\n"
    "    if (w == 5) for (int i = 0; i < 128; i++) s[t * 128 + i] = 0xff;\n"
    "    if (w == 6) return;\n" /* line 30 */
    "    if (w == 7) MUL(d, 2, 0, false);\n"
    "    if (w == 8) d[0] += 1;\n"
    "    if (w == 8) MUL(d, 2, 0, true);\n"
    "    gk::wgmma_commit();\n"
    "    gk::wgmma_wait<0>();\n" /* line 35 */
    "    if (w != 3) put(a, 1, e);\n"
    "    MUL(d, 2, 0, true);\n" /* unchanged sums need no fence */
    "    MUL(d, 2, 1, true);\n"
    "    gk::wgmma_commit();\n"
    "    gk::wgmma_wait<0>();\n" /* line 40 */
    "    put(a, 2, d);\n"
    "    for (int i = 0; i < 4; i++) d[i] *= 2;\n"
    "    gk::wgmma_fence();\n"
    "    if (w == 9) gk::wgmma<gk::f16, 8, false, false>(d, x + (t < 64 ? 0 : 2), y, true);\n"
    "    if (w == 10 && t < 64) MUL(d, 3, 0, true);\n"
    "    if (w == 11) gk::wgmma<gk::f16, 16, false, false>(f, x, y, false);\n"
    "    if (w == 11) gk::wgmma<gk::f16, 8, false, false>((float(&)[4])f[2], x, y, false);\n"
    "    if (w == 12) { MUL(d, 0, 0, true); if (t == 5) MUL(e, 0, 0, true);"
    " else MUL(d, 0, 0, true); }\n"
    "    if (w == 13) { gk::wgmma_commit(); MUL(g, 0, 0, false); gk::wgmma_wait<0>(); }\n"
    "    MUL(d, 3, 0, true);\n" /* line 50 */
    "    gk::wgmma_commit();\n"
    "    gk::wgmma_wait<0>();\n"
    "    put(a, 3, d);\n"
    "}\n";

static double sum[4][ROWS][8][2]; /* tile, row, column, step */

static args new_groups(void)
{
    const layout l = {128, false, 16, 1024, 0};
    memset(image, 0, sizeof image);
    memset(sum, 0, sizeof sum);
    for (uint32_t k = 0; k < 32; k++) {
        for (uint32_t i = 0; i < 4 * ROWS; i++) {
            put(&l, F16, 0, i, k, pattern(F16, i * 5 + k * 3 + i * k % 7));
        }
        for (uint32_t i = 0; i < 8; i++) {
            put(&l, F16, B_AT, i, k, pattern(F16, i * 3 + k * 5 + i * k % 11));
        }
        for (uint32_t i = 0; i < 4 * ROWS * 8; i++) {
            sum[i / 8 / ROWS][i / 8 % ROWS][i % 8][k / 16] +=
                value_of(F16, pattern(F16, i / 8 * 5 + k * 3 + i / 8 * k % 7)) *
                value_of(F16, pattern(F16, i % 8 * 3 + k * 5 + i % 8 * k % 11));
        }
    }
    return (args){.in = image, .out = out, .a = descriptor(&l, 0), .b = descriptor(&l, B_AT)};
}

static void test_groups(void **state)
{
    (void)state;
    gki_module *module = load(GROUPS);
    args a = new_groups();
    for (uint32_t threads = 128; threads <= 256; threads += 128) {
        assert_gk_ok(launch(module, (int32_t)threads, &a));
        for (uint32_t t = 0; t < 128; t++) {
            const uint32_t row = t / 32 * 16 + t % 32 / 4;
            double right[4] = {0};
            for (uint32_t i = 0; i < 2; i++) {
                const uint32_t r = row + 8 * i;
                const uint32_t c = t % 4 * 2 + i;
                const double first = sum[0][r][c][0] + sum[0][r][c][1];
                const double second = first + sum[2][r][c][0] + sum[2][r][c][1];
                right[0] += first;
                right[1] += sum[1][r][c][0];
                right[2] += second;
                right[3] += 2 * second + sum[3][r][c][0];
            }
            for (uint32_t i = 0; i < 4; i++) {
                assert_true(out[i * 128 + t] == (float)right[i]);
            }
        }
    }
    emu_device->driver->module_unload(emu_device, module);
}

static void test_group_mistakes(void **state)
{
    (void)state;
    gki_module *module = load(GROUPS);
    args a = new_groups();
    static const char *const PARTS[] = {
        [1] = "wgmma: no wgmma_fence since the accumulators were used otherwise at test.cu:19",
        [4] = "wgmma_wait: accumulators were written while an instruction was in flight on them at "
              "test.cu:35",
        [6] = "wgmma: the thread has returned without waiting for it, issued at test.cu:25",
        [7] = "no wgmma_fence since the accumulators were used otherwise at test.cu:31",
        [8] = "no wgmma_fence since the accumulators were used otherwise at test.cu:33",
        [9] = "other threads of the warpgroup have issued another instruction, or one with other "
              "descriptors, at test.cu:44",
        [10] = "deadlock in block (0,0,0): threads 0-63 wait at test.cu:52 (wgmma_wait), threads "
               "64-127 have returned",
        [11] = "wgmma: accumulators overlap those of an instruction of another shape in flight at "
               "test.cu:47",
        [12] = "wgmma: the warpgroup's threads pair accumulators differently than before",
        [13] = "in flight at test.cu:49",
    };
    for (size_t i = 1; i < sizeof PARTS / sizeof PARTS[0]; i++) {
        a.what = (int64_t)i;
        if (PARTS[i] != NULL && i != 13) {
            assert_gk_err(launch(module, 128, &a), GK_ERR_DEVICE, PARTS[i]);
        }
    }
    /* Sums read too early are poison; a tile that is overwritten too early makes other ones. */
    a.what = 3;
    assert_gk_ok(launch(module, 128, &a));
    for (uint32_t t = 0; t < 128; t++) {
        assert_true(isnan(out[128 + t]));
    }
    a.what = 5;
    assert_gk_ok(launch(module, 128, &a));
    uint32_t wrong = 0;
    for (uint32_t t = 0; t < 128; t++) {
        const uint32_t row = t / 32 * 16 + t % 32 / 4;
        wrong +=
            out[128 + t] != (float)(sum[1][row][t % 4 * 2][0] + sum[1][row + 8][t % 4 * 2 + 1][0]);
    }
    assert_true(wrong > 64);
    a.what = 0;
    assert_gk_err(launch(module, 96, &a), GK_ERR_DEVICE,
                  "wgmma: the block has 96 threads, which leaves the warpgroup incomplete");
    emu_device->driver->module_unload(emu_device, module);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        EMU_TEST(test_layouts),
        EMU_TEST(test_values),
        EMU_TEST(test_sums_of_8_bit_floats_are_cut),
        EMU_TEST(test_wrong_layout),
        EMU_TEST(test_groups),
        EMU_TEST(test_group_mistakes),
    };
    return GK_TEST_MAIN(tests);
}
