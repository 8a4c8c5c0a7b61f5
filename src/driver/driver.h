/*
 * The driver table: everything the engine asks of a device. Two drivers: cuda (libcuda and NVRTC
 * through dlopen) and cpu (the kernels compiled by the host C++ compiler). The engine never asks
 * which one it talks to.
 *
 * Every slot is thread-safe unless it says otherwise, reports failures through gk_fail() or
 * gki_fail_code(), and leaves the caller's current CUDA context as it was. Input is trusted: the
 * api layer has checked it.
 */
#ifndef GKI_DRIVER_H
#define GKI_DRIVER_H

#include <gk/extend.h>
#include <gk/tensor_map.h>

#include "base/log.h"

typedef struct gki_driver gki_driver;

/* A driver's device begins with this. */
typedef struct gki_device {
    const gki_driver *driver;
} gki_device;

/* One loaded module with its one kernel. A driver's module begins with this. */
typedef struct gki_module {
    int32_t registers;   /* a thread; 0 if unknown */
    int32_t local_bytes; /* a thread: spills and stack */
    int32_t max_threads; /* a block, as compiled */
    int64_t static_smem;
    void *function; /* the CUfunction; NULL where there is none */
} gki_module;

typedef struct gki_compiled {
    unsigned char *code; /* gki_free */
    size_t size;
    char *log;           /* gki_free; may be NULL */
    int32_t registers;   /* -1 where the compiler does not say */
    int32_t spill_bytes; /* stores and loads; -1 where the compiler does not say */
    int32_t stack_bytes;
    bool serialized; /* ptxas gave up overlapping wgmma */
    double seconds;
} gki_compiled;

typedef struct gki_kernel_launch {
    gki_module *module;
    int64_t grid;
    int32_t threads;
    int32_t cluster;
    int32_t cooperative;
    int32_t overlap; /* as in gk_launch; a driver may ignore it */
    int64_t smem;
    const void *args; /* the kernel's parameter struct */
    size_t args_size;
} gki_kernel_launch;

struct gki_driver {
    const char *name; /* "cuda", "cpu" */

    /* GK_ERR_NO_DRIVER, GK_ERR_NO_COMPILER or GK_ERR_INVALID (ordinal) where there is no device. */
    gk_status (*open)(const gki_driver *self, int32_t ordinal, const gki_log *log,
                      gki_device **out);
    void (*close)(gki_device *device);
    void (*info)(gki_device *device, gk_device_info *out);

    gk_status (*mem_alloc)(gki_device *device, size_t bytes, void **out); /* 256-byte aligned */
    gk_status (*mem_free)(gki_device *device, void *ptr);
    gk_status (*copy_in)(gki_device *device, void *dst, const void *src, size_t bytes,
                         void *stream);
    /* `rows` pieces of `width` bytes, `pitch` apart in the host's memory and packed in dst. */
    gk_status (*copy_in_2d)(gki_device *device, void *dst, const void *src, size_t pitch,
                            size_t width, size_t rows, void *stream);
    gk_status (*copy_out)(gki_device *device, void *dst, const void *src, size_t bytes,
                          void *stream);
    gk_status (*copy_dev)(gki_device *device, void *dst, const void *src, size_t bytes,
                          void *stream);
    gk_status (*fill)(gki_device *device, void *dst, unsigned char value, size_t bytes,
                      void *stream);

    /* A non-blocking stream of the device. */
    gk_status (*stream_create)(gki_device *device, void **out);
    void (*stream_destroy)(gki_device *device, void *stream);
    gk_status (*synchronize)(gki_device *device, void *stream);
    gk_status (*is_capturing)(gki_device *device, void *stream, bool *out);

    /*
     * Text to code for this device. A kernel that does not compile is GK_ERR_COMPILE with the
     * compiler's first error line in the message and the whole log in out->log; trouble with the
     * compiler itself is GK_ERR_NO_COMPILER and says nothing about the source. out is zeroed first;
     * on failure only out->log may be set.
     */
    gk_status (*compile)(gki_device *device, const char *source, gki_compiled *out);
    /* Loads code; `kernel` is the kernel's name. GK_ERR_DEVICE if the code is not for the device.
     */
    gk_status (*module_load)(gki_device *device, const void *code, size_t size, const char *kernel,
                             gki_module **out);
    void (*module_unload)(gki_device *device, gki_module *module);
    /* Makes launches with that much dynamic shared memory and that cluster size possible; called
     * once for each module and size before the first such launch. */
    gk_status (*module_reserve)(gki_device *device, gki_module *module, int64_t smem,
                                int32_t cluster);
    /* How many blocks of the launch can be on the device at once, all of it being free: a multiple
     * of the cluster; 0 if not even one cluster can. args are not read. */
    gk_status (*resident)(gki_device *device, const gki_kernel_launch *launch, int64_t *blocks);
    gk_status (*launch)(gki_device *device, const gki_kernel_launch *launch, void *stream);
    /* The description, which gki_map_check() has passed, as the device reads it. */
    gk_status (*map_encode)(gki_device *device, const gk_map_desc *desc, gk_tensor_map *out);

    /*
     * Runs launches[0], launches[1], .. launches[count - 1], `repeats` times over, on a stream of
     * the driver's own, and gives the seconds one launch takes. graph: replay them from a graph, so
     * that the host's launch rate is not what is measured; what L2 holds is evicted before, where
     * the device can, and otherwise they run once untimed. Work queued before is waited for.
     */
    gk_status (*time)(gki_device *device, const gki_kernel_launch *launches, uint32_t count,
                      uint32_t repeats, bool graph, double *seconds);
    /* Gives back what time() keeps, graphs of the last launches and memory; to be called after
     * timings. */
    void (*time_done)(gki_device *device);
};

extern const gki_driver gki_driver_cuda;
extern const gki_driver gki_driver_cpu;

#endif
