/* State of the blocks that run, shared by the files of this folder that act on it. */
#ifndef GKI_EMU_STATE_H
#define GKI_EMU_STATE_H

#include "driver/emu/fiber.h"
#include "driver/emu/sm.h"

enum {
    GKI_EMU_WARPGROUPS = GKI_EMU_MAX_THREADS / GK_EMU_WARPGROUP,
    GKI_EMU_NAMED_BARRIERS = 16,
    GKI_EMU_GROUPS = 16, /* wgmma groups that a thread remembers the ends of */
    GKI_EMU_POISON =
        0xff, /* every byte of what holds no value yet; makes NaN of every float type */
};

typedef struct gki_emu_gang gki_emu_gang;
typedef struct gki_emu_cluster gki_emu_cluster;
typedef struct gki_emu_sm gki_emu_sm;
typedef struct gki_emu_warp gki_emu_warp;
typedef struct gki_emu_warpgroup gki_emu_warpgroup;

/* A cp.async whose bytes have been read but have not landed. */
typedef struct gki_emu_copy {
    unsigned char *shared;
    uint64_t group;
    uint32_t bytes;
    unsigned char data[16];
} gki_emu_copy;

/* A bulk load that has not landed. */
typedef struct gki_emu_landing {
    gk_emu_load what;
    unsigned char data[16]; /* of a store */
    gki_emu_sm *sm;         /* where it goes */
    uint32_t barrier;       /* there */
    uint32_t bytes;
    uint32_t thread; /* that issued it */
    gk_emu_dim3 block;
    gk_emu_site site;
} gki_emu_landing;

/* A bulk store that has not been written. */
typedef struct gki_emu_departure {
    gk_emu_store what;
    uint64_t group;
    unsigned char *data; /* what was read from shared memory; NULL: not read yet */
    gk_emu_site site;
} gki_emu_departure;

typedef struct gki_emu_context {
    gk_emu_thread thread; /* first: what the kernel sees */
    gki_emu_sm *sm;
    gki_emu_warp *warp;
    gki_fiber *fiber;
    uint32_t index; /* in the block */
    bool started;
    bool exited;
    /* Where the thread waits, if it is neither ready nor exited. */
    const char *what;
    const char *file;
    int line;
    uint32_t waits_for;   /* 1 + the mbarrier's index; 0: not an mbarrier */
    gki_emu_copy *copies; /* in the order of issue, from first_copy on */
    size_t first_copy;
    size_t n_copies;
    size_t copies_capacity;
    uint64_t groups;           /* committed */
    gki_emu_departure *stores; /* in the order of issue */
    size_t n_stores;
    size_t stores_capacity;
    uint64_t store_groups; /* committed */
    /* Warpgroup instructions are counted from 1. */
    uint64_t issued;
    uint64_t finished; /* up to here they were waited for */
    uint64_t awaited;  /* the thread waits for this one; 0: for none */
    uint64_t wgmma_groups;
    uint64_t group_ends[GKI_EMU_GROUPS]; /* last instruction of group i, at i % GKI_EMU_GROUPS */
    uint64_t ticks;                      /* of fences, and of accumulators given back */
    uint64_t fenced;                     /* tick of the last wgmma_fence; 0: none */
    bool at_cluster;                     /* has arrived at the cluster's barrier and not waited */
    bool cluster_waits;
    bool polls;             /* waits for memory to change */
    uint64_t polled_at;     /* events */
    uint64_t cluster_phase; /* in which it arrived */
} gki_emu_context;

/* Lanes that wait for the rest of their mask. */
typedef struct gki_emu_pending {
    gk_emu_operation *operation;
    uint32_t mask;
    uint32_t arrived;
} gki_emu_pending;

/* Sets of lanes are bit masks. */
struct gki_emu_warp {
    uint32_t first; /* thread index of lane 0 */
    uint32_t lanes; /* that exist */
    uint32_t ready;
    uint32_t later; /* that go on when the other warps have run */
    uint32_t exited;
    uint32_t at_barrier;
    uint32_t n_pending;
    gki_emu_pending pending[GK_EMU_WARP];
    void *operands[GK_EMU_WARP];
};

/* The 64-bit object in shared memory holds its index and a mark. */
typedef struct gki_emu_mbarrier {
    uint32_t offset;   /* in shared memory */
    uint32_t expected; /* arrivals of a phase */
    uint32_t pending;  /* arrivals that the phase still waits for */
    int32_t bytes;     /* that it still waits for */
    uint64_t phase;    /* completed phases */
    uint32_t waiters;  /* threads */
    uint32_t thread;   /* that initialised it */
    bool fenced;       /* visible to others than the block's threads */
} gki_emu_mbarrier;

typedef struct gki_emu_named {
    uint32_t threads; /* that make it complete; 0: nobody is there */
    uint32_t arrived;
    const char *file; /* of the first to arrive */
    int line;
    uint64_t members[GKI_EMU_MAX_THREADS / 64];
    uint64_t waiting[GKI_EMU_MAX_THREADS / 64];
} gki_emu_named;

