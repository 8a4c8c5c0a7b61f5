/*
 * Runs forced configurations of an op on guarded, poisoned buffers and compares every element with
 * the op's reference.
 */
#ifndef OP_HARNESS_H
#define OP_HARNESS_H

#include <stdatomic.h>

#include <gk/gk.h>

typedef struct op_harness_options {
    const char *device;
    const char *op;
    const char *variant;  /* NULL = all */
    const char *config;   /* "NAME=value .."; NULL = sampled or all */
    const char *dtype;    /* a word of --dtype; NULL = all */
    const char *layout;   /* nn, nt, tn, tt, ss: no unit stride, ntt: column-major c; NULL = all */
    const char *place;    /* see op_places; NULL = all */
    const char *epilogue; /* "relu,bias,.."; NULL = all */
    const char *shapes;   /* "MxNxK,.."; NULL = the case list */
    uint32_t sample;      /* items to draw; 0 = every kernel of every variant, each once */
    uint32_t random;      /* random shapes, each with an item of its own */
    uint64_t seed;
    uint32_t threads;
    uint32_t shard; /* --shard K/N: every N-th item from the K-th on; N = 0: all */
    uint32_t shards;
    bool large; /* compare as for random shapes */
    bool verbose;
} op_harness_options;

/* Where operands lie: "tight" packed on 256-byte boundaries; "wide" leading dimensions padded to
 * multiples of 16 elements, on 256-byte boundaries; "odd" odd leading dimensions, one element past
 * a boundary. */
extern const char *const op_places[];

/* One kernel and what it is run on, but for the shape. */
typedef struct op_item {
    const gk_variant *variant;
    gk_config config;
    const char *dtype;
    const char *layout;
    const char *place;
    const char *epilogue;
} op_item;

typedef struct op_harness {
    op_harness_options options;
    gk_context *ctx;
    gk_device_info device;
    const gk_op_desc *op;
    bool is_cpu;
    atomic_uint_fast64_t runs, passed, failed, refused;
    atomic_bool lost; /* the device; nothing runs any more */
} op_harness;

/* Returns 0 if all ran right and at least one did, 1 if anything failed, 2 for usage, 77 if there
 * is no driver (1 with $GK_TEST_REQUIRE_GPU). `defaults` gives what the arguments leave out. */
int op_harness_main(int argc, char **argv, const op_harness_options *defaults);

/* --- op_harness_run.c --- */

/* Runs the item on one shape, with two choices of launch-time values. `large`: compare with the
 * op's first variant and with parts of the reference. */
void op_harness_run(op_harness *h, const op_item *item, const int64_t *dims, bool large);

/* --- op_harness_operands.c --- */

/* The case's tensors (data is an address that fits the place and is not to be used) and
 * attributes. False if the epilogue's words do not suit the dtypes. */
bool op_harness_call(const op_harness *h, const op_item *item, const int64_t *dims,
                     gk_tensor *tensors, gk_call *call);

/* Words for sampling, NULL-terminated. */
extern const char *const op_dtypes[];
extern const char *const op_layouts[];
extern const char *const op_epilogues[];

#endif
