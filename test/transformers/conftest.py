# SPDX-License-Identifier: Apache-2.0
"""Run by the Python that has PyTorch and transformers (tools/bootstrap_torch.sh); what the file tests share lies in
test/io."""
import os
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "io"))
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
