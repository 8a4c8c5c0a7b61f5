# Sourced by quickstart and check: installs what is missing, from Debian's packages.

gk_missing=

# gk_need PACKAGE COMMAND...: the package is needed unless the command succeeds.
gk_need()
{
    package=$1
    shift
    "$@" >/dev/null 2>&1 || gk_missing="$gk_missing $package"
}

# Installs all that gk_need found missing, or says what to install.
gk_install()
{
    [ -n "$gk_missing" ] || return 0
    sudo=
    [ "$(id -u)" = 0 ] || sudo=sudo
    if command -v apt-get >/dev/null && { [ -z "$sudo" ] || command -v sudo >/dev/null; }; then
        echo "Installing$gk_missing"
        # shellcheck disable=SC2086
        if { $sudo apt-get update -q && DEBIAN_FRONTEND=noninteractive $sudo apt-get install -qy \
            --no-install-recommends $gk_missing; } >/dev/null; then
            gk_missing=
            return 0
        fi
    fi
    echo "Please install:$gk_missing" >&2
    exit 1
}

# What every build of gk needs.
gk_need_build()
{
    gk_need gcc command -v cc
    gk_need g++ command -v c++
    gk_need libc6-dev test -e /usr/include/stdio.h
    gk_need python3 command -v python3
    gk_need meson command -v meson
    gk_need ninja-build command -v ninja
    gk_need pkg-config command -v pkg-config
    gk_need libsqlite3-dev pkg-config --exists sqlite3
    gk_need libmd-dev pkg-config --exists libmd
}
