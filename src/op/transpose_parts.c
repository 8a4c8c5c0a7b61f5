/* Tensors for a case, the reference, and smaller problems that stand for a large one. */
#include <math.h>
#include <string.h>

#include "base/numeric.h"
#include "op/transpose.h"

static const char WHERE[] = "transpose";

/* Rows of `cols` elements (or, col_major, columns of `rows`) `pad` elements apart. */
static void place(gk_tensor *t, gk_dtype dtype, const int64_t *sizes, bool col_major, int64_t pad)
{
    memset(t, 0, sizeof(*t));
    const int64_t rows = sizes[0];
    const int64_t cols = sizes[1];
    const int64_t leading = (col_major ? rows : cols) + pad;
    const bool batched = sizes[2] != 1;
    const int last = batched ? 2 : 1;
    t->dtype = dtype;
    t->rank = last + 1;
    t->shape[last - 1] = rows;
    t->shape[last] = cols;
    t->stride[last - 1] = col_major ? 1 : leading;
    t->stride[last] = col_major ? leading : 1;
    if (batched) {
        t->shape[0] = sizes[2];
        t->stride[0] = leading * (col_major ? cols : rows);
    }
}

static bool fits(const gk_case *item, gk_dtype dtype)
{
    const int64_t *d = item->dims;
    int64_t total = (int64_t)gk_dtype_size(dtype);
    for (int i = 0; i < TRANSPOSE_N_DIMS; i++) {
        int64_t padded;
        if (__builtin_add_overflow(d[i] > 0 ? d[i] : 1, item->pad, &padded) ||
            __builtin_mul_overflow(total, padded, &total)) {
            return false;
        }
    }
    return true;
}

/* The layout's letters are x and out: n row-major, t column-major. */
gk_status gki_transpose_example(const gk_case *item, gk_tensor *tensors, gk_call *call)
{
    static const char *const names[] = {"M", "N", "B"};
    const char *layout = item->layout != NULL ? item->layout : "nn";
    const gk_dtype dtype = item->dtype != NULL ? gk_dtype_parse(item->dtype) : GK_DTYPE_NONE;
    if (dtype == GK_DTYPE_NONE) {
        return gk_fail(GK_ERR_INVALID, WHERE, "dtype '%s' is unknown",
                       item->dtype != NULL ? item->dtype : "");
    }
    if (strlen(layout) != 2 || strspn(layout, "nt") != 2) {
        return gk_fail(GK_ERR_INVALID, WHERE, "layout '%s' is unknown, must be nn, nt, tn or tt",
                       layout);
    }
    for (int i = 0; i < TRANSPOSE_N_DIMS; i++) {
        if (item->dims[i] < 0) {
            return gk_fail(GK_ERR_INVALID, WHERE, "%s is %lld, must not be negative", names[i],
                           (long long)item->dims[i]);
        }
    }
    if (item->pad < 0) {
        return gk_fail(GK_ERR_INVALID, WHERE, "pad is %lld, must not be negative",
                       (long long)item->pad);
    }
    if (!fits(item, dtype)) {
        return gk_fail(GK_ERR_INVALID, WHERE, "%lld x %lld x %lld does not fit in 63 bits",
                       (long long)item->dims[0], (long long)item->dims[1],
                       (long long)item->dims[2]);
    }
    const int64_t *d = item->dims;
    const int64_t turned[TRANSPOSE_N_DIMS] = {d[TRANSPOSE_N], d[TRANSPOSE_M], d[TRANSPOSE_B]};
    place(&tensors[TRANSPOSE_X], dtype, d, layout[0] == 't', item->pad);
    place(&tensors[TRANSPOSE_OUT], dtype, turned, layout[1] == 't', item->pad);
    memset(call->args, 0, sizeof(call->args));
    call->args[TRANSPOSE_X] = &tensors[TRANSPOSE_X];
    call->args[TRANSPOSE_OUT] = &tensors[TRANSPOSE_OUT];
    return GK_OK;
}

void gki_transpose_reference(const gk_call *call, const gk_problem *problem, double *out,
                             double *scale)
{
    const gk_tensor *x = call->args[TRANSPOSE_X];
    const int last = x->rank - 1;
    const int64_t *d = problem->dims;
    int64_t at = 0;
    for (int64_t b = 0; b < d[TRANSPOSE_B]; b++) {
        const int64_t base = x->rank == 3 ? b * x->stride[0] : 0;
        for (int64_t j = 0; j < d[TRANSPOSE_N]; j++) {
            for (int64_t i = 0; i < d[TRANSPOSE_M]; i++, at++) {
                const int64_t from = base + i * x->stride[last - 1] + j * x->stride[last];
                out[at] = gki_numeric_get((gk_dtype)x->dtype, x->data, from);
                if (scale != NULL) {
                    scale[at] = 1;
                }
            }
        }
    }
}

static void copy_call(const gk_call *call, gk_tensor *tensors, gk_call *out)
{
    *out = *call;
    for (int i = 0; i < TRANSPOSE_N_ARGS; i++) {
        tensors[i] = *call->args[i];
        out->args[i] = &tensors[i];
    }
}

