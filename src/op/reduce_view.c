/* x as the kernels see it: axes that stay and axes that go, sorted and merged. */
#include <string.h>

#include <gk/ops.h>

#include "op/reduce.h"

typedef struct axis_view {
    int64_t size;
    int64_t x;
    int64_t out;
} axis_view;

int gki_reduce_axis(const gk_call *call)
{
    const double axis = call->attrs[REDUCE_ATTR_AXIS];
    return axis < 0 ? -1 : (int)axis;
}

int gki_reduce_out_axis(const gk_call *call, int axis)
{
    const bool keeps = call->attrs[REDUCE_ATTR_KEEPDIM] != 0;
    return keeps || axis < gki_reduce_axis(call) ? axis : axis - 1;
}

/* Axes along which x repeats itself come first. */
static bool is_outside(const axis_view *a, const axis_view *b)
{
    if ((a->x == 0) != (b->x == 0)) {
        return a->x == 0;
    }
    return a->x != b->x ? a->x > b->x : a->out > b->out;
}

static void sort(axis_view *axes, int n)
{
    for (int i = 1; i < n; i++) {
        const axis_view moved = axes[i];
        int at = i;
        while (at > 0 && is_outside(&moved, &axes[at - 1])) {
            axes[at] = axes[at - 1];
            at--;
        }
        axes[at] = moved;
    }
}

/* Neighbours through which one step leads are one axis; returns how many are left. */
static int merge(axis_view *axes, int n)
{
    int kept = 0;
    for (int i = 0; i < n; i++) {
        axis_view *last = &axes[kept - 1];
        /* Products of sizes and strides fit: the tensors do. */
        if (kept > 0 && last->x == axes[i].x * axes[i].size &&
            last->out == axes[i].out * axes[i].size) {
            last->size *= axes[i].size;
            last->x = axes[i].x;
            last->out = axes[i].out;
        } else {
            axes[kept++] = axes[i];
        }
    }
    return kept;
}

static void view_kept(const gk_call *call, gk_reduce_args *view)
{
    const gk_tensor *x = call->args[REDUCE_X];
    const gk_tensor *out = call->args[REDUCE_OUT];
    const int reduced = gki_reduce_axis(call);
    axis_view axes[GK_MAX_RANK];
    int n = 0;
    view->outputs = 1;
    for (int axis = 0; axis < x->rank && reduced >= 0; axis++) {
        if (axis == reduced || x->shape[axis] == 1) {
            continue;
        }
        view->outputs *= x->shape[axis];
        axes[n++] = (axis_view){x->shape[axis], x->stride[axis],
                                out->stride[gki_reduce_out_axis(call, axis)]};
    }
    if (view->outputs > 0) {
        sort(axes, n);
        n = merge(axes, n);
    } else {
        n = 0;
    }
    view->n_kept = n;
    view->inner = n > 0 && axes[n - 1].x == 1 ? axes[n - 1].size : 1;
    for (int i = 0; i < n; i++) {
        view->kept_size[i] = axes[i].size;
        view->kept_x[i] = axes[i].x;
        view->kept_out[i] = axes[i].out;
    }
}

static void view_reduced(const gk_call *call, gk_reduce_args *view)
{
    const gk_tensor *x = call->args[REDUCE_X];
    const int reduced = gki_reduce_axis(call);
    axis_view axes[GK_MAX_RANK];
    int n = 0;
    view->length = 1;
    for (int axis = 0; axis < x->rank; axis++) {
        if ((reduced >= 0 && axis != reduced) || x->shape[axis] == 1) {
            continue;
        }
        view->length *= x->shape[axis];
        axes[n++] = (axis_view){x->shape[axis], x->stride[axis], 0};
    }
    if (view->length == 0) {
        n = 0;
    }
    /* The index of a maximum counts elements in the order of x's axes. */
    if (call->attrs[REDUCE_ATTR_OP] != GK_REDUCE_ARGMAX) {
        sort(axes, n);
    }
    n = merge(axes, n);
    view->n_reduced = n;
    view->step = n == 1 ? axes[0].x : 0;
    for (int i = 0; i < n; i++) {
        view->reduced_size[i] = axes[i].size;
        view->reduced_x[i] = axes[i].x;
    }
}

void gki_reduce_view(const gk_call *call, gk_reduce_args *out)
{
    memset(out, 0, sizeof(*out));
    view_kept(call, out);
    view_reduced(call, out);
}

size_t gki_reduce_pack(const gk_call *call, const gk_problem *problem, const gk_variant *variant,
                       const gk_config *config, void *workspace, void *zeroed, void *out)
{
    (void)problem;
    (void)variant;
    (void)config;
    gk_reduce_args args;
    gki_reduce_view(call, &args);
    args.x = call->args[REDUCE_X]->data;
    args.out = call->args[REDUCE_OUT]->data;
    args.partials = workspace;
    args.tickets = zeroed;
    memcpy(out, &args, sizeof(args));
    return sizeof(args);
}
