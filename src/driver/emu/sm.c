#include "driver/emu/sm.h"

#include <fenv.h>
#include <pthread.h>
#include <string.h>

#include <gk/extend.h>

#include "base/alloc.h"
#include "base/error.h"
#include "driver/emu/state.h"

enum {
    GUARD_BYTES = 256,
    GUARD_BYTE = 0xa5,
    POISON_BYTE = 0xff, /* makes NaN of every float type */
    SHARED_ALIGNMENT = 1024,
};

struct gki_emu_pool {
    pthread_mutex_t mutex;
    gki_emu_sm *idle;
};

static void sm_destroy(gki_emu_sm *sm)
{
    if (sm->threads != NULL) {
        for (uint32_t i = 0; i < GKI_EMU_MAX_THREADS; i++) {
            gki_fiber_destroy(sm->threads[i].fiber);
            gki_free(sm->threads[i].copies);
        }
        gki_free(sm->threads);
    }
    gki_free(sm->shared_base);
    gki_free(sm);
}

static gki_emu_sm *sm_create(void)
{
    gki_emu_sm *sm = gki_calloc(1, sizeof *sm);
    if (sm == NULL) {
        return NULL;
    }
    sm->threads = gki_calloc(GKI_EMU_MAX_THREADS, sizeof *sm->threads);
    if (sm->threads == NULL) {
        gki_free(sm);
        return NULL;
    }
    return sm;
}

gki_emu_pool *gki_emu_pool_create(void)
{
    gki_emu_pool *pool = gki_calloc(1, sizeof *pool);
    if (pool == NULL) {
        return NULL;
    }
    if (pthread_mutex_init(&pool->mutex, NULL) != 0) {
        gki_free(pool);
        return NULL;
    }
    return pool;
}

void gki_emu_pool_destroy(gki_emu_pool *pool)
{
    if (pool == NULL) {
        return;
    }
    while (pool->idle != NULL) {
        gki_emu_sm *sm = pool->idle;
        pool->idle = sm->next;
        sm_destroy(sm);
    }
    pthread_mutex_destroy(&pool->mutex);
    gki_free(pool);
}

static gki_emu_sm *pool_take(gki_emu_pool *pool)
{
    pthread_mutex_lock(&pool->mutex);
    gki_emu_sm *sm = pool->idle;
    if (sm != NULL) {
        pool->idle = sm->next;
    }
    pthread_mutex_unlock(&pool->mutex);
    return sm != NULL ? sm : sm_create();
}

static void pool_give(gki_emu_pool *pool, gki_emu_sm *sm)
{
    pthread_mutex_lock(&pool->mutex);
    sm->next = pool->idle;
    pool->idle = sm;
    pthread_mutex_unlock(&pool->mutex);
}

/* Fibers and shared memory for the launch. */
static gk_status sm_prepare(gki_emu_sm *sm, const gki_emu_launch *launch)
{
    sm->launch = launch;
    sm->n_threads = launch->block.x * launch->block.y * launch->block.z;
    sm->n_warps = (sm->n_threads + GK_EMU_WARP - 1) / GK_EMU_WARP;
    sm->failed = false;
    for (uint32_t i = 0; i < sm->n_threads; i++) {
        if (sm->threads[i].fiber == NULL) {
            sm->threads[i].fiber = gki_fiber_create(i);
        }
        if (sm->threads[i].fiber == NULL) {
            return gk_fail(GK_ERR_NOMEM, "cpu device", "no memory for the stack of thread %u of %u",
                           i, sm->n_threads);
        }
    }
    if (sm->shared_base == NULL || sm->shared_capacity < launch->smem) {
        const size_t bytes = (size_t)SHARED_ALIGNMENT + launch->smem + GUARD_BYTES;
        gki_free(sm->shared_base);
        sm->shared_base = gki_alloc_aligned(SHARED_ALIGNMENT, bytes);
        if (sm->shared_base == NULL) {
            return gki_fail_nomem("cpu device", bytes);
        }
        sm->shared_capacity = launch->smem;
        sm->shared = sm->shared_base + SHARED_ALIGNMENT;
    }
    return GK_OK;
}

