#include "tune/operands.h"

#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/rng.h"

static int64_t round_up(int64_t value, int64_t unit)
{
    return (value + unit - 1) / unit * unit;
}

/* --- layout --- */

/* Large operands begin at pages of the device's memory, as a caller's own allocations do. */
enum { PAGE = 2 << 20, LEAST_PAGED = 2 * PAGE };

/* Axes of more than one element, by ascending stride. */
static int32_t sorted_axes(const gk_tensor *t, int32_t axes[GK_MAX_RANK])
{
    int32_t n = 0;
    for (int32_t axis = 0; axis < t->rank; axis++) {
        if (t->shape[axis] <= 1) {
            continue;
        }
        int32_t at = n++;
        while (at > 0 && t->stride[axes[at - 1]] > t->stride[axis]) {
            axes[at] = axes[at - 1];
            at--;
        }
        axes[at] = axis;
    }
    return n;
}

/* Shorter strides without overlap, equal to the old ones modulo 256 bytes; a stride that was not 1
 * does not become 1, and an axis that did not go on where the one inside it ends does not begin
 * to. */
static void compact(gk_tensor *t)
{
    int32_t axes[GK_MAX_RANK];
    int32_t n = sorted_axes(t, axes);
    int64_t unit = 256 / (int64_t)gk_dtype_size((gk_dtype)t->dtype);
    int64_t span = 1; /* elements that the axes so far reach over */
    for (int32_t i = 0; i < n; i++) {
        int64_t old = t->stride[axes[i]];
        int64_t shortened = round_up(span + (old > span), unit) + old % unit;
        if (old > shortened && old > 1) {
            t->stride[axes[i]] = shortened;
        }
        span += t->stride[axes[i]] * (t->shape[axes[i]] - 1);
    }
}

/* Copies for timing keep all but absurd strides: they are part of what is timed. */
static void compact_if_sparse(gk_tensor *t, int64_t slack)
{
    int64_t size = (int64_t)gk_dtype_size((gk_dtype)t->dtype);
    int64_t extent = gk_tensor_extent(t);
    int64_t packed = gki_tensor_elements(t) * size;
    if (extent > packed + packed / 2 + slack) {
        compact(t);
    }
}

static gk_status lay_out(gki_operands *o, const gk_call *call, int64_t slack)
{
    int64_t at = 0;
    int64_t unit = 1;
    for (uint32_t i = 0; i < o->op->n_args; i++) {
        const gk_tensor *given = call->args[i];
        gki_operand *arg = &o->args[i];
        if (given == NULL) {
            continue;
        }
        arg->present = true;
        arg->is_output = o->op->args[i].is_output != 0;
        arg->dtype = (gk_dtype)given->dtype;
        arg->shape = *given;
        arg->shape.data = NULL;
        compact_if_sparse(&arg->shape, slack);
        arg->extent = gk_tensor_extent(&arg->shape);
        if (arg->extent < 0) {
            return gk_fail(GK_ERR_INVALID, "tune", "%s has no valid extent", o->op->args[i].name);
        }
        arg->first = GKI_GUARD + (int64_t)((uintptr_t)given->data % 256);
        if (arg->extent >= LEAST_PAGED) {
            at = round_up(at + GKI_GUARD, PAGE) - GKI_GUARD;
            unit = PAGE;
        }
        arg->region = at;
        arg->region_bytes = round_up(arg->first + arg->extent, 256) + GKI_GUARD;
        arg->phase = (int64_t)i * 35003 % GKI_PERIOD;
        at += arg->region_bytes;
        o->operand_bytes += arg->extent;
        if (arg->is_output) {
            o->output = i;
        }
    }
    o->set_bytes = round_up(at, unit);
    return GK_OK;
}

