/* c = a + b, whose kernels can be told to misbehave: for tests of the tuner on the fake driver. */
#ifndef ADD_OP_H
#define ADD_OP_H

#include <gk/extend.h>

#include "support/fake_driver.h"

enum { ADD_N = 1000 };

/* One variant "plain": BLOCK 16, 32, 64, 128, 256 (in the name as x16 ..) and SPAN 1, 2 at launch;
 * the model likes small blocks and small spans. A second, "wide": BLOCK 512 (x512), 1.5 times the
 * prediction of the best. */
extern gk_op_desc add_op; /* tests may change it: add_op_reset() */
extern const gk_variant add_plain;
extern const gk_variant add_wide;

/* What kernels do; the first whose `match` is part of the kernel's name. Ends with match NULL. */
typedef enum add_fault {
    ADD_RIGHT,
    ADD_FIRST_HALF, /* leaves the rest alone */
    ADD_SECOND_HALF,
    ADD_NOTHING,
    ADD_WRONG,       /* one element */
    ADD_BEFORE,      /* writes a byte in front of c */
    ADD_BEHIND,      /* and behind */
    ADD_TO_INPUT,    /* changes b */
    ADD_UNSTABLE,    /* other bits each time, within the tolerance */
    ADD_TWICE,       /* c += a + b where c was written before: right only on a fresh output */
    ADD_DIRTY,       /* leaves its zeroed memory dirty */
    ADD_SCRATCH,     /* writes behind its workspace */
    ADD_NEEDS_CLEAN, /* right only if the workspace holds zeros */
} add_fault;

typedef struct add_script {
    const char *match;
    add_fault fault;
} add_script;

extern const add_script *add_scripts;
extern int64_t add_workspace; /* what launch() of every configuration asks for */
extern int64_t add_zeroed;
extern bool add_reads_output; /* then c = a + b + c */
extern bool add_has_reduce;   /* add_op_reset(): work() claims so much that it is needed */

void add_op_reset(void);
/* fake_device.run */
gk_status add_run(void *user, const fake_module *module, const gki_kernel_launch *launch);
/* The call on these vectors of n floats. */
gk_call add_call(gk_tensor tensors[3], float *a, float *b, float *c, int64_t n);
/* Needs gk_test.h's directory; points GK_TEMPLATE_DIR at it. */
void add_templates(void);

#endif
