# SPDX-License-Identifier: Apache-2.0
"""The operators swiglu::ffn, ffn_keep, ffn_backward and ffn_packed: schemas, fake kernels, autograd, autocast.

ffn keeps x only and computes gate and up again in backward, ffn_keep keeps them; the bits are the same. ffn_packed is for
inference: it computes from a packed copy of the weights and has no gradient.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from typing import Any, Callable, Optional

import torch
from torch import Tensor

from . import kernels
from .plain import plain_ffn
from .plan import NoMemory, check_devices, check_shapes, dtype_number, empty_gradient, n_rows
from .second import differentiable

_BLOCK = (
    "Tensor x, Tensor? gate, Tensor? up, Tensor down, Tensor? gate_bias, Tensor? up_bias, Tensor? down_bias,"
    " str activation, str layout, str compute"
)
_SCHEMAS = {
    "ffn": f"({_BLOCK}) -> Tensor",
    "ffn_keep": f"({_BLOCK}) -> (Tensor, Tensor)",
    "ffn_backward": f"(Tensor dy, Tensor? kept, {_BLOCK}, int needs, int wide) -> Tensor[]",
    "ffn_packed": f"({_BLOCK}) -> Tensor",
}

_library: Any = torch.library.Library("swiglu", "DEF")  # type: ignore[no-untyped-call]
for _name, _schema in _SCHEMAS.items():
    _library.define(_name + _schema, tags=(torch.Tag.pt2_compliant_tag,))
    _library.impl(_name, getattr(kernels, _name), "CPU")

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
    per_row = (1 if rest[7] == "ungated" else 2) * ((d_ff + 63) // 64 * 64)  # as swiglu_train_bytes says
    rows = (n_rows(x) + 7) // 8 * 8
    return x.new_empty((*x.shape[:-1], d_out)), x.new_empty((rows * per_row,), dtype=torch.float32)


def _fake_ffn_backward(dy: Tensor, kept: Optional[Tensor], x: Tensor, *rest: Any) -> list[Tensor]:
    parts, needs, wide = rest[:6], rest[9], rest[10]
    check_shapes(x, parts, rest[7])
    outputs = [x.new_empty(x.shape)] if needs & 1 else []
    for i, part in enumerate(parts):
        if part is not None and needs & (2 << i):
            outputs.append(empty_gradient(part, torch.float32 if wide & (2 << i) else part.dtype))
    return outputs


torch.library.register_fake("swiglu::ffn", _fake_ffn, lib=_library)
torch.library.register_fake("swiglu::ffn_keep", _fake_ffn_keep, lib=_library)
torch.library.register_fake("swiglu::ffn_backward", _fake_ffn_backward, lib=_library)
torch.library.register_fake("swiglu::ffn_packed", _fake_ffn, lib=_library)


# ---- autograd ----


@functools.lru_cache(maxsize=None)
def _needs(needed: tuple[bool, ...]) -> tuple[int, tuple[int, ...]]:
    """(mask for ffn_backward, the places of its results) for the inputs of _Differentiable."""
    places = tuple(i for i, need in enumerate(needed) if need)
    return sum(1 << (i - 2) for i in places), places


def _wide(block: Sequence[Optional[Tensor]]) -> int:
    """A bit for each parameter of low precision that wants its gradient in float32 (parameter.grad_dtype)."""
    wide = 0
    for i, tensor in enumerate(block):
        if tensor is not None and tensor.dtype is not torch.float32 and i and tensor.is_leaf:
            if getattr(tensor, "grad_dtype", None) is torch.float32:
                wide |= 1 << i
    return wide


def _plain(config: tuple[str, str, str], x: Tensor, *parts: Any) -> Tensor:
    """In plain operators, which want one dtype."""
    if all(part is None or part.dtype is x.dtype for part in parts):
        return plain_ffn(x, parts, config[0], config[1])
    wide = tuple(None if part is None else part.float() for part in parts)
    return plain_ffn(x.float(), wide, config[0], config[1]).to(x.dtype)  # type: ignore[arg-type]


def _batched_backward(tensors: Sequence[Optional[Tensor]], config: tuple[Any, ...]) -> list[Tensor]:
    """is_grads_batched and jacobian(vectorize=True): dy alone is batched, with the vmap from before torch.func."""
    level = torch._C._vmapmode_increment_nesting() - 1  # of the vmap that runs
    torch._C._vmapmode_decrement_nesting()
    dy: Any = tensors[0]
    many: Tensor = torch._remove_batch_dim(dy, level, 1, 0)  # the size is read only where there is no batch
    results = zip(*(_backward((each, *tensors[1:]), config) for each in many))
    return [torch._add_batch_dim(torch.stack(same), 0, level) for same in results]


def _backward(tensors: Sequence[Optional[Tensor]], config: tuple[Any, ...]) -> list[Tensor]:
    if torch._C._functorch.is_legacy_batchedtensor(tensors[0]):  # type: ignore[arg-type]
        return _batched_backward(tensors, config)
    if is_ordinary(tensors):
        try:
            return kernels.ffn_backward(*tensors, *config)  # type: ignore[arg-type]
        except NoMemory:
            pass
    return ffn_backward(*tensors, *config)  # type: ignore[no-any-return]


class _Differentiable(torch.autograd.Function):
    """Saves x, the weights and, with keep, what ffn_keep left; all as saved tensors, so that hooks, checkpoints and the
    check for changes in place work as for any operator. run is an operator or its kernel, config (activation, layout,
    compute)."""

    @staticmethod
    def forward(ctx: Any, run: Any, config: tuple[str, str, str], *block: Optional[Tensor]) -> Any:
        with torch._C._AutoDispatchBelowAutograd():
            result = run(*block, *config)
        ctx.config = config
        ctx.set_materialize_grads(False)
        if isinstance(result, tuple):
            ctx.save_for_backward(*block, result[1])
            ctx.mark_non_differentiable(result[1])
        else:
            ctx.save_for_backward(*block, None)
        return result

    @staticmethod
    def backward(ctx: Any, dy: Optional[Tensor], _: Optional[Tensor] = None) -> tuple[Optional[Tensor], ...]:
        result: list[Optional[Tensor]] = [None] * 9
        if dy is not None:
            *block, kept = ctx.saved_tensors
            tensors = (dy, kept, *block)
            mask, places = _needs(ctx.needs_input_grad)
            config = (*ctx.config, mask, _wide(block))
            if torch.is_grad_enabled():  # create_graph
                with torch.no_grad():
                    gradients = _backward(tensors, config)
                wanted = tuple(place - 2 for place in places)
                again = functools.partial(_plain, ctx.config)
                gradients = list(differentiable(again, wanted, gradients, dy, block))
            else:
                gradients = _backward(tensors, config)
            for place, gradient in zip(places, gradients):
                result[place] = gradient
        return tuple(result)


def _wants_gradient(block: Sequence[Optional[Tensor]]) -> bool:
    if torch.is_grad_enabled():
        for tensor in block:
            if tensor is not None and tensor.requires_grad:
                return True
    return False


def _autograd(op: Any) -> Callable[..., Any]:
    def kernel(*args: Any) -> Any:
        if _wants_gradient(args[:7]):
            return _Differentiable.apply(op, args[7:], *args[:7])  # type: ignore[no-untyped-call]
        with torch._C._AutoDispatchBelowAutograd():
            return op(*args)

    return kernel


_library.impl("ffn", _autograd(ffn), "Autograd")
_library.impl("ffn_keep", _autograd(ffn_keep), "Autograd")


# ---- autocast: as nn.Linear, x becomes low precision and so does y; the weights are rounded inside, if at all ----


def _autocast(op: Any) -> Callable[..., Any]:
    def kernel(x: Tensor, *rest: Any) -> Any:
        dtype = torch.get_autocast_dtype("cpu")
        dtype_number("x", x)  # anything else is not cast, as for nn.Linear
        *parts, activation, layout, compute = rest
        if compute == "auto" and dtype == torch.bfloat16:
            compute = "bf16"
        with torch.autocast("cpu", enabled=False):
            return op(x.to(dtype), *parts, activation, layout, compute)

    return kernel


for _op, _name in ((ffn, "ffn"), (ffn_keep, "ffn_keep"), (ffn_packed, "ffn_packed")):
    _library.impl(_name, _autocast(_op), "AutocastCPU")


# ---- vmap, which batched gradients use: one call after the other ----


def _one_by_one(op: Any) -> Callable[..., Any]:
    def rule(info: Any, in_dims: tuple[Any, ...], *args: Any) -> tuple[Any, Any]:
        def at(i: int) -> list[Any]:
            return [arg if dim is None else arg.select(dim, i) for arg, dim in zip(args, in_dims)]

        results = [op(*at(i)) for i in range(info.batch_size)]
        if isinstance(results[0], Tensor):
            return torch.stack(results), 0
        stacked = [torch.stack(same) for same in zip(*results)]
        return type(results[0])(stacked), type(results[0])([0] * len(stacked))

    return rule


for _op, _name in ((ffn, "ffn"), (ffn_keep, "ffn_keep"), (ffn_backward, "ffn_backward"), (ffn_packed, "ffn_packed")):
    torch.library.register_vmap(f"swiglu::{_name}", _one_by_one(_op), lib=_library)


# ---- the same without the dispatcher, which costs more than a small block ----

_ORDINARY = (Tensor, torch.nn.Parameter)


def is_ordinary(tensors: Iterable[Optional[Tensor]]) -> bool:
    """Whether a call of the kernel is a call of the operator: plain tensors on the CPU (not negated ones, which the
    dispatcher resolves), and nobody who watches or changes operators (tracing, modes, transforms, autocast, a profiler)."""
    if torch.compiler.is_compiling():
        return False
    for tensor in tensors:
        if tensor is not None and (type(tensor) not in _ORDINARY or not tensor.is_cpu or tensor.is_neg()):
            return False
    return (
        not torch._C._len_torch_dispatch_stack()
        and not torch._C._are_functorch_transforms_active()
        and not torch.is_autocast_enabled("cpu")
        and not torch._C._autograd._profiler_enabled()
        and torch._C._get_tracing_state() is None
    )


_KERNELS: dict[Any, Any] = {ffn: kernels.ffn, ffn_keep: kernels.ffn_keep, ffn_packed: kernels.ffn_packed}


def call(
    op: Any, block: Sequence[Optional[Tensor]], activation: str, layout: str, compute: str, packed: bool = False
) -> Any:
    """op(*block, activation, layout, compute) by the shortest way. block is x and the six parts. packed: op is ffn, and its
    result may come from a packed copy of the weights."""
    if not is_ordinary(block):
        check_devices(block[0], block[1:])  # type: ignore[arg-type]
        return op(*block, activation, layout, compute)
    run = _KERNELS[op]
    try:
        if op is not ffn_packed and _wants_gradient(block):
            run = kernels.ffn_settled if packed else run
            return _Differentiable.apply(run, (activation, layout, compute), *block)  # type: ignore[no-untyped-call]
        if packed:
            run = _KERNELS[ffn_packed]
        return run(*block, activation, layout, compute)
    except NoMemory:  # a plain type may still stand for another tensor, which the dispatcher knows
        return op(*block, activation, layout, compute)
