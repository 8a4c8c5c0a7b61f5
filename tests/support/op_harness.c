#define _GNU_SOURCE
#include "op_harness.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "op_configs.h"
#include "op_values.h"

/* Each with something ragged, degenerate, or neither. */
static const int64_t case_shapes[][GK_MAX_DIMS] = {
    {1, 1, 1}, {1, 128, 1},  {17, 1, 65},   {33, 17, 33}, {127, 129, 31},
    {3, 5, 7}, {64, 64, 64}, {65, 129, 33}, {3, 5, 0},
};
enum { N_CASE_SHAPES = sizeof(case_shapes) / sizeof(case_shapes[0]), MAX_SHAPES = 64 };

typedef struct work {
    op_harness *h;
    op_item *items;
    uint32_t n_items;
    int64_t shapes[MAX_SHAPES][GK_MAX_DIMS];
    uint32_t n_shapes;
    atomic_uint next;
    atomic_uint done;
} work;

/* What the thread is running, for a signal handler. */
static _Thread_local char current[512];

static void on_crash(int number)
{
    static const char text[] = "CRASH while running ";
    (void)!write(STDOUT_FILENO, text, sizeof(text) - 1);
    (void)!write(STDOUT_FILENO, current, strlen(current));
    (void)!write(STDOUT_FILENO, "\n", 1);
    _exit(number == SIGSEGV || number == SIGBUS ? 1 : 3);
}

/* Ctrl-C, or a time limit: what is under way is finished, and what was run is printed. The second
 * one ends the process. */
static volatile sig_atomic_t stopped;

static void on_stop(int number)
{
    signal(number, SIG_DFL);
    stopped = 1;
}

static void note(const op_harness *h, const op_item *item, const int64_t *dims)
{
    char config[256];
    op_config_text(item->variant, &item->config, config, sizeof(config));
    snprintf(current, sizeof(current),
             "--device %s --variant %s --config '%s' --dtype %s --layout %s --place %s --epilogue "
             "%s --shapes %" PRId64 "x%" PRId64 "x%" PRId64 " --seed %" PRIu64,
             h->options.device, item->variant->name, config, item->dtype, item->layout, item->place,
             item->epilogue, dims[0], dims[1], dims[2], h->options.seed);
}

/* --- what is run --- */

static const char *draw(op_random *r, const char *fixed, const char *const *words)
{
    uint32_t count = 0;
    if (fixed != NULL) {
        return fixed;
    }
    while (words[count] != NULL) {
        count++;
    }
    return words[op_random_below(r, count)];
}

static void draw_words(const op_harness *h, op_random *r, op_item *item)
{
    item->dtype = draw(r, h->options.dtype, op_dtypes);
    item->layout = draw(r, h->options.layout, op_layouts);
    item->place = draw(r, h->options.place, op_places);
    item->epilogue = draw(r, h->options.epilogue, op_epilogues);
}

static gk_config *configs_on(const op_harness *h, const op_item *item, const int64_t *dims,
                             uint32_t *count)
{
    gk_tensor tensors[GK_MAX_ARGS];
    gk_call call;
    gk_problem problem;
    memset(&problem, 0, sizeof(problem));
    *count = 0;
    if (!op_harness_call(h, item, dims, tensors, &call) || h->op->infer(&call, &problem) != GK_OK) {
        return NULL;
    }
    return op_configs(item->variant, &problem, &h->device, true, count);
}

/* The configurations of the item's variant for its words on a shape with all axes long, and for a
 * variant that serves none such, on shapes with a short axis. */
static gk_config *configs_for(const op_harness *h, const op_item *item, uint32_t *count)
{
    static const int64_t long_axes[GK_MAX_DIMS] = {129, 127, 65};
    static const int64_t short_axes[][GK_MAX_DIMS] = {{2, 127, 65}, {9, 127, 65}};
    gk_config *all = configs_on(h, item, long_axes, count);
    if (*count > 0) {
        return all;
    }
    for (size_t i = 0; i < sizeof(short_axes) / sizeof(short_axes[0]); i++) {
        uint32_t more = 0;
        gk_config *configs = configs_on(h, item, short_axes[i], &more);
        gk_config *grown = realloc(all, (*count + more + 1) * sizeof(*all));
        if (configs != NULL && grown != NULL) {
            memcpy(grown + *count, configs, more * sizeof(*configs));
            *count += more;
        }
        all = grown != NULL ? grown : all;
        free(configs);
    }
    return all;
}