static void thread_main(void *arg)
{
    gki_emu_context *thread = arg;
    const gki_emu_launch *launch = thread->sm->launch;
    launch->kernel->run(&thread->thread, launch->args);
    gki_emu_copy_finish(thread);
    gki_emu_thread_returned(thread);
}

static void reset_thread(gki_emu_sm *sm, uint32_t index)
{
    const gk_emu_dim3 block = sm->launch->block;
    gki_emu_context *thread = &sm->threads[index];
    thread->sm = sm;
    thread->warp = &sm->warps[index / GK_EMU_WARP];
    thread->index = index;
    thread->started = false;
    thread->exited = false;
    thread->first_copy = 0;
    thread->n_copies = 0;
    thread->groups = 0;
    thread->thread = (gk_emu_thread){
        .host = &gki_emu_host,
        .thread_idx = {index % block.x, index / block.x % block.y, index / block.x / block.y},
        .block_idx = sm->block_idx,
        .block_dim = block,
        .grid_dim = sm->launch->grid,
        .shared = sm->shared,
        .shared_bytes = sm->launch->smem,
        .lane = index % GK_EMU_WARP,
    };
    gki_fiber_start(thread->fiber, thread_main, thread);
}

static void reset_block(gki_emu_sm *sm, gk_emu_dim3 block_idx)
{
    const uint32_t smem = sm->launch->smem;
    sm->block_idx = block_idx;
    sm->live = sm->n_threads;
    sm->at_barrier = 0;
    sm->barrier_mixed = false;
    memset(sm->shared - GUARD_BYTES, GUARD_BYTE, GUARD_BYTES);
    memset(sm->shared, POISON_BYTE, smem);
    memset(sm->shared + smem, GUARD_BYTE, GUARD_BYTES);
    for (uint32_t i = 0; i < sm->n_warps; i++) {
        gki_emu_warp *warp = &sm->warps[i];
        const uint32_t first = i * GK_EMU_WARP;
        const uint32_t count = sm->n_threads - first;
        warp->first = first;
        warp->lanes = count >= GK_EMU_WARP ? UINT32_MAX : (UINT32_C(1) << count) - 1;
        warp->ready = warp->lanes;
        warp->exited = 0;
        warp->at_barrier = 0;
        warp->n_pending = 0;
    }
    for (uint32_t i = 0; i < sm->n_threads; i++) {
        reset_thread(sm, i);
    }
}

/*
 * Runs the warp for as long as one of its lanes can. A warp thus gets as far ahead of the others
 * as its barriers allow, and a missing barrier shows.
 */
static bool run_warp(gki_emu_sm *sm, gki_emu_warp *warp)
{
    bool progress = false;
    while (warp->ready != 0) {
        for (uint32_t lane = 0; lane < GK_EMU_WARP; lane++) {
            if ((warp->ready >> lane & 1) == 0) {
                continue;
            }
            gki_emu_context *thread = &sm->threads[warp->first + lane];
            progress = true;
            thread->started = true;
            gki_fiber_resume(thread->fiber);
            if (sm->failed) {
                return true;
            }
        }
    }
    return progress;
}

/* Lets every thread that waits see the failure, so that it leaves its stack. */
static void cancel_block(gki_emu_sm *sm)
{
    for (uint32_t i = 0; i < sm->n_threads; i++) {
        gki_emu_context *thread = &sm->threads[i];
        if (thread->started && !thread->exited) {
            gki_fiber_resume(thread->fiber);
        }
    }
}

