#define _GNU_SOURCE
#include "toy_op.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "gk_test.h"

static const gk_launch FIRST = {.grid = 12, .threads = 128, .smem = 1024};

gk_launch toy_launch = {.grid = 12, .threads = 128, .smem = 1024};
bool toy_fits = true;

static bool check(const gk_problem *problem, const gk_device_info *device, const gk_config *config,
                  gk_reason *reason)
{
    (void)problem;
    (void)device;
    (void)config;
    return toy_fits || gk_refuse(reason, "toys do not fit");
}

static void constants(const gk_problem *problem, gk_constants *out)
{
    out->items[out->n_items++] = (gk_constant){"X_TYPE", GK_CONSTANT_TYPE, problem->dtype[TOY_X]};
    out->items[out->n_items++] = (gk_constant){"X_ALIGN", GK_CONSTANT_INT, problem->align[TOY_X]};
    out->items[out->n_items++] = (gk_constant){"FAR", GK_CONSTANT_INT, INT64_C(5000000000)};
    out->items[out->n_items++] =
        (gk_constant){"HAS_BIAS", GK_CONSTANT_BOOL, problem->dtype[TOY_BIAS] != 0};
    snprintf(out->tag, sizeof out->tag, "%s", "relu-f32");
}

static void launch(const gk_problem *problem, const gk_device_info *device, const gk_config *config,
                   gk_launch *out)
{
    (void)problem;
    (void)device;
    (void)config;
    *out = toy_launch;
}

static const int32_t BLOCK_M[] = {16, 32, 64};
static const int32_t BLOCK_K[] = {8, 16};
static const int32_t SPLIT[] = {1, 2, 4};
static const gk_param PARAMS[] = {
    {"BLOCK_M", "", BLOCK_M, 3, 0},
    {"BLOCK_K", "x", BLOCK_K, 2, 0},
    {"SPLIT", "_p", SPLIT, 3, 1},
};

const gk_variant toy_plain = {
    .struct_size = sizeof(gk_variant),
    .name = "plain",
    .source = "toy.cu",
    .params = PARAMS,
    .n_params = TOY_N_PARAMS,
    .check = check,
    .constants = constants,
    .launch = launch,
};

const gk_variant toy_wide = {
    .struct_size = sizeof(gk_variant),
    .name = "wide",
    .source = "toy_wide.cu",
    .params = PARAMS,
    .n_params = 1,
    .min_cc = 90,
    .launch = launch,
};

static const gk_variant *const VARIANTS[] = {&toy_plain, &toy_wide};
static const gk_arg_desc ARGS[] = {{"x", 0, 0}, {"bias", 0, 1}, {"out", 1, 0}};
static const char *const ACTIVATIONS[] = {"none", "relu"};
static const gk_attr_desc ATTRS[] = {
    {"activation", 1, 0, ACTIVATIONS, 2},
    {"alpha", 0, 1, NULL, 0},
    {"flag", 1, 0, NULL, 0},
};
static const char *const DIMS[] = {"M", "N"};

const gk_op_desc toy_op = {
    .struct_size = sizeof(gk_op_desc),
    .name = "toy",
    .revision = 3,
    .args = ARGS,
    .n_args = TOY_N_ARGS,
    .attrs = ATTRS,
    .n_attrs = TOY_N_ATTRS,
    .dim_names = DIMS,
    .n_dims = 2,
    .variants = VARIANTS,
    .n_variants = 2,
};

void toy_reset(void)
{
    toy_launch = FIRST;
    toy_fits = true;
}

gk_problem toy_problem(void)
{
    gk_problem problem;
    memset(&problem, 0, sizeof problem);
    problem.dims[0] = 64;
    problem.dims[1] = 48;
    problem.dtype[TOY_X] = GK_F32;
    problem.align[TOY_X] = 16;
    problem.dtype[TOY_OUT] = GK_F16;
    problem.layout[TOY_OUT] = GK_LAYOUT_COL;
    problem.align[TOY_OUT] = 8;
    problem.attrs[TOY_ACTIVATION] = 1;
    return problem;
}

gk_config toy_config(int32_t block_m, int32_t block_k, int32_t split)
{
    return (gk_config){{block_m, block_k, split}};
}

void toy_template(const char *name, const char *text)
{
    char path[128];
    snprintf(path, sizeof path, "templates/%s", name);
    gk_test_write(gk_test_path(path), text, strlen(text));
}

void toy_templates(void)
{
    assert_int_equal(mkdir(gk_test_path("templates"), 0700), 0);
    assert_int_equal(mkdir(gk_test_path("templates/gk"), 0700), 0);
    assert_int_equal(mkdir(gk_test_path("templates/emu"), 0700), 0);
    toy_template("gk/prelude.cuh", "#pragma once\n// prelude\n");
    toy_template("gk/dtypes.cuh", "#pragma once\n#include \"gk/prelude.cuh\"\n// dtypes\n");
    toy_template("toy.cu", "#include \"gk/dtypes.cuh\"\nint body = BLOCK_M;\n");
    toy_template("toy_wide.cu", "int wide = BLOCK_M;\n");
    assert_int_equal(setenv("GK_TEMPLATE_DIR", gk_test_path("templates"), 1), 0);
}
