/* Views, shapes and factors that softmax and the norms must get right. */
#include "rows_cases.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *op;
    double first;
} ops[] = {{"softmax", 0}, {"softmax", 1}, {"norm", 0}, {"norm", 1}};
enum { N_OPS = sizeof(ops) / sizeof(ops[0]) };

static void fill(rows *r, uint64_t seed)
{
    op_random random = {seed};
    for (int i = 0; i < N_ARGS; i++) {
        if (i != OUT && r->args[i].memory != NULL) {
            op_buffer_randomise(&r->args[i], &random);
        }
    }
}

/* One small configuration of each variant. */
static uint32_t one_each(rows *r)
{
    static const char *const configs[] = {
        "THREADS=64 UNROLL=2 VECTOR=16",
        "LANES=8 VECTORS=4 ROWS=2 WARPS=2 VECTOR=8 PERSIST=0",
        "THREADS=64 VECTORS=0 REST=1 VECTOR=16 PERSIST=1",
        "CLUSTER=2 THREADS=128 VECTORS=2 REST=0 VECTOR=16",
        "THREADS=256 UNROLL=2 VECTOR=16 BLOCKS=1 HOLD=4 TURNS=1",
    };
    const gk_op_desc *op = gk_op_find(r->op, NULL);
    uint32_t ran = 0;
    for (uint32_t v = 0; v < op->n_variants; v++) {
        ran |= (uint32_t)rows_run_forced(r, op->variants[v], configs[v], rows_check_reference) << v;
    }
    return ran;
}

/* Sizes 1 to 67 on each axis, packed: row i begins at any phase of a vector. On the CPU device
 * every seventh, and with each op every fourth of them. */
static void odd_shapes(void **state)
{
    (void)state;
    const int step = op_test_is_cpu() ? 7 : 1;
    for (int n = 1; n <= 67; n += step) {
        for (int o = 0; o < N_OPS; o++) {
            rows r;
            const gk_dtype dtype = n % 2 == 0 ? GK_F32 : GK_BF16;
            const gk_tensor t = gk_matrix(NULL, dtype, 68 - n, n);
            if (op_test_is_cpu() && (n / 7 + o) % 4 != 0) {
                continue;
            }
            rows_create(&r, ops[o].op, ops[o].first, 1e-5, &t, &t, n % 3);
            fill(&r, (uint64_t)n);
            assert_true((one_each(&r) & 1) != 0);
            rows_destroy(&r);
        }
    }
}

static gk_tensor random_view(op_random *random, gk_dtype dtype, int rank, const int64_t *shape)
{
    gk_tensor t = {.dtype = dtype, .rank = rank};
    int order[4] = {0, 1, 2, 3};
    int64_t reach = 1;
    for (int i = rank; i > 1; i--) {
        const uint32_t other = op_random_below(random, (uint32_t)i);
        const int swap = order[i - 1];
        order[i - 1] = order[other];
        order[other] = swap;
    }
    for (int i = 0; i < rank; i++) {
        const int axis = order[i];
        t.shape[axis] = shape[axis];
        t.stride[axis] = reach + (op_random_below(random, 3) == 0 ? 0 : op_random_below(random, 4));
        reach = t.stride[axis] * shape[axis];
    }
    return t;
}

/* Twenty random views, of rank 1 to 4, axes in any order, any steps between. */
static void random_views(void **state)
{
    op_random random = {7};
    (void)state;
    for (int i = 0; i < 20; i++) {
        rows r;
        int64_t shape[4];
        const int rank = 1 + (int)op_random_below(&random, 4);
        for (int axis = 0; axis < rank; axis++) {
            shape[axis] = 1 + op_random_below(&random, axis + 1 == rank ? 67 : 6);
        }
        const gk_dtype dtype = i % 3 == 0 ? GK_F16 : i % 3 == 1 ? GK_F32 : GK_BF16;
        const gk_tensor x = random_view(&random, dtype, rank, shape);
        const gk_tensor out = random_view(&random, i % 4 == 0 ? GK_F32 : dtype, rank, shape);
        rows_create(&r, ops[i % N_OPS].op, ops[i % N_OPS].first, 1e-5, &x, &out, i % 5);
        fill(&r, (uint64_t)i);
        const uint32_t ran = one_each(&r);
        assert_true((ran & 1) != 0 && (i >= 5 || ran != 1));
        rows_destroy(&r);
    }
}

static void in_place(void **state)
{
    (void)state;
    for (int o = 0; o < N_OPS; o++) {
        rows r;
        const gk_dtype dtype = o % 2 == 0 ? GK_F32 : GK_BF16;
        const gk_tensor t = gk_matrix_strided(NULL, dtype, 5, 67, o % 2 == 0 ? 67 : 80, 1);
        rows_create(&r, ops[o].op, ops[o].first, 1e-5, &t, &t, 0);
        r.in_place = true;
        fill(&r, (uint64_t)o);
        assert_true((one_each(&r) & 31) != 1);
        const uint32_t most = op_test_is_cpu() ? 1 : op_case_limit();
        assert_true((rows_every_config(&r, most, rows_check_reference) & 31) == 31);
        rows_destroy(&r);
    }
}

