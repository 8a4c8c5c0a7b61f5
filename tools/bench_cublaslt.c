#include "bench_cublaslt.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Values of cublasLt.h, cublas_api.h and library_types.h of CUDA 12 and 13. */
enum {
    LAYOUT_ROW_MAJOR = 1, /* CUBLASLT_ORDER_ROW */
    LAYOUT_ATTR_ORDER = 1,
    DESC_ATTR_TRANSA = 3,
    DESC_ATTR_TRANSB = 4,
    DESC_ATTR_EPILOGUE = 7,
    DESC_ATTR_FAST_ACCUM = 25,
    PREF_ATTR_MAX_WORKSPACE = 1,
    PREF_ATTR_MIN_ALIGNMENT_A = 5,
    EPILOGUE_DEFAULT = 1,
    EPILOGUE_RELU = 2,
    COMPUTE_32F = 68,
    COMPUTE_64F = 70,
    COMPUTE_32F_FAST_TF32 = 77,
    TYPE_32F = 0,
    TYPE_64F = 1,
    OP_N = 0,
    OP_T = 1,
    MAX_HEURISTICS = 32,
};

#define WORKSPACE_BYTES ((size_t)64 << 20)

typedef struct heuristic {
    uint64_t algo[8];
    size_t workspace;
    int state;
    float waves;
    int reserved[4];
} heuristic;

#define LT_SYMBOLS(X)                                                                              \
    X(create, "cublasLtCreate", (void **))                                                         \
    X(destroy, "cublasLtDestroy", (void *))                                                        \
    X(desc_create, "cublasLtMatmulDescCreate", (void **, int, int))                                \
    X(desc_set, "cublasLtMatmulDescSetAttribute", (void *, int, const void *, size_t))             \
    X(layout_create, "cublasLtMatrixLayoutCreate", (void **, int, uint64_t, uint64_t, int64_t))    \
    X(pref_create, "cublasLtMatmulPreferenceCreate", (void **))                                    \
    X(pref_set, "cublasLtMatmulPreferenceSetAttribute", (void *, int, const void *, size_t))       \
    X(get_heuristic, "cublasLtMatmulAlgoGetHeuristic",                                             \
      (void *, void *, void *, void *, void *, void *, void *, int, heuristic *, int *))           \
    X(matmul, "cublasLtMatmul",                                                                    \
      (void *, void *, const void *, const void *, void *, const void *, void *, const void *,     \
       const void *, void *, void *, void *, const uint64_t *, void *, size_t, void *))

typedef struct lt_functions {
/* NOLINTNEXTLINE(bugprone-macro-parentheses): a declaration cannot have them. */
#define LT_MEMBER(name, symbol, parameters) int(*name) parameters;
    LT_SYMBOLS(LT_MEMBER)
#undef LT_MEMBER
    int (*mem_alloc)(void **, size_t);
} lt_functions;

struct bench_cublaslt {
    lt_functions fn;
    bench_cuda *cuda;
    const gk_call *calls;
    unsigned n_calls;
    void *handle;
    void *desc;
    void *layouts[3]; /* in cuBLASLt's order: B, A, C, column-major */
    void *workspace;
    heuristic heuristics[MAX_HEURISTICS];
    int count;
    int best;
    int current;
    bool f64;
};

static bool load(lt_functions *fn)
{
    void *library = dlopen("libcublasLt.so.13", RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        library = dlopen("libcublasLt.so.12", RTLD_NOW | RTLD_LOCAL);
    }
    if (library == NULL) {
        fprintf(stderr, "gk-bench: cuBLASLt is not to be had: %s\n", dlerror());
        return false;
    }
#define LT_LOAD(name, symbol, parameters)                                                          \
    *(void **)&fn->name = dlsym(library, symbol);                                                  \
    if (fn->name == NULL) {                                                                        \
        fprintf(stderr, "gk-bench: cuBLASLt has no %s\n", symbol);                                 \
        return false;                                                                              \
    }
    LT_SYMBOLS(LT_LOAD)
#undef LT_LOAD
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    *(void **)&fn->mem_alloc = driver != NULL ? dlsym(driver, "cuMemAlloc_v2") : NULL;
    return fn->mem_alloc != NULL;
}

static int data_type(int32_t dtype)
{
    static const int types[GK_DTYPE_COUNT] = {
        [GK_F64] = 1,   [GK_F32] = 0,  [GK_F16] = 2, [GK_BF16] = 14, [GK_E4M3] = 28,
        [GK_E5M2] = 29, [GK_I32] = 10, [GK_I8] = 3,  [GK_U8] = 8};
    return types[dtype];
}

/* A row-major matrix is the transpose of a column-major one: C^T = B^T A^T. Gives whether the
 * stored matrix must be transposed, and its leading dimension. */
static bool describe(const gk_tensor *t, int *op, uint64_t *rows, uint64_t *cols, int64_t *ld)
{
    const bool row_major = t->stride[1] == 1;
    if (!row_major && t->stride[0] != 1) {
        fprintf(stderr, "gk-bench: cuBLASLt takes no strided operand\n");
        return false;
    }
    *op = row_major ? OP_N : OP_T;
    *rows = (uint64_t)(row_major ? t->shape[1] : t->shape[0]);
    *cols = (uint64_t)(row_major ? t->shape[0] : t->shape[1]);
    *ld = row_major ? t->stride[0] : t->stride[1];
    if (*ld < (int64_t)*rows) {
        *ld = (int64_t)*rows;
    }
    return true;
}

