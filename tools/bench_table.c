/* The table: gk's tuned kernels, the untuned choice and cuBLASLt in turn, a row a problem. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"

static const double WEAK = 0.8;  /* ratios below are listed */
static const double NEAR = 1.15; /* what is near the tuned winner */
/* What cuBLASLt may add to the error, of the sum of magnitudes: it tells a wrong description from a
 * rough algorithm. Some add split sums in the output's type, those of 8-bit floats keep 14 bits. */
static const double PEER_SLACK = 1e-5;
static const double PEER_SLACK_NARROW = 2e-3;

typedef struct bench_row {
    char name[96];
    char status[32]; /* "ok", "empty", "wrong", a status' name */
    char message[1024];
    gk_plan_description info;
    bool tuned;
    double seconds;
    double flops;
    double bytes;
    double copy_share; /* of the copy's rate, for what memory bounds; else 0 */
    double guess;      /* seconds; 0 if it was not timed */
    double guess_ratio;
    gk_plan_description guess_info;
    double lt_best;
    double lt_first;
    bench_peer_choice choice;
    double ratio; /* 0 if there is no peer */
    double error;
    double lt_error;
} bench_row;

typedef struct bench_summary {
    const bench *b;
    bench_row *rows;
    size_t done;
    size_t failed;
} bench_summary;

/* --- one row --- */

static bool fail(bench_row *row, const char *what)
{
    const gk_error *last = gk_error_last();
    snprintf(row->status, sizeof(row->status), "%s", gk_status_name(last->status));
    snprintf(row->message, sizeof(row->message), "%s: %s", what, last->message);
    return false;
}

/* Tunes unless there is an answer, then plans with it; without one, because the time was too
 * short, with the guess. */
static bool make_plan(const bench *b, const bench_run *run, bench_row *row, gk_plan **plan)
{
    const bench_options *o = b->options;
    const gk_tune_options tune = {
        .struct_size = sizeof(tune), .budget_s = o->budget, .progress = cli_go_on};
    const gk_plan_options how = {.struct_size = sizeof(how),
                                 .mode = GK_MODE_HEURISTIC,
                                 .variant = o->variant,
                                 .config = o->config};
    if (o->variant == NULL && gk_tune(b->ctx, b->op_name, &run->calls[0], &tune, NULL) != GK_OK) {
        return fail(row, "tuning");
    }
    row->info.struct_size = sizeof(row->info);
    if (gk_plan_create(plan, b->ctx, b->op_name, &run->calls[0], &how) != GK_OK ||
        gk_plan_info(*plan, &row->info) != GK_OK) {
        return fail(row, "planning");
    }
    row->tuned = row->info.source == GK_SOURCE_TUNED || row->info.source == GK_SOURCE_CACHE;
    return true;
}

static bool make_guess(const bench *b, const bench_run *run, bench_row *row, gk_plan **plan)
{
    const gk_plan_options how = {.struct_size = sizeof(how), .mode = GK_MODE_PINNED};
    row->guess_info.struct_size = sizeof(row->guess_info);
    return (gk_plan_create(plan, b->ctx, b->op_name, &run->calls[0], &how) == GK_OK &&
            gk_plan_info(*plan, &row->guess_info) == GK_OK) ||
           fail(row, "the guess");
}

enum { GK, GUESS, LT_BEST, LT_FIRST, N_RACERS };

/* Times what there is in turn and fills the row's figures. */
static bool race(const bench *b, const bench_run *run, gk_plan *plan, gk_plan *guess,
                 bench_peer *peer, bench_row *row)
{
    const unsigned rounds = (unsigned)b->options->rounds;
    double *samples = calloc((size_t)N_RACERS * rounds, sizeof(*samples));
    bench_racer racers[N_RACERS];
    double *of[N_RACERS] = {NULL};
    unsigned n = 0;
    bench_planned own = {run, plan};
    bench_planned untuned = {run, guess};
    if (samples == NULL) {
        gk_fail(GK_ERR_NOMEM, "bench", "no memory for %u rounds", rounds);
        return fail(row, "timing");
    }
    for (int i = 0; i < N_RACERS; i++) {
        if (i == GK || (i == GUESS ? guess != NULL : peer != NULL)) {
            of[i] = samples + (size_t)n * rounds;
            racers[n++] = (bench_racer){i == LT_BEST    ? bench_peer_time_best
                                        : i == LT_FIRST ? bench_peer_time_first
                                                        : bench_plan_time,
                                        i == GK      ? (void *)&own
                                        : i == GUESS ? (void *)&untuned
                                                     : (void *)peer,
                                        of[i]};
        }
    }
    int failed = bench_rounds(racers, n, 1);
    failed = failed < 0 ? bench_rounds(racers, n, rounds) : failed;
    const bool good = failed < 0;
    if (good) {
        row->seconds = bench_median(of[GK], rounds);
    }
    if (good && guess != NULL) {
        row->guess = bench_median(of[GUESS], rounds);
        row->guess_ratio = bench_ratio(of[GUESS], of[GK], rounds);
    }
    if (good && peer != NULL) {
        row->lt_best = bench_median(of[LT_BEST], rounds);
        row->lt_first = bench_median(of[LT_FIRST], rounds);
        row->choice = bench_peer_chosen(peer);
        row->ratio = bench_ratio(of[LT_BEST], of[GK], rounds);
    }
    free(samples);
    if (!good && failed < (int)n && racers[failed].time != bench_plan_time) {
        snprintf(row->status, sizeof(row->status), "cublaslt");
        snprintf(row->message, sizeof(row->message), "cuBLASLt failed while it was timed");
        return false;
    }
    return good || fail(row, "timing");
}

