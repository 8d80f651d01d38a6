#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# cover.sh BUILD_DIR: line coverage of src/ and cli/ after the tests ran in a build with --coverage; pages in
# BUILD_DIR/coverage.
set -euo pipefail
cd "$(dirname "$0")/.."
info=$1/coverage.info
lcov --quiet --capture --directory "$1" --base-directory "$PWD" --output-file "$info"
lcov --quiet --extract "$info" "$PWD/src/*" "$PWD/cli/*" --output-file "$info"
genhtml --quiet "$info" --output-directory "$1/coverage"
lcov --list "$info"
