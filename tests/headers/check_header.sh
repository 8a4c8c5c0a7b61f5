#!/bin/sh
# Compiles one header on its own as C99, C11 and C++17. Needs CC, INCLUDE; CXX is optional.
set -eu
header=$1
text="#include \"$header\"
typedef int something;"
for standard in c99 c11; do
    printf '%s\n' "$text" | $CC -std=$standard -Wall -Wextra -Wpedantic -Werror -I"$INCLUDE" \
        -fsyntax-only -x c -
done
printf '%s\n' "$text" | ${CXX:-c++} -std=c++17 -Wall -Wextra -Wpedantic -Werror -I"$INCLUDE" \
    -fsyntax-only -x c++ -
