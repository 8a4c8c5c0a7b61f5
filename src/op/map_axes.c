/* The axes that an elementwise operation really has. */
#include <string.h>

#include "op/map.h"

static uint64_t size_of(const gk_tensor *t)
{
    return gk_dtype_size((gk_dtype)t->dtype);
}

/* out's axes of more than one element, longest stride first; of equal strides, which out does not
 * have, the first. */
static int32_t sorted_axes(const gk_tensor *out, int32_t axes[GK_MAX_RANK])
{
    int32_t n = 0;
    for (int32_t axis = 0; axis < out->rank; axis++) {
        if (out->shape[axis] == 1) {
            continue;
        }
        int32_t at = n++;
        while (at > 0 && out->stride[axes[at - 1]] < out->stride[axis]) {
            axes[at] = axes[at - 1];
            at--;
        }
        axes[at] = axis;
    }
    return n;
}

/* Whether the axis goes on, in every operand, where the last one so far ends. */
static bool merges(const gk_call *call, const map_axes *so_far, int32_t axis)
{
    const int32_t last = so_far->rank - 1;
    for (int i = 0; i < MAP_N_ARGS; i++) {
        const gk_tensor *t = call->args[i];
        int64_t reach;
        if (t != NULL && (__builtin_mul_overflow(t->stride[axis], t->shape[axis], &reach) ||
                          so_far->stride[i][last] != reach)) {
            return false;
        }
    }
    return true;
}

void gki_map_axes(const gk_call *call, map_axes *out)
{
    int32_t axes[GK_MAX_RANK];
    const gk_tensor *first = call->args[MAP_OUT];
    const int32_t n = sorted_axes(first, axes);
    out->rank = 0;
    for (int32_t k = 0; k < n; k++) {
        const int32_t axis = axes[k];
        const bool merged = out->rank > 0 && merges(call, out, axis);
        const int32_t at = merged ? out->rank - 1 : out->rank++;
        out->shape[at] = first->shape[axis] * (merged ? out->shape[at] : 1);
        for (int i = 0; i < MAP_N_ARGS; i++) {
            out->stride[i][at] = call->args[i] != NULL ? call->args[i]->stride[axis] : 0;
        }
    }
    if (out->rank == 0) {
        out->rank = 1;
        out->shape[0] = 1;
        for (int i = 0; i < MAP_N_ARGS; i++) {
            out->stride[i][0] = 1;
        }
    }
}

/* The largest of 16, 8, .. that divides it. */
static uint64_t alignment(uint64_t bits)
{
    bits |= 16;
    return bits & (~bits + 1);
}

static uint64_t alignment_at(const gk_tensor *t, uint64_t head)
{
    return alignment((uint64_t)(uintptr_t)t->data + head * size_of(t));
}

int64_t gki_map_head(const gk_call *call, const map_axes *axes)
{
    enum { CANDIDATES = 16 };
    uint64_t best = 0;
    uint64_t best_score = 0;
    uint64_t perfect = 0;
    if (axes->rank != 1 || axes->stride[MAP_OUT][0] != 1) {
        return 0;
    }
    for (int i = 0; i < MAP_N_ARGS; i++) {
        perfect +=
            call->args[i] != NULL && axes->stride[i][0] == 1 ? 16 * size_of(call->args[i]) : 0;
    }
    for (uint64_t head = 0; head < CANDIDATES && best_score < perfect; head++) {
        uint64_t score = 0;
        for (int i = 0; i < MAP_N_ARGS; i++) {
            if (call->args[i] != NULL && axes->stride[i][0] == 1) {
                score += alignment_at(call->args[i], head) * size_of(call->args[i]);
            }
        }
        if (score > best_score) {
            best = head;
            best_score = score;
        }
    }
    return (int64_t)best;
}

void gki_map_classify(const gk_call *call, const map_axes *axes, gk_problem *problem)
{
    const int32_t inner = axes->rank - 1;
    const int64_t head = gki_map_head(call, axes);
    for (int i = 0; i < MAP_N_ARGS; i++) {
        const gk_tensor *t = call->args[i];
        if (t == NULL) {
            continue;
        }
        const int64_t stride = axes->stride[i][inner];
        uint64_t bits = (uint64_t)(uintptr_t)t->data + (uint64_t)head * size_of(t);
        for (int32_t axis = 0; axis < inner; axis++) {
            bits |= (uint64_t)axes->stride[i][axis] * size_of(t);
        }
        problem->layout[i] = stride == 1   ? GK_LAYOUT_ROW
                             : stride == 0 ? GK_LAYOUT_REPEAT
                                           : GK_LAYOUT_STRIDED;
        problem->align[i] = (uint8_t)(stride == 1 ? alignment(bits) : size_of(t));
    }
}
