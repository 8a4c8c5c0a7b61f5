#include <gk/base.h>

#define TEXT_OF(x) #x
#define TEXT(x)    TEXT_OF(x)

uint32_t gk_version(void)
{
    return GK_VERSION;
}

const char *gk_version_string(void)
{
    return TEXT(GK_VERSION_MAJOR) "." TEXT(GK_VERSION_MINOR) "." TEXT(GK_VERSION_PATCH);
}
