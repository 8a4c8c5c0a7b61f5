/* setmaxnreg: what a warpgroup gives up of its registers another one may take. */
#include "driver/emu/state.h"

enum { MIN_COUNT = 24, MAX_COUNT = 256, COUNT_STEP = 8 };

/* What a block gets at launch, as the compiler gives it by the launch bounds. */
void gki_emu_registers_reset(gki_emu_sm *sm)
{
    const uint32_t blocks = sm->launch->kernel->min_blocks;
    uint32_t count = GKI_EMU_REGISTERS / (sm->n_warps * GK_EMU_WARP) / (blocks > 1 ? blocks : 1);
    count -= count % COUNT_STEP;
    if (count > MAX_COUNT) {
        count = MAX_COUNT;
    }
    for (uint32_t i = 0; i < GKI_EMU_WARPGROUPS; i++) {
        sm->allotments[i] = (gki_emu_allotment){.count = count};
    }
    sm->free_registers = 0;
}

/* Gives the complete warpgroup what it asked for, if there is enough. */
static bool settle(gki_emu_sm *sm, uint32_t group)
{
    gki_emu_allotment *own = &sm->allotments[group];
    if (own->arrived < GK_EMU_WARPGROUP) {
        return false;
    }
    const uint32_t given = own->count * GK_EMU_WARPGROUP;
    const uint32_t needed = own->asked * GK_EMU_WARPGROUP;
    if (sm->free_registers + given < needed) {
        return false;
    }
    sm->free_registers = sm->free_registers + given - needed;
    own->count = own->asked;
    own->arrived = 0;
    for (uint32_t i = 0; i < GK_EMU_WARPGROUP; i++) {
        gki_emu_wake(&sm->threads[group * GK_EMU_WARPGROUP + i]);
    }
    return true;
}

static void check(gki_emu_context *thread, const gki_emu_allotment *own, uint32_t count, bool raise)
{
    gk_emu_thread *self = &thread->thread;
    if (count < MIN_COUNT || count > MAX_COUNT || count % COUNT_STEP != 0) {
        gki_emu_fail(self, thread->file, thread->line,
                     "%s: %u registers, must be a multiple of 8 from 24 to 256", thread->what,
                     count);
    }
    if (own->arrived > 0 && (own->asked != count || own->raise != raise)) {
        gki_emu_fail(self, thread->file, thread->line,
                     "%s to %u: others of the warpgroup ask for %u at %s:%d", thread->what, count,
                     own->asked, own->file, own->line);
    }
    if (raise ? count < own->count : count > own->count) {
        gki_emu_fail(self, thread->file, thread->line, "%s to %u: the warpgroup has %u",
                     thread->what, count, own->count);
    }
}

void gki_emu_registers(gk_emu_thread *self, unsigned count, int raise, gk_emu_site site)
{
    gki_emu_context *thread = (gki_emu_context *)self;
    gki_emu_sm *sm = thread->sm;
    const uint32_t group = thread->index / GK_EMU_WARPGROUP;
    gki_emu_allotment *own = &sm->allotments[group];
    gki_emu_set_place(thread, raise ? "registers_raise" : "registers_lower", site.file, site.line);
    gki_emu_need_warpgroup(thread);
    check(thread, own, count, raise != 0);
    if (own->arrived == 0) {
        own->asked = count;
        own->raise = raise != 0;
        own->file = site.file;
        own->line = site.line;
    }
    own->arrived++;
    bool settled = settle(sm, group);
    for (uint32_t i = 0; settled && i < GKI_EMU_WARPGROUPS; i++) {
        if (i != group) {
            settle(sm, i);
        }
    }
    if (!settled) {
        gki_emu_wait_here(thread);
    }
}
