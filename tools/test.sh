#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# test.sh BUILD_DIR [CTEST_ARGUMENT...]: runs the tests of a build. Tests that lack something (the model file, an emulator)
# are reported as skipped; with CI=true or SWIGLU_REQUIRE_ALL=1 a skip is a failure.
set -euo pipefail
cd "$(dirname "$0")/.."
build=$1
shift
if model=$(tools/fetch_model.sh); then
    export SWIGLU_MODEL=$model
else
    echo "test: the model file cannot be had here; tests that need it are skipped" >&2
fi
if [ "${CI:-}" = true ]; then require_all=${SWIGLU_REQUIRE_ALL:-1}; else require_all=${SWIGLU_REQUIRE_ALL:-0}; fi
export SWIGLU_REQUIRE_ALL=$require_all

log=$PWD/$build/Testing/Temporary/LastTest.log
summary=$PWD/$build/Testing/summary.log
ctest --test-dir "$build" --no-tests=error --output-on-failure --output-log "$summary" -j "$(nproc)" "$@"
# Whole tests that skip have exit code 77 and are skipped in the summary alone; cases inside a program or a pytest run only
# say so in their output, which is in the log.
if skips=$(grep -ahE '\*\*\*Skipped|^skipped: |^\[  SKIPPED \]|^SKIPPED \[|[0-9]+ skipped' "$summary" "$log"); then
    echo "$skips"
    if [ "$require_all" = 1 ]; then
        echo "test: skipped tests count as failures here" >&2
        exit 1
    fi
fi
