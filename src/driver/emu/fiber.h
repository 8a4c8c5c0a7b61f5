/* Fibers: stacks of their own on the calling host thread, switched without system calls. */
#ifndef GKI_EMU_FIBER_H
#define GKI_EMU_FIBER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct gki_fiber gki_fiber;

/* A fiber with a guarded stack; NULL if there is no memory. number: its place among the fibers that
 * run together. */
gki_fiber *gki_fiber_create(uint32_t number);
void gki_fiber_destroy(gki_fiber *fiber);

/* Makes entry(arg) what the next resume runs. The fiber must not be suspended in another entry. */
void gki_fiber_start(gki_fiber *fiber, void (*entry)(void *arg), void *arg);

/* Runs the fiber until it suspends or exits. */
void gki_fiber_resume(gki_fiber *fiber);

/* In the fiber: back to the caller of gki_fiber_resume(), until the next one. */
void gki_fiber_suspend(gki_fiber *fiber);

/* In the fiber: ends its run from any depth. An entry that returns does the same. */
void gki_fiber_exit(gki_fiber *fiber) __attribute__((noreturn));

#endif
