#define _GNU_SOURCE
#include "jit/template.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/alloc.h"
#include "base/env.h"
#include "base/error.h"
#include "base/fs.h"
#include "jit/jit.h"

static const char WHERE[] = "template";

enum { FILE_LIMIT = 4 << 20, PATH_SIZE = 4096 };

typedef struct text {
    const char *bytes;
    size_t size;
    char *owned; /* NULL if the bytes are the library's own */
} text;

/* One file while it is expanded. */
typedef struct reader {
    const char *name;
    const char *next;
    const char *end;
    uint32_t line;
    bool in_comment; /* the line begins inside a block comment */
} reader;

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r' || c == '\f' || c == '\v';
}

static bool is_word(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

/* Relative, below its root, and printable. */
static bool name_is_safe(const char *name)
{
    const size_t length = strlen(name);
    if (length == 0 || length >= GKI_TEMPLATE_NAME) {
        return false;
    }
    bool starts = true;
    for (size_t i = 0; i < length; i++) {
        const char c = name[i];
        if (starts ? !is_word(c) : !is_word(c) && c != '.' && c != '-' && c != '/') {
            return false;
        }
        starts = c == '/';
    }
    return !starts;
}

static const struct gki_template_file *find_embedded(const char *name)
{
    for (size_t i = 0; i < gki_template_file_count; i++) {
        if (strcmp(gki_template_files[i].name, name) == 0) {
            return &gki_template_files[i];
        }
    }
    return NULL;
}

/* The file's path if GK_TEMPLATE_DIR has it. */
static bool find_in_directory(const char *name, char path[PATH_SIZE])
{
    const char *directory = gki_env("GK_TEMPLATE_DIR");
    struct stat status;
    if (!directory || strlen(directory) + strlen(name) + 2 > PATH_SIZE) {
        return false;
    }
    char *p = stpcpy(path, directory);
    *p++ = '/';
    stpcpy(p, name);
    /* Whatever is there but cannot be read is an error later, not a reason to look elsewhere. */
    return stat(path, &status) == 0 || (errno != ENOENT && errno != ENOTDIR);
}

static bool exists(const char *name)
{
    char path[PATH_SIZE];
    return find_in_directory(name, path) || find_embedded(name) != NULL;
}

/* Reads a file that exists. */
static gk_status read_file(const char *name, text *out)
{
    char path[PATH_SIZE];
    memset(out, 0, sizeof *out);
    if (!find_in_directory(name, path)) {
        const struct gki_template_file *file = find_embedded(name);
        if (!file) {
            return gk_fail(GK_ERR_NOT_FOUND, WHERE,
                           "\"%s\" is neither in GK_TEMPLATE_DIR nor in the library", name);
        }
        out->bytes = (const char *)file->bytes;
        out->size = file->size;
        return GK_OK;
    }
    const gk_status status = gki_fs_read(path, FILE_LIMIT, &out->owned, &out->size);
    if (status != GK_OK) {
        return status;
    }
    if (memchr(out->owned, '\0', out->size)) {
        gki_free(out->owned);
        out->owned = NULL;
        return gk_fail(GK_ERR_COMPILE, WHERE, "%s holds a zero byte", path);
    }
    out->bytes = out->owned;
    return GK_OK;
}

/* For "cpu", gk/x.cuh means emu/x.cuh where that exists. */
static void substitute(const gki_expander *expander, const char *name, char out[GKI_TEMPLATE_NAME])
{
    const size_t length = strlen(name);
    if (strcmp(expander->driver, "cpu") == 0 && strncmp(name, "gk/", 3) == 0 && length > 7 &&
        strcmp(name + length - 4, ".cuh") == 0 && length + 1 < GKI_TEMPLATE_NAME) {
        (void)snprintf(out, GKI_TEMPLATE_NAME, "emu/%s", name + 3);
        if (exists(out)) {
            return;
        }
    }
    (void)snprintf(out, GKI_TEMPLATE_NAME, "%s", name);
}

/* Follows block comments, so that a directive inside one is left alone. */
static bool comment_after(const char *p, const char *end, bool in_comment)
{
    char quote = '\0';
    for (; p < end; p++) {
        const char following = p + 1 < end ? p[1] : '\0';
        if (in_comment) {
            if (*p == '*' && following == '/') {
                in_comment = false;
                p++;
            }
        } else if (quote) {
            if (*p == '\\') {
                p++;
            } else if (*p == quote) {
                quote = '\0';
            }
        } else if (*p == '"' || *p == '\'') {
            quote = *p;
        } else if (*p == '/' && following == '/') {
            return false;
        } else if (*p == '/' && following == '*') {
            in_comment = true;
            p++;
        }
    }
    return in_comment;
}

static const char *skip_blanks(const char *p, const char *end)
{
    while (p < end && is_blank(*p)) {
        p++;
    }
    return p;
}

/* If the line is `# directive`, what follows the word, else NULL. */
static const char *after_directive(const char *p, const char *end, const char *directive)
{
    const size_t length = strlen(directive);
    p = skip_blanks(p, end);
    if (p == end || *p != '#') {
        return NULL;
    }
    p = skip_blanks(p + 1, end);
    if ((size_t)(end - p) < length || memcmp(p, directive, length) != 0 ||
        (p + length < end && is_word(p[length]))) {
        return NULL;
    }
    return skip_blanks(p + length, end);
}

static bool is_pragma_once(const char *line, const char *end)
{
    const char *p = after_directive(line, end, "pragma");
    return p && end - p >= 4 && memcmp(p, "once", 4) == 0 && (p + 4 == end || !is_word(p[4]));
}

static bool is_done(const gki_expander *expander, const char *name)
{
    for (uint32_t i = 0; i < expander->n_done; i++) {
        if (strcmp(expander->done[i], name) == 0) {
            return true;
        }
    }
    return false;
}

static gk_status check_cycle(const gki_expander *expander, const char *name)
{
    for (uint32_t i = 0; i < expander->depth; i++) {
        if (strcmp(expander->open[i], name) != 0) {
            continue;
        }
        char chain[512];
        size_t used = 0;
        for (uint32_t j = i; j < expander->depth; j++) {
            const size_t length = strlen(expander->open[j]);
            if (used + length + 5 > sizeof chain) {
                break;
            }
            memcpy(chain + used, expander->open[j], length);
            memcpy(chain + used + length, " -> ", 4);
            used += length + 4;
        }
        chain[used] = '\0';
        return gk_fail(GK_ERR_COMPILE, WHERE, "include cycle: %s%s", chain, name);
    }
    return GK_OK;
}

static gk_status expand_file(gki_expander *expander, const char *name, gki_buf *out);

static gk_status expand_include(gki_expander *expander, const reader *in, const char *p,
                                const char *end, gki_buf *out)
{
    const unsigned line = in->line;
    char name[GKI_TEMPLATE_NAME];
    char file[GKI_TEMPLATE_NAME];
    if (p == end || *p != '"') {
        return gk_fail(GK_ERR_COMPILE, WHERE, "%s:%u: #include needs \"name\" in quotes", in->name,
                       line);
    }
    const char *close = memchr(p + 1, '"', (size_t)(end - p - 1));
    if (!close || close - p - 1 >= GKI_TEMPLATE_NAME) {
        return gk_fail(GK_ERR_COMPILE, WHERE,
                       "%s:%u: the #include's name is not closed, or longer than %d bytes",
                       in->name, line, GKI_TEMPLATE_NAME - 1);
    }
    memcpy(name, p + 1, (size_t)(close - p - 1));
    name[close - p - 1] = '\0';
    if (!name_is_safe(name)) {
        return gk_fail(GK_ERR_COMPILE, WHERE,
                       "%s:%u: #include \"%s\" does not stay inside the template directory",
                       in->name, line, name);
    }
    substitute(expander, name, file);
    gk_status status = check_cycle(expander, file);
    if (status != GK_OK) {
        return status;
    }
    if (is_done(expander, file)) {
        gki_buf_puts(out, "\n");
        return GK_OK;
    }
    if (!exists(file)) {
        return gk_fail(GK_ERR_COMPILE, WHERE,
                       "%s:%u: #include \"%s\" is neither in GK_TEMPLATE_DIR nor in the library",
                       in->name, line, name);
    }
    status = expand_file(expander, file, out);
    if (status == GK_OK) {
        gki_buf_printf(out, "#line %u \"%s\"\n", line + 1, in->name);
    }
    return status;
}

static gk_status expand_line(gki_expander *expander, reader *in, const char *line, const char *end,
                             gki_buf *out)
{
    const bool in_comment = in->in_comment;
    in->in_comment = comment_after(line, end, in_comment);
    if (!in_comment && is_pragma_once(line, end)) {
        gki_buf_puts(out, "\n");
        return GK_OK;
    }
    const char *included = in_comment ? NULL : after_directive(line, end, "include");
    const bool system = included && included < end && *included == '<';
    if (included && !system) {
        return expand_include(expander, in, included, end, out);
    }
    if (system && strcmp(expander->driver, "cpu") != 0) {
        return gk_fail(GK_ERR_COMPILE, WHERE,
                       "%s:%u: %.*s: no header but gk's own can be included, the compiler runs "
                       "without any",
                       in->name, in->line, (int)(end - included > 80 ? 80 : end - included),
                       included);
    }
    gki_buf_append(out, line, (size_t)(end - line));
    gki_buf_puts(out, "\n");
    return GK_OK;
}

static gk_status expand_file(gki_expander *expander, const char *name, gki_buf *out)
{
    if (expander->depth == GKI_TEMPLATE_MAX_DEPTH || expander->n_done == GKI_TEMPLATE_MAX_FILES) {
        return gk_fail(GK_ERR_COMPILE, WHERE,
                       "%s: includes nest more than %d deep, or are more than %d", name,
                       GKI_TEMPLATE_MAX_DEPTH, GKI_TEMPLATE_MAX_FILES);
    }
    text file;
    gk_status status = read_file(name, &file);
    if (status != GK_OK) {
        return status;
    }
    /* `name` may lie in the caller's frame or in the expander; both outlive the loop. */
    memcpy(expander->open[expander->depth++], name, strlen(name) + 1);
    memcpy(expander->done[expander->n_done++], name, strlen(name) + 1);
    reader in = {.name = name, .next = file.bytes, .end = file.bytes + file.size, .line = 1};
    gki_buf_printf(out, "#line 1 \"%s\"\n", name);
    while (in.next < in.end && status == GK_OK) {
        const char *line = in.next;
        const char *end = memchr(line, '\n', (size_t)(in.end - line));
        if (!end) {
            end = in.end;
        }
        in.next = end < in.end ? end + 1 : end;
        status = expand_line(expander, &in, line, end, out);
        in.line++;
    }
    expander->depth--;
    gki_free(file.owned);
    return status;
}

gk_status gki_template_append(gki_expander *expander, const char *file, gki_buf *out)
{
    char name[GKI_TEMPLATE_NAME];
    if (!name_is_safe(file)) {
        return gk_fail(GK_ERR_INVALID, WHERE,
                       "\"%.*s\" does not name a file inside the template directory",
                       GKI_TEMPLATE_NAME, file);
    }
    substitute(expander, file, name);
    if (is_done(expander, name)) {
        return GK_OK;
    }
    const gk_status status = expand_file(expander, name, out);
    if (status == GK_OK && out->failed) {
        return gki_fail_nomem(WHERE, out->capacity);
    }
    return status;
}

gk_status gki_template_expand(const char *file, const char *driver, char **out)
{
    gki_expander expander = {.driver = driver};
    gki_buf buf = {0};
    *out = NULL;
    const gk_status status = gki_template_append(&expander, file, &buf);
    if (status != GK_OK) {
        gki_buf_free(&buf);
        return status;
    }
    *out = buf.text;
    return GK_OK;
}
