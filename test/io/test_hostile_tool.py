# SPDX-License-Identifier: Apache-2.0
"""The hostile files through the tool: one line on stderr, exit code 2, or the file is shown. Runs sanitized too."""
import os
import subprocess

import pytest

import split
from hostile import ROWS, VALID

TOOL = os.environ["SWIGLU_TOOL"]


def info(path, *options):
    return subprocess.run([TOOL, "info", *options, path], capture_output=True, timeout=20)


def assert_one_error(done, path, words):
    assert done.returncode == 2, done
    text = done.stderr.decode("ascii")
    assert text.count("\n") == 1 and text[:-1].isprintable(), text
    for word in (path.name, *words):
        assert word in text


@pytest.mark.parametrize("number, data, words", ROWS, ids=[row[0] for row in ROWS])
def test_row(tmp_path, number, data, words):
    path = tmp_path / "hostile.gguf"
    path.write_bytes(data)
    done = info(path)
    if words:
        assert_one_error(done, path, words)
    else:
        assert done.returncode == 0, done


@pytest.mark.parametrize("number, files, opened, status, words", split.ROWS, ids=[row[0] for row in split.ROWS])
def test_set(tmp_path, number, files, opened, status, words):
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
    assert_one_error(info(tmp_path / opened), tmp_path, words)
    if len(files) == 2:
        assert_one_error(info(tmp_path), tmp_path, words)


def test_G40_prefixes(tmp_path):
    path = tmp_path / "hostile.gguf"
    for n in range(len(VALID)):
        path.write_bytes(VALID[:n])
        assert_one_error(info(path), path, [])


def test_G68_strict(tmp_path):
    path = tmp_path / "hostile.gguf"
    path.write_bytes(next(data for number, data, _ in ROWS if number == "G68"))
    done = info(path)
    assert done.returncode == 0 and b"103 trailing bytes" in done.stdout + done.stderr
    assert_one_error(info(path, "--strict"), path, ["103 trailing bytes"])
