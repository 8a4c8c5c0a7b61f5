#include "jit/internal.h"

#include <string.h>

#include "base/alloc.h"
#include "base/error.h"

static const char WHERE[] = "jit";

gk_status gki_jit_create(gki_jit **out, const gki_jit_options *options)
{
    *out = NULL;
    gki_jit *jit = gki_calloc(1, sizeof *jit);
    if (!jit) {
        return gki_fail_nomem(WHERE, sizeof *jit);
    }
    jit->options = *options;
    if (jit->options.compile_threads == 0) {
        jit->options.compile_threads = 1;
    }
    options->device->driver->info(options->device, &jit->info);
    if (pthread_mutex_init(&jit->mutex, NULL) != 0) {
        gki_free(jit);
        return gk_fail(GK_ERR_NOMEM, WHERE, "no mutex");
    }
    atomic_init(&jit->sources, NULL);
    for (size_t i = 0; i < GKI_KERNEL_BUCKETS; i++) {
        atomic_init(&jit->buckets[i], NULL);
    }
    *out = jit;
    return GK_OK;
}

static void free_source(gki_source *source)
{
    gki_free(source->head);
    gki_free(source->body);
    gki_free(source);
}

void gki_jit_destroy(gki_jit **jit)
{
    gki_jit *dead = *jit;
    *jit = NULL;
    if (!dead) {
        return;
    }
    gki_kernels_destroy(dead);
    gki_source *source = atomic_load(&dead->sources);
    while (source) {
        gki_source *next = source->next;
        free_source(source);
        source = next;
    }
    while (dead->hashes) {
        gki_op_hash *hash = dead->hashes;
        dead->hashes = hash->next;
        gki_free(hash);
    }
    pthread_mutex_destroy(&dead->mutex);
    gki_free(dead);
}

const gki_jit_options *gki_jit_options_of(const gki_jit *jit)
{
    return &jit->options;
}

const gk_device_info *gki_jit_device(const gki_jit *jit)
{
    return &jit->info;
}

/* The hash of both texts: they are long, and part of every key. */
static void hash_source(const gki_buf *head, const gki_buf *body, char out[65])
{
    gki_digest digests[2] = {gki_sha256(head->text, head->length),
                             gki_sha256(body->text, body->length)};
    const gki_digest both = gki_sha256(digests, sizeof digests);
    gki_digest_hex(&both, out);
}

static gk_status expand(const char *driver, const char *file, gki_source *source)
{
    gki_expander expander = {.driver = driver};
    gki_buf head = {0};
    gki_buf body = {0};
    gk_status status = gki_template_append(&expander, "gk/prelude.cuh", &head);
    if (status == GK_OK) {
        status = gki_template_append(&expander, "gk/dtypes.cuh", &head);
    }
    if (status == GK_OK) {
        status = gki_template_append(&expander, file, &body);
    }
    if (status != GK_OK) {
        gki_buf_free(&head);
        gki_buf_free(&body);
        return status;
    }
    hash_source(&head, &body, source->hash);
    source->file = file;
    source->head = head.text;
    source->body = body.text;
    return GK_OK;
}

static const gki_source *find_source(gki_jit *jit, const char *file)
{
    const gki_source *source = atomic_load_explicit(&jit->sources, memory_order_acquire);
    while (source && strcmp(source->file, file) != 0) {
        source = source->next;
    }
    return source;
}

/* Called with the mutex held. */
static gk_status add_source(gki_jit *jit, const char *file, const gki_source **out)
{
    gki_source *source = gki_calloc(1, sizeof *source);
    if (!source) {
        return gki_fail_nomem(WHERE, sizeof *source);
    }
    const gk_status status = expand(jit->options.device->driver->name, file, source);
    if (status != GK_OK) {
        gki_free(source);
        return status;
    }
    source->next = atomic_load_explicit(&jit->sources, memory_order_relaxed);
    atomic_store_explicit(&jit->sources, source, memory_order_release);
    *out = source;
    return GK_OK;
}

gk_status gki_jit_source(gki_jit *jit, const gk_variant *variant, const gki_source **out)
{
    gk_status status = GK_OK;
    *out = find_source(jit, variant->source);
    if (*out) {
        return GK_OK;
    }
    pthread_mutex_lock(&jit->mutex);
    *out = find_source(jit, variant->source);
    if (!*out) {
        status = add_source(jit, variant->source, out);
    }
    pthread_mutex_unlock(&jit->mutex);
    return status;
}
