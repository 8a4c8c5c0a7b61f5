#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "jit/internal.h"

static const char WHERE[] = "kernel";

enum entry_state { EMPTY, BUSY, READY, FAILED };

/* A kernel and how far it has come. */
typedef struct gki_entry {
    gki_kernel kernel; /* first, and what callers hold */
    struct gki_entry *next;
    atomic_int state;                  /* written under the mutex */
    atomic_int_fast64_t reserved_smem; /* -1 = module_reserve was never called */
    atomic_int reserved_cluster;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    uint64_t flight;     /* counts attempts to obtain the code */
    gk_error error;      /* of the last attempt that failed */
    unsigned char *code; /* until it is loaded */
    bool code_is_stored; /* it came from the cache */
    size_t code_size;
} gki_entry;

static void count(atomic_uint_fast64_t *counter)
{
    atomic_fetch_add_explicit(counter, 1, memory_order_relaxed);
}

static _Atomic(gki_entry *) *bucket_of(gki_jit *jit, const gki_digest *key)
{
    uint32_t index;
    memcpy(&index, key->bytes, sizeof index);
    return &jit->buckets[index % GKI_KERNEL_BUCKETS];
}

static gki_entry *find_in(gki_entry *entry, const gki_digest *key)
{
    while (entry && memcmp(&entry->kernel.key, key, sizeof *key) != 0) {
        entry = entry->next;
    }
    return entry;
}

static gki_entry *make_entry(const gki_rendered *rendered)
{
    gki_entry *entry = gki_calloc(1, sizeof *entry);
    if (!entry) {
        return NULL;
    }
    if (pthread_mutex_init(&entry->mutex, NULL) != 0) {
        gki_free(entry);
        return NULL;
    }
    if (pthread_cond_init(&entry->changed, NULL) != 0) {
        pthread_mutex_destroy(&entry->mutex);
        gki_free(entry);
        return NULL;
    }
    entry->kernel.key = rendered->key;
    memcpy(entry->kernel.name, rendered->kernel, sizeof entry->kernel.name);
    atomic_init(&entry->kernel.module, NULL);
    atomic_init(&entry->state, EMPTY);
    atomic_init(&entry->reserved_smem, -1);
    atomic_init(&entry->reserved_cluster, 0);
    return entry;
}

/* The table's entry for the key, a new one if need be; NULL if memory is out. */
static gki_entry *intern(gki_jit *jit, const gki_rendered *rendered)
{
    _Atomic(gki_entry *) *bucket = bucket_of(jit, &rendered->key);
    gki_entry *entry = find_in(atomic_load_explicit(bucket, memory_order_acquire), &rendered->key);
    if (entry) {
        return entry;
    }
    pthread_mutex_lock(&jit->mutex);
    gki_entry *head = atomic_load_explicit(bucket, memory_order_relaxed);
    entry = find_in(head, &rendered->key);
    if (!entry) {
        entry = make_entry(rendered);
        if (entry) {
            entry->next = head;
            atomic_store_explicit(bucket, entry, memory_order_release);
        }
    }
    pthread_mutex_unlock(&jit->mutex);
    return entry;
}

void gki_kernels_destroy(gki_jit *jit)
{
    gki_device *device = jit->options.device;
    for (size_t i = 0; i < GKI_KERNEL_BUCKETS; i++) {
        gki_entry *entry = atomic_load(&jit->buckets[i]);
        while (entry) {
            gki_entry *next = entry->next;
            gki_module *module = atomic_load(&entry->kernel.module);
            if (module) {
                device->driver->module_unload(device, module);
            }
            pthread_cond_destroy(&entry->changed);
            pthread_mutex_destroy(&entry->mutex);
            gki_free(entry->code);
            gki_free(entry);
            entry = next;
        }
        atomic_store(&jit->buckets[i], NULL);
    }
}

/* Compiles and stores. The verdicts go to *record, which owns the code. */
static gk_status compile(gki_jit *jit, const gki_entry *entry, const char *source,
                         gki_kernel_record *record, double *seconds)
{
    gki_device *device = jit->options.device;
    gki_compiled compiled = {0};
    const gk_status status = device->driver->compile(device, source, &compiled);
    if (compiled.log && compiled.log[0] != '\0') {
        gki_logf(jit->options.log, GK_LOG_DEBUG, "%s: %s", entry->kernel.name, compiled.log);
    }
    gki_free(compiled.log);
    if (status != GK_OK) {
        count(&jit->options.counters->compile_failures);
        return status;
    }
    count(&jit->options.counters->compiles);
    *seconds = compiled.seconds;
    *record = (gki_kernel_record){
        .code = compiled.code,
        .size = compiled.size,
        .registers = compiled.registers,
        .spill_bytes = compiled.spill_bytes,
        .stack_bytes = compiled.stack_bytes,
        .serialized = compiled.serialized,
    };
    gki_logf(jit->options.log, GK_LOG_DEBUG,
             "%s: compiled in %d ms, %d registers, %d bytes spilled%s", entry->kernel.name,
             (int)(compiled.seconds * 1e3), (int)compiled.registers, (int)compiled.spill_bytes,
             compiled.serialized ? ", wgmma serialized" : "");
    if (jit->options.cache) {
        gki_cache_kernel_put(jit->options.cache, &entry->kernel.key, entry->kernel.name, record);
    }
    return GK_OK;
}

