#include "tune/verify.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/numeric.h"

enum {
    MAX_PARTS = 5,
    ONE_COPY_BYTES = 512 << 10, /* parts of up to this extent come in one copy */
    WHOLE_ELEMENTS = 1 << 20,
    SCAN_CHUNKS = 64,
    SCAN_CHUNK_BYTES = 256 << 10,
};
static const double WHOLE_FLOPS = 5e7;
static const int64_t PART_FLOPS = 2000000;

typedef struct part {
    gk_tensor view; /* of the output; data is NULL */
    int64_t base;   /* in elements, from the output's first */
    int64_t count;
    double *want;
    double *scale;
    unsigned char *got; /* packed, of the last run */
} part;

struct gki_verifier {
    gki_operands *operands;
    gk_tolerance tolerance;
    bool whole;
    part parts[MAX_PARTS];
    uint32_t n_parts;
    unsigned char *region; /* what was copied from the device */
    size_t region_bytes;
    unsigned char *fresh; /* packed elements of the present run */
    uint64_t scans[SCAN_CHUNKS];
};

/* --- the reference --- */

bool gki_verifier_fits(const gk_op_desc *op, const gk_call *call, const gk_problem *problem)
{
    double flops = 0;
    double bytes = 0;
    op->work(problem, &flops, &bytes);
    bool fits = flops <= WHOLE_FLOPS;
    for (uint32_t i = 0; i < op->n_args; i++) {
        const gk_tensor *t = call->args[i];
        if (t != NULL) {
            int64_t limit = op->args[i].is_output ? WHOLE_ELEMENTS : 4 * WHOLE_ELEMENTS;
            fits = fits && gki_tensor_elements(t) <= limit &&
                   gk_tensor_extent(t) <= GKI_EXACT_BYTES - 4 * GKI_GUARD;
        }
    }
    return fits;
}

/* Host tensors, packed, with the values that the device's views hold. */
typedef struct host_call {
    gk_tensor tensors[GK_MAX_ARGS];
    gk_call call;
} host_call;

static void host_call_free(host_call *h)
{
    for (uint32_t i = 0; i < GK_MAX_ARGS; i++) {
        gki_free(h->tensors[i].data);
    }
}

static int64_t offset_in(const gki_operands *o, uint32_t i, const gk_tensor *view)
{
    const char *first = gki_operands_call(o, 0)->args[i]->data;
    return ((const char *)view->data - first) / (int64_t)gk_dtype_size((gk_dtype)view->dtype);
}

static gk_status gather_arg(const gki_operands *o, uint32_t i, const gk_tensor *view,
                            gk_tensor *host)
{
    size_t size = gk_dtype_size((gk_dtype)view->dtype);
    size_t bytes = (size_t)gki_tensor_elements(view) * size;
    *host = *view;
    int64_t stride = 1;
    for (int32_t axis = view->rank; axis-- > 0;) {
        host->stride[axis] = stride;
        stride *= view->shape[axis] > 0 ? view->shape[axis] : 1;
    }
    unsigned char *data = gki_calloc(1, bytes + size);
    host->data = data;
    if (data == NULL) {
        return gki_fail_nomem("tune", bytes);
    }
    if (o->args[i].is_output && !o->reads_output) {
        return GK_OK;
    }
    int64_t base = offset_in(o, i, view);
    size_t at = 0;
    for (gki_walk w = gki_walk_begin(view); !w.done; gki_walk_next(&w)) {
        memcpy(data + at, gki_operands_value(o, i, base + w.offset), size);
        at += size;
    }
    return GK_OK;
}

static gk_status gather(const gki_operands *o, const gk_call *views, host_call *host)
{
    memset(host, 0, sizeof(*host));
    memcpy(host->call.attrs, views->attrs, sizeof(views->attrs));
    host->call.text = views->text;
    gk_status status = GK_OK;
    for (uint32_t i = 0; i < o->op->n_args && status == GK_OK; i++) {
        if (views->args[i] != NULL) {
            status = gather_arg(o, i, views->args[i], &host->tensors[i]);
            host->call.args[i] = &host->tensors[i];
        }
    }
    return status;
}

