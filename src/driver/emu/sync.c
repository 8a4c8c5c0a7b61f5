/* Barriers and warp operations: the services of the CPU device that make threads wait. */
#include <string.h>

#include "driver/emu/state.h"

static uint32_t lane_bit(const gki_emu_context *thread)
{
    return UINT32_C(1) << thread->thread.lane;
}

/* Returns when another thread has made this one ready. */
static void wait_here(gki_emu_context *thread)
{
    thread->warp->ready &= ~lane_bit(thread);
    gki_fiber_suspend(thread->fiber);
    if (thread->sm->failed) {
        thread->exited = true;
        gki_fiber_exit(thread->fiber);
    }
}

static void set_place(gki_emu_context *thread, const char *what, const char *file, int line)
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
    set_place(thread, "__syncthreads", file, line);
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
        wait_here(thread);
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
    set_place(thread, name, file, line);
    mask &= warp->lanes;
    check_mask(thread, mask, full_warp != 0);
    gki_emu_pending *pending = find_pending(warp, operation, mask);
    pending->arrived |= lane_bit(thread);
    warp->operands[self->lane] = operand;
    if (pending->arrived != mask) {
        wait_here(thread);
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
}

const gk_emu_host gki_emu_host = {
    .barrier = barrier,
    .collective = collective,
    .lanes = lanes,
    .copy_async = gki_emu_copy_async,
    .copy_commit = gki_emu_copy_commit,
    .copy_wait = gki_emu_copy_wait,
    .fail = gki_emu_fail,
};
