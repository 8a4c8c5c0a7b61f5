/* cuBLASLt as the baseline: fused ReLU, the fastest of up to 32 heuristics. */
#ifndef BENCH_CUBLASLT_H
#define BENCH_CUBLASLT_H

#include <gk/gk.h>

#include "bench_cuda.h"

typedef struct bench_cublaslt bench_cublaslt;

/* calls[i] are copies of one matmul problem in row-major terms with ReLU; tf32 picks the math.
 * NULL, with a message on stderr, where cuBLASLt cannot do it. Picks the fastest heuristic by
 * timing each. */
bench_cublaslt *bench_cublaslt_open(bench_cuda *cuda, const gk_call *calls, unsigned n_calls,
                                    bool tf32, bool relu);
void bench_cublaslt_close(bench_cublaslt *lt);

/* One timing of the fastest and of the first heuristic. */
double bench_cublaslt_time(bench_cublaslt *lt, bool first, unsigned repeats, bool graph);
int bench_cublaslt_heuristics(const bench_cublaslt *lt, int *best);

#endif
