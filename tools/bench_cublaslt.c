#include "bench_cublaslt.h"

#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Values of cublasLt.h, cublas_api.h and library_types.h of CUDA 12 and 13. */
enum {
    DESC_ATTR_TRANSA = 3,
    DESC_ATTR_TRANSB = 4,
    DESC_ATTR_EPILOGUE = 7,
    DESC_ATTR_FAST_ACCUM = 25,
    PREF_ATTR_MAX_WORKSPACE = 1,
    PREF_ATTR_MIN_ALIGNMENT_A = 5,
    ALGO_ATTR_SPLIT_K = 2,
    ALGO_ATTR_REDUCTION = 3,
    EPILOGUE_DEFAULT = 1,
    EPILOGUE_RELU = 2,
    COMPUTE_32F = 68,
    COMPUTE_64F = 70,
    COMPUTE_32I = 72,
    COMPUTE_32F_FAST_TF32 = 77,
    TYPE_32F = 0,
    TYPE_64F = 1,
    TYPE_32I = 10,
    OP_N = 0,
    OP_T = 1,
    MAX_HEURISTICS = 32,
    FINALISTS = 4,
    FINAL_ROUNDS = 5,
};

#define WORKSPACE_BYTES ((size_t)64 << 20)

/* Seconds of a run that is launched by the host: below, the host may be what is timed. */
static const double GRAPH_BELOW_LAUNCHED = 75e-6;
static const double SHORTEST_BATCH = 1e-3;
static const double CLOSE = 1.1; /* to the fastest: timed again */

typedef struct heuristic {
    uint64_t algo[8];
    size_t workspace;
    int state;
    float waves;
    int reserved[4];
} heuristic;

#define LT_SYMBOLS(X)                                                                              \
    X(create, "cublasLtCreate", int, (void **))                                                    \
    X(destroy, "cublasLtDestroy", int, (void *))                                                   \
    X(version, "cublasLtGetVersion", size_t, (void))                                               \
    X(desc_create, "cublasLtMatmulDescCreate", int, (void **, int, int))                           \
    X(desc_destroy, "cublasLtMatmulDescDestroy", int, (void *))                                    \
    X(desc_set, "cublasLtMatmulDescSetAttribute", int, (void *, int, const void *, size_t))        \
    X(layout_create, "cublasLtMatrixLayoutCreate", int,                                            \
      (void **, int, uint64_t, uint64_t, int64_t))                                                 \
    X(layout_destroy, "cublasLtMatrixLayoutDestroy", int, (void *))                                \
    X(pref_create, "cublasLtMatmulPreferenceCreate", int, (void **))                               \
    X(pref_destroy, "cublasLtMatmulPreferenceDestroy", int, (void *))                              \
    X(pref_set, "cublasLtMatmulPreferenceSetAttribute", int, (void *, int, const void *, size_t))  \
    X(get_heuristic, "cublasLtMatmulAlgoGetHeuristic", int,                                        \
      (void *, void *, void *, void *, void *, void *, void *, int, heuristic *, int *))           \
    X(algo_get, "cublasLtMatmulAlgoConfigGetAttribute", int,                                       \
      (const uint64_t *, int, void *, size_t, size_t *))                                           \
    X(matmul, "cublasLtMatmul", int,                                                               \
      (void *, void *, const void *, const void *, void *, const void *, void *, const void *,     \
       const void *, void *, void *, void *, const uint64_t *, void *, size_t, void *))

struct bench_cublaslt {
/* NOLINTNEXTLINE(bugprone-macro-parentheses): a declaration cannot have them. */
#define LT_MEMBER(name, symbol, result, parameters) result(*name) parameters;
    LT_SYMBOLS(LT_MEMBER)
#undef LT_MEMBER
    bench_cuda *cuda;
    void *handle;
    void *workspace;
};

/* A prepared timing of one algorithm. */
typedef struct lt_timing {
    bench_peer *peer;
    int algorithm;
    unsigned repeats;
    void *graph; /* NULL = launch after launch */
} lt_timing;

struct bench_peer {
    gk_math math;
    bench_cublaslt *lt;
    const gk_call *calls;
    unsigned n_calls;
    void *desc;
    void *layouts[3]; /* in cuBLASLt's order: B, A, C, column-major */
    void *preference;
    heuristic heuristics[MAX_HEURISTICS];
    int count;
    int compute;
    int scale;
    int algorithm; /* that enqueue() takes */
    lt_timing best;
    lt_timing first;
};

/* --- the library --- */

