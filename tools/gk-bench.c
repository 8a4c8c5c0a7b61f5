/* gk-bench: times tuned kernels on real buffers, alone or against cuBLASLt. */
#include <getopt.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "bench.h"
#include "bench_host.h"

static const char help[] =
    "usage: gk-bench OP SHAPE... [options]              a table of times\n"
    "       gk-bench OP --random N [options]            the same for random shapes\n"
    "       gk-bench OP SHAPE... --regret [options]     how good and repeatable tunings are\n"
    "       gk-bench --host-cost [--count N] [--threads N] [options]\n"
    "Times the tuned kernels on N(0,1) data: rotating copies of the operands that exceed the L2\n"
    "cache, a graph's replay below 50 us, medians of interleaved rounds. Results are checked on\n"
    "poisoned outputs in double precision. Problems that are not tuned yet are tuned first.\n"
    "gk-info lists ops and their sizes.\n"
    "\n"
    "  --dtype D, --layout L, --text T, --shapes FILE, --device D, --cache FILE, --json,\n"
    "                      --verbose: as for gk-tune (default dtype f32, layout nn)\n"
    "  --against cublaslt  matmul: time cuBLASLt's fastest of 32 heuristics in turn, ReLU fused;\n"
    "                      ratio is its time over gk's\n"
    "  --guess             time what runs untuned as well, and give its time over the winner's\n"
    "  --rounds N          timings a median is taken of (default 21)\n"
    "  --budget S          seconds for tuning an untuned problem (default 20, 0: no limit);\n"
    "                      --tune-budget is the same\n"
    "  --variant V, --config C   force one variant (alone: the model's guess of it), one\n"
    "                      configuration, and tune nothing; --regret tunes V only\n"
    "  --no-check          do not look at the results\n"
    "  --random N          N shapes with every size log-uniform from 1 to --max (default 8192),\n"
    "                      the same for the same --seed (default 1)\n"
    "  --regret            tune --tunings times (default 10) from nothing, time all candidates at\n"
    "                      length, and compare\n"
    "  --host-cost         what a warm call costs the host above the bare launch, over --count\n"
    "                      shapes (default 1) in --threads threads (default 1), of --variant\n"
    "                      (default mma); a --cache is written to (default: in memory only)\n"
    "  --help, --version\n"
    "\n"
    "copy: for what memory bounds, the share of a device copy's rate, measured at the start.\n"
    "GK_CUDA_DRIVER and GK_CUBLASLT name the libraries to load. Exit status: 0 all rows are there\n"
    "and right, 1 something failed, 2 the command line is wrong. Ctrl-C prints what is finished,\n"
    "a second one ends at once.\n";

enum {
    OPT_HELP = 256,
    OPT_VERSION,
    OPT_AGAINST,
    OPT_GUESS,
    OPT_HOST,
    OPT_MAX,
    OPT_NO_CHECK,
    OPT_RANDOM,
    OPT_REGRET,
    OPT_SEED,
    OPT_TUNINGS,
    N_OPTIONS,
};

static const struct option long_options[] = {{"dtype", required_argument, NULL, 'd'},
                                             {"layout", required_argument, NULL, 'l'},
                                             {"text", required_argument, NULL, 'T'},
                                             {"shapes", required_argument, NULL, 's'},
                                             {"device", required_argument, NULL, 'D'},
                                             {"cache", required_argument, NULL, 'c'},
                                             {"rounds", required_argument, NULL, 'r'},
                                             {"budget", required_argument, NULL, 'b'},
                                             {"tune-budget", required_argument, NULL, 'b'},
                                             {"count", required_argument, NULL, 'n'},
                                             {"threads", required_argument, NULL, 't'},
                                             {"variant", required_argument, NULL, 'V'},
                                             {"config", required_argument, NULL, 'C'},
                                             {"against", required_argument, NULL, OPT_AGAINST},
                                             {"guess", no_argument, NULL, OPT_GUESS},
                                             {"no-check", no_argument, NULL, OPT_NO_CHECK},
                                             {"random", required_argument, NULL, OPT_RANDOM},
                                             {"seed", required_argument, NULL, OPT_SEED},
                                             {"max", required_argument, NULL, OPT_MAX},
                                             {"regret", no_argument, NULL, OPT_REGRET},
                                             {"tunings", required_argument, NULL, OPT_TUNINGS},
                                             {"host-cost", no_argument, NULL, OPT_HOST},
                                             {"json", no_argument, NULL, 'J'},
                                             {"verbose", no_argument, NULL, 'v'},
                                             {"help", no_argument, NULL, OPT_HELP},
                                             {"version", no_argument, NULL, OPT_VERSION},
                                             {NULL, 0, NULL, 0}};

