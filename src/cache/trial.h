#ifndef GKI_CACHE_TRIAL_H
#define GKI_CACHE_TRIAL_H

#include "cache/store.h"

/* Within a transaction that has added the key. Returns SQLITE_DONE or an error. */
int gki_trials_write(gki_store *store, const gki_key *key, const gk_trial *trials,
                     uint32_t n_trials, int64_t now);

#endif