static uint32_t default_sets(const gki_operands *o)
{
    gk_device_info info;
    o->device->driver->info(o->device, &info);
    if (info.is_emulated || o->operand_bytes == 0 || o->set_bytes == 0) {
        return 1;
    }
    /* However large they are: of what a run leaves in the cache the next one would find a part. */
    int64_t wanted = 2 * info.l2_bytes / o->operand_bytes + 1;
    wanted = wanted > 2 ? wanted : 2;
    int64_t fitting = info.memory_bytes / 4 / o->set_bytes;
    wanted = wanted < fitting ? wanted : fitting;
    wanted = wanted < GKI_MAX_SETS ? wanted : GKI_MAX_SETS;
    return wanted > 1 ? (uint32_t)wanted : 1;
}

/* --- contents --- */

const void *gki_operands_value(const gki_operands *o, uint32_t arg, int64_t offset)
{
    gk_dtype dtype = o->args[arg].dtype;
    size_t at = (size_t)((offset + o->args[arg].phase) % GKI_PERIOD);
    return o->patterns[dtype] + at * gk_dtype_size(dtype);
}

static bool has_values(const gki_operands *o, const gki_operand *arg)
{
    return arg->present && (!arg->is_output || o->reads_output);
}

/* `n` elements, `step` elements apart, from element `offset` on: the input's values, or poison. */
static void fill_line(const gki_operands *o, uint32_t i, unsigned char *elements, int64_t offset,
                      int64_t step, int64_t n)
{
    const gki_operand *arg = &o->args[i];
    const int64_t size = (int64_t)gk_dtype_size(arg->dtype);
    const bool values = has_values(o, arg);
    const int64_t longest = step == 1 ? GKI_PERIOD : 1;
    for (int64_t at = 0; at < n; at += longest) {
        const int64_t run = n - at < longest ? n - at : longest;
        unsigned char *to = elements + (offset + at * step) * size;
        if (values) {
            memcpy(to, gki_operands_value(o, i, offset + at * step), (size_t)(run * size));
        } else {
            memset(to, gki_poison_byte(arg->dtype, false), (size_t)(run * size));
        }
    }
}

/* The whole region, byte by byte: elements, and between and around them what must not be read
 * (NaN) or written (the guard byte). */
static gk_status make_image(const gki_operands *o, uint32_t i, gki_operand *arg)
{
    arg->image = gki_alloc((size_t)arg->region_bytes);
    if (arg->image == NULL) {
        return gki_fail_nomem("tune", (size_t)arg->region_bytes);
    }
    memset(arg->image, arg->is_output ? GKI_GUARD_BYTE : 0xff, (size_t)arg->region_bytes);
    const int32_t last = arg->shape.rank - 1;
    gk_tensor lines = arg->shape;
    if (last >= 0) {
        lines.shape[last] = lines.shape[last] > 0 ? 1 : 0;
    }
    for (gki_walk w = gki_walk_begin(&lines); !w.done; gki_walk_next(&w)) {
        fill_line(o, i, arg->image + arg->first, w.offset, last >= 0 ? arg->shape.stride[last] : 1,
                  last >= 0 ? arg->shape.shape[last] : 1);
    }
    return GK_OK;
}

/* The pattern over all of a large operand, gaps included: one period from the host, then copies of
 * what is there. */
static gk_status spread_pattern(gki_operands *o, uint32_t i, unsigned char *dst)
{
    const gki_driver *driver = o->device->driver;
    const gki_operand *arg = &o->args[i];
    int64_t period = (int64_t)gk_dtype_size(arg->dtype) * GKI_PERIOD;
    int64_t have = period < arg->extent ? period : arg->extent;
    gk_status status =
        driver->copy_in(o->device, dst, gki_operands_value(o, i, 0), (size_t)have, o->stream);
    while (status == GK_OK && have < arg->extent) {
        int64_t more = have < arg->extent - have ? have : arg->extent - have;
        status = driver->copy_dev(o->device, dst + have, dst, (size_t)more, o->stream);
        have += more;
    }
    return status;
}

