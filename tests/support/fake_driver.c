#define _GNU_SOURCE
#include "fake_driver.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/alloc.h"
#include "devices.h"

static const char MAGIC[] = "FAKE1\n";
enum { MAGIC_SIZE = sizeof MAGIC - 1, ALIGNMENT = 256 };

/* In front of every allocation. */
typedef struct header {
    size_t bytes;
} header;

static fake_device *of(gki_device *device)
{
    return (fake_device *)(void *)device;
}

static _Noreturn void die(const char *what)
{
    fprintf(stderr, "fake driver: %s\n", what);
    abort();
}

static gk_status inject(fake_device *device, const char *slot, gk_status status)
{
    if (status == GK_OK) {
        return GK_OK;
    }
    if (status == GK_ERR_LOST) {
        atomic_store(&device->lost, true);
    }
    return gk_fail(status, "fake", "injected failure of %s", slot);
}

/* Counts the call and fails it if the script says so. */
static gk_status enter(fake_device *device, fake_fault *fault, const char *slot)
{
    const int n = atomic_fetch_add(&fault->calls, 1) + 1;
    if (atomic_load(&device->lost)) {
        return gk_fail(GK_ERR_LOST, "fake", "%s: the device is lost", slot);
    }
    if (fault->fail_at == 0 || n < fault->fail_at) {
        return GK_OK;
    }
    const int count = fault->fail_count == 0 ? 1 : fault->fail_count;
    if (count > 0 && n >= fault->fail_at + count) {
        return GK_OK;
    }
    return inject(device, slot, fault->status == GK_OK ? GK_ERR_DEVICE : fault->status);
}

static fake_rule *rule_of(fake_device *device, const char *kernel)
{
    for (uint32_t i = 0; i < device->n_rules; i++) {
        if (strstr(kernel, device->rules[i].match)) {
            return &device->rules[i];
        }
    }
    return &device->fallback;
}

static void fake_close(gki_device *device)
{
    (void)device;
}

static void fake_info(gki_device *device, gk_device_info *out)
{
    *out = of(device)->info;
}

static gk_status fake_mem_alloc(gki_device *device, size_t bytes, void **out)
{
    fake_device *fake = of(device);
    *out = NULL;
    const gk_status status = enter(fake, &fake->alloc, "mem_alloc");
    if (status != GK_OK) {
        return status;
    }
    void *block = NULL;
    if (bytes > SIZE_MAX - ALIGNMENT || posix_memalign(&block, ALIGNMENT, ALIGNMENT + bytes) != 0) {
        return gk_fail(GK_ERR_NOMEM, "fake", "mem_alloc of %zu bytes", bytes);
    }
    ((header *)block)->bytes = bytes;
    atomic_fetch_add(&fake->live_allocations, 1);
    atomic_fetch_add(&fake->live_bytes, (int64_t)bytes);
    *out = (char *)block + ALIGNMENT;
    memset(*out, 0xcd, bytes);
    return GK_OK;
}

static gk_status fake_mem_free(gki_device *device, void *ptr)
{
    fake_device *fake = of(device);
    if (ptr) {
        header *block = (header *)(void *)((char *)ptr - ALIGNMENT);
        atomic_fetch_sub(&fake->live_allocations, 1);
        atomic_fetch_sub(&fake->live_bytes, (int64_t)block->bytes);
        free(block);
    }
    return GK_OK;
}

static gk_status fake_copy(gki_device *device, void *dst, const void *src, size_t bytes,
                           void *stream)
{
    fake_device *fake = of(device);
    (void)stream;
    const gk_status status = enter(fake, &fake->copy, "copy");
    if (status == GK_OK && bytes > 0) {
        memmove(dst, src, bytes);
    }
    return status;
}

static gk_status fake_copy_in_2d(gki_device *device, void *dst, const void *src, size_t pitch,
                                 size_t width, size_t rows, void *stream)
{
    fake_device *fake = of(device);
    (void)stream;
    const gk_status status = enter(fake, &fake->copy, "copy");
    for (size_t i = 0; status == GK_OK && i < rows; i++) {
        memcpy((char *)dst + i * width, (const char *)src + i * pitch, width);
    }
    return status;
}

