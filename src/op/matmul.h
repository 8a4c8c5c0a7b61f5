/* What the matmul op and its variants share. */
#ifndef GKI_MATMUL_H
#define GKI_MATMUL_H

#include <gk/extend.h>

enum { MATMUL_A, MATMUL_B, MATMUL_C, MATMUL_BIAS, MATMUL_RESIDUAL, MATMUL_N_ARGS };
enum { MATMUL_M, MATMUL_N, MATMUL_K, MATMUL_N_DIMS };
/* Of alpha the identity holds nothing, of beta only whether it is 0 (then C is not read). */
enum { MATMUL_ACTIVATION, MATMUL_MATH, MATMUL_ALPHA, MATMUL_BETA, MATMUL_N_ATTRS };

/* Rounded up; no overflow at the end of the range. */
static inline int64_t gki_ceil_div(int64_t a, int64_t b)
{
    return a / b + (a % b != 0);
}

static inline double gki_at_least(double value, double limit)
{
    return value > limit ? value : limit;
}

extern const gk_variant gki_matmul_simt;
extern const gk_variant gki_matmul_mma;
extern const gk_variant gki_matmul_wgmma;
extern const gk_variant gki_matmul_wgmma_f32;
extern const gk_variant gki_matmul_wgmma_split;
extern const gk_variant gki_matmul_gemv;

/* A_TYPE, B_TYPE, C_TYPE, BIAS_TYPE, A_LAYOUT, .., C_ALIGN, ACTIVATION, HAS_BIAS, HAS_RESIDUAL,
 * HAS_BETA and the tag: the same for every variant. */
void gki_matmul_constants(const gk_problem *problem, gk_constants *out);
/* One more, for a variant of its own. */
void gki_matmul_constant(gk_constants *out, const char *name, gk_constant_kind kind, int64_t value);

/* Bytes of an accumulator: 8 for f64, else 4. */
int64_t gki_matmul_acc_bytes(const gk_problem *problem);
/* Whether tensor cores may add up only 128 products of 8-bit floats, f32 units the rest. */
bool gki_matmul_promotes(const gk_problem *problem);

/* Grid and split-K scratch of a tile configuration: grid = tiles * split_k; if split_k > 1 the
 * workspace holds split_k * tiles * block_m * block_n accumulators (args.partials) and the zeroed
 * area one 8-byte ticket a tile (args.tickets). */
void gki_matmul_grid(const gk_problem *problem, int64_t block_m, int64_t block_n, int64_t split_k,
                     gk_launch *out);

/* The value of a named param of the variant's config; 0 if it has none of that name. */
int64_t gki_config_value(const gk_variant *variant, const gk_config *config, const char *name);

#endif
