#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Value-changing options are refused where the compiler tells about them, in every source file.
# shellcheck source=common.sh
source "$(dirname "$0")/common.sh"
need gcc clang
cd "$SWIGLU_SOURCE"
for compiler in gcc clang; do
    for option in -ffast-math -Ofast; do
        if "$compiler" -std=c11 "$option" -Iinclude -Isrc -fsyntax-only src/base/status.c 2>"$scratch/log"; then
            fail "$compiler $option was accepted"
        fi
        grep -q 'error.*breaks the numeric contract' "$scratch/log" || fail "$compiler $option: another error"
    done
done
# The refusal sits in base/attr.h: every file that decides bits has to see it.
for source in src/kern/isa_*.c; do
    gcc -std=c11 -Iinclude -Isrc -MM "$source" | grep -q 'base/attr\.h' || fail "$source does not see base/attr.h"
done
