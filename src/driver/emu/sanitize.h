/* Tells AddressSanitizer and ThreadSanitizer about stack switches; does nothing without them. */
#ifndef GKI_EMU_SANITIZE_H
#define GKI_EMU_SANITIZE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define GKI_ASAN 1
#endif
#if __has_feature(thread_sanitizer)
#define GKI_TSAN 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) && !defined(GKI_ASAN)
#define GKI_ASAN 1
#endif
#if defined(__SANITIZE_THREAD__) && !defined(GKI_TSAN)
#define GKI_TSAN 1
#endif
#ifndef GKI_ASAN
#define GKI_ASAN 0
#endif
#ifndef GKI_TSAN
#define GKI_TSAN 0
#endif

#if GKI_ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#if GKI_TSAN
#include <sanitizer/tsan_interface.h>
#endif

/* More than the frame of a function that leaves a fiber takes. */
enum { GKI_SANITIZER_FRAME = 1024 };

typedef struct gki_sanitizer_stack {
    unsigned char *bottom;
    size_t bytes;
    size_t used; /* of them, at the upper end, when the fiber was last left */
    const void *caller_bottom;
    size_t caller_bytes;
    void *tsan;
    void *tsan_caller;
} gki_sanitizer_stack;

/* Forgets the fiber's last run. Frames deeper than those it was left in have cleaned up behind
 * themselves. */
static inline void gki_sanitizer_reset(gki_sanitizer_stack *s)
{
#if GKI_ASAN
    __asan_unpoison_memory_region(s->bottom + s->bytes - s->used, s->used);
    s->used = 0;
#endif
#if GKI_TSAN
    if (s->tsan != NULL) {
        __tsan_destroy_fiber(s->tsan);
        s->tsan = NULL;
    }
#endif
    (void)s;
}

static inline void gki_sanitizer_renew(gki_sanitizer_stack *s)
{
    gki_sanitizer_reset(s);
#if GKI_TSAN
    s->tsan = __tsan_create_fiber(0);
#endif
}

/* Before the switch into the fiber; the result goes to gki_sanitizer_returned(). */
static inline void *gki_sanitizer_enter(gki_sanitizer_stack *s)
{
    void *saved = NULL;
#if GKI_ASAN
    __sanitizer_start_switch_fiber(&saved, s->bottom, s->bytes);
#endif
#if GKI_TSAN
    s->tsan_caller = __tsan_get_current_fiber();
    __tsan_switch_to_fiber(s->tsan, 0);
#endif
    (void)s;
    return saved;
}

static inline void gki_sanitizer_returned(void *saved)
{
#if GKI_ASAN
    __sanitizer_finish_switch_fiber(saved, NULL, NULL);
#endif
    (void)saved;
}

/* Before the switch out of the fiber; the result goes to gki_sanitizer_reentered(). */
static inline void *gki_sanitizer_leave(gki_sanitizer_stack *s, bool last)
{
    void *saved = NULL;
#if GKI_ASAN
    const uintptr_t top = (uintptr_t)s->bottom + s->bytes;
    const size_t used = top - (uintptr_t)__builtin_frame_address(0) + GKI_SANITIZER_FRAME;
    s->used = used < s->bytes ? used : s->bytes;
    __sanitizer_start_switch_fiber(last ? NULL : &saved, s->caller_bottom, s->caller_bytes);
#endif
#if GKI_TSAN
    __tsan_switch_to_fiber(s->tsan_caller, 0);
#endif
    (void)s;
    (void)last;
    return saved;
}

static inline void gki_sanitizer_reentered(gki_sanitizer_stack *s, void *saved)
{
#if GKI_ASAN
    __sanitizer_finish_switch_fiber(saved, &s->caller_bottom, &s->caller_bytes);
#endif
    (void)s;
    (void)saved;
}

/* First thing on the fiber's stack. */
static inline void gki_sanitizer_entered(gki_sanitizer_stack *s)
{
    gki_sanitizer_reentered(s, NULL);
}

#endif
