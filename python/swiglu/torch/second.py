# SPDX-License-Identifier: Apache-2.0
"""Second derivatives. The first ones are the library's; where they are differentiated in their turn (create_graph=True),
PyTorch's own operators compute the block once more with everything that they keep, and only then."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Optional

import torch
from torch import Tensor

Tensors = Sequence[Optional[Tensor]]


def _fresh(tensor: Optional[Tensor], connected: bool) -> Optional[Tensor]:
    """The tensor as an input that derivatives can be asked for: connected to where it comes from, for a third one."""
    if tensor is None or not tensor.requires_grad:
        return tensor
    return tensor.view_as(tensor) if connected else tensor.detach().requires_grad_()


class _Second(torch.autograd.Function):
    """Passes on gradients that were computed without a graph, as a function of all that they depend on."""

    @staticmethod
    def forward(ctx: Any, again: Any, wanted: tuple[int, ...], n: int, *tensors: Optional[Tensor]) -> Any:
        ctx.again, ctx.wanted = again, wanted
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*tensors[n:])
        return tuple(None if t is None else t.view_as(t) for t in tensors[:n])

    @staticmethod
    def backward(ctx: Any, *outer: Optional[Tensor]) -> Any:
        connected = torch.is_grad_enabled()
        with torch.enable_grad():
            dy, *inputs = (_fresh(t, connected) for t in ctx.saved_tensors)
            asked = [i for i, grad in zip(ctx.wanted, outer) if grad is not None]
            at: Any = [inputs[i] for i in asked]
            first = torch.autograd.grad(ctx.again(*inputs), at, dy, create_graph=True)
            pairs = [(g, v) for g, v in zip(first, (v for v in outer if v is not None)) if g.requires_grad]
            among: list[Any] = [dy, *inputs]
            places = [i for i, t in enumerate(among) if t is not None and t.requires_grad]
            result: list[Optional[Tensor]] = [None] * len(among)
            if pairs:
                grads = torch.autograd.grad(
                    [g for g, _ in pairs],
                    [among[i] for i in places],
                    [v.to(g.dtype) for g, v in pairs],
                    allow_unused=True,
                    create_graph=connected,
                )
                for place, grad in zip(places, grads):
                    result[place] = grad
        return (None, None, None, *[None] * len(outer), *result)


def differentiable(
    again: Callable[..., Tensor], wanted: tuple[int, ...], gradients: Tensors, dy: Tensor, inputs: Tensors
) -> Sequence[Any]:
    """The gradients of the inputs at these places, made differentiable. again(*inputs) is the block in plain operators."""
    return _Second.apply(again, wanted, len(gradients), *gradients, dy, *inputs)  # type: ignore[no-untyped-call, no-any-return]