static bool set_up(bench_cublaslt *lt, bool tf32, bool relu)
{
    const gk_tensor *const *args = lt->calls[0].args;
    const gk_tensor *order[3] = {args[1], args[0], args[2]};
    const int compute = lt->f64 ? COMPUTE_64F : tf32 ? COMPUTE_32F_FAST_TF32 : COMPUTE_32F;
    int ops[3];
    if (lt->fn.create(&lt->handle) != 0 ||
        lt->fn.desc_create(&lt->desc, compute, lt->f64 ? TYPE_64F : TYPE_32F) != 0) {
        return false;
    }
    for (int i = 0; i < 3; i++) {
        uint64_t rows;
        uint64_t cols;
        int64_t ld;
        if (!describe(order[i], &ops[i], &rows, &cols, &ld) ||
            lt->fn.layout_create(&lt->layouts[i], data_type(order[i]->dtype), rows, cols, ld) !=
                0) {
            return false;
        }
    }
    const int epilogue = relu ? EPILOGUE_RELU : EPILOGUE_DEFAULT;
    const signed char fast = 1;
    const size_t workspace = WORKSPACE_BYTES;
    void *preference;
    bool good =
        lt->fn.desc_set(lt->desc, DESC_ATTR_TRANSA, &ops[0], sizeof(ops[0])) == 0 &&
        lt->fn.desc_set(lt->desc, DESC_ATTR_TRANSB, &ops[1], sizeof(ops[1])) == 0 &&
        lt->fn.desc_set(lt->desc, DESC_ATTR_EPILOGUE, &epilogue, sizeof(epilogue)) == 0 &&
        lt->fn.pref_create(&preference) == 0 &&
        lt->fn.pref_set(preference, PREF_ATTR_MAX_WORKSPACE, &workspace, sizeof(workspace)) == 0 &&
        lt->fn.mem_alloc(&lt->workspace, WORKSPACE_BYTES) == 0;
    if (good && gk_dtype_size((gk_dtype)args[0]->dtype) == 1 && args[0]->dtype != GK_I8) {
        lt->fn.desc_set(lt->desc, DESC_ATTR_FAST_ACCUM, &fast, sizeof(fast));
    }
    for (int i = 0; good && i < 4; i++) {
        const gk_tensor *t = order[i < 3 ? i : 2];
        const uintptr_t address = (uintptr_t)t->data;
        const uint32_t alignment =
            (uint32_t)(address & (~address + 1)) > 256 ? 256 : (uint32_t)(address & (~address + 1));
        good = lt->fn.pref_set(preference, PREF_ATTR_MIN_ALIGNMENT_A + i, &alignment,
                               sizeof(alignment)) == 0;
    }
    return good &&
           lt->fn.get_heuristic(lt->handle, lt->desc, lt->layouts[0], lt->layouts[1],
                                lt->layouts[2], lt->layouts[2], preference, MAX_HEURISTICS,
                                lt->heuristics, &lt->count) == 0 &&
           lt->count > 0;
}

static bool enqueue(void *user, unsigned i, void *stream)
{
    bench_cublaslt *lt = user;
    static const float one = 1;
    static const float zero = 0;
    static const double one64 = 1;
    static const double zero64 = 0;
    const void *alpha = lt->f64 ? (const void *)&one64 : (const void *)&one;
    const void *beta = lt->f64 ? (const void *)&zero64 : (const void *)&zero;
    const gk_tensor *const *args = lt->calls[i].args;
    return lt->fn.matmul(lt->handle, lt->desc, alpha, args[1]->data, lt->layouts[0], args[0]->data,
                         lt->layouts[1], beta, args[2]->data, lt->layouts[2], args[2]->data,
                         lt->layouts[2], lt->heuristics[lt->current].algo, lt->workspace,
                         WORKSPACE_BYTES, stream) == 0;
}

static double time_one(bench_cublaslt *lt, int which, unsigned repeats, bool graph)
{
    lt->current = which;
    return bench_cuda_time(lt->cuda, enqueue, lt, lt->n_calls, repeats, graph);
}

bench_cublaslt *bench_cublaslt_open(bench_cuda *cuda, const gk_call *calls, unsigned n_calls,
                                    bool tf32, bool relu)
{
    bench_cublaslt *lt = calloc(1, sizeof(*lt));
    if (lt == NULL) {
        return NULL;
    }
    lt->cuda = cuda;
    lt->calls = calls;
    lt->n_calls = n_calls;
    lt->f64 = calls[0].args[0]->dtype == GK_F64;
    if (!load(&lt->fn) || !set_up(lt, tf32, relu)) {
        fprintf(stderr, "gk-bench: cuBLASLt has no algorithm for this problem\n");
        free(lt);
        return NULL;
    }
    double best = -1;
    for (int i = 0; i < lt->count; i++) {
        double seconds[3];
        bool good = lt->heuristics[i].state == 0;
        for (int r = 0; good && r < 3; r++) {
            seconds[r] = time_one(lt, i, 1, false);
            good = seconds[r] > 0;
        }
        const bool graph = good && seconds[2] < 100e-6;
        if (graph) {
            seconds[2] = time_one(lt, i, 200 / n_calls + 1, true);
        }
        if (good && seconds[2] > 0 && (best < 0 || seconds[2] < best)) {
            best = seconds[2];
            lt->best = i;
        }
    }
    if (best < 0) {
        fprintf(stderr, "gk-bench: no cuBLASLt algorithm ran\n");
        bench_cublaslt_close(lt);
        return NULL;
    }
    return lt;
}

void bench_cublaslt_close(bench_cublaslt *lt)
{
    if (lt != NULL) {
        lt->fn.destroy(lt->handle);
        free(lt);
    }
}

double bench_cublaslt_time(bench_cublaslt *lt, bool first, unsigned repeats, bool graph)
{
    return time_one(lt, first ? 0 : lt->best, repeats, graph);
}

int bench_cublaslt_heuristics(const bench_cublaslt *lt, int *best)
{
    *best = lt->best;
    return lt->count;
}
