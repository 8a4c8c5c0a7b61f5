/*
 * A scripted driver for tests of what lies above the driver table. Device memory is host memory,
 * compiling keeps the source as the code, a launch calls the test, and `time` gives what the script
 * says. All slots are thread-safe; scripts are set before the device is used.
 *
 *     fake_device *fake = fake_device_create();
 *     fake->run = add_vectors;
 *     fake_rule *rule = fake_device_rule(fake, "x128"); // kernels whose name holds "x128"
 *     rule->spill_bytes = 64;
 *     ... options.device = &fake->base; ...
 *     fake_device_destroy(&fake);
 */
#ifndef FAKE_DRIVER_H
#define FAKE_DRIVER_H

#include <stdatomic.h>

#include "driver/driver.h"

enum { FAKE_MAX_RULES = 32, FAKE_NAME = 128 };

/* Failures of one slot by call number. */
typedef struct fake_fault {
    atomic_int calls; /* so far, failed ones included */
    int fail_at;      /* the first call that fails (1 = the first ever); 0 = none */
    int fail_count;   /* how many fail from there; 0 = one, -1 = all */
    gk_status status; /* GK_OK stands for GK_ERR_DEVICE. GK_ERR_LOST is sticky: see `lost` */
} fake_fault;

/* What happens to kernels by name. The first rule whose `match` the kernel's name contains counts,
 * else the defaults of fake_device.fallback. */
typedef struct fake_rule {
    char match[FAKE_NAME];
    gk_status compile; /* GK_OK = compiles */
    gk_status load;
    gk_status launch; /* of launch and time */
    int32_t registers;
    int32_t spill_bytes;
    int32_t stack_bytes;
    bool serialized;
    double seconds;      /* what `time` gives, unless `times` is set */
    const double *times; /* a sequence that repeats; borrowed */
    uint32_t n_times;
    atomic_uint timed; /* calls of `time` so far */
    atomic_uint compiled;
    atomic_uint launched; /* launch and time, every launch of a batch once */
    uint32_t compile_ms;  /* beside the device's */
} fake_rule;

typedef struct fake_module {
    gki_module base;
    char kernel[FAKE_NAME];
    char *constants; /* the lines that were compiled before the template */
    fake_rule *rule;
} fake_module;

/* Computes a launch; launch->module is a fake_module. Called without locks. */
typedef gk_status (*fake_run_fn)(void *user, const fake_module *module,
                                 const gki_kernel_launch *launch);

/* Replaces rules' times: one launch's seconds. */
typedef gk_status (*fake_time_fn)(void *user, const fake_module *module,
                                  const gki_kernel_launch *launches, uint32_t count,
                                  uint32_t repeats, bool graph, double *seconds);

typedef struct fake_device {
    gki_device base;
    gki_driver table;    /* base.driver points here: slots and name can be replaced */
    gk_device_info info; /* an H100 at first */
    fake_fault alloc, copy, compile, load, reserve, resident, launch, time, map;
    fake_rule fallback;
    fake_rule rules[FAKE_MAX_RULES];
    uint32_t n_rules;
    fake_run_fn run; /* NULL = launches do nothing; in `time` it runs once for each launch */
    void *run_user;
    fake_time_fn timer;
    void *timer_user;
    uint32_t compile_ms; /* a compile takes at least that long */
    bool capturing;
    atomic_bool lost; /* once set, everything fails with GK_ERR_LOST */
    atomic_int_fast64_t live_allocations;
    atomic_int_fast64_t live_bytes;
    atomic_int live_modules;
    atomic_int_fast64_t reserved_smem; /* of the last module_reserve */
    atomic_int reserved_cluster;
    int64_t room; /* blocks that can be on the device at once; 132 at first */
} fake_device;

/* Ends the program if memory is out. */
fake_device *fake_device_create(void);
void fake_device_destroy(fake_device **device);

/* A rule for kernels whose names contain `match`, starting as a copy of the fallback. */
fake_rule *fake_device_rule(fake_device *device, const char *match);

/* "constexpr int NAME = value;" or bool in the compiled source; false if it is not there. */
bool fake_module_constant(const fake_module *module, const char *name, int64_t *value);

/* A driver whose open() gives the device (which stays the test's own); points into it. */
const gki_driver *fake_device_driver(fake_device *device);

#endif