static bool load(bench_cublaslt *lt)
{
    const char *wanted = getenv("GK_CUBLASLT");
    void *library = dlopen(wanted != NULL ? wanted : "libcublasLt.so.13", RTLD_NOW | RTLD_LOCAL);
    if (library == NULL && wanted == NULL) {
        library = dlopen("libcublasLt.so.12", RTLD_NOW | RTLD_LOCAL);
    }
    if (library == NULL) {
        fprintf(stderr, "gk-bench: cuBLASLt is not to be had: %s\n", dlerror());
        return false;
    }
#define LT_LOAD(name, symbol, result, parameters)                                                  \
    *(void **)&lt->name = dlsym(library, symbol);                                                  \
    if (lt->name == NULL) {                                                                        \
        fprintf(stderr, "gk-bench: cuBLASLt has no %s\n", symbol);                                 \
        return false;                                                                              \
    }
    LT_SYMBOLS(LT_LOAD)
#undef LT_LOAD
    return true;
}

bench_cublaslt *bench_cublaslt_open(bench_cuda *cuda)
{
    bench_cublaslt *lt = calloc(1, sizeof(*lt));
    if (lt == NULL || !load(lt)) {
        free(lt);
        return NULL;
    }
    lt->cuda = cuda;
    int code = lt->create(&lt->handle);
    if (code != 0) {
        fprintf(stderr, "gk-bench: cublasLtCreate failed with status %d\n", code);
        free(lt);
        return NULL;
    }
    lt->workspace = bench_cuda_alloc(WORKSPACE_BYTES);
    if (lt->workspace == NULL) {
        bench_cublaslt_close(lt);
        return NULL;
    }
    return lt;
}

void bench_cublaslt_close(bench_cublaslt *lt)
{
    if (lt != NULL) {
        bench_cuda_free(lt->workspace);
        lt->destroy(lt->handle);
        free(lt);
    }
}

void bench_cublaslt_version(const bench_cublaslt *lt, char *out, size_t size)
{
    const unsigned version = (unsigned)lt->version();
    /* 120803, 130100: two digits each, and more for the major one. */
    snprintf(out, size, "%u.%u.%u", version / 10000, version / 100 % 100, version % 100);
}

/* --- the problem --- */

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

static void choose_types(bench_peer *peer)
{
    const gk_dtype in = (gk_dtype)peer->calls[0].args[0]->dtype;
    peer->compute = peer->math == GK_MATH_TF32 ? COMPUTE_32F_FAST_TF32 : COMPUTE_32F;
    peer->scale = TYPE_32F;
    if (in == GK_F64) {
        peer->compute = COMPUTE_64F;
        peer->scale = TYPE_64F;
    } else if (in == GK_I8 || in == GK_U8 || in == GK_I32) {
        peer->compute = COMPUTE_32I;
        peer->scale = TYPE_32I;
    }
}

static bool set_description(bench_peer *peer, const int *ops, bool relu)
{
    const bench_cublaslt *lt = peer->lt;
    const gk_dtype in = (gk_dtype)peer->calls[0].args[0]->dtype;
    const int epilogue = relu ? EPILOGUE_RELU : EPILOGUE_DEFAULT;
    const signed char fast = peer->math != GK_MATH_F32;
    bool good = lt->desc_set(peer->desc, DESC_ATTR_TRANSA, &ops[0], sizeof(ops[0])) == 0 &&
                lt->desc_set(peer->desc, DESC_ATTR_TRANSB, &ops[1], sizeof(ops[1])) == 0 &&
                lt->desc_set(peer->desc, DESC_ATTR_EPILOGUE, &epilogue, sizeof(epilogue)) == 0;
    if (good && (in == GK_E4M3 || in == GK_E5M2)) {
        good = lt->desc_set(peer->desc, DESC_ATTR_FAST_ACCUM, &fast, sizeof(fast)) == 0;
    }
    return good;
}

static bool set_preference(bench_peer *peer, const gk_tensor *const *order)
{
    const bench_cublaslt *lt = peer->lt;
    const size_t workspace = WORKSPACE_BYTES;
    bool good =
        lt->pref_create(&peer->preference) == 0 &&
        lt->pref_set(peer->preference, PREF_ATTR_MAX_WORKSPACE, &workspace, sizeof(workspace)) == 0;
    for (int i = 0; good && i < 4; i++) {
        const uintptr_t address = (uintptr_t)order[i < 3 ? i : 2]->data;
        const uintptr_t lowest = address & (~address + 1);
        const uint32_t alignment = lowest > 256 ? 256 : (uint32_t)lowest;
        good = lt->pref_set(peer->preference, PREF_ATTR_MIN_ALIGNMENT_A + i, &alignment,
                            sizeof(alignment)) == 0;
    }
    return good;
}