/* The options that hold a word or a mark. */
static bool set_word(bench_options *options, int option, const char *value)
{
    const struct {
        int option;
        const char **word;
        bool *mark;
    } all[] = {{'d', &options->common.dtype, NULL},
               {'l', &options->common.layout, NULL},
               {'s', &options->common.shapes_file, NULL},
               {'T', &options->common.text, NULL},
               {'D', &options->common.device, NULL},
               {'c', &options->common.cache, NULL},
               {'V', &options->variant, NULL},
               {'C', &options->config, NULL},
               {'J', NULL, &options->common.json},
               {'v', NULL, &options->common.verbose},
               {OPT_GUESS, NULL, &options->guess},
               {OPT_HOST, NULL, &options->host_cost},
               {OPT_NO_CHECK, NULL, &options->no_check},
               {OPT_REGRET, NULL, &options->regret}};
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        if (all[i].option == option && all[i].word != NULL) {
            *all[i].word = value;
            return true;
        }
        if (all[i].option == option) {
            *all[i].mark = true;
            return true;
        }
    }
    return false;
}

static bool set_option(bench_options *options, int option, const char *value)
{
    if (set_word(options, option, value)) {
        return true;
    }
    switch (option) {
    case 'r':
        return cli_parse_integer("--rounds", value, 1, 1001, &options->rounds);
    case 'b':
        return cli_parse_number("--budget", value, 0, 1e6, &options->budget);
    case 'n':
        return cli_parse_integer("--count", value, 1, 1e6, &options->count);
    case 't':
        return cli_parse_integer("--threads", value, 1, 256, &options->threads);
    case OPT_RANDOM:
        return cli_parse_integer("--random", value, 1, 1e5, &options->random);
    case OPT_SEED:
        return cli_parse_integer("--seed", value, 0, 4294967295.0, &options->seed);
    case OPT_MAX:
        return cli_parse_integer("--max", value, 1, 65536, &options->max);
    case OPT_TUNINGS:
        return cli_parse_integer("--tunings", value, 1, 100, &options->tunings);
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

/* --- what is timed --- */

static uint64_t next_random(uint64_t *state)
{
    uint64_t x = *state += 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

/* As many shapes from 1 to 2 as from 4096 to 8192. */
static bool draw_problems(const bench_options *options, const char *op_name, cli_problems *out)
{
    out->op = cli_op(op_name, &out->preset);
    if (out->op == NULL) {
        return false;
    }
    uint64_t state = (uint64_t)options->seed;
    for (size_t i = 0; i < (size_t)options->random; i++) {
        cli_problem *p = cli_add(&options->common, out);
        for (uint32_t d = 0; p != NULL && d < out->op->n_dims; d++) {
            const double share = (double)(next_random(&state) >> 11) * 0x1p-53;
            const double size = floor(exp(share * log(options->max + 1)));
            p->item.dims[d] = (int64_t)(size > options->max ? options->max : size);
        }
        if (p == NULL) {
            free(out->items);
            return false;
        }
    }
    if (!cli_check(&options->common, out)) {
        free(out->items);
        return false;
    }
    return true;
}

enum { TABLE = 1, REGRET = 2, HOST_COST = 4 };

/* Is there an option given that means nothing here? Says so. */
static bool is_misplaced(const bench_options *options, const bool *given)
{
    static const struct {
        int option;
        int modes;
    } all[] = {{'d', TABLE | REGRET},
               {'l', TABLE | REGRET},
               {'T', TABLE | REGRET},
               {'s', TABLE | REGRET},
               {'r', TABLE | REGRET},
               {'b', TABLE | REGRET},
               {OPT_RANDOM, TABLE | REGRET},
               {OPT_AGAINST, TABLE},
               {OPT_GUESS, TABLE},
               {OPT_NO_CHECK, TABLE},
               {'C', TABLE},
               {OPT_REGRET, REGRET},
               {OPT_TUNINGS, REGRET},
               {'n', HOST_COST},
               {'t', HOST_COST},
               {OPT_SEED, TABLE | REGRET},
               {OPT_MAX, TABLE | REGRET}};
    const int mode = options->host_cost ? HOST_COST : options->regret ? REGRET : TABLE;
    const char *where = options->host_cost ? "with --host-cost"
                        : options->regret  ? "with --regret"
                                           : "in a table of times";
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        const int option = all[i].option;
        const bool undrawn = (option == OPT_SEED || option == OPT_MAX) && !given[OPT_RANDOM];
        if (given[option] && (undrawn || (all[i].modes & mode) == 0)) {
            const struct option *o = long_options;
            while (o->val != option) {
                o++;
            }
            cli_error(EXIT_USAGE, "--%s means nothing %s", o->name,
                      undrawn ? "without --random" : where);
            return true;
        }
    }
    return false;
}

/* The problems of the command line; false, with a message, if it is wrong. */
static bool collect(const bench_options *options, int argc, char **argv, cli_problems *out)
{
    if (options->host_cost) {
        if (argc > 0) {
            cli_error(EXIT_USAGE, "--host-cost takes no words, not \"%s\"", argv[0]);
        }
        return argc == 0;
    }
    if (options->config != NULL && options->variant == NULL) {
        cli_error(EXIT_USAGE, "--config needs --variant");
        return false;
    }
    if (options->random > 0 && (argc != 1 || options->common.shapes_file != NULL)) {
        cli_error(EXIT_USAGE, "--random takes one op and no shapes");
        return false;
    }
    if (!(options->random > 0 ? draw_problems(options, argv[0], out)
                              : cli_collect(&options->common, argc, argv, out))) {
        return false;
    }
    if (options->against && strcmp(out->op->name, "matmul") != 0) {
        cli_error(EXIT_USAGE, "--against cublaslt is for matmul and matmul_relu, not %s", argv[0]);
        free(out->items);
        return false;
    }
    return true;
}

/* --- where it is timed --- */

/* The first line of a file, "" if there is none. */
static void read_line(const char *path, char *out, int size)
{
    out[0] = '\0';
    FILE *file = fopen(path, "r");
    if (file != NULL) {
        if (fgets(out, size, file) == NULL) {
            out[0] = '\0';
        }
        out[strcspn(out, "\r\n")] = '\0';
        fclose(file);
    }
}

static void print_header(const bench *b)
{
    char driver[64] = "";
    char peer[64] = "";
    char date[32];
    const time_t now = time(NULL);
    struct tm utc;
    strftime(date, sizeof(date), "%Y-%m-%d %H:%M UTC", gmtime_r(&now, &utc));
    if (!b->info.is_emulated) {
        read_line("/sys/module/nvidia/version", driver, sizeof(driver));
    }
    if (b->lt != NULL) {
        bench_cublaslt_version(b->lt, peer, sizeof(peer));
    }
    if (b->options->common.json) {
        cli_json *json = cli_json_begin();
        cli_json_text(json, "type", "header");
        cli_json_text(json, "device", b->info.name);
        cli_json_text(json, "arch", b->info.arch);
        cli_json_number(json, "sms", b->info.sm_count);
        cli_json_text(json, "driver", driver);
        cli_json_text(json, "compiler", b->info.compiler);
        cli_json_text(json, "cublaslt", b->lt != NULL ? peer : NULL);
        cli_json_text(json, "version", gk_version_string());
        cli_json_text(json, "date", date);
        cli_json_bool(json, "emulated", b->info.is_emulated != 0);
        cli_json_number(json, "rounds", b->options->rounds);
        cli_json_number(json, "copy_gb_per_s", b->copy_rate * 1e-9);
        cli_json_end(json, stdout);
    } else {
        printf("%s, %d SMs%s%s, %s%s%s, gk %s, %s%s\n", b->info.name, b->info.sm_count,
               driver[0] != '\0' ? ", driver " : "", driver, b->info.compiler,
               peer[0] != '\0' ? ", cuBLASLt " : "", peer, gk_version_string(), date,
               b->info.is_emulated ? " (emulated: these times say nothing about speed)" : "");
        if (b->copy_rate > 0) {
            printf("device copy of 1 GiB: %.0f GB/s read and written\n", b->copy_rate * 1e-9);
        }
    }
    fflush(stdout);
}

/* What times on a GPU needs besides gk. */
static bool open_peers(bench *b)
{
    const bench_options *o = b->options;
    if (b->info.is_emulated) {
        if (o->against || o->host_cost) {
            cli_error(EXIT_SOME_FAILED, "%s needs a GPU, %s is none",
                      o->against ? "--against cublaslt" : "--host-cost", b->info.name);
        }
        return !o->against && !o->host_cost;
    }
    if (!bench_cuda_open(&b->cuda, b->info.ordinal)) {
        return false;
    }
    if (!o->host_cost && !o->regret) {
        b->copy_rate = bench_cuda_copy_rate(&b->cuda);
    }
    if (o->against) {
        b->lt = bench_cublaslt_open(&b->cuda);
    }
    return !o->against || b->lt != NULL;
}

static int run(bench *b)
{
    const bench_options *o = b->options;
    gk_context_options context_options = {.struct_size = sizeof(context_options)};
    cli_options common = o->common;
    if (o->host_cost) {
        context_options.mode = GK_MODE_HEURISTIC;
        /* It stores what was measured for one shape as the answer for all. */
        common.cache = common.cache != NULL ? common.cache : ":memory:";
    }
    if (cli_context(&common, &context_options, &b->ctx) != GK_OK) {
        return cli_gk_error(EXIT_SOME_FAILED, "cannot open the device");
    }
    int code = EXIT_SOME_FAILED;
    if (gk_device_info_get(b->ctx, &b->info) == GK_OK && open_peers(b)) {
        print_header(b);
        cli_catch_interrupts();
        if (o->host_cost) {
            const bool good = bench_host_cost(b->ctx, o->variant, (unsigned)o->count,
                                              (unsigned)o->threads, o->common.json);
            code = good ? 0 : EXIT_SOME_FAILED;
        } else {
            code = o->regret ? bench_regret(b) : bench_table(b);
        }
    }
    bench_cublaslt_close(b->lt);
    bench_cuda_close(&b->cuda);
    gk_context_destroy(&b->ctx);
    return code;
}

int main(int argc, char **argv)
{
    cli_start("gk-bench");
    bench_options options = {.common = {.dtype = "f32", .layout = "nn"},
                             .rounds = 21,
                             .budget = 20,
                             .seed = 1,
                             .max = 8192,
                             .tunings = 10,
                             .count = 1,
                             .threads = 1};
    bool given[N_OPTIONS] = {false};
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
        given[option] = true;
    }
    cli_problems problems = {0};
    if (is_misplaced(&options, given) ||
        !collect(&options, argc - optind, argv + optind, &problems)) {
        return EXIT_USAGE;
    }
    bench b = {.options = &options, .op_name = argv[optind], .problems = &problems};
    const int code = run(&b);
    free(problems.items);
    return cli_finish(code);
}
