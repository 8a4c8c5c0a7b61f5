/* Versioned structs: callers compiled against an older or newer header. */
#include <string.h>

#include "api/context.h"

/* No struct comes near it: a larger size is memory that nobody has set. */
enum { SIZE_LIMIT = 4096 };

/* The struct's size as its header has it. All are aligned to words, and no field but the texts goes
 * beyond one. */
static gk_status check_size(const void *any, size_t known, const gki_span *texts, const char *where,
                            const char *what, size_t *size)
{
    memcpy(size, any, sizeof(*size));
    if (*size > SIZE_LIMIT) {
        return gk_fail(GK_ERR_VERSION, where,
                       "%s.struct_size is %zu, this library knows %zu bytes: it was not set", what,
                       *size, known);
    }
    bool whole = *size >= sizeof(*size) && *size % sizeof(uint64_t) == 0;
    for (; texts != NULL && texts->end > 0; texts++) {
        whole = whole && (*size <= texts->begin || *size >= texts->end);
    }
    return whole ? GK_OK
                 : gk_fail(GK_ERR_INVALID, where, "%s.struct_size is %zu, expected %zu", what,
                           *size, known);
}

gk_status gki_options_read(void *dst, size_t dst_size, const void *src, const char *what)
{
    memset(dst, 0, dst_size);
    if (src == NULL) {
        return GK_OK;
    }
    size_t size;
    gk_status status = check_size(src, dst_size, NULL, what, what, &size);
    if (status != GK_OK) {
        return status;
    }
    if (size > dst_size) {
        const unsigned char *tail = (const unsigned char *)src + dst_size;
        for (size_t i = 0; i < size - dst_size; i++) {
            if (tail[i] != 0) {
                return gk_fail(GK_ERR_VERSION, what,
                               "%s.struct_size is %zu, this library knows %zu bytes and the rest "
                               "is not zero",
                               what, size, dst_size);
            }
        }
    }
    memcpy(dst, src, size < dst_size ? size : dst_size);
    return GK_OK;
}

gk_status gki_options_mode(gk_mode mode, const char *where)
{
    if (mode < GK_MODE_DEFAULT || mode > GK_MODE_PINNED) {
        return gk_fail(GK_ERR_INVALID, where, "options.mode is %d, expected 0 to %d", (int)mode,
                       GK_MODE_PINNED);
    }
    return GK_OK;
}

gk_status gki_options_seconds(double seconds, const char *where, const char *what)
{
    if (!(seconds >= 0)) {
        return gk_fail(GK_ERR_INVALID, where, "%s is %g, expected 0 or more seconds", what,
                       seconds);
    }
    return GK_OK;
}

gk_status gki_result_check(const void *dst, size_t src_size, const gki_span *texts,
                           const char *where, const char *what)
{
    size_t size;
    return dst == NULL ? gk_fail(GK_ERR_INVALID, where, "%s is NULL", what)
                       : check_size(dst, src_size, texts, where, what, &size);
}

gk_status gki_result_write(void *dst, const void *src, size_t src_size, const gki_span *texts,
                           const char *where, const char *what)
{
    gk_status status = gki_result_check(dst, src_size, texts, where, what);
    if (status != GK_OK) {
        return status;
    }
    size_t size;
    memcpy(&size, dst, sizeof(size));
    size_t copied = size < src_size ? size : src_size;
    memcpy((unsigned char *)dst + sizeof(size), (const unsigned char *)src + sizeof(size),
           copied - sizeof(size));
    if (size > src_size) {
        memset((unsigned char *)dst + src_size, 0, size - src_size);
    }
    return GK_OK;
}
