#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Makes the virtual environment .venv-torch from tools/requirements-torch.txt, for the tests that need PyTorch or
# transformers. A large download, so only the demo and CI call it; those tests are skipped without it. pip takes
# PyTorch from where it is set up to: PIP_EXTRA_INDEX_URL or PIP_FIND_LINKS may name a place of the smaller CPU build.
set -euo pipefail
cd "$(dirname "$0")/.."
venv=.venv-torch
requirements=tools/requirements-torch.txt

# Made again when the requirements change.
if [ -x $venv/bin/python ] && cmp -s $requirements $venv/requirements.txt; then exit; fi
tools/bootstrap.sh build # python3 with venv
[ -x $venv/bin/python ] || python3 -m venv $venv
echo "bootstrap: installing PyTorch and transformers into $venv (a large download, once)" >&2
$venv/bin/python -m pip install --quiet --disable-pip-version-check -r $requirements
cp $requirements $venv/requirements.txt
