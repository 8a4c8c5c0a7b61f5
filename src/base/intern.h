/* One copy of each text for as long as the process lives, so that equal texts have equal addresses.
 */
#ifndef GKI_INTERN_H
#define GKI_INTERN_H

#include <stddef.h>

/* The copy of the text, made if there is none; NULL if memory is out. Takes no lock. Thread-safe.
 */
const char *gki_intern(const char *text, size_t length);

#endif
