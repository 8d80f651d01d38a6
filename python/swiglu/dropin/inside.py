# SPDX-License-Identifier: Apache-2.0
"""Blocks whose two products are children of a larger module, with attention and norms in the same forward.

The larger module stays as it is. Its first linear returns a tensor that is not computed yet; the activation and the last
linear know such a tensor, and the last one evaluates the block. Whatever else is done with it computes it, as if nothing
had been replaced: that is right in every forward, and the trace only decides where it is worth while.
"""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Callable
from typing import Any, Optional

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..torch import PackedWeights
from ..torch.function import ffn
from ..torch.recipe import child_at, has_foreign_forward, hooked, input_obstacle, is_transposed, linear_obstacle, name_of
from ..torch.recipe import global_hooks, is_adapted
from .classes import State, encode
from .forms import Found, Reader
from .proof import Proof, check_tensors, dtype_of
from .standin import follow, original
from .trace import Expression, NotProven, Tape

_METADATA = frozenset("dim size numel nelement element_size is_floating_point get_device ndimension __len__".split())
_ATTRIBUTES = frozenset("shape dtype device ndim is_cpu is_cuda is_meta layout itemsize".split())


def _modes() -> tuple[bool, bool, torch.dtype]:
    return torch.is_grad_enabled(), torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu")


def _version(tensor: Tensor) -> Optional[int]:
    return None if tensor.is_inference() else tensor._version


