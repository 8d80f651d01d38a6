# SPDX-License-Identifier: Apache-2.0
"""Large memory is a mapping of its own: aligned, writable to its ends, private to the process, gone with its last view."""

import gc
import os
from pathlib import Path

import pytest

from swiglu._c.memory import LARGE_FROM, uninitialised


@pytest.mark.parametrize("n_bytes", [0, 1, LARGE_FROM - 1, LARGE_FROM, LARGE_FROM + 1, 3 * LARGE_FROM + 4097])
def test_memory_is_whole(n_bytes):
    memory = uninitialised(n_bytes)
    assert memory.nbytes == n_bytes and memory.dtype.name == "uint8" and memory.flags.writeable
    memory[:1], memory[-1:] = 1, 2
    if n_bytes >= LARGE_FROM:
        assert memory.ctypes.data % (2 << 20) == 0


def is_mapped(address):
    spans = (line.split()[0].split("-") for line in Path("/proc/self/maps").read_text().splitlines())
    return any(int(first, 16) <= address < int(end, 16) for first, end in spans)


@pytest.mark.skipif(not os.path.exists("/proc/self/maps"), reason="needs /proc")
def test_the_last_view_unmaps_it():
    memory = uninitialised(64 * LARGE_FROM)  # more than any gap that something else might fill at once
    address, view = memory.ctypes.data, memory[5:9]
    del memory
    gc.collect()
    view[:] = 7
    assert is_mapped(address)
    del view
    gc.collect()
    assert not is_mapped(address)


def test_a_child_does_not_write_into_the_parents():
    memory = uninitialised(LARGE_FROM)
    memory[:] = 3
    child = os.fork()
    if child == 0:
        memory[:] = 4
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert (memory == 3).all()


def test_no_memory_is_a_memory_error():
    with pytest.raises(MemoryError, match="no memory for"):
        uninitialised(1 << 62)
