/* The library's version. Meson reads these three lines; nothing else defines it. */
#ifndef GK_VERSION_H
#define GK_VERSION_H

#define GK_VERSION_MAJOR 0
#define GK_VERSION_MINOR 1
#define GK_VERSION_PATCH 0

/* One integer that grows with every release, for comparisons. */
#define GK_VERSION (GK_VERSION_MAJOR * 1000000 + GK_VERSION_MINOR * 1000 + GK_VERSION_PATCH)

#endif
