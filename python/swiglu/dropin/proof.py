# SPDX-License-Identifier: Apache-2.0
"""The proof that a module is a block: its formula, read with stand-ins, and its tensors."""

from __future__ import annotations

import dataclasses
from typing import Any, Optional

import torch
from torch import nn

from ..torch.plan import DTYPES
from ..torch.recipe import Recipe, base_at, child_at, has_foreign_forward, has_own_call, hooked, is_transposed, name_of
from ..torch.recipe import UNVERSIONED, obstacle, parts_of, tensors
from .forms import Found, whole_block
from .standin import follow, original
from .trace import Expression, NotProven, Tape, code_of

_SCALES = (2.0**-40, 2.0**40)  # that a constant may have which is moved behind the last product


@dataclasses.dataclass(frozen=True)
class Proof:
    """A recipe and what it takes for granted besides plain children."""

    recipe: Recipe
    inner: tuple[str, ...] = ()  # dropouts that must be inactive
    reads: tuple[tuple[str, str, Any], ...] = ()  # (path of a module, attribute, its value)
    code: tuple[tuple[str, str, Any], ...] = ()  # (path, name, function) of what was followed, forwards and methods
    followed: tuple[tuple[str, type], ...] = ()  # (path, class) of children whose forwards are bypassed
    rank: Optional[int] = None  # of x
    dtype: Optional[torch.dtype] = None  # of the weights
    without_bias: bool = False  # a constant was moved behind the last product

    def obstacle(self, module: nn.Module, x: Any) -> Optional[str]:
        """Why the proof does not hold now; None where it does. The children are looked at elsewhere."""
        for path, cls in self.followed:
            child = child_at(module, path)
            if child is None or original(child) is not cls:
                return f"{path} is another module now"
            if hooked(child):
                return f"{path} has hooks"
        for path, name, function in self.code:
            owner: Any = child_at(module, path) if path else module
            if code_of(original(owner), name) is not function or (name != "forward" and name in owner.__dict__):
                return f"the {name} of {original(owner).__name__} is replaced"
        for path, name, value in self.reads:
            now = getattr(child_at(module, path) if path else module, name, None)
            if now is not value and not _equal(now, value):
                return f"{name} is not what it was when the module was patched"
        for name in self.inner:
            if _is_active(module, name):
                return f"a dropout inside is active ({name})" if name else "a dropout inside is active"
        if self.rank is not None and x.dim() != self.rank:
            return f"x has {x.dim()} dimensions, its forward asks for {self.rank}"
        if self.dtype is None and not self.without_bias:
            return None
        down = base_at(module, self.recipe.down)._parameters
        if self.dtype is not None and down["weight"].dtype != self.dtype:
            return f"its forward looks at dtypes, and the weights were {self.dtype} when it was patched"
        if self.without_bias and down["bias"] is not None:
            return f"{self.recipe.down} has a bias, and a constant stands before it"
        if self.without_bias and (x.dtype == torch.float16 or _is_half_autocast()):
            return "float16 could overflow before the constant"
        return None


def _is_half_autocast() -> bool:
    return torch.is_autocast_enabled("cpu") and torch.get_autocast_dtype("cpu") == torch.float16


def _equal(now: Any, value: Any) -> bool:
    if isinstance(value, tuple) and isinstance(now, list):
        now = tuple(now)
    return type(now) is type(value) and bool(now == value)


def _is_active(module: nn.Module, name: str) -> bool:
    """Whether a dropout, a child or a probability, would drop something now."""
    child = child_at(module, name)
    if child is not None:
        return bool(child.training and child.p > 0)
    where, _, attribute = name.rpartition(".")
    owner = child_at(module, where) if where else module
    return bool(owner.training and (not name or getattr(owner, attribute) > 0))


def dtype_of(module: nn.Module) -> torch.dtype:
    """Of its first weight."""
    return next((p.dtype for p in module.parameters() if p.is_floating_point()), torch.float32)


def strangers(module: nn.Module, result: Any, tape: Tape) -> str:
    """Children in an expression that nothing is known about, as text."""
    seen: dict[str, str] = {}

    def visit(value: Any) -> None:
        if isinstance(value, Expression):
            if value.op == "call" and not name_of(child_at(module, value.args[0])):
                path = value.args[0]
                why = f", in which {tape.reasons[path]}" if tape.reasons.get(path) else ""
                cls = original(child_at(module, path))
                seen[path] = f"{path} is a {cls.__name__} of {cls.__module__}{why}"
            for arg in (*value.args, *value.options.values()):
                visit(arg)
        elif isinstance(value, (tuple, list)):
            for arg in value:
                visit(arg)

    visit(result)
    for path, cls in tape.followed.items():
        if cls not in (nn.Sequential, nn.Identity, nn.GLU):
            seen[path] = f"{path} is a {cls.__name__}"
    return f" ({', '.join(seen.values())})" if seen else ""


