#define _XOPEN_SOURCE 700
#include "bench_host.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cli.h"

enum { PAIRS = 20000, WARM_UP = 2000, BATCH = 32 };

/* What a pair consists of. */
enum { BARE, WRAPPED, N_KINDS };

typedef struct host_problem {
    gk_tensor a, b, c;
} host_problem;

typedef struct host_bench {
    gk_context *ctx;
    host_problem *problems;
    unsigned n_problems;
    /* the bare launch: problem 0's kernel with its arguments */
    void *function;
    int64_t grid;
    int32_t threads_per_block;
    int64_t smem;
    unsigned char args[GK_MAX_KERNEL_ARGS];
    pthread_barrier_t barrier;
} host_bench;

typedef struct worker {
    host_bench *bench;
    pthread_t thread;
    unsigned number;
    double *samples[N_KINDS]; /* nanoseconds, PAIRS of them */
    bool failed;
} worker;

static double now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return 1e9 * (double)t.tv_sec + (double)t.tv_nsec;
}

static bool launch(host_bench *bench, int kind, const host_problem *p, void *stream)
{
    if (kind == BARE) {
        return bench_cuda_launch(bench->function, bench->grid, (unsigned)bench->threads_per_block,
                                 (unsigned)bench->smem, bench->args, stream);
    }
    return gk_matmul_relu(bench->ctx, &p->a, &p->b, &p->c, stream) == GK_OK;
}

/* Both kinds in one loop, in random order: they see the same clocks and the same queue. */
static void *work(void *arg)
{
    worker *self = arg;
    host_bench *bench = self->bench;
    bench_cuda_bind();
    void *stream = bench_cuda_stream_create();
    uint64_t state = 88172645463325252u + self->number;
    pthread_barrier_wait(&bench->barrier);
    for (unsigned i = 0; i < WARM_UP + PAIRS && !self->failed; i++) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        /* As on a caller's stack: reading the tensors from far away is no part of the call. */
        const host_problem problem = bench->problems[(state >> 1) % bench->n_problems];
        for (unsigned half = 0; half < N_KINDS && !self->failed; half++) {
            const unsigned kind = half ^ (unsigned)(state & 1);
            const double before = now_ns();
            self->failed = !launch(bench, (int)kind, &problem, stream);
            if (i >= WARM_UP) {
                self->samples[kind][i - WARM_UP] = now_ns() - before;
            }
        }
        /* The queue must never fill up, or the device's speed is what is timed. */
        if (i % BATCH == BATCH - 1) {
            bench_cuda_synchronize(stream);
        }
    }
    bench_cuda_synchronize(stream);
    return NULL;
}

typedef struct host_cost {
    double p50;
    double p99;
} host_cost;

static bool run(host_bench *bench, unsigned threads, host_cost *costs)
{
    const size_t count = (size_t)threads * PAIRS;
    worker *workers = calloc(threads, sizeof(*workers));
    double *samples = calloc(N_KINDS * count, sizeof(*samples));
    if (workers == NULL || samples == NULL) {
        free(workers);
        free(samples);
        cli_error(EXIT_SOME_FAILED, "out of memory");
        return false;
    }
    pthread_barrier_init(&bench->barrier, NULL, threads);
    for (unsigned i = 0; i < threads; i++) {
        double *own = samples + (size_t)i * PAIRS;
        workers[i] = (worker){.bench = bench, .number = i, .samples = {own, own + count}};
        if (pthread_create(&workers[i].thread, NULL, work, &workers[i]) != 0) {
            abort();
        }
    }
    bool good = true;
    for (unsigned i = 0; i < threads; i++) {
        pthread_join(workers[i].thread, NULL);
        good = good && !workers[i].failed;
    }
    pthread_barrier_destroy(&bench->barrier);
    for (int kind = 0; kind < N_KINDS; kind++) {
        double *of_kind = samples + (size_t)kind * count;
        costs[kind].p50 = cli_quantile(of_kind, count, 0.5);
        costs[kind].p99 = cli_quantile(of_kind, count, 0.99);
    }
    free(samples);
    free(workers);
    if (!good) {
        cli_error(EXIT_SOME_FAILED, "host cost: a launch failed");
    }
    return good;
}

