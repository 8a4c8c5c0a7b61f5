#define _GNU_SOURCE
#include "cache/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/str.h"

enum { LOCK_WAIT_MS = 5000, LOCK_PAUSE_MS = 2 };

static const char *const sidecars[] = {"-wal", "-shm", "-journal"};
enum { N_SIDECARS = sizeof sidecars / sizeof sidecars[0] };

static bool refuse(char why[GKI_WHY_BYTES], const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static bool refuse(char why[GKI_WHY_BYTES], const char *format, ...)
{
    char text[256];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    gki_copy_text(why, GKI_WHY_BYTES, text);
    return false;
}

static bool join(char out[GKI_PATH_BYTES], const char *a, const char *b)
{
    int n = snprintf(out, GKI_PATH_BYTES, "%s%s", a, b);
    return n >= 0 && n < GKI_PATH_BYTES;
}

/* The directory's real path and the name in it, for a file that may not be there yet. */
static bool resolve_new(gki_cache_file *file, const char *path, char why[GKI_WHY_BYTES])
{
    char parent[GKI_PATH_BYTES];
    char real[GKI_PATH_BYTES];
    const char *slash = strrchr(path, '/');
    const char *name = slash != NULL ? slash + 1 : path;
    size_t length = slash == NULL ? 0 : slash == path ? 1 : (size_t)(slash - path);
    if (*name == '\0' || strcmp(name, ".") == 0 || strcmp(name, "..") == 0) {
        return refuse(why, "it names a directory");
    }
    if (length >= sizeof parent) {
        return refuse(why, "its path is longer than %d bytes", GKI_PATH_BYTES - 1);
    }
    memcpy(parent, path, length);
    parent[length] = '\0';
    if (length == 0) {
        memcpy(parent, ".", 2);
    }
    if (gki_fs_mkdirs(parent) != GK_OK) {
        return refuse(why, "%s", gk_error_last()->message);
    }
    if (realpath(parent, real) == NULL) {
        return refuse(why, "cannot resolve its directory: %s", strerror(errno));
    }
    const char *separator = strcmp(real, "/") == 0 ? "" : "/";
    int n = snprintf(file->path, sizeof file->path, "%s%s%s", real, separator, name);
    if (n < 0 || (size_t)n >= sizeof file->path) {
        return refuse(why, "its path is longer than %d bytes", GKI_PATH_BYTES - 1);
    }
    return true;
}

bool gki_file_resolve(gki_cache_file *file, const char *path, char why[GKI_WHY_BYTES])
{
    *file = (gki_cache_file){0};
    if (realpath(path, file->path) == NULL && !resolve_new(file, path, why)) {
        return false;
    }
    memcpy(file->directory, file->path, sizeof file->path);
    char *slash = strrchr(file->directory, '/');
    slash[slash == file->directory ? 1 : 0] = '\0';
    /* Room for the sidecars' and temporary names. */
    if (strlen(file->path) + 64 >= GKI_PATH_BYTES) {
        return refuse(why, "its path is longer than %d bytes", GKI_PATH_BYTES - 64);
    }
    return true;
}

int gki_file_lock(const gki_cache_file *file)
{
    int fd = open(file->directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) {
        return -1;
    }
    for (int waited = 0; flock(fd, LOCK_EX | LOCK_NB) != 0; waited += LOCK_PAUSE_MS) {
        if ((errno != EWOULDBLOCK && errno != EINTR) || waited >= LOCK_WAIT_MS) {
            (void)close(fd);
            return -1;
        }
        gki_clock_sleep_ms(LOCK_PAUSE_MS);
    }
    return fd;
}

void gki_file_unlock(int lock)
{
    if (lock >= 0) {
        /* A child forked meanwhile shares the lock: closing alone would leave it held. */
        (void)flock(lock, LOCK_UN);
        (void)close(lock);
    }
}

/* The file holds code that will be run: nobody else may have written it. */
static bool is_ours(const struct stat *info, const char *what, char why[GKI_WHY_BYTES])
{
    if (info->st_uid != geteuid() && info->st_uid != 0) {
        return refuse(why, "%s belongs to user %ld, not to %ld", what, (long)info->st_uid,
                      (long)geteuid());
    }
    /* In a sticky directory others cannot replace our file; theirs are refused one by one. */
    bool sticky = S_ISDIR(info->st_mode) && (info->st_mode & S_ISVTX) != 0;
    if ((info->st_mode & (S_IWGRP | S_IWOTH)) != 0 && !sticky) {
        return refuse(why, "%s can be written by other users (mode %04o)", what,
                      (unsigned)info->st_mode & 07777u);
    }
    return true;
}

static bool check_sidecars(gki_cache_file *file, char why[GKI_WHY_BYTES])
{
    char name[GKI_PATH_BYTES];
    struct stat info;
    for (int i = 0; i < N_SIDECARS; i++) {
        if (!join(name, file->path, sidecars[i]) || lstat(name, &info) != 0) {
            continue;
        }
        if (!S_ISREG(info.st_mode)) {
            return refuse(why, "its %s is not a regular file", sidecars[i]);
        }
        if (!is_ours(&info, sidecars[i], why)) {
            return false;
        }
        if (i == 0 && info.st_size > 0) {
            file->has_log = true;
        }
    }
    return true;
}

/* Opening and closing a file that exists would drop the locks which other connections of this
 * process hold on it; O_EXCL makes sure that it is a new one. Sidecars that outlived an earlier
 * file are deleted by SQLite, which does so whenever the file is empty. */
static bool create(const gki_cache_file *file, struct stat *info, char why[GKI_WHY_BYTES])
{
    int fd = open(file->path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0) {
        if (errno == EEXIST && stat(file->path, info) == 0) {
            return true;
        }
        return refuse(why, "cannot create it: %s", strerror(errno));
    }
    bool ok = fchmod(fd, 0600) == 0 && fstat(fd, info) == 0;
    (void)close(fd);
    return ok ? true : refuse(why, "cannot create it: %s", strerror(errno));
}

bool gki_file_prepare(gki_cache_file *file, char why[GKI_WHY_BYTES])
{
    struct stat info;
    file->read_only = false;
    file->has_log = false;
    if (stat(file->directory, &info) != 0) {
        return refuse(why, "cannot look at its directory: %s", strerror(errno));
    }
    if (!is_ours(&info, "its directory", why)) {
        return false;
    }
    bool directory_writable = faccessat(AT_FDCWD, file->directory, W_OK, AT_EACCESS) == 0;
    if (stat(file->path, &info) != 0) {
        if (errno != ENOENT) {
            return refuse(why, "cannot look at it: %s", strerror(errno));
        }
        if (!create(file, &info, why)) {
            return false;
        }
    }
    if (!S_ISREG(info.st_mode)) {
        return refuse(why, "it is not a regular file");
    }
    if (!is_ours(&info, "it", why) || !check_sidecars(file, why)) {
        return false;
    }
    file->device = info.st_dev;
    file->inode = info.st_ino;
    file->read_only = !directory_writable || faccessat(AT_FDCWD, file->path, W_OK, AT_EACCESS) != 0;
    return true;
}

bool gki_file_is_link(const char *path)
{
    struct stat info;
    return lstat(path, &info) == 0 && S_ISLNK(info.st_mode);
}

bool gki_file_is_same(const gki_cache_file *file)
{
    struct stat info;
    return stat(file->path, &info) == 0 && info.st_dev == file->device &&
           info.st_ino == file->inode;
}

bool gki_file_set_aside(const gki_cache_file *file, char *aside, size_t size)
{
    aside[0] = '\0';
    if (!gki_file_is_same(file)) {
        return true;
    }
    char target[GKI_PATH_BYTES];
    int n = snprintf(target, sizeof target, "%s.corrupt-%lld-%ld", file->path,
                     (long long)gki_clock_wall(), (long)getpid());
    if (n < 0 || (size_t)n >= sizeof target || rename(file->path, target) != 0) {
        return false;
    }
    for (int i = 0; i < N_SIDECARS; i++) {
        char from[GKI_PATH_BYTES];
        char to[GKI_PATH_BYTES];
        if (join(from, file->path, sidecars[i]) && join(to, target, sidecars[i])) {
            if (rename(from, to) != 0 && errno != ENOENT) {
                (void)unlink(from);
            }
        }
    }
    gki_copy_text(aside, size, target);
    return true;
}

void gki_file_remove_log(const gki_cache_file *file)
{
    char name[GKI_PATH_BYTES];
    for (int i = 0; i < 2; i++) {
        if (join(name, file->path, sidecars[i])) {
            (void)unlink(name);
        }
    }
}
