/*
 * A libcuda that computes nothing, for GK_CUDA_DRIVER. FAKE_CUDA scripts the device:
 * init=<CUresult>, count=, version=, name=, cc=, sms=, optin=, memory=, load=<CUresult of loading
 * modules>, graph=<CUresult of launching graphs>; the rest stands in the state below, which a test
 * reaches through dlsym(handle, "fake_cuda_state").
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
    uint32_t fail_load;
    uint32_t fail_launch;
    uint32_t fail_sync;
    uint32_t fail_map;
    uint32_t fail_occupancy;
    int32_t resident;    /* blocks a multiprocessor, or clusters */
    int32_t static_smem; /* of every function */
    void *capturing;     /* this stream is being captured, in global mode */
    int32_t capture_blocks_default;

    /* What happened. */
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

/* Microseconds that the fake clock advances for a launch and for a launch in a graph. */
enum { FAKE_LAUNCH_US = 3, FAKE_NODE_US = 1 };

#endif