/* A warpgroup's registers, and who has asked to change them. */
typedef struct gki_emu_allotment {
    uint32_t count; /* a thread */
    uint32_t asked;
    bool raise;
    uint32_t arrived; /* threads; with all of them it waits for registers */
    const char *file; /* of the first to arrive */
    int line;
} gki_emu_allotment;

/* A block and its shared memory. */
struct gki_emu_sm {
    gki_emu_gang *gang;
    gki_emu_cluster *cluster;
    const gki_emu_launch *launch;
    gk_emu_dim3 block_idx;
    uint32_t rank; /* in the cluster */
    uint32_t n_threads;
    uint32_t n_warps;
    uint32_t live;       /* threads that have not returned */
    uint32_t at_barrier; /* threads */
    bool barrier_mixed;  /* they came from different places */
    const char *barrier_file;
    int barrier_line;
    unsigned char *shared_base;
    unsigned char *shared;
    uint32_t shared_capacity;
    gki_emu_mbarrier *mbarriers;
    uint32_t n_mbarriers;
    uint32_t mbarriers_capacity;
    uint32_t free_registers; /* given up by warpgroups */
    gki_emu_allotment allotments[GKI_EMU_WARPGROUPS];
    gki_emu_named named[GKI_EMU_NAMED_BARRIERS];
    gki_emu_context *threads; /* GKI_EMU_MAX_THREADS, their fibers made when needed */
    gki_emu_warp warps[GKI_EMU_MAX_THREADS / GK_EMU_WARP];
    gki_emu_warpgroup *warpgroups[GKI_EMU_WARPGROUPS]; /* made when needed */
};

/* Blocks that share barriers and reach each other's shared memory; mostly one. */
struct gki_emu_cluster {
    gki_emu_gang *gang;
    gki_emu_sm **blocks; /* of the gang */
    uint32_t n_blocks;
    uint32_t live;    /* threads that have not returned */
    uint32_t arrived; /* threads at the cluster's barrier */
    uint64_t phase;   /* times it was complete */
};

/* Blocks that run at the same time: a cluster, or a whole cooperative grid. */
struct gki_emu_gang {
    gki_emu_gang *next; /* in the pool */
    const gki_emu_launch *launch;
    uint32_t n_blocks;
    uint32_t live;   /* threads that have not returned */
    uint64_t events; /* that may have changed memory */
    bool failed;
    gk_status status; /* of the failure */
    char message[900];
    gki_emu_landing *loads; /* in the order of issue */
    size_t n_loads;
    size_t loads_capacity;
    gki_emu_sm *blocks[GKI_EMU_MAX_RESIDENT]; /* made when needed */
    gki_emu_cluster clusters[GKI_EMU_MAX_RESIDENT];
};

/* sync.c */
extern const gk_emu_host gki_emu_host;
/* The thread has returned; whoever waited for it may go on. */
void gki_emu_thread_returned(gki_emu_context *thread);
/* What the thread does, for reports. */
void gki_emu_set_place(gki_emu_context *thread, const char *what, const char *file, int line);
/* Returns when another thread has made this one ready. */
void gki_emu_wait_here(gki_emu_context *thread);
void gki_emu_wake(gki_emu_context *thread);
/* Lets the other warps run first. */
void gki_emu_step_back(gki_emu_context *thread);
/* Wakes the threads for which something may have changed; true if there is one. */
bool gki_emu_wake_polling(gki_emu_gang *gang);
/* Ends the thread for want of memory. */
void gki_emu_fail_nomem(gk_emu_thread *self, const char *what) __attribute__((noreturn));
/* The thread's warpgroup is complete, or the thread fails. */
void gki_emu_need_warpgroup(gki_emu_context *thread);

/* copy.c */
void gki_emu_copy_async(gk_emu_thread *self, void *shared, const void *global, int bytes, int valid,
                        const char *file, int line);
void gki_emu_copy_commit(gk_emu_thread *self);
void gki_emu_copy_wait(gk_emu_thread *self, unsigned pending);
/* Lands everything that is still unfinished. */
void gki_emu_copy_finish(gki_emu_context *thread);

/* mbarrier.c */
void gki_emu_mbarrier_init(gk_emu_thread *self, void *barrier, unsigned arrivals, gk_emu_site site);
void gki_emu_mbarrier_fence(gk_emu_thread *self);
void gki_emu_mbarrier_arrive(gk_emu_thread *self, void *barrier, int cta, unsigned bytes,
                             gk_emu_site site);
void gki_emu_mbarrier_wait(gk_emu_thread *self, void *barrier, unsigned parity, gk_emu_site site);
/* The index in `sm` of the mbarrier at the address' offset; fails the thread if there is none.
 * outside: it is needed by others than the block's threads. */
