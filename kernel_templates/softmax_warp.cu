// Softmax: rows that some lanes of a warp hold.
#include "gk/rows_args.h"

#include "gk/softmax.cuh"

#include "gk/rows_warp.cuh"

GK_KERNEL(WARPS * 32, gk::blocks_with(WARPS * 32, ROWS, VECTORS), gk_rows_args, args)
{
    gk::rows_warp(args);
}
