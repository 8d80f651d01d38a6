# SPDX-License-Identifier: Apache-2.0
"""The package over the library of this build, with NumPy alone. Needs the shared library (not in sanitizer builds)."""
import os
import sys
from pathlib import Path

import pytest

SOURCE = Path(os.environ.get("SWIGLU_SOURCE", Path(__file__).parents[2]))
sys.path.insert(0, str(SOURCE / "python"))


def pytest_ignore_collect(collection_path, config):
    if collection_path.name.startswith("test_") and "SWIGLU_LIBRARY" not in os.environ:
        pytest.skip("no plain shared library in this build", allow_module_level=True)
    return None


@pytest.fixture
def source():
    return SOURCE
