/* gk-tune warm: tunes problems and stores the answers. */
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "tune.h"

typedef struct warm_state {
    const gk_op_desc *op;
    const char *op_name; /* as it was given, a preset's perhaps */
    size_t index;
    size_t total;
    char name[96];
    struct timespec start;
    bool terminal;
    bool line_open;
    bool emulated; /* times of the CPU device are not shown as speed */
} warm_state;

static double seconds_since(const struct timespec *start)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)(now.tv_sec - start->tv_sec) + 1e-9 * (double)(now.tv_nsec - start->tv_nsec);
}

/* Time left, from the share of the problems that is done; the one at work counts by its stage. */
static void format_eta(const warm_state *state, const gk_tune_progress *progress, char *out,
                       size_t size)
{
    static const struct {
        const char *stage;
        double before;
        double share;
    } stages[] = {
        {"compile", 0.0, 0.5}, {"verify", 0.5, 0.1}, {"measure", 0.6, 0.2}, {"final", 0.8, 0.2}};
    double done = 0;
    for (size_t i = 0; i < sizeof(stages) / sizeof(stages[0]); i++) {
        if (strcmp(stages[i].stage, progress->stage) == 0 && progress->total > 0) {
            done = stages[i].before + stages[i].share * progress->done / progress->total;
        }
    }
    const double share = ((double)state->index + done) / (double)state->total;
    const double elapsed = seconds_since(&state->start);
    if (share < 0.02) {
        snprintf(out, size, "--:--");
        return;
    }
    const long left = (long)(elapsed / share - elapsed + 0.5);
    snprintf(out, size, "%02ld:%02ld", left / 60, left % 60);
}

static bool show_progress(void *user, const gk_tune_progress *progress)
{
    warm_state *state = user;
    if (state->terminal) {
        char eta[32];
        char best[32];
        format_eta(state, progress, eta, sizeof(eta));
        cli_format_time(progress->best_seconds, best, sizeof(best));
        fprintf(stderr, "\r\033[K[%zu/%zu] %s  %s %u/%u  best %s  ETA %s", state->index + 1,
                state->total, state->name, progress->stage, progress->done, progress->total, best,
                eta);
        state->line_open = true;
    }
    return !cli_interrupted();
}

static void print_header(void)
{
    printf("%-28s %-8s %12s %10s %9s %6s %8s  %s\n", "shape", "variant", "time", "TFLOP/s",
           "roofline", "tried", "refused", "config");
}

/* without: why there is no answer, "empty" or a status' name; NULL if there is one. */
static void print_row(const warm_state *state, const gk_tune_report *report, bool json,
                      const char *without)
{
    const bool timed = report->seconds > 0 && !state->emulated;
    const double tflops = timed ? report->flops / report->seconds * 1e-12 : 0;
    const double share = timed ? report->roofline_seconds / report->seconds : 0;
    if (json) {
        cli_json *row = cli_json_begin();
        cli_json_text(row, "op", state->op_name);
        cli_json_text(row, "shape", state->name);
        cli_json_text(row, "status", without == NULL ? "ok" : without);
        cli_json_text(row, "variant", report->variant);
        cli_json_text(row, "config", report->config);
        cli_json_number(row, "seconds", report->seconds);
        cli_json_number(row, "spread", report->spread);
        cli_json_number(row, "guess_seconds", report->guess_seconds);
        cli_json_number(row, "tflops", tflops);
        cli_json_number(row, "roofline_share", share);
        cli_json_number(row, "space", report->space);
        cli_json_number(row, "tried", report->tried);
        cli_json_number(row, "refused", report->refused);
        cli_json_number(row, "measured", report->measured);
        cli_json_number(row, "wall_seconds", report->wall_s);
        cli_json_number(row, "compile_seconds", report->compile_s);
        cli_json_bool(row, "from_cache", report->from_cache);
        cli_json_bool(row, "saved", report->saved);
        cli_json_bool(row, "emulated", state->emulated);
        cli_json_end(row, stdout);
    } else if (without != NULL) {
        printf("%-28s %s\n", state->name, without);
    } else {
        char time[32] = "emulated";
        char speed[16] = "-";
        char roofline[16] = "-";
        if (timed) {
            cli_format_time(report->seconds, time, sizeof(time));
            snprintf(speed, sizeof(speed), "%.2f", tflops);
        }
        if (share > 0) {
            snprintf(roofline, sizeof(roofline), "%.1f %%", share * 100);
        }
        printf("%-28s %-8s %12s %10s %9s %6u %8u  %s%s\n", state->name, report->variant, time,
               speed, roofline, report->tried, report->refused, report->config,
               report->from_cache ? "  (stored)" : "");
    }
    fflush(stdout);
}

