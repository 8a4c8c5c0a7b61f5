/* Memory barriers: 64-bit objects in shared memory that count arrivals and bytes. */
#include <string.h>

#include "base/alloc.h"
#include "driver/emu/state.h"

enum {
    MARK = 0x7261626d, /* upper half of the object; its lower half is the barrier's index */
    MAX_ARRIVALS = (1 << 20) - 1,
    MAX_BYTES = (1 << 20) - 1,
};

static uint32_t offset_of(const gki_emu_context *thread, const void *barrier)
{
    return (uint32_t)((uintptr_t)barrier - (uintptr_t)thread->thread.shared);
}

static void check_place(gki_emu_context *thread, const void *barrier, const char *what,
                        gk_emu_site site)
{
    gk_emu_thread *self = &thread->thread;
    const uintptr_t first = (uintptr_t)self->shared;
    const uintptr_t at = (uintptr_t)barrier;
    if (at % 8 != 0 || at < first || at + 8 > first + self->shared_bytes) {
        gki_emu_fail(self, site.file, site.line,
                     "%s: shared memory offset %lld, must be a multiple of 8 inside the block's %u "
                     "bytes",
                     what, (long long)at - (long long)first, self->shared_bytes);
    }
}

static bool is_barrier(const gki_emu_sm *sm, uint32_t offset, uint32_t *index)
{
    uint64_t object;
    memcpy(&object, sm->shared + offset, sizeof object);
    *index = (uint32_t)object;
    return object >> 32 == MARK && *index < sm->n_mbarriers &&
           sm->mbarriers[*index].offset == offset;
}

uint32_t gki_emu_mbarrier_find(gki_emu_context *thread, const gki_emu_sm *sm, const void *barrier,
                               bool outside, const char *what, gk_emu_site site)
{
    check_place(thread, barrier, what, site);
    const uint32_t offset = offset_of(thread, barrier);
    uint32_t index = 0;
    if (sm->live == 0) {
        gki_emu_fail(&thread->thread, site.file, site.line,
                     "%s: block %u of the cluster has returned", what, sm->rank);
    }
    if (!is_barrier(sm, offset, &index)) {
        gki_emu_fail(&thread->thread, site.file, site.line,
                     "%s: no mbarrier was initialised at shared memory offset %u of block %u of "
                     "the cluster, or it was overwritten",
                     what, offset, sm->rank);
    }
    if (outside && !sm->mbarriers[index].fenced) {
        gki_emu_fail(&thread->thread, site.file, site.line,
                     "%s: the mbarrier at shared memory offset %u was initialised without "
                     "mbarrier_init_fence by thread %u",
                     what, offset, sm->mbarriers[index].thread);
    }
    return index;
}

void gki_emu_mbarrier_init(gk_emu_thread *self, void *barrier, unsigned arrivals, gk_emu_site site)
{
    gki_emu_context *thread = (gki_emu_context *)self;
    gki_emu_sm *sm = thread->sm;
    uint32_t index = 0;
    check_place(thread, barrier, "mbarrier_init", site);
    const uint32_t offset = offset_of(thread, barrier);
    if (arrivals < 1 || arrivals > MAX_ARRIVALS) {
        gki_emu_fail(self, site.file, site.line, "mbarrier_init: %u arrivals, must be 1 to %d",
                     arrivals, MAX_ARRIVALS);
    }
    if (is_barrier(sm, offset, &index)) {
        gki_emu_fail(self, site.file, site.line,
                     "mbarrier_init: there is an mbarrier at shared memory offset %u already",
                     offset);
    }
    if (sm->n_mbarriers == sm->mbarriers_capacity) {
        const uint32_t capacity = sm->mbarriers_capacity == 0 ? 32 : 2 * sm->mbarriers_capacity;
        gki_emu_mbarrier *grown = gki_realloc(sm->mbarriers, capacity * sizeof *grown);
        if (grown == NULL) {
            gki_emu_fail_nomem(self, "a block's mbarriers");
        }
        sm->mbarriers = grown;
        sm->mbarriers_capacity = capacity;
    }
    const uint64_t object = (uint64_t)MARK << 32 | sm->n_mbarriers;
    memcpy(barrier, &object, sizeof object);
    sm->mbarriers[sm->n_mbarriers++] = (gki_emu_mbarrier){
        .offset = offset,
        .expected = arrivals,
        .pending = arrivals,
        .thread = thread->index,
    };
}

