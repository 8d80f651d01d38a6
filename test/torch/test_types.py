# SPDX-License-Identifier: Apache-2.0
"""The package is typed: mypy --strict finds nothing."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_mypy_strict(tmp_path):
    # by name, not by folder: an __init__.py above the checkout would make mypy look for packages there
    command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(tmp_path), "-p", "swiglu"]
    environment = {**os.environ, "MYPYPATH": str(ROOT / "python")}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "no issues found in" in done.stdout
