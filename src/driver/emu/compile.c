#define _GNU_SOURCE
#include "driver/emu/compile.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/env.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/hash.h"
#include "base/proc.h"
#include "base/str.h"

enum {
    MAX_ARGS = 128,
    MAX_NAME = 256,
    MAX_CODE = 256 * 1024 * 1024,
};

static const double ASK_SECONDS = 30;
static const double COMPILE_SECONDS = 600;

/*
 * -ffp-contract=off and -fno-strict-aliasing: what NVRTC does with the same text, and results that
 * do not depend on the optimizer. -fsanitize=alignment: see emu/cuda_checks.cuh; its runtime is
 * left out by naming the libraries.
 */
static const char *const FIXED_FLAGS[] = {"-std=c++17",
                                          "-O1",
                                          "-fPIC",
                                          "-shared",
                                          "-fvisibility=hidden",
                                          "-w",
                                          "-ffp-contract=off",
                                          "-fno-strict-aliasing",
                                          "-fno-math-errno",
                                          "-fno-exceptions",
                                          "-fsanitize=alignment"};
static const char *const LIBRARIES[] = {"-nodefaultlibs", "-lm", "-lc", "-lgcc"};

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

static gk_status no_compiler(const gki_emu_compiler *compiler, const char *why)
{
    return gk_fail(GK_ERR_NO_COMPILER, "cpu device",
                   "the host C++ compiler \"%s\" ($GK_CXX, else c++) cannot be used: %s",
                   compiler->path, why);
}

/* What the process or its files reported, as the compiler's failure. */
static gk_status cannot_run(const gki_emu_compiler *compiler, gk_status status)
{
    gk_error error;
    gki_error_save(&error);
    if (status == GK_ERR_NOMEM) {
        return status;
    }
    return no_compiler(compiler, error.message);
}

/* First line of what the compiler answers to one option, "" if it refuses. */
static gk_status ask(const gki_emu_compiler *compiler, const char *option, char *out, size_t size)
{
    const char *argv[] = {compiler->path, option, NULL};
    gki_proc_result result = {0};
    out[0] = '\0';
    const gk_status status = gki_proc_run(argv, ASK_SECONDS, &result);
    if (status != GK_OK) {
        return cannot_run(compiler, status);
    }
    if (result.exit_code == 0 && result.output != NULL) {
        result.output[strcspn(result.output, "\r\n")] = '\0';
        gki_copy_text(out, size, result.output);
    }
    gki_free(result.output);
    return GK_OK;
}

static gk_status identify(gki_emu_compiler *compiler)
{
    char version[24];
    char machine[24];
    gk_status status = ask(compiler, "-dumpfullversion", version, sizeof version);
    if (status == GK_OK && version[0] == '\0') { /* Clang knows the older option only */
        status = ask(compiler, "-dumpversion", version, sizeof version);
    }
    if (status == GK_OK) {
        status = ask(compiler, "-dumpmachine", machine, sizeof machine);
    }
    if (status != GK_OK) {
        return status;
    }
    if (version[0] == '\0' || machine[0] == '\0') {
        return no_compiler(compiler, "it does not answer -dumpversion and -dumpmachine");
    }
    const char *slash = strrchr(compiler->path, '/');
    const char *name = slash != NULL ? slash + 1 : compiler->path;
    char flags[10] = "";
    const char *given = gki_env("GK_CXXFLAGS");
    if (given != NULL) {
        const gki_digest digest = gki_sha256(given, strlen(given));
        snprintf(flags, sizeof flags, " %02x%02x%02x%02x", digest.bytes[0], digest.bytes[1],
                 digest.bytes[2], digest.bytes[3]);
    }
    snprintf(compiler->identity, sizeof compiler->identity, "%.12s %.14s %.24s%s", name, version,
             machine, flags);
    return GK_OK;
}

/* Words, each ended by a NUL, and an empty one behind the last. */
static char *split_words(const char *text)
{
    char *words = gki_calloc(1, strlen(text) + 2);
    if (words == NULL) {
        return NULL;
    }
    size_t length = 0;
    for (const char *p = text; *p != '\0'; p++) {
        const bool blank = *p == ' ' || *p == '\t' || *p == '\n';
        if (!blank) {
            words[length++] = *p;
        } else if (length > 0 && words[length - 1] != '\0') {
            words[length++] = '\0';
        }
    }
    return words;
}

gk_status gki_emu_compiler_init(gki_emu_compiler *compiler)
{
    memset(compiler, 0, sizeof *compiler);
    const char *path = gki_env("GK_CXX");
    const char *flags = gki_env("GK_CXXFLAGS");
    compiler->path = gki_strdup(path != NULL ? path : "c++");
    compiler->flags = split_words(flags != NULL ? flags : "");
    if (compiler->path == NULL || compiler->flags == NULL) {
        gki_emu_compiler_free(compiler);
        return gki_fail_nomem("cpu device", flags != NULL ? strlen(flags) : 0);
    }
    const gk_status status = identify(compiler);
    if (status != GK_OK) {
        gki_emu_compiler_free(compiler);
    }
    return status;
}

void gki_emu_compiler_free(gki_emu_compiler *compiler)
{
    gki_free(compiler->path);
    gki_free(compiler->flags);
    memset(compiler, 0, sizeof *compiler);
}

/* One compilation's files, in a directory of its own. */
typedef struct paths {
    char dir[600];
    char source[640];
    char object[640];
} paths;

