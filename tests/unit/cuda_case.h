/* One case of the CUDA driver over a scripted libcuda and NVRTC, in a process of its own. The test
 * file defines _GNU_SOURCE. */
#ifndef CUDA_CASE_H
#define CUDA_CASE_H

#include "in_child.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "driver/driver.h"
#include "fake_cuda.h"

enum { N_VALUES = 24 };

typedef struct outcome {
    char script[512]; /* FAKE_CUDA */
    char driver[256]; /* GK_CUDA_DRIVER; "" = the fake one */
    int32_t ordinal;
    gk_status status;
    int32_t driver_code;
    char message[972];
    char log[512];
    gk_device_info info;
    int64_t values[N_VALUES];
    gk_status statuses[N_VALUES];
    char messages[4][972];
} outcome;

static outcome given; /* handed to the child by fork */

static inline void take_log(void *user, gk_log_level level, const char *line)
{
    outcome *o = user;
    if (level <= GK_LOG_WARNING) {
        size_t used = strlen(o->log);
        (void)snprintf(o->log + used, sizeof(o->log) - used, "%s\n", line);
    }
}

static inline void prepare(outcome *o)
{
    *o = given;
    setenv("GK_NVRTC", GK_TEST_FAKE_NVRTC, 1);
    setenv("GK_CUDA_DRIVER", o->driver[0] != '\0' ? o->driver : GK_TEST_FAKE_CUDA, 1);
    if (o->script[0] != '\0') {
        setenv("FAKE_CUDA", o->script, 1);
    }
}

static inline gki_device *open_device(outcome *o)
{
    gki_log log = {take_log, o, GK_LOG_WARNING};
    gki_device *device = NULL;
    o->status = gki_driver_cuda.open(&gki_driver_cuda, o->ordinal, &log, &device);
    if (o->status != GK_OK) {
        o->driver_code = gk_error_last()->driver_code;
        memcpy(o->message, gk_error_last()->message, sizeof(o->message));
        if (device != NULL) {
            abort();
        }
    }
    return device;
}

static inline gki_module *load_module(gki_device *device)
{
    gki_module *module = NULL;
    if (device->driver->module_load(device, "code", 5, "k", &module) != GK_OK) {
        abort();
    }
    return module;
}

static inline fake_cuda *fake_state(void)
{
    void *handle = dlopen(getenv("GK_CUDA_DRIVER"), RTLD_NOW);
    fake_cuda *state = handle != NULL ? dlsym(handle, "fake_cuda_state") : NULL;
    if (state == NULL) {
        abort();
    }
    return state;
}

static inline void keep_message(outcome *o, int index)
{
    memcpy(o->messages[index], gk_error_last()->message, sizeof(o->messages[index]));
}

static inline outcome run(void (*fn)(void *), const char *script)
{
    outcome result;
    (void)snprintf(given.script, sizeof(given.script), "%s", script);
    in_child(fn, &result, sizeof(result));
    given = (outcome){0};
    return result;
}

#endif
