/* Which of a space's configurations are worth compiling. */
#ifndef GKI_SELECT_H
#define GKI_SELECT_H

#include "tune/tune.h"

typedef struct gki_selection_rules {
    uint32_t limit;       /* candidates; 0 = all */
    uint32_t kernels;     /* distinct codes among them */
    uint32_t per_kernel;  /* candidates of one code: launch-time params multiply a space */
    uint32_t per_variant; /* distinct codes of each variant, at least, where it has as many */
} gki_selection_rules;

gki_selection_rules gki_selection_for(gk_effort effort, bool emulated);

/*
 * space is sorted by prediction. picked[i], for each of its `count` candidates, comes in true where
 * it must be taken or false, and goes out true where it is taken; excluded[i] (may be NULL) keeps
 * it out. groups[i] becomes the same number for candidates that share their code.
 */
gk_status gki_select(const gki_candidate *space, uint32_t count, const gki_selection_rules *rules,
                     const bool *excluded, bool *picked, uint32_t *groups);

#endif