static gk_status fake_fill(gki_device *device, void *dst, unsigned char value, size_t bytes,
                           void *stream)
{
    fake_device *fake = of(device);
    (void)stream;
    const gk_status status = enter(fake, &fake->copy, "fill");
    if (status == GK_OK && bytes > 0) {
        memset(dst, value, bytes);
    }
    return status;
}

static gk_status fake_stream_create(gki_device *device, void **out)
{
    *out = device;
    return GK_OK;
}

static void fake_stream_destroy(gki_device *device, void *stream)
{
    (void)device;
    (void)stream;
}

static gk_status fake_synchronize(gki_device *device, void *stream)
{
    (void)stream;
    if (atomic_load(&of(device)->lost)) {
        return gk_fail(GK_ERR_LOST, "fake", "synchronize: the device is lost");
    }
    return GK_OK;
}

static gk_status fake_is_capturing(gki_device *device, void *stream, bool *out)
{
    (void)stream;
    *out = of(device)->capturing;
    return GK_OK;
}

/* The word behind "#define GK_KERNEL_NAME ". */
static bool kernel_name(const char *source, char out[FAKE_NAME])
{
    static const char define[] = "#define GK_KERNEL_NAME ";
    const char *p = strstr(source, define);
    if (!p) {
        return false;
    }
    p += sizeof define - 1;
    const size_t n = strcspn(p, " \r\n");
    if (n == 0 || n >= FAKE_NAME) {
        return false;
    }
    memcpy(out, p, n);
    out[n] = '\0';
    return true;
}

static void pause_ms(uint32_t ms)
{
    const struct timespec pause = {ms / 1000, (long)(ms % 1000) * 1000000};
    if (ms > 0) {
        nanosleep(&pause, NULL);
    }
}

static gk_status fake_compile(gki_device *device, const char *source, gki_compiled *out)
{
    fake_device *fake = of(device);
    char kernel[FAKE_NAME];
    memset(out, 0, sizeof *out);
    const gk_status status = enter(fake, &fake->compile, "compile");
    pause_ms(fake->compile_ms);
    if (status != GK_OK) {
        return status;
    }
    if (!kernel_name(source, kernel)) {
        return gk_fail(GK_ERR_COMPILE, "fake", "the source names no kernel");
    }
    fake_rule *rule = rule_of(fake, kernel);
    atomic_fetch_add(&rule->compiled, 1);
    pause_ms(rule->compile_ms);
    if (rule->compile != GK_OK) {
        out->log = gki_strdup("fake.cu(1): error: scripted");
        return inject(fake, kernel, rule->compile);
    }
    const size_t length = strlen(source);
    out->size = MAGIC_SIZE + length;
    out->code = gki_alloc(out->size);
    if (!out->code) {
        out->size = 0;
        return gk_fail(GK_ERR_NOMEM, "fake", "compile");
    }
    memcpy(out->code, MAGIC, MAGIC_SIZE);
    memcpy(out->code + MAGIC_SIZE, source, length);
    out->registers = rule->registers;
    out->spill_bytes = rule->spill_bytes;
    out->stack_bytes = rule->stack_bytes;
    out->serialized = rule->serialized;
    out->seconds = 0.001 + fake->compile_ms / 1000.0;
    return GK_OK;
}

/* Their copy; empty if there are none. */
static char *constants_of(const char *source)
{
    static const char begin[] = "#line 1 \"constants\"\n";
    const char *text = strstr(source, begin);
    text = text ? text + sizeof begin - 1 : "";
    const char *end = strstr(text, "#line ");
    return strndup(text, end ? (size_t)(end - text) : strlen(text));
}

