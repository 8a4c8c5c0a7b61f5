/* What the command-line tools share: shapes, options, tables, JSON lines. */
#ifndef CLI_H
#define CLI_H

#include <stdio.h>

#include <gk/gk.h>

enum { EXIT_SOME_FAILED = 1, EXIT_USAGE = 2 };

/* One problem of the command line. */
typedef struct cli_problem {
    gk_case item;
    char dtype[24];
    char layout[8];
    const char *text; /* of an op that takes one; NULL = as its cases have it */
    unsigned line;    /* of the shapes file; 0 if it is not from there */
} cli_problem;

typedef struct cli_problems {
    const gk_op_desc *op;
    const gk_preset *preset; /* NULL if the op was named itself */
    cli_problem *items;      /* freed with free() */
    size_t count;
} cli_problems;

/* Options that several tools take. */
typedef struct cli_options {
    const char *device;
    const char *cache;
    const char *dtype;
    const char *layout;
    const char *shapes_file;
    const char *text;
    bool json;
    bool verbose;
} cli_options;

/* Prints "tool: message" and, for usage errors, where help is. Returns `code`. */
int cli_error(int code, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* The same with gk's last error behind the message. */
int cli_gk_error(int code, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Names the tool for messages and ignores SIGPIPE, so that a reader that closes early is seen as a
 * failed write and not as a death. */
void cli_start(const char *tool);
/* From now on the first SIGINT or SIGTERM sets a mark; the next one ends the tool. */
void cli_catch_interrupts(void);
bool cli_interrupted(void);
/* A gk_tune_progress_fn: a tuning ends with the interrupt. */
bool cli_go_on(void *user, const gk_tune_progress *progress);
/* Flushes stdout; EXIT_SOME_FAILED if anything written to it was lost. */
int cli_finish(int code);

/* "4096x4096x64" for an op of n dims: false (with a message) for anything but n numbers from 0 to
 * 2^62. */
bool cli_parse_shape(const gk_op_desc *op, const char *text, int64_t *dims);
bool cli_parse_number(const char *option, const char *text, double low, double high, double *out);
/* The same for a whole number. */
bool cli_parse_integer(const char *option, const char *text, double low, double high, double *out);
/* The op that argv begins with and its shapes: the rest of argv, then the file's ("dtype layout M N
 * K" a line, # comments). False, with a message, if there is no such op, a shape, dtype, layout or
 * the text is wrong, or no shape is given. */
bool cli_collect(const cli_options *options, int argc, char **argv, cli_problems *out);
/* One more problem of the options' dtype and layout, its sizes 0; NULL, with a message, on failure.
 */
cli_problem *cli_add(const cli_options *options, cli_problems *out);
/* Gives the problems their words. False, with a message, if the op does not understand them; a
 * shape that is too large is no matter of words. */
bool cli_check(const cli_options *options, cli_problems *problems);
/* An op's or a preset's name; NULL, with a message, if it is neither. */
const gk_op_desc *cli_op(const char *name, const gk_preset **preset);
/* "bf16 nn 4096x4096x4096" */
void cli_problem_name(const gk_op_desc *op, const cli_problem *problem, char *out, size_t size);
/* Tensors and call for the problem, with made-up distinct addresses in place of data. */
gk_status cli_call(const gk_op_desc *op, const gk_preset *preset, const cli_problem *problem,
                   gk_tensor *tensors, gk_call *call);

/* Is nothing to be computed? */
bool cli_is_empty(const gk_op_desc *op, const gk_call *call);

enum { CLI_MAX_FOLDER = 512 };
/* A new folder under $TMPDIR or /tmp, for its owner alone; false, with gk's last error set, if it
 * cannot be made. */
bool cli_temp_folder(char *out, size_t size);

/* A context with the options' device and cache; messages go to stderr. */
gk_status cli_context(const cli_options *options, gk_context_options *context_options,
                      gk_context **out);

/* One JSON object a line. */
typedef struct cli_json cli_json;
cli_json *cli_json_begin(void);
void cli_json_text(cli_json *json, const char *name, const char *value);
void cli_json_number(cli_json *json, const char *name, double value);
void cli_json_bool(cli_json *json, const char *name, bool value);
void cli_json_end(cli_json *json, FILE *out);

/* The value below which a share q of the values lies, 0.5 the median. Sorts them. */
double cli_quantile(double *values, size_t count, double q);

/* "12.3 us" */
void cli_format_time(double seconds, char *out, size_t size);

#endif
