#define _GNU_SOURCE /* getline */
#include "cli.h"

#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

static const char *tool_name = "gk";

void cli_start(const char *tool)
{
    tool_name = tool;
    signal(SIGPIPE, SIG_IGN);
}

static volatile sig_atomic_t interrupted;

/* A tool that waits for a compiler or a kernel does not look at the mark: the next one ends it. */
static void on_interrupt(int number)
{
    (void)number;
    interrupted = 1;
    signal(SIGINT, SIG_DFL);
    signal(SIGTERM, SIG_DFL);
}

void cli_catch_interrupts(void)
{
    signal(SIGINT, on_interrupt);
    signal(SIGTERM, on_interrupt);
}

bool cli_interrupted(void)
{
    return interrupted != 0;
}

bool cli_go_on(void *user, const gk_tune_progress *progress)
{
    (void)user;
    (void)progress;
    return !cli_interrupted();
}

int cli_finish(int code)
{
    if (fflush(stdout) != 0 || ferror(stdout)) {
        fprintf(stderr, "%s: writing to standard output failed\n", tool_name);
        return code == 0 ? EXIT_SOME_FAILED : code;
    }
    return code;
}

int cli_error(int code, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fprintf(stderr, "%s: ", tool_name);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
    if (code == EXIT_USAGE) {
        fprintf(stderr, "%s: see %s --help\n", tool_name, tool_name);
    }
    return code;
}

int cli_gk_error(int code, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fprintf(stderr, "%s: ", tool_name);
    vfprintf(stderr, format, args);
    fprintf(stderr, ": %s (%s)\n", gk_error_last()->message,
            gk_status_name(gk_error_last()->status));
    va_end(args);
    return code;
}

/* Digits only, so that neither a sign, a blank nor a suffix passes. */
static bool parse_count(const char *text, size_t length, int64_t *out)
{
    int64_t value = 0;
    if (length == 0) {
        return false;
    }
    for (size_t i = 0; i < length; i++) {
        if (text[i] < '0' || text[i] > '9' || __builtin_mul_overflow(value, (int64_t)10, &value) ||
            __builtin_add_overflow(value, (int64_t)(text[i] - '0'), &value)) {
            return false;
        }
    }
    if (value > (INT64_C(1) << 62)) {
        return false;
    }
    *out = value;
    return true;
}

bool cli_parse_shape(const gk_op_desc *op, const char *text, int64_t *dims)
{
    const char *at = text;
    for (uint32_t i = 0; i < op->n_dims; i++) {
        const char *end = strchr(at, 'x');
        if (end == NULL || i + 1 == op->n_dims) {
            end = at + strlen(at);
        }
        int64_t value;
        if (!parse_count(at, (size_t)(end - at), &value)) {
            cli_error(EXIT_USAGE, "\"%s\" is no shape: %s is \"%.*s\", expected a number", text,
                      op->dim_names[i], (int)(end - at), at);
            return false;
        }
        if (*end == '\0' && i + 1 < op->n_dims) {
            cli_error(EXIT_USAGE, "\"%s\" is no shape: it has %u numbers, %s has %u", text, i + 1,
                      op->name, op->n_dims);
            return false;
        }
        dims[i] = value;
        at = end + 1;
    }
    return true;
}

bool cli_parse_number(const char *option, const char *text, double low, double high, double *out)
{
    char *end;
    errno = 0;
    double value = strtod(text, &end);
    if (end == text || *end != '\0' || errno != 0 || !(value >= low && value <= high)) {
        cli_error(EXIT_USAGE, "%s is \"%s\", expected a number from %g to %g", option, text, low,
                  high);
        return false;
    }
    *out = value;
    return true;
}

bool cli_parse_integer(const char *option, const char *text, double low, double high, double *out)
{
    double value;
    if (!cli_parse_number(option, text, low, high, &value)) {
        return false;
    }
    if (value != floor(value)) {
        cli_error(EXIT_USAGE, "%s is \"%s\", expected a whole number", option, text);
        return false;
    }
    *out = value;
    return true;
}

static cli_problem *add_problem(cli_problems *out)
{
    cli_problem *grown = realloc(out->items, (out->count + 1) * sizeof(*grown));
    if (grown == NULL) {
        cli_error(EXIT_SOME_FAILED, "out of memory");
        return NULL;
    }
    out->items = grown;
    memset(&grown[out->count], 0, sizeof(*grown));
    return &grown[out->count++];
}