/* The code from the cache or the compiler. Only the thread of the flight is here. */
static gk_status obtain(gki_jit *jit, gki_entry *entry, const char *source)
{
    gki_kernel_record record = {0};
    gk_error saved;
    gki_error_save(&saved);
    bool from_cache =
        jit->options.cache &&
        gki_cache_kernel_get(jit->options.cache, &entry->kernel.key, &record) == GK_OK;
    if (!from_cache) {
        (void)gki_error_restore(&saved);
        const gk_status status = compile(jit, entry, source, &record, &entry->kernel.compile_s);
        if (status != GK_OK) {
            return status;
        }
    }
    entry->code = record.code;
    entry->code_size = record.size;
    entry->code_is_stored = from_cache;
    entry->kernel.registers = record.registers;
    entry->kernel.spill_bytes = record.spill_bytes;
    entry->kernel.stack_bytes = record.stack_bytes;
    entry->kernel.serialized = record.serialized;
    entry->kernel.from_cache = from_cache;
    return GK_OK;
}

/* One flight: obtains the code and tells the threads that wait for it. Called and left with the
 * mutex held. */
static gk_status fly(gki_jit *jit, gki_entry *entry, const char *source)
{
    entry->flight++;
    atomic_store_explicit(&entry->state, BUSY, memory_order_relaxed);
    pthread_mutex_unlock(&entry->mutex);
    const gk_status status = obtain(jit, entry, source);
    pthread_mutex_lock(&entry->mutex);
    int state = READY;
    if (status != GK_OK) {
        gki_error_save(&entry->error);
        /* Only the source's own fault will be the same next time. */
        state = status == GK_ERR_COMPILE ? FAILED : EMPTY;
    }
    atomic_store_explicit(&entry->state, state, memory_order_release);
    pthread_cond_broadcast(&entry->changed);
    return status;
}

static gk_status make_ready(gki_jit *jit, gki_entry *entry, const char *source)
{
    gk_status status = GK_OK;
    if (atomic_load_explicit(&entry->state, memory_order_acquire) == READY) {
        return GK_OK;
    }
    pthread_mutex_lock(&entry->mutex);
    const bool busy = atomic_load(&entry->state) == BUSY;
    const uint64_t flight = entry->flight;
    while (atomic_load(&entry->state) == BUSY && entry->flight == flight) {
        pthread_cond_wait(&entry->changed, &entry->mutex);
    }
    const int state = atomic_load(&entry->state);
    if (state == FAILED || (busy && state != READY)) {
        /* The threads that waited share the flight's failure instead of failing one by one. */
        status = gki_error_restore(&entry->error);
    } else if (state == EMPTY) {
        status = fly(jit, entry, source);
    }
    pthread_mutex_unlock(&entry->mutex);
    return status;
}

/* Renders, and finds or makes the entry. *source (gki_free) is set on success. */
static gk_status look_up(gki_jit *jit, const gk_op_desc *op, const gk_variant *variant,
                         const gk_problem *problem, const gk_config *config, gki_entry **entry,
                         char **source)
{
    gki_rendered rendered;
    gk_status status = gki_render(jit, op, variant, problem, config, &rendered);
    if (status != GK_OK) {
        return status;
    }
    *entry = intern(jit, &rendered);
    if (!*entry) {
        status = gki_fail_nomem(WHERE, sizeof **entry);
    } else {
        status = make_ready(jit, *entry, rendered.source);
    }
    if (status != GK_OK) {
        gki_free(rendered.source);
        return status;
    }
    *source = rendered.source;
    return GK_OK;
}

gk_status gki_kernel_get(gki_jit *jit, const gk_op_desc *op, const gk_variant *variant,
                         const gk_problem *problem, const gk_config *config, gki_kernel **out)
{
    gki_entry *entry = NULL;
    char *source = NULL;
    *out = NULL;
    const gk_status status = look_up(jit, op, variant, problem, config, &entry, &source);
    if (status == GK_OK) {
        gki_free(source);
        *out = &entry->kernel;
    }
    return status;
}

/* Replaces code from the cache that did not load. The kernel's verdicts stay: they belong to the
 * same source. Called with the mutex held. */
static gk_status recompile(gki_jit *jit, gki_entry *entry, const char *source)
{
    gki_kernel_record record = {0};
    double seconds = 0;
    gki_logf(jit->options.log, GK_LOG_WARNING, "%s: cached code does not load, compiling anew: %s",
             entry->kernel.name, gk_error_last()->message);
    const gk_status status = compile(jit, entry, source, &record, &seconds);
    if (status == GK_OK) {
        gki_free(entry->code);
        entry->code = record.code;
        entry->code_size = record.size;
        entry->code_is_stored = false;
    }
    return status;
}

