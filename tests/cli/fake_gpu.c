/*
 * A GPU for gk-bench that computes nothing: the unit tests' libcuda with stream capture, and a
 * cuBLASLt in the same file, for GK_CUDA_DRIVER and GK_CUBLASLT. Its clock is libcuda's: a launch
 * takes 3 us, a graph's node 1 us. Algorithm 0 is the slow one, it launches twice; the last does
 * not run. FAKE_CUBLASLT=none: there is none; =fast: every other call launches nothing. Like the
 * real one it takes 8-bit floats in layout nt only.
 * FAKE_GPU=matmul: every kernel is relu(a b) in bf16, and the sizes of allocations are printed.
 */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <gk/matmul_args.h>

#define EXPORT __attribute__((visibility("default")))

/* libcuda, as the fake has it; what stands here again is renamed in the build. */
int fake_cuMemAlloc_v2(uint64_t *ptr, size_t bytes);
int fake_cuModuleGetFunction(void **function, void *module, const char *name);
int fake_cuLaunchKernel(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
                        unsigned by, unsigned bz, unsigned smem, void *stream, void **params,
                        void **extra);
int fake_cuLaunchKernelEx(const void *config, void *function, void **params, void **extra);
int cuCtxPushCurrent_v2(void *context);
int cuCtxPopCurrent_v2(void **context);
int cuGraphCreate(void **graph, unsigned flags);
int cuGraphAddKernelNode_v2(void **node, void *graph, void *const *after, size_t n_after,
                            const void *kernel);

/* CUDA_KERNEL_NODE_PARAMS of version 2. */
typedef struct kernel_node {
    void *function;
    unsigned grid[3];
    unsigned block[3];
    unsigned smem;
    void **params;
    void **extra;
    void *kernel;
    void *context;
} kernel_node;

enum { OUT_OF_MEMORY = 2, LARGEST = 1 << 29 };

static void *recording;
static void *last_node;

static bool multiplies(void)
{
    const char *script = getenv("FAKE_GPU");
    return script != NULL && strcmp(script, "matmul") == 0;
}

EXPORT int cuMemAlloc_v2(uint64_t *ptr, size_t bytes);
EXPORT int cuMemAlloc_v2(uint64_t *ptr, size_t bytes)
{
    if (multiplies()) {
        fprintf(stderr, "allocated %zu\n", bytes);
    }
    return bytes > LARGEST ? OUT_OF_MEMORY : fake_cuMemAlloc_v2(ptr, bytes);
}

static void *evicting; /* the kernel that takes no matmul's parameters */

EXPORT int cuModuleGetFunction(void **function, void *module, const char *name);
EXPORT int cuModuleGetFunction(void **function, void *module, const char *name)
{
    const int result = fake_cuModuleGetFunction(function, module, name);
    if (strcmp(name, "gk_flush") == 0) {
        evicting = *function;
    }
    return result;
}