/* path: of the file with the problem's line; NULL = the command line. */
static bool set_words(cli_problem *problem, const char *path, const char *dtype, const char *layout)
{
    if (strlen(dtype) < sizeof(problem->dtype) && strlen(layout) < sizeof(problem->layout)) {
        snprintf(problem->dtype, sizeof(problem->dtype), "%s", dtype);
        snprintf(problem->layout, sizeof(problem->layout), "%s", layout);
        return true;
    }
    char place[512] = "";
    if (path != NULL) {
        snprintf(place, sizeof(place), "%s:%u: ", path, problem->line);
    }
    cli_error(EXIT_USAGE, "%sdtype is \"%s\" and layout is \"%s\", expected short words", place,
              dtype, layout);
    return false;
}

static bool add_line(const gk_op_desc *op, const char *path, unsigned number, char *line,
                     cli_problems *out)
{
    char *words[3 + GK_MAX_DIMS];
    size_t n_words = 0;
    char *state = NULL;
    for (char *word = strtok_r(line, " \t\r\n", &state); word != NULL && *word != '#';
         word = strtok_r(NULL, " \t\r\n", &state)) {
        if (n_words < 3 + GK_MAX_DIMS) {
            words[n_words] = word;
        }
        n_words++;
    }
    if (n_words == 0) {
        return true;
    }
    if (n_words != (size_t)2 + op->n_dims) {
        cli_error(EXIT_USAGE, "%s:%u has %zu words, expected dtype, layout and %u numbers", path,
                  number, n_words, op->n_dims);
        return false;
    }
    cli_problem *problem = add_problem(out);
    if (problem == NULL) {
        return false;
    }
    problem->line = number;
    if (!set_words(problem, path, words[0], words[1])) {
        return false;
    }
    for (uint32_t i = 0; i < op->n_dims; i++) {
        if (!parse_count(words[2 + i], strlen(words[2 + i]), &problem->item.dims[i])) {
            cli_error(EXIT_USAGE, "%s:%u: %s is \"%s\", expected a number", path, number,
                      op->dim_names[i], words[2 + i]);
            return false;
        }
    }
    return true;
}

static bool add_file(const gk_op_desc *op, const char *path, cli_problems *out)
{
    FILE *file = fopen(path, "r");
    if (file == NULL) {
        cli_error(EXIT_USAGE, "--shapes %s: %s", path, strerror(errno));
        return false;
    }
    char *line = NULL;
    size_t room = 0;
    ssize_t length;
    bool good = true;
    errno = 0;
    for (unsigned number = 1; good && (length = getline(&line, &room, file)) >= 0; number++) {
        if (strlen(line) != (size_t)length) {
            cli_error(EXIT_USAGE, "%s:%u holds a NUL byte, expected text", path, number);
            good = false;
        } else {
            good = add_line(op, path, number, line, out);
        }
    }
    if (good && !feof(file)) {
        cli_error(EXIT_USAGE, "--shapes %s: %s", path, strerror(errno));
        good = false;
    }
    free(line);
    fclose(file);
    return good;
}

const gk_op_desc *cli_op(const char *name, const gk_preset **preset)
{
    const gk_op_desc *op = gk_op_find(name, preset);
    if (op == NULL) {
        cli_error(EXIT_USAGE, "there is no op \"%s\"", name);
    }
    return op;
}

cli_problem *cli_add(const cli_options *options, cli_problems *out)
{
    cli_problem *problem = add_problem(out);
    return problem != NULL && set_words(problem, NULL, options->dtype, options->layout) ? problem
                                                                                        : NULL;
}

static bool collect_all(const cli_options *options, int n_shapes, char **shapes, cli_problems *out)
{
    for (int i = 0; i < n_shapes; i++) {
        cli_problem *problem = cli_add(options, out);
        if (problem == NULL || !cli_parse_shape(out->op, shapes[i], problem->item.dims)) {
            return false;
        }
    }
    if (options->shapes_file != NULL && !add_file(out->op, options->shapes_file, out)) {
        return false;
    }
    if (out->count == 0) {
        cli_error(EXIT_USAGE, "no shape is given");
    }
    return out->count > 0 && cli_check(options, out);
}

static bool is_understood(const cli_problems *problems, const cli_problem *problem)
{
    gk_tensor tensors[GK_MAX_ARGS];
    gk_call call;
    gk_problem inferred;
    memset(tensors, 0, sizeof(tensors));
    memset(&inferred, 0, sizeof(inferred));
    return cli_call(problems->op, problems->preset, problem, tensors, &call) == GK_OK &&
           problems->op->infer(&call, &inferred) == GK_OK;
}

/* A problem that is understood with every size 1 is not wrong in its words. */
static bool check_words(const cli_options *options, const cli_problems *problems,
                        const cli_problem *problem)
{
    if (is_understood(problems, problem)) {
        return true;
    }
    const gk_error error = *gk_error_last();
    cli_problem least = *problem;
    for (uint32_t i = 0; i < problems->op->n_dims; i++) {
        least.item.dims[i] = 1;
    }
    if (is_understood(problems, &least)) {
        return true;
    }
    if (problem->line > 0) {
        cli_error(EXIT_USAGE, "%s:%u: %s", options->shapes_file, problem->line, error.message);
    } else {
        cli_error(EXIT_USAGE, "%s", error.message);
    }
    return false;
}

