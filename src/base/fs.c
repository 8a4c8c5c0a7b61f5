#define _GNU_SOURCE /* mkostemp */
#include "base/fs.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/env.h"
#include "base/error.h"

static gk_status fail_errno(const char *what, const char *path)
{
    int error = errno;
    return gki_fail_code(GK_ERR_IO, "fs", error, "cannot %s '%s': %s", what, path, strerror(error));
}

/* Reads to the end, or until more than `limit` bytes are there. */
static gk_status read_all(int fd, const char *path, size_t limit, char **out, size_t *size)
{
    size_t capacity = 4096;
    struct stat info;
    if (fstat(fd, &info) == 0 && info.st_size > 0 && (uint64_t)info.st_size <= limit) {
        capacity = (size_t)info.st_size + 2;
    }
    size_t length = 0;
    char *text = gki_alloc(capacity);
    while (text != NULL) {
        ssize_t n = read(fd, text + length, capacity - length - 1);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n < 0) {
            gk_status status = fail_errno("read", path);
            gki_free(text);
            return status;
        }
        length += (size_t)n;
        if (length > limit) {
            gki_free(text);
            return gk_fail(GK_ERR_IO, "fs", "'%s' is larger than %zu bytes", path, limit);
        }
        if (n == 0) {
            text[length] = '\0';
            *out = text;
            *size = length;
            return GK_OK;
        }
        if (capacity - length < 2) {
            capacity *= 2;
            char *more = gki_realloc(text, capacity);
            if (more == NULL) {
                gki_free(text);
            }
            text = more;
        }
    }
    return gki_fail_nomem("fs", capacity);
}

gk_status gki_fs_read(const char *path, size_t limit, char **out, size_t *size)
{
    *out = NULL;
    *size = 0;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return fail_errno("open", path);
    }
    gk_status status = read_all(fd, path, limit, out, size);
    (void)close(fd);
    return status;
}

bool gki_fs_write_all(int fd, const void *data, size_t size)
{
    const char *at = data;
    while (size > 0) {
        const ssize_t n = write(fd, at, size);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n <= 0) {
            return false;
        }
        at += n;
        size -= (size_t)n;
    }
    return true;
}

/* For what a rename would destroy: a pipe, a terminal, /dev/stdout. */
static gk_status write_in_place(const char *path, const void *data, size_t size)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC | O_NOCTTY);
    if (fd < 0) {
        return fail_errno("open", path);
    }
    gk_status status = gki_fs_write_all(fd, data, size) ? GK_OK : fail_errno("write", path);
    if (close(fd) != 0 && status == GK_OK) {
        status = fail_errno("write", path);
    }
    return status;
}

gk_status gki_fs_write(const char *path, const void *data, size_t size, unsigned mode)
{
    struct stat info;
    if (stat(path, &info) == 0 && !S_ISREG(info.st_mode)) {
        return write_in_place(path, data, size);
    }
    char temporary[PATH_MAX];
    int n = snprintf(temporary, sizeof temporary, "%s.XXXXXX", path);
    if (n < 0 || (size_t)n >= sizeof temporary) {
        errno = ENAMETOOLONG;
        return fail_errno("write", path);
    }
    int fd = mkostemp(temporary, O_CLOEXEC);
    if (fd < 0) {
        return fail_errno("create a file beside", path);
    }
    bool ok = gki_fs_write_all(fd, data, size) && fchmod(fd, (mode_t)mode) == 0 && fsync(fd) == 0;
    gk_status status = ok ? GK_OK : fail_errno("write", path);
    if (close(fd) != 0 && status == GK_OK) {
        status = fail_errno("write", path);
    }
    if (status == GK_OK && rename(temporary, path) != 0) {
        status = fail_errno("replace", path);
    }
    if (status != GK_OK) {
        (void)unlink(temporary);
    }
    return status;
}

static bool is_directory(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

gk_status gki_fs_mkdirs(const char *path)
{
    char partial[PATH_MAX];
    size_t length = strlen(path);
    if (length == 0 || length >= sizeof partial) {
        errno = length == 0 ? ENOENT : ENAMETOOLONG;
        return fail_errno("create the directory", path);
    }
    for (size_t i = 0; i <= length; i++) {
        partial[i] = path[i];
        bool ends = i > 0 && (path[i] == '\0' || path[i] == '/') && path[i - 1] != '/';
        if (!ends) {
            continue;
        }
        partial[i] = '\0';
        if (mkdir(partial, 0700) != 0) {
            int error = errno;
            if (!is_directory(partial)) {
                errno = error == EEXIST ? ENOTDIR : error;
                return fail_errno("create the directory", partial);
            }
        }
        partial[i] = path[i];
    }
    return GK_OK;
}

gk_status gki_fs_temp_dir(char *out, size_t size)
{
    const char *parent = gki_env("TMPDIR");
    int n = snprintf(out, size, "%s/gk-XXXXXX", parent != NULL ? parent : "/tmp");
    if (n < 0 || (size_t)n >= size) {
        errno = ENAMETOOLONG;
        return fail_errno("create a directory under", parent != NULL ? parent : "/tmp");
    }
    if (mkdtemp(out) == NULL) {
        gk_status status = fail_errno("create the directory", out);
        out[0] = '\0';
        return status;
    }
    return GK_OK;
}

void gki_fs_remove_dir(const char *path)
{
    DIR *directory = opendir(path);
    if (directory == NULL) {
        return;
    }
    /* POSIX leaves open what readdir returns after a removal, so it starts over. */
    bool removed = true;
    while (removed) {
        removed = false;
        rewinddir(directory);
        for (struct dirent *e = readdir(directory); e != NULL; e = readdir(directory)) {
            bool dots = strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0;
            if (!dots && unlinkat(dirfd(directory), e->d_name, 0) == 0) {
                removed = true;
            }
        }
    }
    (void)closedir(directory);
    (void)rmdir(path);
}

bool gki_fs_is_network(const char *path)
{
    /* statfs f_type of NFS, SMB, CIFS, SMB2, AFS, Coda, 9p, FUSE, Lustre, GPFS, Ceph, BeeGFS,
     * OCFS2, GFS2 and PanFS. FUSE may be local, but cannot be told apart. */
    static const uint32_t types[] = {
        0x6969,     0x517b,     0xff534d42, 0xfe534d42, 0x5346414f,
        0x73757245, 0x01021997, 0x65735546, 0x0bd00bd0, 0x47504653,
        0x00c36400, 0x19830326, 0x7461636f, 0x01161970, 0xaad7aaea,
    };
    struct statfs info;
    if (statfs(path, &info) != 0) {
        return false;
    }
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        if ((uint32_t)info.f_type == types[i]) {
            return true;
        }
    }
    return false;
}
