# SPDX-License-Identifier: Apache-2.0
"""What a module computes, read off its own forward.

The forward runs once with stand-ins: an expression in place of x, and in place of the module an object whose children
make larger expressions instead of computing. The result is the formula of this class in this version, whatever the class
is called. A forward that looks at values, reads parameters itself or changes the module has no formula.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

_VALUES = (bool, int, float, str, type(None), torch.dtype)  # nothing that a forward could change


class NotProven(Exception):
    """The text says why a module is left alone."""


class NamedFloat(float):
    """A number that remembers which attribute of the module it was."""

    name: str


class Expression:
    """op applied to args. ops: "x"; "child" (name, argument); "piece" (index, expression): one of two equal parts of the
    last dimension; "*"; the name of a torch function; or what it is called where nothing else is known."""

    def __init__(self, op: str, *args: Any, options: Any = None) -> None:
        self.op, self.args, self.options = op, args, options or {}

    def __str__(self) -> str:
        if self.op == "x":
            return "x"
        if self.op == "child":
            return f"{self.args[0]}({self.args[1]})"
        if self.op == "piece":
            return f"{self.args[1]}[{self.args[0]}]"
        if self.op == "*":
            return " * ".join(str(a) for a in self.args)
        return f"{self.op}({', '.join(str(a) for a in self.args)})"

    def __mul__(self, other: Any) -> Expression:
        return Expression("*", self, other)

    def __rmul__(self, other: Any) -> Expression:
        return Expression("*", other, self)

    def chunk(self, chunks: int, dim: int = 0) -> tuple[Expression, ...]:
        if chunks != 2 or dim != -1:
            raise NotProven(f"its forward takes chunk({chunks}, dim={dim})")
        return Expression("piece", 0, self), Expression("piece", 1, self)

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function is torch.chunk:
            return args[0].chunk(*args[1:], **(kwargs or {}))
        if function is torch.mul and not kwargs:
            return Expression("*", *args)
        return Expression(function.__name__, *args, options=kwargs)

    def __getattr__(self, name: str) -> Any:
        raise NotProven(f"its forward reads .{name} of {self}")

    def __bool__(self) -> bool:
        raise NotProven(f"its forward depends on the values of {self}")

    def __iter__(self) -> Iterator[Any]:
        raise NotProven(f"its forward takes {self} apart")

    def _other(self, *_: Any) -> Any:
        raise NotProven(f"its forward computes with {self} in another way than a feed-forward block")

    __add__ = __radd__ = __sub__ = __rsub__ = __truediv__ = __rtruediv__ = __pow__ = __matmul__ = __rmatmul__ = _other
    __neg__ = __getitem__ = __lt__ = __le__ = __gt__ = __ge__ = __len__ = _other


def _call(child: str, argument: Any) -> Expression:
    if not torch.is_grad_enabled() or not torch.is_autocast_enabled("cpu"):
        raise NotProven("its forward switches gradients or autocast off")
    return Expression("child", child, argument)


class _StandIn:
    """The module as its forward sees it: children make expressions, plain attributes are the real ones."""

    def __init__(self, module: nn.Module, training: bool) -> None:
        object.__setattr__(self, "_real", (module, training))

    def __getattr__(self, name: str) -> Any:
        module, training = object.__getattribute__(self, "_real")
        if name == "training":
            return training
        if name in module._modules:
            return lambda argument: _call(name, argument)
        if name in module._parameters or name in module._buffers:
            raise NotProven(f"its forward uses the tensor {name} itself")
        value = inspect.getattr_static(module, name, None)
        if not isinstance(value, _VALUES) and name != "config":
            raise NotProven(f"its forward uses {name}, which is neither a submodule nor a plain value")
        if type(value) is float:
            value = NamedFloat(value)
            value.name = name
        return value

    def __setattr__(self, name: str, value: Any) -> None:
        raise NotProven(f"its forward sets {name}")


def formula(module: nn.Module, training: bool) -> Expression:
    """Raises NotProven where there is none."""
    forward = type(module).forward
    try:
        with torch.enable_grad(), torch.autocast("cpu", torch.bfloat16):
            result = forward(_StandIn(module, training), Expression("x"))
    except NotProven:
        raise
    except Exception as error:  # anything at all may happen in a stranger's forward
        raise NotProven(f"its forward cannot be followed ({type(error).__name__}: {error})") from None
    if not isinstance(result, Expression):
        raise NotProven(f"its forward returns {type(result).__name__}, not one tensor")
    return result
