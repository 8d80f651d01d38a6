# SPDX-License-Identifier: Apache-2.0
"""What a model whose weights were given back refuses as a whole: where it were left to the blocks, modules that come before
the first of them would be moved, converted, loaded or in training mode already."""

from __future__ import annotations

import types
from typing import Any

from torch import nn

from .classes import Patched
from .freed import fail

_NEEDS = {
    "_apply": "moving or converting needs the weights",
    "train": "training needs the weights",
    "load_state_dict": "loading a state needs a place for the weights",
}


def _has_freed(module: nn.Module) -> bool:
    return any(isinstance(below, Patched) and below._swiglu.freed is not None for below in module.modules())


def _cannot_train(module: nn.Module) -> bool:
    """Frozen weights of a block format let others train."""
    blocks = [below for below in module.modules() if isinstance(below, Patched)]
    return any(b._swiglu.freed is not None and not b._swiglu.freed.may_train(b) for b in blocks)


def _guarded(name: str) -> Any:
    def method(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
        harmless = name == "train" and not (args[0] if args else kwargs.get("mode", True))
        if not harmless and (_cannot_train if name == "train" else _has_freed)(self):
            fail(_NEEDS[name])
        return getattr(type(self), name)(self, *args, **kwargs)

    method.__name__ = name
    return method


_METHODS = {name: _guarded(name) for name in _NEEDS}


def guard(model: nn.Module) -> None:
    """Every module above freed weights asks first."""
    for module in model.modules():
        if not isinstance(module, Patched) and _has_freed(module):
            for name, method in _METHODS.items():
                module.__dict__.setdefault(name, types.MethodType(method, module))


def unguard(model: nn.Module) -> None:
    for module in model.modules():
        for name, method in _METHODS.items():
            if getattr(module.__dict__.get(name), "__func__", None) is method:
                del module.__dict__[name]
