# SPDX-License-Identifier: Apache-2.0
"""The proof that a module is a block: its formula, read with stand-ins, and its tensors."""

from __future__ import annotations

import dataclasses
from typing import Any, Optional

from torch import nn

from ..torch.plan import DTYPES
from ..torch.recipe import Recipe, has_foreign_forward, is_linear, name_of, obstacle, parts_of, tensors
from .trace import Expression, NamedFloat, NotProven, formula

_FUNCTIONS = {"silu": "silu", "relu": "relu", "sigmoid": "sigmoid"}


def _activation_of(expression: Expression, module: nn.Module) -> Optional[tuple[str, Optional[str], Any]]:
    """(activation, child, its argument), or None where expression is no activation of something."""
    if expression.op == "child":
        name, argument = expression.args
        activation = name_of(module._modules[name])
        return (activation, name, argument) if activation else None
    if len(expression.args) != 1 or not isinstance(expression.args[0], Expression):
        return None
    if expression.op == "gelu":
        form = expression.options.get("approximate", "none")
        return ("gelu_tanh" if form == "tanh" else "gelu"), None, expression.args[0]
    if expression.op in _FUNCTIONS and not expression.options.get("inplace"):
        return _FUNCTIONS[expression.op], None, expression.args[0]
    return None


def _linear_of(expression: Any, module: nn.Module) -> Optional[str]:
    """The child whose product with x this is."""
    if isinstance(expression, Expression) and expression.op == "child":
        name, argument = expression.args
        if isinstance(argument, Expression) and argument.op == "x":
            return str(name)
    return None


def _first_products(hidden: Expression, module: nn.Module) -> Optional[Recipe]:
    """The recipe of h, without its down."""
    if hidden.op != "*":
        found = _activation_of(hidden, module)
        up = _linear_of(found[2], module) if found else None
        return Recipe("ungated", None, up, "", found[0], found[1]) if found and up else None
    if len(hidden.args) != 2 or not all(isinstance(a, Expression) for a in hidden.args):
        return None
    for gated, other in (hidden.args, hidden.args[::-1]):
        found = _activation_of(gated, module)
        if not found:
            continue
        activation, act, argument = found
        gate, up = _linear_of(argument, module), _linear_of(other, module)
        if gate and up and gate != up:
            return Recipe("separate", gate, up, "", activation, act)
        if argument.op == "piece" and other.op == "piece":
            packed = _linear_of(argument.args[1], module)
            if packed and packed == _linear_of(other.args[1], module) and argument.args[0] != other.args[0]:
                layout = "gate_up" if argument.args[0] == 0 else "up_gate"
                return Recipe(layout, packed, None, "", activation, act)
    return None


def _dropout_of(expression: Expression, module: nn.Module, training: bool) -> tuple[Expression, Optional[str]]:
    """(what is dropped from, what drops)."""
    if expression.op == "child" and type(module._modules[expression.args[0]]) is nn.Dropout:
        return expression.args[1], expression.args[0]
    if expression.op == "dropout":
        p = expression.options.get("p")
        if not isinstance(p, NamedFloat) or expression.options.get("training") is not training:
            raise NotProven("its dropout does not follow an attribute of the module and its training mode")
        return expression.args[0], p.name
    return expression, None


def _read(module: nn.Module, training: bool) -> Recipe:
    whole = formula(module, training)
    expression, dropout = _dropout_of(whole, module, training)
    if isinstance(expression, Expression) and expression.op == "child" and isinstance(expression.args[1], Expression):
        recipe = _first_products(expression.args[1], module)
        if recipe and expression.args[0] not in recipe.linears:
            return dataclasses.replace(recipe, down=expression.args[0], dropout=dropout)
    strangers = [
        f"{name} is a {type(child).__name__}"
        for name, child in module._modules.items()
        if not is_linear(type(child)) and not name_of(child) and type(child) is not nn.Dropout
    ]
    where = f" ({', '.join(strangers)})" if strangers else ""
    raise NotProven(f"it computes {whole}{where}, which is not a block that swiglu evaluates")


def prove(module: nn.Module) -> Recipe:
    """The recipe of a module whose class, children and tensors leave no doubt. Raises NotProven with the reason."""
    if has_foreign_forward(module):
        raise NotProven("its forward is replaced on the instance (a hook of accelerate, or another patch)")
    recipe = _read(module, False)
    if recipe != _read(module, True):
        raise NotProven("it computes something else in training than in evaluation")
    check_tensors(module, recipe)
    return recipe


def check_tensors(module: nn.Module, recipe: Recipe) -> None:
    """Raises NotProven unless the children are plain and their tensors are those of a block."""
    reason = obstacle(module, recipe)
    if reason:
        raise NotProven(reason)
    gate, up, down = parts_of(module, recipe)[:3]
    first = gate if gate is not None else up
    assert first is not None and down is not None
    dtypes = {str(t.dtype).removeprefix("torch.") for t in tensors(module, recipe)}
    if len(dtypes) > 1 or first.dtype not in DTYPES:
        raise NotProven(f"its weights are {' and '.join(sorted(dtypes))}; one of float32, bfloat16, float16 is needed")
    if first.dim() != 2 or down.dim() != 2 or (up is not None and up.shape != first.shape):
        raise NotProven("its weights do not have the shapes of a block")
    if first.shape[0] != down.shape[1] * (2 if up is None else 1):
        raise NotProven(f"its first product has {first.shape[0]} outputs and its last {down.shape[1]} inputs")
    if any(t.device.type != "cpu" for t in tensors(module, recipe)):
        raise NotProven("its weights are not on the CPU")


def shape_of(module: nn.Module, name: Optional[str]) -> tuple[int, int]:
    """(outputs, inputs) of a child, whether its weight is there or freed."""
    child: Any = module._modules[name or ""]
    rows, cols = child.weight.shape
    return (rows, cols) if type(child) is nn.Linear else (cols, rows)
