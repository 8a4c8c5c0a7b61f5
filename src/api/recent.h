/*
 * What the calling thread has run lately, so that the like of it takes little: whole calls, ready
 * to be launched again, and the entries of problems. No locks: it is the thread's own memory, given
 * back when the thread ends.
 */
#ifndef GKI_RECENT_H
#define GKI_RECENT_H

#include "api/memo.h"

/* Where a call belongs: made by gki_recent_look, used by the functions below in the same call. */
typedef struct gki_place {
    struct gki_recent_cache *cache; /* NULL if memory is out: nothing is found or kept */
    gki_memo_key key;
    uint64_t problem_key;
    bool seen; /* the thread made this call before */
} gki_place;

/*
 * The memo of a call that is the same to the last bit: operands, strides, attributes; NULL if there
 * is none. id: 0, or a plan's entry's, whose memos are apart from those of the context's calls.
 */
const gki_memo *gki_recent_look(const gk_context *ctx, const gk_op_desc *op, uint64_t id,
                                const gk_call *call, gki_place *place);
/* Keeps a launch for repetition if that is likely. The entry lives as long as the context, or has
 * the place's id. */
void gki_recent_keep(const gki_place *place, const gki_entry *entry, const gk_call *call,
                     const gki_workspace *space, const gki_kernel_launch *launch);

/* The context's entry for a like call, on its way into the cache, or NULL. Whether it is of the
 * call's problem and still the answer to it is for the caller to see. */
gki_entry *gki_recent_entry(gki_place *place, const gk_op_desc *op, const gk_call *call);
/* After gki_recent_entry. The entry lives as long as the context. */
void gki_recent_note(const gki_place *place, gki_entry *entry);

#endif
