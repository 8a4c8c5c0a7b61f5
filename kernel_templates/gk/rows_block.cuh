// A row to a block.
#pragma once
#include "gk/rows_held.cuh"

namespace gk {

GK_DEVICE void rows_block(const gk_rows_args &args)
{
    GK_DYNAMIC_SHARED(shared);
    block_merger merger = {(summary_slot *)shared, 0};
    rows_held<1, PERSIST>(args, merger, shared + 2 * BLOCK_WARPS * sizeof(summary_slot), 0);
}

} // namespace gk
