/*
 * Launches of calls to the last bit alike, ready to be repeated: one thread's, of one context.
 */
#ifndef GKI_MEMO_H
#define GKI_MEMO_H

#include "api/context.h"

/* A call as it was launched. */
typedef struct gki_memo gki_memo;

/* What a memo is of, besides the call itself. */
typedef struct gki_memo_key {
    uint64_t owner;        /* whose calls: op, or plan; never 0 */
    uint64_t replacements; /* of answers in the context, before the call was looked up */
    uint32_t hash;         /* of the call and the owner */
} gki_memo_key;

/* All zeros at first. */
enum { GKI_SHELVES = 3 };
typedef struct gki_memos {
    gki_memo *last;    /* found, NULL = none */
    uint32_t foreseen; /* how many calls in a row came in the order of an earlier time */
    uint32_t turn;     /* which memo is given up next */
    struct gki_shelf {
        uint64_t *tags;
        uint32_t sets;
        uint32_t pushed;
    } shelves[GKI_SHELVES];
} gki_memos;

void gki_memos_free(gki_memos *memos);

/* The memo of the same operands, strides, attributes and text; NULL if there is none. *seen: there
 * was such a call, or one of its hash. The call need not be valid. */
const gki_memo *gki_memo_find(gki_memos *memos, const gki_memo_key *key, const gk_op_desc *op,
                              const gk_call *call, bool *seen);
/* What it launches; args point into the memo. False if its scratch memory is not for the stream. */
bool gki_memo_launch(const gki_memo *memo, void *stream, gki_kernel_launch *out);

/* Keeps a launch that went well, of a call as gki_memo_find() will be asked for it; does nothing if
 * memory is out. The module lives as long as the memos are asked for the owner. */
void gki_memo_keep(gki_memos *memos, const gki_memo_key *key, const gki_entry *entry,
                   const gk_call *call, const gki_workspace *space,
                   const gki_kernel_launch *launch);
/* Keeps only that there was such a call. */
void gki_memo_mark(gki_memos *memos, uint32_t hash);

#endif
