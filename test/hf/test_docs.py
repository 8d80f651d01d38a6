# SPDX-License-Identifier: Apache-2.0
"""The code in docs/python.md runs."""
import os
import re
from pathlib import Path

ROOT = Path(os.environ.get("SWIGLU_SOURCE", Path(__file__).parents[2]))


def test_the_page_for_python_users_runs(capsys):
    text = (ROOT / "docs" / "python.md").read_text()
    pieces = re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    assert len(pieces) >= 5
    scope = {}
    for piece in pieces:
        exec(compile(piece, "docs/python.md", "exec"), scope)
    assert "2 of 2 feed-forward blocks would be replaced" in capsys.readouterr().out
