#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Makes the virtual environment .venv-torch from tools/requirements-torch.txt, for the tests that need PyTorch or
# transformers. A large download, so only the demo and CI call it; those tests are skipped without it. pip takes
# PyTorch from where it is set up to: PIP_EXTRA_INDEX_URL or PIP_FIND_LINKS may name a place of the CPU build. Where pip
# would take the build for CUDA, which this library does not use, nothing is installed unless SWIGLU_TORCH=any.
set -euo pipefail
cd "$(dirname "$0")/.."
venv=.venv-torch
requirements=tools/requirements-torch.txt

# Made again when the requirements change.
if [ -x $venv/bin/python ] && cmp -s $requirements $venv/requirements.txt; then exit; fi
tools/bootstrap.sh build # python3 with venv
[ -x $venv/bin/python ] || python3 -m venv $venv
pip() { $venv/bin/python -m pip "$@"; }

# Without SWIGLU_TORCH=any: what pip would install, without the files themselves, which tells the two builds apart.
version=
if [ "${SWIGLU_TORCH:-cpu}" != any ]; then
    pip install --quiet --disable-pip-version-check 'pip>=22.2' >&2 # the first that can report
    report=$(mktemp)
    trap 'rm -f "$report"' EXIT
    pip install --quiet --disable-pip-version-check --dry-run --report "$report" -r $requirements >&2
    read -r version cuda < <($venv/bin/python - "$report" <<'EOF'
import json, sys
found = {i["metadata"]["name"].lower(): i["metadata"]["version"] for i in json.load(open(sys.argv[1]))["install"]}
print(found.get("torch", "(present)"), sum(name.startswith(("nvidia-", "cuda-")) for name in found))
EOF
    )
    if [ "$cuda" -gt 0 ]; then
        cat >&2 <<EOF
bootstrap: pip would install PyTorch $version for CUDA with $cuda packages of NVIDIA: about 3 GB to download, 5 to 8 GB on
    disk, none of which a CPU library uses. Name a place of the CPU build, such as the index for "CPU" on PyTorch's
    installation page, and try again:
        PIP_EXTRA_INDEX_URL=... make demo
    or take what there is: SWIGLU_TORCH=any make demo
EOF
        exit 1
    fi
fi
echo "bootstrap: installing PyTorch${version:+ $version} and transformers into $venv, once: the CPU build is about 0.4 GB" \
    "to download and 1.4 GB on disk" >&2
pip install --disable-pip-version-check --progress-bar on -r $requirements >&2
cp $requirements $venv/requirements.txt
