/*
 * A libcuda that computes nothing, for GK_CUDA_DRIVER. FAKE_CUDA scripts the device:
 * init=<CUresult>, count=, version=, name=, cc=, sms=, l2=, optin=, memory=, load=<CUresult of
 * loading modules>, graph=<CUresult of launching graphs>; the rest stands in the state below, which
 * a test reaches through dlsym(handle, "fake_cuda_state").
 */
#ifndef FAKE_CUDA_H
#define FAKE_CUDA_H

#include <stddef.h>
#include <stdint.h>

enum { FAKE_MAX_LAUNCHES = 4096 };

typedef struct fake_launch {
    uint32_t grid;
    uint32_t threads;
    uint32_t smem;
    uint32_t cluster;
    uint32_t cooperative;
    int32_t arg; /* the first four bytes of the parameters */
    void *stream;
    uint32_t overlap;
} fake_launch;

/* The arguments of the last cuTensorMapEncodeTiled. */
typedef struct fake_map {
    uint32_t type, rank, interleave, swizzle, l2_promotion, fill;
    void *data;
    uint64_t dims[5];
    uint64_t strides[4];
    uint32_t box[5];
    uint32_t element_strides[5];
} fake_map;

typedef struct fake_cuda {
    /* Set by tests: the CUresult that a call fails with. */
    uint32_t fail_alloc;
    uint32_t fail_memset;
    uint32_t fail_load;
    uint32_t fail_ptx; /* the like of fail_load, for PTX */
    uint32_t fail_launch;
    uint32_t fail_flush;
    uint32_t fail_sync;
    uint32_t fail_map;
    uint32_t fail_occupancy;
    int32_t resident;    /* blocks a multiprocessor, or clusters */
    int32_t static_smem; /* of every function */
    void *capturing;     /* this stream is being captured, in global mode */
    int32_t capture_blocks_default;
    int32_t no_ptx_kernel; /* PTX loads, but its kernel is not found */

    /* What happened. */
    uint64_t clock_us;
    char trace[64]; /* graphs' launches, flushes and recorded events: G, F, R */
    int32_t retained;
    int32_t live_allocs;
    int32_t live_streams;
    int32_t live_events;
    int32_t live_modules;
    int32_t live_graphs;
    int32_t live_execs;
    int32_t pushes;
    int32_t pops;
    int32_t syncs;
    int32_t forbidden; /* calls that would have broken the capture */
    int32_t graph_launches;
    int32_t ptx_loads;    /* tried */
    uint64_t alloc_bytes; /* the last allocation's */
    uint64_t flush_bytes; /* that the last flush read */
    fake_launch flush;
    void *graph_stream;   /* of the last replay */
    void *memset_stream;  /* of the last cuMemsetD8Async */
    uint32_t max_dynamic; /* of the last function */
    int32_t non_portable;
    int32_t n_maps;
    fake_map map;
    fake_launch occupancy; /* what it was asked for last */
    int32_t copies_2d;
    uint32_t n_launches; /* directly, not in a graph */
    uint32_t n_nodes;
    fake_launch launches[FAKE_MAX_LAUNCHES];
    fake_launch nodes[FAKE_MAX_LAUNCHES];
} fake_cuda;

extern fake_cuda fake_cuda_state;

/* CUDA_ERROR_INVALID_CONTEXT unless the device's context is current. */
unsigned fake_cuda_need_context(void);
/* The same for calls that a capture in global mode forbids to every thread not in relaxed mode. */
unsigned fake_cuda_need_safe(void);
/* Adds to the trace while there is room. */
void fake_cuda_note(char what);

/* Microseconds that the fake clock advances for a launch, for one in a graph, for a graph's
 * first replay beside the others, and for a flush. */
enum { FAKE_LAUNCH_US = 3, FAKE_NODE_US = 1, FAKE_FIRST_US = 500, FAKE_FLUSH_US = 40 };

#endif
