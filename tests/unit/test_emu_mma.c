/* ldmatrix, mma.sync and the conversions of the CPU device against plain loops. */
#include <math.h>
#include <string.h>

#include "support/emu_kernel.h"
#include "support/gk_test.h"

typedef struct args {
    const void *in;
    void *out;
    int64_t what;
} args;

#define ARGS_TEXT "struct args { const void *in; void *out; long long what; };\n"

/* In: 4 matrices of 8x8 u16. Out: 32 lanes x 12 registers. */
static const char LDMATRIX[] =
    ARGS_TEXT "GK_KERNEL(64, 1, args, a)\n"
              "{\n"
              "    GK_DYNAMIC_SHARED(raw);\n"
              "    const unsigned lane = threadIdx.x;\n"
              "    gk_u16 *s = (gk_u16 *)raw;\n"
              /* rows are 48 bytes apart, so that an address taken from the wrong lane shows */
              "    for (unsigned i = lane; i < 256; i += blockDim.x)\n"
              "        s[i / 8 * 24 + i % 8] = ((const gk_u16 *)a.in)[i];\n"
              "    __syncthreads();\n"
              "    if (a.what == 1 && lane == 9) s += 4;\n"
              "    if (a.what == 2 && lane == 31) s += 2048;\n"
              "    if (a.what == 3 && lane == 31) s += 4;\n"
              "    gk_u32 x4[4], t4[4], x2[2], t2[2];\n"
              "    if (a.what != 3) {\n"
              "        gk::ldmatrix_x4(x4, s + lane * 24);\n"
              "        gk::ldmatrix_x4_trans(t4, s + lane * 24);\n"
              "    }\n"
              "    gk::ldmatrix_x2(x2, s + lane * 24);\n"
              "    gk::ldmatrix_x2_trans(t2, s + lane * 24);\n"
              "    gk_u32 *o = (gk_u32 *)a.out + lane * 12;\n"
              "    for (int i = 0; i < 4; i++) { o[i] = x4[i]; o[4 + i] = t4[i]; }\n"
              "    for (int i = 0; i < 2; i++) { o[8 + i] = x2[i]; o[10 + i] = t2[i]; }\n"
              "}\n";

static void test_ldmatrix(void **state)
{
    (void)state;
    gki_module *module = emu_load(emu_device, LDMATRIX);
    enum { SMEM = 32 * 48 };
    static uint16_t in[4][8][8];
    static uint32_t out[32][12];
    for (uint32_t i = 0; i < 256; i++) {
        in[i / 64][i / 8 % 8][i % 8] = (uint16_t)(i * 257 + 3);
    }
    args a = {in, out, 0};
    assert_gk_ok(emu_launch(emu_device, module, 1, 32, SMEM, &a, sizeof a));
    for (uint32_t lane = 0; lane < 32; lane++) {
        const uint32_t r = lane / 4;
        const uint32_t c = 2 * (lane % 4);
        for (uint32_t i = 0; i < 4; i++) {
            const uint32_t plain = in[i][r][c] | (uint32_t)in[i][r][c + 1] << 16;
            const uint32_t trans = in[i][c][r] | (uint32_t)in[i][c + 1][r] << 16;
            assert_int_equal(out[lane][i], plain);
            assert_int_equal(out[lane][4 + i], trans);
            if (i < 2) {
                assert_int_equal(out[lane][8 + i], plain);
                assert_int_equal(out[lane][10 + i], trans);
            }
        }
    }
    a.what = 1;
    assert_gk_err(emu_launch(emu_device, module, 1, 32, SMEM, &a, sizeof a), GK_ERR_DEVICE,
                  "ldmatrix: row at shared memory offset 440 is misaligned, must be a "
                  "multiple of 16");
    a.what = 2;
    assert_gk_err(emu_launch(emu_device, module, 1, 32, SMEM, &a, sizeof a), GK_ERR_DEVICE,
                  "outside the block's 1536 bytes");
    a.what = 3; /* x2 does not use the address of lane 31 */
    assert_gk_ok(emu_launch(emu_device, module, 1, 32, SMEM, &a, sizeof a));
    a.what = 0;
    assert_gk_err(emu_launch(emu_device, module, 1, 24, SMEM, &a, sizeof a), GK_ERR_DEVICE,
                  "needs 32");
    emu_device->driver->module_unload(emu_device, module);
}

/*
 * In: A as 16 x K and B as K x 8 (rows of u32: the bits of one element each), C as 16 x 8 f32.
 * Out: D as 16 x 8. The fragments are gathered here as the PTX ISA draws them.
 */
