# SPDX-License-Identifier: Apache-2.0
"""Packed copies of weights for inference, and how a stale one is noticed.

A copy belongs to the memory of its weights, not to a module: it serves eager and compiled calls alike, deepcopy and pickle
never meet it, and it goes when the storage of one of its weights goes. Before each use these are compared: address, shape,
strides, dtype and version counter of every weight and bias, and the bytes of sampled cache lines, because some writers
(fused optimisers, .data, NumPy) leave the version counter as it was. A write behind the counter that misses every sampled
line escapes; repack() is for that. Weights whose storage is emptied and filled again between calls (fully_shard does that)
are not packed but read as they are, and so are inference tensors, which have no version counter.
"""

from __future__ import annotations

import ctypes
import sys
import weakref
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any, NamedTuple, Optional

import torch
from torch import Tensor

from .._c.handle import Handle
from .plan import DTYPES, NAMES, Parts, Plan, address, check_shapes
from .team import team

LINE_BYTES = 64
Config = tuple[str, str, str, Hashable]  # activation, layout, compute, and of what is beside the weights
LINES = 16  # sampled per weight, 2 of them at its ends
LINES_BESIDE = 4  # of what is beside the weights, which is small and written whole


def _state(parts: Sequence[Optional[Tensor]]) -> list[Any]:
    state: list[Any] = []
    for part in parts:
        if part is None:
            state.append(None)
        else:
            state += (part.data_ptr(), part.shape, part.stride(), part.dtype, part._version)
    return state


def _sample_lines(part: Tensor, n: int = LINES) -> list[Any]:
    """Views of cache lines spread evenly over the memory of a part, of all of it where it is small."""
    span = part.element_size() * (1 + sum((n - 1) * s for n, s in zip(part.shape, part.stride()))) if part.numel() else 0
    if span <= n * LINE_BYTES:
        return [(ctypes.c_char * span).from_address(part.data_ptr())] if span else []
    step = (span - LINE_BYTES) // (n - 1)
    return [(ctypes.c_char * LINE_BYTES).from_address(part.data_ptr() + i * step) for i in range(n)]


def memory_of(tensor: Tensor) -> int:
    """Address of the storage; 0 where there is none to be had: wrapper subclasses (DTensor, torchao), fake, functional,
    batched and sparse tensors, other devices."""
    with torch._C.DisableTorchFunctionSubclass():
        try:
            return tensor.untyped_storage().data_ptr() if tensor.is_cpu else 0
        except RuntimeError:
            return 0


class Beside(NamedTuple):
    """What a copy is made of besides the parts: more tensors, how they are used, and the parts with them."""

    tensors: Sequence[Optional[Tensor]]
    config: Hashable
    join: Callable[[], tuple[Parts, Any]]  # the parts to pack, and what else belongs to the copy


class PackedBlock:
    """A packed copy with all that tells whether it is still true."""

    def __init__(self, x: Tensor, parts: Parts, config: Config, beside: Optional[Beside]) -> None:
        down, token = address("down", parts[2]), object()
        made_of = (*parts, *beside.tensors) if beside else parts
        self.config, self.d_in = config, x.shape[-1] if x.dim() else 0
        self.joined: Any = None
        if beside:
            parts, self.joined = beside.join()
            x = x.new_empty(0, next(part.shape[1] for part in parts[:2] if part is not None))
        plan = Plan(x, parts, *config[:3])
        held = plan.point(parts)
        self._state = _state(made_of)
        present = [part for part in made_of if part is not None]
        counts = [LINES] * len(NAMES) + [LINES_BESIDE] * (len(made_of) - len(NAMES))
        self._lines = [line for part, n in zip(made_of, counts) if part is not None for line in _sample_lines(part, n)]
        self._samples = [line.raw for line in self._lines]
        plan.options.runner = team().address  # packs
        self.handle = Handle(plan.desc, plan.options)
        del held, parts
        self.d_out = plan.d_out
        self.storages = frozenset(memory_of(part) for part in present)
        self.places = tuple(part.data_ptr() for part in present)
        self.token = token  # in place of the block itself, which would hold itself
        self._watches = [
            (weakref.ref(part.untyped_storage(), lambda _: _discard(down, token)), memory_of(part)) for part in present
        ]

    def is_current(self, state: list[Any], config: Config) -> bool:
        return self._state == state and self.config == config and self._samples == [line.raw for line in self._lines]

    def moved(self) -> list[Any]:
        """Storages of its weights that live and are no longer where they were."""
        storages = [(watch(), there) for watch, there in self._watches]
        return [storage for storage, there in storages if storage is not None and storage.data_ptr() != there]


# By the address of the down weight, which tells what an optimiser may change next. There are several where blocks share a
# down weight, or one runs with and without autocast in turns.
_blocks: dict[int, list[PackedBlock]] = {}
_MOST_OF_ONE = 8  # copies with one down weight
_packed_at: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()  # storage -> its address when it was packed


def _discard(down: int, token: object) -> None:
    left = [block for block in _blocks.get(down, ()) if block.token is not token]
    if left:
        _blocks[down] = left
    else:
        _blocks.pop(down, None)


