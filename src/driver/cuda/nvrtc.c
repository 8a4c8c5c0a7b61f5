#include "driver/cuda/nvrtc.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/str.h"

gk_status gki_nvrtc_target(int32_t cc, char *out, size_t size)
{
    const gki_nvrtc_api *api;
    gk_status status = gki_nvrtc_api_get(&api);
    if (status != GK_OK) {
        return status;
    }
    int below = 0;
    int lowest = api->archs[0];
    for (uint32_t i = 0; i < api->n_archs; i++) {
        int arch = api->archs[i];
        if (arch == cc) {
            /* Architectures with instructions that only their own target offers. */
            bool specific = cc == 90 || cc == 100 || cc == 103 || cc == 120;
            snprintf(out, size, "sm_%d%s", arch, specific ? "a" : "");
            return GK_OK;
        }
        if (arch < cc && arch > below) {
            below = arch;
        }
        if (arch < lowest) {
            lowest = arch;
        }
    }
    if (below == 0) {
        return gk_fail(GK_ERR_NO_COMPILER, "nvrtc",
                       "NVRTC %d.%d (%s) compiles for compute capability %d.%d and later, the "
                       "device has %d.%d",
                       api->major, api->minor, api->path, lowest / 10, lowest % 10, cc / 10,
                       cc % 10);
    }
    snprintf(out, size, "compute_%d", below);
    return GK_OK;
}

static gk_status fail_result(const gki_nvrtc_api *api, gki_nvrtc_result result, const char *what)
{
    gk_status status = result == GKI_NVRTC_OUT_OF_MEMORY ? GK_ERR_NOMEM : GK_ERR_NO_COMPILER;
    return gki_fail_code(status, "nvrtc", (int32_t)result, "NVRTC %d.%d (%s): %s: %s", api->major,
                         api->minor, api->path, what, api->nvrtcGetErrorString(result));
}

static gk_status read_log(const gki_nvrtc_api *api, gki_nvrtc_program program, char **out)
{
    size_t size = 0;
    gki_nvrtc_result result = api->nvrtcGetProgramLogSize(program, &size);
    if (result != GKI_NVRTC_SUCCESS) {
        return fail_result(api, result, "nvrtcGetProgramLogSize");
    }
    char *log = gki_calloc(size + 1, 1);
    if (log == NULL) {
        return gki_fail_nomem("nvrtc", size + 1);
    }
    if (size > 0) {
        result = api->nvrtcGetProgramLog(program, log);
    }
    if (result != GKI_NVRTC_SUCCESS) {
        gki_free(log);
        return fail_result(api, result, "nvrtcGetProgramLog");
    }
    *out = log;
    return GK_OK;
}

static gk_status read_code(const gki_nvrtc_api *api, gki_nvrtc_program program, bool ptx,
                           gki_compiled *out)
{
    size_t size = 0;
    gki_nvrtc_result result =
        ptx ? api->nvrtcGetPTXSize(program, &size) : api->nvrtcGetCUBINSize(program, &size);
    if (result != GKI_NVRTC_SUCCESS || size == 0) {
        return fail_result(api, result, ptx ? "no PTX" : "no cubin");
    }
    char *code = gki_alloc(size);
    if (code == NULL) {
        return gki_fail_nomem("nvrtc", size);
    }
    result = ptx ? api->nvrtcGetPTX(program, code) : api->nvrtcGetCUBIN(program, code);
    if (result != GKI_NVRTC_SUCCESS) {
        gki_free(code);
        return fail_result(api, result, ptx ? "nvrtcGetPTX" : "nvrtcGetCUBIN");
    }
    out->code = (unsigned char *)code;
    out->size = size;
    return GK_OK;
}

/* Tells a source that does not compile from a compiler that does not work. */
static gk_status fail_compile(const gki_nvrtc_api *api, gki_nvrtc_result result, const char *arch,
                              const char *log)
{
    char line[400];
    gki_nvrtc_first_error(log, line, sizeof(line));
    bool source = result == GKI_NVRTC_COMPILATION || result == GKI_NVRTC_INTERNAL_ERROR;
    if (strstr(log, "nvrtc-builtins") != NULL || strstr(log, "for option 'gpu-name'") != NULL) {
        source = false;
    }
    if (result == GKI_NVRTC_OUT_OF_MEMORY) {
        return fail_result(api, result, arch);
    }
    if (source) {
        return gki_fail_code(GK_ERR_COMPILE, "nvrtc", (int32_t)result, "%s for %s: %s",
                             line[0] != '\0' ? line : "no message", arch,
                             api->nvrtcGetErrorString(result));
    }
    return gki_fail_code(GK_ERR_NO_COMPILER, "nvrtc", (int32_t)result,
                         "NVRTC %d.%d (%s) cannot compile for %s: %s: %s", api->major, api->minor,
                         api->path, arch, api->nvrtcGetErrorString(result), line);
}

static gk_status compile_program(const gki_nvrtc_api *api, gki_nvrtc_program program,
                                 const char *arch, gki_compiled *out)
{
    bool ptx = strncmp(arch, "compute_", strlen("compute_")) == 0;
    char target[64];
    snprintf(target, sizeof(target), "--gpu-architecture=%s", arch);
    const char *options[4] = {target, "--std=c++17"};
    int n = 2;
    if (!ptx) {
        options[n++] = "--ptxas-options=-v";
    }
    /* The code is cached here already, under keys that say what it was made from. */
    if (api->major > 12 || (api->major == 12 && api->minor >= 9)) {
        options[n++] = "--no-cache";
    }
    gki_nvrtc_result result = api->nvrtcCompileProgram(program, n, options);
    gk_status status = read_log(api, program, &out->log);
    if (status != GK_OK) {
        return result == GKI_NVRTC_SUCCESS ? status : fail_result(api, result, arch);
    }
    if (result != GKI_NVRTC_SUCCESS) {
        return fail_compile(api, result, arch, out->log);
    }
    status = read_code(api, program, ptx, out);
    if (status == GK_OK) {
        gki_nvrtc_read_log(out->log, out);
    }
    return status;
}

gk_status gki_nvrtc_compile(const char *arch, const char *source, gki_compiled *out)
{
    *out = (gki_compiled){0};
    const gki_nvrtc_api *api;
    gk_status status = gki_nvrtc_api_get(&api);
    if (status != GK_OK) {
        return status;
    }
    uint64_t start = gki_clock_ns();
    gki_nvrtc_program program = NULL;
    gki_nvrtc_result result = api->nvrtcCreateProgram(&program, source, "kernel.cu", 0, NULL, NULL);
    if (result != GKI_NVRTC_SUCCESS) {
        return fail_result(api, result, "nvrtcCreateProgram");
    }
    status = compile_program(api, program, arch, out);
    api->nvrtcDestroyProgram(&program);
    if (status == GK_OK) {
        out->seconds = (double)(gki_clock_ns() - start) * 1e-9;
    }
    return status;
}
