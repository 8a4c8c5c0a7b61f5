/* The canonical texts: everything an answer depends on changes them, nothing else does. */
#include "support/gk_test.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/str.h"
#include "jit/jit.h"
#include "support/fake_driver.h"
#include "support/toy_op.h"

typedef struct fixture {
    fake_device *fake;
    gki_counters counters;
} fixture;

static char *environment_of(fixture *f, const gk_op_desc *op)
{
    static char text[GKI_ENVIRONMENT_TEXT];
    gki_jit *jit = NULL;
    const gki_jit_options options = {.device = &f->fake->base, .counters = &f->counters};
    assert_gk_ok(gki_jit_create(&jit, &options));
    memset(text, 'x', sizeof text);
    assert_gk_ok(gki_environment_text(jit, op, text, sizeof text));
    gki_jit_destroy(&jit);
    assert_null(jit);
    return text;
}

static void test_problem_text(void **state)
{
    (void)state;
    char text[GKI_PROBLEM_TEXT];
    const gk_problem problem = toy_problem();
    gki_problem_text(&toy_op, &problem, text, sizeof text);
    assert_string_equal(text, "r3 M=64 N=48 x=f32.row.16 bias=- out=f16.col.8 activation=relu "
                              "flag=0");
}

static void test_every_part_of_the_problem_counts(void **state)
{
    (void)state;
    enum { N = 15 };
    gk_problem problems[N];
    char texts[N][GKI_PROBLEM_TEXT];
    for (size_t i = 0; i < N; i++) {
        problems[i] = toy_problem();
    }
    problems[1].dims[0] = 65;
    problems[2].dims[1] = 49;
    problems[3].dtype[TOY_X] = GK_BF16;
    problems[4].dtype[TOY_BIAS] = GK_F32;
    problems[5].dtype[TOY_OUT] = GK_F32;
    problems[6].layout[TOY_X] = GK_LAYOUT_STRIDED;
    problems[7].layout[TOY_OUT] = GK_LAYOUT_ROW;
    problems[8].align[TOY_X] = 8;
    problems[9].align[TOY_OUT] = 2;
    problems[10].attrs[TOY_ACTIVATION] = 0;
    problems[11].attrs[TOY_FLAG] = 1;
    problems[12].attrs[TOY_ACTIVATION] = 2;
    problems[13].layout[TOY_X] = 3;
    problems[14].dims[0] = INT64_C(1) << 40;
    for (size_t i = 0; i < N; i++) {
        gki_problem_text(&toy_op, &problems[i], texts[i], sizeof texts[i]);
        for (size_t j = 0; j < i; j++) {
            assert_string_not_equal(texts[i], texts[j]);
        }
    }
    gk_op_desc revised = toy_op;
    revised.revision++;
    char text[GKI_PROBLEM_TEXT];
    gki_problem_text(&revised, &problems[0], text, sizeof text);
    assert_string_not_equal(text, texts[0]);
}

static void test_the_op_s_place_does_not_count(void **state)
{
    (void)state;
    char a[GKI_PROBLEM_TEXT];
    char b[GKI_PROBLEM_TEXT];
    gk_problem problem = toy_problem();
    gki_problem_text(&toy_op, &problem, a, sizeof a);
    problem.op = 7;
    gki_problem_text(&toy_op, &problem, b, sizeof b);
    assert_string_equal(a, b);
}

static void test_short_buffers_keep_texts_apart(void **state)
{
    (void)state;
    char a[32];
    char b[32];
    gk_problem problem = toy_problem();
    gki_problem_text(&toy_op, &problem, a, sizeof a);
    assert_int_equal(strlen(a), 31);
    problem.attrs[TOY_FLAG] = 1;
    gki_problem_text(&toy_op, &problem, b, sizeof b);
    assert_int_equal(strlen(b), 31);
    assert_memory_equal(a, b, 14);
    assert_string_not_equal(a, b);
}

static void test_environment_text(void **state)
{
    (void)state;
    fixture f = {.fake = fake_device_create()};
    toy_templates();
    const char *text = environment_of(&f, &toy_op);
    static const char start[] = "driver=cuda cc=90 sms=132 l2=52428800 smem=232448 bus=5120 "
                                "arch=sm_90a compiler=\"nvrtc 13.0\" options=1 templates=";
    char end[128];
    snprintf(end, sizeof end, " revision=3 protocol=%d gk=%s", GKI_PROTOCOL, gk_version_string());
    assert_memory_equal(text, start, sizeof start - 1);
    assert_int_equal(strspn(text + sizeof start - 1, "0123456789abcdef"), 16);
    assert_string_equal(text + sizeof start - 1 + 16, end);
    fake_device_destroy(&f.fake);
}

