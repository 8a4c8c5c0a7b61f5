#include "tune/verify_part.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/numeric.h"

enum {
    CHUNK = 1024,
    ONE_COPY_BYTES = 512 << 10,  /* up to this extent a part comes in one copy, */
    LINE_COPY_BYTES = 32 << 10,  /* which beyond takes as long as a copy of this for each line; */
    MOST_COPY_BYTES = 16 << 20,  /* up to this */
    LINES_ROOM_BYTES = 256 << 10 /* for passing a line on */
};

/* --- the right values --- */

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

static gk_status refer(const gki_operands *o, const gk_call *views, gki_part *p)
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

/* --- how it is read --- */

/* The axis along which a line of adjoining elements lies; the last one if there is none. */
static int32_t line_axis(const gk_tensor *view)
{
    int32_t line = view->rank - 1;
    for (int32_t axis = 0; axis < view->rank; axis++) {
        line = view->stride[axis] == 1 && view->shape[axis] > 1 ? axis : line;
    }
    return line;
}

static int64_t line_length(const gk_tensor *view, int32_t line)
{
    return line >= 0 && view->stride[line] == 1 ? view->shape[line] : 1;
}

static bool comes_by_lines(const gk_tensor *view, int64_t count)
{
    const int64_t extent = gk_tensor_extent(view);
    const int64_t length = line_length(view, line_axis(view));
    const int64_t lines = count / (length > 0 ? length : 1);
    return extent > ONE_COPY_BYTES &&
           (extent > MOST_COPY_BYTES || extent / LINE_COPY_BYTES > lines);
}

gk_status gki_part_create(gki_part *p, const gki_operands *o, const gk_call *views)
{
    p->view = *views->args[o->output];
    p->base = offset_in(o, o->output, &p->view);
    p->view.data = NULL;
    p->count = gki_tensor_elements(&p->view);
    p->by_lines = comes_by_lines(&p->view, p->count);
    return refer(o, views, p);
}

void gki_part_free(gki_part *p)
{
    gki_free(p->want);
    gki_free(p->scale);
    gki_free(p->got);
}

size_t gki_part_room(const gki_part *p)
{
    return p->by_lines ? LINES_ROOM_BYTES : (size_t)gk_tensor_extent(&p->view);
}

static gk_status fetch(const gki_operands *o, void *to, int64_t at, int64_t bytes)
{
    const gki_operand *arg = &o->args[o->output];
    return o->device->driver->copy_out(o->device, to, o->memory + arg->region + arg->first + at,
                                       (size_t)bytes, o->stream);
}

static gk_status fetch_lines(const gki_part *p, const gki_operands *o, unsigned char *region,
                             size_t region_bytes, unsigned char *packed)
{
    const size_t size = gk_dtype_size(o->args[o->output].dtype);
    const int32_t line = line_axis(&p->view);
    const int64_t step = line_length(&p->view, line);
    const int64_t limit = (int64_t)(region_bytes / size);
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
            const int64_t n = step - at < limit ? step - at : limit;
            gk_status status =
                fetch(o, region, (p->base + w.offset + at) * (int64_t)size, n * (int64_t)size);
            if (status != GK_OK) {
                return status;
            }
            for (int64_t i = 0; i < n; i++) {
                memcpy(packed + (size_t)(index + (at + i) * inner) * size,
                       region + (size_t)i * size, size);
            }
        }
    }
    return GK_OK;
}

gk_status gki_part_fetch(const gki_part *p, const gki_operands *o, unsigned char *region,
                         size_t region_bytes, unsigned char *packed)
{
    if (p->by_lines) {
        return fetch_lines(p, o, region, region_bytes, packed);
    }
    const size_t size = gk_dtype_size(o->args[o->output].dtype);
    gk_status status = fetch(o, region, p->base * (int64_t)size, gk_tensor_extent(&p->view));
    if (status == GK_OK) {
        gki_copy_elements(&p->view, size, packed, true, region);
    }
    return status;
}

/* --- comparison --- */

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

void gki_place_text(const gk_tensor *tensor, int64_t offset, char *out, size_t size)
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

/* Of element `index` in packed order, in elements from the view's first. */
static int64_t offset_of(const gk_tensor *view, int64_t index)
{
    int64_t offset = 0;
    for (int32_t axis = view->rank; axis-- > 0;) {
        offset += index % view->shape[axis] * view->stride[axis];
        index /= view->shape[axis];
    }
    return offset;
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

static void compare_one(const gki_part *p, const gki_operands *o, int64_t index, double got,
                        double allowed, gki_verdict *verdict)
{
    const double error = error_of(got, p->want[index], allowed);
    if (error <= verdict->max_error) {
        return;
    }
    verdict->max_error = error;
    if (error > 1) {
        char place[96];
        gki_place_text(&o->args[o->output].shape, p->base + offset_of(&p->view, index), place,
                       sizeof(place));
        verdict->status = GKI_TRIAL_WRONG;
        snprintf(verdict->why, sizeof(verdict->why),
                 "%s%s is %.9g instead of %.9g, %.3g times the tolerance",
                 o->op->args[o->output].name, place, got, p->want[index], error);
    }
}

/* Most elements are no worse than what was seen before, which takes no division; NaN fails every
 * comparison. */
void gki_part_compare(const gki_part *p, const gki_operands *o, const gk_tolerance *tolerance,
                      const unsigned char *packed, gki_verdict *verdict)
{
    const gk_dtype dtype = o->args[o->output].dtype;
    const size_t size = gk_dtype_size(dtype);
    double got[CHUNK];
    double allowed[CHUNK];
    for (int64_t first = 0; first < p->count; first += CHUNK) {
        const int64_t n = p->count - first < CHUNK ? p->count - first : CHUNK;
        const double *want = p->want + first;
        const double most = verdict->max_error;
        bool worse = false;
        gki_numeric_load(dtype, packed + (size_t)first * size, 1, n, got);
        for (int64_t i = 0; i < n; i++) {
            allowed[i] = tolerance->absolute + tolerance->relative * p->scale[first + i];
            worse |= !(fabs(got[i] - want[i]) <= most * allowed[i]);
        }
        for (int64_t i = 0; worse && i < n; i++) {
            compare_one(p, o, first + i, got[i], allowed[i], verdict);
        }
    }
}
