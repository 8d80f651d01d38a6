# SPDX-License-Identifier: Apache-2.0
"""A sanitized library cannot be loaded into Python: there only the tests that run the tool are collected."""
import os

if "SWIGLU_LIBRARY" not in os.environ:
    collect_ignore = ["test_decode.py", "test_edges.py", "test_families.py", "test_hostile_gguf.py", "test_split.py"]
