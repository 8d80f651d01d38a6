# SPDX-License-Identifier: Apache-2.0
"""Blocks under a tensor-parallel plan of DTensor: rows of gate and up and columns of down on each rank, so that the local
shard is a block. It is evaluated whole; what the plan does to x before and to y after is done by the plan's own functions.

A plan is known by what it leaves in a module: parameters that are DTensors, and the hooks of distribute_module with the
functions of ColwiseParallel and RowwiseParallel in them. Any other hook or layout leaves the block to its children."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Optional, Union

from torch import Tensor

from .plan import Parts


class Style(NamedTuple):
    """What a plan says of one linear: by columns of its product (gate, up) or by rows (down)."""

    by_columns: bool
    mesh: Any
    layouts: tuple[Any, ...]  # of the input, as given and as wanted, and of the output
    prepare: Callable[..., Any]
    finish: Callable[..., Any]


def is_sharded(child: Any) -> bool:
    """Whether the weight of a linear is a DTensor."""
    cls = type(child._parameters.get("weight"))
    return cls.__name__ == "DTensor" and cls.__module__.startswith("torch.distributed.")


def _only(hooks: Any, name: str) -> Optional[tuple[functools.partial[Any], Any]]:
    """(the function of the plan that the only hook calls, its mesh)"""
    if len(hooks) != 1:
        return None
    hook = next(iter(hooks.values()))
    if getattr(hook, "__module__", "") != "torch.distributed.tensor._api" or not hook.__closure__:
        return None
    if not hook.__qualname__.startswith("distribute_module.<locals>."):
        return None
    cells = dict(zip(hook.__code__.co_freevars, (cell.cell_contents for cell in hook.__closure__)))
    function = cells.get(name)
    return (function, cells.get("device_mesh")) if isinstance(function, functools.partial) else None


def _style(child: Any) -> Union[Style, str]:
    """What the plan does to a linear, or why that is not known."""
    from torch.distributed.tensor import Replicate, Shard
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel

    before, after = _only(child._forward_pre_hooks, "input_fn"), _only(child._forward_hooks, "output_fn")
    if before is None or after is None or child._backward_hooks or child._backward_pre_hooks or "forward" in child.__dict__:
        return "its hooks are not those of a tensor-parallel plan"
    (prepare, mesh), (finish, other) = before, after
    by_columns = prepare.func is ColwiseParallel._prepare_input_fn
    cls: Any = ColwiseParallel if by_columns else RowwiseParallel
    if prepare.func is not cls._prepare_input_fn or finish.func is not cls._prepare_output_fn:
        return "its hooks are not those of ColwiseParallel or RowwiseParallel"
    if mesh is not other or mesh.ndim != 1:
        return "its mesh has several dimensions"
    wanted, bias = ((Shard(0),), (Shard(0),)) if by_columns else ((Shard(1),), (Replicate(),))
    parameters = child._parameters
    if parameters["weight"].placements != wanted or parameters["weight"].device_mesh is not mesh:
        return f"its weight is placed as {parameters['weight'].placements}"
    if parameters["bias"] is not None and parameters["bias"].placements != bias:
        return f"its bias is placed as {parameters['bias'].placements}"
    outer, inner = ((Replicate(),), finish.args[0]) if by_columns else (prepare.args[0], prepare.args[1])
    if (by_columns and prepare.args[1] != outer) or inner != (Shard(-1),) or (not by_columns and outer != inner):
        return "its plan exchanges hidden units between ranks"
    if not by_columns and not finish.args[1]:
        return "its plan returns a DTensor"
    if not by_columns and parameters["bias"] is not None and finish.args[0] != (Replicate(),):
        return "its bias is added to a sharded result"
    return Style(by_columns, mesh, (*prepare.args, finish.args[0]), prepare, finish)


def obstacle(children: Sequence[Any], layout: str) -> Optional[str]:
    """Why the linears of a block (down last), one of them at least sharded, must be called one by one; None where their local
    shards are a block."""
    if not all(is_sharded(child) for child in children):
        return "some of its weights are sharded and others not"
    if layout in ("gate_up", "up_gate"):
        return "a shard of its packed product is not gate and up of the same units"
    styles = [_style(child) for child in children]
    strange = next((style for style in styles if isinstance(style, str)), None)
    if strange is not None:
        return strange
    if [style.by_columns for style in styles] != [True] * (len(styles) - 1) + [False]:  # type: ignore[union-attr]
        return "its plan is not by columns of gate and up and by rows of down"
    first = styles[0]
    if any(s.mesh is not first.mesh or s.layouts[:2] != first.layouts[:2] for s in styles[:-1]):  # type: ignore[union-attr]
        return "its plan treats x differently for gate and up"
    if styles[-1].mesh is not styles[0].mesh:  # type: ignore[union-attr]
        return "gate, up and down are on different meshes"
    rows = {child._parameters["weight"]._local_tensor.shape[0] for child in children[:-1]}
    inner = children[-1]._parameters["weight"]._local_tensor.shape[1]
    if rows != {inner * (2 if layout == "interleaved" else 1)}:
        return "gate, up and down are cut at different hidden units"
    return None


def evaluate(children: Sequence[Any], parts: Parts, x: Tensor, block: Callable[[Tensor, Parts], Tensor]) -> Tensor:
    """block(x, parts) of the local shards, summed over the ranks as the plan says."""
    from torch.distributed.tensor import DTensor, Partial

    first, last = _style(children[0]), _style(children[-1])
    assert isinstance(first, Style) and isinstance(last, Style)
    local: Any = [None if part is None else part.to_local() for part in parts]  # type: ignore[attr-defined]
    bias, local[5] = local[5], None  # once for all ranks
    whole = first.prepare(children[0], (x,), first.mesh)
    y = block(whole.to_local(grad_placements=(Partial(),)), tuple(local))
    partial = DTensor.from_local(y, last.mesh, (Partial(),), run_check=False)
    result: Tensor = last.finish(children[-1], partial, last.mesh)
    return result if bias is None else result + bias
