/* The CPU device's driver table. Streams are synchronous: every call returns with its work done. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"
#include "driver/emu/compile.h"
#include "driver/emu/module.h"
#include "driver/emu/sm.h"
#include "driver/emu/tensor_map.h"

enum {
    MEMORY_ALIGNMENT = 256,
    MAX_ARGS_BYTES = 4096, /* CUDA's limit for a kernel's parameters */
    STREAM_LOCKS = 16,
};

typedef struct device {
    gki_device base;
    gki_emu_compiler compiler;
    gki_emu_pool *pool;
    gki_emu_memory memory;
    /* Launches in one stream, whatever threads they come from, run one after the other: streams
     * are spread over these. */
    pthread_mutex_t order[STREAM_LOCKS];
} device;

static void close_device(gki_device *base)
{
    device *self = (device *)base;
    if (self == NULL) {
        return;
    }
    for (int i = 0; i < STREAM_LOCKS; i++) {
        pthread_mutex_destroy(&self->order[i]);
    }
    gki_emu_pool_destroy(self->pool);
    gki_emu_compiler_free(&self->compiler);
    gki_emu_memory_free(&self->memory);
    gki_free(self);
}

static gk_status open_device(const gki_driver *driver, int32_t ordinal, const gki_log *log,
                             gki_device **out)
{
    *out = NULL;
    if (ordinal != 0) {
        return gk_fail(GK_ERR_INVALID, "cpu device", "ordinal is %d, there is one CPU device: 0",
                       ordinal);
    }
    device *self = gki_calloc(1, sizeof *self);
    if (self == NULL) {
        return gki_fail_nomem("cpu device", sizeof *self);
    }
    self->base.driver = driver;
    for (int i = 0; i < STREAM_LOCKS; i++) {
        pthread_mutex_init(&self->order[i], NULL);
    }
    gk_status status = gki_emu_memory_init(&self->memory);
    if (status == GK_OK) {
        status = gki_emu_compiler_init(&self->compiler);
        if (status != GK_OK) {
            gki_emu_memory_free(&self->memory);
        }
    }
    if (status != GK_OK) {
        gki_free(self);
        return status;
    }
    self->pool = gki_emu_pool_create();
    if (self->pool == NULL) {
        close_device(&self->base);
        return gki_fail_nomem("cpu device", sizeof *self);
    }
    gki_logf(log, GK_LOG_DEBUG, "cpu device: compiler %s", self->compiler.identity);
    *out = &self->base;
    return GK_OK;
}

/* Compute capability 9.0: what bulk copies and warpgroup instructions need. */
static void info(gki_device *base, gk_device_info *out)
{
    const device *self = (const device *)base;
    memset(out, 0, sizeof *out);
    snprintf(out->name, sizeof out->name, "gk CPU device");
    out->cc = 90;
    out->sm_count = 4;
    out->max_threads_per_block = GKI_EMU_MAX_THREADS;
    out->max_threads_per_sm = 2048;
    out->regs_per_sm = 65536;
    out->regs_per_block = 65536;
    out->clock_khz = 1000000;
    out->memory_clock_khz = 1000000;
    out->memory_bus_bits = 64;
    out->smem_per_block = GKI_EMU_SMEM_DEFAULT;
    out->smem_per_block_optin = GKI_EMU_SMEM_OPTIN;
    out->smem_per_sm = 228 * 1024;
    out->l2_bytes = 4 * 1024 * 1024;
    const long pages = sysconf(_SC_PHYS_PAGES);
    const long page = sysconf(_SC_PAGESIZE);
    if (pages > 0 && page > 0) {
        out->memory_bytes = (int64_t)pages * page;
    }
    out->is_emulated = 1;
#if defined(__x86_64__)
    snprintf(out->arch, sizeof out->arch, "x86_64");
#elif defined(__aarch64__)
    snprintf(out->arch, sizeof out->arch, "aarch64");
#else
    snprintf(out->arch, sizeof out->arch, "host");
#endif
    memcpy(out->compiler, self->compiler.identity, sizeof out->compiler);
}

