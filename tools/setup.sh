# Sourced by quickstart and check: installs missing Debian packages.

# gk_install PACKAGE...: what is missing is installed; without the right to, says what to install.
gk_install()
{
    missing=
    for package in "$@"; do
        dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'ok installed' ||
            missing="$missing $package"
    done
    [ -n "$missing" ] || return 0
    sudo=
    if [ "$(id -u)" != 0 ]; then
        sudo=sudo
        command -v sudo >/dev/null || { echo "Please install:$missing" >&2; exit 1; }
    fi
    command -v apt-get >/dev/null || { echo "Please install:$missing" >&2; exit 1; }
    echo "Installing$missing"
    # shellcheck disable=SC2086
    { $sudo apt-get update -q && DEBIAN_FRONTEND=noninteractive $sudo apt-get install -qy \
        --no-install-recommends $missing; } >/dev/null ||
        { echo "Please install:$missing" >&2; exit 1; }
}
