# SPDX-License-Identifier: Apache-2.0
"""A prepared block of the library."""

from __future__ import annotations

import ctypes
import dataclasses
from typing import Any

from . import abi
from .library import check, error_record, lib


@dataclasses.dataclass(frozen=True)
class BlockInfo:
    """What a block is and runs on. Sizes in bytes; compute and kernel are (gate and up, down)."""

    d_in: int
    d_ff: int
    d_out: int
    gated: bool
    compute: tuple[str, str]
    kernel: tuple[str, str]
    isa: str
    why: str
    packed_bytes: int
    file_bytes: int
    expanded: bool


class Handle:
    """Owns a struct swiglu_block. Whoever computes holds a reference, so closing never pulls it from under a call."""

    def __init__(self, desc: Any, options: Any) -> None:
        self.pointer = ctypes.c_void_p()
        error = error_record()
        check(
            lib.swiglu_block_create(
                ctypes.byref(desc), ctypes.byref(options), ctypes.byref(self.pointer), ctypes.byref(error)
            ),
            "block",
            error,
        )
        self._sizes: tuple[int, int, int] = (-1, 0, 0)

    def work_bytes(self, m: int, n_threads: int) -> int:
        known = self._sizes
        if known[0] == m and known[1] == n_threads:
            return known[2]
        size = ctypes.c_size_t()
        check(lib.swiglu_forward_bytes(self.pointer, m, n_threads, ctypes.byref(size)), f"a workspace for {m} rows")
        self._sizes = (m, n_threads, size.value)
        return size.value

    def info(self) -> BlockInfo:
        info = abi.new(abi.BlockInfo)
        check(lib.swiglu_block_query(self.pointer, ctypes.byref(info)), "block")
        return BlockInfo(
            d_in=info.d_in,
            d_ff=info.d_ff,
            d_out=info.d_out,
            gated=bool(info.gated),
            compute=(abi.COMPUTE_NAMES[info.compute_first], abi.COMPUTE_NAMES[info.compute_down]),
            kernel=(info.kernel_first.decode(), info.kernel_down.decode()),
            isa=next(level.name.decode() for level in abi.levels(lib) if level.bit == info.isa),
            why=info.why.decode(),
            packed_bytes=info.packed_bytes,
            file_bytes=info.file_bytes,
            expanded=bool(info.expanded),
        )

    def __del__(self, _destroy: Any = lib.swiglu_block_destroy) -> None:
        _destroy(self.pointer)
