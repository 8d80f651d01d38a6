# SPDX-License-Identifier: Apache-2.0
"""Modules as a forward sees them while it is followed: their children make expressions, plain attributes are the real
ones. A forward that looks at values or changes the module has no formula."""

from __future__ import annotations

import functools
import inspect
import types
import warnings
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from ..torch.adapters import base_of, is_adapter
from ..torch.recipe import add_linear, has_foreign_forward, has_own_call, is_linear, is_transposed, name_of
from .trace import SAME, Expression, NamedFloat, NotProven, Tape, apply, check_modes, code_of

_VALUES = (bool, int, float, str, type(None), torch.dtype, torch.device)  # nothing that a forward could change
_FUNCTIONS = (types.FunctionType, types.BuiltinFunctionType, functools.partial)


def original(module: nn.Module) -> Any:
    """Its class, before it was replaced."""
    return getattr(type(module), "_swiglu_original", type(module))


class StandIn:
    """In place of a module. _real: (module, tape, path below the module that is asked about)."""

    def __new__(cls, module: nn.Module, tape: Tape, path: str = "") -> Any:
        return object.__new__(_class_for(original(module)))

    def __init__(self, module: nn.Module, tape: Tape, path: str = "") -> None:
        object.__setattr__(self, "_real", (module, tape, path))

    @property  # type: ignore[misc]
    def __class__(self) -> Any:  # for isinstance and super()
        return original(object.__getattribute__(self, "_real")[0])

    def __getattr__(self, name: str) -> Any:
        module, tape, path = object.__getattribute__(self, "_real")
        where = f"{path}.{name}" if path else name
        if name == "training":
            return tape.training
        if name == "gradient_checkpointing":  # it computes the same, twice
            return False
        if name == "_modules" and not tape.whole:
            return {key: getattr(self, key) for key in module._modules}
        if name in ("_forward_hooks", "_forward_pre_hooks") and not tape.whole:
            return {}  # they are asked about at each call
        if name in module._modules:
            child = module._modules[name]
            return None if child is None else StandIn(child, tape, where)
        if name in module._parameters or name in module._buffers:
            tensor = module._parameters[name] if name in module._parameters else module._buffers[name]
            return None if tensor is None else _Parameter(tape, tensor, where)
        value = inspect.getattr_static(module, name, self)
        if value is self:
            if name.startswith("_") or name in ("items", "keys", "values") or _has_getattr(original(module)):
                raise AttributeError(name)
            raise AttributeError(f"{original(module).__name__} has no {name}")
        if name in module.__dict__:
            return _attribute(tape, path, name, value)
        return _of_class(self, original(module), tape, path, name, value)

    def __setattr__(self, name: str, value: Any) -> None:
        raise NotProven(f"its forward sets {name}")

    def __delattr__(self, name: str) -> None:
        raise NotProven(f"its forward deletes {name}")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        module, tape, path = object.__getattribute__(self, "_real")
        return call(module, tape, path, args, kwargs)

    def _children(self) -> list[tuple[str, Any]]:
        module, tape, path = object.__getattribute__(self, "_real")
        if not isinstance(module, (nn.Sequential, nn.ModuleList, nn.ModuleDict)):
            raise NotProven(f"its forward takes {path or 'itself'} apart")
        return [
            (name, None if child is None else StandIn(child, tape, f"{path}.{name}" if path else name))
            for name, child in module._modules.items()
        ]

    def __iter__(self) -> Iterator[Any]:
        is_dict = isinstance(object.__getattribute__(self, "_real")[0], nn.ModuleDict)
        return iter([name if is_dict else child for name, child in self._children()])

    def __len__(self) -> int:
        return len(self._children())

    def __bool__(self) -> bool:
        return True

    def __contains__(self, name: Any) -> bool:
        return name in [key for key, _ in self._children()]

    def __getitem__(self, index: Any) -> Any:
        children = self._children()
        if isinstance(index, str):
            return dict(children)[index]
        return [child for _, child in children][index]

    def items(self) -> list[tuple[str, Any]]:
        return self._children()

    def values(self) -> list[Any]:
        return [child for _, child in self._children()]

    def keys(self) -> list[str]:
        return [name for name, _ in self._children()]


