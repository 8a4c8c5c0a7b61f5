#include "base/intern.h"

#include <stdatomic.h>
#include <stdint.h>
#include <string.h>

#include "base/alloc.h"
#include "base/hash.h"

enum { BUCKETS = 256 };

typedef struct node {
    struct node *next;
    uint64_t hash;
    size_t length;
    char text[];
} node;

/* Lists that only grow, at their heads. */
static _Atomic(node *) buckets[BUCKETS];

/* Between two nodes of a list, the second excluded. */
static node *find(node *from, const node *until, const char *text, size_t length, uint64_t hash)
{
    while (from != until && !(from->hash == hash && from->length == length &&
                              memcmp(from->text, text, length) == 0)) {
        from = from->next;
    }
    return from != until ? from : NULL;
}

const char *gki_intern(const char *text, size_t length)
{
    const uint64_t hash = gki_hash64(text, length);
    _Atomic(node *) *bucket = &buckets[hash % BUCKETS];
    node *head = atomic_load_explicit(bucket, memory_order_acquire);
    node *known = find(head, NULL, text, length, hash);
    if (known != NULL) {
        return known->text;
    }
    node *added = gki_alloc(sizeof(*added) + length + 1);
    if (added == NULL) {
        return NULL;
    }
    added->hash = hash;
    added->length = length;
    memcpy(added->text, text, length);
    added->text[length] = '\0';
    added->next = head;
    while (!atomic_compare_exchange_weak_explicit(bucket, &head, added, memory_order_acq_rel,
                                                  memory_order_acquire)) {
        /* Others were first: perhaps with the same text. */
        known = find(head, added->next, text, length, hash);
        if (known != NULL) {
            gki_free(added);
            return known->text;
        }
        added->next = head;
    }
    return added->text;
}
