#define _GNU_SOURCE
#include "driver/emu/memory.h"

#include <string.h>

#include "base/alloc.h"
#include "base/error.h"

gk_status gki_emu_memory_init(gki_emu_memory *memory)
{
    memset(memory, 0, sizeof *memory);
    if (pthread_rwlock_init(&memory->lock, NULL) != 0) {
        return gki_fail_nomem("cpu device", sizeof memory->lock);
    }
    return GK_OK;
}

void gki_emu_memory_free(gki_emu_memory *memory)
{
    pthread_rwlock_destroy(&memory->lock);
    gki_free(memory->ranges);
    memory->ranges = NULL;
}

/* The number of ranges that begin at or before the address. */
static size_t ranges_before(const gki_emu_memory *memory, uintptr_t address)
{
    size_t low = 0;
    size_t high = memory->n_ranges;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (memory->ranges[middle].first <= address) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

gk_status gki_emu_memory_add(gki_emu_memory *memory, const void *ptr, size_t bytes)
{
    const gki_emu_range range = {(uintptr_t)ptr, (uintptr_t)ptr + bytes};
    pthread_rwlock_wrlock(&memory->lock);
    if (memory->n_ranges == memory->capacity) {
        const size_t capacity = memory->capacity == 0 ? 16 : 2 * memory->capacity;
        gki_emu_range *ranges = gki_realloc(memory->ranges, capacity * sizeof *ranges);
        if (ranges == NULL) {
            pthread_rwlock_unlock(&memory->lock);
            return gki_fail_nomem("cpu device", capacity * sizeof *ranges);
        }
        memory->ranges = ranges;
        memory->capacity = capacity;
    }
    const size_t at = ranges_before(memory, range.first);
    memmove(memory->ranges + at + 1, memory->ranges + at,
            (memory->n_ranges - at) * sizeof *memory->ranges);
    memory->ranges[at] = range;
    memory->n_ranges++;
    pthread_rwlock_unlock(&memory->lock);
    return GK_OK;
}

void gki_emu_memory_remove(gki_emu_memory *memory, const void *ptr)
{
    pthread_rwlock_wrlock(&memory->lock);
    const size_t at = ranges_before(memory, (uintptr_t)ptr);
    if (at > 0 && memory->ranges[at - 1].first == (uintptr_t)ptr) {
        memmove(memory->ranges + at - 1, memory->ranges + at,
                (memory->n_ranges - at) * sizeof *memory->ranges);
        memory->n_ranges--;
    }
    pthread_rwlock_unlock(&memory->lock);
}

gki_emu_range gki_emu_memory_find(gki_emu_memory *memory, const void *ptr)
{
    gki_emu_range found = {0, 0};
    pthread_rwlock_rdlock(&memory->lock);
    const size_t at = ranges_before(memory, (uintptr_t)ptr);
    if (at > 0 && (uintptr_t)ptr < memory->ranges[at - 1].end) {
        found = memory->ranges[at - 1];
    }
    pthread_rwlock_unlock(&memory->lock);
    return found;
}
