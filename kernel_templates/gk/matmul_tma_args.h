/* The parameter struct of matmul kernels that load through tensor maps. */
#ifndef GK_MATMUL_TMA_ARGS_H
#define GK_MATMUL_TMA_ARGS_H

#include "gk/matmul_args.h"
#include "gk/tensor_map.h"

typedef struct gk_matmul_tma_args {
    gk_tensor_map a; /* boxes of one stage's tile, or of a block's share of it */
    gk_tensor_map b;
    gk_tensor_map c; /* boxes of one epilogue slab; that of a where C is stored without it */
    gk_matmul_args call;
} gk_matmul_tma_args;

#endif
