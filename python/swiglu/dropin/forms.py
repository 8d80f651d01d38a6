# SPDX-License-Identifier: Apache-2.0
"""Which expressions are blocks: products of the same x, an activation, constants that can be folded, a last product."""

from __future__ import annotations

import dataclasses
import math
from typing import Any, Optional

from torch import nn

from .._c.activation import Activation
from ..torch.recipe import Recipe, child_at, name_of
from .trace import Expression, NamedFloat, NotProven

_FUNCTIONS = {"silu": "silu", "relu": "relu", "sigmoid": "sigmoid"}
_POSITIVE = ("relu", "relu2")  # f(c x) is a constant times f(x) for c > 0


@dataclasses.dataclass(frozen=True)
class Found:
    """A block and what it takes for granted."""

    recipe: Recipe
    x: Expression  # what it is applied to
    down: Expression  # its last product
    inner: tuple[str, ...]  # dropouts within, which must be inactive: children, attributes, or "" for a fixed probability
    without_bias: bool  # constants were moved behind the last product, which must have no bias then


@dataclasses.dataclass
class _Product:
    """act(gate) or one side of it: the child, which part of its outputs, and what it is applied to."""

    child: str
    part: tuple[int, int, int]  # start, stop, step
    width: int
    x: Expression


@dataclasses.dataclass
class _Activated:
    name: str
    child: Optional[str]  # that is the activation
    changes: dict[str, Any]
    scale: float
    gate: _Product


