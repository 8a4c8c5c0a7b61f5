/* Rendering: the source's text, the kernel's name, the key and what it covers, dumps, locales. */
#define _GNU_SOURCE
#include "support/gk_test.h"

#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/proc.h"
#include "base/str.h"
#include "jit/jit.h"
#include "support/fake_driver.h"
#include "support/toy_op.h"

typedef struct fixture {
    fake_device *fake;
    gki_counters counters;
    gki_jit *jit;
    char log[512]; /* the last line */
} fixture;

static void keep_line(void *user, gk_log_level level, const char *line)
{
    fixture *f = user;
    (void)level;
    snprintf(f->log, sizeof f->log, "%s", line);
}

static void open_jit(fixture *f)
{
    static gki_log log;
    log = (gki_log){keep_line, f, GK_LOG_DEBUG};
    if (!f->fake) {
        f->fake = fake_device_create();
    }
    const gki_jit_options options = {
        .device = &f->fake->base, .log = &log, .counters = &f->counters};
    assert_gk_ok(gki_jit_create(&f->jit, &options));
}

static void close_all(fixture *f)
{
    gki_jit_destroy(&f->jit);
    fake_device_destroy(&f->fake);
}

static gki_rendered render(fixture *f, const gk_variant *variant, gk_problem problem,
                           gk_config config)
{
    gki_rendered out;
    memset(&out, 0xa5, sizeof out);
    assert_gk_ok(gki_render(f->jit, &toy_op, variant, &problem, &config, &out));
    return out;
}

/* The key of one render in a jit of its own. */
static gki_digest key_of(fixture *f, const gk_variant *variant, gk_problem problem,
                         gk_config config)
{
    open_jit(f);
    gki_rendered rendered = render(f, variant, problem, config);
    gki_free(rendered.source);
    gki_jit_destroy(&f->jit);
    return rendered.key;
}

static void test_the_whole_source(void **state)
{
    (void)state;
    fixture f = {0};
    toy_templates();
    open_jit(&f);
    gki_rendered rendered = render(&f, &toy_plain, toy_problem(), toy_config(64, 16, 4));
    assert_string_equal(rendered.kernel, "gk_toy_relu_f32_plain_64x16");
    assert_string_equal(rendered.source, "// toy, variant plain (toy.cu): BLOCK_M=64 BLOCK_K=16\n"
                                         "#define GK_KERNEL_NAME gk_toy_relu_f32_plain_64x16\n"
                                         "#line 1 \"gk/prelude.cuh\"\n\n// prelude\n"
                                         "#line 1 \"gk/dtypes.cuh\"\n\n\n// dtypes\n"
                                         "#line 1 \"constants\"\n"
                                         "constexpr int BLOCK_M = 64;\n"
                                         "constexpr int BLOCK_K = 16;\n"
                                         "using X_TYPE = gk::f32;\n"
                                         "constexpr int X_ALIGN = 16;\n"
                                         "constexpr long long FAR = 5000000000LL;\n"
                                         "constexpr bool HAS_BIAS = false;\n"
                                         "#line 1 \"toy.cu\"\n\nint body = BLOCK_M;\n");
    gki_free(rendered.source);
    close_all(&f);
}

static void test_launch_params_share_the_source(void **state)
{
    (void)state;
    fixture f = {0};
    toy_templates();
    const gki_digest a = key_of(&f, &toy_plain, toy_problem(), toy_config(64, 16, 4));
    const gki_digest b = key_of(&f, &toy_plain, toy_problem(), toy_config(64, 16, 1));
    assert_memory_equal(&a, &b, sizeof a);
    close_all(&f);
}

static void test_dims_share_the_source(void **state)
{
    (void)state;
    fixture f = {0};
    gk_problem problem = toy_problem();
    toy_templates();
    const gki_digest a = key_of(&f, &toy_plain, problem, toy_config(64, 16, 4));
    problem.dims[0] = 4096;
    const gki_digest b = key_of(&f, &toy_plain, problem, toy_config(64, 16, 4));
    assert_memory_equal(&a, &b, sizeof a);
    close_all(&f);
}

static gki_digest changed_key(fixture *f, int change)
{
    gk_problem problem = toy_problem();
    gk_config config = toy_config(64, 16, 4);
    const gk_variant *variant = &toy_plain;
    switch (change) {
    case 1:
        config.values[TOY_BLOCK_M] = 32;
        break;
    case 2:
        config.values[TOY_BLOCK_K] = 8;
        break;
    case 3:
        problem.dtype[TOY_X] = GK_BF16;
        break;
    case 4:
        problem.align[TOY_X] = 8;
        break;
    case 5:
        problem.dtype[TOY_BIAS] = GK_F32;
        break;
    case 6:
        variant = &toy_wide;
        config = (gk_config){{64}};
        break;
    case 7:
        gki_copy_text(f->fake->info.compiler, sizeof f->fake->info.compiler, "nvrtc 13.1");
        break;
    case 8:
        gki_copy_text(f->fake->info.compiler, sizeof f->fake->info.compiler, "nvrtc 13.0");
        gki_copy_text(f->fake->info.arch, sizeof f->fake->info.arch, "sm_90");
        break;
    case 9:
        gki_copy_text(f->fake->info.arch, sizeof f->fake->info.arch, "sm_90a");
        f->fake->table.name = "cpu";
        break;
    case 10:
        f->fake->table.name = "cuda";
        toy_template("toy.cu", "#include \"gk/dtypes.cuh\"\nint body = BLOCK_N;\n");
        break;
    case 11:
        toy_template("toy.cu", "#include \"gk/dtypes.cuh\"\nint body = BLOCK_M;\n");
        toy_template("gk/dtypes.cuh", "// dtypes!\n");
        break;
    default:
        break;
    }
    return key_of(f, variant, problem, config);
}

