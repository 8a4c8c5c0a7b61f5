#define _XOPEN_SOURCE 700
#include "bench_host.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cli.h"

enum { PAIRS = 100000, WARM_UP = 2000, WARM_UP_CALLS = 4, BATCH = 32 };

/* In which the problems come: as in a program's step that is done again and again, shuffled once,
 * or any at any time. */
enum { CYCLE, RANDOM, N_ORDERS };
static const char *const orders[N_ORDERS] = {"cycle", "random"};

/* What a pair consists of. */
enum { BARE, WRAPPED, N_KINDS };

typedef struct host_problem {
    gk_tensor a, b, c;
} host_problem;

/* What the library launches for a problem, ready. */
typedef struct bare_launch {
    void *function;
    int64_t grid;
    int64_t smem;
    int32_t threads;
    int32_t cluster;
    int32_t cooperative;
    int32_t overlap;
    size_t args_size;
    _Alignas(64) unsigned char args[GK_MAX_KERNEL_ARGS];
} bare_launch;

typedef struct host_bench {
    gk_context *ctx;
    const char *variant;
    void *memory[3]; /* all problems' a, b and c */
    host_problem *problems;
    bare_launch *bare; /* of each problem */
    unsigned n_problems;
    int order;
    char kernel[128]; /* of the first problem */
    pthread_barrier_t barrier;
} host_bench;

typedef struct worker {
    host_bench *bench;
    pthread_t thread;
    uint64_t state;           /* of the random numbers */
    unsigned *cycle;          /* the problems, shuffled */
    double *samples[N_KINDS]; /* nanoseconds, PAIRS of them */
    bool failed;
} worker;

static double now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return 1e9 * (double)t.tv_sec + (double)t.tv_nsec;
}

/* cuda.h's CUlaunchConfig and CUlaunchAttribute. */
typedef struct launch_attribute {
    unsigned id;
    char pad[4];
    union {
        char pad[64];
        unsigned cluster[3];
        int cooperative;
        int serialization;
    } value;
} launch_attribute;

typedef struct launch_config {
    unsigned grid[3];
    unsigned block[3];
    unsigned smem;
    void *stream;
    launch_attribute *attributes;
    unsigned n_attributes;
} launch_config;

enum { ATTRIBUTE_COOPERATIVE = 2, ATTRIBUTE_CLUSTER = 4, ATTRIBUTE_SERIALIZATION = 6 };

static int (*launch_ex)(const launch_config *, void *, void **, void **);

static bool find_launch_ex(void)
{
    const char *wanted = getenv("GK_CUDA_DRIVER");
    void *library = dlopen(wanted != NULL && wanted[0] != '\0' ? wanted : "libcuda.so.1", RTLD_NOW);
    *(void **)&launch_ex = library != NULL ? dlsym(library, "cuLaunchKernelEx") : NULL;
    if (launch_ex == NULL) {
        cli_error(EXIT_SOME_FAILED, "host cost: the driver has no cuLaunchKernelEx");
    }
    return launch_ex != NULL;
}

static bool launch_with_attributes(bare_launch *bare, void *stream)
{
    launch_attribute attributes[3];
    void *params[1] = {bare->args};
    unsigned n = 0;
    memset(attributes, 0, sizeof(attributes));
    if (bare->cluster > 1) {
        attributes[n].id = ATTRIBUTE_CLUSTER;
        attributes[n].value.cluster[0] = (unsigned)bare->cluster;
        attributes[n].value.cluster[1] = 1;
        attributes[n].value.cluster[2] = 1;
        n++;
    }
    if (bare->cooperative != 0) {
        attributes[n].id = ATTRIBUTE_COOPERATIVE;
        attributes[n].value.cooperative = 1;
        n++;
    }
    if (bare->overlap != 0) {
        attributes[n].id = ATTRIBUTE_SERIALIZATION;
        attributes[n].value.serialization = 1;
        n++;
    }
    const launch_config config = {.grid = {(unsigned)bare->grid, 1, 1},
                                  .block = {(unsigned)bare->threads, 1, 1},
                                  .smem = (unsigned)bare->smem,
                                  .stream = stream,
                                  .attributes = attributes,
                                  .n_attributes = n};
    return launch_ex(&config, bare->function, params, NULL) == 0;
}

