/* One item on one shape: operands, the runs, and what they are compared with. */
#define _GNU_SOURCE
#include "op_harness.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "op_buffer.h"
#include "op_configs.h"

enum { PART_FLOPS = 4000000 };

typedef struct job {
    op_harness *h;
    const op_item *item;
    const int64_t *dims;
    gk_tensor shapes[GK_MAX_ARGS];
    gk_call shape_call;
    op_buffer buffers[GK_MAX_ARGS];
    gk_call device_call;
    gk_call exact_call; /* on the same inputs without guards behind them */
    gk_call host_call;
    gk_problem problem;
    uint32_t output;
    int32_t in_place;      /* the argument that is the output itself; -1 if there is none */
    unsigned char *result; /* the output's bytes after a run */
    unsigned char *again;
    unsigned char *other; /* after a run of the op's first variant */
    double *want;
    double *scale;
    char config[256];
    bool large;
} job;

static void print_words(const job *j)
{
    const op_harness *h = j->h;
    printf("     --device %s --op %s --variant %s --config '%s' --dtype %s --layout %s --place %s "
           "--epilogue %s --seed %" PRIu64 " --shapes ",
           h->options.device, h->op->name, j->item->variant->name, j->config, j->item->dtype,
           j->item->layout, j->item->place, j->item->epilogue, h->options.seed);
    for (uint32_t i = 0; i < h->op->n_dims; i++) {
        printf("%s%" PRId64, i > 0 ? "x" : "", j->dims[i]);
    }
    printf("%s\n", j->large ? " --large" : "");
    fflush(stdout);
}

