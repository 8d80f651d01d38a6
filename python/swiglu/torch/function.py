# SPDX-License-Identifier: Apache-2.0
"""The block as a function, and the packed copies that modules keep of their weights."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Optional

import torch
from torch import Tensor, nn
from torch.autograd import forward_ad

from .._c.activation import ActivationLike, act_spec
from .._c.desc import default_layout
from . import ops
from .packed import forget
from .plain import plain_ffn, tell_once

POLICIES = {"recompute": ops.ffn, "keep": ops.ffn_keep}


def find_policy(policy: Any) -> Any:
    """The operator of a policy."""
    op = POLICIES.get(policy) if isinstance(policy, str) else None
    if op is None:
        raise ValueError(f"policy {policy!r} is not one of {', '.join(POLICIES)}")
    return op


def check_module(name: str, value: Any) -> None:
    if not isinstance(value, nn.Module):
        raise TypeError(f"{name} must be a torch.nn.Module, not {type(value).__name__}")


def ffn(
    x: Tensor,
    gate: Optional[Tensor],
    up: Optional[Tensor],
    down: Tensor,
    gate_bias: Optional[Tensor] = None,
    up_bias: Optional[Tensor] = None,
    down_bias: Optional[Tensor] = None,
    *,
    activation: ActivationLike = "silu",
    layout: Optional[str] = None,
    policy: str = "recompute",
    compute: str = "auto",
    packed: bool = False,
) -> Tensor:
    """y [..., d_out] = (act(x gate^T + gate_bias) * (x up^T + up_bias)) down^T + down_bias, with gradients.

    x            [..., d_in]; y has its dtype. No rows are fine
    gate, up     [d_ff, d_in]; a packed layout has both in gate, [2 d_ff, d_in], and up is None
    down         [d_out, d_ff]
    activation   a name (swiglu.activation_names()) or a swiglu.Activation
    layout       "separate", "gate_up", "up_gate", "interleaved", "ungated"; None: separate, or ungated where gate is None
    policy       "recompute" saves x alone for backward and computes gate and up again, "keep" saves gate and up as float32;
                 the bits are the same. In bfloat16, and under autocast, recompute takes longer than PyTorch's own step (0.8 to
                 0.9 of its speed, for a fraction of its memory); keep is the one for speed
    compute      "auto" (bf16 weights in bf16, all others in f32), "f32", "bf16"
    packed       compute from a packed copy of the weights, made now if there is none; with gradients on, of weights that
                 did not change since the last call. Give it in eval mode only; repack() says when a copy could be stale

    Tensors are float32, float16 or bfloat16, in any mix; a transposed weight (conv1d.weight.t()) is used as it lies.
    Gradients of weights and biases are computed in float32 and rounded once to the parameter's gradient dtype; with
    parameter.grad_dtype = torch.float32 they stay float32. Under autocast x and y become low precision, as for nn.Linear,
    and weights are rounded inside. Second derivatives (create_graph=True) are computed by PyTorch's operators, which take the
    block once more and keep all that they keep. Parameters of an activation get no gradient.
    Raises ValueError (shapes, devices, names) and TypeError (dtypes); tensors on other devices go through PyTorch.
    """
    if not isinstance(x, Tensor):
        raise TypeError(f"x must be a torch.Tensor, not {type(x).__name__}")
    spec = act_spec(activation)
    order = default_layout(gate, up) if layout is None else layout
    if not x.is_cpu and x.device.type != "meta":
        tell_once(x.device)
        return plain_ffn(x, (gate, up, down, gate_bias, up_bias, down_bias), spec, order)
    if forward_ad._current_level >= 0:  # the operators have no forward-mode gradients
        return plain_ffn(x, (gate, up, down, gate_bias, up_bias, down_bias), spec, order)
    op = find_policy(policy)
    if packed and not torch.is_grad_enabled():
        op = ops.ffn_packed
    block = (x, gate, up, down, gate_bias, up_bias, down_bias)
    result = ops.call(op, block, spec, order, compute, packed and op is ops.ffn)
    return result[0] if op is ops.ffn_keep else result  # type: ignore[no-any-return]


def repack(module: nn.Module) -> None:
    """Drops the packed copies of all weights below module, so that the next inference packs them as they are then.

    Needed only after a write that nothing can notice: one that goes behind PyTorch's version counter (through .data, NumPy,
    DLPack, another process) while the module stays in eval mode, keeps the tensor's memory, and touches none of the 16
    cache lines per weight that are compared before each use. Raises TypeError (not a module)."""
    check_module("module", module)
    forget(module)


class PackedWeights(nn.Module):
    """Base class of modules that call ffn(..., packed=not self.training): drops the packed copies when the mode changes to
    training, when the module is moved or converted, and when a state is loaded."""

    def train(self, mode: bool = True) -> Any:
        """As nn.Module.train."""
        if mode:
            forget(self)
        return super().train(mode)

    def _apply(self, fn: Callable[..., Any], recurse: bool = True) -> Any:
        forget(self)
        return super()._apply(fn, recurse)  # type: ignore[no-untyped-call]

    def _load_from_state_dict(self, state_dict: Mapping[str, Any], *args: Any, **kwargs: Any) -> None:
        forget(self)
        super()._load_from_state_dict(state_dict, *args, **kwargs)
