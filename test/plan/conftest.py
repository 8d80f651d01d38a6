# SPDX-License-Identifier: Apache-2.0
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "cli"))  # tool.py: the tool as a user calls it
