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
    SHARED_ALIGNMENT = 1024,
};

struct gki_emu_pool {
    pthread_mutex_t mutex;
    gki_emu_gang *idle;
};

static void sm_destroy(gki_emu_sm *sm)
{
    if (sm == NULL) {
        return;
    }
    if (sm->threads != NULL) {
        for (uint32_t i = 0; i < GKI_EMU_MAX_THREADS; i++) {
            gki_fiber_destroy(sm->threads[i].fiber);
            gki_free(sm->threads[i].copies);
            gki_free(sm->threads[i].stores);
        }
        gki_free(sm->threads);
    }
    gki_emu_warpgroups_free(sm);
    gki_free(sm->mbarriers);
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

static void gang_destroy(gki_emu_gang *gang)
{
    for (uint32_t i = 0; i < GKI_EMU_MAX_RESIDENT; i++) {
        sm_destroy(gang->blocks[i]);
    }
    gki_free(gang->loads);
    gki_free(gang);
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
        gki_emu_gang *gang = pool->idle;
        pool->idle = gang->next;
        gang_destroy(gang);
    }
    pthread_mutex_destroy(&pool->mutex);
    gki_free(pool);
}

static gki_emu_gang *pool_take(gki_emu_pool *pool)
{
    pthread_mutex_lock(&pool->mutex);
    gki_emu_gang *gang = pool->idle;
    if (gang != NULL) {
        pool->idle = gang->next;
    }
    pthread_mutex_unlock(&pool->mutex);
    return gang != NULL ? gang : gki_calloc(1, sizeof *gang);
}

static void pool_give(gki_emu_pool *pool, gki_emu_gang *gang)
{
    pthread_mutex_lock(&pool->mutex);
    gang->next = pool->idle;
    pool->idle = gang;
    pthread_mutex_unlock(&pool->mutex);
}