static bool parse_config(const gk_variant *variant, const char *text, gk_config *out)
{
    memset(out, 0, sizeof(*out));
    for (uint32_t i = 0; i < variant->n_params; i++) {
        const size_t length = strlen(variant->params[i].name);
        const char *p = text;
        while ((p = strstr(p, variant->params[i].name)) != NULL &&
               !((p == text || p[-1] == ' ') && p[length] == '=')) {
            p++;
        }
        if (p == NULL) {
            fprintf(stderr, "op_harness: --config lacks %s\n", variant->params[i].name);
            return false;
        }
        out->values[i] = (int32_t)strtol(p + length + 1, NULL, 10);
    }
    return true;
}

static const gk_variant *draw_variant(const op_harness *h, op_random *r)
{
    for (uint32_t i = 0; i < h->op->n_variants; i++) {
        if (h->options.variant != NULL &&
            strcmp(h->op->variants[i]->name, h->options.variant) == 0) {
            return h->op->variants[i];
        }
    }
    return h->options.variant != NULL ? NULL
                                      : h->op->variants[op_random_below(r, h->op->n_variants)];
}

/* `count` items with everything not given drawn at random. */
static uint32_t sample_items(const op_harness *h, uint32_t count, op_item *items)
{
    op_random r = {h->options.seed};
    uint32_t n = 0;
    for (uint32_t tries = 0; n < count && tries < 200 * count + 200; tries++) {
        op_item item;
        uint32_t n_configs;
        memset(&item, 0, sizeof(item));
        item.variant = draw_variant(h, &r);
        if (item.variant == NULL) {
            return 0;
        }
        draw_words(h, &r, &item);
        gk_config *configs = configs_for(h, &item, &n_configs);
        if (n_configs > 0) {
            item.config = configs[op_random_below(&r, n_configs)];
            items[n++] = item;
        }
        free(configs);
    }
    return n;
}

/* Every kernel of every variant and dtype, each with one draw of the other words. */
static uint32_t all_items(const op_harness *h, op_item **out)
{
    op_random r = {h->options.seed};
    uint32_t n = 0;
    *out = NULL;
    for (uint32_t v = 0; v < h->op->n_variants; v++) {
        if (h->options.variant != NULL &&
            strcmp(h->op->variants[v]->name, h->options.variant) != 0) {
            continue;
        }
        for (uint32_t d = 0; op_dtypes[d] != NULL; d++) {
            op_item item = {h->op->variants[v], {{0}}, op_dtypes[d], "nn", "wide", "none"};
            uint32_t count;
            if (h->options.dtype != NULL && strcmp(h->options.dtype, op_dtypes[d]) != 0) {
                continue;
            }
            gk_config *configs = configs_for(h, &item, &count);
            op_item *grown = realloc(*out, (n + count + 1) * sizeof(**out));
            if (grown == NULL) {
                free(configs);
                return 0;
            }
            *out = grown;
            for (uint32_t i = 0; i < count; i++) {
                do {
                    draw_words(h, &r, &item);
                    item.dtype = op_dtypes[d];
                    gk_tensor tensors[GK_MAX_ARGS];
                    gk_call call;
                    if (op_harness_call(h, &item, case_shapes[0], tensors, &call)) {
                        break;
                    }
                } while (h->options.epilogue == NULL);
                item.config = configs[i];
                (*out)[n++] = item;
            }
            free(configs);
        }
    }
    return n;
}

/* Halves the longest axis until no operand takes more than 64 MiB, 4 MiB on the CPU device. */
static void limit_dims(const op_harness *h, const op_item *item, int64_t *dims)
{
    for (;;) {
        gk_tensor tensors[GK_MAX_ARGS];
        gk_call call;
        int64_t largest = 0;
        uint32_t longest = 0;
        if (!op_harness_call(h, item, dims, tensors, &call)) {
            return;
        }
        for (uint32_t i = 0; i < h->op->n_args; i++) {
            const int64_t bytes = call.args[i] != NULL ? gk_tensor_extent(&tensors[i]) : 0;
            largest = bytes > largest ? bytes : largest;
        }
        for (uint32_t i = 1; i < h->op->n_dims; i++) {
            longest = dims[i] > dims[longest] ? i : longest;
        }
        if (largest <= (h->is_cpu ? 4 : 64) << 20 || dims[longest] <= 1) {
            return;
        }
        dims[longest] /= 2;
    }
}

