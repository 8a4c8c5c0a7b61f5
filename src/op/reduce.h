/* What the reduce op's files share. */
#ifndef GKI_REDUCE_H
#define GKI_REDUCE_H

#include <gk/extend.h>
#include <gk/reduce_args.h>

enum { REDUCE_X, REDUCE_OUT, REDUCE_N_ARGS };
/*
 * How x is seen: OUTER x AXIS x INNER, where INNER is the innermost axis that stays if the elements
 * of x adjoin along it, and 1 otherwise. x's layout is GK_LAYOUT_ROW if they adjoin along the one
 * axis that goes, GK_LAYOUT_COL if across it, GK_LAYOUT_STRIDED else.
 */
enum { REDUCE_OUTER, REDUCE_AXIS, REDUCE_INNER, REDUCE_N_DIMS };
enum { REDUCE_ATTR_OP, REDUCE_ATTR_AXIS, REDUCE_ATTR_KEEPDIM, REDUCE_N_ATTRS };

extern const gk_op_desc gki_op_reduce;
extern const gk_variant gki_reduce_strided;
extern const gk_variant gki_reduce_rows;
extern const gk_variant gki_reduce_columns;

/* reduce_infer.c */
gk_status gki_reduce_infer(const gk_call *call, gk_problem *problem);

/* reduce_view.c */

/* The axis of x that goes, -1 if all do. */
int gki_reduce_axis(const gk_call *call);

/* out's axis for an axis of x that stays. */
int gki_reduce_out_axis(const gk_call *call, int axis);

/* Everything but memory: the axes sorted and merged. The call is valid but for what pointers say.
 */
void gki_reduce_view(const gk_call *call, gk_reduce_args *out);

size_t gki_reduce_pack(const gk_call *call, const gk_problem *problem, const gk_variant *variant,
                       const gk_config *config, void *workspace, void *zeroed, void *out);

/* reduce_shared.c */

static inline int64_t gki_reduce_ceil_div(int64_t a, int64_t b)
{
    return a / b + (a % b != 0);
}

/* X_TYPE, OUT_TYPE, X_ALIGN, REDUCTION and the tag: the same for every variant. */
void gki_reduce_constants(const gk_problem *problem, gk_constants *out);

/* Bytes of what a thread keeps of the elements it has seen; the template's `state`. */
int64_t gki_reduce_state_bytes(const gk_problem *problem);

int64_t gki_reduce_outputs(const gk_problem *problem);

/* Blocks that share a tile, so that there are `waves` blocks a multiprocessor; at most one a step.
 * waves 0: 1. */
int64_t gki_reduce_splits(const gk_device_info *device, int64_t tiles, int64_t steps,
                          int64_t waves);

/* Writes the grid and the scratch memory of tiles with so many outputs. */
void gki_reduce_grid(const gk_problem *problem, int64_t tiles, int64_t splits, int64_t tile_outputs,
                     gk_launch *out);

/* Why splitting is of no use; false with the reason. */
bool gki_reduce_check_splits(int64_t splits, int64_t waves, const gk_launch *launch,
                             gk_reason *reason);

/* What a launch costs, for the models. */
typedef struct gki_reduce_cost {
    double blocks;
    double threads;   /* of a block */
    double registers; /* of a thread */
    double in_flight; /* bytes that a thread asks for before it waits */
    double loops;     /* how often it does */
    double wasted;    /* bytes moved for each byte needed */
    double after;     /* seconds at the end of each block */
    bool split;
} gki_reduce_cost;

double gki_reduce_seconds(const gk_problem *problem, const gk_device_info *device,
                          const gki_reduce_cost *cost);

/* reduce_reference.c */
void gki_reduce_reference(const gk_call *call, const gk_problem *problem, double *out,
                          double *scale);
gk_tolerance gki_reduce_tolerance(const gk_problem *problem);

/* reduce_example.c */
gk_status gki_reduce_example(const gk_case *item, gk_tensor *tensors, gk_call *call);
enum { GKI_REDUCE_CASES = 39 };
extern const gk_case gki_reduce_cases[GKI_REDUCE_CASES];

/* reduce_parts.c */
bool gki_reduce_reduce(const gk_call *call, int64_t max_flops, gk_tensor *tensors, gk_call *out);
bool gki_reduce_part(const gk_call *call, uint32_t index, int64_t max_flops, gk_tensor *tensors,
                     gk_call *out);

#endif
