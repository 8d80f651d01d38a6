#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds, brings a real model and checks every feed-forward block of it against the double-precision reference.
# demo.sh BUILD_DIR
set -euo pipefail
cd "$(dirname "$0")/.."
tool=$1/swiglu
if model=$(tools/fetch_model.sh); then
    command=("$tool" run "${model#"$PWD"/}" --check)
else
    echo "demo: the weights of SmolLM2-135M cannot be had here, so this is a block of the tool's own, with its widths" >&2
    command=("$tool" run --shape "576,1536" --seed 1 --check)
fi
echo "+ ${command[*]}"
exec "${command[@]}"
