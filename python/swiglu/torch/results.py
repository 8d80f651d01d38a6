# SPDX-License-Identifier: Apache-2.0
"""Tensors for results. Fresh pages of a large gradient cost more than the product that fills it costs in writes, and small
pages slow those writes down. Tensors of 4 MB and more live in arrays on huge pages, and up to 256 MB of them are kept for
reuse."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .._c.memory import LARGE_FROM, uninitialised

_MOST_KEPT = 256 << 20


class _Kept:
    """Memory of results, kept when the result is gone. A result is made from a view of its own, and its memory is free once
    nothing holds that view: a weak reference tells, on every Python. (Counts of references would not: what the interpreter
    itself holds differs between versions.)"""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._arrays: list[tuple[np.ndarray, Callable[[], Any]]] = []  # memory, its last view or None

    def take(self, n_bytes: int) -> np.ndarray:
        """n_bytes that no tensor uses, for a tensor: from_numpy holds the array as long as any view of the tensor lives."""
        with self._lock:
            view: np.ndarray
            for i, (array, last) in enumerate(self._arrays):
                if array.nbytes == n_bytes and last() is None:
                    view = array.view()
                    self._arrays[i] = array, weakref.ref(view)
                    return view
            array = uninitialised(n_bytes)
            view = array.view()
            if n_bytes <= _MOST_KEPT:
                self._arrays.append((array, weakref.ref(view)))
                while sum(a.nbytes for a, _ in self._arrays) > _MOST_KEPT:
                    del self._arrays[0]  # tensors keep what they use
            return view

    def release(self) -> None:
        with self._lock:
            self._arrays.clear()


_kept = _Kept()


def _after_fork() -> None:
    global _kept
    _kept = _Kept()  # another thread of the parent may have held the lock


os.register_at_fork(after_in_child=_after_fork)


def release_memory() -> None:
    """Gives back the memory of past results that is kept for the next ones (at most 256 MB)."""
    _kept.release()


def empty(like: Tensor, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
    """Uninitialised, row-major, on the device of `like`, which is the CPU or pretended."""
    n = dtype.itemsize
    for size in shape:
        n *= size
    if n < LARGE_FROM or type(like) not in (Tensor, torch.nn.Parameter):
        return like.new_empty(shape, dtype=dtype)
    return torch.from_numpy(_kept.take(n)).view(dtype).view(tuple(shape))


_NOTHING = torch.empty(0, device="cpu")


class _Scratch(threading.local):
    memory = _NOTHING


_local = _Scratch()


def take_scratch(n: int) -> Tensor:
    """n f32 values of the calling thread, which grow to the largest use. They are the caller's until it gives them back: a
    signal handler that computes meanwhile has memory of its own."""
    memory, _local.memory = _local.memory, _NOTHING
    return memory if memory.numel() >= n else torch.from_numpy(uninitialised(4 * n)).view(torch.float32)


def give_back_scratch(memory: Tensor) -> None:
    _local.memory = memory
