# SPDX-License-Identifier: Apache-2.0
"""Blocks with updates that scale the rows of a matrix besides (DoRA): c (W + s B A), c = magnitude / |W + s B A| row by row,
where the length counts as a constant for gradients.

The rows are scaled before the library gets them: each step makes the matrices anew, in float32 and for its own time, in
forward and again in backward; nothing of them is kept. The gradient of a magnitude is a sum over the whole gradient of its
row, so that one is computed, too: 18 operations where an update alone takes 12."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple, Optional

import torch
import torch.nn.functional as F
from torch import Tensor

from .._c.activation import Activation
from . import kernels
from .packed import Beside, find
from .plain import hidden
from .plan import Parts
from .second import differentiable


class Scaled(NamedTuple):
    """Where an update has its tensors among those of a call: a, b, and the magnitude or None."""

    place: int
    scale: float
    a: int
    b: int
    magnitude: Optional[int]


class Config(NamedTuple):
    """tensors of a call: x, the six parts, then those of the updates."""

    block: tuple[str, str, str]  # activation, layout, compute
    keep: bool
    updates: tuple[Scaled, ...]


Tensors = Sequence[Optional[Tensor]]


def _take(tensors: Tensors, i: int) -> Tensor:
    tensor = tensors[i]
    assert tensor is not None
    return tensor.float()


def _sum(config: Config, tensors: Tensors, place: int) -> Tensor:
    """W + s B A of all updates of a matrix."""
    total = _take(tensors, 1 + place)
    for update in config.updates:
        if update.place == place:
            total = torch.addmm(total, _take(tensors, update.b), _take(tensors, update.a), alpha=update.scale)
    return total


def _length(total: Tensor) -> Tensor:
    length: Tensor = torch.linalg.vector_norm(total.detach(), dim=1)
    return length


def _magnitude(config: Config, place: int) -> Optional[int]:
    return next((u.magnitude for u in config.updates if u.place == place and u.magnitude is not None), None)


def _matrix(config: Config, tensors: Tensors, place: int) -> Optional[Tensor]:
    if tensors[1 + place] is None or not any(u.place == place for u in config.updates):
        return tensors[1 + place]
    total, magnitude = _sum(config, tensors, place), _magnitude(config, place)
    return total if magnitude is None else (_take(tensors, magnitude) / _length(total))[:, None] * total


def _parts(config: Config, tensors: Tensors) -> Parts:
    return (*(_matrix(config, tensors, place) for place in range(3)), *tensors[4:7])  # type: ignore[return-value]


def _block(config: Config, tensors: Tensors) -> tuple[str, str, str]:
    """What was chosen for the weights holds for float32 ones in their place."""
    activation, layout, compute = config.block
    is_bf16 = all(t is None or t.dtype is torch.bfloat16 for t in tensors[1:4])
    return activation, layout, "bf16" if compute == "auto" and is_bf16 else compute


class _Dora(torch.autograd.Function):
    """Saves x, the parameters, and with keep what forward left."""

    @staticmethod
    def forward(ctx: Any, config: Config, *tensors: Optional[Tensor]) -> Tensor:
        x: Tensor = tensors[0]  # type: ignore[assignment]
        y, kept = kernels.forward(x, _parts(config, tensors), *_block(config, tensors), config.keep)
        ctx.config = config
        ctx.save_for_backward(kept if config.keep else None, *tensors)
        return y

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> Any:
        kept, *tensors = ctx.saved_tensors
        config, needed = ctx.config, ctx.needs_input_grad[1:]
        with torch.no_grad(), torch.autocast("cpu", enabled=False):
            gradients = _gradients(config, dy, kept, tensors, needed)
        if torch.is_grad_enabled():  # create_graph
            wanted = tuple(i for i, need in enumerate(needed) if need)
            again = functools.partial(_plain, config)
            connected = differentiable(again, wanted, [gradients[i] for i in wanted], dy, tensors)
            for i, gradient in zip(wanted, connected):
                gradients[i] = gradient
        return (None, *gradients)


def _gradients(
    config: Config, dy: Tensor, kept: Optional[Tensor], tensors: Tensors, needed: Sequence[bool]
) -> list[Optional[Tensor]]:
    gradients: list[Optional[Tensor]] = [None] * len(tensors)
    wanted = {u.place for u in config.updates if any(needed[i] for i in (u.a, u.b, u.magnitude) if i is not None)}
    mask = int(needed[0]) | sum(2 << place for place in wanted) | sum(needed[i] << i for i in range(4, 7))
    parts = _parts(config, tensors)
    wide = sum(2 << place for place in wanted)
    results = iter(kernels.backward(dy, kept, tensors[0], parts, *_block(config, tensors), mask, wide))  # type: ignore[arg-type]
    computed = [next(results) if mask >> bit & 1 else None for bit in range(7)]
    del parts
    for i in (0, 4, 5, 6):
        gradients[i] = computed[i]
    for place in wanted:
        _through_matrix(config, place, computed[1 + place], tensors, needed, gradients)  # type: ignore[arg-type]
    return gradients


def _through_matrix(
    config: Config,
    place: int,
    gradient: Tensor,
    tensors: Tensors,
    needed: Sequence[bool],
    gradients: list[Optional[Tensor]],
) -> None:
    """From the gradient of c (W + s B A) to those of magnitude, a and b. Overwrites it."""
    index = _magnitude(config, place)
    if index is not None:
        total = _sum(config, tensors, place)
        length = _length(total)
        if needed[index]:
            gradients[index] = ((gradient * total).sum(1) / length).to(tensors[index].dtype)  # type: ignore[union-attr]
        gradient.mul_((_take(tensors, index) / length)[:, None])
    for update in config.updates:
        if update.place == place:
            a, b = tensors[update.a], tensors[update.b]
            assert a is not None and b is not None
            if needed[update.b]:
                gradients[update.b] = (gradient @ a.float().t()).mul_(update.scale).to(b.dtype)
            if needed[update.a]:
                gradients[update.a] = (b.float().t() @ gradient).mul_(update.scale).to(a.dtype)


def _plain(config: Config, *tensors: Optional[Tensor]) -> Tensor:
    """The same in PyTorch's operators."""
    x: Tensor = tensors[0]  # type: ignore[assignment]
    parts = [None if part is None else part.float() for part in _parts(config, tensors)]
    rows = x.float()
    first = [F.linear(rows, w, b) for w, b in zip(parts[:2], parts[3:5]) if w is not None]
    h = hidden(first[0], first[1] if len(first) == 2 else None, Activation.named(config.block[0]), config.block[1])
    return F.linear(h, parts[2], parts[5]).to(x.dtype)  # type: ignore[arg-type]


