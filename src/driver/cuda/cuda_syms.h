/* libcuda's functions, found once per process. */
#ifndef GKI_CUDA_SYMS_H
#define GKI_CUDA_SYMS_H

#include <gk/base.h>

#include "driver/cuda/cuda_abi.h"

typedef struct gki_cuda_api {
/* NOLINTNEXTLINE(bugprone-macro-parentheses): a declaration cannot have them. */
#define GKI_CUDA_MEMBER(name, params) gki_cu_result(*name) params;
    GKI_CUDA_SYMBOLS(GKI_CUDA_MEMBER)
    GKI_CUDA_STRUCT_SYMBOLS(GKI_CUDA_MEMBER)
    GKI_CUDA_LATER_SYMBOLS(GKI_CUDA_MEMBER)
#undef GKI_CUDA_MEMBER
    int version;    /* the newest CUDA the driver supports: 13000 for 13.0 */
    char path[256]; /* the file it was loaded from */
} gki_cuda_api;

/*
 * Loads libcuda.so.1, or the file that the environment variable GK_CUDA_DRIVER names. A second
 * call gives the first one's answer. GK_ERR_NO_DRIVER if there is none, if it is the toolkit's
 * stub, or if it is too old. Does not initialise CUDA.
 */
gk_status gki_cuda_api_get(const gki_cuda_api **out);

/* "libcuda.so.1 (/path) is the CUDA toolkit's stub, not a driver" as GK_ERR_NO_DRIVER. */
gk_status gki_cuda_fail_stub(const char *path);

/* Records "<text>: <error's name> (<its meaning>)" with the status that the result stands for:
 * GK_ERR_NOMEM, GK_ERR_LOST if the context is dead, GK_ERR_DEVICE otherwise. */
gk_status gki_cuda_fail(const gki_cuda_api *api, gki_cu_result result, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Whether every later call on the context fails too, until the process ends. */
bool gki_cuda_is_fatal(gki_cu_result result);

/* The error's name, never NULL. */
const char *gki_cuda_error_name(const gki_cuda_api *api, gki_cu_result result);

#endif
