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

from .._c.activation import Activation
from . import adapters, sharded
from .adapters import base_of, is_adapter
from .function import ffn
from .lora import Update, lora_ffn
from .plan import DTYPES, Parts
from .sharded import is_sharded

PLAIN = (torch.Tensor, nn.Parameter)
# What an operator can take: tensors, and what torch.compile and torch.export put in their place.
TENSORS = (torch.Tensor, nn.Parameter, FakeTensor, FunctionalTensor)  # torch.compile of 2.7 knows no frozenset


@dataclasses.dataclass(frozen=True)
class Recipe:
    """Names of the children, dotted where they stand deeper. Packed layouts have both halves in gate and up is None; ungated
    ones have no gate. activation is a name or spec of the library."""

    layout: str
    gate: Optional[str]
    up: Optional[str]
    down: str
    activation: str
    act: Optional[str] = None  # the child that is the activation
    dropout: Optional[str] = None  # what drops outputs in training: a child, or an attribute that is a probability
    act_name: Optional[str] = None  # what the child act computes, where constants are folded into activation
    scale: float = 1.0  # of y
    flat: bool = False  # y is [rows, d_out] whatever x is
    linears: tuple[str, ...] = dataclasses.field(init=False)
    function: Activation = dataclasses.field(init=False)
    is_scaled: bool = dataclasses.field(init=False)  # torch.compile starts again where a float is looked at

    def __post_init__(self) -> None:
        object.__setattr__(self, "is_scaled", self.scale != 1)
        names = (self.gate, self.up, self.down)
        object.__setattr__(self, "linears", tuple(name for name in names if name is not None))
        object.__setattr__(self, "function", Activation.named(self.activation))


def child_at(module: nn.Module, path: str) -> Any:
    """The module below another; None where there is none."""
    found: Any = module._modules.get(path)
    if found is None and "." in path:
        found = module
        for name in path.split("."):
            found = found._modules.get(name) if found is not None else None
    return found


def base_at(module: nn.Module, path: str) -> Any:
    """The layer whose weight a product takes: the child there, or what its adapters stand on."""
    return base_of(child_at(module, path))


# Classes whose product is taken over, with the forward that is known; transformers' Conv1D, which stores its weight as
# [in, out], joins when it is met: importing transformers is left to those who use it.
_LINEARS: dict[type[nn.Module], Any] = {nn.Linear: nn.Linear.forward}


def is_linear(cls: Any) -> bool:
    if cls in _LINEARS:
        return True
    if cls.__module__ != "transformers.pytorch_utils" or cls.__qualname__ != "Conv1D":
        return False
    _LINEARS[cls] = cls.forward
    return True


def add_linear(cls: type[nn.Linear]) -> None:
    """From now on this class is known to compute what nn.Linear does, with the forward that it has."""
    _LINEARS[cls] = cls.forward


def is_transposed(cls: Any) -> bool:
    """Whether a known class stores its weight as [inputs, outputs]."""
    return not issubclass(cls, nn.Linear)


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


# The forward that such a class has when it is met first, the usual ones here.
_FORWARDS: dict[Any, Any] = {cls: getattr(cls, "forward") for cls in (nn.GELU, *_ACTIVATIONS)}  # noqa: B009


def name_of(act: Any) -> Optional[str]:
    """The library's name of an activation module; None where its class has another forward by now."""
    cls: Any = getattr(type(act), "_swiglu_original", type(act))
    if _FORWARDS.get(cls, cls.forward) is not cls.forward:
        return None
    name = _name_of(cls, act)
    if name is not None and cls not in _FORWARDS:
        _FORWARDS[cls] = cls.forward
    return name


def _name_of(cls: Any, act: Any) -> Optional[str]:
    if cls is nn.GELU:
        return "gelu_tanh" if act.approximate == "tanh" else "gelu"
    if cls.__module__ == "transformers.activations":
        if cls.__qualname__ == "XIELUActivation":
            return _xielu(act)
        return _HF_ACTIVATIONS.get(cls.__qualname__)
    if cls.__qualname__ == "BloomGelu" and cls.__module__ == "transformers.models.bloom.modeling_bloom":
        return "gelu_tanh"
    return _ACTIVATIONS.get(cls)


