# SPDX-License-Identifier: Apache-2.0
"""Expressions: what the operations of a forward build when it runs with stand-ins instead of tensors.

An expression knows its operation, what that was applied to, the width of its last dimension where a weight tells it, and
whether its other dimensions are still those of x or flattened into one.
"""

from __future__ import annotations

import dis
import sys
from collections.abc import Iterator
from typing import Any, Optional

import torch

SAME, ROWS = "same", "rows"  # the leading dimensions: those of x, or one
_RANK = 3  # of x, once a forward asks


class NotProven(Exception):
    """The text says why a module is left alone."""


class NamedFloat(float):
    """A number that remembers which attribute of which module it was."""

    name: str


def code_of(cls: Any, name: str) -> Any:
    """What a class has under this name now: the same object as long as nobody replaces it there or in a base."""
    found = getattr(cls, name, None)
    return getattr(found, "__func__", found)


class Tape:
    """One run of a forward: what it was told, and what its formula depends on besides its children. whole: the formula must
    be a block; otherwise it is looked for inside, and what goes on around it may be unknown."""

    def __init__(self, training: bool, dtype: torch.dtype, whole: bool) -> None:
        self.training, self.dtype, self.whole = training, dtype, whole
        self.asked_dtype = False
        self.rank: Optional[int] = None  # needed of x
        self.width: Optional[int] = None  # of x, once a child was applied to it
        self.reads: dict[tuple[str, str], Any] = {}  # (path of a module, attribute) -> value
        self.followed: dict[str, type] = {}  # path -> class whose forward was followed, too
        self.code: dict[tuple[str, str], Any] = {}  # (path of a module, name) -> function of its class that was followed
        self.reasons: dict[str, str] = {}  # path -> why its forward could not be followed
        self.nodes: list[Expression] = []

    def follow(self, path: str, cls: Any) -> None:
        """The forward of this class has been followed, too."""
        self.followed[path] = cls
        self.code[path, "forward"] = code_of(cls, "forward")

    def need_rank(self) -> int:
        self.rank = _RANK
        return _RANK


class Dim:
    """A product of leading dimensions of x, by index; () is the last one, whose size nobody knows."""

    def __init__(self, tape: Tape, indices: tuple[int, ...] = ()) -> None:
        self.tape, self.indices = tape, indices

    def __str__(self) -> str:
        return " * ".join(f"x.shape[{i}]" for i in self.indices or (-1,))

    def __mul__(self, other: Any) -> Dim:
        if not (isinstance(other, Dim) and self.indices and other.indices):
            raise NotProven("its forward computes with sizes of x")
        return Dim(self.tape, tuple(sorted(self.indices + other.indices)))

    def __eq__(self, other: Any) -> bool:
        if isinstance(other, Dim):
            return self.indices == other.indices
        raise NotProven(f"its forward compares a size of x with {other}")

    __hash__ = None  # type: ignore[assignment]

    def __bool__(self) -> bool:
        raise NotProven("its forward depends on sizes of x")

    def __getattr__(self, name: str) -> Any:
        raise NotProven("its forward computes with sizes of x")


class _Lead:
    """All leading dimensions, however many."""


LEAD = _Lead()


class Shape:
    """The shape of an expression."""

    def __init__(self, of: Expression) -> None:
        self.of = of

    def _sizes(self) -> tuple[Any, ...]:
        if self.of.lead != SAME and self.of.tape.whole:
            raise NotProven(f"its forward reads the shape of {self.of}")
        leading = self.of.tape.need_rank() - 1
        return (*(Dim(self.of.tape, (i,)) for i in range(leading)), self.of.last())

    def __iter__(self) -> Iterator[Any]:
        return iter(self._sizes())

    def __len__(self) -> int:
        return len(self._sizes())

    def __getitem__(self, index: Any) -> Any:
        if index == -1:
            return self.of.last()
        if index == slice(None, -1) and self.of.lead == SAME:
            return (LEAD,)
        if index == slice(None, -1) and self.of.lead == ROWS:
            return (-1,)
        return self._sizes()[index]

    def numel(self) -> Any:
        raise NotProven(f"its forward reads the size of {self.of}")


