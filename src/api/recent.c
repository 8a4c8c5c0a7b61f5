#include "api/recent.h"

#include <string.h>

#include "base/alloc.h"
#include "base/hash.h"

enum {
    CONTEXTS = 4, /* that one thread's caches are kept of */
    WAYS = 8,     /* places that a key can be in: a cache line */
    FIRST_SETS = 8,
    MOST_SETS = 2048,
    LINE = 64,
    KEY_SHIFT = 42, /* an address without the 6 bits of its alignment lies below */
};

/* Sets of places, each a key's low bits (which also choose the set) above an address. The table
 * doubles while keys push each other out of it. */
typedef struct table {
    uint64_t *places;
    uint32_t sets;
    uint32_t pushed; /* since it last grew */
} table;

typedef struct gki_recent_cache {
    uint32_t serial; /* of the context; 0 = unused */
    uint32_t turn;   /* which way is given up next */
    table entries;
    gki_memos memos;
} gki_recent_cache;

typedef struct recent {
    gki_recent_cache caches[CONTEXTS];
    uint32_t turn;
} recent;

static _Thread_local recent *own;
static pthread_once_t key_once = PTHREAD_ONCE_INIT;
static pthread_key_t key_of_own;
static bool has_key;

/* --- tables --- */

static void *zeroed_lines(size_t bytes)
{
    void *memory = gki_alloc_aligned(LINE, bytes);
    if (memory != NULL) {
        memset(memory, 0, bytes);
    }
    return memory;
}

static bool table_init(table *t, uint32_t sets)
{
    *t = (table){.places = zeroed_lines((size_t)sets * WAYS * sizeof(*t->places)), .sets = sets};
    return t->places != NULL;
}

static uint64_t *set_of(const table *t, uint64_t key)
{
    return t->places + (key & (t->sets - 1)) * WAYS;
}

static uint64_t place_of(uint64_t key, const void *target)
{
    return key << KEY_SHIFT | (uintptr_t)target / LINE;
}

static void *target_of(uint64_t place)
{
    return (void *)(uintptr_t)((place & ((UINT64_C(1) << KEY_SHIFT) - 1)) * LINE);
}

/* The place of the key, 0 if it has none. Without branches, which would be guessed wrongly. */
static uint64_t table_find(const table *t, uint64_t key)
{
    const uint64_t *set = set_of(t, key);
    uint64_t found = 0;
    for (int way = 0; way < WAYS; way++) {
        found |= (set[way] ^ key << KEY_SHIFT) >> KEY_SHIFT == 0 ? set[way] : 0;
    }
    return found;
}

/* No key is in a set twice. NULL if the set is full of others. */
static uint64_t *own_or_free(uint64_t *set, uint64_t place)
{
    uint64_t *unused = NULL;
    for (int way = 0; way < WAYS; way++) {
        if (set[way] != 0 && (set[way] ^ place) >> KEY_SHIFT == 0) {
            return &set[way];
        }
        if (set[way] == 0 && unused == NULL) {
            unused = &set[way];
        }
    }
    return unused;
}

static bool table_grow(table *t)
{
    table larger;
    if (!table_init(&larger, t->sets * 2)) {
        return false;
    }
    for (uint32_t i = 0; i < t->sets * WAYS; i++) {
        if (t->places[i] != 0) {
            *own_or_free(set_of(&larger, t->places[i] >> KEY_SHIFT), t->places[i]) = t->places[i];
        }
    }
    gki_free(t->places);
    *t = larger;
    return true;
}

/* Where the place may be written; what is there now is pushed out. */
static uint64_t *table_slot(table *t, uint64_t place, uint32_t *turn)
{
    uint64_t *slot = own_or_free(set_of(t, place >> KEY_SHIFT), place);
    if (slot == NULL && ++t->pushed > t->sets / 4 && t->sets < MOST_SETS && table_grow(t)) {
        slot = own_or_free(set_of(t, place >> KEY_SHIFT), place);
    }
    return slot != NULL ? slot : &set_of(t, place >> KEY_SHIFT)[(*turn)++ % WAYS];
}

/* --- the thread's own --- */

static void cache_clear(gki_recent_cache *cache)
{
    gki_memos_free(&cache->memos);
    gki_free(cache->entries.places);
    *cache = (gki_recent_cache){0};
}

static void recent_free(void *user)
{
    recent *r = user;
    own = NULL;
    for (int i = 0; i < CONTEXTS; i++) {
        cache_clear(&r->caches[i]);
    }
    gki_free(r);
}

static void make_key(void)
{
    has_key = pthread_key_create(&key_of_own, recent_free) == 0;
}

/* Threads may outlive the library. */
__attribute__((destructor)) static void drop_key(void)
{
    if (has_key) {
        pthread_key_delete(key_of_own);
        has_key = false;
    }
}

static recent *recent_create(void)
{
    pthread_once(&key_once, make_key);
    recent *r = has_key ? gki_calloc(1, sizeof(*r)) : NULL;
    if (r != NULL && pthread_setspecific(key_of_own, r) != 0) {
        gki_free(r);
        r = NULL;
    }
    own = r;
    return r;
}

/* A new context's cache takes the place of another's. */
static gki_recent_cache *cache_create(const gk_context *ctx)
{
    recent *r = own != NULL ? own : recent_create();
    if (r == NULL) {
        return NULL;
    }
    gki_recent_cache *cache = &r->caches[r->turn++ % CONTEXTS];
    cache_clear(cache);
    if (!table_init(&cache->entries, FIRST_SETS)) {
        cache_clear(cache);
        return NULL;
    }
    cache->serial = ctx->serial;
    return cache;
}