static gk_status refer(const gki_operands *o, const gk_call *views, part *p)
{
    host_call host;
    gk_status status = gather(o, views, &host);
    gk_problem problem;
    memset(&problem, 0, sizeof(problem));
    problem.op = o->problem.op;
    if (status == GK_OK) {
        status = o->op->infer(&host.call, &problem);
    }
    if (status == GK_OK) {
        size_t count = (size_t)p->count + 1;
        p->want = gki_calloc(count, sizeof(double));
        p->scale = gki_calloc(count, sizeof(double));
        p->got = gki_calloc(count, gk_dtype_size(o->args[o->output].dtype));
        if (p->want == NULL || p->scale == NULL || p->got == NULL) {
            status = gki_fail_nomem("tune", count * sizeof(double));
        } else {
            o->op->reference(&host.call, &problem, p->want, p->scale);
        }
    }
    host_call_free(&host);
    return status;
}

static gk_status add_part(gki_verifier *v, const gk_call *views)
{
    const gki_operands *o = v->operands;
    part *p = &v->parts[v->n_parts++];
    p->view = *views->args[o->output];
    p->base = offset_in(o, o->output, &p->view);
    p->view.data = NULL;
    p->count = gki_tensor_elements(&p->view);
    return refer(o, views, p);
}

static gk_status add_parts(gki_verifier *v)
{
    const gki_operands *o = v->operands;
    const gk_call *call = gki_operands_call(o, 0);
    if (v->whole) {
        return add_part(v, call);
    }
    gk_status status = GK_OK;
    for (uint32_t i = 0; i < MAX_PARTS && o->op->part != NULL && status == GK_OK; i++) {
        gk_tensor tensors[GK_MAX_ARGS];
        gk_call views;
        memset(tensors, 0, sizeof(tensors));
        memset(&views, 0, sizeof(views));
        if (!o->op->part(call, i, PART_FLOPS, tensors, &views)) {
            break;
        }
        status = add_part(v, &views);
    }
    return status;
}

static gk_status make_buffers(gki_verifier *v)
{
    const gki_operands *o = v->operands;
    size_t largest = SCAN_CHUNK_BYTES > ONE_COPY_BYTES ? SCAN_CHUNK_BYTES : ONE_COPY_BYTES;
    int64_t count = 0;
    for (uint32_t i = 0; i < o->op->n_args; i++) {
        if (o->args[i].image != NULL && (size_t)o->args[i].region_bytes > largest) {
            largest = (size_t)o->args[i].region_bytes;
        }
    }
    for (uint32_t i = 0; i < v->n_parts; i++) {
        count = v->parts[i].count > count ? v->parts[i].count : count;
    }
    v->region_bytes = largest;
    v->region = gki_alloc(largest);
    v->fresh = gki_alloc((size_t)(count + 1) * 8);
    if (v->region == NULL || v->fresh == NULL) {
        return gki_fail_nomem("tune", largest + (size_t)(count + 1) * 8);
    }
    return GK_OK;
}

gk_status gki_verifier_create(gki_verifier **out, gki_operands *operands)
{
    *out = NULL;
    gki_verifier *v = gki_calloc(1, sizeof(*v));
    if (v == NULL) {
        return gki_fail_nomem("tune", sizeof(*v));
    }
    v->operands = operands;
    v->tolerance = operands->op->tolerance(&operands->problem);
    v->whole = operands->args[operands->output].image != NULL &&
               gki_verifier_fits(operands->op, gki_operands_call(operands, 0), &operands->problem);
    gk_status status = add_parts(v);
    if (status == GK_OK) {
        status = make_buffers(v);
    }
    if (status != GK_OK) {
        gki_verifier_destroy(&v);
        return status;
    }
    *out = v;
    return GK_OK;
}

void gki_verifier_destroy(gki_verifier **verifier)
{
    gki_verifier *v = *verifier;
    if (v == NULL) {
        return;
    }
    for (uint32_t i = 0; i < v->n_parts; i++) {
        gki_free(v->parts[i].want);
        gki_free(v->parts[i].scale);
        gki_free(v->parts[i].got);
    }
    gki_free(v->region);
    gki_free(v->fresh);
    gki_free(v);
    *verifier = NULL;
}

bool gki_verifier_is_exhaustive(const gki_verifier *v)
{
    return v->whole;
}

/* --- guards --- */

static bool passed(const gki_verdict *verdict)
{
    return strcmp(verdict->status, GKI_TRIAL_OK) == 0;
}

static gk_status fetch(const gki_verifier *v, void *dst, int64_t at, int64_t bytes)
{
    const gki_operands *o = v->operands;
    const gki_operand *arg = &o->args[o->output];
    return o->device->driver->copy_out(o->device, dst, o->memory + arg->region + at, (size_t)bytes,
                                       o->stream);
}

