#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# plain_line.sh COMPILER: one command without a build system builds the library into a program that works; nothing else is
# needed, OpenMP least of all (C182).
# shellcheck source=common.sh
source "$(dirname "$0")/common.sh"
need "$1"
cd "$SWIGLU_SOURCE"
"$1" -std=c11 -O2 -ffp-contract=off -fno-delete-null-pointer-checks -pthread -Iinclude -Isrc examples/minimal.c \
    src/*/*.c -lm -o "$scratch/minimal"
"$scratch/minimal" | diff -u test/build/expected/minimal.txt -