def _xielu(act: Any) -> Optional[str]:
    """With the values that it has learned by now."""
    if not isinstance(act.alpha_p, torch.Tensor) or act.alpha_p.is_meta or torch.compiler.is_compiling():
        return None
    with torch.no_grad():
        alpha_p = nn.functional.softplus(act.alpha_p)
        alpha_n = act.beta + nn.functional.softplus(act.alpha_n)
        return "xielu(param={!r}:{!r}:{!r}:{!r})".format(*(v.item() for v in (alpha_p, alpha_n, act.beta, act.eps)))


def parts_of(module: nn.Module, recipe: Recipe) -> Parts:
    """Weights of gate, up and down, [outputs, inputs] (Conv1D's as a transposed view), and then their biases."""
    weights: list[Optional[torch.Tensor]] = []
    biases: list[Optional[torch.Tensor]] = []
    for name in (recipe.gate, recipe.up, recipe.down):
        if name is None:
            weights.append(None)
            biases.append(None)
            continue
        child = base_at(module, name)
        weight = child._parameters["weight"]
        weights.append(weight.t() if is_transposed(type(child)) else weight)
        biases.append(child._parameters["bias"])
    return (*weights, *biases)  # type: ignore[return-value] # six of them


def tensors(module: nn.Module, recipe: Recipe) -> list[torch.Tensor]:
    """Every parameter of the block, without those of adapters."""
    children = [base_at(module, name) for name in recipe.linears]
    return [t for child in children for t in child._parameters.values() if t is not None]


def updates_of_block(module: nn.Module, recipe: Recipe) -> list[list[Update]]:
    """What active adapters add to gate, up and down now."""
    names = (recipe.gate, recipe.up, recipe.down)
    return [[] if name is None else adapters.updates_of(child_at(module, name)) for name in names]


def has_foreign_forward(module: nn.Module) -> bool:
    """A forward on the instance that is not its class's own (accelerate leaves that one when it removes a hook)."""
    own = module.__dict__.get("forward")
    return own is not None and getattr(own, "__func__", None) is not type(module).forward


_CALL, _CALL_IMPL = nn.Module.__call__, nn.Module._call_impl


def has_own_call(module: nn.Module) -> bool:
    """Whether calling it is not what calling a module is: by its class, its instance, or all modules' (fx traces so, and
    torch.export does too, which sees operators)."""
    cls: Any = type(module)
    if cls.__call__ is not _CALL and not (cls.__call__ is nn.Module.__call__ and torch.compiler.is_compiling()):
        return True
    return cls._call_impl is not _CALL_IMPL or "_call_impl" in module.__dict__


def hooked(child: Any) -> bool:
    """Whether calling it does more than its forward."""
    return bool(
        child._forward_hooks
        or child._forward_pre_hooks
        or child._backward_hooks
        or child._backward_pre_hooks
        or has_own_call(child)
        or ("forward" in child.__dict__ and has_foreign_forward(child))
    )


def _obstacle_of_adapter(child: Any, tensor_classes: tuple[type, ...]) -> Optional[str]:
    if tensor_classes is not TENSORS:
        return "an adapter needs the weights beside it"
    if torch.compiler.is_compiling():
        return "torch.compile takes its adapters one by one"
    return "it has hooks" if hooked(child) else adapters.obstacle(child)


def is_adapted(module: nn.Module, recipe: Recipe) -> bool:
    """Whether adapters are attached to one of the children, active or not."""
    return any(is_adapter(type(child_at(module, name))) for name in recipe.linears)


def global_hooks() -> Optional[str]:
    """Said where hooks of all modules are registered."""
    if (
        _hooks._global_forward_hooks
        or _hooks._global_forward_pre_hooks
        or _hooks._global_backward_hooks
        or _hooks._global_backward_pre_hooks
    ):
        return "global module hooks are registered"
    return None


