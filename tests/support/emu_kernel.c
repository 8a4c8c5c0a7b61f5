#define _GNU_SOURCE
#include "support/emu_kernel.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/str.h"
#include "jit/template.h"
#include "support/gk_test.h"

gki_device *emu_open(void)
{
#if defined(__SANITIZE_ADDRESS__)
    assert_int_equal(setenv("GK_CXXFLAGS", "-g -fsanitize=address", 1), 0);
#elif defined(__SANITIZE_THREAD__)
    assert_int_equal(setenv("GK_CXXFLAGS", "-g -fsanitize=thread", 1), 0);
#endif
    gki_device *device = NULL;
    assert_gk_ok(gki_driver_cpu.open(&gki_driver_cpu, 0, NULL, &device));
    return device;
}

gki_device *emu_device;

int emu_set_up(void **state)
{
    (void)state;
    emu_device = emu_open();
    return 0;
}

int emu_tear_down(void **state)
{
    (void)state;
    emu_device->driver->close(emu_device);
    emu_device = NULL;
    return 0;
}

gk_status emu_compile(gki_device *device, const char *body, gki_compiled *out)
{
    gki_expander *expander = gki_calloc(1, sizeof *expander);
    gki_buf source = {0};
    assert_non_null(expander);
    expander->driver = "cpu";
    gki_buf_puts(&source, "#define GK_KERNEL_NAME test_kernel\n");
    assert_gk_ok(gki_template_append(expander, "gk/prelude.cuh", &source));
    assert_gk_ok(gki_template_append(expander, "gk/ptx.cuh", &source));
    unsigned line = 1;
    static const char INCLUDE[] = "#include \"";
    while (strncmp(body, INCLUDE, sizeof INCLUDE - 1) == 0) {
        char name[64];
        body += sizeof INCLUDE - 1;
        const int length = (int)strcspn(body, "\"");
        (void)snprintf(name, sizeof name, "%.*s", length, body);
        assert_gk_ok(gki_template_append(expander, name, &source));
        body += strcspn(body, "\n") + 1;
        line++;
    }
    gki_buf_printf(&source, "#line %u \"test.cu\"\n", line);
    gki_buf_puts(&source, body);
    assert_false(source.failed);
    const gk_status status = device->driver->compile(device, source.text, out);
    gki_buf_free(&source);
    gki_free(expander);
    return status;
}

gki_module *emu_load(gki_device *device, const char *body)
{
    gki_compiled compiled;
    if (emu_compile(device, body, &compiled) != GK_OK) {
        fail_msg("%s\n%s", gk_error_last()->message, compiled.log != NULL ? compiled.log : "");
    }
    gki_module *module = NULL;
    const gk_status status =
        device->driver->module_load(device, compiled.code, compiled.size, "test_kernel", &module);
    gki_free(compiled.code);
    gki_free(compiled.log);
    if (status != GK_OK) {
        fail_msg("%s", gk_error_last()->message);
    }
    return module;
}

gk_status emu_launch(gki_device *device, gki_module *module, int64_t grid, int32_t threads,
                     int64_t smem, const void *args, size_t args_size)
{
    const gki_kernel_launch launch = {.module = module,
                                      .grid = grid,
                                      .threads = threads,
                                      .cluster = 1,
                                      .smem = smem,
                                      .args = args,
                                      .args_size = args_size};
    return device->driver->launch(device, &launch, NULL);
}
