#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A user's flags cannot switch contraction on: the library's own flags follow them on every command line.
# shellcheck source=common.sh
source "$(dirname "$0")/common.sh"
need cmake python3
quietly cmake -S "$SWIGLU_SOURCE" -B "$scratch/build" -DSWIGLU_TESTS=OFF \
    -DCMAKE_C_FLAGS="-O3 -march=native -ffp-contract=fast"
python3 - "$scratch/build/compile_commands.json" <<'PYTHON'
import json
import sys

commands = [entry["command"].split() for entry in json.load(open(sys.argv[1])) if "/src/" in entry["file"]]
assert commands
for command in commands:
    contraction = [flag for flag in command if flag.startswith("-ffp-contract=")]
    assert contraction == ["-ffp-contract=fast", "-ffp-contract=off"], command
    assert "-fno-delete-null-pointer-checks" in command, command
    assert not [flag for flag in command if flag.startswith("-m") and flag != "-march=native"], command
PYTHON
