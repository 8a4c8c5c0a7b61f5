/*
 * From a problem and a configuration to a loaded kernel: template, rendered source, code, module.
 * Each step is looked up before it is done: in the process, in the cache, and only then compiled.
 */
#ifndef GKI_JIT_H
#define GKI_JIT_H

#include <stdatomic.h>

#include "base/hash.h"
#include "base/log.h"
#include "base/str.h"
#include "cache/cache.h"
#include "driver/driver.h"

/* Counters behind gk_stats(). */
typedef struct gki_counters {
    atomic_uint_fast64_t calls, launches, compiles, compile_failures, tunes, trials, hits_memory,
        hits_cache, misses, guesses, kernels_loaded, workspace_bytes;
} gki_counters;

/* Parts of the identities that no other part shows: raise GKI_PROTOCOL when trials are measured in
 * another way, GKI_COMPILE_OPTIONS when a driver's compile() passes other options. */
enum { GKI_PROTOCOL = 1, GKI_COMPILE_OPTIONS = 1 };

/* Bytes that hold the canonical texts below. A text that does not fit ends in a hash of the whole,
 * so that texts stay equal only where what they stand for is. */
enum { GKI_CONFIG_TEXT = 256, GKI_PROBLEM_TEXT = 768, GKI_ENVIRONMENT_TEXT = 512 };

typedef struct gki_jit gki_jit;

typedef struct gki_jit_options {
    gki_device *device; /* borrowed, as the next three */
    gki_cache *cache;
    const gki_log *log;
    gki_counters *counters;
    uint32_t compile_threads; /* at least 1 */
} gki_jit_options;

gk_status gki_jit_create(gki_jit **out, const gki_jit_options *options);
void gki_jit_destroy(gki_jit **jit);

const gki_jit_options *gki_jit_options_of(const gki_jit *jit);
const gk_device_info *gki_jit_device(const gki_jit *jit);

/* --- configurations (config.c) --- */

/* "BLOCK_K=16 BLOCK_M=64 ..", sorted by name. */
void gki_config_text(const gk_variant *variant, const gk_config *config, char *out, size_t size);
/* Reads such text; false unless it names each of the variant's params once with a listed value. */
bool gki_config_parse(const gk_variant *variant, const char *text, gk_config *out);
/* Does a configuration have places for all of its params? */
bool gki_variant_has_room(const gk_variant *variant, gk_reason *reason);
/* Compute capability, the variant's own check, then threads, shared memory, grid and cluster
 * against the device. `reason` may be NULL. */
bool gki_config_serves(const gk_variant *variant, const gk_problem *problem,
                       const gk_device_info *device, const gk_config *config, gk_reason *reason);
/* The same of values that may not be among those listed. */
bool gki_config_check(const gk_variant *variant, const gk_problem *problem,
                      const gk_device_info *device, const gk_config *config, gk_reason *reason);
/* How the variant launches the configuration, as far as the device can: without overlap below
 * compute capability 9.0, and for cooperative kernels, whose waiting blocks would take the room of
 * those that are waited for. */
void gki_config_launch(const gk_variant *variant, const gk_problem *problem,
                       const gk_device_info *device, const gk_config *config, gk_launch *out);
/* A variant's configurations, one after the other: the last param's values change fastest. */
typedef struct gki_config_walk {
    const gk_variant *variant;
    gk_config config; /* the present one */
    uint32_t at[GK_MAX_PARAMS];
} gki_config_walk;

/* Begins with the first value of each param; false if one has no value. The variant has room. */
bool gki_config_first(gki_config_walk *walk, const gk_variant *variant);
/* On to the next; false behind the last. One that was refused with the first of all values set at
 * launch is refused with the others, too, and they are passed over. */
bool gki_config_next(gki_config_walk *walk, bool served);
/* On to the next that differs in what is compiled in. */
bool gki_config_next_kernel(gki_config_walk *walk);
const gk_variant *gki_variant_find(const gk_op_desc *op, const char *name);

/* --- identities (key.c) --- */