class Reader:
    """Reads one expression of one module."""

    def __init__(self, module: nn.Module) -> None:
        self.module = module
        self.inner: list[str] = []

    # ---- what does not matter, and constants ----

    def strip(self, e: Any) -> Any:
        """Without changes of leading dimensions, and without dropouts, which are noted."""
        while isinstance(e, Expression):
            if e.op == "lead":
                e = e.args[0]
            elif e.op in ("drop", "dropout"):
                name, e = dropout_of(e)
                if name is not None:
                    self.inner.append(name)
            else:
                break
        return e

    def factors(self, e: Any) -> tuple[float, list[Expression]]:
        """(constant, expressions) whose product e is."""
        e = self.strip(e)
        if _is_number(e):
            return float(e), []
        if e.op == "*" and len(e.args) == 2 and not e.options:
            (a, first), (b, second) = self.factors(e.args[0]), self.factors(e.args[1])
            return a * b, first + second
        if e.op == "/" and len(e.args) == 2 and not e.options and _is_number(e.args[1]) and e.args[1]:
            a, rest = self.factors(e.args[0])
            return a / float(e.args[1]), rest
        if e.op == "neg":
            a, rest = self.factors(e.args[0])
            return -a, rest
        if (e.op == "**" and len(e.args) == 2 and _is_number(e.args[1]) and e.args[1] == 2) or e.op == "square":
            a, rest = self.factors(e.args[0])
            return a * a, rest + rest
        return 1.0, [e]

    def scaled(self, e: Any) -> tuple[float, Any]:
        """(constant, the rest) of an expression that is a constant times something."""
        constant, rest = self.factors(e)
        if len(rest) == 1:
            return constant, rest[0]
        return 1.0, self.strip(e)

    # ---- products and activations ----

    def product(self, e: Any) -> Optional[_Product]:
        e = self.strip(e)
        part = None
        if isinstance(e, Expression) and e.op == "piece":
            part, e = e.args[1:], self.strip(e.args[0])
        if not isinstance(e, Expression) or e.op != "product" or e.width is None:
            return None
        return _Product(e.args[0], part or (0, e.width, 1), e.width, self.strip(e.args[1]))

    def _named(self, e: Expression) -> Optional[tuple[str, Optional[str], Any]]:
        """(activation, child, argument) of an activation that is a child or a function."""
        if e.op == "call" and len(e.args) == 2 and isinstance(e.args[1], Expression):
            name = name_of(child_at(self.module, e.args[0]))
            found = (name, e.args[0], e.args[1]) if name else None
        elif len(e.args) != 1 or not isinstance(e.args[0], Expression):
            return None
        elif e.op == "gelu":
            form = e.options.get("approximate", "none")
            found = ("gelu_tanh" if form == "tanh" else "gelu", None, e.args[0])
        else:
            found = (_FUNCTIONS[e.op], None, e.args[0]) if e.op in _FUNCTIONS else None
        if found and e.options.get("inplace") and found[2].uses != 1:
            return None  # others see what it writes
        return found

    def activated(self, e: Any) -> Optional[_Activated]:
        e = self.strip(e)
        if not isinstance(e, Expression):
            return None
        bounds = _clamp_of(e)
        if bounds:
            inside = self.activated(bounds[2])
            if inside is None or inside.changes or inside.scale != 1:
                return None
            inside.changes = {"clamp_after": True, "gate_lo": bounds[0], "gate_hi": bounds[1]}
            return inside
        found = self._named(e)
        if not found:
            return None
        name, child, argument = found
        constant, inner = self.scaled(argument)
        return self._with_constant(name, child, constant, inner)

    def _with_constant(self, name: str, child: Optional[str], constant: float, inner: Any) -> Optional[_Activated]:
        """act(constant * inner)."""
        changes: dict[str, Any] = {}
        scale = 1.0
        kind = Activation.named(name).kind
        if constant != 1 and kind == "silu":
            changes["alpha"] = Activation.named(name).alpha * constant
            scale = constant
        elif constant != 1 and kind in _POSITIVE and constant > 0:
            scale = constant ** (2 if kind == "relu2" else 1)
        elif constant != 1:
            return None
        bounds = _clamp_of(inner)
        if bounds:
            if constant != 1:
                return None
            changes.update(gate_lo=bounds[0], gate_hi=bounds[1])
            inner = bounds[2]
        gate = self.product(inner)
        return _Activated(name, child, changes, scale, gate) if gate else None

    def _collapse(self, parts: list[Any]) -> tuple[float, list[Any]]:
        """g * sigmoid(c g) is a SiLU, relu(g) * relu(g) is relu2: (constant, parts with an _Activated in their place)."""
        for i, part in enumerate(parts):
            if part.op == "sigmoid" and len(part.args) == 1:
                alpha, inner = self.scaled(part.args[0])
                for j, other in enumerate(parts):
                    if i != j and same(other, inner):
                        activated = self._gate_of_silu(alpha, inner)
                        if activated:
                            return 1.0, [p for k, p in enumerate(parts) if k not in (i, j)] + [activated]
            found = self._named(part)
            if found and found[0] == "relu":
                for j in range(i + 1, len(parts)):
                    if same(part, parts[j]) and not part.options.get("inplace"):
                        constant, inner = self.scaled(found[2])
                        squared = self._with_constant("relu2", None, constant, inner)
                        if squared and not squared.changes and found[1] is None:
                            return 1.0, [p for k, p in enumerate(parts) if k not in (i, j)] + [squared]
        return 1.0, parts

    def _gate_of_silu(self, alpha: float, inner: Any) -> Optional[_Activated]:
        """inner * sigmoid(alpha * inner); inner may be clamped."""
        changes: dict[str, Any] = {} if alpha == 1 else {"alpha": alpha}
        bounds = _clamp_of(inner)
        if bounds:
            changes.update(gate_lo=bounds[0], gate_hi=bounds[1])
            inner = bounds[2]
        gate = self.product(inner)
        return _Activated("silu", None, changes, 1.0, gate) if gate else None

    def _up(self, e: Any) -> Optional[tuple[_Product, dict[str, Any]]]:
        """The side without activation: it may be clamped and have a constant added."""
        changes: dict[str, Any] = {}
        e = self.strip(e)
        if isinstance(e, Expression) and e.op == "+" and len(e.args) == 2 and not e.options:
            numbers = [a for a in e.args if _is_number(a)]
            others = [a for a in e.args if isinstance(a, Expression)]
            if len(numbers) == len(others) == 1:
                changes["up_offset"] = float(numbers[0])
                e = self.strip(others[0])
        bounds = _clamp_of(e)
        if bounds:
            changes.update(up_lo=bounds[0], up_hi=bounds[1])
            e = bounds[2]
        up = self.product(e)
        return (up, changes) if up else None

    # ---- blocks ----

    def hidden(self, e: Any) -> Optional[tuple[Recipe, Expression, float]]:
        """(recipe without its down, x, constant) of h."""
        constant, parts = self.factors(e)
        more, items = self._collapse(parts)
        constant *= more
        if len(items) == 1:
            only = items[0] if isinstance(items[0], _Activated) else self.activated(items[0])
            if only is None or only.gate.part != (0, only.gate.width, 1):
                return None
            activation = _spec(only, {})
            recipe = Recipe("ungated", None, only.gate.child, "", activation, only.child, act_name=_base(only))
            return recipe, only.gate.x, constant * only.scale
        if len(items) != 2:
            return None
        for gated, other in (items, items[::-1]):
            active = gated if isinstance(gated, _Activated) else self.activated(gated)
            up = None if isinstance(other, _Activated) else self._up(other)
            if active and up:
                return _gated(active, up[0], up[1], constant * active.scale)
        return self._bilinear(items, constant)

    def _bilinear(self, items: list[Any], constant: float) -> Optional[tuple[Recipe, Expression, float]]:
        if any(isinstance(item, _Activated) for item in items):
            return None
        first, second = (self.product(item) for item in items)
        if first is None or second is None:
            return None
        if first.child == second.child and first.part > second.part:
            first, second = second, first
        return _gated(_Activated("identity", None, {}, 1.0, first), second, {}, constant)

    def block(self, down: Expression) -> Optional[Found]:
        """The block whose last product this is."""
        self.inner.clear()
        found = self.hidden(down.args[1])
        if not found or down.args[0] in found[0].linears:
            return None
        recipe, x, scale = found
        recipe = dataclasses.replace(recipe, down=down.args[0], scale=scale)
        return Found(recipe, x, down, tuple(dict.fromkeys(self.inner)), scale != 1)


