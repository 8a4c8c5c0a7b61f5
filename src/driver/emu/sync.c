/* Barriers and warp operations: the services of the CPU device that make threads wait. */
#include <string.h>

#include "driver/emu/state.h"

static uint32_t lane_bit(const gki_emu_context *thread)
{
    return UINT32_C(1) << thread->thread.lane;
}

void gki_emu_wait_here(gki_emu_context *thread)
{
    thread->warp->ready &= ~lane_bit(thread);
    gki_fiber_suspend(thread->fiber);
    if (thread->sm->gang->failed) {
        thread->exited = true;
        gki_fiber_exit(thread->fiber);
    }
}

void gki_emu_wake(gki_emu_context *thread)
{
    thread->warp->ready |= lane_bit(thread);
}

void gki_emu_step_back(gki_emu_context *thread)
{
    thread->warp->later |= lane_bit(thread);
    gki_emu_wait_here(thread);
}

void gki_emu_fail_nomem(gk_emu_thread *self, const char *what)
{
    gki_emu_context *thread = (gki_emu_context *)self;
    gki_emu_record(thread->sm, GK_ERR_NOMEM, "no memory for %s", what);
    thread->exited = true;
    gki_fiber_exit(thread->fiber);
}

void gki_emu_need_warpgroup(gki_emu_context *thread)
{
    const uint32_t first = thread->index - thread->index % GK_EMU_WARPGROUP;
    if (first + GK_EMU_WARPGROUP > thread->sm->n_threads) {
        gki_emu_fail(&thread->thread, thread->file, thread->line,
                     "%s: the block has %u threads, which leaves the warpgroup incomplete",
                     thread->what, thread->sm->n_threads);
    }
}

void gki_emu_set_place(gki_emu_context *thread, const char *what, const char *file, int line)
{
    thread->what = what;
    thread->file = file;
    thread->line = line;
}

/*
 * The barrier is complete when all threads that have not returned wait at it. Threads that came
 * from different places do not meet: they wait until nobody can run, which is then reported.
 */
static bool complete_barrier(gki_emu_sm *sm)
{
    if (sm->at_barrier == 0 || sm->at_barrier < sm->live || sm->barrier_mixed) {
        return false;
    }
    for (uint32_t i = 0; i < sm->n_warps; i++) {
        sm->warps[i].ready |= sm->warps[i].at_barrier;
        sm->warps[i].at_barrier = 0;
    }
    sm->at_barrier = 0;
    return true;
}

static void barrier(gk_emu_thread *self, const char *file, int line)
{
    gki_emu_context *thread = (gki_emu_context *)self;
    gki_emu_sm *sm = thread->sm;
    gki_emu_set_place(thread, "__syncthreads", file, line);
    if (sm->at_barrier == 0) {
        sm->barrier_file = file;
        sm->barrier_line = line;
    } else if (sm->barrier_line != line ||
               (sm->barrier_file != file && strcmp(sm->barrier_file, file) != 0)) {
        sm->barrier_mixed = true;
    }
    sm->at_barrier++;
    thread->warp->at_barrier |= lane_bit(thread);
    if (!complete_barrier(sm)) {
        gki_emu_wait_here(thread);
    }
}

/* Ends the thread if the operation cannot be executed with the lanes of its mask. */
static void check_mask(gki_emu_context *thread, uint32_t mask, bool full_warp)
{
    const gki_emu_warp *warp = thread->warp;
    gk_emu_thread *self = &thread->thread;
    if ((mask & lane_bit(thread)) == 0) {
        gki_emu_fail(self, thread->file, thread->line, "%s: mask 0x%08x does not name lane %u",
                     thread->what, mask, self->lane);
    }
    if (full_warp && warp->lanes != UINT32_MAX) {
        gki_emu_fail(self, thread->file, thread->line,
                     "%s: the warp has %d lanes, the operation needs 32", thread->what,
                     __builtin_popcount(warp->lanes));
    }
    if ((mask & warp->exited) != 0) {
        gki_emu_fail(self, thread->file, thread->line,
                     "%s: mask 0x%08x names lanes 0x%08x, which have returned", thread->what, mask,
                     mask & warp->exited);
    }
}

/*
 * The pending operation that the thread joins, a new one if there is none. Other lanes of the mask
 * may be at other operations among themselves first; if they never come, that is a deadlock.
 */
static gki_emu_pending *find_pending(gki_emu_warp *warp, gk_emu_operation *operation, uint32_t mask)
{
    for (uint32_t i = 0; i < warp->n_pending; i++) {
        gki_emu_pending *pending = &warp->pending[i];
        if (pending->mask == mask && pending->operation == operation) {
            return pending;
        }
    }
    gki_emu_pending *pending = &warp->pending[warp->n_pending++];
    *pending = (gki_emu_pending){.operation = operation, .mask = mask};
    return pending;
}