static gk_status fake_module_load(gki_device *device, const void *code, size_t size,
                                  const char *kernel, gki_module **out)
{
    fake_device *fake = of(device);
    char name[FAKE_NAME];
    *out = NULL;
    gk_status status = enter(fake, &fake->load, "module_load");
    if (status != GK_OK) {
        return status;
    }
    fake_rule *rule = rule_of(fake, kernel);
    status = inject(fake, kernel, rule->load);
    if (status != GK_OK) {
        return status;
    }
    if (size < MAGIC_SIZE || memcmp(code, MAGIC, MAGIC_SIZE) != 0) {
        return gk_fail(GK_ERR_DEVICE, "fake", "%s: the code is not for this device", kernel);
    }
    fake_module *module = calloc(1, sizeof *module);
    char *source = strndup((const char *)code + MAGIC_SIZE, size - MAGIC_SIZE);
    char *constants = source ? constants_of(source) : NULL;
    if (!module || !constants) {
        die("out of memory");
    }
    const bool found = kernel_name(source, name) && strcmp(name, kernel) == 0;
    free(source);
    if (!found) {
        free(module);
        free(constants);
        return gk_fail(GK_ERR_DEVICE, "fake", "the code holds no kernel %s", kernel);
    }
    module->constants = constants;
    module->rule = rule;
    snprintf(module->kernel, sizeof module->kernel, "%s", kernel);
    module->base.registers = rule->registers;
    module->base.local_bytes = rule->spill_bytes + rule->stack_bytes;
    module->base.max_threads = fake->info.max_threads_per_block;
    atomic_fetch_add(&fake->live_modules, 1);
    *out = &module->base;
    return GK_OK;
}

static void fake_module_unload(gki_device *device, gki_module *base)
{
    fake_module *module = (fake_module *)(void *)base;
    if (module) {
        atomic_fetch_sub(&of(device)->live_modules, 1);
        free(module->constants);
        free(module);
    }
}

static gk_status fake_module_reserve(gki_device *device, gki_module *module, int64_t smem,
                                     int32_t cluster)
{
    fake_device *fake = of(device);
    (void)module;
    const gk_status status = enter(fake, &fake->reserve, "module_reserve");
    if (status == GK_OK) {
        atomic_store(&fake->reserved_smem, smem);
        atomic_store(&fake->reserved_cluster, cluster);
    }
    return status;
}

static gk_status run(fake_device *fake, const gki_kernel_launch *launch)
{
    const fake_module *module = (const fake_module *)(const void *)launch->module;
    atomic_fetch_add(&module->rule->launched, 1);
    const gk_status status = inject(fake, module->kernel, module->rule->launch);
    if (status != GK_OK || !fake->run) {
        return status;
    }
    return fake->run(fake->run_user, module, launch);
}

static gk_status fake_resident(gki_device *device, const gki_kernel_launch *launch, int64_t *blocks)
{
    fake_device *fake = of(device);
    *blocks = launch->cluster > 1 ? fake->room / launch->cluster * launch->cluster : fake->room;
    return enter(fake, &fake->resident, "resident");
}

/* A map is the description itself. */
static gk_status fake_map_encode(gki_device *device, const gk_map_desc *desc, gk_tensor_map *out)
{
    fake_device *fake = of(device);
    const gk_status status = enter(fake, &fake->map, "map_encode");
    _Static_assert(sizeof(*desc) <= sizeof(*out), "a map holds its description");
    if ((uintptr_t)out % 64 != 0) {
        die("a misaligned map");
    }
    if (status == GK_OK) {
        memset(out, 0, sizeof(*out));
        memcpy(out, desc, sizeof(*desc));
    }
    return status;
}

static gk_status fake_launch(gki_device *device, const gki_kernel_launch *launch, void *stream)
{
    fake_device *fake = of(device);
    (void)stream;
    const gk_status status = enter(fake, &fake->launch, "launch");
    return status == GK_OK ? run(fake, launch) : status;
}

static void fake_time_done(gki_device *device)
{
    (void)device;
}

