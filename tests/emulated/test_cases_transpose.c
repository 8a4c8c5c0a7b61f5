/* transpose and copy_column on inputs with known results: degenerate and large shapes, views, every
 * alignment, bits that are no number. */
#define _GNU_SOURCE
#include "op_cases.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "op_configs.h"

/* A call on guarded buffers, x filled with random bits. */
typedef struct operands {
    op_buffer x, out;
    unsigned char *result;
} operands;

static const gk_dtype dtypes[] = {GK_F32, GK_BF16, GK_U8, GK_F64};
enum { N_DTYPES = sizeof(dtypes) / sizeof(dtypes[0]) };

static int64_t offset_of(const gk_tensor *t, int64_t b, int64_t i, int64_t j)
{
    const int64_t *stride = t->stride + t->rank - 2;
    return (t->rank == 3 ? b * t->stride[0] : 0) + i * stride[0] + j * stride[1];
}

static void operands_create(operands *o, const gk_tensor *x, const gk_tensor *out, int64_t x_offset,
                            int64_t out_offset, op_random *r)
{
    const size_t size = gk_dtype_size((gk_dtype)x->dtype);
    memset(o, 0, sizeof(*o));
    assert_gk_ok(op_buffer_create(&o->x, op_case_ctx, op_test_is_cpu(), x, x_offset, false));
    assert_gk_ok(op_buffer_create(&o->out, op_case_ctx, op_test_is_cpu(), out, out_offset, true));
    const int64_t *shape = x->shape + x->rank - 2;
    for (int64_t b = 0; b < (x->rank == 3 ? x->shape[0] : 1); b++) {
        for (int64_t i = 0; i < shape[0]; i++) {
            for (int64_t j = 0; j < shape[1]; j++) {
                const uint64_t bits = op_random_next(r);
                memcpy((char *)o->x.host.data + offset_of(x, b, i, j) * (int64_t)size, &bits, size);
            }
        }
    }
    o->result = malloc(o->out.bytes);
    assert_non_null(o->result);
    assert_gk_ok(op_buffer_upload(&o->x));
}

static void operands_destroy(operands *o)
{
    op_buffer_destroy(&o->x);
    op_buffer_destroy(&o->out);
    free(o->result);
}

static void operands_check(operands *o, const char *what)
{
    int64_t damage;
    unsigned char *x = malloc(o->x.bytes);
    assert_non_null(x);
    assert_gk_ok(gk_synchronize(op_case_ctx, NULL));
    assert_gk_ok(op_buffer_download(&o->out, o->result, &damage));
    if (damage != INT64_MIN) {
        fail_msg("%s: wrote %lld bytes from out's beginning", what, (long long)damage);
    }
    const gk_tensor got = op_buffer_view(&o->out, o->result);
    const gk_tensor *from = &o->x.host;
    const int64_t size = (int64_t)gk_dtype_size((gk_dtype)got.dtype);
    const int64_t *shape = from->shape + from->rank - 2;
    for (int64_t b = 0; b < (from->rank == 3 ? from->shape[0] : 1); b++) {
        for (int64_t i = 0; i < shape[0]; i++) {
            for (int64_t j = 0; j < shape[1]; j++) {
                if (memcmp((char *)got.data + offset_of(&got, b, j, i) * size,
                           (char *)from->data + offset_of(from, b, i, j) * size,
                           (size_t)size) != 0) {
                    fail_msg("%s: x[%lld,%lld,%lld] came out wrong", what, (long long)b,
                             (long long)i, (long long)j);
                }
            }
        }
    }
    assert_gk_ok(op_buffer_download(&o->x, x, &damage));
    assert_true(damage == INT64_MIN);
    free(x);
}

static void run(operands *o, const char *what)
{
    assert_gk_ok(op_buffer_upload(&o->out));
    assert_gk_ok(gk_transpose(op_case_ctx, &o->x.device, &o->out.device, NULL));
    operands_check(o, what);
}

/* --- forced configurations --- */

/* False if the engine refuses the configuration. */
static bool plan_of(const gk_call *call, const gk_variant *variant, const char *config,
                    gk_plan **plan)
{
    const gk_plan_options options = {
        .struct_size = sizeof(options), .variant = variant->name, .config = config};
    const gk_status status = gk_plan_create(plan, op_case_ctx, "transpose", call, &options);
    if (status == GK_ERR_NO_CONFIG) {
        return false;
    }
    assert_gk_ok(status);
    return true;
}

