#include "api/memo.h"

#include <string.h>

#include "base/alloc.h"

enum {
    LINE = 64,
    FIRST_SETS = 4,
    WORDS = 2, /* of tags, a set */
    WAYS = 8 * WORDS,
    MOST_WORDS = GK_MAX_ATTRS + GK_MAX_ARGS * (1 + GK_MAX_RANK),
    ARGS_UNIT = 16, /* of args_at */
    COOPERATIVE = 1,
    OVERLAP = 2,
    FLAG_BITS = 2,
    SURE = 2, /* so many calls foreseen make the next one worth fetching */
};

/*
 * A call and its launch, as small as can be: with thousands of them each line and each page is
 * fetched from afar. What is read first is in the first line. Behind it lie the attributes, of each
 * argument its address and its axes, the text, and the kernel's parameter struct.
 */
struct gki_memo {
    _Alignas(LINE) uint64_t owner; /* 0: the call was seen once, only the hash is here */
    uint64_t replacements;
    const gki_workspace *space;
    gki_module *module;
    uint32_t hash;
    int32_t grid;
    int32_t smem;
    uint16_t threads;
    uint16_t args_size;
    uint16_t next; /* the place_of() the memo that was found after this one; only a guess */
    uint8_t args_at;
    uint8_t cluster_flags;
    uint16_t kinds[GK_MAX_ARGS]; /* kind_of(); 0: the argument is absent */
    uint64_t words[];
};
_Static_assert(sizeof(gki_memo) == LINE, "the first line");

/*
 * Memos of one size in sets of WAYS, behind the sets' tags: a byte of the hash of each memo, 0
 * where there is none. The tags are so few that they stay near, and tell where the one memo lies;
 * most lie where the hash wants them, so that they are fetched even before the tags are read. A
 * shelf doubles while memos push each other out.
 */
typedef struct gki_shelf shelf;

/* Most memos fit the first: a matmul without tensor maps takes 360 bytes. */
static const struct {
    uint32_t bytes; /* of a memo */
    uint32_t most_sets;
} kinds[GKI_SHELVES] = {{6 * LINE, 1024}, {14 * LINE, 512}, {28 * LINE, 128}};

/* --- shelves --- */

static uint32_t set_of(const shelf *s, uint32_t hash)
{
    return hash & (s->sets - 1);
}

static gki_memo *memo_at(const shelf *s, int kind, uint32_t set, uint32_t way)
{
    unsigned char *memos = (unsigned char *)(s->tags + (size_t)s->sets * WORDS);
    return (gki_memo *)(void *)(memos + (set * WAYS + way) * (size_t)kinds[kind].bytes);
}

static uint32_t wanted_way(uint32_t hash)
{
    return hash >> 20 & (WAYS - 1);
}

static uint64_t tag_of(uint32_t hash)
{
    return hash >> 24 != 0 ? hash >> 24 : 1;
}

static uint64_t tag_at(const shelf *s, uint32_t set, uint32_t way)
{
    return s->tags[set * WORDS + way / 8] >> way % 8 * 8 & 0xff;
}

static void tag_put(const shelf *s, uint32_t set, uint32_t way, uint64_t tag)
{
    uint64_t *word = &s->tags[set * WORDS + way / 8];
    *word = (*word & ~(UINT64_C(0xff) << way % 8 * 8)) | tag << way % 8 * 8;
}

/* Bit 8 * i for each byte i of the word that is the tag, and for no other. */
static uint64_t bytes_like(uint64_t word, uint64_t tag)
{
    static const uint64_t ones = 0x0101010101010101u;
    static const uint64_t low = 0x7f7f7f7f7f7f7f7fu;
    const uint64_t other = word ^ tag * ones;
    return ~(((other & low) + low) | other) >> 7 & ones;
}

/* Bit 8 * i + j for each way 8 * j + i of the set that may have the hash: that has its tag. */
static uint64_t ways_like(const shelf *s, uint32_t set, uint32_t hash)
{
    const uint64_t tag = tag_of(hash);
    return bytes_like(s->tags[set * WORDS], tag) | bytes_like(s->tags[set * WORDS + 1], tag) << 1;
}

static void fetch(const gki_memo *memo, int kind)
{
    for (size_t at = 0; at < kinds[kind].bytes; at += LINE) {
        __builtin_prefetch((const char *)memo + at);
    }
}