/* Loads the module if no thread has. Called with the mutex held. */
static gk_status load(gki_jit *jit, gki_entry *entry, const char *source, gki_module **out)
{
    gki_device *device = jit->options.device;
    gk_error saved;
    *out = atomic_load_explicit(&entry->kernel.module, memory_order_relaxed);
    if (*out) {
        return GK_OK;
    }
    gki_error_save(&saved);
    gk_status status =
        device->driver->module_load(device, entry->code, entry->code_size, entry->kernel.name, out);
    if (status == GK_ERR_DEVICE && entry->code_is_stored) {
        status = recompile(jit, entry, source);
        if (status == GK_OK) {
            (void)gki_error_restore(&saved);
            status = device->driver->module_load(device, entry->code, entry->code_size,
                                                 entry->kernel.name, out);
        }
    }
    if (status != GK_OK) {
        *out = NULL;
        return status;
    }
    count(&jit->options.counters->kernels_loaded);
    gki_free(entry->code);
    entry->code = NULL;
    entry->code_size = 0;
    return GK_OK;
}

static bool is_reserved(const gki_entry *entry, const gk_launch *launch)
{
    return !launch ||
           (launch->smem <= atomic_load_explicit(&entry->reserved_smem, memory_order_acquire) &&
            launch->cluster <=
                atomic_load_explicit(&entry->reserved_cluster, memory_order_acquire));
}

/* Called with the mutex held. */
static gk_status reserve(gki_jit *jit, gki_entry *entry, gki_module *module,
                         const gk_launch *launch)
{
    gki_device *device = jit->options.device;
    int64_t smem = atomic_load(&entry->reserved_smem);
    int32_t cluster = atomic_load(&entry->reserved_cluster);
    if (is_reserved(entry, launch)) {
        return GK_OK;
    }
    smem = launch->smem > smem ? launch->smem : smem;
    cluster = launch->cluster > cluster ? launch->cluster : cluster;
    const gk_status status = device->driver->module_reserve(device, module, smem, cluster);
    if (status == GK_OK) {
        atomic_store_explicit(&entry->reserved_smem, smem, memory_order_release);
        atomic_store_explicit(&entry->reserved_cluster, cluster, memory_order_release);
    }
    return status;
}

/* Clusters, and all blocks of a cooperative launch, need room at the same time. */
static gk_status check_resident(gki_jit *jit, const gki_entry *entry, const gk_launch *launch)
{
    gki_device *device = jit->options.device;
    int64_t blocks = 0;
    if (launch == NULL || (launch->cluster <= 1 && !launch->cooperative)) {
        return GK_OK;
    }
    const gki_kernel_launch asked = {
        .module = atomic_load_explicit(&entry->kernel.module, memory_order_acquire),
        .grid = launch->grid,
        .threads = launch->threads,
        .cluster = launch->cluster,
        .cooperative = launch->cooperative,
        .smem = launch->smem,
    };
    const gk_status status = device->driver->resident(device, &asked, &blocks);
    if (status != GK_OK) {
        return status;
    }
    const int64_t needed = launch->cooperative ? launch->grid : launch->cluster;
    if (blocks < needed) {
        return gk_fail(
            GK_ERR_NO_CONFIG, WHERE,
            "%s: %lld blocks of %d threads with %lld bytes of shared memory, in clusters "
            "of %d, must be on the device at once, it has room for %lld",
            entry->kernel.name, (long long)needed, (int)launch->threads, (long long)launch->smem,
            launch->cluster > 1 ? (int)launch->cluster : 1, (long long)blocks);
    }
    return GK_OK;
}

gk_status gki_kernel_load(gki_jit *jit, const gk_op_desc *op, const gk_variant *variant,
                          const gk_problem *problem, const gk_config *config,
                          const gk_launch *launch, gki_kernel **out)
{
    gki_entry *entry = NULL;
    char *source = NULL;
    gki_module *module = NULL;
    *out = NULL;
    gk_status status = look_up(jit, op, variant, problem, config, &entry, &source);
    if (status != GK_OK) {
        return status;
    }
    if (!atomic_load_explicit(&entry->kernel.module, memory_order_acquire) ||
        !is_reserved(entry, launch)) {
        pthread_mutex_lock(&entry->mutex);
        status = load(jit, entry, source, &module);
        if (status == GK_OK) {
            status = reserve(jit, entry, module, launch);
            /* Visible even if the reservation failed: the module is loaded and owned by the jit. */
            atomic_store_explicit(&entry->kernel.module, module, memory_order_release);
        }
        pthread_mutex_unlock(&entry->mutex);
    }
    if (status == GK_OK) {
        status = check_resident(jit, entry, launch);
    }
    gki_free(source);
    if (status == GK_OK) {
        *out = &entry->kernel;
    }
    return status;
}
