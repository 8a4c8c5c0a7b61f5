/* Every rule of transpose's validation, how calls are classed, and the smaller problems that stand
 * for one. */
#include "gk_test.h"

#include <stdlib.h>
#include <string.h>

#include <gk/ops.h>

#include "op/transpose.h"

enum { M = 4, N = 6 };

typedef struct fixture {
    _Alignas(16) float x[64];
    _Alignas(16) float out[64];
    gk_tensor tx, to;
} fixture;

static fixture f;

static int fresh(void **state)
{
    (void)state;
    memset(&f, 0, sizeof(f));
    f.tx = gk_matrix(f.x, GK_F32, M, N);
    f.to = gk_matrix(f.out, GK_F32, N, M);
    return 0;
}

static gk_status infer_of(const gk_tensor *x, const gk_tensor *out, gk_problem *problem)
{
    const gk_call call = {.args = {x, out}};
    memset(problem, 0, sizeof(*problem));
    return gki_op_transpose.infer(&call, problem);
}

#define refuses(code, text)                                                                        \
    do {                                                                                           \
        gk_problem ignored;                                                                        \
        assert_gk_err(infer_of(&f.tx, &f.to, &ignored), (code), (text));                           \
        assert_string_equal(gk_error_last()->where, "transpose");                                  \
        fresh(NULL);                                                                               \
    } while (0)

static gk_problem accepted(const gk_tensor *x, const gk_tensor *out)
{
    gk_problem p;
    assert_gk_ok(infer_of(x, out, &p));
    return p;
}

static void missing_arguments(void **state)
{
    (void)state;
    gk_problem p;
    assert_gk_err(infer_of(NULL, &f.to, &p), GK_ERR_INVALID, "x is NULL");
    assert_gk_err(infer_of(&f.tx, NULL, &p), GK_ERR_INVALID, "out is NULL");
}

static void forms(void **state)
{
    (void)state;
    f.tx.dtype = 77;
    refuses(GK_ERR_INVALID, "x.dtype is 77, which is no gk_dtype");
    f.to.rank = 1;
    refuses(GK_ERR_INVALID, "out.rank is 1, must be 2, or 3 for a batch");
    f.tx.rank = 4;
    refuses(GK_ERR_INVALID, "x.rank is 4, must be 2, or 3 for a batch");
    f.to.reserved[2] = 9;
    refuses(GK_ERR_INVALID, "out.reserved[2] is 9, must be 0");
    f.tx.shape[1] = -3;
    refuses(GK_ERR_INVALID, "x.shape[1] is -3, must not be negative");
    f.to.stride[0] = -1;
    refuses(GK_ERR_INVALID, "out.stride[0] is -1, must not be negative");
}

static void shapes(void **state)
{
    (void)state;
    f.to.dtype = GK_BF16;
    refuses(GK_ERR_UNSUPPORTED, "out.dtype is bf16 but x.dtype is f32");
    f.to.shape[0] = 5;
    refuses(GK_ERR_INVALID, "out.shape[0] is 5 but x.shape[1] is 6");
    f.to.shape[1] = 3;
    refuses(GK_ERR_INVALID, "out.shape[1] is 3 but x.shape[0] is 4");
    f.tx = (gk_tensor){f.x, GK_F32, 3, {2, 4, 6}, {24, 6, 1}, {0}};
    refuses(GK_ERR_INVALID, "out.rank is 2 but x.rank is 3");
    f.tx = (gk_tensor){f.x, GK_F32, 3, {2, 4, 6}, {24, 6, 1}, {0}};
    f.to = (gk_tensor){f.out, GK_F32, 3, {1, 6, 4}, {24, 4, 1}, {0}};
    refuses(GK_ERR_INVALID, "out.shape[0] is 1 but x.shape[0] is 2");
}

static void memory(void **state)
{
    (void)state;
    f.tx.data = NULL;
    refuses(GK_ERR_INVALID, "x.data is NULL but x takes 96 bytes");
    f.to.data = (char *)f.out + 2;
    refuses(GK_ERR_INVALID, "not a multiple of 4, the size of f32");
    f.tx.stride[0] = INT64_MAX / 2;
    refuses(GK_ERR_INVALID, "x does not fit in 63 bits: its last axes are [4, 6], strides [");
    f.to.data = (void *)(UINTPTR_MAX - 15);
    refuses(GK_ERR_INVALID, "out's 96 bytes from");
    /* Nothing is touched. */
    gk_tensor x = gk_matrix(NULL, GK_F32, 0, 7);
    gk_tensor out = gk_matrix(NULL, GK_F32, 7, 0);
    const gk_problem p = accepted(&x, &out);
    assert_true(gki_op_transpose.is_empty(&p));
}

