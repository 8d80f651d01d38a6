#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The shared library shows the functions of the public headers and nothing else; the static one defines no global name
# that a host program could have too.
# shellcheck source=common.sh
source "$(dirname "$0")/common.sh"
need nm readelf
grep -ohE '\bswiglu_[a-z0-9_]+\(' "$SWIGLU_SOURCE"/include/swiglu/*.h | tr -d '(' | sort -u >"$scratch/mentioned"
nm -D --defined-only "$SWIGLU_BUILD/libswiglu.so" | awk '{print $3}' | sort -u >"$scratch/exported"
[ -s "$scratch/exported" ] || fail "the shared library exports nothing"
if grep -v '^swiglu_' "$scratch/exported"; then fail "exported names outside swiglu_"; fi
if comm -13 "$scratch/mentioned" "$scratch/exported" | grep .; then fail "exported, but in no public header"; fi

# Declared means marked SWIGLU_API; each must be there.
tr '\n' ' ' <<<"$(cat "$SWIGLU_SOURCE"/include/swiglu/*.h)" | grep -oE 'SWIGLU_API [^;]*;' |
    grep -oE '\bswiglu_[a-z0-9_]+\(' | tr -d '(' | sort -u >"$scratch/declared"
[ -s "$scratch/declared" ] || fail "no declaration found"
if comm -23 "$scratch/declared" "$scratch/exported" | grep .; then fail "declared, but not exported"; fi

nm -g --defined-only "$SWIGLU_BUILD/libswiglu.a" | awk 'NF == 3 {print $3}' >"$scratch/global"
if grep -v '^swiglu_' "$scratch/global"; then fail "global names outside swiglu_ in the static library"; fi

abi=$(sed -n 's/^#define SWIGLU_ABI \([0-9]*\)$/\1/p' "$SWIGLU_SOURCE/include/swiglu/version.h")
readelf -d "$SWIGLU_BUILD/libswiglu.so" | grep -q "SONAME.*\[libswiglu.so.$abi\]" || fail "SONAME is not libswiglu.so.$abi"