_PLAIN = {  # of any tensor that a block can be given
    "is_cuda": False, "is_cpu": True, "is_mps": False, "is_meta": False, "is_sparse": False, "is_nested": False,
    "is_quantized": False, "layout": torch.strided, "device": torch.device("cpu"),
}  # fmt: skip


class Expression(torch.Tensor):
    """op applied to args. ops: "x"; "input" (another argument); "parameter" (path); "product", "call" and "drop" (path,
    arguments) for children; "piece" (expression, start, stop, step) of the last dimension; "lead" (expression) where only
    leading dimensions are flattened or restored; "*", "+", ... ; the name of a torch function."""

    def __new__(cls, *_: Any, **__: Any) -> Expression:
        return torch.Tensor._make_subclass(cls, torch.empty(0, device="meta"))

    def __init__(self, tape: Tape, op: str, *args: Any, options: Any = None, lead: Any = None, width: Any = None) -> None:
        self.tape, self.op, self.args, self.options = tape, op, args, options or {}
        self.lead, self.width = lead, width  # lead: SAME, ROWS or None; width: a number, "x" or None
        self.uses = 0
        tape.nodes.append(self)
        for part in _flat((args, self.options)):
            part.uses += 1

    def last(self) -> Any:
        """The size of the last dimension."""
        if self.width is None and self.tape.whole:
            raise NotProven(f"its forward reads the shape of {self}")
        return self.width if isinstance(self.width, int) else Dim(self.tape)

    def known_width(self) -> Optional[int]:
        return self.tape.width if self.width == "x" else self.width

    def __str__(self) -> str:
        if self.op == "x":
            return "x"
        if self.op in ("input", "parameter"):
            return str(self.args[0])
        if self.op == "lead":
            return str(self.args[0])
        if self.op in ("product", "call", "drop"):
            return f"{self.args[0]}({', '.join(_text(a) for a in self.args[1:])})"
        if self.op == "piece":
            start, stop, step = self.args[1:]
            return f"{self.args[0]}[{start}:{stop}{f':{step}' if step != 1 else ''}]"
        if self.op in _SIGNS.values():
            return f" {self.op} ".join(f"({_text(a)})" if _is_sum(a) else _text(a) for a in self.args)
        texts = [_text(a) for a in self.args]
        texts += [f"{k}={_text(v)}" for k, v in self.options.items() if (k, v) != ("inplace", False)]
        return f"{self.op}({', '.join(texts)})"

    def __repr__(self, **_: Any) -> str:  # type: ignore[override]
        return str(self)

    def __format__(self, _: str) -> str:
        return str(self)

    def read(self, name: str) -> Any:
        """An attribute of a tensor."""
        if name in _PLAIN:
            return _PLAIN[name]
        if name == "dtype":
            self.tape.asked_dtype = True
            return self.tape.dtype
        if name == "shape":
            return Shape(self)
        if name == "ndim":
            return self.dim()
        if name in ("T", "mT"):
            return apply("t", (self,), {})
        raise NotProven(f"its forward reads .{name} of {self}")

    def dim(self) -> int:
        if self.lead == ROWS:
            return 2
        if self.lead is None and self.tape.whole:
            raise NotProven(f"its forward reads the shape of {self}")
        return self.tape.need_rank()

    def size(self, index: Any = None) -> Any:
        return Shape(self) if index is None else Shape(self)[index]

    def is_floating_point(self) -> bool:
        return True

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = function.__name__
        if name == "__get__":
            return args[0].read(function.__self__.__name__)
        if name in ("__set__", "__delete__"):
            raise NotProven(f"its forward changes {args[0]}")
        return apply(name, args, kwargs or {})

    def __getitem__(self, index: Any) -> Any:
        return apply("getitem", (self, index), {})

    def __bool__(self) -> bool:
        raise NotProven(f"its forward depends on the values of {self}")

    def __iter__(self) -> Iterator[Any]:
        """As many values as the caller unpacks, which its bytecode says."""
        frame: Any = sys._getframe(1)
        for step in dis.get_instructions(frame.f_code):
            if step.offset >= frame.f_lasti and step.opname not in ("CACHE", "EXTENDED_ARG"):
                if step.opname == "UNPACK_SEQUENCE" and (self.op == "call" or not self.tape.whole):
                    return iter([apply("getitem", (self, i), {}) for i in range(step.arg or 0)])
                break
        raise NotProven(f"its forward takes {self} apart")

    def __setitem__(self, index: Any, value: Any) -> None:
        raise NotProven(f"its forward changes {self} in place")