static gk_status fill_large(gki_operands *o, uint32_t i, unsigned char *region)
{
    const gki_driver *driver = o->device->driver;
    const gki_operand *arg = &o->args[i];
    unsigned char guard = arg->is_output ? GKI_GUARD_BYTE : 0xff;
    int64_t behind = arg->first + arg->extent;
    gk_status status = driver->fill(o->device, region, guard, (size_t)arg->first, o->stream);
    if (status == GK_OK) {
        status = driver->fill(o->device, region + behind, guard,
                              (size_t)(arg->region_bytes - behind), o->stream);
    }
    if (status == GK_OK && has_values(o, arg)) {
        status = spread_pattern(o, i, region + arg->first);
    } else if (status == GK_OK) {
        status = driver->fill(o->device, region + arg->first, gki_poison_byte(arg->dtype, false),
                              (size_t)arg->extent, o->stream);
    }
    return status;
}

static gk_status fill_arg(gki_operands *o, uint32_t i)
{
    gki_operand *arg = &o->args[i];
    unsigned char *region = o->memory + arg->region;
    const gki_driver *driver = o->device->driver;
    if (arg->region_bytes > GKI_EXACT_BYTES) {
        gk_status status = fill_large(o, i, region);
        if (status != GK_OK || !arg->is_output || !o->reads_output) {
            return status;
        }
    } else {
        gk_status status = make_image(o, i, arg);
        if (status == GK_OK) {
            status = driver->copy_in(o->device, region, arg->image, (size_t)arg->region_bytes,
                                     o->stream);
        }
        if (status != GK_OK || !arg->is_output) {
            return status;
        }
    }
    void *master = NULL;
    gk_status status = driver->mem_alloc(o->device, (size_t)arg->region_bytes, &master);
    if (status != GK_OK) {
        return status;
    }
    o->master = master;
    return driver->copy_dev(o->device, master, region, (size_t)arg->region_bytes, o->stream);
}

static gk_status fill_sets(gki_operands *o, uint64_t seed)
{
    for (uint32_t i = 0; i < o->op->n_args; i++) {
        gki_operand *arg = &o->args[i];
        if (!has_values(o, arg) || o->patterns[arg->dtype] != NULL) {
            continue;
        }
        o->patterns[arg->dtype] = gki_pattern(arg->dtype, seed + (uint64_t)arg->dtype);
        if (o->patterns[arg->dtype] == NULL) {
            return gki_fail_nomem("tune", GKI_PERIOD);
        }
    }
    gk_status status = GK_OK;
    for (uint32_t i = 0; i < o->op->n_args && status == GK_OK; i++) {
        if (o->args[i].present) {
            status = fill_arg(o, i);
        }
    }
    for (uint32_t s = 1; s < o->sets && status == GK_OK; s++) {
        status = o->device->driver->copy_dev(o->device, o->memory + s * o->set_bytes, o->memory,
                                             (size_t)o->set_bytes, o->stream);
    }
    if (status == GK_OK) {
        status = o->device->driver->synchronize(o->device, o->stream);
    }
    return status;
}

/* --- life --- */

static void release(const gki_operands *o, void *memory)
{
    if (memory != NULL) {
        o->device->driver->mem_free(o->device, memory);
    }
}

/* Fewer sets rather than none when memory is short. */
static gk_status allocate(gki_operands *o)
{
    gk_status status;
    for (;;) {
        void *memory = NULL;
        status = o->device->driver->mem_alloc(o->device, (size_t)(o->sets * o->set_bytes), &memory);
        if (status == GK_OK) {
            o->memory = memory;
            break;
        }
        if (status != GK_ERR_NOMEM || o->sets == 1) {
            return status;
        }
        o->sets /= 2;
    }
    o->tensors = gki_calloc((size_t)o->sets * GK_MAX_ARGS, sizeof(o->tensors[0]));
    o->calls = gki_calloc(o->sets, sizeof(o->calls[0]));
    if (o->tensors == NULL || o->calls == NULL) {
        (void)gki_fail_nomem("tune", (size_t)o->sets * GK_MAX_ARGS * sizeof(o->tensors[0]));
        return GK_ERR_NOMEM;
    }
    return GK_OK;
}