static bool run_plan(void *user)
{
    const bench_planned *p = user;
    return gk_plan_run(p->plan, &p->run->calls[0], NULL) == GK_OK &&
           gk_synchronize(p->run->ctx, NULL) == GK_OK;
}

static bool check(const bench *b, bench_run *run, gk_plan *plan, bench_peer *peer, bench_row *row)
{
    if (b->options->no_check) {
        return true;
    }
    bench_planned own = {run, plan};
    const uint32_t output = bench_output_of(run->op);
    const bool narrow = gk_dtype_size((gk_dtype)run->problem.dtype[output]) < 4;
    row->error = bench_run_check(run, run_plan, &own, 0);
    if (row->error < 0) {
        return fail(row, "checking");
    }
    if (peer != NULL) {
        row->lt_error =
            bench_run_check(run, bench_peer_run, peer, narrow ? PEER_SLACK_NARROW : PEER_SLACK);
    }
    const bool wrong = row->error > 1;
    if (wrong || row->lt_error > 1 || row->lt_error < 0) {
        snprintf(row->status, sizeof(row->status), "wrong");
        snprintf(row->message, sizeof(row->message), "%s gives wrong results: error %.3g",
                 wrong ? "gk" : "cuBLASLt", wrong ? row->error : row->lt_error);
        return false;
    }
    return true;
}

static void rate(const bench *b, const bench_run *run, bench_row *row)
{
    run->op->work(&run->problem, &row->flops, &row->bytes);
    const double peak = run->op->peak != NULL ? run->op->peak(&run->problem, &b->info) : INFINITY;
    const bool by_memory =
        peak > 0 && b->copy_rate > 0 && row->bytes / b->copy_rate > row->flops / peak;
    row->copy_share = by_memory ? row->bytes / row->seconds / b->copy_rate : 0;
}

/* The problem's own, so that the peer computes the same. */
static gk_math math_of(const bench_run *run)
{
    for (uint32_t i = 0; i < run->op->n_attrs; i++) {
        if (strcmp(run->op->attrs[i].name, "math") == 0) {
            return (gk_math)run->calls[0].attrs[i];
        }
    }
    return GK_MATH_DEFAULT;
}

static bool measure(const bench *b, const gk_call *example, bench_run *run, gk_plan **plans,
                    bench_peer **peer, bench_row *row)
{
    if (!bench_run_make(run, b, example)) {
        return fail(row, "operands");
    }
    if (!make_plan(b, run, row, &plans[0]) ||
        (b->options->guess && !make_guess(b, run, row, &plans[1]))) {
        return false;
    }
    if (b->lt != NULL) {
        *peer = bench_peer_open(b->lt, run->calls, run->n_sets, math_of(run),
                                strcmp(b->op_name, "matmul_relu") == 0);
    }
    if (!race(b, run, plans[0], plans[1], *peer, row) || !check(b, run, plans[0], *peer, row)) {
        return false;
    }
    rate(b, run, row);
    snprintf(row->status, sizeof(row->status), "ok");
    return true;
}