/* Small problems of different sizes over the same three buffers. */
static bool make_problems(host_bench *bench)
{
    void *memory[3] = {NULL};
    const size_t bytes = (size_t)4 << 20;
    for (int i = 0; i < 3; i++) {
        if (gk_mem_alloc(bench->ctx, bytes, &memory[i]) != GK_OK) {
            cli_gk_error(EXIT_SOME_FAILED, "host cost");
            return false;
        }
    }
    for (unsigned i = 0; i < bench->n_problems; i++) {
        host_problem *p = &bench->problems[i];
        const int64_t m = 1 + i % 100;
        const int64_t n = 8 * (1 + i / 100 % 100);
        const int64_t k = 32 * (1 + i / 10000);
        p->a = gk_matrix(memory[0], GK_BF16, m, k);
        p->b = gk_matrix(memory[1], GK_BF16, k, n);
        p->c = gk_matrix(memory[2], GK_BF16, m, n);
    }
    return true;
}

static void format_dims(const host_problem *p, char *out, size_t size)
{
    snprintf(out, size, " M=%lld N=%lld K=%lld ", (long long)p->c.shape[0],
             (long long)p->c.shape[1], (long long)p->a.shape[1]);
}

/* Writes the stored answer of problem `from`, found in the export file, once for every problem. */
static bool repeat_answer(const host_bench *bench, unsigned from, FILE *exported, FILE *out)
{
    static char line[4096];
    char dims[96];
    format_dims(&bench->problems[from], dims, sizeof(dims));
    bool found = false;
    while (!found && fgets(line, sizeof(line), exported) != NULL) {
        found = strstr(line, dims) != NULL;
    }
    if (!found) {
        return false;
    }
    char *at = strstr(line, dims);
    const char *rest = at + strlen(dims);
    *at = '\0';
    fputs("gk-cache 1\n", out);
    for (unsigned i = 0; i < bench->n_problems; i++) {
        format_dims(&bench->problems[i], dims, sizeof(dims));
        fprintf(out, "%s%s%s", line, dims, rest);
    }
    return fflush(out) == 0;
}

/* Tunes one problem and stores its answer for all, so that as many cached shapes cost no tuning. */
static bool store_answers(host_bench *bench)
{
    const unsigned from = bench->n_problems / 2;
    const host_problem *p = &bench->problems[from];
    const gk_tune_options options = {
        .struct_size = sizeof(options), .effort = GK_EFFORT_QUICK, .variant = "mma"};
    char folder[] = "/tmp/gk-bench-XXXXXX";
    char exported[64];
    char repeated[64];
    gk_call call;
    if (mkdtemp(folder) == NULL) {
        cli_error(EXIT_SOME_FAILED, "host cost: no temporary directory");
        return false;
    }
    snprintf(exported, sizeof(exported), "%s/one", folder);
    snprintf(repeated, sizeof(repeated), "%s/all", folder);
    bool good = gk_matmul_call(&call, &p->a, &p->b, &p->c, NULL) == GK_OK &&
                gk_tune(bench->ctx, "matmul_relu", &call, &options, NULL) == GK_OK &&
                gk_cache_export(bench->ctx, exported, NULL) == GK_OK;
    FILE *in = good ? fopen(exported, "r") : NULL;
    FILE *out = good ? fopen(repeated, "w") : NULL;
    good = in != NULL && out != NULL && repeat_answer(bench, from, in, out);
    if (in != NULL) {
        fclose(in);
    }
    if (out != NULL) {
        fclose(out);
    }
    uint32_t stored = 0;
    good = good && gk_cache_import(bench->ctx, repeated, true, &stored, NULL) == GK_OK &&
           stored == bench->n_problems;
    unlink(exported);
    unlink(repeated);
    rmdir(folder);
    if (!good) {
        cli_gk_error(EXIT_SOME_FAILED, "host cost: %u of %u answers stored", stored,
                     bench->n_problems);
    }
    return good;
}

