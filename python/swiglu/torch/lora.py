# SPDX-License-Identifier: Apache-2.0
"""Blocks with low-rank updates beside frozen weights (LoRA): base product and updates in one operator.

x Wg^T + s (x A^T) B^T is one product of rows [s x A^T, x] with [B, Wg]; that of gate and up has both updates in it. The A of
down stands above its weights, so that the block's rows begin with h A^T. The library reads those pieces where they lie
(heads, docs/training.md); what remains for PyTorch are products with a matrix of a few rows. Nothing is computed or kept
for gradients of the base weights.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any, NamedTuple, Optional

import torch
import torch.nn.functional as F
from torch import Tensor

from .._c.activation import Activation
from . import dora, kernels
from .kernels import run_handle
from .packed import Beside, find
from .plain import hidden
from .plan import NAMES, Heads, Parts, check_shapes, n_rows
from .second import differentiable

_STEP = 32  # heads have a multiple of this many columns or rows
GATE, UP, DOWN = range(3)


@dataclasses.dataclass(frozen=True)
class Update:
    """product(x) += scale * (drop(x) a^T) b^T. dropout: the probability that is at work now. With a magnitude the rows of the
    updated matrix are scaled to these lengths (dora.py)."""

    a: Tensor
    b: Tensor
    scale: float
    dropout: float = 0.0
    magnitude: Optional[Tensor] = None


@dataclasses.dataclass(frozen=True)
class _Factor:
    """An update without its tensors. span: its columns or rows in the heads; a and b: where its tensors are in a call."""

    place: int
    scale: float
    dropout: float
    span: slice
    a: int
    b: int


class _Config:
    """What a call does besides computing with its tensors: x, the six parts, then a and b of each factor."""

    def __init__(self, activation: str, layout: str, compute: str, keep: bool, kinds: Sequence[tuple[int, float, float, int]]):
        """kinds: place, scale, dropout and rank of each factor, gate's first and down's last."""
        self.block = (activation, layout, compute)
        self.keep = keep
        self.factors: list[_Factor] = []
        widths = [0, 0]
        for i, (place, scale, dropout, rank) in enumerate(kinds):
            at = widths[place == DOWN]
            widths[place == DOWN] = at + rank
            self.factors.append(_Factor(place, scale, dropout, slice(at, at + rank), 7 + 2 * i, 8 + 2 * i))
        self.n_in, self.n_out = (-(-width // _STEP) * _STEP for width in widths)
        self.first = [factor for factor in self.factors if factor.place != DOWN]
        self.down = [factor for factor in self.factors if factor.place == DOWN]
        self.key = (self.block, tuple(kinds))


_config = functools.lru_cache(maxsize=1024)(_Config)

Tensors = Sequence[Optional[Tensor]]  # x, the six parts, and a and b of each factor


# ---- what the library computes with ----


def _stack(factors: Sequence[_Factor], n: int, width: int, tensors: Tensors) -> Optional[Tensor]:
    """The a of these factors above each other, as n rows. Beside bf16 values they are rounded to bf16, as every matrix is
    where it enters such a product."""
    if not n:
        return None
    mine = [(factor.span, tensors[factor.a]) for factor in factors]
    dtype = functools.reduce(torch.promote_types, (a.dtype for _, a in mine))  # type: ignore[union-attr]
    if tensors[0].dtype is torch.bfloat16:  # type: ignore[union-attr]
        dtype = torch.bfloat16
    stack = torch.zeros((n, width), dtype=dtype)
    for span, a in mine:
        stack[span] = a  # type: ignore[assignment]
    return stack


def _beside(factors: Sequence[_Factor], n: int, width: int, tensors: Tensors) -> Tensor:
    """The b of these factors side by side, as n columns of float32, with their scales."""
    beside = torch.zeros((width, n))
    for factor in factors:
        torch.mul(tensors[factor.b], factor.scale, out=beside[:, factor.span])  # type: ignore[arg-type]
    return beside


def _heads(config: _Config, tensors: Tensors) -> Heads:
    gate, up, down = tensors[1:4]
    first = [
        _beside([f for f in config.first if f.place == place], config.n_in, part.shape[0], tensors)
        if part is not None and config.n_in
        else None
        for place, part in ((GATE, gate), (UP, up))
    ]
    return first[0], first[1], _stack(config.down, config.n_out, down.shape[1], tensors)  # type: ignore[union-attr]


def _parts(config: _Config, tensors: Tensors) -> Parts:
    """With a bias of down as long as the rows of y with those of the head."""
    *parts, bias = tensors[1:7]
    if bias is not None and config.n_out:
        bias = torch.cat((bias.new_zeros(config.n_out), bias))
    return (*parts, bias)  # type: ignore[return-value]


def _rows(x: Tensor) -> Tensor:
    return x.reshape(n_rows(x), x.shape[-1])


def _wide_rows(rows: Tensor, low: Optional[Tensor]) -> Tensor:
    return rows if low is None else torch.cat((low, rows), 1)


def _draw(config: _Config, rows: Tensor, tensors: Tensors) -> list[Optional[Tensor]]:
    """What the dropout of each factor of gate and up leaves of x, drawn as nn.functional.dropout draws it; None: all."""
    masks: list[Optional[Tensor]] = []
    for factor in config.first:
        like = torch.empty_like(rows, dtype=tensors[factor.a].dtype) if factor.dropout else None  # type: ignore[union-attr]
        masks.append(None if like is None else like.bernoulli_(1 - factor.dropout).bool())
    return masks


def _dropped(x: Tensor, mask: Tensor, p: float) -> Tensor:
    return x * mask.to(x.dtype).div_(1 - p)


def _low(config: _Config, rows: Tensor, stack: Optional[Tensor], masks: Sequence[Optional[Tensor]]) -> Optional[Tensor]:
    """The products with each a, which stand before x: in the dtype of x, computed in that of the adapters."""
    if stack is None:
        return None
    own = rows.to(stack.dtype)
    low = torch.mm(own, stack.t())
    for factor, mask in zip(config.first, masks):
        if mask is not None:
            low[:, factor.span] = torch.mm(_dropped(own, mask, factor.dropout), stack[factor.span].t())
    return low.to(rows.dtype)


def _finish(config: _Config, x: Tensor, wide: Tensor, beside: Optional[Tensor]) -> Tensor:
    """y of what the block computed, whose first columns are h A^T."""
    if beside is not None and wide.dtype is x.dtype:
        wide = torch.addmm(wide[:, config.n_out :], wide[:, : config.n_out], beside.t())
    elif beside is not None:  # a copy follows
        wide = wide[:, config.n_out :].addmm_(wide[:, : config.n_out], beside.t())
    return wide.to(x.dtype).view(*x.shape[:-1], wide.shape[1])


def _beside_down(config: _Config, tensors: Tensors) -> Optional[Tensor]:
    return _beside(config.down, config.n_out, tensors[3].shape[0], tensors) if config.n_out else None  # type: ignore[union-attr]


def _result_dtype(config: _Config) -> Optional[torch.dtype]:
    """Where something is added to y, it is rounded after that."""
    return torch.float32 if config.n_out else None


def _forward(config: _Config, tensors: Tensors, wide_x: Tensor, keep: bool) -> tuple[Tensor, Tensor]:
    heads, dtype = _heads(config, tensors), _result_dtype(config)
    return kernels.forward(wide_x, _parts(config, tensors), *config.block, keep, heads, dtype)


# ---- training ----


class _Lora(torch.autograd.Function):
    """Saves x, its products with a, h A^T, which values dropout left, the parameters, and with keep what forward left."""

    @staticmethod
    def forward(ctx: Any, config: _Config, *tensors: Optional[Tensor]) -> Tensor:
        x: Tensor = tensors[0]  # type: ignore[assignment]
        rows = _rows(x)
        masks = _draw(config, rows, tensors)
        low = _low(config, rows, _stack(config.first, config.n_in, rows.shape[1], tensors), masks)
        wide, kept = _forward(config, tensors, _wide_rows(rows, low), config.keep)
        ctx.config, ctx.n_masks = config, len(masks)
        low_h = wide[:, : config.n_out].clone() if config.n_out else None
        ctx.save_for_backward(low, low_h, kept if config.keep else None, *masks, *tensors)
        return _finish(config, x, wide, _beside_down(config, tensors))

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> Any:
        low, low_h, kept, *rest = ctx.saved_tensors
        masks, tensors = rest[: ctx.n_masks], rest[ctx.n_masks :]
        needed = ctx.needs_input_grad[1:]
        with torch.no_grad(), torch.autocast("cpu", enabled=False):
            gradients = _Backward(ctx.config, tensors, masks, needed).run(dy, low, low_h, kept)
        if torch.is_grad_enabled():  # create_graph
            wanted = tuple(i for i, need in enumerate(needed) if need)
            again = functools.partial(_plain, ctx.config, masks)
            connected = differentiable(again, wanted, [gradients[i] for i in wanted], dy, tensors)
            for i, gradient in zip(wanted, connected):
                gradients[i] = gradient
        return (None, *gradients)


class _Backward:
    """Gradients of those tensors that need them. Sums are float32, rounded once to the dtype of what they belong to."""

    def __init__(self, config: _Config, tensors: Tensors, masks: Sequence[Optional[Tensor]], needed: Sequence[bool]) -> None:
        self.config, self.tensors, self.masks, self.needed = config, tensors, masks, needed
        self.gradients: list[Optional[Tensor]] = [None] * len(tensors)

    def run(
        self, dy: Tensor, low: Optional[Tensor], low_h: Optional[Tensor], kept: Optional[Tensor]
    ) -> list[Optional[Tensor]]:
        config, needed = self.config, self.needed
        rows = _rows(self.tensors[0])  # type: ignore[arg-type]
        mask = int(needed[0] or any(needed[factor.a] for factor in config.first))
        for factor in config.factors:
            mask |= needed[self._index_in_head(factor)] << 1 + factor.place
        for i in range(4, 7):
            mask |= needed[i] << i
        results = iter(
            kernels.backward(
                self._through_down(_rows(dy), low_h),
                kept,
                _wide_rows(rows, low),
                _parts(config, self.tensors),
                *config.block,
                mask,
                -1,
                _heads(config, self.tensors),
            )
        )
        computed = [next(results) if mask >> bit & 1 else None for bit in range(7)]
        self._share_out(computed)
        if computed[0] is not None:
            self._through_low(rows, computed[0])
        return self.gradients

    @staticmethod
    def _index_in_head(factor: _Factor) -> int:
        return factor.a if factor.place == DOWN else factor.b

    def _put(self, i: int, gradient: Tensor) -> None:
        if self.needed[i]:
            self.gradients[i] = gradient.to(self.tensors[i].dtype)  # type: ignore[union-attr]

    def _through_down(self, dy: Tensor, low_h: Optional[Tensor]) -> Tensor:
        """Rows of dy with the gradients of h A^T in front; the b of down have theirs."""
        config, beside = self.config, _beside_down(self.config, self.tensors)
        if beside is None or low_h is None:
            return dy
        dy = dy.float()
        for factor in config.down:
            if self.needed[factor.b]:
                self._put(factor.b, torch.mm(dy.t(), low_h[:, factor.span]).mul_(factor.scale))
        return torch.cat((torch.mm(dy, beside), dy), 1)

    def _share_out(self, computed: Sequence[Optional[Tensor]]) -> None:
        for factor in self.config.factors:
            head = computed[1 + factor.place]
            if head is not None and factor.place == DOWN:
                self._put(factor.a, head[factor.span])
            elif head is not None:
                self._put(factor.b, head[:, factor.span] * factor.scale)
        for i in range(4, 7):
            bias = computed[i]
            if bias is not None:
                self._put(i, bias[self.config.n_out :] if i == 6 else bias)

    def _through_low(self, rows: Tensor, wide_dx: Tensor) -> None:
        """What comes through the products with a: their gradients, and more of that of x."""
        own, dx = rows.float(), wide_dx[:, self.config.n_in :]
        for factor, mask in zip(self.config.first, self.masks):
            low, a = wide_dx[:, factor.span], self.tensors[factor.a]
            if self.needed[factor.a]:
                self._put(factor.a, torch.mm(low.t(), own if mask is None else _dropped(own, mask, factor.dropout)))
            if self.needed[0] and mask is None:
                dx.addmm_(low, a.float())  # type: ignore[union-attr]
            elif self.needed[0]:
                dx += _dropped(torch.mm(low, a.float()), mask, factor.dropout)  # type: ignore[arg-type,union-attr]
        if self.needed[0]:
            x: Tensor = self.tensors[0]  # type: ignore[assignment]
            self.gradients[0] = dx.to(x.dtype).reshape(x.shape)


def _plain(config: _Config, masks: Sequence[Optional[Tensor]], *tensors: Optional[Tensor]) -> Tensor:
    """The same in PyTorch's operators."""
    dropped = dict(zip((factor.a for factor in config.first), masks))

    def product(place: int, rows: Tensor) -> Optional[Tensor]:
        weight = tensors[1 + place]
        if weight is None:
            return None
        result = F.linear(rows, weight, tensors[4 + place])
        for factor in config.factors:
            if factor.place == place:
                a, b, mask = tensors[factor.a], tensors[factor.b], dropped.get(factor.a)
                own = rows.to(a.dtype)  # type: ignore[union-attr]
                if mask is not None:
                    own = _dropped(own, mask.view(rows.shape), factor.dropout)
                result = result + F.linear(F.linear(own, a), b) * factor.scale  # type: ignore[arg-type]
        return result.to(rows.dtype)

    x: Tensor = tensors[0]  # type: ignore[assignment]
    first = [p for p in (product(GATE, x), product(UP, x)) if p is not None]
    act, second = Activation.named(config.block[0]), first[1] if len(first) == 2 else None
    return product(DOWN, hidden(first[0], second, act, config.block[1]))  # type: ignore[return-value]


