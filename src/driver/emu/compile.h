/* Kernel text to a shared object, through the host C++ compiler. */
#ifndef GKI_EMU_COMPILE_H
#define GKI_EMU_COMPILE_H

#include "driver/driver.h"

typedef struct gki_emu_compiler {
    char *path;        /* $GK_CXX, else "c++" */
    char *flags;       /* $GK_CXXFLAGS split into NUL-terminated words, an empty one at the end */
    char identity[64]; /* "c++ 12.2.0 x86_64-linux-gnu", with a digest of the flags if any */
} gki_emu_compiler;

/* Reads the environment and asks the compiler what it is. GK_ERR_NO_COMPILER if there is none. */
gk_status gki_emu_compiler_init(gki_emu_compiler *compiler);
void gki_emu_compiler_free(gki_emu_compiler *compiler);

/* gki_driver.compile. Thread-safe. */
gk_status gki_emu_compile(const gki_emu_compiler *compiler, const char *source, gki_compiled *out);

#endif
