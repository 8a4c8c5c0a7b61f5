#include "driver/cuda/nvrtc_syms.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/dl.h"
#include "base/env.h"
#include "base/error.h"
#include "base/str.h"

/* The templates need __grid_constant__ and sm_90a. */
enum { OLDEST_MAJOR = 12 };

static const char *const file_names[] = {"libnvrtc.so.13", "libnvrtc.so.12"};
enum { N_FILE_NAMES = sizeof(file_names) / sizeof(file_names[0]) };

static pthread_once_t load_once = PTHREAD_ONCE_INIT;
static gki_nvrtc_api loaded;
static gk_error load_error; /* status GK_OK once loaded is usable */

/* Opens directory + infix + each file name; `why` keeps the first failure that says more than that
 * there is no such file. */
static void *open_in(const char *directory, const char *infix, char *why, size_t why_size)
{
    for (int i = 0; i < N_FILE_NAMES; i++) {
        char path[512];
        int n = snprintf(path, sizeof(path), "%s%s%s", directory, infix, file_names[i]);
        struct stat info;
        if (n < 0 || (size_t)n >= sizeof(path) ||
            (directory[0] != '\0' && stat(path, &info) != 0)) {
            continue;
        }
        char message[512];
        void *handle = gki_dl_open(path, message, sizeof(message));
        if (handle != NULL) {
            return handle;
        }
        if (why[0] == '\0') {
            gki_copy_text(why, why_size, message);
        }
    }
    return NULL;
}

static void *open_named(const char *name, char *why, size_t why_size)
{
    struct stat info;
    if (stat(name, &info) == 0 && S_ISDIR(info.st_mode)) {
        void *handle = open_in(name, "/", why, why_size);
        if (handle == NULL && why[0] == '\0') {
            snprintf(why, why_size, "%s: no %s or %s in this directory", name, file_names[0],
                     file_names[1]);
        }
        return handle;
    }
    return gki_dl_open(name, why, why_size);
}

static void *open_any(char *why, size_t why_size)
{
    void *handle = open_in("", "", why, why_size);
    const char *homes[] = {gki_env("CUDA_HOME"), gki_env("CUDA_PATH"), "/usr/local/cuda"};
    for (size_t i = 0; handle == NULL && i < sizeof(homes) / sizeof(homes[0]); i++) {
        if (homes[i] != NULL && homes[i][0] == '/') {
            handle = open_in(homes[i], "/lib64/", why, why_size);
        }
    }
    return handle;
}

/* NVRTC opens its builtins library by bare name, which fails for an NVRTC outside the library path
 * unless that library is loaded already. */
static void open_builtins(const gki_nvrtc_api *api)
{
    const char *slash = strrchr(api->path, '/');
    if (slash == NULL) {
        return;
    }
    char path[512];
    int n = snprintf(path, sizeof(path), "%.*s/libnvrtc-builtins.so.%d.%d",
                     (int)(slash - api->path), api->path, api->major, api->minor);
    if (n > 0 && (size_t)n < sizeof(path)) {
        char why[512];
        gki_dl_open(path, why, sizeof(why));
    }
}

static bool resolve(void *handle, const char *name, void *member, size_t size)
{
    void *symbol = gki_dl_symbol(handle, name);
    memcpy(member, &symbol, size);
    return symbol != NULL;
}

static gk_status read_archs(gki_nvrtc_api *api)
{
    int n = 0;
    gki_nvrtc_result result = api->nvrtcGetNumSupportedArchs(&n);
    if (result == GKI_NVRTC_SUCCESS && n > 0 && n <= GKI_NVRTC_MAX_ARCHS) {
        result = api->nvrtcGetSupportedArchs(api->archs);
    }
    if (result != GKI_NVRTC_SUCCESS || n <= 0 || n > GKI_NVRTC_MAX_ARCHS) {
        return gki_fail_code(GK_ERR_NO_COMPILER, "nvrtc", (int32_t)result,
                             "NVRTC %d.%d (%s) does not list its architectures (count %d)",
                             api->major, api->minor, api->path, n);
    }
    api->n_archs = (uint32_t)n;
    return GK_OK;
}

static gk_status resolve_all(void *handle, gki_nvrtc_api *api)
{
    if (!resolve(handle, "nvrtcVersion", &api->nvrtcVersion, sizeof(api->nvrtcVersion)) ||
        api->nvrtcVersion(&api->major, &api->minor) != GKI_NVRTC_SUCCESS) {
        return gk_fail(GK_ERR_NO_COMPILER, "nvrtc", "no NVRTC: %s does not tell its version",
                       api->path);
    }
    void *version = gki_dl_symbol(handle, "nvrtcVersion");
    gki_dl_path_of(version, api->path, sizeof(api->path));
    if (api->major < OLDEST_MAJOR) {
        return gk_fail(GK_ERR_NO_COMPILER, "nvrtc",
                       "NVRTC %d.%d (%s) is too old: %d.0 or later is needed", api->major,
                       api->minor, api->path, OLDEST_MAJOR);
    }
#define RESOLVE(name, params)                                                                      \
    if (!resolve(handle, #name, &api->name, sizeof(api->name))) {                                  \
        return gk_fail(GK_ERR_NO_COMPILER, "nvrtc", "NVRTC %d.%d (%s) has no function %s",         \
                       api->major, api->minor, api->path, #name);                                  \
    }
    GKI_NVRTC_SYMBOLS(RESOLVE)
#undef RESOLVE
    if (!resolve(handle, "nvrtcGetErrorString", &api->nvrtcGetErrorString,
                 sizeof(api->nvrtcGetErrorString))) {
        return gk_fail(GK_ERR_NO_COMPILER, "nvrtc", "NVRTC %d.%d (%s) has no nvrtcGetErrorString",
                       api->major, api->minor, api->path);
    }
    return read_archs(api);
}

static gk_status load(gki_nvrtc_api *api)
{
    const char *named = gki_env("GK_NVRTC");
    char why[512] = "";
    void *handle = named != NULL ? open_named(named, why, sizeof(why)) : open_any(why, sizeof(why));
    if (handle == NULL) {
        return gk_fail(GK_ERR_NO_COMPILER, "nvrtc", "no NVRTC: %s%s", why,
                       named != NULL ? " (named by GK_NVRTC)"
                                     : "; install it or name its file or directory in GK_NVRTC");
    }
    gki_copy_text(api->path, sizeof(api->path), named != NULL ? named : file_names[0]);
    gk_status status = resolve_all(handle, api);
    if (status == GK_OK) {
        open_builtins(api);
    }
    return status;
}

static void load_all(void)
{
    if (load(&loaded) != GK_OK) {
        gki_error_save(&load_error);
    }
}

gk_status gki_nvrtc_api_get(const gki_nvrtc_api **out)
{
    *out = NULL;
    pthread_once(&load_once, load_all);
    if (load_error.status != GK_OK) {
        return gki_error_restore(&load_error);
    }
    *out = &loaded;
    return GK_OK;
}
