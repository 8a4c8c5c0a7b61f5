/* Operands that the wgmma variant copies into workspace before it multiplies. */
#include "op/matmul_wgmma.h"

#include <gk/base.h>

#include "op/matmul_parts.h"

static int64_t bytes_of(const gk_problem *problem)
{
    return (int64_t)gk_dtype_size((gk_dtype)problem->dtype[MATMUL_A]);
}

static bool k_major(const gk_problem *problem, int arg)
{
    return problem->layout[arg] == (arg == MATMUL_A ? GK_LAYOUT_ROW : GK_LAYOUT_COL);
}

gki_wgmma_form gki_wgmma_form_of(const gk_problem *problem, int arg, bool swap)
{
    const int64_t size = bytes_of(problem);
    const bool aligned = problem->align[arg] >= 16;
    const bool is_x = (arg == MATMUL_A) != swap;
    const bool along_k = size == 1 || (size == 4 && (!is_x || !aligned));
    if (!k_major(problem, arg) && along_k) {
        return WGMMA_TRANSPOSED;
    }
    return aligned ? WGMMA_AS_IT_IS : WGMMA_REPACKED;
}

/* The operand's rows in the sense of memory, after it was prepared, and elements of one. */
static void extent(const gk_problem *problem, int arg, gki_wgmma_form form, int64_t *rows,
                   int64_t *elements)
{
    const int64_t k = problem->dims[MATMUL_K];
    const int64_t other = problem->dims[arg == MATMUL_A ? MATMUL_M : MATMUL_N];
    const bool along_k = k_major(problem, arg) != (form == WGMMA_TRANSPOSED);
    *rows = along_k ? other : k;
    *elements = along_k ? k : other;
}

/* As prepared_pitch() of the template. */
static int64_t pitch(const gk_problem *problem, int64_t elements)
{
    return gki_ceil_div(elements * bytes_of(problem), 128) * 128;
}

int64_t gki_wgmma_prepared_bytes(const gk_problem *problem, int arg, bool swap)
{
    const gki_wgmma_form form = gki_wgmma_form_of(problem, arg, swap);
    int64_t rows;
    int64_t elements;
    if (form == WGMMA_AS_IT_IS) {
        return 0;
    }
    extent(problem, arg, form, &rows, &elements);
    return rows * pitch(problem, elements);
}

bool gki_wgmma_prepares(const gki_wgmma_shape *s)
{
    return s->a_form != WGMMA_AS_IT_IS || s->b_form != WGMMA_AS_IT_IS;
}

bool gki_wgmma_check_prepared(const gk_problem *problem, bool swap, gk_reason *reason)
{
    static const int64_t MAX_BYTES = INT64_C(32) << 30; /* pieces of 16 are counted in 32 bits */
    for (int arg = MATMUL_A; arg <= MATMUL_B; arg++) {
        const int64_t bytes = gki_wgmma_prepared_bytes(problem, arg, swap);
        if (bytes > MAX_BYTES) {
            return gk_refuse(reason, "the copy of %s takes %lld bytes, at most %lld are spent",
                             arg == MATMUL_A ? "a" : "b", (long long)bytes, (long long)MAX_BYTES);
        }
    }
    return true;
}

void gki_wgmma_describe_prepared(const gk_problem *problem, int arg, gki_wgmma_form form,
                                 void *data, gk_map_desc *out)
{
    int64_t rows;
    int64_t elements;
    extent(problem, arg, form, &rows, &elements);
    out->data = data;
    out->dtype = problem->dtype[arg];
    out->rank = 2;
    out->dims[0] = elements;
    out->dims[1] = rows;
    out->strides[1] = pitch(problem, elements);
}

double gki_wgmma_prepare_seconds(const gk_problem *problem, double bandwidth, bool swap)
{
    static const double BARRIER = 2.79e-6; /* of the whole grid, and what cannot overlap */
    static const double SLOW_BYTES = 16e6; /* are copied at less than memory's speed */
    static const double SLOW_SHARE = 0.36; /* which takes so much longer */
    double bytes = 0;
    for (int arg = MATMUL_A; arg <= MATMUL_B; arg++) {
        bytes += (double)gki_wgmma_prepared_bytes(problem, arg, swap);
    }
    const double slow = bytes < SLOW_BYTES ? bytes : SLOW_BYTES;
    return bytes > 0 ? BARRIER + 2 * (bytes + SLOW_SHARE * slow) / bandwidth : 0;
}
