#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Everything that a review should not have to say: house rules, warnings as errors with two compilers, static analysis,
# scripts, the man page, and a scan for a miscompilation. Runs all steps, then fails if one did.
set -uo pipefail
cd "$(dirname "$0")/.." || exit
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
jobs=$(nproc)
passed=0
failed=0

includes=(-Iinclude -Isrc -Itest)
contract=(-std=c11 -ffp-contract=off -fno-delete-null-pointer-checks -pthread)
mapfile -t library < <(printf '%s\n' src/*/*.c)
mapfile -t sources < <(git ls-files --cached --others --exclude-standard -- '*.c' | while read -r f; do
    [ ! -e "$f" ] || echo "$f"
done)
mapfile -t scripts < <(git ls-files --cached --others --exclude-standard -- '*.sh' .ci/run)

step() { # step NAME COMMAND...
    local name=$1
    shift
    if "$@" >"$scratch/log" 2>&1; then
        echo "ok    $name"
        passed=$((passed + 1))
    else
        cat "$scratch/log"
        echo "FAIL  $name"
        failed=$((failed + 1))
    fi
}

# Runs a command with each file as its last argument, in parallel; says nothing when all succeed.
each() { # each FILE... -- COMMAND...
    local files=()
    while [ "$1" != -- ]; do
        files+=("$1")
        shift
    done
    shift
    printf '%s\0' "${files[@]}" | xargs -0 -n 1 -P "$jobs" "$@"
}

warnings() {
    each "${sources[@]}" -- "$1" "${contract[@]}" -O2 "${includes[@]}" -Wall -Wextra -Wshadow -pedantic -Wvla \
        -Wstrict-prototypes -Wmissing-prototypes -Wwrite-strings -Werror -c -o /dev/null
}

tidy() {
    each "${sources[@]}" -- clang-tidy --quiet # flags: compile_flags.txt
}

# GCC 12 may rewrite a store through a pointer parameter as NULL plus an index, then take the function for pure and delete
# its calls. The flag -fno-delete-null-pointer-checks cures it; the dumps tell whether it did.
null_stores() (
    root=$PWD
    mkdir "$scratch/dumps" && cd "$scratch/dumps" || return
    each "${library[@]/#/$root/}" -- gcc "${contract[@]}" -O2 "-I$root/include" "-I$root/src" -c \
        -fdump-tree-local-pure-const2-details || return
    ls ./*.local-pure-const2 >/dev/null || return
    ! grep -l "NULL memory access" ./*.local-pure-const2
)

man_pages() {
    local page
    for page in man/*.1; do mandoc -T lint -W warning "$page" || return 1; done
}

step "house rules" python3 tools/lint_source.py
step "cases" python3 tools/check_cases.py
step "families" python3 tools/families.py --check
step "gcc warnings" warnings gcc
step "clang warnings" warnings clang
step "clang-tidy" tidy
step "no NULL memory access in gcc's dump" null_stores
step "shellcheck" shellcheck -x -P test/build "${scripts[@]}"
step "ruff" .venv/bin/ruff check --quiet .
step "man page" man_pages
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
