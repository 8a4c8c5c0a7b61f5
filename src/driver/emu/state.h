/* State of a block that runs, shared by the files of this folder that act on it. */
#ifndef GKI_EMU_STATE_H
#define GKI_EMU_STATE_H

#include "driver/emu/fiber.h"
#include "driver/emu/sm.h"

/* A cp.async whose bytes have been read but have not landed. */
typedef struct gki_emu_copy {
    unsigned char *shared;
    uint64_t group;
    uint32_t bytes;
    unsigned char data[16];
} gki_emu_copy;

typedef struct gki_emu_sm gki_emu_sm;
typedef struct gki_emu_warp gki_emu_warp;

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
    gki_emu_copy *copies; /* in the order of issue, from first_copy on */
    size_t first_copy;
    size_t n_copies;
    size_t copies_capacity;
    uint64_t groups; /* committed */
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
    uint32_t exited;
    uint32_t at_barrier;
    uint32_t n_pending;
    gki_emu_pending pending[GK_EMU_WARP];
    void *operands[GK_EMU_WARP];
};

struct gki_emu_sm {
    gki_emu_sm *next; /* in the pool */
    const gki_emu_launch *launch;
    gk_emu_dim3 block_idx;
    uint32_t n_threads;
    uint32_t n_warps;
    uint32_t live;       /* threads that have not returned */
    uint32_t at_barrier; /* threads */
    bool barrier_mixed;  /* they came from different places */
    const char *barrier_file;
    int barrier_line;
    bool failed;
    gk_status status; /* of the failure */
    char message[900];
    unsigned char *shared_base;
    unsigned char *shared;
    uint32_t shared_capacity;
    gki_emu_context *threads; /* GKI_EMU_MAX_THREADS, their fibers made when needed */
    gki_emu_warp warps[GKI_EMU_MAX_THREADS / GK_EMU_WARP];
};

/* sync.c */
extern const gk_emu_host gki_emu_host;
/* The thread has returned; whoever waited for it may go on. */
void gki_emu_thread_returned(gki_emu_context *thread);

/* copy.c */
void gki_emu_copy_async(gk_emu_thread *self, void *shared, const void *global, int bytes, int valid,
                        const char *file, int line);
void gki_emu_copy_commit(gk_emu_thread *self);
void gki_emu_copy_wait(gk_emu_thread *self, unsigned pending);
/* Lands everything that is still unfinished. */
void gki_emu_copy_finish(gki_emu_context *thread);

/* report.c; the first failure of a launch is the one that is kept. */
void gki_emu_record(gki_emu_sm *sm, gk_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void gki_emu_record_deadlock(gki_emu_sm *sm);
/* "(3,0,0)" */
typedef struct gki_emu_text {
    char text[40];
} gki_emu_text;
gki_emu_text gki_emu_dim3_text(gk_emu_dim3 value);
/* Records a failure of the thread that runs, and ends it. */
void gki_emu_fail(gk_emu_thread *self, const char *file, int line, const char *format, ...)
    __attribute__((format(printf, 4, 5), noreturn));

#endif