static bool launch(const host_bench *bench, int kind, const host_problem *p, bare_launch *bare,
                   void *stream)
{
    if (kind != BARE) {
        return gk_matmul_relu(bench->ctx, &p->a, &p->b, &p->c, stream) == GK_OK;
    }
    if (bare->cluster > 1 || bare->cooperative != 0 || bare->overlap != 0) {
        return launch_with_attributes(bare, stream);
    }
    return bench_cuda_launch(bare->function, bare->grid, (unsigned)bare->threads,
                             (unsigned)bare->smem, bare->args, stream);
}

static uint64_t next_random(worker *self)
{
    self->state ^= self->state << 13;
    self->state ^= self->state >> 7;
    self->state ^= self->state << 17;
    return self->state;
}

static void shuffle(worker *self)
{
    for (unsigned i = 0; i < self->bench->n_problems; i++) {
        const unsigned j = (unsigned)(next_random(self) % (i + 1));
        self->cycle[i] = self->cycle[j];
        self->cycle[j] = i;
    }
}

/* Both kinds for one problem, in random order: they see the same clocks and the same queue. */
static void launch_pair(worker *self, unsigned index, void *stream, double *taken)
{
    host_bench *bench = self->bench;
    /* As on a caller's stack: reading tensors and arguments from far away is no part of either
     * kind. */
    const host_problem problem = bench->problems[index];
    const bare_launch *ready = &bench->bare[index];
    bare_launch bare;
    memcpy(&bare, ready, offsetof(bare_launch, args) + ready->args_size);
    const unsigned first = (unsigned)(next_random(self) & 1);
    for (unsigned half = 0; half < N_KINDS && !self->failed; half++) {
        const unsigned kind = half ^ first;
        const double before = now_ns();
        self->failed = !launch(bench, (int)kind, &problem, &bare, stream);
        taken[kind] = now_ns() - before;
    }
}