static void overlap(void **state)
{
    (void)state;
    f.to.data = f.x;
    refuses(GK_ERR_INVALID, "nothing is transposed in place");
    f.to.data = f.x + 23;
    refuses(GK_ERR_INVALID, "out overlaps x: out is 96 bytes at");
    f.to.stride[1] = 0;
    refuses(GK_ERR_INVALID, "out overlaps itself: its last strides are [4, 0] but its last axes");
    f.to.stride[0] = 3;
    refuses(GK_ERR_INVALID, "out overlaps itself: its last strides are [3, 1] but its last axes");
    /* Strides 2 and 3 of axes of 3 and 2 never meet. */
    gk_tensor x = gk_matrix(f.x, GK_F32, 2, 3);
    gk_tensor out = gk_matrix_strided(f.out, GK_F32, 3, 2, 2, 3);
    accepted(&x, &out);
    /* The left and the right half of one matrix. */
    x = gk_matrix_strided(f.x, GK_F32, 4, 4, 8, 1);
    out = gk_matrix_strided(f.x + 4, GK_F32, 4, 4, 8, 1);
    accepted(&x, &out);
    out.data = f.x + 3;
    gk_problem p;
    assert_gk_err(infer_of(&x, &out, &p), GK_ERR_INVALID, "out overlaps x");
    /* Even and odd elements. */
    x = gk_matrix_strided(f.x, GK_F32, 4, 4, 8, 2);
    out = gk_matrix_strided(f.x + 1, GK_F32, 4, 4, 8, 2);
    accepted(&x, &out);
    /* Repeated elements are an input like any other. */
    x = gk_matrix_strided(f.x, GK_F32, 4, 4, 0, 0);
    out = gk_matrix(f.out, GK_F32, 4, 4);
    accepted(&x, &out);
}

static void check_class(const gk_problem *p, int x, int x_align, int out, int out_align, bool copy)
{
    const gki_transpose_view v = gki_transpose_view_of(p);
    assert_int_equal(p->layout[TRANSPOSE_X], x);
    assert_int_equal(p->align[TRANSPOSE_X], x_align);
    assert_int_equal(p->layout[TRANSPOSE_OUT], out);
    assert_int_equal(p->align[TRANSPOSE_OUT], out_align);
    assert_int_equal(v.copy, copy);
}

static void classes(void **state)
{
    (void)state;
    gk_problem p = accepted(&f.tx, &f.to);
    check_class(&p, TRANSPOSE_ROW, 8, TRANSPOSE_ROW, 16, false);
    assert_true(p.dims[TRANSPOSE_M] == M && p.dims[TRANSPOSE_N] == N && p.dims[TRANSPOSE_B] == 1);
    /* Column-major both: the same movement with the axes exchanged. */
    gk_tensor x = gk_matrix_strided(f.x, GK_F32, M, N, 1, M);
    gk_tensor out = gk_matrix_strided(f.out, GK_F32, N, M, 1, N);
    p = accepted(&x, &out);
    check_class(&p, TRANSPOSE_COL, 16, TRANSPOSE_COL, 8, false);
    gki_transpose_view v = gki_transpose_view_of(&p);
    assert_true(v.rows == N && v.cols == M);
    /* Packed both, in one order: a run. */
    x = gk_transposed(&f.to);
    x.data = f.x;
    p = accepted(&x, &f.to);
    check_class(&p, TRANSPOSE_FLAT, 16, TRANSPOSE_FLAT, 16, true);
    v = gki_transpose_view_of(&p);
    assert_true(v.rows == 1 && v.cols == M * N && v.batches == 1);
    /* With padding: rows. */
    x = gk_matrix_strided(f.x, GK_F32, M, N, 1, 5);
    p = accepted(&x, &f.to);
    check_class(&p, TRANSPOSE_COL, 4, TRANSPOSE_ROW, 16, true);
    /* No axis is contiguous: the nearer one. */
    x = gk_matrix_strided(f.x, GK_F32, M, N, 2, 8);
    p = accepted(&x, &f.to);
    check_class(&p, TRANSPOSE_COL, 4, TRANSPOSE_ROW, 16, true);
    /* A vector is never turned, whatever the stride of its other axis. */
    x = gk_matrix_strided(f.x, GK_F32, 1, 9, 77, 1);
    out = gk_matrix_strided(f.out, GK_F32, 9, 1, 1, 55);
    p = accepted(&x, &out);
    check_class(&p, TRANSPOSE_FLAT, 16, TRANSPOSE_FLAT, 16, true);
    x = gk_matrix(f.x, GK_F32, 1, 1);
    out = gk_matrix(f.out, GK_F32, 1, 1);
    p = accepted(&x, &out);
    check_class(&p, TRANSPOSE_FLAT, 16, TRANSPOSE_FLAT, 16, true);
    /* Rows that coincide have nothing between them. */
    x = gk_matrix_strided(f.x, GK_F32, M, N, 0, 1);
    p = accepted(&x, &f.to);
    check_class(&p, TRANSPOSE_ROW, 4, TRANSPOSE_ROW, 16, false);
    /* The pointer counts. */
    f.tx.data = f.x + 1;
    p = accepted(&f.tx, &f.to);
    check_class(&p, TRANSPOSE_ROW, 4, TRANSPOSE_ROW, 16, false);
}

