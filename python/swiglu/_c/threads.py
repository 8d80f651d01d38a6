# SPDX-License-Identifier: Apache-2.0
"""Pools of threads shared by all blocks of a process, and one growing workspace per calling thread."""

from __future__ import annotations

import ctypes
import os
import threading
from typing import Optional

from . import abi
from .library import check, lib
from .memory import uninitialised


class Runner:
    """A struct swiglu_runner that keeps its address, for passing by pointer. address is None for one thread."""

    def __init__(self, struct: Optional[abi.Runner], n_threads: int) -> None:
        self._struct = struct
        self.n_threads = n_threads
        self.address = ctypes.addressof(struct) if struct is not None and n_threads > 1 else None


_runners: dict[int, Runner] = {}
_lock = threading.Lock()


def n_cores() -> int:
    """Cores that this process may use: its affinity within the quotas of its control groups."""
    info = abi.new(abi.CpuInfo)
    check(lib.swiglu_cpu_query(ctypes.byref(info)), "cpu")
    return int(info.n_cores)


def pool_runner(n_threads: Optional[int]) -> Runner:
    """The runner over the process's pool of n_threads threads, the caller among them; None: n_cores(). Two calls at once
    on one pool are fine: the later one runs on its own thread alone, with the same bits."""
    if n_threads is None:
        n_threads = n_cores()
    elif isinstance(n_threads, bool) or not isinstance(n_threads, int):
        raise TypeError(f"threads must be an int or None, not {type(n_threads).__name__}")
    elif not 1 <= n_threads <= 1024:
        raise ValueError(f"threads is {n_threads}, not within 1 to 1024")
    runner = _runners.get(n_threads)
    if runner is None:
        with _lock:
            runner = _runners.get(n_threads)
            if runner is None:
                pool = ctypes.c_void_p()
                check(lib.swiglu_pool_create(n_threads, ctypes.byref(pool)), f"a pool of {n_threads} threads")
                runner = _runners[n_threads] = Runner(lib.swiglu_pool_runner(pool), n_threads)
    return runner


def _after_fork() -> None:
    global _lock
    _lock = threading.Lock()
    _runners.clear()  # their threads stayed in the parent


os.register_at_fork(after_in_child=_after_fork)


class Memory(abi.Work):
    """A struct swiglu_work that owns its memory: whoever passes it to a call holds it until the call returns, even where the
    interpreter ends or a signal handler computes meanwhile."""

    def __init__(self, n_bytes: int) -> None:
        self._array = uninitialised(n_bytes)
        super().__init__(self._array.ctypes.data, n_bytes)


class Workspace(threading.local):
    """Scratch memory of the calling thread; it grows to the largest call and stays."""

    def __init__(self) -> None:
        self._memory = Memory(0)

    def reserve(self, n_bytes: int) -> Memory:
        memory = self._memory
        if memory.bytes < n_bytes:
            memory = self._memory = Memory(n_bytes)
        return memory


workspace = Workspace()
