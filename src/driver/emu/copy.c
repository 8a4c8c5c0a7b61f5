/* cp.async: each thread's copies land when their group is waited for, in the order of issue. */
#include <string.h>

#include "base/alloc.h"
#include "driver/emu/state.h"

static gki_emu_copy *push(gki_emu_context *thread)
{
    if (thread->n_copies == thread->copies_capacity) {
        const size_t capacity = thread->copies_capacity == 0 ? 16 : 2 * thread->copies_capacity;
        gki_emu_copy *copies = gki_realloc(thread->copies, capacity * sizeof *copies);
        if (copies == NULL) {
            return NULL;
        }
        thread->copies = copies;
        thread->copies_capacity = capacity;
    }
    return &thread->copies[thread->n_copies++];
}

static void check(gk_emu_thread *self, const void *shared, const void *global, int bytes, int valid,
                  const char *file, int line)
{
    if (valid < 0 || valid > bytes) {
        gki_emu_fail(self, file, line, "cp.async of %d bytes: %d valid bytes, must be 0 to %d",
                     bytes, valid, bytes);
    }
    if ((uintptr_t)shared % (unsigned)bytes != 0) {
        gki_emu_fail(self, file, line,
                     "cp.async of %d bytes: shared memory offset %lld is misaligned, must be a "
                     "multiple of %d",
                     bytes, (long long)((uintptr_t)shared - (uintptr_t)self->shared), bytes);
    }
    if ((uintptr_t)global % (unsigned)bytes != 0) {
        gki_emu_fail(self, file, line,
                     "cp.async of %d bytes: global address %p is misaligned, must be a multiple "
                     "of %d",
                     bytes, global, bytes);
    }
    const uintptr_t first = (uintptr_t)self->shared;
    if ((uintptr_t)shared < first ||
        (uintptr_t)shared + (unsigned)bytes > first + self->shared_bytes) {
        gki_emu_fail(self, file, line,
                     "cp.async of %d bytes: shared memory offset %lld is outside the block's %u "
                     "bytes",
                     bytes, (long long)((uintptr_t)shared - first), self->shared_bytes);
    }
}

/* Memory that the device did not give out has an unknown end. */
static void check_source(gk_emu_thread *self, const void *global, int bytes, int valid,
                         const char *file, int line)
{
    gki_emu_memory *memory = ((gki_emu_context *)self)->sm->launch->memory;
    if (memory == NULL || valid == 0) {
        return;
    }
    const gki_emu_range range = gki_emu_memory_find(memory, global);
    if (range.end != 0 && range.end - (uintptr_t)global < (unsigned)valid) {
        gki_emu_fail(self, file, line,
                     "cp.async of %d bytes: reads %d bytes at %p, %llu bytes before the end of an "
                     "allocation of %llu",
                     bytes, valid, global, (unsigned long long)(range.end - (uintptr_t)global),
                     (unsigned long long)(range.end - range.first));
    }
}

void gki_emu_copy_async(gk_emu_thread *self, void *shared, const void *global, int bytes, int valid,
                        const char *file, int line)
{
    gki_emu_context *thread = (gki_emu_context *)self;
    check(self, shared, global, bytes, valid, file, line);
    check_source(self, global, bytes, valid, file, line);
    gki_emu_copy *copy = push(thread);
    if (copy == NULL) {
        gki_emu_fail_nomem(self, "a thread's pending copies");
    }
    copy->shared = shared;
    copy->bytes = (uint32_t)bytes;
    copy->group = thread->groups;
    memset(copy->data, 0, sizeof copy->data);
    if (valid > 0) {
        memcpy(copy->data, global, (size_t)valid);
    }
    memset(shared, GKI_EMU_POISON, (size_t)bytes);
}

void gki_emu_copy_commit(gk_emu_thread *self)
{
    ((gki_emu_context *)self)->groups++;
}

/* Lands the copies of the groups before `end`. */
static void land(gki_emu_context *thread, uint64_t end)
{
    while (thread->first_copy < thread->n_copies &&
           thread->copies[thread->first_copy].group < end) {
        const gki_emu_copy *copy = &thread->copies[thread->first_copy++];
        memcpy(copy->shared, copy->data, copy->bytes);
    }
    /* What is left moves to the front, so that the queue stays as long as the pipeline is deep. */
    const size_t left = thread->n_copies - thread->first_copy;
    if (thread->first_copy > 0) {
        memmove(thread->copies, thread->copies + thread->first_copy, left * sizeof *thread->copies);
    }
    thread->first_copy = 0;
    thread->n_copies = left;
}

void gki_emu_copy_wait(gk_emu_thread *self, unsigned pending)
{
    gki_emu_context *thread = (gki_emu_context *)self;
    if (thread->groups > pending) {
        land(thread, thread->groups - pending);
    }
}

void gki_emu_copy_finish(gki_emu_context *thread)
{
    land(thread, UINT64_MAX);
}
