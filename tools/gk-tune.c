/* gk-tune: fills the cache in advance, and shows what is in it. */
#include <getopt.h>
#include <stdlib.h>
#include <string.h>

#include "tune.h"

static const char help[] =
    "usage: gk-tune warm OP SHAPE... [options]     tune problems and store the answers\n"
    "       gk-tune list [OP] [options]            what is stored\n"
    "       gk-tune info [options]                 device, compiler, cache file and its state\n"
    "       gk-tune explain OP SHAPE [options]     what was tried for a problem, and what won\n"
    "       gk-tune export FILE [options]          the answers as text\n"
    "       gk-tune import FILE [options]          merge such text; answers already there stay\n"
    "\n"
    "A SHAPE is the op's sizes joined by x: MxNxK for matmul; gk-info lists ops and their sizes.\n"
    "\n"
    "  --dtype D        f64, f32, tf32, f16, bf16, e4m3, e5m2, i8, u8, i32 (default f32);\n"
    "                   in:out if the output's differs: f16:f32; matmul: f32+f32, e4m3+f32 and\n"
    "                   e5m2+f32 are the stricter math f32\n"
    "  --layout L       nn, nt, tn or tt: t if transposed, a letter for each of matmul's inputs,\n"
    "                   of others for input and output (default nn); map's last input may also\n"
    "                   be r, c or s: one row, column or element for all\n"
    "  --text T         what map computes: an expression such as 'x0 * x1 + x2'\n"
    "  --shapes FILE    more problems, one a line: dtype layout M N K; # starts a comment\n"
    "  --device D       cuda, cuda:N or cpu (default cuda)\n"
    "  --cache FILE     the cache file (default $GK_CACHE, then ~/.cache/gk/gk.db)\n"
    "  --budget S       seconds a problem may take; 0, the default: no limit\n"
    "  --effort E       quick, full or exhaustive (default full)\n"
    "  --variant V      measure this variant only; what is stored already stays, whatever its\n"
    "                   variant, but with --retune\n"
    "  --jobs N         compile in N threads (default: the processors there are)\n"
    "  --retune         measure again what is stored already\n"
    "  --replace        import: let the file's answers win\n"
    "  --json           one JSON object a line on standard output\n"
    "  --verbose        everything the library logs, on standard error\n"
    "  --help, --version\n"
    "\n"
    "Exit status: 0 everything asked for was done and saved, 1 something failed or was not saved,\n"
    "2 the command line is wrong. Ctrl-C keeps what is finished, a second one ends at once.\n";

typedef struct list_state {
    bool json;
    unsigned count;
} list_state;

static bool list_entry(void *user, const gk_cache_entry *entry)
{
    list_state *state = user;
    state->count++;
    if (state->json) {
        cli_json *row = cli_json_begin();
        cli_json_text(row, "op", entry->op);
        cli_json_text(row, "problem", entry->problem);
        cli_json_text(row, "environment", entry->environment);
        cli_json_bool(row, "current", entry->current);
        cli_json_text(row, "variant", entry->variant);
        cli_json_text(row, "config", entry->config);
        cli_json_number(row, "seconds", entry->seconds);
        cli_json_number(row, "trials", entry->trials);
        cli_json_number(row, "created", (double)entry->created);
        cli_json_end(row, stdout);
        return true;
    }
    char time[32];
    cli_format_time(entry->seconds, time, sizeof(time));
    printf("%s %s\n    %s %s  %s  %u trials%s\n", entry->op, entry->problem, entry->variant,
           entry->config, time, entry->trials, entry->current ? "" : "  (another environment)");
    return !ferror(stdout);
}

static int list(gk_context *ctx, const tune_options *options, int argc, char **argv)
{
    list_state state = {.json = options->common.json};
    /* A preset's answers are stored as its op's. */
    const gk_op_desc *op = argc == 1 ? cli_op(argv[0], NULL) : NULL;
    if (gk_cache_list(ctx, op != NULL ? op->name : NULL, list_entry, &state) != GK_OK) {
        return cli_gk_error(EXIT_SOME_FAILED, "list");
    }
    if (!state.json) {
        printf("%u stored\n", state.count);
    }
    return 0;
}

