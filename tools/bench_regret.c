/*
 * How good the tuner's answers are: fresh tunings of a problem, then a long run of everything that
 * was tried. The regret is what the winner takes longer than the best of that run.
 */
#define _XOPEN_SOURCE 700
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "bench.h"

enum { MAX_NAME = CLI_MAX_FOLDER + 16, MAX_TAIL = 16 };
enum { MAX_CANDIDATES = 4096, MAX_TUNINGS = 100, BEST_AGAIN = 6, FIRST_ROUNDS = 5 };
static const double SAME = 1.01;

typedef struct candidate {
    char variant[32];
    char config[256];
    bench_planned planned;
    double *samples;
    double seconds; /* of the last rounds it was in */
    unsigned won;   /* tunings */
    bool in_finals;
} candidate;

typedef struct regret {
    const bench *b;
    char folder[CLI_MAX_FOLDER];
    char name[96];
    gk_call example;
    gk_tensor tensors[GK_MAX_ARGS];
    gk_context *ctx; /* of the first tuning */
    candidate *candidates;
    unsigned n_candidates;
    unsigned tunings;
    double wall; /* seconds, of all tunings */
    double *samples;
} regret;

/* --- tunings --- */

static void file_name(const regret *r, unsigned number, char *out, size_t size)
{
    snprintf(out, size, "%s/%u.db", r->folder, number);
}

static gk_status open_context(const regret *r, unsigned number, gk_context **out)
{
    char path[MAX_NAME];
    file_name(r, number, path, sizeof(path));
    cli_options options = r->b->options->common;
    options.cache = path;
    gk_context_options context_options = {.struct_size = sizeof(context_options)};
    return cli_context(&options, &context_options, out);
}

static bool copy_file(const regret *r, unsigned from, unsigned to)
{
    char names[2][MAX_NAME];
    char buffer[65536];
    file_name(r, from, names[0], sizeof(names[0]));
    file_name(r, to, names[1], sizeof(names[1]));
    FILE *in = fopen(names[0], "rb");
    FILE *out = fopen(names[1], "wb");
    bool good = in != NULL && out != NULL && chmod(names[1], 0600) == 0;
    for (size_t n; good && (n = fread(buffer, 1, sizeof(buffer), in)) > 0;) {
        good = fwrite(buffer, 1, n, out) == n;
    }
    good = good && !ferror(in);
    if (in != NULL) {
        fclose(in);
    }
    if (out != NULL) {
        good = fclose(out) == 0 && good;
    }
    if (!good) {
        gk_fail(GK_ERR_IO, "bench", "cannot copy %s to %s: %s", names[0], names[1],
                strerror(errno));
    }
    return good;
}

static bool until_measured(void *user, const gk_tune_progress *progress)
{
    (void)user;
    return strcmp(progress->stage, "measure") != 0 && !cli_interrupted();
}

static gk_status tune(const regret *r, gk_context *ctx, gk_tune_progress_fn progress, double budget,
                      gk_tune_report *report)
{
    const gk_tune_options options = {.struct_size = sizeof(options),
                                     .budget_s = budget,
                                     .retune = true,
                                     .variant = r->b->options->variant,
                                     .progress = progress};
    memset(report, 0, sizeof(*report));
    report->struct_size = sizeof(*report);
    return gk_tune(ctx, r->b->op_name, &r->example, &options, report);
}

/* A file with the compiled code and no answer: what every tuning begins with, so that none waits
 * for the compiler. The tuning is stopped where it would begin to measure. */
static bool compile_all(const regret *r)
{
    gk_context *ctx = NULL;
    gk_tune_report report;
    if (open_context(r, 0, &ctx) != GK_OK) {
        return false;
    }
    const gk_status status = tune(r, ctx, until_measured, 0, &report);
    gk_context_destroy(&ctx);
    return status == GK_OK || status == GK_ERR_CANCELLED;
}