static bool make_row(const bench *b, size_t index, bench_row *row)
{
    const cli_problems *problems = b->problems;
    gk_tensor tensors[GK_MAX_ARGS];
    gk_call example;
    gk_plan *plans[2] = {NULL, NULL};
    bench_peer *peer = NULL;
    bench_run run;
    memset(&run, 0, sizeof(run));
    run.ctx = b->ctx;
    memset(tensors, 0, sizeof(tensors));
    cli_problem_name(problems->op, &problems->items[index], row->name, sizeof(row->name));
    if (cli_call(problems->op, problems->preset, &problems->items[index], tensors, &example) !=
        GK_OK) {
        return fail(row, "the problem");
    }
    if (cli_is_empty(problems->op, &example)) {
        snprintf(row->status, sizeof(row->status), "empty");
        return true;
    }
    const bool good = measure(b, &example, &run, plans, &peer, row);
    bench_peer_close(peer);
    gk_plan_destroy(&plans[0]);
    gk_plan_destroy(&plans[1]);
    bench_run_free(&run);
    return good;
}

/* --- what is printed --- */

static void print_head(const bench *b)
{
    if (b->options->common.json) {
        return;
    }
    printf("%-28s %12s %9s %8s %6s", "shape", "gk", "TFLOP/s", "GB/s", "copy");
    if (b->lt != NULL) {
        printf(" %12s %7s", "cuBLASLt", "ratio");
    }
    if (b->options->guess) {
        printf(" %6s", "guess");
    }
    printf("  variant, config\n");
}

static void print_json(const bench *b, const bench_row *row)
{
    cli_json *json = cli_json_begin();
    cli_json_text(json, "type", "row");
    cli_json_text(json, "op", b->op_name);
    cli_json_text(json, "shape", row->name);
    cli_json_text(json, "status", row->status);
    if (strcmp(row->status, "ok") != 0) {
        if (row->message[0] != '\0') {
            cli_json_text(json, "message", row->message);
        }
        cli_json_end(json, stdout);
        return;
    }
    cli_json_text(json, "variant", row->info.variant);
    cli_json_text(json, "config", row->info.config);
    cli_json_bool(json, "tuned", row->tuned);
    cli_json_number(json, "seconds", row->seconds);
    cli_json_number(json, "tflops", row->flops / row->seconds * 1e-12);
    cli_json_number(json, "gb_per_s", row->bytes / row->seconds * 1e-9);
    if (row->copy_share > 0) {
        cli_json_number(json, "copy_share", row->copy_share);
    }
    if (!b->options->no_check) {
        cli_json_number(json, "error", row->error);
    }
    if (row->guess > 0) {
        cli_json_number(json, "guess_seconds", row->guess);
        cli_json_number(json, "guess_ratio", row->guess_ratio);
        cli_json_text(json, "guess_variant", row->guess_info.variant);
        cli_json_text(json, "guess_config", row->guess_info.config);
    }
    if (row->ratio > 0) {
        cli_json_number(json, "cublaslt_best_seconds", row->lt_best);
        cli_json_number(json, "cublaslt_first_seconds", row->lt_first);
        cli_json_number(json, "cublaslt_heuristics", row->choice.count);
        cli_json_number(json, "cublaslt_best_index", row->choice.index);
        cli_json_number(json, "cublaslt_split_k", row->choice.split_k);
        cli_json_number(json, "cublaslt_reduction", row->choice.reduction);
        if (!b->options->no_check) {
            cli_json_number(json, "cublaslt_error", row->lt_error);
        }
        cli_json_number(json, "ratio", row->ratio);
    }
    cli_json_end(json, stdout);
}

static void print_text(const bench *b, const bench_row *row)
{
    char time[32];
    if (strcmp(row->status, "ok") != 0) {
        const bool failed = strcmp(row->status, "empty") != 0;
        printf("%-28s %s%s\n", row->name, failed ? "failed: " : "", row->status);
        return;
    }
    cli_format_time(row->seconds, time, sizeof(time));
    printf("%-28s %12s %9.2f %8.0f", row->name, time, row->flops / row->seconds * 1e-12,
           row->bytes / row->seconds * 1e-9);
    if (row->copy_share > 0) {
        printf(" %4.0f %%", row->copy_share * 100);
    } else {
        printf(" %6s", "");
    }
    if (b->lt != NULL && row->ratio > 0) {
        cli_format_time(row->lt_best, time, sizeof(time));
        printf(" %12s %7.3f", time, row->ratio);
    } else if (b->lt != NULL) {
        printf(" %12s %7s", "-", "-");
    }
    if (b->options->guess) {
        printf(" %6.2f", row->guess_ratio);
    }
    printf("  %s %s%s\n", row->info.variant, row->info.config, row->tuned ? "" : " (untuned)");
}

static void print_row(const bench *b, const bench_row *row)
{
    if (b->options->common.json) {
        print_json(b, row);
    } else {
        print_text(b, row);
    }
    fflush(stdout);
    if (row->message[0] != '\0') {
        cli_error(EXIT_SOME_FAILED, "%s: %s (%s)", row->name, row->message, row->status);
    }
}

