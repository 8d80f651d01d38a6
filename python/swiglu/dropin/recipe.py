# SPDX-License-Identifier: Apache-2.0
"""A module seen as one block: which children are gate, up and down, and whether they may be bypassed right now."""

from __future__ import annotations

import dataclasses
from typing import Any, Optional

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor
from torch._subclasses.functional_tensor import FunctionalTensor
from torch.autograd import forward_ad
from torch.nn.modules import module as _hooks

from ..torch import ffn
from .trace import Expression, NamedFloat, NotProven, formula

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
# What an operator can take: tensors, and what torch.compile and torch.export put in their place.
TENSORS = frozenset({torch.Tensor, nn.Parameter, FakeTensor, FunctionalTensor})


@dataclasses.dataclass(frozen=True)
class Recipe:
    """Names of the children. Packed layouts have both halves in gate and up is None; ungated ones have no gate."""

    layout: str
    gate: Optional[str]
    up: Optional[str]
    down: str
    activation: str
    act: Optional[str] = None  # the child that is the activation
    dropout: Optional[str] = None  # what drops outputs in training: a child, or an attribute that is a probability
    linears: tuple[str, ...] = dataclasses.field(init=False)

    def __post_init__(self) -> None:
        names = (self.gate, self.up, self.down)
        object.__setattr__(self, "linears", tuple(name for name in names if name is not None))


# Classes whose product is taken over, with the forward that is known; transformers' Conv1D, which stores its weight as
# [in, out], joins when it is met: importing transformers is left to those who use it.
_LINEARS: dict[type[nn.Module], Any] = {nn.Linear: nn.Linear.forward}


def _is_linear(cls: Any) -> bool:
    if cls in _LINEARS:
        return True
    if cls.__module__ != "transformers.pytorch_utils" or cls.__qualname__ != "Conv1D":
        return False
    _LINEARS[cls] = cls.forward
    return True


# Activation modules that compute what a name of the library says, up to rounding.
_ACTIVATIONS: dict[type[nn.Module], str] = {nn.SiLU: "silu", nn.ReLU: "relu", nn.Sigmoid: "sigmoid"}
_HF_ACTIVATIONS = {
    "SiLUActivation": "silu",
    "GELUActivation": "gelu",
    "GELUTanh": "gelu_tanh",
    "NewGELUActivation": "gelu_tanh",
    "FastGELUActivation": "gelu_tanh",
    "AccurateGELUActivation": "gelu_tanh",
    "QuickGELUActivation": "quick_gelu",
    "ReLUSquaredActivation": "relu2",
}
_FUNCTIONS = {"silu": "silu", "relu": "relu", "sigmoid": "sigmoid"}


def _name_of(act: Any) -> Optional[str]:
    """The library's name of an activation module."""
    cls = type(act)
    if cls is nn.GELU:
        return "gelu_tanh" if act.approximate == "tanh" else "gelu"
    if cls.__module__ == "transformers.activations":
        return _HF_ACTIVATIONS.get(cls.__qualname__)
    return _ACTIVATIONS.get(cls)


def _activation_of(expression: Expression, module: nn.Module) -> Optional[tuple[str, Optional[str], Any]]:
    """(activation, child, its argument), or None where expression is no activation of something."""
    if expression.op == "child":
        name, argument = expression.args
        activation = _name_of(module._modules[name])
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
        if not _is_linear(type(child)) and not _name_of(child) and type(child) is not nn.Dropout
    ]
    where = f" ({', '.join(strangers)})" if strangers else ""
    raise NotProven(f"it computes {whole}{where}, which is not a block that swiglu evaluates")


def prove(module: nn.Module) -> Recipe:
    """The recipe of a module whose class, children and tensors leave no doubt. Raises NotProven with the reason."""
    if _has_foreign_forward(module):
        raise NotProven("its forward is replaced on the instance (a hook of accelerate, or another patch)")
    recipe = _read(module, False)
    if recipe != _read(module, True):
        raise NotProven("it computes something else in training than in evaluation")
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
    return recipe


Parts = tuple[Optional[torch.Tensor], ...]


