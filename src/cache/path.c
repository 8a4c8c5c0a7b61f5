#define _POSIX_C_SOURCE 200809L
#include <errno.h>
#include <pwd.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/env.h"
#include "cache/cache.h"

/* False if it does not fit: a path cut short would name another file. */
static bool put(char *out, size_t size, const char *directory, const char *rest)
{
    int n = snprintf(out, size, "%s%s", directory, rest);
    return n >= 0 && (size_t)n < size;
}

/* The passwd entry's home directory, for programs that run without environment. */
static bool put_passwd_home(char *out, size_t size, const char *rest)
{
    size_t bytes = 16384;
    char *buffer = gki_alloc(bytes);
    struct passwd entry;
    struct passwd *found = NULL;
    bool ok = buffer != NULL && getpwuid_r(geteuid(), &entry, buffer, bytes, &found) == 0 &&
              found != NULL && found->pw_dir != NULL && found->pw_dir[0] == '/' &&
              put(out, size, found->pw_dir, rest);
    gki_free(buffer);
    return ok;
}

void gki_cache_default_path(char *out, size_t size)
{
    const char *file = gki_env("GK_CACHE");
    const char *xdg = gki_env("XDG_CACHE_HOME");
    const char *home = gki_env("HOME");
    bool found = false;
    if (file != NULL) {
        found = put(out, size, file, "");
    } else if (xdg != NULL && *xdg == '/') {
        found = put(out, size, xdg, "/gk/gk.db");
    } else if (home != NULL && *home == '/') {
        found = put(out, size, home, "/.cache/gk/gk.db");
    } else {
        found = put_passwd_home(out, size, "/.cache/gk/gk.db");
    }
    if (!found && size > 0) {
        out[0] = '\0';
    }
}
