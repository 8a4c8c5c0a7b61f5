/*
 * What the CPU device and a kernel compiled for it know of each other. Compiled as C by the
 * library and as C++ by the kernels; a kernel names the version it was built against.
 */
#ifndef GK_EMU_ABI_H
#define GK_EMU_ABI_H

#define GK_EMU_ABI_VERSION 1

enum { GK_EMU_WARP = 32 };

typedef struct gk_emu_dim3 {
    unsigned x, y, z;
} gk_emu_dim3;

typedef struct gk_emu_thread gk_emu_thread;

/*
 * A warp instruction, executed once, when all lanes have arrived: operands[i] is what lane i gave
 * for the lanes i that are set in `lanes`, and NULL for the others.
 */
typedef void gk_emu_operation(void *const *operands, unsigned lanes);

/* Ends the launch with an error. Does not return. */
typedef void gk_emu_failure(gk_emu_thread *self, const char *file, int line, const char *format,
                            ...) __attribute__((format(printf, 4, 5)));

/* Services of the CPU device. `file` is borrowed and must live as long as the kernel's code. */
typedef struct gk_emu_host {
    /* Waits for all threads of the block that have not returned. */
    void (*barrier)(gk_emu_thread *self, const char *file, int line);
    /* Waits for the lanes in `mask` to come to the same operation, which one of them executes.
     * full_warp: the operation needs all 32 lanes. */
    void (*collective)(gk_emu_thread *self, gk_emu_operation *operation, const char *name,
                       unsigned mask, int full_warp, void *operand, const char *file, int line);
    /* The lanes of this warp that have not returned. */
    unsigned (*lanes)(gk_emu_thread *self);
    /* Reads the source now; the destination holds 0xFF bytes until the copy's group is waited
     * for, so that a missing wait and a buffer reused too early both show. */
    void (*copy_async)(gk_emu_thread *self, void *shared, const void *global, int bytes, int valid,
                       const char *file, int line);
    void (*copy_commit)(gk_emu_thread *self);
    void (*copy_wait)(gk_emu_thread *self, unsigned pending);
    gk_emu_failure *fail;
} gk_emu_host;

/* One CUDA thread. */
struct gk_emu_thread {
    const gk_emu_host *host;
    gk_emu_dim3 thread_idx;
    gk_emu_dim3 block_idx;
    gk_emu_dim3 block_dim;
    gk_emu_dim3 grid_dim;
    unsigned char *shared; /* the block's dynamic shared memory */
    unsigned shared_bytes;
    unsigned lane;
};

/* What a module exports under its kernel's name. */
typedef struct gk_emu_kernel {
    unsigned abi;
    unsigned args_bytes;
    unsigned max_threads; /* of a block */
    unsigned min_blocks;
    void (*run)(gk_emu_thread *self, const void *args);
} gk_emu_kernel;

#endif