static gk_status fake_time(gki_device *device, const gki_kernel_launch *launches, uint32_t count,
                           uint32_t repeats, bool graph, double *seconds)
{
    fake_device *fake = of(device);
    gk_status status = enter(fake, &fake->time, "time");
    if (status != GK_OK) {
        return status;
    }
    if (count == 0 || repeats == 0) {
        die("time without launches");
    }
    for (uint32_t i = 0; i < count; i++) {
        status = run(fake, &launches[i]);
        if (status != GK_OK) {
            return status;
        }
    }
    const fake_module *module = (const fake_module *)(const void *)launches[0].module;
    fake_rule *rule = module->rule;
    const uint32_t n = atomic_fetch_add(&rule->timed, 1);
    if (fake->timer) {
        return fake->timer(fake->timer_user, module, launches, count, repeats, graph, seconds);
    }
    *seconds = rule->n_times > 0 ? rule->times[n % rule->n_times] : rule->seconds;
    return GK_OK;
}

static const gki_driver TABLE = {
    .name = "cuda",
    .close = fake_close,
    .info = fake_info,
    .mem_alloc = fake_mem_alloc,
    .mem_free = fake_mem_free,
    .copy_in = fake_copy,
    .copy_in_2d = fake_copy_in_2d,
    .copy_out = fake_copy,
    .copy_dev = fake_copy,
    .fill = fake_fill,
    .stream_create = fake_stream_create,
    .stream_destroy = fake_stream_destroy,
    .synchronize = fake_synchronize,
    .is_capturing = fake_is_capturing,
    .compile = fake_compile,
    .module_load = fake_module_load,
    .module_unload = fake_module_unload,
    .module_reserve = fake_module_reserve,
    .resident = fake_resident,
    .launch = fake_launch,
    .map_encode = fake_map_encode,
    .time = fake_time,
    .time_done = fake_time_done,
};

static gk_status fake_open(const gki_driver *self, int32_t ordinal, const gki_log *log,
                           gki_device **out)
{
    (void)log;
    *out = NULL;
    if (ordinal != 0) {
        return gk_fail(GK_ERR_INVALID, "fake", "ordinal %d of 1 device", (int)ordinal);
    }
    /* The table lies inside the device, which the caller may change. */
    const char *start = (const char *)self - offsetof(fake_device, table);
    memcpy(out, &start, sizeof start);
    return GK_OK;
}

fake_device *fake_device_create(void)
{
    fake_device *device = calloc(1, sizeof *device);
    if (!device) {
        die("out of memory");
    }
    device->table = TABLE;
    device->table.open = fake_open;
    device->base.driver = &device->table;
    device->info = fake_h100;
    device->room = fake_h100.sm_count;
    device->fallback.registers = 64;
    device->fallback.seconds = 1e-3;
    return device;
}

void fake_device_destroy(fake_device **device)
{
    free(*device);
    *device = NULL;
}

fake_rule *fake_device_rule(fake_device *device, const char *match)
{
    if (device->n_rules == FAKE_MAX_RULES || strlen(match) >= FAKE_NAME) {
        die("too many rules, or a name too long");
    }
    fake_rule *rule = &device->rules[device->n_rules++];
    rule->registers = device->fallback.registers;
    rule->spill_bytes = device->fallback.spill_bytes;
    rule->stack_bytes = device->fallback.stack_bytes;
    rule->serialized = device->fallback.serialized;
    rule->seconds = device->fallback.seconds;
    snprintf(rule->match, sizeof rule->match, "%s", match);
    return rule;
}

bool fake_module_constant(const fake_module *module, const char *name, int64_t *value)
{
    static const char *const kinds[] = {"int", "bool"};
    char text[FAKE_NAME];
    for (size_t i = 0; i < 2; i++) {
        snprintf(text, sizeof text, "constexpr %s %s = ", kinds[i], name);
        const char *p = strstr(module->constants, text);
        if (p) {
            p += strlen(text);
            *value = strncmp(p, "true", 4) == 0 ? 1 : strtoll(p, NULL, 10);
            return true;
        }
    }
    return false;
}

const gki_driver *fake_device_driver(fake_device *device)
{
    return &device->table;
}