static void test_what_the_key_covers(void **state)
{
    (void)state;
    enum { N = 12 };
    gki_digest keys[N];
    fixture f = {0};
    toy_templates();
    f.fake = fake_device_create();
    for (int i = 0; i < N; i++) {
        keys[i] = changed_key(&f, i);
        for (int j = 0; j < i; j++) {
            assert_memory_not_equal(&keys[i], &keys[j], sizeof keys[i]);
        }
    }
    close_all(&f);
}

static void test_the_device_s_name_is_not_in_the_key(void **state)
{
    (void)state;
    fixture f = {0};
    toy_templates();
    const gki_digest a = key_of(&f, &toy_plain, toy_problem(), toy_config(64, 16, 4));
    gki_copy_text(f.fake->info.name, sizeof f.fake->info.name, "another");
    f.fake->info.driver_version = 12080;
    f.fake->info.ordinal = 1;
    const gki_digest b = key_of(&f, &toy_plain, toy_problem(), toy_config(64, 16, 4));
    assert_memory_equal(&a, &b, sizeof a);
    close_all(&f);
}

static void test_a_template_is_read_once_a_jit(void **state)
{
    (void)state;
    fixture f = {0};
    toy_templates();
    open_jit(&f);
    gki_rendered a = render(&f, &toy_plain, toy_problem(), toy_config(64, 16, 4));
    toy_template("toy.cu", "int other;\n");
    gki_rendered b = render(&f, &toy_plain, toy_problem(), toy_config(64, 16, 4));
    assert_string_equal(a.source, b.source);
    gki_free(a.source);
    gki_free(b.source);
    close_all(&f);
}

static void test_refusals(void **state)
{
    (void)state;
    static const int32_t values[] = {1};
    static const gk_param evil[] = {{"A = 1; int B", "", values, 1, 0}};
    fixture f = {0};
    gki_rendered out;
    const gk_problem problem = toy_problem();
    gk_variant variant = toy_plain;
    gk_config config = toy_config(7, 16, 4);
    toy_templates();
    open_jit(&f);
    assert_gk_err(gki_render(f.jit, &toy_op, &toy_plain, &problem, &config, &out), GK_ERR_INVALID,
                  "BLOCK_M=7 is not among the values of variant plain");
    assert_null(out.source);
    variant.params = evil;
    variant.n_params = 1;
    config = (gk_config){{1}};
    assert_gk_err(gki_render(f.jit, &toy_op, &variant, &problem, &config, &out), GK_ERR_INVALID,
                  "tunable 0 has no usable name");
    assert_null(out.source);
    variant = toy_plain;
    variant.source = "missing.cu";
    config = toy_config(64, 16, 4);
    assert_gk_err(gki_render(f.jit, &toy_op, &variant, &problem, &config, &out), GK_ERR_NOT_FOUND,
                  "missing.cu");
    assert_null(out.source);
    close_all(&f);
}

static void test_long_names_are_cut(void **state)
{
    (void)state;
    fixture f = {0};
    const gk_problem problem = toy_problem();
    const gk_config config = toy_config(64, 16, 4);
    gk_op_desc op = toy_op;
    gki_rendered out;
    op.name =
        "an operation/with-a.name that is longer than any name of a kernel can be, because it "
        "goes on and on and on and on and on and on";
    toy_templates();
    open_jit(&f);
    assert_gk_ok(gki_render(f.jit, &op, &toy_plain, &problem, &config, &out));
    assert_int_equal(strlen(out.kernel), 127);
    assert_int_equal(strspn(out.kernel, "abcdefghijklmnopqrstuvwxyz_"), 127);
    assert_memory_equal(out.kernel, "gk_an_operation_with_a_name_that", 32);
    gki_free(out.source);
    close_all(&f);
}

static void test_dump(void **state)
{
    (void)state;
    fixture f = {0};
    char hex[65];
    char name[256];
    toy_templates();
    assert_int_equal(setenv("GK_DUMP_DIR", gk_test_path("a/dumps"), 1), 0);
    open_jit(&f);
    gki_rendered rendered = render(&f, &toy_plain, toy_problem(), toy_config(64, 16, 4));
    gki_digest_hex(&rendered.key, hex);
    snprintf(name, sizeof name, "a/dumps/gk_toy_relu_f32_plain_64x16-%.8s.cu", hex);
    char *text = gk_test_read(gk_test_path(name), NULL);
    assert_string_equal(text, rendered.source);
    free(text);
    gki_free(rendered.source);
    close_all(&f);
}

