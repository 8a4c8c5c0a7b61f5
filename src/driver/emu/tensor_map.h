/* Tensor maps of the CPU device. */
#ifndef GKI_EMU_TENSOR_MAP_H
#define GKI_EMU_TENSOR_MAP_H

#include "driver/driver.h"

/* gki_driver.map_encode */
gk_status gki_emu_map_encode(gki_device *device, const gk_map_desc *desc, gk_tensor_map *out);

#endif