void gki_emu_mbarrier_fence(gk_emu_thread *self)
{
    const gki_emu_context *thread = (const gki_emu_context *)self;
    gki_emu_sm *sm = thread->sm;
    for (uint32_t i = 0; i < sm->n_mbarriers; i++) {
        if (sm->mbarriers[i].thread == thread->index) {
            sm->mbarriers[i].fenced = true;
        }
    }
}

/* True if somebody has waited for it. */
static bool complete_phase(gki_emu_sm *sm, uint32_t index)
{
    gki_emu_mbarrier *barrier = &sm->mbarriers[index];
    if (barrier->pending != 0 || barrier->bytes != 0) {
        return false;
    }
    const bool awaited = barrier->waiters > 0;
    barrier->phase++;
    barrier->pending = barrier->expected;
    for (uint32_t i = 0; i < sm->n_threads && barrier->waiters > 0; i++) {
        gki_emu_context *thread = &sm->threads[i];
        if (thread->waits_for == index + 1) {
            thread->waits_for = 0;
            barrier->waiters--;
            gki_emu_wake(thread);
        }
    }
    return awaited;
}

void gki_emu_mbarrier_complete(gki_emu_sm *sm, uint32_t index, uint32_t bytes)
{
    sm->mbarriers[index].bytes -= (int32_t)bytes;
    complete_phase(sm, index);
}

void gki_emu_mbarrier_arrive(gk_emu_thread *self, void *object, int cta, unsigned bytes,
                             gk_emu_site site)
{
    gki_emu_context *thread = (gki_emu_context *)self;
    gki_emu_cluster *cluster = thread->sm->cluster;
    const char *what = cta >= 0     ? "mbarrier_arrive_at"
                       : bytes != 0 ? "mbarrier_arrive_expect"
                                    : "mbarrier_arrive";
    if (cta >= (int)cluster->n_blocks) {
        gki_emu_fail(self, site.file, site.line, "%s: block %d, the cluster has %u", what, cta,
                     cluster->n_blocks);
    }
    gki_emu_sm *sm = cta < 0 ? thread->sm : cluster->blocks[cta];
    const uint32_t index = gki_emu_mbarrier_find(thread, sm, object, sm != thread->sm, what, site);
    gki_emu_mbarrier *barrier = &sm->mbarriers[index];
    if (barrier->pending == 0) {
        gki_emu_fail(self, site.file, site.line,
                     "%s: the %u arrivals of phase %llu of the mbarrier at shared memory offset %u "
                     "have all been, it waits for %d bytes",
                     what, barrier->expected, (unsigned long long)barrier->phase, barrier->offset,
                     (int)barrier->bytes);
    }
    if (bytes > MAX_BYTES || barrier->bytes > MAX_BYTES - (int32_t)bytes) {
        gki_emu_fail(self, site.file, site.line,
                     "%s: %u bytes on top of %d, an mbarrier counts up to %d", what, bytes,
                     (int)barrier->bytes, MAX_BYTES);
    }
    barrier->bytes += (int32_t)bytes;
    barrier->pending--;
    if (complete_phase(sm, index)) {
        /* What the thread gives away too early is then changed at once. */
        gki_emu_set_place(thread, what, site.file, site.line);
        gki_emu_step_back(thread);
    }
}

void gki_emu_mbarrier_wait(gk_emu_thread *self, void *object, unsigned parity, gk_emu_site site)
{
    gki_emu_context *thread = (gki_emu_context *)self;
    gki_emu_sm *sm = thread->sm;
    const uint32_t index = gki_emu_mbarrier_find(thread, sm, object, false, "mbarrier_wait", site);
    const uint64_t phase = sm->mbarriers[index].phase;
    if (parity > 1) {
        gki_emu_fail(self, site.file, site.line, "mbarrier_wait: parity is %u, must be 0 or 1",
                     parity);
    }
    if ((phase & 1) != parity) {
        return;
    }
    gki_emu_set_place(thread, "mbarrier_wait", site.file, site.line);
    thread->waits_for = index + 1;
    sm->mbarriers[index].waiters++;
    gki_emu_wait_here(thread);
    if (sm->mbarriers[index].phase != phase + 1) {
        gki_emu_fail(self, site.file, site.line,
                     "mbarrier_wait: the phase it waited for at shared memory offset %u was "
                     "followed by %llu more before the thread could see it",
                     sm->mbarriers[index].offset,
                     (unsigned long long)(sm->mbarriers[index].phase - phase - 1));
    }
}