typedef struct ratio_summary {
    double log_sum;
    unsigned count;
    unsigned weak;
    const bench_row *worst;
    unsigned guesses;
    unsigned near;
    const bench_row *worst_guess;
} ratio_summary;

static ratio_summary sum_up(const bench_summary *s)
{
    ratio_summary sum = {0};
    for (size_t i = 0; i < s->done; i++) {
        const bench_row *row = &s->rows[i];
        if (strcmp(row->status, "ok") != 0) {
            continue;
        }
        if (row->ratio > 0) {
            sum.log_sum += log(row->ratio);
            sum.count++;
            sum.weak += row->ratio < WEAK ? 1 : 0;
            sum.worst = sum.worst == NULL || row->ratio < sum.worst->ratio ? row : sum.worst;
        }
        if (row->guess > 0) {
            sum.guesses++;
            sum.near += row->guess_ratio <= NEAR ? 1 : 0;
            sum.worst_guess =
                sum.worst_guess == NULL || row->guess_ratio > sum.worst_guess->guess_ratio
                    ? row
                    : sum.worst_guess;
        }
    }
    return sum;
}

static void print_summary_json(const bench_summary *s, const ratio_summary *sum)
{
    cli_json *json = cli_json_begin();
    cli_json_text(json, "type", "summary");
    cli_json_number(json, "rows", (double)s->done);
    cli_json_number(json, "failed", (double)s->failed);
    cli_json_bool(json, "interrupted", cli_interrupted());
    if (sum->count > 0) {
        cli_json_number(json, "ratios", sum->count);
        cli_json_number(json, "geometric_mean", exp(sum->log_sum / sum->count));
        cli_json_number(json, "worst_ratio", sum->worst->ratio);
        cli_json_text(json, "worst_shape", sum->worst->name);
        cli_json_number(json, "below_0.8", sum->weak);
    }
    if (sum->guesses > 0) {
        cli_json_number(json, "guesses", sum->guesses);
        cli_json_number(json, "guesses_within_15_percent", sum->near);
        cli_json_number(json, "worst_guess_ratio", sum->worst_guess->guess_ratio);
        cli_json_text(json, "worst_guess_shape", sum->worst_guess->name);
    }
    cli_json_end(json, stdout);
}

static void print_summary(const bench_summary *s)
{
    const ratio_summary sum = sum_up(s);
    if (s->b->options->common.json) {
        print_summary_json(s, &sum);
        return;
    }
    if (sum.count > 1) {
        printf("geometric mean of %u ratios: %.3f; worst %.3f (%s); below %.1f: %u\n", sum.count,
               exp(sum.log_sum / sum.count), sum.worst->ratio, sum.worst->name, WEAK, sum.weak);
    }
    for (size_t i = 0; sum.count > 1 && i < s->done; i++) {
        const bench_row *row = &s->rows[i];
        if (strcmp(row->status, "ok") == 0 && row->ratio > 0 && row->ratio < WEAK) {
            printf("    %.3f %s  %s %s\n", row->ratio, row->name, row->info.variant,
                   row->info.config);
        }
    }
    if (sum.guesses > 0) {
        printf("the guess takes up to 15 %% longer than the tuned winner for %u of %u (%.0f %%); "
               "worst %.2f times (%s)\n",
               sum.near, sum.guesses, 100.0 * sum.near / sum.guesses, sum.worst_guess->guess_ratio,
               sum.worst_guess->name);
    }
}

int bench_table(bench *b)
{
    const size_t count = b->problems->count;
    bench_summary s = {.b = b, .rows = calloc(count, sizeof(*s.rows))};
    bool lost = false;
    if (s.rows == NULL) {
        return cli_error(EXIT_SOME_FAILED, "out of memory");
    }
    print_head(b);
    int code = 0;
    while (s.done < count && !cli_interrupted() && !lost) {
        bench_row *row = &s.rows[s.done];
        const bool good = make_row(b, s.done, row);
        if (cli_interrupted()) {
            break;
        }
        print_row(b, row);
        s.done++;
        s.failed += good ? 0 : 1;
        lost = strcmp(row->status, "GK_ERR_LOST") == 0;
        if (!good || (b->lt != NULL && row->seconds > 0 && !(row->ratio > 0))) {
            code = EXIT_SOME_FAILED;
        }
    }
    print_summary(&s);
    if (cli_interrupted() || lost) {
        code = cli_error(EXIT_SOME_FAILED, "%s: %zu of %zu shapes are done",
                         lost ? "the device is lost" : "interrupted", s.done, count);
    }
    free(s.rows);
    return code;
}
