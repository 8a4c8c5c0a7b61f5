#!/bin/sh
# Compiles and runs, as C11 and C++17, a program that uses every GK_*_INIT of the public headers for
# an automatic and a static variable. Needs CC, INCLUDE; CXX is optional.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
macros=$(sed -n 's/^#define \(GK_[A-Z0-9_]*_INIT\)[[:space:]].*/\1/p' "$INCLUDE"/gk/*.h)
[ -n "$macros" ] || { echo "no initialiser in $INCLUDE/gk"; exit 1; }
{
    echo '#include <gk/gk.h>'
    echo 'int main(void)'
    echo '{'
    echo '    int wrong = 0;'
    for macro in $macros; do
        # GK_X_Y_INIT initialises a gk_x_y.
        type=$(echo "${macro%_INIT}" | tr '[:upper:]' '[:lower:]')
        echo '    {'
        echo "        $type a = $macro;"
        echo "        static const $type b = $macro;"
        echo "        wrong += a.struct_size != sizeof($type) || b.struct_size != sizeof($type);"
        echo '    }'
    done
    echo '    return wrong;'
    echo '}'
} > "$work/user.c"
flags="-Wall -Wextra -Wpedantic -Werror -I$INCLUDE"
# shellcheck disable=SC2086
$CC -std=c11 $flags -x c "$work/user.c" -o "$work/user_c"
# shellcheck disable=SC2086
${CXX:-c++} -std=c++17 $flags -x c++ "$work/user.c" -o "$work/user_cxx"
"$work/user_c"
"$work/user_cxx"
