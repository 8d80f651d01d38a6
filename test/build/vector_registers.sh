#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Wide registers appear in the objects of their own instruction set alone: code outside runs on any CPU of the
# architecture (C179).
# shellcheck source=common.sh
source "$(dirname "$0")/common.sh"
need objdump
[ "$(uname -m)" = x86_64 ] || { echo "skipped: x86-64 only"; exit 77; }
objects=$(find "$SWIGLU_BUILD/CMakeFiles/swiglu_objects.dir/src" -name '*.o')
[ -n "$objects" ] || fail "no objects"
seen=0
for object in $objects; do
    case ${object##*/} in
    isa_avx512*) forbidden='' ;;
    isa_avx2.*) forbidden='%zmm|%k[0-7]|%[xy]mm(1[6-9]|2[0-9]|3[01])' ;;
    *) forbidden='%zmm|%ymm|%k[0-7]|\sv[a-z0-9]+\s.*%xmm' ;;
    esac
    objdump -d --no-show-raw-insn "$object" >"$scratch/code"
    if [ -n "$forbidden" ] && grep -qE "$forbidden" "$scratch/code"; then
        grep -m3 -E "$forbidden" "$scratch/code"
        fail "${object##*/} holds instructions of a higher level"
    fi
    if [ -z "$forbidden" ] && grep -q '%zmm' "$scratch/code"; then seen=1; fi
done
[ $seen = 1 ] || fail "no AVX-512 code anywhere: the scan sees nothing"
