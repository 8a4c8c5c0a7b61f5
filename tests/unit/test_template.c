/* Templates: the embedded table, look-up, include expansion and what it refuses. */
#define _GNU_SOURCE
#include "support/gk_test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/alloc.h"
#include "base/hash.h"
#include "jit/jit.h"
#include "jit/template.h"
#include "support/toy_op.h"

static char *expand(const char *file, const char *driver)
{
    static char *text; /* outlives the longjmp of a failed assertion */
    assert_gk_ok(gki_template_expand(file, driver, &text));
    assert_non_null(text);
    return text;
}

static void refused(const char *file, const char *driver, gk_status status, const char *message)
{
    char poison = 'x';
    char *text = &poison;
    assert_gk_err(gki_template_expand(file, driver, &text), status, message);
    assert_null(text);
}

static size_t occurrences(const char *text, const char *what)
{
    size_t n = 0;
    for (const char *p = strstr(text, what); p; p = strstr(p + 1, what)) {
        n++;
    }
    return n;
}

static const struct gki_template_file *embedded(const char *name)
{
    for (size_t i = 0; i < gki_template_file_count; i++) {
        if (strcmp(gki_template_files[i].name, name) == 0) {
            return &gki_template_files[i];
        }
    }
    return NULL;
}

static void test_embedded_files_are_sound(void **state)
{
    (void)state;
    assert_non_null(embedded("gk/prelude.cuh"));
    assert_non_null(embedded("emu/prelude.cuh"));
    assert_non_null(embedded("gk/matmul_args.h"));
    assert_non_null(embedded("matmul_simt.cu"));
    for (size_t i = 0; i < gki_template_file_count; i++) {
        const struct gki_template_file *file = &gki_template_files[i];
        char hex[65];
        const gki_digest digest = gki_sha256(file->bytes, file->size);
        gki_digest_hex(&digest, hex);
        assert_string_equal(hex, file->sha256);
        assert_null(memchr(file->bytes, 0, file->size));
        if (i > 0) {
            assert_true(strcmp(gki_template_files[i - 1].name, file->name) < 0);
        }
    }
}

static void test_every_embedded_kernel_expands(void **state)
{
    (void)state;
    static const char *const drivers[] = {"cuda", "cpu"};
    size_t kernels = 0;
    for (size_t i = 0; i < gki_template_file_count; i++) {
        const char *name = gki_template_files[i].name;
        if (strchr(name, '/')) {
            continue;
        }
        kernels++;
        for (size_t j = 0; j < 2; j++) {
            char *text = expand(name, drivers[j]);
            assert_int_equal(occurrences(text, "#pragma once"), 0);
            assert_int_equal(occurrences(text, "#include \""), 0);
            assert_int_equal(occurrences(text, "typedef struct gk_matmul_args"),
                             strncmp(name, "matmul", 6) == 0);
            assert_int_equal(occurrences(text, "#line 1 \"gk/ptx.cuh\""), j == 0);
            assert_int_equal(occurrences(text, "#line 1 \"emu/ptx.cuh\""), j == 1);
            gki_free(text);
        }
    }
    assert_true(kernels > 0);
}

static void test_each_file_once_in_place(void **state)
{
    (void)state;
    toy_templates();
    toy_template("gk/a.cuh", "  #  pragma   once // guard\n// a\n");
    toy_template("gk/b.cuh", "#pragma once\n#include \"gk/a.cuh\"\n// b");
    toy_template("toy.cu", "// 1\n#include \"gk/a.cuh\"\n \t# include  \"gk/b.cuh\" // why\n"
                           "#include \"gk/a.cuh\"\n// 5\n");
    char *text = expand("toy.cu", "cuda");
    assert_string_equal(text, "#line 1 \"toy.cu\"\n// 1\n"
                              "#line 1 \"gk/a.cuh\"\n\n// a\n"
                              "#line 3 \"toy.cu\"\n"
                              "#line 1 \"gk/b.cuh\"\n\n\n// b\n"
                              "#line 4 \"toy.cu\"\n\n// 5\n");
    gki_free(text);
}

