/* The map op's own pieces: out = an expression of x0 .. x4, element by element. */
#ifndef GKI_MAP_H
#define GKI_MAP_H

#include <gk/extend.h>

#include "op/map_expression.h"

enum { MAP_X0 = 0, MAP_OUT = MAP_MAX_INPUTS, MAP_N_ARGS };

/*
 * Of axes without meaning (length 1, or one that goes on where its neighbour ends in every operand)
 * nothing is left, and out's smallest stride is innermost: N is the innermost axis, M the number of
 * its repetitions. M is 1 exactly if one axis, or none, is left.
 */
enum { MAP_M, MAP_N, MAP_N_DIMS };

/* The axes that are left, the innermost last; strides by argument. */
typedef struct map_axes {
    int32_t rank;
    int64_t shape[GK_MAX_RANK];
    int64_t stride[MAP_N_ARGS][GK_MAX_RANK];
} map_axes;

extern const gk_op_desc gki_op_map;
extern const gk_variant gki_map_vector;
extern const gk_variant gki_map_strided;

/* map_infer.c */
gk_status gki_map_infer(const gk_call *call, gk_problem *problem);

/* map_axes.c. The call's tensors are valid and have elements. */
void gki_map_axes(const gk_call *call, map_axes *out);
/* Elements before the first vector where all lies along one axis, chosen so that what follows is
 * aligned best; 0 if there are more axes. */
int64_t gki_map_head(const gk_call *call, const map_axes *axes);
/* Layout and alignment of each argument, behind the head. */
void gki_map_classify(const gk_call *call, const map_axes *axes, gk_problem *problem);

/* map_reference.c */
void gki_map_reference(const gk_call *call, const gk_problem *problem, double *out, double *scale);
gk_tolerance gki_map_tolerance(const gk_problem *problem);

/* map_example.c */
gk_status gki_map_example(const gk_case *item, gk_tensor *tensors, gk_call *call);
bool gki_map_reduce(const gk_call *call, int64_t max_flops, gk_tensor *tensors, gk_call *out);
bool gki_map_part(const gk_call *call, uint32_t index, int64_t max_flops, gk_tensor *tensors,
                  gk_call *out);

/* map_shared.c: what the variants share. */
size_t gki_map_pack(const gk_call *call, const gk_problem *problem, const gk_variant *variant,
                    const gk_config *config, void *workspace, void *zeroed, void *out);
void gki_map_constants(const gk_problem *problem, bool has_head, gk_constants *out);
void gki_map_work(const gk_problem *problem, double *flops, double *bytes);
/* The problem's expression, as precise as its result is; false if it has none. */
bool gki_map_read(const gk_problem *problem, map_expression *out);
/* Sums are of f64 if any operand is. */
bool gki_map_is_double(const gk_problem *problem);
/* The alignment that a kernel can rely on: its vectors begin at the first element, or with has_head
 * behind gki_map_head() elements. */
int64_t gki_map_align(const gk_problem *problem, int arg, bool has_head);
/* Bytes of the widest and of all elements, and of those that are read one by one. */
typedef struct map_sizes {
    int64_t widest;
    int64_t inputs; /* not counting repeated ones */
    int64_t out;
} map_sizes;
map_sizes gki_map_sizes(const gk_problem *problem);
/* Seconds that moving the problem's bytes takes at best. */
double gki_map_seconds(const gk_problem *problem, const gk_device_info *device);

/* map_cases.c */
enum { GKI_MAP_CASES = 24 };
extern const gk_case gki_map_cases[GKI_MAP_CASES];

#endif
