/* The few driver functions that gk-bench needs to time somebody else's kernels. */
#ifndef BENCH_CUDA_H
#define BENCH_CUDA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct bench_cuda {
    void *stream;
    void *events[2];
} bench_cuda;

/* Makes the device's primary context current in this thread. False, with a message on stderr, if
 * there is no driver. */
bool bench_cuda_open(bench_cuda *cuda, int ordinal);
void bench_cuda_close(bench_cuda *cuda);

/* Seconds of one of `count` calls of enqueue(user, i), repeated so that a batch is long enough;
 * replayed from a graph if `graph`. Negative on failure. */
double bench_cuda_time(bench_cuda *cuda, bool (*enqueue)(void *user, unsigned i, void *stream),
                       void *user, unsigned count, unsigned repeats, bool graph);

/* cuLaunchKernel with one parameter struct and nothing else. */
bool bench_cuda_launch(void *function, int64_t grid, unsigned threads, unsigned smem, void *args,
                       void *stream);
void *bench_cuda_stream_create(void);
void bench_cuda_synchronize(void *stream);
/* Binds the primary context to the calling thread. */
void bench_cuda_bind(void);

#endif
