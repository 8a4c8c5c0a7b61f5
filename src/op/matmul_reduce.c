/* Smaller problems that stand for a large one. */
#include <math.h>

#include "op/matmul_parts.h"

/*
 * A size up to the limit that is no multiple of usual tiles but has the call's remainder modulo 16
 * (variants specialise their code by it), or the whole size. Never 1 for a longer axis, so that its
 * stride keeps its meaning; above the limit where that is below 16.
 */
static int64_t ragged(int64_t size, int64_t limit)
{
    if (size <= limit) {
        return size;
    }
    const int64_t rest = size % 16;
    int64_t small = limit - (limit - rest + 16) % 16;
    if (small >= 32 && small / 16 % 2 == 0) {
        small -= 16;
    }
    if (small <= 0) {
        small = rest == 0 ? 16 : rest;
    }
    return small == 1 ? 17 : small;
}

/* Sizes with 2 M N K up to max_flops: M and N alike and K a third of them, where the call's sizes
 * are large enough; what short axes leave goes to the others, but a K below 50 makes C no larger:
 * each element of it takes the host some time to check. */
static void shrink(const int64_t *dims, double max_flops, int64_t *small)
{
    bool done[MATMUL_N_DIMS] = {false, false, false};
    const double weight[MATMUL_N_DIMS] = {1, 1, dims[MATMUL_K] > 0 ? 3 : 1};
    const double least = fmax((double)dims[MATMUL_K], 1);
    double budget = fmin(max_flops / 2, max_flops / 100 * least) * weight[MATMUL_K];
    for (int left = MATMUL_N_DIMS; left > 0; left--) {
        int next = -1;
        for (int i = 0; i < MATMUL_N_DIMS; i++) {
            if (!done[i] &&
                (next < 0 || (double)dims[i] * weight[i] < (double)dims[next] * weight[next])) {
                next = i;
            }
        }
        const double share = left == 1 ? budget : left == 2 ? sqrt(budget) : cbrt(budget);
        small[next] = ragged(dims[next], (int64_t)fmin(share / weight[next], 0x1p40));
        budget /= small[next] > 0 ? (double)small[next] * weight[next] : 1;
        done[next] = true;
    }
}

static void copy_call(const gk_call *call, gk_tensor *tensors, gk_call *out)
{
    *out = *call;
    for (int i = 0; i < MATMUL_N_ARGS; i++) {
        if (call->args[i] != NULL) {
            tensors[i] = *call->args[i];
            out->args[i] = &tensors[i];
        }
    }
}

static void set_sizes(gk_tensor *tensors, const gk_call *call, int64_t m, int64_t n, int64_t k)
{
    tensors[MATMUL_A].shape[0] = tensors[MATMUL_C].shape[0] = m;
    tensors[MATMUL_B].shape[1] = tensors[MATMUL_C].shape[1] = n;
    tensors[MATMUL_A].shape[1] = tensors[MATMUL_B].shape[0] = k;
    if (call->args[MATMUL_BIAS] != NULL) {
        tensors[MATMUL_BIAS].shape[0] = n;
    }
    if (call->args[MATMUL_RESIDUAL] != NULL) {
        tensors[MATMUL_RESIDUAL].shape[0] = m;
        tensors[MATMUL_RESIDUAL].shape[1] = n;
    }
}

/* Strides stay as they are: the smaller matrices are top-left blocks of the call's. */
bool gki_matmul_reduce(const gk_call *call, int64_t max_flops, gk_tensor *tensors, gk_call *out)
{
    const gk_tensor *a = call->args[MATMUL_A];
    const gk_tensor *c = call->args[MATMUL_C];
    const int64_t dims[MATMUL_N_DIMS] = {c->shape[0], c->shape[1], a->shape[1]};
    int64_t small[MATMUL_N_DIMS] = {0, 0, 0};
    shrink(dims, (double)max_flops, small);
    copy_call(call, tensors, out);
    set_sizes(tensors, call, small[MATMUL_M], small[MATMUL_N], small[MATMUL_K]);
    for (int i = 0; i < MATMUL_N_ARGS; i++) {
        if (call->args[i] != NULL) {
            tensors[i].data = NULL;
        }
    }
    return true;
}

static void advance(gk_tensor *t, int64_t elements)
{
    if (t->data != NULL) {
        t->data = (unsigned char *)t->data + elements * (int64_t)gk_dtype_size((gk_dtype)t->dtype);
    }
}

/* Where a block of `length` of `size` begins: first, last, then anywhere. */
static int64_t begin(uint32_t index, uint64_t salt, int64_t size, int64_t length)
{
    const int64_t last = size - length;
    if (index < 2) {
        return index == 0 ? 0 : last;
    }
    uint64_t x = (index + salt) * 0x9e3779b97f4a7c15u;
    x ^= x >> 31;
    x *= 0xbf58476d1ce4e5b9u;
    x ^= x >> 29;
    return (int64_t)(x % ((uint64_t)last + 1));
}

/* Blocks of C, square where C is not narrow, over the whole of K. */
bool gki_matmul_part(const gk_call *call, uint32_t index, int64_t max_flops, gk_tensor *tensors,
                     gk_call *out)
{
    enum { PARTS = 8 };
    static const double MOST = 0x1p16; /* elements of C: each takes the host some time to check */
    const int64_t m = call->args[MATMUL_C]->shape[0];
    const int64_t n = call->args[MATMUL_C]->shape[1];
    const int64_t k = call->args[MATMUL_A]->shape[1];
    if (index >= PARTS || m == 0 || n == 0) {
        return false;
    }
    const double elements = fmin((double)max_flops / 2 / (k > 0 ? (double)k : 1), MOST);
    const double side = fmax(1, sqrt(elements));
    const int64_t part_m = (int64_t)fmin((double)m, fmax(side, elements / (double)n));
    const int64_t part_n = (int64_t)fmin((double)n, fmax(1, elements / (double)part_m));
    if (index > 0 && part_m == m && part_n == n) {
        return false;
    }
    const int64_t row = begin(index, 1, m, part_m);
    const int64_t col = begin(index, 1000, n, part_n);
    copy_call(call, tensors, out);
    set_sizes(tensors, call, part_m, part_n, k);
    advance(&tensors[MATMUL_A], row * tensors[MATMUL_A].stride[0]);
    advance(&tensors[MATMUL_B], col * tensors[MATMUL_B].stride[1]);
    for (int i = MATMUL_C; i < MATMUL_N_ARGS; i++) {
        if (call->args[i] != NULL) {
            advance(&tensors[i], i == MATMUL_BIAS
                                     ? col * tensors[i].stride[0]
                                     : row * tensors[i].stride[0] + col * tensors[i].stride[1]);
        }
    }
    return true;
}
