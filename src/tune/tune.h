/* Choosing a configuration: by the analytic model, or by measurement. Knows ops only through
 * their public descriptors. */
#ifndef GKI_TUNE_H
#define GKI_TUNE_H

#include "jit/jit.h"

/* One configuration of one variant. */
typedef struct gki_candidate {
    const gk_variant *variant;
    gk_config config;
    double predicted; /* seconds, by the model; INFINITY where it gives nothing usable */
} gki_candidate;

/* All configurations that serve the problem, best prediction first; equal predictions by
 * the variant's name and ascending values. `only` NULL = every variant. Of spaces above
 * GKI_SPACE_MAX the best predictions are kept. *out is freed with gki_free; *count may come out 0.
 * *total, which may be NULL: before checking. */
enum { GKI_SPACE_MAX = 200000 };
gk_status gki_space(const gk_op_desc *op, const gk_problem *problem, const gk_device_info *device,
                    const char *only, gki_candidate **out, uint32_t *count, uint64_t *total);

/* The model's favourite: what gki_space puts first. GK_ERR_NO_CONFIG, naming the last reason, if
 * nothing fits. */
gk_status gki_guess(const gk_op_desc *op, const gk_problem *problem, const gk_device_info *device,
                    gki_candidate *out);

/*
 * Measures candidates for the problem and publishes the winner. The call gives shapes, strides and
 * alignments; its memory is not touched. A stored answer that can be used is returned instead
 * unless options->retune. options and report may be NULL. The caller holds the key's lease and
 * lets nobody else of the process measure meanwhile.
 *
 * If the budget, or the caller, ended it before two candidates were timed, the one that was is the
 * winner, but no answer is stored.
 *
 * Errors: GK_ERR_NO_CONFIG, naming the last reason, if no candidate compiled, launched and gave
 * right results; GK_ERR_NO_COMPILER, GK_ERR_LOST, GK_ERR_NOMEM, GK_ERR_CANCELLED. Then no answer
 * is stored.
 */
gk_status gki_tune(gki_jit *jit, const gk_op_desc *op, const gk_call *call,
                   const gk_problem *problem, const gk_tune_options *options, gki_candidate *winner,
                   gk_tune_report *report);

#endif
