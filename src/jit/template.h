/* Templates as text, and what the jit keeps of them. */
#ifndef GKI_TEMPLATE_H
#define GKI_TEMPLATE_H

#include <gk/base.h>

#include "base/str.h"

/* One file of kernel_templates/, embedded by tools/embed.py. */
struct gki_template_file {
    const char *name; /* "gk/prelude.cuh" */
    const unsigned char *bytes;
    size_t size;
    const char *sha256; /* 64 hexadecimal digits */
};

/* Sorted by name. */
extern const struct gki_template_file gki_template_files[];
extern const size_t gki_template_file_count;

enum { GKI_TEMPLATE_MAX_FILES = 64, GKI_TEMPLATE_MAX_DEPTH = 16, GKI_TEMPLATE_NAME = 96 };

/* One source in the making: which files are in it already. Zero-initialise, then set driver. */
typedef struct gki_expander {
    const char *driver; /* "cuda" or "cpu" */
    char done[GKI_TEMPLATE_MAX_FILES][GKI_TEMPLATE_NAME];
    uint32_t n_done;
    char open[GKI_TEMPLATE_MAX_DEPTH][GKI_TEMPLATE_NAME];
    uint32_t depth;
} gki_expander;

/*
 * Appends the file and what it includes, each file once, `#pragma once` dropped, `#line`
 * directives between, so that messages name the template's own lines. Includes are expanded
 * whatever conditionals surround them. For "cpu" a gk/x.cuh is replaced by emu/x.cuh if there is
 * one. Errors: GK_ERR_NOT_FOUND (the file itself), GK_ERR_INVALID (its name), GK_ERR_COMPILE (an
 * include that cannot be followed), GK_ERR_IO, GK_ERR_NOMEM.
 */
gk_status gki_template_append(gki_expander *expander, const char *file, gki_buf *out);

#endif
