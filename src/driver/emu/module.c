#define _GNU_SOURCE
#include "driver/emu/module.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/dl.h"
#include "base/env.h"
#include "base/error.h"
#include "base/fs.h"
#include "driver/emu/sm.h"

/* A private file without a name, -1 with errno if there can be none. */
static int anonymous_file(void)
{
    const int fd = memfd_create("gk-kernel", MFD_CLOEXEC);
    if (fd >= 0) {
        return fd;
    }
    const char *dir = gki_env("TMPDIR");
    char path[4096];
    const int n = snprintf(path, sizeof path, "%s/gk-kernel-XXXXXX", dir != NULL ? dir : "/tmp");
    if (n < 0 || (size_t)n >= sizeof path) {
        errno = ENAMETOOLONG;
        return -1;
    }
    const int named = mkostemp(path, O_CLOEXEC);
    if (named >= 0) {
        unlink(path);
    }
    return named;
}

static gk_status open_code(gki_emu_module *module, const void *code, size_t size)
{
    module->file = anonymous_file();
    if (module->file < 0 || !gki_fs_write_all(module->file, code, size)) {
        const int code_of_error = errno;
        return gki_fail_code(GK_ERR_IO, "cpu device", code_of_error,
                             "cannot keep a kernel's %zu bytes in a file: %s", size,
                             strerror(code_of_error));
    }
    /*
     * The loader takes an object of the same name for the same object: the descriptor stays open
     * as long as the module is loaded, so that no other module gets its number.
     */
    char path[64];
    char why[512];
    snprintf(path, sizeof path, "/proc/self/fd/%d", module->file);
    module->handle = gki_dl_open(path, why, sizeof why);
    if (module->handle == NULL) {
        return gk_fail(GK_ERR_DEVICE, "cpu device", "a kernel's code cannot be loaded: %s", why);
    }
    return GK_OK;
}

static gk_status find_kernel(gki_emu_module *module, const char *name)
{
    const gk_emu_kernel *kernel = gki_dl_symbol(module->handle, name);
    if (kernel == NULL) {
        return gk_fail(GK_ERR_DEVICE, "cpu device", "the code has no kernel named \"%s\"", name);
    }
    if (kernel->abi != GK_EMU_ABI_VERSION) {
        return gk_fail(GK_ERR_DEVICE, "cpu device",
                       "kernel %s was compiled for version %u of the CPU device, this is %d", name,
                       kernel->abi, GK_EMU_ABI_VERSION);
    }
    module->kernel = kernel;
    module->base.max_threads = kernel->max_threads < GKI_EMU_MAX_THREADS
                                   ? (int32_t)kernel->max_threads
                                   : GKI_EMU_MAX_THREADS;
    return GK_OK;
}

gk_status gki_emu_module_load(const void *code, size_t size, const char *kernel,
                              gki_emu_module **out)
{
    *out = NULL;
    gki_emu_module *module = gki_calloc(1, sizeof *module);
    if (module == NULL) {
        return gki_fail_nomem("cpu device", sizeof *module);
    }
    module->file = -1;
    gk_status status = open_code(module, code, size);
    if (status == GK_OK) {
        status = find_kernel(module, kernel);
    }
    if (status != GK_OK) {
        gki_emu_module_unload(module);
        return status;
    }
    *out = module;
    return GK_OK;
}

void gki_emu_module_unload(gki_emu_module *module)
{
    if (module == NULL) {
        return;
    }
    if (module->handle != NULL) {
        gki_dl_close(module->handle);
    }
    if (module->file >= 0) {
        close(module->file);
    }
    gki_free(module);
}
