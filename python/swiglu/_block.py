# SPDX-License-Identifier: Apache-2.0
"""A feed-forward block over NumPy arrays: packed once, called often."""

from __future__ import annotations

import ctypes
import dataclasses
import operator
from collections.abc import Sequence
from types import TracebackType
from typing import Any, NoReturn, Optional

import numpy as np

from . import _abi, _threads
from ._activation import ActivationLike, act_struct
from ._arrays import Array, as_rows, check_dtype_used, dtype_number, fill_matrix, fill_vector
from ._library import check, error_record, lib


def choice(name: str, value: str, table: dict[str, int]) -> int:
    if not isinstance(value, str):
        raise TypeError(f"{name} must be a string, not {type(value).__name__}")
    if value not in table:
        raise ValueError(f"{name} {value!r} is not one of {', '.join(table)}")
    return table[value]


def whole(name: str, value: Any) -> int:
    """An integer that a size_t holds."""
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{name} must be an integer, not {value!r}") from None
    if not 0 <= number < 2**63:
        raise ValueError(f"{name} is {number}, not within 0 to 2^63 - 1")
    return number


def agreed(sizes: Sequence[Any]) -> Any:
    """The size that most of them have, else the first: an error then speaks of the one that differs."""
    return next((size for size in sizes if sum(1 for other in sizes if size == other) > 1), sizes[0])


def default_layout(gate: Any, up: Any) -> str:
    if gate is not None and up is not None:
        return "separate"
    if gate is None and up is not None:
        return "ungated"
    raise ValueError("up is None: for a packed gate name its layout ('gate_up', 'up_gate' or 'interleaved')")


def check_parts(layout: str, gate: Any, up: Any, gate_bias: Any, up_bias: Any) -> None:
    """Each layout uses its own parts: none may be missing, none ignored."""
    choice("layout", layout, _abi.LAYOUTS)
    uses_gate, uses_up = layout != "ungated", layout in ("separate", "ungated")
    for name, uses, weight, bias in (("gate", uses_gate, gate, gate_bias), ("up", uses_up, up, up_bias)):
        if uses and weight is None:
            raise ValueError(f"{name} is None, but layout {layout!r} needs it")
        if not uses and weight is not None:
            raise ValueError(f"{name} is given, but layout {layout!r} does not use it")
        if not uses and bias is not None:
            raise ValueError(f"{name}_bias is given, but layout {layout!r} does not use {name}")


def make_options(compute: str, isa: Optional[str] = None) -> Any:
    options = _abi.new(_abi.Options)
    options.compute = choice("compute", compute, _abi.COMPUTES)
    if isa is not None:
        options.isa_mask = 2 * choice("isa", isa, _abi.ISAS) - 1 if isa != "neon" else _abi.ISAS["neon"] | 1
    return options


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
    desc = _abi.Desc()
    lib.swiglu_desc_init(ctypes.byref(desc))
    desc.layout, desc.act = _abi.LAYOUTS[layout], act_struct(activation)
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
        info = _abi.new(_abi.BlockInfo)
        check(lib.swiglu_block_query(self.pointer, ctypes.byref(info)), "block")
        return BlockInfo(
            d_in=info.d_in,
            d_ff=info.d_ff,
            d_out=info.d_out,
            gated=bool(info.gated),
            compute=(_abi.COMPUTE_NAMES[info.compute_up], _abi.COMPUTE_NAMES[info.compute_down]),
            kernel=(info.kernel_up.decode(), info.kernel_down.decode()),
            isa=next(name for name, bit in _abi.ISAS.items() if bit == info.isa),
            why=info.why.decode(),
            packed_bytes=info.packed_bytes,
            file_bytes=info.file_bytes,
            expanded=bool(info.expanded),
        )

    def __del__(self, _destroy: Any = lib.swiglu_block_destroy) -> None:
        _destroy(self.pointer)


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
    threads      at most this many; None: the CPUs that this process may use
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
        self._n_threads = _threads.pool_runner(threads).n_threads
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
        runner = _threads.pool_runner(self._n_threads)
        check(
            lib.swiglu_forward(
                handle.pointer,
                m,
                _abi.Rows(rows.ctypes.data, number, ld),
                _abi.Rows(y.ctypes.data, number, 0),
                _threads.workspace.reserve(handle.work_bytes(m, runner.n_threads)),
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
    out, error = _abi.new(_abi.Reference), error_record()
    out.compute, out.y_dtype = choice("compute", compute, _abi.COMPUTES), number
    out.y, out.bound = y.ctypes.data, bound.ctypes.data
    check(
        lib.swiglu_reference_run(
            ctypes.byref(desc), m, _abi.Rows(rows.ctypes.data, number, ld), ctypes.byref(out), ctypes.byref(error)
        ),
        "reference",
        error,
    )
    del keep
    return y, bound


@dataclasses.dataclass(frozen=True)
class Counts:
    """Of one block: values in weights and biases, operations of a forward per row, bytes of the weights."""

    parameters: int
    flops_per_token: int
    weight_bytes: int


def width(d_model: int, *, multiple_of: int = 1, rule: str = "up", multiplier: float = 0.0) -> int:
    """The hidden width of a gated block with as many parameters as an ungated one of 4 d_model: int(8 d_model / 3), times
    multiplier where that is above 0, rounded "up" or to the "nearest" multiple_of, or "none". Raises ValueError, TypeError
    (not an integer)."""
    d_ff = ctypes.c_size_t()
    number = choice("rule", rule, _abi.WIDTH_RULES)
    sizes = whole("d_model", d_model), whole("multiple_of", multiple_of)
    status = lib.swiglu_width(number, *sizes, multiplier, ctypes.byref(d_ff))
    check(status, f"width of d_model {d_model}, multiple_of {multiple_of}, multiplier {multiplier}")
    return d_ff.value


def count(
    d_in: int,
    d_ff: int,
    d_out: Optional[int] = None,
    *,
    layout: str = "separate",
    bias: bool = False,
    dtype: str = "f32",
) -> Counts:
    """Counts of a block with these widths (d_out: d_in where None), with biases on all of its matrices or none. Raises
    ValueError, TypeError (not an integer)."""
    desc = _abi.Desc()
    lib.swiglu_desc_init(ctypes.byref(desc))
    desc.layout = choice("layout", layout, _abi.LAYOUTS)
    desc.d_in, desc.d_ff = whole("d_in", d_in), whole("d_ff", d_ff)
    desc.d_out = desc.d_in if d_out is None else whole("d_out", d_out)
    used = {"separate": ("gate", "up", "down"), "ungated": ("up", "down")}.get(layout, ("gate", "down"))
    for name in used:
        matrix = getattr(desc, name)
        matrix.dtype = dtype_number(dtype)
        if bias:
            getattr(desc, f"{name}_bias").data = ctypes.addressof(desc)  # only its presence is read
    counts = _abi.new(_abi.Counts)
    check(lib.swiglu_count(ctypes.byref(desc), ctypes.byref(counts)), f"count of {d_in}, {d_ff}, {d_out}")
    return Counts(counts.parameters, counts.flops_per_token, counts.weight_bytes)
