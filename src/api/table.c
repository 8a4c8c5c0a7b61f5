#include "api/context.h"

#include <string.h>

#include "base/alloc.h"
#include "base/error.h"

typedef struct slot {
    _Atomic(gki_entry *) entry;
    uint64_t hash; /* written before entry is published */
} slot;

struct gki_table_slots {
    gki_table_slots *retired; /* the smaller table before it; readers may still be in it */
    size_t mask;
    slot slots[];
};

static gki_table_slots *slots_create(size_t capacity)
{
    gki_table_slots *slots = gki_calloc(1, sizeof(*slots) + capacity * sizeof(slot));
    if (slots != NULL) {
        slots->mask = capacity - 1;
    }
    return slots;
}

gk_status gki_table_init(gki_table *table)
{
    gki_table_slots *slots = slots_create(256);
    if (slots == NULL) {
        return gki_fail_nomem("table", sizeof(slot) * 256);
    }
    atomic_init(&table->slots, slots);
    pthread_mutex_init(&table->mutex, NULL);
    atomic_init(&table->replacements, 0);
    table->count = 0;
    return GK_OK;
}

void gki_table_free(gki_table *table)
{
    gki_table_slots *slots = atomic_load(&table->slots);
    if (slots == NULL) {
        return;
    }
    for (size_t i = 0; i <= slots->mask; i++) {
        gki_entry *entry = atomic_load(&slots->slots[i].entry);
        while (entry != NULL) {
            gki_entry *older = entry->older;
            gki_free(entry);
            entry = older;
        }
    }
    while (slots != NULL) {
        gki_table_slots *retired = slots->retired;
        gki_free(slots);
        slots = retired;
    }
    atomic_store(&table->slots, NULL);
    pthread_mutex_destroy(&table->mutex);
}

gki_entry *gki_table_find(gki_table *table, const gk_problem *problem, uint64_t hash)
{
    gki_table_slots *slots = atomic_load_explicit(&table->slots, memory_order_acquire);
    for (size_t i = hash & slots->mask;; i = (i + 1) & slots->mask) {
        gki_entry *entry = atomic_load_explicit(&slots->slots[i].entry, memory_order_acquire);
        if (entry == NULL) {
            return NULL;
        }
        if (slots->slots[i].hash != hash) {
            continue;
        }
        /* With many problems the entry is far away: all of it is asked for before it is read. */
        for (size_t line = 0; line < GKI_ENTRY_HOT_BYTES; line += 64) {
            __builtin_prefetch((const char *)entry + line);
        }
        if (memcmp(&entry->problem, problem, sizeof(*problem)) == 0) {
            return entry;
        }
    }
}

static void slots_put(gki_table_slots *slots, gki_entry *entry, uint64_t hash)
{
    size_t i = hash & slots->mask;
    while (atomic_load_explicit(&slots->slots[i].entry, memory_order_relaxed) != NULL) {
        i = (i + 1) & slots->mask;
    }
    slots->slots[i].hash = hash;
    atomic_store_explicit(&slots->slots[i].entry, entry, memory_order_release);
}

static gki_table_slots *slots_grow(gki_table *table, gki_table_slots *old)
{
    gki_table_slots *grown = slots_create((old->mask + 1) * 2);
    if (grown == NULL) {
        return NULL;
    }
    for (size_t i = 0; i <= old->mask; i++) {
        gki_entry *entry = atomic_load_explicit(&old->slots[i].entry, memory_order_relaxed);
        if (entry != NULL) {
            slots_put(grown, entry, old->slots[i].hash);
        }
    }
    grown->retired = old;
    atomic_store_explicit(&table->slots, grown, memory_order_release);
    return grown;
}

gk_status gki_table_insert(gki_table *table, gki_entry *entry, uint64_t hash)
{
    pthread_mutex_lock(&table->mutex);
    gki_table_slots *slots = atomic_load(&table->slots);
    for (size_t i = hash & slots->mask;; i = (i + 1) & slots->mask) {
        gki_entry *present = atomic_load(&slots->slots[i].entry);
        if (present == NULL) {
            break;
        }
        if (slots->slots[i].hash == hash &&
            memcmp(&present->problem, &entry->problem, sizeof(entry->problem)) == 0) {
            entry->older = present;
            atomic_store_explicit(&slots->slots[i].entry, entry, memory_order_release);
            /* Threads that know the older answer look the problem up again. */
            atomic_store_explicit(&present->replaced, true, memory_order_release);
            atomic_fetch_add_explicit(&table->replacements, 1, memory_order_release);
            pthread_mutex_unlock(&table->mutex);
            return GK_OK;
        }
    }
    if ((table->count + 1) * 2 > slots->mask + 1) {
        slots = slots_grow(table, slots);
        if (slots == NULL) {
            pthread_mutex_unlock(&table->mutex);
            return gki_fail_nomem("table", sizeof(slot) * table->count * 4);
        }
    }
    slots_put(slots, entry, hash);
    table->count++;
    pthread_mutex_unlock(&table->mutex);
    return GK_OK;
}

static uint64_t next_id(void)
{
    static atomic_uint_fast64_t ids;
    return atomic_fetch_add(&ids, 1) + 1;
}

gki_entry *gki_entry_copy(const gki_entry *entry)
{
    gki_entry *copy = gki_alloc_aligned(GKI_ENTRY_ALIGN, sizeof(*copy));
    if (copy != NULL) {
        memcpy(copy, entry, sizeof(*copy));
        copy->id = next_id();
        copy->older = NULL;
        atomic_init(&copy->replaced, false);
    }
    return copy;
}

gk_status gki_entry_build(gk_context *ctx, const gk_op_desc *op, const gk_problem *problem,
                          const gk_variant *variant, const gk_config *config, gk_source source,
                          gki_entry **out)
{
    *out = NULL;
    gki_entry *entry = gki_alloc_aligned(GKI_ENTRY_ALIGN, sizeof(*entry));
    if (entry == NULL) {
        return gki_fail_nomem("plan", sizeof(*entry));
    }
    memset(entry, 0, sizeof(*entry));
    entry->id = next_id();
    entry->problem = *problem;
    entry->op = op;
    entry->variant = variant;
    entry->source = source;
    if (variant != NULL) {
        entry->config = *config;
        gki_config_launch(variant, problem, &ctx->info, config, &entry->launch);
        gk_status status =
            gki_kernel_load(ctx->jit, op, variant, problem, config, &entry->launch, &entry->kernel);
        gk_reason reason = {{0}};
        if (status == GK_OK &&
            !gki_kernel_fits(entry->kernel, &entry->launch, &ctx->info, &reason)) {
            status = gk_fail(GK_ERR_NO_CONFIG, "plan", "%s: %s", entry->kernel->name, reason.text);
        }
        if (status != GK_OK) {
            gki_free(entry);
            return status;
        }
        entry->module = atomic_load(&entry->kernel->module);
    }
    *out = entry;
    return GK_OK;
}
