#include "api/context.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/env.h"
#include "base/error.h"
#include "base/str.h"
#include "base/thread.h"

static atomic_uint_fast64_t forks;
static pthread_once_t fork_once = PTHREAD_ONCE_INIT;

static void count_fork(void)
{
    atomic_fetch_add(&forks, 1);
}

static void watch_forks(void)
{
    pthread_atfork(NULL, NULL, count_fork);
}

gk_status gki_context_usable(const gk_context *ctx, const char *where)
{
    if (ctx == NULL) {
        return gk_fail(GK_ERR_INVALID, where, "ctx is NULL");
    }
    if (ctx->generation != atomic_load_explicit(&forks, memory_order_relaxed) &&
        !ctx->info.is_emulated) {
        return gk_fail(GK_ERR_FORKED, where,
                       "the context was created before fork: create one in the child");
    }
    return GK_OK;
}

static gk_status read_mode(gk_mode asked, gk_mode *out)
{
    static const char *const names[] = {"tune", "heuristic", "cached", "pinned"};
    gk_status status = gki_options_mode(asked, "context");
    if (status != GK_OK) {
        return status;
    }
    *out = asked == GK_MODE_DEFAULT ? GK_MODE_TUNE : asked;
    const char *text = gki_env("GK_MODE");
    if (asked != GK_MODE_DEFAULT || text == NULL) {
        return GK_OK;
    }
    for (int i = 0; i < 4; i++) {
        if (strcmp(text, names[i]) == 0) {
            *out = (gk_mode)(GK_MODE_TUNE + i);
            return GK_OK;
        }
    }
    return gk_fail(GK_ERR_INVALID, "context",
                   "GK_MODE is \"%s\", expected tune, heuristic, cached or pinned", text);
}

static gk_status read_budget(double asked, double *out)
{
    *out = asked;
    const char *text = gki_env("GK_TUNE_BUDGET");
    if (asked == 0 && text != NULL && !gki_parse_double(text, out)) {
        return gk_fail(GK_ERR_INVALID, "context", "GK_TUNE_BUDGET is \"%s\", expected seconds",
                       text);
    }
    gk_status status = gki_options_seconds(*out, "context",
                                           asked == 0 ? "GK_TUNE_BUDGET" : "options.tune_budget_s");
    if (status != GK_OK) {
        return status;
    }
    if (*out == 0) {
        *out = 2.0;
    }
    return GK_OK;
}

static gk_status open_engine(gk_context *ctx, const gki_driver *driver, int32_t ordinal,
                             const gk_context_options *options)
{
    gk_status status = driver->open(driver, ordinal, &ctx->log, &ctx->device);
    if (status != GK_OK) {
        return status;
    }
    driver->info(ctx->device, &ctx->info);
    status =
        gki_cache_open(&ctx->cache, options->cache_path, options->kernel_cache_bytes, &ctx->log);
    if (status != GK_OK) {
        return status;
    }
    uint32_t threads =
        options->compile_threads > 0 ? (uint32_t)options->compile_threads : gki_cpu_count();
    gki_jit_options jit = {.device = ctx->device,
                           .cache = ctx->cache,
                           .log = &ctx->log,
                           .counters = &ctx->counters,
                           .compile_threads = threads < 64 ? threads : 64};
    status = gki_jit_create(&ctx->jit, &jit);
    if (status != GK_OK) {
        return status;
    }
    return gki_table_init(&ctx->table);
}

static gk_status check_options(const gk_context_options *options)
{
    if (options->compile_threads < 0) {
        return gk_fail(GK_ERR_INVALID, "context",
                       "options.compile_threads is %d, expected 0 or more",
                       (int)options->compile_threads);
    }
    const int level = (int)options->log_level;
    if (level < 0 || level > GK_LOG_DEBUG) {
        return gk_fail(GK_ERR_INVALID, "context", "options.log_level is %d, expected 0 to %d",
                       level, GK_LOG_DEBUG);
    }
    return GK_OK;
}