def parts_of(module: nn.Module, recipe: Recipe) -> Parts:
    """Weights of gate, up and down, [outputs, inputs] (Conv1D's as a transposed view), and then their biases."""
    weights: list[Optional[torch.Tensor]] = []
    biases: list[Optional[torch.Tensor]] = []
    for name in (recipe.gate, recipe.up, recipe.down):
        if name is None:
            weights.append(None)
            biases.append(None)
            continue
        child: Any = module._modules[name]
        weight = child._parameters["weight"]
        weights.append(weight if type(child) is nn.Linear else weight.t())
        biases.append(child._parameters["bias"])
    return (*weights, *biases)


def shape_of(module: nn.Module, name: Optional[str]) -> tuple[int, int]:
    """(outputs, inputs) of a child, whether its weight is there or freed."""
    child: Any = module._modules[name or ""]
    rows, cols = child.weight.shape
    return (rows, cols) if type(child) is nn.Linear else (cols, rows)


def tensors(module: nn.Module, recipe: Recipe) -> list[torch.Tensor]:
    """Every parameter of the block."""
    children: list[Any] = [module._modules[name] for name in recipe.linears]
    return [t for child in children for t in child._parameters.values() if t is not None]


def _has_foreign_forward(module: nn.Module) -> bool:
    """A forward on the instance that is not its class's own (accelerate leaves that one when it removes a hook)."""
    own = module.__dict__.get("forward")
    return own is not None and getattr(own, "__func__", None) is not type(module).forward


def _hooked(child: Any) -> bool:
    return bool(
        child._forward_hooks
        or child._forward_pre_hooks
        or child._backward_hooks
        or child._backward_pre_hooks
        or ("forward" in child.__dict__ and _has_foreign_forward(child))
    )


def obstacle(module: nn.Module, recipe: Recipe, tensor_classes: frozenset[type] = TENSORS) -> Optional[str]:
    """Why the children must be called one by one now; None where one evaluation of the whole block is the same."""
    if (
        _hooks._global_forward_hooks
        or _hooks._global_forward_pre_hooks
        or _hooks._global_backward_hooks
        or _hooks._global_backward_pre_hooks
    ):
        return "global module hooks are registered"
    children = module._modules
    for name in recipe.linears:
        child: Any = children[name]
        cls = type(child)
        if not _is_linear(cls):
            return f"{name} is a {cls.__name__}, not a plain nn.Linear"
        if cls.forward is not _LINEARS[cls]:
            return f"the forward of {cls.__name__} is replaced"
        if _hooked(child):
            return f"{name} has hooks"
        parameters = child._parameters
        if "weight" not in parameters or "bias" not in parameters:
            return f"{name} computes its weight"
        for key, tensor in parameters.items():
            if tensor is not None and type(tensor) not in tensor_classes:
                return f"{name}.{key} is a {type(tensor).__name__}"
    if recipe.act is not None:
        act = children[recipe.act]
        if _hooked(act):
            return f"{recipe.act} has hooks"
        if _name_of(act) != recipe.activation:
            return f"{recipe.act} is another activation now"
    return None


def obstacle_of_input(x: Any, module: nn.Module, recipe: Recipe, freed: bool = False) -> Optional[str]:
    """Why this x goes through the children; None where it need not."""
    if type(x) not in TENSORS:
        return f"x is a {type(x).__name__}"
    child: Any = module._modules[recipe.down]
    weight = child._parameters["weight"]
    if not x.is_cpu:
        return f"x is on {x.device}"
    if not weight.is_cpu and not freed:
        return f"the weights are on {weight.device}"
    if weight.dtype not in DTYPES:
        return f"the weights are {weight.dtype}"
    if x.dtype is not weight.dtype and not torch.is_autocast_enabled("cpu"):
        return f"x is {x.dtype}, the weights are {weight.dtype}"
    if forward_ad._current_level >= 0:
        return "forward-mode gradients are wanted"
    if not torch.compiler.is_compiling() and torch._C._functorch.peek_interpreter_stack() is not None:
        return "inside a transform of torch.func"
    return None


def evaluate(module: nn.Module, recipe: Recipe, x: torch.Tensor, policy: str = "recompute") -> torch.Tensor:
    """The block of x, once nothing is in the way."""
    y = ffn(
        x,
        *parts_of(module, recipe),  # type: ignore[arg-type]
        activation=recipe.activation,
        layout=recipe.layout,
        policy=policy,
        packed=not module.training,
    )
    if recipe.dropout is None or not module.training:
        return y
    child: Any = module._modules.get(recipe.dropout)
    return nn.functional.dropout(y, getattr(module, recipe.dropout)) if child is None else child(y)
