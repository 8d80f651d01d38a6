# SPDX-License-Identifier: Apache-2.0
"""Activations as data: a name that swiglu_act_init knows, or parameters."""

from __future__ import annotations

import ctypes
import dataclasses
import functools
import math
import numbers
import re
from typing import Any, Union

import numpy as np
import numpy.typing as npt

from . import abi
from .library import check, error_record, lib

_SPEC = re.compile(r"(\w+)(?:\((.*)\))?", re.ASCII)
_KIND_NAMES = {number: name for name, number in abi.KINDS.items()}
_FLOATS = ("alpha", "up_offset", "gate_lo", "gate_hi", "up_lo", "up_hi")
_PARAMS = {"xielu": 4, "situ": 2}  # values in param; the others have none


def _number(name: str, value: Any) -> float:
    if not isinstance(value, numbers.Real):
        raise TypeError(f"activation {name} must be a number, not {value!r}")
    return float(value)


@dataclasses.dataclass(frozen=True)
class Activation:
    """One activation with its clamps and the up side (struct swiglu_act of swiglu.h has the formulas).

    gate: g = clamp(gate, gate_lo, gate_hi), a = act(g); with clamp_after a = clamp(act(gate), gate_lo, gate_hi).
    up:   u = clamp(up, up_lo, up_hi) + up_offset.   h = a * u.

    kind is "identity", "relu", "relu2", "sigmoid", "silu", "gelu", "gelu_tanh", "xielu" or "situ"; alpha is read by silu
    only (1.702: quick GELU); param holds p, n, b, e of xielu and b1, b2 of situ. Values are rounded to f32. Anything that
    the library refuses (NaN bounds, lo > hi, ...) raises ValueError with its text.
    """

    kind: str = "silu"
    alpha: float = 1.0
    up_offset: float = 0.0
    gate_lo: float = -math.inf
    gate_hi: float = math.inf
    up_lo: float = -math.inf
    up_hi: float = math.inf
    clamp_after: bool = False
    param: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if self.kind not in abi.KINDS:
            raise ValueError(f"activation kind {self.kind!r} is not one of {', '.join(abi.KINDS)}")
        for name in _FLOATS:
            object.__setattr__(self, name, _number(name, getattr(self, name)))
        if not isinstance(self.clamp_after, bool):
            raise TypeError(f"activation clamp_after must be True or False, not {self.clamp_after!r}")
        object.__setattr__(self, "param", tuple(_number("param", value) for value in self.param))
        used = _PARAMS.get(self.kind, 0)
        if len(self.param) != used:
            raise ValueError(f"activation {self.kind!r} has {used} values in param, not {len(self.param)}")
        if self.alpha != 1 and self.kind != "silu":
            raise ValueError(f"activation {self.kind!r} does not use alpha (it is {self.alpha!r})")
        # A block without width checks everything about the activation and computes nothing.
        desc, error, block = abi.Desc(), error_record(), ctypes.c_void_p()
        lib.swiglu_desc_init(ctypes.byref(desc))
        desc.act = self._struct()
        status = lib.swiglu_block_create(ctypes.byref(desc), None, ctypes.byref(block), ctypes.byref(error))
        check(status, "activation", error)
        lib.swiglu_block_destroy(block)

    def _struct(self) -> abi.Act:
        act: abi.Act = abi.new(abi.Act)
        act.kind = abi.KINDS[self.kind]
        for name in _FLOATS:
            setattr(act, name, getattr(self, name))
        act.clamp_after = self.clamp_after
        for i, value in enumerate(self.param):
            act.param[i] = value
        return act

    @classmethod
    def _from_struct(cls, act: Any) -> Activation:
        used = _PARAMS.get(_KIND_NAMES[act.kind], 0)
        return cls(
            kind=_KIND_NAMES[act.kind],
            alpha=act.alpha,
            up_offset=act.up_offset,
            gate_lo=act.gate_lo,
            gate_hi=act.gate_hi,
            up_lo=act.up_lo,
            up_hi=act.up_hi,
            clamp_after=bool(act.clamp_after),
            param=tuple(act.param[:used]),
        )

    @classmethod
    def named(cls, spec: str) -> Activation:
        """The activation of a name ("silu", "gelu_pytorch_tanh", "gpt_oss", ... : activation_names() lists them), or of a
        name with changed parameters, "step(gate_hi=16.0, up_lo=-16.0, up_hi=16.0)". Raises ValueError for any other."""
        return _parse(spec)

    def __str__(self) -> str:
        """The text that named() turns back into this activation, bit for bit."""
        base = _parse(self.kind)
        changed = []
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if field.name != "kind" and value != getattr(base, field.name):
                text = ":".join(repr(float(v)) for v in value) if field.name == "param" else repr(value)
                changed.append(f"{field.name}={text}")
        return f"{self.kind}({', '.join(changed)})" if changed else self.kind


