/* The memory that the CPU device gave out, so that a copy past the end of a piece of it shows. */
#ifndef GKI_EMU_MEMORY_H
#define GKI_EMU_MEMORY_H

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>

#include <gk/base.h>

typedef struct gki_emu_range {
    uintptr_t first;
    uintptr_t end;
} gki_emu_range;

/* All functions but create and destroy are thread-safe. */
typedef struct gki_emu_memory {
    pthread_rwlock_t lock;
    gki_emu_range *ranges; /* sorted, disjoint */
    size_t n_ranges;
    size_t capacity;
} gki_emu_memory;

gk_status gki_emu_memory_init(gki_emu_memory *memory);
void gki_emu_memory_free(gki_emu_memory *memory);

gk_status gki_emu_memory_add(gki_emu_memory *memory, const void *ptr, size_t bytes);
/* Before the memory itself is freed. Unknown memory is ignored. */
void gki_emu_memory_remove(gki_emu_memory *memory, const void *ptr);

/* The range that holds the address; {0, 0} if the device did not give it out. */
gki_emu_range gki_emu_memory_find(gki_emu_memory *memory, const void *ptr);

#endif