# ---- inference ----


class _Joined(NamedTuple):
    """What a packed copy has beside it: the products before and behind it."""

    stack: Optional[Tensor]
    beside: Optional[Tensor]


def _join(head: Optional[Tensor], part: Optional[Tensor], dim: int) -> Optional[Tensor]:
    """A matrix with its head in one tensor. bf16 weights stay so, as a step of training rounds heads beside them."""
    if head is None or part is None:
        return part
    dtype = part.dtype if part.dtype is torch.bfloat16 else torch.promote_types(head.dtype, part.dtype)
    return torch.cat((head.to(dtype), part.to(dtype)), dim)


def _evaluate_packed(config: _Config, tensors: Tensors) -> Tensor:
    x: Tensor = tensors[0]  # type: ignore[assignment]
    rows = _rows(x)

    def join() -> tuple[Parts, _Joined]:
        gate, up, down, *biases = _parts(config, tensors)
        heads = _heads(config, tensors)
        parts = (_join(heads[0], gate, 1), _join(heads[1], up, 1), _join(heads[2], down, 0), *biases)
        stack = _stack(config.first, config.n_in, rows.shape[1], tensors)
        return parts, _Joined(stack, _beside_down(config, tensors))  # type: ignore[return-value]

    parts: Parts = tensors[1:7]  # type: ignore[assignment]
    block = find(rows, parts, *config.block, Beside(tensors[7:], config.key, join))
    if block is None:  # weights that are not to be packed
        stack = _stack(config.first, config.n_in, rows.shape[1], tensors)
        wide, _ = _forward(config, tensors, _wide_rows(rows, _low(config, rows, stack, ())), False)
        return _finish(config, x, wide, _beside_down(config, tensors))
    joined: _Joined = block.joined
    wide_x = _wide_rows(rows, _low(config, rows, joined.stack, ()))
    return _finish(config, x, run_handle(block.handle, wide_x, block.d_out, _result_dtype(config)), joined.beside)


