# SPDX-License-Identifier: Apache-2.0
"""Large memory. malloc serves even tens of megabytes from its heap once the process has freed blocks of that size: small
pages that start anywhere, on which a training step is 1 to 2 % slower."""

from __future__ import annotations

import mmap

import numpy as np

LARGE_FROM = 4 << 20  # bytes; below, huge pages gain nothing
_HUGE_PAGE = 2 << 20


def uninitialised(n_bytes: int) -> np.ndarray:
    """n_bytes as uint8. From LARGE_FROM on they are a mapping of their own, which starts on a huge page and asks for them;
    it is unmapped with the last view."""
    if n_bytes < LARGE_FROM or not hasattr(mmap, "MAP_ANONYMOUS"):
        return np.empty(n_bytes, np.uint8)
    try:
        mapping = mmap.mmap(-1, n_bytes + _HUGE_PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except OSError as error:
        raise MemoryError(f"no memory for {n_bytes} bytes") from error
    if hasattr(mmap, "MADV_HUGEPAGE"):
        try:
            mapping.madvise(mmap.MADV_HUGEPAGE)
        except OSError:
            pass  # a kernel without them
    memory = np.frombuffer(mapping, np.uint8)
    start = -memory.ctypes.data % _HUGE_PAGE
    return memory[start : start + n_bytes]
