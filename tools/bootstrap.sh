#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# bootstrap.sh build|test|lint|cover: makes sure that what this step needs is installed. As root on a machine with
# apt it installs what is missing; otherwise it prints the one command that does. All but build also make the virtual
# environment .venv from tools/requirements.txt.
set -euo pipefail
cd "$(dirname "$0")/.."

# What tells that it is there (a command, or a file), and the Debian package that brings it.
build=(cmake:cmake make:make cc:gcc /usr/include/stdio.h:libc6-dev python3:python3 python3-ensurepip:python3-venv)
test=("${build[@]}" gcc:gcc g++:g++ clang:clang nm:binutils pkg-config:pkg-config /usr/include/cmocka.h:libcmocka-dev
    qemu-x86_64:qemu-user aarch64-linux-gnu-gcc:gcc-aarch64-linux-gnu
    /usr/aarch64-linux-gnu/include/stdio.h:libc6-dev-arm64-cross musl-gcc:musl-tools)
lint=("${build[@]}" gcc:gcc clang:clang clang-tidy:clang-tidy shellcheck:shellcheck mandoc:mandoc)

cover=("${test[@]}" lcov:lcov)

there() {
    case $1 in
    /*) [ -e "$1" ] ;;
    python3-ensurepip) python3 -c 'import ensurepip, venv' 2>/dev/null ;;
    *) command -v "$1" >/dev/null ;;
    esac
}

missing_packages() {
    local pair
    for pair in "$@"; do there "${pair%%:*}" || echo "${pair#*:}"; done | sort -u
}

install_packages() {
    local packages
    mapfile -t packages < <(missing_packages "$@")
    [ ${#packages[@]} -gt 0 ] || return 0
    if ! command -v apt-get >/dev/null; then
        echo "bootstrap: missing here: ${packages[*]} (Debian's names); install them and try again" >&2
        exit 1
    fi
    if [ "$(id -u)" != 0 ]; then
        echo "bootstrap: some packages are missing; this installs them:" >&2
        echo "    sudo apt-get update && sudo apt-get install -y --no-install-recommends ${packages[*]}" >&2
        exit 1
    fi
    echo "bootstrap: installing ${packages[*]}" >&2
    export DEBIAN_FRONTEND=noninteractive
    { apt-get update -qq && apt-get install -y -qq --no-install-recommends "${packages[@]}"; } >&2
    mapfile -t packages < <(missing_packages "$@")
    [ ${#packages[@]} = 0 ] || { echo "bootstrap: still missing: ${packages[*]}" >&2; exit 1; }
}

# Made again when the requirements change.
make_venv() {
    if [ -x .venv/bin/python ] && cmp -s tools/requirements.txt .venv/requirements.txt; then return; fi
    [ -x .venv/bin/python ] || python3 -m venv .venv
    .venv/bin/python -m pip install --quiet --disable-pip-version-check -r tools/requirements.txt
    cp tools/requirements.txt .venv/requirements.txt
}

case ${1:-} in
build) install_packages "${build[@]}" ;;
test) install_packages "${test[@]}" && make_venv ;;
lint) install_packages "${lint[@]}" && make_venv ;;
cover) install_packages "${cover[@]}" && make_venv ;;
*) echo "usage: bootstrap.sh build|test|lint|cover" >&2 && exit 2 ;;
esac
