#!/bin/sh
# usage: check_symbols.sh LIBRARY LIST: the library exports exactly the listed symbols, and needs
# neither libcuda nor NVRTC to start.
set -eu
exported=$(nm -D --defined-only "$1" | awk '$2 != "A" { print $3 }' | sort)
if [ "$exported" != "$(cat "$2")" ]; then
    printf '%s\n' "$exported" | diff -u "$2" - && exit 1
    exit 1
fi
if readelf -d "$1" | grep NEEDED | grep -E 'libcuda|libnvrtc'; then
    echo "the library is linked to the driver or the compiler"
    exit 1
fi