_SIGNS = {"add": "+", "sub": "-", "mul": "*", "truediv": "/", "pow": "**", "matmul": "@"}
_NAMES = {"add": "+", "sub": "-", "subtract": "-", "mul": "*", "multiply": "*", "div": "/", "divide": "/", "true_divide": "/",
          "pow": "**", "matmul": "@"}  # fmt: skip


def _binary(name: str, swapped: bool) -> Any:
    if swapped:
        return lambda self, other: apply(name, (other, self), {})
    return lambda self, other: apply(name, (self, other), {})


def _refuse(self: Expression, *_: Any) -> Any:
    raise NotProven(f"its forward changes {self} in place")


def _compare(self: Expression, *_: Any) -> Any:
    raise NotProven(f"its forward depends on the values of {self}")


for _name, _sign in _SIGNS.items():
    setattr(Expression, f"__{_name}__", _binary(_sign, False))
    setattr(Expression, f"__r{_name}__", _binary(_sign, True))
    setattr(Expression, f"__i{_name}__", _refuse)
for _name in ("neg", "abs", "invert"):
    setattr(Expression, f"__{_name}__", lambda self, name=_name: apply(name, (self,), {}))
for _name in ("lt", "le", "gt", "ge", "eq", "ne", "len", "float", "int", "index", "contains"):
    setattr(Expression, f"__{_name}__", _compare)

def _method(name: str) -> Any:
    return lambda self, *args, **kwargs: apply(name, (self, *args), kwargs)


for _name in dir(torch.Tensor):  # before PyTorch looks at the arguments, as sizes are no numbers here
    if not _name.startswith("_") and _name not in vars(Expression) and callable(getattr(torch.Tensor, _name)):
        setattr(Expression, _name, _method(_name))
Expression.__hash__ = object.__hash__  # type: ignore[method-assign]


def _is_sum(value: Any) -> bool:
    return isinstance(value, Expression) and value.op in ("+", "-")


def _text(value: Any) -> str:
    return f"{float(value):g}" if isinstance(value, NamedFloat) else str(value)


def _flat(value: Any) -> Iterator[Expression]:
    if isinstance(value, Expression):
        yield value
    elif isinstance(value, (tuple, list)):
        for part in value:
            yield from _flat(part)
    elif isinstance(value, dict):
        yield from _flat(list(value.values()))


def check_modes() -> None:
    """They are on while a forward is followed; a forward that switches them off does something else than its formula."""
    if not torch.is_grad_enabled() or not torch.is_autocast_enabled("cpu"):
        raise NotProven("its forward switches gradients or autocast off")


def apply(name: str, args: Any, kwargs: Any) -> Any:
    """The expression of a torch function or a method of tensors."""
    check_modes()
    if name.startswith("__") and name.endswith("__"):  # of an operator
        name = name.strip("_")
    first = next(_flat((args, kwargs)))
    if name in _SPECIAL and args and isinstance(args[0], Expression):
        special: Any = _SPECIAL[name]
        return special(*args, **kwargs)
    if name.endswith("_") and not name.startswith("_"):
        raise NotProven(f"its forward changes {first} in place ({name})")
    if name.startswith("is_") or name in ("item", "tolist", "numpy", "any", "all", "equal", "allclose", "data_ptr"):
        raise NotProven(f"its forward reads .{name} of {first}")
    parts = [part for part in _flat((args, kwargs)) if part.op != "parameter"]
    leads, widths = {part.lead for part in parts}, {part.width for part in parts}
    lead = leads.pop() if len(leads) == 1 and name in ELEMENTWISE else None
    width = widths.pop() if len(widths) == 1 and name in ELEMENTWISE else None
    return Expression(first.tape, _NAMES.get(name, name), *args, options=kwargs, lead=lead, width=width)