static void test_a_dump_that_fails_is_a_warning(void **state)
{
    (void)state;
    fixture f = {0};
    toy_templates();
    gk_test_write(gk_test_path("file"), "x", 1);
    assert_int_equal(setenv("GK_DUMP_DIR", gk_test_path("file"), 1), 0);
    open_jit(&f);
    (void)gk_fail(GK_ERR_UNTUNED, "test", "before");
    gki_rendered rendered = render(&f, &toy_plain, toy_problem(), toy_config(64, 16, 4));
    assert_non_null(rendered.source);
    assert_non_null(strstr(f.log, "GK_DUMP_DIR: "));
    assert_string_equal(gk_error_last()->message, "before");
    gki_free(rendered.source);
    close_all(&f);
}

/* Builds the locale, so that this never passes for want of it. */
static void use_decimal_comma(void)
{
    char number[16];
    const char *const argv[] = {
        "localedef", "-i", "de_DE", "-f", "UTF-8", gk_test_path("de_DE.UTF-8"), NULL};
    gki_proc_result result;
    assert_gk_ok(gki_proc_run(argv, 120, &result));
    if (result.exit_code != 0) {
        fail_msg("localedef: %s", result.output);
    }
    gki_free(result.output);
    assert_int_equal(setenv("LOCPATH", gk_test_dir(), 1), 0);
    assert_non_null(setlocale(LC_ALL, "de_DE.UTF-8"));
    snprintf(number, sizeof number, "%.1f", 0.5);
    assert_string_equal(number, "0,5");
}

static void test_locale(void **state)
{
    (void)state;
    fixture f = {0};
    toy_templates();
    const gki_digest a = key_of(&f, &toy_plain, toy_problem(), toy_config(64, 16, 4));
    use_decimal_comma();
    const gki_digest b = key_of(&f, &toy_plain, toy_problem(), toy_config(64, 16, 4));
    assert_non_null(setlocale(LC_ALL, "C"));
    assert_int_equal(unsetenv("LOCPATH"), 0);
    assert_memory_equal(&a, &b, sizeof a);
    close_all(&f);
}

static int64_t code_at;
static const char *code_text;

static void code_constants(const gk_problem *problem, gk_constants *out)
{
    (void)problem;
    snprintf(out->code, sizeof out->code, "%s", code_text);
    out->items[out->n_items++] = (gk_constant){"SUM", GK_CONSTANT_CODE, code_at};
}

/* One line of code under a name, which no text can leave. */
static void test_code(void **state)
{
    (void)state;
    static const char *const wrong[] = {"", "a\nb", "a\rb", "a \\", "#error"};
    fixture f = {0};
    gk_variant variant = toy_plain;
    variant.constants = code_constants;
    toy_templates();
    open_jit(&f);
    code_text = "m_add(x0, x1)";
    code_at = 0;
    gki_rendered rendered = render(&f, &variant, toy_problem(), toy_config(64, 16, 4));
    assert_non_null(strstr(rendered.source, "\n#define SUM m_add(x0, x1)\n#line 1 \"toy.cu\""));
    const gki_digest first = rendered.key;
    gki_free(rendered.source);
    code_text = "m_sub(x0, x1)";
    rendered = render(&f, &variant, toy_problem(), toy_config(64, 16, 4));
    assert_memory_not_equal(&rendered.key, &first, sizeof first);
    gki_free(rendered.source);
    const gk_problem problem = toy_problem();
    const gk_config config = toy_config(64, 16, 4);
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0] + 2; i++) {
        code_text = i < sizeof wrong / sizeof wrong[0] ? wrong[i] : "x0";
        code_at = i == sizeof wrong / sizeof wrong[0]       ? -1
                  : i == sizeof wrong / sizeof wrong[0] + 1 ? GK_MAX_CODE
                                                            : 0;
        assert_gk_err(gki_render(f.jit, &toy_op, &variant, &problem, &config, &rendered),
                      GK_ERR_INVALID, "variant plain: SUM is no line of code");
    }
    close_all(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_whole_source),
        cmocka_unit_test(test_code),
        cmocka_unit_test(test_launch_params_share_the_source),
        cmocka_unit_test(test_dims_share_the_source),
        cmocka_unit_test(test_what_the_key_covers),
        cmocka_unit_test(test_the_device_s_name_is_not_in_the_key),
        cmocka_unit_test(test_a_template_is_read_once_a_jit),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_long_names_are_cut),
        cmocka_unit_test(test_dump),
        cmocka_unit_test(test_a_dump_that_fails_is_a_warning),
        cmocka_unit_test(test_locale),
    };
    return GK_TEST_MAIN(tests);
}