def linear_obstacle(name: str, child: Any, tensor_classes: tuple[type, ...] = TENSORS) -> Optional[str]:
    """Why a child is more than a product with its weight; None where it is that."""
    cls: Any = type(child)
    cls = getattr(cls, "_swiglu_original", cls)
    if not is_linear(cls):
        return f"{name} is a {cls.__name__} of {cls.__module__}, not a plain nn.Linear"
    if cls.forward is not _LINEARS[cls]:
        return f"the forward of {cls.__name__} is replaced"
    if hooked(child):
        return f"{name} has hooks"
    parameters = child._parameters
    if "weight" not in parameters or "bias" not in parameters:
        return f"{name} computes its weight"
    for key, tensor in parameters.items():
        if tensor is not None and type(tensor) not in tensor_classes:
            return f"{name}.{key} is a {type(tensor).__name__}"
    return None


def obstacle(
    module: nn.Module, recipe: Recipe, tensor_classes: tuple[type, ...] = TENSORS, now: bool = True
) -> Optional[str]:
    """Why the children must be called one by one; None where one evaluation of the whole block is the same. now False: what
    adapters add to a child at this time does not count."""
    reason = global_hooks()
    if reason is not None:
        return reason
    shards = _shards(module, recipe)
    if shards:
        return _obstacle_of_shards(shards, recipe) or _obstacle_of_activation(module, recipe)
    for name in recipe.linears:
        child: Any = child_at(module, name)
        if is_adapter(type(child)):
            reason = _obstacle_of_adapter(child, tensor_classes) if now else None
            if reason is not None:
                return f"{name}: {reason}"
            child = base_of(child)
        reason = linear_obstacle(name, child, tensor_classes)
        if reason is not None:
            return reason
    return _obstacle_of_activation(module, recipe)


def _shards(module: nn.Module, recipe: Recipe) -> list[Any]:
    """The children, where one of them is sharded over ranks."""
    children = [child_at(module, name) for name in recipe.linears]
    return children if any(child is not None and is_sharded(child) for child in children) else []


def _obstacle_of_shards(children: list[Any], recipe: Recipe) -> Optional[str]:
    if torch.compiler.is_compiling():
        return "torch.compile takes sharded products one by one"
    if any(type(child) is not nn.Linear or nn.Linear.forward is not _LINEARS[nn.Linear] for child in children):
        return "sharded weights are not those of plain nn.Linear"
    return sharded.obstacle(children, recipe.layout)


def _obstacle_of_activation(module: nn.Module, recipe: Recipe) -> Optional[str]:
    if recipe.act is not None:
        act = child_at(module, recipe.act)
        if name_of(act) != (recipe.act_name or recipe.activation):
            return f"{recipe.act} is another activation now"
        if hooked(act):
            return f"{recipe.act} has hooks"
        if act._parameters and torch.is_grad_enabled() and any(p.requires_grad for p in act._parameters.values()):
            return f"parameters of {recipe.act} are trained"
    return None


# A packed copy of such a tensor could go stale unseen.
UNVERSIONED = "the weights are inference tensors, which have no version counter (made under torch.inference_mode())"


def obstacle_of_input(x: Any, module: nn.Module, recipe: Recipe, freed: bool = False) -> Optional[str]:
    """Why this x goes through the children; None where it need not."""
    if is_adapted(module, recipe):
        if type(x) not in PLAIN or not x.is_cpu:
            where = f" on {x.device}" if isinstance(x, torch.Tensor) else ""
            return f"x is a {type(x).__name__}{where}, and there are adapters"
        if torch.is_grad_enabled() and any(p is not None and p.requires_grad for p in parts_of(module, recipe)[:3]):
            if any(updates_of_block(module, recipe)):
                return "base weights are trained beside adapters"
    if type(x).__name__ == "AsyncCollectiveTensor" and _shards(module, recipe):
        x = x.elem  # what a plan's last sum gives; operators wait for it
    return input_obstacle(x, base_at(module, recipe.down)._parameters["weight"], freed)


