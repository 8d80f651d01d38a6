# SPDX-License-Identifier: Apache-2.0
"""Walks a model, replaces what is proven, and puts it back."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import inspect
import os
import re
import types
from collections.abc import Iterator
from typing import Any, Optional, Union

import torch
from torch import nn

from .._c.library import DTYPES
from ..arrays.convert import block_size
from ..torch import repack
from ..torch.block import FusedBlock
from ..torch.function import check_module, find_policy
from ..torch.adapters import is_adapter
from ..torch.packed import memory_of
from ..torch.recipe import Recipe, base_at, child_at, is_adapted, is_linear, name_of, obstacle, tensors
from . import freed
from . import quantised as quantising
from .guard import guard, unguard
from .classes import WITH_FREED, Patched, State, subclass_of
from .inside import First, Relay, Second, prove_inside, replace_inside, state_inside
from .proof import Proof, check_tensors, prove, shape_of
from .report import Entry, Report
from .standin import original
from .trace import NotProven

_LOOKS_LIKE_ONE = re.compile(r"mlp|ffn|feed_?forward|expert|moe", re.IGNORECASE)
_IS_ANOTHER = re.compile(r"att(n|ention)|router|gate$|gating|norm|embed", re.IGNORECASE)  # whatever else the class is called
_EXPERTS = re.compile(r"expert|moe", re.IGNORECASE)


def patch(
    model: nn.Module,
    weights: str = "keep",
    free: bool = False,
    *,
    gguf: Optional[Union[str, os.PathLike[str]]] = None,
    policy: Optional[str] = None,
    dry_run: bool = False,
) -> Report:
    """Replaces each feed-forward block of model whose formula can be proven from its class, children and tensors.

    A replaced module keeps its children, parameters and state_dict; its class becomes a subclass of its own class. Each
    call first checks that the children are plain nn.Linear or Conv1D without hooks or parametrisations, and runs
    the original forward where they are not (report.fallbacks counts). Inference (eval mode, no gradients) computes from
    packed copies of the weights, training straight from the weights.

    weights   "keep": as they are; or a block format such as "q8_0" or "q4_0", to which they are encoded
    free      also give back the memory of the original weights, for inference only
    gguf      a GGUF file of this model, whose weights are used as they are
    policy    what training keeps for backward besides x: "recompute" nothing, "keep" gate and up. None: "recompute", and
              blocks that were patched before stay as they are
    dry_run   change nothing, only report

    With free the packed copies are made at once and the weights become meta tensors; state_dict() and save_pretrained()
    unpack them, bit for bit, and restore() brings them back. Training, .to(), optimisers, pickling and whatever else needs
    their values raise FreedWeightError. A weight that another module uses too is not freed; the report says so.

    A block format and gguf imply free: one copy of the weights is left, that of the format. state_dict() and restore() give
    its values, not those of before, and warn.

    Raises TypeError (not a module) and ValueError (weights that are unknown or that the format cannot hold, a file of another
    model, an unknown policy, free while a module is in training mode), all before anything is changed, and OSError (the
    file). Patching twice is fine.
    """
    check_module("model", model)
    if policy is not None:
        find_policy(policy)
    if weights != "keep" and weights not in _block_formats():
        raise ValueError(f"weights {weights!r}: unknown; 'keep' and {', '.join(_block_formats())} are possible")
    if weights != "keep" and gguf is not None:
        raise ValueError(f"weights {weights!r} and gguf: the file has weights of its own")
    quantised = weights != "keep" or gguf is not None
    free = free or quantised
    if free and not dry_run and any(module.training for module in model.modules()):
        why = "free=True is" if not quantised else "quantised weights are"
        raise ValueError(f"{why} for inference, but modules are in training mode: call model.eval() first")
    make: Any = freed.FreedBlock
    if quantised:
        found = _to_quantise(model)
        make = quantising.Encoding(weights, found) if gguf is None else quantising.FileWeights(gguf, found)
    walk = _Walk(policy, free, dry_run, make)
    if free:
        below = (child for module in model.modules() for child in module._modules.values() if child is not None)
        for module in (model, *below):  # once for each place where it stands
            walk.uses.update(id(p) for p in module._parameters.values() if p is not None)
    walk.visit(model, "")
    if free and not dry_run:
        guard(model)
    return Report(walk.entries, dry_run, "" if walk.entries else _nothing(model))


@dataclasses.dataclass
class _Walk:
    policy: Optional[str]
    free: bool
    dry_run: bool
    make: Any = freed.FreedBlock  # makes one of a module and its recipe
    entries: list[Entry] = dataclasses.field(default_factory=list)
    uses: collections.Counter[int] = dataclasses.field(default_factory=collections.Counter)  # of each parameter
    _seen: set[int] = dataclasses.field(default_factory=set)
    _taken: set[int] = dataclasses.field(default_factory=set)  # last linears of blocks

    def visit(self, module: nn.Module, name: str) -> None:
        """Depth first; what is below a block belongs to it."""
        if id(module) in self._seen:
            return
        self._seen.add(id(module))
        cls = type(module)
        if isinstance(module, Patched):
            return self._replace(module, name, module._swiglu.proof)
        if isinstance(module, torch.jit.ScriptModule):
            return None  # compiled: it has no class to replace
        if isinstance(module, FusedBlock):
            self.entries.append(Entry(name, cls.__name__, "it computes with swiglu already; its policy is an attribute"))
            return None
        reason = None
        generated = isinstance(module, torch.fx.GraphModule)  # it writes the forward of its class anew
        if not generated and (_is_flat(module) or _looks_like_one(name, module) or _has_few_products(module)):
            try:
                return self._replace(module, name, prove(module))
            except NotProven as error:
                reason = str(error)
        before, named = len(self.entries), False
        for key, child in module._modules.items():
            if child is not None:
                self.visit(child, f"{name}.{key}" if name else key)
        if not generated and _may_hold_one(module):
            inside = self._visit_inside(module, name)
            reason = reason or inside
            named = inside is not None and inside.startswith("it computes")
        if len(self.entries) == before and (named or _looks_like_one(name, module) or _holds_activation(module)):
            if _holds_experts(module, name):
                reason = "it is a mixture of experts, which swiglu does not route"
            self.entries.append(Entry(name, cls.__name__, reason or "its own forward was not found to be that of a block"))

    def _visit_inside(self, module: nn.Module, name: str) -> Optional[str]:
        """Replaces blocks whose products are children of this larger module; why there is none."""
        try:
            proofs = prove_inside(module)
        except NotProven as error:
            return str(error)
        for proof in proofs:
            recipe, state = proof.recipe, state_inside(module, proof, self.policy)
            if id(child_at(module, recipe.down)) in self._taken:
                continue
            self._taken.add(id(child_at(module, recipe.down)))
            kept = "it stands inside of a larger forward, which needs the weights" if self.free else None
            where = f"{name}.{recipe.up}+{recipe.down}" if name else f"{recipe.up}+{recipe.down}"
            self.entries.append(_entry(where, module, recipe, state, kept, False))
            if not self.dry_run:
                replace_inside(module, proof, state)
        return None

    def _replace(self, module: nn.Module, name: str, proof: Proof) -> None:
        cls: type[nn.Module] = type(module)
        recipe = proof.recipe
        if isinstance(module, Patched):
            state = module._swiglu
        else:
            state, cls = State(recipe, _parameter(cls), self.policy or "recompute", proof), _derived(cls)
        kept = self._why_not_freed(module, state)
        entry = _entry(name, module, recipe, state, kept, self.free and not kept)
        if not self.dry_run:
            state.policy = self.policy or state.policy
            if not isinstance(module, Patched):
                module._swiglu = state  # type: ignore[assignment]
                _change_class(module, cls)
            if self.free and not kept and state.freed is None:
                state.freed = freed.free(module, recipe, self.make)
                entry.packed_bytes, entry.dtype = state.freed.packed_bytes, state.freed.dtype or entry.dtype
        elif isinstance(self.make, (quantising.Encoding, quantising.FileWeights)):
            entry.dtype, entry.packed_bytes = self.make.outlook(module, recipe)
        self._taken.add(id(child_at(module, recipe.down)))
        self.entries.append(entry)

    def _why_not_freed(self, module: nn.Module, state: State) -> Optional[str]:
        if not self.free or state.freed is not None:
            return None
        if is_adapted(module, state.recipe):
            return "adapters are attached to it"
        try:
            check_tensors(module, state.recipe)  # it may have changed since it was patched
        except NotProven as error:
            return str(error)
        if not all(memory_of(t) for t in tensors(module, state.recipe) if t.numel()):
            return "its weights have no memory that could be packed"
        shared = any(self.uses[id(t)] > 1 for t in tensors(module, state.recipe))
        return "its weights are used by another module too" if shared else None


def _block_formats() -> list[str]:
    return [name for name, number in DTYPES.items() if block_size(number)[0] > 1]


def _to_quantise(model: nn.Module) -> list[tuple[str, nn.Module, Recipe]]:
    """The blocks that would be replaced, with weights that can go."""
    report = patch(model, free=True, dry_run=True)
    modules, found = dict(model.named_modules()), []
    for entry in report.replaced:
        state, module = entry.state, modules[entry.name]
        assert state is not None
        if state.freed is not None:
            raise ValueError(f"{entry.name}: its weights were given back before; swiglu.restore(model) first")
        if entry.kept is not None:
            raise ValueError(f"{entry.name}: {entry.kept}")
        found.append((entry.name, module, state.recipe))
    if not found:
        raise ValueError("the model has no feed-forward block that can be replaced")
    return found


def _derived(cls: type[nn.Module]) -> type[nn.Module]:
    try:
        return subclass_of(cls)
    except Exception as error:  # whatever its __init_subclass__ or metaclass does
        raise NotProven(f"no class can be derived from {cls.__name__}: {error}") from error


def _has_few_products(module: nn.Module) -> bool:
    """Whether two or three matrices are all that is below it."""
    products = 0
    for below in module.modules():
        products += isinstance(below, nn.Linear) or is_linear(original(below))
        if products > 3:
            return False
    return products >= 2


def _may_hold_one(module: nn.Module) -> bool:
    """Whether two matrices near the top of it lead to a hidden width and back."""
    shapes = [
        m.weight.shape
        for path, m in module.named_modules()
        if path.count(".") <= 1 and is_linear(original(m)) and isinstance(m.weight, torch.Tensor) and m.weight.dim() == 2
    ]
    return any(a[0] != a[1] and tuple(a) == tuple(b)[::-1] for a in shapes for b in shapes)


def _holds_activation(module: nn.Module) -> bool:
    """Whether such a module would be missed in the report: it has an activation of its own."""
    functions = any(callable(value) for value in module.__dict__.values())
    return _may_hold_one(module) and (
        functions or any(name_of(m) is not None for path, m in module.named_modules() if path and path.count(".") <= 1)
    )


def _is_flat(module: nn.Module) -> bool:
    children = (child for child in module._modules.values() if child is not None)
    return len(module._modules) >= 2 and not any(child._modules and not is_adapter(type(child)) for child in children)


def _holds_experts(module: nn.Module, name: str) -> bool:
    """Whether it has the matrices of several blocks, stacked or one by one, and is called so."""
    several = any(p.dim() == 3 for p in module.parameters(recurse=False)) or len(list(module.children())) > 1
    return several and any(map(_EXPERTS.search, (type(module).__name__, name.rpartition(".")[2])))


def _nothing(model: nn.Module) -> str:
    """Why there is not one entry."""
    linears = sum(is_linear(original(module)) for module in model.modules())
    others = collections.Counter(
        f"{type(module).__name__} of {type(module).__module__}"
        for module in model.modules()
        if "linear" in type(module).__name__.lower() and not is_linear(original(module))
    )
    if linears > 1:
        return f"none of its modules uses two of its {linears} linear layers as a feed-forward block does"
    instead = ", ".join(f"{count} {cls}" for cls, count in others.items())
    return f"it has {linears or 'no'} nn.Linear or Conv1D{', but ' if instead else ''}{instead}"


def _looks_like_one(name: str, module: nn.Module) -> bool:
    """Whether a user would expect to hear of it: something with matrices, under a name for such blocks."""
    names = type(module).__name__, name.rpartition(".")[2]
    named = any(map(_LOOKS_LIKE_ONE.search, names)) and not any(map(_IS_ANOTHER.search, names))
    return named and not isinstance(module, (nn.Linear, nn.Embedding)) and any(p.dim() > 1 for p in module.parameters())


def _change_class(module: Any, cls: type[nn.Module]) -> None:
    """Also where the instance holds its class's forward as a bound method, as accelerate's hooks do."""
    forward = type(module).forward
    module.__class__ = cls
    for key, value in list(module.__dict__.items()):
        if getattr(value, "__func__", None) is forward:
            module.__dict__[key] = types.MethodType(cls.forward, module)


def _parameter(cls: type[nn.Module]) -> str:
    names = list(inspect.signature(cls.forward).parameters)
    return names[1] if len(names) > 1 else ""


def _entry(name: str, module: nn.Module, recipe: Recipe, state: State, kept: Optional[str], free: bool) -> Entry:
    if isinstance(module, Patched) and obstacle(module, recipe, WITH_FREED):  # adapted since: no plain weights to size
        return Entry(name, type(module).__name__, layout=recipe.layout, activation=recipe.activation, kept=kept, state=state)
    first, (d_out, d_ff) = shape_of(module, recipe.gate or recipe.up), shape_of(module, recipe.down)
    weight: Any = base_at(module, recipe.down).weight
    matrices = 1 if recipe.layout == "ungated" else 2
    # Panels hold 32 or 64 outputs, or 16 or 32 pairs of gate and up; this is what the larger ones take.
    packed = weight.element_size() * (matrices * _up_to(d_ff, 64 // matrices) * first[1] + _up_to(d_out, 64) * d_ff)
    return Entry(
        name=name,
        cls=type(module).__name__,
        layout=recipe.layout,
        activation=recipe.activation,
        dtype=(state.freed.dtype if state.freed else "") or str(weight.dtype).removeprefix("torch."),
        d_in=first[1],
        d_ff=d_ff,
        d_out=d_out,
        weight_bytes=sum(t.numel() * t.element_size() for t in tensors(module, recipe)),
        packed_bytes=packed if state.freed is None else state.freed.packed_bytes,
        freed=free or state.freed is not None,
        kept=kept,
        state=state,
    )


def _up_to(n: int, multiple: int) -> int:
    return -(-n // multiple) * multiple


def restore(model: nn.Module) -> int:
    """Gives every replaced module of model its own class back, and freed weights their values; returns how many there were.
    Restored weights are new parameters: an optimiser made before does not know them. What was quantised comes back as the
    block format holds it, with a warning. Raises TypeError (not a module)."""
    check_module("model", model)
    n = 0
    freed.warn_of_formats("restored", model)
    unguard(model)
    for module in list(model.modules()):
        if isinstance(module, Patched):
            freed.bring_back(module)
            repack(module)
            _change_class(module, type(module)._swiglu_original)
            del module._swiglu
            n += 1
        elif isinstance(module, Relay):
            n += isinstance(module, Second)
            repack(module)
            module.__class__ = type(module)._swiglu_original  # type: ignore[assignment]
            module.__dict__.pop("_swiglu", None)
    return n


@contextlib.contextmanager
def patched(model: nn.Module, **options: Any) -> Iterator[Report]:
    """with swiglu.patched(model) as report: patches (the options of patch) and restores, also after an exception. Blocks
    that were patched before are as they were then. Block formats and gguf are refused: the weights of before would not come
    back."""
    check_module("model", model)
    if options.get("weights", "keep") != "keep" or options.get("gguf") is not None:
        raise ValueError("patched() brings the weights back, which a block format cannot: use patch()")
    before = {
        m: (m._swiglu.policy, m._swiglu.freed) if isinstance(m, (Patched, First, Second)) else None
        for m in model.modules()
        if isinstance(m, (Patched, Relay))
    }
    try:
        yield patch(model, **options)
    finally:
        for module in list(model.modules()):
            if isinstance(module, (Patched, Relay)) and module not in before:
                restore(module)
        for module, was in before.items():
            if was is not None and isinstance(module, (Patched, First, Second)):
                module._swiglu.policy, was_freed = was[0], was[1]
                if was_freed is None and isinstance(module, Patched):
                    freed.bring_back(module)
                    module._swiglu.freed = None