static bool shelf_init(shelf *s, int kind, uint32_t sets)
{
    const size_t tags = sets * WORDS * sizeof(*s->tags);
    const size_t bytes = tags + sets * WAYS * (size_t)kinds[kind].bytes;
    s->tags = bytes >= GKI_HUGE_PAGE / 2 ? gki_alloc_huge(bytes) : gki_alloc_aligned(LINE, bytes);
    s->sets = sets;
    s->pushed = 0;
    if (s->tags != NULL) {
        memset(s->tags, 0, tags);
    }
    return s->tags != NULL;
}

/* The way of the set that has the hash, or is free; WAYS if others have it all. */
static uint32_t own_or_free_way(const shelf *s, int kind, uint32_t hash)
{
    const uint32_t set = set_of(s, hash);
    uint32_t unused = WAYS;
    for (uint32_t i = 0; i < WAYS; i++) {
        const uint32_t way = (wanted_way(hash) + i) % WAYS;
        const uint64_t tag = tag_at(s, set, way);
        if (tag == tag_of(hash) && memo_at(s, kind, set, way)->hash == hash) {
            return way;
        }
        if (tag == 0 && unused == WAYS) {
            unused = way;
        }
    }
    return unused;
}

/* A set's memos spread over two. */
static bool shelf_grow(shelf *s, int kind)
{
    shelf larger;
    if (!shelf_init(&larger, kind, s->sets * 2)) {
        return false;
    }
    for (uint32_t i = 0; i < s->sets * WAYS; i++) {
        const uint64_t tag = tag_at(s, i / WAYS, i % WAYS);
        if (tag != 0) {
            const gki_memo *memo = memo_at(s, kind, i / WAYS, i % WAYS);
            const uint32_t set = set_of(&larger, memo->hash);
            const uint32_t way = own_or_free_way(&larger, kind, memo->hash);
            tag_put(&larger, set, way, tag);
            memcpy(memo_at(&larger, kind, set, way), memo, kinds[kind].bytes);
        }
    }
    gki_free(s->tags);
    *s = larger;
    return true;
}

/* A memo with the hash, whose rest the caller writes; NULL if memory is out. gently: instead of
 * another that is of use only now and then. */
static gki_memo *shelf_take(gki_memos *memos, int kind, uint32_t hash, bool gently)
{
    shelf *s = &memos->shelves[kind];
    if (s->tags == NULL && !shelf_init(s, kind, FIRST_SETS)) {
        return NULL;
    }
    uint32_t way = own_or_free_way(s, kind, hash);
    if (way == WAYS && ++s->pushed > s->sets / 4 && s->sets < kinds[kind].most_sets &&
        shelf_grow(s, kind)) {
        memos->last = NULL;
        way = own_or_free_way(s, kind, hash);
    }
    const bool pushes = way == WAYS;
    way = pushes ? memos->turn++ % WAYS : way;
    gki_memo *memo = memo_at(s, kind, set_of(s, hash), way);
    if (pushes && gently && memo->owner != 0 && memos->turn % (2 * WAYS) != 0) {
        return NULL;
    }
    tag_put(s, set_of(s, hash), way, tag_of(hash));
    memo->hash = hash;
    memo->next = 0;
    return memo;
}

void gki_memos_free(gki_memos *memos)
{
    for (int kind = 0; kind < GKI_SHELVES; kind++) {
        gki_free(memos->shelves[kind].tags);
    }
    *memos = (gki_memos){0};
}

/* --- finding --- */

/* Dtypes and ranks of calls that were launched are small. */
static uint16_t kind_of(const gk_tensor *t)
{
    return t != NULL ? (uint16_t)(t->dtype << 8 | t->rank) : 0;
}

/* Whether the tensor is what kind and words say, to the last bit. */
static bool same_tensor(const gk_tensor *t, uint32_t kind, const uint64_t *words)
{
    uint64_t difference = (words[0] ^ (uintptr_t)t->data) | ((uint32_t)t->dtype ^ kind >> 8) |
                          ((uint32_t)t->rank ^ (kind & 255)) | t->reserved[0] | t->reserved[1] |
                          t->reserved[2] | t->reserved[3];
    for (uint32_t axis = 0; axis < (kind & 255); axis++) {
        difference |= (words[1 + axis] & UINT32_MAX) ^ (uint64_t)t->shape[axis];
        difference |= words[1 + axis] >> 32 ^ (uint64_t)t->stride[axis];
    }
    return difference == 0;
}

