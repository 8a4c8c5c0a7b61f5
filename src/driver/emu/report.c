#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/str.h"
#include "driver/emu/state.h"

void gki_emu_record(gki_emu_sm *sm, gk_status status, const char *format, ...)
{
    gki_emu_gang *gang = sm->gang;
    if (gang->failed) {
        return;
    }
    gang->failed = true;
    gang->status = status;
    va_list args;
    va_start(args, format);
    vsnprintf(gang->message, sizeof gang->message, format, args);
    va_end(args);
}

gki_emu_text gki_emu_dim3_text(gk_emu_dim3 value)
{
    gki_emu_text out;
    snprintf(out.text, sizeof out.text, "(%u,%u,%u)", value.x, value.y, value.z);
    return out;
}

void gki_emu_fail(gk_emu_thread *self, const char *file, int line, const char *format, ...)
{
    gki_emu_context *thread = (gki_emu_context *)self;
    char text[400];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    gki_emu_record(thread->sm, GK_ERR_DEVICE, "%s at %s:%d in block %s, thread %s", text, file,
                   line, gki_emu_dim3_text(self->block_idx).text,
                   gki_emu_dim3_text(self->thread_idx).text);
    thread->exited = true;
    gki_fiber_exit(thread->fiber);
}

static bool same_group(const gki_emu_context *a, const gki_emu_context *b)
{
    if (a->exited || b->exited) {
        return a->exited && b->exited;
    }
    return a->line == b->line && a->waits_for == b->waits_for && strcmp(a->file, b->file) == 0 &&
           strcmp(a->what, b->what) == 0;
}

/* "0-31, 64" */
static void put_members(gki_text *out, const gki_emu_sm *sm, uint32_t member)
{
    const char *separator = "";
    uint32_t i = member;
    while (i < sm->n_threads) {
        if (!same_group(&sm->threads[member], &sm->threads[i])) {
            i++;
            continue;
        }
        uint32_t last = i;
        while (last + 1 < sm->n_threads &&
               same_group(&sm->threads[member], &sm->threads[last + 1])) {
            last++;
        }
        gki_text_printf(out, last > i ? "%s%u-%u" : "%s%u", separator, i, last);
        separator = ", ";
        i = last + 1;
    }
}

/* True if no earlier thread is in the thread's group. */
static bool is_first_of_group(const gki_emu_sm *sm, uint32_t index)
{
    for (uint32_t i = 0; i < index; i++) {
        if (same_group(&sm->threads[i], &sm->threads[index])) {
            return false;
        }
    }
    return true;
}

/* What the barrier that the thread waits for still lacks. */
static void put_mbarrier(gki_text *out, const gki_emu_context *thread)
{
    const gki_emu_mbarrier *barrier = &thread->sm->mbarriers[thread->waits_for - 1];
    gki_text_printf(out,
                    ", shared memory offset %u, phase %llu lacks %u of %u arrivals and %d bytes",
                    barrier->offset, (unsigned long long)barrier->phase, barrier->pending,
                    barrier->expected, (int)barrier->bytes);
}

static void put_block(gki_text *out, const gki_emu_sm *sm)
{
    const char *separator = "";
    for (uint32_t i = 0; i < sm->n_threads; i++) {
        if (!is_first_of_group(sm, i)) {
            continue;
        }
        const gki_emu_context *thread = &sm->threads[i];
        gki_text_printf(out, "%sthreads ", separator);
        put_members(out, sm, i);
        if (thread->exited) {
            gki_text_printf(out, " have returned");
        } else {
            gki_text_printf(out, " wait at %s:%d (%s", thread->file, thread->line, thread->what);
            if (thread->waits_for != 0) {
                put_mbarrier(out, thread);
            }
            gki_text_printf(out, ")");
        }
        separator = ", ";
    }
}

void gki_emu_record_deadlock(gki_emu_gang *gang)
{
    char text[sizeof gang->message];
    gki_text out = gki_text_begin(text, sizeof text);
    const char *separator = "";
    for (uint32_t i = 0; i < gang->n_blocks; i++) {
        const gki_emu_sm *sm = gang->blocks[i];
        if (sm->live == 0) {
            continue;
        }
        gki_text_printf(&out, "%sblock %s: ", separator, gki_emu_dim3_text(sm->block_idx).text);
        put_block(&out, sm);
        separator = "; ";
    }
    gki_emu_record(gang->blocks[0], GK_ERR_DEVICE, "deadlock in %s", text);
}