static bool count_entry(void *user, const gk_cache_entry *entry)
{
    unsigned *counts = user;
    counts[0]++;
    counts[1] += entry->current;
    return true;
}

static int info(gk_context *ctx, const tune_options *options)
{
    gk_statistics stats = {.struct_size = sizeof(stats)};
    gk_device_info device;
    unsigned counts[2] = {0, 0};
    if (gk_stats(ctx, &stats) != GK_OK || gk_device_info_get(ctx, &device) != GK_OK ||
        gk_cache_list(ctx, NULL, count_entry, counts) != GK_OK) {
        return cli_gk_error(EXIT_SOME_FAILED, "info");
    }
    if (options->common.json) {
        cli_json *row = cli_json_begin();
        cli_json_text(row, "version", gk_version_string());
        cli_json_text(row, "device", device.name);
        cli_json_text(row, "arch", device.arch);
        cli_json_text(row, "compiler", device.compiler);
        cli_json_text(row, "cache", stats.cache_path);
        cli_json_text(row, "degraded", stats.cache_degraded);
        cli_json_number(row, "stored", counts[0]);
        cli_json_number(row, "current", counts[1]);
        cli_json_end(row, stdout);
        return 0;
    }
    printf("gk        %s\ndevice    %s, %d SMs, %s\ncompiler  %s\ncache     %s\n",
           gk_version_string(), device.name, device.sm_count, device.arch, device.compiler,
           stats.cache_path[0] != '\0' ? stats.cache_path : "in memory only");
    if (stats.cache_degraded[0] != '\0') {
        printf("degraded  %s\n", stats.cache_degraded);
    }
    printf("stored    %u answers, %u for this device, compiler and templates\n", counts[0],
           counts[1]);
    return 0;
}

static bool explain_trial(void *user, const gk_trial *trial)
{
    list_state *state = user;
    state->count++;
    if (state->json) {
        cli_json *row = cli_json_begin();
        cli_json_text(row, "variant", trial->variant);
        cli_json_text(row, "config", trial->config);
        cli_json_text(row, "status", trial->status);
        cli_json_number(row, "seconds", trial->seconds);
        cli_json_number(row, "spread", trial->spread);
        cli_json_number(row, "max_error", trial->max_error);
        cli_json_bool(row, "chosen", trial->chosen);
        cli_json_end(row, stdout);
        return true;
    }
    char time[32];
    cli_format_time(trial->seconds, time, sizeof(time));
    printf("%c %12s  +-%4.1f %%  %-14s error %4.2f  %-6s %s\n", trial->chosen ? '*' : ' ', time,
           trial->spread * 100, trial->status, trial->max_error, trial->variant, trial->config);
    return !ferror(stdout);
}

static int explain(gk_context *ctx, const tune_options *options, int argc, char **argv)
{
    cli_problems problems;
    if (!cli_collect(&options->common, argc, argv, &problems)) {
        return EXIT_USAGE;
    }
    gk_tensor tensors[GK_MAX_ARGS];
    memset(tensors, 0, sizeof(tensors));
    gk_call call;
    list_state state = {.json = options->common.json};
    gk_status status = cli_call(problems.op, problems.preset, &problems.items[0], tensors, &call);
    if (status == GK_OK) {
        status = gk_cache_trials(ctx, argv[0], &call, explain_trial, &state);
    }
    free(problems.items);
    if (status != GK_OK) {
        return cli_gk_error(EXIT_SOME_FAILED, "explain %s %s", argv[0], argv[1]);
    }
    if (state.count == 0) {
        return cli_error(EXIT_SOME_FAILED, "nothing is stored for %s %s on this device", argv[0],
                         argv[1]);
    }
    return 0;
}