/* Of calls with the memo's owner. */
static bool same_call(const gki_memo *memo, const gk_op_desc *op, const gk_call *call)
{
    if (memcmp(memo->words, call->attrs, op->n_attrs * sizeof(call->attrs[0])) != 0) {
        return false;
    }
    const uint64_t *words = memo->words + op->n_attrs;
    for (uint32_t i = 0; i < op->n_args; i++) {
        const gk_tensor *t = call->args[i];
        const uint32_t kind = memo->kinds[i];
        if ((t != NULL) != (kind != 0)) {
            return false;
        }
        if (t != NULL) {
            if (!same_tensor(t, kind, words)) {
                return false;
            }
            words += 1 + (kind & 255);
        }
    }
    return op->text_name == NULL ||
           (call->text != NULL && strcmp((const char *)words, call->text) == 0);
}

/* There are fewer than 4 shelves of at most 1024 sets of 16. */
static uint16_t place_of(int kind, uint32_t set, uint32_t way)
{
    return (uint16_t)((uint32_t)kind << 14 | set << 4 | way);
}

/* Calls come again in the order they came in, if at all: the one after this is fetched while this
 * is launched. */
static void foresee(gki_memos *memos, gki_memo *memo, uint16_t place)
{
    if (memos->last != NULL) {
        memos->foreseen = memos->last->next == place ? memos->foreseen + 1 : 0;
        if (memos->foreseen == 0) {
            memos->last->next = place;
        }
    }
    memos->last = memo;
    const int kind = memo->next >> 14;
    const uint32_t set = memo->next >> 4 & 1023;
    if (memos->foreseen >= SURE && set < memos->shelves[kind].sets) {
        fetch(memo_at(&memos->shelves[kind], kind, set, memo->next % WAYS), kind);
    }
}

/* On one shelf. *seen becomes true if there is such a call or one of its hash. */
static gki_memo *find(const shelf *s, int kind, const gki_memo_key *key, const gk_op_desc *op,
                      const gk_call *call, bool *seen, uint16_t *place)
{
    const uint32_t set = set_of(s, key->hash);
    fetch(memo_at(s, kind, set, wanted_way(key->hash)), kind);
    for (uint64_t ways = ways_like(s, set, key->hash); ways != 0; ways &= ways - 1) {
        const uint32_t bit = (uint32_t)__builtin_ctzll(ways);
        const uint32_t way = bit % 8 * 8 + bit / 8;
        gki_memo *memo = memo_at(s, kind, set, way);
        /* It may be far away: all of it is asked for at once. */
        fetch(memo, kind);
        if (memo->hash != key->hash) {
            continue;
        }
        *seen = true;
        *place = place_of(kind, set, way);
        if (memo->owner == key->owner && memo->replacements == key->replacements &&
            same_call(memo, op, call)) {
            return memo;
        }
    }
    return NULL;
}

const gki_memo *gki_memo_find(gki_memos *memos, const gki_memo_key *key, const gk_op_desc *op,
                              const gk_call *call, bool *seen)
{
    gki_memo *memo = NULL;
    uint16_t place = 0;
    *seen = false;
    for (int kind = 0; memo == NULL && kind < GKI_SHELVES; kind++) {
        const shelf *s = &memos->shelves[kind];
        memo = s->tags != NULL ? find(s, kind, key, op, call, seen, &place) : NULL;
    }
    if (memo != NULL) {
        foresee(memos, memo, place);
    }
    return memo;
}

bool gki_memo_launch(const gki_memo *memo, void *stream, gki_kernel_launch *out)
{
    if (memo->space != NULL && !gki_workspace_serves(memo->space, stream)) {
        return false;
    }
    out->module = memo->module;
    out->grid = memo->grid;
    out->threads = memo->threads;
    out->cluster = memo->cluster_flags >> FLAG_BITS;
    out->cooperative = (memo->cluster_flags & COOPERATIVE) != 0;
    out->overlap = (memo->cluster_flags & OVERLAP) != 0;
    out->smem = memo->smem;
    out->args = (const char *)memo + (size_t)memo->args_at * ARGS_UNIT;
    out->args_size = memo->args_size;
    return true;
}

