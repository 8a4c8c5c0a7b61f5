/* What is compared of outputs of two axes: in one copy, line by line, and with strides. The op is
 * transpose, so that each right value is a value of the input. */
#include "support/gk_test.h"

#include <math.h>
#include <string.h>

#include "support/fake_driver.h"
#include "tune/verify_part.h"

typedef struct fixture {
    fake_device *fake;
    const gk_op_desc *op;
    gk_tensor tensors[GK_MAX_ARGS];
    gk_call call;
    gk_problem problem;
    gki_operands *operands;
    gki_verifier *verifier;
    gki_verdict verdict;
} fixture;

static fixture fix;

static int set_up(void **state)
{
    memset(&fix, 0, sizeof(fix));
    *state = &fix;
    fix.fake = fake_device_create();
    fix.op = gk_op_find("transpose", NULL);
    return fix.op == NULL;
}

static int tear_down(void **state)
{
    fixture *f = *state;
    gki_verifier_destroy(&f->verifier);
    gki_operands_destroy(&f->operands);
    assert_int_equal(atomic_load(&f->fake->live_allocations), 0);
    fake_device_destroy(&f->fake);
    return 0;
}

/* out is n x m, its rows `pitch` elements apart. */
static void make(fixture *f, int64_t m, int64_t n, int64_t pitch)
{
    const gk_tensor x = {.dtype = GK_F32, .rank = 2, .shape = {m, n}, .stride = {n, 1}};
    const gk_tensor out = {.dtype = GK_F32, .rank = 2, .shape = {n, m}, .stride = {pitch, 1}};
    f->tensors[0] = x;
    f->tensors[1] = out;
    for (uintptr_t i = 0; i < 2; i++) {
        f->tensors[i].data = (void *)((i + 1) << 40); /* never used */
        f->call.args[i] = &f->tensors[i];
    }
    for (uint32_t i = 0; i < f->op->n_attrs; i++) {
        f->call.attrs[i] = f->op->attrs[i].default_value;
    }
    while (gk_op_at(f->problem.op) != f->op) {
        f->problem.op++;
    }
    assert_gk_ok(f->op->infer(&f->call, &f->problem));
    assert_gk_ok(gki_operands_create(&f->operands, &f->fake->base, NULL, f->op, &f->call,
                                     &f->problem, 5, 1));
    assert_gk_ok(gki_verifier_create(&f->verifier, f->operands));
}

static float *element(fixture *f, uint32_t arg, int64_t row, int64_t col)
{
    const gk_tensor *t = gki_operands_call(f->operands, 0)->args[arg];
    return (float *)t->data + row * t->stride[0] + col * t->stride[1];
}

static void compute(fixture *f)
{
    const gk_tensor *out = gki_operands_call(f->operands, 0)->args[1];
    assert_gk_ok(gki_operands_poison(f->operands, false));
    for (int64_t row = 0; row < out->shape[0]; row++) {
        for (int64_t col = 0; col < out->shape[1]; col++) {
            *element(f, 1, row, col) = *element(f, 0, col, row);
        }
    }
}

static const char *judge(fixture *f, bool repeat)
{
    assert_gk_ok(gki_verifier_check(f->verifier, repeat, true, &f->verdict));
    return f->verdict.status;
}

static void expect_found(fixture *f, int64_t row, int64_t col, float value, const char *why)
{
    compute(f);
    assert_string_equal(judge(f, false), GKI_TRIAL_OK);
    assert_true(f->verdict.max_error <= 0);
    compute(f);
    assert_string_equal(judge(f, true), GKI_TRIAL_OK);
    compute(f);
    *element(f, 1, row, col) = value;
    assert_string_equal(judge(f, true), GKI_TRIAL_NONDETERMINISTIC);
    assert_string_equal(judge(f, false), GKI_TRIAL_WRONG);
    assert_non_null(strstr(f->verdict.why, why));
}

static void test_whole(void **state)
{
    make(*state, 300, 200, 300);
    assert_true(gki_verifier_is_exhaustive(((fixture *)*state)->verifier));
    expect_found(*state, 199, 299, 1e3f, "out(199, 299) is 1000 instead of ");
}