# ---- both ----


def _is_scaled(updates: Sequence[Sequence[Update]]) -> bool:
    return any(update.magnitude is not None for some in updates for update in some)


def _evaluate_scaled(
    block: tuple[str, str, str], keep: bool, x: Tensor, parts: Parts, updates: Sequence[Sequence[Update]], packed: bool
) -> Tensor:
    tensors: list[Optional[Tensor]] = [x.resolve_neg(), *parts]
    scaled = []
    for place, some in enumerate(updates):
        for u in some:
            i = len(tensors)
            scaled.append(dora.Scaled(place, u.scale, i, i + 1, None if u.magnitude is None else i + 2))
            tensors += (u.a, u.b) if u.magnitude is None else (u.a, u.b, u.magnitude)
    config = dora.Config(block, keep, tuple(scaled))
    return dora.evaluate(config, tensors, packed and not torch.is_grad_enabled())


def _check(x: Tensor, parts: Parts, updates: Sequence[Sequence[Update]], layout: str) -> None:
    first = parts[0] if parts[0] is not None else parts[1]
    if first is None or x.dim() == 0 or x.shape[-1] != first.shape[1]:
        check_shapes(x, parts, layout)
    for name, part, of_place in zip(NAMES, parts, updates):
        for update in of_place:
            r = update.a.shape[0]
            expected = None if part is None else ((r, part.shape[1]), (part.shape[0], r))
            if expected is None or (tuple(update.a.shape), tuple(update.b.shape)) != expected:
                raise ValueError(
                    f"an update of {name} has shapes {tuple(update.a.shape)} and {tuple(update.b.shape)}, the weight"
                    f" {None if part is None else tuple(part.shape)}"
                )
            if update.magnitude is not None and part is not None:
                dora.check(part, name, update.magnitude)
            if update.dropout and (name == "down" or _is_scaled(updates)):
                raise ValueError("an update of down, or beside a magnitude, has no dropout here")


