#define _GNU_SOURCE /* dladdr */
#include "base/dl.h"

#include <dlfcn.h>

#include "base/str.h"

void *gki_dl_open(const char *name, char *why, size_t size)
{
    void *handle = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    const char *message = handle == NULL ? dlerror() : "";
    gki_copy_text(why, size, message != NULL ? message : "unknown loader error");
    return handle;
}

void *gki_dl_symbol(void *handle, const char *name)
{
    return dlsym(handle, name);
}

void gki_dl_path_of(const void *address, char *out, size_t size)
{
    Dl_info info;
    bool known = dladdr(address, &info) != 0 && info.dli_fname != NULL;
    gki_copy_text(out, size, known ? info.dli_fname : "");
}

void gki_dl_close(void *handle)
{
    if (handle != NULL) {
        (void)dlclose(handle);
    }
}
