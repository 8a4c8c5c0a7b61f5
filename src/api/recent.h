/*
 * What the calling thread has run lately, so that the like of it takes little: whole calls, ready
 * to be launched again, and the entries of problems. No locks: it is the thread's own memory, given
 * back when the thread ends.
 */
#ifndef GKI_RECENT_H
#define GKI_RECENT_H

#include "api/context.h"

/* A call as it was launched. */
typedef struct gki_memo gki_memo;

/* Where a call belongs: made by gki_recent_look, used by the functions below in the same call. */
typedef struct gki_place {
    struct gki_recent_cache *cache; /* NULL if memory is out: nothing is found or kept */
    uint64_t call_key;
    uint64_t problem_key;
    uint64_t id;
    uint64_t replacements; /* in the context, when the call began */
    bool seen;             /* the thread made this call before */
} gki_place;

/*
 * The memo of a call that is the same to the last bit: operands, strides, attributes; NULL if there
 * is none. id: 0, or a plan's entry's, whose memos are apart from those of the context's calls.
 */
const gki_memo *gki_recent_look(const gk_context *ctx, const gk_op_desc *op, uint64_t id,
                                const gk_call *call, gki_place *place);
/* What it launches; NULL if the stream's scratch memory is not the memo's, which is of no use then.
 * Errors: as gki_workspace_find(). */
gk_status gki_memo_launch(gk_context *ctx, const gki_memo *memo, void *stream,
                          const gki_kernel_launch **out);

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
