/* What map's case tests share: a call on guarded operands, and forced configurations of it. */
#ifndef MAP_CASES_H
#define MAP_CASES_H

#include "op_cases.h"

enum { MAP_INPUTS = 5 };

typedef struct map_case {
    const char *text;
    uint32_t n_inputs;
    op_buffer x[MAP_INPUTS];
    op_buffer out;
    int in_place; /* the input that out is; -1 = none */
    unsigned char *result;
} map_case;

/* offsets: elements by which each misses its alignment, out's last; NULL = none. */
void map_case_create(map_case *f, const char *text, uint32_t n_inputs, const gk_tensor *inputs,
                     const gk_tensor *out, const int64_t *offsets, int in_place);
void map_case_destroy(map_case *f);

/* On the device's tensors. */
gk_call map_case_call(const map_case *f);
void map_case_upload(map_case *f);
/* Fails the test if anything but out's elements has changed. */
void map_case_fetch(map_case *f);
double map_case_result(const map_case *f, int64_t index);

/* Every result against the reference, which unit tests compare with the mathematics. */
void map_case_check(map_case *f, const char *config);
/* The results are these; NaN is NaN. */
void map_case_check_values(map_case *f, const char *config, const double *want, int64_t count);

/* Forced configurations, each on a fresh output: against `want` where it is given, else against
 * the reference. `seed` moves the choice where not all are run. Returns how many ran. */
uint32_t map_case_every_config(map_case *f, const double *want, uint32_t seed);

#endif