static const char MMA[] = ARGS_TEXT
    "GK_KERNEL(32, 1, args, a)\n"
    "{\n"
    "    const int lane = (int)threadIdx.x, g = lane >> 2, t = lane & 3;\n"
    "    const int K = a.what == 2 ? 8 : 16;\n"
    "    const gk_u32 *A = (const gk_u32 *)a.in, *B = A + 16 * K;\n"
    "    const float *C = (const float *)(B + K * 8);\n"
    "    float d[4];\n"
    "    gk_u32 fa[4], fb[2];\n"
    "    for (int i = 0; i < 4; i++) d[i] = C[(i < 2 ? g : g + 8) * 8 + t * 2 + (i & 1)];\n"
    "    if (K == 16) {\n"
    "        for (int i = 0; i < 8; i++) {\n"
    "            const int row = (i < 2 || (i >= 4 && i < 6)) ? g : g + 8;\n"
    "            const int col = t * 2 + (i & 1) + (i < 4 ? 0 : 8);\n"
    "            const gk_u32 v = A[row * 16 + col];\n"
    "            if (i & 1) fa[i / 2] |= v << 16; else fa[i / 2] = v;\n"
    "        }\n"
    "        for (int i = 0; i < 4; i++) {\n"
    "            const gk_u32 v = B[(t * 2 + (i & 1) + (i < 2 ? 0 : 8)) * 8 + g];\n"
    "            if (i & 1) fb[i / 2] |= v << 16; else fb[i / 2] = v;\n"
    "        }\n"
    "        if (a.what == 0) gk::mma_m16n8k16_f16(d, fa, fb);\n"
    "        else gk::mma_m16n8k16_bf16(d, fa, fb);\n"
    "    } else {\n"
    "        fa[0] = A[g * 8 + t]; fa[1] = A[(g + 8) * 8 + t];\n"
    "        fa[2] = A[g * 8 + t + 4]; fa[3] = A[(g + 8) * 8 + t + 4];\n"
    "        fb[0] = B[t * 8 + g]; fb[1] = B[(t + 4) * 8 + g];\n"
    "        gk::mma_m16n8k8_tf32(d, fa, fb);\n"
    "    }\n"
    "    float *D = (float *)a.out;\n"
    "    for (int i = 0; i < 4; i++) D[(i < 2 ? g : g + 8) * 8 + t * 2 + (i & 1)] = d[i];\n"
    "}\n";

enum { F16, BF16, TF32 };

/* Small integers and halves, exact in every type, with a sum that is exact in f32. */
static float element(uint32_t i)
{
    return (float)((int)(i * 7 % 29) - 14) * 0.5f;
}

