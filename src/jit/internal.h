/* What the files of src/jit share. */
#ifndef GKI_JIT_INTERNAL_H
#define GKI_JIT_INTERNAL_H

#include <pthread.h>

#include "jit/jit.h"
#include "jit/template.h"

enum { GKI_KERNEL_BUCKETS = 1024 };

/* A variant's text around the constants. Never changes once it is listed. */
typedef struct gki_source {
    struct gki_source *next;
    const char *file; /* borrowed from the variant */
    char *head;       /* prelude and types */
    char *body;       /* the template */
    char hash[65];    /* of both */
} gki_source;

/* The hash of an op's templates. */
typedef struct gki_op_hash {
    struct gki_op_hash *next;
    const gk_op_desc *op;
    char hex[17];
} gki_op_hash;

struct gki_jit {
    gki_jit_options options;
    gk_device_info info;
    pthread_mutex_t mutex; /* guards the hashes and every insertion */
    /* Lists that are read without the lock: entries are added in front and never removed. */
    _Atomic(gki_source *) sources;
    gki_op_hash *hashes;
    _Atomic(struct gki_entry *) buckets[GKI_KERNEL_BUCKETS]; /* by digest */
};

/* Reads and expands the variant's template, once. */
gk_status gki_jit_source(gki_jit *jit, const gk_variant *variant, const gki_source **out);

/* True if every value of the configuration is one of its param's; else the reason. */
bool gki_config_is_listed(const gk_variant *variant, const gk_config *config, gk_reason *reason);

void gki_kernels_destroy(gki_jit *jit);

#endif