static int export_or_import(gk_context *ctx, const tune_options *options, const char *verb,
                            char **argv)
{
    uint32_t taken = 0;
    uint32_t skipped = 0;
    gk_statistics stats = {.struct_size = sizeof(stats)};
    if (strcmp(verb, "export") == 0 && gk_stats(ctx, &stats) == GK_OK &&
        stats.cache_path[0] == '\0' && stats.cache_degraded[0] != '\0') {
        return cli_error(EXIT_SOME_FAILED, "%s %s: the cache file cannot be used: %s", verb,
                         argv[0], stats.cache_degraded);
    }
    gk_status status = strcmp(verb, "export") == 0
                           ? gk_cache_export(ctx, argv[0], &taken)
                           : gk_cache_import(ctx, argv[0], options->replace, &taken, &skipped);
    if (status != GK_OK) {
        return cli_gk_error(EXIT_SOME_FAILED, "%s %s", verb, argv[0]);
    }
    fprintf(stderr, "%sed %u answers", verb, taken);
    if (skipped > 0) {
        fprintf(stderr, ", skipped %u lines", skipped);
    }
    fputc('\n', stderr);
    return skipped > 0 ? EXIT_SOME_FAILED : 0;
}

static bool parse_effort(const char *text, gk_effort *out)
{
    static const char *const names[] = {"quick", "full", "exhaustive"};
    for (int i = 0; i < 3; i++) {
        if (strcmp(text, names[i]) == 0) {
            *out = (gk_effort)(GK_EFFORT_QUICK + i);
            return true;
        }
    }
    cli_error(EXIT_USAGE, "--effort is \"%s\", expected quick, full or exhaustive", text);
    return false;
}

enum { OPT_HELP = 256, OPT_VERSION, N_OPTIONS };

static const struct option long_options[] = {{"dtype", required_argument, NULL, 'd'},
                                             {"layout", required_argument, NULL, 'l'},
                                             {"shapes", required_argument, NULL, 's'},
                                             {"device", required_argument, NULL, 'D'},
                                             {"cache", required_argument, NULL, 'c'},
                                             {"budget", required_argument, NULL, 'b'},
                                             {"effort", required_argument, NULL, 'e'},
                                             {"variant", required_argument, NULL, 'V'},
                                             {"jobs", required_argument, NULL, 'j'},
                                             {"retune", no_argument, NULL, 'r'},
                                             {"replace", no_argument, NULL, 'R'},
                                             {"json", no_argument, NULL, 'J'},
                                             {"verbose", no_argument, NULL, 'v'},
                                             {"help", no_argument, NULL, OPT_HELP},
                                             {"version", no_argument, NULL, OPT_VERSION},
                                             {"text", required_argument, NULL, 't'},
                                             {NULL, 0, NULL, 0}};

/* Where the option's word goes; NULL if it is no word. */
static const char **word_of(tune_options *options, int option)
{
    switch (option) {
    case 'd':
        return &options->common.dtype;
    case 'l':
        return &options->common.layout;
    case 's':
        return &options->common.shapes_file;
    case 't':
        return &options->common.text;
    case 'D':
        return &options->common.device;
    case 'c':
        return &options->common.cache;
    case 'V':
        return &options->tune.variant;
    default:
        return NULL;
    }
}

/* 0 to go on, 1 if done, 2 for a usage error. */
static int parse_options(int argc, char **argv, tune_options *options, bool *given)
{
    int option;
    while ((option = getopt_long(argc, argv, "", long_options, NULL)) != -1) {
        bool good = true;
        given[option] = true;
        const char **word = word_of(options, option);
        if (word != NULL) {
            *word = optarg;
            continue;
        }
        switch (option) {
        case 'b':
            good = cli_parse_number("--budget", optarg, 0, 1e9, &options->tune.budget_s);
            break;
        case 'e':
            good = parse_effort(optarg, &options->tune.effort);
            break;
        case 'j':
            good = cli_parse_integer("--jobs", optarg, 1, 1024, &options->jobs);
            break;
        case 'r':
            options->tune.retune = true;
            break;
        case 'R':
            options->replace = true;
            break;
        case 'J':
            options->common.json = true;
            break;
        case 'v':
            options->common.verbose = true;
            break;
        case OPT_HELP:
            fputs(help, stdout);
            return 1;
        case OPT_VERSION:
            printf("gk-tune %s\n", gk_version_string());
            return 1;
        default:
            return cli_error(EXIT_USAGE, "the options are wrong");
        }
        if (!good) {
            return EXIT_USAGE;
        }
    }
    return 0;
}