/* 0, or 1 if the problem failed or its answer was not saved. */
static int warm_one(gk_context *ctx, const gk_preset *preset, const cli_problem *problem,
                    const tune_options *options, warm_state *state)
{
    gk_tensor tensors[GK_MAX_ARGS];
    gk_call call;
    memset(tensors, 0, sizeof(tensors));
    gk_tune_report report = {.struct_size = sizeof(report)};
    gk_tune_options tune = options->tune;
    tune.struct_size = sizeof(tune);
    tune.progress = show_progress;
    tune.progress_user = state;
    gk_status status = cli_call(state->op, preset, problem, tensors, &call);
    if (status == GK_OK && cli_is_empty(state->op, &call)) {
        print_row(state, &report, options->common.json, "empty");
        return 0;
    }
    if (status == GK_OK) {
        status = gk_tune(ctx, state->op_name, &call, &tune, &report);
    }
    if (state->line_open) {
        fprintf(stderr, "\r\033[K");
        state->line_open = false;
    }
    if (status != GK_OK) {
        print_row(state, &report, options->common.json, gk_status_name(status));
        return cli_gk_error(EXIT_SOME_FAILED, "%s", state->name);
    }
    print_row(state, &report, options->common.json, NULL);
    if (!report.saved && !report.from_cache && report.tried > 0) {
        return cli_error(EXIT_SOME_FAILED, "%s: the answer was not saved", state->name);
    }
    return 0;
}

int tune_warm(const tune_options *options, int argc, char **argv)
{
    cli_problems problems;
    if (!cli_collect(&options->common, argc, argv, &problems)) {
        return EXIT_USAGE;
    }
    gk_context *ctx = NULL;
    gk_context_options context_options = {.struct_size = sizeof(context_options),
                                          .compile_threads = (int32_t)options->jobs};
    if (cli_context(&options->common, &context_options, &ctx) != GK_OK) {
        free(problems.items);
        return cli_gk_error(EXIT_SOME_FAILED, "cannot open the device");
    }
    cli_catch_interrupts();
    warm_state state = {.op = problems.op,
                        .op_name = argv[0],
                        .total = problems.count,
                        .terminal = isatty(STDERR_FILENO) != 0};
    gk_device_info device;
    state.emulated = gk_device_info_get(ctx, &device) == GK_OK && device.is_emulated;
    clock_gettime(CLOCK_MONOTONIC, &state.start);
    if (!options->common.json) {
        print_header();
    }
    int code = 0;
    for (size_t i = 0; i < problems.count && !cli_interrupted(); i++) {
        state.index = i;
        cli_problem_name(problems.op, &problems.items[i], state.name, sizeof(state.name));
        if (warm_one(ctx, problems.preset, &problems.items[i], options, &state) != 0) {
            code = EXIT_SOME_FAILED;
        }
        if (!state.terminal) {
            gk_tune_progress done = {.stage = "", .total = 1};
            char eta[32];
            state.index = i + 1;
            format_eta(&state, &done, eta, sizeof(eta));
            fprintf(stderr, "[%zu/%zu] %s  %.1f s  ETA %s\n", i + 1, problems.count, state.name,
                    seconds_since(&state.start), eta);
        }
    }
    if (cli_interrupted()) {
        code = cli_error(EXIT_SOME_FAILED, "interrupted: finished problems are kept");
    }
    gk_context_destroy(&ctx);
    free(problems.items);
    return code;
}