static void refuse_outside(const gki_verifier *v, const gki_operand *arg, int64_t at,
                           gki_verdict *verdict)
{
    const char *name = v->operands->op->args[arg - v->operands->args].name;
    int64_t relative = at - arg->first;
    verdict->status = GKI_TRIAL_OOB;
    if (relative < 0) {
        snprintf(verdict->why, sizeof(verdict->why), "wrote %lld bytes before %s",
                 (long long)-relative, name);
    } else if (relative >= arg->extent) {
        snprintf(verdict->why, sizeof(verdict->why), "wrote %lld bytes behind %s",
                 (long long)(relative - arg->extent), name);
    } else {
        snprintf(verdict->why, sizeof(verdict->why), "wrote %s %s, at byte %lld",
                 arg->is_output ? "between the elements of" : "to the input", name,
                 (long long)relative);
    }
}

/* True if bytes [begin, end) of the region still are as they were. */
static bool untouched(const gki_verifier *v, const gki_operand *arg, const unsigned char *now,
                      const unsigned char *before, int64_t begin, int64_t end, gki_verdict *verdict)
{
    for (int64_t i = begin; i < end; i++) {
        unsigned char want = before != NULL ? before[i] : GKI_GUARD_BYTE;
        if (now[i - begin] != want) {
            refuse_outside(v, arg, i, verdict);
            return false;
        }
    }
    return true;
}

static gk_status check_inputs(gki_verifier *v, gki_verdict *verdict)
{
    const gki_operands *o = v->operands;
    for (uint32_t i = 0; i < o->op->n_args; i++) {
        const gki_operand *arg = &o->args[i];
        if (!arg->present || arg->is_output || arg->image == NULL) {
            continue;
        }
        gk_status status = o->device->driver->copy_out(
            o->device, v->region, o->memory + arg->region, (size_t)arg->region_bytes, o->stream);
        if (status != GK_OK) {
            return status;
        }
        if (memcmp(v->region, arg->image, (size_t)arg->region_bytes) != 0 &&
            !untouched(v, arg, v->region, arg->image, 0, arg->region_bytes, verdict)) {
            /* The next candidate must not suffer from it. */
            return o->device->driver->copy_in(o->device, o->memory + arg->region, arg->image,
                                              (size_t)arg->region_bytes, o->stream);
        }
    }
    return GK_OK;
}

/* Guards of an output whose gaps, if it has any, are not watched. */
static gk_status check_ends(gki_verifier *v, gki_verdict *verdict)
{
    const gki_operand *arg = &v->operands->args[v->operands->output];
    int64_t behind = arg->first + arg->extent;
    gk_status status = fetch(v, v->region, 0, arg->first);
    if (status != GK_OK || !untouched(v, arg, v->region, NULL, 0, arg->first, verdict)) {
        return status;
    }
    status = fetch(v, v->region, behind, arg->region_bytes - behind);
    if (status == GK_OK) {
        untouched(v, arg, v->region, NULL, behind, arg->region_bytes, verdict);
    }
    return status;
}

/* --- elements --- */

/* The axis of the largest stride that is not taken yet; the rank if there is none. */
static int32_t outermost(const gk_tensor *tensor, const bool *taken)
{
    int32_t found = tensor->rank;
    for (int32_t axis = 0; axis < tensor->rank; axis++) {
        if (!taken[axis] &&
            (found == tensor->rank || tensor->stride[axis] > tensor->stride[found])) {
            found = axis;
        }
    }
    return found;
}

/* Where an element lies, as "(3, 17)". */
static void place_of(const gk_tensor *tensor, int64_t offset, char *out, size_t size)
{
    int64_t at[GK_MAX_RANK] = {0};
    bool taken[GK_MAX_RANK] = {false};
    for (int32_t axis = outermost(tensor, taken); axis < tensor->rank;
         axis = outermost(tensor, taken)) {
        taken[axis] = true;
        if (tensor->shape[axis] > 1 && tensor->stride[axis] > 0) {
            at[axis] = offset / tensor->stride[axis];
            offset -= at[axis] * tensor->stride[axis];
        }
    }
    size_t length = 0;
    out[0] = '\0';
    for (int32_t axis = 0; axis < tensor->rank && length < size; axis++) {
        int wrote = snprintf(out + length, size - length, "%s%lld", axis == 0 ? "(" : ", ",
                             (long long)at[axis]);
        length += wrote > 0 ? (size_t)wrote : 0;
    }
    if (length + 1 < size) {
        memcpy(out + length, ")", 2);
    }
}

