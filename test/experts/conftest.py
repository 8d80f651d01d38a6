# SPDX-License-Identifier: Apache-2.0
"""What the file tests share lies in test/io, test/safetensors and test/cli."""
import pathlib
import sys

for folder in ("io", "safetensors", "cli"):
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / folder))