static bool set_up(bench_peer *peer, bool relu)
{
    bench_cublaslt *lt = peer->lt;
    const gk_tensor *const *args = peer->calls[0].args;
    const gk_tensor *order[3] = {args[1], args[0], args[2]};
    int ops[3];
    for (int i = 0; i < 3; i++) {
        uint64_t rows;
        uint64_t cols;
        int64_t ld;
        if (!describe(order[i], &ops[i], &rows, &cols, &ld) ||
            lt->layout_create(&peer->layouts[i], data_type(order[i]->dtype), rows, cols, ld) != 0) {
            return false;
        }
    }
    return ops[2] == OP_N && lt->desc_create(&peer->desc, peer->compute, peer->scale) == 0 &&
           set_description(peer, ops, relu) && set_preference(peer, order) &&
           lt->get_heuristic(lt->handle, peer->desc, peer->layouts[0], peer->layouts[1],
                             peer->layouts[2], peer->layouts[2], peer->preference, MAX_HEURISTICS,
                             peer->heuristics, &peer->count) == 0 &&
           peer->count > 0;
}

static bool enqueue(void *user, unsigned i, void *stream)
{
    bench_peer *peer = user;
    const bench_cublaslt *lt = peer->lt;
    static const struct {
        float f32[2];
        double f64[2];
        int32_t i32[2];
    } factors = {{1, 0}, {1, 0}, {1, 0}};
    const void *alpha = &factors.f32[0];
    const void *beta = &factors.f32[1];
    if (peer->scale == TYPE_64F) {
        alpha = &factors.f64[0];
        beta = &factors.f64[1];
    } else if (peer->scale == TYPE_32I) {
        alpha = &factors.i32[0];
        beta = &factors.i32[1];
    }
    const gk_tensor *const *args = peer->calls[i].args;
    return lt->matmul(lt->handle, peer->desc, alpha, args[1]->data, peer->layouts[0], args[0]->data,
                      peer->layouts[1], beta, args[2]->data, peer->layouts[2], args[2]->data,
                      peer->layouts[2], peer->heuristics[peer->algorithm].algo, lt->workspace,
                      WORKSPACE_BYTES, stream) == 0;
}

/* --- timing --- */

static double run_timing(const lt_timing *timing)
{
    bench_peer *peer = timing->peer;
    peer->algorithm = timing->algorithm;
    if (timing->graph != NULL) {
        return bench_cuda_replay(peer->lt->cuda, timing->graph,
                                 (double)peer->n_calls * timing->repeats);
    }
    return bench_cuda_time(peer->lt->cuda, enqueue, peer, peer->n_calls, timing->repeats);
}

static void drop_timing(lt_timing *timing)
{
    bench_cuda_drop(timing->graph);
    timing->graph = NULL;
}

static unsigned repeats_for(const bench_peer *peer, double seconds)
{
    const double passes = ceil(SHORTEST_BATCH / (seconds * peer->n_calls));
    return passes < 1 ? 1 : passes > 1000 ? 1000 : (unsigned)passes;
}

/* Long enough for the timer, from a graph where the host would be what is timed. Gives the seconds
 * of a run; negative if the algorithm does not run. */
static double prepare_timing(bench_peer *peer, int algorithm, lt_timing *out)
{
    *out = (lt_timing){.peer = peer, .algorithm = algorithm, .repeats = 1};
    double seconds = peer->heuristics[algorithm].state == 0 ? run_timing(out) : -1;
    for (int i = 0; i < 2 && seconds > 0; i++) {
        seconds = run_timing(out);
    }
    if (!(seconds > 0)) {
        return -1;
    }
    out->repeats = repeats_for(peer, seconds);
    /* The first graph tells how long a run takes without the host. */
    for (int i = 0; i < 2 && seconds > 0 && seconds < GRAPH_BELOW_LAUNCHED; i++) {
        const unsigned repeats = repeats_for(peer, seconds);
        if (out->graph != NULL && repeats <= out->repeats) {
            break;
        }
        drop_timing(out);
        out->repeats = repeats;
        out->graph = bench_cuda_record(peer->lt->cuda, enqueue, peer, peer->n_calls, repeats);
        seconds = out->graph != NULL ? run_timing(out) : -1;
    }
    if (!(seconds > 0)) {
        drop_timing(out);
        return -1;
    }
    return run_timing(out);
}

static int by_value(const void *left, const void *right)
{
    const double a = *(const double *)left;
    const double b = *(const double *)right;
    return (a > b) - (a < b);
}

