// Softmax: rows that a cluster of blocks holds.
#include "gk/rows_args.h"

#include "gk/softmax.cuh"

#include "gk/rows_cluster.cuh"

GK_KERNEL(THREADS, gk::blocks_holding(THREADS, VECTORS, REST), gk_rows_args, args)
{
    gk::rows_cluster(args);
}
