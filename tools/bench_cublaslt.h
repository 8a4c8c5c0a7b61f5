/* cuBLASLt as the baseline: fused ReLU, the fastest of up to 32 heuristics. */
#ifndef BENCH_CUBLASLT_H
#define BENCH_CUBLASLT_H

#include <gk/gk.h>

#include "bench_cuda.h"

/* The library with a handle and 64 MiB of workspace. */
typedef struct bench_cublaslt bench_cublaslt;

/* Loads $GK_CUBLASLT, or libcublasLt.so.13 or .12. NULL, with a message on stderr, if it is not to
 * be had. */
bench_cublaslt *bench_cublaslt_open(bench_cuda *cuda);
void bench_cublaslt_close(bench_cublaslt *lt);
/* "13.1.0" */
void bench_cublaslt_version(const bench_cublaslt *lt, char *out, size_t size);

/* One problem with its chosen algorithm. */
typedef struct bench_peer bench_peer;

/*
 * calls[i] are copies of one matmul problem; f32 operands are multiplied in tf32 if math is that,
 * otherwise in f32. 8-bit floats accumulate fast unless math is f32, their scales are 1; cuBLASLt
 * takes them in layout nt only. Picks the fastest algorithm by timing all. NULL, with a message on
 * stderr, where cuBLASLt has none.
 */
bench_peer *bench_peer_open(bench_cublaslt *lt, const gk_call *calls, unsigned n_calls,
                            gk_math math, bool relu);
void bench_peer_close(bench_peer *peer);

/* Seconds of a run of the fastest and of the first algorithm; negative on failure. */
double bench_peer_time_best(void *peer);
double bench_peer_time_first(void *peer);
/* Runs the fastest once on calls[0] and waits for it. */
bool bench_peer_run(void *peer);

typedef struct bench_peer_choice {
    int count; /* algorithms there are */
    int index; /* of the fastest */
    int split_k;
    int reduction; /* of split sums: 0 none, 1 in place, 2 in the type of sums, 4 in the output's */
} bench_peer_choice;
bench_peer_choice bench_peer_chosen(const bench_peer *peer);

#endif
