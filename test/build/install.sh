#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What `make install` leaves is enough for an outside user with pkg-config, with CMake, shared or static; and `make
# uninstall` takes it away, and nothing else.
# shellcheck source=common.sh
source "$(dirname "$0")/common.sh"
need cmake gcc pkg-config
prefix=$scratch/prefix
expected=$SWIGLU_SOURCE/test/build/expected/minimal.txt
quietly cmake --install "$SWIGLU_BUILD" --prefix "$prefix"
[ -f "$prefix/share/man/man1/swiglu.1" ] || fail "no man page"
"$prefix/bin/swiglu" --version | grep -q swiglu || fail "the installed tool does not run"
libdir=$(dirname "$(find "$prefix" -name libswiglu.a)")

export PKG_CONFIG_PATH=$libdir/pkgconfig
read -ra flags <<<"$(pkg-config --cflags --libs swiglu)"
gcc -std=c11 "$SWIGLU_SOURCE/examples/minimal.c" "${flags[@]}" -o "$scratch/shared"
LD_LIBRARY_PATH=$libdir "$scratch/shared" | diff -u "$expected" -
read -ra flags <<<"$(pkg-config --static --cflags --libs swiglu)"
gcc -std=c11 -static "$SWIGLU_SOURCE/examples/minimal.c" "${flags[@]}" -o "$scratch/static"
"$scratch/static" | diff -u "$expected" -

mkdir "$scratch/user"
cp "$SWIGLU_SOURCE/examples/minimal.c" "$scratch/user"
cat >"$scratch/user/CMakeLists.txt" <<'CMAKE'
cmake_minimum_required(VERSION 3.18)
project(user LANGUAGES C)
find_package(swiglu 0.1 REQUIRED)
add_executable(shared minimal.c)
target_link_libraries(shared swiglu::swiglu)
add_executable(static minimal.c)
target_link_libraries(static swiglu::swiglu_static)
CMAKE
quietly cmake -S "$scratch/user" -B "$scratch/user/build" -DCMAKE_PREFIX_PATH="$prefix"
quietly cmake --build "$scratch/user/build"
"$scratch/user/build/shared" | diff -u "$expected" -
"$scratch/user/build/static" | diff -u "$expected" -

touch "$prefix/bin/other" "$libdir/libother.so"
"$SWIGLU_SOURCE/tools/uninstall.sh" "$SWIGLU_BUILD/install_manifest.txt" >/dev/null
rest=$(cd "$prefix" && find . ! -type d | sort | tr '\n' ' ')
[ "$rest" = "./bin/other ./${libdir#"$prefix"/}/libother.so " ] || fail "after the removal there is $rest"
if find "$prefix" -name swiglu | grep .; then fail "a folder is left"; fi
if "$SWIGLU_SOURCE/tools/uninstall.sh" "$scratch/none" 2>/dev/null; then fail "nothing to remove is no error"; fi
