# SPDX-License-Identifier: Apache-2.0
"""The package over the library of this build, with NumPy alone. Needs the shared library (not in sanitizer builds)."""
import os
import sys
from pathlib import Path

import pytest

SOURCE = Path(os.environ.get("SWIGLU_SOURCE", Path(__file__).parents[2]))
sys.path.insert(0, str(SOURCE / "python"))


@pytest.fixture
def source():
    return SOURCE
