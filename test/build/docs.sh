#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The pieces of C in docs/c.md and docs/training.md compile, each page as one file, as the pages say.
# shellcheck source=common.sh
source "$(dirname "$0")/common.sh"
need gcc clang
cd "$SWIGLU_SOURCE"
for page in docs/c.md docs/training.md; do
    awk '/^```c$/ { inside = 1; next } /^```$/ { inside = 0 } inside' "$page" >"$scratch/page.c"
    [ -s "$scratch/page.c" ] || fail "no C in $page"
    for compiler in gcc clang; do
        $compiler -std=c11 -Wall -Wextra -Werror -Wno-unused-function -Iinclude -fsyntax-only "$scratch/page.c" ||
            fail "$page does not compile with $compiler"
    done
done
