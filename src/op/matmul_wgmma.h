/* What the files of the wgmma variants share. */
#ifndef GKI_MATMUL_WGMMA_H
#define GKI_MATMUL_WGMMA_H

#include "op/matmul.h"

enum {
    WGMMA_BLOCK_M,
    WGMMA_BLOCK_N,
    WGMMA_BLOCK_K,
    WGMMA_CONSUMERS,
    WGMMA_PINGPONG,
    WGMMA_CLUSTER_M,
    WGMMA_CLUSTER_N,
    WGMMA_CLUSTER_K,
    WGMMA_SWAP,
    WGMMA_OVERLAP,
    WGMMA_SPLIT_K,
    WGMMA_GROUP_M,
    WGMMA_N_PARAMS,
};

/* What an operand needs before tensor maps and wgmma can take it; see the template's form_of(). */
typedef enum gki_wgmma_form {
    WGMMA_AS_IT_IS,
    WGMMA_REPACKED,   /* copied into workspace, rows aligned */
    WGMMA_TRANSPOSED, /* the same, its axes exchanged */
} gki_wgmma_form;

/* What follows from a problem and a configuration: the template's constants of the same meaning. */
typedef struct gki_wgmma_shape {
    int64_t element; /* bytes of an operand's element */
    int64_t span;    /* elements of 128 bytes */
    int64_t tile_x;  /* the rows of wgmma: along M, or along N if swapped */
    int64_t tile_y;
    int64_t cluster; /* blocks */
    int64_t team;    /* those of them that work on the same K */
    int64_t cluster_x;
    int64_t cluster_y;
    int64_t sharers; /* warpgroups that work on one tile */
    int64_t pieces;  /* 64 rows each, of one warpgroup */
    gki_wgmma_form a_form;
    gki_wgmma_form b_form;
    bool x_k_major; /* as prepared */
    bool y_k_major;
    int64_t x_bytes; /* of one stage */
    int64_t y_bytes;
    int64_t x_box_rows;
    int64_t y_box_rows;
    int64_t out_y; /* columns of Y that a block hands on */
    bool by_tma;   /* how C is stored */
    bool shifted;  /* if not by TMA */
    bool y_contiguous;
    int64_t slab_y;    /* columns of Y that leave together */
    int64_t out_bytes; /* of one warpgroup's way out */
    int64_t stages;
    int64_t smem;
    int64_t rows; /* of clusters of tiles */
    int64_t cols;
} gki_wgmma_shape;

gki_wgmma_shape gki_wgmma_shape_of(const gk_problem *problem, const gk_config *config);

/* A matrix whose rows (or columns, if it is column-major) are the map's dimension 0. Of an empty
 * one nothing is read; `c` is an address of the device to name. */
void gki_wgmma_describe(const gk_tensor *t, const gk_tensor *c, uint8_t layout, gk_map_desc *out);

/* Bytes that a read brings into L2: 128, or 256 if `wide`, but not where rows begin inside lines of
 * 128, which gain nothing from more. */
uint32_t gki_wgmma_promotion(const gk_map_desc *desc, bool wide);

/* matmul_wgmma_f32.c: are these f32 operands that tensor cores may multiply at f32's accuracy here?
 */
bool gki_wgmma_check_f32(const gk_problem *problem, const gk_device_info *device,
                         gk_reason *reason);

/* matmul_wgmma_prepare.c */
gki_wgmma_form gki_wgmma_form_of(const gk_problem *problem, int arg, bool swap);
/* The template's PREPARES. */
bool gki_wgmma_prepares(const gki_wgmma_shape *s);
int64_t gki_wgmma_prepared_bytes(const gk_problem *problem, int arg, bool swap);
bool gki_wgmma_check_prepared(const gk_problem *problem, bool swap, gk_reason *reason);
void gki_wgmma_describe_prepared(const gk_problem *problem, int arg, gki_wgmma_form form,
                                 void *data, gk_map_desc *out);
double gki_wgmma_prepare_seconds(const gk_problem *problem, double bandwidth, bool swap);

/* matmul_wgmma_model.c */
double gki_wgmma_model(const gk_problem *problem, const gk_device_info *device,
                       const gk_config *config);

#endif
