# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# Sourced by the scripts of this folder; CTest sets SWIGLU_SOURCE and SWIGLU_BUILD.
set -euo pipefail
: "${SWIGLU_SOURCE:?}" "${SWIGLU_BUILD:?}"
export LC_ALL=C

fail() {
    echo "FAIL: $*" >&2
    exit 1
}

# Skips (exit code 77) when a command that the test cannot do without is missing.
need() {
    local command
    for command in "$@"; do
        command -v "$command" >/dev/null || { echo "skipped: no $command here; tools/bootstrap.sh installs it"; exit 77; }
    done
}

# A folder that goes away with the script.
scratch=$(mktemp -d "$SWIGLU_BUILD/scratch.XXXXXX")
trap 'rm -rf "$scratch"' EXIT

# Runs a command whose output matters only when it fails.
quietly() {
    "$@" >"$scratch/log" 2>&1 || { cat "$scratch/log" >&2 && fail "$*"; }
}
