/*
 * What the CPU device and a kernel compiled for it know of each other. Compiled as C by the
 * library and as C++ by the kernels; a kernel names the version it was built against.
 */
#ifndef GK_EMU_ABI_H
#define GK_EMU_ABI_H

#define GK_EMU_ABI_VERSION 2

enum { GK_EMU_WARP = 32, GK_EMU_WARPGROUP = 128, GK_EMU_MAX_RANK = 5 };

typedef struct gk_emu_dim3 {
    unsigned x, y, z;
} gk_emu_dim3;

typedef struct gk_emu_thread gk_emu_thread;

/* Where in the source a service was asked for. `file` is borrowed and must live as long as the
 * kernel's code. */
typedef struct gk_emu_site {
    const char *file;
    int line;
} gk_emu_site;

/*
 * A warp instruction, executed once, when all lanes have arrived: operands[i] is what lane i gave
 * for the lanes i that are set in `lanes`, and NULL for the others.
 */
typedef void gk_emu_operation(void *const *operands, unsigned lanes);

/* Ends the launch with an error. Does not return. */
typedef void gk_emu_failure(gk_emu_thread *self, const char *file, int line, const char *format,
                            ...) __attribute__((format(printf, 4, 5)));

/* The 128 bytes of a gk_tensor_map on this device. */
typedef struct gk_emu_tensor_map {
    unsigned magic;          /* GK_EMU_MAP_MAGIC */
    unsigned short rank;     /* 1 to GK_EMU_MAX_RANK */
    unsigned short element;  /* bytes */
    unsigned long long data; /* address of element 0 */
    long long dims[GK_EMU_MAX_RANK];
    long long strides[GK_EMU_MAX_RANK]; /* bytes; [0] is the element's size */
    unsigned short box[GK_EMU_MAX_RANK];
    unsigned short swizzle; /* bytes: 0, 32, 64 or 128 */
    unsigned char tf32;     /* loads round f32 to tf32 */
    unsigned char reserved[19];
} gk_emu_tensor_map;

#define GK_EMU_MAP_MAGIC 0x70616d74u

/* A bulk copy to shared memory: a map's box at `at`, or, without a map, `bytes` bytes; or 16 bytes
 * that the thread stores in another block (is_store). */
typedef struct gk_emu_load {
    void *shared;
    const void *map;
    const void *global;
    unsigned bytes;
    int rank; /* coordinates that were given */
    int at[GK_EMU_MAX_RANK];
    void *barrier;
    unsigned ctas; /* bit i: block i of the cluster receives the box, too; 0: only this block */
    unsigned long long policy;
    int is_store;
} gk_emu_load;

/* A copy of a box from shared memory. */
typedef struct gk_emu_store {
    const void *map;
    const void *shared;
    int rank;
    int at[GK_EMU_MAX_RANK];
} gk_emu_store;

enum { GK_EMU_F16, GK_EMU_BF16, GK_EMU_TF32, GK_EMU_E4M3, GK_EMU_E5M2 };

/* One thread's share of a warpgroup instruction m64nNk(32 bytes). */
typedef struct gk_emu_wgmma {
    float *d;          /* columns / 2 accumulators */
    const unsigned *a; /* four registers; NULL: a_descriptor */
    unsigned long long a_descriptor;
    unsigned long long b_descriptor;
    unsigned type;    /* GK_EMU_F16, .. */
    unsigned columns; /* 8 to 256 */
    unsigned a_mn_major;
    unsigned b_mn_major;
    unsigned accumulate;
} gk_emu_wgmma;

/* Services of the CPU device. */
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

    /* Memory barriers (mbarrier.c). cta: the block of the cluster that holds it; -1: this one.
     * arrive: `bytes` are expected on top. */
    void (*mbarrier_init)(gk_emu_thread *self, void *barrier, unsigned arrivals, gk_emu_site site);
    void (*mbarrier_fence)(gk_emu_thread *self);
    void (*mbarrier_arrive)(gk_emu_thread *self, void *barrier, int cta, unsigned bytes,
                            gk_emu_site site);
    void (*mbarrier_wait)(gk_emu_thread *self, void *barrier, unsigned parity, gk_emu_site site);

    /* Bulk copies (bulk.c). A load's destination holds 0xFF bytes until somebody waits for its
     * barrier and nothing else can run; a store reads when it is waited for to have read, and
     * writes when it is waited for. */
    void (*bulk_load)(gk_emu_thread *self, const gk_emu_load *load, gk_emu_site site);
    void (*bulk_store)(gk_emu_thread *self, const gk_emu_store *store, gk_emu_site site);
    void (*bulk_commit)(gk_emu_thread *self);
    void (*bulk_wait)(gk_emu_thread *self, unsigned pending, int read_only);
    void (*map_check)(gk_emu_thread *self, const void *map, gk_emu_site site);

    /* Warpgroups (warpgroup.c). The accumulators hold 0xFF bytes until the instruction's group is
     * waited for, which is when the operands in shared memory are read. */
    void (*wgmma)(gk_emu_thread *self, const gk_emu_wgmma *what, gk_emu_site site);
    void (*wgmma_fence)(gk_emu_thread *self);
    void (*wgmma_commit)(gk_emu_thread *self);
    void (*wgmma_wait)(gk_emu_thread *self, unsigned pending, gk_emu_site site);
    void (*registers)(gk_emu_thread *self, unsigned count, int raise, gk_emu_site site);

    /* Barriers among some threads of a block, and all of a cluster (named.c). */
    void (*named_barrier)(gk_emu_thread *self, int id, unsigned threads, int sync,
                          gk_emu_site site);
    void (*cluster_arrive)(gk_emu_thread *self, gk_emu_site site);
    void (*cluster_wait)(gk_emu_thread *self, gk_emu_site site);
    /* In a loop that waits until memory holds something: lets the other threads run. */
    void (*poll)(gk_emu_thread *self, gk_emu_site site);
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
    unsigned cluster_rank;
    unsigned cluster_size;
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