static void set_sizes(gk_tensor *tensors, int64_t m, int64_t n, int64_t b)
{
    const int last = tensors[TRANSPOSE_X].rank - 1;
    tensors[TRANSPOSE_X].shape[last - 1] = tensors[TRANSPOSE_OUT].shape[last] = m;
    tensors[TRANSPOSE_X].shape[last] = tensors[TRANSPOSE_OUT].shape[last - 1] = n;
    if (last == 2) {
        tensors[TRANSPOSE_X].shape[0] = tensors[TRANSPOSE_OUT].shape[0] = b;
    }
}

/* Up to the limit. Where it is cut, it is an odd number of `unit` elements if the whole size is a
 * multiple of them, else odd; never 1 for a longer axis, whose stride means something. */
static int64_t cut(int64_t size, double limit, int64_t unit)
{
    if ((double)size <= limit) {
        return size;
    }
    if (unit > 1 && size % unit == 0 && limit >= (double)unit) {
        return (((int64_t)limit / unit - 1) | 1) * unit;
    }
    const int64_t odd = ((int64_t)limit - 1) | 1;
    return odd > 3 ? odd : 3 < size ? 3 : size;
}

/* Makes the tensor a run again: its contiguous axis, the other one, the batch. */
static void pack_run(gk_tensor *t, bool col_major)
{
    const int fast = col_major ? t->rank - 2 : t->rank - 1;
    const int slow = col_major ? t->rank - 1 : t->rank - 2;
    t->stride[fast] = 1;
    t->stride[slow] = t->shape[fast];
    if (t->rank == 3) {
        t->stride[0] = t->shape[fast] * t->shape[slow];
    }
}

/* Top-left blocks of the call's matrices, with its strides unless they lie in one run. */
bool gki_transpose_reduce(const gk_call *call, int64_t max_flops, gk_tensor *tensors, gk_call *out)
{
    const gk_tensor *x = call->args[TRANSPOSE_X];
    const int last = x->rank - 1;
    const int64_t m = x->shape[last - 1];
    const int64_t n = x->shape[last];
    /* Elements of 16 bytes: what lines are made of where tensor maps can describe them. */
    const int64_t unit = 16 / (int64_t)gk_dtype_size((gk_dtype)x->dtype);
    const int64_t b = last == 2 ? cut(x->shape[0], 2, 1) : 1;
    const double elements = fmin((double)max_flops / 8, 0x1p20) / (double)(b > 0 ? b : 1);
    const double side = fmax(sqrt(elements), 3);
    int64_t small_m = cut(m, fmax(side, elements / (double)(n > 0 ? n : 1)), unit);
    int64_t small_n = cut(n, fmax(3, elements / (double)(small_m > 0 ? small_m : 1)), unit);
    gk_problem problem;
    memset(&problem, 0, sizeof(problem));
    copy_call(call, tensors, out);
    if (gki_transpose_infer(call, &problem) != GK_OK) {
        return false;
    }
    set_sizes(tensors, small_m, small_n, b);
    if (problem.layout[TRANSPOSE_X] == TRANSPOSE_FLAT) {
        const bool col_major = m > 1 && (n <= 1 || x->stride[last] != 1);
        pack_run(&tensors[TRANSPOSE_X], col_major);
        pack_run(&tensors[TRANSPOSE_OUT], !col_major);
    }
    tensors[TRANSPOSE_X].data = tensors[TRANSPOSE_OUT].data = NULL;
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

/* Blocks of one matrix, square where it is not narrow. */
bool gki_transpose_part(const gk_call *call, uint32_t index, int64_t max_flops, gk_tensor *tensors,
                        gk_call *out)
{
    enum { PARTS = 8 };
    const gk_tensor *x = call->args[TRANSPOSE_X];
    const int last = x->rank - 1;
    const int64_t m = x->shape[last - 1];
    const int64_t n = x->shape[last];
    const int64_t b = last == 2 ? x->shape[0] : 1;
    if (index >= PARTS || m == 0 || n == 0 || b == 0) {
        return false;
    }
    const double elements = fmin((double)max_flops / 8, 0x1p17);
    const double side = fmax(1, sqrt(elements));
    const int64_t part_m = (int64_t)fmin((double)m, fmax(side, elements / (double)n));
    const int64_t part_n = (int64_t)fmin((double)n, fmax(1, elements / (double)part_m));
    if (index > 0 && part_m == m && part_n == n && b == 1) {
        return false;
    }
    const int64_t row = begin(index, 1, m, part_m);
    const int64_t col = begin(index, 1000, n, part_n);
    const int64_t batch = begin(index, 100000, b, 1);
    copy_call(call, tensors, out);
    set_sizes(tensors, part_m, part_n, 1);
    for (int i = 0; i < TRANSPOSE_N_ARGS; i++) {
        gk_tensor *t = &tensors[i];
        const int m_axis = i == TRANSPOSE_X ? last - 1 : last;
        const int n_axis = i == TRANSPOSE_X ? last : last - 1;
        advance(t, row * t->stride[m_axis] + col * t->stride[n_axis] +
                       (last == 2 ? batch * t->stride[0] : 0));
    }
    return true;
}
