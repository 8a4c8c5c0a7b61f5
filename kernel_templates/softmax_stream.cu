// Softmax: rows of any length, read twice.
#include "gk/rows_args.h"

#include "gk/softmax.cuh"

#include "gk/rows_stream.cuh"

GK_KERNEL(THREADS, 1, gk_rows_args, args)
{
    gk::rows_stream(args);
}