static void run_item(work *w, uint32_t index)
{
    op_harness *h = w->h;
    const op_item *item = &w->items[index];
    op_random r = {h->options.seed + index};
    if (h->options.random > 0) {
        int64_t dims[GK_MAX_DIMS] = {0};
        for (uint32_t i = 0; i < h->op->n_dims; i++) {
            /* As many small sizes as large ones. */
            dims[i] = 1 + op_random_below(&r, 1u << (1 + op_random_below(&r, 11)));
        }
        limit_dims(h, item, dims);
        note(h, item, dims);
        op_harness_run(h, item, dims, true);
        return;
    }
    /* Packed operands have an alignment class, and so a kernel, for each shape: two will do. */
    const bool few = h->options.shapes == NULL && strcmp(item->place, "tight") == 0;
    const uint32_t first = few ? op_random_below(&r, w->n_shapes) : 0;
    for (uint32_t i = 0; i < (few && w->n_shapes > 2 ? 2 : w->n_shapes); i++) {
        if (atomic_load(&h->lost)) {
            return;
        }
        const int64_t *dims = w->shapes[(first + i) % w->n_shapes];
        note(h, item, dims);
        op_harness_run(h, item, dims, h->options.large);
    }
}

static void *worker(void *user)
{
    work *w = user;
    for (uint32_t i; !stopped && (i = atomic_fetch_add(&w->next, 1)) < w->n_items;) {
        if (atomic_load(&w->h->lost)) {
            break; /* what failed last says so */
        }
        run_item(w, i);
        atomic_fetch_add(&w->done, 1);
    }
    return NULL;
}

static void run_all(work *w)
{
    pthread_t threads[64];
    uint32_t started = 0;
    while (started + 1 < w->h->options.threads && started < 64 &&
           pthread_create(&threads[started], NULL, worker, w) == 0) {
        started++;
    }
    worker(w);
    for (uint32_t i = 0; i < started; i++) {
        pthread_join(threads[i], NULL);
    }
}

/* --- command line --- */

static bool parse_number(const char *text, uint64_t *out)
{
    char *end;
    if (text == NULL || *text < '0' || *text > '9') {
        return false;
    }
    errno = 0;
    *out = strtoull(text, &end, 10);
    return *end == '\0' && errno == 0;
}

/* "MxNxK,MxNxK" */
static bool parse_shapes(const char *text, uint32_t n_dims, work *w)
{
    if (text == NULL) {
        memcpy(w->shapes, case_shapes, sizeof(case_shapes));
        w->n_shapes = N_CASE_SHAPES;
        return true;
    }
    const char *p = text;
    for (;;) {
        if (w->n_shapes == MAX_SHAPES) {
            return false;
        }
        for (uint32_t i = 0; i < n_dims; i++) {
            char *end;
            errno = 0;
            if (*p < '0' || *p > '9') {
                return false;
            }
            w->shapes[w->n_shapes][i] = strtoll(p, &end, 10);
            if (errno != 0 || *end != (i + 1 < n_dims ? 'x' : (*end == ',' ? ',' : '\0'))) {
                return false;
            }
            p = *end != '\0' ? end + 1 : end;
        }
        w->n_shapes++;
        if (*p == '\0') {
            return true;
        }
    }
}

static const char usage[] =
    "usage: %s [--device cpu|cuda[:N]] [--op NAME] [--variant V] [--config 'NAME=value ..']\n"
    "  [--sample N | --all | --random N] [--seed S] [--shapes MxNxK,..] [--large] [--dtype D] "
    "[--layout L]\n"
    "  [--place wide|odd|tight] [--epilogue WORDS] [--threads N] [--shard K/N] [--verbose]\n";

static bool parse_flag(const char *flag, op_harness_options *o)
{
    if (strcmp(flag, "--all") == 0) {
        o->sample = 0;
        o->random = 0;
    } else if (strcmp(flag, "--large") == 0) {
        o->large = true;
    } else if (strcmp(flag, "--verbose") == 0) {
        o->verbose = true;
    } else {
        return false;
    }
    return true;
}

/* "K/N" */
static bool parse_shard(const char *value, op_harness_options *o)
{
    char *end = NULL;
    o->shard = value != NULL ? (uint32_t)strtoul(value, &end, 10) : 0;
    o->shards = end != NULL && *end == '/' ? (uint32_t)strtoul(end + 1, &end, 10) : 0;
    return o->shard >= 1 && o->shard <= o->shards && *end == '\0';
}

static bool parse_value(const char *flag, const char *value, op_harness_options *o)
{
    const struct {
        const char *name;
        const char **text;
    } texts[] = {{"--device", &o->device},   {"--op", &o->op},
                 {"--variant", &o->variant}, {"--config", &o->config},
                 {"--dtype", &o->dtype},     {"--layout", &o->layout},
                 {"--place", &o->place},     {"--epilogue", &o->epilogue},
                 {"--shapes", &o->shapes}};
    uint64_t number;
    if (strcmp(flag, "--shard") == 0) {
        return parse_shard(value, o);
    }
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        if (strcmp(flag, texts[i].name) == 0 && value != NULL) {
            *texts[i].text = value;
            return true;
        }
    }
    if (!parse_number(value, &number)) {
        return false;
    }
    if (strcmp(flag, "--seed") == 0) {
        o->seed = number;
    } else if (strcmp(flag, "--sample") == 0) {
        o->sample = (uint32_t)number;
        o->random = 0;
    } else if (strcmp(flag, "--random") == 0) {
        o->random = (uint32_t)number;
    } else if (strcmp(flag, "--threads") == 0) {
        o->threads = (uint32_t)number;
    } else {
        return false;
    }
    return true;
}

