# SPDX-License-Identifier: Apache-2.0
"""Tensors as a struct swiglu_desc: checked and filled once for shapes, strides and dtypes; later calls set addresses."""

from __future__ import annotations

import ctypes
import operator
import threading
from collections.abc import Sequence
from typing import Any, Optional

import torch
from torch import Tensor

from .._c import abi
from .._c.activation import act_struct
from .._c.desc import agreed, check_parts, make_options
from .._c.library import check, error_record, lib
from .._c.strides import matrix_order, rows_order
from .results import empty, take_scratch

# gate, up, down and their biases, in this order everywhere
Parts = tuple[Optional[Tensor], Optional[Tensor], Tensor, Optional[Tensor], Optional[Tensor], Optional[Tensor]]
NAMES = ("gate", "up", "down", "gate_bias", "up_bias", "down_bias")
_POINTED = (*NAMES, "the head of gate", "the head of up", "the head of down")
DTYPES = {torch.float32: abi.F32, torch.float16: abi.F16, torch.bfloat16: abi.BF16}
_PACKED = ("gate_up", "up_gate", "interleaved")
_SMALL = 1 << 20  # values that need no thought about pages
_MOST_SIZES = 64  # batch sizes that a plan remembers


def dtype_number(name: str, tensor: Tensor) -> int:
    number = DTYPES.get(tensor.dtype)
    if number is None:
        raise TypeError(f"{name} is {tensor.dtype}; it can be torch.float32, torch.float16 or torch.bfloat16")
    return number


