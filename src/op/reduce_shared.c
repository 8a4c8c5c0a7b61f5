/* What the variants of reduce have in common. */
#include <math.h>
#include <string.h>

#include <gk/ops.h>

#include "op/model.h"
#include "op/reduce.h"

static void add(gk_constants *out, const char *name, gk_constant_kind kind, int64_t value)
{
    if (out->n_items < GK_MAX_CONSTANTS) {
        const gk_constant item = {name, kind, value};
        out->items[out->n_items++] = item;
    }
}

static void append(char *out, size_t size, const char *text)
{
    const size_t length = strlen(out);
    const size_t more = strlen(text);
    if (length + more < size) {
        memcpy(out + length, text, more + 1);
    }
}

void gki_reduce_constants(const gk_problem *problem, gk_constants *out)
{
    static const char *const tags[] = {"sum_", "mean_", "max_", "min_", "argmax_"};
    add(out, "X_TYPE", GK_CONSTANT_TYPE, problem->dtype[REDUCE_X]);
    add(out, "OUT_TYPE", GK_CONSTANT_TYPE, problem->dtype[REDUCE_OUT]);
    add(out, "X_ALIGN", GK_CONSTANT_INT, problem->align[REDUCE_X]);
    add(out, "REDUCTION", GK_CONSTANT_INT, problem->attrs[REDUCE_ATTR_OP]);
    out->tag[0] = '\0';
    append(out->tag, sizeof(out->tag), tags[problem->attrs[REDUCE_ATTR_OP]]);
    append(out->tag, sizeof(out->tag), gk_dtype_name((gk_dtype)problem->dtype[REDUCE_X]));
    if (problem->dtype[REDUCE_OUT] != problem->dtype[REDUCE_X]) {
        append(out->tag, sizeof(out->tag), "_");
        append(out->tag, sizeof(out->tag), gk_dtype_name((gk_dtype)problem->dtype[REDUCE_OUT]));
    }
}

int64_t gki_reduce_state_bytes(const gk_problem *problem)
{
    const int64_t op = problem->attrs[REDUCE_ATTR_OP];
    const bool is_double = problem->dtype[REDUCE_X] == GK_F64;
    if (op == GK_REDUCE_ARGMAX) {
        return is_double ? 16 : 8;
    }
    return is_double || op == GK_REDUCE_SUM || op == GK_REDUCE_MEAN ? 8 : 4;
}

/* Products of sizes stop at INT64_MAX, which no device can serve. */
static int64_t times(int64_t a, int64_t b)
{
    int64_t product;
    return __builtin_mul_overflow(a, b, &product) ? INT64_MAX : product;
}

int64_t gki_reduce_outputs(const gk_problem *problem)
{
    return problem->dims[REDUCE_OUTER] * problem->dims[REDUCE_INNER];
}

int64_t gki_reduce_splits(const gk_device_info *device, int64_t tiles, int64_t steps, int64_t waves)
{
    if (waves == 0 || tiles == 0) {
        return 1;
    }
    const int64_t splits = gki_reduce_ceil_div(waves * device->sm_count, tiles);
    return splits < steps ? splits : steps > 0 ? steps : 1;
}

void gki_reduce_grid(const gk_problem *problem, int64_t tiles, int64_t splits, int64_t tile_outputs,
                     gk_launch *out)
{
    out->grid = times(tiles, splits);
    out->workspace = 0;
    out->zeroed = 0;
    if (splits > 1) {
        out->workspace = times(times(out->grid, tile_outputs), gki_reduce_state_bytes(problem));
        out->zeroed = times(tiles, (int64_t)sizeof(unsigned long long));
    }
}

bool gki_reduce_check_splits(int64_t splits, int64_t waves, const gk_launch *launch,
                             gk_reason *reason)
{
    static const int64_t max_partials = INT64_C(64) << 20;
    if (waves > 0 && splits == 1) {
        return gk_refuse(reason, "WAVES is %d, nothing is left to share", (int)waves);
    }
    if (launch->workspace > max_partials) {
        return gk_refuse(reason, "partial results take %lld bytes, at most %lld are spent on them",
                         (long long)launch->workspace, (long long)max_partials);
    }
    return true;
}

/* Seconds unless they say otherwise; fitted to measurements of the H100 and the H200. */
static const double KERNEL_START = 1.2e-6;
static const double LATENCY = 8e-7;     /* from a read to its use, under load */
static const double BLOCK_START = 8e-8; /* and end, other than reads */
static const double SPLIT_END = 4.0e-6; /* fences, tickets, and partials read back */
static const double REACHED = 0.95;     /* of what the memory's pins could do */

double gki_reduce_seconds(const gk_problem *problem, const gk_device_info *device,
                          const gki_reduce_cost *cost)
{
    const double sms = device->sm_count > 0 ? device->sm_count : 1;
    const double x_bytes = (double)gki_reduce_outputs(problem) *
                           (double)problem->dims[REDUCE_AXIS] *
                           (double)gk_dtype_size((gk_dtype)problem->dtype[REDUCE_X]);
    const double out_bytes = (double)gki_reduce_outputs(problem) *
                             (double)gk_dtype_size((gk_dtype)problem->dtype[REDUCE_OUT]);
    /* Of the memory even where x is small: nothing says that a cache holds it. */
    const double bandwidth = REACHED * gki_model_pins(device);
    const double memory = (x_bytes * cost->wasted + out_bytes) / bandwidth;
    const double by_registers = floor(65536 / (fmin(cost->registers, 255) * cost->threads));
    const double by_threads = floor(fmax(device->max_threads_per_sm, 1024) / cost->threads);
    const double fit = fmax(1, fmin(fmin(by_registers, by_threads), 32));
    const double share = cost->blocks / sms;
    const double live = fmax(fmin(share, fit), 1e-9);
    /* What a multiprocessor has under way moves in a time that grows with it. */
    const double part = fmin(live, 1) < 1 ? 1 : live;
    const double bytes_a_loop = cost->in_flight * cost->threads * part * cost->wasted;
    const double loop = fmax(LATENCY, bytes_a_loop * sms / bandwidth * 0.5);
    const double turns = fmax(ceil(share / fit), 1);
    const double busy = turns * (cost->loops * loop + BLOCK_START + cost->after);
    const double starts = gki_model_starts(device, cost->blocks, (int64_t)cost->threads);
    const double both = sqrt(sqrt(pow(memory, 4) + pow(busy, 4) + pow(starts, 4)));
    /* The last blocks run alone. */
    const double last = memory / fmax(cost->blocks / (sms * fit), 1) * 0.02;
    return KERNEL_START + both + last + (cost->split ? SPLIT_END : 0);
}