def lora_ffn(
    x: Tensor,
    parts: Parts,
    updates: Sequence[Sequence[Update]],
    *,
    activation: str = "silu",
    layout: str = "separate",
    policy: str = "recompute",
    compute: str = "auto",
    packed: bool = False,
) -> Tensor:
    """ffn() of gate, up, down and their biases, with updates of gate, of up and of down beside them. Weights have no gradient;
    x, biases and the a and b of updates have."""
    _check(x, parts, updates, layout)
    if torch.is_autocast_enabled("cpu"):
        dtype = torch.get_autocast_dtype("cpu")
        if compute == "auto" and dtype is torch.bfloat16:
            compute = "bf16"
        with torch.autocast("cpu", enabled=False):
            return lora_ffn(
                x.to(dtype),
                parts,
                updates,
                activation=activation,
                layout=layout,
                policy=policy,
                compute=compute,
                packed=packed,
            )
    if _is_scaled(updates):
        return _evaluate_scaled((activation, layout, compute), policy == "keep", x, parts, updates, packed)
    kinds = [(place, u.scale, u.dropout, u.a.shape[0]) for place, some in enumerate(updates) for u in some]
    config = _config(activation, layout, compute, policy == "keep", tuple(kinds))
    tensors = (x.resolve_neg(), *parts, *(tensor for some in updates for u in some for tensor in (u.a, u.b)))
    if packed and not torch.is_grad_enabled():
        return _evaluate_packed(config, tensors)
    return _Lora.apply(config, *tensors)  # type: ignore[no-untyped-call, no-any-return]