@functools.lru_cache(maxsize=1024)
def _class_for(cls: Any) -> Any:
    """A stand-in's own class, which some look up forward in."""
    return type(cls.__name__, (StandIn,), {"forward": cls.forward})


def _has_getattr(cls: Any) -> bool:
    return cls.__getattr__ is not nn.Module.__getattr__


class _Parameter(Expression):
    """A tensor of the module: its sizes are known, what it is used for is seen."""

    def __init__(self, tape: Tape, tensor: torch.Tensor, path: str) -> None:
        super().__init__(tape, "parameter", path)
        object.__setattr__(self, "_tensor", tensor)

    def read(self, name: str) -> Any:
        tensor = object.__getattribute__(self, "_tensor")
        if name in ("shape", "ndim", "device"):
            return getattr(tensor, name)
        if name == "dtype":
            self.tape.asked_dtype = True
            return tensor.dtype
        return super().read(name)

    def dim(self) -> int:
        return int(object.__getattribute__(self, "_tensor").dim())

    def size(self, index: Any = None) -> Any:
        shape = object.__getattribute__(self, "_tensor").shape
        return shape if index is None else shape[index]


def _attribute(tape: Tape, path: str, name: str, value: Any) -> Any:
    """A plain attribute of an instance."""
    where = f"{path}.{name}" if path else name
    if name == "config":
        return value
    if isinstance(value, (list, tuple)) and all(isinstance(part, _VALUES) for part in value):
        value = tuple(value)
    elif not isinstance(value, (*_VALUES, *_FUNCTIONS)):
        raise NotProven(f"its forward uses {where}, which is neither a submodule nor a plain value")
    tape.reads[path, name] = value
    if type(value) is float:
        value = NamedFloat(value)
        value.name = where
    return value


def _of_class(standin: Any, cls: Any, tape: Tape, path: str, name: str, value: Any) -> Any:
    """An attribute of a class: methods see the stand-in."""
    if isinstance(value, (types.FunctionType, staticmethod, classmethod, property, functools.partial)):
        tape.code[path, name] = code_of(cls, name)
    if isinstance(value, types.FunctionType):
        return types.MethodType(value, standin)
    if isinstance(value, staticmethod):
        return value.__func__
    if isinstance(value, classmethod):
        return types.MethodType(value.__func__, cls)
    if isinstance(value, property) and value.fget is not None:
        return value.fget(standin)
    if isinstance(value, functools.partial):
        return value
    return _attribute(tape, path, name, value)


# ---- calls of children ----


def call(module: nn.Module, tape: Tape, path: str, args: Any, kwargs: Any) -> Any:
    """What a child makes of expressions."""
    check_modes()
    cls = original(module)
    only: Any = args[0] if len(args) == 1 and not kwargs and isinstance(args[0], Expression) else None
    if only is not None:
        if is_linear(cls) or (isinstance(module, nn.Linear) and _prove_linear(module)):
            return _linear(module, tape, path, only)
        if is_adapter(cls):  # what it adds is looked at in each call
            return _linear(base_of(module), tape, path, only)
        if name_of(module):
            inplace = {"inplace": True} if getattr(module, "inplace", False) else None
            return Expression(tape, "call", path, only, options=inplace, lead=only.lead, width=only.width)
        if cls is nn.Dropout:
            return Expression(tape, "drop", path, only, lead=only.lead, width=only.width)
        if cls is nn.Identity:
            tape.follow(path, cls)
            return only
        if cls is nn.GLU:
            tape.follow(path, cls)
            return apply("glu", (only, module.dim), {})
    if not _can_follow(module, cls) or (kwargs and not tape.whole):
        return _unknown_child(tape, path, args, kwargs)
    before = dict(tape.followed)
    try:
        result = cls.forward(StandIn(module, tape, path), *args, **kwargs)
        tape.follow(path, cls)
        return result
    except Exception as error:  # anything at all may happen in a stranger's forward
        tape.followed = before
        tape.reasons[path] = str(error)
        check_modes()
        return _unknown_child(tape, path, args, kwargs)


def _unknown_child(tape: Tape, path: str, args: Any, kwargs: Any) -> Expression:
    return Expression(tape, "call", path, *args, options=kwargs)