uint32_t gki_emu_mbarrier_find(gki_emu_context *thread, const gki_emu_sm *sm, const void *barrier,
                               bool outside, const char *what, gk_emu_site site);
/* Bytes that were expected have come. */
void gki_emu_mbarrier_complete(gki_emu_sm *sm, uint32_t index, uint32_t bytes);

/* bulk.c */
void gki_emu_bulk_load(gk_emu_thread *self, const gk_emu_load *load, gk_emu_site site);
void gki_emu_bulk_store(gk_emu_thread *self, const gk_emu_store *store, gk_emu_site site);
void gki_emu_bulk_commit(gk_emu_thread *self);
void gki_emu_bulk_wait(gk_emu_thread *self, unsigned pending, int read_only);
void gki_emu_map_check(gk_emu_thread *self, const void *map, gk_emu_site site);
/* Lands what somebody waits for at one mbarrier; false if there is none. */
bool gki_emu_land(gki_emu_gang *gang);
/* Fails the thread if it leaves stores unread. */
void gki_emu_bulk_thread_returns(gki_emu_context *thread);
/* Records a failure if loads to the block have not landed. */
void gki_emu_bulk_block_returned(gki_emu_sm *sm);
/* Writes what was stored and not waited for, or drops it. */
void gki_emu_bulk_finish(gki_emu_gang *gang, bool write);

/* tensor_map.c */
typedef struct gki_emu_box {
    const gk_emu_tensor_map *map;
    int at[GK_EMU_MAX_RANK];
} gki_emu_box;
/* The part of memory that the box touches; empty (first == end) outside the array. */
gki_emu_range gki_emu_box_range(const gki_emu_box *box);
uint32_t gki_emu_box_bytes(const gk_emu_tensor_map *map);
/* The box from global memory to shared + offset. */
void gki_emu_box_load(const gki_emu_box *box, unsigned char *shared, uint32_t offset);
/* From shared + offset to the rows of `data`, without swizzle; from there to global memory. */
void gki_emu_box_read(const gki_emu_box *box, const unsigned char *shared, uint32_t offset,
                      unsigned char *data);
void gki_emu_box_write(const gki_emu_box *box, const unsigned char *data);

/* warpgroup.c */
void gki_emu_wgmma(gk_emu_thread *self, const gk_emu_wgmma *what, gk_emu_site site);
void gki_emu_wgmma_fence(gk_emu_thread *self);
void gki_emu_wgmma_commit(gk_emu_thread *self);
void gki_emu_wgmma_wait(gk_emu_thread *self, unsigned pending, gk_emu_site site);
void gki_emu_warpgroups_reset(gki_emu_sm *sm);
void gki_emu_warpgroups_free(gki_emu_sm *sm);
/* Executes what threads wait for and every thread has issued by now. True: one became ready. */
bool gki_emu_warpgroups_retry(gki_emu_sm *sm);
/* Fails the thread if its accumulators are in flight. */
void gki_emu_wgmma_thread_returns(gki_emu_context *thread);

/* registers.c */
void gki_emu_registers_reset(gki_emu_sm *sm);
void gki_emu_registers(gk_emu_thread *self, unsigned count, int raise, gk_emu_site site);

/* wgmma.c: sums (64 x columns, row by row) += a * b, or = a * b. registers: A's, four of each
 * thread; NULL: A is in shared memory. */
enum { GKI_EMU_WGMMA_SCRATCH = 10240 };
void gki_emu_wgmma_multiply(const gk_emu_wgmma *what, const unsigned char *shared,
                            const uint32_t (*registers)[4], float *scratch, float *sums);
/* Why the descriptor of an operand cannot be used; NULL: it can. rows: of it along M or N. */
const char *gki_emu_descriptor_fault(uint64_t descriptor, bool mn_major, uint32_t rows,
                                     uint32_t type, uint32_t shared_bytes);

/* named.c */
void gki_emu_named_barrier(gk_emu_thread *self, int id, unsigned threads, int sync,
                           gk_emu_site site);
void gki_emu_cluster_arrive(gk_emu_thread *self, gk_emu_site site);
void gki_emu_cluster_wait(gk_emu_thread *self, gk_emu_site site);
void gki_emu_cluster_thread_returned(gki_emu_context *thread);

/* report.c; the first failure of a launch is the one that is kept. */
void gki_emu_record(gki_emu_sm *sm, gk_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void gki_emu_record_deadlock(gki_emu_gang *gang);
/* "(3,0,0)" */
typedef struct gki_emu_text {
    char text[40];
} gki_emu_text;
gki_emu_text gki_emu_dim3_text(gk_emu_dim3 value);
/* Records a failure of the thread that runs, and ends it. */
void gki_emu_fail(gk_emu_thread *self, const char *file, int line, const char *format, ...)
    __attribute__((format(printf, 4, 5), noreturn));

#endif