static void reference(void **state)
{
    (void)state;
    double want[24];
    double scale[24];
    for (int i = 0; i < 24; i++) {
        f.x[i] = (float)i;
    }
    f.tx = (gk_tensor){f.x, GK_F32, 3, {2, 3, 4}, {12, 4, 1}, {0}};
    f.to = (gk_tensor){f.out, GK_F32, 3, {2, 4, 3}, {12, 3, 1}, {0}};
    const gk_problem p = accepted(&f.tx, &f.to);
    const gk_call call = {.args = {&f.tx, &f.to}};
    gki_op_transpose.reference(&call, &p, want, scale);
    assert_true(want[0] == 0 && want[1] == 4 && want[2] == 8 && want[3] == 1);
    assert_true(want[12] == 12 && want[13] == 16 && want[22] == 19 && want[23] == 23);
    const gk_tolerance t = gki_op_transpose.tolerance(&p);
    assert_true(t.absolute == 0 && t.relative == 0);
}

/* Calls that the tuner may meet, with addresses nobody touches. */
static gk_tensor placed(gk_tensor t, uintptr_t offset, int which)
{
    const uintptr_t address = ((uintptr_t)(which + 1) << 52) + offset;
    t.data = (void *)address;
    return t;
}

static void check_stand_ins(const gk_tensor *x, const gk_tensor *out)
{
    const gk_call call = {.args = {x, out}};
    const gk_problem p = accepted(x, out);
    gk_tensor tensors[GK_MAX_ARGS];
    gk_call small;
    assert_true(gki_op_transpose.reduce(&call, 2000000, tensors, &small));
    for (int i = 0; i < TRANSPOSE_N_ARGS; i++) {
        assert_null(tensors[i].data);
        tensors[i] = placed(tensors[i], (uintptr_t)call.args[i]->data % 256, i);
    }
    const gk_problem q = accepted(&tensors[0], &tensors[1]);
    int64_t elements = 1;
    for (int i = 0; i < TRANSPOSE_N_DIMS; i++) {
        assert_true(q.dims[i] <= p.dims[i] && (q.dims[i] > 1 || p.dims[i] == 1));
        elements *= q.dims[i];
    }
    assert_true(elements <= 2000000);
    assert_memory_equal(p.layout, q.layout, sizeof(p.layout));
    assert_memory_equal(p.align, q.align, sizeof(p.align));
    const int last = x->rank - 1;
    for (uint32_t index = 0; gki_op_transpose.part(&call, index, 2000000, tensors, &small);
         index++) {
        const gk_problem part = accepted(&tensors[0], &tensors[1]);
        assert_true(part.dims[TRANSPOSE_B] == 1);
        const char *first = tensors[0].data;
        const char *end = first + gk_tensor_extent(&tensors[0]);
        assert_true(first >= (const char *)x->data &&
                    end <= (const char *)x->data + gk_tensor_extent(x));
        assert_true(index > 0 || tensors[1].data == out->data);
        assert_true(tensors[0].shape[last] == tensors[1].shape[last - 1]);
        assert_true(index < 8);
    }
}