static candidate *find(regret *r, const char *variant, const char *config)
{
    for (unsigned i = 0; i < r->n_candidates; i++) {
        candidate *c = &r->candidates[i];
        if (strcmp(c->variant, variant) == 0 && strcmp(c->config, config) == 0) {
            return c;
        }
    }
    if (r->n_candidates == MAX_CANDIDATES) {
        return NULL;
    }
    candidate *c = &r->candidates[r->n_candidates++];
    snprintf(c->variant, sizeof(c->variant), "%s", variant);
    snprintf(c->config, sizeof(c->config), "%s", config);
    return c;
}

static bool add_trial(void *user, const gk_trial *trial)
{
    if (trial->seconds > 0 || strcmp(trial->status, "ok") == 0) {
        (void)find(user, trial->variant, trial->config);
    }
    return true;
}

/* The number-th fresh tuning; the first one's context stays open and brings the candidates. */
static bool tune_afresh(regret *r, unsigned number)
{
    gk_context *ctx = NULL;
    gk_tune_report report;
    const bool good = copy_file(r, 0, number) && open_context(r, number, &ctx) == GK_OK &&
                      tune(r, ctx, cli_go_on, r->b->options->budget, &report) == GK_OK &&
                      gk_cache_trials(ctx, r->b->op_name, &r->example, add_trial, r) == GK_OK;
    candidate *winner =
        good && report.variant[0] != '\0' ? find(r, report.variant, report.config) : NULL;
    if (good && winner == NULL) {
        gk_fail(GK_ERR_NO_CONFIG, "bench", "tuning %u has no winner among %u candidates", number,
                r->n_candidates);
    }
    if (winner != NULL) {
        winner->won++;
        r->tunings++;
        r->wall += report.wall_s;
    }
    if (number == 1) {
        r->ctx = ctx;
    } else {
        gk_context_destroy(&ctx);
    }
    return winner != NULL && !cli_interrupted();
}

/* --- the long run --- */

static bool make_plans(regret *r, const bench_run *run)
{
    for (unsigned i = 0; i < r->n_candidates; i++) {
        candidate *c = &r->candidates[i];
        const gk_plan_options options = {
            .struct_size = sizeof(options), .variant = c->variant, .config = c->config};
        c->planned.run = run;
        c->samples = r->samples + (size_t)i * (size_t)r->b->options->rounds;
        if (gk_plan_create(&c->planned.plan, r->ctx, r->b->op_name, &run->calls[0], &options) !=
            GK_OK) {
            return false;
        }
    }
    return true;
}

/* Rounds over those in the finals; all are before the first time. */
static bool time_them(regret *r, unsigned rounds, bool all)
{
    bench_racer *racers = calloc(r->n_candidates, sizeof(*racers));
    unsigned n = 0;
    for (unsigned i = 0; racers != NULL && i < r->n_candidates; i++) {
        candidate *c = &r->candidates[i];
        if (all || c->in_finals) {
            racers[n++] = (bench_racer){bench_plan_time, &c->planned, c->samples};
        }
    }
    if (racers == NULL) {
        gk_fail(GK_ERR_NOMEM, "bench", "no memory for %u candidates", r->n_candidates);
    }
    const bool good =
        racers != NULL && bench_rounds(racers, n, 1) < 0 && bench_rounds(racers, n, rounds) < 0;
    free(racers);
    for (unsigned i = 0; good && i < r->n_candidates; i++) {
        candidate *c = &r->candidates[i];
        if (all || c->in_finals) {
            c->seconds = bench_median(c->samples, rounds);
        }
    }
    return good;
}

static int by_seconds(const void *left, const void *right)
{
    const candidate *a = left;
    const candidate *b = right;
    return (a->seconds > b->seconds) - (a->seconds < b->seconds);
}

/* All a few times; then the best of these and all winners, as many times as asked for: the best of
 * many noisy medians would look better than it is. */
static bool long_run(regret *r, bench_run *run)
{
    const unsigned rounds = (unsigned)r->b->options->rounds;
    bench on_first = *r->b;
    on_first.ctx = r->ctx;
    if (!bench_run_make(run, &on_first, &r->example) || !make_plans(r, run) ||
        !time_them(r, rounds < FIRST_ROUNDS ? rounds : FIRST_ROUNDS, true)) {
        return false;
    }
    qsort(r->candidates, r->n_candidates, sizeof(*r->candidates), by_seconds);
    for (unsigned i = 0; i < r->n_candidates; i++) {
        r->candidates[i].in_finals = i < BEST_AGAIN || r->candidates[i].won > 0;
    }
    return time_them(r, rounds, false);
}

