# SPDX-License-Identifier: Apache-2.0
"""The block in plain PyTorch operators, for devices that the library does not run on."""

from __future__ import annotations

import warnings
from typing import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from .._activation import Activation
from ._plan import Parts, check_shapes


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


def plain_ffn(x: Tensor, parts: Parts, activation: str, layout: str) -> Tensor:
    """y = block(x) with autograd, in whatever way this device multiplies matrices; no promise about bits."""
    check_shapes(x, parts, layout)
    act = Activation.named(activation)
    gate, up, down, gate_bias, up_bias, down_bias = parts
    if layout == "ungated":
        assert up is not None
        return F.linear(_activate(F.linear(x, up, up_bias), act), down, down_bias)
    assert gate is not None
    g = F.linear(x, gate, gate_bias)
    if layout == "separate":
        assert up is not None
        u = F.linear(x, up, up_bias)
    elif layout == "interleaved":
        g, u = g[..., 0::2], g[..., 1::2]
    else:
        first, second = g.chunk(2, dim=-1)
        g, u = (first, second) if layout == "gate_up" else (second, first)
    return F.linear(_activate(g, act) * _up_side(u, act), down, down_bias)


_told: set[str] = set()


def tell_once(device: torch.device) -> None:
    if device.type not in _told:
        _told.add(device.type)
        warnings.warn(
            f"swiglu computes on CPUs; tensors on {device.type} go through plain PyTorch operators", stacklevel=3
        )
