/* The parameter struct of the transpose kernel that moves tiles by tensor maps. */
#ifndef GK_TRANSPOSE_TMA_ARGS_H
#define GK_TRANSPOSE_TMA_ARGS_H

#include "gk/tensor_map.h"
#include "gk/transpose_args.h"

typedef struct gk_transpose_tma_args {
    gk_tensor_map x;   /* boxes of 128 bytes along c, a tile's rows along r */
    gk_tensor_map out; /* boxes of 128 bytes along r, a tile's columns along c */
    gk_transpose_args call;
} gk_transpose_tma_args;

#endif
