/* NVRTC's functions, found once per process. */
#ifndef GKI_NVRTC_SYMS_H
#define GKI_NVRTC_SYMS_H

#include <gk/base.h>

#include "driver/cuda/cuda_abi.h"

enum { GKI_NVRTC_MAX_ARCHS = 64 };

typedef struct gki_nvrtc_api {
/* NOLINTNEXTLINE(bugprone-macro-parentheses): a declaration cannot have them. */
#define GKI_NVRTC_MEMBER(name, params) gki_nvrtc_result(*name) params;
    GKI_NVRTC_SYMBOLS(GKI_NVRTC_MEMBER)
#undef GKI_NVRTC_MEMBER
    const char *(*nvrtcGetErrorString)(gki_nvrtc_result);
    int major;
    int minor;
    char path[256];                 /* the file it was loaded from */
    int archs[GKI_NVRTC_MAX_ARCHS]; /* the compute capabilities it compiles for, * 10 */
    uint32_t n_archs;
} gki_nvrtc_api;

/*
 * Loads libnvrtc.so.13, else .12, from the library path, then from $CUDA_HOME, $CUDA_PATH and
 * /usr/local/cuda; or what the environment variable GK_NVRTC names, a file or a directory. A second
 * call gives the first one's answer. GK_ERR_NO_COMPILER if there is none or if it is too old.
 */
gk_status gki_nvrtc_api_get(const gki_nvrtc_api **out);

#endif