/* The problem's canonical text, e.g.
 * "r1 M=64 N=64 K=64 a=f32.row.16 b=f32.row.16 c=f32.row.16 bias=- residual=- activation=relu". */
void gki_problem_text(const gk_op_desc *op, const gk_problem *problem, char *out, size_t size);
/* Everything outside the problem that an answer depends on. Fails as gki_template_append() where
 * the op's templates cannot be read: no answer may be stored or looked up then. */
gk_status gki_environment_text(gki_jit *jit, const gk_op_desc *op, char *out, size_t size);

/* --- templates and rendering (template.c, render.c) --- */

typedef struct gki_rendered {
    char *source; /* gki_free; equal for configs that differ in launch-time params only */
    char kernel[128];
    gki_digest key; /* of the source, the target and the compiler */
} gki_rendered;

/*
 * The source for one configuration: prelude, types, constants, template, with includes expanded.
 * GK_TEMPLATE_DIR replaces embedded templates (each is read once a jit, so that what is compiled is
 * what the environment text hashes); GK_DUMP_DIR receives every rendered source as
 * <kernel>-<8 digits of the key>.cu. Errors: GK_ERR_INVALID for a value that is not listed or a
 * name that is none, else as gki_template_append().
 */
gk_status gki_render(gki_jit *jit, const gk_op_desc *op, const gk_variant *variant,
                     const gk_problem *problem, const gk_config *config, gki_rendered *out);

/* The expanded text of a template file for the given driver ("cuda" or "cpu"); gki_free. */
gk_status gki_template_expand(const char *file, const char *driver, char **out);

/* --- kernels (kernel.c) --- */

/* Owned by the jit; lives as long as it. Constant once it is handed out, but for `module`. */
typedef struct gki_kernel {
    gki_digest key;
    char name[128];
    int32_t registers;
    int32_t spill_bytes;
    int32_t stack_bytes;
    bool serialized;
    bool from_cache;              /* the code was not compiled in this process */
    double compile_s;             /* 0 if from_cache */
    _Atomic(gki_module *) module; /* NULL until loaded */
} gki_kernel;

/*
 * The kernel's code: known, cached, or compiled now, once even if several threads ask. A source
 * that does not compile is remembered for the process (GK_ERR_COMPILE with the same message);
 * trouble with the compiler itself is not.
 */
gk_status gki_kernel_get(gki_jit *jit, const gk_op_desc *op, const gk_variant *variant,
                         const gk_problem *problem, const gk_config *config, gki_kernel **out);

/* gki_kernel_get and load; module reserved for the launch's shared memory and cluster (launch NULL:
 * not). Code from the cache that does not load is compiled anew and replaced in the cache. */
gk_status gki_kernel_load(gki_jit *jit, const gk_op_desc *op, const gk_variant *variant,
                          const gk_problem *problem, const gk_config *config,
                          const gk_launch *launch, gki_kernel **out);

/*
 * Whether a block of the launch has the registers, threads and shared memory that the compiled
 * kernel takes; the last two are known once it is loaded.
 */
bool gki_kernel_fits(const gki_kernel *kernel, const gk_launch *launch,
                     const gk_device_info *device, gk_reason *reason);

/* --- launches (args.c) --- */

enum { GKI_ARGS_ALIGN = 64 };

/* What the launches of one problem have in common. */
typedef struct gki_recipe {
    const gk_op_desc *op;
    const gk_variant *variant;
    const gk_problem *problem;
    const gk_config *config;
    const gki_kernel *kernel; /* loaded */
    const gk_launch *launch;
} gki_recipe;

/*
 * The launch for one call. args has room for GK_MAX_KERNEL_ARGS bytes, is aligned to GKI_ARGS_ALIGN
 * and receives the parameter struct, to which *out then points. workspace and zeroed as for
 * gk_op_desc.pack. Errors: of the variant's maps.
 */
gk_status gki_launch_make(gki_device *device, const gki_recipe *recipe, const gk_call *call,
                          void *workspace, void *zeroed, unsigned char *args,
                          gki_kernel_launch *out);

/* Whether the description is one that the hardware takes. */
bool gki_map_check(const gk_map_desc *desc, gk_reason *reason);

#endif
