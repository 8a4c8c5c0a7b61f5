/* A part of an output that is compared element by element: its right values, and how it is read. */
#ifndef GKI_VERIFY_PART_H
#define GKI_VERIFY_PART_H

#include "tune/verify.h"

typedef struct gki_part {
    gk_tensor view; /* of the output; data is NULL */
    int64_t base;   /* in elements, from the output's first */
    int64_t count;
    bool by_lines; /* read line by line, else in one copy */
    double *want;
    double *scale;
    unsigned char *got; /* packed, of the run before */
} gki_part;

/* The part that `views`, a call on copy 0's own memory, computes. Free it even if this fails. */
gk_status gki_part_create(gki_part *part, const gki_operands *operands, const gk_call *views);
void gki_part_free(gki_part *part);

/* Bytes of a buffer that gki_part_fetch needs, at least. */
size_t gki_part_room(const gki_part *part);

/* The part's elements on the device, packed; `region`, of region_bytes, is for passing. */
gk_status gki_part_fetch(const gki_part *part, const gki_operands *operands, unsigned char *region,
                         size_t region_bytes, unsigned char *packed);

/* Updates verdict->max_error, and says which element is wrong by most if one is. */
void gki_part_compare(const gki_part *part, const gki_operands *operands,
                      const gk_tolerance *tolerance, const unsigned char *packed,
                      gki_verdict *verdict);

/* Where an element lies in a tensor, as "(3, 17)"; `offset` in elements. */
void gki_place_text(const gk_tensor *tensor, int64_t offset, char *out, size_t size);

#endif
