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
    TAG_SHIFT = 42, /* an address without the 6 bits of its alignment lies below */
    MOST_WORDS = GK_MAX_ARGS * (4 + 2 * GK_MAX_RANK),
};

/* Sets of places, each a key's low bits (which also choose the set) above an address. The table
 * doubles while keys push each other out of it. */
typedef struct table {
    uint64_t *places;
    uint32_t sets;
    uint32_t pushed; /* since it last grew */
} table;

/* Behind the words lie the text and the launch's args. */
struct gki_memo {
    gki_kernel_launch launch;
    uint64_t replacements; /* of answers in the context, when it was made */

    _Alignas(LINE) const gk_op_desc *op;
    uint64_t id;
    const gki_entry *entry;
    const gki_workspace *space;
    uint32_t present; /* bit i: there is an argument i */
    uint32_t bytes;
    const char *text; /* a copy behind the words; NULL if there is none */
    gki_memo *next;   /* of all memos of the cache */
    gki_memo **link;  /* what points to this one */

    _Alignas(LINE) double attrs[GK_MAX_ATTRS];
    uint64_t words[]; /* of each argument: data, dtype and rank, reserved, shape, strides */
};

typedef struct gki_recent_cache {
    uint32_t serial; /* of the context; 0 = unused */
    uint32_t turn;   /* which way is given up next */
    table entries;
    table memos; /* an address of 0: the call was seen once */
    gki_memo *all;
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
    return key << TAG_SHIFT | (uintptr_t)target / LINE;
}

static void *target_of(uint64_t place)
{
    return (void *)(uintptr_t)((place & ((UINT64_C(1) << TAG_SHIFT) - 1)) * LINE);
}

/* The place of the key, 0 if it has none. Without branches, which would be guessed wrongly. */
static uint64_t table_find(const table *t, uint64_t key)
{
    const uint64_t *set = set_of(t, key);
    uint64_t found = 0;
    for (int way = 0; way < WAYS; way++) {
        found |= (set[way] ^ key << TAG_SHIFT) >> TAG_SHIFT == 0 ? set[way] : 0;
    }
    return found;
}

/* No key is in a set twice. NULL if the set is full of others. */
static uint64_t *own_or_free(uint64_t *set, uint64_t place)
{
    uint64_t *unused = NULL;
    for (int way = 0; way < WAYS; way++) {
        if (set[way] != 0 && (set[way] ^ place) >> TAG_SHIFT == 0) {
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
            *own_or_free(set_of(&larger, t->places[i] >> TAG_SHIFT), t->places[i]) = t->places[i];
        }
    }
    gki_free(t->places);
    *t = larger;
    return true;
}

/* Where the place may be written; what is there now is pushed out. */
static uint64_t *table_slot(table *t, uint64_t place, uint32_t *turn)
{
    uint64_t *slot = own_or_free(set_of(t, place >> TAG_SHIFT), place);
    if (slot == NULL && ++t->pushed > t->sets / 4 && t->sets < MOST_SETS && table_grow(t)) {
        slot = own_or_free(set_of(t, place >> TAG_SHIFT), place);
    }
    return slot != NULL ? slot : &set_of(t, place >> TAG_SHIFT)[(*turn)++ % WAYS];
}

/* --- the thread's own --- */

static void memo_free(gki_memo *memo)
{
    if (memo != NULL) {
        *memo->link = memo->next;
        if (memo->next != NULL) {
            memo->next->link = memo->link;
        }
        gki_free(memo);
    }
}

