#include "driver/cuda/cuda_syms.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/dl.h"
#include "base/env.h"
#include "base/error.h"

/* The oldest driver whose interface has all of GKI_CUDA_SYMBOLS. */
enum { OLDEST_DRIVER = 12000 };

static pthread_once_t load_once = PTHREAD_ONCE_INIT;
static gki_cuda_api loaded;
static gk_error load_error; /* status GK_OK once loaded is usable */

gk_status gki_cuda_fail_stub(const char *path)
{
    return gki_fail_code(GK_ERR_NO_DRIVER, "cuda", GKI_CU_STUB_LIBRARY,
                         "no driver: libcuda.so.1 (%s) is the CUDA toolkit's stub, which is meant "
                         "for linking only; put the driver's directory first in the library path",
                         path);
}

static gk_status fail_lacking(const char *path, const char *symbol)
{
    return gk_fail(GK_ERR_NO_DRIVER, "cuda",
                   "no driver: %s has no function %s; a driver for CUDA %d.%d or later is needed",
                   path, symbol, OLDEST_DRIVER / 1000, OLDEST_DRIVER % 1000 / 10);
}

static gk_status check_version(gki_cuda_api *api)
{
    gki_cu_result result = api->cuDriverGetVersion(&api->version);
    if (result == GKI_CU_STUB_LIBRARY) {
        return gki_cuda_fail_stub(api->path);
    }
    if (result != GKI_CU_SUCCESS) {
        return gki_fail_code(GK_ERR_NO_DRIVER, "cuda", (int32_t)result,
                             "no driver: cuDriverGetVersion of %s failed with code %u", api->path,
                             result);
    }
    if (api->version < OLDEST_DRIVER) {
        return gk_fail(GK_ERR_NO_DRIVER, "cuda",
                       "no driver: %s supports CUDA %d.%d, but %d.%d or later is needed", api->path,
                       api->version / 1000, api->version % 1000 / 10, OLDEST_DRIVER / 1000,
                       OLDEST_DRIVER % 1000 / 10);
    }
    return GK_OK;
}

/* ISO C has no conversion from void * to a function pointer; POSIX promises equal representation.
 */
static bool resolve(void *handle, const char *name, void *member, size_t size)
{
    void *symbol = gki_dl_symbol(handle, name);
    memcpy(member, &symbol, size);
    return symbol != NULL;
}

static gk_status load(gki_cuda_api *api)
{
    const char *wanted = gki_env("GK_CUDA_DRIVER");
    const char *file = wanted != NULL ? wanted : "libcuda.so.1";
    char why[512];
    void *handle = gki_dl_open(file, why, sizeof(why));
    if (handle == NULL) {
        /* The loader's message begins with the file's name. */
        return gk_fail(GK_ERR_NO_DRIVER, "cuda", "no driver: %s%s", why,
                       wanted != NULL ? " (named by GK_CUDA_DRIVER)" : "");
    }
    void *init = gki_dl_symbol(handle, "cuInit");
    if (init == NULL) {
        return fail_lacking(file, "cuInit");
    }
    gki_dl_path_of(init, api->path, sizeof(api->path));
    if (strstr(api->path, "/stubs/") != NULL) {
        return gki_cuda_fail_stub(api->path);
    }
    if (!resolve(handle, "cuDriverGetVersion", &api->cuDriverGetVersion,
                 sizeof(api->cuDriverGetVersion))) {
        return fail_lacking(api->path, "cuDriverGetVersion");
    }
    gk_status status = check_version(api);
    if (status != GK_OK) {
        return status;
    }
#define RESOLVE(name, params)                                                                      \
    if (!resolve(handle, #name, &api->name, sizeof(api->name))) {                                  \
        return fail_lacking(api->path, #name);                                                     \
    }
    GKI_CUDA_SYMBOLS(RESOLVE)
    GKI_CUDA_STRUCT_SYMBOLS(RESOLVE)
#undef RESOLVE
#define RESOLVE(name, params) (void)resolve(handle, #name, &api->name, sizeof(api->name));
    GKI_CUDA_LATER_SYMBOLS(RESOLVE)
#undef RESOLVE
    return GK_OK;
}

static void load_all(void)
{
    if (load(&loaded) != GK_OK) {
        gki_error_save(&load_error);
    }
}

gk_status gki_cuda_api_get(const gki_cuda_api **out)
{
    *out = NULL;
    pthread_once(&load_once, load_all);
    if (load_error.status != GK_OK) {
        return gki_error_restore(&load_error);
    }
    *out = &loaded;
    return GK_OK;
}

const char *gki_cuda_error_name(const gki_cuda_api *api, gki_cu_result result)
{
    const char *name = NULL;
    if (api->cuGetErrorName(result, &name) != GKI_CU_SUCCESS || name == NULL) {
        return "unknown error";
    }
    return name;
}

bool gki_cuda_is_fatal(gki_cu_result result)
{
    switch (result) {
    case GKI_CU_DEINITIALIZED:
    case GKI_CU_ECC_UNCORRECTABLE:
    case GKI_CU_NVLINK_UNCORRECTABLE:
    case GKI_CU_CONTAINED:
    case GKI_CU_ILLEGAL_ADDRESS:
    case GKI_CU_LAUNCH_TIMEOUT:
    case GKI_CU_CONTEXT_IS_DESTROYED:
    case GKI_CU_ASSERT:
    case GKI_CU_HARDWARE_STACK_ERROR:
    case GKI_CU_ILLEGAL_INSTRUCTION:
    case GKI_CU_MISALIGNED_ADDRESS:
    case GKI_CU_INVALID_ADDRESS_SPACE:
    case GKI_CU_INVALID_PC:
    case GKI_CU_LAUNCH_FAILED:
    case GKI_CU_TENSOR_MEMORY_LEAK:
        return true;
    default:
        return false;
    }
}

gk_status gki_cuda_fail(const gki_cuda_api *api, gki_cu_result result, const char *format, ...)
{
    char text[512];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    const char *meaning = NULL;
    if (api->cuGetErrorString(result, &meaning) != GKI_CU_SUCCESS || meaning == NULL) {
        meaning = "no description";
    }
    const char *name = gki_cuda_error_name(api, result);
    if (gki_cuda_is_fatal(result)) {
        return gki_fail_code(GK_ERR_LOST, "cuda", (int32_t)result,
                             "%s: %s (%s); the CUDA context is lost, the process must be restarted",
                             text, name, meaning);
    }
    gk_status status = result == GKI_CU_OUT_OF_MEMORY ? GK_ERR_NOMEM : GK_ERR_DEVICE;
    return gki_fail_code(status, "cuda", (int32_t)result, "%s: %s (%s)", text, name, meaning);
}
