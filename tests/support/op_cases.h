/* What matmul's case tests share: a context on the device under test, guarded operands, and forced
 * configurations. $GK_TEST_DEVICE names the device ("cpu" if unset). */
#ifndef OP_CASES_H
#define OP_CASES_H

#include "gk_test.h"

#include <gk/gk.h>

#include "op_buffer.h"

typedef struct op_operands {
    op_buffer a, b, c, bias, residual; /* absent: memory is NULL */
    gk_matmul_params params;
    unsigned char *result; /* c's bytes after the last run */
} op_operands;

const char *op_test_device(void);
bool op_test_is_cpu(void);

/* How many kernels of each variant a test forces, 0 = all: $GK_TEST_CONFIGS; if unset, all, but on
 * the CPU device 2. */
uint32_t op_case_limit(void);

/* 0 if the device can be opened. Otherwise what main() returns, with the reason on stderr: 77, or 1
 * if $GK_TEST_REQUIRE_GPU is set. */
int op_test_missing(void);

/* cache_path NULL = ":memory:". */
gk_context *op_test_context(gk_mode mode, const char *cache_path);

/* A context in heuristic mode for each of a file's tests: on_device(name) in its table. */
extern gk_context *op_case_ctx;
int op_case_open(void **state);
int op_case_close(void **state);
#define on_device(name) cmocka_unit_test_setup_teardown(name, op_case_open, op_case_close)

/* Packed row-major operands; with `wide`, leading dimensions are multiples of 16 elements. */
void op_operands_create(op_operands *o, gk_context *ctx, gk_dtype in, gk_dtype out, int64_t m,
                        int64_t n, int64_t k, bool wide);
/* The same with the given tensors for shape and strides. */
void op_operands_create_as(op_operands *o, gk_context *ctx, const gk_tensor *a, const gk_tensor *b,
                           const gk_tensor *c, int64_t offset);
void op_operands_bias(op_operands *o, gk_dtype dtype);
void op_operands_destroy(op_operands *o);

gk_call op_operands_call(const op_operands *o);
/* Every input to the device, c as its image has it. */
void op_operands_upload(op_operands *o);
/* Fetches c into `result`; fails the test if anything but c's elements has changed. */
void op_operands_fetch(op_operands *o);
double op_operands_c(const op_operands *o, int64_t i, int64_t j);

/* Upload, gk_matmul, fetch. */
void op_operands_run(gk_context *ctx, op_operands *o);

/* Sum of c, and of (i+1)(j+1) c[i,j]. */
void op_operands_sums(const op_operands *o, double *sum, double *weighted);

/* P(i,k) = (i + k) mod 3 - 1 and R(k,j) = (k + 2j) mod 3 - 1: sums 43 and 31417 for 64x64x64. */
void op_operands_pr(op_operands *o);
/* What their product is at a place, K being `depth`. */
double op_operands_pr_sum(int64_t row, int64_t col, int64_t depth);
void op_operands_check_pr(const op_operands *o);

/* A forced configuration. */
typedef struct op_forced {
    const gk_variant *variant;
    gk_config config;
    char text[256];
} op_forced;

/* The value of a tunable; 0 if the variant has none of that name. */
int32_t op_forced_value(const op_forced *forced, const char *name);

/* Calls check after each forced run of a variant's configurations: a spread of its kernels, and
 * with `launch` every launch-time choice of each. Returns how many ran. Configurations that the
 * engine refuses (GK_ERR_NO_CONFIG) are passed over. */
uint32_t op_every_config(gk_context *ctx, op_operands *o, bool launch,
                         void (*check)(op_operands *o, const op_forced *forced, void *user),
                         void *user);

#endif