/* The index of the best median of some rounds in turn. */
static int run_finals(const lt_timing *finalists, int count)
{
    double samples[FINALISTS][FINAL_ROUNDS];
    int best = 0;
    for (int r = 0; r < FINAL_ROUNDS; r++) {
        for (int i = 0; i < count; i++) {
            const double seconds = run_timing(&finalists[i]);
            samples[i][r] = seconds > 0 ? seconds : INFINITY;
        }
    }
    for (int i = 0; i < count; i++) {
        qsort(samples[i], FINAL_ROUNDS, sizeof(samples[i][0]), by_value);
        best = samples[i][FINAL_ROUNDS / 2] < samples[best][FINAL_ROUNDS / 2] ? i : best;
    }
    return best;
}

/* Times every algorithm, and the fastest of them again; leaves best and first prepared. */
static bool choose(bench_peer *peer)
{
    lt_timing finalists[FINALISTS];
    double seconds[FINALISTS];
    int count = 0;
    int first = -1;
    for (int i = 0; i < peer->count; i++) {
        lt_timing timing;
        const double fresh = prepare_timing(peer, i, &timing);
        first = first < 0 && fresh > 0 ? i : first;
        int at = count;
        while (at > 0 && fresh < seconds[at - 1]) {
            at--;
        }
        if (!(fresh > 0) || at == FINALISTS) {
            drop_timing(&timing);
            continue;
        }
        if (count == FINALISTS) {
            drop_timing(&finalists[--count]);
        }
        memmove(&finalists[at + 1], &finalists[at], (size_t)(count - at) * sizeof(finalists[0]));
        memmove(&seconds[at + 1], &seconds[at], (size_t)(count - at) * sizeof(seconds[0]));
        finalists[at] = timing;
        seconds[at] = fresh;
        count++;
    }
    while (count > 1 && seconds[count - 1] > CLOSE * seconds[0]) {
        drop_timing(&finalists[--count]);
    }
    const int best = count > 1 ? run_finals(finalists, count) : 0;
    for (int i = 0; i < count; i++) {
        if (i == best) {
            peer->best = finalists[i];
        } else {
            drop_timing(&finalists[i]);
        }
    }
    return count > 0 && prepare_timing(peer, first, &peer->first) > 0;
}

bench_peer *bench_peer_open(bench_cublaslt *lt, const gk_call *calls, unsigned n_calls,
                            gk_math math, bool relu)
{
    bench_peer *peer = calloc(1, sizeof(*peer));
    if (peer == NULL) {
        return NULL;
    }
    peer->lt = lt;
    peer->calls = calls;
    peer->n_calls = n_calls;
    peer->math = math;
    choose_types(peer);
    if (!set_up(peer, relu)) {
        fprintf(stderr, "gk-bench: cuBLASLt has no algorithm for this problem\n");
    } else if (!choose(peer)) {
        fprintf(stderr, "gk-bench: no cuBLASLt algorithm ran\n");
    } else {
        return peer;
    }
    bench_peer_close(peer);
    return NULL;
}

void bench_peer_close(bench_peer *peer)
{
    if (peer == NULL) {
        return;
    }
    drop_timing(&peer->best);
    drop_timing(&peer->first);
    for (int i = 0; i < 3; i++) {
        if (peer->layouts[i] != NULL) {
            peer->lt->layout_destroy(peer->layouts[i]);
        }
    }
    if (peer->desc != NULL) {
        peer->lt->desc_destroy(peer->desc);
    }
    if (peer->preference != NULL) {
        peer->lt->pref_destroy(peer->preference);
    }
    free(peer);
}

double bench_peer_time_best(void *peer)
{
    return run_timing(&((bench_peer *)peer)->best);
}

double bench_peer_time_first(void *peer)
{
    return run_timing(&((bench_peer *)peer)->first);
}

bool bench_peer_run(void *user)
{
    bench_peer *peer = user;
    peer->algorithm = peer->best.algorithm;
    return enqueue(peer, 0, peer->lt->cuda->stream) &&
           bench_cuda_synchronize(peer->lt->cuda->stream);
}

/* 0 if it is not to be had. */
static int algorithm_value(const bench_peer *peer, int attribute)
{
    uint32_t value = 0;
    size_t written;
    const uint64_t *algo = peer->heuristics[peer->best.algorithm].algo;
    return peer->lt->algo_get(algo, attribute, &value, sizeof(value), &written) == 0 ? (int)value
                                                                                     : 0;
}

bench_peer_choice bench_peer_chosen(const bench_peer *peer)
{
    return (bench_peer_choice){.count = peer->count,
                               .index = peer->best.algorithm,
                               .split_k = algorithm_value(peer, ALGO_ATTR_SPLIT_K),
                               .reduction = algorithm_value(peer, ALGO_ATTR_REDUCTION)};
}
