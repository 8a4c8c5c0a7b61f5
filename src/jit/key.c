#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/str.h"
#include "jit/internal.h"

enum { TEXT_LIMIT = 4096, HEX_DIGITS = 16 };

/* A text that does not fit ends in a hash of the whole. */
static void finish(const gki_text *w, char *out, size_t size)
{
    if (w->length < size) {
        memcpy(out, w->text, w->length);
        out[w->length] = '\0';
        return;
    }
    char hex[65];
    const gki_digest digest = gki_sha256(w->text, w->length);
    gki_digest_hex(&digest, hex);
    if (size > HEX_DIGITS + 1) {
        const size_t kept = size - HEX_DIGITS - 2;
        memcpy(out, w->text, kept);
        out[kept] = '#';
        memcpy(out + kept + 1, hex, HEX_DIGITS);
        out[size - 1] = '\0';
    } else if (size > 0) {
        memcpy(out, hex, size - 1);
        out[size - 1] = '\0';
    }
}

static void put_arg(gki_text *w, const char *name, const gk_problem *problem, uint32_t i)
{
    static const char *const layouts[] = {"row", "col", "strided", "repeat", "packed"};
    const uint8_t layout = problem->layout[i];
    if (problem->dtype[i] == GK_DTYPE_NONE) {
        gki_text_printf(w, " %s=-", name);
        return;
    }
    gki_text_printf(w, " %s=%s.", name, gk_dtype_name((gk_dtype)problem->dtype[i]));
    if (layout < sizeof layouts / sizeof layouts[0]) {
        gki_text_printf(w, "%s.%u", layouts[layout], (unsigned)problem->align[i]);
    } else {
        gki_text_printf(w, "layout%u.%u", (unsigned)layout, (unsigned)problem->align[i]);
    }
}

static void put_attr(gki_text *w, const gk_attr_desc *attr, uint8_t value)
{
    if (attr->names && value < attr->n_names) {
        gki_text_printf(w, " %s=%s", attr->name, attr->names[value]);
    } else {
        gki_text_printf(w, " %s=%u", attr->name, (unsigned)value);
    }
}

void gki_problem_text(const gk_op_desc *op, const gk_problem *problem, char *out, size_t size)
{
    char text[TEXT_LIMIT];
    gki_text w = gki_text_begin(text, sizeof text);
    gki_text_printf(&w, "r%u", (unsigned)op->revision);
    for (uint32_t i = 0; i < op->n_dims && i < GK_MAX_DIMS; i++) {
        gki_text_printf(&w, " %s=%lld", op->dim_names[i], (long long)problem->dims[i]);
    }
    for (uint32_t i = 0; i < op->n_args && i < GK_MAX_ARGS; i++) {
        put_arg(&w, op->args[i].name, problem, i);
    }
    for (uint32_t i = 0; i < op->n_attrs && i < GK_MAX_ATTRS; i++) {
        if (op->attrs[i].in_identity) {
            put_attr(&w, &op->attrs[i], problem->attrs[i]);
        }
    }
    if (op->text_name != NULL) {
        gki_text_printf(&w, " %s=\"%s\"", op->text_name,
                        problem->text != NULL ? problem->text : "");
    }
    finish(&w, out, size);
}

/* SHA-256 over the expanded templates of all variants, in the op's order. */
static gk_status hash_templates(gki_jit *jit, const gk_op_desc *op, char hex[17])
{
    gki_buf all = {0};
    for (uint32_t i = 0; i < op->n_variants; i++) {
        const gki_source *source = NULL;
        const gk_status status = gki_jit_source(jit, op->variants[i], &source);
        if (status != GK_OK) {
            gki_buf_free(&all);
            return status;
        }
        gki_buf_printf(&all, "%s %s %s\n", op->variants[i]->name, source->file, source->hash);
    }
    if (all.failed) {
        gki_buf_free(&all);
        return gki_fail_nomem("jit", all.capacity);
    }
    char full[65];
    const gki_digest digest = gki_sha256(all.length > 0 ? all.text : "", all.length);
    gki_buf_free(&all);
    gki_digest_hex(&digest, full);
    memcpy(hex, full, HEX_DIGITS);
    hex[HEX_DIGITS] = '\0';
    return GK_OK;
}

static bool find_hash(gki_jit *jit, const gk_op_desc *op, char hex[17])
{
    bool found = false;
    pthread_mutex_lock(&jit->mutex);
    for (const gki_op_hash *hash = jit->hashes; hash && !found; hash = hash->next) {
        if (hash->op == op) {
            memcpy(hex, hash->hex, sizeof hash->hex);
            found = true;
        }
    }
    pthread_mutex_unlock(&jit->mutex);
    return found;
}

static gk_status template_hash(gki_jit *jit, const gk_op_desc *op, char hex[17])
{
    if (find_hash(jit, op, hex)) {
        return GK_OK;
    }
    const gk_status status = hash_templates(jit, op, hex);
    if (status != GK_OK) {
        return status;
    }
    /* Without memory for it the hash is made again. */
    gki_op_hash *hash = gki_calloc(1, sizeof *hash);
    if (hash) {
        hash->op = op;
        memcpy(hash->hex, hex, sizeof hash->hex);
        pthread_mutex_lock(&jit->mutex);
        hash->next = jit->hashes;
        jit->hashes = hash;
        pthread_mutex_unlock(&jit->mutex);
    }
    return GK_OK;
}

gk_status gki_environment_text(gki_jit *jit, const gk_op_desc *op, char *out, size_t size)
{
    const gk_device_info *info = &jit->info;
    char templates[17];
    char text[TEXT_LIMIT];
    gki_text w = gki_text_begin(text, sizeof text);
    if (size > 0) {
        out[0] = '\0';
    }
    const gk_status status = template_hash(jit, op, templates);
    if (status != GK_OK) {
        return status;
    }
    gki_text_printf(&w,
                    "driver=%s cc=%d sms=%d l2=%lld smem=%lld bus=%d arch=%.*s compiler=\"%.*s\"",
                    jit->options.device->driver->name, (int)info->cc, (int)info->sm_count,
                    (long long)info->l2_bytes, (long long)info->smem_per_block_optin,
                    (int)info->memory_bus_bits, (int)sizeof info->arch, info->arch,
                    (int)sizeof info->compiler, info->compiler);
    gki_text_printf(&w, " options=%d templates=%s revision=%u protocol=%d gk=%s",
                    GKI_COMPILE_OPTIONS, templates, (unsigned)op->revision, GKI_PROTOCOL,
                    gk_version_string());
    finish(&w, out, size);
    return GK_OK;
}
