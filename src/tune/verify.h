/* Is what a candidate wrote right, in its place, and the same every time? */
#ifndef GKI_VERIFY_H
#define GKI_VERIFY_H

#include "tune/operands.h"

/* Statuses of trials, as they are stored. */
#define GKI_TRIAL_OK               "ok"
#define GKI_TRIAL_DROPPED          "dropped" /* too slow to be measured further */
#define GKI_TRIAL_COMPILE_ERROR    "compile_error"
#define GKI_TRIAL_SPILLS           "spills"
#define GKI_TRIAL_SERIALIZED       "serialized"  /* ptxas gave up overlapping wgmma */
#define GKI_TRIAL_NO_RESOURCE      "no_resource" /* registers, shared memory, workspace */
#define GKI_TRIAL_LAUNCH_ERROR     "launch_error"
#define GKI_TRIAL_WRONG            "wrong"
#define GKI_TRIAL_OOB              "oob" /* wrote outside its output */
#define GKI_TRIAL_NONDETERMINISTIC "nondeterministic"

typedef struct gki_verdict {
    const char *status; /* GKI_TRIAL_OK, _WRONG, _OOB or _NONDETERMINISTIC */
    double max_error;   /* in units of the tolerance; above 1 is wrong */
    char why[256];      /* "" if it is right */
} gki_verdict;

/*
 * The right values, from the op's reference on the host: of the whole output where that is small,
 * else of the op's parts; of nothing if the op cannot give parts, then only guards and repetition
 * are looked at.
 */
typedef struct gki_verifier gki_verifier;

gk_status gki_verifier_create(gki_verifier **out, gki_operands *operands);
void gki_verifier_destroy(gki_verifier **verifier);

/* True if gki_verifier_check looks at every element of the output. */
bool gki_verifier_is_exhaustive(const gki_verifier *verifier);
/* True if gki_verifier_create would give an exhaustive one. */
bool gki_verifier_fits(const gk_op_desc *op, const gk_call *call, const gk_problem *problem);

/*
 * After a run on copy 0, poisoned before. repeat: the run was the second one of the candidate whose
 * first was checked last, with the same `deep`, poisoned again, and must have given the same bits.
 * deep: where parts are compared, look at the rest of the output, too: that it is twice the same,
 * and so was written. A failure is trouble with the device or with memory; what the candidate did
 * is in *verdict.
 */
gk_status gki_verifier_check(gki_verifier *verifier, bool repeat, bool deep, gki_verdict *verdict);

#endif