def _can_follow(module: nn.Module, cls: Any) -> bool:
    if isinstance(module, (nn.ModuleList, nn.ModuleDict, torch.jit.ScriptModule, torch.fx.GraphModule)):
        return False
    if has_own_call(module) or has_foreign_forward(module) or cls.__module__.startswith("torch.ao."):
        return False
    return not cls.__module__.startswith("torch.nn.") or isinstance(module, nn.Sequential)


def _linear(module: Any, tape: Tape, path: str, x: Expression) -> Expression:
    rows, cols = (module.weight.shape[0], module.weight.shape[-1]) if "weight" in module._parameters else (None, None)
    if rows is not None and is_transposed(original(module)):
        rows, cols = cols, rows
    if x.width == "x" and tape.width is None:
        tape.width = cols
    return Expression(tape, "product", path, x, lead=x.lead, width=rows)


def _prove_linear(module: nn.Linear) -> bool:
    """Whether a subclass of nn.Linear computes what nn.Linear does; then its class is known from now on."""
    cls = original(module)
    if has_own_call(module) or has_foreign_forward(module) or hasattr(cls, "weight"):
        return False
    if cls.forward is not nn.Linear.forward:
        for bias in (True, False):
            twin = nn.Linear.__new__(cls)
            nn.Module.__init__(twin)
            twin.weight = nn.Parameter(torch.empty(3, 2, device="meta"))
            twin.register_parameter("bias", nn.Parameter(torch.empty(3, device="meta")) if bias else None)
            tape = Tape(True, torch.float32, True)
            try:
                found = cls.forward(StandIn(twin, tape), Expression(tape, "x", lead=SAME, width="x"))
            except Exception:  # anything at all, as above
                return False
            if tape.reads or tape.followed or not _is_product(found, bias):
                return False
    add_linear(cls)
    return True


def _is_product(found: Any, bias: bool) -> bool:
    """x weight^T, plus bias where there is one."""

    def is_(value: Any, op: str, *args: Any) -> bool:
        return isinstance(value, Expression) and value.op == op and (not args or value.args == args)

    def is_parameter(value: Any, name: str) -> bool:
        return type(value) is _Parameter and value.args == (name,)

    if is_(found, "linear") and not found.options and len(found.args) == (3 if bias else 2):
        fits = is_(found.args[0], "x") and is_parameter(found.args[1], "weight")
        return fits and (not bias or is_parameter(found.args[2], "bias"))
    if bias:
        if not (is_(found, "+") and not found.options and len(found.args) == 2 and is_parameter(found.args[1], "bias")):
            return False
        found = found.args[0]
    if not (is_(found, "@") and len(found.args) == 2 and is_(found.args[0], "x") and is_(found.args[1], "t")):
        return False
    return is_parameter(found.args[1].args[0], "weight")


# ---- whole forwards ----


def follow(module: nn.Module, training: bool, dtype: torch.dtype, whole: bool = True) -> tuple[Any, Tape]:
    """(what its forward returns, how it came about). Raises NotProven where it cannot be followed."""
    tape = Tape(training, dtype, whole)
    cls = original(module)
    if isinstance(module, (nn.ModuleList, nn.ModuleDict)):
        raise NotProven("it has no forward")
    x = Expression(tape, "x", lead=SAME, width="x")
    args = _arguments(cls, tape, x)
    try:
        with warnings.catch_warnings(), torch.enable_grad(), torch.autocast("cpu", torch.bfloat16):
            warnings.simplefilter("ignore")
            result = cls.forward(StandIn(module, tape), *args)
    except NotProven:
        raise
    except Exception as error:  # anything at all may happen in a stranger's forward
        raise NotProven(f"its forward cannot be followed ({type(error).__name__}: {error})") from None
    return result, tape


def _arguments(cls: Any, tape: Tape, x: Expression) -> list[Any]:
    """x, and unknown values for what else has no default."""
    needed = []
    for parameter in list(inspect.signature(cls.forward).parameters.values())[2:]:
        if parameter.kind is not parameter.POSITIONAL_OR_KEYWORD or parameter.default is not parameter.empty:
            break
        needed.append(parameter.name)
    if needed and tape.whole:
        raise NotProven(f"its forward takes {', '.join(needed)} besides x")
    return [x, *(Expression(tape, "input", name) for name in needed)]