/* Calls run_one(user) with a plan for each of a spread of the variants' kernels and every choice at
 * launch. Returns how many. */
static uint32_t every_config(const gk_call *call,
                             void (*run_one)(const gk_plan *plan, const char *text, void *user),
                             void *user)
{
    const gk_op_desc *op = gk_op_find("transpose", NULL);
    gk_device_info device;
    gk_problem problem;
    uint32_t ran = 0;
    memset(&problem, 0, sizeof(problem));
    assert_gk_ok(op->infer(call, &problem));
    assert_gk_ok(gk_device_info_get(op_case_ctx, &device));
    for (uint32_t v = 0; v < op->n_variants; v++) {
        uint32_t count;
        gk_config *configs =
            op_configs_spread(op->variants[v], &problem, &device, op_case_limit(), 0, &count);
        for (uint32_t i = 0; i < count; i++) {
            gk_config config = configs[i];
            for (uint32_t l = 0; op_config_launch(op->variants[v], &config, l); l++) {
                char text[256];
                gk_plan *plan;
                op_config_text(op->variants[v], &config, text, sizeof(text));
                if (plan_of(call, op->variants[v], text, &plan)) {
                    run_one(plan, text, user);
                    gk_plan_destroy(&plan);
                    ran++;
                }
            }
        }
        free(configs);
    }
    return ran;
}

static void run_forced(const gk_plan *plan, const char *text, void *user)
{
    operands *o = user;
    const gk_call call = {.args = {&o->x.device, &o->out.device}};
    assert_gk_ok(op_buffer_upload(&o->out));
    assert_gk_ok(gk_plan_run(plan, &call, NULL));
    operands_check(o, text);
}

static void forced_on_ragged_tiles(void **state)
{
    (void)state;
    op_random r = {7};
    for (int d = 0; d < N_DTYPES; d++) {
        const gk_tensor shapes[][2] = {
            {gk_matrix(NULL, dtypes[d], 131, 67), gk_matrix(NULL, dtypes[d], 67, 131)},
            {gk_matrix_strided(NULL, dtypes[d], 300, 150, 160, 1),
             gk_matrix_strided(NULL, dtypes[d], 150, 300, 320, 1)},
            {gk_matrix_strided(NULL, dtypes[d], 150, 300, 1, 160),
             gk_matrix_strided(NULL, dtypes[d], 300, 150, 1, 320)},
            {gk_matrix(NULL, dtypes[d], 3, 1000), gk_matrix(NULL, dtypes[d], 1000, 3)},
            {gk_matrix_strided(NULL, dtypes[d], 67, 45, 64, 1),
             gk_matrix_strided(NULL, dtypes[d], 45, 67, 1, 48)},
        };
        for (size_t s = 0; s < sizeof(shapes) / sizeof(shapes[0]); s++) {
            operands o;
            operands_create(&o, &shapes[s][0], &shapes[s][1], 0, 0, &r);
            const gk_call call = {.args = {&o.x.device, &o.out.device}};
            assert_true(every_config(&call, run_forced, &o) > 0);
            operands_destroy(&o);
        }
    }
}

/* --- shapes --- */

static void sizes_from_1_to_67(void **state)
{
    (void)state;
    op_random r = {1};
    for (int64_t m = 1; m <= 67; m++) {
        const gk_dtype dtype = dtypes[m % N_DTYPES];
        const int64_t sizes[] = {m, 1 + m * 29 % 67, 67};
        for (int i = 0; i < 3; i++) {
            const int64_t n = sizes[i];
            const gk_tensor x = gk_matrix(NULL, dtype, m, n);
            const gk_tensor out = gk_matrix(NULL, dtype, n, m);
            operands o;
            char what[64];
            snprintf(what, sizeof(what), "%lld x %lld", (long long)m, (long long)n);
            operands_create(&o, &x, &out, 0, 0, &r);
            run(&o, what);
            operands_destroy(&o);
        }
    }
}

/* Strides of axes in a random order, with random gaps. */
static gk_tensor random_view(op_random *r, gk_dtype dtype, int rank, const int64_t *shape)
{
    gk_tensor t = {.dtype = dtype, .rank = rank};
    int order[3] = {0, 1, 2};
    int64_t reach = 1 + op_random_below(r, 2) * op_random_below(r, 3);
    for (int i = rank - 1; i > 0; i--) {
        const int other = (int)op_random_below(r, (uint32_t)i + 1);
        const int kept = order[i];
        order[i] = order[other];
        order[other] = kept;
    }
    for (int i = 0; i < rank; i++) {
        const int axis = order[i];
        t.shape[axis] = shape[axis];
        t.stride[axis] = reach;
        reach *= shape[axis];
        reach += op_random_below(r, 3) == 0 ? op_random_below(r, 5) : 0;
        reach = op_random_below(r, 2) == 0 ? (reach + 15) / 16 * 16 : reach;
    }
    return t;
}