/* Fibers and shared memory for the launch. */
static gk_status sm_prepare(gki_emu_sm *sm, const gki_emu_launch *launch)
{
    sm->launch = launch;
    sm->n_threads = launch->block.x * launch->block.y * launch->block.z;
    sm->n_warps = (sm->n_threads + GK_EMU_WARP - 1) / GK_EMU_WARP;
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

static gk_status gang_prepare(gki_emu_gang *gang, const gki_emu_launch *launch)
{
    const uint32_t size = launch->cluster > 1 ? launch->cluster : 1;
    gang->launch = launch;
    gang->n_blocks = launch->cooperative ? launch->grid.x : size;
    gang->failed = false;
    gk_status status = GK_OK;
    for (uint32_t i = 0; i < gang->n_blocks && status == GK_OK; i++) {
        if (gang->blocks[i] == NULL) {
            gang->blocks[i] = sm_create();
        }
        gki_emu_sm *sm = gang->blocks[i];
        if (sm == NULL) {
            return gki_fail_nomem("cpu device", sizeof *sm);
        }
        sm->gang = gang;
        sm->cluster = &gang->clusters[i / size];
        sm->rank = i % size;
        gang->clusters[i / size] = (gki_emu_cluster){
            .gang = gang,
            .blocks = &gang->blocks[i - i % size],
            .n_blocks = size,
        };
        status = sm_prepare(sm, launch);
    }
    return status;
}

static void thread_main(void *arg)
{
    gki_emu_context *thread = arg;
    const gki_emu_launch *launch = thread->sm->launch;
    launch->kernel->run(&thread->thread, launch->args);
    gki_emu_wgmma_thread_returns(thread);
    gki_emu_bulk_thread_returns(thread);
    gki_emu_copy_finish(thread);
    gki_emu_thread_returned(thread);
}

static void reset_thread(gki_emu_sm *sm, uint32_t index)
{
    const gk_emu_dim3 block = sm->launch->block;
    gki_emu_context *thread = &sm->threads[index];
    *thread = (gki_emu_context){
        .fiber = thread->fiber,
        .copies = thread->copies,
        .copies_capacity = thread->copies_capacity,
        .stores = thread->stores,
        .stores_capacity = thread->stores_capacity,
        .sm = sm,
        .warp = &sm->warps[index / GK_EMU_WARP],
        .index = index,
    };
    thread->thread = (gk_emu_thread){
        .host = &gki_emu_host,
        .thread_idx = {index % block.x, index / block.x % block.y, index / block.x / block.y},
        .block_idx = sm->block_idx,
        .block_dim = block,
        .grid_dim = sm->launch->grid,
        .shared = sm->shared,
        .shared_bytes = sm->launch->smem,
        .lane = index % GK_EMU_WARP,
        .cluster_rank = sm->rank,
        .cluster_size = sm->cluster->n_blocks,
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
    sm->n_mbarriers = 0;
    memset(sm->named, 0, sizeof sm->named);
    memset(sm->shared - GUARD_BYTES, GUARD_BYTE, GUARD_BYTES);
    memset(sm->shared, GKI_EMU_POISON, smem);
    memset(sm->shared + smem, GUARD_BYTE, GUARD_BYTES);
    for (uint32_t i = 0; i < sm->n_warps; i++) {
        gki_emu_warp *warp = &sm->warps[i];
        const uint32_t first = i * GK_EMU_WARP;
        const uint32_t count = sm->n_threads - first;
        warp->first = first;
        warp->lanes = count >= GK_EMU_WARP ? UINT32_MAX : (UINT32_C(1) << count) - 1;
        warp->ready = warp->lanes;
        warp->later = 0;
        warp->exited = 0;
        warp->at_barrier = 0;
        warp->n_pending = 0;
    }
    for (uint32_t i = 0; i < sm->n_threads; i++) {
        reset_thread(sm, i);
    }
    gki_emu_registers_reset(sm);
    gki_emu_warpgroups_reset(sm);
}

/*
 * Runs the warp for as long as one of its lanes can. A warp thus gets as far ahead of the others
 * as its barriers allow, and a missing barrier shows.
 */
static bool run_warp(gki_emu_sm *sm, gki_emu_warp *warp)
{
    bool progress = false;
    warp->ready |= warp->later;
    warp->later = 0;
    while (warp->ready != 0) {
        for (uint32_t lane = 0; lane < GK_EMU_WARP; lane++) {
            if ((warp->ready >> lane & 1) == 0) {
                continue;
            }
            gki_emu_context *thread = &sm->threads[warp->first + lane];
            progress = true;
            thread->started = true;
            const bool polled = thread->polls;
            thread->polls = false;
            gki_fiber_resume(thread->fiber);
            if (!polled || !thread->polls) {
                sm->gang->events++;
            }
            if (sm->gang->failed) {
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

/* What the hardware does on its own lands only when no thread can run without it. */
static bool run_engines(gki_emu_gang *gang)
{
    for (uint32_t i = 0; i < gang->n_blocks; i++) {
        if (gki_emu_warpgroups_retry(gang->blocks[i])) {
            return true;
        }
    }
    return gki_emu_wake_polling(gang) || gki_emu_land(gang);
}

static bool run_threads(gki_emu_gang *gang)
{
    bool progress = false;
    for (uint32_t i = 0; i < gang->n_blocks; i++) {
        gki_emu_sm *sm = gang->blocks[i];
        for (uint32_t j = 0; j < sm->n_warps && !gang->failed; j++) {
            progress |= run_warp(sm, &sm->warps[j]);
        }
    }
    return progress;
}

static void reset_gang(gki_emu_gang *gang, gk_emu_dim3 first)
{
    gang->n_loads = 0;
    gang->live = 0;
    gang->events = 1;
    for (uint32_t i = 0; i < gang->n_blocks; i++) {
        gki_emu_sm *sm = gang->blocks[i];
        reset_block(sm, (gk_emu_dim3){first.x + i, first.y, first.z});
        sm->cluster->live = sm->cluster->n_blocks * sm->n_threads;
        sm->cluster->arrived = 0;
        sm->cluster->phase = 0;
        gang->live += sm->n_threads;
    }
}

/* Runs the blocks that begin with `first`. */
static void run_gang(gki_emu_gang *gang, gk_emu_dim3 first)
{
    reset_gang(gang, first);
    while (gang->live > 0 && !gang->failed) {
        if (!run_threads(gang) && !run_engines(gang) && !gang->failed) {
            gki_emu_record_deadlock(gang);
        }
    }
    gki_emu_bulk_finish(gang, !gang->failed);
    for (uint32_t i = 0; i < gang->n_blocks; i++) {
        gki_emu_sm *sm = gang->blocks[i];
        if (gang->failed) {
            cancel_block(sm);
            continue;
        }
        check_guard(sm, sm->shared - GUARD_BYTES);
        check_guard(sm, sm->shared + sm->launch->smem);
    }
}

static void run_gangs(gki_emu_gang *gang)
{
    const gk_emu_dim3 grid = gang->launch->grid;
    for (uint32_t z = 0; z < grid.z; z++) {
        for (uint32_t y = 0; y < grid.y; y++) {
            for (uint32_t x = 0; x < grid.x; x += gang->n_blocks) {
                run_gang(gang, (gk_emu_dim3){x, y, z});
                if (gang->failed) {
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
    if (launch->cluster > GKI_EMU_MAX_CLUSTER ||
        (launch->cluster > 1 && grid.x % launch->cluster != 0)) {
        return gk_fail(GK_ERR_DEVICE, "cpu device",
                       "clusters of %u blocks, must be at most %d and divide the grid's %u",
                       launch->cluster, GKI_EMU_MAX_CLUSTER, grid.x);
    }
    if (launch->cooperative && (grid.x > GKI_EMU_MAX_RESIDENT || grid.y > 1 || grid.z > 1)) {
        return gk_fail(GK_ERR_DEVICE, "cpu device",
                       "a cooperative grid of %ux%ux%u blocks, must be at most %dx1x1", grid.x,
                       grid.y, grid.z, GKI_EMU_MAX_RESIDENT);
    }
    return GK_OK;
}

gk_status gki_emu_run(gki_emu_pool *pool, const gki_emu_launch *launch)
{
    gk_status status = check_launch(launch);
    if (status != GK_OK) {
        return status;
    }
    gki_emu_gang *gang = pool_take(pool);
    if (gang == NULL) {
        return gki_fail_nomem("cpu device", sizeof *gang);
    }
    status = gang_prepare(gang, launch);
    if (status == GK_OK) {
        /* Results do not depend on the rounding mode or the flushing the application has set. */
        fenv_t environment;
        fegetenv(&environment);
        fesetenv(FE_DFL_ENV);
        run_gangs(gang);
        fesetenv(&environment);
        if (gang->failed) {
            status = gk_fail(gang->status, "cpu device", "%s", gang->message);
        }
    }
    gang->launch = NULL;
    pool_give(pool, gang);
    return status;
}
