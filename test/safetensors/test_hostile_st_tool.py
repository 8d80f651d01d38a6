# SPDX-License-Identifier: Apache-2.0
"""The hostile files through the tool: one line on stderr, exit code 2, or the file is shown. Runs sanitized too."""
import pytest

from hostile_st import ROWS, VALID
from test_hostile_tool import assert_one_error, info


@pytest.mark.parametrize("number, data, words", ROWS, ids=[row[0] for row in ROWS])
def test_row(tmp_path, number, data, words):
    path = tmp_path / "hostile.safetensors"
    path.write_bytes(data)
    done = info(path)
    if words:
        assert_one_error(done, path, words)
    else:
        assert done.returncode == 0, done
        done.stdout.decode("ascii")  # whatever the file holds


def test_prefixes(tmp_path):
    path = tmp_path / "hostile.safetensors"
    for n in range(len(VALID)):
        path.write_bytes(VALID[:n])
        assert_one_error(info(path), path, [])