ActivationLike = Union[str, Activation]


@functools.lru_cache(maxsize=256)
def _parse(spec: str) -> Activation:
    match = _SPEC.fullmatch(spec)
    act = abi.Act()
    if not match or lib.swiglu_act_init(ctypes.byref(act), match[1].encode()) != abi.OK:
        raise ValueError(f"unknown activation {spec!r}; known are {', '.join(activation_names())}")
    base = Activation._from_struct(act)
    changes: dict[str, Any] = {}
    fields = {field.name for field in dataclasses.fields(Activation)} - {"kind"}
    for part in (match[2] or "").split(","):
        if not part.strip():
            continue
        name, _, text = (piece.strip() for piece in part.partition("="))
        if name not in fields:
            raise ValueError(f"activation {spec!r}: no parameter {name!r}; there are {', '.join(sorted(fields))}")
        try:
            if name == "param":
                changes[name] = tuple(float(v) for v in text.split(":"))
            elif name == "clamp_after":
                changes[name] = {"True": True, "False": False}[text]
            else:
                changes[name] = float(text)
        except (KeyError, ValueError):
            raise ValueError(f"activation {spec!r}: {name} cannot be {text!r}") from None
    return dataclasses.replace(base, **changes) if changes else base


def act_spec(activation: ActivationLike) -> str:
    """Its name or spec, the text that Activation.named knows. Raises TypeError for what is neither."""
    if not isinstance(activation, (str, Activation)):
        raise TypeError(f"activation must be a name or a swiglu.Activation, not {type(activation).__name__}")
    return activation if isinstance(activation, str) else str(activation)


@functools.lru_cache(maxsize=256)
def _struct_of(spec: str) -> abi.Act:
    return _parse(spec)._struct()


def act_struct(activation: ActivationLike) -> abi.Act:
    """The C struct; shared, to be copied and not changed."""
    return _struct_of(act_spec(activation))


def activation_names() -> dict[str, str]:
    """Every name that Activation.named knows, with one line that says what it is."""
    names: dict[str, str] = {}
    about = ctypes.c_char_p()
    while (name := lib.swiglu_act_name(len(names), ctypes.byref(about))) is not None:
        names[name.decode()] = (about.value or b"").decode()
    return names


def _elementwise(function: Any, activation: ActivationLike, x: npt.ArrayLike) -> npt.NDArray[np.float32]:
    if np.iscomplexobj(x):
        raise TypeError("x is complex")
    values = np.ascontiguousarray(x, dtype=np.float32).reshape(np.shape(x))
    y = np.empty_like(values)
    struct = act_struct(activation)
    check(function(ctypes.byref(struct), values.size, values.ctypes.data, y.ctypes.data), "activation")
    return y


def act(activation: ActivationLike, x: npt.ArrayLike) -> npt.NDArray[np.float32]:
    """act(x) for each value: kind, alpha and param as the library computes them, at most 2 ULP off for silu, sigmoid and
    both GELUs (docs/numerics.md). No clamps and no up side. x: any shape, converted to float32; the result has its shape.
    Raises ValueError for an unknown activation."""
    return _elementwise(lib.swiglu_act_eval, activation, x)


def act_derivative(activation: ActivationLike, x: npt.ArrayLike) -> npt.NDArray[np.float32]:
    """act'(x) for each value, as backward uses it; otherwise as act()."""
    return _elementwise(lib.swiglu_act_derivative, activation, x)
