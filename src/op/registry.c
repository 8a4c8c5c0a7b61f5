#include <string.h>

#include "op/op.h"

const gk_op_desc *gk_op_at(uint32_t index)
{
    for (uint32_t i = 0; gki_op_table[i] != NULL; i++) {
        if (i == index) {
            return gki_op_table[i];
        }
    }
    return NULL;
}

static const gk_preset *find_preset(const gk_op_desc *op, const char *name)
{
    for (uint32_t i = 0; i < op->n_presets; i++) {
        if (strcmp(op->presets[i].name, name) == 0) {
            return &op->presets[i];
        }
    }
    return NULL;
}

const gk_op_desc *gk_op_find(const char *name, const gk_preset **preset)
{
    if (preset != NULL) {
        *preset = NULL;
    }
    if (name == NULL) {
        return NULL;
    }
    for (uint32_t i = 0; gki_op_table[i] != NULL; i++) {
        const gk_op_desc *op = gki_op_table[i];
        if (strcmp(op->name, name) == 0) {
            return op;
        }
        const gk_preset *found = find_preset(op, name);
        if (found != NULL) {
            if (preset != NULL) {
                *preset = found;
            }
            return op;
        }
    }
    return NULL;
}

void gk_preset_apply(const gk_preset *preset, gk_call *call)
{
    for (uint32_t i = 0; preset != NULL && i < GK_MAX_ATTRS; i++) {
        if ((preset->fixed >> i & 1) != 0) {
            call->attrs[i] = preset->attrs[i];
        }
    }
    if (preset != NULL && preset->text != NULL) {
        call->text = preset->text;
    }
}