/* Padding stays untouched, though elements are put back before it is looked at. */
static void test_padded(void **state)
{
    fixture *f = *state;
    make(f, 300, 200, 320);
    expect_found(f, 150, 7, NAN, "out(150, 7) is nan instead of ");
    compute(f);
    *element(f, 1, 20, 300) = 0;
    assert_string_equal(judge(f, false), GKI_TRIAL_OOB);
}

/* The first part begins at the first element. */
static void test_part_in_one_copy(void **state)
{
    fixture *f = *state;
    make(f, 1200, 1000, 1200);
    assert_false(gki_verifier_is_exhaustive(f->verifier));
    expect_found(f, 90, 77, -5e3f, "out(90, 77) is -5000 instead of ");
    expect_found(f, 999, 1199, NAN, "out(999, 1199) is nan instead of ");
}

static void test_part_line_by_line(void **state)
{
    fixture *f = *state;
    make(f, 20000, 100, 20000);
    assert_false(gki_verifier_is_exhaustive(f->verifier));
    expect_found(f, 43, 201, -5e3f, "out(43, 201) is -5000 instead of ");
    expect_found(f, 99, 19999, NAN, "out(99, 19999) is nan instead of ");
}

/* Both ways give the same elements. */
static void test_fetch(void **state)
{
    fixture *f = *state;
    gk_tensor tensors[GK_MAX_ARGS];
    gk_call views;
    gki_part part;
    static float packed[2][1 << 18];
    static unsigned char region[16 << 20];
    make(f, 20000, 100, 20000);
    compute(f);
    memset(tensors, 0, sizeof(tensors));
    memset(&views, 0, sizeof(views));
    memset(&part, 0, sizeof(part));
    assert_true(f->op->part(gki_operands_call(f->operands, 0), 1, 2000000, tensors, &views));
    assert_gk_ok(gki_part_create(&part, f->operands, &views));
    assert_true(part.by_lines && part.count > 1000 && part.count <= 1 << 18);
    assert_in_range(gk_tensor_extent(&part.view), 1, sizeof(region));
    for (int i = 0; i < 2; i++) {
        part.by_lines = i == 0;
        memset(packed[i], 0xee, sizeof(packed[i]));
        assert_gk_ok(gki_part_fetch(&part, f->operands, region,
                                    i == 0 ? gki_part_room(&part) : sizeof(region),
                                    (unsigned char *)packed[i]));
    }
    assert_memory_equal(packed[0], packed[1], sizeof(packed[0]));
    for (int64_t i = 0; i < part.count; i++) {
        assert_true((double)packed[0][i] == part.want[i]);
    }
    gki_part_free(&part);
}

/* Of any size and strides, to the same places or packed; nothing else is touched. */
static void test_copy_elements(void **state)
{
    static const size_t sizes[] = {1, 2, 4, 8};
    (void)state;
    for (size_t s = 0; s < 4; s++) {
        for (int across = 0; across < 2; across++) {
            const size_t size = sizes[s];
            const gk_tensor t = {
                .rank = 2, .shape = {3, 5}, .stride = {across ? 2 : 11, across ? 7 : 1}};
            unsigned char from[400];
            unsigned char to[400];
            unsigned char packed[400];
            memset(to, 0xee, sizeof(to));
            memset(packed, 0xee, sizeof(packed));
            for (size_t i = 0; i < sizeof(from); i++) {
                from[i] = (unsigned char)(i % 199);
            }
            gki_copy_elements(&t, size, to, false, from);
            gki_copy_elements(&t, size, packed, true, from);
            size_t touched = 0;
            for (int64_t i = 0; i < 15; i++) {
                const size_t at = (size_t)(i / 5 * t.stride[0] + i % 5 * t.stride[1]) * size;
                assert_memory_equal(to + at, from + at, size);
                assert_memory_equal(packed + (size_t)i * size, from + at, size);
            }
            for (size_t i = 0; i < sizeof(to); i++) {
                touched += to[i] != 0xee;
            }
            assert_int_equal(touched, 15 * size);
            assert_int_equal(packed[15 * size], 0xee);
        }
    }
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(test_whole),
        TEST(test_padded),
        TEST(test_part_in_one_copy),
        TEST(test_part_line_by_line),
        TEST(test_fetch),
        TEST(test_copy_elements),
    };
    return GK_TEST_MAIN(tests);
}
