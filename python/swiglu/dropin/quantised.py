# SPDX-License-Identifier: Apache-2.0
"""Blocks whose weights are of a block format: made from the module's own, or those of a GGUF file."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, Optional

import numpy as np
import numpy.typing as npt
import torch
from torch import nn
from torch.autograd.function import once_differentiable

from .._c import abi
from .._c.activation import Activation
from .._c.desc import make_options
from .._c.handle import Handle
from .._c.library import DTYPES
from ..arrays.block import describe
from ..arrays.convert import block_size, encode
from ..arrays.model import load
from ..torch.kernels import backward
from ..torch.recipe import Recipe, parts_of
from .freed import FreedBlock, fail, freed_parameters

ROWS_COMPARED = 16  # of each matrix of a file
# Relative distance of the rows of a file from those of the model that it was made from: 0.27 in q2_k, the coarsest format,
# on normal values; of another model about sqrt(2).
MOST_APART = 0.6
DX = 1  # which gradient is wanted of backward
_HALVES = {"gate_up": ("gate", "up"), "up_gate": ("up", "gate")}

Found = Sequence[tuple[str, nn.Module, Recipe]]  # name, module and recipe of each block that would be quantised


class QuantisedBlock(FreedBlock):
    """A freed block whose copy is not what the module's weights were: value() gives what the format holds of them."""

    def __init__(self, module: nn.Module, recipe: Recipe, dtype: str, handle: Callable[[Any], Handle]) -> None:
        self.dtype, self._make_handle = dtype, handle
        super().__init__(module, recipe)
        del self._make_handle

    def _pack(self, parts: Any) -> Handle:
        return self._make_handle(parts)

    def _find_lost(self, children: Any) -> dict[str, Any]:
        return {}

    def may_train(self, module: nn.Module) -> bool:
        return not any(freed.requires_grad for _, _, _, freed in freed_parameters(module))

    def _with_gradients(self, x: torch.Tensor, trained: bool) -> torch.Tensor:
        if trained:
            fail("weights of a block format cannot be trained (requires_grad_(False) freezes them)")
        return _Frozen.apply(x, self)  # type: ignore[no-any-return, no-untyped-call]

    def dx(self, dy: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        """In f32 compute, from the weights as the format holds them; they are there for the length of the call."""
        recipe = self.recipe
        weights: list[Optional[torch.Tensor]] = []
        for name in (recipe.gate, recipe.up, recipe.down):
            w = None if name is None else self._unpack(name, torch.float32)
            weights.append(w.t() if w is not None and self._is_conv1d[name] else w)  # type: ignore[index]
        biases = [self._biases.get(name or "") for name in (recipe.gate, recipe.up, recipe.down)]
        parts: Any = (*weights, *(None if b is None else b.float() for b in biases))
        return backward(dy, None, x, parts, recipe.activation, recipe.layout, "f32", DX, 0)[0]


class _Frozen(torch.autograd.Function):
    """y, and dx where adapters stand before a block whose weights stay as they are."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, block: QuantisedBlock) -> torch.Tensor:
        ctx.block = block
        ctx.save_for_backward(x)
        return block.run(x)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: torch.Tensor) -> tuple[torch.Tensor, None]:
        return ctx.block.dx(dy, *ctx.saved_tensors), None


class Encoding:
    """Encodes the weights of each module."""

    def __init__(self, dtype: str, blocks: Found) -> None:
        """Raises ValueError where a block cannot be encoded, before anything is changed."""
        self.dtype = dtype
        elems, _ = block_size(DTYPES[dtype])
        for name, module, recipe in blocks:
            for child in recipe.linears:
                weight: Any = _weight(module, child)
                if weight.shape[1] % elems:
                    raise ValueError(
                        f"weights {dtype!r}: {name}.{child} has rows of {weight.shape[1]} values; {dtype} needs a multiple of"
                        f" {elems}"
                    )
                if not bool(torch.isfinite(weight).all()):
                    raise ValueError(f"weights {dtype!r}: {name}.{child} holds NaN or infinities, which {dtype} cannot")

    def outlook(self, module: nn.Module, recipe: Recipe) -> tuple[str, int]:
        """(format, bytes of the weights in it)"""
        elems, size = block_size(DTYPES[self.dtype])
        return self.dtype, sum(_weight(module, name).numel() // elems * size for name in recipe.linears)

    def __call__(self, module: nn.Module, recipe: Recipe) -> FreedBlock:
        return QuantisedBlock(module, recipe, self.dtype, lambda parts: self._handle(parts, recipe))

    def _handle(self, parts: Any, recipe: Recipe) -> Handle:
        gate, up, down = (None if w is None else encode(_values(w), self.dtype) for w in parts[:3])
        gate_bias, up_bias, down_bias = (None if b is None else _values(b) for b in parts[3:])
        assert down is not None
        biases = (gate_bias, up_bias, down_bias)
        desc, keep = describe(gate, up, down, recipe.activation, recipe.layout, biases, self.dtype)
        handle = Handle(desc, make_options("int8"))
        del keep
        return handle


class FileWeights:
    """Takes the weights of each module from a GGUF file, as they are."""

    def __init__(self, path: Any, blocks: Found) -> None:
        """Raises ValueError where the file is not of this model, before anything is changed."""
        self.model = load(path)
        if self.model.info.format != "gguf":
            raise ValueError(f"gguf={str(path)!r}: a file of format {self.model.info.format}")
        usable = {layer.layer: i for i, layer in enumerate(self.model.layers) if layer.usable and layer.expert == -1}
        numbers = _numbers([name for name, _, _ in blocks])
        if sorted(numbers) != sorted(usable):
            raise ValueError(
                f"gguf={str(path)!r}: the file has blocks of the layers {_span(usable)}, the model has {_span(numbers)}"
            )
        self._index = {id(module): usable[n] for n, (_, module, _) in zip(numbers, blocks)}
        for name, module, recipe in blocks:
            reason = self._difference(self._index[id(module)], module, recipe)
            if reason is not None:
                raise ValueError(f"gguf={str(path)!r}: {name}: {reason}")

    def outlook(self, module: nn.Module, recipe: Recipe) -> tuple[str, int]:
        """(formats, bytes of the weights in the file)"""
        layer = self.model.layers[self._index[id(module)]]
        dtypes = dict.fromkeys(self.model.tensors[t].dtype.lower() for t in (layer.gate, layer.up, layer.down) if t >= 0)
        return ", ".join(dtypes), layer.weight_bytes

    def __call__(self, module: nn.Module, recipe: Recipe) -> FreedBlock:
        desc, formats = self.model._desc(self._index[id(module)]), self.outlook(module, recipe)[0]
        in_blocks = all(block_size(DTYPES[dtype])[0] > 1 for dtype in formats.split(", "))
        options = make_options("int8" if in_blocks else "auto")  # of f16 and its like int8 is refused
        return QuantisedBlock(module, recipe, formats, lambda _: Handle(desc, options))

    def _difference(self, i: int, module: nn.Module, recipe: Recipe) -> Optional[str]:
        """In what this layer is not the module."""
        ours: Any = _logical(parts_of(module, recipe), recipe.layout)
        layer, theirs = self.model.layers[i], self._logical(i)
        sizes = {name: tuple(w.shape) for name, w in ours.items()}
        if sizes != {name: shape for name, (_, _, shape) in theirs.items()}:
            return f"widths {_sizes(ours)}, in the file {layer.d_in} -> {layer.d_ff} -> {layer.d_out}, {layer.layout}"
        if Activation.named(layer.activation) != recipe.function:
            return f"activation {recipe.activation}, in the file {layer.activation}"
        in_file = (layer.gate_bias >= 0, layer.up_bias >= 0, layer.down_bias >= 0)
        if any(in_file) != any(b is not None for b in parts_of(module, recipe)[3:]):
            return f"{'no ' if any(in_file) else ''}biases, in the file {'some' if any(in_file) else 'none'}"
        for name, (tensor, first, (n_rows, _)) in theirs.items():
            rows = np.unique(np.linspace(0, n_rows - 1, ROWS_COMPARED).astype(int))
            stored = np.stack([self.model._row(tensor, first + int(r)) for r in rows])
            own = _values(ours[name][torch.from_numpy(rows)])
            apart, size = np.linalg.norm(stored - own), np.linalg.norm(own)
            if not apart <= MOST_APART * size:
                return f"rows of {name} differ from those of the file by {apart / max(size, 1e-30):.2g} of their size"
        return None

    def _logical(self, i: int) -> dict[str, tuple[int, int, tuple[int, int]]]:
        """name -> (tensor, its first row there, (rows, columns))"""
        layer = self.model.layers[i]
        first = (layer.d_ff, layer.d_in)
        found = {"down": (layer.down, 0, (layer.d_out, layer.d_ff))}
        layout = next(name for name, n in abi.LAYOUTS.items() if n == self.model._desc(i).layout)  # layer's is for people
        if layout in _HALVES:
            halves = _HALVES[layout]
            found.update({name: (layer.gate, k * layer.d_ff, first) for k, name in enumerate(halves)})
        else:
            found.update({n: (t, 0, first) for n, t in (("gate", layer.gate), ("up", layer.up)) if t >= 0})
        return found


def _weight(module: nn.Module, name: str) -> torch.Tensor:
    """[outputs, inputs]"""
    recipe = Recipe("ungated", None, name, name, "identity")
    return parts_of(module, recipe)[2]


def _values(tensor: torch.Tensor) -> npt.NDArray[np.float32]:
    values: npt.NDArray[np.float32] = tensor.detach().to(torch.float32).contiguous().numpy()
    return values


def _logical(parts: Any, layout: str) -> dict[str, torch.Tensor]:
    """name -> matrix [outputs, inputs], of whatever layout."""
    gate, up, down = parts[:3]
    if layout in _HALVES:
        halves = dict(zip(_HALVES[layout], gate.chunk(2)))
    elif layout == "interleaved":
        halves = {"gate": gate[::2], "up": gate[1::2]}
    else:
        halves = {name: w for name, w in (("gate", gate), ("up", up)) if w is not None}
    return {**halves, "down": down}


def _numbers(names: Sequence[str]) -> list[int]:
    """The layer of each block: the number in its name, or its place where names have none."""
    found = [re.findall(r"(?:^|\.)(\d+)(?=\.|$)", name) for name in names]
    first = [int(numbers[0]) if numbers else -1 for numbers in found]
    return first if len(set(first)) == len(first) and -1 not in first else list(range(len(names)))


def _span(numbers: Any) -> str:
    ordered = sorted(numbers)
    return "none" if not ordered else f"{ordered[0]} to {ordered[-1]} ({len(ordered)})"


def _sizes(parts: dict[str, torch.Tensor]) -> str:
    d_out, d_ff = parts["down"].shape
    return f"{parts.get('gate', parts.get('up')).shape[1]} -> {d_ff} -> {d_out}"  # type: ignore[union-attr]
