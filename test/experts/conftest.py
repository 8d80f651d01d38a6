# SPDX-License-Identifier: Apache-2.0
"""What the file tests share lies in test/io, test/safetensors and test/cli. A sanitized library cannot be loaded into
Python: there only the tests that run the tool are collected."""
import os
import pathlib
import sys

for folder in ("io", "safetensors", "cli"):
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / folder))

if "SWIGLU_LIBRARY" not in os.environ:
    collect_ignore = ["test_experts.py"]
