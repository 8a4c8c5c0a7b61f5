#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"

enum { MAX_SETS = 512, ALIGNMENT = 256, MAX_PARTS = 5 };
static const int64_t PART_FLOPS = 4000000;

/* --- values --- */

/*
 * The smaller floats as parts of f32's bits: an exponent of another bias is a factor, which makes
 * f32's own subnormals of theirs.
 */
typedef struct narrow {
    int bits;
    int dropped; /* of f32's mantissa */
    float factor;
    uint32_t largest;  /* finite word; NaN lies above it, */
    uint32_t infinity; /* but for this; 0 = there is none */
} narrow;

static const narrow *narrow_of(int32_t dtype)
{
    static const narrow f16 = {16, 13, 0x1p-112f, 0x7bff, 0x7c00};
    static const narrow bf16 = {16, 16, 1, 0x7f7f, 0x7f80};
    static const narrow e4m3 = {8, 20, 0x1p-120f, 0x7e, 0};
    static const narrow e5m2 = {8, 21, 0x1p-112f, 0x7b, 0x7c};
    switch ((gk_dtype)dtype) {
    case GK_F16:
        return &f16;
    case GK_BF16:
        return &bf16;
    case GK_E4M3:
        return &e4m3;
    case GK_E5M2:
        return &e5m2;
    default:
        return NULL;
    }
}

static uint32_t to_narrow(const narrow *n, float value)
{
    const float scaled = fabsf(value) * n->factor;
    uint32_t bits;
    memcpy(&bits, &scaled, sizeof(bits));
    bits += (1u << (n->dropped - 1)) - 1 + (bits >> n->dropped & 1);
    return bits >> n->dropped | (uint32_t)(value < 0) << (n->bits - 1);
}

static double from_narrow(const narrow *n, uint32_t word)
{
    const uint32_t sign = 1u << (n->bits - 1);
    const uint32_t magnitude = word & (sign - 1);
    const uint32_t bits = magnitude << n->dropped;
    float value;
    memcpy(&value, &bits, sizeof(value));
    double absolute = (double)value / (double)n->factor;
    if (magnitude > n->largest) {
        absolute = magnitude == n->infinity ? INFINITY : NAN;
    }
    return (word & sign) != 0 ? -absolute : absolute;
}

/* xorshift and the sum of four uniform values: close to N(0,1) and fast enough for gigabytes. */
static float next_normal(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    const uint64_t s = *state;
    return ((float)(s & 0xffff) + (float)(s >> 16 & 0xffff) + (float)(s >> 32 & 0xffff) +
            (float)(s >> 48) - 131070.0f) *
           (1.7320508f / 65536.0f);
}

static void fill_normal(void *data, int32_t dtype, int64_t count, uint64_t state)
{
    const narrow *n = narrow_of(dtype);
    for (int64_t i = 0; i < count; i++) {
        const float value = next_normal(&state);
        if (n != NULL && n->bits == 16) {
            ((uint16_t *)data)[i] = (uint16_t)to_narrow(n, value);
        } else if (n != NULL) {
            ((uint8_t *)data)[i] = (uint8_t)to_narrow(n, value);
        } else if (dtype == GK_F64) {
            ((double *)data)[i] = (double)value;
        } else if (dtype == GK_F32) {
            ((float *)data)[i] = value;
        } else if (dtype == GK_I32) {
            ((int32_t *)data)[i] = (int32_t)lrintf(value);
        } else {
            ((uint8_t *)data)[i] = (uint8_t)(dtype == GK_I8 ? lrintf(value) : fabsf(value));
        }
    }
}

static double element(int32_t dtype, const void *data, int64_t i)
{
    const narrow *n = narrow_of(dtype);
    if (n != NULL) {
        return from_narrow(n, n->bits == 16 ? ((const uint16_t *)data)[i]
                                            : ((const uint8_t *)data)[i]);
    }
    switch ((gk_dtype)dtype) {
    case GK_F64:
        return ((const double *)data)[i];
    case GK_F32:
        return (double)((const float *)data)[i];
    case GK_I32:
        return ((const int32_t *)data)[i];
    case GK_I8:
        return ((const int8_t *)data)[i];
    default:
        return ((const uint8_t *)data)[i];
    }
}

/* --- operands --- */

