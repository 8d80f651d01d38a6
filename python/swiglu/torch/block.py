# SPDX-License-Identifier: Apache-2.0
"""Modules of nn.Linear children that compute as one block, or child by child where that would not be the same."""

from __future__ import annotations

import warnings
from typing import Any, Optional

import torch
from torch import Tensor, nn

from .._c import abi
from .._c.activation import ActivationLike, act_spec, act_struct
from .._c.desc import choice
from .function import POLICIES, PackedWeights
from .plain import hidden
from .recipe import Recipe, check_input, evaluate, finish, obstacle, obstacle_of_input

_told: set[str] = set()


class FusedBlock(PackedWeights):
    """Base of the modules here and in swiglu.nn and swiglu.mlp. policy ("recompute", "keep") and compute ("auto", "f32",
    "bf16") are as for ffn() and may be set at any time."""

    _recipe: Recipe  # names the children
    policy: str = "recompute"
    compute: str = "auto"

    def forward(self, x: Tensor) -> Tensor:
        """y [..., output width] of x [..., input width]. Raises TypeError (not a tensor, its dtype) and ValueError (shapes,
        meta tensors beside others)."""
        recipe = self._recipe
        reason = obstacle(self, recipe)
        if reason is None:
            reason = obstacle_of_input(x, self, recipe)
            if reason is None:
                return evaluate(self, recipe, x, self.policy, self.compute)
            check_input(x, self, recipe)
        if not torch.compiler.is_compiling() and reason not in _told:
            _told.add(reason)
            warnings.warn(f"swiglu: {type(self).__name__} runs in plain PyTorch: {reason}", stacklevel=2)
        return self._by_children(x)

    def _by_children(self, x: Tensor) -> Tensor:
        recipe, children = self._recipe, self._modules
        products: list[Any] = [children[name](x) for name in recipe.linears[:-1]]  # type: ignore[misc]
        second = products[1] if len(products) == 2 else None
        y = children[recipe.down](hidden(products[0], second, recipe.function, recipe.layout))  # type: ignore[misc]
        return finish(self, recipe, y)


class FFN(FusedBlock):
    """A feed-forward block with children gate_proj, up_proj and down_proj, each an nn.Linear (gate_proj is None without
    gate).

    d_in, d_ff, d_out   widths; d_out None: d_in
    activation, policy, compute   as for ffn()
    gated, bias         whether there is a gate, and whether the three have biases
    Raises ValueError for an unknown name.
    """

    def __init__(
        self,
        d_in: int,
        d_ff: int,
        d_out: Optional[int] = None,
        *,
        activation: ActivationLike = "silu",
        gated: bool = True,
        bias: bool = False,
        policy: str = "recompute",
        compute: str = "auto",
        device: Any = None,
        dtype: Optional[torch.dtype] = None,
    ) -> None:
        super().__init__()
        act_struct(activation)
        choice("compute", compute, abi.COMPUTES)
        choice("policy", policy, dict.fromkeys(POLICIES, 0))
        gate = "gate_proj" if gated else None
        self._recipe = Recipe("separate" if gated else "ungated", gate, "up_proj", "down_proj", act_spec(activation))
        self.policy, self.compute = policy, compute
        where = {"device": device, "dtype": dtype}
        self.gate_proj = nn.Linear(d_in, d_ff, bias=bias, **where) if gated else None
        self.up_proj = nn.Linear(d_in, d_ff, bias=bias, **where)
        self.down_proj = nn.Linear(d_ff, d_in if d_out is None else d_out, bias=bias, **where)

    @property
    def activation(self) -> str:
        """The name or spec of the activation."""
        return self._recipe.activation

    def extra_repr(self) -> str:
        """What repr shows besides the children."""
        return f"activation={self.activation}, policy={self.policy}, compute={self.compute}"
