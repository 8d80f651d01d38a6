# SPDX-License-Identifier: Apache-2.0
"""The feed-forward block of a small language model, gated and as in GPT-2, made from a config."""

from __future__ import annotations

import dataclasses
from typing import Protocol

import torch
from torch import nn

from .._c.sizes import width
from .block import FusedBlock
from .recipe import Recipe

__all__ = ["FFN", "SLLM_100M", "ModelConfig", "SwiGLU"]


class Config(Protocol):
    """What SwiGLU reads of a config; any object with these attributes will do."""

    d_model: int
    d_ff: int
    bias: bool


class ConfigWithDropout(Config, Protocol):
    """What FFN reads."""

    dropout: float


@dataclasses.dataclass
class ModelConfig:
    """d_ff 0: 2/3 of 4 d_model, cut to an integer, to the nearest multiple of 256 (ties up)."""

    d_model: int = 768
    d_ff: int = 0
    bias: bool = False
    dropout: float = 0.0

    def __post_init__(self) -> None:
        if self.d_ff == 0:
            self.d_ff = width(self.d_model, multiple_of=256, rule="nearest")


SLLM_100M = ModelConfig(d_model=768)


class SwiGLU(FusedBlock):
    """y [B, T, d_model] = down(silu(gate(x)) * up(x)) of x [B, T, d_model]. config: d_model, d_ff and bias."""

    _recipe = Recipe("separate", "gate", "up", "down", "silu")

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.gate = nn.Linear(config.d_model, config.d_ff, bias=config.bias)
        self.up = nn.Linear(config.d_model, config.d_ff, bias=config.bias)
        self.down = nn.Linear(config.d_ff, config.d_model, bias=config.bias)


class FFN(FusedBlock):
    """y = dropout(w2(gelu(w1(x)))) as in GPT-2: the tanh form of GELU and a hidden width of 4 d_model.
    config: d_model, bias and dropout."""

    _recipe = Recipe("ungated", None, "w1", "w2", "gelu_tanh", dropout="dropout")

    def __init__(self, config: ConfigWithDropout) -> None:
        super().__init__()
        self.w1 = nn.Linear(config.d_model, 4 * config.d_model, bias=config.bias)
        self.w2 = nn.Linear(4 * config.d_model, config.d_model, bias=config.bias)
        self.dropout = nn.Dropout(config.dropout)


def demo() -> None:
    config = SLLM_100M
    block = SwiGLU(config)
    d_model, d_ff = block.gate.in_features, block.gate.out_features
    print(f"SwiGLU d_model={d_model}  d_ff={d_ff}")
    print(f"  gate : {d_model} x {d_ff} = {d_model * d_ff:,}")
    print(f"  up   : {d_model} x {d_ff} = {d_model * d_ff:,}")
    print(f"  down : {d_ff} x {d_model} = {d_ff * d_model:,}")
    print(f"  total MLP params : {sum(p.numel() for p in block.parameters()) / 1e6:.3f}M")
    x = torch.randn(2, 64, d_model)
    y = block(x)
    print(f"Input  shape : {x.shape}")
    print(f"Output shape : {y.shape}")
    if y.shape != x.shape:
        raise SystemExit("Shape mismatch!")
    print("PASS")
