/*
 * The multiprocessors of the CPU device: run the blocks of a launch one after the other on the
 * calling host thread, those of a cluster or a cooperative grid at the same time, with a fiber for
 * each CUDA thread.
 */
#ifndef GKI_EMU_SM_H
#define GKI_EMU_SM_H

#include <gk/base.h>

#include "driver/emu/memory.h"
#include "emu/abi.h"

enum {
    GKI_EMU_MAX_THREADS = 1024,
    GKI_EMU_MAX_CLUSTER = 16,
    GKI_EMU_MAX_RESIDENT = 64,        /* blocks that can run at the same time */
    GKI_EMU_SMEM_DEFAULT = 48 * 1024, /* without opting in */
    GKI_EMU_SMEM_OPTIN = 227 * 1024,
    GKI_EMU_REGISTERS = 65536, /* of a block */
};

typedef struct gki_emu_launch {
    const gk_emu_kernel *kernel;
    const void *args;
    gk_emu_dim3 grid;
    gk_emu_dim3 block;
    uint32_t smem;
    gki_emu_memory *memory; /* that copies may not read past the ends of; NULL: not checked */
    uint32_t cluster;       /* blocks along x; 0 or 1: no clusters */
    bool cooperative;       /* all blocks run at the same time */
} gki_emu_launch;

/* Multiprocessors that are kept for the next launch; as many as launches run at once. */
typedef struct gki_emu_pool gki_emu_pool;

gki_emu_pool *gki_emu_pool_create(void);
void gki_emu_pool_destroy(gki_emu_pool *pool);

/*
 * Runs the launch to its end. GK_ERR_DEVICE for what the kernel did wrong: a deadlock, a misused
 * operation, a misaligned address, a write past its shared memory. Thread-safe.
 */
gk_status gki_emu_run(gki_emu_pool *pool, const gki_emu_launch *launch);

#endif
