#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# with_torch.sh ARGUMENT...: the Python that has PyTorch and transformers; skipped where it was not made.
set -euo pipefail
python=${SWIGLU_SOURCE:?}/.venv-torch/bin/python
[ -x "$python" ] || { echo "skipped: no .venv-torch here; tools/bootstrap_torch.sh makes it"; exit 77; }
exec "$python" "$@"
