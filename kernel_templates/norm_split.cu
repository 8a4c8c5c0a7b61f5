// Norms: a few long rows, each to several blocks.
#include "gk/rows_args.h"

#include "gk/norm.cuh"

#include "gk/rows_split.cuh"

GK_KERNEL(THREADS, BLOCKS, gk_rows_args, args)
{
    gk::rows_split(args);
}