/* --- keeping --- */

/* False if it does not fit the words: then the call is too large for its launch to cost. */
static bool tensor_words(const gk_tensor *t, uint64_t *words)
{
    words[0] = (uintptr_t)t->data;
    for (int32_t axis = 0; axis < t->rank; axis++) {
        if (((uint64_t)t->shape[axis] | (uint64_t)t->stride[axis]) > UINT32_MAX) {
            return false;
        }
        words[1 + axis] = (uint64_t)t->shape[axis] | (uint64_t)t->stride[axis] << 32;
    }
    return true;
}

/* What a memo tells the call by, but for the text, up to the end that is returned; NULL if it does
 * not fit. */
static uint64_t *write_words(const gk_op_desc *op, const gk_call *call, uint64_t *words)
{
    memcpy(words, call->attrs, op->n_attrs * sizeof(words[0]));
    words += op->n_attrs;
    for (uint32_t i = 0; i < op->n_args; i++) {
        const gk_tensor *t = call->args[i];
        if (t != NULL && !tensor_words(t, words)) {
            return NULL;
        }
        words += t != NULL ? 1 + t->rank : 0;
    }
    return words;
}

static bool fits(const gki_kernel_launch *launch)
{
    return launch->grid <= INT32_MAX && launch->smem <= INT32_MAX &&
           launch->threads <= UINT16_MAX && launch->cluster <= UINT8_MAX >> FLAG_BITS;
}

static void write_launch(gki_memo *memo, const gki_kernel_launch *launch, size_t args_at)
{
    memo->module = launch->module;
    memo->grid = (int32_t)launch->grid;
    memo->smem = (int32_t)launch->smem;
    memo->threads = (uint16_t)launch->threads;
    memo->cluster_flags = (uint8_t)((uint32_t)launch->cluster << FLAG_BITS |
                                    (launch->cooperative != 0 ? COOPERATIVE : 0) |
                                    (launch->overlap != 0 ? OVERLAP : 0));
    memo->args_at = (uint8_t)(args_at / ARGS_UNIT);
    memo->args_size = (uint16_t)launch->args_size;
    memcpy((char *)memo + args_at, launch->args, launch->args_size);
}

/* The smallest memos that have room; GKI_SHELVES if none do. */
static int kind_for(size_t bytes)
{
    int kind = 0;
    while (kind < GKI_SHELVES && kinds[kind].bytes < bytes) {
        kind++;
    }
    return kind;
}

void gki_memo_keep(gki_memos *memos, const gki_memo_key *key, const gki_entry *entry,
                   const gk_call *call, const gki_workspace *space, const gki_kernel_launch *launch)
{
    const gk_op_desc *op = entry->op;
    uint64_t words[MOST_WORDS];
    const uint64_t *end = fits(launch) ? write_words(op, call, words) : NULL;
    if (end == NULL) {
        return;
    }
    const size_t words_bytes = (size_t)(end - words) * sizeof(words[0]);
    const size_t text_bytes = op->text_name != NULL ? strlen(call->text) + 1 : 0;
    const size_t align = entry->variant->n_maps > 0 ? GKI_ARGS_ALIGN : ARGS_UNIT;
    const size_t args_at = (sizeof(gki_memo) + words_bytes + text_bytes + align - 1) & ~(align - 1);
    const int kind = kind_for(args_at + launch->args_size);
    gki_memo *memo = kind < GKI_SHELVES ? shelf_take(memos, kind, key->hash, false) : NULL;
    if (memo == NULL) {
        return;
    }
    memo->owner = key->owner;
    memo->replacements = key->replacements;
    memo->space = space;
    for (uint32_t i = 0; i < GK_MAX_ARGS; i++) {
        memo->kinds[i] = i < op->n_args ? kind_of(call->args[i]) : 0;
    }
    memcpy(memo->words, words, words_bytes);
    if (text_bytes > 0) {
        memcpy((char *)memo->words + words_bytes, call->text, text_bytes);
    }
    write_launch(memo, launch, args_at);
}

void gki_memo_mark(gki_memos *memos, uint32_t hash)
{
    gki_memo *memo = shelf_take(memos, 0, hash, true);
    if (memo != NULL) {
        memo->owner = 0;
    }
}
