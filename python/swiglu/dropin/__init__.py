# SPDX-License-Identifier: Apache-2.0
"""The drop-in: feed-forward blocks of a model that exists already, evaluated by libswiglu.

    report = swiglu.patch(model)          # print(report): what was replaced, what was not and why
    swiglu.restore(model)
    with swiglu.patched(model): ...
    print(swiglu.compare(model, inputs))  # error and time of each block, eager against patched
"""

from __future__ import annotations

import contextlib
import inspect
import re
from collections.abc import Iterator
from typing import Any

from torch import nn

from ..torch import repack
from ..torch._module import POLICIES
from .classes import Patched, State, subclass_of
from .measure import Comparison, compare
from .recipe import Recipe, prove, tensors, weight_of
from .report import Entry, Report
from .trace import NotProven

__all__ = ["Comparison", "Entry", "Report", "compare", "patch", "patched", "restore"]

_LOOKS_LIKE_ONE = re.compile(r"mlp|ffn|feed_?forward|expert|moe", re.IGNORECASE)
_QUANTISED = re.compile(r"(q\d|iq\d|int\d|mxfp4|nf4|fp8)", re.IGNORECASE)


def patch(
    model: nn.Module, weights: str = "keep", free: bool = False, *, policy: str = "recompute", dry_run: bool = False
) -> Report:
    """Replaces each feed-forward block of model whose formula can be proven from its class, children and tensors.

    A replaced module keeps its children, parameters and state_dict; its class becomes a subclass of its own class. Each
    call first checks that the children are plain nn.Linear or Conv1D without hooks, adapters or parametrisations, and runs
    the original forward where they are not (report.fallbacks counts). Inference (eval mode, no gradients) computes from
    packed copies of the weights, training straight from the weights.

    weights   "keep": as they are
    free      also give back the memory of the original weights, for inference only (see below)
    policy    what training keeps for backward besides x: "recompute" nothing, "keep" gate and up
    dry_run   change nothing, only report

    With free the parameters become meta tensors; state_dict() and save_pretrained() unpack them, bit for bit, restore()
    brings them back. Training, .to(), optimisers and anything else that needs their values raise FreedWeightError.

    Raises TypeError (no module) and ValueError (an unknown or quantised weights, an unknown policy). Patching twice is fine.
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"model must be a torch.nn.Module, not {type(model).__name__}")
    if policy not in POLICIES:
        raise ValueError(f"policy {policy!r} is not one of {', '.join(POLICIES)}")
    if weights != "keep":
        quantised = isinstance(weights, str) and _QUANTISED.match(weights)
        why = "quantised weights cannot be made from a model yet" if quantised else "unknown"
        raise ValueError(f"weights {weights!r}: {why}; only 'keep' is possible")
    entries: list[Entry] = []
    _walk(model, "", policy, dry_run, entries, set())
    return Report(entries, dry_run)


def _walk(module: nn.Module, name: str, policy: str, dry_run: bool, entries: list[Entry], seen: set[int]) -> None:
    """Depth first; what is below a block belongs to it."""
    if id(module) in seen:
        return
    seen.add(id(module))
    cls = type(module)
    if isinstance(module, Patched):
        module._swiglu.policy = policy
        entries.append(_entry(name, module, module._swiglu.recipe, module._swiglu))
        return
    if cls.__module__.startswith("swiglu."):
        return  # these modules compute with the library anyway
    reason = "its own forward was not found to be that of a block"
    if len(module._modules) >= 2:
        try:
            recipe = prove(module)
        except NotProven as error:
            reason = str(error)
        else:
            state = State(recipe, _parameter(cls), policy)
            if not dry_run:
                module._swiglu = state  # type: ignore[assignment]
                module.__class__ = subclass_of(cls)
            entries.append(_entry(name, module, recipe, state))
            return
    before = len(entries)
    for key, child in module._modules.items():
        if child is not None:
            _walk(child, f"{name}.{key}" if name else key, policy, dry_run, entries, seen)
    if len(entries) == before and _looks_like_one(name, module):
        entries.append(Entry(name, cls.__name__, reason))


def _looks_like_one(name: str, module: nn.Module) -> bool:
    """Whether a user would expect to hear of it: something with matrices, under a name for such blocks."""
    named = any(_LOOKS_LIKE_ONE.search(text) for text in (type(module).__name__, name.rpartition(".")[2]))
    return named and not isinstance(module, (nn.Linear, nn.Embedding)) and any(p.dim() > 1 for p in module.parameters())


def _parameter(cls: type[nn.Module]) -> str:
    names = list(inspect.signature(cls.forward).parameters)
    return names[1] if len(names) > 1 else ""


def _entry(name: str, module: nn.Module, recipe: Recipe, state: State) -> Entry:
    first, down = weight_of(module, recipe.gate or recipe.up), weight_of(module, recipe.down)
    assert first is not None and down is not None
    d_in, d_out, d_ff = first.shape[1], down.shape[0], down.shape[1]
    matrices = 1 if recipe.layout == "ungated" else 2
    # Panels hold 32 or 64 outputs, or 16 or 32 pairs of gate and up; this is what the larger ones take.
    packed = down.element_size() * (matrices * _up_to(d_ff, 64 // matrices) * d_in + _up_to(d_out, 64) * d_ff)
    return Entry(
        name=name,
        cls=type(module).__name__,
        layout=recipe.layout,
        activation=recipe.activation,
        dtype=str(down.dtype).removeprefix("torch."),
        d_in=d_in,
        d_ff=d_ff,
        d_out=d_out,
        weight_bytes=sum(t.numel() * t.element_size() for t in tensors(module, recipe)),
        packed_bytes=packed,
        state=state,
    )


def _up_to(n: int, multiple: int) -> int:
    return -(-n // multiple) * multiple


def restore(model: nn.Module) -> int:
    """Gives every replaced module of model its own class back; returns how many there were."""
    n = 0
    for module in list(model.modules()):
        if isinstance(module, Patched):
            repack(module)
            original = type(module)._swiglu_original
            del module._swiglu
            module.__class__ = original
            n += 1
    return n


@contextlib.contextmanager
def patched(model: nn.Module, **options: Any) -> Iterator[Report]:
    """with swiglu.patched(model) as report: patches (the options of patch) and restores, also after an exception. Blocks
    that were patched before stay patched."""
    before = {id(module) for module in model.modules() if isinstance(module, Patched)}
    try:
        yield patch(model, **options)
    finally:
        for module in list(model.modules()):
            if isinstance(module, Patched) and id(module) not in before:
                restore(module)