static void check_guard(gki_emu_sm *sm, const unsigned char *guard)
{
    for (int i = 0; i < GUARD_BYTES; i++) {
        if (guard[i] != GUARD_BYTE) {
            gki_emu_record(sm, GK_ERR_DEVICE,
                           "shared memory written out of bounds in block %s: offset %lld, the "
                           "block has %u bytes",
                           gki_emu_dim3_text(sm->block_idx).text,
                           (long long)(guard + i - sm->shared), sm->launch->smem);
            return;
        }
    }
}

static void run_block(gki_emu_sm *sm, gk_emu_dim3 block_idx)
{
    reset_block(sm, block_idx);
    while (sm->live > 0 && !sm->failed) {
        bool progress = false;
        for (uint32_t i = 0; i < sm->n_warps && !sm->failed; i++) {
            progress |= run_warp(sm, &sm->warps[i]);
        }
        if (!progress && !sm->failed) {
            gki_emu_record_deadlock(sm);
        }
    }
    if (sm->failed) {
        cancel_block(sm);
        return;
    }
    check_guard(sm, sm->shared - GUARD_BYTES);
    check_guard(sm, sm->shared + sm->launch->smem);
}

static void run_blocks(gki_emu_sm *sm)
{
    const gk_emu_dim3 grid = sm->launch->grid;
    for (uint32_t z = 0; z < grid.z; z++) {
        for (uint32_t y = 0; y < grid.y; y++) {
            for (uint32_t x = 0; x < grid.x; x++) {
                run_block(sm, (gk_emu_dim3){x, y, z});
                if (sm->failed) {
                    return;
                }
            }
        }
    }
}

static gk_status check_launch(const gki_emu_launch *launch)
{
    const gk_emu_dim3 block = launch->block;
    const gk_emu_dim3 grid = launch->grid;
    const uint64_t threads = (uint64_t)block.x * block.y * block.z;
    if (block.x > GKI_EMU_MAX_THREADS || block.y > GKI_EMU_MAX_THREADS || block.z > 64 ||
        threads == 0 || threads > GKI_EMU_MAX_THREADS) {
        return gk_fail(GK_ERR_DEVICE, "cpu device",
                       "block size is %ux%ux%u, must be 1 to %d threads", block.x, block.y, block.z,
                       GKI_EMU_MAX_THREADS);
    }
    if (threads > launch->kernel->max_threads) {
        return gk_fail(GK_ERR_DEVICE, "cpu device",
                       "block size is %u threads, the kernel was compiled for at most %u",
                       (unsigned)threads, launch->kernel->max_threads);
    }
    if (grid.x == 0 || grid.y == 0 || grid.z == 0 || grid.x > INT32_MAX || grid.y > UINT16_MAX ||
        grid.z > UINT16_MAX) {
        return gk_fail(GK_ERR_DEVICE, "cpu device",
                       "grid size is %ux%ux%u, must be 1x1x1 to 2147483647x65535x65535", grid.x,
                       grid.y, grid.z);
    }
    if (launch->smem > GKI_EMU_SMEM_OPTIN) {
        return gk_fail(GK_ERR_DEVICE, "cpu device",
                       "dynamic shared memory is %u bytes, must be at most %d", launch->smem,
                       GKI_EMU_SMEM_OPTIN);
    }
    return GK_OK;
}

gk_status gki_emu_run(gki_emu_pool *pool, const gki_emu_launch *launch)
{
    gk_status status = check_launch(launch);
    if (status != GK_OK) {
        return status;
    }
    gki_emu_sm *sm = pool_take(pool);
    if (sm == NULL) {
        return gki_fail_nomem("cpu device", sizeof *sm);
    }
    status = sm_prepare(sm, launch);
    if (status == GK_OK) {
        /* Results do not depend on the rounding mode or the flushing the application has set. */
        fenv_t environment;
        fegetenv(&environment);
        fesetenv(FE_DFL_ENV);
        run_blocks(sm);
        fesetenv(&environment);
        if (sm->failed) {
            status = gk_fail(sm->status, "cpu device", "%s", sm->message);
        }
    }
    sm->launch = NULL;
    pool_give(pool, sm);
    return status;
}
