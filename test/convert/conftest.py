# SPDX-License-Identifier: Apache-2.0
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "cli"))  # tool.py: the tool as a user calls it


@pytest.fixture(scope="session")
def shim(tmp_path_factory):
    """The library that makes calls fail, see shim.c."""
    compiler = os.environ.get("CC") or shutil.which("cc") or pytest.skip("no C compiler")
    path = tmp_path_factory.mktemp("shim") / "shim.so"
    subprocess.run([compiler, "-std=c11", "-O1", "-Wall", "-shared", "-fPIC", HERE / "shim.c", "-ldl", "-o", path],
                   check=True)
    return path
