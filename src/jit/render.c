#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/env.h"
#include "base/error.h"
#include "base/fs.h"
#include "jit/internal.h"

static const char WHERE[] = "render";

/* Part of every kernel's key: changes when equal sources no longer mean equal code. */
static const char KEY_FORMAT[] = "gk-kernel-1";

static bool is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool is_identifier(const char *name)
{
    if (!name || !is_letter(name[0])) {
        return false;
    }
    while (is_letter(*name) || is_digit(*name)) {
        name++;
    }
    return *name == '\0';
}

/* Appends to the kernel's name; what no name may hold becomes '_'. */
static void append_name(char name[128], const char *text)
{
    size_t used = strlen(name);
    while (*text != '\0' && used < 127) {
        name[used++] = is_letter(*text) || is_digit(*text) ? *text : '_';
        text++;
    }
    name[used] = '\0';
}

static void kernel_name(const gk_op_desc *op, const gk_variant *variant,
                        const gk_constants *constants, const gk_config *config, char name[128])
{
    char value[16];
    bool first = true;
    name[0] = '\0';
    append_name(name, "gk_");
    append_name(name, op->name);
    append_name(name, constants->tag[0] != '\0' ? "_" : "");
    append_name(name, constants->tag);
    append_name(name, "_");
    append_name(name, variant->name);
    for (uint32_t i = 0; i < variant->n_params; i++) {
        const gk_param *param = &variant->params[i];
        const char *label = param->label ? param->label : "";
        if (param->at_launch) {
            continue;
        }
        append_name(name, first && label[0] != '_' ? "_" : "");
        append_name(name, label);
        snprintf(value, sizeof value, "%d", (int)config->values[i]);
        append_name(name, value);
        first = false;
    }
}

/* For the reader: what was chosen. Launch-time params are left out, the code serves all of them. */
static void put_comment(gki_buf *out, const gk_op_desc *op, const gk_variant *variant,
                        const gk_config *config)
{
    gki_buf_printf(out, "// %s, variant %s (%s):", op->name, variant->name, variant->source);
    for (uint32_t i = 0; i < variant->n_params; i++) {
        if (!variant->params[i].at_launch) {
            gki_buf_printf(out, " %s=%d", variant->params[i].name, (int)config->values[i]);
        }
    }
    gki_buf_puts(out, "\n");
}

static gk_status put_params(gki_buf *out, const gk_variant *variant, const gk_config *config)
{
    for (uint32_t i = 0; i < variant->n_params; i++) {
        const gk_param *param = &variant->params[i];
        if (!is_identifier(param->name)) {
            return gk_fail(GK_ERR_INVALID, WHERE, "variant %s: tunable %u has no usable name",
                           variant->name, (unsigned)i);
        }
        if (!param->at_launch) {
            gki_buf_printf(out, "constexpr int %s = %d;\n", param->name, (int)config->values[i]);
        }
    }
    return GK_OK;
}

static void put_int(gki_buf *out, const char *name, int64_t value)
{
    if (value > INT32_MIN && value <= INT32_MAX) {
        gki_buf_printf(out, "constexpr int %s = %d;\n", name, (int)value);
    } else {
        gki_buf_printf(out, "constexpr long long %s = %lldLL;\n", name, (long long)value);
    }
}

/* One line of the source, whatever the text holds. */
static gk_status put_code(gki_buf *out, const gk_variant *variant, const gk_constant *item,
                          const char *code)
{
    const bool inside = item->value >= 0 && item->value < GK_MAX_CODE;
    const char *text = inside ? code + item->value : "";
    const size_t length = strlen(text);
    if (length == 0 || strcspn(text, "\n\r\\#") != length) {
        return gk_fail(GK_ERR_INVALID, WHERE, "variant %s: %s is no line of code", variant->name,
                       item->name);
    }
    gki_buf_printf(out, "#define %s %s\n", item->name, text);
    return GK_OK;
}

static gk_status put_constants(gki_buf *out, const gk_variant *variant,
                               const gk_constants *constants)
{
    for (uint32_t i = 0; i < constants->n_items; i++) {
        const gk_constant *item = &constants->items[i];
        if (!is_identifier(item->name)) {
            return gk_fail(GK_ERR_INVALID, WHERE, "variant %s: constant %u has no usable name",
                           variant->name, (unsigned)i);
        }
        switch (item->kind) {
        case GK_CONSTANT_INT:
            put_int(out, item->name, item->value);
            break;
        case GK_CONSTANT_BOOL:
            gki_buf_printf(out, "constexpr bool %s = %s;\n", item->name,
                           item->value ? "true" : "false");
            break;
        case GK_CONSTANT_TYPE:
            if (item->value <= GK_DTYPE_NONE || item->value >= GK_DTYPE_COUNT) {
                return gk_fail(GK_ERR_INVALID, WHERE, "variant %s: %s: %lld is no dtype",
                               variant->name, item->name, (long long)item->value);
            }
            gki_buf_printf(out, "using %s = gk::%s;\n", item->name,
                           gk_dtype_name((gk_dtype)item->value));
            break;
        case GK_CONSTANT_CODE: {
            const gk_status status = put_code(out, variant, item, constants->code);
            if (status != GK_OK) {
                return status;
            }
            break;
        }
        default:
            return gk_fail(GK_ERR_INVALID, WHERE, "variant %s: %s: %d is no kind of constant",
                           variant->name, item->name, (int)item->kind);
        }
    }
    return GK_OK;
}

