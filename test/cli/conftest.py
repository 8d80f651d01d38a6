# SPDX-License-Identifier: Apache-2.0
import os

import pytest
import tool

if "SWIGLU_LIBRARY" not in os.environ:  # a sanitized build: nothing can stand before its library
    collect_ignore = ["test_explain.py"]


@pytest.fixture(scope="session")
def llama(tmp_path_factory):
    """Three small f32 layers."""
    return tool.write_llama(tmp_path_factory.mktemp("model") / "llama.gguf")