def evaluate(config: Config, tensors: Tensors, packed: bool) -> Tensor:
    """The block; packed: from a copy of the matrices as they are now."""
    if not packed:
        return _Dora.apply(config, *tensors)  # type: ignore[no-untyped-call, no-any-return]
    x: Tensor = tensors[0]  # type: ignore[assignment]
    parts: Parts = tensors[1:7]  # type: ignore[assignment]
    beside = Beside(tensors[7:], ("scaled", config.updates), lambda: (_narrow(config, tensors), ()))
    block = find(x, parts, *_block(config, tensors), beside)
    if block is None:  # weights that are not to be packed
        return kernels.forward(x, _parts(config, tensors), *_block(config, tensors), False)[0]
    return kernels.run_handle(block.handle, x, block.d_out)


def _narrow(config: Config, tensors: Tensors) -> Parts:
    """Matrices to pack: bf16 where the library would round them so."""
    parts = _parts(config, tensors)
    if _block(config, tensors)[2] != "bf16":
        return parts
    return (*(None if w is None else w.bfloat16() for w in parts[:3]), *parts[3:])  # type: ignore[return-value]


def check(part: Tensor, name: str, magnitude: Tensor) -> None:
    if tuple(magnitude.shape) != (part.shape[0],):
        raise ValueError(f"the magnitude of {name} has shape {tuple(magnitude.shape)}, expected {(part.shape[0],)}")


