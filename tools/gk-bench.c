/* gk-bench: times tuned kernels on real buffers, alone or against cuBLASLt. */
#include <getopt.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "bench_cublaslt.h"
#include "bench_host.h"
#include "cli.h"

static const char help[] =
    "usage: gk-bench OP SHAPE... [options]\n"
    "       gk-bench --host-cost [--count N] [--threads N] [options]\n"
    "Times the tuned kernel on N(0,1) data: rotating copies of the operands that exceed the L2\n"
    "cache, a graph's replay below 50 us, medians of interleaved rounds. Problems that are not\n"
    "tuned yet are tuned first.\n"
    "\n"
    "  --dtype D, --layout L, --shapes FILE, --device D, --cache FILE, --json, --verbose: as\n"
    "                      for gk-tune (default dtype f32, layout nn)\n"
    "  --against cublaslt  time cuBLASLt's fastest of 32 heuristics in turn, ReLU fused\n"
    "  --rounds N          timings a median is taken of (default 21)\n"
    "  --budget S          seconds for tuning an untuned problem (default 20)\n"
    "  --variant V, --config C   force one variant, one configuration\n"
    "  --host-cost         what a warm call costs the host above the bare launch, over --count\n"
    "                      shapes (default 1) in --threads threads (default 1)\n"
    "  --help, --version\n";

typedef struct bench_options {
    cli_options common;
    bool against;
    bool host_cost;
    double rounds;
    double budget;
    double count;
    double threads;
    const char *variant;
    const char *config;
} bench_options;

/* Copies of a problem's operands; the outputs are not filled. */
typedef struct bench_set {
    gk_tensor tensors[GK_MAX_ARGS];
    void *memory[GK_MAX_ARGS];
} bench_set;

typedef struct bench_run {
    gk_context *ctx;
    const gk_op_desc *op;
    bench_set *sets;
    gk_call *calls;
    unsigned n_sets;
} bench_run;

/* xorshift and the sum of four uniform values: close to N(0,1) and fast enough for gigabytes. */
static void fill_normal(void *data, int32_t dtype, int64_t count, uint64_t *state)
{
    for (int64_t i = 0; i < count; i++) {
        *state ^= *state << 13;
        *state ^= *state >> 7;
        *state ^= *state << 17;
        const uint64_t s = *state;
        const float value = ((float)(s & 0xffff) + (float)(s >> 16 & 0xffff) +
                             (float)(s >> 32 & 0xffff) + (float)(s >> 48) - 131070.0f) *
                            (1.7320508f / 65536.0f);
        uint32_t bits;
        memcpy(&bits, &value, sizeof(bits));
        switch ((gk_dtype)dtype) {
        case GK_F64:
            ((double *)data)[i] = (double)value;
            break;
        case GK_F32:
            ((float *)data)[i] = value;
            break;
        case GK_BF16:
            ((uint16_t *)data)[i] = (uint16_t)(bits >> 16);
            break;
        case GK_F16: {
            /* Values lie within 2^-15 and 4: rebias, cut. */
            const uint32_t magnitude = (bits & 0x7fffffff) >> 13;
            const uint32_t half = magnitude > (112u << 10) ? magnitude - (112u << 10) : 0;
            ((uint16_t *)data)[i] = (uint16_t)((bits >> 16 & 0x8000) | half);
            break;
        }
        case GK_I32:
            ((int32_t *)data)[i] = (int32_t)(s % 7) - 3;
            break;
        /* e4m3 and e5m2 of magnitude up to about 4, never NaN. */
        case GK_E4M3:
            ((uint8_t *)data)[i] = (uint8_t)((s & 0x80) | (0x28 + s % 0x20));
            break;
        case GK_E5M2:
            ((uint8_t *)data)[i] = (uint8_t)((s & 0x80) | (0x34 + s % 0x10));
            break;
        default:
            ((int8_t *)data)[i] = (int8_t)((int)(s % 7) - 3);
            break;
        }
    }
}

static bool fill_set(bench_run *run, const gk_tensor *shapes, unsigned index)
{
    bench_set *set = &run->sets[index];
    for (uint32_t i = 0; i < run->op->n_args; i++) {
        set->tensors[i] = shapes[i];
        if (shapes[i].dtype == GK_DTYPE_NONE) {
            continue;
        }
        const int64_t extent = gk_tensor_extent(&shapes[i]);
        if (gk_mem_alloc(run->ctx, (size_t)extent, &set->memory[i]) != GK_OK) {
            return false;
        }
        set->tensors[i].data = set->memory[i];
        run->calls[index].args[i] = &set->tensors[i];
        if (run->op->args[i].is_output) {
            continue;
        }
        void *host = malloc((size_t)extent);
        if (host == NULL) {
            return false;
        }
        uint64_t state = 0x9e3779b97f4a7c15u * (index * 8 + i + 1);
        fill_normal(host, shapes[i].dtype,
                    extent / (int64_t)gk_dtype_size((gk_dtype)shapes[i].dtype), &state);
        const gk_status status =
            gk_mem_upload(run->ctx, set->memory[i], host, (size_t)extent, NULL);
        free(host);
        if (status != GK_OK) {
            return false;
        }
    }
    return true;
}

