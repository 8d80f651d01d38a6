# SPDX-License-Identifier: Apache-2.0
"""The CPU kernels of the operators: tensors in, one call of the library, tensors out. No autograd here."""

from __future__ import annotations

from typing import Optional

import torch
from torch import Tensor

from .._c import abi
from .._c.handle import Handle
from .._c.library import check, lib
from .._c.threads import workspace
from .results import empty, give_back_scratch
from .packed import find, find_settled, forget_weight, settle
from .plan import DTYPES, NO_HEADS, Heads, Parts, address, as_rows, dtype_number, empty_result, give_back_plan, n_rows
from .plan import take_plan
from .team import team


def forward(
    x: Tensor,
    parts: Parts,
    activation: str,
    layout: str,
    compute: str,
    keep: bool,
    heads: Heads = NO_HEADS,
    y_dtype: Optional[torch.dtype] = None,
) -> tuple[Tensor, Tensor]:
    """(y, what is kept: with keep False nothing of use). y has the dtype of x where none is given."""
    forget_weight(parts[2])
    plan = take_plan(x, parts, activation, layout, compute, heads)
    held = plan.point((*parts, *heads))
    flags = abi.TRAIN_KEEP_GATE_UP if keep else abi.TRAIN_KEEP_X
    runner, m = team(), n_rows(x)
    work_bytes, kept_bytes = plan.sizes(m, flags, runner.n_threads)
    y = empty_result(x, plan.d_out, y_dtype)
    kept = empty(x, (kept_bytes // 4,), torch.float32) if keep else y
    rows, ld = as_rows(x)
    status = lib.swiglu_train_forward(
        plan.desc_ref,
        plan.options_ref,
        m,
        flags,
        abi.Rows(address("x", rows), DTYPES[x.dtype], ld),
        abi.Rows(y.data_ptr(), DTYPES[y.dtype], 0),
        kept.data_ptr() if keep else None,
        workspace.reserve(work_bytes),
        runner.address,
    )
    if status:
        check(status, "ffn")
    del held
    give_back_plan(plan)
    return y, kept


def ffn(
    x: Tensor,
    gate: Optional[Tensor],
    up: Optional[Tensor],
    down: Tensor,
    gate_bias: Optional[Tensor],
    up_bias: Optional[Tensor],
    down_bias: Optional[Tensor],
    activation: str,
    layout: str,
    compute: str,
) -> Tensor:
    return forward(x, (gate, up, down, gate_bias, up_bias, down_bias), activation, layout, compute, False)[0]


def ffn_keep(
    x: Tensor,
    gate: Optional[Tensor],
    up: Optional[Tensor],
    down: Tensor,
    gate_bias: Optional[Tensor],
    up_bias: Optional[Tensor],
    down_bias: Optional[Tensor],
    activation: str,
    layout: str,
    compute: str,
) -> tuple[Tensor, Tensor]:
    return forward(x, (gate, up, down, gate_bias, up_bias, down_bias), activation, layout, compute, True)


def ffn_backward(
    dy: Tensor,
    kept: Optional[Tensor],
    x: Tensor,
    gate: Optional[Tensor],
    up: Optional[Tensor],
    down: Tensor,
    gate_bias: Optional[Tensor],
    up_bias: Optional[Tensor],
    down_bias: Optional[Tensor],
    activation: str,
    layout: str,
    compute: str,
    needs: int,
    wide: int,
) -> list[Tensor]:
    """Gradients of x (bit 0 of needs), gate (bit 1), up, down, gate_bias, up_bias, down_bias (bit 6), those asked for; each
    in the dtype of its tensor, or with its bit in wide in float32 (not x)."""
    parts: Parts = (gate, up, down, gate_bias, up_bias, down_bias)
    return backward(dy, kept, x, parts, activation, layout, compute, needs, wide)


def backward(
    dy: Tensor,
    kept: Optional[Tensor],
    x: Tensor,
    parts: Parts,
    activation: str,
    layout: str,
    compute: str,
    needs: int,
    wide: int,
    heads: Heads = NO_HEADS,
) -> list[Tensor]:
    """As ffn_backward. With heads: gradients of x, of the heads in place of gate, up and down, and of the biases."""
    if needs & ~1 and heads is NO_HEADS:
        forget_weight(parts[2])
    plan = take_plan(x, parts, activation, layout, compute, heads)
    if dy.shape != (*x.shape[:-1], plan.d_out):
        raise ValueError(f"dy has shape {tuple(dy.shape)}, expected {(*x.shape[:-1], plan.d_out)}")
    dy_dtype = dtype_number("dy", dy)
    held = plan.point((*parts, *heads))
    flags = abi.TRAIN_KEEP_X if kept is None else abi.TRAIN_KEEP_GATE_UP
    runner, m = team(), n_rows(x)
    trained = parts if heads is NO_HEADS else (*heads, *parts[3:])
    outputs, narrow, memory, gradient_flags = plan.point_gradients(x, trained, needs, wide)
    flags |= gradient_flags
    work_bytes, kept_bytes = plan.sizes(m, flags, runner.n_threads)
    if kept is not None:
        if kept.numel() != kept_bytes // 4 or kept.dtype is not torch.float32 or not kept.is_contiguous():
            raise ValueError(f"kept has {kept.numel()} values of {kept.dtype}, expected {kept_bytes // 4} contiguous float32")
    x_rows, x_ld = as_rows(x)
    dy_rows, dy_ld = as_rows(dy)
    status = lib.swiglu_train_backward(
        plan.desc_ref,
        plan.options_ref,
        m,
        flags,
        abi.Rows(address("x", x_rows), DTYPES[x.dtype], x_ld),
        abi.Rows(address("dy", dy_rows), dy_dtype, dy_ld),
        None if kept is None else address("kept", kept),
        plan.grads_ref,
        workspace.reserve(work_bytes),
        runner.address,
    )
    if status:
        check(status, "ffn_backward")
    for gradient, values in narrow:
        gradient.copy_(values)
    if memory is not None:
        give_back_scratch(memory)
    del held
    give_back_plan(plan)
    return outputs


def run_handle(handle: Handle, x: Tensor, d_out: int, y_dtype: Optional[torch.dtype] = None) -> Tensor:
    """y of a prepared block."""
    y = empty_result(x, d_out, y_dtype)
    runner, m = team(), n_rows(x)
    rows, ld = as_rows(x)
    status = lib.swiglu_forward(
        handle.pointer,
        m,
        abi.Rows(address("x", rows), DTYPES[x.dtype], ld),
        abi.Rows(y.data_ptr(), DTYPES[y.dtype], 0),
        workspace.reserve(handle.work_bytes(m, runner.n_threads)),
        runner.address,
    )
    if status:
        check(status, "forward")
    return y


def ffn_packed(
    x: Tensor,
    gate: Optional[Tensor],
    up: Optional[Tensor],
    down: Tensor,
    gate_bias: Optional[Tensor],
    up_bias: Optional[Tensor],
    down_bias: Optional[Tensor],
    activation: str,
    layout: str,
    compute: str,
) -> Tensor:
    parts: Parts = (gate, up, down, gate_bias, up_bias, down_bias)
    block = find(x, parts, activation, layout, compute)
    if block is None:
        return forward(x, parts, activation, layout, compute, False)[0]
    return run_handle(block.handle, x, block.d_out)


def ffn_settled(
    x: Tensor,
    gate: Optional[Tensor],
    up: Optional[Tensor],
    down: Tensor,
    gate_bias: Optional[Tensor],
    up_bias: Optional[Tensor],
    down_bias: Optional[Tensor],
    activation: str,
    layout: str,
    compute: str,
) -> Tensor:
    """The kernel of ffn for weights that are not being trained: from a packed copy where it pays."""
    parts: Parts = (gate, up, down, gate_bias, up_bias, down_bias)
    block = find_settled(x, parts, activation, layout, compute)
    if block is not None:
        return run_handle(block.handle, x, block.d_out)
    y = forward(x, parts, activation, layout, compute, False)[0]
    settle(parts)
    return y
