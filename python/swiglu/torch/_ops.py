# SPDX-License-Identifier: Apache-2.0
"""The operators swiglu::ffn, ffn_keep, ffn_backward and ffn_packed: schemas, fake kernels, autograd, autocast.

ffn keeps x only and computes gate and up again in backward, ffn_keep keeps them; the bits are the same. ffn_packed is for
inference: it computes from a packed copy of the weights and has no gradient.
"""

from __future__ import annotations

from typing import Any, Callable, Optional

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from . import _kernels
from ._plan import check_shapes, empty_gradient, n_rows

_BLOCK = (
    "Tensor x, Tensor? gate, Tensor? up, Tensor down, Tensor? gate_bias, Tensor? up_bias, Tensor? down_bias,"
    " str activation, str layout, str compute"
)
_SCHEMAS = {
    "ffn": f"({_BLOCK}) -> Tensor",
    "ffn_keep": f"({_BLOCK}) -> (Tensor, Tensor)",
    "ffn_backward": f"(Tensor dy, Tensor? kept, {_BLOCK}, int needs) -> Tensor[]",
    "ffn_packed": f"({_BLOCK}) -> Tensor",
}

_library: Any = torch.library.Library("swiglu", "DEF")  # type: ignore[no-untyped-call]
for _name, _schema in _SCHEMAS.items():
    _library.define(_name + _schema, tags=(torch.Tag.pt2_compliant_tag,))
    _library.impl(_name, getattr(_kernels, _name), "CPU")

ffn = torch.ops.swiglu.ffn.default
ffn_keep = torch.ops.swiglu.ffn_keep.default
ffn_backward = torch.ops.swiglu.ffn_backward.default
ffn_packed = torch.ops.swiglu.ffn_packed.default


# ---- fake kernels: shapes, strides and dtypes of the results, and the same errors ----


def _fake_ffn(x: Tensor, *rest: Any) -> Tensor:
    _, _, d_out = check_shapes(x, rest[:6], rest[7])
    return x.new_empty((*x.shape[:-1], d_out))


def _fake_ffn_keep(x: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
    _, d_ff, d_out = check_shapes(x, rest[:6], rest[7])
    per_row = d_ff if rest[7] == "ungated" else 2 * d_ff
    return x.new_empty((*x.shape[:-1], d_out)), x.new_empty((n_rows(x) * per_row,), dtype=torch.float32)


def _fake_ffn_backward(dy: Tensor, kept: Optional[Tensor], x: Tensor, *rest: Any) -> list[Tensor]:
    parts, needs = rest[:6], rest[9]
    check_shapes(x, parts, rest[7])
    outputs = [x.new_empty(x.shape)] if needs & 1 else []
    return outputs + [empty_gradient(p) for i, p in enumerate(parts) if p is not None and needs & (2 << i)]


torch.library.register_fake("swiglu::ffn", _fake_ffn, lib=_library)
torch.library.register_fake("swiglu::ffn_keep", _fake_ffn_keep, lib=_library)
torch.library.register_fake("swiglu::ffn_backward", _fake_ffn_backward, lib=_library)
torch.library.register_fake("swiglu::ffn_packed", _fake_ffn, lib=_library)


# ---- autograd ----


class _Differentiable(torch.autograd.Function):
    """Saves x, the weights and, with keep, what ffn_keep left; all as saved tensors, so that hooks, checkpoints and the
    check for changes in place work as for any operator."""

    @staticmethod
    def forward(ctx: Any, keep: bool, *args: Any) -> Any:
        kept: Optional[Tensor] = None
        with torch._C._AutoDispatchBelowAutograd():
            if keep:
                y, kept = ffn_keep(*args)
            else:
                y = ffn(*args)
        ctx.save_for_backward(*args[:7], kept)
        ctx.config = args[7:]
        ctx.set_materialize_grads(False)
        if kept is None:
            return y
        ctx.mark_non_differentiable(kept)
        return y, kept

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: Optional[Tensor], _: Optional[Tensor] = None) -> tuple[Optional[Tensor], ...]:
        if dy is None:
            return (None,) * 11
        *block, kept = ctx.saved_tensors
        needed = ctx.needs_input_grad[1:8]
        outputs = iter(ffn_backward(dy, kept, *block, *ctx.config, sum(1 << i for i, need in enumerate(needed) if need)))
        return None, *(next(outputs) if need else None for need in needed), None, None, None


def _autograd(op: Any, keep: bool) -> Callable[..., Any]:
    def kernel(*args: Any) -> Any:
        if torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in args[:7]):
            return _Differentiable.apply(keep, *args)  # type: ignore[no-untyped-call]
        with torch._C._AutoDispatchBelowAutograd():
            return op(*args)

    return kernel


_library.impl("ffn", _autograd(ffn, keep=False), "Autograd")
_library.impl("ffn_keep", _autograd(ffn_keep, keep=True), "Autograd")


# ---- autocast: as nn.Linear, x becomes low precision and so does y; the weights are rounded inside, if at all ----


def _autocast(op: Any) -> Callable[..., Any]:
    def kernel(x: Tensor, *rest: Any) -> Any:
        dtype = torch.get_autocast_dtype("cpu")
        *parts, activation, layout, compute = rest
        if compute == "auto" and dtype == torch.bfloat16:
            compute = "bf16"
        with torch.autocast("cpu", enabled=False):
            return op(x.to(dtype), *parts, activation, layout, compute)

    return kernel


for _op, _name in ((ffn, "ffn"), (ffn_keep, "ffn_keep"), (ffn_packed, "ffn_packed")):
    _library.impl(_name, _autocast(_op), "AutocastCPU")