static void random_views(void **state)
{
    (void)state;
    op_random r = {42};
    for (int n = 0; n < 20 * N_DTYPES; n++) {
        const int rank = n % 2 == 0 ? 2 : 3;
        int64_t shape[3] = {1, 1, 1};
        int64_t turned[3];
        for (int i = 0; i < rank; i++) {
            shape[i] = 1 + op_random_below(&r, i == 0 && rank == 3 ? 4 : 67);
        }
        memcpy(turned, shape, sizeof(turned));
        turned[rank - 1] = shape[rank - 2];
        turned[rank - 2] = shape[rank - 1];
        const gk_tensor x = random_view(&r, dtypes[n % N_DTYPES], rank, shape);
        const gk_tensor out = random_view(&r, dtypes[n % N_DTYPES], rank, turned);
        operands o;
        char what[32];
        snprintf(what, sizeof(what), "view %d", n);
        operands_create(&o, &x, &out, op_random_below(&r, 3), op_random_below(&r, 3), &r);
        run(&o, what);
        operands_destroy(&o);
    }
}

/* Views whose elements repeat are inputs like any other. */
static void repeated_elements(void **state)
{
    (void)state;
    op_random r = {3};
    const int64_t strides[][2] = {{0, 1}, {1, 0}, {0, 0}, {1, 1}};
    for (int i = 0; i < 4; i++) {
        const gk_tensor x = gk_matrix_strided(NULL, GK_F32, 33, 40, strides[i][0], strides[i][1]);
        const gk_tensor out = gk_matrix(NULL, GK_F32, 40, 33);
        operands o;
        operands_create(&o, &x, &out, 0, 0, &r);
        run(&o, "repeated");
        operands_destroy(&o);
    }
}

static void every_alignment(void **state)
{
    (void)state;
    op_random r = {5};
    for (int64_t at = 0; at < 64; at++) {
        const gk_tensor x = gk_matrix_strided(NULL, GK_F16, 24, 40, 48, 1);
        const gk_tensor out = gk_matrix_strided(NULL, GK_F16, 40, 24, 32, 1);
        operands o;
        operands_create(&o, &x, &out, at % 8, at / 8, &r);
        run(&o, "alignment");
        operands_destroy(&o);
    }
}

/* The same layout on both sides: nothing is turned. */
static void transposed_views_are_copies(void **state)
{
    (void)state;
    op_random r = {6};
    const gk_tensor shapes[][2] = {
        {gk_matrix(NULL, GK_BF16, 63, 65), gk_matrix_strided(NULL, GK_BF16, 65, 63, 1, 65)},
        {gk_matrix_strided(NULL, GK_F32, 63, 65, 66, 1),
         gk_matrix_strided(NULL, GK_F32, 65, 63, 1, 70)},
        {gk_matrix(NULL, GK_U8, 1, 1000), gk_matrix(NULL, GK_U8, 1000, 1)},
        {gk_matrix(NULL, GK_F64, 1000, 1), gk_matrix(NULL, GK_F64, 1, 1000)},
        {gk_matrix_strided(NULL, GK_F32, 1000, 1, 3, 1), gk_matrix(NULL, GK_F32, 1, 1000)},
    };
    for (size_t s = 0; s < sizeof(shapes) / sizeof(shapes[0]); s++) {
        operands o;
        operands_create(&o, &shapes[s][0], &shapes[s][1], 0, 0, &r);
        run(&o, "copy");
        operands_destroy(&o);
    }
}

/* A tile's row of more lines of memory than the block has threads to ask for them. */
static void rows_wider_than_a_block(void **state)
{
    (void)state;
    op_random r = {9};
    const gk_tensor x = {
        .dtype = GK_I32, .rank = 3, .shape = {2, 3, 9000}, .stride = {27000, 9000, 1}};
    const gk_tensor out = {
        .dtype = GK_I32, .rank = 3, .shape = {2, 9000, 3}, .stride = {27000, 1, 9000}};
    const gk_plan_options forced = {.struct_size = sizeof(forced),
                                    .variant = "tile",
                                    .config = "TILE_R=1 TILE_C=8192 VECTOR=16 THREADS=128 GROUP=1"};
    gk_plan *plan = NULL;
    operands o;
    operands_create(&o, &x, &out, 0, 0, &r);
    const gk_call call = {.args = {&o.x.device, &o.out.device}};
    assert_gk_ok(gk_plan_create(&plan, op_case_ctx, "transpose", &call, &forced));
    run_forced(plan, forced.config, &o);
    gk_plan_destroy(&plan);
    operands_destroy(&o);
}