static void stand_ins(void **state)
{
    (void)state;
    const gk_tensor pairs[][2] = {
        {gk_matrix(NULL, GK_F32, 8192, 4096), gk_matrix(NULL, GK_F32, 4096, 8192)},
        {gk_matrix(NULL, GK_F32, 8388609, 2), gk_matrix(NULL, GK_F32, 2, 8388609)},
        {gk_matrix(NULL, GK_U8, 3, 9000000), gk_matrix(NULL, GK_U8, 9000000, 3)},
        {gk_matrix_strided(NULL, GK_BF16, 5000, 7000, 1, 5008),
         gk_matrix_strided(NULL, GK_BF16, 7000, 5000, 1, 7001)},
        {gk_matrix(NULL, GK_F64, 4000, 3000), gk_matrix_strided(NULL, GK_F64, 3000, 4000, 1, 3000)},
        {gk_matrix_strided(NULL, GK_F64, 4000, 3000, 1, 4000), gk_matrix(NULL, GK_F64, 3000, 4000)},
        {gk_matrix(NULL, GK_F16, 1, 9000001), gk_matrix(NULL, GK_F16, 9000001, 1)},
        {{NULL, GK_F32, 3, {50, 400, 300}, {120000, 300, 1}, {0}},
         {NULL, GK_F32, 3, {50, 300, 400}, {120000, 400, 1}, {0}}},
        {{NULL, GK_F32, 3, {50, 400, 300}, {120000, 300, 1}, {0}},
         {NULL, GK_F32, 3, {50, 300, 400}, {120000, 1, 300}, {0}}},
        {gk_matrix(NULL, GK_F32, 33, 17), gk_matrix(NULL, GK_F32, 17, 33)},
    };
    for (size_t i = 0; i < sizeof(pairs) / sizeof(pairs[0]); i++) {
        const uintptr_t size = gk_dtype_size((gk_dtype)pairs[i][0].dtype);
        const gk_tensor x = placed(pairs[i][0], 0, 0);
        const gk_tensor out = placed(pairs[i][1], size, 1);
        check_stand_ins(&x, &out);
    }
}

static uint64_t state_of(uint64_t *x)
{
    *x ^= *x << 13;
    *x ^= *x >> 7;
    *x ^= *x << 17;
    return *x;
}

/* Whatever the call, there is a configuration of the variant that serves everything. */
static uint32_t first_that_serves(const gk_problem *p)
{
    const gk_device_info device = {.cc = 80, .sm_count = 108, .max_threads_per_sm = 2048};
    const gk_variant *tile = gki_op_transpose.variants[0];
    gk_config config = {{0}};
    for (uint64_t i = 0;; i++) {
        uint64_t left = i;
        for (uint32_t v = 0; v < tile->n_params; v++) {
            config.values[v] = tile->params[v].values[left % tile->params[v].n_values];
            left /= tile->params[v].n_values;
        }
        if (left != 0) {
            return 0;
        }
        gk_reason reason = {""};
        gk_launch launch = {0};
        if (tile->check(p, &device, &config, &reason)) {
            tile->launch(p, &device, &config, &launch);
            assert_true(tile->model(p, &device, &config) > 0);
            if (launch.grid >= 1 && launch.grid <= INT32_MAX && launch.smem <= 65536) {
                return (uint32_t)launch.threads;
            }
        }
    }
}

static void something_serves(void **state)
{
    (void)state;
    static const gk_dtype dtypes[] = {GK_F64, GK_F32, GK_BF16, GK_E4M3};
    uint64_t r = 88172645463325252u;
    for (int n = 0; n < 2000; n++) {
        const gk_dtype dtype = dtypes[state_of(&r) % 4];
        const int64_t m = 1 + (int64_t)(state_of(&r) % (1u << (1 + state_of(&r) % 22)));
        const int64_t k = 1 + (int64_t)(state_of(&r) % (1u << (1 + state_of(&r) % 22)));
        const int64_t pad = state_of(&r) % 2 != 0 ? 16 : (int64_t)(state_of(&r) % 3);
        const uintptr_t offset = state_of(&r) % 2 * gk_dtype_size(dtype);
        if (m * k > INT64_C(1) << 33) {
            continue; /* more than devices hold */
        }
        const bool turned = state_of(&r) % 4 == 0;
        const gk_tensor x = placed(gk_matrix_strided(NULL, dtype, m, k, k + pad, 1), offset, 0);
        const gk_tensor out = placed(turned ? gk_matrix_strided(NULL, dtype, k, m, 1, k + pad)
                                            : gk_matrix_strided(NULL, dtype, k, m, m + pad, 1),
                                     state_of(&r) % 2 * gk_dtype_size(dtype), 1);
        const gk_problem p = accepted(&x, &out);
        if (first_that_serves(&p) == 0) {
            fail_msg("nothing serves %s %lld x %lld, pad %lld", gk_dtype_name(dtype), (long long)m,
                     (long long)k, (long long)pad);
        }
    }
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup(name, fresh)
    const struct CMUnitTest tests[] = {
        TEST(missing_arguments), TEST(forms),   TEST(shapes),    TEST(memory),
        TEST(overlap),           TEST(classes), TEST(reference), TEST(stand_ins),
        TEST(something_serves),
    };
    return GK_TEST_MAIN(tests);
}
