/* The cache file as a file: where it is, whether it can be trusted, its sidecars. */
#ifndef GKI_CACHE_FILE_H
#define GKI_CACHE_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

enum { GKI_WHY_BYTES = 128, GKI_PATH_BYTES = 4096 };

typedef struct gki_cache_file {
    char path[GKI_PATH_BYTES];      /* absolute, links resolved */
    char directory[GKI_PATH_BYTES]; /* of path */
    dev_t device;
    ino_t inode;
    bool read_only;
    bool has_log; /* a write-ahead log lay beside it */
} gki_cache_file;

/* Finds the file's true place and creates its directory. */
bool gki_file_resolve(gki_cache_file *file, const char *path, char why[GKI_WHY_BYTES]);

/*
 * Creating a file, joining its sidecars and moving it aside are done by one process at a time,
 * under an advisory lock of the directory. Returns a descriptor for gki_file_unlock; -1 where
 * directories cannot be locked, which is left at that.
 */
int gki_file_lock(const gki_cache_file *file);
void gki_file_unlock(int lock);

/* Checks owner and permissions of the file, its directory and its sidecars, creates the file if
 * there is none, and finds out whether it can be written. */
bool gki_file_prepare(gki_cache_file *file, char why[GKI_WHY_BYTES]);

/* True if the name is that of a symbolic link. */
bool gki_file_is_link(const char *path);

/* True if the path still leads to the file that gki_file_prepare found. */
bool gki_file_is_same(const gki_cache_file *file);

/* Renames the file and its sidecars to "<path>.corrupt-<time>-<pid>", unless another process has.
 * The new name is written to `aside`, "" if there was nothing to move. */
bool gki_file_set_aside(const gki_cache_file *file, char *aside, size_t size);

/* Deletes the write-ahead log and its index. */
void gki_file_remove_log(const gki_cache_file *file);

/*
 * True if the write-ahead log beside the file holds the commits of another database: a log
 * says nothing of whose it is, and SQLite would take its pages over. generation and page: the
 * meta table's, read from the file alone.
 */
bool gki_file_log_is_foreign(const gki_cache_file *file, const char *generation, unsigned page);

#endif