/* O-05: with square tiles these rows would be more blocks than a grid's y axis has. */
enum { TALL = 8388609 };

static void check_tall(const float *y)
{
    for (int64_t j = 0; j < 2; j++) {
        for (int64_t i = 0; i < TALL; i++) {
            if (y[j * TALL + i] != (float)((2 * i + j) % 4093)) {
                fail_msg("y[%lld,%lld] is %g", (long long)j, (long long)i, (double)y[j * TALL + i]);
            }
        }
    }
    assert_true(y[TALL - 1] == 9 && y[2 * TALL - 1] == 10 && y[TALL + 4194304] == 2052);
}

typedef struct tall {
    gk_tensor x, out;
    float *host;
} tall;

static void run_tall(const gk_plan *plan, const char *text, void *user)
{
    tall *t = user;
    const size_t bytes = sizeof(float) * 2 * TALL;
    const gk_call call = {.args = {&t->x, &t->out}};
    (void)text;
    memset(t->host, 0xff, bytes);
    assert_gk_ok(gk_mem_upload(op_case_ctx, t->out.data, t->host, bytes, NULL));
    assert_gk_ok(gk_plan_run(plan, &call, NULL));
    assert_gk_ok(gk_mem_download(op_case_ctx, t->host, t->out.data, bytes, NULL));
    check_tall(t->host);
}

static void eight_million_rows(void **state)
{
    (void)state;
    const size_t bytes = sizeof(float) * 2 * TALL;
    tall t;
    void *x, *out;
    t.host = malloc(bytes);
    assert_non_null(t.host);
    for (int64_t i = 0; i < 2 * TALL; i++) {
        t.host[i] = (float)(i % 4093);
    }
    assert_gk_ok(gk_mem_alloc(op_case_ctx, bytes, &x));
    assert_gk_ok(gk_mem_alloc(op_case_ctx, bytes, &out));
    assert_gk_ok(gk_mem_upload(op_case_ctx, x, t.host, bytes, NULL));
    t.x = gk_matrix(x, GK_F32, TALL, 2);
    t.out = gk_matrix(out, GK_F32, 2, TALL);
    const gk_call call = {.args = {&t.x, &t.out}};
    assert_true(every_config(&call, run_tall, &t) > 0);
    gk_mem_free(op_case_ctx, &x);
    gk_mem_free(op_case_ctx, &out);
    free(t.host);
}

/* O-04: the third row lies past 2^31 elements. */
static void offsets_beyond_32_bits(void **state)
{
    (void)state;
    const int64_t stride = 1200000000;
    const size_t bytes = 4800000008;
    uint16_t rows[3][4], out[4][3];
    void *x, *y;
    if (op_test_is_cpu()) {
        x = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                 -1, 0);
        assert_true(x != MAP_FAILED);
    } else {
        assert_gk_ok(gk_mem_alloc(op_case_ctx, bytes, &x));
    }
    assert_gk_ok(gk_mem_alloc(op_case_ctx, sizeof(out), &y));
    for (int i = 0; i < 12; i++) {
        rows[i / 4][i % 4] = (uint16_t)(0x3c00 + i);
    }
    for (int64_t i = 0; i < 3; i++) {
        assert_gk_ok(
            gk_mem_upload(op_case_ctx, (uint16_t *)x + i * stride, rows[i], sizeof(rows[i]), NULL));
    }
    const gk_tensor from = gk_matrix_strided(x, GK_F16, 3, 4, stride, 1);
    const gk_tensor to = gk_matrix(y, GK_F16, 4, 3);
    assert_gk_ok(gk_transpose(op_case_ctx, &from, &to, NULL));
    assert_gk_ok(gk_mem_download(op_case_ctx, out, y, sizeof(out), NULL));
    for (int i = 0; i < 12; i++) {
        assert_int_equal(out[i % 4][i / 4], 0x3c00 + i);
    }
    /* And back: the output is the tensor that reaches far. */
    assert_gk_ok(gk_transpose(op_case_ctx, &to, &from, NULL));
    for (int64_t i = 0; i < 3; i++) {
        uint16_t back[4];
        assert_gk_ok(
            gk_mem_download(op_case_ctx, back, (uint16_t *)x + i * stride, sizeof(back), NULL));
        assert_memory_equal(back, rows[i], sizeof(back));
    }
    if (op_test_is_cpu()) {
        munmap(x, bytes);
    } else {
        gk_mem_free(op_case_ctx, &x);
    }
    gk_mem_free(op_case_ctx, &y);
}

