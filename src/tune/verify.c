#include "tune/verify.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/numeric.h"
#include "tune/verify_part.h"

enum {
    MAX_PARTS = 5,
    WHOLE_ELEMENTS = 1 << 20,
    SCAN_CHUNKS = 64,
    SCAN_CHUNK_BYTES = 256 << 10,
};
static const double WHOLE_FLOPS = 5e7;
static const int64_t PART_FLOPS = 2000000;

struct gki_verifier {
    gki_operands *operands;
    gk_tolerance tolerance;
    bool whole;
    gki_part parts[MAX_PARTS];
    uint32_t n_parts;
    unsigned char *region; /* what was copied from the device */
    size_t region_bytes;
    unsigned char *fresh;  /* packed elements of the present run */
    unsigned char *pieces; /* of a large output, from the first run; NULL until one is scanned */
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

static gk_status add_part(gki_verifier *v, const gk_call *views)
{
    return gki_part_create(&v->parts[v->n_parts++], v->operands, views);
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
    size_t largest = SCAN_CHUNK_BYTES;
    int64_t count = 0;
    for (uint32_t i = 0; i < o->op->n_args; i++) {
        if (o->args[i].image != NULL && (size_t)o->args[i].region_bytes > largest) {
            largest = (size_t)o->args[i].region_bytes;
        }
    }
    for (uint32_t i = 0; i < v->n_parts; i++) {
        const size_t room = v->whole ? 0 : gki_part_room(&v->parts[i]);
        largest = room > largest ? room : largest;
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
        gki_part_free(&v->parts[i]);
    }
    gki_free(v->region);
    gki_free(v->fresh);
    gki_free(v->pieces);
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

static void found_different(gki_verdict *verdict)
{
    verdict->status = GKI_TRIAL_NONDETERMINISTIC;
    snprintf(verdict->why, sizeof(verdict->why), "two runs gave different bits");
}

static void judge_part(gki_verifier *v, gki_part *p, bool repeat, gki_verdict *verdict)
{
    size_t bytes = (size_t)p->count * gk_dtype_size(v->operands->args[v->operands->output].dtype);
    if (!repeat) {
        gki_part_compare(p, v->operands, &v->tolerance, v->fresh, verdict);
        memcpy(p->got, v->fresh, bytes);
    } else if (memcmp(p->got, v->fresh, bytes) != 0) {
        found_different(verdict);
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
    gki_part *p = &v->parts[0];
    unsigned char *elements = v->region + arg->first;
    gki_copy_elements(&p->view, size, v->fresh, true, elements);
    judge_part(v, p, repeat, verdict);
    gki_copy_elements(&p->view, size, elements, false, arg->image + arg->first);
    if (memcmp(v->region, arg->image, (size_t)arg->region_bytes) != 0) {
        untouched(v, arg, v->region, arg->image, 0, arg->region_bytes, verdict);
    }
    return repeat || !passed(verdict) ? GK_OK : check_inputs(v, verdict);
}

/* --- large outputs --- */

/* The first element in which two runs differ, written by neither if both have their poison. */
static void tell_difference(const gki_operands *o, int64_t from, const unsigned char *first,
                            const unsigned char *second, gki_verdict *verdict)
{
    const gki_operand *arg = &o->args[o->output];
    const size_t size = gk_dtype_size(arg->dtype);
    unsigned char unwritten[2][8];
    int64_t at = 0;
    while (memcmp(first + at, second + at, size) == 0) {
        at += (int64_t)size;
    }
    memset(unwritten[0], gki_poison_byte(arg->dtype, false), sizeof(unwritten[0]));
    memset(unwritten[1], gki_poison_byte(arg->dtype, true), sizeof(unwritten[1]));
    if (gki_operands_has_two_poisons(o) && memcmp(first + at, unwritten[0], size) == 0 &&
        memcmp(second + at, unwritten[1], size) == 0) {
        char place[96];
        gki_place_text(&arg->shape, (from + at) / (int64_t)size, place, sizeof(place));
        verdict->status = GKI_TRIAL_WRONG;
        verdict->max_error = 1e9;
        snprintf(verdict->why, sizeof(verdict->why), "%s%s was not written",
                 o->op->args[o->output].name, place);
        return;
    }
    found_different(verdict);
}

/* Pieces spread over the whole output: all written, and the same in both runs. */
static gk_status scan(gki_verifier *v, bool repeat, gki_verdict *verdict)
{
    const gki_operands *o = v->operands;
    const gki_operand *arg = &o->args[o->output];
    int64_t bytes = arg->extent < SCAN_CHUNK_BYTES ? arg->extent : SCAN_CHUNK_BYTES;
    int64_t chunks = bytes > 0 ? (arg->extent + bytes - 1) / bytes : 1;
    chunks = chunks < SCAN_CHUNKS ? chunks : SCAN_CHUNKS;
    int64_t step = chunks > 1 ? (arg->extent - bytes) / (chunks - 1) / 16 * 16 : 0;
    v->pieces = v->pieces != NULL ? v->pieces : gki_alloc((size_t)(chunks * bytes));
    if (v->pieces == NULL) {
        return gki_fail_nomem("tune", (size_t)(chunks * bytes));
    }
    for (int64_t i = 0; i < chunks; i++) {
        int64_t at = i < chunks - 1 ? i * step : arg->extent - bytes;
        unsigned char *piece = v->pieces + i * bytes;
        gk_status status = fetch(v, repeat ? v->region : piece, arg->first + at, bytes);
        if (status != GK_OK) {
            return status;
        }
        if (repeat && memcmp(v->region, piece, (size_t)bytes) != 0) {
            tell_difference(o, at, piece, v->region, verdict);
            return GK_OK;
        }
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
        status = gki_part_fetch(&v->parts[i], v->operands, v->region, v->region_bytes, v->fresh);
        if (status == GK_OK) {
            judge_part(v, &v->parts[i], repeat, verdict);
        }
    }
    if (status == GK_OK && passed(verdict) && deep) {
        status = scan(v, repeat, verdict);
    }
    return status;
}
