/*
 * Whose commits a write-ahead log holds. Format: a header of 32 bytes (magic, version, page size,
 * sequence, two salts, two sums), then frames of a 24-byte header (page number, database size or
 * 0, the salts, the running sums) and a page. See "WAL-mode File Format" in SQLite's manual.
 */
#define _GNU_SOURCE /* memmem */
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "cache/file.h"

enum { HEADER = 32, FRAME_HEADER = 24, PAGE_MAX = 65536 };

typedef struct sums {
    uint32_t a;
    uint32_t b;
    bool big_endian;
} sums;

static uint32_t big32(const unsigned char *p)
{
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

static uint32_t little32(const unsigned char *p)
{
    return (uint32_t)p[3] << 24 | (uint32_t)p[2] << 16 | (uint32_t)p[1] << 8 | p[0];
}

static void add(sums *s, const unsigned char *bytes, size_t size)
{
    for (size_t i = 0; i + 8 <= size; i += 8) {
        uint32_t x = s->big_endian ? big32(bytes + i) : little32(bytes + i);
        uint32_t y = s->big_endian ? big32(bytes + i + 4) : little32(bytes + i + 4);
        s->a += x + s->b;
        s->b += y + s->a;
    }
}

static bool agree(const sums *s, const unsigned char *stored)
{
    return s->a == big32(stored) && s->b == big32(stored + 4);
}

static bool read_exactly(int fd, void *out, size_t size)
{
    return read(fd, out, size) == (ssize_t)size;
}

/* Follows the frames that SQLite would recover. */
static bool scan(int fd, unsigned char *page, const char *generation, unsigned meta_page)
{
    unsigned char header[HEADER];
    if (!read_exactly(fd, header, sizeof header) || (big32(header) | 1u) != 0x377f0683u) {
        return false;
    }
    uint32_t page_size = big32(header + 8);
    sums s = {.big_endian = (big32(header) & 1u) != 0};
    add(&s, header, 24);
    if (page_size < 512 || page_size > PAGE_MAX || page_size % 8 != 0 || !agree(&s, header + 24)) {
        return false;
    }
    bool any = false;
    bool ours = false;
    unsigned char frame[FRAME_HEADER];
    while (read_exactly(fd, frame, sizeof frame) && read_exactly(fd, page, page_size)) {
        add(&s, frame, 8);
        add(&s, page, page_size);
        if (memcmp(frame + 8, header + 16, 8) != 0 || !agree(&s, frame + 16)) {
            break;
        }
        any = true;
        if (big32(frame) == meta_page) {
            ours = memmem(page, page_size, generation, strlen(generation)) != NULL;
            if (!ours) {
                break;
            }
        }
    }
    return any && !ours;
}

bool gki_file_log_is_foreign(const gki_cache_file *file, const char *generation, unsigned page)
{
    char name[GKI_PATH_BYTES];
    int n = snprintf(name, sizeof name, "%s-wal", file->path);
    int fd = n > 0 && (size_t)n < sizeof name ? open(name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW) : -1;
    if (fd < 0) {
        return false;
    }
    unsigned char *buffer = gki_alloc(PAGE_MAX);
    bool foreign = buffer != NULL && scan(fd, buffer, generation, page);
    gki_free(buffer);
    (void)close(fd);
    return foreign;
}