/* The long texts count through their hash. */
static gk_status make_key(const gki_jit *jit, const gki_source *source, const gki_buf *top,
                          const gki_buf *constants, gki_digest *out)
{
    const gk_device_info *info = &jit->info;
    gki_buf all = {0};
    gki_buf_printf(&all, "%s\n%s\n%.*s\n%.*s\n%d\n%s\n%zu\n", KEY_FORMAT,
                   jit->options.device->driver->name, (int)sizeof info->arch, info->arch,
                   (int)sizeof info->compiler, info->compiler, GKI_COMPILE_OPTIONS, source->hash,
                   top->length);
    gki_buf_append(&all, top->text, top->length);
    gki_buf_append(&all, constants->text, constants->length);
    gk_status status = GK_OK;
    if (all.failed) {
        status = gki_fail_nomem(WHERE, all.capacity);
    } else {
        *out = gki_sha256(all.text, all.length);
    }
    gki_buf_free(&all);
    return status;
}

/* A dump that cannot be written is worth a warning, not the call. */
static void dump(const gki_jit *jit, const gki_rendered *rendered, size_t length)
{
    const char *directory = gki_env("GK_DUMP_DIR");
    if (!directory) {
        return;
    }
    char hex[65];
    gki_buf path = {0};
    gk_error saved;
    gki_error_save(&saved);
    gki_digest_hex(&rendered->key, hex);
    gki_buf_printf(&path, "%s/%s-%.8s.cu", directory, rendered->kernel, hex);
    gk_status status = path.failed ? gki_fail_nomem(WHERE, strlen(directory)) : GK_OK;
    if (status == GK_OK) {
        status = gki_fs_mkdirs(directory);
    }
    if (status == GK_OK) {
        status = gki_fs_write(path.text, rendered->source, length, 0644);
    }
    if (status != GK_OK) {
        gki_logf(jit->options.log, GK_LOG_WARNING, "GK_DUMP_DIR: %s", gk_error_last()->message);
        (void)gki_error_restore(&saved);
    }
    gki_buf_free(&path);
}

/* What the configuration and the problem put before and between the source's texts. */
static gk_status write_parts(const gk_op_desc *op, const gk_variant *variant,
                             const gk_problem *problem, const gk_config *config, char kernel[128],
                             gki_buf *top, gki_buf *middle)
{
    gk_constants constants = {0};
    if (variant->constants) {
        variant->constants(problem, &constants);
    }
    constants.tag[sizeof constants.tag - 1] = '\0';
    constants.code[sizeof constants.code - 1] = '\0';
    if (constants.n_items > GK_MAX_CONSTANTS) {
        return gk_fail(GK_ERR_INVALID, WHERE, "variant %s: %u constants, the limit is %d",
                       variant->name, (unsigned)constants.n_items, GK_MAX_CONSTANTS);
    }
    kernel_name(op, variant, &constants, config, kernel);
    put_comment(top, op, variant, config);
    gki_buf_printf(top, "#define GK_KERNEL_NAME %s\n", kernel);
    gki_buf_puts(middle, "#line 1 \"constants\"\n");
    gk_status status = put_params(middle, variant, config);
    if (status == GK_OK) {
        status = put_constants(middle, variant, &constants);
    }
    if (status == GK_OK && (top->failed || middle->failed)) {
        status = gki_fail_nomem(WHERE, middle->capacity);
    }
    return status;
}

static gk_status assemble(const gki_source *source, const gki_buf *top, const gki_buf *middle,
                          gki_buf *out)
{
    gki_buf_append(out, top->text, top->length);
    gki_buf_puts(out, source->head);
    gki_buf_append(out, middle->text, middle->length);
    gki_buf_puts(out, source->body);
    if (out->failed) {
        gki_buf_free(out);
        return gki_fail_nomem(WHERE, strlen(source->head) + strlen(source->body));
    }
    return GK_OK;
}

gk_status gki_render(gki_jit *jit, const gk_op_desc *op, const gk_variant *variant,
                     const gk_problem *problem, const gk_config *config, gki_rendered *out)
{
    gk_reason reason = {""};
    const gki_source *source = NULL;
    gki_buf top = {0};
    gki_buf middle = {0};
    gki_buf text = {0};
    memset(out, 0, sizeof *out);
    if (!gki_config_is_listed(variant, config, &reason)) {
        return gk_fail(GK_ERR_INVALID, WHERE, "%s", reason.text);
    }
    gk_status status = gki_jit_source(jit, variant, &source);
    if (status == GK_OK) {
        status = write_parts(op, variant, problem, config, out->kernel, &top, &middle);
    }
    if (status == GK_OK) {
        status = make_key(jit, source, &top, &middle, &out->key);
    }
    if (status == GK_OK) {
        status = assemble(source, &top, &middle, &text);
    }
    gki_buf_free(&top);
    gki_buf_free(&middle);
    if (status == GK_OK) {
        out->source = text.text;
        dump(jit, out, text.length);
    }
    return status;
}