/* Is there an option given that means nothing to the command? Says so. Every command takes the
 * device, the cache and --verbose. */
static bool is_misplaced(const char *verb, const bool *given)
{
    static const struct {
        const char *verb;
        const char *options;
    } all[] = {{"warm", "dltsbeVjrJDcv"}, {"list", "JDcv"},  {"info", "JDcv"},
               {"explain", "dltJDcv"},    {"export", "Dcv"}, {"import", "RDcv"}};
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        for (const struct option *o = long_options; o->name != NULL; o++) {
            if (strcmp(all[i].verb, verb) == 0 && given[o->val] &&
                strchr(all[i].options, o->val) == NULL) {
                cli_error(EXIT_USAGE, "--%s means nothing to %s", o->name, verb);
                return true;
            }
        }
    }
    return false;
}

/* 0, or EXIT_USAGE: before a context is opened, which makes a cache file. */
static int check_words(const tune_options *options, const char *verb, int argc, char **argv)
{
    cli_problems problems = {0};
    if (strcmp(verb, "info") == 0) {
        return argc == 0 ? 0 : cli_error(EXIT_USAGE, "info takes no words, not %d", argc);
    }
    if (strcmp(verb, "export") == 0 || strcmp(verb, "import") == 0) {
        return argc == 1 ? 0 : cli_error(EXIT_USAGE, "%s takes one file, not %d words", verb, argc);
    }
    if (strcmp(verb, "list") == 0) {
        if (argc > 1) {
            return cli_error(EXIT_USAGE, "list takes one op, not %d words", argc);
        }
        return argc == 0 || cli_op(argv[0], NULL) != NULL ? 0 : EXIT_USAGE;
    }
    if (strcmp(verb, "explain") != 0) {
        return cli_error(EXIT_USAGE, "there is no command \"%s\"", verb);
    }
    if (argc != 2) {
        return cli_error(EXIT_USAGE, "explain takes an op and a shape, not %d words", argc);
    }
    const bool good = cli_collect(&options->common, argc, argv, &problems);
    if (good) {
        free(problems.items);
    }
    return good ? 0 : EXIT_USAGE;
}

static int with_context(const tune_options *options, const char *verb, int argc, char **argv)
{
    const int wrong = check_words(options, verb, argc, argv);
    if (wrong != 0) {
        return wrong;
    }
    gk_context *ctx = NULL;
    gk_context_options context_options = {.struct_size = sizeof(context_options)};
    if (cli_context(&options->common, &context_options, &ctx) != GK_OK) {
        return cli_gk_error(EXIT_SOME_FAILED, "cannot open the device");
    }
    int code;
    if (strcmp(verb, "list") == 0) {
        code = list(ctx, options, argc, argv);
    } else if (strcmp(verb, "info") == 0) {
        code = info(ctx, options);
    } else if (strcmp(verb, "explain") == 0) {
        code = explain(ctx, options, argc, argv);
    } else {
        code = export_or_import(ctx, options, verb, argv);
    }
    gk_context_destroy(&ctx);
    return code;
}

int main(int argc, char **argv)
{
    cli_start("gk-tune");
    tune_options options = {.common = {.dtype = "f32", .layout = "nn"}};
    bool given[N_OPTIONS] = {false};
    int parsed = parse_options(argc, argv, &options, given);
    if (parsed != 0) {
        return cli_finish(parsed == 1 ? 0 : parsed);
    }
    if (optind >= argc) {
        return cli_error(EXIT_USAGE, "no command is given");
    }
    const char *verb = argv[optind];
    int n_words = argc - optind - 1;
    char **words = argv + optind + 1;
    if (is_misplaced(verb, given)) {
        return EXIT_USAGE;
    }
    if (strcmp(verb, "warm") == 0) {
        return cli_finish(tune_warm(&options, n_words, words));
    }
    return cli_finish(with_context(&options, verb, n_words, words));
}