static void free_run(bench_run *run)
{
    for (unsigned s = 0; run->sets != NULL && s < run->n_sets; s++) {
        for (int i = 0; i < GK_MAX_ARGS; i++) {
            gk_mem_free(run->ctx, &run->sets[s].memory[i]);
        }
    }
    free(run->sets);
    free(run->calls);
}

/* Enough copies for twice the L2 cache, at least one, at most 64. */
static bool make_run(bench_run *run, const gk_call *example)
{
    gk_tensor shapes[GK_MAX_ARGS];
    memset(shapes, 0, sizeof(shapes));
    gk_device_info info;
    if (gk_device_info_get(run->ctx, &info) != GK_OK) {
        return false;
    }
    int64_t bytes = 1;
    for (uint32_t i = 0; i < run->op->n_args; i++) {
        if (example->args[i] != NULL) {
            shapes[i] = *example->args[i];
            bytes += gk_tensor_extent(&shapes[i]);
        }
    }
    const int64_t wanted = info.is_emulated ? 1 : 2 * info.l2_bytes / bytes + 1;
    run->n_sets = wanted > 64 ? 64 : (unsigned)wanted;
    run->sets = calloc(run->n_sets, sizeof(*run->sets));
    run->calls = calloc(run->n_sets, sizeof(*run->calls));
    if (run->sets == NULL || run->calls == NULL) {
        return false;
    }
    for (unsigned s = 0; s < run->n_sets; s++) {
        memcpy(run->calls[s].attrs, example->attrs, sizeof(example->attrs));
        if (!fill_set(run, shapes, s)) {
            return false;
        }
    }
    return true;
}

typedef struct bench_result {
    double gk;
    double lt_best;
    double lt_first;
    int heuristics;
    int best_index;
} bench_result;

/* Rounds in turn: gk, cuBLASLt's best, its first. The ratio is the median of the rounds' ratios. */
static bool time_all(bench_run *run, const gk_plan *plan, const bench_options *options,
                     bench_cublaslt *lt, bench_result *out, double *ratio)
{
    enum { MAX_ROUNDS = 1001 };
    static double gk[MAX_ROUNDS], best[MAX_ROUNDS], first[MAX_ROUNDS], ratios[MAX_ROUNDS];
    const unsigned rounds = (unsigned)options->rounds;
    if (gk_measure(plan, run->calls, run->n_sets, 2, gk) != GK_OK) {
        return false;
    }
    const bool graph = gk[1] < 50e-6;
    double passes = 1e-3 / (gk[1] * run->n_sets);
    const unsigned repeats = passes < 1 ? 1 : passes > 1000 ? 1000 : (unsigned)passes;
    for (unsigned i = 0; i < rounds; i++) {
        if (gk_measure(plan, run->calls, run->n_sets, 1, &gk[i]) != GK_OK) {
            return false;
        }
        if (lt != NULL) {
            best[i] = bench_cublaslt_time(lt, false, repeats, graph);
            first[i] = bench_cublaslt_time(lt, true, repeats, graph);
            ratios[i] = best[i] / gk[i];
            if (!(best[i] > 0 && first[i] > 0)) {
                cli_error(EXIT_SOME_FAILED, "cuBLASLt failed in round %u", i + 1);
                lt = NULL;
            }
        }
    }
    out->gk = cli_quantile(gk, rounds, 0.5);
    if (lt != NULL) {
        out->lt_best = cli_quantile(best, rounds, 0.5);
        out->lt_first = cli_quantile(first, rounds, 0.5);
        out->heuristics = bench_cublaslt_heuristics(lt, &out->best_index);
        *ratio = cli_quantile(ratios, rounds, 0.5);
    }
    return true;
}

