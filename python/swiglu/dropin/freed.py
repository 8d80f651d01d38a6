# SPDX-License-Identifier: Apache-2.0
"""Blocks whose original weights were given back: the packed copy is all there is."""

from __future__ import annotations

import ctypes
from typing import Any, NoReturn, Optional

import torch
from torch import Tensor, nn

from .. import _abi
from .._block import Handle
from .._library import check, lib
from ..torch._kernels import run_handle
from ..torch._plan import DTYPES, Plan
from ..torch._recipe import Recipe, parts_of

# What may be asked of a weight that is not there: everything but its values.
_METADATA = frozenset(
    "__repr__ __hash__ detach dim element_size get_device is_complex is_contiguous is_floating_point is_inference nelement"
    " numel size stride storage_offset untyped_storage type".split()
)
_ATTRIBUTES = frozenset(
    "device dtype grad grad_fn is_cpu is_cuda is_meta is_nested is_quantized is_sparse itemsize layout names nbytes ndim"
    " requires_grad shape _backward_hooks _version".split()
)


class FreedWeightError(RuntimeError):
    """Something needs the values of a weight that swiglu.patch(..., free=True) gave back."""


class FreedWeight(nn.Parameter):
    """A meta tensor in the place of a weight. Sizes and types can be asked; anything that needs its values raises
    FreedWeightError, and so does an optimiser."""

    def __new__(cls, original: Tensor) -> FreedWeight:
        empty = torch.empty_strided(original.shape, original.stride(), dtype=original.dtype, device="meta")
        made: FreedWeight = torch.Tensor._make_subclass(cls, empty, original.requires_grad)
        return made

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(function, "__name__", "")
        if name == "__get__":
            name = getattr(getattr(function, "__self__", None), "__name__", "")
            allowed = name in _ATTRIBUTES
        else:
            allowed = name in _METADATA
        if not allowed:
            fail(f"{name or function} needs the values of a weight")
        with torch._C.DisableTorchFunctionSubclass():
            return function(*args, **(kwargs or {}))

    def __deepcopy__(self, memo: dict[int, Any]) -> FreedWeight:
        with torch._C.DisableTorchFunctionSubclass():
            twin = memo[id(self)] = FreedWeight(self)
            return twin

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        fail("pickling (save the state_dict instead)")


def fail(what: str) -> NoReturn:
    raise FreedWeightError(
        f"swiglu: {what}, but swiglu.patch(free=True) gave the originals back; swiglu.restore(model) brings them back"
    )


class FreedBlock:
    """The packed copy of one module, and what its parameters were. Immutable; copies of the module share it."""

    def __init__(self, module: nn.Module, recipe: Recipe) -> None:
        """Packs; the module stays as it is."""
        parts: Any = parts_of(module, recipe)
        first = parts[0] if parts[0] is not None else parts[1]
        self.recipe = recipe
        with torch.no_grad():
            plan = Plan(first.new_empty(0, first.shape[1]), parts, recipe.activation, recipe.layout, "auto")
            held = plan.point(parts)
            self.handle = Handle(plan.desc, plan.options)
            del held
            info = _abi.new(_abi.BlockInfo)
            check(lib.swiglu_block_query(self.handle.pointer, ctypes.byref(info)), "block")
            self.packed_bytes, self.d_out = int(info.packed_bytes), plan.d_out
            # (positions, values) of what the copy does not hold bit for bit: subnormals and NaN held for bf16 compute
            self._lost: dict[str, tuple[Tensor, Tensor]] = {}
            for name in recipe.linears:
                original = _bits(module._modules[name].weight.detach())  # type: ignore[union-attr, operator]
                wrong = (_bits(self.unpack(module, name)) != original).flatten().nonzero()[:, 0]
                self._lost[name] = wrong, original.flatten()[wrong].clone()

    def unpack(self, module: nn.Module, name: str) -> Tensor:
        """The weight of this child, bit for bit, as it was stored."""
        weight: Any = module._modules[name].weight  # type: ignore[union-attr]
        recipe, packed = self.recipe, self.recipe.up is None and name == self.recipe.gate
        stored_in_out = type(module._modules[name]) is not nn.Linear
        rows, cols = tuple(weight.shape)[::-1] if stored_in_out else tuple(weight.shape)
        out = torch.empty(rows, cols, dtype=weight.dtype)
        half = rows // 2 * cols * weight.element_size()
        if packed:
            targets = {"gate": 0, "up": half} if recipe.layout == "gate_up" else {"up": 0, "gate": half}
        else:
            targets = {"gate" if name == recipe.gate else "up" if name == recipe.up else "down": 0}
        for part, offset in targets.items():
            status = lib.swiglu_block_unpack(
                self.handle.pointer, _abi.PARTS[part], DTYPES[weight.dtype], out.data_ptr() + offset, 0
            )
            check(status, f"unpacking {name}")
        out = out.t().contiguous() if stored_in_out else out
        if name in self._lost:
            positions, values = self._lost[name]
            _bits(out).view(-1)[positions] = values
        return out

    def __call__(self, x: Tensor) -> Tensor:
        if torch.is_grad_enabled() and x.requires_grad:
            fail("a forward with gradients needs the weights (run it under torch.no_grad())")
        if torch.is_autocast_enabled("cpu"):
            x = x.to(torch.get_autocast_dtype("cpu"))
        return run_handle(self.handle, x, self.d_out)

    def __deepcopy__(self, memo: Any) -> FreedBlock:
        return self

    def __reduce__(self) -> NoReturn:
        fail("pickling (save the state_dict instead)")


def _bits(tensor: Tensor) -> Tensor:
    return tensor.view(torch.int32 if tensor.dtype == torch.float32 else torch.int16)


def free(module: nn.Module, recipe: Recipe) -> FreedBlock:
    """Packs, then puts meta tensors where the weights were."""
    block = FreedBlock(module, recipe)
    for name in recipe.linears:
        child: Any = module._modules[name]
        child._parameters["weight"] = FreedWeight(child.weight)
    return block


def bring_back(module: nn.Module, block: FreedBlock) -> None:
    for name in block.recipe.linears:
        child: Any = module._modules[name]
        weight: Optional[Tensor] = child._parameters["weight"]
        if type(weight) is FreedWeight:
            child._parameters["weight"] = nn.Parameter(block.unpack(module, name), requires_grad=weight.requires_grad)
