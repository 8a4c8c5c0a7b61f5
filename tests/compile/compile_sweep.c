/*
 * Compiles what the renderer makes of every variant with the NVRTC that is installed; needs no GPU.
 * For each architecture and variant it samples configurations over the dtypes, layouts, alignments
 * and epilogues of the op's cases. Fails on a compile error, a warning, a register spill,
 * serialized wgmma, or an #include that is left in a source. Compile times are CPU times of one
 * thread, so that a busy machine does not lengthen them. Exit status 0, 1, 2 for usage, 77
 * without NVRTC.
 *
 *     compile_sweep [--arch sm_90a] [--op NAME] [--variant NAME] [--sample N] [--every-config]
 *                   [--all] [--seed N] [--threads N] [--list]
 * --every-config compiles each configuration once, --all for each class of problems.
 */
#define _GNU_SOURCE /* clock_gettime */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/alloc.h"
#include "base/rng.h"
#include "base/str.h"
#include "described_device.h"
#include "driver/cuda/nvrtc.h"
#include "jit/jit.h"
#include "op/op.h"
#include "support/case_call.h"
#include "support/parallel.h"

enum { MAX_CLASSES = 1024, MAX_TRIES = 4000 };

typedef struct options {
    const char *arch;
    const char *op;
    const char *variant;
    int64_t sample;
    int64_t seed;
    int64_t threads;
    bool all;
    bool every_config;
    bool list;
} options;

/* --- problem classes: what the source depends on --- */

typedef struct classes {
    gk_problem items[MAX_CLASSES];
    uint32_t n_items;
} classes;

static double volume(const gk_problem *problem)
{
    double product = 1;
    for (int i = 0; i < GK_MAX_DIMS; i++) {
        product *= problem->dims[i] > 0 ? (double)problem->dims[i] : 1;
    }
    return product;
}

static void append_class(classes *list, const gk_problem *problem)
{
    if (list->n_items == MAX_CLASSES) {
        (void)fprintf(stderr, "compile_sweep: more than %d problem classes\n", MAX_CLASSES);
        exit(1);
    }
    list->items[list->n_items++] = *problem;
}

/* How much longer the longest axis is than the others. */
static double elongation(const gk_problem *problem)
{
    double longest = 1;
    for (int i = 0; i < GK_MAX_DIMS; i++) {
        longest = (double)problem->dims[i] > longest ? (double)problem->dims[i] : longest;
    }
    return longest * longest / volume(problem);
}

static bool same_class(const gk_problem *a, const gk_problem *b)
{
    gk_problem other = *b;
    memcpy(other.dims, a->dims, sizeof(other.dims));
    return memcmp(a, &other, sizeof(other)) == 0;
}

/* Of problems that differ in their sizes only two are kept: the largest, for fewest configurations
 * are too large for it, and then the most elongated, for those that share a long axis. */
static void add_class(classes *list, const gk_problem *problem)
{
    gk_problem *largest = NULL;
    gk_problem *longest = NULL;
    for (uint32_t i = 0; i < list->n_items; i++) {
        if (same_class(&list->items[i], problem)) {
            longest = largest != NULL ? &list->items[i] : NULL;
            largest = largest != NULL ? largest : &list->items[i];
        }
    }
    if (largest == NULL) {
        append_class(list, problem);
        return;
    }
    gk_problem other = *problem;
    if (volume(problem) > volume(largest)) {
        other = *largest;
        *largest = *problem;
    }
    if (longest == NULL) {
        append_class(list, &other);
    } else if (elongation(&other) > elongation(longest)) {
        *longest = other;
    }
}

/* Optional arguments as the output has them, which every op must be able to serve. */
static void add_optional(const gk_op_desc *op, gk_problem *problem)
{
    uint32_t output = 0;
    while (output < op->n_args && op->args[output].is_output == 0) {
        output++;
    }
    for (uint32_t i = 0; i < op->n_args && output < GK_MAX_ARGS && i < GK_MAX_ARGS; i++) {
        if (op->args[i].optional != 0 && problem->dtype[i] == 0) {
            problem->dtype[i] = problem->dtype[output];
            problem->layout[i] = GK_LAYOUT_ROW;
            problem->align[i] = problem->align[output];
        }
    }
}

