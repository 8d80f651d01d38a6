# SPDX-License-Identifier: Apache-2.0
"""Adapters of PEFT on the children of a block: what each adds to its base layer, and whether that may be computed at once.

PEFT is not imported: its layer is known by its name, and what it computes is read off its own forward, run with stand-ins
for the base layer, the adapters and x. That happens once for each state that a layer can be in (which adapters are active,
merged, disabled); any other result than base(x) + b(a(dropout(x))) * scaling leaves the layer alone."""

from __future__ import annotations

import copy
from typing import Any, Optional, Union

import torch
from torch import nn

from .lora import Update

_DTYPES = (torch.float32, torch.bfloat16, torch.float16)


def is_adapter(cls: Any) -> bool:
    return bool(cls.__module__ == "peft.tuners.lora.layer" and cls.__qualname__ == "Linear")


def base_of(child: Any) -> Any:
    """The layer whose weight a product takes."""
    return child._modules["base_layer"] if is_adapter(type(child)) else child


# ---- the formula ----


class _Term:
    """A sum of products as text; x knows its dtype, as forward asks for it."""

    def __init__(self, text: str, dtype: torch.dtype = torch.float32) -> None:
        self.text, self.dtype = text, dtype

    def to(self, *args: Any, **kwargs: Any) -> _Term:
        if (len(args), len(kwargs)) not in ((1, 0), (0, 1)) or not isinstance([*args, *kwargs.values()][0], torch.dtype):
            raise TypeError("a cast of another kind")
        return self

    def __add__(self, other: Any) -> _Term:
        return _Term(f"{self.text} + {other.text}")

    def __mul__(self, other: float) -> _Term:
        return _Term(f"{self.text} * {float(other)!r}")


class _StandIn:
    """A submodule: makes a term of one."""

    def __init__(self, name: str, real: Any) -> None:
        self._name = name
        if hasattr(real, "weight"):
            self.weight = real.weight

    def __call__(self, x: _Term) -> _Term:
        return _Term(f"{self._name}({x.text})")


def _computes(child: Any) -> str:
    """What the layer's forward computes in the state that it is in."""
    twin = object.__new__(type(child))
    twin.__dict__.update(child.__dict__)
    modules: dict[str, Any] = {}
    for name, module in child._modules.items():
        if isinstance(module, nn.ModuleDict):
            modules[name] = {key: _StandIn(f"{name}.{key}", part) for key, part in module.items()}
        else:
            modules[name] = _StandIn(name, module)
    twin.__dict__["_modules"] = modules
    return type(child).forward(twin, _Term("x")).text  # type: ignore[no-any-return]


def _expected(child: Any, active: list[str]) -> str:
    terms = ["base_layer(x)"]
    terms += [f"lora_B.{key}(lora_A.{key}(lora_dropout.{key}(x))) * {float(child.scaling[key])!r}" for key in active]
    return " + ".join(terms)


def _small(rows: int, cols: int, generator: torch.Generator, bias: bool = False) -> nn.Linear:
    made = nn.Linear(cols, rows, bias=bias, dtype=torch.float64)
    for p in made.parameters():
        p.data = torch.randn(p.shape, generator=generator, dtype=torch.float64)
    return made


def _is_scaled_sum(child: Any, name: str) -> bool:
    """A layer with a magnitude asks for values, so its forward runs on a small twin in double precision, and is compared with
    rows of base + scaling b a, scaled to the magnitude."""
    generator = torch.Generator().manual_seed(1)
    base, a, b = _small(7, 5, generator, True), _small(2, 5, generator), _small(7, 2, generator)
    magnitude = copy.copy(child._modules["lora_magnitude_vector"]._modules[name])
    lengths = nn.Parameter(torch.rand(7, generator=generator, dtype=torch.float64) + 0.5)
    magnitude.__dict__["_parameters"] = {"weight": lengths}
    parts = {"lora_A": a, "lora_B": b, "lora_dropout": nn.Identity(), "lora_magnitude_vector": magnitude}
    twin = object.__new__(type(child))
    twin.__dict__.update(child.__dict__)
    twin.__dict__["_modules"] = {"base_layer": base, **{key: nn.ModuleDict({name: part}) for key, part in parts.items()}}
    x = torch.randn(3, 5, generator=generator, dtype=torch.float64)
    with torch.enable_grad(), torch.autocast("cpu", enabled=False):
        total = base.weight + child.scaling[name] * b.weight @ a.weight
        rows = lengths / torch.linalg.vector_norm(total.detach(), dim=1)
        ys = type(child).forward(twin, x), x @ (rows[:, None] * total).t() + base.bias
        found, expected = (torch.autograd.grad(y.square().sum(), (lengths, a.weight, b.weight)) for y in ys)
    pairs = [ys, *zip(found, expected)]
    return all(torch.allclose(f, e, rtol=1e-9, atol=1e-12) for f, e in pairs)  # double precision's 1e-16 and then some


_proven: dict[Any, Optional[str]] = {}  # state of a layer -> why it is left alone, or None
_MOST = 1024


