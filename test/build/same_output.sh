#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# same_output.sh EXPECTED PROGRAM [ARGUMENT...]: the program succeeds and prints exactly this.
# shellcheck source=common.sh
source "$(dirname "$0")/common.sh"
expected=$1
shift
"$@" >"$scratch/output" || fail "$1 ended with code $?"
diff -u "$expected" "$scratch/output"