static float read_bf16(const void *data, int64_t at)
{
    const uint32_t bits = (uint32_t)((const uint16_t *)data)[at] << 16;
    float value;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

static void multiply(const gk_matmul_args *args)
{
    for (int64_t i = 0; i < args->m; i++) {
        for (int64_t j = 0; j < args->n; j++) {
            float sum = 0;
            for (int64_t k = 0; k < args->k; k++) {
                sum += read_bf16(args->a, i * args->a_row_stride + k * args->a_col_stride) *
                       read_bf16(args->b, k * args->b_row_stride + j * args->b_col_stride);
            }
            uint32_t bits;
            sum = sum > 0 ? sum : 0;
            memcpy(&bits, &sum, sizeof(bits));
            bits += 0x7fff + (bits >> 16 & 1);
            ((uint16_t *)args->c)[i * args->c_row_stride + j * args->c_col_stride] =
                (uint16_t)(bits >> 16);
        }
    }
}

EXPORT int cuLaunchKernel(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
                          unsigned by, unsigned bz, unsigned smem, void *stream, void **params,
                          void **extra);
EXPORT int cuLaunchKernel(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
                          unsigned by, unsigned bz, unsigned smem, void *stream, void **params,
                          void **extra)
{
    if (multiplies() && function != NULL && function != evicting) {
        multiply(params[0]);
    }
    return fake_cuLaunchKernel(function, gx, gy, gz, bx, by, bz, smem, stream, params, extra);
}

EXPORT int cuLaunchKernelEx(const void *config, void *function, void **params, void **extra);
EXPORT int cuLaunchKernelEx(const void *config, void *function, void **params, void **extra)
{
    if (multiplies()) {
        multiply(params[0]);
    }
    return fake_cuLaunchKernelEx(config, function, params, extra);
}

EXPORT int cuCtxSetCurrent(void *context);
EXPORT int cuCtxSetCurrent(void *context)
{
    void *old;
    return context != NULL ? cuCtxPushCurrent_v2(context) : cuCtxPopCurrent_v2(&old);
}

EXPORT int cuStreamBeginCapture_v2(void *stream, int mode);
EXPORT int cuStreamBeginCapture_v2(void *stream, int mode)
{
    (void)stream;
    (void)mode;
    last_node = NULL;
    return cuGraphCreate(&recording, 0);
}

EXPORT int cuStreamEndCapture(void *stream, void **graph);
EXPORT int cuStreamEndCapture(void *stream, void **graph)
{
    (void)stream;
    *graph = recording;
    recording = NULL;
    return 0;
}

/* --- cuBLASLt --- */

/* cublasLtMatmulHeuristicResult_t */
typedef struct result {
    uint64_t algorithm[8];
    size_t workspace;
    int state;
    float waves;
    int reserved[4];
} result;

typedef struct description {
    int compute;
    int transposed[2];
    int epilogue;
    signed char fast;
} description;

enum { FLOAT_8 = 28, RELU = 2, TRANSPOSE_A = 3, EPILOGUE = 7, FAST = 25, INVALID = 7, NONE = 15 };

#define FAKE(name, parameters)                                                                     \
    EXPORT int name parameters;                                                                    \
    EXPORT int name parameters

EXPORT size_t cublasLtGetVersion(void);
EXPORT size_t cublasLtGetVersion(void)
{
    return 130102;
}

FAKE(cublasLtCreate, (void **handle))
{
    *handle = malloc(1);
    return 0;
}

FAKE(cublasLtDestroy, (void *handle))
{
    free(handle);
    return 0;
}

FAKE(cublasLtMatmulDescCreate, (void **out, int compute, int scale))
{
    (void)scale;
    description *d = calloc(1, sizeof(*d));
    if (d != NULL) {
        d->compute = compute;
    }
    *out = d;
    return 0;
}

FAKE(cublasLtMatmulDescDestroy, (void *d))
{
    free(d);
    return 0;
}

FAKE(cublasLtMatmulDescSetAttribute, (void *desc, int attribute, const void *value, size_t size))
{
    description *d = desc;
    if (attribute == FAST && size == 1) {
        memcpy(&d->fast, value, 1);
    } else if (attribute == EPILOGUE && size == 4) {
        memcpy(&d->epilogue, value, 4);
    } else if ((attribute == TRANSPOSE_A || attribute == TRANSPOSE_A + 1) && size == 4) {
        memcpy(&d->transposed[attribute - TRANSPOSE_A], value, 4);
    } else {
        return INVALID;
    }
    return 0;
}

/* The type is all that is kept. */
FAKE(cublasLtMatrixLayoutCreate, (void **out, int type, uint64_t rows, uint64_t cols, int64_t ld))
{
    int *layout = malloc(sizeof(*layout));
    if (layout != NULL) {
        *layout = type;
    }
    *out = layout;
    return cols > 0 && ld >= (int64_t)rows ? 0 : INVALID;
}

FAKE(cublasLtMatrixLayoutDestroy, (void *layout))
{
    free(layout);
    return 0;
}

FAKE(cublasLtMatmulPreferenceCreate, (void **preference))
{
    *preference = malloc(1);
    return 0;
}

FAKE(cublasLtMatmulPreferenceDestroy, (void *preference))
{
    free(preference);
    return 0;
}

FAKE(cublasLtMatmulPreferenceSetAttribute,
     (void *preference, int attribute, const void *value, size_t size))
{
    (void)preference;
    uint32_t alignment = 0;
    if (attribute == 1) {
        return size == sizeof(size_t) ? 0 : INVALID;
    }
    memcpy(&alignment, value, sizeof(alignment));
    return attribute >= 5 && attribute <= 8 && size == 4 && alignment == 256 ? 0 : INVALID;
}

FAKE(cublasLtMatmulAlgoGetHeuristic, (void *handle, void *desc, void *a, void *b, void *c, void *d,
                                      void *preference, int wanted, result *results, int *count))
{
    (void)handle;
    (void)b;
    (void)c;
    (void)d;
    (void)preference;
    const description *of = desc;
    const char *script = getenv("FAKE_CUBLASLT");
    const bool float8 = *(const int *)a == FLOAT_8;
    memset(results, 0, (size_t)wanted * sizeof(*results));
    *count = 0;
    if ((script != NULL && strcmp(script, "none") == 0) || of->epilogue != RELU ||
        (float8 && (of->transposed[0] != 1 || of->transposed[1] != 0 || of->fast != 1))) {
        return NONE;
    }
    for (int i = 0; i < 3 && i < wanted; i++) {
        results[i].algorithm[0] = (uint64_t)i;
    }
    results[2].state = NONE;
    *count = 3;
    return 0;
}

FAKE(cublasLtMatmulAlgoConfigGetAttribute,
     (const uint64_t *algorithm, int attribute, void *value, size_t size, size_t *written))
{
    /* Algorithm 1 splits K into 3 and adds in the type of sums. */
    const uint32_t number = algorithm[0] != 1 ? 0 : attribute == 2 ? 3 : 2;
    *written = sizeof(number);
    if ((attribute != 2 && attribute != 3) || size != sizeof(number)) {
        return INVALID;
    }
    memcpy(value, &number, sizeof(number));
    return 0;
}

static int launch(void *stream)
{
    int zero = 0;
    void *params[1] = {&zero};
    kernel_node kernel = {.grid = {1, 1, 1}, .block = {32, 1, 1}, .params = params};
    if (recording == NULL) {
        return cuLaunchKernel(NULL, 1, 1, 1, 32, 1, 1, 0, stream, params, NULL);
    }
    return cuGraphAddKernelNode_v2(&last_node, recording, &last_node, last_node != NULL ? 1 : 0,
                                   &kernel);
}

FAKE(cublasLtMatmul,
     (void *handle, void *desc, const void *alpha, const void *a, void *a_layout, const void *b,
      void *b_layout, const void *beta, const void *c, void *c_layout, void *d, void *d_layout,
      const uint64_t *algorithm, void *workspace, size_t bytes, void *stream))
{
    (void)handle;
    (void)desc;
    (void)alpha;
    (void)a;
    (void)a_layout;
    (void)b;
    (void)b_layout;
    (void)beta;
    (void)c;
    (void)c_layout;
    (void)d;
    (void)d_layout;
    (void)workspace;
    (void)bytes;
    static unsigned calls;
    const char *script = getenv("FAKE_CUBLASLT");
    if (script != NULL && strcmp(script, "fast") == 0 && calls++ % 2 == 1) {
        return 0;
    }
    if (algorithm[0] == 0 && launch(stream) != 0) {
        return INVALID;
    }
    return launch(stream);
}