/* Changes one part of the environment; templates stay changed. */
static void change_environment(int which, fake_device *fake, gk_op_desc *op)
{
    gk_device_info *info = &fake->info;
    switch (which) {
    case 1:
        info->cc = 100;
        break;
    case 2:
        info->sm_count = 114;
        break;
    case 3:
        info->l2_bytes -= 1;
        break;
    case 4:
        info->smem_per_block_optin -= 1024;
        break;
    case 5:
        info->memory_bus_bits = 4096;
        break;
    case 6:
        gki_copy_text(info->arch, sizeof info->arch, "sm_90");
        break;
    case 7:
        gki_copy_text(info->compiler, sizeof info->compiler, "nvrtc 13.1");
        break;
    case 8:
        fake->table.name = "cpu";
        break;
    case 9:
        fake->table.name = "cuda";
        op->revision++;
        break;
    case 10:
        op->revision--;
        toy_template("toy.cu", "int body = BLOCK_N;\n");
        break;
    case 11:
        toy_template("toy_wide.cu", "int wide = BLOCK_N;\n");
        break;
    case 12:
        toy_template("gk/prelude.cuh", "// prelude.\n");
        break;
    case 13:
        toy_template("toy.cu", "int body = BLOCK_O;\n");
        break;
    default:
        break;
    }
}

static void test_every_part_of_the_environment_counts(void **state)
{
    (void)state;
    enum { N = 14 };
    static char texts[N][GKI_ENVIRONMENT_TEXT];
    fixture f = {.fake = fake_device_create()};
    const gk_device_info first = f.fake->info;
    gk_op_desc op = toy_op;
    toy_templates();
    for (int i = 0; i < N; i++) {
        f.fake->info = first;
        change_environment(i, f.fake, &op);
        gki_copy_text(texts[i], sizeof texts[i], environment_of(&f, &op));
        for (int j = 0; j < i; j++) {
            assert_string_not_equal(texts[i], texts[j]);
        }
    }
    fake_device_destroy(&f.fake);
}

static void test_a_template_changed_back_has_its_hash_back(void **state)
{
    (void)state;
    static char first[GKI_ENVIRONMENT_TEXT];
    fixture f = {.fake = fake_device_create()};
    toy_templates();
    gki_copy_text(first, sizeof first, environment_of(&f, &toy_op));
    toy_template("toy_wide.cu", "int wide = BLOCK_M; \n");
    assert_string_not_equal(environment_of(&f, &toy_op), first);
    toy_template("toy_wide.cu", "int wide = BLOCK_M;\n");
    assert_string_equal(environment_of(&f, &toy_op), first);
    fake_device_destroy(&f.fake);
}

static void test_what_only_informs_does_not_count(void **state)
{
    (void)state;
    static char first[GKI_ENVIRONMENT_TEXT];
    fixture f = {.fake = fake_device_create()};
    gk_device_info *info = &f.fake->info;
    toy_templates();
    gki_copy_text(first, sizeof first, environment_of(&f, &toy_op));
    memset(info->name, 'n', sizeof info->name - 1);
    info->name[sizeof info->name - 1] = '\0';
    assert_int_equal(strlen(info->name), 255);
    info->ordinal = 3;
    info->driver_version = 12080;
    info->clock_khz = 1;
    info->memory_bytes = 1;
    assert_string_equal(environment_of(&f, &toy_op), first);
    fake_device_destroy(&f.fake);
}

/* No text that an answer could be stored under, whatever the trouble. */
static void test_unusable_templates(void **state)
{
    (void)state;
    fixture f = {.fake = fake_device_create()};
    char text[GKI_ENVIRONMENT_TEXT];
    gki_jit *jit = NULL;
    const gki_jit_options options = {.device = &f.fake->base, .counters = &f.counters};
    toy_templates();
    const char *good = environment_of(&f, &toy_op);
    for (int64_t n = 1;; n++) {
        assert_gk_ok(gki_jit_create(&jit, &options));
        memset(text, 'x', sizeof text);
        gki_alloc_fail_at(n);
        const gk_status status = gki_environment_text(jit, &toy_op, text, sizeof text);
        gki_alloc_fail_at(0);
        if (status == GK_OK) {
            assert_string_equal(text, good);
        } else {
            assert_int_equal(status, GK_ERR_NOMEM);
            assert_string_equal(text, "");
            /* The next attempt is none the worse. */
            assert_gk_ok(gki_environment_text(jit, &toy_op, text, sizeof text));
            assert_string_equal(text, good);
        }
        gki_jit_destroy(&jit);
        if (status == GK_OK && n > 1) {
            break;
        }
    }
    toy_template("toy.cu", "#include \"gk/nowhere.cuh\"\n");
    assert_gk_ok(gki_jit_create(&jit, &options));
    assert_gk_err(gki_environment_text(jit, &toy_op, text, sizeof text), GK_ERR_COMPILE,
                  "gk/nowhere.cuh");
    assert_string_equal(text, "");
    gki_jit_destroy(&jit);
    fake_device_destroy(&f.fake);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_problem_text),
        cmocka_unit_test(test_every_part_of_the_problem_counts),
        cmocka_unit_test(test_the_op_s_place_does_not_count),
        cmocka_unit_test(test_short_buffers_keep_texts_apart),
        cmocka_unit_test(test_environment_text),
        cmocka_unit_test(test_every_part_of_the_environment_counts),
        cmocka_unit_test(test_a_template_changed_back_has_its_hash_back),
        cmocka_unit_test(test_what_only_informs_does_not_count),
        cmocka_unit_test(test_unusable_templates),
    };
    return GK_TEST_MAIN(tests);
}
