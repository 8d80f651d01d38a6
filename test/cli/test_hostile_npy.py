# SPDX-License-Identifier: Apache-2.0
"""Hostile .npy files: the rows N01 to N20 of the reliability rules, through `swiglu run --input`."""
import os
import resource
import time

import numpy as np
import pytest
from npy_rows import ACCEPTED, GOOD, REFUSED, D, npy
from tool import call, fails


def small_memory():
    if "SWIGLU_LIBRARY" not in os.environ:  # a sanitized build, whose shadow memory is huge
        return
    resource.setrlimit(resource.RLIMIT_AS, (512 << 20, 512 << 20))


def run(tmp_path, raw):
    path = tmp_path / "x.npy"
    path.write_bytes(raw)
    return ["run", "--shape", "2,3", "--digest", "--threads", "1", "--input", path]


@pytest.mark.parametrize("row, raw, saying", REFUSED, ids=[f"{r[0]}-{i}" for i, r in enumerate(REFUSED)])
def test_refused(tmp_path, row, raw, saying):
    begin = time.monotonic()
    line = fails(*run(tmp_path, raw), saying=saying, timeout=5, preexec_fn=small_memory)
    assert "x.npy: " in line and "offset " in line
    assert time.monotonic() - begin < 1 and len(line) < 1000


@pytest.mark.parametrize("row, raw", ACCEPTED, ids=[a[0] for a in ACCEPTED])
def test_accepted_with_the_right_values(tmp_path, row, raw):
    np.save(tmp_path / "plain.npy", np.array([[1, 2], [3, 4]], "<f4"))
    want = call("run", "--shape", "2,3", "--digest", "--input", tmp_path / "plain.npy").stdout
    done = call(*run(tmp_path, raw))
    assert (done.returncode, done.stdout, done.stderr) == (0, want, "")


def test_n17_trailing_byte_is_a_warning(tmp_path):
    done = call(*run(tmp_path, npy(D(), bytes(17))))
    assert done.returncode == 0
    assert done.stderr.splitlines() == [f"swiglu: {tmp_path}/x.npy: warning: 1 trailing byte after the data"]


def test_every_prefix_is_refused(tmp_path):
    whole = npy(D(), GOOD)
    for n in range(len(whole)):
        fails(*run(tmp_path, whole[:n]))


def test_every_changed_byte_of_the_header_is_refused_or_harmless(tmp_path):
    """Each byte replaced in turn: an error, or a file that NumPy reads the same way."""
    whole = npy(D(), GOOD)
    for i in range(len(whole) - 16):
        raw = bytearray(whole)
        raw[i] ^= 0x15
        done = call(*run(tmp_path, bytes(raw)), timeout=5)
        assert done.returncode in (0, 2), (i, done.stderr)
        if done.returncode == 0:
            read = np.load(tmp_path / "x.npy")
            assert read.shape[-1] == 2 and read.dtype == np.float32
