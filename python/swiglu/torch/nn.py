# SPDX-License-Identifier: Apache-2.0
"""Feed-forward modules for PyTorch. They are ordinary modules of nn.Linear children: state_dict, optimisers, adapters and
hooks see nothing unusual. The block is computed at once by libswiglu where that is the same as calling the children one by
one, and by calling them where it is not (hooks, adapters, other devices), which is said once.
"""

from __future__ import annotations

from typing import Optional

import torch
from torch import nn

from .._c.desc import whole
from .._c.sizes import width
from .._c.planning import calculate_ffn_params
from .block import FusedBlock
from .recipe import Recipe

__all__ = ["GeGLU", "SwiGLU", "SwiGLUMLP", "SwiGLUParallel"]


class _Sized(FusedBlock):
    """The constructor that the three modules of one family share."""

    def __init__(self, input_dim: int, hidden_dim: Optional[int], output_dim: Optional[int], multiple_of: int) -> None:
        super().__init__()
        self.input_dim = whole("input_dim", input_dim)
        self.output_dim = input_dim if output_dim is None else whole("output_dim", output_dim)
        multiple = max(whole("multiple_of", multiple_of), 1)
        if hidden_dim is None:
            self.hidden_dim = width(input_dim, multiple_of=multiple)
        else:
            self.hidden_dim = -(-whole("hidden_dim", hidden_dim) // multiple) * multiple

    def extra_repr(self) -> str:
        """What repr shows besides the children."""
        return f"input_dim={self.input_dim}, hidden_dim={self.hidden_dim}, output_dim={self.output_dim}"


class SwiGLU(_Sized):
    """y = w_down(silu(w_gate(x)) * w_up(x)).

    input_dim     width of x
    hidden_dim    width inside; None: int(8 input_dim / 3), which makes three matrices as large as the two of a plain block
                  of 4 input_dim. Rounded up to a multiple of multiple_of either way (multiple_of <= 1: as it is)
    output_dim    width of y; None: input_dim
    bias          whether the three have biases; models of today do without
    """

    _recipe = Recipe("separate", "w_gate", "w_up", "w_down", "silu")

    def __init__(
        self,
        input_dim: int,
        hidden_dim: Optional[int] = None,
        output_dim: Optional[int] = None,
        multiple_of: int = 256,
        bias: bool = False,
    ) -> None:
        super().__init__(input_dim, hidden_dim, output_dim, multiple_of)
        self.w_gate = nn.Linear(input_dim, self.hidden_dim, bias=bias)
        self.w_up = nn.Linear(input_dim, self.hidden_dim, bias=bias)
        self.w_down = nn.Linear(self.hidden_dim, self.output_dim, bias=bias)


class SwiGLUParallel(_Sized):
    """SwiGLU with gate and up in one matrix, w_gate_up: first all of gate, then all of up. The arguments of SwiGLU."""

    _recipe = Recipe("gate_up", "w_gate_up", None, "w_down", "silu")

    def __init__(
        self,
        input_dim: int,
        hidden_dim: Optional[int] = None,
        output_dim: Optional[int] = None,
        multiple_of: int = 256,
        bias: bool = False,
    ) -> None:
        super().__init__(input_dim, hidden_dim, output_dim, multiple_of)
        self.w_gate_up = nn.Linear(input_dim, 2 * self.hidden_dim, bias=bias)
        self.w_down = nn.Linear(self.hidden_dim, self.output_dim, bias=bias)


class GeGLU(_Sized):
    """y = w_down(gelu(w_gate(x)) * w_up(x)) with the exact (erf) GELU. The arguments of SwiGLU, without rounding of the
    hidden width."""

    _recipe = Recipe("separate", "w_gate", "w_up", "w_down", "gelu")

    def __init__(
        self,
        input_dim: int,
        hidden_dim: Optional[int] = None,
        output_dim: Optional[int] = None,
        bias: bool = False,
    ) -> None:
        super().__init__(input_dim, hidden_dim, output_dim, 1)
        self.w_gate = nn.Linear(input_dim, self.hidden_dim, bias=bias)
        self.w_up = nn.Linear(input_dim, self.hidden_dim, bias=bias)
        self.w_down = nn.Linear(self.hidden_dim, self.output_dim, bias=bias)


class SwiGLUMLP(FusedBlock):
    """y = down_proj(silu(gate_proj(x)) * up_proj(x)) with the names of Llama's block; each child is an nn.Linear with bias
    that may be called on its own."""

    _recipe = Recipe("separate", "gate_proj", "up_proj", "down_proj", "silu")

    def __init__(self, d_model: int, d_ff: int) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(d_model, d_ff)
        self.up_proj = nn.Linear(d_model, d_ff)
        self.down_proj = nn.Linear(d_ff, d_model)


def demo() -> None:
    d_model = 768
    print("FFN Parameter Comparison:")
    for activation in ("relu", "gelu", "swiglu"):
        params = calculate_ffn_params(d_model, activation)
        print(f"{activation.upper()}:")
        print(f"  Hidden dim: {params['hidden_dim']}")
        print(f"  Parameters: {params['params_millions']:.2f}M")
    x = torch.randn(2, 512, d_model)
    block = SwiGLU(d_model)
    y = block(x)
    print("\nSwiGLU Test:")
    print(f"Input shape: {x.shape}")
    print(f"Output shape: {y.shape}")
    print(f"SwiGLU parameters: {sum(p.numel() for p in block.parameters()) / 1e6:.2f}M")
