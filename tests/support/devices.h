/* What gk knows of an H100 and of an H200, for tests that have neither. */
#ifndef GK_TEST_DEVICES_H
#define GK_TEST_DEVICES_H

#include <gk/extend.h>

extern const gk_device_info fake_h100;
extern const gk_device_info fake_h200;

#endif
