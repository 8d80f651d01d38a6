# SPDX-License-Identifier: Apache-2.0
"""A feed-forward block over NumPy arrays: packed once, called often."""

from __future__ import annotations

import ctypes
from types import TracebackType
from typing import Any, NoReturn, Optional

import numpy as np

from .._c import abi
from .._c.activation import ActivationLike, act_struct
from .._c.desc import agreed, check_parts, choice, default_layout, make_options
from .._c.handle import Handle
from .._c.library import check, error_record, lib
from .._c.threads import pool_runner, workspace
from .convert import Array, as_rows, check_dtype_used, fill_matrix, fill_vector


def describe(
    gate: Optional[Array],
    up: Optional[Array],
    down: Array,
    activation: ActivationLike,
    layout: Optional[str],
    biases: tuple[Optional[Array], Optional[Array], Optional[Array]],
    dtype: Optional[str],
) -> tuple[Any, list[Array]]:
    """(struct swiglu_desc, the arrays that it points into)."""
    if layout is None:
        layout = default_layout(gate, up)
    check_parts(layout, gate, up, biases[0], biases[1])
    desc = abi.Desc()
    lib.swiglu_desc_init(ctypes.byref(desc))
    desc.layout, desc.act = abi.LAYOUTS[layout], act_struct(activation)
    keep = []
    for name, weight in (("gate", gate), ("up", up), ("down", down)):
        if weight is not None or name == "down":
            keep.append(fill_matrix(getattr(desc, name), name, weight, dtype))
    check_dtype_used(dtype, [getattr(desc, n).dtype for n in ("gate", "up", "down")], "no weight is")
    halves = 1 if layout in ("separate", "ungated") else 2
    first = [m for m, w in ((desc.gate, gate), (desc.up, up)) if w is not None]
    desc.d_in, desc.d_out = agreed([m.cols for m in first]), desc.down.rows
    desc.d_ff = agreed([m.rows // halves for m in first] + [desc.down.cols])
    for name, bias, length in zip(("gate", "up", "down"), biases, (halves * desc.d_ff, desc.d_ff, desc.d_out)):
        if bias is not None:
            keep.append(fill_vector(getattr(desc, f"{name}_bias"), f"{name}_bias", bias, length, dtype))
    return desc, keep


class Block:
    """A feed-forward block y = (act(x Wg^T + bg) * (x Wu^T + bu)) Wd^T + bd with packed weights.

    Packs once; the arrays may be freed or changed afterwards without effect. Calls may come from many threads at once and
    release the GIL. Bits do not depend on the number of rows, threads, or the instruction set (docs/numerics.md).

    gate, up     [d_ff, d_in]; a packed layout has both in gate, [2 d_ff, d_in], and up is None
    down         [d_out, d_ff]
    activation   a name (swiglu.activation_names()) or a swiglu.Activation
    layout       "separate" (default), "gate_up", "up_gate", "interleaved", or "ungated" (default where gate is None)
    *_bias       one value per output, packed as their weight is
    dtype        of uint16 and uint8 arrays: "bf16", or the name of a block format such as "q4_k" (rows are then bytes)
    compute      "auto" (bf16 weights in bf16, all others in f32), "f32", "bf16"
    threads      at most this many; None: the cores that this process may use
    isa          the best instruction set to use, such as "avx2"; None: the best there is

    Arrays are float32, float16, or uint16 with dtype="bf16"; a transposed view is used as it lies, anything else that is
    not row-major is copied. Raises TypeError (not such an array), ValueError (shapes, names, with the reason), MemoryError.
    """

    def __init__(
        self,
        gate: Optional[Array],
        up: Optional[Array],
        down: Array,
        *,
        activation: ActivationLike = "silu",
        layout: Optional[str] = None,
        gate_bias: Optional[Array] = None,
        up_bias: Optional[Array] = None,
        down_bias: Optional[Array] = None,
        dtype: Optional[str] = None,
        compute: str = "auto",
        threads: Optional[int] = None,
        isa: Optional[str] = None,
    ) -> None:
        desc, keep = describe(gate, up, down, activation, layout, (gate_bias, up_bias, down_bias), dtype)
        self._open(desc, make_options(compute, isa), threads)
        del keep

    @classmethod
    def _of_desc(cls, desc: Any, options: Any, threads: Optional[int]) -> Block:
        block = cls.__new__(cls)
        block._open(desc, options, threads)
        return block

    def _open(self, desc: Any, options: Any, threads: Optional[int]) -> None:
        runner = pool_runner(threads)
        self._n_threads, options.runner = runner.n_threads, runner.address
        handle = Handle(desc, options)
        self.info = handle.info()
        self._handle: Optional[Handle] = handle

    @property
    def threads(self) -> int:
        return self._n_threads

    def __call__(self, x: Array, *, dtype: Optional[str] = None) -> Array:
        """y [..., d_out] of x [..., d_in], in the dtype of x: float32, float16, or uint16 with dtype="bf16". No rows are
        fine. Raises TypeError, ValueError (shape, or a closed block)."""
        handle = self._handle
        if handle is None:
            raise ValueError("the block is closed")
        info = self.info
        rows, number, m, ld = as_rows("x", x, info.d_in, dtype)
        y = np.empty((*x.shape[:-1], info.d_out), x.dtype)
        runner = pool_runner(self._n_threads)
        check(
            lib.swiglu_forward(
                handle.pointer,
                m,
                abi.Rows(rows.ctypes.data, number, ld),
                abi.Rows(y.ctypes.data, number, 0),
                workspace.reserve(handle.work_bytes(m, runner.n_threads)),
                runner.address,
            ),
            "forward",
        )
        return y

    def close(self) -> None:
        """Frees the packed weights, once the calls that are running in other threads return. Closing twice is fine."""
        self._handle = None

    def __enter__(self) -> Block:
        return self

    def __exit__(
        self, kind: Optional[type[BaseException]], value: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        self.close()

    def __reduce__(self) -> NoReturn:
        raise TypeError("a swiglu.Block cannot be copied or pickled: keep the arrays and make another one")

    def __repr__(self) -> str:
        i = self.info
        state = "closed" if self._handle is None else f"{i.kernel[0]}, {self.threads} threads"
        return f"<swiglu.Block {i.d_in} -> {i.d_ff} -> {i.d_out}, {state}>"


def ffn(
    x: Array,
    gate: Optional[Array],
    up: Optional[Array],
    down: Array,
    *,
    activation: ActivationLike = "silu",
    layout: Optional[str] = None,
    gate_bias: Optional[Array] = None,
    up_bias: Optional[Array] = None,
    down_bias: Optional[Array] = None,
    dtype: Optional[str] = None,
    compute: str = "auto",
    threads: Optional[int] = None,
) -> Array:
    """One evaluation of a block (the arguments of Block; dtype speaks for x too). To call it more than once, make a Block."""
    with Block(
        gate,
        up,
        down,
        activation=activation,
        layout=layout,
        gate_bias=gate_bias,
        up_bias=up_bias,
        down_bias=down_bias,
        dtype=dtype,
        compute=compute,
        threads=threads,
    ) as block:
        return block(x, dtype=_dtype_of_x(x, dtype))


def _dtype_of_x(x: Any, dtype: Optional[str]) -> Optional[str]:
    """dtype speaks of weights, and of x only where it needs it."""
    return dtype if isinstance(x, np.ndarray) and x.dtype == np.uint16 else None


def reference(
    x: Array,
    gate: Optional[Array],
    up: Optional[Array],
    down: Array,
    *,
    activation: ActivationLike = "silu",
    layout: Optional[str] = None,
    gate_bias: Optional[Array] = None,
    up_bias: Optional[Array] = None,
    down_bias: Optional[Array] = None,
    dtype: Optional[str] = None,
    compute: str = "auto",
) -> tuple[Array, Array]:
    """(y, bound), both float64 [..., d_out]: the block in double precision, and how far a result of this library in the
    dtype of x may be from it (docs/numerics.md, accuracy). Slow; the arguments of ffn."""
    desc, keep = describe(gate, up, down, activation, layout, (gate_bias, up_bias, down_bias), dtype)
    rows, number, m, ld = as_rows("x", x, desc.d_in, _dtype_of_x(x, dtype))
    y, bound = (np.zeros((*x.shape[:-1], desc.d_out), np.float64) for _ in range(2))
    out, error = abi.new(abi.Reference), error_record()
    out.compute, out.y_dtype = choice("compute", compute, abi.COMPUTES), number
    out.y, out.bound = y.ctypes.data, bound.ctypes.data
    check(
        lib.swiglu_reference_run(
            ctypes.byref(desc), m, abi.Rows(rows.ctypes.data, number, ld), ctypes.byref(out), ctypes.byref(error)
        ),
        "reference",
        error,
    )
    del keep
    return y, bound
