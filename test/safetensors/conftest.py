# SPDX-License-Identifier: Apache-2.0
"""What the file tests share lies in test/io. A sanitized library cannot be loaded into Python: there only the tests that
run the tool are collected."""
import os
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "io"))

if "SWIGLU_LIBRARY" not in os.environ:
    collect_ignore = ["test_families_st.py", "test_folder.py", "test_hostile_st.py"]
