/* What a call costs the host, against the bare launch of the same kernel. */
#ifndef BENCH_HOST_H
#define BENCH_HOST_H

#include <gk/gk.h>

#include "bench_cuda.h"

/* Times warm gk_matmul_relu calls over `shapes` different prepared problems in `threads` threads,
 * each with a stream of its own, and bare launches of the same kernels in turn with them; prints
 * p50 and p99 of both: for the problems again and again in one shuffled order, and, if there are
 * several, in random order. variant: of the kernels, NULL = "mma". False, with a message, on
 * failure.
 */
bool bench_host_cost(gk_context *ctx, const char *variant, unsigned shapes, unsigned threads,
                     bool json);

#endif
