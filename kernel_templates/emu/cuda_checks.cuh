// assert, trap and printf, which NVRTC knows without a header.
#pragma once

extern "C" int printf(const char *format, ...);

#define assert(condition)                                                                          \
    ((condition) ? (void)0                                                                         \
                 : gk_emu_self->host->fail(gk_emu_self, __FILE__, __LINE__, "%s",                  \
                                           "assertion " #condition " failed"))

inline void __trap(GK_EMU_SITE)
{
    gk_emu_self->host->fail(gk_emu_self, file, line, "trap");
}

// Misaligned accesses fail as they do on a GPU. The CPU device compiles kernels with
// -fsanitize=alignment and without the sanitizer's runtime, whose one entry point stands here.
// GCC checks the base of an access at a literal offset: *(uint4 *)(p + 3) is taken for p.
struct gk_emu_access {
    const char *file;
    unsigned line;
    unsigned column;
    const void *type;
    unsigned char log_alignment;
    unsigned char kind;
};

extern "C" __attribute__((visibility("hidden"), used, no_sanitize("alignment"))) inline void
__ubsan_handle_type_mismatch_v1(gk_emu_access *access, unsigned long address)
{
    const unsigned long alignment = 1ul << access->log_alignment;
    gk_emu_self->host->fail(gk_emu_self, access->file, (int)access->line,
                            "misaligned address 0x%lx, must be a multiple of %lu", address,
                            alignment);
}
