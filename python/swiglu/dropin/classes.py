# SPDX-License-Identifier: Apache-2.0
"""Subclasses of other people's classes that evaluate the whole block at once.

A replaced module gets one of them as its class, so that isinstance, state_dict and whatever goes by names stay as they
were. Each can be imported from here under a name made from its original's, "package:module::Class"; pickle needs that.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
import importlib
import types
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Optional

import torch
from torch import Tensor, nn

from ..torch import PackedWeights
from ..torch.recipe import TENSORS, Recipe, check_meta, evaluate, finish, obstacle, obstacle_of_input
from .proof import Proof
from .freed import FreedBlock, FreedWeight, fail, freed_parameters, warn_of_formats

WITH_FREED = (*TENSORS, FreedWeight)


@dataclasses.dataclass
class State:
    """What a replaced module carries besides its own attributes."""

    recipe: Recipe
    parameter: str  # the name of x in the original forward
    policy: str
    proof: Proof
    fallbacks: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)  # reason -> calls
    freed: Optional[FreedBlock] = None


class Patched(PackedWeights):
    """Stands before the original class."""

    if TYPE_CHECKING:  # torch.jit.script reads annotations of classes as types of its own
        _swiglu: State
        _swiglu_original: type[nn.Module]

    def _swiglu_forward(self, *args: Any, **kwargs: Any) -> Tensor:
        state = self.__dict__.get("_swiglu")
        if state is None:  # made anew from this class, as slices of nn.Sequential are
            return self._swiglu_original.forward(self, *args, **kwargs)  # type: ignore[no-any-return]
        if len(args) == 1 and not kwargs:
            x = args[0]
        elif not args and len(kwargs) == 1 and state.parameter in kwargs:
            x = kwargs[state.parameter]
        else:
            return self._fall_back("called with other arguments than x", args, kwargs)
        if state.freed is not None:
            return self._forward_freed(x, args, kwargs)  # type: ignore[no-any-return]
        reason = obstacle(self, state.recipe)
        if reason is None:
            reason = obstacle_of_input(x, self, state.recipe)
            if reason is not None:
                check_meta(x, self, state.recipe)
            else:
                reason = state.proof.obstacle(self, x)
        if reason is not None:
            return self._fall_back(reason, args, kwargs)
        return evaluate(self, state.recipe, x, state.policy)

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def _forward_freed(self, x: Any, args: Any, kwargs: Any) -> Tensor:
        recipe, freed = self._swiglu.recipe, self._swiglu.freed
        reason = obstacle(self, recipe, WITH_FREED) or obstacle_of_input(x, self, recipe, freed=True)
        reason = reason or self._swiglu.proof.obstacle(self, x)
        if reason is not None or freed is None:
            return self._fall_back(reason or "", args, kwargs)
        return finish(self, recipe, freed(x, self))

    def _fall_back(self, reason: str, args: Any, kwargs: Any) -> Tensor:
        if not torch.compiler.is_compiling() and not any(isinstance(value, torch.fx.Proxy) for value in args):
            self._swiglu.fallbacks[reason] += 1
        return self._swiglu_original.forward(self, *args, **kwargs)  # type: ignore[no-any-return]

    def train(self, mode: bool = True) -> Any:
        if mode and self._is_freed() and not self._swiglu.freed.may_train(self):  # type: ignore[union-attr]
            fail("training needs the weights")
        return super().train(mode)

    def _is_freed(self) -> bool:
        state = self.__dict__.get("_swiglu")
        return state is not None and state.freed is not None

    def _apply(self, fn: Callable[..., Any], recurse: bool = True) -> Any:
        if self._is_freed():
            fail("moving or converting needs the weights")
        return super()._apply(fn, recurse)

    def _load_from_state_dict(self, state_dict: Mapping[str, Any], *args: Any, **kwargs: Any) -> None:
        if self._is_freed():
            fail("loading a state needs a place for the weights")
        super()._load_from_state_dict(state_dict, *args, **kwargs)

    def state_dict(self, *args: Any, prefix: str = "", **kwargs: Any) -> Any:
        """With the weights as they were, also where they are freed; of a block format, with what it holds of them."""
        state = super().state_dict(*args, prefix=prefix, **kwargs)
        warn_of_formats("saved", self)
        for path, _, _, freed in freed_parameters(self):
            state[prefix + path] = freed.block.value(freed.part)
        return state


def encode(original: type[nn.Module]) -> str:
    """Its name as part of a name that can be imported from here."""
    return f"{original.__module__}::{original.__qualname__}".replace(".", ":")


def _forward(self: Any, *args: Any, **kwargs: Any) -> Any:
    return self._swiglu_forward(*args, **kwargs)


def _forward_like(original: Any) -> Any:
    """The forward of a subclass: whoever reads it (inspect, torch.fx, torch.jit.script) reads the original's signature and
    source, with the names of its module."""
    names = getattr(original.forward, "__globals__", globals())
    return functools.wraps(original.forward)(types.FunctionType(_forward.__code__, names, "forward"))


def subclass_of(original: type[nn.Module]) -> type[nn.Module]:
    """The same class for the same original, always."""
    name = encode(original)
    known = globals().get(name)
    if known is None or known._swiglu_original is not original:
        body = {
            "__module__": __name__,
            "__qualname__": name,
            "__doc__": original.__doc__,
            "__annotations__": getattr(original, "__annotations__", {}),  # torch.jit.script reads those that it finds first
            "_swiglu_original": original,
            "forward": _forward_like(original),
        }
        known = globals()[name] = type(original.__name__, (Patched, original), body)
    return known


def __getattr__(name: str) -> Any:
    """Makes a class that a pickle names."""
    package, found, qualname = name.partition("::")
    if not found:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    original: Any = importlib.import_module(package.replace(":", "."))
    for part in qualname.split(":"):
        original = getattr(original, part)
    return subclass_of(original)
