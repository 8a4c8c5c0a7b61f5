/* Every configuration of an op that can serve a problem, ranked by the analytic model. */
#include "tune/tune.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"

typedef gk_status (*visit_fn)(void *user, const gki_candidate *candidate);

typedef struct walk {
    const gk_op_desc *op;
    const gk_problem *problem;
    const gk_device_info *device;
    const char *only;
    visit_fn visit;
    void *user;
    uint64_t total;
    const gk_variant *refused; /* the last refusal's, */
    gk_config refused_config;
} walk;

static gk_status visit_config(walk *w, const gk_variant *variant, const gk_config *config,
                              bool *served)
{
    *served = gki_config_serves(variant, w->problem, w->device, config, NULL);
    if (!*served) {
        w->refused = variant;
        w->refused_config = *config;
        return GK_OK;
    }
    gki_candidate candidate = {variant, *config, 0};
    candidate.predicted = variant->model(w->problem, w->device, config);
    if (!(candidate.predicted >= 0)) {
        candidate.predicted = INFINITY;
    }
    return w->visit(w->user, &candidate);
}

static gk_status walk_variant(walk *w, const gk_variant *variant)
{
    gki_config_walk at;
    uint64_t size = 1;
    gk_reason reason;
    if (!gki_variant_has_room(variant, &reason)) {
        return gk_fail(GK_ERR_INTERNAL, "tune", "%s", reason.text);
    }
    for (uint32_t i = 0; i < variant->n_params; i++) {
        size *= variant->params[i].n_values;
    }
    w->total += size;
    bool more = gki_config_first(&at, variant);
    if (more && variant->min_cc > w->device->cc) {
        w->refused = variant;
        w->refused_config = at.config;
        return GK_OK;
    }
    gk_status status = GK_OK;
    while (status == GK_OK && more) {
        bool served;
        status = visit_config(w, variant, &at.config, &served);
        more = gki_config_next(&at, served);
    }
    return status;
}

static gk_status walk_op(walk *w)
{
    if (w->only != NULL && gki_variant_find(w->op, w->only) == NULL) {
        return gk_fail(GK_ERR_NOT_FOUND, "tune", "%s has no variant \"%s\"", w->op->name, w->only);
    }
    gk_status status = GK_OK;
    for (uint32_t i = 0; i < w->op->n_variants && status == GK_OK; i++) {
        const gk_variant *variant = w->op->variants[i];
        if (w->only == NULL || strcmp(w->only, variant->name) == 0) {
            status = walk_variant(w, variant);
        }
    }
    return status;
}

static int compare(const void *left, const void *right)
{
    const gki_candidate *a = left;
    const gki_candidate *b = right;
    if (a->predicted != b->predicted) {
        return a->predicted < b->predicted ? -1 : 1;
    }
    if (a->variant != b->variant) {
        return strcmp(a->variant->name, b->variant->name);
    }
    for (uint32_t i = 0; i < GK_MAX_PARAMS; i++) {
        if (a->config.values[i] != b->config.values[i]) {
            return a->config.values[i] < b->config.values[i] ? -1 : 1;
        }
    }
    return 0;
}

typedef struct collection {
    gki_candidate *items;
    uint32_t count;
    uint32_t capacity;
} collection;

static gk_status collect(void *user, const gki_candidate *candidate)
{
    collection *c = user;
    if (c->count == GKI_SPACE_MAX) {
        qsort(c->items, c->count, sizeof(c->items[0]), compare);
        c->count = GKI_SPACE_MAX / 2;
    }
    if (c->count == c->capacity) {
        uint32_t capacity = c->capacity == 0 ? 256 : 2 * c->capacity;
        gki_candidate *items = gki_realloc(c->items, capacity * sizeof(*items));
        if (items == NULL) {
            return gki_fail_nomem("tune", capacity * sizeof(*items));
        }
        c->items = items;
        c->capacity = capacity;
    }
    c->items[c->count++] = *candidate;
    return GK_OK;
}

gk_status gki_space(const gk_op_desc *op, const gk_problem *problem, const gk_device_info *device,
                    const char *only, gki_candidate **out, uint32_t *count, uint64_t *total)
{
    collection c = {0};
    walk w = {.op = op, .problem = problem, .device = device, .only = only};
    w.visit = collect;
    w.user = &c;
    *out = NULL;
    *count = 0;
    gk_status status = walk_op(&w);
    if (total != NULL) {
        *total = w.total;
    }
    if (status != GK_OK) {
        gki_free(c.items);
        return status;
    }
    if (c.count > 0) {
        qsort(c.items, c.count, sizeof(c.items[0]), compare);
    }
    *out = c.items;
    *count = c.count;
    return GK_OK;
}

static gk_status keep_best(void *user, const gki_candidate *candidate)
{
    gki_candidate *best = user;
    if (best->variant == NULL || compare(candidate, best) < 0) {
        *best = *candidate;
    }
    return GK_OK;
}

gk_status gki_guess(const gk_op_desc *op, const gk_problem *problem, const gk_device_info *device,
                    gki_candidate *out)
{
    gki_candidate best = {0};
    walk w = {.op = op, .problem = problem, .device = device};
    w.visit = keep_best;
    w.user = &best;
    gk_status status = walk_op(&w);
    if (status != GK_OK) {
        return status;
    }
    if (best.variant == NULL && w.refused == NULL) {
        return gk_fail(GK_ERR_NO_CONFIG, "tune", "%s has no configurations", op->name);
    }
    if (best.variant == NULL) {
        gk_reason reason;
        (void)gki_config_serves(w.refused, problem, device, &w.refused_config, &reason);
        return gk_fail(GK_ERR_NO_CONFIG, "tune",
                       "none of %llu configurations of %s serves the problem; the last, of %s: %s",
                       (unsigned long long)w.total, op->name, w.refused->name, reason.text);
    }
    *out = best;
    return GK_OK;
}
