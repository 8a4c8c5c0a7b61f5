/* A launch's parameter struct: tensor maps, then what the op packs. */
#include <string.h>

#include "base/error.h"
#include "jit/jit.h"

enum { MAP_ALIGN = 16, MAX_BOX = 256 };
static const int64_t MAX_DIM = INT64_C(1) << 32;
static const int64_t MAX_STRIDE = (INT64_C(1) << 40) - 1;
static const char WHERE[] = "map";

static bool check_axis(const gk_map_desc *desc, uint32_t i, gk_reason *reason)
{
    if (desc->dims[i] < 1 || desc->dims[i] > MAX_DIM) {
        return gk_refuse(reason, "dims[%u] is %lld, must be 1 to 2^32", (unsigned)i,
                         (long long)desc->dims[i]);
    }
    if (desc->box[i] < 1 || desc->box[i] > MAX_BOX) {
        return gk_refuse(reason, "box[%u] is %d elements, must be 1 to 256", (unsigned)i,
                         (int)desc->box[i]);
    }
    const int64_t stride = i == 0 ? 0 : desc->strides[i];
    if (stride < 0 || stride > MAX_STRIDE || stride % MAP_ALIGN != 0) {
        return gk_refuse(reason, "strides[%u] is %lld bytes, must be a multiple of 16 below 2^40",
                         (unsigned)i, (long long)stride);
    }
    return true;
}

static bool check_row(const gk_map_desc *desc, int64_t bytes, gk_reason *reason)
{
    if (desc->swizzle != 0 && desc->swizzle != 32 && desc->swizzle != 64 && desc->swizzle != 128) {
        return gk_refuse(reason, "swizzle is %u bytes, must be 0, 32, 64 or 128",
                         (unsigned)desc->swizzle);
    }
    if (bytes % MAP_ALIGN != 0) {
        return gk_refuse(reason, "box[0] is %d elements, %lld bytes, must be a multiple of 16",
                         (int)desc->box[0], (long long)bytes);
    }
    if (desc->swizzle != 0 && bytes > desc->swizzle) {
        return gk_refuse(reason, "box[0] is %d elements, %lld bytes, a swizzle of %u spans less",
                         (int)desc->box[0], (long long)bytes, (unsigned)desc->swizzle);
    }
    return true;
}

bool gki_map_check(const gk_map_desc *desc, gk_reason *reason)
{
    const int64_t size = (int64_t)gk_dtype_size((gk_dtype)desc->dtype);
    if (size == 0) {
        return gk_refuse(reason, "dtype is %d, which is no gk_dtype", (int)desc->dtype);
    }
    if (desc->tf32 != 0 && desc->dtype != GK_F32) {
        return gk_refuse(reason, "tf32 is set for %s, must be f32",
                         gk_dtype_name((gk_dtype)desc->dtype));
    }
    if (desc->rank < 1 || desc->rank > GK_MAX_MAP_RANK) {
        return gk_refuse(reason, "rank is %u, must be 1 to %d", (unsigned)desc->rank,
                         GK_MAX_MAP_RANK);
    }
    if (desc->data == NULL || (uintptr_t)desc->data % MAP_ALIGN != 0) {
        return gk_refuse(reason, "data is %p, must be 16-byte aligned", desc->data);
    }
    for (uint32_t i = 0; i < desc->rank; i++) {
        if (!check_axis(desc, i, reason)) {
            return false;
        }
    }
    if (desc->l2_promotion != 0 && desc->l2_promotion != 64 && desc->l2_promotion != 128 &&
        desc->l2_promotion != 256) {
        return gk_refuse(reason, "l2_promotion is %u bytes, must be 0, 64, 128 or 256",
                         (unsigned)desc->l2_promotion);
    }
    return check_row(desc, desc->box[0] * size, reason);
}

static gk_status encode_maps(gki_device *device, const gki_recipe *recipe, const gk_call *call,
                             void *workspace, void *out)
{
    const gk_variant *variant = recipe->variant;
    gk_map_desc descs[GK_MAX_MAPS];
    gk_tensor_map *maps = out;
    gk_reason reason = {{0}};
    gk_device_info info;
    memset(descs, 0, sizeof descs);
    device->driver->info(device, &info);
    if (!variant->maps(call, recipe->problem, &info, recipe->config, workspace, descs)) {
        return gk_fail(GK_ERR_INTERNAL, WHERE, "variant %s cannot describe the operands",
                       variant->name);
    }
    for (uint32_t i = 0; i < variant->n_maps; i++) {
        if (!gki_map_check(&descs[i], &reason)) {
            return gk_fail(GK_ERR_INVALID, WHERE, "map %u of variant %s: %s", (unsigned)i,
                           variant->name, reason.text);
        }
        const gk_status status = device->driver->map_encode(device, &descs[i], &maps[i]);
        if (status != GK_OK) {
            return status;
        }
    }
    return GK_OK;
}

static size_t pack_args(const gki_recipe *recipe, const gk_call *call, void *workspace,
                        void *zeroed, unsigned char *args)
{
    const size_t maps = recipe->variant->n_maps * sizeof(gk_tensor_map);
    size_t size = maps + recipe->op->pack(call, recipe->problem, recipe->variant, recipe->config,
                                          workspace, zeroed, args + maps);
    /* As the compiler pads a struct that holds maps. */
    while (maps > 0 && size % GKI_ARGS_ALIGN != 0) {
        args[size++] = 0;
    }
    return size;
}

gk_status gki_launch_make(gki_device *device, const gki_recipe *recipe, const gk_call *call,
                          void *workspace, void *zeroed, unsigned char *args,
                          gki_kernel_launch *out)
{
    memset(out, 0, sizeof *out);
    if (recipe->variant->n_maps > 0) {
        const gk_status status = encode_maps(device, recipe, call, workspace, args);
        if (status != GK_OK) {
            return status;
        }
    }
    out->module = atomic_load_explicit(&recipe->kernel->module, memory_order_acquire);
    out->grid = recipe->launch->grid;
    out->threads = recipe->launch->threads;
    out->cluster = recipe->launch->cluster;
    out->cooperative = recipe->launch->cooperative;
    out->overlap = recipe->launch->overlap;
    out->smem = recipe->launch->smem;
    out->args = args;
    out->args_size = pack_args(recipe, call, workspace, zeroed, args);
    return GK_OK;
}
