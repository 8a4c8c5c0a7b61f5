#define _GNU_SOURCE
#include "support/add_op.h"

#include <assert.h>
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "support/gk_test.h"

const add_script *add_scripts;
int64_t add_workspace;
int64_t add_zeroed;
bool add_reads_output;
bool add_has_reduce;
static atomic_uint runs;

typedef struct add_args {
    const float *a;
    const float *b;
    float *c;
    unsigned char *workspace;
    unsigned char *zeroed;
    int64_t n;
} add_args;

static gk_status infer(const gk_call *call, gk_problem *problem)
{
    for (uint32_t i = 0; i < 3; i++) {
        const gk_tensor *t = call->args[i];
        if (t == NULL || t->rank != 1 || t->dtype != GK_F32 ||
            t->shape[0] != call->args[0]->shape[0]) {
            return gk_fail(GK_ERR_INVALID, "add", "argument %u does not fit", i);
        }
        problem->dtype[i] = GK_F32;
        problem->layout[i] = t->stride[0] == 1 ? GK_LAYOUT_ROW : GK_LAYOUT_STRIDED;
        problem->align[i] = (uintptr_t)t->data % 16 == 0 ? 16 : 4;
    }
    problem->dims[0] = call->args[0]->shape[0];
    return GK_OK;
}

static bool is_empty(const gk_problem *problem)
{
    return problem->dims[0] == 0;
}

static bool reads_output(const gk_problem *problem)
{
    (void)problem;
    return add_reads_output;
}

static size_t pack(const gk_call *call, const gk_problem *problem, const gk_variant *variant,
                   const gk_config *config, void *workspace, void *zeroed, void *out)
{
    (void)variant;
    (void)config;
    const add_args args = {
        call->args[0]->data, call->args[1]->data, call->args[2]->data, workspace, zeroed,
        problem->dims[0]};
    memcpy(out, &args, sizeof(args));
    return sizeof(args);
}

static float element(const gk_tensor *t, int64_t i)
{
    return ((const float *)t->data)[i * t->stride[0]];
}

static void reference(const gk_call *call, const gk_problem *problem, double *out, double *scale)
{
    for (int64_t i = 0; i < problem->dims[0]; i++) {
        double a = (double)element(call->args[0], i);
        double b = (double)element(call->args[1], i);
        double c = add_reads_output ? (double)element(call->args[2], i) : 0;
        out[i] = a + b + c;
        if (scale != NULL) {
            scale[i] = fabs(a) + fabs(b) + fabs(c);
        }
    }
}

static gk_tolerance tolerance(const gk_problem *problem)
{
    (void)problem;
    return (gk_tolerance){1e-6, 0};
}

static void work(const gk_problem *problem, double *flops, double *bytes)
{
    *flops = (double)problem->dims[0] * (add_has_reduce ? 1e9 : 1);
    *bytes = (double)problem->dims[0] * 12;
}

static bool reduce(const gk_call *call, int64_t max_flops, gk_tensor *tensors, gk_call *out)
{
    (void)max_flops;
    *out = *call;
    for (uint32_t i = 0; i < 3; i++) {
        tensors[i] = *call->args[i];
        tensors[i].data = NULL;
        tensors[i].shape[0] = 77;
        out->args[i] = &tensors[i];
    }
    return add_has_reduce;
}

static bool part(const gk_call *call, uint32_t index, int64_t max_flops, gk_tensor *tensors,
                 gk_call *out)
{
    (void)max_flops;
    *out = *call;
    for (uint32_t i = 0; i < 3; i++) {
        tensors[i] = *call->args[i];
        tensors[i].shape[0] = 10;
        int64_t first = index == 0 ? 0 : call->args[i]->shape[0] - 10;
        tensors[i].data = (float *)call->args[i]->data + first * call->args[i]->stride[0];
        out->args[i] = &tensors[i];
    }
    return index < 2;
}

static bool check(const gk_problem *problem, const gk_device_info *device, const gk_config *config,
                  gk_reason *reason)
{
    (void)device;
    if (problem->dims[0] == 13) {
        return gk_refuse(reason, "BLOCK %d does not serve 13 elements", config->values[0]);
    }
    return true;
}

static void constants(const gk_problem *problem, gk_constants *out)
{
    (void)problem;
    snprintf(out->tag, sizeof(out->tag), "f32");
}

static void launch(const gk_problem *problem, const gk_device_info *device, const gk_config *config,
                   gk_launch *out)
{
    (void)device;
    out->grid = (problem->dims[0] + config->values[0] - 1) / config->values[0];
    out->threads = 64;
    out->smem = config->values[0];
    out->workspace = add_workspace;
    out->zeroed = add_zeroed;
}

static double model_plain(const gk_problem *problem, const gk_device_info *device,
                          const gk_config *config)
{
    (void)problem;
    (void)device;
    return 1e-5 * (1 + config->values[0] / 1000.0 + config->values[1] / 100000.0);
}

static double model_wide(const gk_problem *problem, const gk_device_info *device,
                         const gk_config *config)
{
    (void)problem;
    (void)device;
    (void)config;
    return 1.5e-5;
}

