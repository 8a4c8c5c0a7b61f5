/* Barriers among some of a block's threads, by number, and among all threads of a cluster. */
#include <string.h>

#include "driver/emu/state.h"

static void release(gki_emu_sm *sm, gki_emu_named *barrier)
{
    for (uint32_t i = 0; i < sm->n_threads; i++) {
        if ((barrier->waiting[i / 64] >> i % 64 & 1) != 0) {
            gki_emu_wake(&sm->threads[i]);
        }
    }
    memset(barrier, 0, sizeof *barrier);
}

void gki_emu_named_barrier(gk_emu_thread *self, int id, unsigned threads, int sync,
                           gk_emu_site site)
{
    gki_emu_context *thread = (gki_emu_context *)self;
    gki_emu_sm *sm = thread->sm;
    const char *what = sync ? "named_barrier_sync" : "named_barrier_arrive";
    if (id < 1 || id >= GKI_EMU_NAMED_BARRIERS) {
        gki_emu_fail(self, site.file, site.line,
                     "%s: barrier %d, must be 1 to %d (0 is that of __syncthreads)", what, id,
                     GKI_EMU_NAMED_BARRIERS - 1);
    }
    if (threads == 0 || threads % GK_EMU_WARP != 0 || threads > sm->n_threads) {
        gki_emu_fail(self, site.file, site.line,
                     "%s: barrier %d of %u threads, must be a multiple of 32 up to the block's %u",
                     what, id, threads, sm->n_threads);
    }
    gki_emu_named *barrier = &sm->named[id];
    if (barrier->arrived == 0) {
        barrier->threads = threads;
        barrier->file = site.file;
        barrier->line = site.line;
    } else if (barrier->threads != threads) {
        gki_emu_fail(self, site.file, site.line,
                     "%s: barrier %d of %u threads, others are at it for %u at %s:%d", what, id,
                     threads, barrier->threads, barrier->file, barrier->line);
    }
    const uint64_t bit = UINT64_C(1) << thread->index % 64;
    if ((barrier->members[thread->index / 64] & bit) != 0) {
        gki_emu_fail(self, site.file, site.line,
                     "%s: the thread has arrived at barrier %d before, which waits for %u more of "
                     "%u threads",
                     what, id, barrier->threads - barrier->arrived, barrier->threads);
    }
    barrier->members[thread->index / 64] |= bit;
    barrier->arrived++;
    if (barrier->arrived == barrier->threads) {
        release(sm, barrier);
    } else if (sync) {
        barrier->waiting[thread->index / 64] |= bit;
        gki_emu_set_place(thread, what, site.file, site.line);
        gki_emu_wait_here(thread);
    }
}

static void complete_cluster(gki_emu_cluster *cluster)
{
    if (cluster->arrived == 0 || cluster->arrived < cluster->live) {
        return;
    }
    cluster->arrived = 0;
    cluster->phase++;
    for (uint32_t i = 0; i < cluster->n_blocks; i++) {
        gki_emu_sm *sm = cluster->blocks[i];
        for (uint32_t j = 0; j < sm->n_threads; j++) {
            if (sm->threads[j].cluster_waits) {
                sm->threads[j].cluster_waits = false;
                gki_emu_wake(&sm->threads[j]);
            }
        }
    }
}

void gki_emu_cluster_arrive(gk_emu_thread *self, gk_emu_site site)
{
    gki_emu_context *thread = (gki_emu_context *)self;
    gki_emu_cluster *cluster = thread->sm->cluster;
    if (thread->at_cluster) {
        gki_emu_fail(self, site.file, site.line,
                     "cluster_arrive: the thread has arrived before and not waited");
    }
    thread->at_cluster = true;
    thread->cluster_phase = cluster->phase;
    cluster->arrived++;
    complete_cluster(cluster);
}

void gki_emu_cluster_wait(gk_emu_thread *self, gk_emu_site site)
{
    gki_emu_context *thread = (gki_emu_context *)self;
    gki_emu_cluster *cluster = thread->sm->cluster;
    if (!thread->at_cluster) {
        gki_emu_fail(self, site.file, site.line, "cluster_wait: the thread has not arrived");
    }
    thread->at_cluster = false;
    if (cluster->phase == thread->cluster_phase) {
        thread->cluster_waits = true;
        gki_emu_set_place(thread, "cluster_wait", site.file, site.line);
        gki_emu_wait_here(thread);
    }
}

void gki_emu_cluster_thread_returned(gki_emu_context *thread)
{
    gki_emu_cluster *cluster = thread->sm->cluster;
    cluster->live--;
    if (thread->at_cluster && thread->cluster_phase == cluster->phase) {
        cluster->arrived--;
    }
    complete_cluster(cluster);
}