static void make_calls(gki_operands *o, const gk_call *call)
{
    for (uint32_t s = 0; s < o->sets; s++) {
        gk_tensor *tensors = o->tensors + (size_t)s * GK_MAX_ARGS;
        memcpy(o->calls[s].attrs, call->attrs, sizeof(call->attrs));
        o->calls[s].text = o->problem.text; /* the call's may go before the operands do */
        for (uint32_t i = 0; i < o->op->n_args; i++) {
            const gki_operand *arg = &o->args[i];
            if (arg->present) {
                tensors[i] = arg->shape;
                tensors[i].data = o->memory + s * o->set_bytes + arg->region + arg->first;
                o->calls[s].args[i] = &tensors[i];
            }
        }
    }
}

/* The copies must be of the very problem that is tuned. */
static gk_status check_problem(const gki_operands *o)
{
    gk_problem inferred;
    memset(&inferred, 0, sizeof(inferred));
    inferred.op = o->problem.op;
    gk_status status = o->op->infer(&o->calls[0], &inferred);
    if (status == GK_OK && memcmp(&inferred, &o->problem, sizeof(inferred)) != 0) {
        status = gk_fail(GK_ERR_INTERNAL, "tune", "the operands made for %s are of another problem",
                         o->op->name);
    }
    return status;
}

gk_status gki_operands_create(gki_operands **out, gki_device *device, void *stream,
                              const gk_op_desc *op, const gk_call *call, const gk_problem *problem,
                              uint64_t seed, uint32_t sets)
{
    *out = NULL;
    gki_operands *o = gki_calloc(1, sizeof(*o));
    if (o == NULL) {
        return gki_fail_nomem("tune", sizeof(*o));
    }
    o->device = device;
    o->stream = stream;
    o->op = op;
    o->problem = *problem;
    o->reads_output = op->reads_output != NULL && op->reads_output(problem);
    gk_status status = lay_out(o, call, sets == 1 ? 64 << 10 : 16 << 20);
    if (status == GK_OK) {
        o->sets = sets != 0 ? sets : default_sets(o);
        status = allocate(o);
    }
    if (status == GK_OK) {
        make_calls(o, call);
        status = check_problem(o);
    }
    if (status == GK_OK) {
        status = fill_sets(o, seed);
    }
    if (status != GK_OK) {
        gki_operands_destroy(&o);
        return status;
    }
    *out = o;
    return GK_OK;
}

void gki_operands_destroy(gki_operands **operands)
{
    gki_operands *o = *operands;
    if (o == NULL) {
        return;
    }
    release(o, o->memory);
    release(o, o->master);
    for (uint32_t i = 0; i < GK_MAX_ARGS; i++) {
        gki_free(o->args[i].image);
    }
    for (uint32_t i = 0; i < GK_DTYPE_COUNT; i++) {
        gki_free(o->patterns[i]);
    }
    gki_free(o->tensors);
    gki_free(o->calls);
    gki_free(o);
    *operands = NULL;
}

const gk_call *gki_operands_call(const gki_operands *o, uint32_t set)
{
    return &o->calls[set];
}

bool gki_operands_has_two_poisons(const gki_operands *o)
{
    const gki_operand *arg = &o->args[o->output];
    const int64_t size = (int64_t)gk_dtype_size(arg->dtype);
    return !o->reads_output && gki_tensor_elements(&arg->shape) * size == arg->extent;
}

gk_status gki_operands_poison(gki_operands *o, bool again)
{
    const gki_driver *driver = o->device->driver;
    const gki_operand *arg = &o->args[o->output];
    unsigned char *region = o->memory + arg->region;
    gk_status status = o->master != NULL ? driver->copy_dev(o->device, region, o->master,
                                                            (size_t)arg->region_bytes, o->stream)
                                         : fill_large(o, o->output, region);
    if (status == GK_OK && again && gki_operands_has_two_poisons(o)) {
        status = driver->fill(o->device, region + arg->first, gki_poison_byte(arg->dtype, true),
                              (size_t)arg->extent, o->stream);
    }
    return status;
}
