#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Brings a real model and checks every feed-forward block of it against the double-precision reference; then runs it in
# transformers, with and without the drop-in.
# demo.sh BUILD_DIR
set -euo pipefail
cd "$(dirname "$0")/.."
tool=$1/swiglu
if ! model=$(tools/fetch_model.sh); then
    echo "demo: the weights of SmolLM2-135M cannot be had here, so this is a block of the tool's own, with its widths" >&2
    command=("$tool" run --shape "576,1536" --seed 1 --check)
    echo "+ ${command[*]}"
    exec "${command[@]}"
fi
command=("$tool" run "${model#"$PWD"/}" --check)
echo "+ ${command[*]}"
"${command[@]}"
echo
if ! tools/bootstrap_torch.sh; then
    echo "demo: without PyTorch and transformers this ends here; they would show the same model with and without the" \
        "drop-in" >&2
    exit
fi
command=(.venv-torch/bin/python tools/demo_torch.py "${model#"$PWD"/}")
echo "+ ${command[*]}"
SWIGLU_LIBRARY=$PWD/$1/libswiglu.so exec "${command[@]}"
