#define _GNU_SOURCE
#include "driver/emu/fiber.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/alloc.h"
#include "driver/emu/sanitize.h"

/* Sanitizers enlarge frames and put red zones between variables. */
#if GKI_ASAN || GKI_TSAN
enum { STACK_BYTES = 512 * 1024 };
#else
enum { STACK_BYTES = 64 * 1024 };
#endif
enum { STACK_COLORS = 32 };

#if (defined(__x86_64__) || defined(__aarch64__)) && defined(__linux__) &&                         \
    !defined(GKI_FIBER_UCONTEXT)
#define SWITCH_ASM 1
#else
#define SWITCH_ASM 0
#include <ucontext.h>
#endif

struct gki_fiber {
#if SWITCH_ASM
    void *own_sp;
    void *caller_sp;
#else
    ucontext_t own;
    ucontext_t caller;
#endif
    unsigned char *mapping; /* a guard page, then the stack */
    size_t mapping_bytes;
    size_t guard_bytes;
    size_t color_bytes; /* unused at the stack's upper end */
    void (*entry)(void *arg);
    void *arg;
    gki_sanitizer_stack sanitizer;
};

#if SWITCH_ASM

/* Saves the callee-saved registers on the stack, stores the stack pointer in *save, continues on
 * the stack `load`. Floating-point control words are not switched: a launch runs with one value. */
void gki_fiber_switch(void **save, void *load);
/* First return address of a fiber. */
void gki_fiber_trampoline(void);

#if defined(__x86_64__)
/* The odd word leaves the trampoline a stack aligned to 16. */
enum { FRAME_WORDS = 9, FRAME_RETURN = 6, FRAME_ARG = 2 };
__asm__(".text\n"
        ".globl gki_fiber_switch\n"
        ".hidden gki_fiber_switch\n"
        ".type gki_fiber_switch, @function\n"
        "gki_fiber_switch:\n"
        "    pushq %rbp\n"
        "    pushq %rbx\n"
        "    pushq %r12\n"
        "    pushq %r13\n"
        "    pushq %r14\n"
        "    pushq %r15\n"
        "    movq %rsp, (%rdi)\n"
        "    movq %rsi, %rsp\n"
        "    popq %r15\n"
        "    popq %r14\n"
        "    popq %r13\n"
        "    popq %r12\n"
        "    popq %rbx\n"
        "    popq %rbp\n"
        "    ret\n"
        ".size gki_fiber_switch, .-gki_fiber_switch\n"
        ".globl gki_fiber_trampoline\n"
        ".hidden gki_fiber_trampoline\n"
        ".type gki_fiber_trampoline, @function\n"
        "gki_fiber_trampoline:\n"
        "    movq %r13, %rdi\n"
        "    call gki_fiber_main\n"
        "    ud2\n"
        ".size gki_fiber_trampoline, .-gki_fiber_trampoline\n");
#else
enum { FRAME_WORDS = 20, FRAME_RETURN = 11, FRAME_ARG = 0 };
__asm__(".text\n"
        ".globl gki_fiber_switch\n"
        ".hidden gki_fiber_switch\n"
        ".type gki_fiber_switch, %function\n"
        "gki_fiber_switch:\n"
        "    sub sp, sp, #160\n"
        "    stp x19, x20, [sp, #0]\n"
        "    stp x21, x22, [sp, #16]\n"
        "    stp x23, x24, [sp, #32]\n"
        "    stp x25, x26, [sp, #48]\n"
        "    stp x27, x28, [sp, #64]\n"
        "    stp x29, x30, [sp, #80]\n"
        "    stp d8, d9, [sp, #96]\n"
        "    stp d10, d11, [sp, #112]\n"
        "    stp d12, d13, [sp, #128]\n"
        "    stp d14, d15, [sp, #144]\n"
        "    mov x9, sp\n"
        "    str x9, [x0]\n"
        "    mov sp, x1\n"
        "    ldp x19, x20, [sp, #0]\n"
        "    ldp x21, x22, [sp, #16]\n"
        "    ldp x23, x24, [sp, #32]\n"
        "    ldp x25, x26, [sp, #48]\n"
        "    ldp x27, x28, [sp, #64]\n"
        "    ldp x29, x30, [sp, #80]\n"
        "    ldp d8, d9, [sp, #96]\n"
        "    ldp d10, d11, [sp, #112]\n"
        "    ldp d12, d13, [sp, #128]\n"
        "    ldp d14, d15, [sp, #144]\n"
        "    add sp, sp, #160\n"
        "    ret\n"
        ".size gki_fiber_switch, .-gki_fiber_switch\n"
        ".globl gki_fiber_trampoline\n"
        ".hidden gki_fiber_trampoline\n"
        ".type gki_fiber_trampoline, %function\n"
        "gki_fiber_trampoline:\n"
        "    mov x0, x19\n"
        "    bl gki_fiber_main\n"
        "    brk #1\n"
        ".size gki_fiber_trampoline, .-gki_fiber_trampoline\n");
