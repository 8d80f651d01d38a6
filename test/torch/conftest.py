# SPDX-License-Identifier: Apache-2.0
"""swiglu.torch over the library of this build. Skipped where PyTorch or the shared library is missing."""
import os
import sys
from pathlib import Path

import pytest

SOURCE = Path(os.environ.get("SWIGLU_SOURCE", Path(__file__).parents[2]))
sys.path[:0] = [str(SOURCE / "python"), str(Path(__file__).parent)]

# Compiled graphs on disk know nothing of a schema that has changed since.
os.environ["TORCHINDUCTOR_FORCE_DISABLE_CACHES"] = "1"


def pytest_ignore_collect(collection_path, config):
    if collection_path.name.startswith("test_"):
        pytest.importorskip("torch", reason="PyTorch is not installed")
        if "SWIGLU_LIBRARY" not in os.environ:
            pytest.skip("no plain shared library in this build", allow_module_level=True)
    return None


@pytest.fixture(autouse=True)
def fresh():
    import torch

    torch.manual_seed(0)
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)