static void print_result(const bench_run *run, const gk_plan *plan, const gk_call *call,
                         const char *name, const bench_options *options, const bench_result *r,
                         double ratio)
{
    gk_plan_description info = {.struct_size = sizeof(info)};
    gk_problem problem;
    memset(&problem, 0, sizeof(problem));
    double flops = 0;
    double bytes = 0;
    if (gk_plan_info(plan, &info) == GK_OK && run->op->infer(call, &problem) == GK_OK) {
        run->op->work(&problem, &flops, &bytes);
    }
    if (options->common.json) {
        cli_json *row = cli_json_begin();
        cli_json_text(row, "op", run->op->name);
        cli_json_text(row, "shape", name);
        cli_json_text(row, "variant", info.variant);
        cli_json_text(row, "config", info.config);
        cli_json_number(row, "seconds", r->gk);
        cli_json_number(row, "tflops", flops / r->gk * 1e-12);
        cli_json_number(row, "gb_per_s", bytes / r->gk * 1e-9);
        if (r->lt_best > 0) {
            cli_json_number(row, "cublaslt_best_seconds", r->lt_best);
            cli_json_number(row, "cublaslt_first_seconds", r->lt_first);
            cli_json_number(row, "cublaslt_heuristics", r->heuristics);
            cli_json_number(row, "cublaslt_best_index", r->best_index);
            cli_json_number(row, "ratio", ratio);
        }
        cli_json_end(row, stdout);
    } else {
        char gk[32];
        char lt[32] = "";
        char versus[64] = "";
        cli_format_time(r->gk, gk, sizeof(gk));
        if (r->lt_best > 0) {
            cli_format_time(r->lt_best, lt, sizeof(lt));
            snprintf(versus, sizeof(versus), "%12s %7.3f", lt, ratio);
        }
        printf("%-28s %12s %9.2f %8.0f %s  %s %s\n", name, gk, flops / r->gk * 1e-12,
               bytes / r->gk * 1e-9, versus, info.variant, info.config);
    }
    fflush(stdout);
}

static bool bench_one(gk_context *ctx, const char *op_name, const cli_problems *problems,
                      size_t index, const bench_options *options, bench_cuda *cuda, double *ratio)
{
    const gk_op_desc *op = problems->op;
    const cli_problem *problem = &problems->items[index];
    char name[96];
    gk_tensor tensors[GK_MAX_ARGS];
    gk_call example;
    gk_plan *plan = NULL;
    bench_cublaslt *lt = NULL;
    bench_result result = {0};
    bench_run run = {.ctx = ctx, .op = op};
    const gk_plan_options plan_options = {.struct_size = sizeof(plan_options),
                                          .tune_budget_s = options->budget,
                                          .variant = options->variant,
                                          .config = options->config};
    memset(tensors, 0, sizeof(tensors));
    cli_problem_name(op, problem, name, sizeof(name));
    bool good = cli_call(op, problems->preset, problem, tensors, &example) == GK_OK &&
                make_run(&run, &example) &&
                gk_plan_create(&plan, ctx, op_name, &run.calls[0], &plan_options) == GK_OK;
    if (good && options->against) {
        lt = bench_cublaslt_open(cuda, run.calls, run.n_sets,
                                 strncmp(problem->dtype, "tf32", 4) == 0,
                                 strcmp(op_name, "matmul_relu") == 0);
    }
    good = good && time_all(&run, plan, options, lt, &result, ratio);
    if (good) {
        print_result(&run, plan, &run.calls[0], name, options, &result, *ratio);
    } else {
        cli_gk_error(EXIT_SOME_FAILED, "%s", name);
    }
    bench_cublaslt_close(lt);
    gk_plan_destroy(&plan);
    free_run(&run);
    return good && (!options->against || result.heuristics > 0);
}

static int bench_shapes(gk_context *ctx, const bench_options *options, bench_cuda *cuda,
                        const char *op_name, const cli_problems *problems)
{
    if (!options->common.json) {
        printf("%-28s %12s %9s %8s%s  %s\n", "shape", "gk", "TFLOP/s", "GB/s",
               options->against ? "     cuBLASLt   ratio" : "", "variant, config");
    }
    int code = 0;
    double log_sum = 0;
    unsigned ratios = 0;
    for (size_t i = 0; i < problems->count; i++) {
        double ratio = 0;
        if (!bench_one(ctx, op_name, problems, i, options, cuda, &ratio)) {
            code = EXIT_SOME_FAILED;
        }
        if (ratio > 0) {
            log_sum += log(ratio);
            ratios++;
        }
    }
    if (ratios > 1 && !options->common.json) {
        printf("geometric mean of %u ratios: %.3f\n", ratios, exp(log_sum / ratios));
    }
    return code;
}

enum { OPT_HELP = 256, OPT_VERSION, OPT_AGAINST, OPT_HOST };