/* O-03: a call without elements leaves nothing behind, and launches nothing. */
static void zero_elements(void **state)
{
    (void)state;
    op_random r = {9};
    gk_statistics stats = {.struct_size = sizeof(stats)};
    const gk_tensor x = gk_matrix(NULL, GK_F32, 0, 7);
    const gk_tensor out = gk_matrix(NULL, GK_F32, 7, 0);
    assert_gk_ok(gk_transpose(op_case_ctx, &x, &out, NULL));
    assert_gk_ok(gk_stats(op_case_ctx, &stats));
    assert_int_equal(stats.launches, 0);
    assert_int_equal(stats.misses, 0);
    const gk_tensor some = gk_matrix(NULL, GK_F32, 2, 2);
    operands o;
    operands_create(&o, &some, &some, 0, 0, &r);
    run(&o, "after an empty call");
    operands_destroy(&o);
}

static void in_place_is_refused(void **state)
{
    (void)state;
    op_random r = {10};
    const gk_tensor square = gk_matrix(NULL, GK_F32, 8, 8);
    operands o;
    operands_create(&o, &square, &square, 0, 0, &r);
    assert_gk_ok(op_buffer_upload(&o.out));
    assert_gk_err(gk_transpose(op_case_ctx, &o.out.device, &o.out.device, NULL), GK_ERR_INVALID,
                  "in place");
    int64_t damage;
    assert_gk_ok(op_buffer_download(&o.out, o.result, &damage));
    assert_memory_equal(o.result, o.out.image, o.out.bytes);
    operands_destroy(&o);
}

/* --- columns --- */

static void column_of_a_host_matrix(void **state)
{
    (void)state;
    enum { ROWS = 1000, COLS = 37 };
    for (int d = 0; d < N_DTYPES; d++) {
        const size_t size = gk_dtype_size(dtypes[d]);
        unsigned char *matrix = malloc(ROWS * COLS * size);
        unsigned char *got = malloc((ROWS + 2) * size);
        assert_non_null(matrix);
        assert_non_null(got);
        for (size_t i = 0; i < ROWS * COLS * size; i++) {
            matrix[i] = (unsigned char)(i * 2654435761u >> 24);
        }
        const int64_t columns[] = {0, 17, COLS - 1};
        for (int c = 0; c < 3; c++) {
            void *vector;
            memset(got, 0xa5, (ROWS + 2) * size);
            assert_gk_ok(gk_mem_alloc(op_case_ctx, (ROWS + 2) * size, &vector));
            assert_gk_ok(gk_mem_upload(op_case_ctx, vector, got, (ROWS + 2) * size, NULL));
            assert_gk_ok(gk_copy_column(op_case_ctx, (unsigned char *)vector + size, matrix, ROWS,
                                        COLS, columns[c], dtypes[d], NULL));
            assert_gk_ok(gk_mem_download(op_case_ctx, got, vector, (ROWS + 2) * size, NULL));
            for (size_t i = 0; i < ROWS; i++) {
                assert_memory_equal(got + (i + 1) * size,
                                    matrix + (i * COLS + (size_t)columns[c]) * size, size);
            }
            assert_true(got[0] == 0xa5 && got[(ROWS + 2) * size - 1] == 0xa5);
            gk_mem_free(op_case_ctx, &vector);
        }
        free(matrix);
        free(got);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        on_device(forced_on_ragged_tiles),
        on_device(sizes_from_1_to_67),
        on_device(random_views),
        on_device(repeated_elements),
        on_device(every_alignment),
        on_device(transposed_views_are_copies),
        on_device(rows_wider_than_a_block),
        on_device(eight_million_rows),
        on_device(offsets_beyond_32_bits),
        on_device(zero_elements),
        on_device(in_place_is_refused),
        on_device(column_of_a_host_matrix),
    };
    const int missing = op_test_missing();
    return missing != 0 ? missing : GK_TEST_MAIN(tests);
}