static void *work(void *arg)
{
    worker *self = arg;
    host_bench *bench = self->bench;
    bench_cuda_bind();
    void *stream = bench_cuda_stream_create();
    const unsigned n = bench->n_problems;
    const unsigned warm_up = WARM_UP + WARM_UP_CALLS * n;
    shuffle(self);
    pthread_barrier_wait(&bench->barrier);
    for (unsigned i = 0; i < warm_up + PAIRS && !self->failed; i++) {
        double taken[N_KINDS] = {0};
        const uint64_t at = bench->order == CYCLE ? i : next_random(self);
        launch_pair(self, self->cycle[at % n], stream, taken);
        for (int kind = 0; kind < N_KINDS && i >= warm_up; kind++) {
            self->samples[kind][i - warm_up] = taken[kind];
        }
        /* The queue must never fill up, or the device's speed is what is timed. */
        if (i % BATCH == BATCH - 1) {
            bench_cuda_synchronize(stream);
            if (cli_interrupted()) {
                break;
            }
        }
    }
    bench_cuda_synchronize(stream);
    bench_cuda_stream_destroy(stream);
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
    unsigned *cycles = calloc((size_t)threads * bench->n_problems, sizeof(*cycles));
    if (workers == NULL || samples == NULL || cycles == NULL) {
        free(workers);
        free(samples);
        free(cycles);
        cli_error(EXIT_SOME_FAILED, "out of memory");
        return false;
    }
    pthread_barrier_init(&bench->barrier, NULL, threads);
    for (unsigned i = 0; i < threads; i++) {
        double *own = samples + (size_t)i * PAIRS;
        workers[i] = (worker){.bench = bench,
                              .state = 88172645463325252u + i,
                              .cycle = cycles + (size_t)i * bench->n_problems,
                              .samples = {own, own + count}};
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
    free(cycles);
    if (!good) {
        cli_error(EXIT_SOME_FAILED, "host cost: a launch failed");
    }
    return good && !cli_interrupted();
}

/* Small problems of different sizes over the same three buffers. */
static bool make_problems(host_bench *bench)
{
    int64_t bytes[3] = {0};
    for (unsigned i = 0; i < bench->n_problems; i++) {
        host_problem *p = &bench->problems[i];
        const int64_t m = 1 + i % 100;
        const int64_t n = 8 * (1 + i / 100 % 100);
        const int64_t k = 32 * (1 + i / 10000);
        p->a = gk_matrix(NULL, GK_BF16, m, k);
        p->b = gk_matrix(NULL, GK_BF16, k, n);
        p->c = gk_matrix(NULL, GK_BF16, m, n);
        const gk_tensor *const operands[3] = {&p->a, &p->b, &p->c};
        for (int j = 0; j < 3; j++) {
            const int64_t extent = gk_tensor_extent(operands[j]);
            bytes[j] = extent > bytes[j] ? extent : bytes[j];
        }
    }
    for (int j = 0; j < 3; j++) {
        if (gk_mem_alloc(bench->ctx, (size_t)bytes[j], &bench->memory[j]) != GK_OK) {
            cli_gk_error(EXIT_SOME_FAILED, "host cost");
            return false;
        }
    }
    for (unsigned i = 0; i < bench->n_problems; i++) {
        bench->problems[i].a.data = bench->memory[0];
        bench->problems[i].b.data = bench->memory[1];
        bench->problems[i].c.data = bench->memory[2];
    }
    return true;
}

static void format_dims(const host_problem *p, char *out, size_t size)
{
    snprintf(out, size, " M=%lld N=%lld K=%lld ", (long long)p->c.shape[0],
             (long long)p->c.shape[1], (long long)p->a.shape[1]);
}

/* Writes the stored answer of problem `from`, found in the export file, once for every problem. */
static bool repeat_line(const host_bench *bench, unsigned from, FILE *exported, FILE *out)
{
    static char line[4096];
    char dims[96];
    format_dims(&bench->problems[from], dims, sizeof(dims));
    bool found = false;
    while (!found && fgets(line, sizeof(line), exported) != NULL) {
        found = strstr(line, dims) != NULL;
    }
    if (!found) {
        gk_fail(GK_ERR_CACHE, "bench", "no answer for%sis stored", dims);
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
    if (fflush(out) != 0 || ferror(out)) {
        gk_fail(GK_ERR_IO, "bench", "cannot write the answers: %s", strerror(errno));
        return false;
    }
    return true;
}

static bool repeat_answer(const host_bench *bench, unsigned from, const char *exported,
                          const char *repeated)
{
    FILE *in = fopen(exported, "r");
    FILE *out = in != NULL ? fopen(repeated, "w") : NULL;
    if (out == NULL) {
        gk_fail(GK_ERR_IO, "bench", "cannot open %s: %s", in == NULL ? exported : repeated,
                strerror(errno));
    }
    const bool good = out != NULL && repeat_line(bench, from, in, out);
    if (in != NULL) {
        fclose(in);
    }
    if (out != NULL) {
        fclose(out);
    }
    return good;
}

static bool repeat_in(const host_bench *bench, unsigned from, const char *folder)
{
    char exported[CLI_MAX_FOLDER + 8];
    char repeated[CLI_MAX_FOLDER + 8];
    uint32_t stored = 0;
    snprintf(exported, sizeof(exported), "%s/one", folder);
    snprintf(repeated, sizeof(repeated), "%s/all", folder);
    bool good = gk_cache_export(bench->ctx, exported, NULL) == GK_OK &&
                repeat_answer(bench, from, exported, repeated) &&
                gk_cache_import(bench->ctx, repeated, true, &stored, NULL) == GK_OK;
    if (good && stored != bench->n_problems) {
        gk_fail(GK_ERR_CACHE, "bench", "%u of %u answers are stored", stored, bench->n_problems);
        good = false;
    }
    unlink(exported);
    unlink(repeated);
    return good;
}

/* Tunes one problem and stores its answer for all, so that as many cached shapes cost no tuning. */
static bool store_answers(host_bench *bench)
{
    const unsigned from = bench->n_problems / 2;
    const host_problem *p = &bench->problems[from];
    /* An answer that is there may be another variant's. */
    const gk_tune_options options = {.struct_size = sizeof(options),
                                     .effort = GK_EFFORT_QUICK,
                                     .retune = true,
                                     .variant = bench->variant,
                                     .progress = cli_go_on};
    char folder[CLI_MAX_FOLDER];
    gk_call call;
    bool good = cli_temp_folder(folder, sizeof(folder));
    if (good) {
        good = gk_matmul_call(&call, &p->a, &p->b, &p->c, NULL) == GK_OK &&
               gk_tune(bench->ctx, "matmul_relu", &call, &options, NULL) == GK_OK &&
               repeat_in(bench, from, folder);
        rmdir(folder);
    }
    if (!good && !cli_interrupted()) {
        cli_gk_error(EXIT_SOME_FAILED, "host cost: storing %u answers", bench->n_problems);
    }
    return good;
}

/* Every problem's kernel is found, from the cache, and run once. */
static bool prepare(host_bench *bench)
{
    if (!make_problems(bench) || !store_answers(bench)) {
        return false;
    }
    for (unsigned i = 0; i < bench->n_problems && !cli_interrupted(); i++) {
        const host_problem *p = &bench->problems[i];
        if (gk_matmul_relu(bench->ctx, &p->a, &p->b, &p->c, NULL) != GK_OK) {
            cli_gk_error(EXIT_SOME_FAILED, "host cost: problem %u", i);
            return false;
        }
    }
    return gk_synchronize(bench->ctx, NULL) == GK_OK;
}

/* The kernel that the library runs for the problem, with its arguments. */
static bool prepare_bare(host_bench *bench, const host_problem *p, bare_launch *bare)
{
    gk_call call;
    gk_plan *plan = NULL;
    gk_plan_description info = {.struct_size = sizeof(info)};
    size_t size = sizeof(bare->args);
    const bool good = gk_matmul_call(&call, &p->a, &p->b, &p->c, NULL) == GK_OK &&
                      gk_plan_create(&plan, bench->ctx, "matmul_relu", &call, NULL) == GK_OK &&
                      gk_plan_info(plan, &info) == GK_OK &&
                      gk_plan_args(plan, &call, NULL, bare->args, &size) == GK_OK;
    gk_plan_destroy(&plan);
    if (!good) {
        cli_gk_error(EXIT_SOME_FAILED, "host cost");
        return false;
    }
    if (info.workspace != 0) {
        cli_error(EXIT_SOME_FAILED,
                  "host cost: a kernel with scratch memory, %s %s, cannot be "
                  "launched bare in several streams",
                  info.variant, info.config);
        return false;
    }
    if (bare == bench->bare) {
        snprintf(bench->kernel, sizeof(bench->kernel), "%s", info.kernel);
    }
    bare->function = info.function;
    bare->grid = info.grid;
    bare->smem = info.smem;
    bare->threads = info.threads;
    bare->cluster = info.cluster;
    bare->cooperative = info.cooperative;
    bare->overlap = info.overlap;
    bare->args_size = size;
    return true;
}

static bool prepare_all_bare(host_bench *bench)
{
    bool good = find_launch_ex();
    for (unsigned i = 0; good && i < bench->n_problems && !cli_interrupted(); i++) {
        good = prepare_bare(bench, &bench->problems[i], &bench->bare[i]);
    }
    return good;
}

static void report(const host_bench *bench, unsigned threads, const host_cost *costs, bool json)
{
    const host_cost *bare = &costs[BARE];
    const host_cost *wrapped = &costs[WRAPPED];
    if (json) {
        cli_json *row = cli_json_begin();
        cli_json_text(row, "type", "host_cost");
        cli_json_number(row, "shapes", bench->n_problems);
        cli_json_number(row, "threads", threads);
        cli_json_text(row, "order", orders[bench->order]);
        cli_json_text(row, "kernel", bench->kernel);
        cli_json_number(row, "bare_p50_ns", bare->p50);
        cli_json_number(row, "bare_p99_ns", bare->p99);
        cli_json_number(row, "gk_p50_ns", wrapped->p50);
        cli_json_number(row, "gk_p99_ns", wrapped->p99);
        cli_json_end(row, stdout);
    } else {
        printf("host cost, %u shapes, %u threads, %s: cuLaunchKernel p50 %.0f ns p99 %.0f ns, "
               "gk_matmul_relu p50 %.0f ns p99 %.0f ns, difference p50 %+.0f ns (%s)\n",
               bench->n_problems, threads, orders[bench->order], bare->p50, bare->p99, wrapped->p50,
               wrapped->p99, wrapped->p50 - bare->p50, bench->kernel);
    }
}

bool bench_host_cost(gk_context *ctx, const char *variant, unsigned shapes, unsigned threads,
                     bool json)
{
    host_bench bench = {
        .ctx = ctx, .variant = variant != NULL ? variant : "mma", .n_problems = shapes};
    bench.problems = calloc(shapes, sizeof(*bench.problems));
    bench.bare = aligned_alloc(64, shapes * sizeof(*bench.bare));
    host_cost costs[N_KINDS];
    bool good =
        bench.problems != NULL && bench.bare != NULL && prepare(&bench) && prepare_all_bare(&bench);
    const int n_orders = shapes > 1 ? N_ORDERS : 1;
    for (bench.order = CYCLE; good && !cli_interrupted() && bench.order < n_orders; bench.order++) {
        good = run(&bench, threads, costs);
        if (good) {
            report(&bench, threads, costs, json);
        }
    }
    for (int i = 0; i < 3; i++) {
        gk_mem_free(ctx, &bench.memory[i]);
    }
    free(bench.problems);
    free(bench.bare);
    if (cli_interrupted()) {
        cli_error(EXIT_SOME_FAILED, "interrupted");
    }
    return good && !cli_interrupted();
}
