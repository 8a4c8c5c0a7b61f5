/* What an op makes of a case in words, at addresses far apart that nobody touches. */
#ifndef CASE_CALL_H
#define CASE_CALL_H

#include <gk/gk.h>

/* Fills tensors[GK_MAX_ARGS] and the call: attributes as they are by default, or as the preset,
 * which may be NULL, has them. As example() returns. */
gk_status case_call(const gk_op_desc *op, const gk_preset *preset, const gk_case *item,
                    gk_tensor *tensors, gk_call *call);

#endif
