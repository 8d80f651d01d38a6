# SPDX-License-Identifier: Apache-2.0
"""The threads that torch.set_num_threads() allows: PyTorch's own OpenMP team where its GOMP_parallel can be found, so that
no second team competes for the CPUs, else the pool of this package."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path
from typing import Optional

import torch

from .._c.library import lib
from .._c.threads import Runner, pool_runner


def _find_gomp_parallel() -> Optional[int]:
    """Address of the GOMP_parallel that libtorch_cpu itself calls: a look-up among its dependencies, in the library that
    is loaded already."""
    library = Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"
    try:
        loaded = ctypes.CDLL(str(library), mode=os.RTLD_NOLOAD | os.RTLD_LAZY)
        return ctypes.cast(loaded.GOMP_parallel, ctypes.c_void_p).value
    except (AttributeError, OSError):
        return None


_gomp_parallel = _find_gomp_parallel()
_runners: dict[int, Runner] = {}


def _make(n_threads: int) -> Runner:
    if n_threads == 1:
        runner = Runner(None, 1)
    elif _gomp_parallel is not None:
        runner = Runner(lib.swiglu_runner_gomp(_gomp_parallel, n_threads), n_threads)
    else:
        runner = pool_runner(n_threads)
    _runners[n_threads] = runner
    return runner


def team() -> Runner:
    """The runner for a call that starts now."""
    n_threads = torch.get_num_threads()
    return _runners.get(n_threads) or _make(n_threads)


def uses_openmp() -> bool:
    """Whether PyTorch's own team computes; False in a forked child, where an OpenMP team may hang."""
    return _gomp_parallel is not None


def _after_fork() -> None:
    global _gomp_parallel
    _gomp_parallel = None  # its threads stayed in the parent, and it would wait for them
    _runners.clear()


os.register_at_fork(after_in_child=_after_fork)