def _read(module: nn.Module, training: bool, dtype: torch.dtype) -> tuple[Found, Tape]:
    result, tape = follow(module, training, dtype)
    if not isinstance(result, Expression):
        raise NotProven(f"its forward returns {type(result).__name__}, not one tensor")
    found = whole_block(module, result)
    if found is None:
        where = strangers(module, result, tape)
        raise NotProven(f"it computes {result}{where}, which is not a block that swiglu evaluates")
    return found, tape


def prove(module: nn.Module) -> Proof:
    """The recipe of a module whose class, children and tensors leave no doubt. Raises NotProven with the reason."""
    if has_foreign_forward(module):
        raise NotProven("its forward is replaced on the instance (a hook of accelerate, or another patch)")
    if has_own_call(module):
        raise NotProven("calling it is more than its forward (a __call__ or _call_impl of its own)")
    dtype = dtype_of(module)
    found, tape = _read(module, False, dtype)
    other, second = _read(module, True, dtype)
    if (found.recipe, found.inner) != (other.recipe, other.inner):
        raise NotProven("it computes something else in training than in evaluation")
    low, high = _SCALES
    if found.without_bias and not low <= abs(found.recipe.scale) <= high:
        raise NotProven(f"its constants multiply to {found.recipe.scale:g}, which could overflow before the end")
    live = {found.recipe.dropout, *found.inner}
    reads = {**tape.reads, **second.reads}
    code = {("", "forward"): code_of(original(module), "forward"), **tape.code, **second.code}
    proof = Proof(
        found.recipe,
        found.inner,
        tuple((path, name, v) for (path, name), v in reads.items() if (f"{path}.{name}" if path else name) not in live),
        tuple((path, name, function) for (path, name), function in code.items()),
        tuple({**tape.followed, **second.followed}.items()),
        tape.rank or second.rank,
        dtype if tape.asked_dtype or second.asked_dtype else None,
        found.without_bias,
    )
    check_tensors(module, proof.recipe)
    if found.without_bias:
        down = base_at(module, proof.recipe.down)
        if down.bias is not None:
            raise NotProven(f"a constant stands before {proof.recipe.down}, which has a bias")
        if down.weight.dtype == torch.float16:
            raise NotProven(f"a constant stands before {proof.recipe.down}, and float16 could overflow before it")
    return proof


def check_tensors(module: nn.Module, recipe: Recipe) -> None:
    """Raises NotProven unless the children are plain and their tensors are those of a block."""
    with torch.no_grad():  # what is trained is asked at each call
        reason = obstacle(module, recipe, now=False)
    if reason:
        raise NotProven(reason)
    gate, up, down = parts_of(module, recipe)[:3]
    first = gate if gate is not None else up
    assert first is not None
    dtypes = {str(t.dtype).removeprefix("torch.") for t in tensors(module, recipe)}
    if len(dtypes) > 1 or first.dtype not in DTYPES:
        raise NotProven(f"its weights are {' and '.join(sorted(dtypes))}; one of float32, bfloat16, float16 is needed")
    if first.dim() != 2 or down.dim() != 2 or (up is not None and up.shape != first.shape):
        raise NotProven("its weights do not have the shapes of a block")
    if first.shape[0] != down.shape[1] * (2 if up is None else 1):
        raise NotProven(f"its first product has {first.shape[0]} outputs and its last {down.shape[1]} inputs")
    if any(t.is_meta for t in tensors(module, recipe)):
        raise NotProven("its weights have no values yet (they are meta tensors)")
    if any(t.device.type != "cpu" for t in tensors(module, recipe)):
        raise NotProven("its weights are not on the CPU")
    if any(t.is_inference() for t in tensors(module, recipe)):
        raise NotProven(UNVERSIONED)


def shape_of(module: nn.Module, name: Optional[str]) -> tuple[int, int]:
    """(outputs, inputs) of a child, whether its weight is there or freed."""
    child = base_at(module, name or "")
    rows, cols = child.weight.shape
    return (cols, rows) if is_transposed(type(child)) else (rows, cols)