static void cache_clear(gki_recent_cache *cache)
{
    while (cache->all != NULL) {
        memo_free(cache->all);
    }
    gki_free(cache->memos.places);
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
    if (!table_init(&cache->entries, FIRST_SETS) || !table_init(&cache->memos, FIRST_SETS)) {
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
    h ^= h >> 29;
    return h >> TAG_SHIFT;
}

/* The call's text by its contents; NULL of an op that takes none. */
static const char *text_of(const gk_op_desc *op, const gk_call *call)
{
    return op->text_name != NULL ? call->text : NULL;
}

static uint64_t hash_of_text(const gk_op_desc *op, const gk_call *call)
{
    const char *text = text_of(op, call);
    return text != NULL ? gki_hash64(text, strlen(text)) : 0;
}

static bool same_text(const char *a, const char *b)
{
    return a == b || (a != NULL && b != NULL && strcmp(a, b) == 0);
}

/* Sums of products: unlike a chain of them they are independent of one another. */
static uint64_t key_of_call(const gk_op_desc *op, uint64_t id, const gk_call *call)
{
    uint64_t h = (uintptr_t)op + id * 0x9fb21c651e98df25u + hash_of_text(op, call);
    for (uint32_t i = 0; i < op->n_args; i++) {
        const gk_tensor *t = call->args[i];
        if (t == NULL || t->rank < 1) {
            continue;
        }
        const uint64_t address = (uintptr_t)t->data;
        h += (address ^ address >> 32) * (0x9e3779b97f4a7c15u + 2 * i);
        h += (uint64_t)t->shape[0] * (0xc2b2ae3d27d4eb4fu + 2 * i);
        if (t->rank > 1) {
            h += (uint64_t)t->shape[1] * (0x27d4eb2f165667c5u + 2 * i);
        }
    }
    return mixed(h);
}

/* Of the pointers only their alignment counts. */
static uint64_t key_of_problem(const gk_op_desc *op, const gk_call *call)
{
    uint64_t h = (uintptr_t)op + hash_of_text(op, call);
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
    for (uint32_t i = 0; i < op->n_attrs; i++) {
        uint64_t bits;
        memcpy(&bits, &call->attrs[i], sizeof(bits));
        h += bits * (0x165667b19e3779f9u + 2 * i);
    }
    return mixed(h);
}

/* What an argument's words are compared with; all of a tensor that counts. */
static uint64_t *write_words(const gk_tensor *t, uint64_t *words)
{
    *words++ = (uintptr_t)t->data;
    memcpy(words++, &t->dtype, sizeof(uint64_t)); /* and rank */
    memcpy(words, t->reserved, sizeof(t->reserved));
    words += 2;
    for (int32_t axis = 0; axis < t->rank; axis++) {
        *words++ = (uint64_t)t->shape[axis];
        *words++ = (uint64_t)t->stride[axis];
    }
    return words;
}

static bool same_call(const gki_memo *memo, const gk_op_desc *op, uint64_t id, const gk_call *call)
{
    const uint64_t *words = memo->words;
    if (memo->op != op || memo->id != id ||
        memcmp(memo->attrs, call->attrs, op->n_attrs * sizeof(memo->attrs[0])) != 0 ||
        !same_text(memo->text, text_of(op, call))) {
        return false;
    }
    for (uint32_t i = 0; i < op->n_args; i++) {
        const gk_tensor *t = call->args[i];
        if ((t != NULL) != (memo->present >> i & 1)) {
            return false;
        }
        if (t == NULL) {
            continue;
        }
        uint64_t kind;
        uint64_t reserved[2];
        memcpy(&kind, &t->dtype, sizeof(kind));
        memcpy(reserved, t->reserved, sizeof(reserved));
        uint64_t difference = (words[0] ^ (uintptr_t)t->data) | (words[1] ^ kind) |
                              (words[2] ^ reserved[0]) | (words[3] ^ reserved[1]);
        if (difference != 0) {
            return false;
        }
        words += 4;
        for (int32_t axis = 0; axis < t->rank; axis++, words += 2) {
            difference |= (words[0] ^ (uint64_t)t->shape[axis]);
            difference |= (words[1] ^ (uint64_t)t->stride[axis]);
        }
        if (difference != 0) {
            return false;
        }
    }
    return true;
}

const gki_memo *gki_recent_look(const gk_context *ctx, const gk_op_desc *op, uint64_t id,
                                const gk_call *call, gki_place *place)
{
    place->call_key = key_of_call(op, id, call);
    place->id = id;
    place->seen = false;
    place->replacements = atomic_load_explicit(&ctx->table.replacements, memory_order_acquire);
    place->cache = cache_of(ctx);
    if (place->cache == NULL) {
        return NULL;
    }
    const uint64_t found = table_find(&place->cache->memos, place->call_key);
    const gki_memo *memo = target_of(found);
    place->seen = found != 0;
    if (memo == NULL) {
        return NULL;
    }
    /* It may be far away: all that will be read is asked for at once. */
    for (size_t line = 0; line < sizeof(*memo) + 6 * LINE; line += LINE) {
        __builtin_prefetch((const char *)memo + line);
    }
    return memo->replacements == place->replacements && same_call(memo, op, id, call) ? memo : NULL;
}

gk_status gki_memo_launch(gk_context *ctx, const gki_memo *memo, void *stream,
                          const gki_kernel_launch **out)
{
    const gki_workspace *space = NULL;
    *out = &memo->launch;
    if (memo->space == NULL) {
        return GK_OK;
    }
    const gk_status status = gki_workspace_find(ctx, &memo->entry->launch, stream, &space);
    if (space != memo->space) {
        *out = NULL;
    }
    return status;
}

/* Marks the call as seen, unless there is a memo to lose, and that not each time. */
static void mark_seen(const gki_place *place)
{
    gki_recent_cache *cache = place->cache;
    const uint64_t mark = place_of(place->call_key, NULL);
    uint64_t *slot = table_slot(&cache->memos, mark, &cache->turn);
    if (target_of(*slot) == NULL || cache->turn % (2 * WAYS) == 0) {
        memo_free(target_of(*slot));
        *slot = mark;
    }
}

/* The memo in the slot if it is large enough, a new one otherwise. */
static gki_memo *renew(gki_recent_cache *cache, uint64_t *slot, size_t bytes)
{
    gki_memo *memo = target_of(*slot);
    if (memo != NULL && memo->bytes >= bytes) {
        return memo;
    }
    memo_free(memo);
    *slot = 0;
    memo = gki_alloc_aligned(LINE, bytes);
    if (memo == NULL || (uintptr_t)memo / LINE >> TAG_SHIFT != 0) {
        gki_free(memo);
        return NULL;
    }
    memo->bytes = (uint32_t)bytes;
    memo->next = cache->all;
    memo->link = &cache->all;
    if (memo->next != NULL) {
        memo->next->link = &memo->next;
    }
    cache->all = memo;
    return memo;
}

/* What a memo tells the call by, besides its numbers: the arguments' words. */
static uint32_t all_words(const gk_op_desc *op, const gk_call *call, uint64_t *words, size_t *bytes)
{
    uint64_t *end = words;
    uint32_t present = 0;
    for (uint32_t i = 0; i < op->n_args; i++) {
        if (call->args[i] != NULL) {
            end = write_words(call->args[i], end);
            present |= 1u << i;
        }
    }
    *bytes = (size_t)(end - words) * sizeof(words[0]);
    return present;
}

void gki_recent_keep(const gki_place *place, const gki_entry *entry, const gk_call *call,
                     const gki_workspace *space, const gki_kernel_launch *launch)
{
    gki_recent_cache *cache = place->cache;
    if (cache == NULL) {
        return;
    }
    /* What is never seen again would only cost the copying; but maps cost more to make. */
    if (!place->seen && entry->variant->n_maps == 0) {
        mark_seen(place);
        return;
    }
    uint64_t words[MOST_WORDS];
    size_t words_bytes;
    const uint32_t present = all_words(entry->op, call, words, &words_bytes);
    const char *text = text_of(entry->op, call);
    const size_t text_bytes = text != NULL ? strlen(text) + 1 : 0;
    const size_t args_at = (sizeof(gki_memo) + words_bytes + text_bytes + LINE - 1) / LINE * LINE;
    uint64_t *slot = table_slot(&cache->memos, place_of(place->call_key, NULL), &cache->turn);
    gki_memo *memo = renew(cache, slot, args_at + launch->args_size);
    if (memo == NULL) {
        return;
    }
    unsigned char *args = (unsigned char *)memo + args_at;
    memo->launch = *launch;
    memo->launch.args = args;
    memo->replacements = place->replacements;
    memo->op = entry->op;
    memo->id = place->id;
    memo->entry = entry;
    memo->space = space;
    memo->present = present;
    memo->text = text != NULL ? (const char *)memo->words + words_bytes : NULL;
    memcpy(memo->attrs, call->attrs, sizeof(memo->attrs));
    memcpy(memo->words, words, words_bytes);
    if (text != NULL) {
        memcpy((char *)memo->words + words_bytes, text, text_bytes);
    }
    memcpy(args, launch->args, launch->args_size);
    *slot = place_of(place->call_key, memo);
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
    if (cache != NULL && (uintptr_t)entry / LINE >> TAG_SHIFT == 0) {
        *table_slot(&cache->entries, made, &cache->turn) = made;
    }
}