static gki_recent_cache *cache_of(const gk_context *ctx)
{
    recent *r = own;
    for (int i = 0; r != NULL && i < CONTEXTS; i++) {
        if (r->caches[i].serial == ctx->serial) {
            return &r->caches[i];
        }
    }
    return cache_create(ctx);
}

/* --- calls --- */

static uint64_t mixed(uint64_t h)
{
    h ^= h >> 32;
    h *= 0xff51afd7ed558ccdu;
    return h ^ h >> 29;
}

/* By its contents; of an op that takes none it is not looked at. */
static uint64_t hash_of_text(const gk_op_desc *op, const gk_call *call)
{
    const bool has_text = op->text_name != NULL && call->text != NULL;
    return has_text ? gki_hash64(call->text, strlen(call->text)) : 0;
}

/* Sums of products: unlike a chain of them they are independent of one another. */
static uint64_t hash_of_attrs(const gk_op_desc *op, const gk_call *call)
{
    uint64_t h = 0;
    for (uint32_t i = 0; i < op->n_attrs; i++) {
        uint64_t bits;
        memcpy(&bits, &call->attrs[i], sizeof(bits));
        h += bits * (0x165667b19e3779f9u + 2 * i);
    }
    return h;
}

/* A plan's id, odd, or the op's address, even. */
static uint64_t owner_of(const gk_op_desc *op, uint64_t id)
{
    return id != 0 ? id << 1 | 1 : (uintptr_t)op;
}

static uint32_t hash_of_call(const gk_op_desc *op, uint64_t owner, const gk_call *call)
{
    uint64_t h = owner * 0x9fb21c651e98df25u + hash_of_text(op, call) + hash_of_attrs(op, call);
    for (uint32_t i = 0; i < op->n_args; i++) {
        const gk_tensor *t = call->args[i];
        if (t == NULL || t->rank < 1) {
            continue;
        }
        const uint64_t address = (uintptr_t)t->data;
        h += (address ^ address >> 32) * (0x9e3779b97f4a7c15u + 2 * i);
        h += (uint64_t)t->shape[0] * (0xc2b2ae3d27d4eb4fu + 2 * i);
        h += (uint64_t)t->stride[0] * (0xd6e8feb86659fd93u + 2 * i);
        if (t->rank > 1) {
            h += (uint64_t)t->shape[1] * (0x27d4eb2f165667c5u + 2 * i);
        }
    }
    return (uint32_t)(mixed(h) >> 32);
}

/* Of the pointers only their alignment counts. */
static uint64_t key_of_problem(const gk_op_desc *op, const gk_call *call)
{
    uint64_t h = (uintptr_t)op + hash_of_text(op, call) + hash_of_attrs(op, call);
    for (uint32_t i = 0; i < op->n_args; i++) {
        const gk_tensor *t = call->args[i];
        if (t == NULL) {
            continue;
        }
        const uint64_t kind = (uint64_t)t->dtype << 8 | ((uintptr_t)t->data & 15);
        h += kind * (0xd6e8feb86659fd93u + 2 * i);
        for (int32_t axis = 0; axis < t->rank && axis < GK_MAX_RANK; axis++) {
            const uint64_t at = 2 * (i * GK_MAX_RANK + (uint32_t)axis);
            h += (uint64_t)t->shape[axis] * (0xc2b2ae3d27d4eb4fu + at);
            h += (uint64_t)t->stride[axis] * (0x27d4eb2f165667c5u + at);
        }
    }
    return mixed(h) >> KEY_SHIFT;
}

const gki_memo *gki_recent_look(const gk_context *ctx, const gk_op_desc *op, uint64_t id,
                                const gk_call *call, gki_place *place)
{
    place->key.owner = owner_of(op, id);
    place->key.hash = hash_of_call(op, place->key.owner, call);
    place->key.replacements = atomic_load_explicit(&ctx->table.replacements, memory_order_acquire);
    place->seen = false;
    place->cache = cache_of(ctx);
    return place->cache != NULL
               ? gki_memo_find(&place->cache->memos, &place->key, op, call, &place->seen)
               : NULL;
}

void gki_recent_keep(const gki_place *place, const gki_entry *entry, const gk_call *call,
                     const gki_workspace *space, const gki_kernel_launch *launch)
{
    if (place->cache == NULL) {
        return;
    }
    /* What is never seen again would only cost the copying; but maps cost more to make. */
    if (place->seen || entry->variant->n_maps > 0) {
        gki_memo_keep(&place->cache->memos, &place->key, entry, call, space, launch);
    } else {
        gki_memo_mark(&place->cache->memos, place->key.hash);
    }
}

/* --- entries --- */

gki_entry *gki_recent_entry(gki_place *place, const gk_op_desc *op, const gk_call *call)
{
    if (place->cache == NULL) {
        return NULL;
    }
    place->problem_key = key_of_problem(op, call);
    gki_entry *entry = target_of(table_find(&place->cache->entries, place->problem_key));
    for (size_t line = 0; line < GKI_ENTRY_HOT_BYTES; line += LINE) {
        __builtin_prefetch((const char *)entry + line);
    }
    return entry;
}

void gki_recent_note(const gki_place *place, gki_entry *entry)
{
    gki_recent_cache *cache = place->cache;
    const uint64_t made = place_of(place->problem_key, entry);
    if (cache != NULL && (uintptr_t)entry / LINE >> KEY_SHIFT == 0) {
        *table_slot(&cache->entries, made, &cache->turn) = made;
    }
}
