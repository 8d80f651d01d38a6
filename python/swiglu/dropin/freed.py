# SPDX-License-Identifier: Apache-2.0
"""Blocks whose original weights were given back: the packed copy is all there is."""

from __future__ import annotations

import ctypes
import warnings
from collections.abc import Callable, Iterator
from typing import Any, NoReturn, Optional

import torch
from torch import Tensor, nn

from .._c import abi
from .._c.handle import Handle
from .._c.library import check, lib
from ..torch.kernels import run_handle
from ..torch.plan import DTYPES, Plan, dtype_number
from ..torch.recipe import Recipe, child_at, is_transposed, parts_of

# What may be asked of a weight that is not there: everything but its values.
_METADATA = frozenset(
    "__repr__ __hash__ detach dim element_size get_device is_complex is_contiguous is_floating_point is_inference nelement"
    " numel requires_grad_ size stride storage_offset untyped_storage type".split()
)
_ATTRIBUTES = frozenset(
    "device dtype grad grad_fn is_cpu is_cuda is_meta is_nested is_quantized is_sparse itemsize layout names nbytes ndim"
    " requires_grad shape _backward_hooks _version".split()
)


class FreedWeightError(RuntimeError):
    """Something needs the values of a weight that swiglu.patch gave back: with free=True, or in a block format."""


class FreedWeight(nn.Parameter):
    """A meta tensor in the place of a weight or bias. Sizes and types can be asked; anything that needs its values raises
    FreedWeightError, and so does an optimiser."""

    block: FreedBlock
    part: str  # such as "gate_proj.weight"

    def __new__(cls, original: Tensor, block: FreedBlock, part: str) -> FreedWeight:
        empty = torch.empty_strided(original.shape, original.stride(), dtype=original.dtype, device="meta")
        made: FreedWeight = torch.Tensor._make_subclass(cls, empty, original.requires_grad)
        made.block, made.part = block, part
        return made

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(function, "__name__", "")
        if name == "__get__":
            name = getattr(getattr(function, "__self__", None), "__name__", "")
            allowed = name in _ATTRIBUTES
        elif name == "__set__":
            allowed = getattr(getattr(function, "__self__", None), "__name__", "") == "requires_grad"
        else:
            allowed = name in _METADATA
        if not allowed:
            fail(f"{name or function} needs the values of a weight")
        with torch._C.DisableTorchFunctionSubclass():
            return function(*args, **(kwargs or {}))

    def __deepcopy__(self, memo: dict[int, Any]) -> FreedWeight:
        with torch._C.DisableTorchFunctionSubclass():
            twin = memo[id(self)] = FreedWeight(self, self.block, self.part)
            return twin

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        fail("pickling (save the state_dict instead)")


def fail(what: str) -> NoReturn:
    raise FreedWeightError(
        f"swiglu: {what}, but swiglu.patch gave the originals back; swiglu.restore(model) brings back what it has"
    )