gk_status gki_context_create_on(gk_context **out, const gki_driver *driver, int32_t ordinal,
                                const gk_context_options *user_options)
{
    static atomic_uint serials;
    *out = NULL;
    gk_context_options options;
    gk_status status = gki_options_read(&options, sizeof(options), user_options, "options");
    if (status != GK_OK) {
        return status;
    }
    status = check_options(&options);
    if (status != GK_OK) {
        return status;
    }
    pthread_once(&fork_once, watch_forks);
    gk_context *ctx = gki_alloc_aligned(_Alignof(gk_context), sizeof(*ctx));
    if (ctx == NULL) {
        return gki_fail_nomem("context", sizeof(*ctx));
    }
    memset(ctx, 0, sizeof(*ctx));
    ctx->serial = atomic_fetch_add(&serials, 1) + 1;
    ctx->generation = atomic_load(&forks);
    ctx->log.fn = options.log;
    ctx->log.user = options.log_user;
    ctx->log.level = options.log_level == 0 ? GK_LOG_WARNING : options.log_level;
    pthread_mutex_init(&ctx->mutex, NULL);
    pthread_mutex_init(&ctx->tune_mutex, NULL);
    pthread_cond_init(&ctx->landed, NULL);
    status = read_mode(options.mode, &ctx->mode);
    if (status == GK_OK) {
        status = read_budget(options.tune_budget_s, &ctx->tune_budget_s);
    }
    if (status == GK_OK) {
        status = open_engine(ctx, driver, ordinal, &options);
    }
    if (status != GK_OK) {
        gk_error error;
        gki_error_save(&error);
        gk_context_destroy(&ctx);
        return gki_error_restore(&error);
    }
    *out = ctx;
    return GK_OK;
}

gk_status gk_context_create(gk_context **out, const char *device, const gk_context_options *options)
{
    if (out == NULL) {
        return gk_fail(GK_ERR_INVALID, "context", "out is NULL");
    }
    *out = NULL;
    if (device == NULL) {
        device = "cuda";
    }
    if (strcmp(device, "cpu") == 0) {
        return gki_context_create_on(out, &gki_driver_cpu, 0, options);
    }
    if (strcmp(device, "cuda") == 0) {
        return gki_context_create_on(out, &gki_driver_cuda, 0, options);
    }
    int64_t ordinal;
    if (strncmp(device, "cuda:", 5) == 0 && gki_parse_i64(device + 5, &ordinal) && ordinal >= 0 &&
        ordinal <= INT32_MAX) {
        return gki_context_create_on(out, &gki_driver_cuda, (int32_t)ordinal, options);
    }
    return gk_fail(GK_ERR_INVALID, "context",
                   "device is \"%s\", expected \"cuda\", \"cuda:N\" or \"cpu\"", device);
}

void gk_context_destroy(gk_context **ctx_ptr)
{
    if (ctx_ptr == NULL || *ctx_ptr == NULL) {
        return;
    }
    gk_context *ctx = *ctx_ptr;
    *ctx_ptr = NULL;
    if (ctx->device != NULL) {
        gki_workspace_free(ctx);
    }
    gki_table_free(&ctx->table);
    gki_makeshift_free(ctx);
    gki_jit_destroy(&ctx->jit);
    gki_cache_close(&ctx->cache);
    if (ctx->device != NULL) {
        ctx->device->driver->close(ctx->device);
    }
    pthread_cond_destroy(&ctx->landed);
    pthread_mutex_destroy(&ctx->tune_mutex);
    pthread_mutex_destroy(&ctx->mutex);
    gki_free(ctx);
}

gk_status gk_stats(gk_context *ctx, gk_statistics *out)
{
    static const gki_span texts[] = {
        GKI_TEXT(gk_statistics, cache_path), GKI_TEXT(gk_statistics, cache_degraded), {0, 0}};
    gk_status status = gki_context_usable(ctx, "stats");
    if (status != GK_OK) {
        return status;
    }
    const gki_counters *c = &ctx->counters;
    gk_statistics stats = {.struct_size = sizeof(stats),
                           .compiles = atomic_load(&c->compiles),
                           .compile_failures = atomic_load(&c->compile_failures),
                           .tunes = atomic_load(&c->tunes),
                           .trials = atomic_load(&c->trials),
                           .hits_memory = atomic_load(&c->hits_memory),
                           .hits_cache = atomic_load(&c->hits_cache),
                           .misses = atomic_load(&c->misses),
                           .guesses = atomic_load(&c->guesses),
                           .kernels_loaded = atomic_load(&c->kernels_loaded),
                           .workspace_bytes = atomic_load(&c->workspace_bytes)};
    for (int i = 0; i < GKI_CALL_STRIPES; i++) {
        stats.calls += atomic_load(&ctx->calls[i].count);
    }
    stats.launches = stats.calls;
    gki_cache_state(ctx->cache, stats.cache_path, sizeof(stats.cache_path), stats.cache_degraded,
                    sizeof(stats.cache_degraded), &stats.cache_errors);
    return gki_result_write(out, &stats, sizeof(stats), texts, "stats", "out");
}

gk_status gk_device_info_get(gk_context *ctx, gk_device_info *out)
{
    gk_status status = gki_context_usable(ctx, "device");
    if (status != GK_OK) {
        return status;
    }
    if (out == NULL) {
        return gk_fail(GK_ERR_INVALID, "device", "out is NULL");
    }
    *out = ctx->info;
    return GK_OK;
}