static double error_of(double got, double want, double allowed)
{
    if (isnan(want) || isnan(got) || isinf(want) || isinf(got)) {
        bool same = (isnan(want) && isnan(got)) || got == want;
        return same ? 0 : 1e9;
    }
    double difference = fabs(got - want);
    if (difference <= 0) {
        return 0;
    }
    double ratio = allowed > 0 ? difference / allowed : 1e9;
    return ratio < 1e9 ? ratio : 1e9;
}

static void compare_part(const gki_verifier *v, const part *p, gki_verdict *verdict)
{
    const gki_operands *o = v->operands;
    gk_dtype dtype = o->args[o->output].dtype;
    size_t i = 0;
    for (gki_walk w = gki_walk_begin(&p->view); !w.done; gki_walk_next(&w), i++) {
        double allowed = v->tolerance.absolute + v->tolerance.relative * p->scale[i];
        double got = gki_numeric_get(dtype, v->fresh, (int64_t)i);
        double error = error_of(got, p->want[i], allowed);
        if (error > verdict->max_error) {
            verdict->max_error = error;
            if (error > 1) {
                char place[96];
                place_of(&o->args[o->output].shape, p->base + w.offset, place, sizeof(place));
                verdict->status = GKI_TRIAL_WRONG;
                snprintf(verdict->why, sizeof(verdict->why),
                         "%s%s is %.9g instead of %.9g, %.3g times the tolerance",
                         o->op->args[o->output].name, place, got, p->want[i], error);
            }
        }
    }
}

/* The part's elements, packed, from the region as it was copied. */
static void pack_part(const part *p, const unsigned char *first, size_t size, unsigned char *out)
{
    for (gki_walk w = gki_walk_begin(&p->view); !w.done; gki_walk_next(&w)) {
        memcpy(out, first + (size_t)w.offset * size, size);
        out += size;
    }
}

/* The part's elements of a large output: in one copy if they lie close, else line by line. */
static gk_status fetch_part(gki_verifier *v, const part *p)
{
    const gki_operand *arg = &v->operands->args[v->operands->output];
    size_t size = gk_dtype_size(arg->dtype);
    int64_t first = arg->first + p->base * (int64_t)size;
    int64_t extent = gk_tensor_extent(&p->view);
    if (extent <= ONE_COPY_BYTES) {
        gk_status status = fetch(v, v->region, first, extent);
        pack_part(p, v->region, size, v->fresh);
        return status;
    }
    int32_t line = p->view.rank - 1;
    for (int32_t axis = 0; axis < p->view.rank; axis++) {
        line = p->view.stride[axis] == 1 && p->view.shape[axis] > 1 ? axis : line;
    }
    int64_t step = p->view.stride[line] == 1 ? p->view.shape[line] : 1;
    int64_t limit = (int64_t)(v->region_bytes / size);
    int64_t inner = 1; /* packed distance of neighbours along the line */
    for (int32_t axis = line + 1; axis < p->view.rank; axis++) {
        inner *= p->view.shape[axis];
    }
    int64_t index = 0;
    for (gki_walk w = gki_walk_begin(&p->view); !w.done; gki_walk_next(&w), index++) {
        if (step > 1 && w.at[line] != 0) {
            continue;
        }
        for (int64_t at = 0; at < step; at += limit) {
            int64_t n = step - at < limit ? step - at : limit;
            gk_status status =
                fetch(v, v->region, first + (w.offset + at) * (int64_t)size, n * (int64_t)size);
            if (status != GK_OK) {
                return status;
            }
            for (int64_t i = 0; i < n; i++) {
                memcpy(v->fresh + (size_t)(index + (at + i) * inner) * size,
                       v->region + (size_t)i * size, size);
            }
        }
    }
    return GK_OK;
}

static void judge_part(gki_verifier *v, part *p, bool repeat, gki_verdict *verdict)
{
    size_t bytes = (size_t)p->count * gk_dtype_size(v->operands->args[v->operands->output].dtype);
    if (!repeat) {
        compare_part(v, p, verdict);
        memcpy(p->got, v->fresh, bytes);
    } else if (memcmp(p->got, v->fresh, bytes) != 0) {
        verdict->status = GKI_TRIAL_NONDETERMINISTIC;
        snprintf(verdict->why, sizeof(verdict->why), "two runs gave different bits");
    }
}

