/* A kernel's shared object in memory. */
#ifndef GKI_EMU_MODULE_H
#define GKI_EMU_MODULE_H

#include <stdatomic.h>

#include "driver/driver.h"
#include "emu/abi.h"

typedef struct gki_emu_module {
    gki_module base;
    const gk_emu_kernel *kernel;
    void *handle;
    int file;
    _Atomic int64_t reserved_smem; /* largest size made possible by module_reserve */
} gki_emu_module;

gk_status gki_emu_module_load(const void *code, size_t size, const char *kernel,
                              gki_emu_module **out);
void gki_emu_module_unload(gki_emu_module *module);

#endif