/* The case's problem with one attribute changed (attr < n_attrs), or with the optional arguments
 * present (attr == n_attrs), or as it is (attr > n_attrs). */
static void add_case(classes *list, const gk_op_desc *op, uint16_t op_index, const gk_case *item,
                     const gk_preset *preset, uint32_t attr, double value)
{
    gk_tensor tensors[GK_MAX_ARGS];
    gk_call call;
    gk_problem problem;
    memset(&problem, 0, sizeof(problem));
    problem.op = op_index;
    if (case_call(op, preset, item, tensors, &call) != GK_OK) {
        return;
    }
    if (attr < op->n_attrs) {
        call.attrs[attr] = value;
    }
    if (op->infer(&call, &problem) != GK_OK || op->is_empty(&problem)) {
        return; /* integers have no tf32, and the like */
    }
    if (attr == op->n_attrs) {
        add_optional(op, &problem);
    }
    add_class(list, &problem);
}

static void collect(classes *list, const gk_op_desc *op, uint16_t op_index)
{
    for (uint32_t c = 0; c < op->n_cases; c++) {
        const gk_case *item = &op->cases[c];
        add_case(list, op, op_index, item, NULL, op->n_attrs + 1, 0);
        for (uint32_t p = 0; p < op->n_presets; p++) {
            add_case(list, op, op_index, item, &op->presets[p], op->n_attrs + 1, 0);
        }
        /* The rest of the epilogue, once for each way operands can be given. */
        add_case(list, op, op_index, item, NULL, op->n_attrs, 0);
        for (uint32_t a = 0; a < op->n_attrs; a++) {
            const gk_attr_desc *attr = &op->attrs[a];
            uint32_t n = attr->in_identity == 0 ? 0 : attr->names != NULL ? attr->n_names : 2;
            for (uint32_t v = 0; v < n; v++) {
                add_case(list, op, op_index, item, NULL, a, v);
            }
        }
    }
}

/* Variants may look at the sizes, too: each class once more, with sizes that are not round. */
static void add_ragged(classes *list)
{
    for (uint32_t i = 0, n = list->n_items; i < n; i++) {
        gk_problem ragged = list->items[i];
        for (int d = 0; d < GK_MAX_DIMS; d++) {
            ragged.dims[d] -= ragged.dims[d] > 8 ? 4 : 0;
        }
        append_class(list, &ragged);
    }
}

/* --- jobs --- */

typedef struct job {
    const gk_op_desc *op;
    const gk_variant *variant;
    gki_jit *jit;
    const char *arch;
    const gk_problem *problem;
    gk_config config;
    gki_digest key;
    char kernel[128];
    char failure[600]; /* "" = compiled cleanly */
    double seconds;
    int32_t registers;
    int32_t stack_bytes;
} job;

typedef struct jobs {
    job *items;
    uint32_t n_items;
    uint32_t capacity;
} jobs;

static bool has_job(const jobs *list, uint32_t first, const gki_digest *key)
{
    for (uint32_t i = first; i < list->n_items; i++) {
        if (memcmp(&list->items[i].key, key, sizeof(*key)) == 0) {
            return true;
        }
    }
    return false;
}

/* Adds the job unless its source is there already (from item `first` on). */
static void add_job(jobs *list, uint32_t first, const job *candidate)
{
    gki_rendered rendered;
    job added = *candidate;
    if (gki_render(added.jit, added.op, added.variant, added.problem, &added.config, &rendered) !=
        GK_OK) {
        (void)snprintf(added.failure, sizeof(added.failure), "rendering: %.500s",
                       gk_error_last()->message);
        memset(&added.key, 0xff, sizeof(added.key));
    } else {
        added.key = rendered.key;
        memcpy(added.kernel, rendered.kernel, sizeof(added.kernel));
        gki_free(rendered.source);
    }
    if (has_job(list, first, &added.key)) {
        return;
    }
    if (list->n_items == list->capacity) {
        list->capacity = list->capacity > 0 ? list->capacity * 2 : 256;
        list->items = gki_realloc(list->items, list->capacity * sizeof(job));
        if (list->items == NULL) {
            (void)fprintf(stderr, "compile_sweep: out of memory\n");
            exit(1);
        }
    }
    list->items[list->n_items++] = added;
}