static uint32_t f32_bits(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static float bits_f32(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static uint32_t encode(int type, float x)
{
    const uint32_t bits = f32_bits(x);
    if (type == TF32) {
        return bits | 0x1fffu; /* the hardware ignores the low 13 bits */
    }
    if (type == BF16) {
        return bits >> 16;
    }
    if (x == 0) {
        return 0;
    }
    return (bits >> 16 & 0x8000u) | ((bits >> 23 & 0xffu) - 112) << 10 | (bits >> 13 & 0x3ffu);
}

static void test_mma(void **state)
{
    (void)state;
    gki_module *module = emu_load(emu_device, MMA);
    for (int type = F16; type <= TF32; type++) {
        const uint32_t depth = type == TF32 ? 8 : 16;
        uint32_t in[16 * 16 + 16 * 8 + 16 * 8];
        float c[16 * 8];
        float out[16 * 8 + 2];
        for (uint32_t i = 0; i < 16 * depth; i++) {
            in[i] = encode(type, element(i));
        }
        for (uint32_t i = 0; i < depth * 8; i++) {
            in[16 * depth + i] = encode(type, element(i * 3 + 5));
        }
        for (uint32_t i = 0; i < 16 * 8; i++) {
            c[i] = (float)i - 60;
            out[i] = NAN;
        }
        out[128] = out[129] = 777;
        memcpy(in + 24 * depth, c, sizeof c);
        const args a = {in, out, type};
        assert_gk_ok(emu_launch(emu_device, module, 1, 32, 0, &a, sizeof a));
        for (uint32_t row = 0; row < 16; row++) {
            for (uint32_t col = 0; col < 8; col++) {
                float sum = c[row * 8 + col];
                for (uint32_t k = 0; k < depth; k++) {
                    sum += element(row * depth + k) * element((k * 8 + col) * 3 + 5);
                }
                assert_true(out[row * 8 + col] == sum);
            }
        }
        assert_true(out[128] == 777 && out[129] == 777);
    }
    emu_device->driver->module_unload(emu_device, module);
}

/* In: f32 bits. Out: rows of f16 bits, bf16 bits, tf32 bits, f32 of the low half as f16. */
static const char CONVERT[] =
    ARGS_TEXT "GK_KERNEL(256, 1, args, a)\n"
              "{\n"
              "    const gk_i64 n = a.what, i = (gk_i64)blockIdx.x * blockDim.x + threadIdx.x;\n"
              "    if (i >= n) return;\n"
              "    const gk_u32 x = ((const gk_u32 *)a.in)[i];\n"
              "    gk_u32 *o = (gk_u32 *)a.out + 4 * i;\n"
              "    o[0] = gk::f32_to_f16_bits(gk::bits_to_f32(x));\n"
              "    o[1] = gk::f32_to_bf16_bits(gk::bits_to_f32(x));\n"
              "    o[2] = gk::f32_to_tf32_bits(gk::bits_to_f32(x));\n"
              "    o[3] = gk::f32_to_bits(gk::f16_bits_to_f32((gk_u16)x));\n"
              "}\n";

/* The value of a half by its definition. */
static double half_value(uint32_t h)
{
    const int exponent = (int)(h >> 10 & 31);
    const double mantissa = (double)(h & 1023);
    const double sign = (h & 0x8000u) != 0 ? -1 : 1;
    if (exponent == 31) {
        return mantissa != 0 ? NAN : sign * INFINITY;
    }
    return sign * (exponent == 0 ? ldexp(mantissa, -24) : ldexp(1024 + mantissa, exponent - 25));
}

/* Nearest of the n magnitudes that value() gives in ascending order, ties to the even index. */
static uint32_t nearest(double x, double (*value)(uint32_t), uint32_t n)
{
    uint32_t low = 0;
    uint32_t high = n;
    while (high - low > 1) {
        const uint32_t middle = low + (high - low) / 2;
        if (value(middle) <= x) {
            low = middle;
        } else {
            high = middle;
        }
    }
    if (low + 1 == n) {
        return low;
    }
    const double below = x - value(low);
    const double above = value(low + 1) - x;
    if (below == above) {
        return low % 2 == 0 ? low : low + 1;
    }
    return below < above ? low : low + 1;
}

/* Infinity stands for the next power of two when rounding. */
static double half_magnitude(uint32_t index)
{
    return index == 0x7c00 ? 65536.0 : half_value(index);
}

static double bf16_magnitude(uint32_t index)
{
    return index == 0x7f80 ? ldexp(1, 128) : (double)bits_f32(index << 16);
}

static double tf32_magnitude(uint32_t index)
{
    return index == 0x7f800000u >> 13 ? ldexp(1, 128) : (double)bits_f32(index << 13);
}

static void check_conversions(uint32_t bits, const uint32_t *out)
{
    const float x = bits_f32(bits);
    const uint32_t sign = bits >> 31;
    if (isnan(x)) {
        assert_int_equal(out[0] & 0x7e00u, 0x7e00u);
        assert_int_equal(out[1] & 0x7fc0u, 0x7fc0u);
        assert_true(isnan(bits_f32(out[2])));
    } else {
        const double magnitude = isinf(x) ? ldexp(1, 129) : fabs((double)x);
        assert_int_equal(out[0], sign << 15 | nearest(magnitude, half_magnitude, 0x7c01));
        assert_int_equal(out[1], sign << 15 | nearest(magnitude, bf16_magnitude, 0x7f81));
        uint32_t tf32 = nearest(magnitude, tf32_magnitude, (0x7f800000u >> 13) + 1);
        /* ties go away from zero */
        if (tf32 < 0x7f800000u >> 13 &&
            magnitude - tf32_magnitude(tf32) == tf32_magnitude(tf32 + 1) - magnitude) {
            tf32++;
        }
        assert_int_equal(out[2], sign << 31 | tf32 << 13);
    }
    const double half = half_value(bits & 0xffffu);
    if (isnan(half)) {
        assert_true(isnan(bits_f32(out[3])));
    } else {
        assert_int_equal(out[3], f32_bits((float)half));
    }
}

static void test_conversions(void **state)
{
    (void)state;
    enum { COUNT = 1 << 17 };
    static uint32_t in[COUNT];
    static uint32_t out[COUNT][4];
    gki_module *module = emu_load(emu_device, CONVERT);
    /* Every half as the low bits, with the rounding boundaries of all exponents above. */
    static const uint32_t TAILS[] = {0x0000, 0x0fff, 0x1000, 0x1001, 0x2fff, 0x3000,
                                     0x7fff, 0x8000, 0x8001, 0xffff, 0xe000, 0xefff,
                                     0xf000, 0xf001, 0x17ff, 0x1801};
    uint32_t seed = 1;
    for (uint32_t i = 0; i < COUNT; i++) {
        seed = seed * 1664525u + 1013904223u;
        if (i < 0x10000) {
            in[i] = (seed & 0xffff0000u) | i;
        } else {
            const uint32_t top = (i & 0x7ff) << 21 | (seed >> 11 & 0x1f0000u);
            in[i] = top | TAILS[i >> 11 & 15];
        }
    }
    static const uint32_t EDGES[] = {0x7f800000, 0xff800000, 0x7f800001, 0x7fc00000, 0xffffffff,
                                     0x7f7fffff, 0xff7fffff, 0x477fefff, 0x477ff000, 0x477fe000,
                                     0x33000000, 0x33000001, 0x32ffffff, 0x33800000, 0x33c00000,
                                     0x387fffff, 0x387fe000, 0x387ff000, 0x38800000, 0x00000001,
                                     0x80000000, 0x00000000, 0x807fffff, 0x7f7f7fff, 0x7f7f8000};
    memcpy(in, EDGES, sizeof EDGES);
    memset(out, 0xee, sizeof out);
    const args a = {in, out, COUNT};
    assert_gk_ok(emu_launch(emu_device, module, COUNT / 256, 256, 0, &a, sizeof a));
    for (uint32_t i = 0; i < COUNT; i++) {
        check_conversions(in[i], out[i]);
    }
    emu_device->driver->module_unload(emu_device, module);
}

/* Out: matrices stored by x4, x4_trans, x2, x2_trans, in rows 48 bytes apart. */
static const char STMATRIX[] =
    "#include \"gk/hopper.cuh\"\n" ARGS_TEXT "GK_KERNEL(32, 1, args, a)\n" /* line 3 */
    "{\n"
    "    GK_DYNAMIC_SHARED(s);\n"
    "    const unsigned t = threadIdx.x;\n"
    "    gk_u32 r[4], h[2];\n"
    "    for (int i = 0; i < 4; i++) r[i] = (t * 4 + i) * 2 | ((t * 4 + i) * 2 + 1) << 16;\n"
    "    for (int i = 0; i < 2; i++) h[i] = r[i];\n"
    "    unsigned char *row = s + t * 48;\n" /* line 10 */
    "    if (a.what == 1 && t == 31) row += 8;\n"
    "    gk::stmatrix_x4(row, r);\n"
    "    gk::stmatrix_x4_trans(row + 1536, r);\n"
    "    gk::stmatrix_x2(row + 3072, h);\n"
    "    gk::stmatrix_x2_trans(row + 4608, h);\n"
    "    for (int i = t; i < 3072; i += 32) ((gk_u16 *)a.out)[i] = ((gk_u16 *)s)[i];\n"
    "    if (t == 0) ((gk_u32 *)a.out)[1536] = gk::store_pair_as<gk::f16>(1.0f, -2.0f);\n"
    "    if (t == 0) ((gk_u32 *)a.out)[1537] = gk::store_pair_as<gk::bf16>(1.0f, -2.0f);\n"
    "}\n";

static void test_stmatrix(void **state)
{
    (void)state;
    gki_module *module = emu_load(emu_device, STMATRIX);
    static uint32_t out[1538];
    args a = {NULL, out, 0};
    assert_gk_ok(emu_launch(emu_device, module, 1, 32, 6144, &a, sizeof a));
    const uint16_t *found = (const uint16_t *)(const void *)out;
    for (uint32_t i = 0; i < 4 * 1536; i += 2) {
        const uint32_t which = i / 1536; /* x4, x4_trans, x2, x2_trans */
        const uint32_t line = i % 1536 / 48;
        const uint32_t place = i % 48 / 2;
        uint32_t right = 0xffff;
        if (place < 8 && line < (which < 2 ? 32u : 16u)) {
            const uint32_t row = which % 2 == 1 ? place : line % 8;
            const uint32_t col = which % 2 == 1 ? line % 8 : place;
            const uint32_t lane = row * 4 + col / 2;
            right = (lane * 4 + line / 8) * 2 + col % 2;
        }
        assert_int_equal(found[i / 2], right);
    }
    assert_int_equal(out[1536], 0xc0003c00);
    assert_int_equal(out[1537], 0xc0003f80);
    a.what = 1;
    assert_gk_err(emu_launch(emu_device, module, 1, 32, 6144, &a, sizeof a), GK_ERR_DEVICE,
                  "stmatrix: row at shared memory offset 1496, must be a multiple of 16 inside the "
                  "block's 6144 bytes at test.cu:12");
    emu_device->driver->module_unload(emu_device, module);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        EMU_TEST(test_ldmatrix),
        EMU_TEST(test_mma),
        EMU_TEST(test_conversions),
        EMU_TEST(test_stmatrix),
    };
    return GK_TEST_MAIN(tests);
}