# Storages that are known to be emptied and filled again. One that does so unseen may come back where it was with its version
# counter as it was, so a copy of it could be stale.
_lent: weakref.WeakSet[Any] = weakref.WeakSet()


def _drop_moved() -> None:
    for down, blocks in list(_blocks.items()):
        for block in blocks:
            moved = block.moved()
            if moved:
                _lent.update(moved)
                _discard(down, block.token)


def _fully_sharded() -> Iterator[Any]:
    """Storages that fully_shard fills before a forward and frees after it."""
    known = sys.modules.get("torch.distributed._composable_state")
    for reference in list(getattr(known, "_module_state_mapping", {}).values()):
        state = reference()
        groups = getattr(state, "_fsdp_param_groups", None) or [getattr(state, "_fsdp_param_group", None)]
        for group in groups:
            for parameter in getattr(group, "fsdp_params", ()):
                for tensor in getattr(parameter, "all_gather_outputs", ()):
                    yield tensor.untyped_storage()


def _is_lent(parts: Parts) -> bool:
    storages = [part.untyped_storage() for name, part in zip(NAMES, parts) if part is not None and address(name, part)]
    for storage in storages:
        if storage in _lent:
            return True
        if _packed_at.get(storage, storage.data_ptr()) != storage.data_ptr():
            _drop_moved()
            return True
    _lent.update(_fully_sharded())
    return any(storage in _lent for storage in storages)


def find(
    x: Tensor, parts: Parts, activation: str, layout: str, compute: str, beside: Optional[Beside] = None
) -> Optional[PackedBlock]:
    """The packed copy of these weights, made where there is none or it is stale; x fits it. One copy at most has something
    beside the weights. None where they are not to be packed."""
    config = (activation, layout, compute, beside.config if beside else None)
    made_of: Sequence[Optional[Tensor]] = (*parts, *beside.tensors) if beside else parts
    try:
        down, state = parts[2].data_ptr(), _state(made_of)
    except (AttributeError, RuntimeError):  # no tensor, one without memory, or one without a version counter
        check_shapes(x, parts, layout)
        if any(part is not None and part.is_inference() for part in made_of):
            return None
        raise
    for block in _blocks.get(down, ()):
        if block.is_current(state, config):
            if x.dim() == 0 or x.shape[-1] != block.d_in or x.dtype not in DTYPES or x.layout is not torch.strided:
                check_shapes(x, parts, layout)
            return block
    if _is_lent(parts):
        return None
    made = PackedBlock(x, parts, config, beside)
    for part in parts:
        if part is not None:
            _packed_at[part.untyped_storage()] = part.untyped_storage().data_ptr()
    others = [b for b in _blocks.get(down, ()) if (b.config, b.places) != (made.config, made.places)]
    if beside:
        others = [b for b in others if b.joined is None]
    _blocks[down] = [*others[1 - _MOST_OF_ONE :], made]
    return made


# Address of a down weight -> state of its block at the last call with gradients, until a backward runs.
_settled: dict[int, list[Any]] = {}
_MOST_SETTLED = 4096


def find_settled(x: Tensor, parts: Parts, activation: str, layout: str, compute: str) -> Optional[PackedBlock]:
    """As find, for eval mode with gradients on: a copy is made at the second call in which the weights are as they were, if
    no backward ran in between. Decoding without no_grad() gains by it, and training in eval mode packs nothing."""
    try:
        down = parts[2].data_ptr()
        if down not in _blocks and _settled.get(down) != _state(parts):
            return None
    except (AttributeError, RuntimeError):
        return None
    return find(x, parts, activation, layout, compute)


def settle(parts: Parts) -> None:
    """The weights were used as they are, with gradients on."""
    if len(_settled) >= _MOST_SETTLED:
        _settled.clear()
    if not any(part is not None and part.is_inference() for part in parts):
        _settled[parts[2].data_ptr()] = _state(parts)


def forget_weight(down: Optional[Tensor]) -> None:
    """Drops the packed copy of the block with this down weight: it is used with gradients, so an optimiser may follow."""
    if down is None:  # an error, which is said later
        return
    if _settled:
        _settled.pop(down.data_ptr(), None)
    if _blocks:
        _blocks.pop(down.data_ptr(), None)
        at = memory_of(down)
        if at and _packed_at.get(down.untyped_storage(), at) != at:
            _drop_moved()


def forget(module: torch.nn.Module) -> None:
    """Drops every packed copy that was made from a parameter or buffer of this module or its children."""
    if not _blocks:
        return
    tensors = [*module.parameters(), *module.buffers()]
    storages = {memory_of(getattr(t, "_local_tensor", t)) for t in tensors} - {0}  # of a DTensor: its shard
    _drop_moved()
    for down, blocks in list(_blocks.items()):
        if any(not storages.isdisjoint(block.storages) for block in blocks):
            _blocks.pop(down, None)


def packed_bytes() -> int:
    """Memory held by all packed copies."""
    return sum(block.handle.info().packed_bytes for blocks in list(_blocks.values()) for block in blocks)
