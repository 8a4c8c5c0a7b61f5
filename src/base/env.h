/* Environment variables, ignored in set-user-ID programs. */
#ifndef GKI_ENV_H
#define GKI_ENV_H

#include <stdbool.h>

/* The value, or NULL if unset or empty. */
const char *gki_env(const char *name);

#endif
