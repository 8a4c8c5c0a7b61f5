/* Devices that only a test knows: what gk asks of them, without one. */
#ifndef GK_TEST_DEVICES_H
#define GK_TEST_DEVICES_H

#include <gk/extend.h>

extern const gk_device_info fake_h100;
extern const gk_device_info fake_h200;

#endif