#endif

static void switch_in(gki_fiber *fiber)
{
    gki_fiber_switch(&fiber->caller_sp, fiber->own_sp);
}

static void switch_out(gki_fiber *fiber)
{
    gki_fiber_switch(&fiber->own_sp, fiber->caller_sp);
}

#else

static void switch_in(gki_fiber *fiber)
{
    swapcontext(&fiber->caller, &fiber->own);
}

static void switch_out(gki_fiber *fiber)
{
    swapcontext(&fiber->own, &fiber->caller);
}

#endif

/* Called by name from the trampoline. */
void gki_fiber_main(gki_fiber *fiber) __attribute__((noreturn, used, visibility("hidden")));

void gki_fiber_main(gki_fiber *fiber)
{
    gki_sanitizer_entered(&fiber->sanitizer);
    fiber->entry(fiber->arg);
    gki_fiber_exit(fiber);
}

#if !SWITCH_ASM
/* makecontext() passes ints only. */
static void context_main(unsigned high, unsigned low)
{
    gki_fiber_main((gki_fiber *)(uintptr_t)((uint64_t)high << 32 | low));
}
#endif

gki_fiber *gki_fiber_create(uint32_t number)
{
    gki_fiber *fiber = gki_calloc(1, sizeof *fiber);
    if (fiber == NULL) {
        return NULL;
    }
    const long page = sysconf(_SC_PAGESIZE);
    fiber->guard_bytes = page > 0 ? (size_t)page : 4096;
    fiber->mapping_bytes = fiber->guard_bytes + STACK_BYTES;
    void *mapping = mmap(NULL, fiber->mapping_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapping == MAP_FAILED) {
        gki_free(fiber);
        return NULL;
    }
    fiber->mapping = mapping;
    if (mprotect(fiber->mapping + fiber->guard_bytes, STACK_BYTES, PROT_READ | PROT_WRITE) != 0) {
        munmap(mapping, fiber->mapping_bytes);
        gki_free(fiber);
        return NULL;
    }
    /* Neighbours' stacks begin in different cache sets, which all begin at a page otherwise. */
    fiber->color_bytes = (size_t)(number % STACK_COLORS) * 128;
    fiber->sanitizer.bottom = fiber->mapping + fiber->guard_bytes;
    fiber->sanitizer.bytes = STACK_BYTES;
    return fiber;
}

void gki_fiber_destroy(gki_fiber *fiber)
{
    if (fiber == NULL) {
        return;
    }
    gki_sanitizer_reset(&fiber->sanitizer);
    munmap(fiber->mapping, fiber->mapping_bytes);
    gki_free(fiber);
}

void gki_fiber_start(gki_fiber *fiber, void (*entry)(void *arg), void *arg)
{
    fiber->entry = entry;
    fiber->arg = arg;
    gki_sanitizer_renew(&fiber->sanitizer);
#if SWITCH_ASM
    uintptr_t *frame =
        (uintptr_t *)(void *)(fiber->mapping + fiber->mapping_bytes - fiber->color_bytes) -
        FRAME_WORDS;
    memset(frame, 0, FRAME_WORDS * sizeof *frame);
    frame[FRAME_RETURN] = (uintptr_t)gki_fiber_trampoline;
    frame[FRAME_ARG] = (uintptr_t)fiber;
    fiber->own_sp = frame;
#else
    getcontext(&fiber->own);
    fiber->own.uc_stack.ss_sp = fiber->mapping + fiber->guard_bytes;
    fiber->own.uc_stack.ss_size = STACK_BYTES - fiber->color_bytes;
    fiber->own.uc_link = NULL;
    const uint64_t bits = (uintptr_t)fiber;
    makecontext(&fiber->own, (void (*)(void))context_main, 2, (unsigned)(bits >> 32),
                (unsigned)bits);
#endif
}

void gki_fiber_resume(gki_fiber *fiber)
{
    void *saved = gki_sanitizer_enter(&fiber->sanitizer);
    switch_in(fiber);
    gki_sanitizer_returned(saved);
}

void gki_fiber_suspend(gki_fiber *fiber)
{
    void *saved = gki_sanitizer_leave(&fiber->sanitizer, false);
    switch_out(fiber);
    gki_sanitizer_reentered(&fiber->sanitizer, saved);
}

void gki_fiber_exit(gki_fiber *fiber)
{
    gki_sanitizer_leave(&fiber->sanitizer, true);
    switch_out(fiber);
    abort(); /* a fiber that has ended is not resumed before it is started anew */
}
