/* A cold L2 for timings: a kernel that reads a buffer twice as large. It reads, for what it wrote
 * would have to leave L2 while the timed kernels run. */
#include "driver/cuda/cuda_device.h"

enum { FLUSH_THREADS = 256 };

/* From begin to end in steps of 16 bytes. All of it is zero, so nothing is ever stored, but only
 * loads can tell. */
static const char flush_ptx[] = ".version 6.0\n"
                                ".target sm_70\n"
                                ".address_size 64\n"
                                ".visible .entry gk_flush(.param .u64 begin, .param .u64 end)\n"
                                "{\n"
                                ".reg .pred %p;\n"
                                ".reg .b32 %r<9>;\n"
                                ".reg .b64 %at, %end, %step;\n"
                                "ld.param.u64 %at, [begin];\n"
                                "ld.param.u64 %end, [end];\n"
                                "mov.u32 %r0, %ctaid.x;\n"
                                "mov.u32 %r1, %ntid.x;\n"
                                "mov.u32 %r2, %tid.x;\n"
                                "mov.u32 %r3, %nctaid.x;\n"
                                "mad.lo.u32 %r2, %r0, %r1, %r2;\n"
                                "mad.wide.u32 %at, %r2, 16, %at;\n"
                                "mul.lo.u32 %r3, %r3, %r1;\n"
                                "mul.wide.u32 %step, %r3, 16;\n"
                                "mov.u32 %r4, 0;\n"
                                "read:\n"
                                "setp.ge.u64 %p, %at, %end;\n"
                                "@%p bra done;\n"
                                "ld.global.cg.v4.u32 {%r5, %r6, %r7, %r8}, [%at];\n"
                                "or.b32 %r5, %r5, %r6;\n"
                                "or.b32 %r7, %r7, %r8;\n"
                                "or.b32 %r4, %r4, %r5;\n"
                                "or.b32 %r4, %r4, %r7;\n"
                                "add.u64 %at, %at, %step;\n"
                                "bra read;\n"
                                "done:\n"
                                "setp.eq.u32 %p, %r4, 0;\n"
                                "@%p ret;\n"
                                "ld.param.u64 %at, [begin];\n"
                                "st.global.u32 [%at], %r4;\n"
                                "ret;\n"
                                "}\n";

static gki_cu_result load_kernel(gki_cuda_device *device)
{
    const gki_cuda_api *api = device->api;
    gki_cuda_flush *flush = &device->flush;
    gki_cu_result result = api->cuModuleLoadData(&flush->module, flush_ptx);
    if (result == GKI_CU_SUCCESS) {
        result = api->cuModuleGetFunction(&flush->kernel, flush->module, "gk_flush");
        if (result != GKI_CU_SUCCESS) {
            api->cuModuleUnload(flush->module);
        }
    }
    if (result != GKI_CU_SUCCESS) {
        flush->module = NULL;
        flush->kernel = NULL;
        flush->no_kernel = true;
    }
    return result;
}

static void free_buffer(gki_cuda_device *device)
{
    if (device->flush.buffer != 0) {
        device->api->cuMemFree_v2(device->flush.buffer);
    }
    device->flush.buffer = 0;
}

static gki_cu_result make_buffer(gki_cuda_device *device)
{
    const gki_cuda_api *api = device->api;
    gki_cuda_flush *flush = &device->flush;
    flush->bytes = (size_t)device->info.l2_bytes / 16 * 32;
    gki_cu_result result = api->cuMemAlloc_v2(&flush->buffer, flush->bytes);
    if (result != GKI_CU_SUCCESS) {
        flush->buffer = 0;
    } else {
        result = api->cuMemsetD8Async(flush->buffer, 0, flush->bytes, device->timing_stream);
    }
    if (result != GKI_CU_SUCCESS) {
        free_buffer(device);
        flush->no_buffer = true;
    }
    return result;
}

gk_status gki_cuda_flush_prepare(gki_cuda_device *device, bool *ready)
{
    gki_cuda_flush *flush = &device->flush;
    gki_cu_result result = GKI_CU_SUCCESS;
    *ready = false;
    if (device->info.l2_bytes <= 0) {
        return GK_OK;
    }
    if (flush->kernel == NULL && !flush->no_kernel) {
        result = load_kernel(device);
    }
    if (flush->kernel != NULL && flush->buffer == 0 && !flush->no_buffer) {
        result = make_buffer(device);
    }
    *ready = flush->kernel != NULL && flush->buffer != 0;
    if (gki_cuda_is_fatal(result)) {
        return gki_cuda_fail(device->api, result, "preparing to evict L2 before timings");
    }
    if (result != GKI_CU_SUCCESS && !flush->noted) {
        flush->noted = true;
        gki_logf(&device->log, GK_LOG_INFO, "graphs are timed with what they leave in L2: %s: %s",
                 flush->no_kernel ? "no kernel that evicts it" : "no memory to evict it with",
                 gki_cuda_error_name(device->api, result));
    }
    return GK_OK;
}

gk_status gki_cuda_flush_launch(const gki_cuda_device *device)
{
    const gki_cuda_flush *flush = &device->flush;
    gki_cu_ptr begin = flush->buffer;
    gki_cu_ptr end = begin + flush->bytes;
    void *params[] = {&begin, &end};
    const unsigned int blocks =
        (unsigned int)(device->info.sm_count * (device->info.max_threads_per_sm / FLUSH_THREADS));
    gki_cu_result result = device->api->cuLaunchKernel(
        flush->kernel, blocks, 1, 1, FLUSH_THREADS, 1, 1, 0, device->timing_stream, params, NULL);
    return result == GKI_CU_SUCCESS
               ? GK_OK
               : gki_cuda_fail(device->api, result, "evicting L2 before a timing");
}

void gki_cuda_flush_done(gki_cuda_device *device)
{
    free_buffer(device);
    device->flush.no_buffer = false;
}

void gki_cuda_flush_close(gki_cuda_device *device)
{
    free_buffer(device);
    if (device->flush.module != NULL) {
        device->api->cuModuleUnload(device->flush.module);
    }
    device->flush = (gki_cuda_flush){0};
}
