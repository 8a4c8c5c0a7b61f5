/*
 * The store of answers, trials, compiled kernels, leases and misses. A SQLite file, or a private
 * in-memory database where the file cannot be used: then a warning is logged once and everything
 * works for this process. No function fails a computation: GK_ERR_NOT_FOUND stands for "not
 * there", and any trouble with the file counts as that, is counted, and degrades to memory.
 * Thread-safe; a connection is never used across fork.
 */
#ifndef GKI_CACHE_H
#define GKI_CACHE_H

#include <gk/tune.h>

#include "base/hash.h"
#include "base/log.h"

typedef struct gki_cache gki_cache;

/* The default location: $GK_CACHE, $XDG_CACHE_HOME/gk/gk.db (absolute only), $HOME/.cache/gk/gk.db,
 * the passwd entry's home, else "" for memory. Writes the path. */
void gki_cache_default_path(char *out, size_t size);

/* path NULL = the default location, ":memory:" or "" = memory. Fails with GK_ERR_NOMEM only. */
gk_status gki_cache_open(gki_cache **out, const char *path, uint64_t kernel_bytes,
                         const gki_log *log);
void gki_cache_close(gki_cache **cache);

/* Where it is stored ("" = memory), why the file is not used ("" = it is), failures so far. */
void gki_cache_state(gki_cache *cache, char *path, size_t path_size, char *degraded,
                     size_t degraded_size, uint64_t *errors);

/* The identity of an answer. Texts are canonical: equal bytes = equal identity. */
typedef struct gki_key {
    const char *op;          /* "matmul" */
    const char *problem;     /* revision, dims, dtypes, layouts, alignments, attributes */
    const char *environment; /* device properties, compiler, template hash, protocol, gk version */
} gki_key;

typedef struct gki_choice {
    char variant[32];
    char config[256];
    double seconds;
    double spread;
    int64_t created;
} gki_choice;

gk_status gki_cache_choice_get(gki_cache *cache, const gki_key *key, gki_choice *out);
/* Any environment's answer for the problem, the latest; a seed, not an answer. */
gk_status gki_cache_choice_seed(gki_cache *cache, const gki_key *key, gki_choice *out);
/* Publishes the choice with its trials in one transaction. replace: over an existing choice;
 * otherwise an existing one is kept and copied to *choice. *saved: it is in the file. */
gk_status gki_cache_publish(gki_cache *cache, const gki_key *key, gki_choice *choice,
                            const gk_trial *trials, uint32_t n_trials, bool replace, bool *saved);
/* Whether the file, and not memory alone, holds this very answer. */
bool gki_cache_choice_is_saved(gki_cache *cache, const gki_key *key, const gki_choice *choice);
/* Drops an answer that proved unusable. */
void gki_cache_choice_drop(gki_cache *cache, const gki_key *key);
/* Trials without a choice (an interrupted tuning). */
void gki_cache_trials_put(gki_cache *cache, const gki_key *key, const gk_trial *trials,
                          uint32_t n_trials);
gk_status gki_cache_trials(gki_cache *cache, const gki_key *key, gk_trial_fn fn, void *user);

/* Lists answers; `current` is left false. environment NULL = all. */
gk_status gki_cache_choices(gki_cache *cache, const char *op, gk_cache_entry_fn fn, void *user);

/* Compiled code by the digest of everything that went into it. */
typedef struct gki_kernel_record {
    unsigned char *code; /* gki_free */
    size_t size;
    int32_t registers; /* this and the next two: -1 = unknown */
    int32_t spill_bytes;
    int32_t stack_bytes;
    bool serialized;
} gki_kernel_record;

/* The stored digest of the code is compared on read: a damaged row is dropped and not found. */
gk_status gki_cache_kernel_get(gki_cache *cache, const gki_digest *key, gki_kernel_record *out);
void gki_cache_kernel_put(gki_cache *cache, const gki_digest *key, const char *name,
                          const gki_kernel_record *record);

/* One tuner a key among processes. True if this process holds the lease now; it lasts `seconds`
 * unless renewed by another call. In memory always true. */
bool gki_cache_lease(gki_cache *cache, const gki_key *key, double seconds);
void gki_cache_lease_end(gki_cache *cache, const gki_key *key);

void gki_cache_miss(gki_cache *cache, const gki_key *key);
gk_status gki_cache_misses(gki_cache *cache, gk_miss_fn fn, void *user);

/* See gk_cache_export and gk_cache_import. */
gk_status gki_cache_export(gki_cache *cache, const char *path, uint32_t *count);
gk_status gki_cache_import(gki_cache *cache, const char *path, bool replace, uint32_t *imported,
                           uint32_t *skipped);

#endif