class Pending(Tensor):
    """A result that nobody has asked for yet: function applied to the inputs."""

    function: Callable[..., Tensor]
    inputs: tuple[Optional[Tensor], ...]
    first: Any  # the first linear
    state: State
    activation: Optional[str]
    modes: tuple[bool, bool, torch.dtype]
    versions: list[Optional[int]]
    result: Optional[Tensor]

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = getattr(function, "__name__", "")
        if name in _METADATA or (name == "__get__" and function.__self__.__name__ in _ATTRIBUTES):
            with torch._C.DisableTorchFunctionSubclass():
                return function(*args, **kwargs)
        first = args[0] if args else None
        if isinstance(first, Pending):
            if name == "dropout" and (kwargs.get("p") == 0 or kwargs.get("training") is False):
                return first
            found = _activation_of(name, kwargs) if len(args) == 1 else None
            if found is not None:
                return first.then(found, lambda h: function(h, **kwargs))
        reason = f"{name or function} is applied to a product inside"
        args, kwargs = torch.utils._pytree.tree_map_only(Pending, lambda p: p.value(reason), (args, kwargs))
        return function(*args, **kwargs)

    @classmethod
    def __torch_dispatch__(  # type: ignore[override] # typeshed takes it for a method
        cls, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """For what comes past __torch_function__, such as a torch.autograd.Function."""
        args, kwargs = torch.utils._pytree.tree_map_only(Pending, lambda p: p.compute(), (args, kwargs or {}))
        return function(*args, **kwargs)

    def compute(self) -> Tensor:
        """Its values, without gradients."""
        self.check_versions()
        with torch.no_grad(), torch.autocast("cpu", self.modes[2], enabled=self.modes[1]):
            result: Tensor = self.function(*(p.compute() if isinstance(p, Pending) else p for p in self.inputs))
            return result

    def then(self, name: str, function: Callable[[Tensor], Tensor]) -> Any:
        """What an activation makes of it."""
        if self.activation is not None or name != self.state.recipe.activation or self.result is not None:
            return function(self.value("another activation is applied to a product inside"))
        return _later(function, (self,), self, name)

    def value(self, reason: str) -> Tensor:
        """Computed now."""
        if self.result is None:
            self.check_versions()
            self.state.fallbacks[reason] += 1
            grad, autocast, dtype = self.modes
            with torch.set_grad_enabled(grad), torch.autocast("cpu", dtype, enabled=autocast):
                inputs = [p.value_below(reason) if isinstance(p, Pending) else p for p in self.inputs]
                self.result = self.function(*inputs)
        return self.result

    def value_below(self, reason: str) -> Tensor:
        result = self.value(reason)
        self.state.fallbacks[reason] -= 1  # one call is one fallback
        return result

    def check_versions(self) -> None:
        present = [p for p in self.inputs if p is not None and not isinstance(p, Pending)]
        if [_version(p) for p in present] != self.versions:
            raise RuntimeError(
                "swiglu: an input or a weight of a block was changed in place between its two products;"
                " swiglu.restore(model) computes them one after the other"
            )

    def obstacle(self, second: Any) -> Optional[str]:
        """Why the last linear is applied to its value; None where it evaluates the block."""
        chain: list[Pending] = [self, *(p for p in self.inputs if isinstance(p, Pending))]
        if self.activation is None or self.state is not second.__dict__.get("_swiglu"):
            return "a product inside reaches another linear"
        if any(p.result is not None for p in chain):
            return "a product inside is used twice"
        if self.modes != _modes():
            return "gradients or autocast were switched inside"
        for p in chain:
            p.check_versions()
        return linear_obstacle("the last linear", second)


def _activation_of(name: str, options: Any) -> Optional[str]:
    if options.get("inplace"):
        return None
    if name == "gelu":
        return "gelu_tanh" if options.get("approximate") == "tanh" else "gelu"
    return name if name in ("silu", "relu", "sigmoid") else None


class _Later(torch.autograd.Function):
    """Makes a Pending that gradients flow through, should it come past __torch_function__."""

    @staticmethod
    def forward(ctx: Any, make: Any, function: Any, *inputs: Any) -> Any:
        ctx.function, ctx.inputs = function, inputs
        return make()

    @staticmethod
    def backward(ctx: Any, *dy: Any) -> Any:
        inputs = [None if p is None else p.value("backward") if isinstance(p, Pending) else p for p in ctx.inputs]
        with torch.enable_grad():
            twins = [None if p is None else p.detach().requires_grad_() for p in inputs]
            y = ctx.function(*twins)
        grads = iter(torch.autograd.grad(y, [t for t in twins if t is not None], dy))
        return (None, None, *(None if t is None else next(grads) for t in twins))


def _later(function: Any, inputs: tuple[Any, ...], source: Any, activation: Optional[str]) -> Any:
    """source: the first linear with its x in inputs, or a Pending."""
    if isinstance(source, Pending):
        first, state, shape, dtype = source.first, source.state, source.shape, source.dtype
    else:
        first, state = source, source._swiglu
        weight: Any = first._parameters["weight"]
        width = weight.shape[1] if is_transposed(original(first)) else weight.shape[0]
        shape = torch.Size((*inputs[0].shape[:-1], width))
        dtype = torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else inputs[0].dtype

    def make() -> Any:
        made: Any = Tensor._make_wrapper_subclass(Pending, shape, dtype=dtype, device=torch.device("cpu"))
        made.function, made.inputs, made.first, made.state, made.activation = function, inputs, first, state, activation
        made.modes, made.result = _modes(), None
        return made

    differentiable = torch.is_grad_enabled() and any(p is not None and _needs_grad(p) for p in inputs)
    modes = _modes()
    made = _Later.apply(make, function, *inputs) if differentiable else make()  # type: ignore[no-untyped-call]
    made.modes = modes
    made.versions = [_version(p) for p in inputs if p is not None and not isinstance(p, Pending)]
    return made


def _needs_grad(tensor: Tensor) -> bool:
    with torch._C.DisableTorchFunctionSubclass():
        return tensor.requires_grad


# ---- the classes that children get ----


class Relay(PackedWeights):
    """Base of the three below."""

    _swiglu: State
    _swiglu_original: type[nn.Module]


class First(Relay):
    def forward(self, *args: Any, **kwargs: Any) -> Any:
        state = self.__dict__.get("_swiglu")
        if state is None or torch.compiler.is_compiling() or len(args) != 1 or kwargs:
            return super().forward(*args, **kwargs)
        x = args[0]
        reason = global_hooks() or linear_obstacle("the first linear", self)
        reason = reason or input_obstacle(x, self._parameters["weight"])
        if reason is None and (x.is_meta or x.dim() == 0):
            reason = "x has no rows"
        if reason is not None:
            state.fallbacks[reason] += 1
            return super().forward(x)
        forward, parameters = super().forward, self._parameters

        def product(x: Tensor, weight: Tensor, bias: Optional[Tensor]) -> Tensor:
            if weight is parameters["weight"] and bias is parameters["bias"]:
                return forward(x)  # type: ignore[no-any-return]
            return F.linear(x, weight.t() if is_transposed(original(self)) else weight, bias)

        return _later(product, (x, parameters["weight"], parameters["bias"]), self, None)


class Act(Relay):
    def forward(self, *args: Any, **kwargs: Any) -> Any:
        forward, name = super().forward, name_of(self)
        if len(args) == 1 and isinstance(args[0], Pending) and name and not (kwargs or hooked(self)):
            return args[0].then(name, forward)
        return forward(*args, **kwargs)


class Second(Relay):
    def forward(self, *args: Any, **kwargs: Any) -> Any:
        h: Any = args[0] if len(args) == 1 and not kwargs else None
        if not isinstance(h, Pending):
            return super().forward(*args, **kwargs)
        reason = h.obstacle(self)
        if reason is not None:
            return super().forward(h.value(reason))
        (product,) = h.inputs
        x, up, up_bias = product.inputs  # type: ignore[union-attr]
        down: Any = self._parameters["weight"]
        state = self._swiglu
        return ffn(
            x,
            None,
            up.t() if is_transposed(original(h.first)) else up,
            down.t() if is_transposed(self._swiglu_original) else down,
            None,
            up_bias,
            self._parameters["bias"],
            activation=state.recipe.activation,
            layout="ungated",
            policy=state.policy,
            packed=not self.training,
        )


_KINDS: dict[str, type[Relay]] = {"First": First, "Act": Act, "Second": Second}


def relay_class(kind: str, cls: type[nn.Module]) -> type[nn.Module]:
    """The same class for the same kind and original, always."""
    name = f"{kind}::{encode(cls)}"
    known = globals().get(name)
    if known is None or known._swiglu_original is not cls:
        body = {"__module__": __name__, "__qualname__": name, "__doc__": cls.__doc__, "_swiglu_original": cls}
        known = globals()[name] = type(cls.__name__, (_KINDS[kind], cls), body)
    return known


def __getattr__(name: str) -> Any:
    """Makes a class that a pickle names."""
    kind, _, rest = name.partition("::")
    package, found, qualname = rest.partition("::")
    if kind not in _KINDS or not found:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    cls: Any = importlib.import_module(package.replace(":", "."))
    for part in qualname.split(":"):
        cls = getattr(cls, part)
    return relay_class(kind, cls)


# ---- where it is worth while ----


def _single_use(found: Found) -> bool:
    """Whether nothing but the block sees what is between its products."""
    e = found.down.args[1]
    while isinstance(e, Expression) and e.op != "product":
        arguments = [a for a in e.args if isinstance(a, Expression)]
        if e.uses != 1 or len(arguments) != 1 or e.op == "lead":
            return False
        e = arguments[0]
    return isinstance(e, Expression) and e.uses == 1


def _blocks(module: nn.Module, training: bool) -> tuple[dict[str, Found], Tape]:
    _, tape = follow(module, training, dtype_of(module), whole=False)
    found: dict[str, Found] = {}
    calls: dict[str, int] = {}
    for node in list(tape.nodes):
        if node.op != "product":
            continue
        calls[node.args[0]] = calls.get(node.args[0], 0) + 1
        block = Reader(module).block(node)
        if block and block.recipe.layout == "ungated" and not block.without_bias and _single_use(block):
            found[node.args[0]] = block
    return {path: b for path, b in found.items() if calls[path] == 1 and calls[b.recipe.up or ""] == 1}, tape


def prove_inside(module: nn.Module) -> list[Proof]:
    """The blocks inside of a module. Raises NotProven with the reason where there is none."""
    if has_foreign_forward(module):
        raise NotProven("its forward is replaced on the instance (a hook of accelerate, or another patch)")
    (found, tape), (other, _) = _blocks(module, False), _blocks(module, True)
    proofs = []
    for path, block in found.items():
        if path not in other or other[path].recipe != block.recipe:
            raise NotProven("it computes something else in training than in evaluation")
        if is_adapted(module, block.recipe):
            raise NotProven("adapters are attached to a block that stands inside of a larger forward")
        check_tensors(module, block.recipe)
        if block.recipe.act is not None and child_at(module, block.recipe.act)._parameters:
            raise NotProven(f"{block.recipe.act} has parameters, and its block stands inside of a larger forward")
        proofs.append(Proof(block.recipe, block.inner))
    if not proofs:
        products = [n for n in tape.nodes if n.op == "product" and _holds_product(n.args[1])]
        why = f"it computes {products[-1]}" if products else f"its products do not follow each other{_unfollowed(tape)}"
        raise NotProven(f"{why}, which is not a block that swiglu evaluates")
    return proofs


def _unfollowed(tape: Tape) -> str:
    return "".join(f" (in {path}, {why})" for path, why in list(tape.reasons.items())[:1])


def _holds_product(e: Any) -> bool:
    if not isinstance(e, Expression):
        return False
    return e.op == "product" or any(_holds_product(a) for a in e.args)


def replace_inside(module: nn.Module, proof: Proof, state: State) -> None:
    """Gives the children their classes."""
    recipe = proof.recipe
    for kind, path in (("First", recipe.up), ("Act", recipe.act), ("Second", recipe.down)):
        if path is None:
            continue
        child = child_at(module, path)
        if kind != "Act":
            child.__dict__["_swiglu"] = state
        child.__class__ = relay_class(kind, original(child))


def state_inside(module: nn.Module, proof: Proof, policy: Optional[str]) -> State:
    """The state of a block that was replaced before, or a new one."""
    known: Optional[State] = child_at(module, proof.recipe.down).__dict__.get("_swiglu")
    if known is not None:
        return dataclasses.replace(known, policy=policy or known.policy)
    return State(proof.recipe, "", policy or "recompute", proof)
