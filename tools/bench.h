/* What the parts of gk-bench share. */
#ifndef BENCH_H
#define BENCH_H

#include "bench_cublaslt.h"
#include "cli.h"

typedef struct bench_options {
    cli_options common;
    bool against;
    bool guess;
    bool regret;
    bool host_cost;
    bool no_check;
    double rounds;
    double budget;
    double random; /* problems to draw; 0 = none */
    double seed;
    double max;
    double tunings;
    double count;
    double threads;
    const char *variant;
    const char *config;
} bench_options;

/* One run of the tool. */
typedef struct bench {
    gk_context *ctx;
    gk_device_info info;
    const bench_options *options;
    const char *op_name;
    const cli_problems *problems;
    bench_cuda cuda;    /* stream is NULL on the CPU device */
    bench_cublaslt *lt; /* NULL unless it was asked for */
    double copy_rate;   /* bytes per second of a device copy, read and written; 0 if unknown */
} bench;

/* --- operands --- */

/* Copies of a problem's operands on the device that together exceed the L2 cache, all with the same
 * values. */
typedef struct bench_run {
    gk_context *ctx;
    const gk_op_desc *op;
    gk_problem problem;
    gk_call *calls; /* n_sets of them */
    unsigned n_sets;
    gk_tensor (*tensors)[GK_MAX_ARGS];
    void *memory[GK_MAX_ARGS]; /* all copies of an argument */
    void *host[GK_MAX_ARGS];   /* its values; an output's place for them */
} bench_run;

/* False, with gk's last error set, if it cannot be. Zero-filled before; freed in either case. */
bool bench_run_make(bench_run *run, const bench *b, const gk_call *example);
void bench_run_free(bench_run *run);

/* The index of the op's output. */
uint32_t bench_output_of(const gk_op_desc *op);
/*
 * Calls once(user) on a poisoned output of the first copy and compares parts of it with the op's
 * reference in double precision. Gives the largest error, 1 being the tolerance widened by
 * `slack` times the magnitude; negative on failure.
 */
double bench_run_check(bench_run *run, bool (*once)(void *user), void *user, double slack);

/* --- timing --- */

/* One of those timed in turn. */
typedef struct bench_racer {
    double (*time)(void *user); /* seconds of a run, not positive on failure */
    void *user;
    double *samples; /* as many as there are rounds, in their order */
} bench_racer;

/* Rounds of all in turn, every other one backwards. -1, or the index of the one that failed, or
 * n_racers on an interrupt. */
int bench_rounds(bench_racer *racers, unsigned n_racers, unsigned rounds);
/* The median of the rounds' left / right. */
double bench_ratio(const double *left, const double *right, unsigned rounds);
/* The median, without sorting the values. */
double bench_median(const double *values, unsigned count);

/* A plan as a racer: user is a bench_planned. */
typedef struct bench_planned {
    const bench_run *run;
    gk_plan *plan;
} bench_planned;
double bench_plan_time(void *planned);

/* --- what is printed --- */

/* Each gives the exit status. */
int bench_table(bench *b);
int bench_regret(bench *b);

#endif
