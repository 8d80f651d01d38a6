#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# emulated.sh CPU LEVELS: on an emulated CPU the library finds exactly these levels (best last), keeps to them, and gives
# the right bits (C080: bf16 too). An illegal instruction would end the program with a signal (C173, C175).
# shellcheck source=common.sh
source "$(dirname "$0")/common.sh"
need qemu-x86_64
cpu=$1
levels=$2
emulate() {
    local code=0
    qemu-x86_64 -cpu "$cpu" "$@" 2>"$scratch/stderr" || code=$?
    [ $code = 0 ] || { cat "$scratch/stderr" >&2 && fail "$* on $cpu: exit code $code"; }
}

emulate "$SWIGLU_TOOL" cpu --json >"$scratch/cpu"
found=$(sed -nE 's/.*"level": *"([a-z0-9]+)".*"can": *true.*/\1/p' "$scratch/cpu" | xargs)
[ "$found" = "$levels" ] || fail "levels on $cpu: $found; expected $levels"
grep -q "\"kernel_f32\": *\"f32_${levels##* }\"" "$scratch/cpu" || fail "$cpu does not run on ${levels##* }"

emulate "$SWIGLU_BUILD/examples/minimal" | diff -u "$SWIGLU_SOURCE/test/build/expected/minimal.txt" -
emulate "$SWIGLU_TOOL" run --shape 96,160 --seed 1 --tokens 5 --check
emulate "$SWIGLU_BUILD/test/conformance" "$SWIGLU_SOURCE/test/vectors/conformance.txt"

# The emulator's flush-to-zero judges a result before it is rounded, a CPU afterwards (docs/numerics.md). So bf16 sums at
# 2^-126 may differ here, and nothing else may.
if ! qemu-x86_64 -cpu "$cpu" "$SWIGLU_BUILD/test/check_kernels" >"$scratch/check" 2>&1; then
    cat "$scratch/check"
    tail -n 1 "$scratch/check" | grep -qE '^[0-9]+ passed, [0-9]+ failed$' || fail "check_kernels on $cpu ended early"
    tiny='-?0x(0p\+0|1(\.[0-9a-f]+)?p-1[12][0-9])'
    if grep '^    ' "$scratch/check" | grep -vE ": $tiny instead of $tiny\$"; then fail "$cpu: more than the flush differs"; fi
    if grep '^FAILED' "$scratch/check" | grep -v '^FAILED bf16dot_'; then fail "$cpu: more than bf16 sums differ"; fi
fi
