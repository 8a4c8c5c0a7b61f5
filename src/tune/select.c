#include "tune/select.h"

#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"

/* Predictions further off than this are not worth a compile. */
static const double HOPELESS = 8;

gki_selection_rules gki_selection_for(gk_effort effort, bool emulated)
{
    if (effort == GK_EFFORT_EXHAUSTIVE) {
        return (gki_selection_rules){0, 0, 0, 0};
    }
    if (emulated) {
        uint32_t few = effort == GK_EFFORT_QUICK ? 3 : 6;
        return (gki_selection_rules){few, few, 2, 1};
    }
    if (effort == GK_EFFORT_QUICK) {
        return (gki_selection_rules){12, 8, 3, 2};
    }
    return (gki_selection_rules){64, 40, 3, 4};
}

/* What the code depends on. */
typedef struct code_identity {
    const gk_variant *variant;
    gk_config baked;
} code_identity;

static code_identity identity_of(const gki_candidate *candidate)
{
    code_identity id;
    memset(&id, 0, sizeof(id));
    id.variant = candidate->variant;
    for (uint32_t i = 0; i < candidate->variant->n_params; i++) {
        if (!candidate->variant->params[i].at_launch) {
            id.baked.values[i] = candidate->config.values[i];
        }
    }
    return id;
}

/* Numbers the codes; the number is the index of the first candidate that has it. */
static gk_status number_groups(const gki_candidate *space, uint32_t count, uint32_t *groups)
{
    size_t slots = 2;
    while (slots < 2 * (size_t)count) {
        slots *= 2;
    }
    uint32_t *table = gki_alloc(slots * sizeof(*table));
    if (table == NULL) {
        return gki_fail_nomem("tune", slots * sizeof(*table));
    }
    memset(table, 0xff, slots * sizeof(*table));
    for (uint32_t i = 0; i < count; i++) {
        code_identity id = identity_of(&space[i]);
        size_t at = (size_t)gki_hash64(&id, sizeof(id)) & (slots - 1);
        groups[i] = i;
        while (table[at] != UINT32_MAX) {
            code_identity other = identity_of(&space[table[at]]);
            if (memcmp(&id, &other, sizeof(id)) == 0) {
                groups[i] = table[at];
                break;
            }
            at = (at + 1) & (slots - 1);
        }
        if (groups[i] == i) {
            table[at] = i;
        }
    }
    gki_free(table);
    return GK_OK;
}

typedef struct selection {
    const gki_candidate *space;
    uint32_t count;
    const bool *excluded;
    bool *picked;
    const uint32_t *groups;
    uint32_t *of_group; /* picked candidates of the group with that number */
    uint32_t n_picked;
    uint32_t n_kernels;
} selection;

static void pick(selection *s, uint32_t i)
{
    s->picked[i] = true;
    s->n_picked++;
    s->n_kernels += s->of_group[s->groups[i]]++ == 0 ? 1 : 0;
}

static bool open_to(const selection *s, uint32_t i)
{
    return !s->picked[i] && (s->excluded == NULL || !s->excluded[i]);
}

/* The best of each variant's codes, as many as every variant is granted. */
static void pick_for_variants(selection *s, uint32_t per_variant)
{
    for (uint32_t i = 0; i < s->count; i++) {
        if (!open_to(s, i) || s->of_group[s->groups[i]] > 0) {
            continue;
        }
        bool first_seen = true;
        for (uint32_t j = 0; j < i && first_seen; j++) {
            first_seen = s->space[j].variant != s->space[i].variant;
        }
        if (!first_seen) {
            continue;
        }
        uint32_t granted = 0;
        for (uint32_t j = i; j < s->count && granted < per_variant; j++) {
            if (s->space[j].variant == s->space[i].variant && open_to(s, j) &&
                s->of_group[s->groups[j]] == 0) {
                pick(s, j);
                granted++;
            }
        }
    }
}

static void pick_codes(selection *s, const gki_selection_rules *rules)
{
    for (uint32_t i = 0; i < s->count; i++) {
        if (s->n_picked >= rules->limit || s->n_kernels >= rules->kernels ||
            s->space[i].predicted > HOPELESS * s->space[0].predicted) {
            return;
        }
        if (open_to(s, i) && s->of_group[s->groups[i]] == 0) {
            pick(s, i);
        }
    }
}

static void pick_launches(selection *s, const gki_selection_rules *rules)
{
    for (uint32_t i = 0; i < s->count && s->n_picked < rules->limit; i++) {
        uint32_t of_group = s->of_group[s->groups[i]];
        if (open_to(s, i) && of_group > 0 && of_group < rules->per_kernel) {
            pick(s, i);
        }
    }
}

gk_status gki_select(const gki_candidate *space, uint32_t count, const gki_selection_rules *rules,
                     const bool *excluded, bool *picked, uint32_t *groups)
{
    if (count == 0) {
        return GK_OK;
    }
    gk_status status = number_groups(space, count, groups);
    if (status != GK_OK) {
        return status;
    }
    selection s = {space, count, excluded, picked, groups, NULL, 0, 0};
    s.of_group = gki_calloc(count, sizeof(s.of_group[0]));
    if (s.of_group == NULL) {
        return gki_fail_nomem("tune", count * sizeof(s.of_group[0]));
    }
    for (uint32_t i = 0; i < count; i++) {
        if (excluded != NULL && excluded[i]) {
            picked[i] = false;
        } else if (picked[i] || rules->limit == 0) {
            pick(&s, i);
        }
    }
    if (rules->limit > 0) {
        pick_for_variants(&s, rules->per_variant);
        pick_codes(&s, rules);
        pick_launches(&s, rules);
    }
    gki_free(s.of_group);
    return GK_OK;
}