def input_obstacle(x: Any, weight: Any, freed: bool = False) -> Optional[str]:
    """The same by one weight of the block."""
    if type(x) not in TENSORS:
        return f"x is a {type(x).__name__}"
    if torch.compiler.is_exporting() and torch.onnx.is_in_onnx_export():
        return "inside torch.onnx.export, which knows no operator of swiglu"
    if not (x.is_cpu or (x.is_meta and weight.is_meta)):
        return f"x is on {x.device}"
    if not (weight.is_cpu or freed or x.is_meta):
        return f"the weights are on {weight.device}"
    if weight.dtype not in DTYPES:
        return f"the weights are {weight.dtype}"
    if x.dtype is not weight.dtype and not torch.is_autocast_enabled("cpu"):
        return f"x is {x.dtype}, the weights are {weight.dtype}"
    if forward_ad._current_level >= 0:
        return "forward-mode gradients are wanted"
    if not torch.compiler.is_compiling():  # a compiled call of such weights reads them as they are
        if weight.is_inference():
            return UNVERSIONED
        if torch._C._functorch.peek_interpreter_stack() is not None:
            return "inside a transform of torch.func"
        if torch._C._get_tracing_state() is not None:
            return "inside torch.jit.trace"
    return None


def check_meta(x: Any, module: nn.Module, recipe: Recipe) -> None:
    """Raises where one of x and the weights has values and the other none: PyTorch's products without a bias return memory
    that nothing has written then."""
    weight = base_at(module, recipe.down)._parameters["weight"]
    if isinstance(x, torch.Tensor) and x.is_meta != weight.is_meta:
        raise ValueError(f"x is on {x.device}, {recipe.down}.weight is on {weight.device}")


def check_input(x: Any, module: nn.Module, recipe: Recipe) -> None:
    """Raises for an x that plain children could not take either; PyTorch's own errors speak of m1 and mat2."""
    if not isinstance(x, torch.Tensor):
        raise TypeError(f"x must be a torch.Tensor, not {type(x).__name__}")
    check_meta(x, module, recipe)
    weight = base_at(module, recipe.down)._parameters["weight"]
    if x.dtype != weight.dtype and not (x.is_meta or torch.is_autocast_enabled(x.device.type)):
        raise TypeError(f"x is {x.dtype}, {recipe.down}.weight is {weight.dtype}")


def evaluate(
    module: nn.Module, recipe: Recipe, x: torch.Tensor, policy: str = "recompute", compute: str = "auto"
) -> torch.Tensor:
    """The block of x, once nothing is in the way."""
    parts, updates = parts_of(module, recipe), updates_of_block(module, recipe)
    options: dict[str, Any] = {
        "activation": recipe.activation,
        "layout": recipe.layout,
        "policy": policy,
        "compute": compute,
        "packed": not module.training,
    }
    shards = _shards(module, recipe)
    if shards:
        y = sharded.evaluate(shards, parts, x, lambda rows, local: ffn(rows, *local, **options))
    else:
        y = lora_ffn(x, parts, updates, **options) if any(updates) else ffn(x, *parts, **options)
    return finish(module, recipe, y)


def finish(module: nn.Module, recipe: Recipe, y: torch.Tensor) -> torch.Tensor:
    """What the module does to y at the end. A child is called whatever its mode is, and whatever it is by now."""
    if recipe.is_scaled:
        y = y * recipe.scale
    if recipe.flat:
        y = y.reshape(-1, y.shape[-1])
    if recipe.dropout is None:
        return y
    child = child_at(module, recipe.dropout)
    if child is not None:
        return child(y)  # type: ignore[no-any-return]
    where, _, name = recipe.dropout.rpartition(".")
    owner = child_at(module, where) if where else module
    return nn.functional.dropout(y, getattr(owner, name), owner.training)
