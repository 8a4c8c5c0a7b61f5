/* What the case tests of softmax and the norms share: operands between guards, and forced
 * configurations. */
#ifndef ROWS_CASES_H
#define ROWS_CASES_H

#include "op_cases.h"

enum { X, OUT, WEIGHT, BIAS, N_ARGS };

typedef struct rows {
    const char *op;
    double attrs[2];
    op_buffer args[N_ARGS]; /* absent: memory is NULL */
    bool in_place;          /* x is out; args[X] then only says what out holds before */
    unsigned char *result;
} rows;

/* attrs[0] and, for the norm, eps; x and out give shapes and strides. */
void rows_create(rows *r, const char *op, double first, double eps, const gk_tensor *x,
                 const gk_tensor *out, int64_t offset);
/* A weight or bias. */
void rows_factor(rows *r, int which, gk_dtype dtype, int64_t stride);
void rows_destroy(rows *r);
gk_call rows_call(const rows *r, bool host);
void rows_upload(rows *r);
/* Fails the test if anything but the output's elements has changed. */
void rows_fetch(rows *r);
double rows_at(const rows *r, int64_t index);

typedef void rows_check(rows *r, const char *what);

/* Against the op's reference in double precision. */
void rows_check_reference(rows *r, const char *what);
void rows_near(const rows *r, const char *what, int64_t index, double want, double allowed);

/* False if the engine refuses the configuration; else it has run twice. */
bool rows_run_forced(rows *r, const gk_variant *variant, const char *config, rows_check *f);

/* `limit` configurations of each variant, spread over all, 0 = all; with each launch-time choice of
 * the last. Returns the variants that ran, a bit for each. */
uint32_t rows_every_config(rows *r, uint32_t limit, rows_check *f);

#endif