/* Every problem's kernel is found, from the cache, and run once. */
static bool prepare(host_bench *bench)
{
    if (!make_problems(bench) || !store_answers(bench)) {
        return false;
    }
    for (unsigned i = 0; i < bench->n_problems; i++) {
        const host_problem *p = &bench->problems[i];
        if (gk_matmul_relu(bench->ctx, &p->a, &p->b, &p->c, NULL) != GK_OK) {
            cli_gk_error(EXIT_SOME_FAILED, "host cost: problem %u", i);
            return false;
        }
    }
    return gk_synchronize(bench->ctx, NULL) == GK_OK;
}

/* The values behind the names in a plan's configuration text. */
static gk_config read_config(const gk_variant *variant, const char *text)
{
    gk_config config = {{0}};
    for (uint32_t i = 0; i < variant->n_params; i++) {
        const size_t length = strlen(variant->params[i].name);
        for (const char *at = text; at != NULL; at = strchr(at, ' ')) {
            at += *at == ' ';
            if (strncmp(at, variant->params[i].name, length) == 0 && at[length] == '=') {
                config.values[i] = (int32_t)strtol(at + length + 1, NULL, 10);
                break;
            }
        }
    }
    return config;
}

static bool prepare_bare(host_bench *bench)
{
    const gk_preset *preset;
    const gk_op_desc *op = gk_op_find("matmul_relu", &preset);
    const host_problem *p = &bench->problems[0];
    gk_call call;
    gk_plan *plan = NULL;
    gk_plan_description info = {.struct_size = sizeof(info)};
    gk_problem problem;
    memset(&problem, 0, sizeof(problem));
    if (gk_matmul_call(&call, &p->a, &p->b, &p->c, NULL) != GK_OK ||
        gk_plan_create(&plan, bench->ctx, "matmul_relu", &call, NULL) != GK_OK ||
        gk_plan_info(plan, &info) != GK_OK) {
        cli_gk_error(EXIT_SOME_FAILED, "host cost");
        return false;
    }
    gk_preset_apply(preset, &call);
    bool good = op->infer(&call, &problem) == GK_OK && info.workspace == 0;
    for (uint32_t i = 0; good && i < op->n_variants; i++) {
        if (strcmp(op->variants[i]->name, info.variant) == 0) {
            const gk_config config = read_config(op->variants[i], info.config);
            op->pack(&call, &problem, op->variants[i], &config, NULL, NULL, bench->args);
        }
    }
    bench->function = info.function;
    bench->grid = info.grid;
    bench->threads_per_block = info.threads;
    bench->smem = info.smem;
    gk_plan_destroy(&plan);
    if (!good) {
        cli_error(EXIT_SOME_FAILED, "host cost: the kernel cannot be launched bare");
    }
    return good;
}

bool bench_host_cost(gk_context *ctx, unsigned shapes, unsigned threads, bool json)
{
    host_bench bench = {.ctx = ctx, .n_problems = shapes};
    bench.problems = calloc(shapes, sizeof(*bench.problems));
    host_cost costs[N_KINDS];
    const bool good = bench.problems != NULL && prepare(&bench) && prepare_bare(&bench) &&
                      run(&bench, threads, costs);
    free(bench.problems);
    if (!good) {
        return false;
    }
    const host_cost *bare = &costs[BARE];
    const host_cost *wrapped = &costs[WRAPPED];
    if (json) {
        cli_json *row = cli_json_begin();
        cli_json_number(row, "shapes", shapes);
        cli_json_number(row, "threads", threads);
        cli_json_number(row, "bare_p50_ns", bare->p50);
        cli_json_number(row, "bare_p99_ns", bare->p99);
        cli_json_number(row, "gk_p50_ns", wrapped->p50);
        cli_json_number(row, "gk_p99_ns", wrapped->p99);
        cli_json_end(row, stdout);
    } else {
        printf("host cost, %u shapes, %u threads: cuLaunchKernel p50 %.0f ns p99 %.0f ns, "
               "gk_matmul_relu p50 %.0f ns p99 %.0f ns, difference p50 %+.0f ns\n",
               shapes, threads, bare->p50, bare->p99, wrapped->p50, wrapped->p99,
               wrapped->p50 - bare->p50);
    }
    return true;
}