static void collective(gk_emu_thread *self, gk_emu_operation *operation, const char *name,
                       unsigned mask, int full_warp, void *operand, const char *file, int line)
{
    gki_emu_context *thread = (gki_emu_context *)self;
    gki_emu_warp *warp = thread->warp;
    gki_emu_set_place(thread, name, file, line);
    mask &= warp->lanes;
    check_mask(thread, mask, full_warp != 0);
    gki_emu_pending *pending = find_pending(warp, operation, mask);
    pending->arrived |= lane_bit(thread);
    warp->operands[self->lane] = operand;
    if (pending->arrived != mask) {
        gki_emu_wait_here(thread);
        return;
    }
    *pending = warp->pending[--warp->n_pending];
    operation(warp->operands, mask);
    warp->ready |= mask;
}

static unsigned lanes(gk_emu_thread *self)
{
    const gki_emu_warp *warp = ((gki_emu_context *)self)->warp;
    return warp->lanes & ~warp->exited;
}

void gki_emu_thread_returned(gki_emu_context *thread)
{
    gki_emu_sm *sm = thread->sm;
    gki_emu_warp *warp = thread->warp;
    thread->exited = true;
    warp->exited |= lane_bit(thread);
    warp->ready &= ~lane_bit(thread);
    sm->live--;
    sm->gang->live--;
    for (uint32_t i = 0; i < warp->n_pending; i++) {
        const gki_emu_pending *pending = &warp->pending[i];
        if ((pending->mask & lane_bit(thread)) != 0) {
            const uint32_t other = (uint32_t)__builtin_ctz(pending->arrived);
            const gki_emu_context *first = &sm->threads[warp->first + other];
            gki_emu_record(sm, GK_ERR_DEVICE,
                           "thread %u of block %s waits in %s with mask 0x%08x at %s:%d, but "
                           "thread %u has returned",
                           first->index, gki_emu_dim3_text(sm->block_idx).text, first->what,
                           pending->mask, first->file, first->line, thread->index);
            return;
        }
    }
    complete_barrier(sm);
    gki_emu_cluster_thread_returned(thread);
    if (sm->live == 0) {
        gki_emu_bulk_block_returned(sm);
    }
}

static void poll(gk_emu_thread *self, gk_emu_site site)
{
    gki_emu_context *thread = (gki_emu_context *)self;
    gki_emu_set_place(thread, "poll", site.file, site.line);
    thread->polls = true;
    thread->polled_at = thread->sm->gang->events;
    gki_emu_wait_here(thread);
}

bool gki_emu_wake_polling(gki_emu_gang *gang)
{
    bool woken = false;
    for (uint32_t i = 0; i < gang->n_blocks; i++) {
        gki_emu_sm *sm = gang->blocks[i];
        for (uint32_t j = 0; j < sm->n_threads; j++) {
            gki_emu_context *thread = &sm->threads[j];
            if (thread->polls && thread->polled_at < gang->events) {
                gki_emu_wake(thread);
                woken = true;
            }
        }
    }
    return woken;
}

const gk_emu_host gki_emu_host = {
    .barrier = barrier,
    .collective = collective,
    .lanes = lanes,
    .copy_async = gki_emu_copy_async,
    .copy_commit = gki_emu_copy_commit,
    .copy_wait = gki_emu_copy_wait,
    .fail = gki_emu_fail,
    .mbarrier_init = gki_emu_mbarrier_init,
    .mbarrier_fence = gki_emu_mbarrier_fence,
    .mbarrier_arrive = gki_emu_mbarrier_arrive,
    .mbarrier_wait = gki_emu_mbarrier_wait,
    .bulk_load = gki_emu_bulk_load,
    .bulk_store = gki_emu_bulk_store,
    .bulk_commit = gki_emu_bulk_commit,
    .bulk_wait = gki_emu_bulk_wait,
    .map_check = gki_emu_map_check,
    .wgmma = gki_emu_wgmma,
    .wgmma_fence = gki_emu_wgmma_fence,
    .wgmma_commit = gki_emu_wgmma_commit,
    .wgmma_wait = gki_emu_wgmma_wait,
    .registers = gki_emu_registers,
    .named_barrier = gki_emu_named_barrier,
    .cluster_arrive = gki_emu_cluster_arrive,
    .cluster_wait = gki_emu_cluster_wait,
    .poll = poll,
};