def _prove(child: Any, active: list[str]) -> Optional[str]:
    scaled = _is_scaled(child, active)
    key = (type(child), type(child).forward, scaled, tuple((name, child.scaling[name]) for name in active))
    if key not in _proven:
        try:
            if scaled:
                right, text = _is_scaled_sum(child, active[0]), "something else than rows of a magnitude"
            else:
                text = _computes(child)
                right = text == _expected(child, active)
            _proven[key] = None if right else f"its adapters compute {text}"
        except Exception as error:  # anything may happen in a stranger's forward
            return f"its adapters cannot be followed ({type(error).__name__}: {error})"
        if len(_proven) > _MOST:
            _proven.clear()
            return _prove(child, active)
    return _proven[key]


# ---- a layer now ----


def _active(child: Any) -> Union[list[str], str]:
    """The adapters that a call of the layer adds, or what is in the way."""
    if child._disable_adapters:
        return "its adapters are disabled and merged: the next call takes them out" if child.merged_adapters else []
    if child.merged_adapters:
        return []
    names = child._active_adapter
    names = [name for name in ([names] if isinstance(names, str) else names) if name in child._modules["lora_A"]._modules]
    variants = child.__dict__.get("lora_variant", {})
    for name in names:
        if name in variants and not (_is_scaled(child, [name]) and len(names) == 1):
            cls = variants[name] if isinstance(variants[name], type) else type(variants[name])
            return f"its adapter {name} is a {cls.__name__}{', among others' if len(names) > 1 else ''}"
    return names


def _is_scaled(child: Any, active: list[str]) -> bool:
    """Whether the only active adapter is one of DoRA."""
    variant = child.__dict__.get("lora_variant", {}).get(active[0]) if active else None
    cls = variant if isinstance(variant, type) else type(variant)
    return cls.__module__ == "peft.tuners.lora.variants" and cls.__qualname__ == "DoraLinearVariant"


def _is_plain(layer: Any) -> bool:
    return type(layer) is nn.Linear and not _has_hooks(layer) and "forward" not in layer.__dict__


def _has_hooks(layer: Any) -> bool:
    return bool(
        layer._forward_hooks or layer._forward_pre_hooks or layer._backward_hooks or layer._backward_pre_hooks
    )


def _submodules(child: Any, name: str) -> tuple[Any, Any, Any]:
    """a, b and the dropout of an adapter, without the detour of attributes."""
    modules = child._modules
    a, b, dropout = (modules[key]._modules[name] for key in ("lora_A", "lora_B", "lora_dropout"))
    return a, b, dropout


def _obstacle_of(child: Any, name: str) -> Optional[str]:
    a, b, dropout = _submodules(child, name)
    for part in (a, b):
        weight = part._parameters.get("weight")
        if not _is_plain(part) or type(weight) is not nn.Parameter or not weight.is_cpu:
            return f"its adapter {name} is not made of plain nn.Linear on the CPU"
        if weight.dtype not in _DTYPES:
            return f"its adapter {name} is {weight.dtype}"
        if part._parameters["bias"] is not None:
            return f"its adapter {name} has a bias"
    if type(dropout) not in (nn.Dropout, nn.Identity) or _has_hooks(dropout):
        return f"the dropout of its adapter {name} is a {type(dropout).__name__} or has hooks"
    if type(dropout) is nn.Dropout and dropout.p == 1:
        return f"the dropout of its adapter {name} leaves nothing"
    if not _is_scaled(child, [name]):
        return None
    magnitude = child._modules["lora_magnitude_vector"]._modules[name]
    weight = magnitude._parameters["weight"]
    if type(weight) is not nn.Parameter or not weight.is_cpu or weight.dtype not in _DTYPES or _has_hooks(magnitude):
        return f"the magnitude of its adapter {name} is not a plain parameter on the CPU"
    if child.fan_in_fan_out:
        return f"its adapter {name} scales a transposed weight"
    if _probability(dropout):
        return f"its adapter {name} has a magnitude and dropout"
    return None


def _probability(dropout: Any) -> float:
    return dropout.p if type(dropout) is nn.Dropout and dropout.training else 0.0


def obstacle(child: Any) -> Optional[str]:
    """Why an adapted layer must be called as it is; None where its base layer and updates_of() say all."""
    active = _active(child)
    if isinstance(active, str):
        return active
    for name in active:
        reason = _obstacle_of(child, name)
        if reason is not None:
            return reason
    weight = child._modules["base_layer"]._parameters.get("weight")
    if weight is not None and weight.requires_grad and active and torch.is_grad_enabled():
        return "its base weight is trained too"
    return _prove(child, active) if active else None


def updates_of(child: Any) -> list[Update]:
    """What the active adapters of a layer without obstacles add to its base layer now."""
    if not is_adapter(type(child)):
        return []
    active = _active(child)
    assert not isinstance(active, str)
    updates = []
    for name in active:
        a, b, dropout = _submodules(child, name)
        magnitude = None
        if _is_scaled(child, active):
            magnitude = child._modules["lora_magnitude_vector"]._modules[name]._parameters["weight"]
        scale, p = float(child.scaling[name]), _probability(dropout)
        updates.append(Update(a._parameters["weight"], b._parameters["weight"], scale, p, magnitude))
    return updates