static void test_comments_are_no_directives(void **state)
{
    (void)state;
    static const char source[] = "/* a\n#include \"gk/no.cuh\"\n#pragma once\n*/\n"
                                 "// /*\nconst char *s = \"/*\";\nchar q = '\"'; /* b */\n"
                                 "#define INCLUDE #include_x\n#pragma oncemore\n#included\n";
    toy_templates();
    toy_template("toy.cu", source);
    char *text = expand("toy.cu", "cuda");
    assert_string_equal(text + strlen("#line 1 \"toy.cu\"\n"), source);
    gki_free(text);
    toy_template("toy.cu", "const char *s = \"/*\";\n#include \"gk/no.cuh\"\n");
    refused("toy.cu", "cuda", GK_ERR_COMPILE, "toy.cu:2: #include \"gk/no.cuh\" is neither");
}

static void test_the_cpu_s_meaning_replaces(void **state)
{
    (void)state;
    toy_templates();
    toy_template("gk/here.cuh", "// cuda here\n");
    toy_template("emu/here.cuh", "// cpu here\n");
    toy_template("gk/both.cuh", "// both\n");
    toy_template("gk/args.h", "// gk args\n");
    toy_template("emu/args.h", "// emu args\n");
    toy_template("toy.cu",
                 "#include \"gk/here.cuh\"\n#include \"gk/both.cuh\"\n#include \"gk/args.h\"\n");
    char *text = expand("toy.cu", "cuda");
    assert_int_equal(occurrences(text, "// cuda here"), 1);
    assert_int_equal(occurrences(text, "// cpu here"), 0);
    gki_free(text);
    text = expand("toy.cu", "cpu");
    assert_int_equal(occurrences(text, "// cuda here"), 0);
    assert_int_equal(occurrences(text, "// cpu here"), 1);
    assert_int_equal(occurrences(text, "// both"), 1);
    assert_int_equal(occurrences(text, "// gk args"), 1);
    gki_free(text);
}

static void test_the_directory_comes_before_the_library(void **state)
{
    (void)state;
    char *text = expand("gk/epilogue.cuh", "cuda");
    assert_int_equal(occurrences(text, "mine"), 0);
    gki_free(text);
    toy_templates();
    toy_template("gk/epilogue.cuh", "// mine\n");
    text = expand("gk/epilogue.cuh", "cuda");
    assert_string_equal(text, "#line 1 \"gk/epilogue.cuh\"\n// mine\n");
    gki_free(text);
    text = expand("gk/matmul_args.h", "cuda");
    assert_int_equal(occurrences(text, "typedef struct gk_matmul_args"), 1);
    gki_free(text);
    assert_int_equal(setenv("GK_TEMPLATE_DIR", gk_test_path("nothing-here"), 1), 0);
    text = expand("gk/epilogue.cuh", "cuda");
    assert_int_equal(occurrences(text, "mine"), 0);
    gki_free(text);
}

static void test_system_headers_are_for_the_cpu_only(void **state)
{
    (void)state;
    toy_templates();
    toy_template("toy.cu", "#include <cuda_fp16.h>\n");
    refused("toy.cu", "cuda", GK_ERR_COMPILE, "toy.cu:1: <cuda_fp16.h>: no header but gk's own");
    char *text = expand("toy.cu", "cpu");
    assert_string_equal(text, "#line 1 \"toy.cu\"\n#include <cuda_fp16.h>\n");
    gki_free(text);
}

static void test_includes_that_cannot_be_followed(void **state)
{
    (void)state;
    static const struct {
        const char *line;
        const char *message;
    } wrong[] = {
        {"#include \"gk/no.cuh\"", "toy.cu:2: #include \"gk/no.cuh\" is neither in"},
        {"#include \"../toy.cu\"", "toy.cu:2: #include \"../toy.cu\" does not stay inside"},
        {"#include \"gk/../../x.h\"", "\"gk/../../x.h\" does not stay inside"},
        {"#include \"/etc/passwd\"", "\"/etc/passwd\" does not stay inside"},
        {"#include \"gk//x.h\"", "\"gk//x.h\" does not stay inside"},
        {"#include \"./x.h\"", "\"./x.h\" does not stay inside"},
        {"#include \"gk/\"", "\"gk/\" does not stay inside"},
        {"#include \"\"", "\"\" does not stay inside"},
        {"#include \"a\\b.h\"", "does not stay inside"},
        {"#include \"gk/x.cuh", "toy.cu:2: the #include's name is not closed"},
        {"#include HEADER", "toy.cu:2: #include needs \"name\" in quotes"},
        {"#include", "toy.cu:2: #include needs \"name\" in quotes"},
    };
    toy_templates();
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        char source[256];
        snprintf(source, sizeof source, "//\n%s\n", wrong[i].line);
        toy_template("toy.cu", source);
        refused("toy.cu", "cuda", GK_ERR_COMPILE, wrong[i].message);
        refused("toy.cu", "cpu", GK_ERR_COMPILE, wrong[i].message);
    }
}

