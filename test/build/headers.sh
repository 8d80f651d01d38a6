#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Every header with a guard compiles alone; the public ones as C11 and C++ and without a warning.
# shellcheck source=common.sh
source "$(dirname "$0")/common.sh"
need gcc g++ clang
cd "$SWIGLU_SOURCE"
checked=0
warnings=(-Wall -Wextra -Wshadow -pedantic -Werror)
for header in include/swiglu/*.h; do
    for compiler in "gcc -x c -std=c11" "clang -x c -std=c11" "g++ -x c++ -std=c++11" "clang -x c++ -std=c++17"; do
        printf '#include <swiglu/%s>\ntypedef int not_empty;\n' "${header##*/}" |
            ${compiler} "${warnings[@]}" -Iinclude -fsyntax-only - || fail "$header does not compile alone with $compiler"
        checked=$((checked + 1))
    done
done
for header in src/*/*.h; do
    grep -q '^#ifndef SWIGLU_.*_H$' "$header" || continue # a template: it belongs to whoever includes it
    printf '#include "%s"\ntypedef int not_empty;\n' "${header#src/}" |
        gcc -x c -std=c11 "${warnings[@]}" -Iinclude -Isrc -fsyntax-only - || fail "$header does not compile alone"
    checked=$((checked + 1))
done
echo "$checked compilations"