static gk_status mem_alloc(gki_device *base, size_t bytes, void **out)
{
    *out = gki_alloc_aligned(MEMORY_ALIGNMENT, bytes > 0 ? bytes : 1);
    if (*out == NULL) {
        return gki_fail_nomem("cpu device", bytes);
    }
    const gk_status status = gki_emu_memory_add(&((device *)base)->memory, *out, bytes);
    if (status != GK_OK) {
        gki_free(*out);
        *out = NULL;
    }
    return status;
}

static gk_status mem_free(gki_device *base, void *ptr)
{
    gki_emu_memory_remove(&((device *)base)->memory, ptr);
    gki_free(ptr);
    return GK_OK;
}

static gk_status copy(gki_device *base, void *dst, const void *src, size_t bytes, void *stream)
{
    (void)base;
    (void)stream;
    if (bytes > 0) {
        memmove(dst, src, bytes);
    }
    return GK_OK;
}

static gk_status copy_in_2d(gki_device *base, void *dst, const void *src, size_t pitch,
                            size_t width, size_t rows, void *stream)
{
    (void)base;
    (void)stream;
    for (size_t i = 0; i < rows; i++) {
        memcpy((unsigned char *)dst + i * width, (const unsigned char *)src + i * pitch, width);
    }
    return GK_OK;
}

static gk_status fill(gki_device *base, void *dst, unsigned char value, size_t bytes, void *stream)
{
    (void)base;
    (void)stream;
    if (bytes > 0) {
        memset(dst, value, bytes);
    }
    return GK_OK;
}

/* Streams carry no state; each is an address of its own. */
static gk_status stream_create(gki_device *base, void **out)
{
    (void)base;
    *out = gki_alloc(1);
    return *out != NULL ? GK_OK : gki_fail_nomem("cpu device", 1);
}

static void stream_destroy(gki_device *base, void *stream)
{
    (void)base;
    gki_free(stream);
}

static gk_status synchronize(gki_device *base, void *stream)
{
    (void)base;
    (void)stream;
    return GK_OK;
}

static gk_status is_capturing(gki_device *base, void *stream, bool *out)
{
    (void)base;
    (void)stream;
    *out = false;
    return GK_OK;
}

static gk_status compile(gki_device *base, const char *source, gki_compiled *out)
{
    return gki_emu_compile(&((const device *)base)->compiler, source, out);
}

static gk_status module_load(gki_device *base, const void *code, size_t size, const char *kernel,
                             gki_module **out)
{
    (void)base;
    gki_emu_module *module = NULL;
    const gk_status status = gki_emu_module_load(code, size, kernel, &module);
    *out = module != NULL ? &module->base : NULL;
    return status;
}

static void module_unload(gki_device *base, gki_module *module)
{
    (void)base;
    gki_emu_module_unload((gki_emu_module *)module);
}

static gk_status module_reserve(gki_device *base, gki_module *module, int64_t smem, int32_t cluster)
{
    (void)base;
    gki_emu_module *self = (gki_emu_module *)module;
    if (smem > GKI_EMU_SMEM_OPTIN) {
        return gk_fail(GK_ERR_DEVICE, "cpu device",
                       "dynamic shared memory is %lld bytes, must be at most %d", (long long)smem,
                       GKI_EMU_SMEM_OPTIN);
    }
    if (cluster > GKI_EMU_MAX_CLUSTER) {
        return gk_fail(GK_ERR_DEVICE, "cpu device", "cluster is %d blocks, must be at most %d",
                       cluster, GKI_EMU_MAX_CLUSTER);
    }
    int64_t reserved = atomic_load(&self->reserved_smem);
    while (reserved < smem &&
           !atomic_compare_exchange_weak(&self->reserved_smem, &reserved, smem)) {
    }
    return GK_OK;
}

static gk_status resident(gki_device *base, const gki_kernel_launch *what, int64_t *blocks)
{
    (void)base;
    const int64_t cluster = what->cluster > 1 ? what->cluster : 1;
    *blocks = GKI_EMU_MAX_RESIDENT / cluster * cluster;
    return GK_OK;
}