static int64_t rounded(int64_t bytes)
{
    return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

static bool fail_nomem(int64_t bytes)
{
    gk_fail(GK_ERR_NOMEM, "bench", "no host memory for %lld bytes of operands", (long long)bytes);
    return false;
}

static bool make_argument(bench_run *run, uint32_t i, const gk_tensor *shape)
{
    const int64_t extent = gk_tensor_extent(shape);
    const int64_t step = rounded(extent);
    if (extent < 0) {
        gk_fail(GK_ERR_INVALID, "bench", "%s does not fit in 63 bits", run->op->args[i].name);
        return false;
    }
    if (gk_mem_alloc(run->ctx, (size_t)step * run->n_sets, &run->memory[i]) != GK_OK) {
        return false;
    }
    run->host[i] = malloc((size_t)extent + 1);
    if (run->host[i] == NULL) {
        return fail_nomem(extent);
    }
    const bool is_output = run->op->args[i].is_output != 0;
    if (!is_output) {
        fill_normal(run->host[i], shape->dtype,
                    extent / (int64_t)gk_dtype_size((gk_dtype)shape->dtype),
                    0x9e3779b97f4a7c15u * (i + 1));
    }
    for (unsigned s = 0; s < run->n_sets; s++) {
        gk_tensor *t = &run->tensors[s][i];
        *t = *shape;
        t->data = extent > 0 ? (unsigned char *)run->memory[i] + (int64_t)s * step : NULL;
        run->calls[s].args[i] = t;
        if (!is_output && extent > 0 &&
            gk_mem_upload(run->ctx, t->data, run->host[i], (size_t)extent, NULL) != GK_OK) {
            return false;
        }
    }
    return true;
}

bool bench_run_make(bench_run *run, const bench *b, const gk_call *example)
{
    int64_t bytes = 1;
    run->ctx = b->ctx;
    run->op = b->problems->op;
    if (run->op->infer(example, &run->problem) != GK_OK) {
        return false;
    }
    for (uint32_t i = 0; i < run->op->n_args; i++) {
        bytes += example->args[i] != NULL ? rounded(gk_tensor_extent(example->args[i])) : 0;
    }
    if (b->info.is_emulated) {
        run->n_sets = 1;
    } else {
        const int64_t wanted = 2 * b->info.l2_bytes / bytes + 1;
        run->n_sets = wanted > MAX_SETS ? MAX_SETS : wanted < 2 ? 2 : (unsigned)wanted;
    }
    run->tensors = calloc(run->n_sets, sizeof(*run->tensors));
    run->calls = calloc(run->n_sets, sizeof(*run->calls));
    if (run->tensors == NULL || run->calls == NULL) {
        return fail_nomem(bytes);
    }
    for (unsigned s = 0; s < run->n_sets; s++) {
        memcpy(run->calls[s].attrs, example->attrs, sizeof(example->attrs));
        run->calls[s].text = example->text;
    }
    for (uint32_t i = 0; i < run->op->n_args; i++) {
        if (example->args[i] != NULL && !make_argument(run, i, example->args[i])) {
            return false;
        }
    }
    return true;
}

void bench_run_free(bench_run *run)
{
    for (int i = 0; i < GK_MAX_ARGS; i++) {
        gk_mem_free(run->ctx, &run->memory[i]);
        free(run->host[i]);
    }
    free(run->tensors);
    free(run->calls);
    memset(run, 0, sizeof(*run));
}

/* --- checking --- */

uint32_t bench_output_of(const gk_op_desc *op)
{
    uint32_t i = 0;
    while (i + 1 < op->n_args && !op->args[i].is_output) {
        i++;
    }
    return i;
}

/* The first copy's call with the host's values, and the parts of it that are compared. */
typedef struct host_parts {
    gk_tensor tensors[GK_MAX_ARGS];
    gk_call call;
    gk_tensor views[MAX_PARTS][GK_MAX_ARGS];
    gk_call parts[MAX_PARTS];
    uint32_t count;
    uint32_t output;
} host_parts;

static void make_parts(const bench_run *run, host_parts *h)
{
    memset(h, 0, sizeof(*h));
    h->output = bench_output_of(run->op);
    h->call = run->calls[0];
    for (uint32_t i = 0; i < run->op->n_args; i++) {
        if (h->call.args[i] != NULL) {
            h->tensors[i] = *h->call.args[i];
            h->tensors[i].data = run->host[i];
            h->call.args[i] = &h->tensors[i];
        }
    }
    while (run->op->part != NULL && h->count < MAX_PARTS &&
           run->op->part(&h->call, h->count, PART_FLOPS, h->views[h->count], &h->parts[h->count])) {
        h->count++;
    }
}

/* What no right value is: a huge number, in f16 an unusual NaN. In 8 bits there is no such thing:
 * all ones are NaN in floats, but -1, a common value, in integers. */
static int poison_byte(int32_t dtype)
{
    if (dtype >= GK_I32) {
        return 0xfb;
    }
    return gk_dtype_size((gk_dtype)dtype) > 1 ? 0xfe : 0xff;
}

/* Copies the part's output from the device, or with `poison` poison to it. */
static bool move_part(const bench_run *run, const host_parts *h, uint32_t index, bool poison)
{
    const gk_tensor *view = h->parts[index].args[h->output];
    const int64_t offset = (unsigned char *)view->data - (unsigned char *)run->host[h->output];
    unsigned char *device = (unsigned char *)run->calls[0].args[h->output]->data + offset;
    const size_t bytes = (size_t)gk_tensor_extent(view);
    if (!poison) {
        return gk_mem_download(run->ctx, view->data, device, bytes, NULL) == GK_OK;
    }
    memset(view->data, poison_byte(view->dtype), bytes);
    return gk_mem_upload(run->ctx, device, view->data, bytes, NULL) == GK_OK;
}

/* Where an element stands, in elements; `index` counts in the order of the shape. */
static int64_t offset_of(const gk_tensor *tensor, int64_t index)
{
    int64_t offset = 0;
    for (int32_t axis = tensor->rank - 1; axis >= 0; axis--) {
        offset += index % tensor->shape[axis] * tensor->stride[axis];
        index /= tensor->shape[axis];
    }
    return offset;
}

/* A NaN that was there before. In 8 bits it is the usual one with a sign, and tells nothing. */
static bool is_poison(const gk_tensor *c, int64_t at)
{
    const size_t size = gk_dtype_size((gk_dtype)c->dtype);
    const unsigned char *bytes = (const unsigned char *)c->data + (size_t)at * size;
    size_t n = 0;
    while (n < size && bytes[n] == poison_byte(c->dtype)) {
        n++;
    }
    return n == size && size > 1;
}

static double error_of(double got, double want, double allowed)
{
    if (!isfinite(want) || !isfinite(got)) {
        const bool same = (isnan(want) && isnan(got)) || got == want;
        return same ? 0 : INFINITY;
    }
    const double difference = fabs(got - want);
    if (difference <= 0) {
        return 0;
    }
    return allowed > 0 ? difference / allowed : INFINITY;
}

/* The largest error in the part; negative, with gk's error set, if it cannot be told. */
static double part_error(const bench_run *run, const host_parts *h, uint32_t index, double slack)
{
    const gk_call *part = &h->parts[index];
    const gk_tensor *c = part->args[h->output];
    gk_problem problem;
    memset(&problem, 0, sizeof(problem));
    size_t count = 1;
    for (int32_t axis = 0; axis < c->rank; axis++) {
        count *= (size_t)c->shape[axis];
    }
    double *want = calloc(2 * count + 1, sizeof(*want));
    if (want == NULL) {
        gk_fail(GK_ERR_NOMEM, "bench", "no memory for %zu expected values", count);
        return -1;
    }
    if (run->op->infer(part, &problem) != GK_OK) {
        free(want);
        return -1;
    }
    const gk_tolerance tolerance = run->op->tolerance(&run->problem);
    double worst = 0;
    run->op->reference(part, &problem, want, want + count);
    for (size_t i = 0; i < count; i++) {
        const int64_t at = offset_of(c, (int64_t)i);
        const double got = element(c->dtype, c->data, at);
        const double allowed = tolerance.absolute + (tolerance.relative + slack) * want[count + i];
        const double error =
            isnan(got) && is_poison(c, at) ? INFINITY : error_of(got, want[i], allowed);
        worst = error > worst ? error : worst;
    }
    free(want);
    return worst;
}

double bench_run_check(bench_run *run, bool (*once)(void *user), void *user, double slack)
{
    host_parts *h = malloc(sizeof(*h));
    if (h == NULL) {
        gk_fail(GK_ERR_NOMEM, "bench", "no memory to check results");
        return -1;
    }
    make_parts(run, h);
    bool good = true;
    for (uint32_t i = 0; i < h->count && good; i++) {
        good = move_part(run, h, i, true);
    }
    good = good && once(user);
    double worst = good ? 0 : -1;
    for (uint32_t i = 0; i < h->count && good; i++) {
        good = move_part(run, h, i, false);
        const double error = good ? part_error(run, h, i, slack) : -1;
        worst = error < 0 || error > worst ? error : worst;
        good = good && error >= 0;
    }
    free(h);
    return worst;
}

/* --- timing --- */

int bench_rounds(bench_racer *racers, unsigned n_racers, unsigned rounds)
{
    for (unsigned round = 0; round < rounds; round++) {
        for (unsigned i = 0; i < n_racers; i++) {
            const unsigned at = round % 2 == 0 ? i : n_racers - 1 - i;
            racers[at].samples[round] = racers[at].time(racers[at].user);
            if (!(racers[at].samples[round] > 0)) {
                return (int)at;
            }
            if (cli_interrupted()) {
                return (int)n_racers;
            }
        }
    }
    return -1;
}

double bench_median(const double *values, unsigned count)
{
    double *copy = malloc(count * sizeof(*copy) + 1);
    if (copy == NULL || count == 0) {
        free(copy);
        return 0;
    }
    memcpy(copy, values, count * sizeof(*copy));
    const double median = cli_quantile(copy, count, 0.5);
    free(copy);
    return median;
}

double bench_ratio(const double *left, const double *right, unsigned rounds)
{
    double *ratios = malloc(rounds * sizeof(*ratios) + 1);
    if (ratios == NULL) {
        return 0;
    }
    for (unsigned i = 0; i < rounds; i++) {
        ratios[i] = left[i] / right[i];
    }
    const double median = bench_median(ratios, rounds);
    free(ratios);
    return median;
}

double bench_plan_time(void *planned)
{
    const bench_planned *p = planned;
    double seconds = -1;
    return gk_measure(p->plan, p->run->calls, p->run->n_sets, 1, &seconds) == GK_OK ? seconds : -1;
}
