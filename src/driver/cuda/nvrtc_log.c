#include <ctype.h>
#include <string.h>

#include "base/str.h"
#include "driver/cuda/nvrtc.h"

enum { MAX_LINE = 512 };

/* Copies the next line without its newline; false at the end of the log. */
static bool next_line(const char **cursor, char *out, size_t size)
{
    const char *start = *cursor;
    if (*start == '\0') {
        return false;
    }
    size_t length = strcspn(start, "\n");
    *cursor = start + length + (start[length] == '\n' ? 1 : 0);
    size_t kept = length < size - 1 ? length : size - 1;
    memcpy(out, start, kept);
    out[kept] = '\0';
    return true;
}

/* The number that stands before `phrase`, as in "32 registers"; false if the line has none. */
static bool number_before(const char *line, const char *phrase, int32_t *out)
{
    const char *at = strstr(line, phrase);
    if (at == NULL) {
        return false;
    }
    const char *digit = at;
    while (digit > line && isdigit((unsigned char)digit[-1])) {
        digit--;
    }
    if (digit == at || at - digit > 9) {
        return false;
    }
    int32_t value = 0;
    for (; digit < at; digit++) {
        value = value * 10 + (*digit - '0');
    }
    *out = value;
    return true;
}

static int32_t larger(int32_t a, int32_t b)
{
    return a > b ? a : b;
}

void gki_nvrtc_read_log(const char *log, gki_compiled *out)
{
    out->registers = -1;
    out->spill_bytes = -1;
    out->stack_bytes = 0;
    out->serialized = false;
    char line[MAX_LINE];
    while (next_line(&log, line, sizeof(line))) {
        int32_t value;
        if (number_before(line, " registers", &value)) {
            out->registers = larger(out->registers, value);
        }
        if (number_before(line, " bytes stack frame", &value)) {
            out->stack_bytes = larger(out->stack_bytes, value);
        }
        /* A function that was not inlined has a line of its own. */
        if (number_before(line, " bytes spill stores", &value)) {
            out->spill_bytes = larger(out->spill_bytes, 0) + value;
        }
        if (number_before(line, " bytes spill loads", &value)) {
            out->spill_bytes = larger(out->spill_bytes, 0) + value;
        }
        if (strstr(line, "serialized") != NULL) {
            out->serialized = true;
        }
    }
}

/* "k.cu(3): error: ..", "ptxas .. error   : ..", "ptxas fatal   : .." */
static bool is_error_line(const char *line)
{
    static const char *const words[] = {"error", "fatal"};
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        const char *at = line;
        while ((at = strstr(at, words[i])) != NULL) {
            const char *after = at + strlen(words[i]);
            after += strspn(after, " ");
            if ((at == line || at[-1] == ' ') && (*after == ':' || *after == '#')) {
                return true;
            }
            at++;
        }
    }
    return false;
}

void gki_nvrtc_first_error(const char *log, char *out, size_t size)
{
    char line[MAX_LINE];
    const char *cursor = log;
    while (next_line(&cursor, line, sizeof(line))) {
        if (is_error_line(line)) {
            gki_copy_text(out, size, line);
            return;
        }
    }
    cursor = log;
    if (!next_line(&cursor, line, sizeof(line))) {
        line[0] = '\0';
    }
    gki_copy_text(out, size, line);
}
