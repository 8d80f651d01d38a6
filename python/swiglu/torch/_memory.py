# SPDX-License-Identifier: Apache-2.0
"""Tensors for results. Large ones come from NumPy, which asks for huge pages: a fresh gradient of a large weight costs more
in page faults than the product that fills it costs in writes (46 MB: 18 ms with small pages, 3 with huge ones)."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

_HUGE_FROM = 4 << 20  # bytes; NumPy's own threshold
_BITS = {torch.float32: np.float32, torch.float16: np.float16, torch.bfloat16: np.uint16}


def empty(like: Tensor, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
    """Uninitialised, row-major, on the device of `like`, which is the CPU or pretended."""
    n = dtype.itemsize
    for size in shape:
        n *= size
    if n < _HUGE_FROM or type(like) not in (Tensor, torch.nn.Parameter):
        return like.new_empty(shape, dtype=dtype)
    tensor = torch.from_numpy(np.empty(tuple(shape), _BITS[dtype]))
    return tensor if tensor.dtype == dtype else tensor.view(dtype)


class _Scratch(threading.local):
    memory = torch.empty(0)


_local = _Scratch()


def scratch(n: int) -> Tensor:
    """n f32 values of the calling thread, good until its next call; they grow to the largest one and stay."""
    if _local.memory.numel() < n:
        _local.memory = torch.from_numpy(np.empty(n, np.float32))
    return _local.memory