/* Each configuration for every class that it can serve, or for one of them, by turns. */
static void add_all(jobs *list, const classes *problems, job *base, bool one_each)
{
    const uint32_t first = list->n_items;
    gki_config_walk walk;
    uint32_t turn = 0;
    for (bool more = gki_config_first(&walk, base->variant); more;
         more = gki_config_next_kernel(&walk)) {
        base->config = walk.config;
        const uint32_t before = list->n_items;
        const uint32_t start = turn;
        for (uint32_t c = 0; c < problems->n_items && !(one_each && list->n_items > before); c++) {
            base->problem = &problems->items[(start + c) % problems->n_items];
            if (gki_config_serves(base->variant, base->problem, gki_jit_device(base->jit),
                                  &base->config, NULL)) {
                add_job(list, first, base);
                turn = start + c + 1;
            }
        }
    }
}

/* A random configuration for the problem; false if none was found. */
static bool draw(job *base, gki_rng *rng)
{
    for (int i = 0; i < MAX_TRIES; i++) {
        memset(&base->config, 0, sizeof(base->config));
        for (uint32_t p = 0; p < base->variant->n_params; p++) {
            const gk_param *param = &base->variant->params[p];
            uint64_t index = param->at_launch != 0 ? 0 : gki_rng_below(rng, param->n_values);
            base->config.values[p] = param->values[index];
        }
        if (gki_config_serves(base->variant, base->problem, gki_jit_device(base->jit),
                              &base->config, NULL)) {
            return true;
        }
    }
    return false;
}

/* Random classes, each at most once more often than any other. */
static void add_sample(jobs *list, const classes *problems, job *base, const options *opt,
                       gki_rng *rng)
{
    uint32_t first = list->n_items;
    uint32_t order[MAX_CLASSES];
    for (uint32_t i = 0; i < problems->n_items; i++) {
        order[i] = i;
    }
    for (uint32_t i = problems->n_items; i > 1; i--) {
        uint64_t other = gki_rng_below(rng, i);
        uint32_t swap = order[i - 1];
        order[i - 1] = order[other];
        order[other] = swap;
    }
    int64_t rounds = problems->n_items > 0 ? 4 * ((int64_t)problems->n_items + opt->sample) : 0;
    for (int64_t r = 0; r < rounds && list->n_items - first < opt->sample; r++) {
        base->problem = &problems->items[order[r % problems->n_items]];
        if (draw(base, rng)) {
            add_job(list, first, base);
        }
    }
}

