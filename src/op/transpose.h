/* What the transpose op and its variants share. */
#ifndef GKI_TRANSPOSE_H
#define GKI_TRANSPOSE_H

#include <gk/extend.h>
#include <gk/transpose_args.h>

enum { TRANSPOSE_X, TRANSPOSE_OUT, TRANSPOSE_N_ARGS };
enum { TRANSPOSE_M, TRANSPOSE_N, TRANSPOSE_B, TRANSPOSE_N_DIMS }; /* of x: [B,] M, N */

/*
 * gk_problem.layout: which of the tensor's last two axes is contiguous, or nearest to it (ROW: the
 * last one). Flat: the elements of both tensors lie in the same order without gaps.
 */
enum {
    TRANSPOSE_ROW = GK_LAYOUT_ROW,
    TRANSPOSE_COL = GK_LAYOUT_COL,
    TRANSPOSE_FLAT = GK_LAYOUT_PACKED
};

/* The problem as the kernels see it: elements (b, r, c), where c counts along x's contiguous axis.
 * `copy`: out is contiguous along c, too; else along r. */
typedef struct gki_transpose_view {
    int64_t rows, cols, batches;
    int64_t size; /* bytes of an element */
    bool copy;
} gki_transpose_view;

gki_transpose_view gki_transpose_view_of(const gk_problem *problem);

/* Blocks of rows x cols tiles; at most INT64_MAX. */
int64_t gki_transpose_tiles(const gki_transpose_view *view, int64_t rows, int64_t cols);

static inline int64_t gki_transpose_ceil_div(int64_t a, int64_t b)
{
    return a / b + (a % b != 0);
}

/* SIZE, X_ALIGN, OUT_ALIGN, COPY, BATCHED and the tag. */
void gki_transpose_constants(const gk_problem *problem, gk_constants *out);

void gki_transpose_tag(const gki_transpose_view *view, gk_constants *out);

size_t gki_transpose_pack(const gk_call *call, const gk_problem *problem, const gk_variant *variant,
                          const gk_config *config, void *workspace, void *zeroed, void *out);

/* transpose_infer.c */
gk_status gki_transpose_infer(const gk_call *call, gk_problem *problem);

/* transpose_parts.c */
gk_status gki_transpose_example(const gk_case *item, gk_tensor *tensors, gk_call *call);
void gki_transpose_reference(const gk_call *call, const gk_problem *problem, double *out,
                             double *scale);
bool gki_transpose_reduce(const gk_call *call, int64_t max_flops, gk_tensor *tensors, gk_call *out);
bool gki_transpose_part(const gk_call *call, uint32_t index, int64_t max_flops, gk_tensor *tensors,
                        gk_call *out);

extern const gk_variant gki_transpose_tile;
extern const gk_variant gki_transpose_tma;
extern const gk_op_desc gki_op_transpose;

#endif
