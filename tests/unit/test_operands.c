/* Trial operands: alignment, values, guards, gaps; and what the verifier says of what was written.
 * Device memory is host memory here, so the test writes the outputs itself. */
#include "support/gk_test.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "support/add_op.h"
#include "tune/verify.h"

typedef struct fixture {
    fake_device *fake;
    gk_tensor tensors[3];
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
    add_op_reset();
    fix.fake = fake_device_create();
    return 0;
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

/* The addresses are never used. */
static void make(fixture *f, int64_t n, int64_t stride, uintptr_t misalignment, uint32_t sets)
{
    const uintptr_t base = (uintptr_t)1 << 40;
    f->call = add_call(f->tensors, NULL, NULL, NULL, n);
    for (uint32_t i = 0; i < 3; i++) {
        f->tensors[i].data = (void *)(base * (i + 1) + misalignment);
        f->tensors[i].stride[0] = stride;
    }
    memset(&f->problem, 0, sizeof(f->problem));
    assert_gk_ok(add_op.infer(&f->call, &f->problem));
    assert_gk_ok(gki_operands_create(&f->operands, &f->fake->base, NULL, &add_op, &f->call,
                                     &f->problem, 5, sets));
    assert_gk_ok(gki_verifier_create(&f->verifier, f->operands));
}

static float *data_of(fixture *f, uint32_t set, uint32_t arg)
{
    return gki_operands_call(f->operands, set)->args[arg]->data;
}

static void compute_run(fixture *f, bool again)
{
    const gk_tensor *c = gki_operands_call(f->operands, 0)->args[2];
    assert_gk_ok(gki_operands_poison(f->operands, again));
    for (int64_t i = 0; i < c->shape[0]; i++) {
        const int64_t at = i * c->stride[0];
        data_of(f, 0, 2)[at] = data_of(f, 0, 0)[at] + data_of(f, 0, 1)[at];
    }
}

static void compute(fixture *f)
{
    compute_run(f, false);
}

static const char *judge(fixture *f, bool repeat)
{
    assert_gk_ok(gki_verifier_check(f->verifier, repeat, true, &f->verdict));
    return f->verdict.status;
}

static void test_layout(void **state)
{
    fixture *f = *state;
    make(f, 1000, 1, 36, 3);
    assert_int_equal(f->operands->sets, 3);
    for (uint32_t set = 0; set < 3; set++) {
        for (uint32_t i = 0; i < 3; i++) {
            const gk_tensor *t = gki_operands_call(f->operands, set)->args[i];
            assert_int_equal((uintptr_t)t->data % 256, 36);
            assert_int_equal(t->shape[0], 1000);
            assert_int_equal(t->stride[0], 1);
        }
        /* Copies hold the same, in other places. */
        assert_memory_equal(data_of(f, set, 0), data_of(f, 0, 0), 4000);
        assert_true(set == 0 || data_of(f, set, 0) != data_of(f, 0, 0));
    }
    assert_memory_not_equal(data_of(f, 0, 0), data_of(f, 0, 1), 4000);
    /* Behind inputs lies what must not be read; outputs are poisoned. */
    for (int64_t i = 0; i < 64; i++) {
        assert_true(isnan(data_of(f, 0, 0)[1000 + i]));
        assert_true(isnan(data_of(f, 0, 0)[-1 - i]));
        assert_true(isnan(data_of(f, 0, 2)[i]));
    }
}

/* Large operands lie to each other as separate allocations do. */
static void test_large_begin_at_pages(void **state)
{
    fixture *f = *state;
    enum { PAGE = 2 << 20 };
    make(f, PAGE, 1, 36, 2);
    for (uint32_t set = 0; set < 2; set++) {
        for (uint32_t i = 0; i < 3; i++) {
            const intptr_t distance = (char *)data_of(f, set, i) - (char *)data_of(f, 0, 0);
            assert_int_equal(distance % PAGE, 0);
        }
    }
    assert_int_equal((uintptr_t)data_of(f, 1, 2) % 256, 36);
    compute(f);
    assert_string_equal(judge(f, false), GKI_TRIAL_OK);
}

static void test_values_are_normal(void **state)
{
    fixture *f = *state;
    double sum = 0;
    double squares = 0;
    make(f, 100000, 1, 0, 1);
    for (int64_t i = 0; i < 100000; i++) {
        const double x = (double)data_of(f, 0, 0)[i];
        sum += x;
        squares += x * x;
        assert_true(*(const float *)gki_operands_value(f->operands, 0, i) == data_of(f, 0, 0)[i]);
    }
    assert_true(fabs(sum / 100000) < 0.02);
    assert_true(fabs(squares / 100000 - 1) < 0.02);
}

static void test_right_and_wrong(void **state)
{
    fixture *f = *state;
    make(f, 1000, 1, 4, 1);
    assert_true(gki_verifier_is_exhaustive(f->verifier));
    compute(f);
    assert_string_equal(judge(f, false), GKI_TRIAL_OK);
    assert_true(f->verdict.max_error <= 1);
    compute(f);
    assert_string_equal(judge(f, true), GKI_TRIAL_OK);
    compute(f);
    data_of(f, 0, 2)[17] = 1e6f;
    assert_string_equal(judge(f, true), GKI_TRIAL_NONDETERMINISTIC);
    compute(f);
    data_of(f, 0, 2)[17] = 1e6f;
    assert_string_equal(judge(f, false), GKI_TRIAL_WRONG);
    assert_non_null(strstr(f->verdict.why, "c(17) is 1000000 instead of "));
    compute(f);
    data_of(f, 0, 2)[999] = NAN;
    assert_string_equal(judge(f, false), GKI_TRIAL_WRONG);
    assert_non_null(strstr(f->verdict.why, "c(999)"));
    /* Just outside, and far in the guard. */
    compute(f);
    data_of(f, 0, 2)[1000] = 0;
    assert_string_equal(judge(f, false), GKI_TRIAL_OOB);
    assert_string_equal(f->verdict.why, "wrote 0 bytes behind c");
    compute(f);
    data_of(f, 0, 2)[-65] = 0;
    assert_string_equal(judge(f, false), GKI_TRIAL_OOB);
    assert_string_equal(f->verdict.why, "wrote 260 bytes before c");
}

static void test_gaps(void **state)
{
    fixture *f = *state;
    make(f, 1000, 3, 0, 1);
    assert_int_equal(gki_operands_call(f->operands, 0)->args[2]->stride[0], 3);
    compute(f);
    assert_string_equal(judge(f, false), GKI_TRIAL_OK);
    assert_true(isnan(data_of(f, 0, 0)[1])); /* between elements of an input */
    compute(f);
    data_of(f, 0, 2)[4] = 0;
    assert_string_equal(judge(f, false), GKI_TRIAL_OOB);
    assert_string_equal(f->verdict.why, "wrote between the elements of c, at byte 16");
}

static void test_inputs_are_constant(void **state)
{
    fixture *f = *state;
    make(f, 1000, 1, 0, 1);
    const float before = data_of(f, 0, 1)[3];
    compute(f);
    data_of(f, 0, 1)[3] = 12;
    assert_string_equal(judge(f, false), GKI_TRIAL_OOB);
    assert_string_equal(f->verdict.why, "wrote to the input b, at byte 12");
    assert_true(data_of(f, 0, 1)[3] == before); /* put right for the next one */
}

static void test_sparse_strides_are_shortened(void **state)
{
    fixture *f = *state;
    make(f, 1000, 1000003, 0, 1);
    const gk_tensor *c = gki_operands_call(f->operands, 0)->args[2];
    assert_int_equal(c->stride[0] % 64, 1000003 % 64);
    assert_true(c->stride[0] > 1 && c->stride[0] < 256);
    compute(f);
    assert_string_equal(judge(f, false), GKI_TRIAL_OK);
}

/* Above the size that is imaged: pattern by pattern, parts checked, the rest scanned. */
static void test_large(void **state)
{
    fixture *f = *state;
    const int64_t n = 5000000;
    make(f, n, 1, 8, 1);
    assert_false(gki_verifier_is_exhaustive(f->verifier));
    for (int64_t i = 0; i < n; i += 99991) {
        assert_true(*(const float *)gki_operands_value(f->operands, 1, i) == data_of(f, 0, 1)[i]);
    }
    compute(f);
    assert_string_equal(judge(f, false), GKI_TRIAL_OK);
    compute(f);
    assert_string_equal(judge(f, true), GKI_TRIAL_OK);
    compute(f);
    data_of(f, 0, 2)[n - 5] = 0;
    assert_string_equal(judge(f, false), GKI_TRIAL_WRONG);
    assert_non_null(strstr(f->verdict.why, "c(4999995)"));
    /* At the beginning, in the other half of eight bytes, and at the end of a piece. */
    static const int64_t holes[] = {100, 101, 65535};
    for (int i = 0; i < 3; i++) {
        char text[64];
        for (int run = 0; run < 2; run++) {
            assert_gk_ok(gki_operands_poison(f->operands, run > 0));
            const float before = data_of(f, 0, 2)[holes[i]];
            compute_run(f, run > 0);
            data_of(f, 0, 2)[holes[i]] = before;
            assert_string_equal(judge(f, run > 0), run > 0 ? GKI_TRIAL_WRONG : GKI_TRIAL_OK);
        }
        snprintf(text, sizeof(text), "c(%d) was not written", (int)holes[i]);
        assert_string_equal(f->verdict.why, text);
    }
    /* A result may have any bits: -log(-1) has all set on a GPU. */
    for (int run = 0; run < 2; run++) {
        compute_run(f, run > 0);
        memset(&data_of(f, 0, 2)[100], 0xff, 4);
        assert_string_equal(judge(f, run > 0), GKI_TRIAL_OK);
    }
    compute(f);
    data_of(f, 0, 2)[n] = 1;
    assert_string_equal(judge(f, false), GKI_TRIAL_OOB);
    compute(f);
    assert_string_equal(judge(f, false), GKI_TRIAL_OK);
    compute(f);
    data_of(f, 0, 2)[50] = 0;
    assert_string_equal(judge(f, true), GKI_TRIAL_NONDETERMINISTIC);
}

static void test_output_that_is_read(void **state)
{
    fixture *f = *state;
    add_reads_output = true;
    make(f, 1000, 1, 0, 1);
    for (int run = 0; run < 2; run++) {
        assert_gk_ok(gki_operands_poison(f->operands, run > 0));
        for (int64_t i = 0; i < 1000; i++) {
            assert_false(isnan(data_of(f, 0, 2)[i]));
            data_of(f, 0, 2)[i] += data_of(f, 0, 0)[i] + data_of(f, 0, 1)[i];
        }
        assert_string_equal(judge(f, run > 0), GKI_TRIAL_OK);
    }
}

/* Twice the L2 cache, at least two, or what memory allows. */
static void test_sets(void **state)
{
    fixture *f = *state;
    f->fake->info.l2_bytes = 60000;
    make(f, 1000, 1, 0, 0);
    assert_int_equal(f->operands->sets, 2 * 60000 / 12000 + 1);
    gki_verifier_destroy(&f->verifier);
    gki_operands_destroy(&f->operands);
    f->fake->info.memory_bytes = 4 * 2 * 16000;
    make(f, 1000, 1, 0, 0);
    assert_int_equal(f->operands->sets, 2);
    gki_verifier_destroy(&f->verifier);
    gki_operands_destroy(&f->operands);
    f->fake->info.l2_bytes = 5000;
    make(f, 1000, 1, 0, 0);
    assert_int_equal(f->operands->sets, 2);
    gki_verifier_destroy(&f->verifier);
    gki_operands_destroy(&f->operands);
    f->fake->info.memory_bytes = 4 * 16000;
    make(f, 1000, 1, 0, 0);
    assert_int_equal(f->operands->sets, 1);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(test_layout),
        TEST(test_large_begin_at_pages),
        TEST(test_values_are_normal),
        TEST(test_right_and_wrong),
        TEST(test_gaps),
        TEST(test_inputs_are_constant),
        TEST(test_sparse_strides_are_shortened),
        TEST(test_large),
        TEST(test_output_that_is_read),
        TEST(test_sets),
    };
    return GK_TEST_MAIN(tests);
}
