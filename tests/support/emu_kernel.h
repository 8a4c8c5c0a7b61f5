/* Small kernels on the CPU device, for the tests of the device itself. */
#ifndef EMU_KERNEL_H
#define EMU_KERNEL_H

#include "driver/driver.h"

/* The CPU device; fails the test if there is none. Kernels get the sanitizer this program has. */
gki_device *emu_open(void);

/* A test with emu_device open, one of its own. */
extern gki_device *emu_device;
int emu_set_up(void **state);
int emu_tear_down(void **state);
#define EMU_TEST(name) cmocka_unit_test_setup_teardown(name, emu_set_up, emu_tear_down)

/*
 * Compiles and loads `body` behind the prelude and gk/ptx.cuh. The body's first line is line 1 of
 * "test.cu"; its kernel's name is test_kernel. Templates that it begins to include are expanded.
 */
gki_module *emu_load(gki_device *device, const char *body);

/* The compiler's verdict on such a body. */
gk_status emu_compile(gki_device *device, const char *body, gki_compiled *out);

/* One launch. */
gk_status emu_launch(gki_device *device, gki_module *module, int64_t grid, int32_t threads,
                     int64_t smem, const void *args, size_t args_size);

#endif
