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

/* Makes the device's primary context current in this thread. The driver is the one that gk loads:
 * $GK_CUDA_DRIVER, else libcuda.so.1. False, with a message on stderr, if there is none. */
bool bench_cuda_open(bench_cuda *cuda, int ordinal);
void bench_cuda_close(bench_cuda *cuda);

/* Queues one run on the i-th copy of the operands. */
typedef bool (*bench_enqueue)(void *user, unsigned i, void *stream);

/* Seconds of one of `count` calls of enqueue(user, i), all of them `repeats` times. Negative on
 * failure. */
double bench_cuda_time(bench_cuda *cuda, bench_enqueue enqueue, void *user, unsigned count,
                       unsigned repeats);
/* The same calls as a graph, NULL on failure; seconds of one of its `runs`; its end. */
void *bench_cuda_record(bench_cuda *cuda, bench_enqueue enqueue, void *user, unsigned count,
                        unsigned repeats);
double bench_cuda_replay(bench_cuda *cuda, void *graph, double runs);
void bench_cuda_drop(void *graph);

/* Device memory; NULL, with a message on stderr, if there is none. */
void *bench_cuda_alloc(size_t bytes);
void bench_cuda_free(void *memory);
/* Bytes read and written per second by device copies of 1 GiB; 0 if it cannot be told. */
double bench_cuda_copy_rate(bench_cuda *cuda);

/* cuLaunchKernel with one parameter struct and nothing else. */
bool bench_cuda_launch(void *function, int64_t grid, unsigned threads, unsigned smem, void *args,
                       void *stream);
void *bench_cuda_stream_create(void);
void bench_cuda_stream_destroy(void *stream);
bool bench_cuda_synchronize(void *stream);
/* Binds the primary context to the calling thread. */
void bench_cuda_bind(void);

#endif
