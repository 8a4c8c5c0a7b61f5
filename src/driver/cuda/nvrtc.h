/* NVRTC: kernel text to code. Needs no GPU and no driver. */
#ifndef GKI_NVRTC_H
#define GKI_NVRTC_H

#include "driver/cuda/nvrtc_syms.h"
#include "driver/driver.h"

/*
 * What to compile for on a device of compute capability cc (90 for 9.0): "sm_90a" where NVRTC knows
 * the device; otherwise the newest virtual architecture below it ("compute_90"), whose PTX the
 * driver compiles. GK_ERR_NO_COMPILER with both versions if there is neither.
 */
gk_status gki_nvrtc_target(int32_t cc, char *out, size_t size);

/*
 * gki_driver's compile for the given target. "sm_.." gives a cubin, "compute_.." gives PTX, of
 * which registers and spills are unknown. Thread-safe.
 */
gk_status gki_nvrtc_compile(const char *arch, const char *source, gki_compiled *out);

/* Reads registers, spills, stack and "serialized" from ptxas's verbose log (nvrtc_log.c). */
void gki_nvrtc_read_log(const char *log, gki_compiled *out);

/* Copies the first line of the log that reports an error, or its first line. */
void gki_nvrtc_first_error(const char *log, char *out, size_t size);

#endif
