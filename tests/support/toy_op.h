/* An op without mathematics, for tests of the jit: two variants of one small template. */
#ifndef TOY_OP_H
#define TOY_OP_H

#include <gk/extend.h>

enum { TOY_X, TOY_BIAS, TOY_OUT, TOY_N_ARGS };
enum { TOY_ACTIVATION, TOY_ALPHA, TOY_FLAG, TOY_N_ATTRS };
enum { TOY_BLOCK_M, TOY_BLOCK_K, TOY_SPLIT, TOY_N_PARAMS };

extern const gk_variant toy_plain; /* "plain": toy.cu; BLOCK_M, BLOCK_K, SPLIT (at launch) */
extern const gk_variant toy_wide;  /* "wide": toy_wide.cu; compute capability 9.0; no label */
extern const gk_op_desc toy_op;

/* What both variants' launch() gives and check() says; tests may change them. */
extern gk_launch toy_launch;
extern bool toy_fits;

/* toy_launch and toy_fits as they are at first. */
void toy_reset(void);

/* M=64 N=48, x f32.row.16, no bias, out f16.col.8, relu. */
gk_problem toy_problem(void);
gk_config toy_config(int32_t block_m, int32_t block_k, int32_t split);

/* Writes toy.cu, toy_wide.cu, gk/prelude.cuh and gk/dtypes.cuh into a directory of the running
 * test and points GK_TEMPLATE_DIR at it. */
void toy_templates(void);
/* Replaces or adds one file there; the directories exist: "", "gk/", "emu/". */
void toy_template(const char *name, const char *text);

#endif