/* Weights and biases: absent, of x's dtype, f32, strided, one value for all. */
static void factors(void **state)
{
    static const struct {
        gk_dtype dtype;
        int64_t stride;
    } given[] = {{GK_BF16, 1}, {GK_F32, 1}, {GK_F32, 3}, {GK_BF16, 0}};
    (void)state;
    for (int layer = 0; layer < 2; layer++) {
        for (int i = 0; i < 4; i++) {
            rows r;
            const gk_tensor t = gk_matrix(NULL, GK_BF16, 6, i % 2 == 0 ? 64 : 67);
            rows_create(&r, "norm", layer, 1e-5, &t, &t, 0);
            if (i != 3) {
                rows_factor(&r, BIAS, given[3 - i].dtype, given[3 - i].stride);
            }
            rows_factor(&r, WEIGHT, given[i].dtype, given[i].stride);
            fill(&r, (uint64_t)i);
            assert_true((one_each(&r) & 1) != 0);
            rows_destroy(&r);
        }
    }
}

/* A variance of 1 around a mean of 4096: squares of such values have 24 bits, and their sum has no
 * room left for the variance. */
static void variance_beside_a_mean(void **state)
{
    (void)state;
    for (int cols = 61; cols < 30000; cols = 60 * cols + 4) {
        rows r;
        const gk_tensor t = gk_matrix(NULL, GK_F32, 3, cols);
        rows_create(&r, "norm", 1, 1e-5, &t, &t, 0);
        for (int64_t j = 0; j < cols; j++) {
            for (int64_t i = 0; i < 3; i++) {
                op_buffer_set(&r.args[X], i, j, (j % 2 == 0 ? 4095.0 : 4097.0) + (double)i);
            }
        }
        assert_true((rows_every_config(&r, op_case_limit(), rows_check_reference) & 25) == 25);
        rows_destroy(&r);
    }
}

/* Rows of many blocks, more rows than groups of blocks, and lengths with all kinds of rests. */
static void long_rows(void **state)
{
    static const int64_t shapes[][2] = {{1, 70001}, {3, 40000}, {9, 8203}};
    (void)state;
    for (int s = 0; s < 3; s++) {
        for (int o = s == 2 ? 2 : 0; o < N_OPS; o += 3) {
            rows r;
            const gk_dtype dtype = s % 2 == 0 ? GK_BF16 : GK_F32;
            const gk_tensor t = gk_matrix(NULL, dtype, shapes[s][0], shapes[s][1]);
            rows_create(&r, ops[o].op, ops[o].first, 1e-5, &t, &t, 1);
            fill(&r, (uint64_t)s);
            assert_true((rows_every_config(&r, op_case_limit(), rows_check_reference) & 17) == 17);
            rows_destroy(&r);
        }
    }
}

/* Rows whose first vectors are in registers and whose others are in shared memory, with heads and
 * tails; of the two blocks of a cluster the second holds less. */
static void rows_in_both_memories(void **state)
{
    static const struct {
        const char *variant;
        const char *config;
    } held[] = {{"block", "THREADS=64 VECTORS=1 REST=1 VECTOR=16 PERSIST=0"},
                {"block", "THREADS=64 VECTORS=2 REST=1 VECTOR=8 PERSIST=1"},
                {"cluster", "CLUSTER=2 THREADS=128 VECTORS=2 REST=1 VECTOR=16"}};
    (void)state;
    for (int i = 0; i < 3 * N_OPS; i++) {
        rows r;
        const int o = i / 3;
        const gk_dtype dtype = i % 2 == 0 ? GK_F32 : GK_BF16;
        const int cols = dtype == GK_F32 ? 3083 : 6143;
        const gk_tensor t = gk_matrix_strided(NULL, dtype, 5, cols, cols + i % 4, 1);
        rows_create(&r, ops[o].op, ops[o].first, 1e-5, &t, &t, i % 3);
        fill(&r, (uint64_t)i);
        const gk_variant *variant = NULL;
        const gk_op_desc *op = gk_op_find(r.op, NULL);
        for (uint32_t v = 0; v < op->n_variants; v++) {
            variant =
                strcmp(op->variants[v]->name, held[i % 3].variant) == 0 ? op->variants[v] : variant;
        }
        assert_non_null(variant);
        /* Clusters are for sm_90. */
        assert_true(rows_run_forced(&r, variant, held[i % 3].config, rows_check_reference) ||
                    i % 3 == 2);
        rows_destroy(&r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        on_device(odd_shapes),
        on_device(random_views),
        on_device(in_place),
        on_device(factors),
        on_device(variance_beside_a_mean),
        on_device(long_rows),
        on_device(rows_in_both_memories),
    };
    const int missing = op_test_missing();
    return missing != 0 ? missing : GK_TEST_MAIN(tests);
}
