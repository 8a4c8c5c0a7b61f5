/* Shared objects opened at run time. */
#ifndef GKI_DL_H
#define GKI_DL_H

#include <gk/base.h>

/* dlopen RTLD_NOW | RTLD_LOCAL; NULL with the loader's message in `why`. */
void *gki_dl_open(const char *name, char *why, size_t size);
/* The symbol's address, NULL if absent. */
void *gki_dl_symbol(void *handle, const char *name);
/* The file that holds an address, "" if unknown. */
void gki_dl_path_of(const void *address, char *out, size_t size);
void gki_dl_close(void *handle);

#endif