static gk_status make_paths(paths *out)
{
    const gk_status status = gki_fs_temp_dir(out->dir, sizeof out->dir);
    if (status != GK_OK) {
        return status;
    }
    snprintf(out->source, sizeof out->source, "%s/kernel.cpp", out->dir);
    snprintf(out->object, sizeof out->object, "%s/kernel.so", out->dir);
    return GK_OK;
}

/* The text under its kernel's name, which the compiler's messages and the device's errors show. */
static gk_status write_source(const paths *files, const char *source)
{
    static const char DEFINE[] = "#define GK_KERNEL_NAME ";
    char name[MAX_NAME] = "kernel";
    const char *define = strstr(source, DEFINE);
    if (define != NULL) {
        define += sizeof DEFINE - 1;
        const size_t length = strcspn(define, " \t\r\n\"\\");
        if (length > 0 && length < sizeof name) {
            memcpy(name, define, length);
            name[length] = '\0';
        }
    }
    gki_buf text = {0};
    gki_buf_printf(&text, "#line 1 \"%s.cu\"\n", name);
    gki_buf_puts(&text, source);
    gk_status status = GK_OK;
    if (text.failed) {
        status = gki_fail_nomem("cpu device", strlen(source));
    } else {
        status = gki_fs_write(files->source, text.text, text.length, 0600);
    }
    gki_buf_free(&text);
    return status;
}

static bool push_arg(const char **argv, size_t *n, const char *arg)
{
    if (*n + 1 >= MAX_ARGS) {
        return false;
    }
    argv[(*n)++] = arg;
    argv[*n] = NULL;
    return true;
}

static gk_status make_argv(const gki_emu_compiler *compiler, const paths *files, const char **argv)
{
    size_t n = 0;
    bool fits = push_arg(argv, &n, compiler->path);
    for (size_t i = 0; i < COUNT(FIXED_FLAGS); i++) {
        fits = fits && push_arg(argv, &n, FIXED_FLAGS[i]);
    }
    for (const char *word = compiler->flags; *word != '\0'; word += strlen(word) + 1) {
        fits = fits && push_arg(argv, &n, word);
    }
    fits = fits && push_arg(argv, &n, "-o") && push_arg(argv, &n, files->object) &&
           push_arg(argv, &n, files->source);
    for (size_t i = 0; i < COUNT(LIBRARIES); i++) {
        fits = fits && push_arg(argv, &n, LIBRARIES[i]);
    }
    if (!fits) {
        return gk_fail(GK_ERR_NO_COMPILER, "cpu device",
                       "$GK_CXXFLAGS makes more than %d compiler arguments", MAX_ARGS - 1);
    }
    return GK_OK;
}

/*
 * The line of the first error in the source: it stands at "file:line:", unlike the compiler's
 * complaints about itself or the system.
 */
static const char *find_source_error(const char *log)
{
    for (const char *p = strstr(log, "error: "); p != NULL; p = strstr(p + 1, "error: ")) {
        const char *start = p;
        while (start > log && start[-1] != '\n') {
            start--;
        }
        for (const char *q = start; q + 1 < p; q++) {
            if (q[0] == ':' && q[1] >= '0' && q[1] <= '9') {
                return start;
            }
        }
    }
    return NULL;
}

static gk_status report(const gki_emu_compiler *compiler, const gki_proc_result *result)
{
    const char *log = result->output != NULL ? result->output : "";
    const char *error = result->signal == 0 ? find_source_error(log) : NULL;
    char line[700];
    const char *text = error != NULL ? error : log;
    snprintf(line, sizeof line, "%.*s", (int)strcspn(text, "\n"), text);
    if (error != NULL) {
        return gk_fail(GK_ERR_COMPILE, "cpu device", "%s", line);
    }
    if (result->signal != 0) {
        snprintf(line, sizeof line, "it was ended by signal %d", result->signal);
    } else if (line[0] == '\0') {
        snprintf(line, sizeof line, "it ended with exit code %d", result->exit_code);
    }
    return no_compiler(compiler, line);
}

static gk_status run_compiler(const gki_emu_compiler *compiler, const paths *files,
                              gki_compiled *out)
{
    const char *argv[MAX_ARGS];
    gk_status status = make_argv(compiler, files, argv);
    if (status != GK_OK) {
        return status;
    }
    gki_proc_result result = {0};
    status = gki_proc_run(argv, COMPILE_SECONDS, &result);
    if (status != GK_OK) {
        return cannot_run(compiler, status);
    }
    if (result.exit_code != 0 || result.signal != 0) {
        status = report(compiler, &result);
    }
    out->log = result.output;
    return status;
}

gk_status gki_emu_compile(const gki_emu_compiler *compiler, const char *source, gki_compiled *out)
{
    memset(out, 0, sizeof *out);
    const uint64_t begin = gki_clock_ns();
    paths files;
    gk_status status = make_paths(&files);
    if (status != GK_OK) {
        return cannot_run(compiler, status);
    }
    status = write_source(&files, source);
    if (status != GK_OK) {
        status = cannot_run(compiler, status);
    } else {
        status = run_compiler(compiler, &files, out);
    }
    if (status == GK_OK) {
        char *code = NULL;
        status = gki_fs_read(files.object, MAX_CODE, &code, &out->size);
        status = status == GK_OK ? GK_OK : cannot_run(compiler, status);
        out->code = (unsigned char *)code;
    }
    gki_fs_remove_dir(files.dir);
    out->registers = -1;
    out->spill_bytes = -1;
    out->stack_bytes = -1;
    out->seconds = (double)(gki_clock_ns() - begin) * 1e-9;
    return status;
}
