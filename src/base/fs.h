/* Files and directories. Failures set the error record (GK_ERR_IO with errno). */
#ifndef GKI_FS_H
#define GKI_FS_H

#include <gk/base.h>

/* Whole file; *out is NUL-terminated past its size and freed with gki_free. limit bounds the size.
 */
gk_status gki_fs_read(const char *path, size_t limit, char **out, size_t *size);
/* Writes a temporary name unique to the process, then renames it. mode: permission bits. */
gk_status gki_fs_write(const char *path, const void *data, size_t size, unsigned mode);
/* All bytes to an open file: false, with errno set, if that fails. Sets no error record. */
bool gki_fs_write_all(int fd, const void *data, size_t size);
/* Creates the directory and its parents, new ones with 0700. */
gk_status gki_fs_mkdirs(const char *path);
/* A new private directory under $TMPDIR or /tmp; its path is written to out. */
gk_status gki_fs_temp_dir(char *out, size_t size);
/* Removes a directory and the plain files in it. */
void gki_fs_remove_dir(const char *path);
/* True if the path lies on a network file system, where SQLite's WAL must not be used. */
bool gki_fs_is_network(const char *path);

#endif
