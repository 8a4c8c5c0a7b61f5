/*
 * Operands of gk's own that look like a call's: same shapes, dtypes, layouts and alignments, inputs
 * N(0,1) (small whole numbers for integers), outputs poisoned, all between guard zones. What an
 * input holds is a function of its element's offset, so nothing is kept on the host to know it.
 */
#ifndef GKI_OPERANDS_H
#define GKI_OPERANDS_H

#include "driver/driver.h"

enum {
    GKI_GUARD = 256,            /* bytes on both sides of each operand, at least */
    GKI_EXACT_BYTES = 16 << 20, /* operands up to this size have their gaps guarded, too */
    GKI_MAX_SETS = 2048,
};

typedef struct gki_operand {
    bool present;
    bool is_output;
    gk_dtype dtype;
    gk_tensor shape; /* as in the copies; data is NULL */
    int64_t extent;  /* bytes from the first to past the last element */
    int64_t region;  /* where its part of a set begins: guard, elements, guard */
    int64_t region_bytes;
    int64_t first;        /* of the region's bytes, the first element's */
    int64_t phase;        /* of the pattern of values */
    unsigned char *image; /* the region as it is before a run; NULL above GKI_EXACT_BYTES */
} gki_operand;

typedef struct gki_operands {
    gki_device *device;
    const gk_op_desc *op;
    gk_problem problem;
    void *stream; /* everything here is ordered in it */
    uint32_t sets;
    int64_t set_bytes;
    int64_t operand_bytes; /* of one set, without guards */
    unsigned char *memory; /* device: sets, one after the other */
    unsigned char *master; /* device: what the output's region is restored from; may be NULL */
    gki_operand args[GK_MAX_ARGS];
    uint32_t output; /* index of the argument that is written */
    bool reads_output;
    unsigned char *patterns[GK_DTYPE_COUNT]; /* by dtype; NULL where none is used */
    gk_tensor *tensors;                      /* GK_MAX_ARGS for each set */
    gk_call *calls;
} gki_operands;

/*
 * Of the call's data pointers only the alignment counts; large operands begin at pages. Strides are
 * shortened where they leave large gaps; with one set, which is for checking and not for timing,
 * gaps above 64 KiB are large. sets = how many rotating copies; 0 = as many as together exceed
 * twice the L2 cache, at least two. The copies' problem equals `problem`. Borrows device and
 * stream. *out is NULL on failure.
 */
gk_status gki_operands_create(gki_operands **out, gki_device *device, void *stream,
                              const gk_op_desc *op, const gk_call *call, const gk_problem *problem,
                              uint64_t seed, uint32_t sets);
void gki_operands_destroy(gki_operands **operands);

/* The call on the s-th copy. Lives as long as the operands. */
const gk_call *gki_operands_call(const gki_operands *operands, uint32_t set);

/* Fills the output of copy 0 with poison, or with its first contents if they are read. again: for a
 * second run, with another poison where gki_operands_has_two_poisons(). */
gk_status gki_operands_poison(gki_operands *operands, bool again);

/* An output without gaps that is not read: what a run leaves as it was differs between the first
 * and the second one, whatever the right value is. */
bool gki_operands_has_two_poisons(const gki_operands *operands);

/* The byte of what is not written in an output of the dtype; in floating types NaN the first time,
 * so that a product with it shows. */
unsigned char gki_poison_byte(gk_dtype dtype, bool again);
enum { GKI_GUARD_BYTE = 0xa5 };

/* A value of an input, or of an output that is read, before a run: element `offset` of its memory.
 */
const void *gki_operands_value(const gki_operands *operands, uint32_t arg, int64_t offset);

/* --- values.c --- */

/* PERIOD elements of the dtype, then the same again; gki_free. */
enum { GKI_PERIOD = 262139 }; /* a prime, so that rows of usual lengths differ */
unsigned char *gki_pattern(gk_dtype dtype, uint64_t seed);

/* Visits a tensor's elements in row-major order: index i of the packed order, offset in elements.
 */
typedef struct gki_walk {
    const gk_tensor *tensor;
    int64_t at[GK_MAX_RANK];
    int64_t offset;
    bool done;
} gki_walk;
gki_walk gki_walk_begin(const gk_tensor *tensor);
void gki_walk_next(gki_walk *walk);
int64_t gki_tensor_elements(const gk_tensor *tensor);

/* Copies a tensor's elements, of `size` bytes, from `from`, where its first lies: to the same
 * places behind `to`, or packed in row-major order. */
void gki_copy_elements(const gk_tensor *tensor, size_t size, unsigned char *to, bool packed,
                       const unsigned char *from);

#endif
