# SPDX-License-Identifier: Apache-2.0
"""Small random models of each family, made from their config classes. Skipped where PyTorch or transformers is missing."""
import os
import sys
from pathlib import Path

import pytest

sys.path[:0] = [str(Path(os.environ.get("SWIGLU_SOURCE", Path(__file__).parents[2])) / "python"), str(Path(__file__).parent)]
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
os.environ.setdefault("HF_HUB_OFFLINE", "1")


def pytest_ignore_collect(collection_path, config):
    if collection_path.name.startswith("test_"):
        pytest.importorskip("torch", reason="PyTorch is not installed")
        pytest.importorskip("transformers", reason="transformers is not installed")
        if "SWIGLU_LIBRARY" not in os.environ:
            pytest.skip("no plain shared library in this build", allow_module_level=True)
    return None


@pytest.fixture
def model():
    """A small random Llama."""
    from families import make

    return make("llama")


def pytest_sessionfinish(session, exitstatus):
    if exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED:
        session.exitstatus = 77  # what CTest takes for skipped