class NoMemory(RuntimeError):
    """A tensor of this name has values and yet no memory that could be read."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"{name} has no memory: its storage was freed (as fully_shard does between calls), or it only stands for a tensor"
            " (a fake, functional or zero tensor)"
        )


def address(name: str, tensor: Tensor) -> int:
    """Where the values are; 0 only where there are none."""
    at = tensor.data_ptr()
    if not at and tensor.numel():
        raise NoMemory(name)
    return at


def check_devices(x: Tensor, parts: Sequence[Optional[Tensor]]) -> None:
    for name, tensor in zip(NAMES, parts):
        if tensor is None:
            continue
        if not isinstance(tensor, Tensor):
            raise TypeError(f"{name} must be a torch.Tensor, not {type(tensor).__name__}")
        if tensor.device != x.device:
            raise ValueError(f"{name} is on {tensor.device}, x is on {x.device}")


def check_shapes(x: Tensor, parts: Sequence[Optional[Tensor]], layout: str) -> tuple[int, int, int]:
    """(d_in, d_ff, d_out), after every shape, dtype and device has been compared. Sizes may be symbolic."""
    gate, up, down, gate_bias, up_bias, down_bias = parts
    check_parts(layout, gate, up, gate_bias, up_bias)
    if down is None:
        raise ValueError("down is None; every layout needs it")
    check_devices(x, parts)
    for name, tensor in zip(NAMES, parts):
        if tensor is None:
            continue
        dtype_number(name, tensor)
        if tensor.layout is not torch.strided:
            raise TypeError(f"{name} is {tensor.layout}; a weight must be a dense tensor")
        if tensor.dim() != (1 if name.endswith("bias") else 2):
            raise ValueError(f"{name} has shape {tuple(tensor.shape)}; a weight is [outputs, inputs], a bias [outputs]")
    dtype_number("x", x)
    if x.layout is not torch.strided:
        raise TypeError(f"x is {x.layout}; it must be a dense tensor")
    halves = 2 if layout in _PACKED else 1
    first = [w for w in (gate, up) if w is not None]
    d_in, d_out = agreed([w.shape[1] for w in first]), down.shape[0]
    d_ff = agreed([w.shape[0] // halves for w in first] + [down.shape[1]])
    rows = halves * d_ff
    expected = {
        "down": (d_out, d_ff),
        "gate": (rows, d_in),
        "up": (d_ff, d_in),
        "gate_bias": (rows,),
        "up_bias": (d_ff,),
        "down_bias": (d_out,),
    }
    for name, tensor in zip(NAMES, parts):
        if tensor is not None and tuple(tensor.shape) != expected[name]:
            raise ValueError(f"{name} has shape {tuple(tensor.shape)}, expected {expected[name]} ({layout}, d_ff {d_ff})")
    if x.dim() == 0 or x.shape[-1] != d_in:
        raise ValueError(f"x has shape {tuple(x.shape)}, expected [..., {d_in}]")
    return d_in, d_ff, d_out


def weight_order(weight: Tensor) -> Optional[tuple[int, int]]:
    """(in_out, ld_elems) or None for a copy. Gradients are laid out as their weights are."""
    return matrix_order(weight.shape[0], weight.shape[1], weight.stride(0), weight.stride(1))


def is_transposed(part: Tensor) -> bool:
    order = weight_order(part) if part.dim() == 2 else None
    return order is not None and order[0] == 1


def empty_gradient(part: Tensor, dtype: torch.dtype) -> Tensor:
    """Uninitialised, in the shape of a weight or bias: transposed where the weight is, row-major anywhere else."""
    if is_transposed(part):
        return empty(part, (part.shape[1], part.shape[0]), dtype).t()
    return empty(part, part.shape, dtype)


def is_copied(part: Tensor) -> bool:
    return weight_order(part) is None if part.dim() == 2 else part.stride(0) != 1


def as_rows(tensor: Tensor) -> tuple[Tensor, int]:
    """(tensor, ld_elems), a copy where its rows cannot be walked."""
    if tensor.is_contiguous():
        return tensor, 0
    ld = rows_order(tensor.shape, tensor.stride())
    return (tensor.contiguous(), 0) if ld is None else (tensor, ld)


def n_rows(x: Tensor) -> int:
    width = x.shape[-1]
    if width:
        return x.numel() // width
    m = 1
    for n in x.shape[:-1]:
        m *= n
    return m


def empty_result(x: Tensor, width: int, dtype: Optional[torch.dtype] = None) -> Tensor:
    """Uninitialised and contiguous, [..., width] where x is [..., any]; of its dtype where none is given."""
    if dtype is None and x.shape[-1] == width and x.is_contiguous():
        return torch.empty_like(x) if x.numel() < _SMALL else empty(x, x.shape, x.dtype)
    return empty(x, (*x.shape[:-1], width), dtype or x.dtype)


class Plan:
    """One description, used by one call at a time: another thread, or a signal handler, may run while the library reads it."""

    key: Any = None  # among the plans of a thread
    _dx_dtype: Optional[torch.dtype] = None  # None: that of x

    def __init__(self, x: Tensor, parts: Parts, activation: str, layout: str, compute: str) -> None:
        self.d_in, self.d_ff, self.d_out = check_shapes(x, parts, layout)
        self.desc = desc = abi.Desc()
        lib.swiglu_desc_init(ctypes.byref(desc))
        desc.d_in, desc.d_ff, desc.d_out = self.d_in, self.d_ff, self.d_out
        desc.layout, desc.act = abi.LAYOUTS[layout], act_struct(activation)
        self.options = make_options(compute)
        self.desc_ref, self.options_ref = ctypes.byref(desc), ctypes.byref(self.options)
        self.grads = abi.new(abi.Grads)
        self.grads_ref = ctypes.byref(self.grads)
        self._targets: list[tuple[int, Any]] = []  # (index into parts, where its address goes)
        self._gradients: list[tuple[int, Any, str]] = []  # (index, where the address of its gradient goes)
        self._copied: list[int] = []  # indices of parts that the library cannot walk
        for i, (name, part) in enumerate(zip(NAMES, parts)):
            if part is None:
                continue
            target = getattr(desc, name)
            self._targets.append((i, target))
            target.dtype = DTYPES[part.dtype]
            if is_copied(part):
                self._copied.append(i)
            if i < 3:
                target.rows, target.cols = part.shape
                target.in_out, target.ld_elems = weight_order(part) or (0, 0)
                gradient = getattr(self.grads, name)
                self._gradients.append((i, gradient, "data"))
            else:
                self._gradients.append((i, self.grads, name))
        self._dx = self.grads.dx
        self._sizes: dict[tuple[int, int, int], tuple[int, int]] = {}

    def point(self, parts: Sequence[Optional[Tensor]]) -> Sequence[Optional[Tensor]]:
        """Sets the addresses; the result must live until the call returns."""
        held: Sequence[Optional[Tensor]] = parts
        if self._copied:
            held = [p.contiguous() if i in self._copied and p is not None else p for i, p in enumerate(parts)]
        for i, target in self._targets:
            target.data = address(_POINTED[i], held[i])  # type: ignore[arg-type]
        return held

    def point_gradients(
        self, x: Tensor, parts: Sequence[Optional[Tensor]], needs: int, wide: int
    ) -> tuple[list[Tensor], list[tuple[Tensor, Tensor]], Optional[Tensor], int]:
        """Allocates the gradients that are needed (bit 0: x, bit 1 + i: part i) and sets their addresses; the others are
        not computed. Gradients have the dtype of their part, or float32 where wide has their bit. The library computes
        weight gradients in float32, or all in bfloat16 (then the last result is that flag), and bias gradients in float32:
        anything else is computed in scratch memory, listed with it, and the memory is to be given back."""
        flags = self._gradient_flags(parts, needs, wide)
        outputs: list[Tensor] = []
        narrow: list[tuple[Tensor, Any, str, int]] = []
        n_scratch = 0
        self._dx.data = None
        if needs & 1:
            dx = empty_result(x, self.d_in, self._dx_dtype)
            outputs.append(dx)
            self._dx.data, self._dx.dtype = dx.data_ptr(), DTYPES[dx.dtype]
        for i, target, field in self._gradients:
            address = None
            if needs & (2 << i):
                part: Tensor = parts[i]  # type: ignore[assignment]
                if i < 3:
                    target.dtype = abi.BF16 if flags else abi.F32
                if flags and i < 3:
                    gradient = empty_gradient(part, torch.bfloat16)
                    address = gradient.data_ptr()
                elif part.dtype is torch.float32 or wide & (2 << i):
                    gradient = self._empty_f32(part)
                    address = gradient.data_ptr()
                else:
                    gradient = empty_gradient(part, part.dtype)
                    narrow.append((gradient, target, field, n_scratch))
                    n_scratch += part.numel()
                outputs.append(gradient)
            setattr(target, field, address)
        if not narrow:
            return outputs, [], None, flags
        memory = take_scratch(n_scratch)
        for _, target, field, at in narrow:
            setattr(target, field, memory.data_ptr() + 4 * at)
        return outputs, [(g, memory.as_strided(g.shape, g.stride(), at)) for g, _, _, at in narrow], memory, flags

    def _gradient_flags(self, parts: Sequence[Optional[Tensor]], needs: int, wide: int) -> int:
        for i in range(3):
            part = parts[i]
            if part is not None and needs & (2 << i) and (part.dtype is not torch.bfloat16 or wide & (2 << i)):
                return 0
        return abi.TRAIN_BF16_GRADIENTS

    def _empty_f32(self, part: Tensor) -> Tensor:
        if part.numel() < _SMALL and not self._copied:
            return torch.empty_like(part, dtype=torch.float32)
        return empty_gradient(part, torch.float32)

    def sizes(self, m: int, flags: int, n_threads: int) -> tuple[int, int]:
        """(workspace, bytes kept by forward) of a training step."""
        key = (m, flags, n_threads)
        known = self._sizes.get(key)
        if known:
            return known
        work, saved = ctypes.c_size_t(), ctypes.c_size_t()
        status = lib.swiglu_train_bytes(
            self.desc_ref, self.options_ref, m, flags, n_threads, ctypes.byref(work), ctypes.byref(saved)
        )
        if status:
            self._explain()
            check(status, f"a training step of {m} rows")
        if len(self._sizes) >= _MOST_SIZES:
            self._sizes.clear()
        self._sizes[key] = work.value, saved.value
        return work.value, saved.value

    def _explain(self) -> None:
        """Raises what is wrong with the description, by the call that says it in words (no row is computed)."""
        out, error = abi.new(abi.Reference), error_record()
        status = lib.swiglu_reference_run(self.desc_ref, 0, abi.Rows(), ctypes.byref(out), ctypes.byref(error))
        check(status, "ffn", error)


# The first columns of gate and up and the first rows of down, where they lie in tensors of their own (docs/training.md)
Heads = tuple[Optional[Tensor], Optional[Tensor], Optional[Tensor]]
NO_HEADS: Heads = (None, None, None)


class HeadPlan(Plan):
    """x, y and the bias of down are as wide as the matrices with their heads, parts are what is behind them. Parts of the
    gradients are (*heads, *biases); all of them and that of x are float32."""

    def __init__(self, x: Tensor, parts: Parts, heads: Heads, activation: str, layout: str, compute: str) -> None:
        n_in = next((head.shape[1] for head in heads[:2] if head is not None), 0)
        n_out = 0 if heads[2] is None else heads[2].shape[0]
        bias = None if parts[5] is None else parts[5][n_out:]
        super().__init__(x[..., n_in:], (*parts[:5], bias), activation, layout, compute)
        self.d_in += n_in
        self.d_out += n_out
        self.desc.d_in, self.desc.d_out = self.d_in, self.d_out
        self._gradients = [entry for entry in self._gradients if entry[0] >= 3]
        for i, (name, head) in enumerate(zip(NAMES, heads)):
            if head is not None:
                target = getattr(self.desc, f"{name}_head")
                target.dtype, (target.rows, target.cols) = DTYPES[head.dtype], head.shape
                self._targets.append((len(NAMES) + i, target))
                self._gradients.append((i, getattr(self.grads, name), "data"))
        self._gradients.sort(key=operator.itemgetter(0))
        self._dx_dtype = torch.float32


class _Plans(threading.local):
    def __init__(self) -> None:
        self.known: dict[Any, Plan] = {}  # those that no call uses


_local = _Plans()
_MOST = 1024  # plans per thread; a process with more shapes than this starts again


def take_plan(
    x: Tensor, parts: Parts, activation: str, layout: str, compute: str, heads: Heads = NO_HEADS
) -> Plan:
    """A plan of these weights for the calling thread, to be given back after the call; x fits it. Heads are contiguous."""
    signature: list[Any] = [activation, layout, compute]
    for part in parts if heads is NO_HEADS else (*parts, *heads):
        if part is None:
            signature.append(None)
        else:
            signature += (part.shape, part.stride(), part.dtype)
    key = tuple(signature)
    plan = _local.known.pop(key, None)
    if plan is None:
        if heads is NO_HEADS:
            plan = Plan(x, parts, activation, layout, compute)
        else:
            plan = HeadPlan(x, parts, heads, activation, layout, compute)
        plan.key = key
    elif x.dim() == 0 or x.shape[-1] != plan.d_in or x.dtype not in DTYPES or x.layout is not torch.strided:
        check_shapes(x, parts, layout)
    return plan


def give_back_plan(plan: Plan) -> None:
    if len(_local.known) >= _MOST:
        _local.known.clear()
    _local.known[plan.key] = plan
