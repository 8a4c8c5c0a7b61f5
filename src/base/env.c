#define _GNU_SOURCE /* secure_getenv */
#include "base/env.h"

#include <stdlib.h>

const char *gki_env(const char *name)
{
    const char *value = secure_getenv(name);
    return value != NULL && *value != '\0' ? value : NULL;
}