static gk_status launch(gki_device *base, const gki_kernel_launch *what, void *stream)
{
    gki_emu_module *module = (gki_emu_module *)what->module;
    if (what->args_size != module->kernel->args_bytes) {
        return gk_fail(GK_ERR_DEVICE, "cpu device",
                       "the kernel's parameter has %zu bytes, needs %u", what->args_size,
                       module->kernel->args_bytes);
    }
    const int64_t reserved = atomic_load(&module->reserved_smem);
    const int64_t limit = reserved > GKI_EMU_SMEM_DEFAULT ? reserved : GKI_EMU_SMEM_DEFAULT;
    if (what->smem < 0 || what->smem > limit) {
        return gk_fail(GK_ERR_DEVICE, "cpu device",
                       "dynamic shared memory is %lld bytes, %lld are reserved",
                       (long long)what->smem, (long long)limit);
    }
    if (what->grid < 1 || what->grid > INT32_MAX || what->threads < 1) {
        return gk_fail(GK_ERR_DEVICE, "cpu device",
                       "launch of %lld blocks of %d threads, must be 1 to 2147483647 blocks of at "
                       "least 1 thread",
                       (long long)what->grid, what->threads);
    }
    if (what->args_size > MAX_ARGS_BYTES) {
        return gk_fail(GK_ERR_DEVICE, "cpu device",
                       "the kernel's parameter has %zu bytes, may have %d", what->args_size,
                       MAX_ARGS_BYTES);
    }
    /* The kernel's own copy, aligned for any parameter struct. */
    _Alignas(64) unsigned char args[MAX_ARGS_BYTES];
    memcpy(args, what->args, what->args_size);
    device *self = (device *)base;
    const gki_emu_launch run = {
        .kernel = module->kernel,
        .args = args,
        .grid = {(unsigned)what->grid, 1, 1},
        .block = {(unsigned)what->threads, 1, 1},
        .smem = (uint32_t)what->smem,
        .memory = &self->memory,
        .cluster = (uint32_t)(what->cluster > 1 ? what->cluster : 1),
        .cooperative = what->cooperative != 0,
    };
    pthread_mutex_t *order = &self->order[((uintptr_t)stream >> 4) % STREAM_LOCKS];
    pthread_mutex_lock(order);
    const gk_status status = gki_emu_run(self->pool, &run);
    pthread_mutex_unlock(order);
    return status;
}

static gk_status time_launches(gki_device *base, const gki_kernel_launch *launches, uint32_t count,
                               uint32_t repeats, bool graph, double *seconds)
{
    (void)graph;
    *seconds = 0;
    const uint64_t begin = gki_clock_ns();
    for (uint32_t i = 0; i < repeats; i++) {
        for (uint32_t j = 0; j < count; j++) {
            const gk_status status = launch(base, &launches[j], NULL);
            if (status != GK_OK) {
                return status;
            }
        }
    }
    const double total = (double)(gki_clock_ns() - begin) * 1e-9;
    const double runs = (double)count * repeats;
    *seconds = runs > 0 ? total / runs : 0;
    return GK_OK;
}

static void nothing_kept(gki_device *base)
{
    (void)base;
}

const gki_driver gki_driver_cpu = {
    .name = "cpu",
    .open = open_device,
    .close = close_device,
    .info = info,
    .mem_alloc = mem_alloc,
    .mem_free = mem_free,
    .copy_in = copy,
    .copy_in_2d = copy_in_2d,
    .copy_out = copy,
    .copy_dev = copy,
    .fill = fill,
    .stream_create = stream_create,
    .stream_destroy = stream_destroy,
    .synchronize = synchronize,
    .is_capturing = is_capturing,
    .compile = compile,
    .module_load = module_load,
    .module_unload = module_unload,
    .module_reserve = module_reserve,
    .resident = resident,
    .launch = launch,
    .map_encode = gki_emu_map_encode,
    .time = time_launches,
    .time_done = nothing_kept,
};