static void test_cycles(void **state)
{
    (void)state;
    toy_templates();
    toy_template("toy.cu", "#include \"gk/a.cuh\"\n");
    toy_template("gk/a.cuh", "#pragma once\n#include \"gk/b.cuh\"\n");
    toy_template("gk/b.cuh", "#pragma once\n#include \"gk/a.cuh\"\n");
    refused("toy.cu", "cuda", GK_ERR_COMPILE, "include cycle: gk/a.cuh -> gk/b.cuh -> gk/a.cuh");
    toy_template("gk/a.cuh", "#include \"toy.cu\"\n");
    refused("toy.cu", "cuda", GK_ERR_COMPILE, "include cycle: toy.cu -> gk/a.cuh -> toy.cu");
    toy_template("toy.cu", "#include \"toy.cu\"\n");
    refused("toy.cu", "cuda", GK_ERR_COMPILE, "include cycle: toy.cu -> toy.cu");
}

static void test_depth_is_bounded(void **state)
{
    (void)state;
    toy_templates();
    for (int i = 0; i < GKI_TEMPLATE_MAX_DEPTH; i++) {
        char name[32];
        char source[64];
        snprintf(name, sizeof name, "gk/d%d.cuh", i);
        snprintf(source, sizeof source, "#include \"gk/d%d.cuh\"\n", i + 1);
        toy_template(name, i + 1 < GKI_TEMPLATE_MAX_DEPTH ? source : "// end\n");
    }
    char *text = expand("gk/d0.cuh", "cuda");
    assert_int_equal(occurrences(text, "// end"), 1);
    gki_free(text);
    toy_template("toy.cu", "#include \"gk/d0.cuh\"\n");
    refused("toy.cu", "cuda", GK_ERR_COMPILE, "includes nest more than 16 deep");
}

static void test_files_that_are_none(void **state)
{
    (void)state;
    toy_templates();
    refused("nothing.cu", "cuda", GK_ERR_NOT_FOUND, "\"nothing.cu\" is neither in");
    refused("../toy.cu", "cuda", GK_ERR_INVALID, "\"../toy.cu\" does not name a file inside");
    refused("/etc/passwd", "cuda", GK_ERR_INVALID, "\"/etc/passwd\" does not name a file inside");
    refused("", "cuda", GK_ERR_INVALID, "does not name a file inside");
    gk_test_write(gk_test_path("templates/zero.cu"), "a\0b", 3);
    refused("zero.cu", "cuda", GK_ERR_COMPILE, "zero.cu holds a zero byte");
    assert_int_equal(mkdir(gk_test_path("templates/folder.cu"), 0700), 0);
    refused("folder.cu", "cuda", GK_ERR_IO, "folder.cu");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_embedded_files_are_sound),
        cmocka_unit_test(test_every_embedded_kernel_expands),
        cmocka_unit_test(test_each_file_once_in_place),
        cmocka_unit_test(test_comments_are_no_directives),
        cmocka_unit_test(test_the_cpu_s_meaning_replaces),
        cmocka_unit_test(test_the_directory_comes_before_the_library),
        cmocka_unit_test(test_system_headers_are_for_the_cpu_only),
        cmocka_unit_test(test_includes_that_cannot_be_followed),
        cmocka_unit_test(test_cycles),
        cmocka_unit_test(test_depth_is_bounded),
        cmocka_unit_test(test_files_that_are_none),
    };
    return GK_TEST_MAIN(tests);
}