/* --- the report --- */

typedef struct verdict {
    const candidate *best;
    unsigned winners; /* different ones */
    unsigned same;    /* tunings with the most frequent winner, or one within 1 % of the best */
    double median;    /* regret over the tunings */
    double worst;
} verdict;

static verdict judge(const regret *r)
{
    verdict v = {.best = &r->candidates[0]}; /* the first of the finals by the first rounds */
    double regrets[MAX_TUNINGS];
    unsigned n = 0;
    double fastest = INFINITY;
    for (unsigned i = 0; i < r->n_candidates; i++) {
        const candidate *c = &r->candidates[i];
        if (c->in_finals && c->seconds < v.best->seconds) {
            v.best = c;
        }
        fastest = c->won > 0 ? fmin(fastest, c->seconds) : fastest;
    }
    for (unsigned i = 0; i < r->n_candidates; i++) {
        const candidate *c = &r->candidates[i];
        v.winners += c->won > 0 ? 1 : 0;
        v.same += c->seconds <= SAME * fastest ? c->won : 0;
        for (unsigned k = 0; k < c->won && n < MAX_TUNINGS; k++) {
            regrets[n++] = c->seconds / v.best->seconds - 1;
        }
    }
    for (unsigned i = 0; i < r->n_candidates; i++) {
        v.same = r->candidates[i].won > v.same ? r->candidates[i].won : v.same;
    }
    v.median = cli_quantile(regrets, n, 0.5);
    v.worst = regrets[n - 1]; /* sorted by now */
    return v;
}

static void print_regret(const regret *r)
{
    const verdict v = judge(r);
    if (r->b->options->common.json) {
        cli_json *json = cli_json_begin();
        cli_json_text(json, "type", "regret");
        cli_json_text(json, "op", r->b->op_name);
        cli_json_text(json, "shape", r->name);
        cli_json_text(json, "status", "ok");
        cli_json_number(json, "candidates", r->n_candidates);
        cli_json_number(json, "tunings", r->tunings);
        cli_json_number(json, "tuning_seconds", r->wall / r->tunings);
        cli_json_number(json, "winners", v.winners);
        cli_json_number(json, "same_or_within_1_percent", v.same);
        cli_json_number(json, "median_regret", v.median);
        cli_json_number(json, "worst_regret", v.worst);
        cli_json_number(json, "best_seconds", v.best->seconds);
        cli_json_text(json, "best_variant", v.best->variant);
        cli_json_text(json, "best_config", v.best->config);
        cli_json_end(json, stdout);
    } else {
        char time[32];
        cli_format_time(v.best->seconds, time, sizeof(time));
        printf("%-28s %12s %10u %7.2f s %8u %6u/%-3u %6.2f %% %6.2f %%  %s %s\n", r->name, time,
               r->n_candidates, r->wall / r->tunings, v.winners, v.same, r->tunings, v.median * 100,
               v.worst * 100, v.best->variant, v.best->config);
        for (unsigned i = 0; i < r->n_candidates; i++) {
            const candidate *c = &r->candidates[i];
            if (c->won > 0) {
                cli_format_time(c->seconds, time, sizeof(time));
                printf("    won %u: %s  %s %s\n", c->won, time, c->variant, c->config);
            }
        }
    }
    fflush(stdout);
}

/* Of a problem without figures: status is "empty" or a status' name. */
static void print_without(const regret *r, const char *status, const char *message)
{
    const bool failed = message != NULL;
    if (r->b->options->common.json) {
        cli_json *json = cli_json_begin();
        cli_json_text(json, "type", "regret");
        cli_json_text(json, "op", r->b->op_name);
        cli_json_text(json, "shape", r->name);
        cli_json_text(json, "status", status);
        if (failed) {
            cli_json_text(json, "message", message);
        }
        cli_json_end(json, stdout);
    } else {
        printf("%-28s %s%s\n", r->name, failed ? "failed: " : "", status);
    }
    fflush(stdout);
}