static const struct option long_options[] = {
    {"dtype", required_argument, NULL, 'd'},     {"layout", required_argument, NULL, 'l'},
    {"shapes", required_argument, NULL, 's'},    {"device", required_argument, NULL, 'D'},
    {"cache", required_argument, NULL, 'c'},     {"rounds", required_argument, NULL, 'r'},
    {"budget", required_argument, NULL, 'b'},    {"count", required_argument, NULL, 'n'},
    {"threads", required_argument, NULL, 't'},   {"variant", required_argument, NULL, 'V'},
    {"config", required_argument, NULL, 'C'},    {"against", required_argument, NULL, OPT_AGAINST},
    {"host-cost", no_argument, NULL, OPT_HOST},  {"json", no_argument, NULL, 'J'},
    {"verbose", no_argument, NULL, 'v'},         {"help", no_argument, NULL, OPT_HELP},
    {"version", no_argument, NULL, OPT_VERSION}, {NULL, 0, NULL, 0}};

static bool set_option(bench_options *options, int option, const char *value)
{
    switch (option) {
    case 'd':
        options->common.dtype = value;
        return true;
    case 'l':
        options->common.layout = value;
        return true;
    case 's':
        options->common.shapes_file = value;
        return true;
    case 'D':
        options->common.device = value;
        return true;
    case 'c':
        options->common.cache = value;
        return true;
    case 'r':
        return cli_parse_integer("--rounds", value, 1, 1001, &options->rounds);
    case 'b':
        return cli_parse_number("--budget", value, 0, 1e6, &options->budget);
    case 'n':
        return cli_parse_integer("--count", value, 1, 1e6, &options->count);
    case 't':
        return cli_parse_integer("--threads", value, 1, 256, &options->threads);
    case 'V':
        options->variant = value;
        return true;
    case 'C':
        options->config = value;
        return true;
    case OPT_HOST:
        options->host_cost = true;
        return true;
    case 'J':
        options->common.json = true;
        return true;
    case 'v':
        options->common.verbose = true;
        return true;
    case OPT_AGAINST:
        options->against = strcmp(value, "cublaslt") == 0;
        if (!options->against) {
            cli_error(EXIT_USAGE, "--against is \"%s\", expected cublaslt", value);
        }
        return options->against;
    default:
        cli_error(EXIT_USAGE, "the options are wrong");
        return false;
    }
}

static int bench(const bench_options *options, const char *op_name, const cli_problems *problems)
{
    bench_cuda cuda;
    memset(&cuda, 0, sizeof(cuda));
    gk_context *ctx = NULL;
    gk_context_options context_options = {.struct_size = sizeof(context_options)};
    if (options->host_cost) {
        context_options.mode = GK_MODE_HEURISTIC;
    }
    if (cli_context(&options->common, &context_options, &ctx) != GK_OK) {
        return cli_gk_error(EXIT_SOME_FAILED, "cannot open the device");
    }
    gk_device_info info;
    int code = EXIT_SOME_FAILED;
    if (gk_device_info_get(ctx, &info) == GK_OK &&
        ((!options->against && !options->host_cost) || bench_cuda_open(&cuda, info.ordinal))) {
        if (!options->common.json) {
            printf("%s, %s, gk %s%s\n", info.name, info.compiler, gk_version_string(),
                   info.is_emulated ? " (emulated: these times say nothing about speed)" : "");
        }
        if (options->host_cost) {
            code = bench_host_cost(ctx, (unsigned)options->count, (unsigned)options->threads,
                                   options->common.json)
                       ? 0
                       : EXIT_SOME_FAILED;
        } else {
            code = bench_shapes(ctx, options, &cuda, op_name, problems);
        }
    }
    if (cuda.stream != NULL) {
        bench_cuda_close(&cuda);
    }
    gk_context_destroy(&ctx);
    return code;
}

int main(int argc, char **argv)
{
    cli_start("gk-bench");
    bench_options options = {.common = {.dtype = "f32", .layout = "nn"},
                             .rounds = 21,
                             .budget = 20,
                             .count = 1,
                             .threads = 1};
    int option;
    while ((option = getopt_long(argc, argv, "", long_options, NULL)) != -1) {
        if (option == OPT_HELP) {
            fputs(help, stdout);
            return cli_finish(0);
        }
        if (option == OPT_VERSION) {
            printf("gk-bench %s\n", gk_version_string());
            return cli_finish(0);
        }
        if (!set_option(&options, option, optarg)) {
            return EXIT_USAGE;
        }
    }
    if (options.host_cost && optind < argc) {
        return cli_error(EXIT_USAGE, "--host-cost takes no words, not \"%s\"", argv[optind]);
    }
    cli_problems problems = {0};
    if (!options.host_cost &&
        !cli_collect(&options.common, argc - optind, argv + optind, &problems)) {
        return EXIT_USAGE;
    }
    const int code = bench(&options, argv[optind], &problems);
    free(problems.items);
    return cli_finish(code);
}