ELEMENTWISE = frozenset(
    "+ - * / ** add sub subtract mul multiply div divide true_divide pow neg abs silu relu gelu sigmoid tanh erf exp square"
    " clamp clamp_min clamp_max clip minimum maximum dropout softplus mish hardswish leaky_relu elu where relu6".split()
)


# ---- operations on shapes ----


def _last_dim(value: Expression, dim: Any) -> bool:
    return dim == -1 or (isinstance(dim, int) and dim > 0 and value.lead is not None and dim == value.dim() - 1)


def _piece(value: Expression, start: int, stop: int, step: int = 1) -> Expression:
    width = len(range(start, stop, step))
    return Expression(value.tape, "piece", value, start, stop, step, lead=value.lead, width=width)


def _chunk(value: Expression, chunks: int, dim: int = 0) -> Any:
    if not isinstance(value.width, int) or chunks != 2 or value.width % 2 or not _last_dim(value, dim):
        return _unknown("chunk", value, chunks, dim)
    return _piece(value, 0, value.width // 2), _piece(value, value.width // 2, value.width)


def _split(value: Expression, sizes: Any, dim: int = 0) -> Any:
    if not isinstance(value.width, int) or not _last_dim(value, dim):
        return _unknown("split", value, sizes, dim)
    if isinstance(sizes, int):
        bounds = list(range(0, value.width, sizes)) + [value.width] if sizes > 0 else []
    else:
        bounds = [sum(sizes[:i]) for i in range(len(sizes) + 1)]
    if len(bounds) < 2 or bounds[-1] != value.width or any(a >= b for a, b in zip(bounds, bounds[1:])):
        return _unknown("split", value, sizes, dim)
    return tuple(_piece(value, a, b) for a, b in zip(bounds, bounds[1:]))


def _getitem(value: Expression, index: Any) -> Any:
    places = index if isinstance(index, tuple) else (index,)
    before, last = places[:-1], places[-1]
    all_before = before == (Ellipsis,) or (
        value.lead is not None and before == (slice(None),) * len(before) and len(before) == value.dim() - 1
    )
    if isinstance(value.width, int) and isinstance(last, slice) and before and all_before:
        cut = [last.start, last.stop, last.step]
        if all(n is None or type(n) is int for n in cut) and (last.step or 1) > 0:
            return _piece(value, *last.indices(value.width))
    if value.op == "call":  # what a child returned may be a tuple
        return Expression(value.tape, "getitem", value, index)
    return _unknown("getitem", value, index)


def _unknown(name: str, value: Expression, *args: Any) -> Expression:
    if value.tape.whole:
        raise NotProven(f"its forward takes {name}({', '.join(map(str, args))}) of {value}")
    return Expression(value.tape, name, value, *args)


def _glu(value: Expression, dim: int = -1) -> Any:
    first, second = _chunk(value, 2, dim)
    return apply("*", (first, apply("sigmoid", (second,), {})), {})


def _lead(value: Expression, lead: str) -> Expression:
    return value if value.lead == lead else Expression(value.tape, "lead", value, lead=lead, width=value.width)


def _other_shape(value: Expression, name: str, *sizes: Any) -> Expression:
    return Expression(value.tape, name, value, *sizes)


def _is_width(value: Expression, size: Any) -> bool:
    if isinstance(size, Dim):
        return not size.indices and (value.width == "x" or value.known_width() == value.tape.width is not None)
    return type(size) is int and value.known_width() == size


def _reshape(value: Expression, *sizes: Any) -> Expression:
    if len(sizes) == 1 and isinstance(sizes[0], (tuple, list, Shape)):
        whole = sizes[0]
        if isinstance(whole, Shape):
            return _as_other(value, whole.of)
        sizes = tuple(whole)
    if value.lead is None or value.width is None or len(sizes) < 2:
        return _other_shape(value, "reshape", *sizes)
    before, last = sizes[:-1], sizes[-1]
    infers = any(type(n) is int and n == -1 for n in before)
    if not (_is_width(value, last) or (type(last) is int and last == -1 and not infers)):
        return _other_shape(value, "reshape", *sizes)
    lead = _target(value.tape, before)
    return _other_shape(value, "reshape", *sizes) if lead is None else _lead(value, lead)


def _target(tape: Tape, before: tuple[Any, ...]) -> Optional[str]:
    """What leading dimensions these sizes are."""
    if len(before) == 1 and type(before[0]) is int and before[0] == -1:
        return ROWS
    if len(before) == 1 and before[0] is LEAD:
        return SAME
    if tape.rank is None:
        return None
    n = tape.rank - 1
    if len(before) == 1 and isinstance(before[0], Dim) and before[0].indices == tuple(range(n)):
        return ROWS
    free = sum(type(size) is int and size == -1 for size in before)
    fits = all((type(s) is int and s == -1) or (isinstance(s, Dim) and s.indices == (i,)) for i, s in enumerate(before))
    return SAME if len(before) == n and fits and free <= 1 else None


def _flatten(value: Expression, start_dim: int = 0, end_dim: int = -1) -> Expression:
    if value.lead == SAME and start_dim == 0 and (end_dim == -2 or end_dim == value.tape.need_rank() - 2):
        return _lead(value, ROWS)
    return _other_shape(value, "flatten", start_dim, end_dim)


def _unflatten(value: Expression, dim: int, sizes: Any) -> Expression:
    if value.lead == ROWS and dim in (0, -2) and _target(value.tape, tuple(sizes)) == SAME:
        return _lead(value, SAME)
    return _other_shape(value, "unflatten", dim, sizes)


def _as_other(value: Expression, other: Any) -> Expression:
    """view_as, reshape_as, expand_as: the same numbers of rows and columns."""
    width = value.known_width()
    if not isinstance(other, Expression) or None in (value.lead, other.lead, width) or width != other.known_width():
        return _unknown("view_as", value, other)
    return _lead(value, other.lead)


def _size(value: Expression, dim: Any = None) -> Any:
    return value.size(dim)


def _same(value: Expression, *_: Any, **__: Any) -> Expression:
    return value


def _to(value: Expression, *args: Any, **kwargs: Any) -> Expression:
    for wanted in (*args, *kwargs.values()):
        if isinstance(wanted, torch.dtype):
            value.tape.asked_dtype = True
            if wanted != value.tape.dtype:
                raise NotProven(f"its forward converts {value} to {wanted}")
        elif not isinstance(wanted, Expression) and not isinstance(wanted, (torch.device, str, bool)):
            raise NotProven(f"its forward moves {value} to {wanted}")
        elif isinstance(wanted, (torch.device, str)) and torch.device(wanted).type != "cpu":
            raise NotProven(f"its forward moves {value} to {wanted}")
    return value


def _relu(value: Expression, inplace: bool = False) -> Expression:
    options = {"inplace": True} if inplace else None
    return Expression(value.tape, "relu", value, options=options, lead=value.lead, width=value.width)


_SPECIAL = {
    "chunk": _chunk, "split": _split, "getitem": _getitem, "glu": _glu,
    "reshape": _reshape, "view": _reshape, "flatten": _flatten, "unflatten": _unflatten, "view_as": _as_other,
    "reshape_as": _as_other, "contiguous": _same, "type_as": _same, "to": _to, "size": _size, "relu": _relu,
    "relu_": lambda value: _relu(value, True), "dim": lambda value: value.dim(),
    "float": lambda value: _to(value, torch.float32), "half": lambda value: _to(value, torch.float16),
    "bfloat16": lambda value: _to(value, torch.bfloat16), "double": lambda value: _to(value, torch.float64),
    "is_floating_point": lambda value: True,
}  # fmt: skip
