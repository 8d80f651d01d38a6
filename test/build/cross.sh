#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# cross.sh PRESET: the library builds for another processor (aarch64, under the emulator) or C library (musl), and its
# kernels, conformance vectors and examples give the same bits there. C181: musl has not all of glibc.
# shellcheck source=common.sh
source "$(dirname "$0")/common.sh"
case $1 in
aarch64) need cmake aarch64-linux-gnu-gcc qemu-aarch64 ;;
musl) need cmake musl-gcc ;;
*) fail "no preset $1" ;;
esac
build=$SWIGLU_BUILD/$1 # kept, so that the next run compiles what changed
quietly cmake -S "$SWIGLU_SOURCE" -B "$build" -DCMAKE_TOOLCHAIN_FILE="$SWIGLU_SOURCE/cmake/$1.cmake"
quietly cmake --build "$build" -j "$(nproc)"
ctest --test-dir "$build" --output-on-failure