/* Every byte of the output's region: elements, gaps, guards. */
static gk_status check_whole(gki_verifier *v, bool repeat, gki_verdict *verdict)
{
    const gki_operands *o = v->operands;
    const gki_operand *arg = &o->args[o->output];
    size_t size = gk_dtype_size(arg->dtype);
    gk_status status = fetch(v, v->region, 0, arg->region_bytes);
    if (status != GK_OK) {
        return status;
    }
    part *p = &v->parts[0];
    unsigned char *elements = v->region + arg->first;
    pack_part(p, elements, size, v->fresh);
    judge_part(v, p, repeat, verdict);
    for (gki_walk w = gki_walk_begin(&p->view); !w.done; gki_walk_next(&w)) {
        size_t at = (size_t)w.offset * size;
        memcpy(elements + at, arg->image + arg->first + at, size);
    }
    if (memcmp(v->region, arg->image, (size_t)arg->region_bytes) != 0) {
        untouched(v, arg, v->region, arg->image, 0, arg->region_bytes, verdict);
    }
    return repeat || !passed(verdict) ? GK_OK : check_inputs(v, verdict);
}

/* --- large outputs --- */

static bool holds_poison(const gki_operand *arg, const unsigned char *bytes, int64_t n, int64_t *at)
{
    size_t size = gk_dtype_size(arg->dtype);
    unsigned char poison[8];
    memset(poison, gki_poison_byte(arg->dtype), sizeof(poison));
    for (int64_t i = 0; i + (int64_t)size <= n; i += (int64_t)size) {
        if (bytes[i] == poison[0] && memcmp(bytes + i, poison, size) == 0) {
            *at = i;
            return true;
        }
    }
    return false;
}

/* Pieces spread over the whole output: all written, and the same in both runs. */
static gk_status scan(gki_verifier *v, bool repeat, gki_verdict *verdict)
{
    const gki_operands *o = v->operands;
    const gki_operand *arg = &o->args[o->output];
    int64_t size = (int64_t)gk_dtype_size(arg->dtype);
    bool packed = gki_tensor_elements(&arg->shape) * size == arg->extent;
    bool telling = size > 1 || !gki_numeric_is_integer(arg->dtype);
    int64_t bytes = arg->extent < SCAN_CHUNK_BYTES ? arg->extent : SCAN_CHUNK_BYTES;
    int64_t chunks = arg->extent > bytes ? SCAN_CHUNKS : 1;
    int64_t step = (arg->extent - bytes) / (SCAN_CHUNKS - 1) / 16 * 16;
    for (int64_t i = 0; i < chunks; i++) {
        int64_t at = i < chunks - 1 ? i * step : arg->extent - bytes;
        gk_status status = fetch(v, v->region, arg->first + at, bytes);
        if (status != GK_OK) {
            return status;
        }
        uint64_t hash = gki_hash64(v->region, (size_t)bytes);
        int64_t hole = 0;
        if (repeat && hash != v->scans[i]) {
            verdict->status = GKI_TRIAL_NONDETERMINISTIC;
            snprintf(verdict->why, sizeof(verdict->why), "two runs gave different bits");
        } else if (packed && telling && !o->reads_output &&
                   holds_poison(arg, v->region, bytes, &hole)) {
            char place[96];
            place_of(&arg->shape, (at + hole) / size, place, sizeof(place));
            verdict->status = GKI_TRIAL_WRONG;
            verdict->max_error = 1e9;
            snprintf(verdict->why, sizeof(verdict->why), "%s%s was not written",
                     o->op->args[o->output].name, place);
        }
        if (!passed(verdict)) {
            return GK_OK;
        }
        v->scans[i] = hash;
    }
    return GK_OK;
}

gk_status gki_verifier_check(gki_verifier *v, bool repeat, bool deep, gki_verdict *verdict)
{
    memset(verdict, 0, sizeof(*verdict));
    verdict->status = GKI_TRIAL_OK;
    if (v->whole) {
        return check_whole(v, repeat, verdict);
    }
    gk_status status = check_ends(v, verdict);
    for (uint32_t i = 0; i < v->n_parts && status == GK_OK && passed(verdict); i++) {
        status = fetch_part(v, &v->parts[i]);
        if (status == GK_OK) {
            judge_part(v, &v->parts[i], repeat, verdict);
        }
    }
    if (status == GK_OK && passed(verdict) && deep) {
        status = scan(v, repeat, verdict);
    }
    return status;
}