/* CPU time of the calling thread, in which NVRTC does all its work. */
static double cpu_seconds(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static void compile_job(void *user, uint32_t index)
{
    job *j = &((jobs *)user)->items[index];
    gki_rendered rendered;
    gki_compiled code;
    if (j->failure[0] != '\0') {
        return;
    }
    if (gki_render(j->jit, j->op, j->variant, j->problem, &j->config, &rendered) != GK_OK) {
        (void)snprintf(j->failure, sizeof(j->failure), "rendering: %.500s",
                       gk_error_last()->message);
        return;
    }
    const double start = cpu_seconds();
    if (strstr(rendered.source, "#include") != NULL) {
        (void)snprintf(j->failure, sizeof(j->failure), "an #include is left in the source");
    } else if (gki_nvrtc_compile(j->arch, rendered.source, &code) != GK_OK) {
        (void)snprintf(j->failure, sizeof(j->failure), "%.500s", gk_error_last()->message);
        gki_free(code.log);
    } else {
        j->seconds = cpu_seconds() - start;
        j->registers = code.registers;
        j->stack_bytes = code.stack_bytes;
        if (code.spill_bytes != 0) {
            (void)snprintf(j->failure, sizeof(j->failure),
                           "spills: %d bytes stored and loaded at %d registers",
                           (int)code.spill_bytes, (int)code.registers);
        } else if (code.serialized) {
            (void)snprintf(j->failure, sizeof(j->failure), "wgmma is serialized");
        } else if (code.log != NULL && strstr(code.log, ": warning #") != NULL) {
            (void)snprintf(j->failure, sizeof(j->failure), "%.500s",
                           strstr(code.log, ": warning #"));
        }
        gki_free(code.code);
        gki_free(code.log);
    }
    gki_free(rendered.source);
}

/* --- report --- */

static int by_seconds(const void *a, const void *b)
{
    double x = ((const job *)a)->seconds;
    double y = ((const job *)b)->seconds;
    return (x > y) - (x < y);
}

static void print_problem(const job *j)
{
    char config[256];
    char problem[512];
    gki_config_text(j->variant, &j->config, config, sizeof(config));
    gki_problem_text(j->op, j->problem, problem, sizeof(problem));
    printf("    %s\n    %s\n", config, problem);
}

/* Reports the jobs of one architecture and variant; true if none failed. */
static bool report(job *items, uint32_t n, const options *opt)
{
    uint32_t failed = 0;
    int32_t registers = 0;
    int32_t stack = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (items[i].failure[0] != '\0') {
            failed++;
            printf("FAILED %s %s: %s\n", items[i].arch, items[i].kernel, items[i].failure);
            print_problem(&items[i]);
        } else if (opt->list) {
            printf("%s %s: %.0f ms, %d registers\n", items[i].arch, items[i].kernel,
                   items[i].seconds * 1e3, (int)items[i].registers);
        }
        registers = items[i].registers > registers ? items[i].registers : registers;
        stack = items[i].stack_bytes > stack ? items[i].stack_bytes : stack;
    }
    printf("%-8s %s/%s: ", items[0].arch, items[0].op->name, items[0].variant->name);
    qsort(items, n, sizeof(items[0]), by_seconds);
    printf("%u compiled, %u failed, median %.0f ms, worst %.0f ms (%s), at most %d registers, %d "
           "bytes of stack\n",
           (unsigned)n, (unsigned)failed, items[n / 2].seconds * 1e3, items[n - 1].seconds * 1e3,
           items[n - 1].kernel, (int)registers, (int)stack);
    (void)fflush(stdout);
    return failed == 0;
}

/* Compiles one variant for one architecture. *total counts the jobs. */
static bool sweep_variant(job *base, const classes *problems, const options *opt, gki_rng *rng,
                          uint64_t *total)
{
    jobs list = {NULL, 0, 0};
    if (opt->all || opt->every_config) {
        add_all(&list, problems, base, !opt->all);
    } else {
        add_sample(&list, problems, base, opt, rng);
    }
    bool ok = true;
    if (list.n_items > 0) {
        run_parallel((uint32_t)opt->threads, list.n_items, compile_job, &list);
        ok = report(list.items, list.n_items, opt);
    }
    *total += list.n_items;
    gki_free(list.items);
    return ok;
}

/* True if every variant of every op that is asked for compiles for the architecture. */
static bool sweep_arch(const arch *a, const options *opt, const gki_nvrtc_api *nvrtc,
                       uint64_t *total)
{
    static classes problems;
    described_device device = make_device(a, nvrtc);
    gki_counters counters = {0};
    const gki_jit_options jit_options = {
        .device = &device.base, .counters = &counters, .compile_threads = 1};
    gki_jit *jit = NULL;
    if (gki_jit_create(&jit, &jit_options) != GK_OK) {
        (void)fprintf(stderr, "compile_sweep: %s\n", gk_error_last()->message);
        return false;
    }
    bool ok = true;
    gki_rng rng;
    gki_rng_seed(&rng, (uint64_t)opt->seed * 1000 + (uint64_t)a->cc);
    const gk_op_desc *op;
    for (uint32_t i = 0; (op = gk_op_at(i)) != NULL; i++) {
        if (opt->op != NULL && strcmp(op->name, opt->op) != 0) {
            continue;
        }
        problems.n_items = 0;
        collect(&problems, op, (uint16_t)i);
        add_ragged(&problems);
        for (uint32_t v = 0; v < op->n_variants && problems.n_items > 0; v++) {
            const gk_variant *variant = op->variants[v];
            if ((opt->variant == NULL || strcmp(variant->name, opt->variant) == 0) &&
                variant->min_cc <= a->cc) {
                job base = {.op = op, .variant = variant, .jit = jit, .arch = a->name};
                ok = sweep_variant(&base, &problems, opt, &rng, total) && ok;
            }
        }
    }
    gki_jit_destroy(&jit);
    return ok;
}

