#include "support/case_call.h"

#include <string.h>

gk_status case_call(const gk_op_desc *op, const gk_preset *preset, const gk_case *item,
                    gk_tensor *tensors, gk_call *call)
{
    memset(tensors, 0, GK_MAX_ARGS * sizeof(*tensors));
    memset(call, 0, sizeof(*call));
    for (uint32_t i = 0; i < op->n_attrs; i++) {
        call->attrs[i] = op->attrs[i].default_value;
    }
    gk_preset_apply(preset, call);
    const gk_status status = op->example(item, tensors, call);
    for (uint64_t i = 0; i < GK_MAX_ARGS; i++) {
        const uint64_t offset = (uint64_t)item->offset * gk_dtype_size((gk_dtype)tensors[i].dtype);
        tensors[i].data = (void *)(uintptr_t)(((i + 1) << 44) + offset);
    }
    return status;
}
