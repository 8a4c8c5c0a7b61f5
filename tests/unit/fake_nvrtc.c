#define _GNU_SOURCE /* strtok_r */
/*
 * An NVRTC that compiles nothing, for GK_NVRTC. Its "code" is the list of options it was given.
 * FAKE_NVRTC: version=13.0, archs=75,80,90, result=<nvrtcResult of compiling>, log=<text>.
 */
#include "driver/cuda/cuda_abi.h"
#include "fake_env.h"

struct _nvrtcProgram {
    char code[1024];
    char log[1024];
};

#define DECLARE(name, params) gki_nvrtc_result name params;
GKI_NVRTC_SYMBOLS(DECLARE)
const char *nvrtcGetErrorString(gki_nvrtc_result result);

const char *nvrtcGetErrorString(gki_nvrtc_result result)
{
    switch (result) {
    case GKI_NVRTC_INVALID_OPTION:
        return "NVRTC_ERROR_INVALID_OPTION";
    case GKI_NVRTC_COMPILATION:
        return "NVRTC_ERROR_COMPILATION";
    case GKI_NVRTC_BUILTIN_OPERATION_FAILURE:
        return "NVRTC_ERROR_BUILTIN_OPERATION_FAILURE";
    default:
        return "NVRTC_ERROR";
    }
}

gki_nvrtc_result nvrtcVersion(int *major, int *minor)
{
    char text[32];
    fake_text("FAKE_NVRTC", "version", "13.0", text, sizeof(text));
    *major = (int)strtol(text, NULL, 10);
    const char *dot = strchr(text, '.');
    *minor = dot != NULL ? (int)strtol(dot + 1, NULL, 10) : 0;
    return GKI_NVRTC_SUCCESS;
}

static int read_archs(int *out)
{
    char text[256];
    fake_text("FAKE_NVRTC", "archs", "75,80,86,89,90,100,120", text, sizeof(text));
    int n = 0;
    for (char *save = NULL, *word = strtok_r(text, ",", &save); word != NULL;
         word = strtok_r(NULL, ",", &save)) {
        if (out != NULL) {
            out[n] = (int)strtol(word, NULL, 10);
        }
        n++;
    }
    return n;
}

gki_nvrtc_result nvrtcGetNumSupportedArchs(int *count)
{
    *count = read_archs(NULL);
    return GKI_NVRTC_SUCCESS;
}

gki_nvrtc_result nvrtcGetSupportedArchs(int *archs)
{
    read_archs(archs);
    return GKI_NVRTC_SUCCESS;
}

gki_nvrtc_result nvrtcCreateProgram(gki_nvrtc_program *program, const char *source,
                                    const char *name, int n_headers, const char *const *headers,
                                    const char *const *include_names)
{
    (void)source;
    (void)name;
    (void)headers;
    (void)include_names;
    *program = n_headers == 0 ? calloc(1, sizeof(**program)) : NULL;
    return *program != NULL ? GKI_NVRTC_SUCCESS : GKI_NVRTC_OUT_OF_MEMORY;
}

gki_nvrtc_result nvrtcDestroyProgram(gki_nvrtc_program *program)
{
    free(*program);
    *program = NULL;
    return GKI_NVRTC_SUCCESS;
}

gki_nvrtc_result nvrtcCompileProgram(gki_nvrtc_program program, int n_options,
                                     const char *const *options)
{
    size_t used = 0;
    for (int i = 0; i < n_options && used < sizeof(program->code); i++) {
        used += (size_t)snprintf(program->code + used, sizeof(program->code) - used, "%s%s",
                                 i > 0 ? " " : "", options[i]);
    }
    fake_text("FAKE_NVRTC", "log", "", program->log, sizeof(program->log));
    return (gki_nvrtc_result)fake_number("FAKE_NVRTC", "result", 0);
}

gki_nvrtc_result nvrtcGetProgramLogSize(gki_nvrtc_program program, size_t *size)
{
    *size = strlen(program->log) + 1;
    return GKI_NVRTC_SUCCESS;
}

gki_nvrtc_result nvrtcGetProgramLog(gki_nvrtc_program program, char *log)
{
    memcpy(log, program->log, strlen(program->log) + 1);
    return GKI_NVRTC_SUCCESS;
}

static int is_ptx(gki_nvrtc_program program)
{
    return strstr(program->code, "=compute_") != NULL;
}

gki_nvrtc_result nvrtcGetPTXSize(gki_nvrtc_program program, size_t *size)
{
    *size = strlen(program->code) + 1;
    return GKI_NVRTC_SUCCESS;
}

gki_nvrtc_result nvrtcGetPTX(gki_nvrtc_program program, char *ptx)
{
    memcpy(ptx, program->code, strlen(program->code) + 1);
    return GKI_NVRTC_SUCCESS;
}

/* As the real one: there is no cubin for a virtual architecture. */
gki_nvrtc_result nvrtcGetCUBINSize(gki_nvrtc_program program, size_t *size)
{
    *size = is_ptx(program) ? 0 : strlen(program->code) + 1;
    return GKI_NVRTC_SUCCESS;
}

gki_nvrtc_result nvrtcGetCUBIN(gki_nvrtc_program program, char *cubin)
{
    memcpy(cubin, program->code, strlen(program->code) + 1);
    return GKI_NVRTC_SUCCESS;
}