static bool parse_options(int argc, char **argv, op_harness_options *o)
{
    for (int i = 1; i < argc; i++) {
        if (parse_flag(argv[i], o)) {
            continue;
        }
        if (!parse_value(argv[i], i + 1 < argc ? argv[i + 1] : NULL, o)) {
            fprintf(stderr, usage, argv[0]);
            return false;
        }
        i++;
    }
    return true;
}

/* Every N-th item from the K-th on, so that a sweep can be run piece by piece. */
static void keep_shard(const op_harness *h, work *w)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < w->n_items; i++) {
        if (h->options.shards == 0 || i % h->options.shards == h->options.shard - 1) {
            w->items[kept++] = w->items[i];
        }
    }
    w->n_items = kept;
}

static bool choose_items(op_harness *h, work *w)
{
    const uint32_t count = h->options.random > 0 ? h->options.random : h->options.sample;
    if (h->options.config != NULL || count > 0) {
        const uint32_t wanted = count > 0 ? count : 1;
        w->items = calloc(wanted, sizeof(*w->items));
        w->n_items = w->items != NULL ? sample_items(h, wanted, w->items) : 0;
    } else {
        w->n_items = all_items(h, &w->items);
    }
    if (h->options.config != NULL && w->n_items > 0) {
        /* Exactly the one named. */
        w->n_items = 1;
        return parse_config(w->items[0].variant, h->options.config, &w->items[0].config);
    }
    keep_shard(h, w);
    return w->n_items > 0;
}

static int run(op_harness *h)
{
    work w;
    memset(&w, 0, sizeof(w));
    w.h = h;
    h->op = gk_op_find(h->options.op, NULL);
    if (h->op == NULL || !parse_shapes(h->options.shapes, h->op->n_dims, &w)) {
        fprintf(stderr, "op_harness: unknown --op %s, or bad --shapes\n", h->options.op);
        return 2;
    }
    if (!choose_items(h, &w)) {
        fprintf(stderr, "op_harness: nothing matches\n");
        free(w.items);
        return 2;
    }
    run_all(&w);
    free(w.items);
    gk_statistics stats = {.struct_size = sizeof(stats)};
    (void)gk_stats(h->ctx, &stats);
    const uint32_t done = atomic_load(&w.done);
    if (done < w.n_items) {
        printf("STOPPED: %u of %u kernels and operands were not run\n", w.n_items - done,
               w.n_items);
    }
    printf("%s on %s: %u kernels and operands, %" PRIuFAST64 " runs passed, %" PRIuFAST64
           " failed, %" PRIuFAST64 " configurations refused, %" PRIu64 " compiles\n",
           h->options.op, h->device.name, done, atomic_load(&h->passed), atomic_load(&h->failed),
           atomic_load(&h->refused), stats.compiles);
    return atomic_load(&h->failed) != 0 || atomic_load(&h->passed) == 0 || done < w.n_items;
}

int op_harness_main(int argc, char **argv, const op_harness_options *defaults)
{
    op_harness h;
    memset(&h, 0, sizeof(h));
    h.options = *defaults;
    if (!parse_options(argc, argv, &h.options)) {
        return 2;
    }
    signal(SIGSEGV, on_crash);
    signal(SIGBUS, on_crash);
    signal(SIGINT, on_stop);
    signal(SIGTERM, on_stop);
    h.is_cpu = strcmp(h.options.device, "cpu") == 0;
    const gk_context_options options = {
        .struct_size = sizeof(options), .cache_path = ":memory:", .mode = GK_MODE_HEURISTIC};
    const gk_status status = gk_context_create(&h.ctx, h.options.device, &options);
    if (status != GK_OK) {
        fprintf(stderr, "op_harness: %s: %s\n", gk_status_name(status), gk_error_last()->message);
        return status == GK_ERR_NO_DRIVER && getenv("GK_TEST_REQUIRE_GPU") == NULL ? 77 : 1;
    }
    (void)gk_device_info_get(h.ctx, &h.device);
    const int result = run(&h);
    gk_context_destroy(&h.ctx);
    return result;
}