static bool is_known(const gki_nvrtc_api *nvrtc, int32_t cc)
{
    for (uint32_t i = 0; i < nvrtc->n_archs; i++) {
        if (nvrtc->archs[i] == cc) {
            return true;
        }
    }
    return false;
}

static int usage(const char *why, const char *what)
{
    (void)fprintf(stderr,
                  "compile_sweep: %s %s\nusage: compile_sweep [--arch ARCH] [--op NAME] [--variant "
                  "NAME] [--sample N] [--every-config] [--all] [--seed N] [--threads N] [--list]\n",
                  why, what);
    return 2;
}

static int parse(int argc, char **argv, options *opt)
{
    for (int i = 1; i < argc; i++) {
        const struct {
            const char *name;
            const char **text;
            int64_t *number;
        } valued[] = {
            {"--arch", &opt->arch, NULL},       {"--op", &opt->op, NULL},
            {"--variant", &opt->variant, NULL}, {"--sample", NULL, &opt->sample},
            {"--seed", NULL, &opt->seed},       {"--threads", NULL, &opt->threads},
        };
        size_t n = sizeof(valued) / sizeof(valued[0]);
        size_t k = 0;
        while (k < n && strcmp(argv[i], valued[k].name) != 0) {
            k++;
        }
        if (strcmp(argv[i], "--all") == 0) {
            opt->all = true;
        } else if (strcmp(argv[i], "--every-config") == 0) {
            opt->every_config = true;
        } else if (strcmp(argv[i], "--list") == 0) {
            opt->list = true;
        } else if (k == n) {
            return usage("unknown option", argv[i]);
        } else if (i + 1 == argc) {
            return usage("no value after", argv[i]);
        } else if (valued[k].text != NULL) {
            *valued[k].text = argv[++i];
        } else if (!gki_parse_i64(argv[++i], valued[k].number) || *valued[k].number < 1 ||
                   *valued[k].number > 1000000) {
            return usage("not a number from 1 to 1000000:", argv[i]);
        }
    }
    return 0;
}

int main(int argc, char **argv)
{
    options opt = {.sample = 12, .seed = 1, .threads = 2};
    int rc = parse(argc, argv, &opt);
    if (rc != 0) {
        return rc;
    }
    const gki_nvrtc_api *nvrtc;
    if (gki_nvrtc_api_get(&nvrtc) != GK_OK) {
        (void)fprintf(stderr, "skipped: %s\n", gk_error_last()->message);
        return 77;
    }
    uint64_t total = 0;
    bool ok = true;
    bool matched = false;
    for (size_t i = 0; i < N_ARCHS; i++) {
        if (opt.arch != NULL && strcmp(opt.arch, archs[i].name) != 0) {
            continue;
        }
        matched = true;
        if (!is_known(nvrtc, archs[i].cc)) {
            printf("%-8s skipped: NVRTC %d.%d does not know it\n", archs[i].name, nvrtc->major,
                   nvrtc->minor);
            continue;
        }
        ok = sweep_arch(&archs[i], &opt, nvrtc, &total) && ok;
    }
    if (!matched || (total == 0 && ok)) {
        return usage("nothing matches", opt.arch != NULL ? opt.arch : "");
    }
    printf("%s: %llu kernels with NVRTC %d.%d\n", ok ? "ok" : "FAILED", (unsigned long long)total,
           nvrtc->major, nvrtc->minor);
    return ok ? 0 : 1;
}
