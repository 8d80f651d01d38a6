# SPDX-License-Identifier: Apache-2.0
"""Comparing kinds of feed-forward blocks at the same number of parameters. Width and counts are the library's own, which
`swiglu plan` prints too. PyTorch is not needed."""

from __future__ import annotations

from typing import TypedDict

from .sizes import count, width

_GATED = ("swiglu", "geglu")
_PLAIN = ("relu", "gelu")


class FFNParams(TypedDict):
    """What calculate_ffn_params returns."""

    activation: str
    d_model: int
    hidden_dim: int
    num_params: int
    params_millions: float


def calculate_ffn_params(d_model: int, activation: str = "swiglu") -> FFNParams:
    """Width and parameters of a block without biases at parameter parity. "relu" and "gelu": two matrices and a hidden
    width of 4 d_model; "swiglu" and "geglu": three, and int(8 d_model / 3) rounded up to a multiple of 256.
    Raises ValueError for any other activation."""
    if activation in _GATED:
        hidden_dim, layout = width(d_model, multiple_of=256), "separate"
    elif activation in _PLAIN:
        hidden_dim, layout = 4 * d_model, "ungated"
    else:
        raise ValueError(f"Unknown activation: {activation}; known are {', '.join(_PLAIN + _GATED)}")
    parameters = count(d_model, hidden_dim, layout=layout).parameters
    return {
        "activation": activation,
        "d_model": d_model,
        "hidden_dim": hidden_dim,
        "num_params": parameters,
        "params_millions": parameters / 1e6,
    }
