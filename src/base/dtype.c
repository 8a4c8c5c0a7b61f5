#include <string.h>

#include <gk/base.h>

static const struct {
    size_t bytes;
    const char *name;
} dtypes[GK_DTYPE_COUNT] = {
#define DTYPE_ENTRY(suffix, number, bytes, name) [number] = {bytes, name},
    GK_DTYPE_MAP(DTYPE_ENTRY)
#undef DTYPE_ENTRY
};

/* Callers pass numbers from tensors, which may be anything. */
static bool is_dtype(gk_dtype dtype)
{
    int64_t number = (int64_t)dtype;
    return number > GK_DTYPE_NONE && number < GK_DTYPE_COUNT;
}

size_t gk_dtype_size(gk_dtype dtype)
{
    return is_dtype(dtype) ? dtypes[dtype].bytes : 0;
}

const char *gk_dtype_name(gk_dtype dtype)
{
    return is_dtype(dtype) ? dtypes[dtype].name : "?";
}

gk_dtype gk_dtype_parse(const char *name)
{
    for (int i = GK_DTYPE_NONE + 1; name != NULL && i < GK_DTYPE_COUNT; i++) {
        if (strcmp(name, dtypes[i].name) == 0) {
            return (gk_dtype)i;
        }
    }
    return GK_DTYPE_NONE;
}