def whole_block(module: nn.Module, e: Any) -> Optional[Found]:
    """The block that an expression is, with what is done to y at the end."""
    reader, scale, dropout, more = Reader(module), 1.0, None, []
    flat = isinstance(e, Expression) and e.lead == "rows"
    while isinstance(e, Expression):
        if e.op == "lead":
            e = e.args[0]
        elif e.op in ("drop", "dropout"):
            name, e = dropout_of(e)
            if name == "":
                raise NotProven("its dropout does not follow an attribute of the module and its training mode")
            if name is not None and dropout is None:
                dropout = name
            elif name is not None:
                more.append(name)
        elif e.op == "neg":
            scale, e = -scale, e.args[0]
        elif e.op in ("*", "/") and (numbers := [a for a in e.args if _is_number(a)]):
            constant, rest = reader.factors(e)
            if len(numbers) != 1 or len(rest) != 1:
                return None
            scale, e = scale * constant, rest[0]
        else:
            break
    if not isinstance(e, Expression) or e.op != "product" or e.lead is None:
        return None
    found = reader.block(e)
    if found is None or found.x.op != "x":
        return None
    recipe = dataclasses.replace(found.recipe, dropout=dropout, flat=flat, scale=found.recipe.scale * scale)
    return dataclasses.replace(found, recipe=recipe, inner=(*found.inner, *more))


def dropout_of(e: Expression) -> tuple[Optional[str], Any]:
    """(what drops, from what): a child, an attribute, "" for a fixed probability, None where nothing is ever dropped."""
    if e.op == "drop":
        return e.args[0], e.args[1]
    p = e.options.get("p", e.args[1] if len(e.args) > 1 else 0.5)
    training = e.options.get("training", e.args[2] if len(e.args) > 2 else True)
    if training is not e.tape.training:
        raise NotProven("its dropout does not follow an attribute of the module and its training mode")
    if isinstance(p, NamedFloat):
        return p.name, e.args[0]
    if not _is_number(p):
        raise NotProven("its dropout does not follow an attribute of the module and its training mode")
    return ("" if p else None), e.args[0]


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def same(a: Any, b: Any) -> bool:
    """Whether two expressions compute the same."""
    if isinstance(a, Expression) and isinstance(b, Expression):
        return a is b or (
            a.op == b.op
            and a.options == b.options
            and a.op not in ("drop", "dropout")
            and len(a.args) == len(b.args)
            and all(same(x, y) for x, y in zip(a.args, b.args))
        )
    return type(a) is type(b) and not isinstance(a, Expression) and bool(a == b)


def _clamp_of(e: Any) -> Optional[tuple[float, float, Any]]:
    """(low, high, what is clamped)."""
    if not isinstance(e, Expression) or e.op not in ("clamp", "clip", "clamp_min", "clamp_max"):
        return None
    names = {"clamp_min": ("min",), "clamp_max": ("max",)}.get(e.op, ("min", "max"))
    given = {**dict(zip(names, e.args[1:])), **e.options}
    low, high = given.get("min"), given.get("max")
    if not set(given) <= {"min", "max"} or not all(v is None or _is_number(v) for v in (low, high)):
        return None
    return (-math.inf if low is None else float(low)), (math.inf if high is None else float(high)), e.args[0]


def _base(active: _Activated) -> Optional[str]:
    return active.name if active.child is not None and active.changes else None


def _spec(active: _Activated, up: dict[str, Any]) -> str:
    changes = {**active.changes, **up}
    if not changes:
        return active.name
    try:
        return str(dataclasses.replace(Activation.named(active.name), **changes))
    except ValueError as error:
        raise NotProven(f"its constants cannot be folded into the activation: {error}") from None


def _gated(
    active: _Activated, up: _Product, changes: dict[str, Any], constant: float
) -> Optional[tuple[Recipe, Expression, float]]:
    gate = active.gate
    if not same(gate.x, up.x) or "clamp_after" in active.changes and {"gate_lo"} <= set(changes):
        return None
    activation, name = _spec(active, changes), _base(active)
    if name is None and active.child is not None and changes:
        name = active.name
    whole_gate, whole_up = gate.part == (0, gate.width, 1), up.part == (0, up.width, 1)
    if gate.child != up.child:
        if not (whole_gate and whole_up):
            return None
        recipe = Recipe("separate", gate.child, up.child, "", activation, active.child, act_name=name)
        return recipe, gate.x, constant
    half = gate.width // 2
    layouts = {
        ((0, half, 1), (half, 2 * half, 1)): "gate_up",
        ((half, 2 * half, 1), (0, half, 1)): "up_gate",
        ((0, 2 * half, 2), (1, 2 * half, 2)): "interleaved",
    }
    layout = layouts.get((gate.part, up.part)) if gate.width == 2 * half else None
    if layout is None:
        return None
    return Recipe(layout, gate.child, None, "", activation, active.child, act_name=name), gate.x, constant
