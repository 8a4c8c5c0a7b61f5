/* Elementwise expressions on shapes and views of all kinds, on forced configurations. */
#include "map_cases.h"

#include <stdlib.h>

static const char *const expressions[] = {"x0 + x1",
                                          "fma(x0, x1, x2)",
                                          "silu(x0)",
                                          "x0 * x1 + x2",
                                          "max(x0, x1) - min(x2, 0.5)",
                                          "x0 > x1 ? exp(x2) : -x0 / 3",
                                          "gelu(x0) * x1",
                                          "x0 + x1 + x2 + x3 + x4"};
static const uint32_t expression_inputs[] = {2, 3, 1, 3, 3, 3, 2, 5};
enum { N_EXPRESSIONS = 8 };

static void randomise(map_case *f, op_random *r)
{
    for (uint32_t i = 0; i < f->n_inputs; i++) {
        if ((int)i != f->in_place) {
            op_buffer_randomise(&f->x[i], r);
        }
    }
}

static void odd_shapes(void **state)
{
    (void)state;
    op_random r = {1};
    for (int64_t size = 1; size <= 67; size += op_test_is_cpu() ? 3 : 1) {
        for (int axis = 0; axis < 2; axis++) {
            const uint32_t e = (uint32_t)(size + axis) % N_EXPRESSIONS;
            const gk_dtype type = (gk_dtype)(GK_F32 + size % 3);
            const int64_t m = axis == 0 ? size : 5;
            const int64_t n = axis == 0 ? 7 : size;
            gk_tensor inputs[MAP_INPUTS];
            const gk_tensor out = gk_matrix(NULL, type, m, n);
            for (int i = 0; i < MAP_INPUTS; i++) {
                inputs[i] = size % 2 ? out : gk_matrix_strided(NULL, type, m, n, n + 3, 1);
            }
            map_case f;
            map_case_create(&f, expressions[e], expression_inputs[e], inputs, &out, NULL, -1);
            randomise(&f, &r);
            assert_true(map_case_every_config(&f, NULL, (uint32_t)size) > 0);
            map_case_destroy(&f);
        }
    }
}

/* Axes in random order with random gaps; an input's may repeat. */
static gk_tensor random_view(op_random *r, gk_dtype type, int32_t rank, const int64_t *shape,
                             bool is_output)
{
    gk_tensor t = {.dtype = type, .rank = rank};
    int32_t order[GK_MAX_RANK];
    int64_t stride = 1 + (op_random_below(r, 4) == 0);
    const bool shuffled = op_random_below(r, 2) == 0;
    for (int32_t i = 0; i < rank; i++) {
        order[i] = rank - 1 - i;
        t.shape[i] = shape[i];
    }
    for (int32_t i = rank - 1; shuffled && i > 0; i--) {
        const int32_t j = (int32_t)op_random_below(r, (uint32_t)i + 1);
        const int32_t swap = order[i];
        order[i] = order[j];
        order[j] = swap;
    }
    for (int32_t i = 0; i < rank; i++) {
        const int32_t axis = order[i];
        if (!is_output && op_random_below(r, 5) == 0) {
            t.stride[axis] = 0;
            continue;
        }
        t.stride[axis] = stride;
        stride = stride * shape[axis] + (op_random_below(r, 3) == 0 ? op_random_below(r, 5) : 0);
    }
    return t;
}

static void random_views(void **state)
{
    (void)state;
    static const gk_dtype types[] = {GK_F32, GK_BF16, GK_F16, GK_F64, GK_E4M3, GK_E5M2};
    op_random r = {2};
    for (int view = 0; view < (op_test_is_cpu() ? 40 : 100); view++) {
        const int32_t rank = 1 + (int32_t)op_random_below(&r, GK_MAX_RANK);
        const uint32_t e = op_random_below(&r, N_EXPRESSIONS);
        const gk_dtype type = types[op_random_below(&r, 6)];
        const bool mixed = op_random_below(&r, 3) == 0;
        int64_t shape[GK_MAX_RANK];
        int64_t offsets[MAP_INPUTS + 1];
        gk_tensor inputs[MAP_INPUTS];
        for (int32_t axis = 0; axis < rank; axis++) {
            shape[axis] = 1 + op_random_below(&r, rank < 3 ? 67 : rank < 5 ? 9 : 4);
        }
        for (uint32_t i = 0; i < MAP_INPUTS; i++) {
            inputs[i] =
                random_view(&r, mixed ? types[op_random_below(&r, 6)] : type, rank, shape, false);
            offsets[i] = op_random_below(&r, 9);
        }
        offsets[expression_inputs[e]] = op_random_below(&r, 9);
        const gk_tensor out = random_view(&r, type, rank, shape, true);
        map_case f;
        map_case_create(&f, expressions[e], expression_inputs[e], inputs, &out, offsets, -1);
        randomise(&f, &r);
        assert_true(map_case_every_config(&f, NULL, (uint32_t)view) > 0);
        map_case_destroy(&f);
    }
}

/* O-04: offsets past 2^31 elements. */
static void far_elements(void **state)
{
    (void)state;
    enum { ROWS = 3, COLS = 4 };
    const int64_t far = 1200000000;
    if (!op_test_is_cpu()) {
        gk_test_skip("the mapping is the CPU device's");
    }
    double want[ROWS * COLS];
    const gk_tensor x = gk_matrix_strided(NULL, GK_F16, ROWS, COLS, far, 1);
    const gk_tensor out = gk_matrix(NULL, GK_F16, ROWS, COLS);
    const size_t bytes = (size_t)gk_tensor_extent(&x);
    uint16_t *memory = calloc(1, bytes); /* pages come as they are touched */
    if (memory == NULL) {
        gk_test_skip("no address space for 4.8 GB");
    }
    map_case f;
    map_case_create(&f, "x0 * 2", 1, &out, &out, NULL, -1);
    gk_tensor view = x;
    view.data = memory;
    for (int i = 0; i < ROWS * COLS; i++) {
        op_value_set(GK_F16, memory, i / COLS * far + i % COLS, i + 1);
        want[i] = 2 * (i + 1);
    }
    map_case_upload(&f);
    assert_gk_ok(gk_map(op_case_ctx, "x0 * 2", &view, 1, &f.out.device, NULL));
    map_case_fetch(&f);
    map_case_check_values(&f, "far rows", want, ROWS * COLS);
    map_case_destroy(&f);
    free(memory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        on_device(odd_shapes),
        on_device(random_views),
        on_device(far_elements),
    };
    const int missing = op_test_missing();
    return missing != 0 ? missing : GK_TEST_MAIN(tests);
}