class FreedBlock:
    """The packed copy of one module, and what its parameters were. Immutable; copies of the module share it."""

    dtype = ""  # of a block format, where the copy holds its values and not those of before

    def __init__(self, module: nn.Module, recipe: Recipe) -> None:
        """Packs; the module stays as it is."""
        parts: Any = parts_of(module, recipe)
        self.recipe = recipe
        children: dict[str, Any] = {name: child_at(module, name) for name in recipe.linears}
        self._is_conv1d = {name: is_transposed(type(child)) for name, child in children.items()}
        self._weights = {name: child.weight.detach().to("meta") for name, child in children.items()}  # shape and dtype
        self._biases = {name: child.bias.detach().clone() for name, child in children.items() if child.bias is not None}
        self.parts = tuple(f"{name}.weight" for name in self._weights) + tuple(f"{name}.bias" for name in self._biases)
        self._lost: dict[str, tuple[Tensor, Tensor]] = {}
        self.handle = self._pack(parts)
        info = abi.new(abi.BlockInfo)
        check(lib.swiglu_block_query(self.handle.pointer, ctypes.byref(info)), "block")
        self.packed_bytes, self.d_out = int(info.packed_bytes), int(info.d_out)
        self._lost = self._find_lost(children)

    def _pack(self, parts: Any) -> Handle:
        first = parts[0] if parts[0] is not None else parts[1]
        plan = Plan(first.new_empty(0, first.shape[1]), parts, self.recipe.activation, self.recipe.layout, "auto")
        held = plan.point(parts)
        handle = Handle(plan.desc, plan.options)
        del held
        return handle

    def _find_lost(self, children: dict[str, Any]) -> dict[str, tuple[Tensor, Tensor]]:
        """(positions, values) of what the copy does not hold bit for bit: subnormals and NaN held for bf16 compute."""
        lost = {}
        for name, child in children.items():
            original = _bits(child.weight.detach())
            wrong = (_bits(self._unpack(name)) != original).flatten().nonzero()[:, 0]
            lost[name] = wrong, original.flatten()[wrong].clone()
        return lost

    def value(self, part: str) -> Tensor:
        """A new tensor with the values of this part, bit for bit, as it was stored."""
        name, _, kind = part.rpartition(".")
        with torch.inference_mode(False), torch.no_grad():
            return self._biases[name].clone() if kind == "bias" else self._unpack(name)

    def _unpack(self, name: str, dtype: Optional[torch.dtype] = None) -> Tensor:
        """In the dtype of the weight, or another."""
        weight, recipe = self._weights[name], self.recipe
        dtype = dtype or weight.dtype
        rows, cols = tuple(weight.shape)[::-1] if self._is_conv1d[name] else tuple(weight.shape)
        out = torch.empty(rows, cols, dtype=dtype, device="cpu")
        ld = 0
        if recipe.up is None and name == recipe.gate:
            ld = 2 * cols if recipe.layout == "interleaved" else 0
            second = cols if ld else rows // 2 * cols
            targets = {"up": 0, "gate": second} if recipe.layout == "up_gate" else {"gate": 0, "up": second}
        else:
            targets = {"gate" if name == recipe.gate else "up" if name == recipe.up else "down": 0}
        for part, at in targets.items():
            address = out.data_ptr() + at * out.element_size()
            status = lib.swiglu_block_unpack(self.handle.pointer, abi.PARTS[part], DTYPES[dtype], address, ld)
            check(status, f"unpacking {name}")
        out = out.t().contiguous() if self._is_conv1d[name] else out
        if name in self._lost:
            positions, values = self._lost[name]
            _bits(out).view(-1)[positions] = values
        return out

    def __call__(self, x: Tensor, module: nn.Module) -> Tensor:
        """y of the module, whose parameters must still be those that were freed."""
        trained = False
        for name in self.recipe.linears:
            own: Any = child_at(module, name)._parameters
            for kind in ("weight", "bias"):
                part, there = f"{name}.{kind}", own[kind]
                expected = FreedWeight if part in self.parts else type(None)
                if type(there) is not expected or (there is not None and there.part != part):
                    fail(f"{part} was replaced")
                trained = trained or (there is not None and there.requires_grad)
        if torch.is_autocast_enabled("cpu"):
            dtype_number("x", x)
            x = x.to(torch.get_autocast_dtype("cpu"))
        if torch.is_grad_enabled() and (trained or x.requires_grad):
            return self._with_gradients(x, trained)
        return self.run(x)

    def _with_gradients(self, x: Tensor, trained: bool) -> Tensor:
        fail("a forward with gradients needs the weights (run it under torch.no_grad())")

    def may_train(self, module: nn.Module) -> bool:
        """Whether its module may be in training mode."""
        return False

    def run(self, x: Tensor) -> Tensor:
        return run_handle(self.handle, x.resolve_neg(), self.d_out)

    def __deepcopy__(self, memo: Any) -> FreedBlock:
        return self

    def __reduce__(self) -> NoReturn:
        fail("pickling (save the state_dict instead)")


def _bits(tensor: Tensor) -> Tensor:
    return tensor.view(torch.int32 if tensor.dtype == torch.float32 else torch.int16)


def free(module: nn.Module, recipe: Recipe, make: Callable[[nn.Module, Recipe], FreedBlock] = FreedBlock) -> FreedBlock:
    """Packs, then puts meta tensors where the parameters were."""
    with torch.inference_mode(False), torch.no_grad():
        block = make(module, recipe)
    for part in block.parts:
        name, _, kind = part.rpartition(".")
        own: Any = child_at(module, name)._parameters
        own[kind] = FreedWeight(own[kind], block, part)
    return block


def freed_parameters(module: nn.Module) -> Iterator[tuple[str, dict[str, Any], str, FreedWeight]]:
    """(path, the dict that it is in, its key there, the parameter) of each below module, wherever adapters moved it."""
    for path, below in module.named_modules():
        own: Any = below._parameters
        for key, parameter in list(own.items()):
            if type(parameter) is FreedWeight:
                yield f"{path}.{key}" if path else key, own, key, parameter


def warn_of_formats(what: str, module: nn.Module) -> None:
    """Where values are asked for and those of a block format are all there is."""
    formats = {freed.block.dtype for _, _, _, freed in freed_parameters(module)} - {""}
    if formats:
        warnings.warn(f"swiglu: {what} weights are what {' and '.join(sorted(formats))} holds of them", stacklevel=3)


def bring_back(module: nn.Module) -> None:
    """Parameters with the values they had, where the meta tensors are."""
    with torch.inference_mode(False):
        for _, own, key, freed in freed_parameters(module):
            own[key] = nn.Parameter(freed.block.value(freed.part), requires_grad=freed.requires_grad)