/* Says what is wrong and the command line that repeats it. */
static void fail(const job *j, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void fail(const job *j, const char *format, ...)
{
    char what[512];
    va_list args;
    va_start(args, format);
    vsnprintf(what, sizeof(what), format, args);
    va_end(args);
    flockfile(stdout);
    printf("FAIL %s\n", what);
    print_words(j);
    fflush(stdout);
    funlockfile(stdout);
    atomic_fetch_add(&j->h->failed, 1);
    if (gk_error_last()->status == GK_ERR_LOST) {
        atomic_store(&j->h->lost, true);
    }
}

/* Operands whose contents depend on the seed and the shape only, so that a failure can be repeated
 * alone. */
static bool prepare(job *j)
{
    op_harness *h = j->h;
    const gk_op_desc *op = h->op;
    op_random r = {h->options.seed};
    for (uint32_t i = 0; i < op->n_dims; i++) {
        r.state = op_random_next(&r) ^ (uint64_t)j->dims[i];
    }
    j->device_call = j->shape_call;
    j->exact_call = j->shape_call;
    j->host_call = j->shape_call;
    for (uint32_t i = 0; i < op->n_args; i++) {
        const gk_tensor *t = j->shape_call.args[i];
        if (t == NULL || (int32_t)i == j->in_place) {
            continue;
        }
        const int64_t offset =
            (int64_t)((uintptr_t)t->data % 256) / (int64_t)gk_dtype_size((gk_dtype)t->dtype);
        op_buffer *b = &j->buffers[i];
        if (op_buffer_create(b, h->ctx, h->is_cpu, t, offset, op->args[i].is_output != 0) !=
            GK_OK) {
            fail(j, "no memory for %s: %s", op->args[i].name, gk_error_last()->message);
            return false;
        }
        const bool read = op->reads_output != NULL && op->reads_output(&j->problem);
        if (i != j->output || read || j->in_place >= 0) {
            op_buffer_randomise(b, &r);
        }
        if (op_buffer_upload(b) != GK_OK) {
            fail(j, "upload of %s: %s", op->args[i].name, gk_error_last()->message);
            return false;
        }
        j->device_call.args[i] = &b->device;
        j->exact_call.args[i] = &b->exact;
        j->host_call.args[i] = &b->host;
    }
    if (j->in_place >= 0) {
        j->device_call.args[j->in_place] = &j->buffers[j->output].device;
        j->exact_call.args[j->in_place] = &j->buffers[j->output].device;
        j->host_call.args[j->in_place] = &j->buffers[j->output].host;
    }
    const size_t bytes = j->buffers[j->output].bytes;
    j->result = malloc(bytes);
    j->again = malloc(bytes);
    j->other = malloc(bytes);
    return j->result != NULL && j->again != NULL && j->other != NULL;
}

static void release(job *j)
{
    for (uint32_t i = 0; i < j->h->op->n_args; i++) {
        op_buffer_destroy(&j->buffers[i]);
    }
    free(j->result);
    free(j->again);
    free(j->other);
    free(j->want);
    free(j->scale);
}

static bool same(double got, double want, double allowed)
{
    if (isnan(want)) {
        return isnan(got);
    }
    /* Beside an infinite result the tolerance is infinite too. */
    if (isinf(want) || isinf(got)) {
        return got == want;
    }
    return got == want || fabs(got - want) <= allowed;
}

/* Compares a call's output, whose elements lie in `got`, with the reference in `want`. */
static bool compare(job *j, const gk_problem *problem, const gk_tensor *got)
{
    const gk_tolerance t = j->h->op->tolerance(problem);
    const int64_t count = op_tensor_count(got);
    int64_t wrong = 0;
    char first[160] = "";
    for (int64_t i = 0; i < count; i++) {
        const double value = op_tensor_at(got, i);
        const double allowed = t.absolute + t.relative * j->scale[i];
        if (!same(value, j->want[i], allowed) && wrong++ == 0) {
            const int64_t last = got->rank > 0 ? got->shape[got->rank - 1] : 1;
            snprintf(first, sizeof(first), "[%" PRId64 ",%" PRId64 "] is %.9g, not %.9g +- %.3g",
                     i / last, i % last, value, j->want[i], allowed);
        }
    }
    if (wrong > 0) {
        fail(j, "%" PRId64 " of %" PRId64 " elements are wrong, first %s", wrong, count, first);
    }
    return wrong == 0;
}

/* Threads go one stream each on the CPU device, where any address names one. */
static void *stream_of(const op_harness *h)
{
    static _Thread_local char lane;
    return h->is_cpu ? &lane : NULL;
}

/* One run of a plan on the freshly uploaded output. */
static bool run_plan(job *j, const gk_plan *plan, const gk_call *call, unsigned char *result,
                     const char *what)
{
    op_harness *h = j->h;
    int64_t damage;
    op_buffer *c = &j->buffers[j->output];
    if (op_buffer_upload(c) != GK_OK || gk_plan_run(plan, call, stream_of(h)) != GK_OK ||
        gk_synchronize(h->ctx, stream_of(h)) != GK_OK ||
        op_buffer_download(c, result, &damage) != GK_OK) {
        fail(j, "%s: %s", what, gk_error_last()->message);
        return false;
    }
    if (damage != INT64_MIN) {
        fail(j, "%s wrote outside the output, byte %" PRId64 " from its beginning", what, damage);
        return false;
    }
    return true;
}

static bool check_inputs(job *j)
{
    for (uint32_t i = 0; i < j->h->op->n_args; i++) {
        op_buffer *b = &j->buffers[i];
        if (i == j->output || b->memory == NULL) {
            continue;
        }
        unsigned char *data = malloc(b->bytes);
        int64_t damage = 0;
        const bool good = data != NULL && op_buffer_download(b, data, &damage) == GK_OK;
        free(data);
        if (!good || damage != INT64_MIN) {
            fail(j, "input %s was written, byte %" PRId64, j->h->op->args[i].name, damage);
            return false;
        }
    }
    return true;
}

/* Small shapes: every element against the reference. */
static bool check_whole(job *j)
{
    const gk_tensor got = op_buffer_view(&j->buffers[j->output], j->result);
    if (j->want == NULL) {
        const size_t count = (size_t)op_tensor_count(&got);
        j->want = malloc((count + 1) * sizeof(double));
        j->scale = calloc(count + 1, sizeof(double));
        if (j->want == NULL || j->scale == NULL) {
            fail(j, "no memory for the reference");
            return false;
        }
        j->h->op->reference(&j->host_call, &j->problem, j->want, j->scale);
    }
    return compare(j, &j->problem, &got);
}

/* Large shapes: parts of the output, over whole reductions, against the reference. */
static bool check_parts(job *j)
{
    const gk_op_desc *op = j->h->op;
    bool good = true;
    gk_tensor tensors[GK_MAX_ARGS];
    gk_call part;
    for (uint32_t n = 0; good && op->part(&j->host_call, n, PART_FLOPS, tensors, &part); n++) {
        gk_problem problem;
        memset(&problem, 0, sizeof(problem));
        problem.op = j->problem.op;
        if (op->infer(&part, &problem) != GK_OK) {
            fail(j, "part %u: %s", n, gk_error_last()->message);
            return false;
        }
        gk_tensor got = *part.args[j->output];
        got.data = j->result + ((unsigned char *)got.data - j->buffers[j->output].image);
        const size_t count = (size_t)op_tensor_count(&got);
        free(j->want);
        free(j->scale);
        j->want = malloc(count * sizeof(double));
        j->scale = calloc(count, sizeof(double));
        if (j->want == NULL || j->scale == NULL) {
            return false;
        }
        op->reference(&part, &problem, j->want, j->scale);
        good = compare(j, &problem, &got);
    }
    return good;
}

/*
 * Large shapes, every element: against the op's first variant, which the small shapes compare with
 * the reference. Both may be off by the tolerance. The scale is bounded without a pass over the
 * products: operands are N(0,1), so by Cauchy-Schwarz a sum of K magnitudes is at most the product
 * of two norms of about sqrt(K) each, and 4 K with a wide margin.
 */
static bool check_against_first(job *j)
{
    const gk_tolerance t = j->h->op->tolerance(&j->problem);
    const gk_tensor got = op_buffer_view(&j->buffers[j->output], j->result);
    const gk_tensor want = op_buffer_view(&j->buffers[j->output], j->other);
    const double unit = op_value_unit((gk_dtype)got.dtype);
    const double sums = 4 * (double)j->dims[j->h->op->n_dims - 1] + 32;
    const int64_t count = op_tensor_count(&got);
    for (int64_t i = 0; i < count; i++) {
        const double x = op_tensor_at(&got, i);
        const double y = op_tensor_at(&want, i);
        const double allowed = 2 * (t.absolute + t.relative * sums + unit * fmax(fabs(x), fabs(y)));
        if (!same(x, y, allowed)) {
            fail(j, "element %" PRId64 " is %.9g but the first variant gives %.9g, allowed %.3g", i,
                 x, y, allowed);
            return false;
        }
    }
    return true;
}

static bool run_first(job *j)
{
    gk_plan_options options = {.struct_size = sizeof(options)};
    gk_plan *plan = NULL;
    options.variant = j->h->op->variants[0]->name;
    if (gk_plan_create(&plan, j->h->ctx, j->h->op->name, &j->device_call, &options) != GK_OK) {
        fail(j, "the first variant has no plan: %s", gk_error_last()->message);
        return false;
    }
    const bool good = run_plan(j, plan, &j->device_call, j->other, "the first variant");
    gk_plan_destroy(&plan);
    return good;
}

/* The item's kernel with these launch-time values. */
static void run_config(job *j, const gk_config *config)
{
    op_harness *h = j->h;
    gk_plan_options options = {.struct_size = sizeof(options)};
    gk_plan *plan = NULL;
    op_config_text(j->item->variant, config, j->config, sizeof(j->config));
    if (!j->item->variant->check(&j->problem, &h->device, config, NULL)) {
        atomic_fetch_add(&h->refused, 1);
        return;
    }
    options.variant = j->item->variant->name;
    options.config = j->config;
    const gk_status status = gk_plan_create(&plan, h->ctx, h->op->name, &j->device_call, &options);
    if (status == GK_ERR_NO_CONFIG) {
        atomic_fetch_add(&h->refused, 1);
        return;
    }
    atomic_fetch_add(&h->runs, 1);
    if (status != GK_OK) {
        fail(j, "%s: %s", gk_status_name(status), gk_error_last()->message);
        return;
    }
    bool good = run_plan(j, plan, &j->device_call, j->result, "the kernel") &&
                run_plan(j, plan, &j->exact_call, j->again, "the kernel's second run");
    gk_plan_destroy(&plan);
    if (!good) {
        return;
    }
    if (memcmp(j->result, j->again, j->buffers[j->output].bytes) != 0) {
        fail(j, "two runs differ");
        return;
    }
    good = j->large ? check_parts(j) && check_against_first(j) : check_whole(j);
    if (good && check_inputs(j)) {
        atomic_fetch_add(&h->passed, 1);
        if (h->options.verbose) {
            flockfile(stdout);
            printf("ok\n");
            print_words(j);
            funlockfile(stdout);
        }
    }
}

static uint32_t launch_choices(const gk_variant *variant)
{
    uint32_t n = 1;
    for (uint32_t i = 0; i < variant->n_params; i++) {
        n *= variant->params[i].at_launch ? variant->params[i].n_values : 1;
    }
    return n;
}

/* Other launch-time values that the variant takes for this shape; false if none came up. */
static bool draw_launch(const job *j, op_random *r, gk_config *config)
{
    const gk_variant *variant = j->item->variant;
    const uint32_t choices = launch_choices(variant);
    for (int tries = 0; tries < 16 && choices > 1; tries++) {
        op_config_launch(variant, config, op_random_below(r, choices));
        if (memcmp(config, &j->item->config, sizeof(*config)) != 0 &&
            variant->check(&j->problem, &j->h->device, config, NULL)) {
            return true;
        }
    }
    return false;
}

void op_harness_run(op_harness *h, const op_item *item, const int64_t *dims, bool large)
{
    job j;
    memset(&j, 0, sizeof(j));
    j.h = h;
    j.item = item;
    j.dims = dims;
    j.in_place = -1;
    j.large = large;
    j.problem.op = 0;
    if (!op_harness_call(h, item, dims, j.shapes, &j.shape_call)) {
        return;
    }
    while (gk_op_at(j.problem.op) != h->op) {
        j.problem.op++;
    }
    if (h->op->infer(&j.shape_call, &j.problem) != GK_OK) {
        fail(&j, "infer: %s", gk_error_last()->message);
        return;
    }
    while (!h->op->args[j.output].is_output) {
        j.output++;
    }
    for (uint32_t i = 0; i < h->op->n_args; i++) {
        const gk_tensor *t = j.shape_call.args[i];
        if (t != NULL && i != j.output && t->data == j.shape_call.args[j.output]->data) {
            j.in_place = (int32_t)i;
        }
    }
    if (prepare(&j) && (!large || run_first(&j))) {
        gk_config config = item->config;
        op_random r = {h->options.seed ^ (uint64_t)(dims[0] * 31 + dims[h->op->n_dims - 1])};
        run_config(&j, &config);
        if (h->options.config == NULL && draw_launch(&j, &r, &config)) {
            run_config(&j, &config);
        }
    }
    release(&j);
}