static const int32_t BLOCKS[] = {16, 32, 64, 128, 256};
static const int32_t SPANS[] = {1, 2};
static const int32_t WIDE[] = {512};
static const gk_param PLAIN_PARAMS[] = {{"BLOCK", "x", BLOCKS, 5, 0}, {"SPAN", "_s", SPANS, 2, 1}};
static const gk_param WIDE_PARAMS[] = {{"BLOCK", "x", WIDE, 1, 0}};

const gk_variant add_plain = {
    .struct_size = sizeof(gk_variant),
    .name = "plain",
    .source = "add.cu",
    .params = PLAIN_PARAMS,
    .n_params = 2,
    .check = check,
    .constants = constants,
    .launch = launch,
    .model = model_plain,
};
const gk_variant add_wide = {
    .struct_size = sizeof(gk_variant),
    .name = "wide",
    .source = "add.cu",
    .params = WIDE_PARAMS,
    .n_params = 1,
    .check = check,
    .constants = constants,
    .launch = launch,
    .model = model_wide,
};
static const gk_variant *const VARIANTS[] = {&add_plain, &add_wide};
static const gk_arg_desc ARGS[] = {{"a", 0, 0}, {"b", 0, 0}, {"c", 1, 0}};
static const char *const DIMS[] = {"N"};

gk_op_desc add_op;

void add_op_reset(void)
{
    add_op = (gk_op_desc){
        .struct_size = sizeof(gk_op_desc),
        .name = "add",
        .revision = 1,
        .args = ARGS,
        .n_args = 3,
        .dim_names = DIMS,
        .n_dims = 1,
        .variants = VARIANTS,
        .n_variants = 2,
        .infer = infer,
        .is_empty = is_empty,
        .reads_output = reads_output,
        .pack = pack,
        .reference = reference,
        .tolerance = tolerance,
        .work = work,
        .reduce = reduce,
        .part = part,
    };
    add_scripts = NULL;
    add_workspace = 0;
    add_zeroed = 0;
    add_reads_output = false;
    add_has_reduce = false;
}

static add_fault fault_of(const char *kernel)
{
    for (const add_script *s = add_scripts; s != NULL && s->match != NULL; s++) {
        if (strstr(kernel, s->match) != NULL) {
            return s->fault;
        }
    }
    return ADD_RIGHT;
}

static void misbehave(add_fault fault, const add_args *args)
{
    unsigned char *bytes = (unsigned char *)args->c;
    float *b = NULL;
    switch (fault) {
    case ADD_WRONG:
        args->c[args->n - 1] += 0.5f;
        break;
    case ADD_BEFORE:
        bytes[-1] = 0;
        break;
    case ADD_BEHIND:
        bytes[args->n * 4] = 0;
        break;
    case ADD_TO_INPUT:
        memcpy(&b, &args->b, sizeof(b));
        b[1] = 7;
        break;
    case ADD_UNSTABLE:
        args->c[2] = nextafterf(args->c[2], (atomic_fetch_add(&runs, 1) & 1) != 0 ? 1e9f : -1e9f);
        break;
    case ADD_DIRTY:
        args->zeroed[add_zeroed - 1] = 1;
        break;
    case ADD_SCRATCH:
        args->workspace[add_workspace] = 1;
        break;
    default:
        break;
    }
}

gk_status add_run(void *user, const fake_module *module, const gki_kernel_launch *launched)
{
    (void)user;
    add_args args;
    assert(launched->args_size == sizeof(args));
    memcpy(&args, launched->args, sizeof(args));
    const add_fault fault = fault_of(module->kernel);
    int64_t begin = fault == ADD_SECOND_HALF ? args.n / 2 : 0;
    int64_t end = fault == ADD_FIRST_HALF ? args.n / 2 : fault == ADD_NOTHING ? 0 : args.n;
    for (int64_t i = begin; i < end; i++) {
        float before = args.c[i];
        args.c[i] = args.a[i] + args.b[i];
        if (add_reads_output || (fault == ADD_TWICE && !isnan(before))) {
            args.c[i] += before;
        }
        if (fault == ADD_NEEDS_CLEAN && args.workspace[0] != 0) {
            args.c[i] = 0;
        }
    }
    misbehave(fault, &args);
    return GK_OK;
}

gk_call add_call(gk_tensor tensors[3], float *a, float *b, float *c, int64_t n)
{
    tensors[0] = gk_vector(a, GK_F32, n);
    tensors[1] = gk_vector(b, GK_F32, n);
    tensors[2] = gk_vector(c, GK_F32, n);
    return (gk_call){.args = {&tensors[0], &tensors[1], &tensors[2]}};
}

void add_templates(void)
{
    static const char text[] = "// add\n";
    char path[64];
    assert_int_equal(mkdir(gk_test_path("templates"), 0700), 0);
    assert_int_equal(mkdir(gk_test_path("templates/gk"), 0700), 0);
    static const char *const names[] = {"gk/prelude.cuh", "gk/dtypes.cuh", "add.cu"};
    for (size_t i = 0; i < 3; i++) {
        snprintf(path, sizeof(path), "templates/%s", names[i]);
        gk_test_write(gk_test_path(path), text, strlen(text));
    }
    assert_int_equal(setenv("GK_TEMPLATE_DIR", gk_test_path("templates"), 1), 0);
}
