/* Scripts for the fake CUDA libraries: "key=value|key=value" in an environment variable. */
#ifndef FAKE_ENV_H
#define FAKE_ENV_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static inline const char *fake_text(const char *variable, const char *key, const char *otherwise,
                                    char *out, size_t size)
{
    const char *at = getenv(variable);
    size_t length = strlen(key);
    while (at != NULL) {
        if (strncmp(at, key, length) == 0 && at[length] == '=') {
            const char *value = at + length + 1;
            (void)snprintf(out, size, "%.*s", (int)strcspn(value, "|"), value);
            return out;
        }
        at = strchr(at, '|');
        at = at != NULL ? at + 1 : NULL;
    }
    (void)snprintf(out, size, "%s", otherwise);
    return out;
}

static inline long fake_number(const char *variable, const char *key, long otherwise)
{
    char text[64];
    fake_text(variable, key, "", text, sizeof(text));
    return text[0] != '\0' ? strtol(text, NULL, 10) : otherwise;
}

#endif
