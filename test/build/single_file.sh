#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# single_file.sh PYTHON: `make single` gives a file that compiles with either compiler without a warning, shows no other
# names and computes the same bits, even where the host's flags allow contraction.
# shellcheck source=common.sh
source "$(dirname "$0")/common.sh"
need gcc clang nm "$1"
"$1" "$SWIGLU_SOURCE/tools/amalgamate.py" --cc gcc --out "$scratch/vendor/swiglu"
vectors=$SWIGLU_SOURCE/test/vectors
cd "$scratch"
build() { # build NAME COMPILER FLAG...
    local name=$1 compiler=$2
    shift 2
    "$compiler" "$@" -Wall -Wno-unused-function -Werror -c vendor/swiglu/swiglu.c -o "$name.o"
    if nm -g --defined-only "$name.o" | awk 'NF == 3 {print $3}' | grep -v '^swiglu_'; then fail "$name: foreign names"; fi
    "$compiler" -std=c11 -O2 -Ivendor "$vectors/conformance.c" "$name.o" -pthread -lm -o "$name"
    "./$name" "$vectors/conformance.txt" || fail "$name computes something else"
}
build gcc gcc -std=c11 -O2 &
first=$!
build clang clang -std=c11 -O2
wait $first
build contracting gcc -std=gnu11 -O2 -ffp-contract=fast