bool cli_check(const cli_options *options, cli_problems *problems)
{
    const bool takes_text = problems->op->text_name != NULL &&
                            (problems->preset == NULL || problems->preset->text == NULL);
    if (options->text != NULL && !takes_text) {
        cli_error(EXIT_USAGE, "--text is \"%s\", but %s takes none", options->text,
                  problems->preset != NULL ? problems->preset->name : problems->op->name);
        return false;
    }
    for (size_t i = 0; i < problems->count; i++) {
        cli_problem *problem = &problems->items[i];
        problem->item.dtype = problem->dtype;
        problem->item.layout = problem->layout;
        problem->text = options->text;
        if (!check_words(options, problems, problem)) {
            return false;
        }
    }
    return true;
}

bool cli_collect(const cli_options *options, int argc, char **argv, cli_problems *out)
{
    memset(out, 0, sizeof(*out));
    if (argc < 1) {
        cli_error(EXIT_USAGE, "no op is given");
        return false;
    }
    out->op = cli_op(argv[0], &out->preset);
    if (out->op == NULL) {
        return false;
    }
    if (!collect_all(options, argc - 1, argv + 1, out)) {
        free(out->items);
        return false;
    }
    return true;
}

void cli_problem_name(const gk_op_desc *op, const cli_problem *problem, char *out, size_t size)
{
    int at = snprintf(out, size, "%s %s ", problem->dtype, problem->layout);
    for (uint32_t i = 0; i < op->n_dims && at >= 0 && (size_t)at < size; i++) {
        at += snprintf(out + at, size - (size_t)at, i == 0 ? "%lld" : "x%lld",
                       (long long)problem->item.dims[i]);
    }
}

gk_status cli_call(const gk_op_desc *op, const gk_preset *preset, const cli_problem *problem,
                   gk_tensor *tensors, gk_call *call)
{
    memset(call, 0, sizeof(*call));
    for (uint32_t i = 0; i < op->n_attrs; i++) {
        call->attrs[i] = op->attrs[i].default_value;
    }
    call->text = op->text_name != NULL ? problem->text : NULL;
    gk_preset_apply(preset, call);
    gk_status status = op->example(&problem->item, tensors, call);
    for (uint32_t i = 0; i < op->n_args; i++) {
        tensors[i].data = (void *)((uintptr_t)(i + 1) << 44);
    }
    return status;
}

static void log_to_stderr(void *user, gk_log_level level, const char *line)
{
    (void)user;
    (void)level;
    fprintf(stderr, "%s\n", line);
}

gk_status cli_context(const cli_options *options, gk_context_options *context_options,
                      gk_context **out)
{
    context_options->cache_path = options->cache;
    context_options->log = log_to_stderr;
    context_options->log_level = options->verbose ? GK_LOG_DEBUG : GK_LOG_WARNING;
    return gk_context_create(out, options->device, context_options);
}

bool cli_is_empty(const gk_op_desc *op, const gk_call *call)
{
    gk_problem problem;
    memset(&problem, 0, sizeof(problem));
    return op->infer(call, &problem) == GK_OK && op->is_empty(&problem);
}

bool cli_temp_folder(char *out, size_t size)
{
    const char *given = secure_getenv("TMPDIR");
    const char *parent = given != NULL && given[0] != '\0' ? given : "/tmp";
    const int length = snprintf(out, size, "%s/gk-bench-XXXXXX", parent);
    if (length < 0 || (size_t)length >= size) {
        errno = ENAMETOOLONG;
    } else if (mkdtemp(out) != NULL) {
        return true;
    }
    gk_fail(GK_ERR_IO, "bench", "cannot create a directory in %s: %s", parent, strerror(errno));
    return false;
}

static int ascending(const void *a, const void *b)
{
    const double x = *(const double *)a;
    const double y = *(const double *)b;
    return (x > y) - (x < y);
}

double cli_quantile(double *values, size_t count, double q)
{
    qsort(values, count, sizeof(*values), ascending);
    const size_t at = (size_t)(q * (double)count);
    return values[at < count ? at : count - 1];
}

void cli_format_time(double seconds, char *out, size_t size)
{
    if (!(seconds > 0)) {
        snprintf(out, size, "-");
    } else if (seconds < 1e-3) {
        snprintf(out, size, "%.2f us", seconds * 1e6);
    } else if (seconds < 1) {
        snprintf(out, size, "%.4f ms", seconds * 1e3);
    } else {
        snprintf(out, size, "%.3f s", seconds);
    }
}
