# SPDX-License-Identifier: Apache-2.0
"""The block in plain PyTorch operators: for devices that the library does not run on, and for children with hooks."""

from __future__ import annotations

import warnings
from typing import Callable, Optional

import torch
import torch.nn.functional as F
from torch import Tensor

from .._c.activation import Activation
from .plan import Parts, check_shapes


def _xielu(a: Tensor, act: Activation) -> Tensor:
    p, n, b, e = act.param
    return torch.where(a > 0, p * a * a + b * a, (torch.expm1(torch.clamp_max(a, e)) - a) * n + b * a)


_KINDS: dict[str, Callable[[Tensor, Activation], Tensor]] = {
    "identity": lambda a, act: a,
    "relu": lambda a, act: F.relu(a),
    "relu2": lambda a, act: F.relu(a).square(),
    "sigmoid": lambda a, act: torch.sigmoid(a),
    "silu": lambda a, act: F.silu(a) if act.alpha == 1 else a * torch.sigmoid(act.alpha * a),
    "gelu": lambda a, act: F.gelu(a),
    "gelu_tanh": lambda a, act: F.gelu(a, approximate="tanh"),
    "xielu": _xielu,
    "situ": lambda a, act: act.param[0] * torch.tanh(a / act.param[0]) * torch.sigmoid(a),
}


def _clamp(a: Tensor, lo: float, hi: float) -> Tensor:
    return a if lo == -torch.inf and hi == torch.inf else torch.clamp(a, lo, hi)


def _activate(gate: Tensor, act: Activation) -> Tensor:
    if act.clamp_after:
        return _clamp(_KINDS[act.kind](gate, act), act.gate_lo, act.gate_hi)
    return _KINDS[act.kind](_clamp(gate, act.gate_lo, act.gate_hi), act)


def _up_side(up: Tensor, act: Activation) -> Tensor:
    up = _clamp(up, act.up_lo, act.up_hi)
    if act.kind == "situ":
        up = act.param[1] * torch.tanh(up / act.param[1])
    return up + act.up_offset if act.up_offset else up


def hidden(first: Tensor, second: Optional[Tensor], act: Activation, layout: str) -> Tensor:
    """h of what the first products gave: gate and up, or both in one, or up alone."""
    if layout == "ungated":
        return _activate(first, act)
    if layout == "interleaved":
        gate, up = first[..., 0::2], first[..., 1::2]
    elif second is None:
        halves = first.chunk(2, dim=-1)
        gate, up = halves if layout == "gate_up" else halves[::-1]
    else:
        gate, up = first, second
    return _activate(gate, act) * _up_side(up, act)


def plain_ffn(x: Tensor, parts: Parts, activation: str, layout: str) -> Tensor:
    """y = block(x) with autograd, in whatever way this device multiplies matrices; no promise about bits."""
    check_shapes(x, parts, layout)
    gate, up, down, gate_bias, up_bias, down_bias = parts
    products = [F.linear(x, w, b) for w, b in ((gate, gate_bias), (up, up_bias)) if w is not None]
    second = products[1] if len(products) == 2 else None
    return F.linear(hidden(products[0], second, Activation.named(activation), layout), down, down_bias)


_told: set[str] = set()


def tell_once(device: torch.device) -> None:
    if device.type not in _told:
        _told.add(device.type)
        warnings.warn(
            f"swiglu computes on CPUs; tensors on {device.type} go through plain PyTorch operators", stacklevel=3
        )
