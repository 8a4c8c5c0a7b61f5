/* Elements of any dtype as doubles. */
#ifndef GKI_NUMERIC_H
#define GKI_NUMERIC_H

#include <gk/base.h>

double gki_decode(gk_dtype dtype, const void *element);
/* Rounds to nearest even; what lies outside the format's range saturates in e4m3 and e5m2 and
 * becomes an infinity elsewhere. */
void gki_encode(gk_dtype dtype, double value, void *element);
bool gki_dtype_is_integer(gk_dtype dtype);

#endif