/* --- all problems --- */

static void clean_up(regret *r, bench_run *run)
{
    for (unsigned i = 0; i < r->n_candidates; i++) {
        gk_plan_destroy(&r->candidates[i].planned.plan);
    }
    if (run->op != NULL) {
        bench_run_free(run);
    }
    gk_context_destroy(&r->ctx);
    for (unsigned i = 0; r->folder[0] != '\0' && i <= MAX_TUNINGS; i++) {
        static const char *const tails[] = {"", "-wal", "-shm", "-journal"};
        for (size_t t = 0; t < sizeof(tails) / sizeof(tails[0]); t++) {
            char path[MAX_NAME];
            char whole[MAX_NAME + MAX_TAIL];
            file_name(r, i, path, sizeof(path));
            snprintf(whole, sizeof(whole), "%s%s", path, tails[t]);
            unlink(whole);
        }
    }
    rmdir(r->folder);
    free(r->candidates);
    free(r->samples);
}

/* False, with gk's error set, on failure. */
static bool tune_and_compare(regret *r, bench_run *run)
{
    const size_t rounds = (size_t)r->b->options->rounds;
    if (!cli_temp_folder(r->folder, sizeof(r->folder))) {
        r->folder[0] = '\0';
        return false;
    }
    r->candidates = calloc(MAX_CANDIDATES, sizeof(*r->candidates));
    r->samples = calloc(MAX_CANDIDATES * rounds, sizeof(*r->samples));
    if (r->candidates == NULL || r->samples == NULL) {
        gk_fail(GK_ERR_NOMEM, "bench", "no memory for %zu rounds", rounds);
        return false;
    }
    bool good = compile_all(r);
    for (unsigned i = 1; i <= (unsigned)r->b->options->tunings && good; i++) {
        good = tune_afresh(r, i);
    }
    return good && long_run(r, run);
}

/* False on failure and after an interrupt. */
static bool regret_one(const bench *b, size_t index)
{
    const cli_problems *problems = b->problems;
    const cli_problem *problem = &problems->items[index];
    regret r;
    bench_run run;
    memset(&r, 0, sizeof(r));
    memset(&run, 0, sizeof(run));
    r.b = b;
    cli_problem_name(problems->op, problem, r.name, sizeof(r.name));
    bool good = cli_call(problems->op, problems->preset, problem, r.tensors, &r.example) == GK_OK;
    if (good && cli_is_empty(problems->op, &r.example)) {
        print_without(&r, "empty", NULL);
        return true;
    }
    good = good && tune_and_compare(&r, &run);
    if (good) {
        print_regret(&r);
    } else if (!cli_interrupted()) {
        const gk_error error = *gk_error_last();
        print_without(&r, gk_status_name(error.status), error.message);
        cli_error(EXIT_SOME_FAILED, "%s: %s (%s)", r.name, error.message,
                  gk_status_name(error.status));
    }
    clean_up(&r, &run);
    return good;
}

static void print_summary(size_t rows, size_t failed)
{
    cli_json *json = cli_json_begin();
    cli_json_text(json, "type", "summary");
    cli_json_number(json, "rows", (double)rows);
    cli_json_number(json, "failed", (double)failed);
    cli_json_bool(json, "interrupted", cli_interrupted());
    cli_json_end(json, stdout);
}

int bench_regret(bench *b)
{
    const size_t count = b->problems->count;
    size_t rows = 0;
    size_t failed = 0;
    if (!b->options->common.json) {
        printf("%-28s %12s %10s %9s %8s %10s %8s %8s  best of the long run\n", "shape", "best",
               "candidates", "a tuning", "winners", "equal", "regret", "worst");
    }
    while (rows < count && !cli_interrupted()) {
        const bool good = regret_one(b, rows);
        if (good || !cli_interrupted()) {
            rows++;
            failed += good ? 0 : 1;
        }
    }
    if (b->options->common.json) {
        print_summary(rows, failed);
    }
    if (cli_interrupted()) {
        return cli_error(EXIT_SOME_FAILED, "interrupted: %zu of %zu shapes are done", rows, count);
    }
    return failed > 0 ? EXIT_SOME_FAILED : 0;
}
